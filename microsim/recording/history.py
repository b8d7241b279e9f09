"""A bounded ring of snapshots taken while a run goes on: the way back for the last minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from microsim.errors import UsageError
from microsim.messages.outbox import Message
from microsim.recording.state_file import SUFFIX, save_state
from microsim.runner import Runner
from microsim.simulation import Simulation, Snapshot


class History:
    """Keeps a snapshot for every `every_s` simulated seconds of the last `span_s`, and one older."""

    def __init__(self, span_s: float, every_s: float = 1.0) -> None:
        if not (0.0 < every_s <= span_s <= 86_400.0):
            raise UsageError(f"a history spans from {every_s:g} s to a day; found {span_s:g} s")
        self.span_s, self.every_s = span_s, every_s
        self._ring: deque[tuple[int, Snapshot]] = deque()
        self._next = 0  # tick

    def attach(self, runner: Runner) -> None:
        """Look after each portion of ticks, and let portions be no longer than the interval."""
        self._runner = runner
        runner.longest_chunk = min(runner.longest_chunk, max(1, round(self.every_s / runner.sim.clock.dt)))
        runner.taps.append(self.tap)

    def tap(self, messages: Sequence[Message]) -> None:
        self.look(self._runner.sim)

    def look(self, sim: Simulation) -> None:
        """Take a snapshot if it is time for one."""
        if self._ring and sim.tick < self._ring[-1][0]:  # reset, or gone back in time
            self._ring.clear()
            self._next = sim.tick
        if sim.tick < self._next:
            return
        self._ring.append((sim.tick, sim.snapshot()))
        self._next = sim.tick + max(1, round(self.every_s / sim.clock.dt))
        oldest = sim.tick - round(self.span_s / sim.clock.dt)
        while len(self._ring) > 1 and self._ring[1][0] <= oldest:
            self._ring.popleft()

    @property
    def ticks(self) -> list[int]:
        """At which there is a snapshot, oldest first."""
        return [tick for tick, _ in self._ring]

    def at(self, tick: int) -> Snapshot:
        """The latest snapshot not after this tick."""
        found = [snapshot for at, snapshot in self._ring if at <= tick]
        if not found:
            kept = f"it goes back to tick {self._ring[0][0]}" if self._ring else "it is empty"
            raise UsageError(f"the history holds nothing from before tick {tick}: {kept}")
        return found[-1]

    def save(self, folder: Path) -> list[Path]:
        """Every snapshot as a file, named by its tick."""
        paths = []
        for tick, snapshot in self._ring:
            path = folder / f"tick_{tick:09d}{SUFFIX}"
            save_state(path, snapshot)
            paths.append(path)
        return paths
