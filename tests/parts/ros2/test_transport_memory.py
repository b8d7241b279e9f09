"""The transport inside one process, and the parameters that dds shares with it."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from microsim import messages as wire
from microsim.errors import UsageError
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport import MissingTypeError, Parameter, Transport, Value
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport
from microsim.parts.ros2.transport.standalone import NotYet
from microsim.parts.ros2.transports import open_transport

STRING = "std_msgs/msg/String"
SET_BOOL = "std_srvs/srv/SetBool"


def text(words: str) -> bytes:
    return wire.encode(STRING, wire.new(STRING, data=words))


def words(cdr: bytes) -> str:
    return str(wire.decode(STRING, cdr).data)


class Pair:
    def __init__(self, *ros_args: str) -> None:
        self.bus = Bus()
        arguments = ["--ros-args", *ros_args] if ros_args else []
        self.node: Transport = MemoryTransport("microsim", arguments, self.bus)
        self.peer: Transport = MemoryTransport("peer", bus=self.bus)

    def listen(self, topic: str, qos: Qos, type_name: str = STRING) -> list[bytes]:
        heard: list[bytes] = []
        self.peer.subscribe(topic, type_name, qos, heard.append)
        return heard


# ---- topics


@pytest.mark.parametrize("latched", [False, True])
def test_a_node_may_leave_out_what_it_sends_itself(latched: bool) -> None:
    pair, all_, others = Pair(), list[bytes](), list[bytes]()
    own, foreign = (node.publisher("/t", STRING, Qos(10, latched=latched)) for node in (pair.node, pair.peer))
    own.publish(text("kept"))
    pair.node.subscribe("/t", STRING, Qos(10, latched=latched), all_.append)
    pair.node.subscribe("/t", STRING, Qos(10, latched=latched), others.append, from_others=True)
    own.publish(text("own"))
    foreign.publish(text("foreign"))
    pair.node.poll()
    assert pair.node.tells_senders
    assert [words(cdr) for cdr in all_] == [*(["kept"] if latched else []), "own", "foreign"]
    assert [words(cdr) for cdr in others] == ["foreign"]
    assert (own.subscribers, foreign.subscribers) == (1, 2)


def test_messages_arrive_at_the_next_poll_and_in_order() -> None:
    pair = Pair()
    heard = pair.listen("/t", Qos(10))
    publisher = pair.node.publisher("/t", STRING, Qos(10))
    for word in "abc":
        publisher.publish(text(word))
    assert heard == []
    pair.peer.poll()
    assert [words(cdr) for cdr in heard] == ["a", "b", "c"]


def test_a_reader_keeps_the_last_few() -> None:
    pair = Pair()
    heard = pair.listen("/t", Qos(2))
    publisher = pair.node.publisher("/t", STRING, Qos(10))
    for word in "abcd":
        publisher.publish(text(word))
    pair.peer.poll()
    assert [words(cdr) for cdr in heard] == ["c", "d"]


def test_late_subscribers_get_what_is_latched() -> None:
    pair = Pair()
    publisher = pair.node.publisher("/t", STRING, Qos(2, latched=True))
    for word in "abc":
        publisher.publish(text(word))
    latched, volatile = pair.listen("/t", Qos(10, latched=True)), pair.listen("/t", Qos(10))
    pair.peer.poll()
    assert [words(cdr) for cdr in latched] == ["b", "c"]
    assert volatile == []


@pytest.mark.parametrize(
    ("offered", "asked", "matches"),
    [
        (Qos(1), Qos(1, reliable=False), True),
        (Qos(1, reliable=False), Qos(1), False),
        (Qos(1, latched=True), Qos(1), True),
        (Qos(1), Qos(1, latched=True), False),
    ],
)
def test_a_reader_may_ask_for_less_but_not_for_more(offered: Qos, asked: Qos, matches: bool) -> None:
    pair = Pair()
    heard = pair.listen("/t", asked)
    publisher = pair.node.publisher("/t", STRING, offered)
    publisher.publish(text("x"))
    pair.peer.poll()
    assert publisher.subscribers == len(heard) == int(matches)


def test_topics_of_other_types_do_not_match() -> None:
    pair = Pair()
    pair.listen("/t", Qos(1), "std_msgs/msg/Empty")
    assert pair.node.publisher("/t", STRING, Qos(1)).subscribers == 0


def test_namespace_and_remapping_move_topics_but_not_rosout() -> None:
    pair = Pair("-r", "__ns:=/a", "-r", "t:=/elsewhere", "--disable-stdout-logs")
    heard, moved = pair.listen("/elsewhere", Qos(1)), pair.listen("/a/u", Qos(1))
    rosout = pair.listen("/rosout", Qos(10, latched=True), "rcl_interfaces/msg/Log")
    pair.node.publisher("/t", STRING, Qos(1)).publish(text("x"))
    pair.node.publisher("/u", STRING, Qos(1)).publish(text("y"))
    pair.node.log("warn", "careful")
    pair.peer.poll()
    assert len(heard) == len(moved) == 1
    log = wire.decode("rcl_interfaces/msg/Log", rosout[0])
    assert (log.name, log.msg, log.level) == ("a.microsim", "careful", 30)


def test_a_type_nobody_knows_is_named() -> None:
    with pytest.raises(MissingTypeError, match="nav2_msgs"):
        Pair().node.publisher("/t", "nav2_msgs/msg/Costmap", Qos(1))
    with pytest.raises(MissingTypeError, match="nav2_msgs"):
        Pair().node.serve("/s", "nav2_msgs/srv/LoadMap", lambda request, response: None)


def test_poll_wakes_when_something_arrives() -> None:
    pair = Pair()
    heard = pair.listen("/t", Qos(1))
    publisher = pair.node.publisher("/t", STRING, Qos(1))
    thread = threading.Thread(target=publisher.publish, args=(text("x"),))
    thread.start()
    pair.peer.poll(30.0)
    thread.join()
    assert heard


def test_a_closed_node_is_gone() -> None:
    pair = Pair()
    publisher = pair.node.publisher("/t", STRING, Qos(1))
    pair.listen("/t", Qos(1))
    pair.node.serve("/s", SET_BOOL, lambda request, response: None)
    pair.peer.close()
    assert publisher.subscribers == 0
    pair.node.close()
    with pytest.raises(TimeoutError, match="there is no server"):
        pair.peer.call("/s", SET_BOOL, {}, timeout_s=0.01)


def test_lines_look_as_rcl_writes_them(capsys: pytest.CaptureFixture[str]) -> None:
    node = open_transport("memory")
    node.log("info", "started")
    node.log("debug", "not shown")
    assert capsys.readouterr().err.startswith("[INFO] [1")
    node.log("error", "broken")
    assert capsys.readouterr().err.endswith("] [microsim]: broken\n")


def test_lines_take_the_form_and_colour_that_users_of_ros_2_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RCUTILS_CONSOLE_OUTPUT_FORMAT", "{name}/{severity}: {message}{function_name}")
    monkeypatch.setenv("RCUTILS_LOGGING_USE_STDOUT", "1")
    node = open_transport("memory")
    node.log("warn", "{name} as it is")
    assert capsys.readouterr().out == "microsim/WARN: {name} as it is\n"
    monkeypatch.setenv("RCUTILS_COLORIZED_OUTPUT", "1")
    node.log("warn", "careful")
    assert capsys.readouterr().out == "\033[33mmicrosim/WARN: careful\033[0m\n"


# ---- services


def echo(request: Any, response: Any) -> None:
    response.success, response.message = request.data, "done"


def test_a_call_is_answered() -> None:
    pair = Pair()
    pair.node.serve("/s", SET_BOOL, echo)
    response = pair.peer.call("/s", SET_BOOL, {"data": True})
    assert (response.success, response.message) == (True, "done")


def test_a_server_on_a_thread_of_its_own_answers() -> None:
    pair = Pair()
    pair.node.serve("/s", SET_BOOL, echo)
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pair.node.poll(0.05)

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        assert all(pair.peer.call("/s", SET_BOOL, {"data": True}).success for _ in range(20))
    finally:
        stop.set()
        thread.join()


def test_a_node_may_call_itself() -> None:
    pair = Pair()
    pair.node.serve("/s", SET_BOOL, echo)
    assert pair.node.call("/s", SET_BOOL, {"data": True}).success


def test_a_handler_that_fails_answers_with_what_went_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    pair = Pair()

    def broken(request: Any, response: Any) -> None:
        response.success = True
        raise RuntimeError("no world")

    pair.node.serve("/s", SET_BOOL, broken)
    response = pair.peer.call("/s", SET_BOOL, {})
    assert (response.success, response.message) == (False, "RuntimeError: no world")
    assert "service /s: RuntimeError: no world" in capsys.readouterr().err


def test_a_handler_may_answer_at_a_later_poll() -> None:
    pair, asked = Pair(), []

    def slow(request: Any, response: Any) -> None:
        asked.append(request)
        if len(asked) < 3:
            raise NotYet
        response.success = True

    pair.node.serve("/s", SET_BOOL, slow)
    assert pair.peer.call("/s", SET_BOOL, {}).success
    assert len(asked) == 3


def test_a_service_is_served_once() -> None:
    pair = Pair()
    pair.node.serve("/s", SET_BOOL, echo)
    with pytest.raises(UsageError, match="already exists"):
        pair.peer.serve("/s", SET_BOOL, echo)


# ---- parameters


class Node:
    """A node with a few parameters, and a peer that asks for them."""

    def __init__(self) -> None:
        self.pair = Pair()
        self.events = self.pair.listen("/parameter_events", Qos(10), "rcl_interfaces/msg/ParameterEvent")
        self.taken: list[Mapping[str, Value]] = []
        self.refusal = ""
        self.pair.node.declare(
            [
                Parameter("seed", 1, "of every noise", minimum=0),
                Parameter("robots.drone.max_vx", 5.0, minimum=0.0, maximum=20.0),
                Parameter("robots.drone.name", "drone"),
                Parameter("robots.rover.max_v", 2.0),
                Parameter("use_sim_time", False),
                Parameter("version", "1", read_only=True),
                Parameter("wind", [0.0, 0.0, 0.0], maximum=50.0),
            ],
            self.on_set,
        )

    def on_set(self, changes: Mapping[str, Value]) -> str:
        self.taken.append(changes)
        return self.refusal

    def ask(self, service: str, **request: Any) -> Any:
        kind = "".join(part.capitalize() for part in service.split("_"))
        return self.pair.peer.call(f"/microsim/{service}", f"rcl_interfaces/srv/{kind}", request)

    def set(self, **values: Any) -> list[tuple[bool, str]]:
        results = self.ask(
            "set_parameters", parameters=[message(name, value) for name, value in values.items()]
        ).results
        return [(result.successful, result.reason) for result in results]

    def get(self, name: str) -> Any:
        return self.ask("get_parameters", names=[name]).values[0]


def message(name: str, value: Any) -> dict[str, Any]:
    fields = {bool: (1, "bool_value"), int: (2, "integer_value"), float: (3, "double_value"), str: (4, "string_value")}
    kind, field = (8, "double_array_value") if isinstance(value, list) else fields[type(value)]
    return {"name": name.replace("__", "."), "value": {"type": kind, field: value}}


def test_parameters_are_got_with_their_types() -> None:
    node = Node()
    assert (node.get("seed").type, node.get("seed").integer_value) == (2, 1)
    assert node.get("robots.drone.max_vx").double_value == 5.0
    assert node.get("wind").double_array_value.tolist() == [0.0, 0.0, 0.0]
    assert node.get("nope").type == 0
    assert node.ask("get_parameter_types", names=["seed", "nope", "version"]).types.tolist() == [2, 0, 4]


def test_a_change_is_asked_for_shown_and_announced() -> None:
    node = Node()
    assert node.set(robots__drone__max_vx=7.5) == [(True, "")]
    assert node.taken == [{"robots.drone.max_vx": 7.5}]
    assert node.get("robots.drone.max_vx").double_value == 7.5
    node.pair.peer.poll()
    declared, changed = (wire.decode("rcl_interfaces/msg/ParameterEvent", cdr) for cdr in node.events)
    assert [parameter.name for parameter in declared.new_parameters][:2] == ["seed", "robots.drone.max_vx"]
    assert declared.node == "/microsim"
    assert [(p.name, p.value.double_value) for p in changed.changed_parameters] == [("robots.drone.max_vx", 7.5)]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("robots__drone__max_vx", 7, "is of type double, not integer; write it with a decimal point"),
        ("seed", 1.5, "is of type integer, not double"),
        ("seed", -1, "must be at least 0, not -1"),
        ("robots__drone__max_vx", 21.0, "must be from 0.0 to 20.0, not 21.0"),
        ("robots__drone__max_vx", float("nan"), "must be from 0.0 to 20.0, not nan"),
        ("wind", [0.0, 51.0], "must be at most 50.0"),
        ("version", "2", "cannot be set because it is read-only"),
        ("sed", 3, "cannot be set because it was not declared; did you mean 'seed'?"),
    ],
)
def test_a_bad_value_is_refused_with_a_sentence(name: str, value: Any, why: str) -> None:
    node = Node()
    (result,) = node.set(**{name: value})
    assert not result[0]
    assert why in result[1]
    assert node.taken == []


def test_the_node_may_refuse() -> None:
    node = Node()
    node.refusal = "not while running"
    assert node.set(seed=5) == [(False, "not while running")]
    assert node.get("seed").integer_value == 1


def test_each_is_set_alone_but_atomically_all_or_none() -> None:
    node = Node()
    assert [ok for ok, _ in node.set(seed=5, version="2", robots__rover__max_v=1.0)] == [True, False, True]
    messages = [message("seed", 9), message("version", "2")]
    assert not node.ask("set_parameters_atomically", parameters=messages).result.successful
    assert node.get("seed").integer_value == 5
    messages = [message("seed", 9), message("robots.rover.max_v", 3.0)]
    assert node.ask("set_parameters_atomically", parameters=messages).result.successful
    assert node.taken[-1] == {"seed": 9, "robots.rover.max_v": 3.0}


def test_a_parameter_cannot_be_undeclared() -> None:
    node = Node()
    result = node.ask("set_parameters", parameters=[{"name": "seed"}]).results[0]
    assert not result.successful
    assert "cannot be undeclared" in result.reason


@pytest.mark.parametrize(
    ("request_", "names", "prefixes"),
    [
        (
            {},
            [
                "robots.drone.max_vx",
                "robots.drone.name",
                "robots.rover.max_v",
                "seed",
                "use_sim_time",
                "version",
                "wind",
            ],
            ["robots.drone", "robots.rover"],
        ),
        ({"depth": 1}, ["seed", "use_sim_time", "version", "wind"], []),
        ({"prefixes": ["robots.drone"]}, ["robots.drone.max_vx", "robots.drone.name"], ["robots.drone"]),
        ({"prefixes": ["robots"], "depth": 1}, [], []),
        (
            {"prefixes": ["robots"], "depth": 2},
            ["robots.drone.max_vx", "robots.drone.name", "robots.rover.max_v"],
            ["robots.drone", "robots.rover"],
        ),
        ({"prefixes": ["seed", "rob"]}, ["seed"], []),
    ],
)
def test_listing_knows_prefixes_and_depth(request_: dict[str, Any], names: list[str], prefixes: list[str]) -> None:
    result = Node().ask("list_parameters", **request_).result
    assert (result.names, result.prefixes) == (names, prefixes)


def test_descriptors_say_what_is_allowed() -> None:
    seed, speed, version, nope = (
        Node().ask("describe_parameters", names=["seed", "robots.drone.max_vx", "version", "nope"]).descriptors
    )
    assert (seed.type, seed.description) == (2, "of every noise")
    assert (seed.integer_range[0].from_value, seed.integer_range[0].to_value) == (0, 2**63 - 1)
    assert (speed.floating_point_range[0].from_value, speed.floating_point_range[0].to_value) == (0.0, 20.0)
    assert version.read_only
    assert not version.floating_point_range
    assert (nope.name, nope.type) == ("nope", 0)


def test_the_node_shows_its_own_changes_without_being_asked() -> None:
    node = Node()
    node.pair.node.set_parameters({"seed": 8, "version": "2"})
    assert node.get("seed").integer_value == 8
    assert node.taken == []
    node.pair.peer.poll()
    assert len(node.events) == 2
    node.pair.node.set_parameters({"seed": 8})
    node.pair.peer.poll()
    assert len(node.events) == 2  # nothing changed
    with pytest.raises(UsageError, match="not declared"):
        node.pair.node.set_parameters({"nope": 1})
    with pytest.raises(UsageError, match="is of type integer"):
        node.pair.node.set_parameters({"seed": 1.0})


def test_unknown_transports_are_refused_with_those_there_are() -> None:
    with pytest.raises(
        UsageError, match=r"no transport 'dsd'; did you mean 'dds'.*there are: auto, dds, rclpy, memory"
    ):
        open_transport("dsd")


def test_arguments_may_come_with_or_without_the_flag_in_front() -> None:
    for front in ([], ["--ros-args"]):
        assert open_transport("memory", ros_args=[*front, "-r", "__ns:=/a"]).node_name == "/a/microsim"
