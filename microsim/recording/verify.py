"""Whether a replay gives the recording again: it is recorded once more, onto files that only compare.

Every byte of MCAP files and of `metadata.yaml` is compared, and of SQLite files the schema and every row. When they
differ, messages are compared one by one to find the first difference among them.
"""

from __future__ import annotations

import json
import mmap
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from microsim.recording import compare
from microsim.recording.bag_io import COMPRESSIONS, BagWriter, OwnBag, RecordOptions
from microsim.recording.bag_model import METADATA_YAML, BagError, FileWriter, Piece, RunInfo
from microsim.recording.compare import Difference, is_chosen, recorded_choice, shown_apart
from microsim.recording.inputs import moved_back
from microsim.recording.mcap import MAGIC, McapWriter, decompress, text
from microsim.recording.mcap_reader import described_pairs
from microsim.recording.recorder import Recorder
from microsim.recording.sqlite_bag import SqliteWriter
from microsim.scenario import Scenario
from microsim.simulation import Simulation
from microsim.version import __version__

if TYPE_CHECKING:
    from microsim.recording.bag_replay import Replay

Row: TypeAlias = Sequence[Any]

_COMPRESSION_IN_CHUNK = 37  # bytes from the start of a chunk to the name of its compression


@dataclass(frozen=True)
class ReplayVerdict:
    """What `verify` found."""

    messages: int  # compared and the same
    ticks: int
    digest: str
    difference: Difference | None = None
    problem: str = ""  # every recorded message is the same, and yet something else is not
    is_partial: bool = False  # only some topics were recorded
    is_cut: bool = False  # the recording ended before the run did

    @property
    def is_identical(self) -> bool:
        return self.difference is None and not self.problem

    def to_dict(self) -> dict[str, Any]:
        difference = None if self.difference is None else self.difference.to_dict()
        names = ("messages", "ticks", "digest", "problem", "is_partial", "is_cut")
        return {"identical": self.is_identical, **{n: getattr(self, n) for n in names}, "difference": difference}

    def __str__(self) -> str:
        if self.difference is not None:
            return str(self.difference)
        if self.problem:
            return f"different: {self.problem}"
        notes = ["the recording holds only some topics: these were compared"] if self.is_partial else []
        if self.is_partial and not self.is_cut:
            notes.append("the digest, which covers all topics, is the recorded one")
        notes += [f"the recording was cut off: compared up to tick {self.ticks:,}"] if self.is_cut else []
        return "\n".join([f"identical: {self.messages:,} messages, digest {self.digest}", *notes])


def verify(replay: Replay) -> ReplayVerdict:
    """Compare everything with the recording, up to the first difference."""
    bag = replay.bag
    if not isinstance(bag, OwnBag):
        raise BagError(f"{bag.path}: only recordings made by microsim can be verified, and this one was not")
    if not bag.is_complete and not any(block.numbers for block in bag.blocks()):
        problem = "the recording was cut off before its first chunk: there is nothing to compare"
        return ReplayVerdict(0, 0, replay.sim.digest(), None, problem, bool(recorded_choice(bag)), True)
    same, problem = _recorded_again(replay, bag)
    difference = None
    if problem or replay.ignored:
        replay.restart()
        inputs = replay.input_topics
        recorded = compare.recorded_entries(bag, lambda topic: topic not in inputs)
        sent = compare.sent_entries(replay.portions(), lambda topic: is_chosen(bag, topic))
        same, difference = compare.first_difference(recorded, sent, ("recorded", "replayed"))
    digest, recorded_digest = replay.sim.digest(), bag.run_info.end.get("digest", "")
    if difference is not None:
        problem = ""
    elif replay.ignored:
        problem = f"{replay.ignored} recorded inputs were ignored this time"
    elif bag.is_complete and digest != recorded_digest:
        problem = f"the recorded topics are the same, but the digest of all is {digest}, recorded was {recorded_digest}"
    is_partial = bool(recorded_choice(bag))
    return ReplayVerdict(same, replay.sim.tick, digest, difference, problem, is_partial, not bag.is_complete)


