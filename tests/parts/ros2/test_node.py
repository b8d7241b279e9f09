"""The node on the memory transport: what a ROS 2 user meets, without ROS 2."""

from __future__ import annotations

import itertools
import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import microsim
from microsim import messages as wire
from microsim.messages.topics import TOPICS, Qos
from microsim.parts.ros2.entity_services import RefusalError
from microsim.parts.ros2.microsim_node import MicroSimNode, start_node
from microsim.parts.ros2.sim_services import SERVICE_NAMES, SimulationInterfaces
from microsim.parts.ros2.transport import MissingTypeError, OnRequest
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport

BARE = {  # few messages, no camera: quick
    "world_topics": {"occupancy_hz": 0, "markers_hz": 0},
    "robots": {"drone": {"camera": None, "start": {"map_pose": {"x": 20, "y": 20, "z": 10}}}, "rover": {}},
}


class Controller:
    """The other side: a node that listens, commands and calls."""

    def __init__(self, bus: Bus) -> None:
        self.transport = MemoryTransport("controller", bus=bus)
        self.received: dict[str, list[bytes]] = {}
        self._publishers: dict[str, Any] = {}

    def listen(self, topic: str, type_name: str, qos: Qos | None = None) -> None:
        box = self.received.setdefault(topic, [])
        self.transport.subscribe(topic, type_name, qos or Qos(1000), box.append)

    def send(self, topic: str, type_name: str, qos: Qos, cdr: bytes) -> None:
        if topic not in self._publishers:
            self._publishers[topic] = self.transport.publisher(topic, type_name, qos)
        self._publishers[topic].publish(cdr)

    def twist(self, robot: str, x: float = 0.0, y: float = 0.0, z: float = 0.0, turn: float = 0.0) -> None:
        message = wire.new("geometry_msgs/msg/Twist")
        message.linear.x, message.linear.y, message.linear.z, message.angular.z = x, y, z, turn
        cdr = wire.encode("geometry_msgs/msg/Twist", message)
        self.send(f"/{robot}/cmd_vel", "geometry_msgs/msg/Twist", Qos(10), cdr)


class Stage:
    """A node and a controller on one bus, driven tick by tick without a wall clock."""

    def __init__(self, scenario: Any = None, ros_args: tuple[str, ...] = (), **wishes: Any) -> None:
        self.bus = Bus()
        self.transport = MemoryTransport("microsim", ros_args, self.bus)
        self.node: MicroSimNode = start_node(self.transport, microsim.load_scenario(scenario or BARE), **wishes)
        self.controller = Controller(self.bus)
        self.node.runner.pause(True)

    def tick(self, ticks: int = 1) -> None:
        for _ in range(ticks):
            self.transport.poll()
            self.node.runner.step(1)
        self.controller.transport.poll()

    def call(self, service: str, type_name: str, **request: Any) -> Any:
        return self._together(lambda: self.controller.transport.call(service, type_name, request, timeout_s=60.0))

    def _together(self, work: Any) -> Any:
        """Both sides poll: the caller waits on its own thread."""
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            while not future.done():
                self.node.runner.sources[0](0.001)  # as the running node does
            return future.result()


def test_a_command_reaches_the_state_on_the_next_tick() -> None:
    stage = Stage()
    stage.controller.twist("rover", x=1.0)
    stage.tick()
    assert stage.node.sim.state("rover").v == pytest.approx(1.0 - math.exp(-1 / 60 / 0.1))


def test_while_paused_only_so_many_commands_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microsim.parts.ros2.microsim_node._MOST_WAITING", 3, raising=False)
    stage = Stage()
    for speed in (1.0, 2.0, 3.0, 4.0, 5.0):
        stage.controller.twist("rover", x=speed)
        stage.transport.poll()
    assert [item.values[0] for item in stage.node.sim.waiting] == [1.0, 2.0, 3.0]
    stage.tick()
    stage.controller.twist("rover", x=0.5)
    stage.transport.poll()
    assert [item.values[0] for item in stage.node.sim.waiting] == [0.5]


def test_every_topic_of_the_table_is_offered_with_its_type_and_quality() -> None:
    stage = Stage("default")
    offered = {publisher.topic: publisher for publisher in stage.bus.publishers}
    for kind, name in {
        "clock": "/clock",
        "tf": "/tf",
        "tf_static": "/tf_static",
        "odom": "/drone/odom",
        "gps": "/rover/gps/fix",
        "imu": "/drone/imu/data_raw",
        "image": "/drone/camera/image_raw",
        "camera_info": "/drone/camera/camera_info",
        "range": "/rover/range/front",
        "radio_metrics": "/radio/metrics",
        "radio_rx": "/radio/rover_rx",
        "occupancy": "/world/occupancy",
        "markers": "/world/markers",
        "sim_info": "/sim/info",
        "diagnostics": "/diagnostics",
    }.items():
        assert (offered[name].type_name, offered[name].qos) == (TOPICS[kind].type, TOPICS[kind].qos), name
    heard = {subscription.topic: subscription.qos for subscription in stage.bus.subscriptions}
    for kind, robot in itertools.product(("cmd_vel", "set_pose", "radio_tx"), ("drone", "rover")):
        assert heard[TOPICS[kind].of(robot)] == TOPICS[kind].qos


