"""`microsim sim-rover` over DDS, in a process of its own: driven, asked, changed and stopped by another node."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from microsim import messages as wire
from microsim.messages.topics import DEFAULT_QOS
from microsim.parts.ros2.transport.dds import DdsTransport
from tests.forked_python import forked_python
from tests.integration.conftest import PATIENCE_S, ROOT, wait_for

TWIST, POSE, JOINTS = "geometry_msgs/msg/Twist", "geometry_msgs/msg/Pose2D", "sensor_msgs/msg/JointState"
NODE = "/fake_rover_state_controller"


class Rover:
    def __init__(self, namespace: str, *parameters: str) -> None:
        self.namespace = ("--ros-args", "-r", f"__ns:={namespace}")
        arguments = [word for parameter in parameters for word in ("-p", parameter)]
        self.process = subprocess.Popen(
            [*forked_python(), "-m", "microsim", "sim-rover", "--transport", "dds", *self.namespace, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.peer = DdsTransport("driver", self.namespace)
        self.poses, self.joints = self.hear("/rover/pose2D", POSE), self.hear("/rover/joint_states", JOINTS)
        self._commands = self.peer.publisher("/rover/cmd_vel", TWIST, DEFAULT_QOS)

    def hear(self, topic: str, type_name: str) -> list[Any]:
        got: list[Any] = []
        self.peer.subscribe(topic, type_name, DEFAULT_QOS, lambda cdr: got.append(wire.decode(type_name, cdr)))
        return got

    def drive(self, v: float, omega: float) -> None:
        wait_for(lambda: self._commands.subscribers, self.peer.poll)
        message = wire.new(TWIST)
        message.linear.x, message.angular.z = v, omega
        self._commands.publish(wire.encode(TWIST, message))

    def call(self, service: str, kind: str, **request: Any) -> Any:
        return self.peer.call(f"{NODE}/{service}", f"rcl_interfaces/srv/{kind}", request, timeout_s=PATIENCE_S)

    def end(self) -> tuple[int, str]:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        self.peer.close()
        return self.process.returncode, errors


@pytest.fixture
def rover(namespace: str) -> Iterator[Rover]:
    made = Rover(namespace, "robot_id:=rover", "x:=1.0", "use_dynamics:=true")
    yield made
    if made.process.poll() is None:
        made.end()


def test_a_stranger_drives_the_rover_sees_it_coast_to_rest_and_ends_it(rover: Rover) -> None:
    wait_for(lambda: rover.poses and rover.joints, rover.peer.poll)
    assert rover.poses[0].x == 1.0

    def still_driving() -> bool:
        rover.drive(1.0, 0.0)
        return rover.poses[-1].x > 1.5

    wait_for(still_driving, rover.peer.poll)
    assert rover.joints[-1].velocity[0] > 0.0
    wait_for(lambda: abs(rover.joints[-1].velocity[0]) < 0.1, rover.peer.poll)  # timed out, and coasted
    assert rover.poses[-1].x == pytest.approx(1.0 + 0.068 * rover.joints[-1].position[0], abs=0.05)
    code, errors = rover.end()
    assert code == 0
    assert "Traceback" not in errors


def test_a_stranger_reads_and_sets_its_parameters(rover: Rover) -> None:
    found = rover.call("get_parameters", "GetParameters", names=["robot_id", "mass", "use_dynamics", "x"])
    robot_id, mass, use_dynamics, x = found.values
    assert (robot_id.string_value, mass.double_value, use_dynamics.bool_value, x.double_value) == (
        "rover",
        5.0,
        True,
        1.0,
    )
    names = rover.call("list_parameters", "ListParameters", prefixes=[], depth=0).result.names
    assert {"linear_drag", "angular_drag", "max_force", "max_torque", "inertia", "command_timeout"} <= set(names)
    value = wire.new("rcl_interfaces/msg/ParameterValue", type=1, bool_value=False)
    wanted = wire.new("rcl_interfaces/msg/Parameter", name="use_dynamics", value=value)
    assert rover.call("set_parameters", "SetParameters", parameters=[wanted]).results[0].successful

    def at_full_speed() -> bool:
        rover.drive(2.0, 0.0)
        return bool(rover.joints) and rover.joints[-1].velocity[0] == pytest.approx(2.0 / 0.068)

    wait_for(at_full_speed, rover.peer.poll)
