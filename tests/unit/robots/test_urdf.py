"""The robots' models: well-formed trees whose frames are those the simulator publishes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from xacrodoc import XacroDoc

import microsim
from microsim.engine.geometry import quaternion_from_rpy

ROOT = Path(__file__).resolve().parents[3]
ROBOTS = ("drone", "rover")
MOVING = {
    "drone": {f"{end}_{side}_propeller" for end in ("front", "rear") for side in ("left", "right")},
    "rover": {f"{end}_{side}_wheel" for end in ("front", "rear") for side in ("left", "right")},
}
SENSORS = {"drone": {"camera_link", "gps_link", "imu_link"}, "rover": {"range_link", "gps_link", "imu_link"}}


def expand(robot: str, **arguments: str) -> ET.Element:
    document = XacroDoc.from_file(ROOT / "urdf" / f"{robot}.urdf.xacro", subargs=arguments)
    return ET.fromstring(document.to_urdf_string())


def numbers(text: str | None) -> list[float]:
    return [float(word) for word in (text or "0 0 0").split()]


def frame(joint: ET.Element) -> tuple[str, list[float]]:
    """(parent, translation and quaternion)."""
    parent, origin = joint.find("parent"), joint.find("origin")
    assert parent is not None
    assert origin is not None
    rotation = quaternion_from_rpy(*numbers(origin.get("rpy")))
    return str(parent.get("link")), [*numbers(origin.get("xyz")), *rotation]


def frames(urdf: ET.Element, kind: str = "fixed") -> dict[str, tuple[str, list[float]]]:
    """child -> (parent, pose) of every joint of a kind."""
    joints = urdf.findall(f"joint[@type='{kind}']")
    return {str(joint.find("child").get("link")): frame(joint) for joint in joints}  # type: ignore[union-attr]


def published_frames(robot: str) -> dict[str, tuple[str, list[float]]]:
    """The same from /tf_static of the default scenario, without the prefix."""
    (static,) = [sent for sent in microsim.Simulation("default").step(0) if sent.topic == "/tf_static"]
    found = {}
    for item in static.message.transforms:
        owner, child = item.child_frame_id.split("/")
        parent_owner, parent = item.header.frame_id.split("/")
        assert owner == parent_owner
        move, turn = item.transform.translation, item.transform.rotation
        if owner == robot:
            found[child] = parent, [move.x, move.y, move.z, turn.x, turn.y, turn.z, turn.w]
    return found


def assert_same_frame(one: tuple[str, list[float]], other: tuple[str, list[float]]) -> None:
    assert one[0] == other[0]
    np.testing.assert_allclose(one[1][:3], other[1][:3], atol=1e-12)
    assert abs(np.dot(one[1][3:], other[1][3:])) == pytest.approx(1.0, abs=1e-12)  # q and -q are one rotation


@pytest.mark.parametrize("robot", ROBOTS)
def test_every_fixed_joint_is_a_static_transform_of_the_simulator_and_the_other_way_round(robot: str) -> None:
    modelled, published = frames(expand(robot)), published_frames(robot)
    assert set(modelled) == set(published) == SENSORS[robot]
    for child in published:
        assert_same_frame(modelled[child], published[child])


def shapes(urdf: ET.Element) -> list[list[float]]:
    """Centre of every visual in the frame of base_link, for robots whose moving parts are not rotated against it."""
    offsets = {child: np.array(pose[:3]) for child, (_, pose) in frames(urdf, "continuous").items()}
    found = []
    for link in urdf.findall("link"):
        name = str(link.get("name"))
        if name in SENSORS[str(urdf.get("name"))]:
            continue
        for origin in link.findall("visual/origin"):
            found.append(np.round(numbers(origin.get("xyz")) + offsets.get(name, np.zeros(3)), 9).tolist())
    return sorted(found)


@pytest.mark.parametrize("robot", ROBOTS)
def test_propellers_and_wheels_turn_or_stand_still_as_part_of_the_body(robot: str) -> None:
    turning, still = expand(robot), expand(robot, static="true")
    assert set(frames(turning, "continuous")) == MOVING[robot]
    assert not frames(still, "continuous")
    assert frames(still) == frames(turning)  # then every frame of the model is one the simulator publishes
    assert shapes(still) == shapes(turning)


@pytest.mark.parametrize("robot", ROBOTS)
def test_the_model_is_one_tree_under_base_link(robot: str) -> None:
    urdf = expand(robot)
    links = [link.get("name") for link in urdf.findall("link")]
    children = [joint.find("child").get("link") for joint in urdf.findall("joint")]  # type: ignore[union-attr]
    assert len(set(links)) == len(links)
    assert sorted([*map(str, children), "base_link"]) == sorted(map(str, links))
    assert urdf.get("name") == robot
    # robot_state_publisher warns of a root with inertia; the simulator has no use for any
    assert not list(urdf.iter("inertial"))


@pytest.mark.parametrize("robot", ROBOTS)
def test_the_model_is_made_of_primitives_of_real_size_in_defined_colours(robot: str) -> None:
    urdf = expand(robot)
    defined = {material.get("name") for material in urdf.findall("material")}
    used = {material.get("name") for material in urdf.iter("material")}
    assert used == defined
    for geometry in urdf.iter("geometry"):
        (shape,) = geometry
        assert shape.tag in {"box", "cylinder", "sphere"}
        assert all(0.0 < size < 1.0 for text in shape.attrib.values() for size in numbers(text))


def test_the_rover_stands_on_its_wheels_and_the_drone_on_its_skids() -> None:
    wheels = frames(expand("rover"), "continuous").values()
    radius = max(
        max(numbers(box.get("size")))
        for link in expand("rover").findall("link")
        if str(link.get("name")).endswith("wheel")
        for box in link.iter("box")
    )
    assert {pose[2] for _, pose in wheels} == {radius / 2.0}
    drone: Any = microsim.load_scenario("default").robots["drone"]
    clearance = drone.ground_clearance_m
    base = expand("drone").find("link[@name='base_link']")
    assert base is not None
    assert lowest(base) == pytest.approx(-clearance, abs=1e-6)


def lowest(link: ET.Element) -> float:
    """Lowest point of the level cylinders and balls of a link."""
    found = []
    for visual in link.findall("visual"):
        origin, shape = visual.find("origin"), visual.find("geometry")[0]  # type: ignore[index]
        assert origin is not None
        level = shape.tag == "sphere" or numbers(origin.get("rpy"))[1] == pytest.approx(math.pi / 2)
        if level:
            found.append(numbers(origin.get("xyz"))[2] - float(shape.get("radius", "0")))
    return min(found)


def test_a_mount_of_another_scenario_can_be_given() -> None:
    moved = frames(expand("drone", camera_xyz="0.2 0 0.1", camera_rpy=f"{-math.pi / 2} 0 {-math.pi / 2}"))
    parent, pose = moved["camera_link"]
    assert parent == "base_link"
    assert pose[:3] == [0.2, 0.0, 0.1]
    assert pose[3:] == list(quaternion_from_rpy(-math.pi / 2, 0.0, -math.pi / 2))


def test_the_car_s_joints_and_frames_are_those_the_simulator_publishes() -> None:
    urdf = expand("ego")
    sent = microsim.Simulation({"robots": {"ego": {}}}).step(0)
    (joints,) = [each.message for each in sent if each.topic == "/ego/joint_states"]
    moving = {
        joint.get("name") for kind in ("continuous", "revolute") for joint in urdf.findall(f"joint[@type='{kind}']")
    }
    assert set(joints.name) == moving
    (static,) = [each.message for each in sent if each.topic == "/tf_static"]
    published = {}
    for item in static.transforms:
        move, turn = item.transform.translation, item.transform.rotation
        pose = [move.x, move.y, move.z, turn.x, turn.y, turn.z, turn.w]
        published[item.child_frame_id] = (item.header.frame_id, pose)
    modelled = frames(urdf)
    assert set(modelled) == set(published) == {"gps_link", "imu_link"}
    for child, frame_sent in published.items():
        assert_same_frame(modelled[child], frame_sent)
    car: Any = microsim.load_scenario({"robots": {"ego": {}}}).robots["ego"]
    steering = frames(urdf, "revolute")["front_left_steering_link"][1]
    assert steering[:3] == [car.wheelbase_m, car.track_m / 2, car.wheel_radius_m]
