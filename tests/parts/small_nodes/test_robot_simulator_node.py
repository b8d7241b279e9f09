"""The node `robot_simulator` on a transport: topics, quality, own and others' poses, logs, parameters, time."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from microsim import messages as wire
from microsim.cli import app
from microsim.errors import MapError, UsageError
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport import OnMessage
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport
from microsim.parts.ros2.transport.standalone import ROSOUT_QOS, ROSOUT_TYPE
from microsim.parts.small_nodes.robot_simulator_node import RobotSimulatorNode
from tests.cli_support import run_microsim
from tests.navigation import steer, yaw_of
from tests.parts.small_nodes.test_robot_simulator import PARAMETERS
from tests.support import stamp_ns

ROOT = Path(__file__).resolve().parents[3]
TWIST, STAMPED = "geometry_msgs/msg/Twist", "geometry_msgs/msg/TwistStamped"
TARGET, POSE = "geometry_msgs/msg/PoseStamped", "geometry_msgs/msg/PoseWithCovarianceStamped"
LEVELS = {10: "debug", 20: "info", 30: "warn", 40: "error"}


class Anonymous(MemoryTransport):
    """A transport that does not say who sent a message, as some distributions of ROS 2."""

    tells_senders = False
    taken = 0

    def subscribe(self, topic: str, type_name: str, qos: Qos, on_message: OnMessage, from_others: bool = False) -> None:
        def take(cdr: bytes) -> None:
            self.taken += topic == "/amcl_pose"
            on_message(cdr)

        super().subscribe(topic, type_name, qos, take)


class Stage:
    """The node, and a peer beside it."""

    def __init__(self, *ros_args: str, kind: type[MemoryTransport] = MemoryTransport) -> None:
        self.bus = Bus()
        arguments = ["--ros-args", "-p", "publish_clock:=true", "--disable-stdout-logs", *ros_args]
        self.transport = kind("robot_simulator", arguments, bus=self.bus)
        self.peer = MemoryTransport("peer", ["--ros-args", "--disable-rosout-logs"], bus=self.bus)
        self.logs: list[tuple[str, str]] = []
        self.peer.subscribe("/rosout", ROSOUT_TYPE, ROSOUT_QOS, self._log)
        self.node = RobotSimulatorNode(self.transport)
        self.node.start()
        self.core = self.node.core
        self.heard: dict[str, list[Any]] = {}

    def _log(self, cdr: bytes) -> None:
        line = wire.decode(ROSOUT_TYPE, cdr)
        self.logs.append((LEVELS[line.level], line.msg))

    def listen(self, topic: str, type_name: str) -> list[Any]:
        box = self.heard.setdefault(topic, [])
        self.peer.subscribe(topic, type_name, Qos(10_000), lambda cdr: box.append(wire.decode(type_name, cdr)))
        return box

    def publisher(self, topic: str, type_name: str) -> Callable[..., None]:
        publisher = self.peer.publisher(topic, type_name, Qos(10))
        return lambda **values: publisher.publish(wire.encode(type_name, wire.from_mapping(type_name, values)))

    def run(self, ticks: int = 1) -> None:
        for _ in range(ticks):
            self.transport.poll()
            self.node.step()
            self.peer.poll()

    def levels(self, words: str) -> list[str]:
        self.peer.poll()
        return [level for level, text in self.logs if words in text]


def pose(x: float, y: float, yaw: float = 0.0, **header: Any) -> dict[str, Any]:
    turn = {"z": math.sin(yaw / 2), "w": math.cos(yaw / 2)}
    return {"header": header, "pose": {"position": {"x": x, "y": y}, "orientation": turn}}


def localised(x: float, y: float, yaw: float = 0.0, **header: Any) -> dict[str, Any]:
    plain = pose(x, y, yaw, **header)
    return {"header": plain["header"], "pose": {"pose": plain["pose"]}}


def test_subscriptions_have_the_documents_types_and_quality():
    stage = Stage("-p", "scan_hz:=5.0", "-p", "map_topic:=/map")
    heard = {each.topic: each for each in stage.bus.subscriptions if each.owner is stage.transport}
    for topic, type_name in (
        ("/cmd_vel", TWIST),
        ("/active_target", TARGET),
        ("/amcl_pose", POSE),
        ("/initialpose", POSE),
    ):
        assert heard[topic].type_name == type_name
        assert heard[topic].qos == Qos(10, reliable=True, latched=False), topic
    assert heard["/map"].qos.latched
    sent = {each.topic: each.qos for each in stage.bus.publishers if each.owner is stage.transport}
    assert sent["/amcl_pose"] == Qos(1)
    assert sent["/odom"] == Qos(10)
    assert {"/tf", "/scan", "/clock", "/diagnostics"} <= set(sent)


def test_a_target_activates_and_commands_move_the_robot():
    stage = Stage()
    poses = stage.listen("/amcl_pose", POSE)
    command, target = stage.publisher("/cmd_vel", TWIST), stage.publisher("/active_target", TARGET)
    command(linear={"x": 1.0})
    stage.run()
    assert stage.levels("/cmd_vel: ignored") == ["info"]
    target(**pose(2.0, 3.0, math.pi / 2, frame_id="map"))
    stage.run()
    command(linear={"x": 1.0})
    stage.run(10)
    assert poses[-1].pose.pose.position.y == pytest.approx(4.0)
    assert yaw_of(poses[-1].pose.pose.orientation) == pytest.approx(math.pi / 2)
    stage.run(15)
    assert stage.levels("TIMEOUT_STOP") == ["warn"]
    assert stage.core.state() == "TIMEOUT_STOP"


@pytest.mark.parametrize("kind", [MemoryTransport, Anonymous])
def test_its_own_pose_is_never_taken_for_an_external_one(kind):
    """By the publisher where the transport knows it, else by stamp; noise would make every echo a jump."""
    stage = Stage("-p", "pose_noise_std_m:=0.5", kind=kind)
    stage.publisher("/active_target", TARGET)(**pose(2.0, 3.0))
    stage.run(50)
    assert stage.core.counters[0]["external_poses"] == 0
    assert stage.core.pose() == pytest.approx((2.0, 3.0, 0.0))
    if isinstance(stage.transport, Anonymous):
        assert stage.transport.taken > 40  # they did arrive
        stage.node.own["/amcl_pose"].clear()
        stage.node.own.clear()
        stage.run(5)
        assert stage.core.counters[0]["external_poses"] > 0  # without memory of its own it is fooled


@pytest.mark.parametrize("kind", [MemoryTransport, Anonymous])
def test_an_external_pose_is_taken_even_with_the_stamp_of_one_of_its_own(kind):
    """A localiser stamps its pose with the time of the scan it used; at that time a pose of ours was sent too."""
    stage = Stage(kind=kind)
    own = stage.listen("/amcl_pose", POSE)
    external = stage.publisher("/amcl_pose", POSE)
    stage.publisher("/active_target", TARGET)(**pose(0.0, 0.0))
    stage.run(5)
    stamp = own[-1].header.stamp
    external(**localised(5.0, -1.0, 0.5, frame_id="map", stamp={"sec": stamp.sec, "nanosec": stamp.nanosec}))
    stage.run(2)
    assert stage.core.counters[0]["external_poses"] == 1
    assert stage.core.pose() == pytest.approx((5.0, -1.0, 0.5))
    external(**localised(7.0, 7.0, frame_id="map"))
    stage.run()
    assert stage.core.pose() == pytest.approx((7.0, 7.0, 0.0))


def test_poses_in_another_frame_are_ignored_with_a_warning():
    stage = Stage()
    target = stage.publisher("/active_target", TARGET)
    target(**pose(1.0, 1.0, frame_id="odom"))
    stage.run()
    assert stage.core.state() == "IDLE"
    assert stage.levels("in frame 'odom', expected 'map'") == ["warn"]
    target(**pose(1.0, 1.0))  # none given: the map's
    stage.run()
    assert stage.core.state() == "ACTIVE"


def test_nan_is_an_error_told_once_a_second_and_bad_bytes_are_counted():
    stage = Stage()
    command = stage.publisher("/cmd_vel", TWIST)
    stage.publisher("/active_target", TARGET)(**pose(0.0, 0.0))
    stage.run()
    for _ in range(25):
        command(linear={"x": math.nan})
        stage.run()
    assert stage.levels("is not a velocity") == ["error"] * 3  # at 0, 1 and 2 s
    assert stage.core.figures()["bad_commands"] == "25"
    raw = stage.peer.publisher("/cmd_vel", TWIST, Qos(10))
    raw.publish(b"\0\1\0\0 garbage")
    stage.run()
    assert sum(stage.node.ignored.values()) == 1


def test_an_initial_pose_serves_nav2_without_any_target():
    stage = Stage("-p", "tf_tree:=map_odom_base")
    frames = stage.listen("/tf", "tf2_msgs/msg/TFMessage")
    stage.publisher("/initialpose", POSE)(**localised(4.0, 5.0, 1.0, frame_id="map"))
    stage.run(2)
    assert stage.core.pose() == pytest.approx((4.0, 5.0, 1.0))
    assert [each.child_frame_id for each in frames[-1].transforms] == ["odom", "base_link"]


def test_stamped_commands_are_taken_when_asked_for():
    stage = Stage("-p", "stamped_cmd_vel:=true")
    stage.publisher("/initialpose", POSE)(**localised(0.0, 0.0))
    stage.run()
    stage.publisher("/cmd_vel", STAMPED)(twist={"linear": {"x": 0.5}, "angular": {"z": -0.25}})
    stage.run()
    assert stage.core.velocity() == (0.5, -0.25)


def test_a_map_on_a_topic_is_what_the_scan_sees_and_a_senseless_one_is_an_error():
    stage = Stage("-p", "map_topic:=/map", "-p", "scan_hz:=10.0", "-p", "scan_beams:=4")
    scans = stage.listen("/scan", "sensor_msgs/msg/LaserScan")
    grid = stage.peer.publisher("/map", "nav_msgs/msg/OccupancyGrid", Qos(1, latched=True))
    stage.publisher("/initialpose", POSE)(**localised(0.5, 0.5))
    stage.run()
    assert np.isinf(scans[-1].ranges).all()
    message = wire.new("nav_msgs/msg/OccupancyGrid", data=np.array([0, 0, 0, 100], np.int8))
    message.info.resolution, message.info.width, message.info.height = np.float32(1.0), 4, 1
    grid.publish(wire.encode("nav_msgs/msg/OccupancyGrid", message))
    stage.run()
    assert scans[-1].ranges[2] == pytest.approx(2.5)
    message.info.width = 7
    grid.publish(wire.encode("nav_msgs/msg/OccupancyGrid", message))
    stage.run()
    assert stage.levels("7 by 1 cells comes with 4 values") == ["error"]
    assert scans[-1].ranges[2] == pytest.approx(2.5)


def test_parameters_can_be_read_and_most_can_be_set_while_it_runs():
    stage = Stage("-p", "max_linear_mps:=1.5")

    def call(service: str, kind: str, **request: Any) -> Any:
        return stage.peer.call(f"/robot_simulator/{service}", f"rcl_interfaces/srv/{kind}", request)

    listed = call("list_parameters", "ListParameters").result.names
    assert set(PARAMETERS) <= set(listed)
    values = call(
        "get_parameters", "GetParameters", names=["max_linear_mps", "frame_map", "timer_publish_odom_ms"]
    ).values
    assert (values[0].double_value, values[1].string_value, values[2].integer_value) == (1.5, "map", 100)

    def set_(name: str, **value: Any) -> Any:
        return call("set_parameters", "SetParameters", parameters=[{"name": name, "value": value}]).results[0]

    assert set_("max_linear_mps", type=3, double_value=0.5).successful
    assert set_("publish_tf", type=1, bool_value=False).successful
    assert set_("cmd_timeout_sec", type=3, double_value=-1.0).successful is False
    refused = set_("cycle_hz", type=3, double_value=20.0)
    assert not refused.successful
    assert "read-only" in refused.reason
    refused = set_("stop_distance_m", type=3, double_value=9.0)
    assert "slow_distance_m" in refused.reason
    stage.publisher("/initialpose", POSE)(**localised(0.0, 0.0))
    stage.run()
    stage.publisher("/cmd_vel", TWIST)(linear={"x": 9.0})
    stage.run()
    assert stage.core.velocity() == (0.5, 0.0)


def stage_on_clock() -> tuple[Stage, list[Any], Callable[..., None]]:
    """It follows /clock, which is at 100 s; what it sends on /odom; what sets the clock."""
    stage = Stage("-p", "publish_clock:=false", "-p", "use_sim_time:=true")
    odom, clock = stage.listen("/odom", "nav_msgs/msg/Odometry"), stage.publisher("/clock", "rosgraph_msgs/msg/Clock")
    stage.publisher("/initialpose", POSE)(**localised(0.0, 0.0))
    clock(clock={"sec": 100})
    stage.transport.poll()
    return stage, odom, clock


def test_it_follows_another_nodes_clock_when_asked_to():
    stage, odom, clock = stage_on_clock()
    for _ in range(10):
        clock(clock={"sec": 101})
    stage.node.run(ticks=10)
    stage.peer.poll()
    assert [stamp_ns(each.header) for each in odom] == [100 * 10**9 + k * 10**8 for k in range(1, 11)]


def test_a_forward_jump_of_the_clock_is_not_replayed():
    stage, odom, clock = stage_on_clock()
    clock(clock={"sec": 100, "nanosec": 100_000_000})
    stage.node.run(ticks=1)
    clock(clock={"sec": 5000})
    stage.transport.poll()
    stage.node.run(ticks=1)
    stage.peer.poll()
    assert [stamp_ns(each.header) for each in odom] == [100_100_000_000, 5_000_000_000_000]
    assert stage.levels("/clock is") == ["warn"]


def test_it_logs_at_the_start_what_it_waits_for():
    stage = Stage()
    assert stage.levels("waiting for a first pose on /active_target or /initialpose") == ["info"]
    stage = Stage("-p", "publish_clock:=false", "-p", "use_sim_time:=true")
    assert stage.levels("started; waiting for /clock (use_sim_time is true)") == ["info"]


def test_wall_time_shows_its_lag_in_diagnostics_and_simulated_time_does_not():
    assert "tick_lag_ms" in Stage("-p", "publish_clock:=false").core.figures()
    assert "tick_lag_ms" not in Stage().core.figures()


def test_robots_by_name_share_a_node_and_its_clock():
    stage = Stage("-p", "robots:=[a, b]", "-r", "__ns:=/fleet")
    clock = stage.listen("/fleet/clock", "rosgraph_msgs/msg/Clock")
    odom = stage.listen("/fleet/b/odom", "nav_msgs/msg/Odometry")
    stage.publisher("/fleet/b/active_target", TARGET)(**pose(0.0, 0.0))
    stage.run(3)
    assert [stage.core.state(robot) for robot in (0, 1)] == ["IDLE", "ACTIVE"]
    assert len(odom) == 3
    assert [each.clock.nanosec for each in clock][-3:] == [100_000_000, 200_000_000, 300_000_000]
    assert stamp_ns(odom[-1].header) == 300_000_000


def test_a_navigator_follows_a_route_with_a_timeout_on_the_way():
    """The document's §12: targets in a row, closed loop over /amcl_pose, a timeout that is seen, and going on."""
    stage = Stage("-p", "cycle_hz:=20.0", "-p", "pose_noise_std_m:=0.005")
    route = [(0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 1.0)]
    poses, odom = stage.listen("/amcl_pose", POSE), stage.listen("/odom", "nav_msgs/msg/Odometry")
    target, command = stage.publisher("/active_target", TARGET), stage.publisher("/cmd_vel", TWIST)
    target(**pose(*route[0]))
    stage.run(2)
    reached = []
    for number, goal in enumerate(route[1:]):
        target(**pose(*goal))
        for tick in range(600):
            place = poses[-1].pose.pose
            x, y = place.position.x, place.position.y
            if math.hypot(goal[0] - x, goal[1] - y) < 0.1:
                reached.append(goal)
                break
            if not (number == 1 and 10 <= tick < 70):  # the navigator falls silent for 3 s on its second leg
                v, omega = steer(x, y, yaw_of(place.orientation), goal)
                command(linear={"x": v}, angular={"z": omega})
            stage.run()
    assert reached == route[1:]
    assert stage.core.figures()["timeouts"] == "1"
    assert stage.levels("TIMEOUT_STOP") == ["warn"]
    assert stage.levels("commands come again") == ["info"]
    still = [
        stamp_ns(each.header) for each in odom if each.twist.twist.linear.x == 0.0 and each.twist.twist.angular.z == 0.0
    ]
    assert max(still) - min(still) > 0.9e9  # the stop was seen on /odom for the last second of the silence


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (("-p", "map:=nothing.yaml"), Exception, "nothing.yaml: no such file"),
        (("-p", "map:=obstacle_arena"), Exception, "did you mean 'obstacles_arena'"),
        (("-p", "obstacles:=nobody.yaml"), MapError, "nobody.yaml: no such file"),
        (("-p", "cycle_hz:=-1.0"), UsageError, "cycle_hz"),
        (("-p", "tf_tree:=map_bass"), UsageError, "did you mean 'map_base'"),
        (("-p", "publish_clock:=false", "-p", "speed_factor:=2.0"), UsageError, "publish_clock"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(arguments, error, said):
    with pytest.raises(error, match=said):
        Stage(*arguments)


def test_a_map_file_and_obstacles_come_by_parameter(tmp_path):
    (tmp_path / "m.pgm").write_bytes(b"P5 3 1 255\n" + bytes([254, 254, 0]))
    (tmp_path / "m.yaml").write_text(
        "image: m.pgm\nresolution: 1.0\norigin: [0, 0, 0]\nnegate: 0\noccupied_thresh: 0.65\nfree_thresh: 0.2\n"
    )
    (tmp_path / "crowd.yaml").write_text("obstacles: [{at: [0.5, 3.5], radius: 0.5}]\n")
    stage = Stage(
        *("-p", f"map:={tmp_path / 'm.yaml'}", "-p", f"obstacles:={tmp_path / 'crowd.yaml'}"),
        *("-p", "scan_hz:=10.0", "-p", "scan_beams:=4"),
    )
    scans = stage.listen("/scan", "sensor_msgs/msg/LaserScan")
    stage.publisher("/initialpose", POSE)(**localised(0.5, 0.5))
    stage.run()
    assert scans[-1].ranges[2:].tolist() == pytest.approx([1.5, 2.5])


def test_the_help_shows_its_examples_whole():
    shown = (
        CliRunner().invoke(app, ["robot-simulator", "--help"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"}).output
    )
    assert """-p "robots:=['alpha', 'beta']" microsim""" in " ".join(shown.split())


def test_the_command_says_what_is_wrong_with_a_file_and_nothing_else(tmp_path):
    (tmp_path / "m.yaml").write_text(
        "image: m.pgm\nresolution: -1\norigin: [0, 0]\nnegate: 0\noccupied_thresh: 0.65\nfree_thresh: 0.2\n"
    )
    parameter = ("--ros-args", "-p", "map:=m.yaml")
    done = run_microsim("robot-simulator", "--transport", "memory", *parameter, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "microsim: the file has 2 problems:",
        "  m.yaml:2:13: resolution: expected a value above 0, found -1",
        "  m.yaml:3:9: origin: expected [x, y, yaw], found 2 values: [0, 0]",
    ]