def test_the_bytes_on_the_bus_are_those_of_the_simulation() -> None:
    stage = Stage()
    for topic, (type_name, _) in stage.node.sim.topics.items():
        stage.controller.listen(topic, type_name)
    stage.tick(60)
    alone = microsim.Simulation(BARE)
    expected: dict[str, list[bytes]] = {}
    for message in alone.step(60):
        expected.setdefault(message.topic, []).append(message.cdr)
    assert {topic: box for topic, box in stage.controller.received.items() if box} == expected
    assert stage.node.sim.digest() == alone.digest()


@pytest.mark.parametrize(
    "cdr",
    [
        b"",
        b"\x00\x01\x00\x00",
        b"\x00\x00\x00\x00" + bytes(48),
        b"\x00\x01\x00\x00" + bytes(47),
        b"\xff" * 500,
        b"\x00\x01\x00\x00" + bytes(100_000),
    ],
    ids=["empty", "only a header", "big endian", "truncated", "garbage", "oversized"],
)
def test_a_malformed_command_is_counted_and_changes_nothing(cdr: bytes) -> None:
    stage, quiet = Stage(), Stage()
    stage.controller.send("/rover/cmd_vel", "geometry_msgs/msg/Twist", Qos(10), cdr)
    stage.tick(5)
    quiet.tick(5)
    assert stage.node.malformed == 1
    assert stage.node.sim.digest() == quiet.node.sim.digest()


def test_a_command_with_nan_is_ignored_and_counted() -> None:
    stage = Stage()
    stage.controller.twist("rover", x=1.0)
    stage.tick()
    stage.controller.twist("rover", x=math.nan)
    stage.controller.twist("drone", turn=math.inf)
    stage.tick(30)
    assert sum(stage.node.sim.counters.values()) == 2
    assert stage.node.sim.state("rover").v == pytest.approx(1.0, abs=0.01)


def test_a_twist_field_that_is_not_used_may_be_nan() -> None:
    stage = Stage()
    message = wire.new("geometry_msgs/msg/Twist")
    message.linear.x, message.linear.y, message.angular.x = 1.0, math.nan, math.nan
    cdr = wire.encode("geometry_msgs/msg/Twist", message)
    stage.controller.send("/rover/cmd_vel", "geometry_msgs/msg/Twist", Qos(10), cdr)
    stage.tick()
    assert stage.node.sim.state("rover").v > 0.0


def test_stamped_commands_are_taken_on_request() -> None:
    stage = Stage({**BARE, "stamped_cmd_vel": True})
    message = wire.new("geometry_msgs/msg/TwistStamped")
    message.twist.linear.x = 2.0
    cdr = wire.encode("geometry_msgs/msg/TwistStamped", message)
    stage.controller.send("/rover/cmd_vel", "geometry_msgs/msg/TwistStamped", Qos(10), cdr)
    stage.tick()
    assert stage.node.sim.state("rover").v > 0.0


def _send_pose(stage: Stage, frame: str, x: float, y: float, z: float = 0.0, w: float = 1.0) -> None:
    """To the rover; z and w of the orientation."""
    message = wire.new("geometry_msgs/msg/PoseStamped")
    message.header.frame_id = frame
    message.pose.position.x, message.pose.position.y = x, y
    message.pose.orientation.z, message.pose.orientation.w = z, w
    cdr = wire.encode("geometry_msgs/msg/PoseStamped", message)
    stage.controller.send("/rover/set_pose", "geometry_msgs/msg/PoseStamped", Qos(10), cdr)


def _place(stage: Stage) -> tuple[float, float, float]:
    state = stage.node.sim.state("rover")
    return state.x, state.y, state.yaw


@pytest.mark.parametrize("frame", ["", "map", "/map", "odom"])
def test_a_pose_teleports(frame: str) -> None:
    stage = Stage()
    _send_pose(stage, frame, 30.0, 40.0, math.sqrt(0.5), math.sqrt(0.5))
    stage.tick()
    assert _place(stage) == pytest.approx((30.0, 40.0, math.pi / 2))


def test_a_pose_may_be_given_in_the_frame_of_a_robot() -> None:
    stage = Stage()
    _send_pose(stage, "map", 30.0, 40.0, math.sqrt(0.5), math.sqrt(0.5))  # faces north
    stage.tick()
    _send_pose(stage, "rover/base_link", 3.0, 1.0, math.sqrt(0.5), math.sqrt(0.5))
    stage.tick()
    assert _place(stage) == pytest.approx((29.0, 43.0, math.pi))
    drone = stage.node.sim.state("drone")
    _send_pose(stage, "drone/base_link", 5.0, 0.0)
    stage.tick()
    expected = (drone.x + 5.0 * math.cos(drone.yaw), drone.y + 5.0 * math.sin(drone.yaw), drone.yaw)
    assert _place(stage) == pytest.approx(expected, abs=1e-6)


def test_a_pose_may_be_given_in_an_odometry_frame_that_drifts() -> None:
    drift = {"position_per_m": 0.2, "yaw_per_rad": 0.2}
    scenario = {**BARE, "frames": {"per_robot_odom": True}}
    scenario["robots"] = {"rover": {"odom": {"drift": drift}, "start": {"map_pose": {"x": 50, "y": 50}}}}
    stage = Stage(scenario)
    stage.controller.listen("/tf", "tf2_msgs/msg/TFMessage")
    stage.controller.twist("rover", x=2.0, turn=0.3)
    stage.tick(120)
    stage.controller.twist("rover")
    stage.tick(120)
    sent = wire.decode("tf2_msgs/msg/TFMessage", stage.controller.received["/tf"][-1]).transforms
    (odom,) = [each.transform for each in sent if each.child_frame_id == "rover/odom"]
    assert (odom.translation.x, odom.translation.y) != (0.0, 0.0)
    yaw = 2.0 * math.atan2(odom.rotation.z, odom.rotation.w)
    _send_pose(stage, "rover/odom", 40.0, 45.0)
    stage.tick()
    x = odom.translation.x + 40.0 * math.cos(yaw) - 45.0 * math.sin(yaw)
    y = odom.translation.y + 40.0 * math.sin(yaw) + 45.0 * math.cos(yaw)
    assert _place(stage) == pytest.approx((x, y, yaw))


