"""`microsim bag info` and `microsim bag repair`: what a bag holds, whether it is whole, and how to finish it."""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microsim.errors import os_errors
from microsim.messages import is_known
from microsim.recording.bag_io import CONTINUES, READERS, WRITERS, ForeignBag, OwnBag, open_bag, storage_of
from microsim.recording.bag_model import (
    METADATA_YAML,
    BagChannel,
    BagError,
    Block,
    FileInfo,
    FileReader,
    RunInfo,
    information,
    metadata_text,
)

_FACT_NAMES = {"messages": "sent", "format": "format_version"}  # `sent` are messages without inputs


@dataclass
class Traffic:
    type: str
    messages: int = 0
    first_ns: int = 0
    last_ns: int = 0

    @property
    def rate_hz(self) -> float | None:
        """Between the first message and the last; None: there are not two."""
        span_ns = self.last_ns - self.first_ns
        return (self.messages - 1) * 1e9 / span_ns if span_ns > 0 else None

    def add(self, time_ns: int) -> None:
        self.first_ns = min(self.first_ns, time_ns) if self.messages else time_ns
        self.last_ns = max(self.last_ns, time_ns)
        self.messages += 1

    def to_dict(self) -> dict[str, Any]:
        return {"type": self.type, "messages": self.messages, "rate_hz": self.rate_hz}


@dataclass
class BagInfo:
    """What `look` found."""

    path: Path
    files: list[Path]
    run_info: dict[str, str] = field(default_factory=dict)
    topics: dict[str, Traffic] = field(default_factory=dict)
    problem: str = ""  # what is wrong with the bag
    _channels: dict[int, Traffic] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)

    @property
    def messages(self) -> int:
        """Of all topics, inputs too."""
        return sum(traffic.messages for traffic in self.topics.values())

    @property
    def last_ns(self) -> int:
        return max((traffic.last_ns for traffic in self.topics.values()), default=0)

    @property
    def duration_s(self) -> float:
        first_ns = min((traffic.first_ns for traffic in self.topics.values() if traffic.messages), default=0)
        return (self.last_ns - first_ns) / 1e9

    def add(self, block: Block) -> None:
        for channel in block.channels:
            self._channels[channel.number] = self.topics.setdefault(channel.topic, Traffic(channel.type))
        for number, time in zip(block.numbers, block.times, strict=True):
            self._channels[number].add(time)

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "bytes": self.bytes,
            "duration_s": self.duration_s,
            "messages": self.messages,
            "problem": self.problem,
            **{_FACT_NAMES.get(name, name): _plain(text) for name, text in self.run_info.items()},
            "topics": {topic: traffic.to_dict() for topic, traffic in sorted(self.topics.items())},
        }


def _plain(text: str) -> Any:
    """A fact as what it is: the metadata of MCAP files has text only."""
    if text.lstrip("-").isdecimal() or text in ("true", "false") or text.startswith(("{", "[")):
        with suppress(ValueError):
            return json.loads(text)
    return text


def look(path: Path) -> BagInfo:
    """Everything that can be read, and what is wrong with the rest."""
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    try:
        bag = open_bag(path)
        info = BagInfo(
            path, bag.files if isinstance(bag, OwnBag) else files, {**bag.run_info.start, **bag.run_info.end}
        )
        for block in bag.blocks():
            info.add(block)
    except BagError as error:
        info = BagInfo(path, [file for file in files if file.suffix in READERS and file.is_file()], problem=str(error))
        if not info.files:
            raise
        for file in info.files:
            reader = READERS[file.suffix](file, tolerant=True)
            for block in reader.blocks():
                info.add(block)
            info.run_info |= {**reader.run_info.start, **reader.run_info.end}
    info.topics = dict(sorted(info.topics.items()))
    return info


@dataclass(frozen=True)
class Repaired:
    messages: int
    last_ns: int
    damaged: tuple[str, ...]  # files that were rewritten, and why


def repair(folder: Path) -> Repaired:
    """Make the bag whole: every file finished, `metadata.yaml` fitting. A file that had to change keeps its old form
    beside it, as `….damaged`."""
    if not folder.is_dir():
        raise BagError(f"{folder}: give the folder of a bag")
    paths = sorted((path for path in folder.iterdir() if path.suffix in READERS), key=_number)
    if not paths:
        raise BagError(f"{folder}: there is no .mcap or .db3 file in it")
    is_foreign = False
    with suppress(BagError):  # damaged: that is what we are here for
        is_foreign = isinstance(open_bag(paths[0]), ForeignBag)
    if is_foreign:
        raise BagError(f"{paths[0]}: not made by microsim; use `ros2 bag reindex`")
    readers = [_opened(path) for path in paths]
    if not readers[0].is_ours:
        raise BagError(f"{paths[0]}: cannot be repaired: its scenario is lost ({readers[0].problem or 'not ours'})")
    _check_together(readers)
    with os_errors(f"{folder} cannot be repaired", BagError):
        return _Repair(folder, readers).result()


