"""Any mixture of changes and time travel leaves a run that was only ever driven the way that led there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim.recording.state_file import load_state, resume, save_state
from microsim.scenario import Scenario, load_scenario
from microsim.simulation import Simulation, Snapshot
from tests.support import bare, many

START = {"map_pose": {"x": 10.0, "y": 10.0, "yaw": 0.0}}
CAMERA = {"hz": 7, "resolution": {"width": 8, "height": 6}, "latency_ms": {"mean": 150}}
ROBOTS: dict[str, Any] = {
    "rover": bare(imu={"hz": 20}, odom={"hz": 10}, start=START),
    "drone": bare(camera=CAMERA, gps={"hz": 5, "bias_drift_m_per_s": 0.5}, start={"map_pose": {"x": 20.0, "y": 20.0}}),
}
FIRST = load_scenario(
    {
        "map": {"size_xy_cells": [40, 40]},
        "obstacles": [{"type": "box", "center": [35, 35, 0], "size": [2, 2, 2]}],
        "robots": ROBOTS,
        "world_topics": {"occupancy_hz": 1, "markers_hz": 0},
        "radio": {"latency_ms_mean": 200},
        "faults": ["/drone/gps/fix:delay(0.3)@0s-20s", "drone/gps:dropout@1s-2s"],
    }
)
ENTITIES: dict[str, dict[str, Any]] = {
    "wall": {"type": "box", "center": [14.0, 10.0, 0.0], "size": [1.0, 4.0, 2.0]},
    "post": {"type": "cylinder", "center": [10.0, 16.0, 0.0], "radius": 0.5, "height": 1.0},
    "scout": {"model": "rover", **bare(odom={"hz": 10}), "start": {"map_pose": {"x": 30.0, "y": 8.0}}},
    "rover": {"model": "rover", **ROBOTS["rover"]},  # of the same name, once the first one is deleted
    "drone": {"model": "drone", **ROBOTS["drone"]},
}
CHANGES: tuple[dict[str, Any], ...] = (
    {"wind": {"world_xyz": [1.0, 0.5, 0.0], "gust_sigma": 0.5}},
    {"wind": {}},
    {"radio": {"enabled": False}},
    {"radio": {"drop_probability": 0.5, "rssi": {}}},
    {"collisions": "stop"},
    {"frames": {"tf_hz": 13}},
    {"world_topics": {"occupancy_hz": 3, "markers_hz": 2}},
    {"faults": ["radio:blackout@0.5s-3s"]},
)
Step = tuple[Any, ...]


def do(sim: Simulation, what: str, *values: Any) -> str:
    """One thing that happens to a run; gives why it is refused."""
    robots = sim.robots
    try:
        if what == "step":
            sim.step(*values)
        elif what == "advance":
            sim.advance(*values)
        elif what == "command":
            sim.command_twist(robots[values[0] % len(robots)], (values[1], 0.1, 0.0), 0.3)
        elif what == "radio":
            sim.radio_send(robots[values[0] % len(robots)], bytes(values[0]))
        elif what == "pose":
            sim.set_pose(robots[values[0] % len(robots)], x=values[1], y=12.0)
        elif what == "spawn":
            sim.spawn(values[0], ENTITIES[values[0]])
        elif what == "delete":
            sim.delete(values[0])
        elif what == "move":
            sim.move_obstacle(values[0], (values[1], 25.0, 0.0))
        elif what == "configure":
            sim.reconfigure(load_scenario({**sim.scenario.to_dict(), **CHANGES[values[0]]}))
        elif what == "limit":
            data = sim.scenario.to_dict()
            data["robots"][robots[0]]["imu"] = {"hz": values[0]}
            sim.reconfigure(load_scenario(data))
        elif what == "seed":
            sim.set_seed(*values)
        else:
            getattr(sim, what)(*values)
    except (microsim.MicroSimError, ZeroDivisionError) as error:
        return str(error)
    return ""


def everything(sim: Simulation) -> list[Any]:
    """All that a user can see of a run, now, later and after a reset."""
    facts = [sim.tick, sim.seed, sim.next_seed, sim.digest(), sim.messages_sent, dict(sim.counters), sim.waiting]
    facts += [list(sim.entities.items()), sim.scenario.to_yaml(), sim.topics]
    facts += [sim.opening] if sim.tick == 0 else []  # it is for recordings, which begin there
    facts += [sim.state(robot) for robot in sim.robots] + [sim.touching(robot) for robot in sim.robots]
    for ticks in (1, 40):
        facts.append([(each.topic, each.stamp_ns, each.cdr) for each in sim.step(ticks)])
        facts += [sim.digest(), sim.messages_sent, dict(sim.health.dropped), repr(sim.radio and sim.radio.save())]
    sim.reset()
    fresh = Simulation(sim.scenario, sim.seed)
    for each in (sim, fresh):
        each.step(15)
    assert sim.digest() == fresh.digest()
    return [*facts, sim.digest(), sim.seed, list(sim.entities.items())]


@dataclass
class Traveller:
    """A run that travels in time, and the way on which it would be without that."""

    first: Scenario
    sim: Simulation
    way: list[tuple[Step, str]] = field(default_factory=list)
    kept: dict[int, tuple[Snapshot, list[tuple[Step, str]]]] = field(default_factory=dict)

    def take(self, folder: Path, what: str, *values: Any) -> None:
        travel: Callable[..., None] | None = getattr(self, f"_{what}", None)
        if travel is None:
            self.way.append(((what, *values), do(self.sim, what, *values)))
        else:
            travel(folder, *values)

    def _keep(self, folder: Path, place: int) -> None:
        self.kept[place] = self.sim.snapshot(), list(self.way)

    def _restore(self, folder: Path, place: int) -> None:
        if place in self.kept:
            snapshot, way = self.kept[place]
            self.sim.restore(snapshot)
            self.way = list(way)

    def _fork(self, folder: Path) -> None:
        self.sim = self.sim.fork()

    def _load(self, folder: Path, how: str) -> None:
        """A saved state, read by the same run, by one that is elsewhere, or made from the file alone."""
        save_state(folder / "a.state", self.sim.snapshot())
        if how == "alone":
            self.sim = resume(folder / "a.state", folder)
            self.kept.clear()  # of a scenario whose files are elsewhere
            return
        if how == "other":
            self.sim = Simulation(self.first, 99)
            self.sim.step(3)
        load_state(folder / "a.state", self.sim)

    def straight(self) -> Simulation:
        """The run without time travel."""
        sim = Simulation(self.first, 5)
        for step, refusal in self.way:
            assert do(sim, *step) == refusal
        return sim


places, names = st.integers(0, 1), st.sampled_from([*ENTITIES, "obstacle_0"])
numbers = st.integers(0, 3)
STEPS = st.one_of(
    st.tuples(st.just("step"), st.sampled_from([0, 1, 7, 30])),
    st.tuples(st.just("advance"), st.sampled_from([0, 9])),
    st.tuples(st.just("command"), numbers, st.sampled_from([1.0, 3.0, float("nan")])),
    st.tuples(st.just("radio"), numbers),
    st.tuples(st.just("pose"), numbers, st.sampled_from([11.0, 25.0, -5.0])),
    st.tuples(st.just("spawn"), names.filter(ENTITIES.__contains__)),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("move"), names, st.sampled_from([5.0, 14.0])),
    st.tuples(st.just("configure"), st.integers(0, len(CHANGES) - 1)),
    st.tuples(st.just("limit"), st.sampled_from([10, 11.5])),
    st.tuples(st.just("seed"), numbers),
    st.one_of(st.tuples(st.just("reset")), st.tuples(st.just("reset"), numbers)),
    st.tuples(st.just("keep"), places),
    st.tuples(st.just("restore"), places),
    st.tuples(st.just("fork")),
    st.tuples(st.just("load"), st.sampled_from(["same", "other", "alone"])),
)
FOUND = (  # by hand, and by earlier versions of this test
    [("step", 7), ("spawn", "wall"), ("keep", 0), ("reset", 2), ("restore", 0)],
    [("keep", 0), ("configure", 0), ("configure", 2), ("restore", 0)],
    [("configure", 3), ("radio", 1), ("step", 7), ("keep", 0), ("reset", 1), ("configure", 2), ("restore", 0)],
    [("spawn", "scout"), ("step", 30), ("load", "other"), ("delete", "scout"), ("step", 7), ("load", "alone")],
    [("keep", 0), ("delete", "rover"), ("spawn", "rover"), ("restore", 0)],  # robots in another order
    [("delete", "rover"), ("spawn", "rover"), ("step", 7), ("fork",)],
    [("keep", 1), ("reset", 3), ("step", 7), ("keep", 0), ("restore", 1), ("restore", 0)],
)


def check(steps: list[Step]) -> None:
    traveller = Traveller(FIRST, Simulation(FIRST, 5))
    with TemporaryDirectory() as name:
        for step in steps:
            traveller.take(Path(name), *step)
        assert everything(traveller.sim) == everything(traveller.straight())


@pytest.mark.parametrize("steps", FOUND)
def test_time_travel_that_once_went_astray(steps: list[Step]) -> None:
    check(steps)


@settings(max_examples=many(20, 4))
@given(st.lists(STEPS, min_size=4, max_size=14))
def test_a_run_after_time_travel_is_the_run_that_never_travelled(steps: list[Step]) -> None:
    check(steps)


@pytest.mark.slow
@settings(max_examples=many(400))
@given(st.lists(STEPS, min_size=4, max_size=30))
def test_a_run_after_much_time_travel_is_the_run_that_never_travelled(steps: list[Step]) -> None:
    check(steps)