@pytest.mark.parametrize(
    ("frame", "w", "why"),
    [
        ("rover/bose_link", 1.0, "there is no frame 'rover/bose_link'; did you mean 'rover/base_link'?"),
        ("map", 0.0, "the orientation is a quaternion of zeros"),
    ],
)
def test_a_pose_without_a_place_or_a_direction_is_refused_with_a_warning(
    frame: str, w: float, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    stage = Stage()
    before = _place(stage)
    _send_pose(stage, frame, 30.0, 40.0, w=w)
    stage.tick()
    assert _place(stage) == before
    assert stage.node.malformed == 1
    assert f"/rover/set_pose: ignored: {why}" in capfd.readouterr().err


def test_radio_goes_from_tx_to_rx() -> None:
    stage = Stage({**BARE, "radio": {"drop_probability": 0.0}})
    stage.controller.listen("/radio/rover_rx", "std_msgs/msg/ByteMultiArray", Qos(5, reliable=False))
    message = wire.new("std_msgs/msg/ByteMultiArray", data=np.array([104, 0, 200, 255], np.uint8))
    cdr = wire.encode("std_msgs/msg/ByteMultiArray", message)
    stage.controller.send("/radio/drone_tx", "std_msgs/msg/ByteMultiArray", Qos(1, reliable=False), cdr)
    stage.tick(30)
    (received,) = stage.controller.received["/radio/rover_rx"]
    assert wire.decode("std_msgs/msg/ByteMultiArray", received).data.tolist() == [104, 0, 200, 255]


def test_services_pause_step_and_reset() -> None:
    stage = Stage()
    assert stage.call("/sim/pause", "example_interfaces/srv/SetBool", data=True).success
    tick = stage.node.sim.tick
    answer = stage.call("/sim/step", "example_interfaces/srv/SetInt32", data=7)
    assert answer.success
    assert stage.node.sim.tick == tick + 7
    for refused in (0, -3, 2_000_000_000):
        assert not stage.call("/sim/step", "example_interfaces/srv/SetInt32", data=refused).success
    assert stage.call("/sim/pause", "example_interfaces/srv/SetBool", data=False).success
    running = stage.call("/sim/step", "example_interfaces/srv/SetInt32", data=1)
    assert not running.success
    assert "pause" in running.message
    stage.call("/sim/reset", "std_srvs/srv/Empty")
    assert stage.node.sim.tick == 0


@pytest.mark.parametrize("package", ["example_interfaces", "microsim_interfaces"])
def test_steps_and_seeds_are_taken_under_both_types(package: str) -> None:
    """The first is that of the documents, which no distribution has; the second is ours, in `interfaces/`."""
    stage = Stage()
    assert stage.call("/sim/step", f"{package}/srv/SetInt32", data=2).message == "now at tick 2"
    assert stage.call("/sim/set_seed", f"{package}/srv/SetInt32", data=5).success
    assert stage.node.sim.next_seed == 5
    pause = {"example_interfaces": "example_interfaces", "microsim_interfaces": "std_srvs"}[package]
    assert stage.call("/sim/pause", f"{pause}/srv/SetBool", data=False).message == "running"


def test_steps_and_seeds_need_only_types_that_every_ros_2_has() -> None:
    stage = Stage()
    assert stage.call("/sim/step_once", "std_srvs/srv/Trigger").message == "now at tick 1"
    assert _set(stage, "ticks_per_step", 20) == ""
    assert stage.call("/sim/step_once", "std_srvs/srv/Trigger").message == "now at tick 21"
    assert "from 1 to" in _set(stage, "ticks_per_step", 0)
    assert _set(stage, "seed", 7) == ""
    stage.call("/sim/reset", "std_srvs/srv/Empty")
    assert stage.node.sim.seed == 7
    begun = Stage(ros_args=("--ros-args", "-p", "ticks_per_step:=3"))
    assert begun.call("/sim/step_once", "std_srvs/srv/Trigger").message == "now at tick 3"


def test_a_stepped_run_arrives_completely_where_ten_messages_are_kept() -> None:
    stage = Stage()
    topics = ("/clock", "/tf", "/drone/imu/data_raw")
    for topic in topics:
        stage.controller.listen(topic, stage.node.sim.topics[topic][0], Qos(10))
    stage.tick()
    for box in stage.controller.received.values():
        box.clear()
    for _ in range(5):
        assert stage.call("/sim/step", "example_interfaces/srv/SetInt32", data=40).success
    stage.controller.transport.poll()
    assert {topic: len(stage.controller.received[topic]) for topic in topics} == dict.fromkeys(topics, 200)


def test_a_subscriber_that_never_reads_delays_a_step_only_once() -> None:
    stage = Stage()
    deaf = MemoryTransport("deaf", bus=stage.bus)
    deaf.subscribe("/clock", "rosgraph_msgs/msg/Clock", Qos(10), lambda cdr: None)
    deaf._thread = -1  # of another thread, which hangs
    waits: list[bool] = []
    wait_for_acks = stage.transport.wait_for_acks

    def count(timeout_s: float) -> bool:
        waits.append(wait_for_acks(0.001))
        return waits[-1]

    stage.transport.wait_for_acks = count  # type: ignore[method-assign]
    assert stage.call("/sim/step", "example_interfaces/srv/SetInt32", data=600).success
    assert waits == [False]
    assert stage.node.sim.tick == 600


def test_a_step_can_wait_for_its_command() -> None:
    stage = Stage()
    assert _set(stage, "step_waits_for", "/rover/cmd_vel") == ""
    stage.controller.twist("rover", x=1.0)
    stage.controller.transport.poll()
    assert stage.call("/sim/step", "example_interfaces/srv/SetInt32", data=60).success
    assert stage.node.sim.state("rover").v == pytest.approx(1.0, abs=0.01)

    def late() -> Any:
        """The request overtakes the command."""
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(stage.controller.transport.call, "/sim/step_once", "std_srvs/srv/Trigger", {}, 60.0)
            while not stage.bus.servers["/sim/step_once", "std_srvs/srv/Trigger"].queue:
                threading.Event().wait(0.001)
            stage.controller.twist("rover", x=0.0)
            return answer.result()

    tick = stage.node.sim.tick
    assert stage._together(late).success
    assert stage.node.sim.tick == tick + 1
    assert stage.node.sim.state("rover").v < 0.95
    refused = stage.call("/step_simulation", "simulation_interfaces/srv/StepSimulation", steps=1).result
    assert "no message on /rover/cmd_vel within 2 s" in refused.error_message
    assert "did you mean '/rover/cmd_vel'" in _set(stage, "step_waits_for", "/rover/cmd_vol")


def test_a_seed_set_by_service_counts_from_the_next_reset() -> None:
    stage = Stage()
    before = stage.node.sim.seed
    assert stage.call("/sim/set_seed", "example_interfaces/srv/SetInt32", data=-77).success
    assert stage.node.sim.seed == before
    stage.call("/sim/reset", "std_srvs/srv/Empty")
    assert stage.node.sim.seed == -77
    stage.tick(30)
    assert stage.node.sim.digest() == _digest_of(BARE, -77, 30)


def _digest_of(scenario: Any, seed: int, ticks: int) -> str:
    sim = microsim.Simulation(scenario, seed=seed)
    sim.step(ticks)
    return sim.digest()


def test_time_goes_back_only_at_a_reset() -> None:
    stage = Stage()
    stage.controller.listen("/clock", "rosgraph_msgs/msg/Clock")
    for _ in range(5):
        stage.tick(10)
        stage.call("/sim/reset", "std_srvs/srv/Empty")
    stage.controller.transport.poll()
    clocks = [wire.decode("rosgraph_msgs/msg/Clock", cdr).clock for cdr in stage.controller.received["/clock"]]
    times = [clock.sec * 10**9 + clock.nanosec for clock in clocks]
    back = [later for earlier, later in itertools.pairwise(times) if later < earlier]
    assert back == [0] * 5


def test_a_limit_set_as_parameter_counts_from_the_next_tick() -> None:
    stage = Stage()
    stage.controller.twist("rover", x=2.0)
    stage.tick(120)
    assert stage.node.sim.state("rover").v == pytest.approx(2.0, abs=1e-3)
    assert _set(stage, "rover.max_v", 0.5) == ""
    stage.tick(120)
    assert stage.node.sim.state("rover").v == pytest.approx(0.5, abs=1e-3)


def _set(stage: Stage, name: str, value: Any) -> str:
    kinds = {bool: (1, "bool_value"), int: (2, "integer_value"), float: (3, "double_value"), str: (4, "string_value")}
    kind, field = kinds[type(value)]
    request = {"parameters": [{"name": name, "value": {"type": kind, field: value}}]}
    answer = stage.call("/microsim/set_parameters", "rcl_interfaces/srv/SetParameters", **request)
    (result,) = answer.results
    assert result.successful == (not result.reason)
    return str(result.reason)


def test_a_bad_parameter_is_refused_with_a_sentence() -> None:
    stage = Stage()
    assert "from 0 to" in _set(stage, "rover.max_v", -1.0)
    assert _set(stage, "gps_hz", 1000.0) != ""
    assert _set(stage, "use_sim_time", False) != ""
    assert _set(stage, "no.such", 1) != ""
    assert stage.node.sim.scenario == microsim.load_scenario(BARE)


def _get(stage: Stage, name: str) -> Any:
    request = {"names": [name]}
    return stage.call("/microsim/get_parameters", "rcl_interfaces/srv/GetParameters", **request).values[0]


@pytest.mark.parametrize(("name", "value"), [("rover.max_v", 1), ("gps_hz", 2), ("physics_hz", 80)])
def test_an_integer_is_taken_for_a_double_which_stays_one(name: str, value: int) -> None:
    stage = Stage()
    assert _get(stage, name).type == 3
    assert _set(stage, name, value) == ""
    assert (_get(stage, name).type, _get(stage, name).double_value) == (3, value)
    stage.call("/sim/reset", "std_srvs/srv/Empty")
    assert (_get(stage, name).type, _get(stage, name).double_value) == (3, value)
    assert _set(stage, name, value + 0.5) == ""
    assert _get(stage, name).double_value == value + 0.5


def test_a_whole_double_is_taken_for_an_integer_and_a_fraction_is_not() -> None:
    stage = Stage("default")
    assert _set(stage, "drone.camera.width", 64.0) == ""
    assert (_get(stage, "drone.camera.width").type, _get(stage, "drone.camera.width").integer_value) == (2, 64)
    assert "is of type integer, not double" in _set(stage, "drone.camera.width", 64.5)


def test_a_parameter_does_not_undo_what_a_mission_changed() -> None:
    stage = Stage()
    document = stage.node.sim.scenario.to_dict()
    document["robots"]["drone"]["max_vx"] = 1.25
    stage.node.sim.reconfigure(microsim.load_scenario(document))
    assert _set(stage, "rover.max_v", 0.5) == ""
    robots = stage.node.sim.scenario.to_dict()["robots"]
    assert (robots["drone"]["max_vx"], robots["rover"]["max_v"]) == (1.25, 0.5)


def test_what_needs_a_reset_waits_for_it() -> None:
    stage = Stage()
    assert _set(stage, "physics_hz", 100) == ""
    assert stage.node.sim.scenario.physics_hz == 60
    stage.call("/sim/reset", "std_srvs/srv/Empty")
    assert stage.node.sim.scenario.physics_hz == 100


def test_the_real_time_factor_changes_while_running() -> None:
    stage = Stage()
    assert _set(stage, "real_time_factor", 2.5) == ""
    assert stage.node.runner.rtf == 2.5
    assert _set(stage, "real_time_factor", -1.0) != ""


def test_ros_arguments_override_the_scenario_and_options_override_them() -> None:
    stage = Stage(ros_args=("--ros-args", "-p", "rover.max_v:=0.25", "-p", "seed:=5", "-p", "gps_hz:=10"))
    assert stage.node.sim.scenario.robots["rover"].max_v == 0.25  # type: ignore[attr-defined]
    assert stage.node.sim.seed == 5
    assert Stage(ros_args=("--ros-args", "-p", "seed:=5"), seed=9).node.sim.seed == 9


def test_the_size_of_the_default_world_is_a_parameter() -> None:
    stage = Stage("default", ros_args=("--ros-args", "-p", "world.size_xy_cells:=[120, 90]"))
    assert stage.node.sim.world.elevation.shape == (90, 120)


def test_the_contract_s_camera_noise_is_told_what_replaces_it(capsys: pytest.CaptureFixture[str]) -> None:
    Stage(ros_args=("--ros-args", "-p", "sensors.camera_noise_u8:=2"))
    said = capsys.readouterr().err
    assert "there is no parameter sensors.camera_noise_u8; in its place there are drone.camera.noise.blur_" in said
    assert "did you mean" not in said


def test_a_namespace_moves_every_topic() -> None:
    stage = Stage(ros_args=("--ros-args", "-r", "__ns:=/left"))
    ours = {publisher.topic for publisher in stage.bus.publishers} - {"/rosout", "/parameter_events"}
    assert {"/left/clock", "/left/tf", "/left/drone/odom"} <= ours
    assert all(topic.startswith("/left/") for topic in ours if "rosout" not in topic and "parameter" not in topic)


def test_sim_info_tells_what_is_in_force() -> None:
    stage = Stage(ros_args=("--ros-args", "-p", "rover.max_v:=0.25"))
    stage.controller.listen("/sim/info", "std_msgs/msg/String", Qos(1, latched=True))
    stage.node.runner.publish(stage.node.sim.step(0))
    stage.controller.transport.poll()
    info = json.loads(wire.decode("std_msgs/msg/String", stage.controller.received["/sim/info"][-1]).data)
    assert info["robots"]["rover"]["max_v"] == 0.25
    assert info["seed"] == 12345
    _set(stage, "rover.max_v", 1.5)
    stage.tick()
    info = json.loads(wire.decode("std_msgs/msg/String", stage.controller.received["/sim/info"][-1]).data)
    assert info["robots"]["rover"]["max_v"] == 1.5


STANDARD = "simulation_interfaces/srv/"


def test_the_standard_interface_controls_the_simulation() -> None:
    stage = Stage()
    features = stage.call("/get_simulator_features", STANDARD + "GetSimulatorFeatures").features.features
    assert {10, 11, 20, 24, 25, 31, 32} <= {int(feature) for feature in features}
    assert stage.call("/get_simulation_state", STANDARD + "GetSimulationState").state.state == 2
    assert stage.call("/step_simulation", STANDARD + "StepSimulation", steps=5).result.result == 1
    assert stage.node.sim.tick == 5
    assert stage.call("/set_simulation_state", STANDARD + "SetSimulationState", state={"state": 1}).result.result == 1
    assert stage.call("/step_simulation", STANDARD + "StepSimulation", steps=5).result.result == 3
    assert stage.call("/set_simulation_state", STANDARD + "SetSimulationState", state={"state": 1}).result.result == 101
    assert stage.call("/set_simulation_state", STANDARD + "SetSimulationState", state={"state": 0}).result.result == 1
    assert stage.node.sim.tick == 0
    assert stage.call("/get_simulation_state", STANDARD + "GetSimulationState").state.state == 0


def test_the_standard_interface_knows_the_robots() -> None:
    stage = Stage()
    assert stage.call("/get_entities", STANDARD + "GetEntities").entities == ["drone", "rover"]
    assert stage.call("/get_entities", STANDARD + "GetEntities", filters={"filter": "r.*"}).entities == ["rover"]
    state = stage.call("/get_entity_state", STANDARD + "GetEntityState", entity="drone").state
    assert (state.pose.position.x, state.pose.position.z) == (20.0, 10.0)
    assert stage.call("/get_entity_state", STANDARD + "GetEntityState", entity="dorne").result.result == 2
    both = stage.call("/get_entities_states", STANDARD + "GetEntitiesStates")
    assert len(both.states) == len(both.entities) == 2
    pose = {"pose": {"position": {"x": 33.0, "y": 44.0}, "orientation": {"w": 1.0}}}
    answer = stage.call("/set_entity_state", STANDARD + "SetEntityState", entity="rover", state=pose, set_pose=True)
    assert answer.result.result == 1
    stage.tick()
    assert stage.node.sim.state("rover").x == pytest.approx(33.0)
    bad = {"pose": {"position": {"x": math.nan}, "orientation": {"w": 1.0}}}
    answer = stage.call("/set_entity_state", STANDARD + "SetEntityState", entity="rover", state=bad, set_pose=True)
    assert answer.result.result == 101


def test_the_standard_interface_loads_worlds() -> None:
    stage = Stage()
    worlds = stage.call("/get_available_worlds", STANDARD + "GetAvailableWorlds").worlds
    assert {"default", "flat", "obstacles_arena"} <= {world.name for world in worlds}
    assert stage.call("/load_world", STANDARD + "LoadWorld", world_resource={"uri": "flat"}).result.result == 1
    assert stage.call("/get_current_world", STANDARD + "GetCurrentWorld").world.name == "flat"
    assert stage.call("/load_world", STANDARD + "LoadWorld", world_resource={"uri": "/etc/passwd"}).result.result == 2
    text = {"resource_string": "name: mine\nrobots: {solo: {model: rover}}\n"}
    assert stage.call("/load_world", STANDARD + "LoadWorld", world_resource=text).result.result == 1
    assert stage.node.sim.robots == ("solo",)
    stage.controller.twist("solo", x=1.0)
    stage.tick(2)
    assert stage.node.sim.state("solo").v > 0.0
    evil = {"resource_string": "plugins: [/tmp]\n"}
    assert stage.call("/load_world", STANDARD + "LoadWorld", world_resource=evil).result.result == 0
    broken = {"resource_string": "name: [\n"}
    assert stage.call("/load_world", STANDARD + "LoadWorld", world_resource=broken).result.result == 103


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{path}", "expected the text of a scenario"),
        ("flat", "expected the text of a scenario"),
        ("lockstep: [{{after: /moon, expect: /rover/cmd_vel}}]", "this run does not send"),
    ],
)
def test_a_world_that_cannot_run_is_refused_and_the_run_continues(text: str, part: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    stage = Stage()
    stage.node.runner.pause(False)
    world = {"resource_string": text.format(path=tmp_path / "mine.yaml")}
    answer = stage.call("/load_world", STANDARD + "LoadWorld", world_resource=world).result
    assert answer.result == 103
    assert part in answer.error_message
    assert stage.node.sim.scenario.name == microsim.load_scenario(BARE).name
    assert not stage.node.runner.paused
    assert stage.node.lockstep is None


def spawn(stage: Stage, name: str, uri: str = "", x: float = 5.0, y: float = 5.0, **rest: Any) -> Any:
    pose = {"pose": {"position": {"x": x, "y": y, "z": rest.pop("z", 0.0)}, "orientation": {"w": 1.0}}}
    resource = {"uri": uri, "resource_string": rest.pop("text", "")}
    request = {"name": name, "entity_resource": resource, "initial_pose": {**pose, "header": rest.pop("header", {})}}
    return stage.call("/spawn_entity", STANDARD + "SpawnEntity", **{**request, **rest})


def test_the_standard_interface_spawns_robots_that_are_driven_and_deleted() -> None:
    stage = Stage()
    answer = spawn(stage, "second", "rover")
    assert (answer.result.result, answer.entity_name) == (1, "second")
    assert stage.call("/get_entities", STANDARD + "GetEntities").entities == ["drone", "rover", "second"]
    stage.controller.listen("/second/odom", "nav_msgs/msg/Odometry")
    stage.controller.twist("second", x=1.0)
    stage.tick(30)
    assert stage.node.sim.state("second").v > 0.5
    assert stage.controller.received["/second/odom"]
    assert stage.call("/delete_entity", STANDARD + "DeleteEntity", entity="second").result.result == 1
    assert stage.call("/delete_entity", STANDARD + "DeleteEntity", entity="second").result.result == 2
    stage.controller.twist("second", x=1.0)
    stage.tick(2)
    assert stage.node.sim.robots == ("drone", "rover")


def test_the_standard_interface_spawns_obstacles_in_any_frame_and_moves_them() -> None:
    stage = Stage()
    assert spawn(stage, "drum", "cylinder", 3.0, 0.0, header={"frame_id": "rover"}).result.result == 1
    rover, crate = stage.node.sim.state("rover"), stage.node.sim.entities["drum"]
    assert crate.center[:2] == pytest.approx((rover.x + 3 * math.cos(rover.yaw), rover.y + 3 * math.sin(rover.yaw)))
    text = "{type: cylinder, radius: 0.3, height: 2}"
    assert spawn(stage, "", text=text, allow_renaming=True).entity_name == "cylinder"
    place = {"pose": {"position": {"x": 40.0, "y": 40.0}, "orientation": {"w": 1.0}}}
    moved = stage.call("/set_entity_state", STANDARD + "SetEntityState", entity="cylinder", state=place, set_pose=True)
    assert moved.result.result == 1
    state = stage.call("/get_entity_state", STANDARD + "GetEntityState", entity="cylinder").state
    assert state.pose.position.x == 40.0
    info = stage.call("/get_entity_info", STANDARD + "GetEntityInfo", entity="cylinder").info
    assert (info.category.category, info.tags) == (5, ["cylinder"])
    assert stage.call("/reset_simulation", STANDARD + "ResetSimulation", scope=4).result.result == 1
    assert stage.call("/get_entities", STANDARD + "GetEntities").entities == ["drone", "rover"]


def test_resets_of_state_and_of_spawned_entities_keep_the_obstacles_of_the_scenario() -> None:
    box, drum = {"type": "box", "size": [1, 1, 1]}, {"type": "cylinder", "radius": 0.5, "height": 1}
    blocks = [{**box, "center": [30, 30, 0]}, {**drum, "center": [35, 30, 0]}, {**box, "center": [40, 30, 0]}]
    stage = Stage({**BARE, "obstacles": blocks})
    there = ["drone", "rover", "obstacle_0", "obstacle_1", "obstacle_2"]
    place = {"pose": {"position": {"x": 31.0, "y": 33.0}, "orientation": {"w": 1.0}}}

    def put(entity: str) -> int:
        answer = stage.call("/set_entity_state", STANDARD + "SetEntityState", entity=entity, state=place, set_pose=True)
        return int(answer.result.result)

    def reset(scope: int) -> int:
        return int(stage.call("/reset_simulation", STANDARD + "ResetSimulation", scope=scope).result.result)

    assert put("obstacle_0") == 1
    assert spawn(stage, "crate", "box").result.result == 1
    assert reset(4) == 1
    assert stage.call("/get_entities", STANDARD + "GetEntities").entities == there
    assert reset(2) == 1
    assert [each.center[:2] for each in stage.node.sim.scenario.obstacles] == [(30, 30), (35, 30), (40, 30)]
    assert put("obstacle_0") == 1
    stage.node.sim.set_pose("rover", x=30, y=30)
    stage.tick()
    assert reset(2) == 4, "the rover is there now"
    assert stage.call("/get_entities", STANDARD + "GetEntities").entities == there


def test_the_standard_interface_spawns_actors_in_the_air_and_on_their_path() -> None:
    stage = Stage()
    assert spawn(stage, "kite", text="{model: actor, shape: drone}", z=7.0).result.result == 1
    assert stage.node.sim.state("kite").z == 7.0
    assert spawn(stage, "walker", text="{model: actor, path: [[0, 40, 40], [9, 45, 45]]}").result.result == 1
    assert stage.node.sim.state("walker").x == 40.0
    place = {"pose": {"position": {"x": 30.0, "y": 30.0}, "orientation": {"w": 1.0}}}
    moved = stage.call("/set_entity_state", STANDARD + "SetEntityState", entity="walker", state=place, set_pose=True)
    assert "it follows a path" in moved.result.error_message


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"name": "rover", "uri": "rover"}, 101),
        ({"name": "", "uri": "rover"}, 102),
        ({"name": "My robot", "uri": "rover"}, 102),
        ({"name": "two"}, 104),
        ({"name": "two", "uri": "rvoer"}, 2),
        ({"name": "two", "uri": "rover", "entity_namespace": "a b"}, 105),
        ({"name": "two", "uri": "rover", "entity_namespace": "other"}, 0),
        ({"name": "two", "text": "{model: ["}, 106),
        ({"name": "two", "text": "{model: rover, speed: 3}"}, 106),
        ({"name": "two", "text": "{model: rvoer}"}, 106),
        ({"name": "two", "text": "{model: actor, shape: box}"}, 106),
        ({"name": "two", "uri": "rover", "x": -100.0}, 109),
        ({"name": "two", "uri": "rover", "x": math.nan}, 109),
        ({"name": "two", "uri": "drone", "z": -5.0}, 109),
        ({"name": "two", "uri": "rover", "header": {"frame_id": "moon"}}, 109),
    ],
)
def test_what_cannot_be_spawned_is_refused_by_its_code(wrong: dict[str, Any], code: int) -> None:
    stage = Stage()
    answer = spawn(stage, **wrong)
    assert (answer.result.result, bool(answer.result.error_message)) == (code, True)
    assert stage.node.sim.robots == ("drone", "rover")


