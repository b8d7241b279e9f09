"""The controller of docs/do/lockstep.md, on real rclpy, closes the loop over both of our transports."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.driver import REPOSITORY, environment, rclpy_python
from tests.ros_domains import free_domain

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


FIVE = """
import os, random, time, rclpy
from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from rclpy.executors import MultiThreadedExecutor, SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import Imu, LaserScan, NavSatFix, Range

KINDS = {{
    "odom": (Odometry, "odom"), "imu": (Imu, "imu/data_raw"), "range": (Range, "range/front"),
    "gps": (NavSatFix, "gps/fix"), "scan": (LaserScan, "scan"),
}}

class Five(Node):
    # its commands show the order in which it handled everything
    def __init__(self):
        super().__init__("five")
        self.state, self.count = 0.0, 0
        self.commands = self.create_publisher(Twist, "/rover/cmd_vel", 10)
        for name in "{order}".split():
            kind, topic = KINDS[name]
            self.create_subscription(kind, f"/rover/{{topic}}", lambda m, name=name: self.take_one(name, m), 10)

    def take_one(self, name, message):
        time.sleep({longest} * random.random())
        stamp = message.header.stamp
        if stamp.sec == stamp.nanosec == 0 and name == "odom":
            self.state = 0.0  # another run
        self.count += 1
        if self.count == {dies_at}:
            os._exit(1)  # without a word to others
        self.state = (0.7 * self.state + 0.1 * list(KINDS).index(name)) % 1.0
        if name == "range":
            command = Twist()
            command.linear.x = 0.2 + self.state
            self.commands.publish(command)

rclpy.init()
executor = {executor}()
executor.add_node(Five())
executor.spin()
"""
CONNECTED = """
import os, random, time
import microsim

KINDS = {{
    "odom": ("nav_msgs/msg/Odometry", "odom"), "imu": ("sensor_msgs/msg/Imu", "imu/data_raw"),
    "range": ("sensor_msgs/msg/Range", "range/front"), "gps": ("sensor_msgs/msg/NavSatFix", "gps/fix"),
    "scan": ("sensor_msgs/msg/LaserScan", "scan"),
}}
node = microsim.connect("five")
commands = node.publisher("/rover/cmd_vel", "geometry_msgs/msg/Twist")
state, count = 0.0, 0

def take_one(name, stamp):
    global state, count
    time.sleep({longest} * random.random())
    if stamp.sec == stamp.nanosec == 0 and name == "odom":
        state = 0.0  # another run
    count += 1
    if count == {dies_at}:
        os._exit(1)  # without a word to others
    state = (0.7 * state + 0.1 * list(KINDS).index(name)) % 1.0
    if name == "range":
        commands.publish({{"linear": {{"x": 0.2 + state}}}})

for name in "{order}".split():
    kind, topic = KINDS[name]
    node.subscribe(f"/rover/{{topic}}", lambda m, name=name: take_one(name, m.header.stamp), type=kind)
while True:
    time.sleep(1.0)
"""
FALTERING = """
import os, rclpy
from geometry_msgs.msg import Twist
from rclpy.node import Node
from sensor_msgs.msg import Range

class Faltering(Node):
    # silent at its fifth message, or dead from there on
    def __init__(self):
        super().__init__("faltering")
        self.count = 0
        self.commands = self.create_publisher(Twist, "/rover/cmd_vel", 10)
        self.create_subscription(Range, "/rover/range/front", self.on_range, 10)

    def on_range(self, message):
        self.count += 1
        if self.count == 5:
            {falters}
        command = Twist()
        command.linear.x = 0.01 * self.count
        self.commands.publish(command)

rclpy.init()
rclpy.spin(Faltering())
"""
CONNECTED_FALTERING = """
import os, time
import microsim

node = microsim.connect("faltering")
commands = node.publisher("/rover/cmd_vel", "geometry_msgs/msg/Twist")
count = 0

def on_range(message):
    global count
    count += 1
    if count == 5:
        {falters}
    commands.publish({{"linear": {{"x": 0.01 * count}}}})

node.subscribe("/rover/range/front", on_range, type="sensor_msgs/msg/Range")
while True:
    time.sleep(1.0)
