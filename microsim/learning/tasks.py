"""What an environment for learning is made of: worlds, what an action does, what is seen, what is good, when it ends.

A task knows n worlds at once, as arrays with an entry for each. Only + - * / and sqrt make observations and rewards, so
they are the same on every machine and device: NumPy's functions work on the arrays of a batch on a GPU too. Actions are
numbers from -1 to 1, scaled to the robots' limits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.batch import BatchSimulation
from microsim.engine.components import CONTACTS, VELOCITY_X, VELOCITY_Y, VELOCITY_Z, YAW, YAW_RATE, X, Y, Z
from microsim.errors import UsageError, unknown

Array: TypeAlias = npt.NDArray[np.float64]
Float32s: TypeAlias = npt.NDArray[np.float32]
Mask: TypeAlias = npt.NDArray[np.bool_]
Integers: TypeAlias = npt.NDArray[np.int64]

NO_SENSORS: dict[str, None] = dict.fromkeys(("odom", "gps", "imu", "camera", "range"))
QUIET = {"world_topics": {"occupancy_hz": 0, "markers_hz": 0}, "radio": {"enabled": False}}


class Task(ABC):
    """Subclasses fill in the class attributes and `begin`, `observe`, `judge`."""

    name: ClassVar[str]
    horizon: ClassVar[int]  # environment steps until an episode is cut short
    ticks: ClassVar[int] = 6  # per environment step
    sensors: ClassVar[tuple[str, ...]] = ()
    limits: ClassVar[dict[str, tuple[float, ...]]]  # by robot: the command that an action of 1 stands for
    low: ClassVar[tuple[float, ...]]  # of each number of an observation
    high: ClassVar[tuple[float, ...]]
    arrived: Mask | None = None  # whose aim was reached in the last step; None: the task has no end to reach

    def __init__(self, n: int, threads: int = 1, device: str = "cpu", **changes: Any) -> None:
        scenario = self.scenario(**changes)
        self.batch = BatchSimulation(scenario, n, sensors=self.sensors, threads=threads, device=device)
        self.n, self.xp = n, self.batch.loops.xp  # NumPy or CuPy, for arrays of the task's own
        self._commands = {robot: self.batch.commands(robot)[: len(scale)] for robot, scale in self.limits.items()}
        self._sine, self._cosine = self.xp.empty(n), self.xp.empty(n)
        self.seen: Float32s = self.xp.zeros((n, len(self.low)), np.float32)

    @abstractmethod
    def scenario(self, **changes: Any) -> dict[str, Any]:
        """Each task has its own, as it has its own `observe` and `judge`."""

    @property
    def action_size(self) -> int:
        return sum(len(scale) for scale in self.limits.values())

    def reset(self, worlds: Integers | None = None, seeds: Integers | None = None) -> None:
        """Begin an episode in these worlds, by default in all."""
        self.batch.reset(worlds, seeds)
        self.begin(self.xp.arange(self.n) if worlds is None else worlds)

    def act(self, actions: npt.NDArray[Any]) -> None:
        """Hand (n, size) actions to the robots and let time pass."""
        actions = self.xp.asarray(actions, np.float64)
        if actions.shape != (self.n, self.action_size):
            raise UsageError(
                f"{self.name}: expected {self.action_size} numbers from -1 to 1 for each of {self.n} worlds, found an "
                f"array of shape {actions.shape}"
            )
        first = 0
        for robot, scale in self.limits.items():
            commands = self._commands[robot]
            for row, limit in enumerate(scale):  # row by row: quicker than a transposed copy of all
                np.multiply(actions[:, first + row], limit, out=commands[row])
                np.clip(commands[row], -limit, limit, out=commands[row])
            first += len(scale)
        self.batch.step(self.ticks)

    def begin(self, worlds: Integers) -> None:  # noqa: B027 - a task need not remember anything
        """Set up what the task itself remembers of these worlds."""

    @abstractmethod
    def observe(self) -> Float32s:
        """Fill and give `seen` (n, size)."""

    @abstractmethod
    def judge(self) -> tuple[Array, Mask]:
        """Rewards of the last step, and whose episode has ended."""

    @property
    def contacts(self) -> Integers:
        """(n,) contacts of all robots since the episode began."""
        total: Integers = self.xp.zeros(self.n, np.int64)
        for robot in self.batch.robots:
            total += self.batch.rows(robot)[CONTACTS].astype(np.int64)
        return total

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        """x, y, radius of what a picture shall show."""
        return ()

    # ---- what tasks share ------------------------------------------------------------------------------------

    def look(self, robot: str) -> tuple[Array, Array, Array]:
        """Rows of the state, and the sine and cosine of the heading."""
        rows = self.batch.rows(robot)
        self.batch.loops.sincos(rows[YAW], self._sine, self._cosine)
        return rows, self._sine, self._cosine

    def see_offset(self, column: int, rows: Array, goal: Array | Sequence[float], scale: float) -> None:
        """Where a goal (2 or 3, n) is, in the robot's own axes, as numbers up to about 1."""
        dx, dy = goal[0] - rows[X], goal[1] - rows[Y]
        self._see_turned(column, dx, dy, scale)
        if len(goal) > 2:
            np.subtract(goal[2], rows[Z], out=dx)
            np.multiply(dx, scale, out=self.seen[:, column + 2], casting="same_kind")

    def see_velocity(self, column: int, rows: Array, scale: float) -> None:
        """Velocity over ground in the robot's own axes, then the turn rate."""
        self._see_turned(column, rows[VELOCITY_X], rows[VELOCITY_Y], scale)
        np.multiply(rows[VELOCITY_Z], scale, out=self.seen[:, column + 2], casting="same_kind")
        self.seen[:, column + 3] = rows[YAW_RATE]

    def _see_turned(self, column: int, x: Array, y: Array, scale: float) -> None:
        sine, cosine = self._sine, self._cosine
        ahead, aside = cosine * x, cosine * y
        ahead += sine * y
        aside -= sine * x
        np.multiply(ahead, scale, out=self.seen[:, column], casting="same_kind")
        np.multiply(aside, scale, out=self.seen[:, column + 1], casting="same_kind")


def no_more(changes: dict[str, Any], *options: str) -> None:
    """Refuses what is left over beside the task's own `options`."""
    for name in changes:
        raise UsageError(unknown("this task has no option", repr(name), name, options))


def distance(rows: Array, goal: Array | Sequence[float]) -> Array:
    square: Array = np.square(goal[0] - rows[X])
    square += np.square(goal[1] - rows[Y])
    if len(goal) > 2:
        square += np.square(goal[2] - rows[Z])
    root: Array = np.sqrt(square, out=square)
    return root
