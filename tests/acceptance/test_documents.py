"""Names, types, quality of service, rates and defaults, as the requirement documents list them."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

import microsim
from microsim.messages.topics import SERVICES, Qos, Topic, table
from microsim.parts.ros2.node_parameters import ScenarioParameters

# PRD 5.1, contract 4 to 6: topic -> (row of our table, type, keep_last, rate [Hz]); None: they give none
PUBLISHED: dict[str, tuple[str, str, int | None, float | None]] = {
    "/drone/odom": ("odom", "nav_msgs/msg/Odometry", 10, 30),
    "/drone/gps/fix": ("gps", "sensor_msgs/msg/NavSatFix", 5, 5),
    "/drone/camera/image_raw": ("image", "sensor_msgs/msg/Image", 2, 2),
    "/drone/camera/camera_info": ("camera_info", "sensor_msgs/msg/CameraInfo", 2, 2),
    "/rover/odom": ("odom", "nav_msgs/msg/Odometry", 10, 30),
    "/rover/gps/fix": ("gps", "sensor_msgs/msg/NavSatFix", 5, 5),
    "/rover/range/front": ("range", "sensor_msgs/msg/Range", 5, 10),
    "/tf": ("tf", "tf2_msgs/msg/TFMessage", None, 60),
    "/clock": ("clock", "rosgraph_msgs/msg/Clock", None, 60),
    "/world/occupancy": ("occupancy", "nav_msgs/msg/OccupancyGrid", None, 1),
    "/world/markers": ("markers", "visualization_msgs/msg/MarkerArray", None, 1),
    "/radio/metrics": ("radio_metrics", "diagnostic_msgs/msg/DiagnosticArray", 1, 1),
}
# PRD 5.2, contract 4, 5 and 7
TAKEN = {
    "/{robot}/cmd_vel": ("geometry_msgs/msg/Twist", Qos(10)),
    "/radio/{robot}_tx": ("std_msgs/msg/ByteMultiArray", Qos(1, reliable=False)),
    "/{robot}/set_pose": ("geometry_msgs/msg/PoseStamped", None),
}
# PRD 5.3
OFFERED = {
    "/sim/reset": "std_srvs/srv/Empty",
    "/sim/set_seed": "example_interfaces/srv/SetInt32",
    "/sim/pause": "example_interfaces/srv/SetBool",
    "/sim/step": "example_interfaces/srv/SetInt32",
}
# PRD 5.4; not there: camera_hz (deprecated), wind_world_xyz (0.2 in the PRD's own scenario)
PARAMETERS: dict[str, Any] = {
    "physics_hz": 60, "odom_hz": 30, "gps_hz": 5, "range_hz": 10,
    "drone.max_vx": 5.0, "drone.max_vy": 5.0, "drone.max_vz": 3.0, "drone.max_yaw_rate": 1.5,
    "drone.cmd_time_constant": 0.15,
    "drone.camera.enabled": True, "drone.camera.hz": 2, "drone.camera.width": 128, "drone.camera.height": 128,
    "drone.camera.encoding": "rgb8", "drone.camera.projection": "pinhole",
    "drone.camera.intrinsics.fx": 120.0, "drone.camera.intrinsics.fy": 120.0,
    "drone.camera.intrinsics.cx": 64.0, "drone.camera.intrinsics.cy": 64.0,
    "drone.camera.distortion.model": "plumb_bob", "drone.camera.distortion.D": [0.0, 0.0, 0.0, 0.0, 0.0],
    "drone.camera.noise.blur_sigma_px": 0.5, "drone.camera.noise.color_jitter": 0.0,
    "drone.camera.latency_ms_mean": 80, "drone.camera.latency_ms_jitter": 30, "drone.camera.drop_probability": 0.01,
    "rover.max_v": 2.0, "rover.max_omega": 1.2, "rover.cmd_time_constant": 0.10,
    "sensors.gps_sigma_m": 2.0, "sensors.gps_bias_drift_m_per_s": 0.005, "sensors.range_sigma_m": 0.05,
    "radio.latency_ms_mean": 80, "radio.latency_ms_jitter": 30, "radio.drop_probability": 0.03,
    "radio.reordering": False,
    "world.cell_size_m": 1.0, "world.size_xy_cells": [200, 200], "world.origin_wgs84": [9.935, -84.09, 1150.0],
}  # fmt: skip
# contract 4: "min/max set via params", without names; the values are the PRD's (8)
PARAMETERS |= {"sensors.range_min_m": 0.2, "sensors.range_max_m": 10.0}


def row(kind: str) -> Topic:
    return next(topic for topic in table() if topic.kind == kind)


@pytest.fixture(scope="module")
def sent() -> Sequence[microsim.Message]:
    """Twenty seconds of the default scenario."""
    return microsim.Simulation("default").step(20 * 60)


@pytest.mark.parametrize("topic", PUBLISHED)
def test_a_topic_has_the_documents_type_rate_and_quality_of_service(sent: list[microsim.Message], topic: str) -> None:
    kind, type_name, depth, rate_hz = PUBLISHED[topic]
    messages = [each for each in sent if each.topic == topic]
    assert {each.type for each in messages} == {type_name}
    qos = row(kind).qos
    assert qos.reliable
    assert depth in (None, qos.depth)
    if rate_hz is not None:
        lost = 3 if "camera" in topic else 0  # an image in a hundred, and those still on their way
        assert rate_hz * 20 - lost <= len(messages) <= rate_hz * 20 + 1


@pytest.mark.parametrize("name", TAKEN)
def test_inputs_have_the_documents_types_and_quality_of_service(name: str) -> None:
    type_name, qos = TAKEN[name]
    found = next(topic for topic in table() if topic.direction == "in" and topic.name == name)
    assert found.type == type_name
    assert qos in (None, found.qos)


def test_what_a_robot_hears_on_the_radio_is_best_effort_and_keeps_five() -> None:
    assert [topic.qos for topic in table() if topic.name == "/radio/{robot}_rx"] == [Qos(5, reliable=False)]


def test_services_have_the_documents_names_and_types() -> None:
    assert {each.name: each.type for each in SERVICES} == OFFERED


def test_parameters_have_the_documents_names_and_defaults() -> None:
    declared = ScenarioParameters(microsim.load_scenario("default")).values()
    assert {name: declared.get(name) for name in PARAMETERS} == PARAMETERS


def test_sim_info_tells_version_scene_rates_seed_and_noise(sent: list[microsim.Message]) -> None:
    info = json.loads(next(each.message.data for each in sent if each.topic == "/sim/info"))
    assert (info["version"], info["scenario"], info["seed"]) == (microsim.__version__, "default", 12345)
    assert info["rates_hz"]["/drone/odom"] == 30
    assert info["robots"]["drone"]["gps"]["sigma_m"] == 2.0


def test_frames_have_the_contracts_names(sent: list[microsim.Message]) -> None:
    frames = {
        (each.header.frame_id, each.child_frame_id)
        for message in sent[:200]
        if message.topic in ("/tf", "/tf_static")
        for each in message.message.transforms
    }
    assert {
        ("map", "odom"), ("odom", "drone/base_link"), ("odom", "rover/base_link"),
        ("drone/base_link", "drone/camera_link"), ("drone/base_link", "drone/gps_link"),
        ("rover/base_link", "rover/range_link"), ("rover/base_link", "rover/gps_link"),
    } <= frames  # fmt: skip
