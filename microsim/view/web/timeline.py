"""The way back: what a page may look at again, and where a run can go on from."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from microsim.engine.schedule import Input
from microsim.messages.outbox import Message
from microsim.runner import Pilot, Runner
from microsim.simulation import Reconfiguration, Simulation, Snapshot
from microsim.view.web.collector import Collector
from microsim.view.web.interface import Frame, News

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
    first_input: int  # among those remembered: the first that came after it


class Ring:
    """The last two minutes of a live run, tick by tick. Looking back changes nothing.

    A moment is kept every quarter of a second, with the inputs after it; what lies between two is computed again, in
    the run's own simulation, which then is put back to where it was.
    """

    def __init__(self, runner: Runner, collector: Collector, can_branch: bool = True) -> None:
        self.runner = runner
        self.can_branch = can_branch
        self.shown: int | None = None  # tick that is looked at
        self._collector = collector
        self._moments: deque[Moment] = deque()
        self._inputs: list[tuple[int, Input]] = []  # since the first moment: taken at which tick, what
        self._dropped = 0  # inputs before these
        self._news: dict[str, News] = {}  # the newest of every topic
        self._sim: Simulation | None = None
        self._others: Callable[[int, Any], None] | None = None  # that listen to inputs too
        self._tick = -1

    @property
    def span(self) -> tuple[int, int]:
        return (self._moments[0].tick if self._moments else self.runner.sim.tick), self.runner.sim.tick

    room = None

    # ---- remembering -------------------------------------------------------------------------------------------------

    def tap(self, messages: Sequence[Message]) -> None:
        sim = self.runner.sim
        if not messages:
            return
        if sim is not self._sim:
            self._sim, self._others, sim.on_input = sim, sim.on_input, self._on_input
            self._forget()
        if sim.tick <= self._tick:  # another run, or tick 0 once more
            self._forget()
        self._tick = sim.tick
        self._news.update(self._drawn(messages))
        if not self._moments or sim.tick >= self._moments[-1].tick + self._every():
            self._keep()

    def _every(self) -> int:
        return max(1, round(EVERY_S / self.runner.sim.clock.dt))

    def _on_input(self, tick: int, item: Input | Reconfiguration) -> None:
        if self._others is not None:
            self._others(tick, item)
        if isinstance(item, Reconfiguration):
            self._forget()  # snapshots belong to a scenario
        elif self._moments:
            self._inputs.append((tick, item))

    def _keep(self) -> None:
        """Remember this moment of the run."""
        sim = self.runner.sim
        frame = replace(self._collector.still(), news=dict(self._news))
        pilot = _copied(self.runner.pilot, sim)
        self._moments.append(Moment(sim.tick, sim.snapshot(), frame, pilot, self._dropped + len(self._inputs)))
        oldest = sim.tick - round(SPAN_S / sim.clock.dt)
        while len(self._moments) > 1 and self._moments[1].tick <= oldest:
            self._moments.popleft()
        del self._inputs[: self._moments[0].first_input - self._dropped]
        self._dropped = self._moments[0].first_input

    def _drawn(self, messages: Sequence[Message]) -> dict[str, News]:
        drawn = self._collector.drawn
        return {each.topic: News(each.type, each.stamp_ns, each.cdr) for each in messages if each.topic in drawn}

    def _forget(self) -> None:
        self._moments.clear()
        self._inputs.clear()
        self._dropped = 0
        self._news.clear()
        self._tick, self.shown = -1, None

    # ---- looking back ------------------------------------------------------------------------------------------------

    def seek(self, tick: int) -> Frame | None:
        """Exactly that tick, or the first there is."""
        if not self._moments or tick >= self.runner.sim.tick:
            self.shown = None
            return None
        self.shown = max(tick, self._moments[0].tick)
        with self._elsewhere():
            _, frame = self._go_to(self.shown, with_pilot=False)
        return replace(frame, is_paused=True, is_past=True, past=self.span)

    def branch(self) -> str:
        tick, sim = self.shown, self.runner.sim
        if tick is None:
            return "already at the newest moment"
        if not self.can_branch:
            return "a recording cannot go back in time: run without --record to branch"
        had_pilot = self.runner.pilot is not None
        with self._unheard():
            pilot, frame = self._go_to(tick, with_pilot=True)
        self.runner.restart(sim)
        self.runner.pilot = pilot
        while self._moments and self._moments[-1].tick >= tick:
            self._moments.pop()
        self._news, self._tick, self.shown = dict(frame.news), tick, None
        self._keep()
        note = "; its pilot cannot go back in time, so drive by hand" if had_pilot and pilot is None else ""
        return f"branched at tick {tick:,}, {sim.time_ns / 1e9:.2f} s{note}"

    def _go_to(self, tick: int, with_pilot: bool) -> tuple[Pilot | None, Frame]:
        """Make the simulation what it was after that tick. Gives its pilot of then, and what was to be seen."""
        sim, moments = self.runner.sim, list(self._moments)
        place = bisect_right([moment.tick for moment in moments], tick) - 1
        moment, first = moments[place], moments[place].first_input - self._dropped
        end = moments[place + 1].first_input - self._dropped if place + 1 < len(moments) else len(self._inputs)
        inputs, news = deque(self._inputs[first:end]), dict(moment.frame.news)
        pilot = _copied(moment.pilot, sim) if with_pilot else None
        sim.restore(moment.snapshot)
        while sim.tick < tick:
            while inputs and inputs[0][0] <= sim.tick:
                sim.waiting.append(inputs.popleft()[1])
            messages = sim.step()
            news.update(self._drawn(messages))
            if pilot is not None:
                pilot(messages)
                if sim.tick < tick:
                    sim.waiting.clear()  # they are among those that were taken then
        still = replace(self._collector.still(), news=news, waypoints=moment.frame.waypoints)
        return pilot, still

    @contextmanager
    def _elsewhere(self) -> Iterator[None]:
        """The simulation is afterwards what it was before."""
        sim = self.runner.sim
        now = sim.snapshot()
        try:
            with self._unheard():
                yield
        finally:
            sim.restore(now)

    @contextmanager
    def _unheard(self) -> Iterator[None]:
        """Nobody is told of ticks, inputs and warnings: they have been heard once."""
        sim = self.runner.sim
        hooks, ears = (sim.on_input, sim.on_warning), list(sim.on_tick)
        sim.on_input = sim.on_warning = None
        sim.on_tick.clear()
        try:
            yield
        finally:
            sim.on_input, sim.on_warning = hooks
            sim.on_tick[:] = ears


class Moving(Protocol):
    """A recorded run that can stand at any of its ticks."""

    last: int

    @property
    def ignored(self) -> int:
        """Recorded inputs that were not taken, so far."""
        ...

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
        self._ignored = 0
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
        self._tell_ignored()
        if not self.room and not self.runner.paused:
            self.runner.pause(True)

    def seek(self, tick: int) -> Frame | None:
        self._replay.move(tick, self._hand_out)
        self.runner.restart(self.runner.sim)
        return None

    def _hand_out(self, messages: Sequence[Message]) -> None:
        for tap in self.runner.taps:
            tap(messages)

    def _tell_ignored(self) -> None:
        more, self._ignored = self._replay.ignored - self._ignored, self._replay.ignored
        if more > 0:
            self.runner.note("warn", "recorded inputs were ignored: this version does not take them", "replay", more)

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
