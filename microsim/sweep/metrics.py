"""What a run is boiled down to. A metric is one class below: it looks at the states of all ticks, or only at the end.

Looking at states keeps a sweep fast: where no metric and no part of the mission needs messages, none are made.
NumPy serves for what is done to each number by itself. Sums of floats are `math.fsum`, which is exact, and so the same
on every processor; NumPy's are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

import numpy as np

from microsim.errors import UsageError, unknown
from microsim.outbox import Message
from microsim.scenario.bundles import bundle_of
from microsim.scenario.robots import Bicycle
from microsim.sim.components import VELOCITY_X, VELOCITY_Y, VELOCITY_Z, YAW, X, Y, Z
from microsim.sim.drivable import OFFROAD
from microsim.sim.exact import sincos
from microsim.sim.geometry import Array
from microsim.sim.systems.radio import Link
from microsim.simulation import Simulation
from microsim.status import Car
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


def _speeds_squared(states: Array) -> Array:
    vx, vy, vz = states[:, VELOCITY_X], states[:, VELOCITY_Y], states[:, VELOCITY_Z]
    squares: Array = vx * vx + vy * vy + vz * vz
    return squares


# ---- robots ----------------------------------------------------------------------------------------------------------


class PathLength(Metric):
    """Way travelled over ground, all robots together; being put somewhere else does not count."""

    unit, of_robots = "m", True

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.sum = 0.0  # of speeds

    def look(self, block: Block) -> None:
        for robot in self.robots:
            self.sum += math.fsum(np.sqrt(_speeds_squared(block[robot])).tolist())

    def value(self) -> Value:
        return self.sum * self.run.dt


class Displacement(Metric):
    """Distance between where it began and where it ended; of several robots the largest."""

    unit, of_robots = "m", True

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.start = {robot: run.sim.rows(robot) for robot in robots}

    def value(self) -> Value:
        return max(self._from_start(robot) for robot in self.robots)

    def _from_start(self, robot: str) -> float:
        start, end = self.start[robot], self.run.sim.rows(robot)
        x, y, z = (end[row] - start[row] for row in (X, Y, Z))
        return math.sqrt(x * x + y * y + z * z)


class MaxSpeed(Metric):
    """Highest speed over ground; of several robots that of the fastest."""

    unit, of_robots = "m/s", True

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.square = 0.0

    def look(self, block: Block) -> None:
        fastest = (float(_speeds_squared(block[robot]).max()) for robot in self.robots)
        self.square = max(self.square, *fastest)

    def value(self) -> Value:
        return math.sqrt(self.square)


class MinHeight(Metric):
    """Lowest height over the ground of robots that fly."""

    unit, of_robots = "m", True

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.least = min(self._height(*run.sim.rows(robot)[X : Z + 1]) for robot in robots)

    @classmethod
    def able(cls, sim: Simulation) -> Sequence[str]:
        return [robot for robot in sim.robots if not sim.model(robot).is_ground_bound]

    def look(self, block: Block) -> None:
        for robot in self.robots:
            self.least = min(self.least, *(self._height(*place) for place in block[robot][:, X : Z + 1].tolist()))

    def _height(self, x: float, y: float, z: float) -> float:
        return z - self.run.sim.world.ground(x, y)

    def value(self) -> Value:
        return self.least


class MinSeparation(Metric):
    """Smallest distance between any two robots."""

    unit = "m"

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.pairs = [(one, other) for index, one in enumerate(robots) for other in robots[index + 1 :]]
        self.square = math.inf
        self.look({robot: np.array([run.sim.rows(robot)]) for robot in robots})

    @classmethod
    def problem(cls, sim: Simulation, has_mission: bool) -> str:
        return "" if len(sim.robots) > 1 else "it needs two robots"

    def look(self, block: Block) -> None:
        for one, other in self.pairs:
            x, y, z = (block[one][:, row] - block[other][:, row] for row in (X, Y, Z))
            self.square = min(self.square, float((x * x + y * y + z * z).min()))

    def value(self) -> Value:
        return math.sqrt(self.square)


class Collisions(Metric):
    """How often a robot ran into an occupied cell or the map's edge; leaning against it for a while counts once."""

    kind: ClassVar[type] = int
    of_robots = True

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.before = {robot: run.sim.state(robot).contacts for robot in robots}
        self.touching = dict.fromkeys(robots, False)
        self.count = self.ticks = 0

    @classmethod
    def able(cls, sim: Simulation) -> Sequence[str]:
        return [robot for robot in sim.robots if "contacts" in sim.model(robot).state]

    def look(self, block: Block) -> None:
        for robot in self.robots:
            contacts = block[robot][:, self.run.sim.model(robot).state["contacts"]]  # ticks with contact so far
            before = np.concatenate(([self.before[robot]], contacts[:-1]))
            touching = (contacts != before) & (contacts != 0.0)  # 0: it was put somewhere, and begins anew
            was_touching = np.concatenate(([self.touching[robot]], touching[:-1]))
            self.count += int(np.count_nonzero(touching & ~was_touching))
            self.ticks += int(np.count_nonzero(touching))
            self.before[robot], self.touching[robot] = contacts[-1], bool(touching[-1])

    def value(self) -> Value:
        return self.count


