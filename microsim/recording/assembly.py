"""From what a run hands out, in whatever portions, to blocks of whole ticks that depend on the run alone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, chain, repeat
from operator import sub
from typing import TypeAlias

from microsim.recording.entries import Block, Channel
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

    def __init__(self, numbers: list[int], data: list[bytes], starts: list[int], times: list[int]) -> None:
        self.numbers, self.data, self.starts, self.times = numbers, data, starts, times
        self.sizes = list(accumulate(map(len, data), initial=0))  # [byte] before each message
        self.sizes_at_starts = [self.sizes[start] for start in starts]
        counts = map(sub, [*starts[1:], len(numbers)], starts)
        self.stamps = list(chain.from_iterable(map(repeat, times, counts)))


@dataclass
class Assembly:
    """Cuts a block when it has reached a size or a time, always between two ticks.

    A tick's inputs come after its messages: they were taken when these were sent.
    """

    clock: Clock
    clock_number: int  # of /clock, which opens every tick
    pass_on: Callable[[Block], None]
    chunk_bytes: int
    chunk_ns: int
    split_ns: Fraction | None = None
    tick: int = -1
    _block: Block = field(default_factory=Block)
    _inputs: list[Taken] = field(default_factory=list)
    _end_ns: int = 0

    def __post_init__(self) -> None:
        self._end_ns = self._next_end(0)

    def add(self, batch: Batch) -> None:
        self._inputs += batch.inputs
        self._block.channels += batch.channels
        numbers, opening = batch.numbers, self.clock_number
        starts = [place for place, number in enumerate(numbers) if number == opening]
        if not starts:
            return
        times = [self.clock.time_ns(self.tick + 1 + index) for index in range(len(starts))]
        if min(numbers) <= 0:
            starts = self._without_unchosen(batch, starts)
        self.tick += len(starts)
        self._add_ticks(_Ticks(batch.numbers, batch.data, starts, times))

    @staticmethod
    def _without_unchosen(batch: Batch, starts: list[int]) -> list[int]:
        """Take out what shall not be recorded; gives the new starts."""
        kept = [place for place, number in enumerate(batch.numbers) if number > 0]
        batch.numbers = [batch.numbers[place] for place in kept]
        batch.data = [batch.data[place] for place in kept]
        return [bisect_left(kept, start) for start in starts]

    def _add_ticks(self, ticks: _Ticks) -> None:
        """As many ticks at once as go into the block without an input between them."""
        done, count = 0, len(ticks.starts)
        while done < count:
            self._open_tick(ticks.times[done])
            room = ticks.sizes[ticks.starts[done]] + self.chunk_bytes - self._block.size
            stop = min(
                bisect_left(ticks.sizes_at_starts, room, lo=done + 1),
                bisect_left(ticks.times, self._end_ns, lo=done + 1),
                bisect_right(ticks.times, self._inputs[0][0], lo=done + 1) if self._inputs else count,
            )
            self._add_range(ticks, done, stop)
            done = stop

    def _add_range(self, ticks: _Ticks, first: int, stop: int) -> None:
        start, end = ticks.starts[first], ticks.starts[stop] if stop < len(ticks.starts) else len(ticks.numbers)
        block = self._block
        block.numbers += ticks.numbers[start:end]
        block.data += ticks.data[start:end]
        block.times += ticks.stamps[start:end]
        block.size += ticks.sizes[end] - ticks.sizes[start]

    def finish(self) -> None:
        self._add_inputs(None)
        if self._block.numbers:
            self.pass_on(self._block)

    def _open_tick(self, time: int) -> None:
        if self._inputs:
            self._add_inputs(time)
        block = self._block
        if block.numbers and (block.size >= self.chunk_bytes or time >= self._end_ns):
            self._block = Block()
            self.pass_on(block)
        if time >= self._end_ns or not self._block.numbers:
            self._end_ns = self._next_end(time)

    def _add_inputs(self, before: int | None) -> None:
        """Those of earlier ticks: the messages of these are all there."""
        while self._inputs and (before is None or self._inputs[0][0] < before):
            time, number, cdr = self._inputs.pop(0)
            block = self._block
            block.numbers.append(number)
            block.data.append(cdr)
            block.times.append(time)
            block.size += len(cdr)

    def _next_end(self, time: int) -> int:
        """Chunks end with the files they are in."""
        end = time + self.chunk_ns
        if self.split_ns is None:
            return end
        border = self.split_ns * (time // self.split_ns + 1)
        return min(end, -int(-border // 1))
