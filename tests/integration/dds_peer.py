"""A node in a process of its own, told what to do on its standard input: one JSON object a line, one line in answer."""

from __future__ import annotations

import hashlib
import json
import queue
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from microsim import messages as wire
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport import Parameter, Publisher, Value
from microsim.parts.ros2.transport.dds import Client, DdsTransport


class Peer:
    def __init__(self, name: str, ros_args: list[str]) -> None:
        self.node = DdsTransport(name, ros_args)
        self.heard: dict[str, list[bytes]] = {}
        self.publishers: dict[str, tuple[str, Publisher]] = {}
        self.requests: list[Any] = []
        self.refusal = ""

    def subscribe(self, topic: str, type_name: str, qos: Mapping[str, Any]) -> None:
        self.heard[topic] = []
        self.node.subscribe(topic, type_name, Qos(**qos), self.heard[topic].append)

    def count(self, topic: str) -> int:
        return len(self.heard[topic])

    def digests(self, topic: str) -> list[str]:
        return [hashlib.sha256(cdr).hexdigest() for cdr in self.heard[topic]]

    def publisher(self, topic: str, type_name: str, qos: Mapping[str, Any]) -> None:
        self.publishers[topic] = type_name, self.node.publisher(topic, type_name, Qos(**qos))

    def subscribers(self, topic: str) -> int:
        return self.publishers[topic][1].subscribers

    def publish(self, topic: str, values: Mapping[str, Any], times: int = 1) -> None:
        type_name, publisher = self.publishers[topic]
        cdr = wire.encode(type_name, wire.from_mapping(type_name, values))
        for _ in range(times):
            publisher.publish(cdr)

    def serve(self, service: str, delay_s: float = 0.0) -> None:
        """Of the type std_srvs/srv/SetBool."""

        def answer(request: Any, response: Any) -> None:
            time.sleep(delay_s)
            response.success, response.message = request.data, self.node.node_name

        self.node.serve(service, "std_srvs/srv/SetBool", answer)

    def call(self, service: str, type_name: str, request: Mapping[str, Any], timeout_s: float = 10.0) -> Any:
        response = self.node.call(service, type_name, request, timeout_s)
        return {name: getattr(response, name) for name in ("success", "message") if hasattr(response, name)}

    def ask(self, service: str, type_name: str, request: Mapping[str, Any]) -> None:
        """Send a request and do not wait."""
        client = self.node.client(self.node.arguments.service(service), type_name)
        while not client.is_ready():
            self.node.poll(0.005)
        client.send(request)

    def crowd(self, service: str, clients: int, timeout_s: float = 20.0) -> int:
        """As many clients at once; how many are answered."""
        name = self.node.arguments.service(service)
        crowd = [Client(self.node.graph, name, "std_srvs/srv/SetBool") for _ in range(clients)]
        end = time.monotonic() + timeout_s
        while not all(client.is_ready() for client in crowd) and time.monotonic() < end:
            self.node.poll(0.005)
        numbers = [client.send({"data": True}) for client in crowd]
        answered = 0
        while answered < clients and time.monotonic() < end:
            self.node.poll(0.05)
            answered = sum(client.answer(number) is not None for client, number in zip(crowd, numbers, strict=True))
        return answered

    def declare(self, parameters: list[dict[str, Any]]) -> None:
        self.node.declare([Parameter(**parameter) for parameter in parameters], self._on_set)

    def _on_set(self, changes: Mapping[str, Value]) -> str:
        return self.refusal

    def log(self, level: Any, text: str) -> None:
        self.node.log(level, text)

    def close(self) -> None:
        self.node.close()


def main() -> None:
    commands: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(line)
        commands.put("")

    threading.Thread(target=read, daemon=True).start()
    peer = Peer(sys.argv[1], sys.argv[2:])
    print(json.dumps({"answer": peer.node.node_name}), flush=True)
    while True:
        if peer.node._is_open:
            peer.node.poll(0.005)
        try:
            line = commands.get_nowait() if peer.node._is_open else commands.get()
        except queue.Empty:
            continue
        if not line:
            break
        command = json.loads(line)
        try:
            answer: Any = {"answer": getattr(peer, command.pop("do"))(**command)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    peer.node.close()


if __name__ == "__main__":
    main()
