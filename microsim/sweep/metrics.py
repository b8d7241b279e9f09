"""What a run is boiled down to. A metric is one class below: it looks at the state after each tick, or at the end.

Looking at states keeps a sweep fast: where no metric and no part of the mission needs messages, none are made.
Sums are taken in the order of ticks and robots, so that they have the same bits everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from microsim.errors import UsageError, unknown
from microsim.missions import MissionPilot
from microsim.outbox import Message
from microsim.sim.components import VELOCITY_X, VELOCITY_Y, VELOCITY_Z, X, Y, Z
from microsim.sim.systems.radio import Link
from microsim.simulation import Simulation

Value: TypeAlias = float | int | bool | str | None


@dataclass
class Run:
    """One run under way, as metrics see it."""

    sim: Simulation
    pilot: MissionPilot | None
    rows: dict[str, list[float]] = field(default_factory=dict)  # state of every robot after this tick

    def __post_init__(self) -> None:
        self.look()

    def look(self) -> None:
        for robot in self.sim.robots:
            self.rows[robot] = self.sim.rows(robot)

    @property
    def dt(self) -> float:
        return self.sim.clock.dt


class Metric:
    """One number of one run. `look` and `hear` are called after every tick where they exist."""

    kind: ClassVar[type] = float  # float, int, bool or str
    unit: ClassVar[str] = ""
    of_robots: ClassVar[bool] = False  # `name.robot` is that of one robot
    look: Callable[[], None] | None = None
    hear: Callable[[Sequence[Message]], None] | None = None  # makes the run send its messages
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


def _length(x: float, y: float, z: float) -> float:
    return math.sqrt(x * x + y * y + z * z)


# ---- robots ----------------------------------------------------------------------------------------------------------


class PathLength(Metric):
    """Way travelled over ground, all robots together; being put somewhere else does not count."""

    unit, of_robots = "m", True

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.sum = 0.0  # of speeds

    def look(self) -> None:
        for robot in self.robots:
            rows = self.run.rows[robot]
            vx, vy, vz = rows[VELOCITY_X], rows[VELOCITY_Y], rows[VELOCITY_Z]
            self.sum += math.sqrt(vx * vx + vy * vy + vz * vz)

    def value(self) -> Value:
        return self.sum * self.run.dt


class Displacement(Metric):
    """Distance between where it began and where it ended; of several robots the largest."""

    unit, of_robots = "m", True

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.start = {robot: run.rows[robot] for robot in robots}

    def value(self) -> Value:
        ends = ((self.run.rows[robot], self.start[robot]) for robot in self.robots)
        return max((_length(*(end[i] - start[i] for i in (X, Y, Z))) for end, start in ends), default=None)


class MaxSpeed(Metric):
    """Highest speed over ground; of several robots that of the fastest."""

    unit, of_robots = "m/s", True

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.square = 0.0

    def look(self) -> None:
        for robot in self.robots:
            rows = self.run.rows[robot]
            vx, vy, vz = rows[VELOCITY_X], rows[VELOCITY_Y], rows[VELOCITY_Z]
            self.square = max(self.square, vx * vx + vy * vy + vz * vz)

    def value(self) -> Value:
        return math.sqrt(self.square)


class MinHeight(Metric):
    """Lowest height over the ground of robots that fly."""

    unit, of_robots = "m", True

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.least = math.inf
        self.look()

    @classmethod
    def able(cls, sim: Simulation) -> Sequence[str]:
        return [robot for robot in sim.robots if not sim.model(robot).is_ground_bound]

    def look(self) -> None:
        ground = self.run.sim.world.ground
        for robot in self.robots:
            rows = self.run.rows[robot]
            self.least = min(self.least, rows[Z] - ground(rows[X], rows[Y]))

    def value(self) -> Value:
        return self.least


class MinSeparation(Metric):
    """Smallest distance between any two robots."""

    unit = "m"

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.pairs = [(one, other) for index, one in enumerate(robots) for other in robots[index + 1 :]]
        self.square = math.inf
        self.look()

    @classmethod
    def problem(cls, sim: Simulation, has_mission: bool) -> str:
        return "" if len(sim.robots) > 1 else "it needs two robots"

    def look(self) -> None:
        for one, other in self.pairs:
            a, b = self.run.rows[one], self.run.rows[other]
            x, y, z = a[X] - b[X], a[Y] - b[Y], a[Z] - b[Z]
            self.square = min(self.square, x * x + y * y + z * z)

    def value(self) -> Value:
        return math.sqrt(self.square)


class Collisions(Metric):
    """How often a robot ran into an occupied cell or the map's edge; leaning against it for a while counts once."""

    kind: ClassVar[type] = int
    of_robots = True

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.row = {robot: run.sim.model(robot).state["contacts"] for robot in robots}
        self.before = {robot: run.rows[robot][self.row[robot]] for robot in robots}
        self.touching = dict.fromkeys(robots, False)
        self.count = self.ticks = 0

    @classmethod
    def able(cls, sim: Simulation) -> Sequence[str]:
        return [robot for robot in sim.robots if "contacts" in sim.model(robot).state]

    def look(self) -> None:
        for robot, row in self.row.items():
            contacts = self.run.rows[robot][row]  # ticks with contact; begins anew when the robot is put somewhere
            if contacts == self.before[robot] or contacts == 0.0:
                self.touching[robot] = False
            else:
                self.count += not self.touching[robot]
                self.ticks += 1
                self.touching[robot] = True
            self.before[robot] = contacts

    def value(self) -> Value:
        return self.count


class ContactTime(Collisions):
    """Time in contact with an occupied cell or the map's edge, all robots together."""

    kind: ClassVar[type] = float
    unit = "s"

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

    unit = "ms"

    def hear(self, messages: Sequence[Message]) -> None:
        """Packets arrive only where messages are made."""

    def value(self) -> Value:
        delivered = sum(link.delivered for link in self.links)
        ticks = sum(link.latency_sum for link in self.links)
        return 1000.0 * self.run.dt * ticks / delivered if delivered else None


_RANGING = {"sensor_msgs/msg/Range": "range", "sensor_msgs/msg/LaserScan": "ranges"}


class MinRange(Metric):
    """Smallest distance that a range sensor or laser scan reported, noise included; no value when none saw anything."""

    unit, of_robots = "m", True

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

    kind = str

    def hear(self, messages: Sequence[Message]) -> None:
        """Needs all of them, and looks at none."""

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
