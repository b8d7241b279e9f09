"""The node `microsim` over DDS, in a process of its own, against another of our nodes."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cyclonedds.util import duration

import microsim
from microsim import messages as wire
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport.dds import DdsTransport
from tests.forked_python import forked_python
from tests.integration.conftest import PATIENCE_S, ROOT, Remote, wait_for
from tests.ros_domains import own_domain
from tests.support import STEPPED_MISSION, STEPPED_TICKS, stepped_mission_in_memory

STATE = "simulation_interfaces/srv/GetEntityState"
ODOMETRY, SET_PARAMETERS = "nav_msgs/msg/Odometry", "rcl_interfaces/srv/SetParameters"
SET_INT, SET_BOOL = "example_interfaces/srv/SetInt32", "example_interfaces/srv/SetBool"


class Stage:
    """`microsim run` in one process, a controller here, both in one namespace."""

    def __init__(self, namespace: str, *arguments: str, is_forked: bool = True, **environment: str) -> None:
        variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        python = forked_python(variables) if is_forked else [sys.executable]
        command = [*python, "-m", "microsim", "run", "--headless", "--transport", "dds"]
        self.process = subprocess.Popen(
            [*command, *arguments, "--ros-args", "-r", f"__ns:={namespace}"],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.namespace = namespace
        self.controller = DdsTransport("controller", ["--ros-args", "-r", f"__ns:={namespace}"])
        self.received: dict[str, list[bytes]] = {}
        self._publishers: dict[str, Any] = {}

    def listen(self, topic: str, type_name: str, qos: Qos) -> None:
        box = self.received.setdefault(topic, [])
        self.controller.subscribe(topic, type_name, qos, box.append)

    def call(self, service: str, type_name: str, **request: Any) -> Any:
        return self.controller.call(service, type_name, request, timeout_s=PATIENCE_S)

    def send(self, topic: str, type_name: str, cdr: bytes, qos: Qos | None = None) -> None:
        if topic not in self._publishers:
            self._publishers[topic] = self.controller.publisher(topic, type_name, qos or Qos(10))
        publisher = self._publishers[topic]
        wait_for(lambda: publisher.subscribers == 1, self.controller.poll)
        publisher.publish(cdr)

    def connect(self, robot: str) -> None:
        """Until a command arrives: the two sides of a match learn of it at different times."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            self.twist(robot, 1.0)
            assert self.call("/sim/step", SET_INT, data=60).success
            state = self.call("/get_entity_state", STATE, entity=robot).state
            if abs(state.twist.linear.x) + abs(state.twist.linear.y) > 0.9:  # more than the wind does
                return
        raise AssertionError(f"{robot} never got a command")

    def twist(self, robot: str, x: float) -> None:
        message = wire.new("geometry_msgs/msg/Twist")
        message.linear.x = x
        cdr = wire.encode("geometry_msgs/msg/Twist", message)
        topic = f"/{robot}/cmd_vel"
        self.send(topic, "geometry_msgs/msg/Twist", cdr)
        # DDS keeps no order between topics: without this a request could overtake the command
        self._publishers[topic].writer.writer.wait_for_acks(duration(seconds=1))

    def wait(self, topic: str, count: int) -> None:
        wait_for(lambda: len(self.received[topic]) >= count, self.controller.poll)

    def pause(self) -> None:
        assert self.call("/sim/pause", SET_BOOL, data=True).success

    def end(self) -> str:
        """What it printed at its end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        self.controller.close()
        return str(out)


@pytest.fixture
def stage(namespace: str, request: pytest.FixtureRequest) -> Iterator[Stage]:
    made = Stage(namespace, is_forked=getattr(request, "param", True))
    yield made
    if made.process.poll() is None:
        made.end()


def test_the_bytes_of_a_stepped_mission_are_those_in_memory(stage: Stage) -> None:
    expected = stepped_mission_in_memory()
    stage.pause()
    topics = microsim.Simulation("default").topics
    for topic, (type_name, qos) in topics.items():
        stage.listen(topic, type_name, Qos(1000, qos.reliable, qos.latched))
    for topic, (_, qos) in topics.items():
        if qos.latched:
            stage.wait(topic, 1)  # of the run so far
    stage.call("/sim/step", SET_INT, data=60)
    stage.wait("/radio/metrics", 1)  # once a second: by now every reader is matched
    stage.connect("rover")
    stage.connect("drone")
    stage.call("/sim/step", SET_INT, data=120)  # what is under way arrives
    for box in stage.received.values():
        box.clear()
    stage.call("/sim/reset", "std_srvs/srv/Empty")
    done = 0
    for when, robot, speed in (*STEPPED_MISSION, (STEPPED_TICKS, "", 0.0)):
        for _ in range((when - done) // 5):
            assert stage.call("/sim/step", SET_INT, data=5).success
        done = when
        if robot:
            stage.twist(robot, speed)
    for topic, messages in expected.items():
        stage.wait(topic, messages.total())
        assert Counter(stage.received[topic]) == messages, topic


WAITING: dict[str, dict[str, Any]] = {
    "physics_hz": {"type": 3, "double_value": 120.0},
    "frames.per_robot_odom": {"type": 1, "bool_value": True},
}


def test_what_waits_for_a_reset_is_used_from_it_on_although_a_live_change_came_between(stage: Stage) -> None:
    def set_one(name: str, value: dict[str, Any]) -> None:
        parameters = [{"name": name, "value": value}]
        (result,) = stage.call("/microsim/set_parameters", SET_PARAMETERS, parameters=parameters).results
        assert result.successful, result.reason

    def last_odometry() -> tuple[str, int]:
        (*_, cdr) = stage.received["/rover/odom"] or [wire.encode(ODOMETRY, wire.new(ODOMETRY))]
        header = wire.decode(ODOMETRY, cdr).header
        return header.frame_id, header.stamp.sec * 10**9 + header.stamp.nanosec

    stage.listen("/rover/odom", ODOMETRY, Qos(100))
    stage.pause()
    for name, value in WAITING.items():
        set_one(name, value)
        set_one("drone.max_vx", {"type": 3, "double_value": 2.0})
    stage.call("/sim/reset", "std_srvs/srv/Empty")
    set_one("rover.max_v", {"type": 3, "double_value": 1.0})
    stage.call("/sim/step", SET_INT, data=12)
    wait_for(lambda: last_odometry() == ("rover/odom", 100_000_000), stage.controller.poll)  # 12 ticks of 1/120 s


def test_one_service_has_both_types(stage: Stage) -> None:
    """No ROS 2 has example_interfaces/srv/SetInt32; microsim_interfaces can be built, and std_srvs is everywhere."""
    stage.pause()
    stage.call("/sim/reset", "std_srvs/srv/Empty")
    for number, type_name in enumerate((SET_INT, "microsim_interfaces/srv/SetInt32"), 1):
        assert stage.call("/sim/step", type_name, data=10).message == f"now at tick {10 * number}"
        assert stage.call("/sim/set_seed", type_name, data=number).success
    assert stage.call("/sim/step_once", "std_srvs/srv/Trigger").message == "now at tick 21"
    assert stage.call("/sim/pause", "std_srvs/srv/SetBool", data=False).message == "running"


def test_a_stepped_run_arrives_completely_at_a_reader_that_keeps_ten(
    stage: Stage, remote: Callable[..., Remote]
) -> None:
    stage.pause()
    topics = ("/clock", "/tf", "/drone/imu/data_raw")
    types = microsim.Simulation("default").topics
    reader = remote("reader")
    for topic in topics:
        reader.do("subscribe", topic=topic, type_name=types[topic][0], qos={"depth": 10})
    stage.call("/sim/step", SET_INT, data=1)
    wait_for(lambda: _stepped(stage) and all(reader.do("count", topic=topic) for topic in topics))
    before = {topic: reader.do("count", topic=topic) for topic in topics}
    for _ in range(10):
        assert stage.call("/sim/step", SET_INT, data=20).success
    wait_for(lambda: all(reader.do("count", topic=topic) >= before[topic] + 200 for topic in topics))
    assert {topic: reader.do("count", topic=topic) - before[topic] for topic in topics} == dict.fromkeys(topics, 200)


def _stepped(stage: Stage) -> bool:
    return bool(stage.call("/sim/step", SET_INT, data=1).success)


@pytest.mark.parametrize("resets", [200, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stage", [False], indirect=True, ids=["real process"])  # its memory is looked at
def test_many_resets_leave_no_leak_and_turn_time_back_only_then(stage: Stage, resets: int) -> None:
    stage.listen("/tf", "tf2_msgs/msg/TFMessage", Qos(100))
    stage.pause()
    memory = []
    for number in range(resets):
        stage.call("/sim/reset", "std_srvs/srv/Empty")
        stage.call("/sim/step", SET_INT, data=2)
        if number in (0.3 * resets, resets - 1):
            memory.append(_memory_mb(stage.process.pid))
    stage.wait("/tf", round(2.9 * resets))
    transforms = [wire.decode("tf2_msgs/msg/TFMessage", cdr).transforms[0] for cdr in stage.received["/tf"]]
    times = [each.header.stamp.sec * 10**9 + each.header.stamp.nanosec for each in transforms]
    assert all(later == 0 for earlier, later in itertools.pairwise(times) if later < earlier)
    assert memory[1] - memory[0] < 0.01 * resets, memory


def _memory_mb(process: int) -> float:
    with open(f"/proc/{process}/status") as status:  # noqa: PTH123
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def test_hostile_input_leaves_the_published_bytes_alone(namespace: str) -> None:
    """Garbage, NaN and a flood: counted, told of at most once a second, and the digest is that of a quiet run."""
    stage = Stage(namespace, "--digest")
    stage.pause()
    stage.call("/sim/reset", "std_srvs/srv/Empty")
    for raw in (b"\x00\x01\x00\x00" + bytes(20), b"\x00\x01\x00\x00" + bytes(4000), b"\x00\x01\x00\x00" + b"\xff" * 60):
        stage.send("/rover/cmd_vel", "geometry_msgs/msg/Twist", raw)
        stage.send("/rover/set_pose", "geometry_msgs/msg/PoseStamped", raw)
        stage.send("/radio/drone_tx", "std_msgs/msg/ByteMultiArray", raw, Qos(1, reliable=False))
    nan = wire.new("geometry_msgs/msg/Twist")
    nan.linear.x = float("nan")
    cdr = wire.encode("geometry_msgs/msg/Twist", nan)
    for _ in range(5000):
        stage.send("/drone/cmd_vel", "geometry_msgs/msg/Twist", cdr)
    for _ in range(10):
        assert stage.call("/sim/step", SET_INT, data=6).success
    printed = stage.end()
    sim = microsim.Simulation("default")
    sim.step(60)
    assert printed.split()[-1] == sim.digest()
    assert "commands with NaN or infinity" in printed


def test_two_domains_and_two_namespaces_do_not_disturb_each_other(namespace: str) -> None:
    left, right = Stage(f"{namespace}/left"), Stage(f"{namespace}/right")
    far = Stage(f"{namespace}/left", ROS_DOMAIN_ID=own_domain("another"))  # same names
    try:
        left.pause()
        right.pause()
        left.connect("rover")
        left.call("/sim/reset", "std_srvs/srv/Empty")
        right.call("/sim/reset", "std_srvs/srv/Empty")
        left.twist("rover", 2.0)
        for stage in (left, right):
            stage.call("/sim/step", SET_INT, data=60)
        speeds = {}
        for name, stage in (("left", left), ("right", right)):
            answer = stage.call("/get_entity_state", STATE, entity="rover")
            speeds[name] = answer.state.twist.linear.y
        assert speeds["left"] == pytest.approx(2.0, abs=0.01)
        assert speeds["right"] == 0.0
        assert far.process.poll() is None
    finally:
        for stage in (left, right, far):
            stage.end()
