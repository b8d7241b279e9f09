"""Several transports as one, so that a run has one node, however many ways lead to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from microsim.messages.topics import Qos
from microsim.parts.ros2.transport import LogLevel, OnMessage, OnRequest, OnSet, Parameter, Publisher, Transport, Value


class JoinedPublisher:
    def __init__(self, publishers: Sequence[Publisher]) -> None:
        self._publishers = publishers

    def publish(self, cdr: bytes) -> None:
        for each in self._publishers:
            each.publish(cdr)

    @property
    def subscribers(self) -> int:
        return sum(each.subscribers for each in self._publishers)


class JoinedTransports:
    """Two as one, so that a run on ROS 2 and in Foxglove has one node.

    `first` gives the names, answers calls, and is waited for; `second` gets everything too.
    """

    name = "joined"

    def __init__(self, first: Transport, second: Transport) -> None:
        self.first, self.second = first, second
        self.node_name, self.overrides = first.node_name, first.overrides
        self.tells_senders, self.serves_many_types = first.tells_senders, first.serves_many_types
        self.discovery_s, self.resolved = first.discovery_s, first.resolved
        self.peers, self.ask, self.described = first.peers, first.ask, first.described
        self.acquaint, self.is_acknowledged = first.acquaint, first.is_acknowledged

    def publisher(self, topic: str, type_name: str, qos: Qos) -> JoinedPublisher:
        return JoinedPublisher([each.publisher(topic, type_name, qos) for each in (self.first, self.second)])

    def subscribe(self, topic: str, type_name: str, qos: Qos, on_message: OnMessage, from_others: bool = False) -> None:
        self.second.subscribe(topic, type_name, qos, on_message, from_others)
        self.first.subscribe(topic, type_name, qos, on_message, from_others)

    def serve(self, service: str, type_name: str, on_request: OnRequest) -> None:
        self.second.serve(service, type_name, on_request)
        self.first.serve(service, type_name, on_request)

    def call(self, service: str, type_name: str, request: Mapping[str, Any], timeout_s: float = 5.0) -> Any:
        return self.first.call(service, type_name, request, timeout_s)

    def wait_for_acks(self, timeout_s: float) -> bool:
        return self.first.wait_for_acks(timeout_s)

    def has_received_all(self, timeout_s: float) -> bool:
        return self.first.has_received_all(timeout_s)

    def declare(self, parameters: Sequence[Parameter], on_set: OnSet) -> None:
        self.first.declare(parameters, lambda changes: self._set(changes, on_set, self.second))
        self.second.declare(parameters, lambda changes: self._set(changes, on_set, self.first))

    @staticmethod
    def _set(changes: Mapping[str, Value], on_set: OnSet, other: Transport) -> str:
        """What is set in one, the other shows."""
        refusal = on_set(changes)
        if not refusal:
            other.set_parameters(changes)
        return refusal

    def set_parameters(self, values: Mapping[str, Value]) -> None:
        self.first.set_parameters(values)
        self.second.set_parameters(values)

    def log(self, level: LogLevel, text: str) -> None:
        self.first.log(level, text)
        self.second.log(level, text)

    def poll(self, timeout_s: float = 0.0) -> None:
        self.second.poll()
        self.first.poll(timeout_s)
        self.second.poll()

    def close(self) -> None:
        self.second.close()
        self.first.close()
