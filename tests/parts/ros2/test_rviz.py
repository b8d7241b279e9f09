"""The RViz profile shows what the simulator publishes, with a quality of service that matches it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

import microsim
from microsim.messages.topics import Topic, table
from microsim.parts.ros2.rviz_profile import fitted

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "rviz" / "microsim_view.rviz"
MESSAGE_OF = {
    "Map": "nav_msgs/msg/OccupancyGrid",
    "MarkerArray": "visualization_msgs/msg/MarkerArray",
    "Odometry": "nav_msgs/msg/Odometry",
    "Range": "sensor_msgs/msg/Range",
    "LaserScan": "sensor_msgs/msg/LaserScan",
    "Image": "sensor_msgs/msg/Image",
    "Camera": "sensor_msgs/msg/Image",
    "SetGoal": "geometry_msgs/msg/PoseStamped",
}


@pytest.fixture(scope="module")
def view() -> dict[str, Any]:
    return YAML(typ="safe").load(FILE.read_text(encoding="utf-8"))["Visualization Manager"]


def kind(part: dict[str, Any]) -> str:
    return str(part["Class"]).removeprefix("rviz_default_plugins/")


def published() -> dict[str, Topic]:
    """Every topic of the two robots, by name."""
    sensors = {"image": "camera", "camera_info": "camera", "range": "range/front"}
    return {row.of(robot, sensors.get(row.kind, row.kind)): row for row in table() for robot in ("drone", "rover")}


def test_every_display_of_the_checklist_is_there_and_enabled(view: dict[str, Any]) -> None:
    shown = [
        (kind(display), display.get("Topic", display.get("Description Topic", {})).get("Value"))
        for display in view["Displays"]
    ]
    assert sorted(shown, key=str) == sorted(
        [
            ("Grid", None),
            ("TF", None),
            ("RobotModel", "/drone/robot_description"),
            ("RobotModel", "/rover/robot_description"),
            ("Odometry", "/drone/odom"),
            ("Odometry", "/rover/odom"),
            ("Image", "/drone/camera/image_raw"),
            ("Camera", "/drone/camera/image_raw"),
            ("Range", "/rover/range/front"),
            ("LaserScan", "/rover/scan"),
            ("Map", "/world/occupancy"),
            ("MarkerArray", "/world/markers"),
            ("MarkerArray", "/world/markers"),
        ],
        key=str,
    )
    assert all(display["Enabled"] is display["Value"] is True for display in view["Displays"])
    assert view["Global Options"]["Fixed Frame"] == "map"


def test_every_topic_is_one_of_the_simulator_with_a_quality_of_service_that_matches(view: dict[str, Any]) -> None:
    table = published()
    for part in [*view["Displays"], *view["Tools"]]:
        if "Topic" not in part or kind(part) == "SetInitialPose":  # for localisation nodes, robot-simulator among them
            continue
        asked, row = part["Topic"], table[part["Topic"]["Value"]]
        assert row.type == MESSAGE_OF[kind(part)]
        assert asked["History Policy"] == "Keep Last"
        assert asked["Depth"] == row.qos.depth
        assert asked["Reliability Policy"] == ("Reliable" if row.qos.reliable else "Best Effort")
        assert asked["Durability Policy"] == ("Transient Local" if row.qos.latched else "Volatile")


def test_robot_models_find_their_latched_description_and_their_frames(view: dict[str, Any]) -> None:
    models = [display for display in view["Displays"] if kind(display) == "RobotModel"]
    assert [model["TF Prefix"] for model in models] == ["drone", "rover"]  # RViz adds the slash
    for model in models:
        assert model["Description Source"] == "Topic"
        assert model["Description Topic"]["Durability Policy"] == "Transient Local"
        assert model["Description Topic"]["Value"] == f"/{model['TF Prefix']}/robot_description"


def test_robots_are_shown_by_their_models_and_ground_is_kept_out_of_the_camera(view: dict[str, Any]) -> None:
    (markers,) = [sent for sent in microsim.Simulation("showcase").step(0) if sent.topic == "/world/markers"]
    spaces = {marker.ns for marker in markers.message.markers if marker.ns}
    shown = {display["Name"]: display["Namespaces"] for display in view["Displays"] if kind(display) == "MarkerArray"}
    assert set(shown) == {"Ground", "World"}
    assert all(set(each) == spaces for each in shown.values())
    assert [space for space in spaces if not any(each[space] for each in shown.values())] == ["robots"]
    (camera,) = [display for display in view["Displays"] if kind(display) == "Camera"]
    assert (camera["Visibility"]["Ground"], camera["Visibility"]["World"]) == (False, True)


def test_the_camera_display_knows_every_other_display_by_name(view: dict[str, Any]) -> None:
    names = {display["Name"] for display in view["Displays"]}
    assert len(names) == len(view["Displays"])
    (camera,) = [display for display in view["Displays"] if kind(display) == "Camera"]
    assert set(camera["Visibility"]) == names - {camera["Name"]} | {"Value"}


def assert_holds_robots(camera: dict[str, Any], scenario: str) -> None:
    assert kind(camera) == "Orbit"
    focus = np.array([camera["Focal Point"][axis] for axis in "XYZ"], float)
    yaw, pitch = camera["Yaw"], camera["Pitch"]
    back = np.array([math.cos(yaw) * math.cos(pitch), math.sin(yaw) * math.cos(pitch), math.sin(pitch)])
    eye = focus + camera["Distance"] * back
    right = np.cross(-back, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    half_height = math.tan(math.radians(45.0) / 2.0)  # RViz sees 45° from bottom to top
    simulation = microsim.Simulation(scenario)
    for robot in simulation.robots:
        state = simulation.state(robot)
        ray = np.array([state.x, state.y, state.z]) - eye
        depth = -back @ ray
        assert abs(right @ ray) / depth < half_height
        assert abs(np.cross(right, -back) @ ray) / depth < half_height


def test_the_first_view_holds_both_robots_of_the_default_scenario(view: dict[str, Any]) -> None:
    assert view["Views"]["Current"]["Distance"] < 40.0
    assert_holds_robots(view["Views"]["Current"], "default")


@pytest.mark.parametrize(
    ("scenario", "cells", "middle"), [("showcase", (5, 24), (60, 60)), ("obstacles_arena", (2, 20), (20, 20))]
)
def test_grid_and_views_fit_the_map_of_the_scenario(
    scenario: str, cells: tuple[float, int], middle: tuple[float, float]
) -> None:
    profile = YAML(typ="safe").load(fitted(FILE, scenario))["Visualization Manager"]
    grid = next(display for display in profile["Displays"] if kind(display) == "Grid")
    assert (grid["Cell Size"], grid["Plane Cell Count"]) == cells
    assert (grid["Offset"]["X"], grid["Offset"]["Y"]) == middle
    views = {each["Name"]: each for each in profile["Views"]["Saved"]}
    whole, above = views["The whole map"], views["From above"]
    assert (whole["Focal Point"]["X"], whole["Focal Point"]["Y"]) == (above["X"], above["Y"]) == middle
    assert_holds_robots(profile["Views"]["Current"], scenario)


def test_a_fitted_profile_is_the_shipped_one_in_all_else() -> None:
    before, after = (YAML(typ="safe").load(text) for text in (FILE.read_text(), fitted(FILE, "oval")))
    assert before["Window Geometry"] == after["Window Geometry"]
    for each in (before, after):
        del each["Visualization Manager"]["Views"]
        each["Visualization Manager"]["Displays"] = [
            display for display in each["Visualization Manager"]["Displays"] if kind(display) != "Grid"
        ]
    assert before == after


@pytest.mark.parametrize("profile", ["microsim_view", "microsim_drive"])
def test_every_profile_has_a_saved_window_layout(profile: str) -> None:
    window = YAML(typ="safe").load((ROOT / "rviz" / f"{profile}.rviz").read_text(encoding="utf-8"))["Window Geometry"]
    assert bytes.fromhex(window["QMainWindow State"])[:4] == b"\x00\x00\x00\xff"


def test_a_pose_can_be_estimated_and_a_goal_set(view: dict[str, Any]) -> None:
    tools = {kind(tool): tool["Topic"]["Value"] for tool in view["Tools"] if "Topic" in tool}
    assert tools == {"SetInitialPose": "/initialpose", "SetGoal": "/rover/set_pose"}


def test_the_driving_view_shows_what_the_car_of_a_world_bundle_publishes() -> None:
    path = ROOT / "rviz" / "microsim_drive.rviz"
    drive = YAML(typ="safe").load(path.read_text(encoding="utf-8"))["Visualization Manager"]
    sent = microsim.Simulation("oval").topics
    shown = {kind(each): each["Topic"] for each in drive["Displays"] if "Topic" in each}
    assert {"PointCloud2", "Image", "Camera", "Odometry", "Map", "MarkerArray"} == set(shown)
    for topic in shown.values():
        qos = sent[topic["Value"]][1]
        assert topic["Reliability Policy"] == ("Reliable" if qos.reliable else "Best Effort")
        assert topic["Durability Policy"] == ("Transient Local" if qos.latched else "Volatile")
    (model,) = [each for each in drive["Displays"] if kind(each) == "RobotModel"]
    assert (model["Description Topic"]["Value"], model["TF Prefix"]) == ("/ego/robot_description", "")
    assert drive["Views"]["Current"]["Target Frame"] == "base_link"
    (markers,) = [each for each in drive["Displays"] if kind(each) == "MarkerArray"]
    assert not markers["Namespaces"]["surfaces"]  # they are drawn above the ground, and would hide wheels and LiDAR
