"""Parameters, arguments and the log of our transports, as a stranger on real rclpy finds them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.driver import Host, Peer, RemoteError, acquaint
from tests.ros_domains import free_domain

NODE = "/microsim"
DECLARED: list[dict[str, Any]] = [
    {"name": "seed", "value": 7, "description": "Seed of all noise.", "minimum": 0},
    {"name": "rate.hz", "value": 60.0, "minimum": 1.0, "maximum": 100.0, "any_number": True},
    {"name": "wind", "value": [0.0, 0.0, 0.0], "maximum": 30.0},
    {"name": "noise", "value": 0.5},
    {"name": "label", "value": "a"},
    {"name": "scenario", "value": "default", "read_only": True},
    {"name": "use_sim_time", "value": True, "read_only": True},
]
Pair = tuple[Host, Peer]


@pytest.fixture(scope="module", params=["rclpy", "dds"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with free_domain() as domain, Peer(domain) as peer, Host(domain, request.param) as host:
        acquaint(host, peer)
        host.declare(parameters=DECLARED, refused={"label": "labels stay"})
        yield host, peer


def values(peer: Peer, *names: str) -> list[Any]:
    return list(peer.get_parameters(node=NODE, names=list(names))["values"].values())


def test_all_are_listed_with_their_values(pair: Pair) -> None:
    _, peer = pair
    names = [parameter["name"] for parameter in DECLARED]
    assert set(names) <= set(peer.list_parameters(node=NODE)["names"])
    assert peer.get_parameters(node=NODE, names=["scenario", "use_sim_time"])["values"] == {
        "scenario": "default",
        "use_sim_time": True,
    }


def test_descriptions_and_ranges_are_shown(pair: Pair) -> None:
    _, peer = pair
    shown = peer.describe_parameters(node=NODE, names=["seed", "rate.hz", "wind", "scenario"])["descriptors"]
    assert shown["seed"]["description"] == "Seed of all noise."
    assert shown["seed"]["integer_range"][0] == {"from_value": 0, "to_value": 2**63 - 1, "step": 0}
    assert shown["rate.hz"]["floating_point_range"][0] == {"from_value": 1.0, "to_value": 100.0, "step": 0.0}
    assert shown["wind"]["floating_point_range"][0]["to_value"] == 30.0
    assert [shown[name]["read_only"] for name in ("seed", "scenario")] == [False, True]


def test_types_are_described_as_ros_2_describes_them(pair: Pair) -> None:
    _, peer = pair
    kind, stranger = "rcl_interfaces/msg/ParameterEvent", peer.hello()["node"]
    ends = peer.publishers(topic="/parameter_events")["endpoints"]
    request = {"type_name": kind, "type_hash": ends[0]["type_hash"], "include_type_sources": False}
    service = {"type": "type_description_interfaces/srv/GetTypeDescription", "request": request}
    ours, theirs = (
        peer.call(service=f"{node}/get_type_description", **service)["response"] for node in (NODE, stranger)
    )
    assert ours["successful"]
    assert ours["type_description"] == theirs["type_description"]


@pytest.mark.parametrize(
    ("name", "value"), [("rate.hz", 30), ("rate.hz", 30.5), ("seed", 8), ("wind", [1.0, 2.0, 3.0]), ("noise", 0.25)]
)
def test_a_good_value_is_taken(pair: Pair, name: str, value: Any) -> None:
    host, peer = pair
    (result,) = peer.set_parameters(node=NODE, values={name: value})["results"]
    assert result == {"successful": True, "reason": ""}
    assert values(peer, name) == [value]
    declared = next(each["value"] for each in DECLARED if each["name"] == name)
    assert type(values(peer, name)[0]) is type(declared)  # `ros2 param set rate.hz 30` leaves it a double
    asked = host.changes()["asked"][-1]
    assert asked == {name: value}
    assert type(asked[name]) is type(declared)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("rate.hz", 1000, "out of range"),
        ("rate.hz", float("nan"), "out of range"),
        ("rate.hz", "fast", "Wrong parameter type"),
        ("rate.hz", None, "cannot be undeclared"),
        ("seed", -1, "out of range"),
        ("seed", 1.5, "Wrong parameter type"),
        ("noise", None, "cannot be undeclared"),
        ("wind", [0.0, 99.0, 0.0], "must be at most 30.0"),
        ("scenario", "flat", "read-only"),
        ("use_sim_time", False, "read-only"),
        ("label", "b", "labels stay"),
        ("sede", 1, "undeclared"),
    ],
)
def test_a_bad_value_is_refused_with_the_reason(pair: Pair, name: str, value: Any, reason: str) -> None:
    host, peer = pair
    before, asked = values(peer, name), len(host.changes()["asked"])
    (result,) = peer.set_parameters(node=NODE, values={name: value})["results"]
    assert not result["successful"]
    assert reason in result["reason"] or result["reason"].startswith(f"parameter {name!r}")  # rclpy's words, or ours
    assert values(peer, name) == before
    assert len(host.changes()["asked"]) == asked + (name == "label")  # the node is not asked what rclpy refuses


def test_together_means_all_or_none(pair: Pair) -> None:
    host, peer = pair
    before = values(peer, "seed", "label")
    (result,) = peer.set_parameters(node=NODE, values={"seed": 99, "label": "b"}, atomically=True)["results"]
    assert (result["successful"], result["reason"]) == (False, "labels stay")
    assert values(peer, "seed", "label") == before
    assert host.changes()["asked"][-1] == {"seed": 99, "label": "b"}


def test_changes_inside_the_node_are_shown_without_asking_it(pair: Pair) -> None:
    host, peer = pair
    asked = len(host.changes()["asked"])
    peer.subscribe(topic="/parameter_events", type="rcl_interfaces/msg/ParameterEvent", qos={"depth": 1000})
    peer.wait_graph(publishers=["/parameter_events"])
    host.set_parameters(values={"seed": 1234, "scenario": "flat", "rate.hz": 5, "noise": 0.25})
    assert values(peer, "seed", "scenario", "rate.hz") == [1234, "flat", 5]
    assert len(host.changes()["asked"]) == asked
    (result,) = peer.set_parameters(node=NODE, values={"scenario": "default"})["results"]
    assert "read-only" in result["reason"]  # still, for others


def test_the_simulator_does_not_wait_for_its_own_clock() -> None:
    """Launch files set use_sim_time for every node; ours makes the time."""
    with (
        free_domain() as domain,
        Peer(domain) as peer,
        Host(domain, "rclpy", "--ros-args", "-p", "use_sim_time:=true") as host,
    ):
        assert host.greeting["overrides"] == {"use_sim_time": True}
        host.declare(parameters=[{"name": "use_sim_time", "value": True, "read_only": True}])
        host.advertise(topic="/clock", type="rosgraph_msgs/msg/Clock", qos={"depth": 10})
        peer.wait_graph(nodes=[NODE], publishers=["/clock"])
        assert peer.node_graph(node=NODE, having=["/clock"])["subscriptions"] == {}
        assert values(peer, "use_sim_time") == [True]


def test_arguments_are_those_of_ros(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(
        "/**:\n  ros__parameters:\n    seed: 5\n    wind: {gust: [1.0, 2.0]}\nother:\n  ros__parameters: {x: 1}\n"
    )
    arguments = ["--ros-args", "--params-file", str(file), "-p", "seed:=6", "-r", "__ns:=/team/a", "-r", "__node:=sim"]
    arguments += ["-r", "clock:=tick", "-r", "/team/a/sim/pause:=/hold", "--log-level", "debug"]
    with free_domain() as domain, Peer(domain) as peer, Host(domain, "rclpy", *arguments) as host:
        assert host.greeting["node"] == "/team/a/sim"
        assert host.greeting["overrides"] == {"seed": 6, "wind.gust": [1.0, 2.0]}
        host.advertise(topic="/clock", type="rosgraph_msgs/msg/Clock", qos={"depth": 10})
        host.subscribe(topic="/drone/cmd_vel", type="geometry_msgs/msg/Twist", qos={"depth": 10})
        host.serve(service="/sim/pause", type="std_srvs/srv/SetBool", response={})
        peer.wait_graph(nodes=["/team/a/sim"], publishers=["/team/a/tick"], services=["/hold"])
        peer.wait_graph(subscriptions=["/team/a/drone/cmd_vel"])
        host.log(level="debug", text="seen at this level only")
        assert "seen at this level only" in host.printed()


@pytest.mark.parametrize("arguments", [["--nope"], ["-r"], ["-p", "seed"], ["--params-file", "/no/such/file.yaml"]])
def test_wrong_arguments_are_refused_at_once(domain: int, arguments: list[str]) -> None:
    with pytest.raises(RemoteError, match="UsageError: --ros-args: "):
        Host(domain, "rclpy", "--ros-args", *arguments)


def test_the_log_goes_to_rosout_and_the_terminal(pair: Pair) -> None:
    host, peer = pair
    peer.subscribe(topic="/rosout", type="rcl_interfaces/msg/Log", qos={"depth": 100, "latched": True})
    for level in ("debug", "info", "warn", "error"):
        host.log(level=level, text=f"a line of level {level}")
    peer.wait(topic="/rosout", count=3)
    heard = [(line["level"], line["msg"]) for line in peer.collect(topic="/rosout", messages=True)["messages"]]
    assert heard == [(level, f"a line of level {name}") for level, name in ((20, "info"), (30, "warn"), (40, "error"))]
    assert "[microsim]: a line of level error" in host.printed()


def test_a_closed_transport_is_gone_and_may_be_closed_again(domain: int, peer: Peer) -> None:
    with Host(domain, "rclpy") as host:
        peer.wait_graph(nodes=[NODE])
        host.request("close")
        host.request("close")
        peer.wait_graph(gone=[NODE])
    assert host.close() == 0
    assert host.printed() == ""


def test_two_namespaces_on_one_domain_do_not_hear_each_other(domain: int, peer: Peer) -> None:
    twist = {"type": "geometry_msgs/msg/Twist"}
    with Host(domain, "rclpy", "-r", "__ns:=/a") as first, Host(domain, "rclpy", "-r", "__ns:=/b") as second:
        for host in (first, second):
            host.subscribe(topic="/drone/cmd_vel", qos={"depth": 10}, **twist)
        peer.publish(topic="/a/drone/cmd_vel", message={"linear": {"x": 1.0}}, **twist)
        first.wait(topic="/drone/cmd_vel")
        peer.publish(topic="/b/drone/cmd_vel", message={"linear": {"x": 2.0}}, **twist)
        assert len(second.wait(topic="/drone/cmd_vel")["raw"]) == 1
        assert len(first.wait(topic="/drone/cmd_vel")["raw"]) == 1
