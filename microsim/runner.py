"""`Runner`: drives a simulation in wall time. The only user of the wall clock, wrapped around the engine from outside.

Nothing here reaches the digest: real time, twenty times that, or as fast as the machine allows give the same messages.

What joins a run is in lists, any number of each. Before a tick come, in this order:
- sources take what has arrived; inputs wait in the order of arrival,
- gates say whether the tick may begin: all must be open, and one that is closed keeps those after it from being asked,
- overrides have the last word: they command after everything else that commands.
After it, pilots get its messages, and then listeners.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

from microsim.errors import UsageError
from microsim.listening import Listener, Listeners
from microsim.messages.outbox import Message
from microsim.scenario import Scenario
from microsim.scenario.live_changes import at_start
from microsim.simulation import Simulation

Level: TypeAlias = Literal["info", "warn", "error"]
Source: TypeAlias = Callable[[float], None]  # takes what has arrived, waiting at most so long [s]
Gate: TypeAlias = Callable[[], bool]  # whether the next tick may begin; else it is asked again
Override: TypeAlias = Callable[[], None]  # commands robots before a tick, after all others
Pilot: TypeAlias = Callable[[Sequence[Message]], None]  # given each tick's messages, commands robots before the next
MakePilot: TypeAlias = Callable[[Simulation], "Pilot | None"]  # for a simulation at its start; None: there is none

STALL_S = 1.0  # after a longer delay, such as a laptop's sleep, lost time is dropped instead of caught up in a burst
NAP_S = 0.05  # longest sleep, so that a stop, a new real-time factor or a watcher is noticed
SLOWEST, FASTEST = 0.001, 100_000.0  # real-time factors that make sense, beside 0
_MOST_AT_ONCE = 64  # ticks, where neither a pilot nor a listener needs each
_QUICK_S, _SLOW_S = 0.004, 0.016  # a chunk of ticks should last about a frame of the dashboard
MOST_NOTES = 200  # kinds that wait to be taken; the oldest go first
LONGEST_NOTE = 300  # characters of a text


@dataclass(frozen=True)
class Note:
    """`count` times, the last one at `seconds` of simulated time."""

    seconds: float
    level: Level
    text: str
    kind: str  # notes of one kind are one line, with the newest text
    count: int = 1


class Notes:
    """What a run has to say beside its messages, since it was last taken: one note of a kind, the newest last.

    Viewers and logs read them from time to time; the run never waits, old ones are dropped, and no message depends on
    them.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Note] = {}
        self._lost = 0

    def add(self, note: Note) -> None:
        before = self._waiting.pop(note.kind, None)
        count = note.count + (0 if before is None else before.count)
        text = note.text if len(note.text) <= LONGEST_NOTE else note.text[: LONGEST_NOTE - 1] + "…"
        self._waiting[note.kind] = Note(note.seconds, note.level, text, note.kind, count)
        if len(self._waiting) > MOST_NOTES:
            self._lost += self._waiting.pop(next(iter(self._waiting))).count

    def take(self) -> tuple[Note, ...]:
        found = tuple(self._waiting.values())
        if self._lost:
            words = "notes of other kinds were thrown away: there were too many"
            found = (Note(found[0].seconds, "warn", words, "lost notes", self._lost), *found)
        self._waiting, self._lost = {}, 0
        return found


class WallClock(Protocol):
    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """Seconds that never go backwards."""

    now = staticmethod(time.perf_counter)
    sleep = staticmethod(time.sleep)


