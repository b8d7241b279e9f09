"""The transport over Cyclone DDS: a node like any other on the ROS 2 network, without an installed ROS 2."""

from __future__ import annotations

import atexit
import time
from collections.abc import Mapping, Sequence
from typing import Any

from microsim.messages.topics import Qos
from microsim.ros2.transport import OnMessage, OnRequest
from microsim.ros2.transport.dds.cdr_endpoints import CdrWriter
from microsim.ros2.transport.dds.dds_services import Client, FastDdsServices, Server, fast_dds_services
from microsim.ros2.transport.dds.graph import Graph
from microsim.ros2.transport.standalone import (
    ROSOUT,
    ROSOUT_QOS,
    ROSOUT_TYPE,
    StandaloneNode,
    known_service,
    known_type,
)

ROSOUT_LIFESPAN_S = 10.0
LONGEST_WAIT_S = 0.2  # longest single wait in the library, so that Ctrl-C is noticed
ASK_EVERY = 32  # messages without a subscriber
RETRY_S = 0.002  # how soon requests and replies that could not be handled are tried again


class DdsPublisher:
    def __init__(self, transport: DdsTransport, topic: str, type_name: str, qos: Qos, lifespan_s: float | None) -> None:
        self._transport = transport
        self.writer = transport.graph.writer(f"rt{topic}", known_type(type_name), qos, lifespan_s=lifespan_s)
        self._is_kept = qos.latched
        self._is_reliable = qos.reliable
        self._unheard = 0  # messages without a subscriber

    def publish(self, cdr: bytes) -> None:
        """Does nothing without subscribers, unless late ones get the message. `poll` notices new subscribers."""
        if not self._transport.graph.is_announced:
            self._transport.graph.announce()
        if not self._is_kept and not self.writer.is_heard:
            self._unheard += 1
            if self._unheard % ASK_EVERY != 1 or not self.writer.matched():  # for nodes that never poll
                return
        self.writer.write(cdr)
        if self._is_reliable:
            self._transport.unacknowledged[self.writer] = None

    @property
    def subscribers(self) -> int:
        return self.writer.matched()


class DdsTransport(StandaloneNode):
    name = "dds"
    tells_senders = True
    serves_many_types = True

    def __init__(self, node_name: str = "microsim", ros_args: Sequence[str] = ()) -> None:
        super().__init__(node_name, ros_args)
        arguments = self.arguments
        self.graph = Graph(arguments.node, arguments.namespace, arguments.enclave, lambda text: self.log("warn", text))
        self.unacknowledged: dict[CdrWriter, None] = {}  # written to since the last `wait_for_acks`
        self._waiting: list[Server] = []  # with answers they could not give yet
        self._fast_dds: FastDdsServices | None = None  # made with the first service
        self._clients: dict[tuple[str, str], Client] = {}
        if arguments.rosout:
            self._rosout = DdsPublisher(self, ROSOUT, ROSOUT_TYPE, ROSOUT_QOS, ROSOUT_LIFESPAN_S)
        self._is_open = True
        atexit.register(self.close)  # so that peers see the node leave at once, without a timeout

    # ---- topics

    def publisher(self, topic: str, type_name: str, qos: Qos) -> DdsPublisher:
        return self.publisher_at(self.arguments.topic(topic), type_name, qos)

    def publisher_at(self, topic: str, type_name: str, qos: Qos) -> DdsPublisher:
        return DdsPublisher(self, topic, type_name, qos, lifespan_s=None)

    def wait_for_acks(self, timeout_s: float) -> bool:
        writers, self.unacknowledged = self.unacknowledged, {}
        end = time.monotonic() + timeout_s
        return all(writer.wait_for_acks(end - time.monotonic()) for writer in writers)

    def subscribe(self, topic: str, type_name: str, qos: Qos, on_message: OnMessage, from_others: bool = False) -> None:
        def deliver() -> None:
            for cdr, _ in reader.take():
                on_message(cdr)

        name = f"rt{self.arguments.topic(topic)}"
        reader = self.graph.reader(name, known_type(type_name), qos, deliver, from_others=from_others)

    # ---- services

    def serve(self, service: str, type_name: str, on_request: OnRequest) -> None:
        name = self.arguments.service(service)
        if self._fast_dds is None:
            self._fast_dds = fast_dds_services(self.graph, self.log)
        kind = known_service(type_name)
        Server(self.graph, name, kind, on_request, self.log, self._waiting, self._fast_dds)

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
            self._clients[key] = Client(self.graph, name, type_name)
        return self._clients[key]

    # ---- life

    def poll(self, timeout_s: float = 0.0) -> None:
        if not self.graph.is_announced:
            self.graph.announce()
        end = time.monotonic() + timeout_s if timeout_s > 0 else 0.0
        while True:
            for server in list(self._waiting):
                server.again()
            left = end - time.monotonic() if end else 0.0
            longest = RETRY_S if self._waiting else LONGEST_WAIT_S
            fired = self.graph.waiter.wait(int(min(left, longest) * 1e9) if left > 0 else 0)
            for action in fired:
                action()
            if fired or left <= 0:
                return

    def close(self) -> None:
        if self._is_open:
            self._is_open, self._rosout = False, None
            atexit.unregister(self.close)
            if self._fast_dds is not None:
                self._fast_dds.close()
            self.graph.close()
