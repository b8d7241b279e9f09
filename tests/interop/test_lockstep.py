"""The controller of docs/lockstep.md, on real rclpy, closes the loop over both of our transports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.interop.driver import REPOSITORY, environment, rclpy_python

GATE = "after: /rover/range/front, expect: /rover/cmd_vel"
DAWDLING = """
import random, runpy, time, rclpy
from rclpy.node import Node
made = Node.create_subscription
def dawdling(self, kind, topic, callback, *rest, **more):
    def later(message):
        time.sleep({longest} * random.random())
        callback(message)
    return made(self, kind, topic, later, *rest, **more)
Node.create_subscription = dawdling
runpy.run_path("examples/lockstep/controller.py", run_name="__main__")
"""
SELDOM = """
import random, time, rclpy
from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from rclpy.node import Node
from sensor_msgs.msg import Range

class Planner(Node):
    def __init__(self):
        super().__init__("planner")
        self.count = self.ranges = 0
        self.commands = self.create_publisher(Twist, "/rover/cmd_vel", 10)
        self.create_subscription(Range, "/rover/range/front", self.on_range, 10)
        self.create_subscription(Odometry, "/rover/odom", self.on_odometry, 10)

    def on_range(self, message):
        time.sleep({longest} * random.random())
        self.ranges += 1

    def on_odometry(self, message):
        time.sleep({longest} * random.random())
        self.count += 1
        if self.count % 3 == 1:
            command = Twist()
            command.linear.x = 0.01 * self.ranges + 0.001 * self.count
            self.commands.publish(command)

rclpy.init()
rclpy.spin(Planner())
"""


@contextmanager
def controller(domain: int, longest_s: float, script: str = DAWDLING) -> Iterator[None]:
    command = [rclpy_python(), "-c", script.format(longest=longest_s)]
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment(domain)) as process:
        try:
            yield
        finally:
            process.kill()


def run(domain: int, transport: str, *more: str) -> str:
    python = rclpy_python() if transport == "rclpy" else sys.executable
    fixed = ["--duration", "1", "--json", "--quiet", "--transport", transport, "--robots", "rover"]
    fast = ["--ros-args", "-p", "rover.max_v:=20.0"]  # no command is clamped: each shows in the digest
    command = [python, "-m", "microsim", "run", "flat", *fixed, *more, *fast]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment(domain), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["digest"])


@pytest.mark.parametrize("transport", ["dds", "rclpy"])
def test_a_real_rclpy_controller_gives_one_digest_whatever_its_delays(domain: int, transport: str) -> None:
    digests = set()
    for longest_s, rtf in ((0.0, ()), (0.05, ()), (0.05, ("--rtf", "1"))):
        with controller(domain, longest_s):
            digests.add(run(domain, transport, "--lockstep", GATE, *rtf))
    assert len(digests) == 1


@pytest.mark.parametrize("transport", ["dds", "rclpy"])
def test_a_real_node_that_replies_only_sometimes_gives_one_digest_when_it_settles(domain: int, transport: str) -> None:
    gate, digests = ("--lockstep", "settle: {node: /planner}"), set()
    for longest_s, rtf in ((0.0, ("--rtf", "1")), (0.04, ())):
        with controller(domain, longest_s, SELDOM):
            digests.add(run(domain, transport, *gate, *rtf))
    assert len(digests) == 1


def test_without_settling_the_same_node_gives_several_digests(domain: int) -> None:
    digests = set()
    for longest_s in (0.02, 0.1):
        with controller(domain, longest_s, SELDOM):
            digests.add(run(domain, "dds", "--rtf", "1"))
    assert len(digests) > 1
