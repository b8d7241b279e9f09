"""What a page may do to a run. It goes through the inputs that everybody uses, so it is recorded like theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from microsim.errors import MicroSimError, UsageError
from microsim.runner import Runner
from microsim.view.web.collector import Collector
from microsim.view.web.interface import Control, Frame
from microsim.view.web.timeline import Timeline

DEAD_MAN_S = 0.4  # a drive command counts for so long; then the robot is stopped
MOST_STEPS = 100_000


@dataclass
class Stage:
    """How this run is reset and given another scenario; None: it cannot be."""

    reset: Callable[[int | None], None] | None = None
    load: Callable[[str], None] | None = None


class Controls:
    """Carries out what pages wish, in the thread that ticks."""

    def __init__(self, runner: Runner, collector: Collector, stage: Stage, timeline: Timeline | None) -> None:
        self.runner = runner
        self.stage = stage
        self.timeline = timeline
        self.shown: Frame | None = None  # a moment of the past that is looked at
        self._collector = collector
        self._command: dict[str, float] = {}
        self._until = 0.0  # wall time at which the dead man's latch opens
        self._is_moving = False
        self._do: dict[str, Callable[[Control], None]] = {
            "pause": self._pause,
            "step": self._step,
            "reset": self._reset,
            "speed": self._speed,
            "load": self._load,
            "drive": self._drive,
            "release": self._release,
            "seek": self._seek,
            "branch": self._branch,
        }

    def take(self, controls: list[Control]) -> None:
        last_seek = max((place for place, each in enumerate(controls) if each.kind == "seek"), default=-1)
        for place, control in enumerate(controls):
            if control.kind == "seek" and place != last_seek:
                continue  # somebody drags: only where it is now matters
            try:
                self._do[control.kind](control)
            except (MicroSimError, KeyError, TypeError, ValueError, OverflowError) as error:
                self.runner.note("warn", f"{control.kind}: {error}", f"control {control.kind}")
        self._watch_latch()

    # ---- time --------------------------------------------------------------------------------------------------------

    def _pause(self, control: Control) -> None:
        if not control.value:
            self._to_now()
            if self.timeline is not None and self.timeline.room == 0:
                self._seek(Control("seek", self.timeline.span[0]))  # from the end it begins anew
        self.runner.pause(bool(control.value))

    def _step(self, control: Control) -> None:
        ticks = int(control.value)
        if not 1 <= ticks <= MOST_STEPS:
            raise UsageError(f"expected from 1 to {MOST_STEPS} ticks, found {ticks}")
        if self.shown is not None:
            self._seek(Control("seek", self.shown.tick + ticks))
            return
        room = None if self.timeline is None else self.timeline.room
        self.runner.pause(True)
        self.runner.step(ticks if room is None else min(ticks, room))

    def _speed(self, control: Control) -> None:
        self.runner.set_rtf(float(control.value))

    def _reset(self, control: Control) -> None:
        if self.stage.reset is None:
            raise UsageError("this run cannot be reset")
        self._let_go()
        self.shown = None
        self.stage.reset(None if control.value is None else int(control.value))
        self._collector.jump()
        self.runner.note("info", f"reset, seed {self.runner.sim.seed}")

    def _load(self, control: Control) -> None:
        if self.stage.load is None:
            raise UsageError("this run stays in its scenario")
        self._let_go()
        self.shown = None
        self.stage.load(str(control.value))
        self.runner.note("info", f"scenario {self.runner.sim.scenario.name}, seed {self.runner.sim.seed}")

    # ---- looking back ------------------------------------------------------------------------------------------------

    def _seek(self, control: Control) -> None:
        if self.timeline is None:
            raise UsageError("this run has no timeline")
        self.runner.pause(True)
        was_past = self.shown is not None
        if self.timeline.room is not None:
            self._collector.jump()  # a recording itself goes there
        self.shown = self.timeline.seek(int(control.value))
        if self.shown is None and was_past:
            self._collector.again()

    def _branch(self, control: Control) -> None:
        if self.timeline is None:
            raise UsageError("this run has no timeline")
        self._let_go()
        text = self.timeline.branch()
        self.shown = None
        self._collector.jump()
        self.runner.note("info", text)

    def _to_now(self) -> None:
        if self.shown is not None and self.timeline is not None:
            self.timeline.seek(self.runner.sim.tick)
            self.shown = None
            self._collector.again()

    # ---- driving -----------------------------------------------------------------------------------------------------

    def _drive(self, control: Control) -> None:
        """{robot, inputs}: hold this command until the latch opens, whatever a pilot wants."""
        if self.timeline is not None and self.timeline.room is not None:
            raise UsageError("a recording cannot be driven")
        robot, inputs = control.value
        if self._collector.driven not in ("", robot):
            self._let_go()
        self.runner.sim.model(robot)
        self._collector.driven = robot
        command = {str(name): float(value) for name, value in inputs.items()}
        is_new, self._command = command != self._command, command
        self._is_moving = any(self._command.values())
        self._until = self.runner.clock.now() + DEAD_MAN_S
        if is_new or not self.runner.paused:
            self.runner.sim.command(robot, **command)

    def _release(self, control: Control) -> None:
        robot = self._collector.driven
        self._let_go()
        if robot:
            self.runner.note("info", f"{robot} is handed back")

    def _let_go(self) -> None:
        if self._is_moving:
            self._stop()
        self._collector.driven = ""
        self._command = {}

    def _stop(self) -> None:
        self._is_moving = False
        self._command = dict.fromkeys(self._command, 0.0)
        if self._collector.driven in self.runner.sim.robots:
            self.runner.sim.command(self._collector.driven)

    def _watch_latch(self) -> None:
        if self._is_moving and self.runner.clock.now() >= self._until:
            self._stop()

    def insist(self) -> None:
        """Our command again, after others had their say: the robot obeys whoever has its wheel."""
        robot = self._collector.driven
        if robot and robot in self.runner.sim.robots:
            self.runner.sim.command(robot, **self._command)
