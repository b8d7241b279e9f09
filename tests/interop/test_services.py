"""Services between our transports and real rclpy on Fast DDS."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from microsim.parts.ros2.transport.rtps_participant import INDICES
from tests.interop.driver import Host, Peer, RemoteError, acquaint, has_built_interfaces
from tests.ros_domains import free_domain

EMPTY = {"structure_needs_at_least_one_member": 0}  # as some versions of rclpy show it
SET_BOOL = "std_srvs/srv/SetBool"


Pair = tuple[Host, Peer]


def pair_with(transport: str) -> Iterator[Pair]:
    with free_domain() as domain, Peer(domain) as peer, Host(domain, transport) as host:
        acquaint(host, peer)
        yield host, peer


@pytest.fixture(scope="module")
def rclpy_pair() -> Iterator[Pair]:
    yield from pair_with("rclpy")


@pytest.fixture(scope="module", params=["rclpy", "dds"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    yield from pair_with(request.param)


def test_a_stranger_calls_us(pair: Pair) -> None:
    host, peer = pair
    host.serve(service="/sim/pause", type=SET_BOOL, response={"success": True, "message": "paused"})
    answer = peer.call(service="/sim/pause", type=SET_BOOL, request={"data": True})
    assert answer["response"] == {"success": True, "message": "paused"}
    assert host.served(service="/sim/pause")["requests"] == [{"data": True}]
    assert peer.node_graph(node="/microsim", having=["/sim/pause"])["services"]["/sim/pause"] == [SET_BOOL]


def test_a_service_without_fields_answers(pair: Pair) -> None:
    host, peer = pair
    host.serve(service="/sim/reset", type="std_srvs/srv/Empty", response={})
    assert peer.call(service="/sim/reset", type="std_srvs/srv/Empty")["response"] in ({}, EMPTY)
    assert len(host.served(service="/sim/reset", count=1)["requests"]) == 1


def test_a_handler_that_fails_still_answers(pair: Pair) -> None:
    host, peer = pair
    host.serve(service="/fails", type=SET_BOOL, response={"no_such_field": True})
    answer = peer.call(service="/fails", type=SET_BOOL)["response"]
    assert not answer["success"]
    assert "no_such_field" in answer["message"]
    assert "service /fails" in host.printed()


def test_a_handler_that_is_not_done_is_asked_again(pair: Pair) -> None:
    host, peer = pair
    host.serve(service="/slow", type=SET_BOOL, response={"success": True}, not_yet=True)
    host.serve(service="/quick", type=SET_BOOL, response={"success": True})
    with pytest.raises(RemoteError, match="TimeoutError: no answer"):
        peer.call(service="/slow", type=SET_BOOL, timeout=0.2)
    assert peer.call(service="/quick", type=SET_BOOL)["response"]["success"]  # others do not wait for it
    host.release(service="/slow")
    assert peer.call(service="/slow", type=SET_BOOL)["response"]["success"]
    assert len(host.served(service="/slow", count=2)["requests"]) == 2  # the first one was answered too


def test_the_parts_of_an_action_are_served(pair: Pair) -> None:
    """An action is three services and two topics; a real client of actions finds them and is refused."""
    if not has_built_interfaces():
        pytest.skip("no compiler to build simulation_interfaces")
    host, peer = pair
    action, kind = "/simulate_steps/_action", "simulation_interfaces/action/SimulateSteps"
    host.serve(service=f"{action}/send_goal", type=f"{kind}_SendGoal", response={"accepted": False})
    host.serve(service=f"{action}/get_result", type=f"{kind}_GetResult", response={})
    host.serve(service=f"{action}/cancel_goal", type="action_msgs/srv/CancelGoal", response={})
    host.advertise(topic=f"{action}/feedback", type=f"{kind}_FeedbackMessage", qos={"depth": 10})
    host.advertise(topic=f"{action}/status", type="action_msgs/msg/GoalStatusArray", qos={"depth": 1, "latched": True})
    assert peer.act(action="/simulate_steps", type=kind, goal={"steps": 5}) == {"accepted": False}


def test_we_call_a_stranger(pair: Pair) -> None:
    host, peer = pair
    peer.serve(service="/theirs", type=SET_BOOL, response={"success": True, "message": "gladly"})
    assert host.call(service="/theirs", type=SET_BOOL, request={"data": True})["response"]["message"] == "gladly"
    assert peer.served(service="/theirs")["requests"] == [{"data": True}]


def test_nobody_there_is_a_timeout(pair: Pair) -> None:
    with pytest.raises(
        RemoteError, match=r"TimeoutError: (no service /nowhere within 0.3 s|service /nowhere: there is no server)"
    ):
        pair[0].call(service="/nowhere", type=SET_BOOL, request={}, timeout=0.3)


def test_a_field_that_is_not_there_is_named(pair: Pair) -> None:
    host, peer = pair
    peer.serve(service="/strict", type=SET_BOOL, response={"success": True})
    with pytest.raises(RemoteError, match="SetBool_Request has no field 'datum'; did you mean 'data'"):
        host.call(service="/strict", type=SET_BOOL, request={"datum": True})


def test_nested_fields_are_filled_from_mappings(pair: Pair) -> None:
    host, peer = pair
    peer.serve(service="/nested", type="rcl_interfaces/srv/SetParameters", response={})
    wish = {"parameters": [{"name": "a", "value": {"type": 3, "double_value": 2}}]}
    host.call(service="/nested", type="rcl_interfaces/srv/SetParameters", request=wish)
    (request,) = peer.served(service="/nested", count=1)["requests"]
    assert request["parameters"][0]["value"]["double_value"] == 2.0


def test_a_client_that_goes_away_before_its_answer_does_no_harm(pair: Pair) -> None:
    host, peer = pair
    host.serve(service="/patient", type=SET_BOOL, response={"success": True})
    for _ in range(3):
        with pytest.raises(RemoteError, match="TimeoutError"):
            peer.call(service="/patient", type=SET_BOOL, timeout=0.0)
    assert peer.call(service="/patient", type=SET_BOOL)["response"]["success"]


def test_set_int32_is_served_by_our_own_package(rclpy_pair: Pair) -> None:
    if not has_built_interfaces():
        pytest.skip("no compiler to build microsim_interfaces")
    host, peer = rclpy_pair
    host.serve(service="/sim/step", type="microsim_interfaces/srv/SetInt32", response={"success": True})
    assert peer.call(service="/sim/step", type="microsim_interfaces/srv/SetInt32", request={"data": 7})["response"][
        "success"
    ]
    assert host.served(service="/sim/step")["requests"] == [{"data": 7}]


def test_a_package_that_is_missing_is_named_with_how_to_get_it() -> None:
    with free_domain() as domain, Host(domain, "rclpy", built_interfaces=False) as host:
        with pytest.raises(
            RemoteError, match=r"MissingTypeError.*tf2_msgs is not installed.*ros-\$ROS_DISTRO-tf2-msgs"
        ):
            host.advertise(topic="/tf", type="tf2_msgs/msg/TFMessage", qos={"depth": 100})
        with pytest.raises(
            RemoteError, match=r"MissingTypeError.*microsim_interfaces is not installed; build it with `colcon build"
        ):
            host.serve(service="/sim/step", type="microsim_interfaces/srv/SetInt32", response={})
        with pytest.raises(RemoteError, match=r"MissingTypeError.*installed std_srvs does not have it"):
            host.serve(service="/new", type="std_srvs/srv/OfTomorrow", response={})
        host.serve(service="/sim/pause", type=SET_BOOL, response={"success": True})  # and the rest goes on


def test_dds_refuses_a_client_on_fast_dds_where_it_cannot_answer() -> None:
    """Its request would be read 16 bytes off: SetBool(true) as false."""
    with free_domain() as domain, Peer(domain) as peer, Host(domain, "dds") as host, taken_ports(domain):
        host.serve(service="/sim/pause", type=SET_BOOL, response={"success": True})
        assert "services can be called from Cyclone DDS only" in host.printed()
        for _ in range(10):  # until the server knows its writer, which takes Fast DDS up to 3 s, requests are lost
            with pytest.raises(RemoteError, match="TimeoutError: no answer"):
                peer.call(service="/sim/pause", type=SET_BOOL, request={"data": True}, timeout=1.0)
            if "RMW_IMPLEMENTATION=rmw_cyclonedds_cpp" in host.printed():
                break
        else:
            pytest.fail("no hint")
        assert host.served(service="/sim/pause")["requests"] == []


@contextlib.contextmanager
def taken_ports(domain: int) -> Iterator[None]:
    """From now on there is no port for another participant."""
    with contextlib.ExitStack() as stack:
        for index in INDICES:
            each = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            with contextlib.suppress(OSError):
                each.bind(("127.0.0.1", 7410 + 250 * domain + 2 * index))
        yield


def test_large_requests_and_answers_pass(pair: Pair) -> None:
    host, peer = pair
    host.serve(service="/large", type="rcl_interfaces/srv/GetParameters", response={"values": []})
    names = [f"{'long' * 200}{number}" for number in range(400)]  # 320 KB: in fragments
    peer.call(service="/large", type="rcl_interfaces/srv/GetParameters", request={"names": names})
    (request,) = host.served(service="/large", count=1)["requests"]
    assert str(request["names"]) == str(names)
    host.serve(service="/talkative", type=SET_BOOL, response={"message": "word " * 10_000})
    assert len(peer.call(service="/talkative", type=SET_BOOL)["response"]["message"]) == 50_000


def test_a_service_is_answered_from_its_first_moment(pair: Pair) -> None:
    """A client may be there before the service, and hears of it bit by bit."""
    host, peer = pair
    for number in range(20):
        host.serve(service=f"/new{number}", type=SET_BOOL, response={"success": True})
        assert peer.call(service=f"/new{number}", type=SET_BOOL, timeout=30.0)["response"]["success"]
