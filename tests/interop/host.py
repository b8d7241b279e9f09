"""One of our transports under remote control, as peer.py is: `host.py TRANSPORT NODE [ROS ARGUMENTS]`.

Between requests the transport is polled, as the simulator's loop does. Operations are the methods of Host.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from microsim.messages.topics import Qos
from microsim.parts.ros2.transport import Parameter, Transport, Value
from microsim.parts.ros2.transport.standalone import NotYet
from microsim.parts.ros2.transports import open_transport

POLL_S = 0.005


class Host:
    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.publishers: dict[str, Any] = {}
        self.received: dict[str, list[bytes]] = {}
        self.requests: dict[str, list[Any]] = {}
        self.held: set[str] = set()
        self.asked: list[dict[str, Value]] = []

    def hello(self) -> dict[str, Any]:
        return {
            "transport": self.transport.name,
            "node": self.transport.node_name,
            "overrides": dict(self.transport.overrides),
        }

    # ---- topics

    def advertise(self, topic: str, type: str, qos: Mapping[str, Any]) -> dict[str, Any]:
        self.publishers[topic] = self.transport.publisher(topic, type, Qos(**qos))
        return {}

    def publish(self, topic: str, raw: list[str], subscribers: int = 1, timeout: float = 30.0) -> dict[str, Any]:
        """Hand over these messages once so many subscribers are there."""
        publisher = self.publishers[topic]
        self.until(lambda: publisher.subscribers >= subscribers, timeout, f"{subscribers} subscribers on {topic}")
        for cdr in raw:
            publisher.publish(base64.b64decode(cdr))
        return {"subscribers": publisher.subscribers}

    def subscribe(self, topic: str, type: str, qos: Mapping[str, Any], from_others: bool = False) -> dict[str, Any]:
        received = self.received[topic] = []
        self.transport.subscribe(topic, type, Qos(**qos), received.append, from_others)
        return {}

    def wait(self, topic: str, count: int = 1, timeout: float = 30.0) -> dict[str, Any]:
        received = self.received[topic]
        self.until(lambda: len(received) >= count, timeout, f"{count} messages on {topic}")
        return {"raw": [base64.b64encode(cdr).decode() for cdr in received]}

    def until_last(self, topic: str, raw: str, timeout: float = 30.0) -> dict[str, Any]:
        """Until this message is the newest on a topic."""
        wanted, received = base64.b64decode(raw), self.received[topic]
        self.until(lambda: received[-1:] == [wanted], timeout, f"that message on {topic}")
        return {"count": len(received)}

    # ---- services

    def serve(self, service: str, type: str, response: Mapping[str, Any], not_yet: bool = False) -> dict[str, Any]:
        """Answer every request with this response; with `not_yet` only from `release` on."""
        requests = self.requests[service] = []
        if not_yet:
            self.held.add(service)

        def answer(request: Any, reply: Any) -> None:
            if service in self.held:
                raise NotYet
            requests.append({name: plain(value) for name, value in fields(request).items()})
            for name, value in response.items():
                getattr(reply, name)  # our own types would take any
                setattr(reply, name, value)

        self.transport.serve(service, type, answer)
        return {}

    def release(self, service: str) -> dict[str, Any]:
        self.held.discard(service)
        return {}

    def served(self, service: str, count: int = 0, timeout: float = 30.0) -> dict[str, Any]:
        self.until(lambda: len(self.requests[service]) >= count, timeout, f"{count} requests to {service}")
        return {"requests": self.requests[service]}

    def call(self, service: str, type: str, request: Mapping[str, Any], timeout: float = 30.0) -> dict[str, Any]:
        return {"response": fields(self.transport.call(service, type, request, timeout))}

    # ---- parameters and the rest

    def declare(self, parameters: list[dict[str, Any]], refused: Mapping[str, str] = {}) -> dict[str, Any]:
        """`refused`: parameter -> why no change of it is taken."""

        def on_set(changes: Mapping[str, Value]) -> str:
            self.asked.append(dict(changes))
            return next((why for name, why in refused.items() if name in changes), "")

        self.transport.declare([Parameter(**each) for each in parameters], on_set)
        return {}

    def changes(self) -> dict[str, Any]:
        """What `on_set` was asked so far."""
        return {"asked": self.asked}

    def set_parameters(self, values: Mapping[str, Value]) -> dict[str, Any]:
        self.transport.set_parameters(values)
        return {}

    def log(self, level: Any, text: str) -> dict[str, Any]:
        self.transport.log(level, text)
        return {}

    def close(self) -> dict[str, Any]:
        self.transport.close()
        return {}

    def until(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"not {what} within {timeout} s")
            self.transport.poll(POLL_S)


def fields(message: Any) -> dict[str, Any]:
    names = getattr(message, "__slots__", ()) or vars(message)
    return {name.lstrip("_"): plain(getattr(message, name)) for name in names if not name.startswith(("__", "_check"))}


def plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | dict) else str(value)


def answer(host: Host, line: str) -> dict[str, Any]:
    try:
        request = json.loads(line)
        return {"ok": True, **getattr(host, request.pop("op"))(**request)}
    except Exception as error:  # whatever it is, the test must be told
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}


def listen(lines: queue.Queue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    lines.put("")


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints must not disturb the protocol
    kind, node, *ros_args = sys.argv[1:]
    host = Host(open_transport(kind, node, ros_args))
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=listen, args=(lines,), daemon=True).start()
    line = "?"
    while line:
        try:
            line = lines.get_nowait()
        except queue.Empty:
            host.transport.poll(POLL_S)
            continue
        if line:
            print(json.dumps(answer(host, line)), file=replies, flush=True)
    host.transport.close()


if __name__ == "__main__":
    main()