def test_entities_are_found_by_category_tags_and_bounds() -> None:
    stage = Stage({**BARE, "obstacles": [{"type": "box", "center": [50, 50, 0], "size": [2, 2, 2], "name": "crate"}]})

    def found(**filters: Any) -> Any:
        answer = stage.call("/get_entities", STANDARD + "GetEntities", filters=filters)
        return list(answer.entities) if answer.result.result == 1 else int(answer.result.result)

    assert found(categories=[{"category": 5}]) == ["crate"]
    assert found(tags={"tags": ["rover", "box"]}) == ["rover", "crate"]
    assert found(tags={"tags": ["rover", "box"], "filter_mode": 1}) == []
    points = [{"x": 20.0, "y": 20.0, "z": 10.0}, {"x": 0.5}]
    assert found(bounds={"type": 3, "points": points}) == ["drone"]
    corners = [{"x": 60.0, "y": 60.0, "z": 5.0}, {"x": 50.9, "y": 50.9, "z": 1.9}]
    assert found(bounds={"type": 1, "points": corners}) == ["crate"]
    assert found(bounds={"type": 2, "points": corners}) == 0
    assert found(bounds={"type": 3, "points": points[:1]}) == 4


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        (".*" * 40 + "x", "at most 4 repetitions"),
        ("(|.)" * 30 + "x", "at most 4 groups"),
        ("(a|aa)+", "no repeated groups"),
        ("a|" * 20, "at most 16 alternatives"),
        ("a" * 200, "at most 128 characters"),
    ],
)
def test_a_filter_that_would_take_very_long_is_refused(pattern: str, part: str) -> None:
    answer = Stage().call("/get_entities", STANDARD + "GetEntities", filters={"filter": pattern}).result
    assert answer.result == 4
    assert f"the filter is too complex: expected {part}" in answer.error_message


