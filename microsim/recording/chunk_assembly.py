"""From the transcripts of ticks to the blocks of a bag, on a thread of its own behind a bounded queue.

A kernel turns transcripts into MCAP message records without holding Python's lock, so the simulation runs meanwhile.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from microsim.engine.compiled import threaded_kernel
from microsim.messages.outbox import DIGEST_BYTES, STAMP_AND_LENGTH
from microsim.recording.bag_model import BagChannel, Block, Integers, Packed
from microsim.recording.mcap import (
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


class ChannelNames:
    """The channel of each name in a transcript; 0: not to be recorded."""

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

    def add(self, transcripts: list[bytes], names: ChannelNames) -> int:
        """How many messages they are."""
        joined = np.frombuffer(b"".join(transcripts), np.uint8)
        starts = np.zeros(len(transcripts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, transcripts), np.int64, len(transcripts)), out=starts[1:])
        self._make_room(len(joined))
        before, given = self.count, (names.hashes, names.numbers, names.factor, names.clock, self._chunk, self._table)
        self.used, self.count, self._time = _transcribe(joined, starts, *given, self.used, self.count, self._time)
        if self.used < 0:
            raise RuntimeError("a message on a topic that was not announced to the recorder")
        return self.count - before

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
def _transcribe(
    transcripts: Bytes,
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
                byte = np.int64(transcripts[at])
                name = (name * factor + byte) & _HASH_MASK
                ends += byte == 0
                at += 1
            slot = name & mask
            while hashes[slot] != name:
                if hashes[slot] < 0:
                    return -1, count, time
                slot = (slot + 1) & mask
            if name == clock:
                time = number_at(transcripts, at, 8)
            length = number_at(transcripts, at + 8, 4)
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
                chunk[used : used + length] = transcripts[at : at + length]
                used += length
            at += length
    return used, count, time


@dataclass(frozen=True)
class Portion:
    """Some whole ticks: the transcript of each, then one for each input that was taken there."""

    transcripts: list[bytes]
    size: int  # [byte] of all
    start_ns: int  # time of the first tick, and
    end_ns: int  # of the one after the last
    names: ChannelNames
    channels: list[BagChannel]  # new ones
    is_border: bool = False  # no chunk goes beyond its end


class Assembly:
    """Makes a block of each portion, or of several when little of them is recorded."""

    def __init__(self, pass_on: Callable[[Block], None], is_packed: bool, enough_bytes: int, longest_ns: int) -> None:
        self.entries = 0  # so far
        self._pass_on, self._is_packed = pass_on, is_packed  # or one by one, for files that are not MCAP
        self._enough_bytes, self._longest_ns = enough_bytes, longest_ns
        self._records = Records()
        self._channels: list[BagChannel] = []
        self._start_ns = 0

    def add(self, portion: Portion) -> None:
        records = self._records
        if not records.count:
            self._start_ns = portion.start_ns
        self.entries += records.add(portion.transcripts, portion.names)
        self._channels += portion.channels
        is_long = portion.end_ns - self._start_ns >= self._longest_ns
        if portion.is_border or is_long or records.used >= self._enough_bytes:
            self.finish()

    def finish(self) -> None:
        """Pass on what there is."""
        records = self._records
        if not records.count:
            return
        channels, self._channels = self._channels, []
        numbers, times, places = records.table
        if self._is_packed:
            used, span = np.flatnonzero(np.bincount(numbers)).tolist(), [int(times[0]), int(times[-1])]
            block = Block(channels, used, span, [], records.used, Packed(records.data, records.table))
        else:
            spans = zip((places + MESSAGE_HEAD.size).tolist(), [*places[1:].tolist(), records.used], strict=True)
            data = [bytes(records.data[start:end]) for start, end in spans]
            block = Block(channels, numbers.tolist(), times.tolist(), data, records.used)
        self._pass_on(block)
        records.clear()


class Disk:
    """Hands portions to `write` in order. After an error nothing more is written, and `error` says why."""

    def __init__(self, write: Callable[[Portion], None], limit: int) -> None:
        self.error: Exception | None = None
        self.waiting_bytes = 0
        self._write, self._limit = write, limit
        self._queue: deque[Portion] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="microsim-recorder", daemon=True)
        self._thread.start()

    def put(self, portion: Portion, wait: bool) -> bool:
        """False when the queue is full and must not be waited for, or when the disk has failed."""
        with self._changed:
            while self._queue and self.waiting_bytes + portion.size > self._limit and self.error is None:
                if not wait:
                    return False
                self._changed.wait()
            if self.error is not None:
                return False
            self._queue.append(portion)
            self.waiting_bytes += portion.size
            self._changed.notify_all()
        return True

    def close(self) -> None:
        """Wait until everything is written."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._is_closing:
                    self._changed.wait()
                if not self._queue:
                    return
            try:
                portion = self._queue[0]  # stays there while it is written
                self._write(portion)
            except Exception as error:  # whatever it is, the run must report it
                with self._changed:
                    self.error = error
                    self._queue.clear()
                    self._changed.notify_all()
                return
            with self._changed:
                self._queue.popleft()
                self.waiting_bytes -= portion.size
                self._changed.notify_all()
