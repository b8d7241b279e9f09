"""Services and parameters between two processes over dds."""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from microsim import messages as wire
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport import Parameter

pytest.importorskip("cyclonedds")

from microsim.parts.ros2.transport.dds import DdsTransport
from microsim.parts.ros2.transport.dds_graph import Graph
from microsim.parts.ros2.transport.standalone import NotYet

from .conftest import Remote, wait_for

SET_BOOL = "std_srvs/srv/SetBool"
READERS = 2  # of the requests of a service: that which serves, and that which keeps Fast DDS waiting
MakeRemote = Callable[..., Remote]
HEADER = b"\x00\x01\x00\x00"


class Served:
    """A node that serves /s and remembers who asked for what."""

    def __init__(self, namespace: str) -> None:
        self.node = DdsTransport("microsim", ["--ros-args", "-r", f"__ns:={namespace}"])
        self.asked: list[bool] = []
        self.node.serve("/s", SET_BOOL, self.handle)

    def handle(self, request: Any, response: Any) -> None:
        self.asked.append(request.data)
        response.success, response.message = request.data, "done"


@pytest.fixture
def served(namespace: str) -> Iterator[Served]:
    made = Served(namespace)
    yield made
    made.node.close()


@pytest.fixture
def stranger(namespace: str) -> Iterator[Graph]:
    """A participant on which requests of any form can be written."""
    graph = Graph("stranger", namespace, "/", lambda text: None)
    yield graph
    graph.close()


def set_bool(data: bool) -> bytes:
    return wire.encode(f"{SET_BOOL}_Request", wire.new(f"{SET_BOOL}_Request", data=data))


def test_calls_pass_both_ways(served: Served, remote: MakeRemote) -> None:
    peer = remote()
    peer.do("serve", service="/theirs")
    assert served.node.call("/theirs", SET_BOOL, {"data": True}, 20).success
    assert not served.node.call("/theirs", SET_BOOL, {"data": False}, 20).success
    peer.send("call", service="/s", type_name=SET_BOOL, request={"data": True})
    wait_for(peer.has_answered, served.node.poll)
    assert served.asked
    assert peer.receive() == {"success": True, "message": "done"}


def test_a_fresh_client_gets_the_answer_to_its_first_call(served: Served, remote: MakeRemote) -> None:
    for number in range(3):
        peer = remote(f"client{number}")
        peer.send("call", service="/s", type_name=SET_BOOL, request={"data": True})
        wait_for(peer.has_answered, served.node.poll)
        assert peer.receive()["success"]


def test_a_service_nobody_serves_times_out(served: Served) -> None:
    with pytest.raises(TimeoutError, match="there is no server"):
        served.node.call("/none", SET_BOOL, {}, 0.2)


def test_a_server_that_is_slow_times_out(served: Served, remote: MakeRemote) -> None:
    peer = remote()
    peer.do("serve", service="/slow", delay_s=1.0)
    served.node.call("/slow", SET_BOOL, {}, 20)
    with pytest.raises(TimeoutError, match="no answer within"):
        served.node.call("/slow", SET_BOOL, {}, 0.1)
    assert served.node.call("/slow", SET_BOOL, {"data": True}, 20).success  # not the late answer


def test_a_hundred_clients_at_once_are_all_answered(served: Served, remote: MakeRemote) -> None:
    peer = remote()
    peer.send("crowd", service="/s", clients=100)
    wait_for(peer.has_answered, served.node.poll)
    assert peer.receive() == len(served.asked) == 100


def test_a_client_that_dies_after_asking_harms_nobody(served: Served, remote: MakeRemote) -> None:
    peer = remote("doomed")
    peer.send("call", service="/s", type_name=SET_BOOL, request={"data": True})
    wait_for(peer.has_answered, served.node.poll)
    peer.receive()  # both sides know each other: what is sent now arrives
    peer.do("ask", service="/s", type_name=SET_BOOL, request={"data": False})
    os.kill(peer.process.pid, signal.SIGKILL)
    peer.process.wait()
    wait_for(lambda: served.asked == [True, False], served.node.poll)
    other = remote("other")
    other.send("call", service="/s", type_name=SET_BOOL, request={"data": True})
    wait_for(other.has_answered, served.node.poll)
    assert other.receive()["success"]