def test_the_standard_interface_answers_clients_of_its_first_version() -> None:
    """ROS 2 Jazzy has 1.x: there a state is set as a whole, and LoadWorld has no nested resource."""
    stage = Stage()
    interfaces = object.__new__(SimulationInterfaces)
    interfaces.node, interfaces.info = stage.node, {}
    request = wire.new(STANDARD + "SetEntityState_Request", entity="rover")
    request.state.pose.position.x, request.state.pose.position.y, request.state.pose.orientation.w = 33.0, 44.0, 1.0
    first = SimpleNamespace(entity=request.entity, state=request.state)
    assert interfaces.set_entity_state(first)["result"]["result"] == 1
    stage.tick()
    assert stage.node.sim.state("rover").x == pytest.approx(33.0)
    first.state.twist.linear.x = 1.0
    with pytest.raises(RefusalError, match="a twist cannot be set") as refused:
        interfaces.set_entity_state(first)
    assert refused.value.code == 0
    world = SimpleNamespace(uri="flat", resource_string="")
    assert interfaces.load_world(world)["world"]["name"] == "flat"


def test_what_is_not_installed_is_said_once_for_each_package(capfd: pytest.CaptureFixture[str]) -> None:
    class Bare(MemoryTransport):
        """As rclpy, where neither package was built."""

        def serve(self, service: str, type_name: str, on_request: OnRequest) -> None:
            package = "simulation_interfaces" if "simulation_interfaces" in type_name else "microsim_interfaces"
            if package in type_name or type_name.endswith("SetInt32"):
                raise MissingTypeError(type_name, f"{package} is not installed; try this")
            super().serve(service, type_name, on_request)

    node = start_node(Bare("microsim", (), Bus()), microsim.load_scenario(BARE))
    assert node.services.action is None
    said = [line for line in capfd.readouterr().err.splitlines() if "not offered" in line]
    assert [line.partition("not offered: ")[2] for line in said if "microsim_interfaces" in line] == [
        "/sim/set_seed, /sim/step: microsim_interfaces is not installed; try this"
    ]
    (standard,) = [line for line in said if "simulation_interfaces is not installed; try this" in line]
    assert all(f"/{name}" in standard for name in SERVICE_NAMES)
    assert len(said) == 2


