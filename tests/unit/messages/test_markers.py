"""`/world/markers`: ground, surfaces, obstacles, features and robots, as RViz draws them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import microsim
from microsim.engine.geometry import matrix_from_rpy, rpy_from_quaternion
from microsim.messages import encode
from tests.golden.mission import SHORT
from tests.support import bare, decoded, scenario, stamp_ns

ARRAY = "visualization_msgs/msg/MarkerArray"
SHOWN = {"world_topics": {"occupancy_hz": 0, "markers_hz": 1}}
HILLS = {
    "map": {
        "size_xy_cells": [60, 40],
        "elevation": {"generate": "hills", "amplitude_m": 3.0, "wavelength_m": 25.0},
        "surface_types": {
            "patches": [
                {"type": "circle", "class": "water", "center": [40, 20], "radius": 9},
                {"type": "circle", "class": "ground", "center": [40, 20], "radius": 3},
            ]
        },
    },
    "features": [
        {"type": "rectangle", "class": "target", "center": [20, 20], "size": [6, 4], "yaw": 0.7},
        {"type": "circle", "class": "hazard", "center": [20, 21], "radius": 2},
        {"type": "triangle", "class": "hazard", "vertices": [[5, 5], [9, 5], [7, 9]]},
    ],
    "robots": {},
    **SHOWN,
}


def markers(sim: microsim.Simulation, ticks: int = 0) -> list[Any]:
    return decoded(sim.step(ticks), "/world/markers")[-1].markers


def of(space: str, found: list[Any]) -> list[Any]:
    return [marker for marker in found if marker.ns == space]


def triangles(marker: Any) -> np.ndarray:
    assert marker.type == 11
    return np.array([(point.x, point.y, point.z) for point in marker.points]).reshape(-1, 3, 3)


def height_at(faces: np.ndarray, x: float, y: float) -> float:
    """Of the highest triangle over this place; NaN: there is none."""
    a, b, c = faces[:, 0], faces[:, 1], faces[:, 2]
    area = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
    assert (area > 0.0).all()  # counter-clockwise: lit from above
    u = ((x - a[:, 0]) * (c[:, 1] - a[:, 1]) - (y - a[:, 1]) * (c[:, 0] - a[:, 0])) / area
    v = ((b[:, 0] - a[:, 0]) * (y - a[:, 1]) - (b[:, 1] - a[:, 1]) * (x - a[:, 0])) / area
    z = (a[:, 2] + u * (b[:, 2] - a[:, 2]) + v * (c[:, 2] - a[:, 2]))[(u >= 0.0) & (v >= 0.0) & (u + v <= 1.0)]
    return float(z.max()) if len(z) else float("nan")


@pytest.fixture(scope="module")
def hills() -> tuple[microsim.Simulation, list[Any]]:
    sim = microsim.Simulation(HILLS)
    return sim, markers(sim)


def test_an_array_replaces_the_one_before_and_is_stamped_throughout():
    sim = microsim.Simulation(SHORT)
    message = decoded(sim.step(50), "/world/markers")[-1]
    found = message.markers
    assert [marker.action for marker in found] == [3] + [0] * (len(found) - 1)  # delete all, then add
    assert len({(marker.ns, marker.id) for marker in found[1:]}) == len(found) - 1
    assert all(stamp_ns(marker.header) == 1_000_000_000 for marker in found)
    assert all(marker.color.a == 1.0 for marker in found[1:])
    sent = [each.cdr for each in microsim.Simulation(SHORT).step(0) if each.topic == "/world/markers"]
    (first,) = decoded(microsim.Simulation(SHORT).step(0), "/world/markers")
    assert encode(ARRAY, first) == sent[0]


def test_obstacles_and_features_stand_where_they_are():
    sim = microsim.Simulation(SHORT)
    found = markers(sim)
    assert [len(of(space, found)) for space in ("ground", "obstacles", "features")] == [1, 2, 3]
    box = of("obstacles", found)[0]
    ground = sim.world.ground(12, 7.5)
    assert (box.pose.position.x, box.pose.position.y, box.pose.position.z) == (12, 7.5, ground + 0.5)
    assert (box.scale.x, box.scale.y, box.scale.z) == (1.5, 3, 1)
    prism = next(marker for marker in of("features", found) if len(marker.points) == 3 + 3 * 6)
    assert {round(point.z - sim.world.ground(8, 5), 9) for point in prism.points} == {0.0, 0.7}


def test_robots_are_the_parts_of_their_models_fixed_to_frames_of_tf():
    sim = microsim.Simulation(SHORT)
    first = sim.step(0)
    frames = {transform.child_frame_id for transform in decoded(first, "/tf")[0].transforms}
    shown = of("robots", decoded(first, "/world/markers")[0].markers)
    assert {marker.header.frame_id for marker in shown} == {f"{robot}/base_link" for robot in sim.robots} <= frames
    assert all(marker.frame_locked for marker in shown)
    parts = [part for robot in sim.scenario.robots.values() for part in robot.parts()]
    assert len(parts) > 100
    for marker, part in zip(shown, parts, strict=True):
        p, q, s, c = marker.pose.position, marker.pose.orientation, marker.scale, marker.color
        assert (p.x, p.y, p.z) == part.center
        assert (s.x, s.y, s.z) == pytest.approx([2.0 * half for half in part.half])
        assert (c.r, c.g, c.b) == pytest.approx(part.colour)
        axes = matrix_from_rpy(*rpy_from_quaternion(q.x, q.y, q.z, q.w))
        assert np.array(axes) == pytest.approx(np.array(part.axes), abs=2e-6)


def test_of_very_many_robots_each_is_one_simple_shape():
    pose = {"start": {"map_pose": {"x": 5.0, "y": 5.0}}}
    robots = {f"rover_{k}": {"model": "rover", **bare(**pose)} for k in range(20)}
    found = of("robots", markers(microsim.Simulation(scenario(robots=robots, **SHOWN))))
    assert len(found) == 20
    assert {marker.header.frame_id for marker in found} == {f"rover_{k}/base_link" for k in range(20)}


def test_a_deleted_robot_is_gone_from_the_next_array():
    drone = bare(start={"map_pose": {"x": 5.0, "y": 5.0, "z": 3.0}})
    sim = microsim.Simulation(scenario(robots={"rover": bare(), "drone": drone}, **SHOWN))
    before = {marker.header.frame_id for marker in of("robots", markers(sim))}
    sim.delete("drone")
    after = {marker.header.frame_id for marker in of("robots", markers(sim, 100))}
    assert (before, after) == ({"rover/base_link", "drone/base_link"}, {"rover/base_link"})


def test_flat_ground_is_one_square_under_everything():
    found = markers(microsim.Simulation(scenario(robots={}, **SHOWN)))
    (ground,) = of("ground", found)
    faces = triangles(ground)
    assert len(faces) == 2
    assert faces[:, :, 2].max() < 0.0


def test_hills_are_as_high_as_the_ground_and_never_above_what_stands_on_it(hills):
    sim, found = hills
    faces = triangles(of("ground", found)[0])
    assert len(faces) <= 2 * 32 * 32
    for x, y in [(0.0, 0.0), (10.0, 10.0), (31.3, 22.2), (60.0, 40.0)]:
        assert height_at(faces, x, y) == pytest.approx(sim.world.ground(x, y), abs=0.15)


def test_water_covers_its_cells_and_lies_half_a_layer_above_the_ground_everywhere(hills):
    sim, found = hills
    above = []
    ground, (water,) = triangles(of("ground", found)[0]), of("surfaces", found)
    faces = triangles(water)
    for row, column in np.argwhere(sim.world.surface >= 0)[::7]:
        x, y = column + 0.37, row + 0.61
        is_water = sim.world.surface[row, column] == 4
        assert np.isfinite(height_at(faces, x, y)) == is_water
        if is_water:
            above.append(height_at(faces, x, y) - height_at(ground, x, y))
    assert above == pytest.approx([above[0]] * len(above), abs=1e-9)
    assert len(above) > 20
    assert 0.005 < above[0] < 0.06


def test_painted_features_follow_the_ground_in_layers(hills):
    _, found = hills
    ground, (pad, spot, lone) = triangles(of("ground", found)[0]), map(triangles, of("features", found))
    for x, y in [(20.0, 21.0), (19.2, 20.4), (20.9, 21.8)]:
        low, high = height_at(pad, x, y), height_at(spot, x, y)
        assert height_at(ground, x, y) < low < high
    assert np.isfinite(height_at(lone, 7.0, 6.0))


def test_painted_features_much_larger_than_the_map_stay_small_messages(monkeypatch):
    monkeypatch.setattr("microsim.messages.markers._MOST_TRIANGLES", 2000, raising=False)
    huge = {"type": "rectangle", "class": "target", "center": [20, 20], "size": [200, 300]}
    (marker,) = of("features", markers(microsim.Simulation({**HILLS, "features": [huge]})))
    assert len(triangles(marker)) <= 2000
    assert np.isfinite(height_at(triangles(marker), 20.5, 21.0))


def test_painted_features_of_flat_worlds_have_tops_of_their_own_where_they_overlap():
    circles = [{"type": "circle", "class": "target", "center": [10, y], "radius": 2} for y in (10, 12, 12.5, 30)]
    found = of("features", markers(microsim.Simulation(scenario(features=circles, robots={}, **SHOWN))))
    tops = [round(marker.pose.position.z + 0.5 * marker.scale.z, 9) for marker in found]
    assert tops[0] < tops[1] < tops[2]
    assert tops[3] == tops[0]