class ContactTime(Collisions):
    """Time in contact with an occupied cell or the map's edge, all robots together."""

    kind: ClassVar[type] = float
    unit = "s"

    def value(self) -> Value:
        return self.ticks * self.run.dt


class OffroadTime(Metric):
    """Time off the drivable area of a world bundle, all robots on the ground together; a car is off it by one wheel."""

    unit, of_robots = "s", True

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        assert run.sim.scenario.world is not None  # `problem` has seen to it
        self.area = bundle_of(run.sim.scenario.world).drivable
        settings = {robot: run.sim.scenario.robots[robot] for robot in robots}
        self.cars = {
            name: Car(robot.wheelbase_m, robot.track_m)
            for name, robot in settings.items()
            if isinstance(robot, Bicycle)
        }
        self.ticks = 0

    @classmethod
    def able(cls, sim: Simulation) -> Sequence[str]:
        return [robot for robot in sim.robots if sim.model(robot).is_ground_bound]

    @classmethod
    def problem(cls, sim: Simulation, has_mission: bool) -> str:
        return "" if sim.scenario.world is not None else "there is no drivable area, which world bundles have"

    def look(self, block: Block) -> None:
        for robot in self.robots:
            poses = block[robot][:, X : YAW + 1].tolist()
            self.ticks += sum(self._is_off(robot, *pose) for pose in poses)

    def _is_off(self, robot: str, x: float, y: float, z: float, yaw: float) -> bool:
        """As `/sim/status` says it: of a car, the reference point or a wheel."""
        if robot not in self.cars:
            return self.area.polygon_at(x, y) == OFFROAD
        return self.area.footprint(*self.cars[robot].footprint((x, y, z, yaw, *sincos(yaw))))[1] > 0

    def value(self) -> Value:
        return self.ticks * self.run.dt


# ---- radio and sensors -----------------------------------------------------------------------------------------------


class _Radio(Metric):
    @classmethod
    def problem(cls, sim: Simulation, has_mission: bool) -> str:
        return "" if sim.radio is not None else "there is no radio between robots in this scenario"

    @property
    def links(self) -> Sequence[Link]:
        return [] if self.run.sim.radio is None else self.run.sim.radio.links


class RadioDrop(_Radio):
    """Share of radio packets that were lost, from 0 to 1; no value when none was sent."""

    def value(self) -> Value:
        sent = sum(link.sent for link in self.links)
        return sum(link.dropped + link.overflowed for link in self.links) / sent if sent else None


class RadioSent(_Radio):
    """Radio packets that were sent, counted once for each receiver."""

    kind = int

    def value(self) -> Value:
        return sum(link.sent for link in self.links)


class RadioLatency(_Radio):
    """Mean latency of the radio packets that arrived; no value when none did."""

    unit, needs_messages = "ms", True  # packets arrive only where messages are made

    def value(self) -> Value:
        delivered = sum(link.delivered for link in self.links)
        ticks = sum(link.latency_sum for link in self.links)
        return 1000.0 * self.run.dt * ticks / delivered if delivered else None


