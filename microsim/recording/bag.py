"""Opens bags: ours, which are believed only as far as their checksums go, and those of `ros2 bag record`."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microsim.recording.entries import FORMAT, BagError, Block, Channel, Facts
from microsim.recording.mcap_reader import McapReader
from microsim.recording.metadata import NAME, read_metadata
from microsim.recording.sqlite_files import SqliteReader
from microsim.recording.stored_order import step_back

READERS: dict[str, type[McapReader] | type[SqliteReader]] = {".mcap": McapReader, ".db3": SqliteReader}


@dataclass
class OwnBag:
    """Made by MicroSim."""

    path: Path
    files: list[Path]
    facts: Facts
    told: Mapping[str, Any] = field(default_factory=dict)  # metadata.yaml
    is_ours: bool = True

    @property
    def storage(self) -> str:
        return "sqlite3" if self.files[0].suffix == ".db3" else "mcap"

    @property
    def is_complete(self) -> bool:
        return self.facts.end.get("complete") == "true"

    def blocks(self) -> Iterator[Block]:
        """In order of time; channels keep their numbers from file to file."""
        known: dict[int, Channel] = {}
        count = last = 0
        for file in self.files:
            for block in READERS[file.suffix](file).blocks():
                if block.times and block.times[0] < last:
                    raise BagError(f"{file}: what it holds is older than what stands before it: files are exchanged")
                last = block.times[-1] if block.times else last
                block.channels = [channel for channel in block.channels if channel.number not in known]
                known.update((channel.number, channel) for channel in block.channels)
                count += len(block.numbers)
                yield block
        self._check_count(count)

    def entries_of(self, topics: Container[str]) -> Iterator[tuple[Channel, int, bytes]]:
        """The messages of some topics, without reading all of the others."""
        for file in self.files:
            yield from READERS[file.suffix](file).entries_of(topics)

    @property
    def end_ns(self) -> int | None:
        return None

    def _check_count(self, count: int) -> None:
        if self.told and self.told["message_count"] != count:
            raise BagError(
                f"{self.path}: {NAME} tells of {self.told['message_count']:,} messages, the files hold {count:,}; "
                "`microsim bag repair` makes it anew"
            )


@dataclass
class ForeignBag:
    """Made by others, read through `rosbags`."""

    path: Path
    facts: Facts = field(default_factory=lambda: Facts({}, {}))
    is_ours: bool = False
    end_ns: int | None = None  # time of the last message, known once all have been read

    def entries_of(self, topics: Container[str]) -> Iterator[tuple[Channel, int, bytes]]:
        """In order of time, which nobody promises from file to file."""
        channels: dict[int, Channel] = {}
        found: list[tuple[Channel, int, bytes]] = []
        self.end_ns = 0
        for block in self.blocks():
            channels.update((channel.number, channel) for channel in block.channels)
            for number, time, data in zip(block.numbers, block.times, block.data, strict=True):
                self.end_ns = max(self.end_ns, time)
                if channels[number].topic in topics:
                    found.append((channels[number], time, data))
        yield from sorted(found, key=lambda entry: entry[1])

    def check_one_run(self) -> None:
        """Raises BagError where the clock was set back while it was recorded: several runs would be taken for one."""
        with self._reader() as reader:
            files = getattr(reader.storage, "storages", [reader.storage])  # of a folder, decompressed; or a file alone
            back = step_back(Path(file.path) for file in files)
        if back is not None:
            raise BagError(
                f"{self.path}: its time goes back from {back[0] / 1e9:.3f} s to {back[1] / 1e9:.3f} s: the simulation "
                "was reset while this was recorded; record each run into a bag of its own"
            )

    def blocks(self) -> Iterator[Block]:
        numbers: dict[int, Channel] = {}
        count = 0
        with self._reader() as reader:
            block = Block()
            for connection, time, data in reader.messages():
                if type(time) is not int:
                    raise BagError(f"{self.path}: {connection.topic}: {time!r} is no time")
                if connection.id not in numbers:
                    channel = Channel(len(numbers) + 1, connection.topic, connection.msgtype, "")
                    numbers[connection.id] = channel
                    block.channels.append(channel)
                block.numbers.append(numbers[connection.id].number)
                block.times.append(time)
                block.data.append(bytes(data))
                count += 1
                if len(block.numbers) >= 1000:
                    yield block
                    block = Block()
            yield block
            if count != reader.message_count:
                told = f"it tells of {reader.message_count:,} messages, and {count:,} can be read"
                raise BagError(f"{self.path}: {told}; `ros2 bag reindex` makes its description anew")

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        from rosbags.rosbag2 import Reader

        try:
            with Reader(self.path) as reader:
                yield reader
        except (GeneratorExit, BagError):
            raise
        except Exception as error:  # the bag of a stranger, read by a library: anything may come
            raise BagError(f"{self.path}: cannot be read as a bag: {type(error).__name__}: {error}") from None


def open_bag(path: Path | str) -> OwnBag | ForeignBag:
    """A folder with metadata.yaml, or one of its files."""
    place = Path(path)
    if not place.exists():
        raise BagError(f"no such bag: {place}")
    told: Mapping[str, Any] = {}
    if not place.is_dir() and not (place.is_file() and place.suffix in (*READERS, ".zstd")):
        raise BagError(f"{place}: not a bag: give its folder, or a .mcap or .db3 file")
    if place.is_dir():
        told = read_metadata(place)
        files = [place / name for name in told["relative_file_paths"]]
    else:
        files = [place]
    for file in files:
        if not file.is_file():
            raise BagError(f"{place}: the file {file.name} of this bag is missing")
    if any(file.suffix not in READERS for file in files):
        return ForeignBag(place)  # compressed as a whole
    readers = [READERS[file.suffix](file) for file in files] if _is_ours(files[0]) else []
    if not readers:
        if "microsim.version" in (told.get("custom_data") or {}):
            raise BagError(f"{place}: {files[0].name} is damaged: nothing of the run is left in it")
        return ForeignBag(place)
    facts = Facts(readers[0].facts.start, readers[-1].facts.end, readers[0].facts.files)
    _check(place, readers, facts, told)
    return OwnBag(place, files, facts, told)


def _is_ours(file: Path) -> bool:
    reader = READERS[file.suffix](file, tolerant=True)
    if not reader.is_ours and reader.problem:
        READERS[file.suffix](file)  # says what is wrong
    return reader.is_ours


def _check(
    place: Path, readers: list[McapReader] | list[SqliteReader] | list[Any], facts: Facts, told: Mapping[str, Any]
) -> None:
    form = facts.start.get("format")
    if form != FORMAT:
        made_by = facts.start.get("version", "an unknown version")
        raise BagError(f"{place}: made by microsim {made_by} in format {form}; this version reads format {FORMAT}")
    for key in ("scenario", "seed", "version"):
        if key not in facts.start:
            raise BagError(f"{place}: damaged: the {key} is missing")
    if any(reader.facts.start != facts.start for reader in readers):
        raise BagError(f"{place}: its files are of different runs")
    if [bool(reader.facts.end.get("continues")) for reader in readers] != [True] * (len(readers) - 1) + [False]:
        raise BagError(f"{place}: a part of a bag; give the folder with all its files, or repair it")
    custom = told.get("custom_data")
    if told and custom is not None and custom != facts.custom_data():
        raise BagError(f"{place}: {NAME} tells of another run than the files; `microsim bag repair` makes it anew")
