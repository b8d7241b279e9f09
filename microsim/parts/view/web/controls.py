"""What a page may do to a run: pace, reset, rewind and driving. It goes through the inputs that everybody uses.

A timeline is what the page's slider moves along: the last minutes of a live run, or a whole recording.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

from microsim.attachment import Seekable
from microsim.engine.schedule import Input
from microsim.errors import MicroSimError, UsageError
from microsim.messages.outbox import Message
from microsim.parts.view.teleop import Teleop
from microsim.parts.view.web.interface import RUN_KINDS, Control, FrameCollector, News, PageFrame, as_news
from microsim.runner import Pilot, Runner
from microsim.simulation import Reconfiguration, Simulation
from microsim.timeline import Timeline, repeated

SPAN_S, EVERY_S = 120.0, 0.25  # of simulated time
LOOP_S = 6.0  # between the end of a demo and its next start
DEAD_MAN_S = 0.4  # a drive command is valid for this time; then the robot is stopped
MOST_STEPS = 100_000


# ---- timelines -------------------------------------------------------------------------------------------------------


class SliderTimeline(Protocol):
    """What the page's slider moves along."""

    @property
    def span(self) -> tuple[int, int]: ...  # first and last tick that can be shown

    @property
    def room(self) -> int | None: ...  # ticks that may still be run; None: any number

    def seek(self, tick: int) -> PageFrame | None: ...  # a frame of that tick, or None when the run itself is there now

    def branch(self) -> str: ...  # continues from what is shown; a sentence about it


@dataclass(frozen=True)
class Then:
    """What the page shows of a moment, beside the simulation."""

    frame: PageFrame
    pilots: Sequence[Pilot] | None  # as they were then; None: they cannot be copied


class RewindBuffer:
    """The last two minutes of a live run, tick by tick. Looking back changes nothing.

    A moment is kept every quarter of a second, with the inputs after it; what is between two is computed again, in the
    run's own simulation, which is then put back to where it was.
    """

    def __init__(self, runner: Runner, collector: FrameCollector, can_branch: bool = True) -> None:
        self.runner = runner
        self.can_branch = can_branch
        self.shown: int | None = None  # an earlier tick
        self._collector = collector
        self._past: Timeline[Then] = Timeline()
        self._news: dict[str, News] = {}  # the newest of every topic
        runner.listen(inputs=self._on_input, restarts=lambda sim: self._forget())

    @property
    def span(self) -> tuple[int, int]:
        return next(iter(self._past.ticks), self.runner.sim.tick), self.runner.sim.tick

    room = None

    # ---- remembering -------------------------------------------------------------------------------------------------

    def on_messages(self, messages: Sequence[Message]) -> None:
        sim = self.runner.sim
        if not messages:
            return
        self._news.update(self._drawn(messages))
        if self._past.is_due(sim.tick, max(1, round(EVERY_S / sim.clock.dt))):
            self._keep()

    def _on_input(self, tick: int, item: Input | Reconfiguration) -> None:
        if isinstance(item, Reconfiguration):
            self._forget()  # inputs are repeated within one scenario
        elif self._past.moments:
            self._past.take(tick, item)

    def _keep(self) -> None:
        """Remember this moment of the run."""
        sim = self.runner.sim
        frame = replace(self._collector.still(), news=dict(self._news))
        self._past.keep(sim, Then(frame, _copied(self.runner.pilots, sim)))
        self._past.drop_before(sim.tick - round(SPAN_S / sim.clock.dt))

    def _drawn(self, messages: Sequence[Message]) -> dict[str, News]:
        return as_news({each.topic: each for each in messages if each.topic in self._collector.drawn})

    def _forget(self) -> None:
        self._past.clear()
        self._news.clear()
        self.shown = None

    # ---- looking back ------------------------------------------------------------------------------------------------

    def seek(self, tick: int) -> PageFrame | None:
        """Exactly that tick, or the first there is."""
        if not self._past.moments or tick >= self.runner.sim.tick:
            self.shown = None
            return None
        self.shown = max(tick, self._past.ticks[0])
        with self._elsewhere():
            _, frame = self._go_to(self.shown, with_pilots=False)
        return replace(frame, is_paused=True, is_past=True, past=self.span)

    def branch(self) -> str:
        tick, sim = self.shown, self.runner.sim
        if tick is None:
            return "already at the newest moment"
        if not self.can_branch:
            return "a run that is being recorded cannot branch: run it without --record"
        had_pilots = bool(self.runner.pilots)
        with self.runner.sim.listeners.silenced():
            pilots, frame = self._go_to(tick, with_pilots=True)
        self.runner.jump()
        self.runner.pilots[:] = pilots or ()
        self._past.drop_from(tick)
        self._news, self.shown = dict(frame.news), None
        self._keep()
        note = "; its pilot cannot be copied, so drive by hand" if had_pilots and not pilots else ""
        return f"branched at tick {tick:,}, {sim.time_ns / 1e9:.2f} s{note}"

    def _go_to(self, tick: int, with_pilots: bool) -> tuple[Sequence[Pilot], PageFrame]:
        """Make the simulation what it was after that tick. Returns its pilots at that time and a frame."""
        sim, moment = self.runner.sim, self._past.before(tick)
        assert moment is not None  # it is not before the first
        news = dict(moment.extra.frame.news)
        pilots = (_copied(moment.extra.pilots or (), sim) or ()) if with_pilots else ()
        sim.restore(moment.snapshot)
        for messages in repeated(sim, self._past.inputs_after(moment), tick):
            news.update(self._drawn(messages))
            with sim.deaf() if sim.tick < tick else nullcontext():  # those inputs are among the remembered ones
                for pilot in pilots:
                    pilot(messages)
        still = replace(self._collector.still(), news=news, waypoints=moment.extra.frame.waypoints)
        return pilots, still

    @contextmanager
    def _elsewhere(self) -> Iterator[None]:
        """The simulation is afterwards what it was before."""
        sim = self.runner.sim
        now = sim.snapshot()
        try:
            with sim.listeners.silenced():  # ticks, inputs and warnings have been reported once
                yield
        finally:
            sim.restore(now)


