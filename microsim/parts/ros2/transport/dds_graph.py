"""One DDS participant with one ROS 2 node: its endpoints, and how peers learn about them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication
from cyclonedds.core import DDSException, DDSStatus, Entity, GuardCondition, ReadCondition
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.pub import Publisher as DdsPublisher
from cyclonedds.qos import Policy
from cyclonedds.qos import Qos as DdsQos
from cyclonedds.sub import DataReader
from cyclonedds.sub import Subscriber as DdsSubscriber
from cyclonedds.util import duration

from microsim import messages as wire
from microsim.errors import UsageError
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport import cdr_endpoints
from microsim.parts.ros2.transport.cdr_endpoints import ANY_STATE, CdrReader, CdrTopic, CdrWriter, Waiter, mismatch
from microsim.parts.ros2.transport.dds_domain import domain_id, new_participant, open_domain

DISCOVERY_TOPIC = "ros_discovery_info"
DISCOVERY_TYPE = "rmw_dds_common/msg/ParticipantEntitiesInfo"
DISCOVERY_QOS = Qos(1, latched=True)
BLOCKING_S = 0.1  # longest time a reliable writer waits for a slow reader; rmw waits without limit

_AT_ONCE = 64  # endpoints of others read at once
_MANY = 1000  # topics of others that are remembered, for subscriptions made later
# cyclonedds reads the QoS of others through variables that all threads share: two at once mix up what they read, or
# read where nothing is.
_READING_QOS = threading.Lock()
_POLICIES = {2: "durability", 4: "deadline", 8: "liveliness", 11: "reliability"}  # that prevent a match


class Graph:
    """Endpoints are announced together, at `announce`, not one by one: each announcement repeats them all."""

    def __init__(
        self, node: str, namespace: str, enclave: str, warn: Callable[[str], None], reports_types: bool = True
    ) -> None:
        """`reports_types`: warn of topics on which a peer publishes another type."""
        self._node, self._namespace, self._warn = node, namespace, warn
        self.domain_id = domain_id()
        open_domain(self.domain_id)
        self._entities: list[Entity] = []  # in the order they were made
        self.participant = self.keep(new_participant(self.domain_id, enclave))
        self._publisher = self.keep(DdsPublisher(self.participant))
        self._subscriber = self.keep(DdsSubscriber(self.participant))
        self.waiter = Waiter(self.participant)
        self.keep(self.waiter.waitset)
        self._type_mismatches = TypeMismatches(self.participant, self.waiter, warn) if reports_types else None
        self._entities += self._type_mismatches.entities if self._type_mismatches is not None else []
        self._topics: dict[tuple[str, str], CdrTopic] = {}
        self._numbers = itertools.count(1)
        self._readers: list[bytes] = []
        self._writers: list[bytes] = []
        topic = self._topic(DISCOVERY_TOPIC, DISCOVERY_TYPE)
        writer = DataWriter(self._publisher, topic, quality(DISCOVERY_QOS, type_hash_data(DISCOVERY_TYPE)))
        self._discovery = CdrWriter(self.keep(writer), topic)
        self.is_announced = False
        if not self._discovery.keeps_bytes(self._entities_info(is_open=True)):
            raise UsageError("this build of cyclonedds cannot carry ROS 2 messages; pip install 'cyclonedds>=11.0,<12'")

    def writer(
        self, topic: str, type_name: str, qos: Qos, user_data: str = "", lifespan_s: float | None = None
    ) -> CdrWriter:
        """`topic` with its prefix, such as rt/clock."""
        settings = quality(qos, user_data + type_hash_data(type_name), lifespan_s)
        named = self._topic(topic, type_name)
        made = self.keep(DataWriter(self._publisher, named, settings))
        self._writers.append(made.guid.bytes)
        self.is_announced = False
        writer = CdrWriter(made, named)
        made.set_status_mask(DDSStatus.OfferedIncompatibleQos | DDSStatus.PublicationMatched)
        self.waiter.attach(made, lambda: self._writer_changed(writer, topic))
        return writer

    def reader(
        self,
        topic: str,
        type_name: str,
        qos: Qos,
        on_data: Callable[[], None],
        user_data: str = "",
        from_others: bool = False,
        is_last: bool = False,
    ) -> CdrReader:
        """`from_others`: never matched with a writer of this participant, that is, of this node.

        `is_last`: what waits here is taken after all others, such as requests after messages.
        """
        settings = quality(qos, user_data + type_hash_data(type_name), ignore_local=from_others)
        made = self.keep(DataReader(self._subscriber, self._topic(topic, type_name), settings))
        self._readers.append(made.guid.bytes)
        self.is_announced = False
        if self._type_mismatches is not None:
            self._type_mismatches.want(topic, dds_type(type_name))
        reader = CdrReader(made, qos.depth)
        self.waiter.attach(self.keep(reader.has_data), on_data, is_last)
        made.set_status_mask(DDSStatus.RequestedIncompatibleQos)
        self.waiter.attach(made, lambda: self._mismatch(mismatch(made), topic))
        return reader

    def drop(self, endpoint: CdrReader | CdrWriter) -> None:
        """Delete an endpoint."""
        if isinstance(endpoint, CdrReader):
            entities: list[Any] = [endpoint.has_data, endpoint.reader]
        else:
            entities = [endpoint.writer]
        guid = entities[-1].guid.bytes
        for own in (self._readers, self._writers):
            if guid in own:
                own.remove(guid)
                self.is_announced = False
        for entity in entities:
            if self.waiter.has(entity):
                self.waiter.detach(entity)
            self._entities = [each for each in self._entities if each is not entity]
            entity.__del__()  # deletes it in the library, now

    def discovery_reader(self, on_data: Callable[[], None]) -> CdrReader:
        """Of what all participants tell about their nodes; does not count as the node's."""
        settings = quality(Qos(_MANY, latched=True), type_hash_data(DISCOVERY_TYPE))
        made = DataReader(self._subscriber, self._topic(DISCOVERY_TOPIC, DISCOVERY_TYPE), settings)
        reader = CdrReader(self.keep(made), _MANY)
        self.waiter.attach(self.keep(reader.has_data), on_data)
        return reader

    def discovery_writer(self) -> CdrWriter:
        """A further one that announces this node; does not count as the node's."""
        topic = self._topic(DISCOVERY_TOPIC, DISCOVERY_TYPE)
        made = DataWriter(self._publisher, topic, quality(DISCOVERY_QOS, type_hash_data(DISCOVERY_TYPE)))
        writer = CdrWriter(self.keep(made), topic)
        writer.write(self._entities_info(is_open=True))
        return writer

    def idle_reader(self, topic: str, type_name: str) -> None:
        """A reader that is never read and does not count as the node's."""
        settings = quality(Qos(1), type_hash_data(type_name))
        self.keep(DataReader(self._subscriber, self._topic(topic, type_name), settings))

    def _writer_changed(self, writer: CdrWriter, topic: str) -> None:
        writer.matched()
        status = mismatch(writer.writer)
        if status.total_count_change:
            self._mismatch(status, topic)

    def _mismatch(self, status: Any, topic: str) -> None:
        policy = _POLICIES.get(status.last_policy_id, f"policy {status.last_policy_id}")
        self._warn(f"{topic[2:]}: the {policy} QoS of a peer and of this node do not match: no messages are exchanged")

    def unique_id(self) -> str:
        """For the two halves of a service or client: 16 bytes as rmw_cyclonedds_cpp prints them."""
        raw = self.participant.guid.bytes[:12] + next(self._numbers).to_bytes(4, "big")
        return f"{raw[0]:2x}." + ".".join(f"{byte:x}" for byte in raw[1:])

    def announce(self) -> None:
        """Publish which endpoints belong to the node: peers keep the last such message of each participant."""
        self.is_announced = True
        self._discovery.write(self._entities_info(is_open=True))

    def close(self) -> None:
        self._discovery.write(self._entities_info(is_open=False))
        while self._entities:
            self._entities.pop().__del__()  # deletes it in the library, now

    def _entities_info(self, is_open: bool) -> bytes:
        gids = {"reader_gid_seq": [*map(_gid, self._readers)], "writer_gid_seq": [*map(_gid, self._writers)]}
        names = {"node_namespace": self._namespace, "node_name": self._node}
        nodes = [wire.new("rmw_dds_common/msg/NodeEntitiesInfo", **names, **gids)] if is_open else []
        message = wire.new(DISCOVERY_TYPE, gid=_gid(self.participant.guid.bytes), node_entities_info_seq=nodes)
        return wire.encode(DISCOVERY_TYPE, message)

    def _topic(self, name: str, type_name: str) -> CdrTopic:
        key = name, type_name
        if key not in self._topics:
            self._topics[key] = self.keep(CdrTopic(self.participant, name, dds_type(type_name)))
        return self._topics[key]

    def bell(self, on_ring: Callable[[], None]) -> Callable[[], None]:
        """A function that wakes the waiter from any thread; `on_ring` then runs there. Once closed it does nothing."""
        bell = self.keep(GuardCondition(self.participant))

        def hear() -> None:
            bell.set(False)
            on_ring()

        def ring() -> None:
            with suppress(DDSException):
                bell.set(True)

        self.waiter.attach(bell, hear, is_last=True)  # it rings for requests
        return ring

    def keep(self, entity: Any) -> Any:
        self._entities.append(entity)
        return entity


