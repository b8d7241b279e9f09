"""What other nodes there are on the ROS 2 network: their topics, services, actions and parameters' owners.

DDS announces endpoints; `ros_discovery_info` says which of them belong to which node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from cyclonedds.builtin import (
    BuiltinDataReader,
    BuiltinTopicDcpsParticipant,
    BuiltinTopicDcpsPublication,
    BuiltinTopicDcpsSubscription,
)
from cyclonedds.core import ReadCondition
from cyclonedds.qos import Policy

from microsim.messages.topics import Qos
from microsim.messages.types import ENCAPSULATION
from microsim.parts.ros2.transport.cdr_endpoints import ANY_STATE
from microsim.parts.ros2.transport.dds_graph import DISCOVERY_TOPIC, Graph, ros_type, taken, user_data_of
from microsim.parts.ros2.transport.rtps_packets import FAST_DDS, PREFIX

GID_SIZES = (16, 24)  # of today's ROS 2, and up to Humble
INFINITE_NS = 2**63 - 1
QUIET_S = 0.1  # without news, the picture is considered complete
LATE_S = 1.0  # without news, a participant of Fast DDS that has not named its nodes has none
ACTION = "/_action/"
_CYCLONE_DDS = b"\x01\x10"
_RMW = {FAST_DDS: "Fast DDS", _CYCLONE_DDS: "Cyclone DDS"}


@dataclass(frozen=True)
class GraphEndpoint:
    guid: bytes
    topic: str  # as in DDS: rt/clock
    type: str  # as in ROS: rosgraph_msgs/msg/Clock
    is_writer: bool
    announced: Any

    @property
    def name(self) -> str:
        """Of the topic or service, as in ROS; empty where it is neither."""
        prefix, name = self.topic[:2], self.topic[2:]
        suffix = {"rt": "", "rq": "Request", "rr": "Reply"}.get(prefix)
        is_ours = suffix is not None and name.startswith("/") and name.endswith(suffix)
        return name.removesuffix(suffix) if is_ours and suffix is not None else ""

    @property
    def rmw(self) -> str:
        return _RMW.get(self.guid[:2], "DDS of another vendor")

    def _policy(self, kind: Any) -> Any:
        qos = self.announced.qos
        return qos[kind] if qos is not None else None

    @cached_property
    def qos(self) -> Qos:
        history = self._policy(Policy.History)
        reliable = not isinstance(self._policy(Policy.Reliability), type(Policy.Reliability.BestEffort))
        is_volatile = isinstance(self._policy(Policy.Durability), type(Policy.Durability.Volatile))
        return Qos(int(getattr(history, "depth", 0)), reliable, not is_volatile)

    @property
    def deadline_ns(self) -> int:
        policy = self._policy(Policy.Deadline)
        return int(policy.deadline) if policy is not None else INFINITE_NS

    @property
    def partitions(self) -> tuple[str, ...]:
        policy = self._policy(Policy.Partition)
        return tuple(policy.partitions) if policy is not None else ()

    @cached_property
    def type_hash(self) -> str:
        return user_data_of(self.announced).get("typehash", "")


class GraphView:
    """Belongs to the thread that polls. `on_change` gets the DDS names of topics whose endpoints have changed."""

    def __init__(self, graph: Graph, on_change: Callable[[set[str]], None]) -> None:
        self.own = graph.participant.guid.bytes[:PREFIX]
        self.endpoints: dict[bytes, GraphEndpoint] = {}
        self.nodes: dict[bytes, list[tuple[str, list[bytes]]]] = {}  # by participant: name, GUIDs of its endpoints
        self._owners: dict[bytes, str] = {}  # GUID of an endpoint -> node
        self._on_change = on_change
        self._news_s = self._opened_s = time.monotonic()
        for topic, is_writer in ((BuiltinTopicDcpsPublication, True), (BuiltinTopicDcpsSubscription, False)):
            reader = graph.keep(BuiltinDataReader(graph.participant, topic))
            condition = graph.keep(ReadCondition(reader, ANY_STATE))
            graph.waiter.attach(condition, partial(self._look, reader, is_writer))
        self._discovery = graph.discovery_reader(self._hear)
        self._slow: set[bytes] = set()  # participants of Fast DDS: it may take a second until their endpoints are known
        participants = graph.keep(BuiltinDataReader(graph.participant, BuiltinTopicDcpsParticipant))
        condition = graph.keep(ReadCondition(participants, ANY_STATE))
        graph.waiter.attach(condition, partial(self._meet, participants))

    # ---- what arrives

    def _look(self, reader: BuiltinDataReader, is_writer: bool) -> None:
        changed: set[str] = set()
        for sample in taken(reader):
            guid = sample.key.bytes
            if sample.sample_info.valid_data:
                endpoint = GraphEndpoint(guid, sample.topic_name, ros_type(sample.type_name), is_writer, sample)
                self.endpoints[guid] = endpoint
                changed.add(endpoint.topic)
            elif (gone := self.endpoints.pop(guid, None)) is not None:
                changed.add(gone.topic)
                if gone.topic == DISCOVERY_TOPIC and gone.is_writer:
                    self._take_nodes(guid[:PREFIX], [])
        if changed:
            self._news_s = time.monotonic()
            self._on_change(changed)

    def _meet(self, reader: BuiltinDataReader) -> None:
        for sample in taken(reader):
            prefix = sample.key.bytes[:PREFIX]
            if not sample.sample_info.valid_data:
                self._slow.discard(prefix)
            elif prefix.startswith(FAST_DDS):
                self._slow.add(prefix)

    def _hear(self) -> None:
        for cdr, _ in self._discovery.take():
            for size in GID_SIZES:
                found = read_nodes(cdr, size)
                if found is not None:
                    self._take_nodes(*found)
                    break
        self._news_s = time.monotonic()
        self._on_change(set())

    def _take_nodes(self, participant: bytes, nodes: list[tuple[str, list[bytes]]]) -> None:
        for _, guids in self.nodes.pop(participant, []):
            for guid in guids:
                self._owners.pop(guid, None)
        if nodes:
            self.nodes[participant] = nodes
        for name, guids in nodes:
            self._owners.update(dict.fromkeys(guids, name))

    # ---- questions

    def is_settled(self, least_s: float) -> bool:
        """Whether all that was announced has arrived, `least_s` after the start and after a moment without news."""
        now = time.monotonic()
        if now < self._opened_s + least_s or now < self._news_s + QUIET_S:
            return False
        announcing = {
            guid[:PREFIX] for guid, each in self.endpoints.items() if each.topic == DISCOVERY_TOPIC and each.is_writer
        }
        is_late = now > self._news_s + LATE_S  # then those with endpoints are not of ROS
        awaited = announcing | (self._slow - {guid[:PREFIX] for guid in self.endpoints} if is_late else self._slow)
        listed = (guid for nodes in self.nodes.values() for _, guids in nodes for guid in guids)
        return awaited <= {*self.nodes, self.own} and all(guid in self.endpoints for guid in listed)

    def owner(self, endpoint: GraphEndpoint) -> str:
        """The node that it belongs to; empty where that is unknown."""
        return self._owners.get(endpoint.guid, "")

    def others(self) -> set[bytes]:
        """Participants that are there, apart from this one."""
        return {guid[:PREFIX] for guid in self.endpoints} - {self.own}

    def on(self, topic: str, is_writer: bool) -> list[GraphEndpoint]:
        """Endpoints of a topic, by its name in ROS."""
        return self.at(f"rt{topic}", is_writer)

    def at(self, topic: str, is_writer: bool) -> list[GraphEndpoint]:
        return [each for each in self.endpoints.values() if each.topic == topic and each.is_writer == is_writer]

    def of_node(self, node: str) -> list[GraphEndpoint]:
        return [each for each in self.endpoints.values() if self._owners.get(each.guid) == node]

    def node_names(self) -> list[str]:
        return sorted(name for nodes in self.nodes.values() for name, _ in nodes)

    def topics(self) -> dict[str, list[str]]:
        """Name -> types."""
        return types_by_name(each for each in self.endpoints.values() if each.topic.startswith("rt/"))

    def topics_with(self, is_writer: bool) -> set[str]:
        """Topics with a publisher or a subscriber."""
        topics = (each for each in self.endpoints.values() if each.topic.startswith("rt/"))
        return {each.name for each in topics if each.is_writer == is_writer}

    def services(self) -> dict[str, list[str]]:
        """Those that are served: name -> types."""
        return types_by_name(servers(self.endpoints.values()))

    def actions(self) -> dict[str, list[str]]:
        """Those that are served: name -> types."""
        return actions_of(self.services())


def servers(endpoints: Iterable[GraphEndpoint]) -> Iterator[GraphEndpoint]:
    return (each for each in endpoints if each.topic.startswith("rq/") and not each.is_writer)


def clients(endpoints: Iterable[GraphEndpoint]) -> Iterator[GraphEndpoint]:
    return (each for each in endpoints if each.topic.startswith("rq/") and each.is_writer)


def types_by_name(endpoints: Iterable[GraphEndpoint]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for each in endpoints:
        if each.name:
            found.setdefault(each.name, set()).add(each.type.removesuffix("_Request"))
    return {name: sorted(found[name]) for name in sorted(found)}


def actions_of(services: dict[str, list[str]]) -> dict[str, list[str]]:
    """The actions among services: each has one to send a goal."""
    end = f"{ACTION}send_goal"
    return {
        name.removesuffix(end): [each.removesuffix("_SendGoal") for each in types]
        for name, types in services.items()
        if name.endswith(end)
    }


def is_hidden(name: str) -> bool:
    """As ROS 2 hides names: a part of it begins with an underscore."""
    return "/_" in name


class _Cut(Exception):  # noqa: N818 - tells only that the bytes are of another form
    pass


def read_nodes(cdr: bytes, gid_size: int) -> tuple[bytes, list[tuple[str, list[bytes]]]] | None:
    """A message of `ros_discovery_info`: the participant, its nodes and their endpoints; None: another form.

    Read by hand, because the size of a gid differs between versions of ROS 2, and a node may have thousands.
    """
    body = cdr[len(ENCAPSULATION) :]
    if cdr[:2] != ENCAPSULATION[:2] or len(body) < gid_size:
        return None
    try:
        count, at = _number(body, gid_size)
        nodes = []
        for _ in range(count):
            namespace, at = _text(body, at)
            name, at = _text(body, at)
            readers, at = _gids(body, at, gid_size)
            writers, at = _gids(body, at, gid_size)
            nodes.append((f"{namespace.rstrip('/')}/{name}", readers + writers))
    except _Cut:
        return None
    return (body[:PREFIX], nodes) if len(body) - at < 4 else None


def _number(body: bytes, at: int) -> tuple[int, int]:
    at += -at % 4
    if at + 4 > len(body):
        raise _Cut
    return int.from_bytes(body[at : at + 4], "little"), at + 4


def _text(body: bytes, at: int) -> tuple[str, int]:
    size, at = _number(body, at)
    if not 0 < size <= len(body) - at:
        raise _Cut
    return body[at : at + size - 1].decode("utf-8", "replace"), at + size


def _gids(body: bytes, at: int, size: int) -> tuple[list[bytes], int]:
    count, at = _number(body, at)
    if count * size > len(body) - at:
        raise _Cut
    return [body[start : start + 16] for start in range(at, at + count * size, size)], at + count * size
