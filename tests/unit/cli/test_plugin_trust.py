"""Whose code runs: on the command line that of folders named with `--plugins`, in a program what a scenario names."""

from __future__ import annotations

import json
import shlex
import threading
from pathlib import Path

import pytest

import microsim
from microsim.batch import BatchSimulation
from microsim.registry import code_only_from, is_trusted, trust
from tests.cli_support import run_microsim
from tests.support import bare

TRAP = """
from pathlib import Path
from microsim.generators import Generator
(Path(__file__).parent / "ran").touch()
GENERATOR = Generator("posts", lambda options, map, random: [])
"""


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder with a scenario, a mission and a sweep, whose plug-in says when it is run."""
    (tmp_path / "code dir").mkdir()
    (tmp_path / "code dir" / "posts.py").write_text(TRAP)
    robots = {"rover": bare(start={"map_pose": {"x": 2.0, "y": 2.0}})}
    scenario = {
        "name": "yard", "plugins": ["code dir"], "obstacles": [{"plugin": "posts"}], "robots": robots,
        "map": {"size_xy_cells": [20, 20]},
    }  # fmt: skip
    (tmp_path / "yard.yaml").write_text(json.dumps(scenario))
    (tmp_path / "walk.yaml").write_text(json.dumps({"scenario": "yard.yaml", "duration": 1, "do": []}))
    (tmp_path / "all.yaml").write_text(json.dumps({"scenario": "yard.yaml", "duration": 1, "seeds": [1]}))
    return tmp_path


SHORT = ("--rtf", "0", "--headless", "--duration", "0.1")
COMMANDS = {
    "run": ("run", "yard.yaml", *SHORT),
    "run with a mission": ("run", "--mission", "walk.yaml", "--rtf", "0", "--headless"),
    "run after --ros-args": ("run", "yard.yaml", *SHORT, "--ros-args", "-p", "seed:=3"),
    "picture": ("picture", "yard.yaml"),
    "determinism": ("determinism", "yard.yaml", "--missions", "walk.yaml"),
    "sweep": ("sweep", "yard.yaml", "--duration", "1", "--seeds", "1"),
    "sweep from a file": ("sweep", "all.yaml"),
    "validate": ("validate", "yard.yaml"),
    "bundle": ("bundle", "new", "made", "--scenario", "yard.yaml"),
    "replay of another bag": ("replay", "bag", "--scenario", "yard.yaml"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_runs_code_from_a_folder_that_a_file_names(trap: Path, name: str) -> None:
    done = run_microsim(*COMMANDS[name], cwd=trap)
    assert done.returncode == 2, done.stderr
    assert not (trap / "code dir" / "ran").exists()
    assert "add --plugins 'code dir'" in done.stderr
    assert "yard.yaml:1:" in done.stderr or name == "validate"


def test_the_error_contains_the_command_that_works(trap: Path) -> None:
    refused = run_microsim("run", "yard.yaml", *SHORT, "--ros-args", "-p", "seed:=3", cwd=trap)
    program, *command = shlex.split(refused.stderr.splitlines()[-1])
    assert program == "microsim"
    done = run_microsim(*command, cwd=trap)
    assert done.returncode == 0, done.stderr
    assert (trap / "code dir" / "ran").exists()


def test_a_program_runs_what_its_scenario_names_unless_it_says_otherwise(trap: Path) -> None:
    with code_only_from([]):
        for load in (microsim.Simulation, microsim.load_scenario, BatchSimulation):
            with pytest.raises(microsim.ScenarioError, match="run only from folders that you name"):
                load(trap / "yard.yaml")
    assert not (trap / "code dir" / "ran").exists()
    with code_only_from([trap / "code dir"]):
        microsim.load_scenario(trap / "yard.yaml")
    assert (trap / "code dir" / "ran").exists()
    (trap / "code dir" / "ran").unlink()
    (trap / "code dir" / "posts.py").write_text(TRAP + "# again")
    microsim.load_scenario(trap / "yard.yaml")
    assert (trap / "code dir" / "ran").exists()


def test_trust_holds_for_every_thread_and_ends_with_its_block(tmp_path: Path) -> None:
    seen: list[bool] = []
    with code_only_from([]):
        worker = threading.Thread(target=lambda: seen.append(is_trusted(tmp_path)))
        worker.start()
        worker.join()
        trust([tmp_path])
        assert is_trusted(tmp_path)
        with code_only_from([]):
            assert not is_trusted(tmp_path)
        assert is_trusted(tmp_path)
        with code_only_from(None):
            assert is_trusted("/")
    assert seen == [False]
    assert is_trusted("/")
