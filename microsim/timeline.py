"""The past of a simulation: moments, and the inputs between them, from which any tick can be reached again, exactly.

All that travels in time uses it: the web page in a live run and in a recording, histories of states, runs of agents.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from microsim.engine.schedule import Input
from microsim.messages.outbox import Messages
from microsim.simulation import Reconfiguration, Simulation, Snapshot

Extra = TypeVar("Extra")
TakenInput = tuple[int, Any]  # the tick that takes it, and an `Input`, a `Reconfiguration` or what a user has instead


@dataclass(frozen=True)
class Moment(Generic[Extra]):
    tick: int
    snapshot: Snapshot
    first: int  # number of the first input after it
    extra: Extra  # what else is known about it


class Timeline(Generic[Extra]):
    """Moments in order, and inputs in order. A tick has one moment at most."""

    def __init__(self, inputs: Iterable[TakenInput] = ()) -> None:
        self.inputs: list[TakenInput] = list(inputs)
        self.moments: deque[Moment[Extra]] = deque()
        self._dropped = 0  # number of inputs before these

    @property
    def ticks(self) -> list[int]:
        """Of the moments, oldest first."""
        return [moment.tick for moment in self.moments]

    @property
    def newest(self) -> int | None:
        """Tick of the newest moment."""
        return self.moments[-1].tick if self.moments else None

    def is_due(self, tick: int, every: int) -> bool:
        """Whether so many ticks have passed since the newest moment."""
        return not self.moments or tick >= self.moments[-1].tick + every

    def take(self, tick: int, taken: Any) -> None:
        self.inputs.append((tick, taken))

    def keep(self, sim: Simulation, extra: Extra) -> None:
        """Remember how the simulation is now. Inputs that are known later come after it."""
        self.moments.append(Moment(sim.tick, sim.snapshot(), self._dropped + len(self.inputs), extra))

    def drop_before(self, tick: int) -> None:
        """Forget what is not needed to reach this tick."""
        while len(self.moments) > 1 and self.moments[1].tick <= tick:
            self.moments.popleft()
        if self.moments:
            del self.inputs[: self.moments[0].first - self._dropped]
            self._dropped = self.moments[0].first

    def drop_from(self, tick: int) -> None:
        """Forget moments of this tick and later, and what was taken in them."""
        while self.moments and self.moments[-1].tick >= tick:
            self.moments.pop()
        del self.inputs[bisect_left(self.inputs, tick, key=lambda each: each[0]) :]

    def clear(self) -> None:
        self.inputs.clear()
        self.moments.clear()
        self._dropped = 0

    def before(self, tick: int) -> Moment[Extra] | None:
        """The latest moment not after this tick."""
        place = bisect_right(self.ticks, tick) - 1
        return self.moments[place] if place >= 0 else None

    def inputs_after(self, moment: Moment[Any] | None) -> list[TakenInput]:
        """What was taken from a moment, or the beginning, to the next moment."""
        place = bisect_left(self.ticks, moment.tick) + 1 if moment is not None else len(self.moments)
        first = moment.first - self._dropped if moment is not None else 0
        end = self.moments[place].first - self._dropped if place < len(self.moments) else len(self.inputs)
        return self.inputs[first:end]

    def copy(self) -> Timeline[Extra]:
        twin: Timeline[Extra] = Timeline(self.inputs)
        twin.moments, twin._dropped = self.moments.copy(), self._dropped
        return twin


def repeated(sim: Simulation, inputs: Iterable[TakenInput], end: int, at_once: int = 1) -> Iterator[Messages]:
    """Run to a tick with the inputs of then, but those of the tick itself; gives what is sent, by so many ticks."""
    waiting = deque(inputs)
    while sim.tick < end:
        while waiting and waiting[0][0] <= sim.tick:
            repeat(sim, waiting.popleft()[1])
        stop = min(end, sim.tick + at_once, waiting[0][0] if waiting else end)
        with sim.repeating():
            messages = sim.step(stop - sim.tick)
        yield messages


def repeat(sim: Simulation, taken: Input | Reconfiguration) -> None:
    """Have something taken once more."""
    if isinstance(taken, Reconfiguration):
        sim.reconfigure(taken.scenario)
    else:
        sim.repeat(taken)
