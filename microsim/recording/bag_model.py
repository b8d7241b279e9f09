"""What a bag consists of, whatever its storage: channels, blocks of whole ticks, `RunInfo`, and `metadata.yaml`."""

from __future__ import annotations

import json
import shlex
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.documents.yaml_text import read_yaml
from microsim.errors import MicroSimError, ScenarioError
from microsim.messages.topics import Qos

Integers: TypeAlias = npt.NDArray[np.int64]
Piece: TypeAlias = bytes | memoryview  # of a file

FORMAT = "1"  # of what MicroSim puts into a bag beside ROS 2's own


class BagError(MicroSimError):
    """A recording cannot be written or read."""


@dataclass(frozen=True)
class BagChannel:
    number: int  # from 1
    topic: str
    type: str
    qos: str  # as rosbag2 writes it


@dataclass
class Block:
    """Some whole ticks: what was sent at each, then what was taken. One chunk of a file, one transaction."""

    channels: list[BagChannel] = field(default_factory=list)  # used here for the first time
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
class RunInfo:
    """What a replay needs beside the inputs: stored at the start of every file, and when the run is over."""

    start: Mapping[str, str]
    end: Mapping[str, str]  # empty: the recording was cut off
    files: Mapping[str, bytes] = field(default_factory=dict)  # that the scenario needs: elevation, splats of actors

    def custom_data(self) -> dict[str, str]:
        return {f"microsim.{key}": value for key, value in sorted({**self.start, **self.end}.items())}


class FileReader(ABC):
    """One file of a bag. `tolerant`: reads as far as it can, then says in `problem` why it stopped."""

    compression = ""  # of its chunks

    def __init__(self, path: Path, tolerant: bool = False) -> None:
        self.path = path
        self.tolerant = tolerant
        self.problem = ""
        self.run_info = RunInfo({}, {})  # of a tolerant reader complete only after `blocks`

    @property
    def is_ours(self) -> bool:
        return bool(self.run_info.start)

    def blocks(self) -> Iterator[Block]:
        """Everything in it, checked."""
        with self._noting():
            yield from self._blocks()

    @abstractmethod
    def entries_of(self, topics: Container[str]) -> Iterator[tuple[BagChannel, int, bytes]]:
        """Channel, time and data of the messages of some topics, without reading all of the others."""

    @abstractmethod
    def _blocks(self) -> Iterator[Block]: ...

    @contextmanager
    def _noting(self, hint: str = "may save the rest") -> Iterator[None]:
        """A BagError inside becomes the problem of a tolerant reader; of others it says which file, and what helps."""
        try:
            yield
        except BagError as error:
            if not self.tolerant:
                raise BagError(f"{self.path}: {error}; {repairs(self.path)} {hint}") from None
            self.problem = str(error)


class FileWriter(ABC):
    """One file of a bag that is being written."""

    suffix: str

    def __init__(self) -> None:
        self.size = 0  # [byte]
        self.counts: dict[BagChannel, int] = {}  # messages
        self._channels: dict[int, BagChannel] = {}
        self._times: list[int] = []  # first and last of each block

    @property
    def times(self) -> tuple[int, int]:
        """[ns] of the first and of the last message."""
        return min(self._times, default=0), max(self._times, default=0)

    @abstractmethod
    def write(self, block: Block) -> None:
        """Append a block, all of it or nothing."""

    @abstractmethod
    def close(self, end: Mapping[str, str], rosbag2: Callable[[], str]) -> None:
        """Finish the file; `rosbag2` gives the metadata that rosbag2 keeps inside each file."""

    @abstractmethod
    def abandon(self) -> None:
        """Leave the file as it is."""

    def _count(self, numbers: Mapping[int, int], block: Block) -> None:
        for number, count in numbers.items():
            self.counts[self._channels[number]] += count
        if block.times:
            self._times += (block.times[0], block.times[-1])

    def _know(self, channels: Iterable[BagChannel]) -> None:
        self._channels.update((channel.number, channel) for channel in channels)
        self.counts.update(dict.fromkeys(channels, 0))


@cache
def definition(type_name: str) -> tuple[str, str]:
    """The type's definition with all it depends on, as .msg files; and its hash."""
    from microsim.messages.types import store_with, type_hash

    text, _ = store_with(type_name).generate_msgdef(type_name, ros_version=2)
    return text, type_hash(type_name)


def fits(topic: str, only: Sequence[str], without: Sequence[str]) -> bool:
    """Whether shell patterns choose this topic; `only` empty: they choose all."""
    is_named = not only or any(fnmatchcase(topic, pattern) for pattern in only)
    return is_named and not any(fnmatchcase(topic, pattern) for pattern in without)


def qos_text(qos: Qos) -> str:
    """As rosbag2 writes it, in the numbers that every distribution reads; history 1 keeps the last `depth`."""
    unlimited = "\n    sec: 9223372036\n    nsec: 854775807"
    return (
        f"- history: 1\n  depth: {qos.depth}\n  reliability: {1 if qos.reliable else 2}\n"
        f"  durability: {1 if qos.latched else 2}\n  deadline:{unlimited}\n  lifespan:{unlimited}\n  liveliness: 1\n"
        f"  liveliness_lease_duration:{unlimited}\n  avoid_ros_namespace_conventions: false"
    )