class Pacer:
    """When ticks are due: tick k at start + k · dt / rtf. Lateness is caught up without skipping a tick."""

    def __init__(self, tick_s: float, rtf: float) -> None:
        self.tick_s = tick_s
        self.stalls = 0  # how often lost time was forgiven
        self.lost_s = 0.0  # how much of it, of wall time
        self._rtf = checked_rtf(rtf)
        self._anchor_tick, self._anchor_s = 0, 0.0

    @property
    def rtf(self) -> float:
        """Simulated seconds per second; 0: as fast as possible."""
        return self._rtf

    def anchor(self, tick: int, now: float) -> None:
        """This tick is due now, and later ticks from there on."""
        self._anchor_tick, self._anchor_s = tick, now

    def change(self, rtf: float, tick: int, now: float) -> None:
        self._rtf = checked_rtf(rtf)
        self.anchor(tick, now)

    def due(self, tick: int) -> float:
        """Wall time at which a tick is due."""
        return self._anchor_s + (tick - self._anchor_tick) * self.tick_s / self._rtf

    def lateness(self, tick: int, now: float) -> float:
        """How late the tick is [s], negative when it is to come. After a stall, lateness counts from now."""
        if not self._rtf:
            return 0.0
        late = now - self.due(tick)
        if late > STALL_S:
            self.stalls += 1
            self.lost_s += late
            self.anchor(tick, now)
            return 0.0
        return late

    def ticks_due(self, tick: int, now: float) -> int:
        """How many ticks after this one are due now."""
        return self._anchor_tick + int((now - self._anchor_s) * self._rtf / self.tick_s) - tick


def checked_rtf(rtf: float) -> float:
    if rtf == 0.0 or SLOWEST <= rtf <= FASTEST:
        return float(rtf)
    raise UsageError(
        f"the real-time factor must be 0 (as fast as possible) or from {SLOWEST:g} to {FASTEST:g}; found {rtf:g}"
    )


@dataclass
class Watcher:
    """Something that looks at the run from time to time."""

    period_s: float
    look: Callable[[], None]
    due_s: float = 0.0