def test_a_client_of_another_rmw_is_refused_with_one_hint(
    served: Served, stranger: Graph, namespace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    writer = stranger.writer(f"rq{namespace}/sRequest", f"{SET_BOOL}_Request", Qos(10))  # announces no clientid
    wait_for(lambda: writer.matched() == READERS, served.node.poll)
    for _ in range(3):
        writer.write(set_bool(True))
    said: list[str] = []

    def is_said() -> bool:
        said.append(capfd.readouterr().err)
        return "RMW_IMPLEMENTATION=rmw_cyclonedds_cpp" in "".join(said)

    wait_for(is_said, served.node.poll)
    for _ in range(10):
        served.node.poll(0.01)
    said.append(capfd.readouterr().err)
    assert "".join(said).count("rmw_cyclonedds_cpp") == 1
    assert f"{namespace}/s" in "".join(said)
    assert served.asked == []


@pytest.mark.parametrize(
    "request_",
    [
        set_bool(True),
        HEADER + bytes(16),
        HEADER + bytes(8),
        HEADER + bytes(16) + set_bool(True)[4:] + bytes(4),
        HEADER + bytes(16) + b"\x07\x00\x00\x00",
    ],
    ids=["no header", "no body", "half a header", "too long", "no bool"],
)
def test_a_request_of_the_wrong_form_never_reaches_its_handler(
    served: Served, stranger: Graph, namespace: str, request_: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = f"rq{namespace}/sRequest"
    writer = stranger.writer(topic, f"{SET_BOOL}_Request", Qos(10), f"clientid={stranger.unique_id()};")
    wait_for(lambda: writer.matched() == READERS, served.node.poll)
    writer.write(request_)
    wait_for(lambda: "refused a request" in capfd.readouterr().err, served.node.poll)
    writer.write(HEADER + bytes(16) + set_bool(True)[4:])
    wait_for(lambda: served.asked, served.node.poll)
    assert served.asked == [True]


def test_a_reply_waits_for_its_reader_without_holding_up_the_tick(
    served: Served, stranger: Graph, namespace: str
) -> None:
    identity = f"clientid={stranger.unique_id()};"
    writer = stranger.writer(f"rq{namespace}/sRequest", f"{SET_BOOL}_Request", Qos(10), identity)
    wait_for(lambda: writer.matched() == READERS, served.node.poll)
    header = struct.pack("<Qq", 77, 5)
    writer.write(HEADER + header + set_bool(True)[4:])
    wait_for(lambda: served.asked, served.node.poll)
    took = []
    for _ in range(5):  # the quickest: a busy machine may interrupt one
        start = time.monotonic()
        served.node.poll()
        took.append(time.monotonic() - start)
    assert min(took) < 0.05
    replies: list[bytes] = []
    topic = f"rr{namespace}/sReply"
    reader = stranger.reader(topic, f"{SET_BOOL}_Response", Qos(10), lambda: None, identity)
    wait_for(lambda: replies.extend(cdr for cdr, _ in reader.take()) or replies, served.node.poll)
    response = wire.decode_checked(f"{SET_BOOL}_Response", HEADER + replies[0][20:])
    assert replies[0][4:20] == header
    assert (response.success, response.message) == (True, "done")


def test_a_reply_nobody_waits_for_is_given_up(served: Served, stranger: Graph, namespace: str) -> None:
    identity = f"clientid={stranger.unique_id()};"
    writer = stranger.writer(f"rq{namespace}/sRequest", f"{SET_BOOL}_Request", Qos(10), identity)
    wait_for(lambda: writer.matched() == READERS, served.node.poll)
    writer.write(HEADER + bytes(16) + set_bool(True)[4:])
    wait_for(lambda: served.asked, served.node.poll)
    assert served.node._waiting
    wait_for(lambda: not served.node._waiting, served.node.poll)


def test_a_handler_may_answer_at_a_later_poll(served: Served, remote: MakeRemote) -> None:
    asked: list[float] = []

    def slow(request: Any, response: Any) -> None:
        asked.append(time.monotonic())
        if len(asked) < 5:
            raise NotYet
        response.success = True

    served.node.serve("/later", SET_BOOL, slow)
    peer = remote()
    peer.send("call", service="/later", type_name=SET_BOOL, request={})
    wait_for(peer.has_answered, served.node.poll)
    assert len(asked) == 5
    assert peer.receive()["success"]


# ---- parameters


def ask(node: DdsTransport, service: str, **request: Any) -> Any:
    kind = "".join(part.capitalize() for part in service.split("_"))
    return node.call(f"/peer/{service}", f"rcl_interfaces/srv/{kind}", request, 20)


def test_parameters_are_listed_described_got_and_set_from_another_process(
    served: Served, remote: MakeRemote, namespace: str
) -> None:
    node, peer = served.node, remote()
    events: list[Any] = []
    own = DdsTransport("listener")  # /parameter_events is global

    def on_event(cdr: bytes) -> None:
        event = wire.decode_checked("rcl_interfaces/msg/ParameterEvent", cdr)
        if event.node == f"{namespace}/peer":
            events.append(event)

    own.subscribe("/parameter_events", "rcl_interfaces/msg/ParameterEvent", Qos(1000), on_event)
    peer.do(
        "declare",
        parameters=[
            {"name": "robots.drone.max_vx", "value": 5.0, "description": "m/s", "minimum": 0.0, "maximum": 20.0},
            {"name": "seed", "value": 7},
            {"name": "use_sim_time", "value": False},
            {"name": "version", "value": "1", "read_only": True},
        ],
    )
    assert ask(node, "list_parameters").result.names == ["robots.drone.max_vx", "seed", "use_sim_time", "version"]
    descriptor = ask(node, "describe_parameters", names=["robots.drone.max_vx"]).descriptors[0]
    assert (descriptor.type, descriptor.description, descriptor.floating_point_range[0].to_value) == (3, "m/s", 20.0)
    assert ask(node, "get_parameters", names=["seed"]).values[0].integer_value == 7
    assert ask(node, "get_parameter_types", names=["seed", "version"]).types.tolist() == [2, 4]

    def set_speed(**value: Any) -> Any:
        return ask(node, "set_parameters", parameters=[{"name": "robots.drone.max_vx", "value": value}]).results[0]

    assert "not integer" in set_speed(type=2, integer_value=3).reason
    assert "from 0.0 to 20.0" in set_speed(type=3, double_value=30.0).reason

    def was_announced() -> bool:
        own.poll()
        changed = [parameter for event in events for parameter in event.changed_parameters]
        return any(parameter.value.double_value == 6.5 for parameter in changed)

    wait_for(lambda: set_speed(type=3, double_value=6.5).successful and was_announced(), node.poll)
    own.close()


def test_what_a_node_logs_is_heard_on_rosout_even_late(served: Served, remote: MakeRemote, namespace: str) -> None:
    peer = remote()
    peer.do("log", level="warn", text="look out")
    logs: list[Any] = []
    listener = DdsTransport("listener")
    listener.subscribe(
        "/rosout",
        "rcl_interfaces/msg/Log",
        Qos(1000, latched=True),
        lambda cdr: logs.append(wire.decode_checked("rcl_interfaces/msg/Log", cdr)),
    )
    name = f"{namespace[1:]}.peer"
    wait_for(lambda: any((log.name, log.msg, log.level) == (name, "look out", 30) for log in logs), listener.poll)
    listener.close()


def test_overrides_are_for_the_node_they_name(namespace: str) -> None:
    node = DdsTransport("microsim", ["--ros-args", "-r", f"__ns:={namespace}", "-p", "seed:=3", "-p", "other:seed:=4"])
    node.declare([Parameter("seed", 3)], lambda changes: "")
    assert node.overrides == {"seed": 3}
    node.close()
