"""What a bag is made of, whatever the storage: channels, blocks of whole ticks, facts about the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.errors import MicroSimError
from microsim.messages.topics import Qos

Integers: TypeAlias = npt.NDArray[np.int64]
Piece: TypeAlias = bytes | memoryview  # of a file

FORMAT = "1"  # of what MicroSim puts into a bag beside ROS 2's own


class BagError(MicroSimError):
    """A recording cannot be written or read."""


@dataclass(frozen=True)
class Channel:
    """A topic as a bag knows it."""

    number: int  # from 1
    topic: str
    type: str
    qos: str  # as rosbag2 writes it


@dataclass
class Block:
    """Some whole ticks: what was sent at each, then what was taken. One chunk of a file, one transaction."""

    channels: list[Channel] = field(default_factory=list)  # used here for the first time
    numbers: list[int] = field(default_factory=list)  # of the channel, for each entry
    times: list[int] = field(default_factory=list)  # [ns] for each entry
    data: list[bytes] = field(default_factory=list)  # encoded messages
    size: int = 0  # [byte]
    packed: Packed | None = None  # in place of the data; then numbers name each channel once, times the first and last


@dataclass(frozen=True)
class Packed:
    """Messages as an MCAP chunk holds them."""

    records: Piece
    table: Integers  # of the messages, with the rows of `mcap_records`


@dataclass(frozen=True)
class Facts:
    """What makes the bag suffice: told at the start of every file, and when the run is over."""

    start: Mapping[str, str]
    end: Mapping[str, str]  # empty: the recording was cut off
    files: Mapping[str, bytes] = field(default_factory=dict)  # what the scenario names: elevation

    def custom_data(self) -> dict[str, str]:
        return {f"microsim.{key}": value for key, value in sorted({**self.start, **self.end}.items())}


@cache
def definition(type_name: str) -> tuple[str, str]:
    """The type's definition with all it depends on, as .msg files; and its hash."""
    from microsim.messages.types import store_with, type_hash

    text, _ = store_with(type_name).generate_msgdef(type_name, ros_version=2)
    return text, type_hash(type_name)


def qos_text(qos: Qos) -> str:
    """As rosbag2 writes it, in the numbers that every distribution reads."""
    unlimited = "    sec: 9223372036\n    nsec: 854775807"
    return "\n".join(
        (
            "- history: 1",  # keep last
            f"  depth: {qos.depth}",
            f"  reliability: {1 if qos.reliable else 2}",
            f"  durability: {1 if qos.latched else 2}",
            f"  deadline:\n{unlimited}",
            f"  lifespan:\n{unlimited}",
            "  liveliness: 1",
            f"  liveliness_lease_duration:\n{unlimited}",
            "  avoid_ros_namespace_conventions: false",
        )
    )