class ReplayTimeline:
    """The timeline of a replay: all of it can be shown, by running to it."""

    def __init__(self, runner: Runner, replay: Seekable) -> None:
        self.runner, self._replay = runner, replay
        self._ignored = 0
        self.waits = False  # for the first page
        runner.steer(lambda sim: self)

    @property
    def span(self) -> tuple[int, int]:
        return self._replay.span

    @property
    def room(self) -> int:
        return self._replay.room

    def __call__(self, messages: Sequence[Message]) -> None:
        """The runner's pilot: inputs come from the recording, at whose end it pauses."""
        self._replay(messages)
        more, self._ignored = self._replay.ignored - self._ignored, self._replay.ignored
        if more > 0:
            self.runner.note("warn", "recorded inputs were ignored: this version does not support them", "replay", more)
        if not self.room and not self.runner.paused:
            self.runner.pause(True)

    def wait_for_page(self) -> None:
        self.waits = True
        self.runner.pause(True)

    def seek(self, tick: int) -> PageFrame | None:
        self._replay.move(tick, self.runner.listeners.message)
        self.runner.jump()
        return None

    def branch(self) -> str:
        return "a recording cannot branch"


def _copied(pilots: Sequence[Pilot], sim: Simulation) -> Sequence[Pilot] | None:
    """Copies of pilots with their memory, for the same simulation."""
    shared: dict[int, Any] = {id(sim): sim}
    try:
        return copy.deepcopy(list(pilots), shared)
    except Exception:  # generators, sockets, whatever a pilot may hold
        return None


# ---- requests of pages -----------------------------------------------------------------------------------------------


@dataclass
class RunControls:
    """How this run is reset and loads another scenario; None: it cannot."""

    reset: Callable[[int | None], None] | None = None
    load: Callable[[str, Callable[[str], None]], None] | None = None  # "kind:name", and what receives its progress
    about_run: Callable[[], dict[str, Any]] = dict  # about what runs now, for `PageScene`
    loops: bool = False  # when its pilot is done, it starts again


