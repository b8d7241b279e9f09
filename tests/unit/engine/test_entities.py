"""Entities spawned, moved and deleted during a run: ordered inputs, in snapshots, forks and recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import microsim
from microsim.recording.bag_io import open_bag
from microsim.recording.bag_replay import Replay
from microsim.recording.recorder import Recorder
from microsim.recording.state_file import resume, save_state

QUIET = {
    "world_topics": {"occupancy_hz": 1, "markers_hz": 1},
    "map": {"size_xy_cells": [60, 60]},
    "obstacles": [{"type": "box", "center": [50, 50, 0], "size": [2, 2, 2]}],
    "robots": {
        "drone": {"camera": None, "start": {"map_pose": {"x": 20, "y": 20, "z": 10}}},
        "rover": {"start": {"map_pose": {"x": 10, "y": 10}}},
    },
}
SECOND = {"model": "rover", "start": {"map_pose": {"x": 30.0, "y": 30.0, "yaw": 0.0}}}
CRATE = {"type": "box", "center": [35.0, 30.0, 0.0], "size": [1.0, 1.0, 1.0]}


def run_with_entities(sim: microsim.Simulation) -> None:
    sim.command("rover", v=1.0)
    sim.step(20)
    sim.spawn("rover_2", SECOND)
    sim.command("rover_2", v=2.0)
    sim.spawn("crate", CRATE)
    sim.step(40)
    sim.radio_send("rover_2", b"hello")
    sim.delete("drone")
    sim.move_obstacle("obstacle_0", (45.0, 45.0, 0.0))
    sim.step(40)


@pytest.fixture
def sim() -> microsim.Simulation:
    return microsim.Simulation(QUIET)


def test_entities_are_robots_and_obstacles_by_name(sim: microsim.Simulation) -> None:
    run_with_entities(sim)
    assert list(sim.entities) == ["rover", "rover_2", "obstacle_0", "crate"]
    obstacle: Any = sim.entities["obstacle_0"]
    assert obstacle.center == (45.0, 45.0, 0.0)
    sim.delete("obstacle_0")
    assert list(sim.entities) == ["rover", "rover_2", "crate"]


def test_others_do_not_notice_a_spawned_robot(sim: microsim.Simulation) -> None:
    alone = microsim.Simulation(QUIET)
    for each in (sim, alone):
        each.command("rover", v=1.0)
        each.step(30)
    sim.spawn("rover_2", SECOND)
    mine = {"/rover/odom", "/rover/imu/data_raw", "/rover/gps/fix"}
    first, second = ([(m.topic, m.cdr) for m in each.step(60) if m.topic in mine] for each in (sim, alone))
    assert first == second
    assert len(first) > 30


def test_a_spawned_robot_drives_senses_and_is_stopped_by_a_spawned_obstacle(sim: microsim.Simulation) -> None:
    sim.spawn("rover_2", SECOND)
    sim.spawn("crate", CRATE)
    sim.command("rover_2", v=2.0)
    messages = sim.step(240)
    assert sim.touching("rover_2") == ("crate",)
    assert {"/rover_2/odom", "/rover_2/imu/data_raw"} <= {each.topic for each in messages}
    frames = sim.frame_poses()
    assert "rover_2/base_link" in frames


def test_a_run_with_entities_is_repeated_by_snapshots_and_forks(sim: microsim.Simulation) -> None:
    sim.step(10)
    before = sim.snapshot()
    run_with_entities(sim)
    middle, twin = sim.snapshot(), sim.fork()
    digest = sim.digest()
    sim.restore(before)
    assert list(sim.entities) == ["drone", "rover", "obstacle_0"]
    run_with_entities(sim)
    assert sim.digest() == digest
    sim.step(30)
    twin.step(30)
    later = sim.digest()
    assert twin.digest() == later
    sim.delete("rover")
    sim.restore(middle)
    sim.step(30)
    assert sim.digest() == later


def test_a_recording_with_entities_replays_to_the_same_bytes(sim: microsim.Simulation, tmp_path: Path) -> None:
    with Recorder(tmp_path / "bag", sim):
        run_with_entities(sim)
    with Replay(open_bag(tmp_path / "bag")) as replay:
        assert replay.verify().is_identical
        assert replay.sim.digest() == sim.digest()
        assert list(replay.sim.entities) == list(sim.entities)


def test_an_obstacle_may_stand_where_a_robot_started_once_it_has_left(sim: microsim.Simulation, tmp_path: Path) -> None:
    """The run goes on, is recorded, replayed, saved and changed like any other; a reset makes room again."""
    started = microsim.Simulation(QUIET)
    started.step(30)
    at_start = {**CRATE, "center": [10.0, 10.0, 0.0]}
    with pytest.raises(microsim.UsageError, match="overlap rover"):
        sim.spawn("crate", at_start)
    with Recorder(tmp_path / "bag", sim):
        sim.command("rover", v=2.0)
        sim.step(120)
        sim.spawn("crate", at_start)
        sim.step(10)
        sim.move_obstacle("crate", (10.0, 10.1, 0.0))
        sim.delete("obstacle_0")
        sim.spawn("rover_2", SECOND)
        sim.step(10)
    save_state(tmp_path / "run.state", sim.snapshot())
    assert resume(tmp_path / "run.state", tmp_path).digest() == sim.digest()
    with Replay(open_bag(tmp_path / "bag")) as replay:
        assert replay.verify().is_identical
    with pytest.raises(microsim.ScenarioError, match="occupied by"):
        sim.spawn("rover_3", {"model": "rover", "start": {"map_pose": {"x": 10.0, "y": 10.0}}})
    sim.step(5)
    sim.reset()
    sim.step(30)
    assert sim.digest() == started.digest()


def test_a_reset_removes_what_was_spawned_and_brings_back_what_was_deleted(sim: microsim.Simulation) -> None:
    sim.step(60)
    digest = sim.digest()
    run_with_entities(sim)
    sim.reset()
    sim.step(60)
    assert list(sim.entities) == ["drone", "rover", "obstacle_0"]
    assert sim.digest() == digest


def test_a_command_for_a_robot_that_is_deleted_before_the_tick_is_dropped(sim: microsim.Simulation) -> None:
    sim.command("drone", vx=1.0)
    sim.delete("drone")
    sim.step(1)
    assert sim.robots == ("rover",)


@pytest.mark.parametrize(
    ("name", "block", "reason"),
    [
        ("rover", SECOND, "there is already an entity 'rover'"),
        ("Rover 2", SECOND, "not a valid ROS name"),
        ("two", {**SECOND, "start": {"map_pose": {"x": 10.1, "y": 10.0}}}, "two would overlap rover"),
        ("two", {**SECOND, "start": {"map_pose": {"x": 100.0, "y": 10.0}}}, "outside the map"),
        ("two", {**SECOND, "start": {"map_pose": {"x": 50.0, "y": 50.0}}}, "occupied by"),
        ("two", {"model": "rovr"}, "did you mean 'rover'"),
        ("box", {**CRATE, "center": [10.0, 10.4, 0.0]}, "rover"),
        ("box", {**CRATE, "size": [1.0, 1.0]}, "size"),
    ],
)
def test_what_cannot_be_spawned_is_refused_with_the_reason(
    sim: microsim.Simulation, name: str, block: dict[str, Any], reason: str
) -> None:
    with pytest.raises(microsim.MicroSimError, match=reason):
        sim.spawn(name, block)
    assert list(sim.entities) == ["drone", "rover", "obstacle_0"]


def test_a_layout_that_the_seed_decides_stays_as_it_is() -> None:
    sim = microsim.Simulation({**QUIET, "randomize": {"obstacles": {"shift_m": 1.0}}})
    with pytest.raises(microsim.UsageError, match="where `randomize` decides the layout"):
        sim.spawn("rover_2", SECOND)


def test_two_entities_cannot_have_one_name() -> None:
    with pytest.raises(microsim.ScenarioError, match="an obstacle is already called 'rover'"):
        microsim.load_scenario({**QUIET, "obstacles": [{**CRATE, "name": "rover"}]})
    with pytest.raises(microsim.ScenarioError, match="another obstacle is already called 'crate'"):
        microsim.load_scenario({**QUIET, "obstacles": [{**CRATE, "name": "crate"}] * 2})