class TypeMismatches:
    """Warns once of each topic on which a peer publishes another type than this node subscribes to.

    DDS does not match the two and reports nothing. Names and types are those of DDS, except in warnings.
    """

    def __init__(self, participant: DomainParticipant, waiter: Waiter, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._wanted: dict[str, set[str]] = {}  # a service may have several types
        self._seen: dict[tuple[str, str], None] = {}
        self._reader = BuiltinDataReader(participant, BuiltinTopicDcpsPublication)
        self._has_data = ReadCondition(self._reader, ANY_STATE)
        self.entities = [self._reader, self._has_data]
        waiter.attach(self._has_data, self._look)

    def want(self, topic: str, type_name: str) -> None:
        self._wanted.setdefault(topic, set()).add(type_name)
        for name, its_type in self._seen:
            if name == topic:
                self._compare(name, its_type)

    def _look(self) -> None:
        for topic, type_name in self._published():
            if (topic, type_name) not in self._seen and len(self._seen) < _MANY:
                self._seen[topic, type_name] = None
                self._compare(topic, type_name)

    def _published(self) -> Iterator[tuple[str, str]]:
        for sample in taken(self._reader):
            if sample.sample_info.valid_data:
                yield sample.topic_name, sample.type_name

    def _compare(self, topic: str, type_name: str) -> None:
        wanted = self._wanted.get(topic, {type_name})
        if type_name not in wanted:
            published, expected = ros_type(type_name), " or ".join(map(ros_type, sorted(wanted)))
            mismatch = f"a peer publishes {published} there, but this node expects {expected}"
            self._warn(f"{topic[2:]}: {mismatch}: its messages are not received")


def taken(reader: BuiltinDataReader) -> Iterator[Any]:
    """Every announcement that is waiting."""
    while True:
        try:
            with _READING_QOS:
                samples = reader.take(_AT_ONCE)
        except DDSException:  # nothing left
            return
        yield from samples
        if len(samples) < _AT_ONCE:
            return


def announced(end: DataReader[Any] | DataWriter[Any], handle: int) -> Any:
    """What a matched endpoint says about itself; None: it has gone."""
    with _READING_QOS:
        return cdr_endpoints.announced(end, handle)


def ros_type(type_name: str) -> str:
    """geometry_msgs::msg::dds_::Twist_ -> geometry_msgs/msg/Twist; a type of another form stays as it is."""
    parts = type_name.split("::")
    if len(parts) != 4 or parts[2] != "dds_":
        return type_name
    return f"{parts[0]}/{parts[1]}/{parts[3].removesuffix('_')}"


def quality(qos: Qos, user_data: str, lifespan_s: float | None = None, ignore_local: bool = False) -> DdsQos:
    history = Policy.History.KeepLast(qos.depth)
    reliable = Policy.Reliability.Reliable(duration(seconds=BLOCKING_S))
    policies: list[Any] = [
        history,
        reliable if qos.reliable else Policy.Reliability.BestEffort,
        Policy.Durability.TransientLocal if qos.latched else Policy.Durability.Volatile,
        Policy.WriterDataLifecycle(autodispose=False),
        Policy.Liveliness.Automatic(duration(infinite=True)),
        Policy.Userdata(data=user_data.encode()),
    ]
    if qos.latched:
        policies.append(Policy.DurabilityService(0, history, -1, -1, -1))
    if lifespan_s is not None:
        policies.append(Policy.Lifespan(duration(seconds=lifespan_s)))
    if ignore_local:
        policies.append(Policy.IgnoreLocal.Participant)
    return DdsQos(*policies)


def type_hash_data(type_name: str) -> str:
    return f"typehash={wire.type_hash(type_name)};"


def user_data_of(endpoint: Any) -> dict[str, str]:
    """key=value; pairs that an endpoint announces."""
    policy = endpoint.qos[Policy.Userdata] if endpoint is not None and endpoint.qos is not None else None
    if policy is None:
        return {}
    pairs = (pair.partition("=") for pair in bytes(policy.data).decode("latin1").split(";"))
    return {key: value for key, sign, value in pairs if sign}


def dds_type(type_name: str) -> str:
    """geometry_msgs/msg/Twist -> geometry_msgs::msg::dds_::Twist_"""
    package, kind, name = type_name.split("/")
    return f"{package}::{kind}::dds_::{name}_"


def _gid(guid: bytes) -> Any:
    return wire.new("rmw_dds_common/msg/Gid", data=np.frombuffer(guid, np.uint8))
