"""Snapshots as files: whole, of this version, of this scenario, or refused in words."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from microsim.errors import UsageError
from microsim.recording.state_file import (
    FORMAT,
    MAGIC,
    History,
    SnapshotError,
    from_bytes,
    load_state,
    read_state,
    resume,
    save_state,
    to_bytes,
)
from microsim.runner import Runner
from microsim.simulation import Simulation
from tests.recording_support import WORLD, fly

PLUGIN = """
from microsim.sensors.sensor import PythonSensor
class Counter:
    def __init__(self, context):
        self.context, self.count = context, 0
    def update(self, dt):
        self.count += 1
    def publish(self):
        return {{"temperature": float(self.count) + self.context.normals()[0]}}
{memory}
SENSOR = PythonSensor(name="counter", message_type="sensor_msgs/msg/Temperature", create=Counter)
"""
MEMORY = """
    def save(self):
        return {"count": self.count}
    def load(self, data):
        self.count = data["count"]
"""


@pytest.fixture
def state(tmp_path: Path) -> tuple[Simulation, Path]:
    sim = Simulation(WORLD, 3)
    fly(sim, lambda messages: None, 90)
    path = tmp_path / "here.state"
    save_state(path, sim.snapshot())
    return sim, path


def with_plugin(folder: Path, memory: str) -> dict[str, Any]:
    folder.mkdir()
    (folder / "counter.py").write_text(PLUGIN.format(memory=memory))
    drone = {**WORLD["robots"]["drone"], "sensors": {"counts": {"type": "counter", "hz": 10}}}
    return {**WORLD, "plugins": [str(folder)], "robots": {**WORLD["robots"], "drone": drone}}


def test_the_file_tells_what_it_is(state: tuple[Simulation, Path]) -> None:
    facts = read_state(state[1]).run_info
    assert (facts["scenario"], facts["seed"], facts["tick"], facts["time_s"]) == ("small", 3, 90, 1.5)
    assert state[1].read_bytes().startswith(MAGIC)


def test_the_same_state_gives_the_same_file(state: tuple[Simulation, Path], tmp_path: Path) -> None:
    save_state(tmp_path / "again.state", state[0].fork().snapshot())
    assert (tmp_path / "again.state").read_bytes() == state[1].read_bytes()


def test_another_scenario_is_refused(state: tuple[Simulation, Path]) -> None:
    other = Simulation({**WORLD, "wind": {"world_xyz": [1, 0, 0]}})
    with pytest.raises(
        SnapshotError, match=r"began with another scenario: wind.world_xyz\[0\] is 0.0 there and 1.0 here"
    ):
        load_state(state[1], other)


def one_splat(path: Path) -> str:
    numbers = np.array([0, 0, 1, 0.3, 0.3, 0.3], "<f4").tobytes()
    path.write_bytes(numbers + bytes([200, 90, 30, 250, 255, 128, 128, 128]))
    return str(path)


def test_files_of_a_changed_scenario_come_from_the_run_or_from_the_state(tmp_path: Path) -> None:
    """Hills that the other run has elsewhere, and splats of a robot that was spawned, which it does not have."""
    worlds = []
    for name in ("here.npy", "there.npy"):
        np.save(tmp_path / name, np.random.default_rng(1).uniform(0, 0.1, (40, 40)))
        worlds.append({**WORLD, "map": {"size_xy_cells": [40, 40], "elevation": {"file": str(tmp_path / name)}}})
    sim = Simulation(worlds[0], 3)
    splats = one_splat(tmp_path / "walker.splat")
    sim.spawn("walker", {"model": "actor", "splats": splats, "start": {"map_pose": {"x": 15.0, "y": 5.0}}})
    sim.step(30)
    save_state(str(tmp_path / "a.state"), sim.snapshot())
    sim.step(30)
    for name in ("walker.splat", "here.npy"):
        (tmp_path / name).unlink()
    other, alone = Simulation(worlds[1], 9), resume(tmp_path / "a.state", tmp_path)
    load_state(str(tmp_path / "a.state"), other)
    for each in (other, alone):
        each.step(30)
        assert each.digest() == sim.digest()
        each.reset()
        assert "walker" not in each.robots


def test_a_state_that_cannot_be_restored_changes_nothing(state: tuple[Simulation, Path]) -> None:
    sim, path = state
    head, _, body = path.read_bytes()[len(MAGIC) : -32].partition(b"\n")
    content = from_bytes(body)
    content["state"] = content["state"][:4]
    path.write_bytes(sealed(MAGIC + head + b"\n" + to_bytes(content)))
    sim.spawn("post", {"type": "cylinder", "center": [36.0, 8.0, 0.0], "radius": 0.5, "height": 1.0})
    twin = sim.fork()
    with pytest.raises(SnapshotError, match=r"here\.state: damaged"):
        load_state(path, sim)
    for each in (sim, twin):
        each.step(20)
    assert (sim.digest(), list(sim.entities)) == (twin.digest(), list(twin.entities))


def sealed(blob: bytes) -> bytes:
    return blob + hashlib.sha256(blob).digest()


@pytest.mark.parametrize("change", [{"version": "99.0"}, {"format": FORMAT - 1}, {"format": FORMAT + 1}])
def test_another_version_is_refused(state: tuple[Simulation, Path], change: dict[str, Any]) -> None:
    sim, path = state
    head, _, body = path.read_bytes()[len(MAGIC) : -32].partition(b"\n")
    facts = {**json.loads(head), **change}
    path.write_bytes(sealed(MAGIC + json.dumps(facts).encode() + b"\n" + body))
    with pytest.raises(SnapshotError, match="a state can be loaded only by the version that saved it"):
        load_state(path, sim)


def test_damage_is_refused_wherever_it_is(state: tuple[Simulation, Path]) -> None:
    sim, path = state
    whole = path.read_bytes()
    digest = sim.digest()
    for place in range(0, len(whole), max(1, len(whole) // 300)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(SnapshotError, match=r"here\.state"):
            load_state(path, sim)
        path.write_bytes(whole[:place])
        with pytest.raises(SnapshotError, match=r"here\.state"):
            load_state(path, sim)
    assert sim.digest() == digest


def test_other_files_are_not_snapshots(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    for name in ("x", "missing"):
        with pytest.raises(SnapshotError):
            read_state(tmp_path / name)
    for body in (b"", b"?", b"l\xff\xff\xff\xff", b"k\x01\x00\x00\x00s\x04\x00\x00\x00eval", b"a\x00\x00\x00\x00"):
        with pytest.raises(SnapshotError):
            from_bytes(body)
    with pytest.raises(SnapshotError):
        from_bytes(b"l\x01\x00\x00\x00" * 100 + b"N")


def test_a_file_that_cannot_be_written_is_told_of(state: tuple[Simulation, Path], tmp_path: Path) -> None:
    (tmp_path / "folder.state").mkdir()
    with pytest.raises(SnapshotError, match="cannot be written"):
        save_state(tmp_path / "folder.state", state[0].snapshot())
    assert [path.name for path in tmp_path.iterdir()] == ["here.state", "folder.state"] or len(
        list(tmp_path.iterdir())
    ) == 2


def test_what_is_no_ordinary_file_is_left_alone(state: tuple[Simulation, Path], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.state"
    os.mkfifo(pipe)
    with pytest.raises(SnapshotError, match="it is not an ordinary file"):
        save_state(pipe, state[0].snapshot())
    assert pipe.is_fifo()
    link = tmp_path / "link.state"
    link.symlink_to(tmp_path / "target.state")
    save_state(link, state[0].snapshot())
    assert link.is_symlink()
    assert (tmp_path / "target.state").read_bytes() == state[1].read_bytes()


def test_a_name_as_long_as_names_may_be_is_good(state: tuple[Simulation, Path], tmp_path: Path) -> None:
    path = tmp_path / ("x" * 249 + ".state")
    save_state(path, state[0].snapshot())
    assert path.read_bytes() == state[1].read_bytes()
    with pytest.raises(SnapshotError, match="cannot be written: File name too long"):
        save_state(tmp_path / ("x" * 300), state[0].snapshot())


def test_a_state_is_refused_when_the_code_of_a_plug_in_has_changed(tmp_path: Path) -> None:
    sim = Simulation(with_plugin(tmp_path / "plugins", MEMORY), 3)
    sim.step(10)
    save_state(tmp_path / "a.state", sim.snapshot())
    (file,) = (tmp_path / "plugins").glob("*.py")
    file.write_text(file.read_text() + "\n# another\n")
    with pytest.raises(SnapshotError, match="the code of a plug-in is not what was saved"):
        resume(tmp_path / "a.state", tmp_path, [tmp_path / "plugins"])


def test_a_plug_in_with_memory_goes_on_from_a_file(tmp_path: Path) -> None:
    sim = Simulation(with_plugin(tmp_path / "plugins", MEMORY), 3)
    sim.step(100)
    save_state(tmp_path / "a.state", sim.snapshot())
    again = resume(tmp_path / "a.state", tmp_path, [tmp_path / "plugins"])
    assert [each.cdr for each in again.step(60)] == [each.cdr for each in sim.step(60)]


def test_a_plug_in_without_memory_is_refused_in_words(tmp_path: Path) -> None:
    sim = Simulation(with_plugin(tmp_path / "plugins", ""), 3)
    with pytest.raises(SnapshotError, match=r"drone/counts is a plug-in: .* needs `save\(\)`"):
        save_state(tmp_path / "a.state", sim.snapshot())


def test_a_history_is_bounded_and_leads_back(tmp_path: Path) -> None:
    runner = Runner(Simulation(WORLD, 3), 0.0)
    history = History(5.0)
    history.attach(runner)
    runner.run(1200)
    assert 5 <= len(history.ticks) <= 7
    assert history.ticks[-1] > 1200 - 120
    assert history.ticks[0] <= 1200 - 300
    twin = Simulation(WORLD, 3)
    twin.restore(history.at(1000))
    assert twin.tick <= 1000
    twin.step(1200 - twin.tick)
    assert twin.digest() == runner.sim.digest()
    with pytest.raises(UsageError, match="goes back to tick"):
        history.at(3)
    paths = history.save(tmp_path / "states")
    assert [resume(path, tmp_path).tick for path in paths] == history.ticks


def test_a_history_starts_anew_after_a_reset() -> None:
    sim = Simulation(WORLD, 3)
    history = History(5.0)
    for _ in range(10):
        sim.step(60)
        history.look(sim)
    sim.reset()
    history.look(sim)
    assert history.ticks == [0]


numbers = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
trees = st.recursive(
    numbers,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(trees)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    assert repr(from_bytes(to_bytes(value))) == repr(value)


@given(arrays(st.sampled_from([np.float64, np.uint8, np.int64, np.bool_]), st.sampled_from([(), (0,), (3,), (2, 3)])))
def test_arrays_come_back_as_they_were(value: Any) -> None:
    back = from_bytes(to_bytes(value))
    assert (back.dtype, back.shape, back.tobytes()) == (value.dtype, value.shape, value.tobytes())


@given(st.binary(max_size=60))
def test_any_bytes_are_data_or_an_error(data: bytes) -> None:
    with suppress(SnapshotError):
        from_bytes(data)


def test_what_is_not_plain_is_refused() -> None:
    for thing in (object(), {1, 2}, np.array(["a"]), lambda: None):
        with pytest.raises(SnapshotError, match="cannot be written"):
            to_bytes(thing)
