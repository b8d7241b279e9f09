"""The transport inside one process: nodes that share a `Bus` exchange messages at once, without a network.

bus = Bus()
simulator, controller = MemoryTransport("microsim", bus=bus), MemoryTransport("controller", bus=bus)
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from microsim import messages as wire
from microsim.errors import UsageError
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport import NodeEnds, OnMessage, OnRequest
from microsim.parts.ros2.transport.standalone import (
    ROSOUT_TOPIC,
    NotYet,
    StandaloneNode,
    answer,
    known_service,
    known_type,
)


class Bus:
    """What several memory transports share; each may run on a thread of its own."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.publishers: list[MemoryPublisher] = []
        self.subscriptions: list[_Subscription] = []
        self.changes = 0  # of the subscriptions: publishers then match again
        self.servers: dict[tuple[str, str], _MemoryServer] = {}  # by name and type


@dataclass(eq=False)
class _Subscription:
    owner: MemoryTransport
    topic: str
    type_name: str
    qos: Qos
    on_message: OnMessage
    queue: deque[bytes]
    from_others: bool

    def matches(self, publisher: MemoryPublisher) -> bool:
        """As in DDS: a reader requests no more than its writer offers."""
        offered = publisher.qos
        return (
            (self.topic, self.type_name) == (publisher.topic, publisher.type_name)
            and self.qos.reliable <= offered.reliable
            and self.qos.latched <= offered.latched
            and not (self.from_others and publisher.owner is self.owner)
        )


@dataclass(eq=False)
class _Request:
    cdr: bytes
    response: bytes = b""  # empty: not answered yet


@dataclass(eq=False)
class _MemoryServer:
    owner: MemoryTransport
    name: str
    type_name: str
    on_request: OnRequest
    queue: deque[_Request] = field(default_factory=deque)


@dataclass(eq=False)
class MemoryPublisher:
    bus: Bus
    owner: MemoryTransport
    topic: str
    type_name: str
    qos: Qos
    kept: deque[bytes]  # for late subscribers of a latched topic
    _listening: list[_Subscription] = field(default_factory=list)
    _listening_since: int = -1  # the bus's `changes` then

    def publish(self, cdr: bytes) -> None:
        with self.bus.changed:
            if self.qos.latched:
                self.kept.append(cdr)
            matched = self._matched()
            for subscription in matched:
                subscription.queue.append(cdr)
            if matched:
                self.bus.changed.notify_all()

    @property
    def subscribers(self) -> int:
        return len(self._matched())

    def _matched(self) -> list[_Subscription]:
        if self._listening_since != self.bus.changes:
            self._listening_since = self.bus.changes
            self._listening = [each for each in self.bus.subscriptions if each.matches(self)]
        return self._listening


