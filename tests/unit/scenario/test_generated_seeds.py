"""What is kept of a run in a generated world: recordings, states, tokens and sweeps have the world of its seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import microsim
from microsim.cli import app
from microsim.parts.sweep.run_one import SweepOrder, SweepRunner, scenario_content
from microsim.recording.bag_io import RecordOptions, open_bag
from microsim.recording.bag_replay import Replay
from microsim.recording.inputs import as_text, packed
from microsim.recording.recorder import Recorder
from microsim.recording.state_file import load_state, resume, save_state
from tests.support import bare, scenario

FENCE = """
from microsim.generators import Generator

def generate(options, map, random):
    return [{"type": "box", "center": [12 + 4 * random.uniform(), 15, 0], "size": [1, 1, 2]} for _ in range(3)]

GENERATOR = Generator("fence", generate)
"""
HILLS = {"size_xy_cells": [20, 20], "elevation": {"generate": "hills", "amplitude_m": 0.5, "wavelength_m": 8}}


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Any]:
    """With a generator of the user's, on hills."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/fence.py").write_text(FENCE)
    rover = bare(start={"map_pose": {"x": 5, "y": 5}}, scan={"beams": 9, "hz": 20}, odom={})
    parts = {"plugins": [str(tmp_path / "parts")], "obstacles": [{"plugin": "fence"}]}
    return scenario(robots={"rover": rover}, map=HILLS, **parts)


def test_a_recording_has_the_world_of_its_run_and_needs_no_generator(data: dict[str, Any], tmp_path: Path) -> None:
    sim = microsim.Simulation(data, 99)
    with Recorder(tmp_path / "bag", sim, RecordOptions()) as recorder:
        recorder.on_messages(sim.step(4))
        sim.spawn("crate", {"type": "box", "center": [3, 16, 0], "size": [1, 1, 1]})
        recorder.on_messages(sim.step(4))
    bag = open_bag(tmp_path / "bag")
    with Replay(bag) as replay:
        assert replay.sim.scenario.obstacles == microsim.Simulation(data, 99).scenario.obstacles
        assert replay.verify().is_identical
    written = json.loads(bag.run_info.start["scenario"])
    alone = microsim.load_scenario({**written, "plugins": []})  # as tools that only draw it
    assert microsim.Simulation(alone).digest() == microsim.Simulation(data, 99).digest()


def test_a_state_resumes_in_the_world_of_its_run_and_a_reset_makes_another(
    data: dict[str, Any], tmp_path: Path
) -> None:
    sim, parts = microsim.Simulation(data, 99), [tmp_path / "parts"]
    sim.step(4)
    save_state(tmp_path / "a.state", sim.snapshot())
    again, other = resume(tmp_path / "a.state", tmp_path, parts), microsim.Simulation(data, 5)
    load_state(tmp_path / "a.state", other)
    for each in (sim, again, other):
        each.step(4)
    assert sim.digest() == again.digest() == other.digest()
    again.reset(5)
    assert again.digest() == microsim.Simulation(data, 5).digest()


def test_a_sweep_runs_each_seed_in_its_world_as_a_simulation_does(data: dict[str, Any]) -> None:
    loaded = microsim.load_scenario(data)
    packed_data, files = packed(loaded)
    order = SweepOrder(as_text(packed_data), files, None, 0.5, [{}], ["collisions"])
    runner = SweepRunner(order)
    try:
        worlds = set()
        for seed in (1, 2, 1, 3):
            runner.run(0, seed)
            assert runner._sim is not None
            found = runner._sim.scenario.obstacles
            assert found == microsim.Simulation(loaded, seed).scenario.obstacles
            worlds.add(found)
    finally:
        runner.close()
    assert len(worlds) == 3


def test_a_token_knows_a_generator_that_was_edited(data: dict[str, Any], tmp_path: Path) -> None:
    before = scenario_content(microsim.load_scenario(data))
    assert scenario_content(microsim.Simulation(data, 99).scenario) == before  # whatever the seed of the run
    (tmp_path / "parts/fence.py").write_text(FENCE.replace("12 +", "11 +"))
    assert scenario_content(microsim.load_scenario(data)) != before


def test_the_seed_of_the_command_line_makes_the_maze(tmp_path: Path) -> None:
    digests = []
    for seed in ("7", "99", "99"):
        common = ["run", "maze", "--seed", seed, "--headless", "--transport", "none", "--rtf", "0", "--duration", "0.1"]
        done = CliRunner().invoke(app, [*common, "--json"])
        assert done.exit_code == 0, done.output
        digests.append(json.loads(done.stdout.splitlines()[-1])["digest"])
    assert digests[0] != digests[1] == digests[2]
    mazes = [microsim.Simulation("maze", seed).world.occupied.tobytes() for seed in (7, 99)]
    assert mazes[0] == microsim.Simulation("maze").world.occupied.tobytes() != mazes[1]
