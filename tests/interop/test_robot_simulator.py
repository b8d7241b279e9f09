"""The node `robot_simulator` as a stranger on real rclpy sees it, on each transport: a navigator's whole scenario."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from typing import Any

import pytest

from tests.interop.driver import Peer, environment, interrupted, rclpy_python
from tests.navigation import check_navigation, navigate, write_wall
from tests.ros_domains import free_domain

TWIST, TARGET = "geometry_msgs/msg/Twist", "geometry_msgs/msg/PoseStamped"
POSE, ODOM = "geometry_msgs/msg/PoseWithCovarianceStamped", "nav_msgs/msg/Odometry"
DIAGNOSTICS = "diagnostic_msgs/msg/DiagnosticArray"
START_S = 60.0


class Node:
    """`microsim robot-simulator` in a process of its own."""

    def __init__(self, domain: int, transport: str, *ros_args: str) -> None:
        python = rclpy_python() if transport == "rclpy" else sys.executable
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self.process = subprocess.Popen(
            [python, "-m", "microsim", "robot-simulator", "--transport", transport, "--ros-args", *ros_args],
            env=environment(domain),
            stderr=self._errors,
        )

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        interrupted(self.process)

    def printed(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")


class RclpyLink:
    """A navigator on rclpy."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.newest: dict[str, Any] = {}
        for topic, type_name in (("/amcl_pose", POSE), ("/odom", ODOM), ("/diagnostics", DIAGNOSTICS)):
            peer.subscribe(topic=topic, type=type_name)
        for topic, type_name in (("/cmd_vel", TWIST), ("/active_target", TARGET)):
            peer.advertise(topic=topic, type=type_name)

    def listen(self) -> None:
        time.sleep(0.01)
        for topic in ("/amcl_pose", "/odom", "/diagnostics"):
            arrived = self.peer.collect(topic=topic, messages=True, clear=True)["messages"]
            if arrived:
                self.newest[topic] = arrived[-1]

    @property
    def pose(self) -> tuple[float, float, float] | None:
        if "/amcl_pose" not in self.newest:
            return None
        place = self.newest["/amcl_pose"]["pose"]["pose"]
        turn = place["orientation"]
        return place["position"]["x"], place["position"]["y"], 2.0 * math.atan2(turn["z"], turn["w"])

    @property
    def speed(self) -> tuple[float, float] | None:
        if "/odom" not in self.newest:
            return None
        twist = self.newest["/odom"]["twist"]["twist"]
        return twist["linear"]["x"], twist["angular"]["z"]

    @property
    def status(self) -> dict[str, str]:
        if "/diagnostics" not in self.newest:
            return {}
        return {pair["key"]: pair["value"] for pair in self.newest["/diagnostics"]["status"][0]["values"]}

    def command(self, v: float, omega: float) -> None:
        self._publish("/cmd_vel", TWIST, {"linear": {"x": v}, "angular": {"z": omega}})

    def target(self, x: float, y: float) -> None:
        self._publish("/active_target", TARGET, place(x, y))

    def localise(self, x: float, y: float) -> None:
        values = {"header": {"frame_id": "map"}, "pose": {"pose": place(x, y)["pose"]}}
        self._publish("/amcl_pose", POSE, values)

    def _publish(self, topic: str, type_name: str, message: dict[str, Any]) -> None:
        self.peer.publish(topic=topic, type=type_name, message=message, acknowledged=False)


def place(x: float, y: float) -> dict[str, Any]:
    return {"header": {"frame_id": "map"}, "pose": {"position": {"x": x, "y": y}, "orientation": {"w": 1.0}}}


@pytest.mark.parametrize("transport", ["dds", "rclpy"])
def test_a_navigator_on_rclpy_runs_the_whole_scenario(transport, tmp_path):
    arguments = ("-p", f"map:={write_wall(tmp_path)}", "-p", "cycle_hz:=20.0", "-p", "timer_publish_odom_ms:=50")
    arguments += ("-p", "publish_clock:=true", "-p", "speed_factor:=2.0")
    with free_domain() as domain, Peer(domain) as peer, Node(domain, transport, *arguments) as node:
        peer.wait_graph(nodes=["/robot_simulator"], publishers=["/odom"], timeout=START_S)
        link = RclpyLink(peer)
        try:
            check_navigation(navigate(link, 120.0))
        except Exception as error:
            raise AssertionError(f"{error}\n{node.printed()}") from error
        assert link.status["external_poses"] == "0"
        assert node.printed().count("TIMEOUT_STOP") == 1
        for topic in ("/amcl_pose", "/odom"):
            (endpoint,) = peer.publishers(topic=topic)["endpoints"]
            assert (endpoint["qos"]["reliable"], endpoint["qos"]["latched"]) == (True, False), topic
        for topic in ("/cmd_vel", "/active_target"):
            (endpoint,) = peer.subscriptions(topic=topic)["endpoints"]
            assert (endpoint["qos"]["reliable"], endpoint["qos"]["latched"]) == (True, False), topic


@pytest.mark.parametrize("transport", ["dds", "rclpy"])
def test_others_poses_are_taken_and_its_own_never(transport):
    """With noise its own echo would move it at every tick."""
    with free_domain() as domain, Peer(domain) as peer, Node(domain, transport, "-p", "pose_noise_std_m:=0.3") as node:
        peer.wait_graph(nodes=["/robot_simulator"], publishers=["/odom"], timeout=START_S)
        link = RclpyLink(peer)
        end = time.monotonic() + 60.0

        def until(done: Any, act: Any = lambda: None) -> None:
            while not done():
                assert time.monotonic() < end, node.printed()
                act()
                link.listen()

        until(lambda: link.pose is not None, lambda: link.target(0.0, 0.0))
        peer.wait(topic="/amcl_pose", count=30)
        until(lambda: link.status.get("timeouts") == "1")  # 2 s later: 20 echoes of its own
        assert link.status["external_poses"] == "0"
        assert abs(link.pose[0]) < 3.0
        until(lambda: abs(link.pose[0] - 100.0) < 3.0, lambda: link.localise(100.0, 0.0))


def test_parameters_of_the_document_answer_a_client_on_rclpy():
    with free_domain() as domain, Peer(domain) as peer, Node(domain, "rclpy", "-p", "max_linear_mps:=1.25"):
        peer.wait_graph(nodes=["/robot_simulator"], services=["/robot_simulator/get_parameters"], timeout=START_S)
        names = ["cycle_hz", "max_linear_mps", "publish_tf", "frame_base", "timer_publish_odom_ms"]
        values = peer.get_parameters(node="/robot_simulator", names=names)["values"]
        assert values == dict(zip(names, [10.0, 1.25, True, "base_link", 100], strict=True))
        changes = {"max_linear_mps": 0.5, "cycle_hz": 20.0}
        results = peer.set_parameters(node="/robot_simulator", values=changes)["results"]
        assert [each["successful"] for each in results] == [True, False]
