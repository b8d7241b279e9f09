"""Plain cameras run in the compiled tick: every byte is that of cameras that Python runs, as others still are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim.engine.delay_line import Latency, most_under_way
from microsim.engine.delayed_readings import MOST_UNDER_WAY, DelayedReadings
from microsim.engine.pipeline import Delayed
from microsim.engine.timekeeper import Trigger
from microsim.outputs import sensor_outputs
from microsim.scenario import load_scenario
from tests.support import COMPILED, many, scenario

THINGS = [
    {"type": "box", "center": [6, 9, 0], "size": [1.5, 1.0, 1.0]},
    {"type": "cylinder", "center": [12, 10, 0], "radius": 0.6, "height": 1.0},
]


def flown(robots: int = 2, camera: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    block = {"hz": 7, "resolution": {"width": 20, "height": 12}, **(camera or {})}
    drones = {
        f"drone_{i}": {"model": "drone", "start": {"map_pose": {"x": 2 + 2 * i, "y": 9, "z": 4}}, "camera": block}
        for i in range(robots)
    }
    return scenario(robots=drones, obstacles=THINGS, **changes)


def moving(written: dict[str, Any], seed: int = 3) -> microsim.Simulation:
    sim = microsim.Simulation(written, seed)
    for robot in sim.robots:
        sim.command(robot, vx=0.7, vy=0.2, yaw_rate=0.5)
    return sim


def both_ways(written: dict[str, Any], run: Callable[[microsim.Simulation], Any], seed: int = 3) -> list[Any]:
    """What a function gives for a run with compiled cameras, and for one whose cameras are Python's."""
    compiled = moving(written, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensor_outputs, "_compiled_reading", lambda *_: None)
        python = moving(written, seed)
        kinds = [{type(each) for _, each in sim._schedule.python.values()} for sim in (compiled, python)]
        assert [DelayedReadings in kinds[0], Delayed in kinds[0]] == [True, False]
        assert [DelayedReadings in kinds[1], Delayed in kinds[1]] == [False, True]
        second = run(python)
    return [run(compiled), second]


def facts(sim: microsim.Simulation) -> tuple[Any, ...]:
    return sim.digest(), sim.messages_sent, dict(sim.health.dropped), sim.tick


LATENCIES = st.fixed_dictionaries(
    {
        "mean": st.sampled_from([0.0, 5.0, 80.0, 700.0]),
        "jitter": st.sampled_from([0.0, 30.0, 300.0]),
        "drop_probability": st.sampled_from([0.0, 0.3]),
    }
)


@settings(max_examples=many(25, 2), deadline=None)
@given(
    LATENCIES,
    st.sampled_from([60, 100, 30.5]),
    st.sampled_from([2, 7, 30]),
    st.sampled_from([0.0, 0.5, 3.0]),
    st.lists(st.sampled_from([-3, 0, 1, 2, 40]), min_size=1, max_size=5),
    st.integers(0, 2**31),
)
def test_a_compiled_camera_sends_the_bytes_of_one_that_python_runs(
    latency: dict[str, float], physics_hz: float, hz: float, blur: float, steps: list[int], seed: int
) -> None:
    """Steps below zero move the robots without sending."""

    def run(sim: microsim.Simulation) -> Any:
        for ticks in steps:
            sim.advance(-ticks) if ticks < 0 else sim.step(ticks)
        return facts(sim)

    camera = {"hz": hz, "latency_ms": latency, "noise": {"blur_sigma_px": blur}}
    fault = {"target": "drone_1/camera", "kind": "dropout", "from_s": 0.2, "to_s": 0.5}
    first, second = both_ways(flown(camera=camera, physics_hz=physics_hz, faults=[fault]), run, seed)
    assert first == second


@pytest.mark.parametrize(
    "camera",
    [
        {"distortion": {"D": [-0.3, 0.1, 0.001, 0.002, 0.0]}},
        {"projection": "fisheye"},
        {"mount": {"rpy": [-1.2, 0.1, -1.5]}},
        {"convention": "ros"},
    ],
    ids=["distorted", "fisheye", "towards the horizon", "ros"],
)
def test_every_lens_and_mount_gives_the_same_bytes(camera: dict[str, Any]) -> None:
    first, second = both_ways(flown(camera=camera), lambda sim: (sim.step(90), facts(sim))[1])
    assert first == second


