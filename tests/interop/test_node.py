"""The node `microsim` as a stranger on real rclpy sees it, on each transport."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

import microsim
from microsim import messages as wire
from microsim.messages.topics import TOPICS, Qos
from tests.interop.driver import Peer, RemoteError, environment, has_built_interfaces, interrupted, rclpy_python
from tests.ros_domains import free_domain
from tests.support import STEPPED_MISSION, STEPPED_TICKS, stepped_mission_in_memory

TRANSPORTS = ("dds", "rclpy")


class Node:
    """`microsim run`, or another command, in a process of its own."""

    def __init__(
        self,
        domain: int,
        transport: str,
        *arguments: str,
        command: tuple[str, ...] = ("run", "--headless"),
        python: Sequence[str] = (),
    ) -> None:
        python = python or (rclpy_python() if transport == "rclpy" else sys.executable,)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self.process = subprocess.Popen(
            [*python, "-m", "microsim", *command, "--transport", transport, *arguments],
            env=environment(domain, built_interfaces=transport == "rclpy"),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> int:
        return interrupted(self.process)

    def printed(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")


def _ready(peer: Peer, node: Node, topics: list[str]) -> None:
    try:
        peer.wait_graph(nodes=["/microsim"], publishers=topics, timeout=60.0)
    except Exception as error:
        raise AssertionError(f"{error}\n{node.printed()}") from error


def _default_topics() -> dict[str, tuple[str, Qos]]:
    return {
        **microsim.Simulation("default").topics,
        "/diagnostics": (TOPICS["diagnostics"].type, TOPICS["diagnostics"].qos),
    }


@pytest.fixture(scope="module", params=TRANSPORTS)
def stage(request: pytest.FixtureRequest) -> Iterator[tuple[Node, Peer]]:
    """A default run at real time and a stranger beside it."""
    if request.param == "rclpy" and not has_built_interfaces():
        pytest.skip("the interfaces that PyPI lacks could not be built here")
    with free_domain() as domain, Peer(domain) as peer, Node(domain, request.param) as node:
        _ready(peer, node, ["/clock", "/tf", "/drone/odom"])
        yield node, peer


def test_every_topic_has_its_type_and_quality_in_the_graph(stage: tuple[Node, Peer]) -> None:
    node, peer = stage
    topics = _default_topics()
    _ready(peer, node, list(topics))
    of_node = peer.node_graph(node="/microsim")["publishers"]
    for topic, (type_name, qos) in topics.items():
        assert of_node[topic] == [type_name]
        (endpoint,) = peer.publishers(topic=topic)["endpoints"]
        assert endpoint["type"] == type_name, topic
        assert endpoint["qos"]["reliable"] == qos.reliable, topic
        assert endpoint["qos"]["latched"] == qos.latched, topic
    for kind in ("cmd_vel", "set_pose", "radio_tx"):
        for robot in ("drone", "rover"):
            topic = TOPICS[kind].of(robot)
            (endpoint,) = peer.subscriptions(topic=topic)["endpoints"]
            assert (endpoint["type"], endpoint["qos"]["reliable"]) == (TOPICS[kind].type, TOPICS[kind].qos.reliable), (
                topic
            )


def test_the_node_is_one_and_has_its_services(stage: tuple[Node, Peer]) -> None:
    _, peer = stage
    assert [name for name in peer.graph()["nodes"] if name == "/microsim"] == ["/microsim"]
    services = peer.node_graph(node="/microsim")["services"]
    expected = ["/sim/reset", "/sim/set_seed", "/sim/pause", "/sim/step", "/microsim/list_parameters", "/get_entities"]
    assert set(expected) <= set(services)
    assert services["/sim/reset"] == ["std_srvs/srv/Empty"]


def test_a_command_over_ros_moves_the_rover(stage: tuple[Node, Peer]) -> None:
    _, peer = stage
    peer.subscribe(topic="/rover/odom", type="nav_msgs/msg/Odometry")
    peer.advertise(topic="/rover/cmd_vel", type="geometry_msgs/msg/Twist")
    peer.wait_graph(subscriptions=["/rover/cmd_vel"], timeout=30.0)
    peer.publish(topic="/rover/cmd_vel", type="geometry_msgs/msg/Twist", message={"linear": {"x": 1.0}}, subscribers=1)
    end = time.monotonic() + 20.0
    while time.monotonic() < end:
        odometry = peer.collect(topic="/rover/odom", messages=True, clear=True)["messages"]
        if any(message["twist"]["twist"]["linear"]["x"] > 0.9 for message in odometry):
            return
        peer.wait(topic="/rover/odom", count=1)
    raise AssertionError("the rover did not reach its speed")


def test_garbage_on_a_command_topic_is_survived(stage: tuple[Node, Peer]) -> None:
    node, peer = stage
    peer.subscribe(topic="/clock", type="rosgraph_msgs/msg/Clock")
    for raw in (b"", b"\x00\x01\x00\x00", b"\xff" * 60, b"\x00\x01\x00\x00" + bytes(20)):
        with contextlib.suppress(RemoteError):  # what its own middleware refuses
            peer.publish(topic="/drone/cmd_vel", type="geometry_msgs/msg/Twist", raw=base64.b64encode(raw).decode())
    peer.publish(
        topic="/drone/cmd_vel",
        type="geometry_msgs/msg/Twist",
        message={"linear": {"x": math.nan}},
        acknowledged=False,  # the middleware may keep the garbage back for ever
    )
    peer.wait(topic="/clock", count=120)
    assert node.process.poll() is None, node.printed()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_rates_are_within_five_percent_and_nothing_is_lost_at_ten_times_real_time(transport: str) -> None:
    """By stamps, over thirty seconds, for the camera over sixty. The subscriber has a long queue, as recorders have."""
    if transport == "rclpy" and not has_built_interfaces():
        pytest.skip("the interfaces that PyPI lacks could not be built here")
    sim = microsim.Simulation("default")
    rates = {"/drone/odom": 30, "/rover/odom": 30, "/drone/gps/fix": 5, "/rover/gps/fix": 5, "/rover/range/front": 10}
    rates |= {"/tf": 60, "/drone/camera/image_raw": 2, "/drone/imu/data_raw": 60}
    with free_domain() as domain, Peer(domain) as peer, Node(domain, transport, "--rtf", "10") as node:
        for topic in rates:
            type_name, qos = sim.topics[topic]
            peer.subscribe(topic=topic, type=type_name, qos={"depth": 5000, "reliable": qos.reliable})
        _ready(peer, node, list(rates))
        peer.wait(topic="/rover/gps/fix", count=330, timeout=60.0)
        stamps = {topic: peer.collect(topic=topic, stamps=True)["stamps_ns"] for topic in rates}
    for topic, rate in rates.items():
        window = 60.0 if "camera" in topic else 30.0
        first = stamps[topic][0]
        count = sum(1 for stamp in stamps[topic] if stamp < first + window * 1e9)
        assert count == pytest.approx(rate * window, rel=0.05), topic
    for topic in ("/tf", "/drone/imu/data_raw"):  # of every tick
        ticks = [round(stamp * 60e-9) for stamp in stamps[topic]]
        assert ticks == list(range(ticks[0], ticks[0] + len(ticks))), topic


@pytest.mark.parametrize("transport", ["rclpy"])
def test_services_and_parameters_answer_every_client(transport: str) -> None:
    if not has_built_interfaces():
        pytest.skip("the interfaces that PyPI lacks could not be built here")
    with free_domain() as domain, Peer(domain) as peer, Node(domain, transport) as node:
        _ready(peer, node, ["/clock"])
        answer = peer.call(service="/sim/pause", type="example_interfaces/srv/SetBool", request={"data": True})
        assert answer["response"]["success"]
        values = peer.get_parameters(node="/microsim", names=["drone.max_vx", "physics_hz", "drone.camera.hz"])[
            "values"
        ]
        assert values == {"drone.max_vx": 5.0, "physics_hz": 60.0, "drone.camera.hz": 2.0}
        results = peer.set_parameters(node="/microsim", values={"drone.max_vx": 2.5, "rover.max_v": -1.0})["results"]
        assert [each["successful"] for each in results] == [True, False]
        assert results[1]["reason"]
        described = peer.describe_parameters(node="/microsim", names=["drone.max_vx"])["descriptors"]["drone.max_vx"]
        assert "forward" in described["description"]
        state = peer.call(service="/get_simulation_state", type="simulation_interfaces/srv/GetSimulationState")
        assert state["response"]["state"]["state"] == 2
        both = peer.call(service="/get_entities_states", type="simulation_interfaces/srv/GetEntitiesStates")["response"]
        assert both["entities"][:2] == ["drone", "rover"]
        assert both["states"][0]["pose"]["position"]["z"] > 1.0
        steps = {
            "action": "/simulate_steps",
            "type": "simulation_interfaces/action/SimulateSteps",
            "goal": {"steps": 50},
        }
        outcome = peer.act(**steps)
        assert (outcome["accepted"], outcome["status"]) == (True, 4)
        steps_done = [each["completed_steps"] for each in outcome["feedback"]]
        assert steps_done == sorted(set(steps_done))
        assert all(sum(each.values()) == 50 for each in outcome["feedback"])
        assert steps_done[-1] >= 40  # rclpy drops what arrives after the status of a goal that is done
        peer.call(service="/sim/reset", type="std_srvs/srv/Empty")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_conformance_suite_passes(transport: str) -> None:
    if not has_built_interfaces():
        pytest.skip("the interfaces that PyPI lacks could not be built here")
    with free_domain() as domain, Peer(domain) as peer, Node(domain, transport, "flat") as node:
        _ready(peer, node, ["/clock"])
        command = [sys.executable, "-m", "microsim", "conformance", "--json", "--node", "/microsim"]
        done = subprocess.run(
            command, env=environment(domain), capture_output=True, text=True, timeout=120, check=False
        )
        report = json.loads(done.stdout)
        assert [each for each in report["outcomes"] if each["status"] == "failed"] == [], node.printed()
        assert report["passed"] > 60


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_stock_ros_2_can_step_and_reads_every_message_with_a_depth_of_ten(transport: str) -> None:
    """With our own interface package, and with types that every installation has."""
    if not has_built_interfaces():
        pytest.skip("the interfaces that PyPI lacks could not be built here")
    topics = microsim.Simulation("default").topics
    watched = ("/clock", "/tf", "/drone/imu/data_raw")
    with free_domain() as domain, Peer(domain) as peer, Node(domain, transport) as node:
        _ready(peer, node, ["/clock"])
        peer.call(service="/sim/pause", type="example_interfaces/srv/SetBool", request={"data": True})
        for topic in watched:
            peer.subscribe(topic=topic, type=topics[topic][0], qos={"depth": 10})
        step = {"service": "/sim/step", "type": "microsim_interfaces/srv/SetInt32"}
        while not all(peer.collect(topic=topic)["count"] for topic in watched):
            assert peer.call(**step, request={"data": 1})["response"]["success"]
        once = peer.call(service="/sim/step_once", type="std_srvs/srv/Trigger")["response"]
        assert once["success"], once
        tick = int(once["message"].removeprefix("now at tick "))
        for topic in watched:
            _wait_for_stamp(peer, topic, tick / 60)
            peer.collect(topic=topic, clear=True)
        for _ in range(10):
            assert peer.call(**step, request={"data": 20})["response"]["success"]
        for topic in watched:
            _wait_for_stamp(peer, topic, (tick + 200) / 60)
        counts = {topic: peer.collect(topic=topic)["count"] for topic in watched}
    assert counts == dict.fromkeys(watched, 200)


def _wait_for_stamp(peer: Peer, topic: str, time_s: float) -> None:
    """Until the message of this time has arrived; what comes later was sent later."""
    end = time.monotonic() + 20.0
    while not any(abs(stamp / 1e9 - time_s) < 1e-3 for stamp in peer.collect(topic=topic, stamps=True)["stamps_ns"]):
        assert time.monotonic() < end, f"no message of {time_s:.3f} s on {topic}"
        peer.wait(topic=topic, count=1)


def test_the_bytes_of_a_stepped_mission_are_the_same_over_rclpy() -> None:
    """The same as in memory: ten seconds, every default topic but those that depend on the wall clock."""
    if not has_built_interfaces():
        pytest.skip("the interfaces that PyPI lacks could not be built here")
    expected = stepped_mission_in_memory()
    topics = microsim.Simulation("default").topics
    with free_domain() as domain, Peer(domain) as peer, Node(domain, "rclpy") as node:
        _ready(peer, node, list(topics))
        peer.call(service="/sim/pause", type="example_interfaces/srv/SetBool", request={"data": True})
        for topic, (type_name, qos) in topics.items():
            quality = {"depth": 1000, "reliable": qos.reliable, "latched": qos.latched}
            peer.subscribe(topic=topic, type=type_name, qos=quality)
        peer.wait_graph(subscriptions=list(topics), timeout=30.0)
        for topic in topics:
            if topics[topic][1].latched:
                peer.wait(topic=topic, count=1)  # of the run so far
            peer.collect(topic=topic, clear=True)
        peer.call(service="/sim/reset", type="std_srvs/srv/Empty")
        done = 0
        for when, robot, speed in (*STEPPED_MISSION, (STEPPED_TICKS, "", 0.0)):
            for _ in range((when - done) // 5):
                peer.call(service="/sim/step", type="microsim_interfaces/srv/SetInt32", request={"data": 5})
            done = when
            if robot:
                peer.publish(
                    topic=f"/{robot}/cmd_vel",
                    type="geometry_msgs/msg/Twist",
                    message={"linear": {"x": speed}},
                    subscribers=1,
                )
        for topic, messages in expected.items():
            peer.wait(topic=topic, count=messages.total(), timeout=30.0)
            raw = peer.collect(topic=topic, raw=True)["raw"]
            got = Counter(base64.b64decode(each) for each in raw)
            assert got == messages, topic


def test_commands_encoded_by_rclpy_are_read_bit_for_bit(peer_only: Peer) -> None:
    values = {"linear": {"x": 0.1, "y": -2.5, "z": 1e-300}, "angular": {"z": math.pi}}
    raw = base64.b64decode(peer_only.encode(type="geometry_msgs/msg/Twist", message=values)["raw"])
    twist = wire.decode_checked("geometry_msgs/msg/Twist", raw)
    assert (twist.linear.x, twist.linear.y, twist.linear.z, twist.angular.z) == (0.1, -2.5, 1e-300, math.pi)
