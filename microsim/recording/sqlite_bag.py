"""rosbag2's sqlite3 files, written a block at a time in transactions; our `RunInfo` is in a table of its own."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from microsim.recording.bag_model import (
    BagChannel,
    BagError,
    Block,
    FileReader,
    FileWriter,
    RunInfo,
    definition,
    repairs,
)

_SCHEMA = """
CREATE TABLE schema(schema_version INTEGER PRIMARY KEY, ros_distro TEXT NOT NULL);
CREATE TABLE metadata(id INTEGER PRIMARY KEY, metadata_version INTEGER NOT NULL, metadata TEXT NOT NULL);
CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL, serialization_format TEXT NOT NULL,
    offered_qos_profiles TEXT NOT NULL, type_description_hash TEXT NOT NULL);
CREATE TABLE message_definitions(id INTEGER PRIMARY KEY, topic_type TEXT NOT NULL, encoding TEXT NOT NULL,
    encoded_message_definition TEXT NOT NULL, type_description_hash TEXT NOT NULL);
CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT NULL,
    data BLOB NOT NULL);
CREATE INDEX timestamp_idx ON messages (timestamp ASC);
CREATE TABLE microsim(place TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (place, key));
INSERT INTO schema(schema_version, ros_distro) VALUES (4, 'microsim');
"""
_BATCH = 4096  # messages of a block that is read


class SqliteWriter(FileWriter):
    suffix = ".db3"

    def __init__(
        self, path: Path, run_info: RunInfo, compression: str = "", create: Callable[[Path], object] | None = None
    ) -> None:
        super().__init__()
        self._types: set[str] = set()
        try:
            self._database = self._connected(path)
            self._database.executescript("PRAGMA synchronous=OFF;" + _SCHEMA)
        except sqlite3.Error as error:
            raise OSError(str(error)) from None
        with _transaction(self._database):
            self._store("start", run_info.start)
            self._store("file", run_info.files)

    def write(self, block: Block) -> None:
        with _transaction(self._database):
            self._know(block.channels)
            for channel in block.channels:
                self._declare(channel)
            self._insert(zip(block.numbers, block.times, block.data, strict=True))
        self._count(Counter(block.numbers), block)
        self.size += block.size

    def close(self, end: Mapping[str, str], rosbag2: Callable[[], str]) -> None:
        with _transaction(self._database):
            self._store("end", end)
            self._execute("INSERT INTO metadata(metadata_version, metadata) VALUES(8, ?)", rosbag2())
        self._finish()

    def abandon(self) -> None:
        self._database.close()

    def _store(self, place: str, values: Mapping[str, str | bytes]) -> None:
        for key, value in sorted(values.items()):
            self._execute("INSERT INTO microsim VALUES(?, ?, ?)", place, key, value)

    def _declare(self, channel: BagChannel) -> None:
        text, type_hash = definition(channel.type)
        if channel.type not in self._types:
            self._types.add(channel.type)
            row: tuple[Any, ...] = channel.type, text, type_hash
            self._execute("INSERT INTO message_definitions VALUES(NULL, ?, 'ros2msg', ?, ?)", *row)
        row = (channel.number, channel.topic, channel.type, "cdr", channel.qos, type_hash)
        self._execute("INSERT INTO topics VALUES(?, ?, ?, ?, ?, ?)", *row)

    def _execute(self, statement: str, *values: object) -> None:
        self._database.execute(statement, values)

    # ---- what a writer that only compares does in another way --------------------------------------------------------

    def _connected(self, path: Path) -> sqlite3.Connection:
        if path.exists():
            raise FileExistsError(17, "File exists", str(path))
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def _finish(self) -> None:
        self._database.close()

    def _insert(self, messages: Iterable[tuple[int, int, bytes]]) -> None:
        self._database.executemany("INSERT INTO messages(topic_id, timestamp, data) VALUES(?, ?, ?)", messages)


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All or nothing; errors of SQLite become an OSError, as with any file."""
    try:
        database.execute("BEGIN")
        try:
            yield
        except BaseException:  # Ctrl-C too: half a transaction must not stay open
            with suppress(sqlite3.Error):  # it may have rolled back by itself
                database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")
    except sqlite3.Error as error:
        raise OSError(str(error)) from None


class SqliteReader(FileReader):
    """Checks types; SQLite has no checksums."""

    def __init__(self, path: Path, tolerant: bool = False) -> None:
        super().__init__(path, tolerant)
        with self._noting():
            self.run_info = self._read_info()
        if self.is_ours and not self.run_info.end and not tolerant:
            raise BagError(f"{path}: not finished: the run was cut off; {repairs(path)} finishes it")

    def entries_of(self, topics: Container[str]) -> Iterator[tuple[BagChannel, int, bytes]]:
        with self._noting(), read_only(self.path) as database:
            channels = {channel.number: channel for channel in _channels(database) if channel.topic in topics}
            numbers = ", ".join(map(str, channels))
            query = f"SELECT topic_id, timestamp, data FROM messages WHERE topic_id IN ({numbers}) ORDER BY id"
            for number, time, data in database.execute(query):
                if type(time) is not int or type(data) is not bytes:
                    raise BagError("an impossible message")
                yield channels[number], time, data

    def _read_info(self) -> RunInfo:
        with read_only(self.path) as database:
            names = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "microsim" not in names:
                return RunInfo({}, {})
            stored: dict[str, dict[str, Any]] = {"start": {}, "end": {}, "file": {}}
            for place, key, value in database.execute("SELECT place, key, value FROM microsim ORDER BY key"):
                stored.setdefault(place, {})[str(key)] = bytes(value) if place == "file" else str(value)
            return RunInfo(stored["start"], stored["end"], stored["file"])

    def _blocks(self) -> Iterator[Block]:
        with read_only(self.path) as database:
            channels = _channels(database)
            known = {channel.number for channel in channels}
            rows = database.execute("SELECT topic_id, timestamp, data FROM messages ORDER BY id")
            for found in _whole_ticks(rows):
                if any(not (type(n) is type(t) is int and type(d) is bytes and n in known) for n, t, d in found):
                    raise BagError("an impossible message")
                numbers, times, data = (list(column) for column in zip(*found, strict=True))
                yield Block(channels, numbers, times, data, sum(map(len, data)))
                channels = []


def _channels(database: sqlite3.Connection) -> list[BagChannel]:
    rows = database.execute("SELECT id, name, type, offered_qos_profiles FROM topics ORDER BY id")
    return [BagChannel(int(row[0]), str(row[1]), str(row[2]), str(row[3])) for row in rows]


def _whole_ticks(rows: sqlite3.Cursor) -> Iterator[list[tuple[int, int, bytes]]]:
    """Some thousand rows at a time, cut where the time changes."""
    held: list[tuple[int, int, bytes]] = []
    while found := rows.fetchmany(_BATCH):
        held += found
        last = held[-1][1]
        end = next((index for index in range(len(held), 0, -1) if held[index - 1][1] != last), 0)
        if end:
            yield held[:end]
            held = held[end:]
    if held:
        yield held


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """The file opened for reading; errors of SQLite and of strange values become a BagError."""
    try:
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            yield database
        finally:
            database.close()
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise BagError(f"damaged: {error}") from None
