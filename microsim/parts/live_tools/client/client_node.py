"""The node that `connect()` gives: topics, services, actions, parameters, transforms and time of any ROS 2 network.

A thread of its own polls the transport and runs callbacks. Everything that touches DDS runs there, see `_do`; methods
can be called from any thread.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from microsim import messages as wire
from microsim.errors import UsageError
from microsim.messages.topics import DEFAULT_QOS, Qos
from microsim.messages.type_files import add_types, find_type, no_type
from microsim.parts.live_tools.client.reasons import (
    not_found,
    participants_on_this_machine,
    why_no_subscriber,
    why_silent,
)
from microsim.parts.live_tools.client.subscription import Subscription
from microsim.parts.ros2.transport.dds import Client, DdsPublisher, DdsTransport
from microsim.parts.ros2.transport.dds_domain import domain_id
from microsim.parts.ros2.transport.graph_view import GraphEndpoint, GraphView

if TYPE_CHECKING:
    from microsim.parts.live_tools.client.remote_node import GoalOutcome, RemoteParameters
    from microsim.parts.live_tools.client.transform_buffer import Transform, TransformBuffer

T = TypeVar("T")
CLOSED = "the connection is closed"
POLL_S = 0.2
RETRY_S = 0.002  # while a call waits for its server
LEAST_S = 0.2  # after the start, until all participants have been discovered
DISCOVERY_S = 5.0  # longest wait for all that they have announced, on a busy machine
_NAME = re.compile(r"~?/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*", re.ASCII)


class PendingCall:
    """A request that waits for its server or for the answer."""

    def __init__(self, client: Client, request: Any, end_s: float | None, named: Callable[[bool], str]) -> None:
        self.future: Future[Any] = Future()
        self._client, self._request, self._end_s, self._named = client, request, end_s, named
        self.number: int | None = None

    def advance(self) -> bool:
        """Whether it is over."""
        try:
            return self._advance()
        except Exception as error:  # whatever it is, the caller waits for it
            self.future.set_exception(error)
            return True

    def _advance(self) -> bool:
        if self.future.cancelled():
            return True
        if self.number is None and self._client.is_ready():
            self.number = self._client.send(self._request)
        answer = self._client.answer(self.number) if self.number is not None else None
        is_late = self._end_s is not None and time.monotonic() > self._end_s
        if answer is None and not is_late:
            return False
        if self.number is not None:
            self._client.forget(self.number)
        if answer is not None:
            self.future.set_result(answer)
        else:
            self.future.set_exception(TimeoutError(self._named(self.number is not None)))
        return True


class ClientPublisher:
    """`publish` takes a mapping or a message."""

    def __init__(self, node: ClientNode, publisher: DdsPublisher, topic: str, type_name: str, qos: Qos) -> None:
        self.topic, self.type, self.qos = topic, type_name, qos
        self._node, self._publisher = node, publisher

    def publish(self, values: Mapping[str, Any] | Any) -> None:
        cdr = wire.encode(self.type, self._node.message(self.type, values))
        self._node.do(lambda: self._publisher.publish(cdr))

    @property
    def subscribers(self) -> int:
        return self._node.do(lambda: self._publisher.subscribers)

    def wait_for_subscriber(self, timeout: float = 5.0, count: int = 1) -> bool:
        """Whether there is one, or as many, within that time."""
        return self._node.wait_until(lambda: self._publisher.subscribers >= count, timeout)

    def wait_for_acks(self, timeout: float = 1.0) -> bool:
        """Whether all reliable subscribers have received everything within that time."""
        return self._publisher.writer.wait_for_acks(timeout)

    def why_no_subscriber(self) -> list[str]:
        """Why it is not received, as sentences; empty if it is."""
        return self._node.do(lambda: why_no_subscriber(self._node.view, self.topic, self.type, self.qos))


class ClientNode:
    def __init__(self, name: str, types: Sequence[str | Path], ros_args: Sequence[str], scout: Any = None) -> None:
        for folder in types:
            add_types(folder)
        arguments = [*(["--ros-args"] if "--ros-args" not in ros_args else []), *ros_args]
        silent = ["--ros-args", "--disable-rosout-logs", "--disable-stdout-logs"]
        self._is_named = bool(name)
        self._offers_parameters = False
        name = name or f"_microsim_{os.getpid()}"
        self._transport = DdsTransport(name, [*arguments, *silent], reports_types=False)
        self._scout = scout  # is found by others as long as it is kept
        self.name = self._transport.node_name
        self.graph = self._transport.graph
        self.view = GraphView(self.graph, self._on_change)
        self._commands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._calls: list[PendingCall] = []
        self._subscriptions: list[Subscription] = []
        self._publishers: dict[tuple[str, str], ClientPublisher] = {}
        self._transforms: TransformBuffer | None = None
        self._clock: Subscription | None = None
        self._has_news = threading.Condition()
        self._ring = self.graph.bell(lambda: None)
        self._is_open, self._lock = True, threading.Lock()
        self._thread = threading.Thread(target=self._spin, name="microsim-client", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    # ---- the thread

    def _spin(self) -> None:
        try:
            while self._is_open:
                self._turn(POLL_S)
        finally:
            self._leave()

    def _leave(self) -> None:
        """From now on, this thread cannot be waited for."""
        with self._lock:
            self._is_open = False
        for subscription in list(self._subscriptions):
            subscription.end()
        for call in self._calls:
            call.future.cancel()
        while self._commands:
            self._commands.popleft()[1].cancel()
        self._scout = None
        self._transport.close()

    def _turn(self, timeout_s: float) -> None:
        while self._commands:
            work, future = self._commands.popleft()
            try:
                future.set_result(work())
            except BaseException as error:  # for the caller
                future.set_exception(error)
        self._calls = [call for call in self._calls if not call.advance()]
        is_searching = any(call.number is None for call in self._calls)
        self._transport.poll(RETRY_S if is_searching else timeout_s)
        with self._has_news:
            self._has_news.notify_all()

    def _on_change(self, topics: set[str]) -> None:
        for subscription in list(self._subscriptions):
            if f"rt{subscription.topic}" in topics:
                subscription.adapt()

    def guarded(self, callback: Callable[[Any], Any], message: Any) -> None:
        """Call a user's function: its errors are printed, and the node continues."""
        try:
            callback(message)
        except Exception:  # whatever a user's function raises
            traceback.print_exc(file=sys.stderr)

    def do(self, work: Callable[[], T]) -> T:
        """Run it on the node's thread and give its result."""
        if threading.current_thread() is self._thread:
            return work()
        future: Future[T] = Future()
        with self._lock:
            if not self._is_open:
                raise UsageError(CLOSED)
            self._commands.append((work, future))
        self._ring()
        try:
            return future.result()
        except CancelledError:
            raise UsageError(CLOSED) from None

    def wait_until(self, condition: Callable[[], T], timeout: float) -> T:
        """Until it gives something true, or the time is over; its last result."""
        end = time.monotonic() + timeout
        while True:
            begun_s = time.monotonic()
            found = self.do(condition)
            now_s = time.monotonic()
            if found or now_s >= end:
                return found
            if threading.current_thread() is self._thread:
                self._transport.poll(min(end - now_s, 0.05))
                continue
            with self._has_news:
                self._has_news.wait(min(end - now_s, 0.05))
            time.sleep(min(now_s - begun_s, 0.1))  # the more there is to look through, the less often

    def forbid_waiting(self) -> None:
        if threading.current_thread() is self._thread:
            raise UsageError("a callback cannot wait for messages: it runs on the thread that receives them")

    def close(self) -> None:
        """Leave the network: subscriptions end, calls are cancelled."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
        if was_open:
            atexit.unregister(self.close)
            if threading.current_thread() is not self._thread:
                self._ring()
                self._thread.join(5.0)

    def __enter__(self) -> ClientNode:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> ClientNode:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.to_thread(self.close)

    # ---- the graph

    def settle(self, timeout: float = DISCOVERY_S) -> None:
        """Wait until the nodes that are there have been discovered."""
        self.wait_until(self._is_settled, timeout)

    def _is_settled(self) -> bool:
        """A neighbour whose ports are open, but who has not answered yet, is waited for."""
        return self.view.is_settled(LEAST_S) and (
            bool(self.view.others()) or participants_on_this_machine()[domain_id()] <= 1  # this node alone
        )

    def topics(self) -> dict[str, list[str]]:
        """Name -> types."""
        self.settle()
        return self.do(self.view.topics)

    def services(self) -> dict[str, list[str]]:
        self.settle()
        return self.do(self.view.services)

    def actions(self) -> dict[str, list[str]]:
        self.settle()
        return self.do(self.view.actions)

    def nodes(self) -> list[str]:
        self.settle()
        return [name for name in self.do(self.view.node_names) if name != self.name]

    def node_name(self, name: str) -> str:
        """The whole name of a node that is there; UsageError lists those that are."""
        whole = name if name.startswith("/") else f"/{name}"
        own = {self.name} - {whole}  # users look for other nodes
        self._found("node", whole, lambda: {each: ["node"] for each in self.view.node_names() if each not in own}, None)
        return whole

    def endpoints(self, select: Callable[[GraphView], list[GraphEndpoint]]) -> list[tuple[str, GraphEndpoint]]:
        """Endpoints and the nodes that they belong to."""
        return self.do(lambda: [(self.view.owner(each), each) for each in select(self.view)])

    def owners(self, endpoint: str, is_writer: bool) -> list[str]:
        """Nodes that write or read something by its name in DDS, such as the requests of a service."""
        return sorted({owner for owner, _ in self.endpoints(lambda view: view.at(endpoint, is_writer))} - {""})

    def absolute(self, name: str, what: str = "topic") -> str:
        """A name of a topic, service or action with its namespace, remapped."""
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not the name of a {what}: letters, digits, _ and /, no digit first")
        resolve = self._transport.arguments.topic if what == "topic" else self._transport.arguments.service
        return resolve(f"/{name}" if name.startswith("/") else name)

    def _found(
        self, what: str, name: str, names: Callable[[], Mapping[str, list[str]]], timeout: float | None
    ) -> list[str]:
        """The types of a name, once it is there; UsageError lists what is. None: it must be there already."""

        def is_over() -> list[str] | bool:
            return names().get(name) or (timeout is None and self._is_settled())

        types = self.wait_until(is_over, DISCOVERY_S if timeout is None else timeout)
        if isinstance(types, list):
            return types
        raise UsageError(self.do(lambda: not_found(what, name, names(), self.view)))

    def _one_type(self, what: str, name: str, found: Sequence[str]) -> str:
        if len(found) > 1:
            raise UsageError(f"{what} {name} has several types: {', '.join(found)}; name one of them")
        return found[0]

    def type_name(self, name: str, kind: str = "msg") -> str:
        """`geometry_msgs/Twist` as geometry_msgs/msg/Twist; UsageError where it is not known."""
        parts = name.split("/")
        full = f"{parts[0]}/{kind}/{parts[1]}" if len(parts) == 2 else name
        if not find_type(full):
            raise no_type(full)
        return full

    # ---- topics

    def type_of(self, topic: str, timeout: float | None = None) -> str:
        """The type of a topic that is there."""
        return self._one_type("topic", topic, self.types_of(topic, timeout))

    def types_of(self, topic: str, timeout: float | None = None) -> list[str]:
        """Publishers and subscribers may disagree."""
        return self._found("topic", self.absolute(topic), self.view.topics, timeout)

    def types_of_service(self, service: str) -> list[str]:
        return self._found("service", self.absolute(service, "service"), self.view.services, None)

    def types_of_action(self, action: str) -> list[str]:
        return self._found("action", self.absolute(action, "action"), self.view.actions, None)

    def subscribe(
        self, topic: str, callback: Callable[[Any], Any] | None = None, *,
        type: str = "", qos: Qos | None = None, depth: int = 10, raw: bool = False, timeout: float | None = 5.0,
    ) -> Subscription:  # fmt: skip
        """Receive a topic: iterate over the result, or give a callback, which runs on the node's thread.

        Quality of service adapts to the publishers unless `qos` is given. Without `type` it is that of the topic, which
        must appear within `timeout` (None: it must be there). `raw`: `Received` (bytes, time of arrival), not messages.
        """
        name = self.absolute(topic)
        type_name = self.type_name(type or self.type_of(topic, timeout))
        subscription = Subscription(self, name, type_name, callback, qos, depth, raw)

        def begin() -> Subscription:
            self._subscriptions.append(subscription)
            subscription.adapt()
            return subscription

        return self.do(begin)

    def end_subscription(self, subscription: Subscription) -> None:
        def end() -> None:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
                subscription.end()

        if self._is_open:
            self.do(end)

    def why_silent(self, subscription: Subscription) -> list[str]:
        topic, type_name, qos = subscription.topic, subscription.type, subscription.demanded
        return self.do(lambda: why_silent(self.view, topic, type_name, qos))

    def publisher(
        self, topic: str, type: str = "", qos: Qos | None = None, timeout: float | None = 5.0
    ) -> ClientPublisher:
        """Without `type` it is that of the topic, which must appear within `timeout`."""
        name = self.absolute(topic)
        type_name = self.type_name(type or self._type_to_send(name, timeout))

        def make() -> ClientPublisher:
            if self._is_named and not self._offers_parameters:  # as every node of ROS 2; lockstep asks through them
                # requests of Fast DDS come through another socket and thread than messages do
                self._offers_parameters = self._transport.takes_messages_first = True
                self._transport.declare([], lambda changes: "")
            if (name, type_name) not in self._publishers:
                latched = any(each.qos.latched for each in self.view.on(name, is_writer=False))
                chosen = qos or Qos(DEFAULT_QOS.depth, latched=latched)
                made = self._transport.publisher_at(name, type_name, chosen)
                self._publishers[name, type_name] = ClientPublisher(self, made, name, type_name, chosen)
            return self._publishers[name, type_name]

        return self.do(make)

    def _type_to_send(self, topic: str, timeout: float | None) -> str:
        """That of the subscribers, where publishers differ."""
        found = self._found("topic", topic, self.view.topics, timeout)
        expected = sorted({each.type for each in self.do(lambda: self.view.on(topic, is_writer=False))})
        return self._one_type("topic", topic, expected or found)

    def publish(self, topic: str, values: Mapping[str, Any] | Any, type: str = "") -> None:
        """Send a mapping or a message. The first time, wait up to a second for a subscriber."""
        is_new = not any(key[0] == self.absolute(topic) for key in self._publishers)
        publisher = self.publisher(topic, type or getattr(values, "__msgtype__", ""))
        if is_new:
            publisher.wait_for_subscriber(1.0)
        publisher.publish(values)

    def message(self, type: str, values: Mapping[str, Any] | Any = (), **fields: Any) -> Any:
        """A message with these fields, nested ones as mappings, and every other at its default."""
        name = self.type_name(type)
        given = values or {}
        if isinstance(given, Mapping):
            return wire.from_mapping(name, {**given, **fields}, defaults=True)
        if getattr(given, "__msgtype__", None) != name:
            raise UsageError(f"expected a mapping or a {name}, found {getattr(given, '__msgtype__', given)!r}")
        return given

    # ---- services and actions

    def call(
        self, service: str, request: Mapping[str, Any] | None = None, *, type: str = "", timeout: float | None = 5.0
    ) -> Any:
        """Call a service and give its response; TimeoutError names the server that did not answer."""
        future = self.begin_call(service, request, type=type, timeout=timeout)
        while threading.current_thread() is self._thread and not future.done():
            self._turn(RETRY_S)
        return future.result()

    async def call_async(
        self, service: str, request: Mapping[str, Any] | None = None, *, type: str = "", timeout: float | None = 5.0
    ) -> Any:
        future = await asyncio.to_thread(self.begin_call, service, request, type=type, timeout=timeout)
        return await asyncio.wrap_future(future)

    def begin_call(
        self, service: str, request: Mapping[str, Any] | None = None, *, type: str = "", timeout: float | None = 5.0
    ) -> Future[Any]:
        """Its future."""
        name = self.absolute(service, "service")
        found = self._found("service", name, self.view.services, None)
        # any of several types works: the server answers to all of them
        kind = self.type_name(type or next((each for each in found if find_type(each)), found[0]), "srv")
        if kind not in found:
            raise UsageError(f"service {name} has the type {', '.join(found)}, not {kind}")
        values = wire.from_mapping(f"{kind}_Request", request or {}, defaults=True)
        end_s = None if timeout is None else time.monotonic() + timeout

        def begin() -> Future[Any]:
            named = lambda was_sent: self._no_answer(name, was_sent, timeout or 0.0)  # noqa: E731
            call = PendingCall(self._transport.client(name, kind), values, end_s, named)
            self._calls.append(call)
            return call.future

        return self.do(begin)

    def _no_answer(self, service: str, was_sent: bool, timeout: float) -> str:
        servers = {self.view.owner(each) for each in self.view.at(f"rq{service}Request", is_writer=False)} - {""}
        who = f" of {', '.join(sorted(servers))}" if servers else ""
        return f"service {service}{who}: {'no answer' if was_sent else 'cannot be reached'} within {timeout:g} s"

    def send_goal(
        self, action: str, goal: Mapping[str, Any] | None = None, *, type: str = "",
        on_feedback: Callable[[Any], Any] | None = None, timeout: float | None = None,
    ) -> GoalOutcome:  # fmt: skip
        """Send a goal to an action and wait for its result, for `timeout` seconds at most; then it is cancelled."""
        from microsim.parts.live_tools.client.remote_node import send_goal

        name = self.absolute(action, "action")
        found = self._found("action", name, self.view.actions, None)
        kind = (
            self.type_name(type, "action") if type else self.type_name(self._one_type("action", name, found), "action")
        )
        return send_goal(self, name, kind, goal or {}, on_feedback, timeout)

    def parameters(self, node: str, timeout: float = 5.0) -> RemoteParameters:
        """The parameters of a node: `node.parameters("/microsim")["seed"]`. `timeout`: of each of its answers."""
        from microsim.parts.live_tools.client.remote_node import RemoteParameters

        return RemoteParameters(self, self.node_name(node), timeout)

    # ---- transforms and time

    @property
    def transforms(self) -> TransformBuffer:
        """All that arrives on /tf and /tf_static from the first use on."""
        from microsim.parts.live_tools.client.transform_buffer import TransformBuffer

        if self._transforms is None:
            self._transforms = TransformBuffer(self)
        return self._transforms

    def lookup_transform(self, target: str, source: str, time_ns: int | None = None, timeout: float = 1.0) -> Transform:
        """From the frame `source` into the frame `target`, at a time or the latest; waits for it."""
        return self.transforms.lookup(target, source, time_ns, timeout)

    def time_ns(self, timeout: float = 5.0) -> int:
        """Simulated time, from /clock."""
        if self._clock is None:
            self._clock = self.subscribe("/clock", type="rosgraph_msgs/msg/Clock", depth=1)
        message = self._clock.latest() or self._clock.get(timeout)
        return int(message.clock.sec) * 10**9 + int(message.clock.nanosec)

    def sleep(self, seconds: float) -> None:
        """For this much simulated time; ends when the simulation is reset."""
        start = now = self.time_ns()
        assert self._clock is not None
        while start <= now < start + round(seconds * 1e9):
            clock = self._clock.get(None).clock
            now = int(clock.sec) * 10**9 + int(clock.nanosec)
