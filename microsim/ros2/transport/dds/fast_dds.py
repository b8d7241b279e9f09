"""Services for clients on Fast DDS, beside those of Cyclone DDS in the same node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from cyclonedds.core import GuardCondition

from microsim.ros2.transport import LogLevel
from microsim.ros2.transport.dds.domain import interfaces, uses_multicast
from microsim.ros2.transport.dds.graph import Graph
from microsim.ros2.transport.dds.quality import dds_type, type_hash_data
from microsim.ros2.transport.rtps.participant import Participant, Request

Log: TypeAlias = Callable[[LogLevel, str], None]
Receive: TypeAlias = Callable[[bytes, Callable[[bytes], None]], None]  # a request, and what to do with the reply


class FastDds:
    """Its requests are handled by `Graph.waiter`, like those of others."""

    def __init__(self, graph: Graph, log: Log) -> None:
        self._log = log
        self._receivers: dict[int, tuple[str, Receive]] = {}
        self._bell = GuardCondition(graph.participant)
        graph.waiter.attach(self._bell, self._receive)
        ring = partial(self._bell.set, True)
        self._participant = Participant(graph.domain_id, interfaces(), uses_multicast(), ring)
        self._participant.start()

    def serve(self, name: str, type_name: str, identity: str, receive: Receive) -> None:
        halves = [
            ((f"{prefix}{name}{end}", dds_type(f"{type_name}_{kind}")), f"{type_name}_{kind}")
            for prefix, end, kind in (("rq", "Request", "Request"), ("rr", "Reply", "Response"))
        ]
        (request, request_type), (reply, _) = halves
        number = self._participant.serve(request, reply, identity + type_hash_data(request_type))
        self._receivers[number] = (name, receive)

    def close(self) -> None:
        self._participant.close()

    def _receive(self) -> None:
        self._bell.set(False)
        requests = self._participant.requests
        while requests:
            request = requests.popleft()
            name, receive = self._receivers[request.service]
            receive(request.body, partial(self._answer, name, request))

    def _answer(self, name: str, request: Request, response: bytes) -> None:
        if not self._participant.answer(request, response):
            self._log(
                "error", f"service {name}: an answer of {len(response):,} bytes is too large for a Fast DDS client"
            )


def fast_dds_services(graph: Graph, log: Log) -> FastDds | None:
    """None where there is no place for it; Fast DDS clients are then refused with a hint."""
    try:
        return FastDds(graph, log) if interfaces() else None
    except OSError as error:
        log("warn", f"services can be called from Cyclone DDS only: {error}")
        return None
