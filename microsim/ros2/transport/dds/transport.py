"""The transport over Cyclone DDS: a node like any other on the ROS 2 network, made without ROS 2."""

from __future__ import annotations

import atexit
import time
from collections.abc import Mapping, Sequence
from typing import Any

from microsim.errors import UsageError
from microsim.messages.topics import Qos
from microsim.ros2.transport import LogLevel, OnMessage, OnRequest, OnSet, Parameter, Value
from microsim.ros2.transport.dds.fast_dds import FastDds, fast_dds_services
from microsim.ros2.transport.dds.graph import Graph
from microsim.ros2.transport.dds.services import Client, Server
from microsim.ros2.transport.node_log import (
    ROSOUT,
    ROSOUT_LIFESPAN_S,
    ROSOUT_QOS,
    ROSOUT_TYPE,
    log_message,
    now_ns,
    say,
)
from microsim.ros2.transport.parameters import EVENTS, EVENTS_TYPE, PARAMETERS_QOS, ParameterStore
from microsim.ros2.transport.requests import known_service, known_type
from microsim.ros2.transport.ros_arguments import parse_ros_arguments

LONGEST_WAIT_S = 0.2  # in the library at a stretch: Ctrl-C is noticed in between
ASK_EVERY = 32  # messages that nobody listens to
RETRY_S = 0.002  # how soon a reply is tried again whose client was not ready


class DdsPublisher:
    def __init__(self, graph: Graph, topic: str, type_name: str, qos: Qos, lifespan_s: float | None = None) -> None:
        self._graph = graph
        self._writer = graph.writer(f"rt{topic}", known_type(type_name), qos, lifespan_s=lifespan_s)
        self._is_kept = qos.latched
        self._unheard = 0  # messages nobody listened to

    def publish(self, cdr: bytes) -> None:
        """Nobody listens and nothing is to be kept: nothing to do. `poll` learns of listeners; who never polls asks."""
        if not self._graph.is_announced:
            self._graph.announce()
        if self._is_kept or self._writer.is_heard:
            self._writer.write(cdr)
            return
        self._unheard += 1
        if self._unheard % ASK_EVERY == 1 and self._writer.matched():
            self._writer.write(cdr)

    @property
    def subscribers(self) -> int:
        return self._writer.matched()


class DdsTransport:
    name = "dds"
    tells_senders = True

    def __init__(self, node_name: str = "microsim", ros_args: Sequence[str] = ()) -> None:
        self.arguments = parse_ros_arguments(ros_args, node_name)
        self.node_name = self.arguments.node_name
        self.overrides: Mapping[str, Value] = self.arguments.overrides
        arguments, warn = self.arguments, lambda text: self.log("warn", text)
        self._graph = Graph(arguments.node, arguments.namespace, arguments.enclave, warn)
        self._waiting: list[Server] = []  # with answers they could not give yet
        self._fast_dds: FastDds | None = None  # made with the first service
        self._clients: dict[tuple[str, str], Client] = {}
        self._parameters: ParameterStore | None = None
        self._rosout: DdsPublisher | None = None
        if self.arguments.rosout:
            self._rosout = DdsPublisher(self._graph, ROSOUT, ROSOUT_TYPE, ROSOUT_QOS, ROSOUT_LIFESPAN_S)
        self._is_open = True
        atexit.register(self.close)  # so that peers see the node go, not time out

    # ---- topics

    def publisher(self, topic: str, type_name: str, qos: Qos) -> DdsPublisher:
        return DdsPublisher(self._graph, self.arguments.topic(topic), type_name, qos)

    def subscribe(self, topic: str, type_name: str, qos: Qos, on_message: OnMessage, from_others: bool = False) -> None:
        def deliver() -> None:
            for cdr, _ in reader.take():
                on_message(cdr)

        name = f"rt{self.arguments.topic(topic)}"
        reader = self._graph.reader(name, known_type(type_name), qos, deliver, from_others=from_others)

    # ---- services

    def serve(self, service: str, type_name: str, on_request: OnRequest) -> None:
        name = self.arguments.service(service)
        if self._fast_dds is None:
            self._fast_dds = fast_dds_services(self._graph, self.log)
        kind = known_service(type_name)
        Server(self._graph, name, kind, on_request, self.log, self._waiting, self._fast_dds)

    def call(self, service: str, type_name: str, request: Mapping[str, Any], timeout_s: float = 5.0) -> Any:
        name, end = self.arguments.service(service), time.monotonic() + timeout_s
        client = self._client(name, known_service(type_name))
        while not client.is_ready():
            if time.monotonic() > end:
                raise TimeoutError(f"service {name}: {client.problem()}")
            self.poll(RETRY_S)
        number = client.send(request)
        try:
            while (response := client.answer(number)) is None:
                left = end - time.monotonic()
                if left < 0:
                    raise TimeoutError(f"service {name}: no answer within {timeout_s} s")
                self.poll(left)
            return response
        finally:
            client.forget(number)

    def _client(self, name: str, type_name: str) -> Client:
        key = name, type_name
        if key not in self._clients:
            self._clients[key] = Client(self._graph, name, type_name)
        return self._clients[key]

    # ---- parameters and log

    def declare(self, parameters: Sequence[Parameter], on_set: OnSet) -> None:
        if self._parameters is None:
            events = DdsPublisher(self._graph, EVENTS, EVENTS_TYPE, PARAMETERS_QOS)
            self._parameters = ParameterStore(self.node_name, events.publish)
            for name, (type_name, handler) in self._parameters.services().items():
                self.serve(f"~/{name}", type_name, handler)
        self._parameters.declare(parameters, on_set)

    def set_parameters(self, values: Mapping[str, Value]) -> None:
        if self._parameters is None:
            raise UsageError("no parameters were declared")
        self._parameters.show(values)

    def log(self, level: LogLevel, text: str) -> None:
        if not self.arguments.shows(level):
            return
        stamp_ns, logger = now_ns(), self.arguments.logger
        if self.arguments.terminal:
            say(level, logger, text, stamp_ns)
        if self._rosout is not None and self._is_open:
            self._rosout.publish(log_message(level, logger, text, stamp_ns))

    # ---- life

    def poll(self, timeout_s: float = 0.0) -> None:
        if not self._graph.is_announced:
            self._graph.announce()
        end = time.monotonic() + timeout_s if timeout_s > 0 else 0.0
        while True:
            for server in list(self._waiting):
                server.again()
            left = end - time.monotonic() if end else 0.0
            longest = RETRY_S if self._waiting else LONGEST_WAIT_S
            fired = self._graph.waiter.wait(int(min(left, longest) * 1e9) if left > 0 else 0)
            for action in fired:
                action()
            if fired or left <= 0:
                return

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            atexit.unregister(self.close)
            if self._fast_dds is not None:
                self._fast_dds.close()
            self._graph.close()
