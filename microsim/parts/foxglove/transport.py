"""Live view in Foxglove: a transport for the node, so that topics, inputs, services and parameters are the node's.

The transport is a WebSocket server of the Foxglove SDK. It is opened by the first `poll`, when the node has made its
topics and services, so that a client finds all of them as soon as it can connect. The SDK calls from its own threads.
What clients send is put into a bounded queue, and `poll` works on it in the thread of the run. Messages are handed to
the SDK, which drops the oldest where a client is too slow.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotAnswered  # of its own before Python 3.11
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from microsim import messages as wire
from microsim.documents.json_text import read_json
from microsim.errors import MicroSimError, MissingExtraError, UsageError, install_hint
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport import LogLevel, OnMessage, OnRequest, Publisher
from microsim.parts.ros2.transport.standalone import (
    ROSOUT_TOPIC,
    NotYet,
    StandaloneNode,
    answer,
    known_service,
    known_type,
)
from microsim.recording.bag_model import definition

PORT = 8765  # what Foxglove connects to by default
_BACKLOG = 256  # messages that wait for a slow client; then the oldest is dropped
_MOST_WAITING = 1000  # messages and requests of clients; more are dropped
_MOST_BYTES = 1 << 20  # of a message of a client
_ANSWER_S = 5.0  # after which a request of a client fails
_CLOCK = "/clock"
_ACTION = "/_action/"  # in the names of an action's topics and services


class FoxglovePublisher:
    def __init__(self, owner: FoxgloveTransport, topic: str, type_name: str, qos: Qos) -> None:
        from foxglove import Channel

        self._owner, self._is_clock = owner, topic == _CLOCK
        self.channel = Channel(topic, message_encoding="cdr", schema=_schema(type_name), context=owner.context)
        self.kept: deque[bytes] = deque(maxlen=qos.depth if qos.latched else 0)  # for clients that come later

    def publish(self, cdr: bytes) -> None:
        if self._is_clock:
            self._owner.set_time(cdr)
        self.kept.append(cdr)
        if self.channel.has_sinks():
            self.channel.log(cdr, log_time=self._owner.now_ns)

    def repeat(self) -> None:
        for cdr in self.kept:
            self.channel.log(cdr, log_time=self._owner.now_ns)

    @property
    def subscribers(self) -> int:
        return int(self.channel.has_sinks())


class SilentPublisher:
    """Of an action, which Foxglove does not have."""

    subscribers = 0

    def publish(self, cdr: bytes) -> None:
        pass


class FoxgloveTransport(StandaloneNode):
    name = "foxglove"
    serves_many_types = False

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = PORT,
        ros_args: Sequence[str] = (),
        opened: Callable[[int], None] = lambda port: None,
    ) -> None:
        if find_spec("foxglove") is None:
            raise MissingExtraError(f"Foxglove needs the package foxglove-sdk: {install_hint('foxglove')}")
        import foxglove

        super().__init__("microsim", ros_args)
        self._place, self._opened = (host, port), opened
        self._check_place()
        self.context = foxglove.Context()
        self.now_ns = 0  # simulated time
        self.dropped = 0  # messages of clients that were too many or too large
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], bool]] = deque()  # in the order of arrival; True: done
        self._arrived = False  # something new, since the last poll
        self._inputs: dict[str, tuple[str, OnMessage]] = {}  # topic -> its type, and who takes it
        self._publishers: dict[int, FoxglovePublisher] = {}  # by channel
        self._last_refusal_s: dict[str, float] = {}  # by topic
        self._services: dict[str, Any] = {}
        self._server: Any = None  # of the SDK, once it is open
        self._rosout = self.publisher_at(*ROSOUT_TOPIC) if self.arguments.rosout else None

    @property
    def port(self) -> int:
        return int(self._server.port)

    def _check_place(self) -> None:
        """An address that cannot be used is refused before anything is prepared for the run."""
        with self._refused(), socket.socket(socket.AF_INET6 if ":" in self._place[0] else socket.AF_INET) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(self._place)

    @contextmanager
    def _refused(self) -> Iterator[None]:
        host, port = self._place
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            why = f"{error}; choose another port, such as --foxglove {port + 1}"
            raise UsageError(f"Foxglove cannot be served on {host}:{port}: {why}") from None

    def _open(self) -> None:
        import foxglove
        from foxglove.websocket import Capability

        host, port = self._place
        can = [Capability.ClientPublish, Capability.Services, Capability.Parameters, Capability.Time]
        with self._refused():
            self._server = foxglove.start_server(
                name="MicroSim", host=host, port=port, capabilities=can, supported_encodings=["cdr", "json"],
                server_listener=FoxgloveListener(self), context=self.context, message_backlog_size=_BACKLOG,
                services=list(self._services.values()),
            )  # fmt: skip
        self._opened(self.port)

    # ---- what the node uses ------------------------------------------------------------------------------------------

    def publisher_at(self, topic: str, type_name: str, qos: Qos) -> Publisher:
        if _ACTION in topic:
            return SilentPublisher()
        made = FoxglovePublisher(self, topic, known_type(type_name), qos)
        self._publishers[made.channel.id()] = made
        return made

    def subscribe(self, topic: str, type_name: str, qos: Qos, on_message: OnMessage, from_others: bool = False) -> None:
        self._inputs[self.arguments.topic(topic)] = (known_type(type_name), on_message)

    def serve(self, service: str, type_name: str, on_request: OnRequest) -> None:
        """Under one type: names are unique in Foxglove."""
        import foxglove

        name = self.arguments.service(service)
        if name in self._services or _ACTION in name:
            return
        parts = {
            part.lower(): foxglove.MessageSchema(encoding="cdr", schema=_schema(f"{known_service(type_name)}_{part}"))
            for part in ("Request", "Response")
        }
        schema = foxglove.ServiceSchema(type_name, **parts)

        def handle(request: Any) -> bytes:
            cdr = self._encoded(f"{type_name}_Request", request.encoding, bytes(request.payload))
            decoded = wire.decode_checked(f"{type_name}_Request", cdr)
            log = lambda why: self.log("error", f"service {name}: {why}")  # noqa: E731
            response: bytes = self.on_run(lambda: answer(type_name, on_request, decoded, log), f"service {name}")
            return response

        self._services[name] = foxglove.Service(name, schema=schema, handler=handle)
        if self._server is not None:
            self._server.add_services([self._services[name]])

    def call(self, service: str, type_name: str, request: Mapping[str, Any], timeout_s: float = 5.0) -> Any:
        raise TimeoutError(f"service {service}: Foxglove does not offer services")

    def wait_for_acks(self, timeout_s: float) -> bool:
        return True

    def poll(self, timeout_s: float = 0.0) -> None:
        if self._server is None:
            self._open()
        with self._changed:
            if timeout_s > 0 and not self._arrived:  # what could not be done yet is tried again soon
                self._changed.wait(min(timeout_s, 0.01) if self._jobs else timeout_s)
            self._arrived = False
            jobs, self._jobs = self._jobs, deque()
        for job in jobs:
            if not job():
                self._jobs.append(job)

    def publish_status(self, text: str, level: Any) -> None:
        self._server.publish_status(text, level)

    def log(self, level: LogLevel, text: str) -> None:
        """Warnings and errors are shown in Foxglove too, where the one who sent something wrong is looking."""
        super().log(level, text)
        if level in ("warn", "error") and self._server is not None:
            from foxglove import StatusLevel

            self.publish_status(text, StatusLevel.Warning if level == "warn" else StatusLevel.Error)

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()

    # ---- time --------------------------------------------------------------------------------------------------------

    def set_time(self, clock: bytes) -> None:
        seconds, nanoseconds = struct.unpack_from("<iI", clock, 4)
        before, self.now_ns = self.now_ns, seconds * 10**9 + nanoseconds
        if self._server is None:
            return
        if self.now_ns < before:  # after a reset: what clients show is of another run
            self._server.clear_session()
        self._server.broadcast_time(self.now_ns)

    # ---- what clients send, on threads of the SDK --------------------------------------------------------------------

    def later(self, job: Callable[[], bool]) -> None:
        """Done by the run at its next poll; what is too much is dropped."""
        with self._changed:
            if len(self._jobs) >= _MOST_WAITING:
                self.dropped += 1
                return
            self._jobs.append(job)
            self._arrived = True
            self._changed.notify_all()

    def on_run(self, work: Callable[[], Any], what: str) -> Any:
        """Its result, from the thread of the run."""
        result: Future[Any] = Future()
        give_up_s = time.monotonic() + _ANSWER_S

        def job() -> bool:
            try:
                result.set_result(work())
            except NotYet:
                return time.monotonic() > give_up_s
            except Exception as error:  # for the client, not for the run
                result.set_exception(error)
            return True

        self.later(job)
        try:
            return result.result(_ANSWER_S)
        except NotAnswered:
            raise TimeoutError(f"{what}: the run has not answered within {_ANSWER_S:g} s") from None

    def receive(self, topic: str, encoding: str, data: bytes) -> None:
        """A message of a client; one that cannot be read is warned about, as from ROS 2."""
        if topic not in self._inputs:
            self.dropped += 1
            return
        type_name, on_message = self._inputs[topic]
        size = len(data)
        if size > _MOST_BYTES:
            self.dropped, data = self.dropped + 1, b""  # not kept until it is reported

        def job() -> bool:
            if size > _MOST_BYTES:
                self._refuse(topic, f"messages have {_MOST_BYTES} bytes at most, this one has {size}")
                return True
            try:
                on_message(self._encoded(type_name, encoding, data))
            except MicroSimError as error:
                self._refuse(topic, str(error))
            return True

        self.later(job)

    def _refuse(self, topic: str, why: str) -> None:
        """At most once a second of each topic."""
        now = time.monotonic()
        if now - self._last_refusal_s.get(topic, -1.0) >= 1.0:
            self._last_refusal_s[topic] = now
            self.log("warn", f"{topic}: ignored: {why}")

    def subscribed(self, channel: int) -> None:
        """A client may have missed what is sent once."""

        def job() -> bool:
            if channel in self._publishers:
                self._publishers[channel].repeat()
            return True

        self.later(job)

    def problem_with(self, topic: str, schema_name: str) -> str:
        """Why a client cannot publish there; empty: it can."""
        if topic not in self._inputs:
            from microsim.errors import unknown

            return unknown("the simulation does not subscribe to", topic, topic, sorted(self._inputs))
        expected = self._inputs[topic][0]
        is_same = schema_name.replace("/msg/", "/") in ("", expected.replace("/msg/", "/"))
        return "" if is_same else f"{topic} has the type {expected}, not {schema_name}"

    @staticmethod
    def _encoded(type_name: str, encoding: str, data: bytes) -> bytes:
        if encoding != "json":
            return data
        values = read_json(data.decode("utf-8", "replace"), type_name).data
        if not isinstance(values, dict):
            raise UsageError(f"expected a JSON object for a {type_name}")
        try:
            return wire.encode(type_name, wire.from_mapping(type_name, values))
        except (TypeError, ValueError, AttributeError, struct.error) as error:
            raise UsageError(f"not a {type_name}: {error}") from None

    # ---- parameters: through the services that every node has --------------------------------------------------------

    def parameter_values(self, names: Sequence[str]) -> list[Any]:
        from foxglove import Parameter

        wanted = list(names) or list(self._ask("list_parameters").result.names)
        values = self._ask("get_parameters", names=wanted).values
        return [Parameter(name, value=_plain(value)) for name, value in zip(wanted, values, strict=True) if value.type]

    def set_values(self, parameters: Sequence[Any]) -> list[Any]:
        """Gives what holds afterwards; a refused value is warned about."""
        from foxglove import StatusLevel

        for parameter in parameters:
            given = {"name": parameter.name, "value": self._value_message(parameter.name, parameter.get_value())}
            made = [wire.from_mapping("rcl_interfaces/msg/Parameter", given)]
            result = self._ask("set_parameters", parameters=made).results[0]
            if not result.successful:
                self.publish_status(result.reason, StatusLevel.Error)
        return self.parameter_values([parameter.name for parameter in parameters])

    def _ask(self, service: str, **request: Any) -> Any:
        assert self._parameters is not None
        type_name, handler = self._parameters.services()[service]
        response = wire.new(f"{type_name}_Response")
        handler(wire.from_mapping(f"{type_name}_Request", request), response)
        return response

    def _value_message(self, name: str, value: Any) -> Any:
        """Of the declared type where that is a number or list of numbers: JSON has one kind of number."""
        kind = int(self._ask("get_parameter_types", names=[name]).types[0])
        fitting = _as_float(value) if kind in (3, 8) else value
        if kind not in _FIELDS or not isinstance(fitting, _KINDS[kind]) or isinstance(fitting, bool) != (kind == 1):
            kind, fitting = 4, str(value)  # which the node refuses, and says what it expects
        return wire.from_mapping("rcl_interfaces/msg/ParameterValue", {"type": kind, _FIELDS[kind]: fitting})


_FIELDS = {
    1: "bool_value", 2: "integer_value", 3: "double_value", 4: "string_value",
    6: "bool_array_value", 7: "integer_array_value", 8: "double_array_value", 9: "string_array_value",
}  # fmt: skip


_KINDS = {1: bool, 2: int, 3: float, 4: str, 6: list, 7: list, 8: list, 9: list}


def _as_float(value: Any) -> Any:
    """A number as a float, also in a list."""
    if isinstance(value, list):
        return [_as_float(each) for each in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _plain(message: Any) -> Any:
    value = getattr(message, _FIELDS[message.type])
    return value.tolist() if hasattr(value, "tolist") else value


def _schema(type_name: str) -> Any:
    from foxglove import Schema

    return Schema(name=type_name, encoding="ros2msg", data=definition(type_name)[0].encode())


class FoxgloveListener:
    """What the SDK calls; anything raised here would end in its log."""

    def __init__(self, transport: FoxgloveTransport) -> None:
        self._transport = transport
        self._channels: dict[tuple[int, int], tuple[str, str]] = {}  # client and its channel -> topic, encoding

    def on_subscribe(self, client: Any, channel: Any) -> None:
        self._transport.subscribed(channel.id)

    def on_unsubscribe(self, client: Any, channel: Any) -> None:
        pass

    def on_client_advertise(self, client: Any, channel: Any) -> None:
        from foxglove import StatusLevel

        problem = self._transport.problem_with(channel.topic, channel.schema_name or "")
        if problem:
            self._transport.publish_status(problem, StatusLevel.Warning)
        else:
            self._channels[client.id, channel.id] = channel.topic, channel.encoding

    def on_client_unadvertise(self, client: Any, client_channel_id: int) -> None:
        self._channels.pop((client.id, client_channel_id), None)

    def on_message_data(self, client: Any, client_channel_id: int, data: bytes) -> None:
        found = self._channels.get((client.id, client_channel_id))
        if found is not None:
            self._transport.receive(*found, bytes(data))

    def on_get_parameters(self, client: Any, param_names: list[str], request_id: str | None = None) -> list[Any]:
        return self._asked(lambda: self._transport.parameter_values(param_names))

    def on_set_parameters(self, client: Any, parameters: list[Any], request_id: str | None = None) -> list[Any]:
        return self._asked(lambda: self._transport.set_values(parameters))

    def on_parameters_subscribe(self, param_names: list[str]) -> None:
        pass

    def on_parameters_unsubscribe(self, param_names: list[str]) -> None:
        pass

    def _asked(self, work: Callable[[], list[Any]]) -> list[Any]:
        try:
            found: list[Any] = self._transport.on_run(work, "parameters")
        except (TimeoutError, MicroSimError) as error:
            self._transport.log("warn", f"Foxglove: {error}")
            return []
        return found
