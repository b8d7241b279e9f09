"""An arm64 node of the `dds` transport on loopback, seen and driven from this machine.

Run by check.sh as `node_check.py COMMAND...`: the emulated Python, `env -i NAME=VALUE... PROGRAM...`. The other side is
real rclpy on Fast DDS where it can be had, and always MicroSim's own transport on another version of Cyclone DDS.
Everything is awaited for as long as a starved process may need: beside other work the emulator gets what is left over.
"""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Callable
from math import isfinite
from typing import Any

import pytest

from microsim import messages as wire
from tests.interop import driver
from tests.interop.driver import CYCLONE_LOOPBACK, REPOSITORY, Host, Peer, RemoteError, encoded, rclpy_python
from tests.interop.test_node import Node
from tests.ros_domains import free_domain

LIMIT_S = 900.0
AGAIN_S = 20.0  # a request may be lost while peers get to know each other, and is then sent again
TWIST, ODOMETRY = "geometry_msgs/msg/Twist", "nav_msgs/msg/Odometry"
QOS = {"depth": 10}
SCENARIO = REPOSITORY / "examples" / "robot_localization" / "scenario.yaml"  # one rover without a camera
FORWARD = {"linear": {"x": 1.0}}

driver.START_S = driver.GRACE_S = LIMIT_S / 3


class Arm64Node(Node):
    """`microsim run` under the emulator, which has no multicast: so it looks for peers on this machine alone.

    Without the compiler it is quicker here, and a process there could not start another one that compiles.
    """

    def __init__(self, domain: int, guest: list[str]) -> None:
        uri = f"<CycloneDDS><Domain>{CYCLONE_LOOPBACK}</Domain></CycloneDDS>"
        own = {"ROS_DOMAIN_ID": domain, "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "CYCLONEDDS_URI": uri}
        variables = [f"{name}={value}" for name, value in {**own, "NUMBA_DISABLE_JIT": 1}.items()]
        super().__init__(domain, "dds", str(SCENARIO), python=[*guest[:2], *variables, *guest[2:]])

    def until(self, what: str, is_so: Callable[[], bool]) -> None:
        began = time.monotonic()
        while True:
            try:
                if is_so():
                    break
                problem = ""
            except RemoteError as error:
                problem = str(error)
            if self.process.poll() is not None or time.monotonic() - began > LIMIT_S:
                state = "is gone" if self.process.poll() is not None else f"runs, but not within {LIMIT_S:.0f} s"
                sys.exit(f"{what}: the arm64 node {state}. {problem}\n{self.printed()}")
        print(f"  {what} ({time.monotonic() - began:.0f} s)", flush=True)


def with_rclpy(node: Arm64Node, peer: Peer) -> None:
    def x() -> float:
        peer.collect(topic="/rover/odom", clear=True)
        peer.wait(topic="/rover/odom", count=1, timeout=AGAIN_S)
        return float(peer.collect(topic="/rover/odom", messages=True)["messages"][-1]["pose"]["pose"]["position"]["x"])

    def drives() -> bool:
        peer.publish(topic="/rover/cmd_vel", type=TWIST, message=FORWARD, acknowledged=False, timeout=AGAIN_S)
        return x() > start + 0.2

    def physics_hz() -> Any:
        return peer.get_parameters(node="/microsim", names=["physics_hz"], timeout=AGAIN_S)["values"]["physics_hz"]

    def resets() -> bool:
        peer.call(service="/sim/reset", type="std_srvs/srv/Empty", timeout=AGAIN_S)
        return abs(x() - start) < 0.1

    topics = {"publishers": ["/clock", "/rover/odom"], "subscriptions": ["/rover/cmd_vel"]}
    node.until(
        "rclpy finds the node, its topics and services",
        lambda: peer.wait_graph(nodes=["/microsim"], services=["/sim/reset"], **topics, timeout=AGAIN_S) == {},
    )
    peer.subscribe(topic="/rover/odom", type=ODOMETRY)
    node.until("rclpy receives odometry", lambda: isfinite(x()))
    start = x()
    node.until("commands of rclpy move the rover", drives)
    node.until("rclpy reads a parameter", lambda: physics_hz() == 60.0)
    node.until("rclpy resets the simulation by its service", resets)


def with_cyclone(node: Arm64Node, host: Host) -> None:
    received = 0

    def x() -> float:
        nonlocal received
        raw = host.wait(topic="/rover/odom", count=received + 1, timeout=AGAIN_S)["raw"]
        received = len(raw)
        return float(wire.decode(ODOMETRY, base64.b64decode(raw[-1])).pose.pose.position.x)

    def drives() -> bool:
        host.publish(topic="/rover/cmd_vel", raw=[twist], timeout=AGAIN_S)
        return x() > start + 0.2

    def pauses() -> bool:
        question = {"service": "/sim/pause", "type": "example_interfaces/srv/SetBool", "request": {"data": True}}
        return bool(host.call(**question, timeout=AGAIN_S)["response"]["success"])

    twist = encoded(wire.encode(TWIST, wire.new(TWIST, linear=wire.new("geometry_msgs/msg/Vector3", x=1.0))))
    host.advertise(topic="/rover/cmd_vel", type=TWIST, qos=QOS)
    host.subscribe(topic="/rover/odom", type=ODOMETRY, qos=QOS)
    node.until("dds on this machine receives odometry", lambda: isfinite(x()))
    start = x()
    node.until("its commands move the rover", drives)
    node.until("it pauses the simulation by its service", pauses)


def main(guest: list[str]) -> None:
    try:
        has_rclpy = bool(rclpy_python())
    except pytest.skip.Exception as reason:
        has_rclpy = False
        print(f"  {reason}: only MicroSim's own transport is tried")
    with free_domain() as domain, Arm64Node(domain, guest) as node:
        if has_rclpy:
            with Peer(domain) as peer:
                with_rclpy(node, peer)
        with Host(domain, "dds", node="driver") as host:
            with_cyclone(node, host)


if __name__ == "__main__":
    main(sys.argv[1:])
