"""The node fake_rover_state_controller as a stranger on real rclpy sees it, on each transport."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.driver import Peer
from tests.interop.test_node import Node
from tests.ros_domains import free_domain

NODE = "/fake_rover_state_controller"
TWIST, POSE, JOINTS = "geometry_msgs/msg/Twist", "geometry_msgs/msg/Pose2D", "sensor_msgs/msg/JointState"
TOPICS = {"/rover/pose2D": POSE, "/rover/joint_states": JOINTS}


@pytest.fixture(scope="module", params=["dds", "rclpy"])
def stage(request: pytest.FixtureRequest) -> Iterator[tuple[Node, Peer]]:
    arguments = ("--ros-args", "-p", "robot_id:=rover", "-p", "x:=1.5", "-p", "direct_joy_control:=true")
    with (
        free_domain() as domain,
        Peer(domain) as peer,
        Node(domain, request.param, *arguments, command=("sim-rover",)) as node,
    ):
        try:
            peer.wait_graph(nodes=[NODE], publishers=list(TOPICS), timeout=60.0)
        except Exception as error:
            raise AssertionError(f"{error}\n{node.printed()}") from error
        for topic, kind in TOPICS.items():
            peer.subscribe(topic=topic, type=kind)
        yield node, peer


def last(peer: Peer, topic: str) -> dict[str, Any]:
    peer.collect(topic=topic, clear=True)
    peer.wait(topic=topic, count=1)
    message: dict[str, Any] = peer.collect(topic=topic, messages=True)["messages"][-1]
    return message


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end, "it never happened"


def drive(peer: Peer, topic: str, v: float) -> None:
    peer.publish(topic=topic, type=TWIST, message={"linear": {"x": v}})


def test_the_graph_shows_its_topics(stage: tuple[Node, Peer]) -> None:
    _, peer = stage
    of_node = peer.node_graph(node=NODE, having=list(TOPICS))
    assert {topic: of_node["publishers"][topic] for topic in TOPICS} == {
        topic: [kind] for topic, kind in TOPICS.items()
    }
    for topic in ("/rover/cmd_vel", "/joy/cmd_vel"):
        (endpoint,) = peer.subscriptions(topic=topic)["endpoints"]
        assert endpoint["type"] == TWIST


def test_its_parameters_are_read_described_and_set(stage: tuple[Node, Peer]) -> None:
    _, peer = stage
    values = peer.get_parameters(node=NODE, names=["robot_id", "x", "use_dynamics", "mass", "max_torque"])["values"]
    assert values == {"robot_id": "rover", "x": 1.5, "use_dynamics": True, "mass": 5.0, "max_torque": 5.0}
    for value, is_taken in ((8.0, True), (-1.0, False), (5.0, True)):
        (result,) = peer.set_parameters(node=NODE, values={"mass": value})["results"]
        assert result["successful"] == is_taken, result
    (result,) = peer.set_parameters(node=NODE, values={"x": 9.0})["results"]
    assert not result["successful"]


def test_a_command_moves_it_and_when_none_follows_it_coasts_to_rest(stage: tuple[Node, Peer]) -> None:
    node, peer = stage
    start = last(peer, "/rover/pose2D")["x"]

    def is_under_way() -> bool:
        drive(peer, "/rover/cmd_vel", 1.0)
        return bool(last(peer, "/rover/pose2D")["x"] > start + 0.3)

    wait_for(is_under_way)
    joints = last(peer, "/rover/joint_states")
    assert joints["name"][0] == "base_to_front_left_wheel"
    assert len(joints["position"]) == len(joints["velocity"]) == 4
    wait_for(lambda: abs(last(peer, "/rover/joint_states")["velocity"][0]) < 0.1)
    assert node.process.poll() is None, node.printed()


def test_the_joystick_wins(stage: tuple[Node, Peer]) -> None:
    _, peer = stage

    def turns_backwards() -> bool:
        drive(peer, "/joy/cmd_vel", -1.0)
        drive(peer, "/rover/cmd_vel", 1.0)
        return bool(last(peer, "/rover/joint_states")["velocity"][0] < -5.0)

    wait_for(turns_backwards)