def _number(path: Path) -> tuple[int, str]:
    digits = path.stem.rpartition("_")[2]
    return (int(digits) if digits.isdecimal() else 0), path.name


def _opened(path: Path) -> FileReader:
    if path.suffix == ".db3":
        with suppress(sqlite3.Error):  # rolls back a transaction that was cut off
            database = sqlite3.connect(path)
            database.execute("SELECT count(*) FROM sqlite_master").fetchall()
            database.close()
    return READERS[path.suffix](path, tolerant=True)


def _check_together(readers: list[FileReader]) -> None:
    """A bag with a gap, or with a file of another run, cannot be made whole."""
    first = readers[0]
    for index, reader in enumerate(readers):
        name, _, number = reader.path.stem.rpartition("_")
        if number.isdecimal() and int(number) != index:
            missing = f"{name}_{index}{reader.path.suffix}"
            raise BagError(f"{reader.path.parent}: {missing} is missing: the files after it cannot be kept")
        if reader.is_ours and reader.run_info.start != first.run_info.start:
            raise BagError(f"{reader.path}: from another run than {first.path.name}: remove one of them")


class _Repair:
    """A bag that is being repaired, file by file."""

    def __init__(self, folder: Path, readers: list[FileReader]) -> None:
        self._folder, self._readers = folder, readers
        self._done: list[FileInfo] = []
        self._damaged: list[str] = []

    def result(self) -> Repaired:
        end: Mapping[str, str] = {}
        for reader in self._readers:
            end = self._repaired(reader, is_last=reader is self._readers[-1])
        custom = RunInfo(self._readers[0].run_info.start, end).custom_data()
        self._describe(metadata_text(storage_of(self._readers[0].path), self._done, custom))
        messages = sum(file.messages for file in self._done)
        return Repaired(messages, max(file.times[1] for file in self._done), tuple(self._damaged))

    def _repaired(self, reader: FileReader, is_last: bool) -> Mapping[str, str]:
        """Rewrite the file beside the old one; put it in its place only if the old one was not whole."""
        path = reader.path
        fresh = path.with_name(f"{path.name}.repairing")
        try:
            end = self._rewritten(reader, fresh, is_last)
            if end == reader.run_info.end:
                with suppress(BagError):
                    deque(READERS[path.suffix](path).blocks(), maxlen=0)  # raises when it is not whole
                    return end
            why = reader.problem or end.get("reason", "not finished").removeprefix("repaired: ")
            self._damaged.append(f"{path.name}: {why}")
            path.rename(path.with_name(f"{path.name}.damaged"))
            fresh.rename(path)
            return end
        finally:
            fresh.unlink(missing_ok=True)

    def _rewritten(self, reader: FileReader, fresh: Path, is_last: bool) -> Mapping[str, str]:
        """All that can be read, in a new file; gives the information at its end."""
        path, storage = reader.path, storage_of(reader.path)
        fresh.unlink(missing_ok=True)
        start = self._readers[0].run_info
        run_info = RunInfo(start.start, {}, {} if self._done else start.files)
        writer = WRITERS[storage](fresh, run_info, reader.compression)
        try:
            for block in reader.blocks():
                _check_types(path, block.channels)
                writer.write(block)
            if reader.problem and not is_last:
                where = f"damaged in the middle of the bag ({reader.problem})"
                raise BagError(f"{path}: {where}: later files cannot follow it")
            found = FileInfo(path.name, writer.times, writer.counts)
            before = [file.times[1] for file in self._done if file.messages]
            if found.messages and before and found.times[0] < max(before):
                raise BagError(f"{path}: older than the file before it: files are in the wrong order")
            self._done.append(found)
            end = _end(reader, is_last)
            writer.close(end, lambda: information(storage, [found], {}))
        except BaseException:  # Ctrl-C too: half a file must not stay behind
            writer.abandon()
            raise
        return end

    def _describe(self, text: str) -> None:
        path = self._folder / METADATA_YAML
        with suppress(OSError, UnicodeDecodeError):
            if path.read_text(encoding="utf-8") == text:
                return
        why = "it was missing"
        if path.exists():
            path.replace(path.with_name(f"{METADATA_YAML}.damaged"))
            why = "it did not fit the files"
        path.write_text(text, encoding="utf-8")
        self._damaged.append(f"{METADATA_YAML}: {why}")


def _check_types(path: Path, channels: Iterable[BagChannel]) -> None:
    for channel in channels:
        if not is_known(channel.type):
            raise BagError(
                f"{path} cannot be repaired: the topic {channel.topic} has the unknown type {channel.type!r}"
            )


def _end(reader: FileReader, is_last: bool) -> Mapping[str, str]:
    end = reader.run_info.end
    if not is_last:
        if end and end != CONTINUES:
            raise BagError(f"{reader.path}: the run ends with this file, but more follow: files are in the wrong order")
        return CONTINUES
    if not end or end == CONTINUES:
        problem = reader.problem or ("the files after it are missing" if end else "not finished")
        return {"complete": "false", "reason": f"repaired: {problem}"}
    return end