_RANGING = {"sensor_msgs/msg/Range": "range", "sensor_msgs/msg/LaserScan": "ranges"}


class MinRange(Metric):
    """Smallest distance that a range sensor or laser scan reported, noise included; no value when none saw anything."""

    unit, of_robots, needs_messages = "m", True, True

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.least = math.inf
        self.prefixes = tuple(f"/{robot}/" for robot in robots)

    @classmethod
    def able(cls, sim: Simulation) -> Sequence[str]:
        topics = [topic for topic, (kind, _) in sim.topics.items() if kind in _RANGING]
        return [robot for robot in sim.robots if any(topic.startswith(f"/{robot}/") for topic in topics)]

    def hear(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.type in _RANGING and message.topic.startswith(self.prefixes):
                found = getattr(message.message, _RANGING[message.type])
                for distance in [found] if isinstance(found, float) else found.tolist():
                    if math.isfinite(distance) and distance < self.least:
                        self.least = distance

    def value(self) -> Value:
        return self.least if math.isfinite(self.least) else None


# ---- the run ---------------------------------------------------------------------------------------------------------


class Digest(Metric):
    """SHA-256 over every message of the run."""

    kind, needs_messages = str, True

    def value(self) -> Value:
        return self.run.sim.digest()


class Duration(Metric):
    """Simulated time at the end."""

    unit = "s"

    def value(self) -> Value:
        return self.run.sim.time_ns / 1e9


class Ignored(Metric):
    """Inputs that the simulation did not take: NaN in a command, a place inside an obstacle."""

    kind = int

    def value(self) -> Value:
        return sum(self.run.sim.counters.values())


class Violations(Metric):
    """How many things were not as the mission expects."""

    kind: ClassVar[type] = int
    judges = True

    @classmethod
    def problem(cls, sim: Simulation, has_mission: bool) -> str:
        return "" if has_mission else "there is no mission to judge"

    def value(self) -> Value:
        assert self.run.pilot is not None
        return len(self.run.pilot.violations())


class Passed(Violations):
    """Whether all was as the mission expects."""

    kind = bool

    def value(self) -> Value:
        return super().value() == 0


METRICS: Mapping[str, type[Metric]] = {
    "collisions": Collisions,
    "contact_s": ContactTime,
    "offroad_s": OffroadTime,
    "path_length": PathLength,
    "displacement": Displacement,
    "max_speed": MaxSpeed,
    "min_height": MinHeight,
    "min_separation": MinSeparation,
    "min_range": MinRange,
    "radio_drop": RadioDrop,
    "radio_sent": RadioSent,
    "radio_latency_ms": RadioLatency,
    "passed": Passed,
    "violations": Violations,
    "ignored": Ignored,
    "duration_s": Duration,
    "digest": Digest,
}


def metric(name: str) -> type[Metric]:
    """The metric of a name such as `collisions` or `path_length.rover`; UsageError when there is none."""
    first, _, robot = name.partition(".")
    if first not in METRICS:
        raise UsageError(unknown("no metric", repr(name), first, METRICS))
    if robot and not METRICS[first].of_robots:
        raise UsageError(f"the metric {first!r} is not one of robots: leave out {'.' + robot!r}")
    return METRICS[first]


def kinds(names: Sequence[str]) -> dict[str, type]:
    return {name: metric(name).kind for name in names}


def watch(name: str, run: Run) -> Metric:
    """Begin to take a metric of a run; UsageError when this world has no such thing."""
    found, robot = metric(name), name.partition(".")[2]
    able, world = found.able(run.sim), f"the scenario {run.sim.scenario.name!r}"
    if robot and robot not in run.sim.robots:
        raise UsageError(unknown(f"{name}: {world} has no robot", repr(robot), robot, run.sim.robots))
    problem = found.problem(run.sim, run.pilot is not None)
    if not problem and found.of_robots and (robot not in able if robot else not able):
        problem = f"it cannot be taken of {robot or ', '.join(run.sim.robots) or 'no robot at all'}"
    if problem:
        raise UsageError(f"the metric {name!r} has no meaning in {world}: {problem}")
    return found(run, [robot] if robot else able)
