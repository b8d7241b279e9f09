"""Who publishes another type than this node listens to: DDS keeps the two apart and says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication
from cyclonedds.core import DDSException, ReadCondition
from cyclonedds.domain import DomainParticipant

from microsim.ros2.transport.dds.cdr_endpoints import ANY_STATE, Waiter

_AT_ONCE = 64
_MANY = 1000  # topics of others that are remembered, for subscriptions made later


class OtherTypes:
    """Warns once of each topic and type. Names and types are those of DDS, until they are told."""

    def __init__(self, participant: DomainParticipant, waiter: Waiter, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._wanted: dict[str, str] = {}
        self._seen: dict[tuple[str, str], None] = {}
        self._reader = BuiltinDataReader(participant, BuiltinTopicDcpsPublication)
        self._has_data = ReadCondition(self._reader, ANY_STATE)
        self.entities = [self._reader, self._has_data]
        waiter.attach(self._has_data, self._look)

    def want(self, topic: str, type_name: str) -> None:
        self._wanted[topic] = type_name
        for name, its_type in self._seen:
            if name == topic:
                self._compare(name, its_type)

    def _look(self) -> None:
        for topic, type_name in self._published():
            if (topic, type_name) not in self._seen and len(self._seen) < _MANY:
                self._seen[topic, type_name] = None
                self._compare(topic, type_name)

    def _published(self) -> Iterator[tuple[str, str]]:
        while True:
            try:
                samples = self._reader.take(_AT_ONCE)
            except DDSException:  # nothing left
                return
            for sample in samples:
                if sample.sample_info.valid_data:
                    yield sample.topic_name, sample.type_name
            if len(samples) < _AT_ONCE:
                return

    def _compare(self, topic: str, type_name: str) -> None:
        wanted = self._wanted.get(topic, type_name)
        if wanted != type_name:
            self._warn(
                f"{topic[2:]}: a peer publishes {ros_type(type_name)} there, and this node takes {ros_type(wanted)}: "
                "nothing passes between them"
            )


def ros_type(type_name: str) -> str:
    """geometry_msgs::msg::dds_::Twist_ -> geometry_msgs/msg/Twist; what is no type of ROS stays as it is."""
    parts = type_name.split("::")
    if len(parts) != 4 or parts[2] != "dds_":
        return type_name
    return f"{parts[0]}/{parts[1]}/{parts[3].removesuffix('_')}"