class Controls:
    """Carries out the requests of pages, in the thread that ticks."""

    def __init__(
        self, runner: Runner, collector: FrameCollector, run_controls: RunControls, timeline: SliderTimeline
    ) -> None:
        self.runner = runner
        self.run_controls = run_controls
        self.timeline = timeline
        self.shown: PageFrame | None = None  # an earlier moment
        self._collector = collector
        self._teleop = Teleop(runner, lambda robot, values: self.runner.sim.command(robot, **values))
        self._restart_at: float | None = None
        self.report: Callable[[str], None] = lambda text: None  # what it is busy with

    def take(self, controls: list[Control]) -> None:
        last_seek = max((place for place, each in enumerate(controls) if each.kind == "seek"), default=-1)
        for place, control in enumerate(controls):
            if control.kind == "seek" and place != last_seek:
                continue  # the slider is being dragged: only its last position matters
            try:
                if control.kind not in RUN_KINDS:
                    raise UsageError("unknown request")
                getattr(self, f"_{control.kind}")(control.value)
            except (MicroSimError, KeyError, TypeError, ValueError, OverflowError) as error:
                self.runner.note("warn", f"{control.kind}: {error}", f"control {control.kind}")
        self._teleop.let_go()
        self._collector.driven = self._teleop.robot
        self._loop(self.runner.clock.now())

    def _loop(self, now: float) -> None:
        """A demo that is done starts again after a moment, with the same seed."""
        pilots = self.runner.pilots
        is_over = any(
            getattr(pilot, "is_done", False) for pilot in pilots if self.run_controls.loops and self.shown is None
        )
        if not is_over or self.runner.paused:
            self._restart_at = None
        elif self._restart_at is None:
            self._restart_at = now + LOOP_S
        elif now >= self._restart_at:
            self._restart_at = None
            self._reset(self.runner.sim.seed)
        self._collector.restart_s = None if self._restart_at is None else max(self._restart_at - now, 0.0)

    # ---- time --------------------------------------------------------------------------------------------------------

    def _pause(self, value: Any) -> None:
        if not value:
            self._to_now()
            if self.timeline.room == 0:
                self._seek(self.timeline.span[0])  # from the end it starts over
        self.runner.pause(bool(value))

    def _step(self, value: Any) -> None:
        ticks = int(value)
        if not 1 <= ticks <= MOST_STEPS:
            raise UsageError(f"expected from 1 to {MOST_STEPS} ticks, found {ticks}")
        if self.shown is not None:
            self._seek(self.shown.tick + ticks)
            return
        room = self.timeline.room
        self.runner.pause(True)
        self.runner.step(ticks if room is None else min(ticks, room))

    def _speed(self, value: Any) -> None:
        self.runner.set_rtf(float(value))

    def _plot(self, topic: Any) -> None:
        self._collector.plot(str(topic))

    def _reset(self, seed: Any) -> None:
        if self.run_controls.reset is None:
            raise UsageError("this run cannot be reset")
        self._teleop.release()
        self.shown = None
        self.run_controls.reset(None if seed is None else int(seed))
        self._collector.jump()
        self.runner.note("info", f"reset, seed {self.runner.sim.seed}")

    def _load(self, name: Any) -> None:
        if self.run_controls.load is None:
            raise UsageError("this run cannot load another scenario")
        self._teleop.release()
        self.shown = None
        self.report(f"Loading {str(name)[:80]}")
        try:
            self.run_controls.load(str(name), self.report)
        finally:
            self.report("")
        self.runner.note("info", f"scenario {self.runner.sim.scenario.name}, seed {self.runner.sim.seed}")

    def _watched(self, value: Any) -> None:
        """The first page is open: a recording that waits for it starts."""
        if isinstance(self.timeline, ReplayTimeline) and self.timeline.waits:
            self.timeline.waits = False
            self.runner.pause(False)

    # ---- looking back ------------------------------------------------------------------------------------------------

    def _seek(self, tick: Any) -> None:
        self.runner.pause(True)
        was_past = self.shown is not None
        if self.timeline.room is not None:
            self._collector.jump()  # a recording itself moves there
        self.shown = self.timeline.seek(int(tick))
        if self.shown is None and was_past:
            self._collector.again()

    def _branch(self, value: Any) -> None:
        self._teleop.release()
        text = self.timeline.branch()
        self.shown = None
        self._collector.jump()
        self.runner.note("info", text)

    def _to_now(self) -> None:
        if self.shown is not None:
            self.timeline.seek(self.runner.sim.tick)
            self.shown = None
            self._collector.again()

    # ---- driving -----------------------------------------------------------------------------------------------------

    def _drive(self, value: Any) -> None:
        """(robot, inputs): hold this command for a moment, whatever a pilot commands."""
        if self.timeline.room is not None:
            raise UsageError("a recording cannot be driven")
        robot, inputs = value
        if not self.runner.sim.model(robot).inputs:
            raise UsageError(f"{robot} takes no commands")
        self._teleop.drive(robot, {str(name): float(each) for name, each in inputs.items()}, DEAD_MAN_S)

    def _release(self, value: Any) -> None:
        robot = self._teleop.robot
        self._teleop.release()
        if robot:
            self.runner.note("info", f"{robot} is handed back to its pilot")
