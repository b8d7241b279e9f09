"""Writes a bag: a folder with one file after another, and `metadata.yaml` when all is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from microsim.errors import UsageError
from microsim.recording.entries import BagError, Block, Channel, Facts
from microsim.recording.mcap_writer import McapWriter
from microsim.recording.metadata import NAME, FileFacts, information, metadata_text
from microsim.recording.sqlite_files import SqliteWriter

WRITERS: dict[str, type[McapWriter] | type[SqliteWriter]] = {"mcap": McapWriter, "sqlite3": SqliteWriter}
CONTINUES = {"continues": "true"}  # in place of the end's facts, in every file but the last
COMPRESSIONS = {"none": "", "zstd": "zstd"}


@dataclass(frozen=True)
class RecordOptions:
    """How a run is recorded. Topics are shell patterns; inputs are always recorded."""

    storage: str = "mcap"
    compression: str = "none"
    topics: tuple[str, ...] = ()  # empty: all
    exclude: tuple[str, ...] = ()
    split_bytes: int | None = None  # a new file when one has reached this size
    split_s: Fraction | None = None  # a new file at each multiple of this simulated time
    chunk_bytes: int = 2**20  # a chunk ends with the tick in which the run has said so much, if half is recorded …
    chunk_s: int = 5  # … or this simulated time
    queue_bytes: int = 64 * 2**20  # what may wait for the disk

    def to_dict(self) -> dict[str, Any]:
        """What decides the bytes, beside the topics."""
        split = None if self.split_s is None else str(self.split_s)
        return {
            "storage": self.storage,
            "compression": self.compression,
            "split_bytes": self.split_bytes,
            "split_s": split,
            "chunk_bytes": self.chunk_bytes,
            "chunk_s": self.chunk_s,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], choice: Mapping[str, Any]) -> RecordOptions:
        split = None if values["split_s"] is None else Fraction(values["split_s"])
        topics = {"topics": tuple(choice["only"]), "exclude": tuple(choice["without"])}
        return cls(**{**values, **topics, "split_s": split})

    def __post_init__(self) -> None:
        if self.storage not in WRITERS:
            raise UsageError(f"no storage {self.storage!r}; there are: {', '.join(WRITERS)}")
        if self.compression not in COMPRESSIONS:
            raise UsageError(f"no compression {self.compression!r}; there are: {', '.join(COMPRESSIONS)}")
        if self.storage == "sqlite3" and self.compression != "none":
            raise UsageError("sqlite3 files have no compression of their own; take mcap")
        if (self.split_bytes is not None and self.split_bytes < 1) or (self.split_s is not None and self.split_s <= 0):
            raise UsageError("files can be split only at a size or time above 0")


class BagWriter:
    def __init__(
        self, folder: Path, facts: Facts, options: RecordOptions, create: Callable[[Path], Any] | None = None
    ) -> None:
        self.folder = folder
        self.facts = facts
        self.options = options
        self._create = create
        self._split_ns = None if options.split_s is None else options.split_s * 10**9
        self._channels: dict[int, Channel] = {}
        self._declared: set[int] = set()  # in the file that is open
        self._done: list[FileFacts] = []
        self._prepare()
        self._file = self._open()
        self._part = 0  # of the simulated time, when files are split by it

    def write(self, block: Block) -> None:
        if block.times and self._is_full(block.times[0]):
            self._finish(CONTINUES)
            self._file = self._open()
        for channel in block.channels:
            self._channels[channel.number] = channel
        new = sorted(set(block.numbers) - self._declared)
        self._declared.update(new)
        self._file.write(replace(block, channels=[self._channels[number] for number in new]))

    def close(self, end: Mapping[str, str]) -> None:
        self._finish(end)
        custom = Facts(self.facts.start, end).custom_data()
        self._describe(metadata_text(self.options.storage, self._done, custom))

    def _kind(self) -> type[McapWriter] | type[SqliteWriter]:
        return WRITERS[self.options.storage]

    def _prepare(self) -> None:
        make_folder(self.folder)

    def _describe(self, text: str) -> None:
        (self.folder / NAME).write_text(text, encoding="utf-8")

    def abandon(self) -> None:
        self._file.abandon()

    def _is_full(self, time_ns: int) -> bool:
        part = self._part
        if self._split_ns is not None:
            self._part = int(time_ns / self._split_ns)
        limit = self.options.split_bytes
        return self._part != part or (limit is not None and self._file.size >= limit)

    def _open(self) -> McapWriter | SqliteWriter:
        kind = self._kind()
        name = f"microsim_{len(self._done)}{kind.suffix}"
        facts = self.facts if not self._done else Facts(self.facts.start, {})
        self._declared.clear()
        return kind(self.folder / name, facts, COMPRESSIONS[self.options.compression], self._create)

    def _finish(self, end: Mapping[str, str]) -> None:
        file = self._file
        name = f"microsim_{len(self._done)}{file.suffix}"
        told = FileFacts(name, file.times, file.counts)
        file.close(end, lambda: information(self.options.storage, [told], {}))
        self._done.append(told)


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BagError(f"{folder} is not empty: a recording never overwrites; give another folder")
    except FileExistsError:
        raise BagError(f"{folder} is a file; give a folder to record into") from None
    except OSError as error:
        raise BagError(f"nothing can be recorded into {folder}: {error.strerror or error}") from None