def _recorded_again(replay: Replay, bag: OwnBag) -> tuple[int, str]:
    """How many messages were recorded again, and where the second recording first differs from the first."""
    try:
        recorder = Rerecorder(bag, replay.sim)
    except BagError as error:
        if isinstance(error.__context__, DifferentBytesError):
            return 0, str(error.__context__)
        raise
    try:
        replay.run(recorder.on_messages)
    except BagError:
        if not recorder.error:
            raise
    finally:
        recorder.close()  # its thread reads the recording's files
    return recorder.messages, str(recorder.disk_error or recorder.error)


class DifferentBytesError(OSError):
    """The second recording is not the first: where, and what."""

    def __init__(self, path: Path, where: str, recorded: Any, expected: Any) -> None:
        where, first, second = shown_apart(where, recorded, expected)
        super().__init__(f"{path}: {where}: recorded {first}, expected {second}")


def _check_same(path: Path, recorded: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise the first value that differs: one that both have, else one too many, else one that is missing."""
    names = sorted({**expected, **recorded}, key=lambda name: (name not in expected) + 2 * (name not in recorded))
    for name in names:
        first, second = recorded.get(name), expected.get(name)
        if type(first) is not type(second) or first != second:
            raise DifferentBytesError(path, name, first, second)


class ComparingFile:
    """Takes what is written and compares it with what is there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # given back with the object
        self._bytes = np.frombuffer(self.content, np.uint8)
        self._at = 0

    def write_parts(self, parts: Sequence[Piece]) -> None:
        start = self._at
        for part in parts:
            there = self._bytes[self._at : self._at + len(part)]
            if not np.array_equal(there, np.frombuffer(part, np.uint8)):
                self._explain(start, b"".join(parts))
            self._at += len(part)

    def _explain(self, start: int, expected: bytes) -> NoReturn:
        """Raise what differs: a named value where the records can be read, else bytes."""
        recorded = self.content[start : start + len(expected)]
        at = next((i for i, pair in enumerate(zip(recorded, expected, strict=False)) if pair[0] != pair[1]), 0)
        head = len(MAGIC) if start == 0 else 0
        with suppress(BagError):
            for pair in described_pairs(self.content, start + head, expected[head:]):
                _check_same(self._path, *pair)
        raise DifferentBytesError(self._path, f"byte {start + at:,}", recorded[at:][:16], expected[at:][:16])

    def close(self) -> None:
        if self._at != len(self._bytes):
            raise DifferentBytesError(self._path, "length in bytes", len(self._bytes), self._at)


class ComparingMcap(McapWriter):
    """Compares chunks as they are before compression: versions of zstd differ, and compressing takes longer."""

    _file: ComparingFile

    def _compressed(self, records: bytes) -> bytes:
        """The compressed bytes that are there, if they hold these records."""
        place = self.size + _COMPRESSION_IN_CHUNK + len(text(self._compression))
        content = self._file.content
        length = int.from_bytes(content[place : place + 8], "little")
        found = content[place + 8 : place + 8 + length]
        with suppress(BagError):
            if decompress(found, self._compression, len(records)) == records:
                return found
        return super()._compressed(records)  # is different, and explained as any other bytes


_TABLES = {
    **{name: f"SELECT rowid, * FROM {name} ORDER BY rowid" for name in ("schema", "metadata", "topics", "microsim")},
    "message_definitions": "SELECT topic_type, encoding, encoded_message_definition, type_description_hash "
    "FROM message_definitions ORDER BY topic_type",  # their order is another in a bag that was repaired
}


class ComparingSqlite(SqliteWriter):
    """Writes everything but the messages into memory, and compares schema and rows with the file."""

    def __init__(self, path: Path, run_info: RunInfo) -> None:
        self._path = path
        self._row = 0
        try:
            self._recorded = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
            self._recorded.text_factory = lambda raw: raw.decode(errors="surrogateescape")
            self._messages = self._recorded.execute("SELECT id, topic_id, timestamp, data FROM messages ORDER BY id")
        except sqlite3.Error as error:
            raise DifferentBytesError(path, "table messages", str(error), "id, topic_id, timestamp, data") from None
        super().__init__(path, run_info)

    def _connected(self, path: Path) -> sqlite3.Connection:
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

    def _insert(self, messages: Iterable[tuple[int, int, bytes]]) -> None:
        for message in messages:
            self._row += 1
            self._check_row("messages", self._row, self._messages, next(self._messages, ()), (self._row, *message))

    def _finish(self) -> None:
        try:
            self._check_rest()
        except sqlite3.Error as error:
            raise DifferentBytesError(self._path, "SQLite", str(error), "a file without damage") from None
        self._recorded.close()
        super()._finish()

    def _check_rest(self) -> None:
        self._check_row("messages", self._row + 1, self._messages, next(self._messages, ()), ())
        query = "SELECT type || ' ' || name, sql FROM sqlite_master"
        schemas = [dict(database.execute(query).fetchall()) for database in (self._recorded, self._database)]
        _check_same(self._path, *schemas)
        for table, query in _TABLES.items():
            recorded, expected = (database.execute(query) for database in (self._recorded, self._database))
            for number, (row, other) in enumerate(zip_longest(recorded, expected, fillvalue=()), 1):
                self._check_row(table, number, recorded, row, other)
        for name in ("user_version", "application_id", "integrity_check"):
            found = (each.execute(f"PRAGMA {name}").fetchone() for each in (self._recorded, self._database))
            _check_same(self._path, *({name: value} for value in found))

    def _check_row(self, table: str, number: int, cursor: sqlite3.Cursor, recorded: Row, expected: Row) -> None:
        if recorded == expected and list(map(type, recorded)) == list(map(type, expected)):
            return
        names = [f"table {table}, row {number}, {column[0]}" for column in cursor.description]
        rows = (dict(zip(names, row, strict=False)) for row in (recorded, expected))
        _check_same(self._path, *rows)


class ComparingBag(BagWriter):
    """Compares every file of a bag, `metadata.yaml` too."""

    def __init__(self, bag: OwnBag, run_info: RunInfo, options: RecordOptions) -> None:
        self._bag = bag
        super().__init__(bag.path, run_info, options)

    def _prepare(self) -> None:
        pass

    def _file_writer(self, path: Path, run_info: RunInfo) -> FileWriter:
        number, files = len(self._done), self._bag.files
        if number == len(files):
            raise DifferentBytesError(self._bag.path, "number of files", number, f"more than {number}")
        if self.options.storage == "sqlite3":
            return ComparingSqlite(files[number], run_info)
        return ComparingMcap(files[number], run_info, COMPRESSIONS[self.options.compression], ComparingFile)

    def _describe(self, text: str) -> None:
        if len(self._done) != len(self._bag.files):
            raise DifferentBytesError(self._bag.path, "number of files", len(self._bag.files), len(self._done))
        if not self._bag.metadata:
            return
        path = self.folder / METADATA_YAML
        texts = path.read_bytes().decode(errors="replace"), text
        _check_same(path, *({f"line {n}": line for n, line in enumerate(t.split("\n"), 1)} for t in texts))


class Rerecorder(Recorder):
    """Records a replay onto its recording, and writes nothing."""

    def __init__(self, bag: OwnBag, sim: Simulation) -> None:
        self._bag = bag
        super().__init__(bag.path, sim, recorded_options(bag))

    def _writer_to(self, folder: Path, run_info: RunInfo) -> BagWriter:
        return ComparingBag(self._bag, run_info, self.options)

    def _recording_json(self, folder: Path) -> None:
        return None

    def _start_info(self, sim: Simulation) -> RunInfo:
        """Those of the recording where another version made it: they are what the replay starts from."""
        recorded = self._bag.run_info
        if recorded.start["version"] != __version__:
            return recorded
        run_info = super()._start_info(sim)
        code = {"plugins": recorded.start["plugins"]} if "plugins" in recorded.start else {}
        return replace(
            run_info, start={**run_info.start, **code}
        )  # of plug-ins that changed, the messages are compared

    def _packed(self, scenario: Scenario) -> tuple[dict[str, Any], dict[str, bytes]]:
        data, files = super()._packed(scenario)
        return moved_back(data, self._bag.run_info.start["scenario"]), files

    def _end_info(self, messages: int, inputs: int) -> Mapping[str, str]:
        recorded = self._bag
        return super()._end_info(messages, inputs) if recorded.is_complete else recorded.run_info.end


def recorded_options(bag: OwnBag) -> RecordOptions:
    """The options with which the bag was recorded."""
    try:
        start = bag.run_info.start
        return RecordOptions.from_dict(json.loads(start["options"]), json.loads(start["topics"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BagError(f"{bag.path}: damaged: how it was recorded cannot be read: {error}") from None
