"""Opens bags (ours, checked, and those of `ros2 bag record`) and writes ours: a folder of files and `metadata.yaml`."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from microsim.errors import UsageError
from microsim.recording import mcap
from microsim.recording.bag_model import (
    FORMAT,
    METADATA_YAML,
    BagChannel,
    BagError,
    Block,
    FileInfo,
    FileReader,
    FileWriter,
    RunInfo,
    information,
    metadata_text,
    read_metadata,
    repairs,
)
from microsim.recording.mcap import McapWriter
from microsim.recording.mcap_reader import McapReader
from microsim.recording.sqlite_bag import SqliteReader, SqliteWriter

READERS: dict[str, Callable[..., FileReader]] = {".mcap": McapReader, ".db3": SqliteReader}
WRITERS: dict[str, type[McapWriter] | type[SqliteWriter]] = {"mcap": McapWriter, "sqlite3": SqliteWriter}
CONTINUES = {"continues": "true"}  # in place of the end's information, in every file but the last
COMPRESSIONS = {"none": "", "zstd": "zstd"}
_RESET_NS = 500_000_000  # recorders may swap neighbours; a longer step back is a reset of the clock


def storage_of(file: Path) -> str:
    return "sqlite3" if file.suffix == ".db3" else "mcap"


@dataclass
class OwnBag:
    """A bag that MicroSim recorded."""

    path: Path
    files: list[Path]
    run_info: RunInfo
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of metadata.yaml; empty: a file by itself
    is_ours: bool = True
    end_ns: int | None = None

    @property
    def storage(self) -> str:
        return storage_of(self.files[0])

    @property
    def is_complete(self) -> bool:
        return self.run_info.end.get("complete") == "true"

    def blocks(self) -> Iterator[Block]:
        """In order of time; channels keep their numbers from file to file."""
        known: set[int] = set()
        count = last = 0
        for file in self.files:
            for block in READERS[file.suffix](file).blocks():
                if block.times and block.times[0] < last:
                    raise BagError(f"{file}: older than the file before it: files are in the wrong order")
                last = block.times[-1] if block.times else last
                block.channels = [channel for channel in block.channels if channel.number not in known]
                known.update(channel.number for channel in block.channels)
                count += len(block.numbers)
                yield block
        if self.metadata and self.metadata["message_count"] != count:
            counts = f"{METADATA_YAML} says {self.metadata['message_count']:,} messages, the files hold {count:,}"
            raise BagError(f"{self.path}: {counts}; {repairs(self.path)} rebuilds it")

    def entries_of(self, topics: Container[str]) -> Iterator[tuple[BagChannel, int, bytes]]:
        """The messages of some topics, without reading all of the others."""
        for file in self.files:
            yield from READERS[file.suffix](file).entries_of(topics)


class DescribedChannel(NamedTuple):
    topic: str
    type: str
    messages: int
    definition: str  # of the type; empty: the bag does not say
    is_idl: bool
    latched: bool  # as its publishers offered it


def _described(connection: Any) -> DescribedChannel:
    text, profiles = connection.msgdef, connection.ext.offered_qos_profiles
    latched = any(each.durability.name == "TRANSIENT_LOCAL" for each in profiles)
    definition = text.data if text.format.name in ("MSG", "IDL") else ""
    counted = connection.topic, connection.msgtype, connection.msgcount
    return DescribedChannel(*counted, definition, text.format.name == "IDL", latched)


@dataclass
class ForeignBag:
    """A bag by others, read through `rosbags`."""

    path: Path
    run_info: RunInfo = field(default_factory=lambda: RunInfo({}, {}))
    is_ours: bool = False
    end_ns: int | None = None  # time of the last message, known once all have been read

    def entries_of(self, topics: Container[str]) -> Iterator[tuple[BagChannel, int, bytes]]:
        """In order of time, which files of others do not guarantee."""
        channels: dict[int, BagChannel] = {}
        found: list[tuple[BagChannel, int, bytes]] = []
        self.end_ns = 0
        for block in self.blocks():
            channels.update((channel.number, channel) for channel in block.channels)
            for number, time, data in zip(block.numbers, block.times, block.data, strict=True):
                self.end_ns = max(self.end_ns, time)
                if channels[number].topic in topics:
                    found.append((channels[number], time, data))
        yield from sorted(found, key=lambda entry: entry[1])

    def check_one_run(self) -> None:
        """Raises BagError where the clock was set back during the recording: several runs would be taken for one."""
        with self._reader() as reader:
            files = getattr(reader.storage, "storages", [reader.storage])  # of a folder, decompressed; or a file alone
            jump = clock_jump(Path(file.path) for file in files)
        if jump is not None:
            raise BagError(
                f"{self.path}: time jumps back from {jump[0] / 1e9:.3f} s to {jump[1] / 1e9:.3f} s: the simulation "
                "was reset during the recording; record each run into a separate bag"
            )

    def channels(self) -> list[DescribedChannel]:
        """What is in it, before its messages are read."""
        with self._reader() as reader:
            return [_described(connection) for connection in reader.connections]

    def blocks(self) -> Iterator[Block]:
        numbers: dict[int, int] = {}
        count = 0
        with self._reader() as reader:
            block = Block()
            for connection, time, data in reader.messages():
                if type(time) is not int:
                    raise BagError(f"{self.path}: {connection.topic}: {time!r} is not a time")
                if connection.id not in numbers:
                    numbers[connection.id] = len(numbers) + 1
                    block.channels.append(BagChannel(len(numbers), connection.topic, connection.msgtype, ""))
                block.numbers.append(numbers[connection.id])
                block.times.append(time)
                block.data.append(bytes(data))
                count += 1
                if len(block.numbers) >= 1000:
                    yield block
                    block = Block()
            yield block
            if count != reader.message_count:
                counts = f"its metadata says {reader.message_count:,} messages, but {count:,} can be read"
                raise BagError(f"{self.path}: {counts}; `ros2 bag reindex` rebuilds the metadata")

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        from rosbags.rosbag2 import Reader

        try:
            with Reader(self.path) as reader:
                yield reader
        except (GeneratorExit, BagError):
            raise
        except Exception as error:  # rosbags can raise anything on a damaged bag
            raise BagError(f"{self.path}: cannot be read as a bag: {type(error).__name__}: {error}") from None


Bag: TypeAlias = OwnBag | ForeignBag


def open_bag(path: Path | str) -> Bag:
    """A folder with metadata.yaml, or one of its files."""
    place = Path(path)
    if not place.exists():
        raise BagError(f"no such bag: {place}")
    if not place.is_dir() and not (place.is_file() and place.suffix in (*READERS, ".zstd")):
        raise BagError(f"{place}: not a bag: give its folder, or a .mcap or .db3 file")
    metadata = read_metadata(place) if place.is_dir() else {}
    files = [place / name for name in metadata["relative_file_paths"]] if metadata else [place]
    for file in files:
        if not file.is_file():
            raise BagError(f"{place}: the file {file.name} of this bag is missing")
    if any(file.suffix not in READERS for file in files):
        return ForeignBag(place)  # compressed as a whole
    first = READERS[files[0].suffix](files[0], tolerant=True)
    if not first.is_ours:
        if first.problem:
            READERS[files[0].suffix](files[0])  # raises what is wrong
        if "microsim.version" in (metadata.get("custom_data") or {}):
            raise BagError(f"{place}: {files[0].name} is damaged: nothing of the run is left in it")
        return ForeignBag(place)
    readers = [READERS[file.suffix](file) for file in files]
    run_info = RunInfo(readers[0].run_info.start, readers[-1].run_info.end, readers[0].run_info.files)
    _check(place, [reader.run_info for reader in readers], run_info, metadata)
    return OwnBag(place, files, run_info, metadata)


def _check(place: Path, parts: list[RunInfo], run_info: RunInfo, metadata: Mapping[str, Any]) -> None:
    form = run_info.start.get("format")
    if form != FORMAT:
        made_by = run_info.start.get("version", "an unknown version")
        raise BagError(f"{place}: made by microsim {made_by} in format {form}; this version reads format {FORMAT}")
    for key in ("scenario", "seed", "version"):
        if key not in run_info.start:
            raise BagError(f"{place}: damaged: the {key} is missing")
    if any(part.start != run_info.start for part in parts):
        raise BagError(f"{place}: its files are of different runs")
    if [bool(part.end.get("continues")) for part in parts] != [True] * (len(parts) - 1) + [False]:
        raise BagError(f"{place}: a part of a bag; give the folder with all its files, or repair it")
    if metadata.get("custom_data") not in (None, run_info.custom_data()):
        problem = f"{METADATA_YAML} describes another run than the files"
        raise BagError(f"{place}: {problem}; {repairs(place)} rebuilds it")


def clock_jump(files: Iterable[Path]) -> tuple[int, int] | None:
    """The first two times [ns], in the order of writing, of which the later is much the smaller: the clock was reset.

    Readers sort messages by time, which hides this.
    """
    latest = 0
    for file in files:
        for time in (_sqlite_times if file.suffix == ".db3" else _mcap_times)(file):
            if time < latest - _RESET_NS:
                return latest, time
            latest = max(latest, time)
    return None


def _sqlite_times(path: Path) -> Iterator[int]:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        yield from (int(time) for (time,) in database.execute("SELECT timestamp FROM messages ORDER BY id"))


def _mcap_times(path: Path) -> Iterator[int]:
    """From the index of each chunk, so that none is decompressed; messages outside of chunks have their own."""
    found: list[tuple[int, int]] = []  # place in the chunk, time
    for opcode, body in McapReader(path, tolerant=True).records():
        if opcode == mcap.MESSAGE_INDEX:
            found += [(place, time) for time, place in struct.iter_unpack("<QQ", body[6:])]
            continue
        yield from (time for _, time in sorted(found))
        found = []
        if opcode == mcap.MESSAGE:
            yield int.from_bytes(body[6:14], "little")  # behind its channel and number
    yield from (time for _, time in sorted(found))


@dataclass(frozen=True)
class RecordOptions:
    """How a run is recorded. Topics are shell patterns; inputs are always recorded."""

    storage: str = "mcap"
    compression: str = "none"
    topics: tuple[str, ...] = ()  # empty: all
    exclude: tuple[str, ...] = ()
    split_bytes: int | None = None  # a new file when one has reached this size
    split_s: Fraction | None = None  # a new file at each multiple of this simulated time
    chunk_bytes: int = 2**20  # a chunk ends with the tick in which the run has sent so much, if half is recorded …
    chunk_s: int = 5  # … or this simulated time
    queue_bytes: int = 64 * 2**20  # what may wait for the disk

    def to_dict(self) -> dict[str, Any]:
        """What decides the bytes, beside the topics."""
        names = ("storage", "compression", "split_bytes", "split_s", "chunk_bytes", "chunk_s")
        values = {name: getattr(self, name) for name in names}
        return {**values, "split_s": None if self.split_s is None else str(self.split_s)}

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
            raise UsageError("sqlite3 files cannot be compressed; use mcap")
        if (self.split_bytes is not None and self.split_bytes < 1) or (self.split_s is not None and self.split_s <= 0):
            raise UsageError("files can be split only at a size or time above 0")


class BagWriter:
    """One file after another, and `metadata.yaml` at the end. `create` opens MCAP files (for tests)."""

    def __init__(
        self, folder: Path, run_info: RunInfo, options: RecordOptions, create: Callable[[Path], Any] | None = None
    ) -> None:
        self.folder, self.run_info, self.options = folder, run_info, options
        self.end_ns: int | None = None  # time of the last message that is in the files
        self._create = create
        self._split_ns = None if options.split_s is None else options.split_s * 10**9
        self._channels: dict[int, BagChannel] = {}
        self._declared: set[int] = set()  # in the file that is open
        self._done: list[FileInfo] = []
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
        self.end_ns = block.times[-1] if block.times else self.end_ns

    def close(self, end: Mapping[str, str]) -> None:
        self._finish(end)
        self._describe(metadata_text(self.options.storage, self._done, RunInfo(self.run_info.start, end).custom_data()))

    def abandon(self) -> None:
        self._file.abandon()

    def _is_full(self, time_ns: int) -> bool:
        part, limit = self._part, self.options.split_bytes
        self._part = 0 if self._split_ns is None else int(time_ns / self._split_ns)
        return self._part != part or (limit is not None and self._file.size >= limit)

    def _open(self) -> FileWriter:
        run_info = self.run_info if not self._done else RunInfo(self.run_info.start, {})
        self._declared.clear()
        return self._file_writer(self.folder / self._name(), run_info)

    def _finish(self, end: Mapping[str, str]) -> None:
        file_info = FileInfo(self._name(), self._file.times, self._file.counts)
        self._file.close(end, lambda: information(self.options.storage, [file_info], {}))
        self._done.append(file_info)

    def _name(self) -> str:
        return f"microsim_{len(self._done)}{WRITERS[self.options.storage].suffix}"

    # ---- what a writer that only compares does in another way --------------------------------------------------------

    def _prepare(self) -> None:
        folder = self.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise BagError(f"{folder} is not empty: a recording never overwrites; choose another folder")
        except FileExistsError:
            raise BagError(f"{folder} is a file; give a folder to record into") from None
        except OSError as error:
            raise BagError(f"nothing can be recorded into {folder}: {error.strerror or error}") from None

    def _file_writer(self, path: Path, run_info: RunInfo) -> FileWriter:
        return WRITERS[self.options.storage](path, run_info, COMPRESSIONS[self.options.compression], self._create)

    def _describe(self, text: str) -> None:
        (self.folder / METADATA_YAML).write_text(text, encoding="utf-8")
