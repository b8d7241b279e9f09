"""The table of topics is that of the requirements (PRD §5, contract §4–§6), and what is sent is in it."""

import pytest

import microsim
from microsim.messages import is_known
from microsim.messages.topics import TOPICS, table

REQUIRED = [  # topic, type, reliable, depth (None: the requirements leave it open), direction
    ("/clock", "rosgraph_msgs/msg/Clock", True, None, "out"),
    ("/drone/odom", "nav_msgs/msg/Odometry", True, 10, "out"),
    ("/drone/gps/fix", "sensor_msgs/msg/NavSatFix", True, 5, "out"),
    ("/drone/camera/image_raw", "sensor_msgs/msg/Image", True, 2, "out"),
    ("/drone/camera/camera_info", "sensor_msgs/msg/CameraInfo", True, 2, "out"),
    ("/rover/odom", "nav_msgs/msg/Odometry", True, 10, "out"),
    ("/rover/gps/fix", "sensor_msgs/msg/NavSatFix", True, 5, "out"),
    ("/rover/range/front", "sensor_msgs/msg/Range", True, 5, "out"),
    ("/tf", "tf2_msgs/msg/TFMessage", True, None, "out"),
    ("/tf_static", "tf2_msgs/msg/TFMessage", True, None, "out"),
    ("/world/occupancy", "nav_msgs/msg/OccupancyGrid", True, None, "out"),
    ("/world/markers", "visualization_msgs/msg/MarkerArray", True, None, "out"),
    ("/radio/metrics", "diagnostic_msgs/msg/DiagnosticArray", True, 1, "out"),
    ("/radio/drone_rx", "std_msgs/msg/ByteMultiArray", False, 5, "out"),
    ("/radio/rover_rx", "std_msgs/msg/ByteMultiArray", False, 5, "out"),
    ("/sim/info", "std_msgs/msg/String", True, 1, "out"),
    ("/drone/cmd_vel", "geometry_msgs/msg/Twist", True, 10, "in"),
    ("/rover/cmd_vel", "geometry_msgs/msg/Twist", True, 10, "in"),
    ("/radio/drone_tx", "std_msgs/msg/ByteMultiArray", False, 1, "in"),
    ("/radio/rover_tx", "std_msgs/msg/ByteMultiArray", False, 1, "in"),
    ("/drone/set_pose", "geometry_msgs/msg/PoseStamped", True, None, "in"),
    ("/rover/set_pose", "geometry_msgs/msg/PoseStamped", True, None, "in"),
]


def row_of(name):
    for topic in table():
        if any(topic.of(robot, topic.sensor) == name for robot in ("drone", "rover")):
            return topic
    return None


@pytest.mark.parametrize(("name", "type_name", "reliable", "depth", "direction"), REQUIRED)
def test_the_table_has_what_the_requirements_name(name, type_name, reliable, depth, direction):
    topic = row_of(name)
    assert topic is not None
    assert (topic.type, topic.qos.reliable, topic.direction) == (type_name, reliable, direction)
    assert depth is None or topic.qos.depth == depth


def test_what_is_sent_once_is_latched():
    assert TOPICS["tf_static"].qos.latched
    assert TOPICS["sim_info"].qos.latched


def test_kinds_are_unique_types_exist_and_rows_explain_themselves():
    assert len(TOPICS) == len(table())
    for topic in table():
        assert is_known(topic.type)
        assert topic.about


def test_a_default_run_sends_exactly_the_topics_of_the_requirements_and_imus():
    sim = microsim.Simulation("default")
    sim.radio_send("drone", b"x")
    sim.radio_send("rover", b"x")
    sent = {message.topic for message in sim.step(60)}
    required = {name for name, *_, direction in REQUIRED if direction == "out"}
    assert sent == required | {"/drone/imu/data_raw", "/rover/imu/data_raw"}
