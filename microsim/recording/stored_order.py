"""The times of a bag's messages as they were written, one after the other: readers sort them, and a reset is hidden."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from microsim.recording import mcap_records as mcap
from microsim.recording.mcap_reader import McapReader

RESET_NS = 500_000_000  # recorders may swap neighbours; a longer way back is a reset of the clock


def step_back(paths: Iterable[Path]) -> tuple[int, int] | None:
    """The first two times [ns] of which the later is the smaller, by more than recorders swap messages."""
    latest = 0
    for path in paths:
        for time in _sqlite_times(path) if path.suffix == ".db3" else _mcap_times(path):
            if time < latest - RESET_NS:
                return latest, time
            latest = max(latest, time)
    return None


def _sqlite_times(path: Path) -> Iterator[int]:
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        for (time,) in database.execute("SELECT timestamp FROM messages ORDER BY id"):
            yield int(time)
    finally:
        database.close()


def _mcap_times(path: Path) -> Iterator[int]:
    """From the index of each chunk, so that none is decompressed; messages outside of chunks tell their own."""
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
