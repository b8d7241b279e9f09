"""Whatever code of a plug-in fails, wherever it is called: a command ends with one sentence, with file and line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli_support import run_microsim
from tests.support import bare
from tests.unit.engine.test_plugin_declarations import SOURCES

PICTURE = """
from dataclasses import replace
from microsim.sensors.camera import SENSOR as CAMERA

class Eye:
    def __init__(self, context):
        self.camera = CAMERA.instrument(context)

    def read(self, view):
        return self.camera.read(view)

SENSOR = replace(CAMERA, name="eye", instrument=Eye, is_standard=False)
"""
KINDS = {**SOURCES, "picture": PICTURE}
# kind of plug-in, what is written otherwise, how, which commands come to it
BOTH, NONE = ("run", "sweep"), ()
G = '"gauge", settings'
CASES: list[tuple[str, str, str, tuple[str, ...]]] = [
    (
        "sensor",
        '"fluid_pressure": "pressure"}),)',
        '"fluid_pressure": "pressure"}, applies=lambda block: 1 / 0),)',
        BOTH,
    ),
    ("sensor", G, '"gauge", frames=lambda *given: 1 / 0, settings', BOTH),
    ("sensor", G, '"gauge", begin=lambda motion, block: 1 / 0, settings', BOTH),
    ("sensor", G, '"gauge", is_tracking=lambda block: 1 / 0, track=sample, settings', BOTH),
    ("sensor", G, '"gauge", size=lambda context: 1 / 0, settings', BOTH),
    ("sensor", G, '"gauge", sample_of=lambda context: 1 / 0, settings', BOTH),
    ("sensor", '"A gauge."', '"A gauge."\n    def model_post_init(self, given): 1 / 0', BOTH),
    ("robot", '"On rails."', '"On rails."\n    def body(self): 1 / 0', BOTH),
    ("robot", '"On rails."', '"On rails."\n    def parts(self): 1 / 0', BOTH),
    ("robot", '"On rails."', '"On rails."\n    def look(self): 1 / 0', BOTH),
    ("robot", '"On rails."', '"On rails."\n    def model_post_init(self, given): 1 / 0', BOTH),
    ("fault", "alter=alter", "alter=alter, applies=lambda sensor: 1 / 0", BOTH),
    ("generator", "return [", "1 / 0; return [", BOTH),
    ("generator", '("posts", generate', '("posts", generate, options=5', BOTH),
    ("metric", '"A number."', '"A number."\n    @classmethod\n    def problem(cls, *given): 1 / 0', ("sweep",)),
    ("metric", '"A number."', '"A number."\n    def __init__(self, *given): 1 / 0', ("sweep",)),
    ("simple", "self.ticks = 0", "1 / 0", BOTH),
    ("simple", "self.ticks += 1", "1 / 0", ("run",)),  # a sweep without its messages does not need it
    ("picture", "return self", "1 / 0; return self", BOTH),
    ("picture", "self.camera =", "1 / 0; self.camera =", BOTH),
    ("picture", "class Eye:", "class Eye:\n    def compiled(self): 1 / 0\n", NONE),  # what it compiles is never used
]
COMMANDS = {"run": ["--duration", "0.2", "--rtf", "0", "--headless"], "sweep": ["--duration", "0.2", "--seeds", "1"]}


QUICK = (0, 11, 13, 18, 20)


@pytest.mark.parametrize(
    ("kind", "old", "new", "called"),
    [pytest.param(*case, marks=() if k in QUICK else pytest.mark.slow) for k, case in enumerate(CASES)],
)
def test_a_command_ends_with_one_sentence(
    tmp_path: Path, kind: str, old: str, new: str, called: tuple[str, ...]
) -> None:
    source = KINDS[kind]
    assert old in source
    (tmp_path / "part.py").write_text(source.replace(old, new, 1))
    sensors = {"gauge": {"type": "gauge", "hz": 60}} if kind in ("sensor", "simple") else {}
    sensors |= {"eye": {"type": "eye", "hz": 10}} if kind == "picture" else {}
    robot = bare(start={"map_pose": {"x": 5.0, "y": 5.0}}, sensors=sensors)
    scenario = {
        "plugins": [str(tmp_path)],
        "map": {"size_xy_cells": [20, 20]},
        "robots": {"sled": robot} if kind == "robot" else {"rover": {**robot, "gps": {"hz": 60}}},
        "faults": [{"target": "gps", "kind": "stuck", "from_s": 0.0, "to_s": 9.0}] if kind == "fault" else [],
        "obstacles": [{"plugin": "posts"}] if kind == "generator" else [],
    }
    (tmp_path / "yard.yaml").write_text(json.dumps(scenario))
    for command, words in COMMANDS.items():
        more = ["--metrics", "tilt"] if kind == "metric" and command == "sweep" else []
        done = run_microsim(command, "yard.yaml", *words, *more, "--plugins", ".", cwd=tmp_path)  # without a traceback
        if command in called:
            assert done.returncode in (1, 2), (command, done.stderr)
            said = re.search(rf"^microsim: .*{re.escape(str(tmp_path))}/part\.py:(\d+): .*Error: ", done.stderr)
            assert said is not None, done.stderr
            assert len(done.stderr.splitlines()) == 1, done.stderr
            lines = (tmp_path / "part.py").read_text().splitlines()
            line = lines[int(said[1]) - 1]
            assert new.splitlines()[-1].strip() in line or line.startswith("SENSOR ="), done.stderr
        else:
            assert done.returncode == 0, done.stderr
