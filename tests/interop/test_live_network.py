"""`microsim.connect()` and the live commands beside real rclpy on Fast DDS."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

import microsim
from microsim.cli import app
from microsim.parts.live_tools.client.client_node import ClientNode
from tests.integration.conftest import wait_for
from tests.interop.driver import Peer, environment, has_built_interfaces
from tests.ros_domains import free_domain

SET_BOOL, STRING = "std_srvs/srv/SetBool", "std_msgs/msg/String"
Network = tuple[Peer, ClientNode]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """A stranger, and a node of ours in this process."""
    with free_domain() as domain, pytest.MonkeyPatch.context() as patch, Peer(domain) as peer:
        for name, value in environment(domain).items():
            if name.startswith(("ROS_", "CYCLONEDDS_")):
                patch.setenv(name, value)
        with microsim.connect() as node:
            yield peer, node


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_node_on_fast_dds_is_listed_with_what_it_has(network: Network) -> None:
    peer, node = network
    peer.advertise(topic="/listed", type=STRING, qos={"reliable": False})
    assert node.type_of("/listed", 30.0) == STRING
    assert "/peer" in run("node", "list").splitlines()
    assert "/listed" in json.loads(run("node", "info", "/peer", "--json"))["publishers"]
    (found,) = json.loads(run("topic", "info", "/listed", "--json"))["publishers"]
    assert (found["node"], found["reliability"], found["middleware"]) == ("/peer", "best_effort", "Fast DDS")
    assert "/peer/list_parameters" in json.loads(run("service", "list", "--json"))


@pytest.mark.parametrize("qos", [{"reliable": False}, {"latched": True}, {}], ids=["best effort", "latched", "default"])
def test_messages_of_fast_dds_arrive_whatever_their_quality(network: Network, qos: dict[str, bool]) -> None:
    peer, node = network
    topic = f"/from_them_{'_'.join(qos) or 'default'}"
    peer.advertise(topic=topic, type=STRING, qos=qos)
    with node.subscribe(topic, timeout=30.0) as subscription:
        for _ in range(40):  # Fast DDS believes itself connected before we know it
            peer.publish(topic=topic, type=STRING, qos=qos, message={"data": "hello"}, acknowledged=False)
            if (message := subscription.wait(0.25)) is not None:
                break
    assert message is not None
    assert message.data == "hello"


def test_what_we_publish_reaches_fast_dds(network: Network) -> None:
    peer, node = network
    twist = {"linear": {"x": 1.5, "y": 0.0, "z": 0.0}, "angular": {"x": 0.0, "y": 0.0, "z": -0.5}}
    peer.subscribe(topic="/cmd", type="geometry_msgs/msg/Twist")
    for _ in range(40):
        node.publish("/cmd", {"linear": {"x": 1.5}, "angular": {"z": -0.5}})
        if peer.collect(topic="/cmd")["count"]:
            break
    peer.wait(topic="/cmd")
    assert peer.collect(topic="/cmd", messages=True)["messages"][0] == twist
    run("topic", "pub", "/cmd", "{linear: {x: 2.0}}", "--times", "5", "--rate", "10")
    assert peer.collect(topic="/cmd", messages=True)["messages"][-1]["linear"]["x"] == 2.0


def test_services_of_fast_dds_are_called(network: Network) -> None:
    peer, node = network
    peer.serve(service="/theirs", type=SET_BOOL, response={"success": True, "message": "gladly"})
    assert node.call("/theirs", {"data": True}, timeout=30.0).message == "gladly"
    assert peer.served(service="/theirs")["requests"] == [{"data": True}]
    assert json.loads(run("service", "call", "/theirs", "{data: false}", "--json"))["message"] == "gladly"


def test_answers_to_other_clients_are_not_taken_for_ours(network: Network) -> None:
    """Two clients of Fast DDS and we call one server at once."""
    peer, node = network
    peer.serve(service="/busy", type=SET_BOOL, response={"success": True})
    node.call("/busy", {"data": True}, timeout=30.0)
    answers: list[bool] = []
    ours = threading.Thread(
        target=lambda: answers.extend(node.call("/busy", {"data": True}, timeout=30.0).success for _ in range(50))
    )
    ours.start()
    theirs = [peer.call(service="/busy", type=SET_BOOL, request={"data": False}) for _ in range(20)]
    ours.join()
    assert all(answers)
    assert len(answers) == 50
    assert all(each["response"]["success"] for each in theirs)
    requests = peer.served(service="/busy", count=71)["requests"]
    assert [sum(each["data"] is data for each in requests) for data in (True, False)] == [51, 20]


def test_parameters_of_a_node_on_fast_dds(network: Network) -> None:
    _, node = network
    parameters = node.parameters("/peer")
    assert parameters["use_sim_time"] is False
    with pytest.raises(microsim.UsageError, match=r"no parameter 'use_sim_tme'; did you mean 'use_sim_time'"):
        parameters.get("use_sim_tme")


def test_a_goal_for_an_action_server_on_fast_dds(network: Network) -> None:
    if not has_built_interfaces():
        pytest.skip("no compiler to build simulation_interfaces")
    peer, node = network
    kind = "simulation_interfaces/action/SimulateSteps"
    peer.serve_action(action="/steps", type=kind, feedback={"completed_steps": 2})
    heard: list[int] = []
    outcome = node.send_goal(
        "/steps", {"steps": 2}, on_feedback=lambda each: heard.append(each.completed_steps), timeout=30.0
    )
    assert outcome.status == "succeeded"
    assert json.loads(run("action", "list", "--json"))["/steps"] == [kind]


def test_a_server_on_fast_dds_that_never_answers_is_named(network: Network) -> None:
    peer, node = network
    peer.serve(service="/stuck", type=SET_BOOL, response={})
    node.call("/stuck", {}, timeout=30.0)
    view = node.view
    wait_for(lambda: node.do(lambda: [*map(view.owner, view.at("rq/stuckRequest", is_writer=False))]) == ["/peer"])
    os.kill(peer.pid, signal.SIGSTOP)
    os.waitpid(peer.pid, os.WUNTRACED)  # until all of its threads have stopped
    try:
        with pytest.raises(TimeoutError, match=r"service /stuck of /peer: no answer within 0.5 s"):
            node.call("/stuck", {}, timeout=0.5)
    finally:
        os.kill(peer.pid, signal.SIGCONT)
