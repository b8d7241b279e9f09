"""Boxes of the others, against closed forms and against transforms of /tf."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim.engine.geometry import matrix_from_rpy, rpy_from_quaternion
from tests.support import bare, decoded

QUIET = {"world_topics": {"occupancy_hz": 0, "markers_hz": 0}}


def detections(robots: dict[str, Any], robot: str = "rover", ticks: int = 60) -> list[Any]:
    sim = microsim.Simulation({**QUIET, "robots": robots})
    return decoded(sim.step(ticks), f"/{robot}/detections")


def rover(x: float, y: float, yaw: float, **sensor: Any) -> dict[str, Any]:
    return bare(model="rover", start={"map_pose": {"x": x, "y": y, "yaw": yaw}}, detections=sensor)


angles, places = st.floats(-3.1, 3.1), st.floats(5.0, 45.0)


@settings(max_examples=40)
@given(yaw=angles, roll=angles, tilt=st.floats(-1.5, 1.5), x=places, y=places, heading=angles)
def test_a_box_is_where_it_is_in_the_sensors_frame(
    yaw: float, roll: float, tilt: float, x: float, y: float, heading: float
) -> None:
    """Turned and moved back into the map, it is the other robot's own box."""
    mount = {"xyz": [0.3, -0.2, 0.5], "rpy": [roll, tilt, 0.7]}
    other = {"model": "actor", "path": [[0, x, y, None, heading], [1, x, y, None, heading]]}
    (message, *_) = detections({"rover": rover(25, 25, yaw, mount=mount), "other": other}, ticks=1)
    (found,) = message.detections
    base, sensor = np.array(matrix_from_rpy(0.0, 0.0, yaw)), np.array(matrix_from_rpy(roll, tilt, 0.7))
    origin = np.array([25.0, 25.0, 0.0]) + base @ np.array(mount["xyz"])
    center, turn = found.bbox.center.position, found.bbox.center.orientation
    in_map = origin + base @ sensor @ np.array([center.x, center.y, center.z])
    assert in_map == pytest.approx([x, y, 0.875], abs=1e-9)
    axes = np.array(matrix_from_rpy(*rpy_from_quaternion(turn.x, turn.y, turn.z, turn.w)))
    assert base @ sensor @ axes == pytest.approx(np.array(matrix_from_rpy(0.0, 0.0, heading)), abs=1e-6)
    assert found.results[0].pose.pose == found.bbox.center


def test_names_kinds_and_sizes_are_those_of_the_robots() -> None:
    robots = {
        "rover": rover(25, 25, 0.0),
        "anna": {"model": "actor", "path": [[0, 20, 20], [1, 20, 20]]},
        "crate": {"model": "actor", "shape": "box", "size": [1, 2, 3], "path": [[0, 30, 20], [1, 30, 20]]},
        "ego": bare(start={"map_pose": {"x": 35, "y": 35}}),
        "drone": bare(start={"map_pose": {"x": 15, "y": 35, "z": 4}}),
    }
    found = detections(robots)[0].detections
    assert [(each.id, each.results[0].hypothesis.class_id) for each in found] == [
        ("anna", "person"),
        ("crate", "box"),
        ("ego", "car"),
        ("drone", "drone"),
    ]
    sizes = [(each.bbox.size.x, each.bbox.size.y, each.bbox.size.z) for each in found]
    assert sizes == [(0.5, 0.5, 1.75), (1, 2, 3), (4.5, 1.8, 1.5), (0.5, 0.5, 0.15)]
    assert {each.results[0].hypothesis.score for each in found} == {1.0}


def test_what_is_out_of_reach_is_left_out() -> None:
    walker = {"model": "actor", "path": [[0, 28, 25], [2, 34, 25]]}
    messages = detections({"rover": rover(25, 25, 0.0, max_m=5.0), "walker": walker}, ticks=120)
    distances = [math.hypot(3.0 * (1 + k * 0.1), 0.875) for k in range(len(messages))]
    assert [len(message.detections) for message in messages] == [int(each <= 5.0) for each in distances]
    assert {len(message.detections) for message in messages} == {0, 1}


def test_alone_nothing_is_detected() -> None:
    assert detections({"rover": rover(25, 25, 0.0)})[0].detections == []


def test_a_batch_reads_what_its_messages_say() -> None:
    robots = {
        "rover": rover(25, 25, 0.3, max_m=8.0),
        "walker": {"model": "actor", "path": [[0, 28, 25], [2, 36, 27]]},
        "far": {"model": "actor", "path": [[0, 5, 5], [2, 6, 5]]},
    }
    scenario = {**QUIET, "robots": robots}
    batch, single = microsim.BatchSimulation(scenario, 2), microsim.Simulation(scenario)
    for ticks in (13, 31, 60):
        batch.step(ticks)
        last = decoded(single.step(ticks), "/rover/detections")[-1]
        walker, far = batch.readings["rover/detections"][1]
        assert np.isnan(far).all()
        if last.detections:
            center = last.detections[0].bbox.center.position
            assert walker[:3].tolist() == [center.x, center.y, center.z]
        else:
            assert np.isnan(walker).all()