METADATA_YAML = "metadata.yaml"  # rosbag2's description of a bag
_VERSION = 8  # the newest that ROS 2 Humble reads too
_quoted = json.dumps


@dataclass(frozen=True)
class FileInfo:
    name: str
    times: tuple[int, int]  # [ns] first and last
    counts: Mapping[BagChannel, int]

    @property
    def messages(self) -> int:
        return sum(self.counts.values())


def metadata_text(storage: str, files: Sequence[FileInfo], custom: Mapping[str, str]) -> str:
    return f"rosbag2_bagfile_information:\n{indent(information(storage, files, custom), '  ')}"


def information(storage: str, files: Sequence[FileInfo], custom: Mapping[str, str]) -> str:
    """Strings are quoted as JSON, which is valid YAML: the bytes depend on no YAML library."""
    return "\n".join(_lines(storage, files, custom)) + "\n"


def _lines(storage: str, files: Sequence[FileInfo], custom: Mapping[str, str]) -> Iterator[str]:
    used = [file for file in files if file.messages] or list(files)
    times = [time for file in used for time in file.times] or [0]
    counts: Counter[BagChannel] = Counter()
    for file in files:
        counts.update(file.counts)
    yield f"version: {_VERSION}"
    yield f"storage_identifier: {storage}"
    yield f"duration:\n  nanoseconds: {max(times) - min(times)}"
    yield f"starting_time:\n  nanoseconds_since_epoch: {min(times)}"
    yield f"message_count: {sum(counts.values())}"
    yield "topics_with_message_count:" if counts else "topics_with_message_count: []"
    for channel, count in sorted(counts.items(), key=lambda pair: pair[0].number):
        yield "  - topic_metadata:"
        yield f"      name: {_quoted(channel.topic)}"
        yield f"      type: {_quoted(channel.type)}"
        yield "      serialization_format: cdr"
        yield f"      offered_qos_profiles: {_quoted(channel.qos)}"
        yield f"      type_description_hash: {_quoted(definition(channel.type)[1])}"
        yield f"    message_count: {count}"
    yield 'compression_format: ""'
    yield 'compression_mode: ""'  # MCAP compresses its chunks itself
    yield "relative_file_paths:"
    yield from (f"  - {_quoted(file.name)}" for file in files)
    yield "files:"
    for file in files:
        yield f"  - path: {_quoted(file.name)}"
        yield f"    starting_time:\n      nanoseconds_since_epoch: {file.times[0]}"
        yield f"    duration:\n      nanoseconds: {file.times[1] - file.times[0]}"
        yield f"    message_count: {file.messages}"
    yield "custom_data:" if custom else "custom_data: ~"
    yield from (f"  {_quoted(key)}: {_quoted(value)}" for key, value in custom.items())
    yield "ros_distro: jazzy"


def repairs(path: Path) -> str:
    """The command that repairs a bag, or the bag of a file, to be pasted as it is."""
    folder = path.parent if path.suffix in (".mcap", ".db3") else path
    return f"`microsim bag repair {shlex.quote(str(folder))}`"


def read_metadata(folder: Path) -> dict[str, Any]:
    """The content of a bag's `metadata.yaml`, checked."""
    path = folder / METADATA_YAML
    hint = f"{repairs(folder)} rebuilds it from the files"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if any(file.suffix in (".mcap", ".db3") for file in folder.iterdir()):
            raise BagError(f"{folder}: there is no {METADATA_YAML}; {hint}") from None
        what = f"there is neither {METADATA_YAML} nor a .mcap or .db3 file in it"
        raise BagError(f"{folder}: not a bag: {what}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BagError(f"{path}: cannot be read: {error}") from None
    try:
        return _checked_metadata(read_yaml(text, str(path)).data)
    except (ScenarioError, KeyError, TypeError, ValueError) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
        raise BagError(f"{path}: not rosbag2's metadata: {reason}; {hint}") from None


def _checked_metadata(whole: Any) -> dict[str, Any]:
    found = whole["rosbag2_bagfile_information"] if isinstance(whole, dict) else None
    if not isinstance(found, dict):
        raise ValueError("'rosbag2_bagfile_information' is missing")
    names, storage, version = found["relative_file_paths"], found["storage_identifier"], found["version"]
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise ValueError("it names no files in this folder")
    if storage not in ("mcap", "sqlite3"):
        raise ValueError(f"unknown storage {storage!r}; expected mcap or sqlite3")
    if not isinstance(version, int) or not 1 <= version <= 9:
        raise ValueError(f"version {version!r} of the format is unknown; expected 1 to 9")
    if type(found["message_count"]) is not int:
        raise ValueError(f"message_count is {found['message_count']!r}; expected a number")
    return dict(found)
