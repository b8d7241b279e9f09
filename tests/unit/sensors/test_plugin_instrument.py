"""Instruments that others write: they are read in Python, where whatever is wrong ends the run with one sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import microsim
from microsim.batch import BatchSimulation
from tests.support import bare

SOURCE = """
import numpy as np
from microsim.messages.encoders import header
from microsim.messages.topics import Qos
from microsim.messages.types import encode, new
from microsim.sensors.sensor import Instrument, MessageForm, MountedSensor

COUNT = "std_msgs/msg/Int32"

class Settings(MountedSensor):
    "A counter."

class Counter:
    def __init__(self, context):
        self.numbers = np.zeros(3)

    def compiled(self):
        COMPILED

    def read(self, view):
        READ
        return np.array([float(view.tick)])

SENSOR = Instrument("counter", Settings, Counter, shape=lambda context: (1,), messages=(
    MessageForm(COUNT, "/{robot}/{sensor}", Qos(5), "ticks", prototype=lambda context: new(COUNT),
        encoder=lambda context: lambda stamp_ns, reading: encode(COUNT, new(COUNT, data=int(reading[0])))),))
"""
WRONG = {
    'raise ValueError("worn out")': "ValueError: worn out",
    "self.numbers[7] = 1.0": "IndexError: index 7",
}


def world(folder: Path, compiled: str, read: str) -> dict[str, Any]:
    (folder / "part.py").write_text(SOURCE.replace("COMPILED", compiled).replace("READ", read))
    sensors = {"counter": {"type": "counter", "hz": 60}}
    robot = bare(start={"map_pose": {"x": 5.0, "y": 5.0}}, sensors=sensors)
    return {"plugins": [str(folder)], "map": {"size_xy_cells": [20, 20]}, "robots": {"rover": robot}}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_plug_in_compiles_itself_is_not_used_since_it_has_no_checks(tmp_path: Path, wrong: str) -> None:
    sim = microsim.Simulation(world(tmp_path, wrong, "pass"))
    ticks = [message.message.data for message in sim.step(5) if message.topic == "/rover/counter"]
    assert ticks == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("is_batch", [False, True], ids=["alone", "batch"])
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_in_a_reader_ends_the_run_with_one_sentence(tmp_path: Path, wrong: str, is_batch: bool) -> None:
    settings = world(tmp_path, "return None", wrong)
    with pytest.raises(microsim.PluginError) as caught:  # the first reading may be made with the run
        (BatchSimulation(settings, n=2) if is_batch else microsim.Simulation(settings)).step(3)
    text, line = str(caught.value), (tmp_path / "part.py").read_text().splitlines().index(f"        {wrong}") + 1
    assert re.match(rf"{re.escape(str(tmp_path / 'part.py'))}:{line}: ", text), text
    assert WRONG[wrong] in text
    assert "\n" not in text