ACTION = "simulation_interfaces/action/SimulateSteps"


def test_the_action_steps_a_paused_simulation_and_gives_its_result() -> None:
    stage = Stage()
    features = stage.call("/get_simulator_features", STANDARD + "GetSimulatorFeatures").features.features
    assert 33 in [int(feature) for feature in features]
    stage.controller.listen("/simulate_steps/_action/feedback", f"{ACTION}_FeedbackMessage", Qos(10))
    goal = {"goal_id": {"uuid": list(range(16))}, "goal": {"steps": 50}}
    assert stage.call("/simulate_steps/_action/send_goal", f"{ACTION}_SendGoal", **goal).accepted
    result = stage.call("/simulate_steps/_action/get_result", f"{ACTION}_GetResult", goal_id=goal["goal_id"])
    assert (result.status, result.result.result.result) == (4, 1)
    assert stage.node.sim.tick == 50
    stage.controller.transport.poll()
    feedback = stage.controller.received["/simulate_steps/_action/feedback"]
    completed = [wire.decode(f"{ACTION}_FeedbackMessage", cdr).feedback.completed_steps for cdr in feedback]
    assert completed == list(range(1, 51))


def test_the_action_can_be_canceled_and_fails_while_running() -> None:
    stage = Stage()
    goal = {"goal_id": {"uuid": [7] * 16}, "goal": {"steps": 100_000}}
    assert stage.call("/simulate_steps/_action/send_goal", f"{ACTION}_SendGoal", **goal).accepted
    canceled = stage.call("/simulate_steps/_action/cancel_goal", "action_msgs/srv/CancelGoal")
    assert canceled.return_code == 0
    result = stage.call("/simulate_steps/_action/get_result", f"{ACTION}_GetResult", goal_id=goal["goal_id"])
    assert result.status == 5
    assert stage.node.sim.tick < 100_000
    stage.node.runner.pause(False)
    other = {"goal_id": {"uuid": [8] * 16}, "goal": {"steps": 5}}
    assert stage.call("/simulate_steps/_action/send_goal", f"{ACTION}_SendGoal", **other).accepted
    failed = stage.call("/simulate_steps/_action/get_result", f"{ACTION}_GetResult", goal_id=other["goal_id"])
    assert (failed.status, failed.result.result.result) == (6, 4)
    assert "pause it first" in failed.result.result.error_message
