"""Declarations of plug-ins that are wrong: one sentence with file and line, for every kind of plug-in with code.

The cases run in a child process without the compiler: what they are about comes before, or beside, compiled code.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import microsim
from microsim.batch import BatchSimulation
from microsim.parts.sweep.run_one import run_one
from tests.support import bare
from tests.unit.engine.plugin_kernel_faults import Case

ROOT = Path(__file__).resolve().parents[3]

GENERATOR = """
from pydantic import BaseModel
from microsim.generators import Generator

def generate(options, map, random):
    return [{"type": "cylinder", "center": [12.0, 12.0, 0.0], "radius": 0.5, "height": 2.0}]

GENERATOR = Generator("posts", generate)
"""

METRIC = """
from microsim.parts.sweep import Metric

class Tilt(Metric):
    "A number."
    name = "tilt"

    def look(self, block):
        self.seen = 1.0

    def value(self):
        return self.seen

METRIC = Tilt
"""

SIMPLE = """
from pydantic import BaseModel
from microsim.sensors.sensor import PythonSensor

class Probe:
    def __init__(self, context):
        self.ticks = 0

    def update(self, dt):
        self.ticks += 1

    def publish(self):
        return {"temperature": 1.0}

SENSOR = PythonSensor("gauge", "sensor_msgs/msg/Temperature", Probe)
"""

SOURCES = {
    "sensor": Case("sensor", "", "pass", "").source,
    "robot": Case("robot", "", "pass", "").source,
    "fault": Case("fault", "", "pass", "").source,
    "generator": GENERATOR,
    "metric": METRIC,
    "simple": SIMPLE,
}
FORM = '"sensor_msgs/msg/FluidPressure", "/{robot}/{sensor}"'
READING = '{"fluid_pressure": "pressure"}'
NUMBERS = "(1.0, 2.0, 3.0, 4.0)"
NAMES = 'reading={"pressure": "Pa", "b": "", "c": ""}'

# kind, what is written otherwise, how; what the sentence says; text in the line it names (default: what was written)
CASES: list[tuple[str, str, str, str, str]] = [
    ("sensor", FORM, FORM.replace("Pressure", "Presure"), "did you mean 'sensor_msgs/msg/FluidPressure'?", ""),
    ("sensor", 'new("sensor_msgs/msg/FluidPressure"', 'new("sensor_msgs/msg/Fluid"', "there is no message type", ""),
    ("sensor", READING, '{"fluid_presure": "pressure"}', "did you mean 'fluid_pressure'?", ""),
    ("sensor", READING, '{"fluid_pressure": "presure"}', "no reading 'presure'; did you mean 'pressure'?", ""),
    ("sensor", READING, '{"header.frame_id": "pressure"}', "no number 'header.frame_id'", "SENSOR ="),
    ("sensor", NAMES, f"{NAMES}, size=lambda context: 9", "9 numbers, the message has room for 2", READING),
    ("sensor", "header=header(", "heador=header(", "has no field heador", ""),
    ("sensor", "/{robot}/{sensor}", "/{robot}/{sonsor}", "expected a topic", "SENSOR ="),
    ("sensor", NUMBERS, "context.settings.sigma", "no attribute 'sigma'", ""),
    ("sensor", NUMBERS, "None", "TypeError", "SENSOR ="),
    ("sensor", NUMBERS, '("a",)', "could not convert string to float", ""),
    ("sensor", "[5.0, 6.0]", "1 / 0", "ZeroDivisionError", ""),
    ("sensor", "sample=sample", "sample=3", "sample: expected a function, found 3", "SENSOR ="),
    ("sensor", "sample=sample", "sample=sample, reads_state=True", '`reads_state` is now `reads="state"`', "SENSOR ="),
    ("sensor", "sample=sample", "sample=sample, track=sample", "`track` is now `tracker=Tracker(kernel", "SENSOR ="),
    ("sensor", "sample=sample", "sample=sample, reads='pose'", "expected 'pose'; there are: motion, place", "SENSOR ="),
    ("sensor", "KernelSensor", "Sensor", "Sensor(...) is now KernelSensor(...)", "SENSOR ="),
    ("simple", "PythonSensor", "Sensor", "Sensor(...) is now PythonSensor(...)", "SENSOR ="),
    ("sensor", "sample=sample", "sampel=sample", "unexpected keyword argument 'sampel'", "SENSOR ="),
    ("sensor", "settings=Settings", "settings=dict", "expected a subclass of SensorBlock", "SENSOR ="),
    ("sensor", 'memory=("last", "first")', "memory=2", "memory: expected names, found 2", "SENSOR ="),
    ("sensor", NAMES, "reading=3", "reading: expected names, found 3", "SENSOR ="),
    ("sensor", "messages=(", "messages=5 or (", "expected a tuple of MessageForm, found 5", "SENSOR ="),
    ("robot", '("one", "two")', '("one", "x")', "own: 'x' is there twice", "engine ="),
    ("robot", '("one", "two")', '("one", "a b")', "own: expected names, found 'a b'", "engine ="),
    ("robot", 'shown=("x",)', 'shown=("q",)', "shown: no number 'q' in its state; there are: x, y, z", "engine ="),
    ("robot", "(1, 2)", "(1,)", "parameters: expected a number for each of a, b; found 1", "engine ="),
    ("robot", '("linear.x",)', "()", "expected one for each input", "engine ="),
    ("robot", '("linear.x",)', '("linear.q",)', "found 'linear.q'", "engine ="),
    ("robot", "(1, 2)", "settings.nothing", "no attribute 'nothing'", ""),
    ("robot", "(1, 2)", '("a", 2)', "could not convert string to float: 'a'", ""),
    ("robot", "(1, 2)", "None", "TypeError", "ROBOT ="),
    ("robot", "advance=advance", "advance=None", "advance: expected a function, found None", "engine ="),
    ("robot", "advance=advance", 'advance=advance, command_age="age"', "no number 'age'", "engine ="),
    ("robot", "    model", "    def body(self): return 5\n    model", "must be an iterable, not int", "ROBOT ="),
    ("fault", "alter=alter", "alter=None", "OnSensor: expected one of is_silent, fails,", "FAULT ="),
    ("fault", "alter=alter", "alter=3", "alter: expected a kernel, found 3", "FAULT ="),
    ("fault", "OnSensor(alter=alter)", '"alter"', "expected now OnSensor(alter=kernel), found 'alter'", "FAULT ="),
    ("fault", "OnSensor(alter=alter)", "5", "expected one of OnSensor, OnMessages, OnRadio, OnNode", "FAULT ="),
    ("fault", "OnSensor(alter=alter)", "None, alter=alter", "is now `effect=OnSensor(alter=kernel)`", "FAULT ="),
    ("generator", "return [", "return options.nothing or [", "has no attribute 'nothing'", ""),
    ("generator", "return [", "return 5 and [][3:4] or 5 or [", "'int' object is not iterable", "GENERATOR ="),
    ("generator", '"radius": 0.5', '"radius": -0.5', "radius", "GENERATOR ="),
    ("metric", "self.seen = 1.0", "self.seen = block['nobody']", "KeyError: 'nobody'", ""),
    ("metric", "return self.seen", "return self.sen", "no attribute 'sen'", ""),
    ("metric", "return self.seen", "return 'text'", "returned 'text'; expected float or None", "tilt"),
    ("simple", "self.ticks = 0", "self.ticks = nothing", "NameError: name 'nothing' is not defined", ""),
    ("simple", "self.ticks += 1", "self.tick += 1", "no attribute 'tick'", ""),
    ("simple", '{"temperature": 1.0}', '{"temprature": 1.0}', "has no field temprature; there are:", ""),
    ("simple", "Temperature", "Thermometer", "there is no message type 'sensor_msgs/msg/Thermometer'", ""),
    ("simple", "def publish", "def publsh", "no attribute 'publish'", "SENSOR ="),
]  # fmt: skip


def run(kind: str, folder: Path) -> None:
    sensors = {"gauge": {"type": "gauge", "hz": 60}} if kind in ("sensor", "simple") else {}
    robot = bare(start={"map_pose": {"x": 5.0, "y": 5.0}}, sensors=sensors)
    scenario = {
        "plugins": [str(folder)],
        "map": {"size_xy_cells": [20, 20]},
        "robots": {"sled": robot} if kind == "robot" else {"rover": {**robot, "gps": {"hz": 60}}},
        "faults": [{"target": "gps", "kind": "stuck", "from_s": 0.0, "to_s": 9.0}] if kind == "fault" else [],
        "obstacles": [{"plugin": "posts"}] if kind == "generator" else [],
    }
    if kind == "robot":
        BatchSimulation(scenario, n=2).step(2)
    sim = microsim.Simulation(scenario)
    if kind == "metric":
        run_one(sim, None, 0.1, ["tilt"])
    sim.step(3)


def outcomes(folder: Path) -> list[str]:
    found = []
    for number, (kind, old, new, *_) in enumerate(CASES):
        source = SOURCES[kind]
        assert old in source, old
        plugins = folder / str(number)
        plugins.mkdir()
        (plugins / "part.py").write_text(source.replace(old, new))
        try:
            run(kind, plugins)
            found.append("nothing was raised")
        except microsim.PluginError as error:
            found.append(str(error))
        except Exception as error:  # which must not be
            found.append(f"{type(error).__name__}! {error}")
    return found


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("declarations")
    command = [sys.executable, "-m", "tests.unit.engine.test_plugin_declarations", str(folder)]
    variables = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder, json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{case[0]}: {case[2][:40]}" for case in CASES])
def test_a_mistake_is_reported_in_one_sentence_with_file_and_line(
    sentences: tuple[Path, list[str]], number: int
) -> None:
    folder, found = sentences
    _, _, new, expected, where = CASES[number]
    file, text = folder / str(number) / "part.py", found[number]
    place = re.match(rf"{re.escape(str(file))}:(\d+): ", text)
    assert place is not None, text
    assert expected in text
    assert "\n" not in text
    line = file.read_text().splitlines()[int(place[1]) - 1]
    assert (where or new.splitlines()[0]) in line or line.lstrip() in new, (line, text)


if __name__ == "__main__":
    answer: Any = outcomes(Path(sys.argv[1]))
    print(json.dumps(answer))