def test_images_under_way_survive_a_snapshot_a_fork_and_other_settings() -> None:
    slow = {"latency_ms": {"mean": 400.0, "jitter": 100.0}}

    def run(sim: microsim.Simulation) -> Any:
        sim.step(40)
        snapshot, twin = sim.snapshot(), sim.fork()
        sim.move_obstacle("obstacle_0", (7.0, 9.5, 0.0))  # what is under way shows it where it was
        sim.step(50)
        twin.step(50)
        found = [facts(sim), facts(twin)]
        sim.restore(snapshot)
        sim.step(50)
        return [*found, facts(sim)]

    first, second = both_ways(flown(camera=slow), run)
    assert first == second
    (moved, *_), (twin, *_), (restored, *_) = first
    assert twin == restored != moved


def test_a_latency_that_is_shortened_lets_what_is_under_way_leave_first() -> None:
    """More is then under way than the new latency alone would have."""
    slow, quick = ({"hz": 30, "latency_ms": {"mean": mean, "jitter": 0.0}} for mean in (1500.0, 0.0))

    def run(sim: microsim.Simulation) -> Any:
        sim.step(60)
        sim.reconfigure(load_scenario(flown(camera=quick)))
        sim.step(150)
        return facts(sim)

    first, second = both_ways(flown(camera=slow), run)
    assert first == second


def test_a_snapshot_changes_nothing() -> None:
    written = flown(camera={"latency_ms": {"mean": 300.0, "jitter": 50.0}})
    looked_at, alone = moving(written), moving(written)
    for _ in range(60):
        looked_at.step()
        looked_at.snapshot()
    alone.step(60)
    assert facts(looked_at) == facts(alone)


def test_a_run_continues_where_settings_change_the_form_of_its_cameras(monkeypatch: pytest.MonkeyPatch) -> None:
    written = flown(camera={"latency_ms": {"mean": 300.0, "jitter": 50.0}})
    sim, expected = moving(written), moving(written)
    sim.step(45)
    expected.step(90)
    with monkeypatch.context() as patch:
        patch.setattr(sensor_outputs, "_compiled_reading", lambda *_: None)
        sim.reconfigure(sim.scenario)
        sim.step(15)
    snapshot = sim.snapshot()
    sim.reconfigure(sim.scenario)
    sim.step(30)
    assert sim.digest() == expected.digest()
    with monkeypatch.context() as patch:
        patch.setattr(sensor_outputs, "_compiled_reading", lambda *_: None)
        twin = moving(written)
        twin.restore(snapshot)
    twin.step(30)
    assert twin.digest() == expected.digest()


def test_a_tick_may_have_more_images_than_the_buffer_had_room_for() -> None:
    """All leave at the same tick, and are 0.3 MB; the buffer begins with 0.26 MB."""
    large = {"hz": 1, "resolution": {"width": 160, "height": 120}, "latency_ms": {"mean": 200.0, "jitter": 0.0}}
    first, second = both_ways(flown(6, large), lambda sim: (sim.step(30), facts(sim))[1])
    assert first == second


@pytest.mark.skipif(not COMPILED, reason="plain Python raises an error of its own, when the robot moves")
def test_a_pose_that_is_not_finite_ends_the_run() -> None:
    sim = moving(flown())
    sim.step(3)
    sim.fleets[0].state[0, 1] = np.nan
    with pytest.raises(ValueError, match=r"drone_1/camera: the pose at tick .* is not finite"):
        sim.step(30)


def test_no_queue_is_longer_than_its_room() -> None:
    latency = Latency(80.0, 30.0, 0.0, 60.0)
    assert 2 <= most_under_way(latency, Trigger(2, 60)) <= 4
    assert most_under_way(Latency(1e6, 1e6, 0.0, 1000.0), Trigger(1000, 1000)) > MOST_UNDER_WAY  # is Python's