"""
ORDERS = ("scan gps range imu odom", "range odom imu gps scan", "odom imu scan gps range")
FAST = ["--ros-args", "-p", "rover.max_v:=20.0"]  # no command is clamped: each shows in the digest
FIVE_TOPICS = {
    "physics_hz": 60,
    "world_topics": {"occupancy_hz": 0, "markers_hz": 0},
    "robots": {"rover": {"max_v": 20.0, "gps": {}, "scan": {}}},
}


@contextmanager
def node(domain: int, script: str, python: str = "", **values: object) -> Iterator[subprocess.Popen[bytes]]:
    """`python`: without rclpy, to be run by that one."""
    command = [python or rclpy_python(), "-c", script.format(**values)]
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment(domain)) as process:
        try:
            yield process
        finally:
            process.kill()


def five(domain: int, kind: str, **values: object) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """`kind`: rclpy, on Fast DDS, or connect, on Cyclone DDS."""
    usual: dict[str, Any] = {"order": ORDERS[0], "longest": 0.0, "dies_at": 0, "executor": "SingleThreadedExecutor"}
    script, python = _script(kind, FIVE, CONNECTED)
    return node(domain, script, python, **{**usual, **values})


def _script(kind: str, rclpy: str, connect: str) -> tuple[str, str]:
    return (rclpy, "") if kind == "rclpy" else (connect, sys.executable)


def controller(domain: int, longest_s: float, script: str = DAWDLING) -> AbstractContextManager[object]:
    return node(domain, script, longest=longest_s)


def run(domain: int, transport: str, *more: str, scenario: Path | None = None) -> str:
    python = rclpy_python() if transport == "rclpy" else sys.executable
    fixed = ["--duration", "1", "--json", "--quiet", "--transport", transport]
    fixed += ["--robots", "rover"] if scenario is None else []
    command = [python, "-m", "microsim", "run", str(scenario or "flat"), *fixed, *more, *FAST]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment(domain), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["digest"])


@pytest.fixture(scope="module")
def five_topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scenario") / "five.yaml"
    path.write_text(json.dumps(FIVE_TOPICS))
    return path


@pytest.fixture(scope="module")
def digest_of_five(five_topics: Path) -> str:
    """Of every run with the node that reads five topics."""
    with free_domain() as domain, five(domain, "rclpy"):
        return run(domain, "dds", "--lockstep", GATE, scenario=five_topics)


@pytest.mark.parametrize("executor", ["SingleThreadedExecutor", "MultiThreadedExecutor"])
@pytest.mark.parametrize("transport", ["dds", "rclpy"])
def test_a_node_that_reads_five_topics_gives_one_digest_whatever_the_order_of_its_subscriptions(
    domain: int, transport: str, executor: str, five_topics: Path, digest_of_five: str
) -> None:
    for order in ORDERS if executor.startswith("Single") else ORDERS[:2]:
        with five(domain, "rclpy", order=order, executor=executor, longest=0.005):
            assert run(domain, transport, "--lockstep", GATE, scenario=five_topics) == digest_of_five


@pytest.mark.parametrize("transport", ["dds", "rclpy"])
def test_a_node_of_connect_gives_the_digest_of_one_of_rclpy(
    domain: int, transport: str, five_topics: Path, digest_of_five: str
) -> None:
    """Fast DDS 3 does not know to which node an endpoint on Cyclone DDS belongs: it must be found out."""
    for order in ORDERS[:2]:
        with five(domain, "connect", order=order, longest=0.005):
            assert run(domain, transport, "--lockstep", GATE, scenario=five_topics) == digest_of_five


@pytest.mark.parametrize("kind", ["rclpy", "connect"])
@pytest.mark.parametrize("transport", ["dds", "rclpy"])
def test_a_run_waits_for_a_node_that_is_late_and_one_in_place_of_one_that_died_which_outlives_it(
    domain: int, transport: str, kind: str, five_topics: Path, digest_of_five: str, tmp_path: Path
) -> None:
    python = rclpy_python() if transport == "rclpy" else sys.executable
    record = ["--record", str(tmp_path / "bag")]
    options = ["--duration", "1", "--json", "--transport", transport, "--lockstep", GATE, *record, *FAST]
    with subprocess.Popen(
        [python, "-m", "microsim", "run", str(five_topics), *options],
        cwd=REPOSITORY, env=environment(domain), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as simulator:  # fmt: skip
        assert simulator.stderr is not None
        next(line for line in simulator.stderr if "the run has not begun" in line)
        with five(domain, kind, dies_at=40) as first:
            first.wait(120.0)
        with five(domain, kind):
            output, _ = simulator.communicate(timeout=240.0)
            assert json.loads(output)["ticks"] == 60
            known = [not row["not_known"] for row in csv.DictReader((tmp_path / "bag" / "lockstep.csv").open())]
            assert known == sorted(known, reverse=True), "from the new node on it is not known what it had received"
            assert known[0]
            assert not known[-1]
            assert run(domain, transport, "--lockstep", GATE, scenario=five_topics) == digest_of_five


@pytest.mark.parametrize("transport", ["dds", "rclpy"])
def test_a_real_rclpy_controller_gives_one_digest_whatever_its_delays(domain: int, transport: str) -> None:
    digests = set()
    for longest_s, rtf in ((0.0, ()), (0.05, ("--rtf", "1"))):
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


@pytest.mark.parametrize("kind", ["rclpy", "connect"])
@pytest.mark.parametrize("transport", ["dds", "rclpy"])
def test_a_node_that_is_silent_once_loses_one_reply_and_no_more(
    domain: int, transport: str, kind: str, tmp_path: Path
) -> None:
    gate = f"{GATE}, within: 2, on_stall: continue"
    with node(domain, *_script(kind, FALTERING, CONNECTED_FALTERING), falters="return"):
        run(domain, transport, "--lockstep", gate, "--record", str(tmp_path / "bag"))
    rows = list(csv.DictReader((tmp_path / "bag" / "lockstep.csv").open()))
    assert {row["nodes"] for row in rows} == {"/faltering"}
    assert [int(row["time_ns"]) // 10**8 for row in rows] == [0, 1, 2, 3, 5, 6, 7, 8, 9]  # not known after the fifth
    assert [bool(row["not_known"]) for row in rows] == [False] * 4 + [True] * 5


@pytest.mark.parametrize("kind", ["rclpy", "connect"])
@pytest.mark.parametrize("transport", ["dds", "rclpy"])
def test_a_node_that_dies_ends_a_run_that_may_not_wait(domain: int, transport: str, kind: str) -> None:
    python = rclpy_python() if transport == "rclpy" else sys.executable
    fixed = ["run", "flat", "--duration", "1", "--robots", "rover", "--transport", transport]
    command = [python, "-m", "microsim", *fixed, "--lockstep", f"{GATE}, within: 2"]
    with node(domain, *_script(kind, FALTERING, CONNECTED_FALTERING), falters="os._exit(1)"):
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment(domain), capture_output=True, text=True, timeout=240, check=False
        )
    assert done.returncode == 1
    assert "lockstep: waiting for /rover/cmd_vel after /rover/range/front" in done.stderr
    assert "which was sent /rover/range/front at 0.400 s" in done.stderr


@pytest.mark.parametrize("transport", ["dds", "rclpy"])
def test_a_bag_played_into_a_real_node_gives_one_digest(
    domain: int, transport: str, five_topics: Path, tmp_path: Path
) -> None:
    bag, digests = tmp_path / "bag", set()
    recorded = ["run", str(five_topics), "--duration", "1", "--rtf", "0", "--quiet", "--record", str(bag)]
    subprocess.run([sys.executable, "-m", "microsim", *recorded], cwd=REPOSITORY, check=True, timeout=240)
    for order in ORDERS:
        with five(domain, "rclpy", order=order, longest=0.003):
            played = ["replay", str(bag), "--json", "--transport", transport, "--lockstep", GATE]
            python = rclpy_python() if transport == "rclpy" else sys.executable
            done = subprocess.run(
                [python, "-m", "microsim", *played], cwd=REPOSITORY, env=environment(domain), capture_output=True,
                text=True, timeout=240, check=False,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["replies"] == 11
        digests.add(found["digest"])
    assert len(digests) == 1
