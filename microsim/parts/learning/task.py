"""What an environment for learning is made of: a scenario, actions, observations, rewards, and when an episode ends.

A task is one class in one file, with the constant `TASK = ` the class. It computes for n worlds at once, in arrays with
a value for each, and its code runs unchanged for one world, for many, and on a GPU: NumPy's functions work on the
arrays of a batch on a GPU too. With + - * / and sqrt alone, results are the same on every machine and device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.batch import BatchSimulation
from microsim.engine.components import CONTACTS, VELOCITY_X, VELOCITY_Y, VELOCITY_Z, YAW, YAW_RATE, X, Y, Z
from microsim.engine.random_layout import numbers_between
from microsim.errors import UsageError, unknown
from microsim.parts.learning import body_axes
from microsim.parts.learning.observations import Layout, Part
from microsim.registry import Registry, is_subclass

Array: TypeAlias = npt.NDArray[np.float64]
Float32s: TypeAlias = npt.NDArray[np.float32]
Mask: TypeAlias = npt.NDArray[np.bool_]
Integers: TypeAlias = npt.NDArray[np.int64]
Span: TypeAlias = "float | tuple[float, float]"

NO_SENSORS: dict[str, None] = dict.fromkeys(("odom", "gps", "imu", "camera", "range"))
QUIET = {"world_topics": {"occupancy_hz": 0, "markers_hz": 0}, "radio": {"enabled": False}}


class Outcome(NamedTuple):
    """Of the last step in each world."""

    rewards: Array  # (n,); of a task with agents also (n, agents)
    ended: Mask  # (n,): the episode has ended (terminated)
    success: Mask | None = None  # (n,): the aim is reached, as far as the episode ends now; None: there is no aim
    collision: Mask | None = None  # (n,); by default: whether any robot touched anything in this episode


class Task(ABC):
    """Subclasses fill in the class attributes and `scenario`, `judge`, and where needed `begin` and `fill`."""

    name: ClassVar[str]
    horizon: ClassVar[int]  # environment steps until an episode is cut short
    ticks: ClassVar[int] = 6  # per environment step
    actions: Mapping[str, Mapping[str, Span]]  # by robot and input: the command for an action of 1, or for -1 and 1
    observations: Mapping[str, Part]  # what a policy sees, part by part
    agents: tuple[str, ...] = ()  # with several learners: robots; `agent/…` are the parts that each of them sees
    alike = False  # whether agents see and do the same kind of things; then arrays have an axis for them
    training: ClassVar[Mapping[str, Any]] = {}  # settings of a trainer that suit it: see `PpoSettings`
    easiest: ClassVar[float] = 1.0  # the difficulty at which a trainer begins; it raises it to 1

    def __init__(self, n: int, threads: int = 1, device: str = "cpu", difficulty: float = 1.0, **options: Any) -> None:
        self.difficulty = difficulty
        self._check_options(options)
        scenario = self.scenario(**options)
        sensors = [part.sensor for part in self.observations.values() if not hasattr(part, "names")]
        self.batch = BatchSimulation(scenario, n, sensors=dict.fromkeys(sensors), threads=threads, device=device)
        self.n, self.xp = n, self.batch.loops.xp  # NumPy or CuPy, for arrays of the task's own
        self.layout = Layout(self.observations, self.batch)
        self._targets, self.action_size = self._make_targets(), len(self.action_names)
        self._sine, self._cosine = self.xp.empty(n), self.xp.empty(n)
        self._seen: Float32s = self.xp.zeros((n, self.layout.size), np.float32)
        self.prepare()

    @property
    def difficulty(self) -> float:
        """From 0 to 1, of episodes that begin from now on: a curriculum raises it."""
        return self._difficulty

    @difficulty.setter
    def difficulty(self, difficulty: float) -> None:
        if not 0.0 <= difficulty <= 1.0:
            raise UsageError(f"difficulty must be from 0 to 1, found {difficulty!r}")
        self._difficulty = float(difficulty)

    # ---- what a task says of itself --------------------------------------------------------------------------

    @abstractmethod
    def scenario(self, *args: Any, **options: Any) -> dict[str, Any]:
        """The world. Its keyword arguments are the options of the environment."""

    def prepare(self) -> None:  # noqa: B027 - a task need not remember anything
        """Make the arrays that the task keeps between steps."""

    def begin(self, worlds: Integers) -> None:  # noqa: B027 - a task need not remember anything
        """An episode begins in these worlds: set up what the task itself remembers of them."""

    def fill(self, seen: dict[str, Float32s]) -> None:  # noqa: B027 - a task may see readings only
        """Compute the numbers of the `Numbers` of `observations`, in rows: `seen[part][k]` is (n,)."""

    @abstractmethod
    def judge(self) -> Outcome:
        """The last step: rewards, whose episode has ended, and how. Called once for each step."""

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        """x, y, radius of what a picture should show."""
        return ()

    # ---- what environments call ------------------------------------------------------------------------------

    @property
    def action_names(self) -> tuple[str, ...]:
        return tuple(f"{robot}.{name}" for robot, inputs in self.actions.items() for name in inputs)

    def reset(self, worlds: Integers | None = None, seeds: Integers | None = None) -> None:
        """Begin an episode in these worlds, by default in all."""
        self.batch.reset(worlds, seeds)
        self.begin(self.xp.arange(self.n) if worlds is None else worlds)

    def act(self, actions: npt.NDArray[Any]) -> None:
        """Hand (n, size) actions to the robots and let time pass."""
        actions = self.xp.asarray(actions)
        if actions.shape[:1] != (self.n,) or actions.size != self.n * self.action_size or actions.ndim > 2 + self.alike:
            raise UsageError(
                f"{self.name}: expected {self.action_size} numbers from -1 to 1 for each of {self.n} worlds, found an "
                f"array of shape {actions.shape}"
            )
        if actions.dtype.kind not in "fiub":
            raise UsageError(f"{self.name}: expected numbers as actions, found an array of {actions.dtype}")
        columns = actions.reshape(self.n, -1).T
        for mine, commands, (middle, half, low, high), is_single in self._targets:
            np.multiply(columns[mine], half, out=commands)
            np.add(commands, middle, out=commands)
            np.minimum(commands, high, out=commands)  # NaN stays: the batch ignores and counts it
            np.maximum(commands, low, out=commands)
            if is_single:
                commands[:] = commands.astype(np.float32)
        self.batch.step(self.ticks)

    def observe(self, out: Float32s | None = None) -> Float32s:
        """(n, size): all numbers of the observations, in `out` or in an array that the next call overwrites."""
        self.fill(self.layout.rows)
        return self.layout.gather(self._seen if out is None else out)

    @property
    def contacts(self) -> Integers:
        """(n,) contacts of all robots since the episode began."""
        return self._total([self.batch.rows(robot)[CONTACTS] for robot in self.batch.robots])

    @property
    def ignored(self) -> Integers:
        """(n,) actions with NaN or infinity since the episode began; robots kept the command before."""
        return self._total([self.batch.ignored(robot) for robot in self.batch.robots])

    def _total(self, counts: Sequence[Any]) -> Integers:
        total: Integers = counts[0].astype(np.int64)
        for each in counts[1:]:
            total += each.astype(np.int64)
        return total

    def _check_options(self, options: Mapping[str, Any]) -> None:
        known = list(signature(self.scenario).parameters)
        for name in options:
            if name not in known:
                raise UsageError(unknown("this task has no option", repr(name), name, ["difficulty", *known]))

    def _make_targets(self) -> list[tuple[slice, Array, Array, bool]]:
        """Which actions become which commands, in runs of neighbours; with middle, half, least and greatest (k, 1).

        Last: whether commands are rounded to float32, as in the messages that cars take over ROS 2.
        """
        runs: list[tuple[str, int, list[Span]]] = []  # robot, its first input, and what stands for 1
        for robot, inputs in self.actions.items():
            for name, span in inputs.items():
                place = self._input(robot, name)
                if not (runs and runs[-1][0] == robot and runs[-1][1] + len(runs[-1][2]) == place):
                    runs.append((robot, place, []))
                runs[-1][2].append(span)
        found, first = [], 0
        for robot, place, spans in runs:
            middle, half = np.array([_span(span) for span in spans]).T[..., None]
            scale = self.batch.loops.array(np.stack([middle, half, middle - half, middle + half]))
            commands = self.batch.commands(robot)[place : place + len(spans)]
            is_single = not self.batch.scenario.robots[robot].engine_model.twist_fields
            found.append((slice(first, first + len(spans)), commands, scale, is_single))
            first += len(spans)
        return found

    def _input(self, robot: str, name: str) -> int:
        inputs = self.batch.inputs(robot)
        if name not in inputs:
            raise UsageError(unknown(f"{self.name}: {robot} has no input", repr(name), name, inputs))
        return inputs.index(name)

    # ---- what tasks share ------------------------------------------------------------------------------------

    def draw(self, stream: str, low: float, high: float, worlds: Integers) -> Array:
        """(len(worlds),): a number that the seed of each world draws from a stream of that name."""
        keys = self.batch.loops.host(self.batch.stream_keys(stream, worlds))
        drawn: Array = self.batch.loops.array(numbers_between(keys, low, high))
        return drawn

    def look(self, robot: str) -> tuple[Array, Array, Array]:
        """Rows of the state, and the sine and cosine of the heading, made of the quaternion that odometry reports."""
        rows = self.batch.rows(robot)
        if self.xp is np:
            body_axes.headings(rows[YAW], self._sine, self._cosine)
        else:
            self.batch.loops.sincos(0.5 * rows[YAW], self._sine, self._cosine)
            self.take_heading(self._sine, self._cosine)
        return rows, self._sine, self._cosine

    def take_heading(self, z: Array | float, w: Array | float) -> None:
        """The heading of a quaternion (0, 0, z, w)."""
        sine, cosine = body_axes.heading_of_arrays(z, w)
        self._sine[:], self._cosine[:] = sine, cosine

    def velocity(self, rows: Array) -> tuple[Array, Array]:
        """Forward and to the left over ground [m/s], to the bit as odometry reports it."""
        first, second = self.xp.empty((2, self.n))
        if self.xp is np:
            body_axes.turn_by_yaw(rows[YAW], rows[VELOCITY_X], rows[VELOCITY_Y], first, second)
            return first, second
        self.batch.loops.sincos(rows[YAW], first, second)
        turned: tuple[Array, Array] = body_axes.turned_arrays(first, second, rows[VELOCITY_X], rows[VELOCITY_Y])
        return turned

    def see_offset(self, out: Float32s, rows: Array, goal: Array | Sequence[float], scale: float) -> None:
        """Where a goal (2 or 3, n) is, in the axes of the robot that `look` was at last: forward, left, up."""
        self._see_turned(out, goal[0] - rows[X], goal[1] - rows[Y], scale)
        if len(goal) > 2:
            np.multiply(goal[2] - rows[Z], scale, out=out[2], casting="same_kind")

    def see_velocity(self, out: Float32s, rows: Array, scale: float) -> None:
        """Velocity over ground in the robot's own axes, then the turn rate."""
        for place, speed in enumerate((*self.velocity(rows), rows[VELOCITY_Z])):
            np.multiply(speed, scale, out=out[place], casting="same_kind")
        out[3] = rows[YAW_RATE]

    def _see_turned(self, out: Float32s, x: Array, y: Array, scale: float) -> None:
        if self.xp is np:
            body_axes.turn_scaled(self._sine, self._cosine, x, y, scale, out)
            return
        for place, part in enumerate(body_axes.turned_arrays(self._sine, self._cosine, x, y)):
            np.multiply(part, scale, out=out[place], casting="same_kind")


