"""The way back: what a page may look at again, and where a run can go on from."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from microsim.outbox import Message
from microsim.runner import Pilot, Runner
from microsim.simulation import Simulation, Snapshot
from microsim.viewer.interface import Frame, News

SPAN_S, EVERY_S = 120.0, 0.25  # of simulated time


class Timeline(Protocol):
    """What the page's slider moves along."""

    @property
    def span(self) -> tuple[int, int]:
        """First and last tick that can be shown."""
        ...

    @property
    def room(self) -> int | None:
        """Ticks that may still be run; None: any number."""
        ...

    def seek(self, tick: int) -> Frame | None:
        """Show that tick: a frame kept from then, or None when the run itself stands there now."""
        ...

    def branch(self) -> str:
        """Go on from what is shown. Gives a sentence about it."""
        ...


@dataclass(frozen=True)
class Moment:
    tick: int
    snapshot: Snapshot
    frame: Frame
    pilot: Pilot | None  # as it was then; None: there was none, or it cannot be copied


class Ring:
    """The last two minutes of a live run, a moment every quarter of a second. Looking back changes nothing."""

    def __init__(self, runner: Runner, can_branch: bool = True) -> None:
        self.runner = runner
        self.can_branch = can_branch
        self.shown: Moment | None = None
        self._moments: deque[Moment] = deque()
        self._news: dict[str, News] = {}  # the newest of every topic
        self._next = 0

    @property
    def span(self) -> tuple[int, int]:
        return (self._moments[0].tick if self._moments else self.runner.sim.tick), self.runner.sim.tick

    room = None

    def is_due(self) -> bool:
        tick = self.runner.sim.tick
        return tick >= self._next or tick < self._next - self._every()

    def _every(self) -> int:
        return max(1, round(EVERY_S / self.runner.sim.clock.dt))

    def keep(self, frame: Frame) -> None:
        """Remember this moment of the run."""
        sim = self.runner.sim
        if self._moments and (
            sim.tick <= self._moments[-1].tick or sim.scenario != self._moments[-1].snapshot.scenario
        ):
            self._forget()
        whole = replace(frame, news=dict(self._news), log=())
        self._moments.append(Moment(sim.tick, sim.snapshot(), whole, _copied(self.runner.pilot, sim)))
        self._next = sim.tick + self._every()
        oldest = sim.tick - round(SPAN_S / sim.clock.dt)
        while len(self._moments) > 1 and self._moments[1].tick <= oldest:
            self._moments.popleft()

    def note(self, news: Mapping[str, News]) -> None:
        self._news.update(news)

    def _forget(self) -> None:
        self._moments.clear()
        self._news.clear()

    def seek(self, tick: int) -> Frame | None:
        """The latest moment not after that tick."""
        kept = list(self._moments)
        if not kept or tick >= self.runner.sim.tick:
            self.shown = None
            return None
        self.shown = next((moment for moment in reversed(kept) if moment.tick <= tick), kept[0])
        return replace(self.shown.frame, is_paused=True, is_past=True, past=self.span)

    def branch(self) -> str:
        moment, sim = self.shown, self.runner.sim
        if moment is None:
            return "already at the newest moment"
        if not self.can_branch:
            return "a recording cannot go back in time: run without --record to branch"
        had_pilot = self.runner.pilot is not None
        sim.restore(moment.snapshot)
        self.runner.restart(sim)
        self.runner.pilot = _copied(moment.pilot, sim)
        while self._moments and self._moments[-1].tick > moment.tick:
            self._moments.pop()
        self._news = dict(moment.frame.news)
        self._next, self.shown = moment.tick + self._every(), None
        lost = had_pilot and self.runner.pilot is None
        note = "; its pilot cannot go back in time, so drive by hand" if lost else ""
        return f"branched at {sim.time_ns / 1e9:.2f} s{note}"


class Moving(Protocol):
    """A recorded run that can stand at any of its ticks."""

    last: int

    @property
    def span(self) -> tuple[int, int]: ...

    @property
    def room(self) -> int: ...

    def __call__(self, messages: Sequence[Message]) -> None: ...

    def move(self, tick: int, hand_out: Callable[[Sequence[Message]], None]) -> None: ...


class Recorded:
    """The timeline of a replay: all of it can be shown, by running it there."""

    def __init__(self, runner: Runner, replay: Moving) -> None:
        self.runner, self._replay = runner, replay
        runner.pilot = self

    @property
    def span(self) -> tuple[int, int]:
        return self._replay.span

    @property
    def room(self) -> int:
        return self._replay.room

    def __call__(self, messages: Sequence[Message]) -> None:
        """The runner's pilot: inputs come from the recording, and the end of it is a pause."""
        self._replay(messages)
        if not self.room and not self.runner.paused:
            self.runner.pause(True)

    def seek(self, tick: int) -> Frame | None:
        self._replay.move(tick, self._hand_out)
        self.runner.restart(self.runner.sim)
        return None

    def _hand_out(self, messages: Sequence[Message]) -> None:
        for tap in self.runner.taps:
            tap(messages)

    def branch(self) -> str:
        return "a recording stays as it is"


def _copied(pilot: Pilot | None, sim: Simulation) -> Pilot | None:
    """A pilot with its memory of now, at the controls of the same simulation."""
    if pilot is None:
        return None
    shared: dict[int, Any] = {id(sim): sim}
    try:
        return copy.deepcopy(pilot, shared)
    except Exception:  # generators, sockets, whatever a pilot may hold
        return None


def latest(messages: Sequence[Message]) -> dict[str, News]:
    return {each.topic: News(each.type, each.stamp_ns, each.cdr) for each in messages}
