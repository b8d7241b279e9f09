"""Finishes bags that were cut off: what can be read is kept, the file as it was is kept beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from microsim.recording.bag import READERS, OwnBag, open_bag
from microsim.recording.bag_writer import CONTINUES, WRITERS
from microsim.recording.entries import BagError, Facts
from microsim.recording.mcap_reader import McapReader
from microsim.recording.metadata import NAME, FileFacts, information, metadata_text
from microsim.recording.sqlite_files import SqliteReader


@dataclass(frozen=True)
class Repaired:
    messages: int
    last_ns: int
    damaged: tuple[str, ...]  # files that were written anew, and why


@dataclass
class _State:
    """Of a bag that is being mended, file by file."""

    folder: Path
    facts: Facts
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
    facts = Facts(readers[0].facts.start, {}, readers[0].facts.files)
    if not facts.start:
        raise BagError(f"{paths[0]}: nothing is left: not even which scenario ran ({readers[0].problem or 'not ours'})")
    state = _State(folder, facts, [], [])
    end: Mapping[str, str] = {}
    for index, reader in enumerate(readers):
        end = _mend(state, reader, is_last=index == len(readers) - 1)
        if reader.problem and index < len(readers) - 1:
            raise BagError(
                f"{reader.path}: damaged in the middle of the bag ({reader.problem}): later files cannot follow it"
            )
    text = metadata_text(_storage(paths[0]), state.files, Facts(facts.start, end).custom_data())
    (folder / NAME).write_text(text, encoding="utf-8")
    return Repaired(state.messages, max(file.times[1] for file in state.files), tuple(state.damaged))


def _number(path: Path) -> tuple[int, str]:
    digits = path.stem.rpartition("_")[2]
    return (int(digits) if digits.isdecimal() else 0), path.name


def _storage(path: Path) -> str:
    return "sqlite3" if path.suffix == ".db3" else "mcap"


def _check_known(path: Path) -> None:
    """Leave bags of others alone."""
    with suppress(BagError):
        if not isinstance(open_bag(path), OwnBag):
            raise ForeignBagError(f"{path}: not made by microsim; `ros2 bag reindex` is for bags of others")


class ForeignBagError(BagError):
    pass


def _opened(path: Path) -> McapReader | SqliteReader:
    if path.suffix == ".db3":
        with suppress(sqlite3.Error):  # rolls back a transaction that was cut off
            database = sqlite3.connect(path)
            database.execute("SELECT count(*) FROM sqlite_master").fetchall()
            database.close()
    return READERS[path.suffix](path, tolerant=True)


def _mend(state: _State, reader: McapReader | SqliteReader, is_last: bool) -> Mapping[str, str]:
    """Write the file anew beside the old one; put it in its place only if the old one was not whole."""
    path = reader.path
    fresh = path.with_name(f"{path.name}.repairing")
    fresh.unlink(missing_ok=True)
    facts = state.facts if not state.files else Facts(state.facts.start, {})
    writer = WRITERS[_storage(path)](fresh, facts, _compression(reader))
    for block in reader.blocks():
        writer.write(block)
    told = FileFacts(path.name, writer.times, writer.counts)
    state.messages += told.messages
    state.files.append(told)
    end = reader.facts.end
    if not end:
        end = _cut_off(state, reader.problem) if is_last else CONTINUES
    writer.close(end, lambda: information(_storage(path), [told], {}))
    if _is_whole(path):
        fresh.unlink()
    else:
        state.damaged.append(f"{path.name}: {reader.problem or 'not finished'}")
        path.rename(path.with_name(f"{path.name}.damaged"))
        fresh.rename(path)
    return end


def _is_whole(path: Path) -> bool:
    try:
        for _ in READERS[path.suffix](path).blocks():
            pass
    except BagError:
        return False
    return True


def _compression(reader: McapReader | SqliteReader) -> str:
    return reader.compression if isinstance(reader, McapReader) else ""


def _cut_off(state: _State, problem: str) -> dict[str, str]:
    return {"complete": "false", "reason": f"repaired: {problem or 'not finished'}"}