class MemoryTransport(StandaloneNode):
    name = "memory"

    def __init__(self, node_name: str = "microsim", ros_args: Sequence[str] = (), bus: Bus | None = None) -> None:
        super().__init__(node_name, ros_args)
        self.bus = bus or Bus()
        self._thread = threading.get_ident()  # that polls
        self._asked: list[_Request] = []  # by `ask`: their answers end a wait
        self._rosout = self.publisher_at(*ROSOUT_TOPIC) if self.arguments.rosout else None

    def publisher_at(self, topic: str, type_name: str, qos: Qos) -> MemoryPublisher:
        made = MemoryPublisher(self.bus, self, topic, known_type(type_name), qos, deque(maxlen=qos.depth))
        with self.bus.changed:
            self.bus.publishers.append(made)
        return made

    def subscribe(self, topic: str, type_name: str, qos: Qos, on_message: OnMessage, from_others: bool = False) -> None:
        name, queue = self.arguments.topic(topic), deque[bytes](maxlen=qos.depth)
        made = _Subscription(self, name, known_type(type_name), qos, on_message, queue, from_others)
        with self.bus.changed:
            self.bus.subscriptions.append(made)
            self.bus.changes += 1
            if qos.latched:
                for publisher in self.bus.publishers:
                    queue.extend(publisher.kept if made.matches(publisher) else ())

    def peers(self, topic: str, publishers: bool) -> dict[Hashable, str]:
        name = self.arguments.topic(topic)
        with self.bus.changed:
            ends: Sequence[MemoryPublisher | _Subscription] = (
                self.bus.publishers if publishers else self.bus.subscriptions
            )
            return {id(each): each.owner.node_name for each in ends if each.topic == name and each.owner is not self}

    def described(self, node: str) -> NodeEnds | None:
        with self.bus.changed:
            reads = {each.topic for each in self.bus.subscriptions if each.owner.node_name == node}
            serves = {each.name for each in self.bus.servers.values() if each.owner.node_name == node}
            own = [each for each in self.bus.publishers if each.owner.node_name == node]
        writes = {each.topic: (each.type_name, each.qos) for each in own}
        return NodeEnds(frozenset(reads), frozenset(serves), writes) if reads or serves or writes else None

    def acquaint(self) -> Callable[[Collection[Hashable]], bool] | None:
        return lambda ends: True

    def wait_for_acks(self, timeout_s: float) -> bool:
        """Until the subscribers of other threads have taken everything; those of this thread cannot meanwhile."""
        with self.bus.changed:
            return self.bus.changed.wait_for(lambda: not any(map(self._is_behind, self.bus.subscriptions)), timeout_s)

    def has_received_all(self, timeout_s: float) -> bool:
        self.poll()
        return True

    def _is_behind(self, subscription: _Subscription) -> bool:
        if not subscription.queue or not subscription.qos.reliable:
            return False
        is_elsewhere = subscription.owner._thread != threading.get_ident()
        return is_elsewhere and any(p.owner is self and subscription.matches(p) for p in self.bus.publishers)

    def serve(self, service: str, type_name: str, on_request: OnRequest) -> None:
        name = self.arguments.service(service)
        key = name, known_service(type_name)
        with self.bus.changed:
            if key in self.bus.servers:
                raise UsageError(f"service {name} already exists")
            self.bus.servers[key] = _MemoryServer(self, name, type_name, on_request)

    def call(self, service: str, type_name: str, request: Mapping[str, Any], timeout_s: float = 5.0) -> Any:
        name = self.arguments.service(service)
        message = wire.from_mapping(f"{known_service(type_name)}_Request", request)
        pending, asked = _Request(wire.encode(f"{type_name}_Request", message)), False
        end = time.monotonic() + timeout_s
        while True:
            server = self.bus.servers.get((name, type_name))
            if server is not None and not asked:
                asked = True
                with self.bus.changed:
                    server.queue.append(pending)
                    self.bus.changed.notify_all()
            if server is not None and server.owner is not self and server.owner._thread == threading.get_ident():
                server.owner.poll()  # both are on this thread
            if pending.response:
                break
            if time.monotonic() > end:
                raise TimeoutError(f"service {name}: " + ("no answer" if asked else "there is no server"))
            self.poll(0.01)
        return wire.decode_checked(f"{type_name}_Response", pending.response)

    def ask(self, service: str, type_name: str, request: Mapping[str, Any]) -> Callable[[], Any] | None:
        message = wire.from_mapping(f"{known_service(type_name)}_Request", request)
        pending = _Request(wire.encode(f"{type_name}_Request", message))
        with self.bus.changed:
            server = self.bus.servers.get((self.arguments.service(service), type_name))
            if server is None:
                return None
            server.queue.append(pending)
            self._asked.append(pending)
            self.bus.changed.notify_all()
        return lambda: wire.decode_checked(f"{type_name}_Response", pending.response) if pending.response else None

    def poll(self, timeout_s: float = 0.0) -> None:
        self._thread = threading.get_ident()
        with self.bus.changed:
            if timeout_s > 0 and not self._has_work():
                self.bus.changed.wait_for(self._has_work, timeout_s)
            self._asked = [each for each in self._asked if not each.response]
            subscriptions = [s for s in self.bus.subscriptions if s.owner is self and s.queue]
            servers = [s for s in self.bus.servers.values() if s.owner is self and s.queue]
        for subscription in subscriptions:
            # what callbacks publish meanwhile waits for the next poll
            for _ in range(len(subscription.queue)):
                subscription.on_message(subscription.queue.popleft())
        if subscriptions:
            with self.bus.changed:
                self.bus.changed.notify_all()  # who waits for them to be taken
        for server in servers:
            for _ in range(len(server.queue)):
                self._answer(server, server.queue.popleft())

    def _has_work(self) -> bool:
        messages = any(s.owner is self and s.queue for s in self.bus.subscriptions)
        requests = any(s.owner is self and s.queue for s in self.bus.servers.values())
        return messages or requests or any(each.response for each in self._asked)

    def _answer(self, server: _MemoryServer, pending: _Request) -> None:
        request = wire.decode_checked(f"{server.type_name}_Request", pending.cdr)
        try:
            response = answer(
                server.type_name,
                server.on_request,
                request,
                lambda why: self.log("error", f"service {server.name}: {why}"),
            )
        except NotYet:
            server.queue.append(pending)
            return
        with self.bus.changed:
            pending.response = response
            self.bus.changed.notify_all()

    def close(self) -> None:
        with self.bus.changed:
            self.bus.publishers = [p for p in self.bus.publishers if p.owner is not self]
            self.bus.subscriptions = [s for s in self.bus.subscriptions if s.owner is not self]
            self.bus.changes += 1
            self.bus.servers = {key: s for key, s in self.bus.servers.items() if s.owner is not self}
