"""From the transcripts of ticks to the message records of an MCAP chunk, in one pass over the bytes.

A kernel does it, so that the simulation goes on meanwhile: a thread of Python would have to take turns with it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from microsim.engine.compiled import threaded_kernel
from microsim.messages.outbox import DIGEST_BYTES, STAMP_AND_LENGTH
from microsim.recording.entries import Integers
from microsim.recording.mcap_records import (
    MESSAGE,
    MESSAGE_HEAD,
    NUMBER,
    PLACE,
    RECORD_HEAD,
    TIME,
    Bytes,
    number_at,
    put_number,
)

SHORTEST = STAMP_AND_LENGTH.size + 8  # bytes of a message in a transcript: no name is shorter than "/a\0b/c\0"
_HEAD = MESSAGE_HEAD.size
_HASH_MASK = 2**31 - 1  # so that products of hashes have less than 63 bits, in Python as in a kernel


class Names:
    """Which channel each name in a transcript stands for; 0: not to be recorded."""

    def __init__(self, numbers: Mapping[bytes, int], clock: bytes) -> None:
        self.factor = 31
        while len({self._hash(name) for name in numbers}) < len(numbers):
            self.factor += 2
        size = 1 << (4 * len(numbers)).bit_length()
        self.hashes = np.full(size, -1, np.int64)
        self.numbers = np.zeros(size, np.int64)
        for name, number in numbers.items():
            slot = self._hash(name) % size
            while self.hashes[slot] >= 0:
                slot = (slot + 1) % size
            self.hashes[slot], self.numbers[slot] = self._hash(name), number
        self.clock = self._hash(clock)

    def _hash(self, name: bytes) -> int:
        value = 0
        for byte in name:
            value = (value * self.factor + byte) & _HASH_MASK
        return value


class Records:
    """Message records one after another, and a table of them."""

    def __init__(self) -> None:
        self.used = self.count = 0
        self._time = 0  # of the latest tick
        self._chunk = np.empty(0, np.uint8)
        self._table = np.empty((3, 0), np.int64)

    @property
    def data(self) -> memoryview:
        return self._chunk[: self.used].data

    @property
    def table(self) -> Integers:
        """Rows NUMBER, TIME and PLACE."""
        return self._table[:, : self.count]

    def add(self, transcripts: list[bytes], names: Names) -> None:
        joined = np.frombuffer(b"".join(transcripts), np.uint8)
        starts = np.zeros(len(transcripts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, transcripts), np.int64, len(transcripts)), out=starts[1:])
        self._make_room(len(joined))
        arguments = (names.hashes, names.numbers, names.factor, names.clock, self._chunk, self._table)
        self.used, self.count, self._time = _transcribe(joined, starts, *arguments, self.used, self.count, self._time)
        if self.used < 0:
            raise RuntimeError("a message on a topic that the recorder was not told of")

    def clear(self) -> None:
        self.used = self.count = 0

    def _make_room(self, size: int) -> None:
        """For the records of so many bytes of transcripts. Memory that is never touched costs nothing."""
        most = size // SHORTEST + 1
        if self.used + size + most * _HEAD > len(self._chunk):
            grown = np.empty(2 * (self.used + size + most * _HEAD), np.uint8)
            grown[: self.used] = self._chunk[: self.used]
            self._chunk = grown
        if self.count + most > self._table.shape[1]:
            wider = np.empty((3, 2 * (self.count + most)), np.int64)
            wider[:, : self.count] = self.table
            self._table = wider


@threaded_kernel
def are_same(first: Bytes, second: Bytes) -> bool:
    """Two pieces of the same length."""
    different = 0
    for place in range(len(first)):  # all of it: a loop that may end early is not turned into SIMD
        different |= first[place] ^ second[place]
    return different == 0


@threaded_kernel
def _transcribe(
    said: Bytes,
    starts: Integers,  # of each tick's or input's part, and the end
    hashes: Integers,
    numbers: Integers,
    factor: int,
    clock: int,
    chunk: Bytes,
    table: Integers,
    used: int,
    count: int,
    time: int,
) -> tuple[int, int, int]:
    """Bytes used, records, time of the latest tick; less than 0 bytes when a name is unknown."""
    mask = len(hashes) - 1
    for part in range(len(starts) - 1):
        at, end = starts[part] + DIGEST_BYTES, starts[part + 1]
        while at < end:
            name, ends = 0, 0
            while ends < 2:  # a topic and a type, each with a zero behind it
                byte = np.int64(said[at])
                name = (name * factor + byte) & _HASH_MASK
                ends += byte == 0
                at += 1
            slot = name & mask
            while hashes[slot] != name:
                if hashes[slot] < 0:
                    return -1, count, time
                slot = (slot + 1) & mask
            if name == clock:
                time = number_at(said, at, 8)
            length = number_at(said, at + 8, 4)
            at += 12
            if numbers[slot] > 0:
                table[NUMBER, count], table[TIME, count], table[PLACE, count] = numbers[slot], time, used
                count += 1
                chunk[used] = MESSAGE
                put_number(chunk, used + 1, 8, _HEAD - RECORD_HEAD + length)
                put_number(chunk, used + 9, 2, numbers[slot])
                put_number(chunk, used + 11, 4, 0)
                put_number(chunk, used + 15, 8, time)
                put_number(chunk, used + 23, 8, time)
                used += _HEAD
                chunk[used : used + length] = said[at : at + length]
                used += length
            at += length
    return used, count, time
