"""A recorded run that can be shown at any tick: forwards with its inputs, backwards by snapshots kept on the way."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from microsim.messages.outbox import Message
from microsim.recording.replay import Replay
from microsim.simulation import Simulation, Snapshot

_EVERY_S, _MOST = 1.0, 600  # between snapshots; longer recordings have them further apart


class Seeker:
    """A pilot that feeds a replay its inputs, and moves it along its timeline. `room`: ticks up to the end."""

    def __init__(self, replay: Replay, sim: Simulation) -> None:
        self._replay, self._sim = replay, sim
        replay.use(sim)
        self._inputs = list(replay.inputs())
        self._ticks = [entry[0] for entry in self._inputs]
        self._next = 0
        self.last = replay.last_tick()
        self._every = max(1, round(_EVERY_S / sim.clock.dt), self.last // _MOST)
        self._kept: dict[int, Snapshot] = {}
        self._at: list[int] = []  # ticks of the snapshots, in order

    @property
    def span(self) -> tuple[int, int]:
        return 0, self.last

    @property
    def ignored(self) -> int:
        return self._replay.ignored

    @property
    def room(self) -> int:
        return max(self.last - self._sim.tick, 0)

    def __call__(self, messages: Sequence[Message] = ()) -> None:
        """Before a tick: what was taken in it is taken again."""
        tick = self._sim.tick
        if tick >= (self._at[-1] + self._every if self._at else 0):
            self._kept[tick] = self._sim.snapshot()
            self._at.append(tick)
        while self._next < len(self._inputs) and self._ticks[self._next] <= tick:
            self._replay.take(*self._inputs[self._next][1:])
            self._next += 1

    def move(self, tick: int, hand_out: Callable[[Sequence[Message]], None]) -> None:
        """Stand at that tick. What is sent in the second before is handed out: the newest image is among it."""
        tick = min(max(tick, 0), self.last)
        start = max(tick - round(1.0 / self._sim.clock.dt), 0)
        if not self._at:
            self()
        if tick < self._sim.tick or start > self._sim.tick + self._every:
            self._go_back(start)
        while self._sim.tick < tick:
            stop = min(tick, self._next_stop())
            messages = self._sim.step(stop - self._sim.tick)
            self()
            hand_out(messages)

    def _go_back(self, tick: int) -> None:
        """To the latest snapshot not after that tick."""
        place = bisect_right(self._at, tick) - 1
        if place < 0 or (self._at[place] <= self._sim.tick <= tick):
            return
        snapshot = self._kept[self._at[place]]
        if snapshot.scenario != self._sim.scenario:
            self._sim.reconfigure(snapshot.scenario)
        self._sim.restore(snapshot)
        self._next = bisect_left(self._ticks, self._at[place])  # a snapshot is made before the inputs of its tick
        self()

    def _next_stop(self) -> int:
        """The next tick with an input or a snapshot."""
        tick = self._sim.tick
        wanted = [(tick // self._every + 1) * self._every, tick + self._every]
        if self._next < len(self._inputs):
            wanted.append(max(self._ticks[self._next], tick + 1))
        return min(wanted)
