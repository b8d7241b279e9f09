"""What a metric is: one class in `robot_metrics` or `run_metrics`, and a row in the table of `metrics`.

A metric looks at the states of all ticks, or only at the end. That keeps a sweep fast: where no metric and no part of
the mission needs messages, none are made. NumPy serves for what is done to each number by itself. Sums of floats are
`math.fsum`, which is exact, and so the same on every processor; NumPy's are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

from microsim.messages.outbox import Message
from microsim.simulation import Simulation
from microsim.sweep.trace import Block, Run

Value: TypeAlias = float | int | bool | str | None


class Metric:
    """One number of one run. `look` gets the states of every tick but tick 0, `hear` every message."""

    kind: ClassVar[type] = float  # float, int, bool or str
    unit: ClassVar[str] = ""
    of_robots: ClassVar[bool] = False  # `name.robot` is that of one robot
    look: Callable[[Block], None] | None = None
    hear: Callable[[Sequence[Message]], None] | None = None
    needs_messages: ClassVar[bool] = False  # the run must make them
    judges: ClassVar[bool] = False  # looks at what the mission expects

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        self.run, self.robots = run, robots

    @classmethod
    def able(cls, sim: Simulation) -> Sequence[str]:
        """Robots it can be taken of."""
        return sim.robots

    @classmethod
    def problem(cls, sim: Simulation, has_mission: bool) -> str:
        """Why there is no such thing in this world; empty: there is."""
        return ""

    def value(self) -> Value:
        raise NotImplementedError
