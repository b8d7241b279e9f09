"""From what a run hands out, in whatever portions, to blocks of whole ticks that depend on the run alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from operator import add
from typing import TypeAlias

import numpy as np

from microsim.recording.entries import Channel, Columns, Integers
from microsim.sim.timekeeper import Clock

Taken: TypeAlias = tuple[int, int, bytes]  # time [ns], channel, message


@dataclass
class Batch:
    """Some ticks as they were handed out, and the inputs taken meanwhile."""

    numbers: list[int]  # channel of each message; 0: not recorded
    data: list[bytes]
    inputs: Sequence[Taken] = ()
    channels: Sequence[Channel] = ()  # new ones


class _Ticks:
    """A batch with what is needed to cut it anywhere between two ticks."""

    def __init__(self, numbers: Integers, data: list[bytes], starts: Integers, times: Integers) -> None:
        count = len(data)
        self.numbers, self.data, self.times = numbers, data, times
        self.lengths = np.fromiter(map(len, data), np.int64, count)
        self.starts = np.empty(len(starts) + 1, np.int64)  # of each tick, and the end
        self.starts[:-1], self.starts[-1] = starts, count
        before = np.zeros(count + 1, np.int64)  # [byte] before each message, and in all
        np.cumsum(self.lengths, out=before[1:])
        self.sizes = before[self.starts]  # before each tick, and in all
        self.stamps = np.repeat(times, self.starts[1:] - self.starts[:-1])


@dataclass
class Assembly:
    """Cuts a block when it has reached a size or a time, always between two ticks.

    A tick's inputs come after its messages: they were taken when these were sent.
    """

    clock: Clock
    clock_number: int  # of /clock, which opens every tick
    pass_on: Callable[[list[Channel], Columns, int], None]  # new channels, entries, bytes
    chunk_bytes: int
    chunk_ns: int
    pack: Callable[[Columns], bytes] | None = None  # makes one piece of some messages
    split_ns: Fraction | None = None
    tick: int = -1
    _channels: list[Channel] = field(default_factory=list)
    _parts: list[tuple[Integers, Integers, Integers]] = field(default_factory=list)  # numbers, times, lengths
    _data: list[bytes] = field(default_factory=list)
    _size: int = 0
    _inputs: list[Taken] = field(default_factory=list)
    _end_ns: int = 0

    def __post_init__(self) -> None:
        self._end_ns = self._next_end(0)

    def add(self, batch: Batch) -> None:
        self._inputs += batch.inputs
        self._channels += batch.channels
        opening = self.clock_number
        numbers, data = np.array(batch.numbers, np.int64), batch.data
        starts = np.flatnonzero(numbers == opening)
        times = self.clock.times_ns(self.tick + 1, len(starts))
        if not len(times):
            return
        if self._inputs:
            self._add_inputs(int(times[0]))
            starts = self._insert_inputs(batch, starts.tolist(), times.tolist())
            numbers, data = np.array(batch.numbers, np.int64), batch.data
        if numbers.min() <= 0:  # not to be recorded
            kept = np.flatnonzero(numbers > 0)
            numbers, data = numbers[kept], [data[place] for place in kept.tolist()]
            starts = np.searchsorted(kept, starts)
        self.tick += len(times)
        self._add_ticks(_Ticks(numbers, data, starts, times))

    def _insert_inputs(self, batch: Batch, starts: list[int], times: list[int]) -> Integers:
        """Put inputs of the batch's ticks behind the messages of these; gives the ticks' new starts."""
        numbers, data, done = list[int](), list[bytes](), 0
        moved = [0] * len(starts)
        while self._inputs and self._inputs[0][0] < times[-1]:
            time, number, cdr = self._inputs.pop(0)
            later = bisect_right(times, time)
            place = starts[later]
            numbers += batch.numbers[done:place]
            data += batch.data[done:place]
            numbers.append(number)
            data.append(cdr)
            moved[later] += 1
            done = place
        batch.numbers, batch.data = numbers + batch.numbers[done:], data + batch.data[done:]
        return np.array(list(map(add, starts, accumulate(moved))), np.int64)

    def finish(self) -> None:
        self._add_inputs(None)
        self._cut()

    def _add_ticks(self, ticks: _Ticks) -> None:
        """As many ticks at once as go into the block."""
        done, count = 0, len(ticks.times)
        while done < count:
            self._open_tick(int(ticks.times[done]))
            room = int(ticks.sizes[done]) + self.chunk_bytes - self._size
            stop = min(
                max(int(np.searchsorted(ticks.sizes[:count], room)), done + 1),
                max(int(np.searchsorted(ticks.times, self._end_ns)), done + 1),
            )
            part = slice(int(ticks.starts[done]), int(ticks.starts[stop]))
            self._append(Columns(ticks.numbers[part], ticks.stamps[part], ticks.lengths[part], ticks.data[part]))
            self._size += int(ticks.sizes[stop] - ticks.sizes[done])
            done = stop

    def _open_tick(self, time: int) -> None:
        if self._size >= self.chunk_bytes or time >= self._end_ns:
            self._cut()
        if time >= self._end_ns or not self._data:
            self._end_ns = self._next_end(time)

    def _append(self, columns: Columns) -> None:
        if columns.data:
            self._parts.append((columns.numbers, columns.times, columns.lengths))
            self._data += columns.data if self.pack is None else [self.pack(columns)]

    def _cut(self) -> None:
        """Pass on what there is."""
        data, parts, channels, size = self._data, self._parts, self._channels, self._size
        if not data:
            return
        self._data, self._parts, self._channels, self._size = [], [], [], 0
        numbers, times, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
        self.pass_on(channels, Columns(numbers, times, lengths, data), size)

    def _add_inputs(self, before: int | None) -> None:
        """Those of earlier ticks: the messages of these are all there."""
        due = [item for item in self._inputs if before is None or item[0] < before]
        if due:
            del self._inputs[: len(due)]
            times, numbers, data = (list(column) for column in zip(*due, strict=True))
            lengths = list(map(len, data))
            self._append(Columns(np.array(numbers), np.array(times), np.array(lengths), data))
            self._size += sum(lengths)

    def _next_end(self, time: int) -> int:
        """Chunks end with the files they are in."""
        end = time + self.chunk_ns
        if self.split_ns is None:
            return end
        border = self.split_ns * (time // self.split_ns + 1)
        return min(end, -int(-border // 1))