class Runner:
    """Runs a simulation at a real-time factor until its time is over or `stop` is called."""

    def __init__(
        self, sim: Simulation, rtf: float = 1.0, *pilots: Pilot | None, clock: WallClock | None = None
    ) -> None:
        self.sim, self.rtf = sim, rtf
        self.sources: list[Source] = []
        self.gates: list[Gate] = []
        self.overrides: list[Override] = []
        self.pilots: list[Pilot] = []  # of this start, in the order of `steer`
        self._makers: list[MakePilot] = []
        self.listeners = Listeners()
        self.watchers: list[Watcher] = []
        self.checks: list[Callable[[Simulation], None]] = []  # refuse a simulation, by an error, before a restart
        self.start_changes: list[Callable[[Scenario], Scenario]] = []  # of the scenario, at a reset
        self.clock = clock or SystemClock()
        self.pacer = Pacer(sim.clock.dt, rtf)
        self.notes = Notes()  # for viewers and logs
        self.messages = 0
        self._counted = 0  # of this simulation's messages
        self.advanced_s = 0.0  # simulated seconds that went by, also before a reset
        self.lateness_s = 0.0  # of the latest tick
        self.worst_lateness_s = 0.0
        self.paused = False
        self.paused_s = 0.0  # of wall time
        self._paused_at = 0.0
        self.is_stopping = False
        self._started_s = self._ended_s = 0.0
        self._lap = (0.0, 0.0, 0, 0.0)  # wall and simulated seconds, messages and paused seconds before this run
        self._next_watch_s = 0.0
        self._chunk = 1
        self.listen(warnings=lambda text: self.note("warn", text))
        for pilot in pilots:
            self.steer(partial(_always, pilot))

    @property
    def wall_s(self) -> float:
        """Since the start; the whole of it after the end."""
        return (self._ended_s or self.clock.now()) - self._started_s

    @property
    def sim_s(self) -> float:
        return self.sim.time_ns / 1e9

    def _totals(self) -> tuple[float, float, int, float]:
        paused = self.clock.now() - self._paused_at if self.paused else 0.0
        return self.wall_s, self.advanced_s, self.messages, self.paused_s + paused

    @property
    def lap_wall_s(self) -> float:
        """Since the start or the last restart, without pauses."""
        wall, _, _, paused = self._totals()
        return wall - self._lap[0] - (paused - self._lap[3])

    @property
    def lap_messages(self) -> int:
        """Since the start or the last restart."""
        return self.messages - self._lap[2]

    @property
    def achieved_rtf(self) -> float:
        """Since the start or the last restart; pauses do not count."""
        wall = self.lap_wall_s
        return (self.advanced_s - self._lap[1]) / wall if wall > 0.0 else 0.0

    def set_rtf(self, rtf: float) -> None:
        """From now on; for as fast as possible: 0."""
        self.pacer.change(rtf, self.sim.tick, self.clock.now())
        self.rtf = rtf

    def pause(self, paused: bool) -> None:
        """Simulated time stops while paused and continues from there, without a burst."""
        now = self.clock.now()
        if self.paused:
            self.paused_s += now - self._paused_at
        self._paused_at = now
        self.paused = paused
        self.pacer.anchor(self.sim.tick, self.clock.now())

    def step(self, ticks: int) -> int:
        """Advance at once, outside the pace, up to a tick that may not begin yet; gives how many ticks it were."""
        start = self.sim.tick
        for _ in range(ticks):
            if not self._may_step():
                break
            self._override()
            self.publish(self.sim.step())
            self.advanced_s += self.pacer.tick_s
        self.pacer.anchor(self.sim.tick, self.clock.now())
        return self.sim.tick - start

    def restart(self, sim: Simulation) -> None:
        """Continue with a simulation at its start: another one, or the same after a reset.

        It gets its pilots, and then listeners are called. A simulation that a check refuses changes nothing.
        """
        for check in self.checks:
            check(sim)
        for listener in self.listeners:
            self.sim.listeners.remove(listener)
            sim.listeners.add(listener)
        self.sim, self._counted = sim, 0
        self._begin_lap()
        self.make_pilots()
        self.listeners.restart(sim)

    def jump(self) -> None:
        """The same simulation is at another tick: it went back in time, or to a saved state."""
        self._counted = 0
        self._begin_lap()
        self.listeners.jump()

    def _begin_lap(self) -> None:
        self._lap = self._totals()
        self.pacer = Pacer(self.sim.clock.dt, self.rtf)
        self.pacer.anchor(self.sim.tick, self.clock.now())

    def steer(self, make: MakePilot) -> None:
        """Have a pilot command the robots: `make` gives one for a simulation at its start, or None."""
        self._makers.append(make)
        self.pilots += [pilot for pilot in [make(self.sim)] if pilot is not None]

    def make_pilots(self) -> None:
        """Others, for the simulation as it is now."""
        made = [make(self.sim) for make in self._makers]
        self.pilots[:] = [pilot for pilot in made if pilot is not None]

    def reset(self, seed: int | None = None) -> None:
        """Back to the start, with this seed or its own, and with what was set for the next start."""
        sim = self.sim
        if seed is not None:
            sim.set_seed(seed)
        start = wanted = at_start(sim.initial_scenario, sim.scenario)
        for change in self.start_changes:
            wanted = change(wanted)
        if wanted == start:
            sim.reset()
        else:
            sim = Simulation(wanted, sim.next_seed)
        self.restart(sim)
        self.publish(sim.step(0))

    def load(self, scenario: Scenario) -> None:
        """Continue with another scenario, from its start and with its seed. One that cannot run changes nothing."""
        sim = Simulation(scenario)
        self.restart(sim)
        self.publish(sim.step(0))

    def note(self, level: Level, text: str, kind: str = "", count: int = 1) -> None:
        """A line for the log; those of one kind are counted. Without a kind, the text is it."""
        self.notes.add(Note(self.sim_s, level, text, kind or text, count))

    def listen(
        self,
        *,
        messages: Callable[[Sequence[Message]], None] | None = None,
        ticks: Callable[[bytes], None] | None = None,
        inputs: Callable[[int, Any], None] | None = None,
        warnings: Callable[[str], None] | None = None,
        timing: Callable[[float, float], None] | None = None,
        restarts: Callable[[Simulation], None] | None = None,
        jumps: Callable[[], None] | None = None,
        waits: Callable[[int, str, str, float, str], None] | None = None,
        every_s: float | None = None,
    ) -> Listener:
        """Have functions called during the run, also after a restart; see `microsim.listening.Listener`."""
        given = Listener(ticks, inputs, warnings, messages, timing, restarts, jumps=jumps, waits=waits, every_s=every_s)
        return self.sim.listeners.add(self.listeners.add(given))

    def stop(self) -> None:
        """End after the tick under way. May be called from a signal handler or another thread."""
        self.is_stopping = True

    def run(self, ticks: int | None = None) -> None:
        """Advance that many ticks, or until `stop`. Tick 0 is handed out first."""
        self._started_s = self._paused_at = self.clock.now()
        self._ended_s = 0.0
        self._lap = self._totals()
        self.pacer.anchor(self.sim.tick, self._started_s)
        for watcher in self.watchers:
            watcher.due_s = self._started_s + watcher.period_s
        self._next_watch_s = self._started_s
        end = None if ticks is None else self.sim.tick + ticks
        self.publish(self.sim.step(0))
        try:
            while not self.is_stopping and (end is None or self.sim.tick < end):
                self._continue(end)
        finally:
            self._ended_s = self.clock.now()

    def _continue(self, end: int | None) -> None:
        """Run what is due, or sleep a little."""
        tick, now = self.sim.tick, self.clock.now()
        if now >= self._next_watch_s:
            self._watch(now)
        if self.paused:
            self._wait(NAP_S)
            return
        lost = self.pacer.lost_s
        late = self.pacer.lateness(tick + 1, now)
        if self.pacer.lost_s != lost:
            self.note("warn", stalled(self.pacer.lost_s - lost), "stall")
        if late < 0.0:
            self._wait(min(-late, NAP_S))
            return
        count = max(1, min(self._chunk, self.pacer.ticks_due(tick, now))) if self.pacer.rtf else self._chunk
        self.lateness_s = late
        self.worst_lateness_s = max(self.worst_lateness_s, late)
        self._advance(count if end is None else min(count, end - tick), now)

    def _wait(self, seconds: float) -> None:
        if not self.sources:
            self.clock.sleep(seconds)
        for source in self.sources:  # each waits for its share
            source(seconds / len(self.sources))

    def _advance(self, count: int, before: float) -> None:
        for source in self.sources:
            source(0.0)
        if self.sources or self.gates:
            count = 0 if self.paused or self.is_stopping else 1
            if count and not self._may_step():
                self._hold()
                return
        if count:
            self._override()
        messages = self.sim.step(count)
        self.advanced_s += count * self.pacer.tick_s
        took = self.clock.now() - before
        if self.listeners.want_timing:
            self.listeners.timing(took, self.lateness_s)
        elif not self.pilots:
            self._chunk = self._fitting_chunk(took)
        self.publish(messages)

    def _may_step(self) -> bool:
        return all(gate() for gate in self.gates)

    def _override(self) -> None:
        """Where nothing else commands, there is nothing to override."""
        if self.sources or self.pilots:
            for override in self.overrides:
                override()

    def _hold(self) -> None:
        """Nodes have to reply first. A wait that takes long is not lateness: ticks are not hurried after it."""
        start = self.clock.now()
        self._wait(NAP_S)
        now = self.clock.now()
        if now - start >= NAP_S:
            self.pacer.anchor(self.sim.tick, now)

    def _fitting_chunk(self, took: float) -> int:
        if took < _QUICK_S:
            return min(2 * self._chunk, self._longest_chunk())
        return max(1, self._chunk // 2) if took > _SLOW_S else self._chunk

    def _longest_chunk(self) -> int:
        """What all listeners agree to."""
        periods = [each.every_s for each in self.listeners if each.every_s is not None]
        return min([_MOST_AT_ONCE, *(max(1, round(period / self.sim.clock.dt)) for period in periods)])

    def publish(self, messages: Sequence[Message]) -> None:
        """Give messages to the pilots, and then to listeners."""
        sent = self.sim.messages_sent
        self.messages += sent - self._counted if sent >= self._counted else sent
        self._counted = sent
        for pilot in tuple(self.pilots):
            pilot(messages)
        self.listeners.message(messages)

    def _watch(self, now: float) -> None:
        for watcher in self.watchers:
            if now >= watcher.due_s:
                watcher.look()
                watcher.due_s += watcher.period_s
                if watcher.due_s <= now:
                    watcher.due_s = now + watcher.period_s
        self._next_watch_s = min((watcher.due_s for watcher in self.watchers), default=float("inf"))


def _always(pilot: Pilot | None, sim: Simulation) -> Pilot | None:
    return pilot


def stalled(seconds: float) -> str:
    return f"stalled for {seconds:.1f} s (machine busy or asleep); no tick was skipped"
