"""A recorded run replayed on ROS 2: the bytes on the wire are those of the recording, and nobody can drive."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from microsim import messages as wire
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport.dds import DdsTransport
from tests.forked_python import forked_python
from tests.integration.conftest import PATIENCE_S, ROOT, wait_for
from tests.recording_support import record

TWIST = "geometry_msgs/msg/Twist"
ODOMETRY = "nav_msgs/msg/Odometry"


def test_a_replay_on_ros_2_sends_the_recorded_bytes_and_takes_no_commands(namespace: str, tmp_path: Path) -> None:
    sent = record(tmp_path / "bag", ticks=600)
    recorded = [message.cdr for message in sent if message.topic == "/rover/odom"]
    command = [*forked_python(), "-m", "microsim", "replay", str(tmp_path / "bag"), "--rtf", "2", "--transport", "dds"]
    arguments = ["--ros-args", "-r", f"__ns:={namespace}"]
    controller = DdsTransport("controller", arguments)
    heard: list[bytes] = []
    controller.subscribe("/rover/odom", ODOMETRY, Qos(1000), heard.append)
    stray = controller.publisher("/rover/cmd_vel", TWIST, Qos(10))
    message = wire.new(TWIST)
    message.linear.x = -2.0
    with subprocess.Popen(
        [*command, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(lambda: len(heard) >= 30, controller.poll)
        for _ in range(20):
            stray.publish(wire.encode(TWIST, message))
            controller.poll(0.01)
        said, complaints = process.communicate(timeout=PATIENCE_S)
    controller.poll(0.0)
    controller.close()
    assert process.returncode == 0, (said, complaints)  # it would be 1 if the digest were another
    assert stray.subscribers == 0
    start = recorded.index(heard[0])
    assert heard == recorded[start : start + len(heard)]