def _span(span: Span) -> tuple[float, float]:
    """(middle, half) of the commands that actions stand for."""
    low, high = span if isinstance(span, tuple) else (-span, span)
    return 0.5 * (low + high), 0.5 * (high - low)


def distance(rows: Array, goal: Array | Sequence[float]) -> Array:
    square: Array = np.square(goal[0] - rows[X])
    square += np.square(goal[1] - rows[Y])
    if len(goal) > 2:
        square += np.square(goal[2] - rows[Z])
    root: Array = np.sqrt(square, out=square)
    return root


TASKS: Registry[type[Task]] = Registry(
    "TASK",
    "microsim.parts.learning.tasks",
    "microsim.tasks",
    "a subclass of Task",
    lambda part: is_subclass(part, Task),
)


def find_task(task: str | Path | type[Task]) -> type[Task]:
    """The task of a name, of the id of an environment, or in a file of its own (`my_task.py`)."""
    if isinstance(task, type):
        return task
    text = str(task)
    if text.endswith(".py"):
        return TASKS.from_file(Path(text))
    name = text.rsplit(":", 1)[-1].removeprefix("MicroSim/").rsplit("-v", 1)[0]
    found = TASKS.find(name)
    if found is None:
        raise UsageError(unknown("no task", repr(name), name, TASKS.names()) + "; a file is named my_task.py")
    return found
