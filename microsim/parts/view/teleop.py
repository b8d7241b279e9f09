"""Driving by hand, from a page or with keys. It goes through the inputs that everybody uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from microsim.runner import Runner

Send = Callable[[str, Mapping[str, float]], object]  # robot, and the value of each axis


class Teleop:
    """A robot that somebody drives. A value is held for a while, then it is 0; commands of others are overridden."""

    def __init__(self, runner: Runner, send: Send) -> None:
        self.runner, self._send = runner, send
        self.robot = ""  # that is driven
        self._values: dict[str, float] = {}
        self._until: dict[str, float] = {}  # wall time at which each is let go
        runner.overrides.append(self._reassert)

    def drive(self, robot: str, values: Mapping[str, float], hold_s: float) -> None:
        """Hold these values for so long, beside those that are still held."""
        if self.robot not in ("", robot):
            self.release()
        held = {**self._values, **values}
        if held != self._values or not self.runner.paused:  # while paused, repeated commands would pile up
            self._send(robot, held)  # refuses what the robot does not take
        self.robot, self._values = robot, held
        self._until |= dict.fromkeys(values, self.runner.clock.now() + hold_s)

    def let_go(self) -> None:
        """Stop what is no longer held."""
        now = self.runner.clock.now()
        over = [name for name, value in self._values.items() if value and now >= self._until[name]]
        if over:
            self._values |= dict.fromkeys(over, 0.0)
            self._reassert()

    def release(self) -> None:
        """Stop, and give the robot back."""
        if any(self._values.values()):
            self._values = dict.fromkeys(self._values, 0.0)
            self._reassert()
        self.robot = ""
        self._values, self._until = {}, {}

    def _reassert(self) -> None:
        """Once more, after the commands of others."""
        if self.robot in self.runner.sim.robots:
            self._send(self.robot, self._values)
