"""The node `robot_simulator` over DDS, in a process of its own, with a navigator in this one."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from microsim import messages as wire
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport.dds import DdsTransport
from tests.forked_python import forked_python
from tests.integration.conftest import PATIENCE_S, ROOT, wait_for
from tests.navigation import check_navigation, navigate, write_wall, yaw_of

TWIST, TARGET = "geometry_msgs/msg/Twist", "geometry_msgs/msg/PoseStamped"
POSE, ODOM = "geometry_msgs/msg/PoseWithCovarianceStamped", "nav_msgs/msg/Odometry"
DIAGNOSTICS = "diagnostic_msgs/msg/DiagnosticArray"


def simulator(*arguments: str, transport: str = "dds") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*forked_python(), "-m", "microsim", "robot-simulator", "--transport", transport, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class DdsLink:
    """A navigator's node, in the simulator's namespace."""

    def __init__(self, namespace: str) -> None:
        self.node = DdsTransport("navigator", ["--ros-args", "-r", f"__ns:={namespace}"])
        self.newest: dict[str, Any] = {}
        self.count: dict[str, int] = {}
        for topic, type_name in (("/amcl_pose", POSE), ("/odom", ODOM), ("/diagnostics", DIAGNOSTICS)):
            self.node.subscribe(topic, type_name, Qos(10), self._keeper(topic, type_name), from_others=True)
        self._command, self._target = (
            self.node.publisher("/cmd_vel", TWIST, Qos(10)),
            self.node.publisher("/active_target", TARGET, Qos(10)),
        )
        self.external = self.node.publisher("/amcl_pose", POSE, Qos(10))

    def _keeper(self, topic: str, type_name: str) -> Any:
        def keep(cdr: bytes) -> None:
            self.newest[topic] = wire.decode(type_name, cdr)
            self.count[topic] = self.count.get(topic, 0) + 1

        return keep

    def listen(self) -> None:
        self.node.poll(0.02)

    @property
    def pose(self) -> tuple[float, float, float] | None:
        message = self.newest.get("/amcl_pose")
        if message is None:
            return None
        place = message.pose.pose
        return place.position.x, place.position.y, yaw_of(place.orientation)

    @property
    def speed(self) -> tuple[float, float] | None:
        message = self.newest.get("/odom")
        return None if message is None else (message.twist.twist.linear.x, message.twist.twist.angular.z)

    @property
    def status(self) -> dict[str, str]:
        message = self.newest.get("/diagnostics")
        return {} if message is None else {pair.key: pair.value for pair in message.status[0].values}

    def command(self, v: float, omega: float) -> None:
        values = {"linear": {"x": v}, "angular": {"z": omega}}
        self._command.publish(wire.encode(TWIST, wire.from_mapping(TWIST, values)))

    def target(self, x: float, y: float) -> None:
        self._target.publish(wire.encode(TARGET, wire.from_mapping(TARGET, place(x, y))))

    def localise(self, x: float, y: float) -> None:
        values = {"header": {"frame_id": "map"}, "pose": {"pose": place(x, y)["pose"]}}
        self.external.publish(wire.encode(POSE, wire.from_mapping(POSE, values)))


def place(x: float, y: float) -> dict[str, Any]:
    return {"header": {"frame_id": "map"}, "pose": {"position": {"x": x, "y": y}, "orientation": {"w": 1.0}}}


@pytest.fixture
def link(namespace: str) -> Iterator[DdsLink]:
    made = DdsLink(namespace)
    yield made
    made.node.close()


def ended(process: subprocess.Popen[str]) -> str:
    """What it said; it ends well on Ctrl-C."""
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    return str(errors)


def test_a_navigator_follows_a_route_sees_a_timeout_and_is_slowed_before_a_wall(link, namespace, tmp_path):
    process = simulator(
        *("--ros-args", "-r", f"__ns:={namespace}", "-p", f"map:={write_wall(tmp_path)}"),
        *("-p", "cycle_hz:=20.0", "-p", "timer_publish_odom_ms:=50"),
        *("-p", "publish_clock:=true", "-p", "speed_factor:=4.0"),
    )
    try:
        check_navigation(navigate(link, 3 * PATIENCE_S))
        assert link.status["external_poses"] == "0"  # never its own, though it hears its own topic
    finally:
        said = ended(process)
    assert said.count("TIMEOUT_STOP") == 1
    assert "[WARN]" in next(line for line in said.splitlines() if "TIMEOUT_STOP" in line)
    assert "[INFO]" in next(line for line in said.splitlines() if "the robot starts at" in line)


def test_others_poses_are_taken_and_its_own_are_not(link, namespace):
    process = simulator(
        *("--ros-args", "-r", f"__ns:={namespace}", "-p", "pose_noise_std_m:=0.3", "-p", "cycle_hz:=50.0"),
    )
    try:
        wait_for(lambda: link.pose is not None or link.target(0.0, 0.0), link.node.poll)
        seen = link.count["/amcl_pose"]
        wait_for(lambda: link.count["/amcl_pose"] >= seen + 50, link.node.poll)
        wait_for(lambda: link.status.get("state") == "ACTIVE", link.node.poll)
        assert abs(link.pose[0]) < 3.0  # six times its noise: nothing has added up
        assert link.status["external_poses"] == "0"
        wait_for(lambda: abs(link.pose[0] - 100.0) < 3.0 or link.localise(100.0, 0.0), link.node.poll)
        assert link.speed is not None
        assert link.newest["/odom"].pose.pose.position.x == 0.0
    finally:
        ended(process)


def test_the_digest_is_the_same_on_every_transport():
    arguments = ("--duration", "1", "--digest", "--ros-args", "-p", "publish_clock:=true", "-p", "speed_factor:=10.0")
    outputs = []
    for transport in ("dds", "memory"):
        out, errors = simulator(*arguments, transport=transport).communicate(timeout=PATIENCE_S)
        assert len(out.strip()) == 64, errors
        outputs.append(out)
    assert outputs[0] == outputs[1]
