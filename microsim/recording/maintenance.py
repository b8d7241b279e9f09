"""`microsim bag info` and `microsim bag repair`: what a bag holds, whether it is whole, and how to finish it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microsim.recording.bag import CONTINUES, READERS, WRITERS, FileReader, ForeignBag, OwnBag, open_bag, storage_of
from microsim.recording.bag_model import METADATA_YAML, BagError, Block, FileFacts, RunFacts, information, metadata_text
from microsim.recording.mcap_reader import McapReader


@dataclass
class Traffic:
    """What a topic carried."""

    type: str
    messages: int = 0
    first_ns: int = 0
    last_ns: int = 0

    @property
    def rate_hz(self) -> float | None:
        """Between the first message and the last; None: there are not two."""
        span_ns = self.last_ns - self.first_ns
        return (self.messages - 1) * 1e9 / span_ns if span_ns > 0 else None

    def count(self, time_ns: int) -> None:
        self.first_ns = self.first_ns if self.messages else time_ns
        self.last_ns = time_ns
        self.messages += 1

    def to_dict(self) -> dict[str, Any]:
        return {"type": self.type, "messages": self.messages, "rate_hz": self.rate_hz}


@dataclass
class Info:
    path: Path
    facts: dict[str, str]
    bytes: int
    topics: dict[str, Traffic]
    first_ns: int
    last_ns: int
    problem: str = ""  # what is wrong with the bag

    @property
    def messages(self) -> int:
        """Of all topics, inputs too."""
        return sum(traffic.messages for traffic in self.topics.values())

    @property
    def duration_s(self) -> float:
        return (self.last_ns - self.first_ns) / 1e9

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "bytes": self.bytes,
            "duration_s": self.duration_s,
            "messages": self.messages,
            "problem": self.problem,
            **{_FACT_NAMES.get(name, name): _plain(text) for name, text in self.facts.items()},
            "topics": {topic: traffic.to_dict() for topic, traffic in self.topics.items()},
        }


_FACT_NAMES = {"messages": "sent", "format": "format_version"}  # `sent` are messages without inputs


def _plain(text: str) -> Any:
    """A fact as what it is: the metadata of MCAP files has text only."""
    if text.lstrip("-").isdecimal() or text in ("true", "false") or text.startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


class _Counting:
    def __init__(self) -> None:
        self.channels: dict[int, Traffic] = {}
        self.topics: dict[str, Traffic] = {}
        self.times: list[int] = []

    def add(self, block: Block) -> None:
        for channel in block.channels:
            self.channels[channel.number] = self.topics.setdefault(channel.topic, Traffic(channel.type))
        for number, time in zip(block.numbers, block.times, strict=True):
            self.channels[number].count(time)
        if block.times:
            self.times += (block.times[0], block.times[-1])


def look(path: Path) -> Info:
    """Everything that can be read, and what is wrong with the rest."""
    counting, problem = _Counting(), ""
    facts: dict[str, str] = {}
    files: list[Path] = []
    try:
        bag = open_bag(path)
        files = bag.files if isinstance(bag, OwnBag) else _files(bag)
        facts = {**bag.facts.start, **bag.facts.end}
        for block in bag.blocks():
            counting.add(block)
    except BagError as error:
        files = [each for each in ([path] if path.is_file() else _in(path)) if each.suffix in READERS]
        if not files:
            raise
        problem, counting = str(error), _Counting()
        for file in files:
            reader = READERS[file.suffix](file, tolerant=True)
            for block in reader.blocks():
                counting.add(block)
            facts = {**facts, **reader.facts.start, **reader.facts.end}
    size = sum(file.stat().st_size for file in files)
    first, last = min(counting.times, default=0), max(counting.times, default=0)
    return Info(path, facts, size, dict(sorted(counting.topics.items())), first, last, problem)


def _in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _files(bag: ForeignBag) -> list[Path]:
    return [file for file in _in(bag.path) if file.is_file()] if bag.path.is_dir() else [bag.path]


@dataclass(frozen=True)
class Repaired:
    messages: int
    last_ns: int
    damaged: tuple[str, ...]  # files that were written anew, and why


@dataclass
class _State:
    """Of a bag that is being mended, file by file."""

    folder: Path
    facts: RunFacts
    files: list[FileFacts]
    damaged: list[str]
    messages: int = 0


def repair(folder: Path) -> Repaired:
    """Make the bag whole: every file finished, `metadata.yaml` fitting. A file that had to change keeps its old form
    beside it, as `….damaged`."""
    if not folder.is_dir():
        raise BagError(f"{folder}: give the folder of a bag")
    paths = sorted((path for path in folder.iterdir() if path.suffix in READERS), key=_number)
    if not paths:
        raise BagError(f"{folder}: there is no .mcap or .db3 file in it")
    _check_known(paths[0])
    readers = [_opened(path) for path in paths]
    facts = RunFacts(readers[0].facts.start, {}, readers[0].facts.files)
    if not facts.start:
        raise BagError(f"{paths[0]}: nothing is left: not even which scenario ran ({readers[0].problem or 'not ours'})")
    _check_together(readers)
    try:
        return _mended(_State(folder, facts, [], []), readers)
    except OSError as error:
        raise BagError(f"{folder} cannot be repaired: {error.strerror or error}") from None


def _mended(state: _State, readers: list[FileReader]) -> Repaired:
    end: Mapping[str, str] = {}
    for index, reader in enumerate(readers):
        end = _mend(state, reader, is_last=index == len(readers) - 1)
    custom = RunFacts(state.facts.start, end).custom_data()
    _describe(state, metadata_text(storage_of(readers[0].path), state.files, custom))
    return Repaired(state.messages, max(file.times[1] for file in state.files), tuple(state.damaged))


def _check_together(readers: list[FileReader]) -> None:
    """A bag with a gap, or with a file of another run, cannot be made whole."""
    first = readers[0]
    for index, reader in enumerate(readers):
        number = reader.path.stem.rpartition("_")[2]
        if number.isdecimal() and int(number) != index:
            missing = f"{reader.path.stem.rpartition('_')[0]}_{index}{reader.path.suffix}"
            raise BagError(f"{reader.path.parent}: {missing} is missing: what comes after it cannot be kept")
        if reader.facts.start and reader.facts.start != first.facts.start:
            raise BagError(f"{reader.path}: of another run than {first.path.name}: take one of them out of the folder")


def _describe(state: _State, text: str) -> None:
    path = state.folder / METADATA_YAML
    with suppress(OSError, UnicodeDecodeError):
        if path.read_text(encoding="utf-8") == text:
            return
    why = "it was missing"
    if path.exists():
        path.replace(path.with_name(f"{METADATA_YAML}.damaged"))
        why = "it did not fit the files"
    path.write_text(text, encoding="utf-8")
    state.damaged.append(f"{METADATA_YAML}: {why}")


def _number(path: Path) -> tuple[int, str]:
    digits = path.stem.rpartition("_")[2]
    return (int(digits) if digits.isdecimal() else 0), path.name


def _check_known(path: Path) -> None:
    """Leave bags of others alone."""
    is_foreign = False
    with suppress(BagError):  # damaged: that is what we are here for
        is_foreign = isinstance(open_bag(path), ForeignBag)
    if is_foreign:
        raise BagError(f"{path}: not made by microsim; `ros2 bag reindex` is for bags of others")


def _opened(path: Path) -> FileReader:
    if path.suffix == ".db3":
        with suppress(sqlite3.Error):  # rolls back a transaction that was cut off
            database = sqlite3.connect(path)
            database.execute("SELECT count(*) FROM sqlite_master").fetchall()
            database.close()
    return READERS[path.suffix](path, tolerant=True)


def _mend(state: _State, reader: FileReader, is_last: bool) -> Mapping[str, str]:
    """Write the file anew beside the old one; put it in its place only if the old one was not whole."""
    path = reader.path
    fresh = path.with_name(f"{path.name}.repairing")
    try:
        end = _rewritten(state, reader, fresh, is_last)
        if _is_whole(path) and end == reader.facts.end:
            return end
        why = reader.problem or end.get("reason", "not finished").removeprefix("repaired: ")
        state.damaged.append(f"{path.name}: {why}")
        path.rename(path.with_name(f"{path.name}.damaged"))
        fresh.rename(path)
        return end
    finally:
        fresh.unlink(missing_ok=True)


def _rewritten(state: _State, reader: FileReader, fresh: Path, is_last: bool) -> Mapping[str, str]:
    """All that can be read, in a new file; gives what is told at its end."""
    path = reader.path
    fresh.unlink(missing_ok=True)
    facts = state.facts if not state.files else RunFacts(state.facts.start, {})
    writer = WRITERS[storage_of(path)](fresh, facts, _compression(reader))
    try:
        for block in reader.blocks():
            writer.write(block)
        if reader.problem and not is_last:
            raise BagError(f"{path}: damaged in the middle of the bag ({reader.problem}): later files cannot follow it")
        told = FileFacts(path.name, writer.times, writer.counts)
        if told.messages and state.messages and told.times[0] < max(file.times[1] for file in state.files):
            raise BagError(f"{path}: what it holds is older than what is before it: files are exchanged")
        state.messages += told.messages
        state.files.append(told)
        end = _end(reader, is_last)
        writer.close(end, lambda: information(storage_of(path), [told], {}))
    except BaseException:
        writer.abandon()
        raise
    return end


def _end(reader: FileReader, is_last: bool) -> Mapping[str, str]:
    end = reader.facts.end
    if not is_last:
        if end and end != CONTINUES:
            raise BagError(f"{reader.path}: the run ends with this file, and there are more: files are exchanged")
        return CONTINUES
    if not end or end == CONTINUES:
        problem = reader.problem or ("the files after it are missing" if end else "not finished")
        return {"complete": "false", "reason": f"repaired: {problem}"}
    return end


def _is_whole(path: Path) -> bool:
    try:
        for _ in READERS[path.suffix](path).blocks():
            pass
    except BagError:
        return False
    return True


def _compression(reader: FileReader) -> str:
    return reader.compression if isinstance(reader, McapReader) else ""
