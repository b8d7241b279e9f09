"""Metrics: what a sweep measures in each run. A metric is one class; nothing else lists it.

The built-in metrics are the named subclasses of `Metric` in this module. A plug-in is a module with the constant
`METRIC`, a named subclass of `Metric`. It is found by an entry point of the group `microsim.metrics`, or as a `*.py`
file in a folder that the scenario names under `plugins:`.

A metric sees the states of all ticks, or only the end. That keeps a sweep fast: messages are produced only if a metric
or the mission needs them. NumPy is used for element-wise work only. Sums of floats use `math.fsum`, which is exact and
so the same on every processor; NumPy's sums are not.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from microsim.engine.components import CONTACTS, TOUCHING, VELOCITY_X, VELOCITY_Y, VELOCITY_Z, YAW, X, Y, Z
from microsim.engine.exact import sincos
from microsim.engine.geometry import Array
from microsim.engine.radio import Link
from microsim.errors import PluginError, UsageError, unknown
from microsim.messages.outbox import Message
from microsim.parts.missions import MissionPilot
from microsim.plugin_errors import plugin_error, plugin_errors
from microsim.registry import Registry, is_subclass
from microsim.scenario.bundles import bundle_of
from microsim.simulation import Contact, Simulation

Value: TypeAlias = float | int | bool | str | None
Block: TypeAlias = Mapping[str, Array]  # robot -> (ticks, rows) its state after each of these ticks
Folders: TypeAlias = Sequence[str | Path]


@dataclass(frozen=True)
class WatchedRun:
    """A run as metrics see it."""

    sim: Simulation
    pilot: MissionPilot | None

    @property
    def dt(self) -> float:
        return self.sim.clock.dt


class Metric(ABC):
    """One number of one run. `look` receives the states of every tick but tick 0, `hear` receives every message.

    The class docstring is the description in the documentation and in `microsim list`.
    """

    name: ClassVar[str] = ""  # as in `--metrics NAME`; a class without a name is only a base of others
    kind: ClassVar[type] = float  # float, int, bool or str
    unit: ClassVar[str] = ""
    of_robots: ClassVar[bool] = False  # `name.robot` measures one robot
    look: Callable[[Block], None] | None = None
    hear: Callable[[Sequence[Message]], None] | None = None
    needs_messages: ClassVar[bool] = False  # the run must produce them even if there is no `hear`
    judges: ClassVar[bool] = False  # depends on what the mission expects

    def __init__(self, run: WatchedRun, robots: Sequence[str]) -> None:
        self.run, self.robots = run, robots

    @classmethod
    def able(cls, sim: Simulation) -> Sequence[str]:
        """The robots it can measure."""
        return sim.robots

    @classmethod
    def problem(cls, sim: Simulation, has_mission: bool) -> str:
        """Why it has no meaning in this world; empty: it has one."""
        return ""

    @abstractmethod
    def value(self) -> Value:
        """At the end of the run; None: there is nothing to measure."""


# ---- finding one -----------------------------------------------------------------------------------------------------


def find_metric(name: str, folders: Folders = ()) -> type[Metric]:
    """The metric with a name such as `collisions` or `path_length.rover`; UsageError if there is none."""
    first, _, robot = name.partition(".")
    known = METRICS if first in METRICS and not folders else all_metrics(folders)
    if first not in known:
        raise UsageError(unknown("no metric", repr(name), first, known))
    if robot and not known[first].of_robots:
        raise UsageError(f"the metric {first!r} does not measure single robots; leave out {'.' + robot!r}")
    return known[first]


def all_metrics(folders: Folders = ()) -> dict[str, type[Metric]]:
    """Every metric by name: the built-in ones, those in the folders, those of installed packages."""
    found = dict(METRICS)
    for plugin, place in _REGISTRY.plugins(folders):
        if not is_subclass(plugin, Metric):
            raise PluginError(f"{place}: expected METRIC = a subclass of Metric, found {plugin!r}")
        if plugin.kind not in (float, int, bool, str):
            raise PluginError(
                f"{place}: expected the kind float, int, bool or str for the metric, found {plugin.kind!r}"
            )
        if not plugin.name.isidentifier():
            raise PluginError(f"{place}: expected a name such as 'tilt' for the metric, found {plugin.name!r}")
        if inspect.isabstract(plugin):
            raise PluginError(f"{place}: the metric {plugin.name!r} has no method value(), which gives its result")
        if plugin.name in found:
            raise PluginError(f"{place}: there is another metric named {plugin.name!r}; choose another name")
        found[plugin.name] = plugin
    return found


_REGISTRY: Registry[Any] = Registry("METRIC", "", "microsim.metrics", "a subclass of Metric", lambda part: True)


def watch(name: str, run: WatchedRun) -> Metric:
    """Start to measure a run; UsageError if the metric does not apply to this world."""
    found, robot = find_metric(name, run.sim.scenario.plugins), name.partition(".")[2]
    world = f"the scenario {run.sim.scenario.name!r}"
    with plugin_errors(f"metric {name}", found):
        able, problem = found.able(run.sim), found.problem(run.sim, run.pilot is not None)
    if robot and robot not in run.sim.robots:
        raise UsageError(unknown(f"{name}: {world} has no robot", repr(robot), robot, run.sim.robots))
    if not problem and found.of_robots and (robot not in able if robot else not able):
        problem = f"it cannot measure {robot or ', '.join(run.sim.robots) or 'anything without a robot'}"
    if problem:
        raise UsageError(f"the metric {name!r} does not apply to {world}: {problem}")
    with plugin_errors(f"metric {name}", found):
        return found(run, [robot] if robot else able)


def has_meaning(name: str, run: WatchedRun) -> bool:
    try:
        watch(name, run)
    except UsageError:
        return False
    return True


def checked(metric: Metric, value: Any) -> Value:
    """A value of the metric's kind; PluginError otherwise, because a result file has one type for each column."""
    plain: Value = value.item() if isinstance(value, np.generic) else value
    kind = float if type(plain) is int and metric.kind is float else type(plain)
    if plain is None or kind is metric.kind:
        return plain
    problem = f"the metric {metric.name!r} returned {plain!r}; expected {metric.kind.__name__} or None"
    raise plugin_error(problem, "", type(metric))


# ---- robots ----------------------------------------------------------------------------------------------------------


def _speeds_squared(states: Array) -> Array:
    vx, vy, vz = states[:, VELOCITY_X], states[:, VELOCITY_Y], states[:, VELOCITY_Z]
    squares: Array = vx * vx + vy * vy + vz * vz
    return squares


class Collisions(Metric):
    """Contacts with obstacles, meshes, the edge of the map or other robots, summed over robots; a long one is one."""

    name, of_robots = "collisions", True
    kind: ClassVar[type] = int

    def __init__(self, run: WatchedRun, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.before = self._contacts()

    def _contacts(self) -> int:
        return sum(int(self.run.sim.rows(robot)[CONTACTS]) for robot in self.robots)

    def value(self) -> Value:
        return self._contacts() - self.before


class ContactTime(Metric):
    """Time in contact with obstacles, meshes, the edge of the map or other robots, summed over robots."""

    name, unit, of_robots = "contact_s", "s", True
    ticks = 0

    def look(self, block: Block) -> None:
        self.ticks += sum(int(np.count_nonzero(block[robot][:, TOUCHING])) for robot in self.robots)

    def value(self) -> Value:
        return self.ticks * self.run.dt


class _AboutFirstContact(Metric):
    of_robots = True

    @property
    def contact(self) -> Contact | None:
        return next((each for each in self.run.sim.contacts if {each.robot, each.thing} & set(self.robots)), None)


class FirstContact(_AboutFirstContact):
    """Who began to touch what, first: `rover > shelf_a`; no value if nothing was touched."""

    name, kind = "first_contact", str

    def value(self) -> Value:
        return None if self.contact is None else f"{self.contact.robot} > {self.contact.thing}"


class FirstContactTime(_AboutFirstContact):
    """When the first contact began."""

    name, unit = "first_contact_s", "s"

    def value(self) -> Value:
        return None if self.contact is None else self.run.sim.clock.time_ns(self.contact.tick) / 1e9


class FirstContactSpeed(_AboutFirstContact):
    """Speed of the robot just before the first contact."""

    name, unit = "first_contact_speed", "m/s"

    def value(self) -> Value:
        return None if self.contact is None else self.contact.speed


class FirstContactX(_AboutFirstContact):
    """Where the robot was when the first contact began: x in the map."""

    name, unit = "first_contact_x", "m"

    def value(self) -> Value:
        return None if self.contact is None else self.contact.x


class FirstContactY(_AboutFirstContact):
    """Where the robot was when the first contact began: y in the map."""

    name, unit = "first_contact_y", "m"

    def value(self) -> Value:
        return None if self.contact is None else self.contact.y


class OffroadTime(Metric):
    """Time off the drivable area of a world bundle, summed over ground robots; one wheel of a car is enough."""

    name, unit, of_robots = "offroad_s", "s", True
    ticks = 0

    def __init__(self, run: WatchedRun, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        assert run.sim.scenario.world is not None  # `problem` ensures it
        self.area = bundle_of(run.sim.scenario.world).drivable
        self.settings = {robot: run.sim.scenario.robots[robot] for robot in robots}

    @classmethod
    def able(cls, sim: Simulation) -> Sequence[str]:
        return [robot for robot in sim.robots if sim.model(robot).is_ground_bound]

    @classmethod
    def problem(cls, sim: Simulation, has_mission: bool) -> str:
        return "" if sim.scenario.world is not None else "only world bundles have a drivable area"

    def look(self, block: Block) -> None:
        for robot in self.robots:
            poses = block[robot][:, X : YAW + 1].tolist()
            self.ticks += sum(self._is_off(robot, *pose) for pose in poses)

    def _is_off(self, robot: str, x: float, y: float, z: float, yaw: float) -> bool:
        """As in `/sim/status`: its reference point, or any point where it touches the ground."""
        points = self.settings[robot].ground_points((x, y, z, yaw, *sincos(yaw)))
        return self.area.footprint(*points)[1] > 0

    def value(self) -> Value:
        return self.ticks * self.run.dt


class PathLength(Metric):
    """Distance travelled over ground, summed over robots; teleports do not count."""

    name, unit, of_robots = "path_length", "m", True
    sum = 0.0  # of speeds

    def look(self, block: Block) -> None:
        for robot in self.robots:
            self.sum += math.fsum(np.sqrt(_speeds_squared(block[robot])).tolist())

    def value(self) -> Value:
        return self.sum * self.run.dt


class Displacement(Metric):
    """Distance between start and end position; the largest of several robots."""

    name, unit, of_robots = "displacement", "m", True

    def __init__(self, run: WatchedRun, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.start = {robot: run.sim.rows(robot) for robot in robots}

    def value(self) -> Value:
        return max(self._from_start(robot) for robot in self.robots)

    def _from_start(self, robot: str) -> float:
        start, end = self.start[robot], self.run.sim.rows(robot)
        x, y, z = (end[row] - start[row] for row in (X, Y, Z))
        return math.sqrt(x * x + y * y + z * z)


class MaxSpeed(Metric):
    """Highest speed over ground; that of the fastest of several robots."""

    name, unit, of_robots = "max_speed", "m/s", True
    square = 0.0

    def look(self, block: Block) -> None:
        fastest = (float(_speeds_squared(block[robot]).max()) for robot in self.robots)
        self.square = max(self.square, *fastest)

    def value(self) -> Value:
        return math.sqrt(self.square)


class MinHeight(Metric):
    """Lowest height above ground of flying robots."""

    name, unit, of_robots = "min_height", "m", True

    def __init__(self, run: WatchedRun, robots: Sequence[str]) -> None:
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

    name, unit = "min_separation", "m"
    square = math.inf

    def __init__(self, run: WatchedRun, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.pairs = [(one, other) for index, one in enumerate(robots) for other in robots[index + 1 :]]
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


# ---- sensors and radio -----------------------------------------------------------------------------------------------

_RANGING = {"sensor_msgs/msg/Range": "range", "sensor_msgs/msg/LaserScan": "ranges"}


class MinRange(Metric):
    """Smallest distance measured by a range sensor or laser scan, noise included; no value if none hit anything."""

    name, unit, of_robots = "min_range", "m", True
    least = math.inf

    @classmethod
    def able(cls, sim: Simulation) -> Sequence[str]:
        topics = [topic for topic, (kind, _) in sim.topics.items() if kind in _RANGING]
        return [robot for robot in sim.robots if any(topic.startswith(f"/{robot}/") for topic in topics)]

    def hear(self, messages: Sequence[Message]) -> None:
        prefixes = tuple(f"/{robot}/" for robot in self.robots)
        for message in messages:
            if message.type in _RANGING and message.topic.startswith(prefixes):
                found = getattr(message.message, _RANGING[message.type])
                for distance in [found] if isinstance(found, float) else found.tolist():
                    if math.isfinite(distance) and distance < self.least:
                        self.least = distance

    def value(self) -> Value:
        return self.least if math.isfinite(self.least) else None


class _RadioMetric(Metric):
    @classmethod
    def problem(cls, sim: Simulation, has_mission: bool) -> str:
        return "" if sim.radio is not None else "there is no radio between robots"

    @property
    def links(self) -> Sequence[Link]:
        return [] if self.run.sim.radio is None else self.run.sim.radio.links


class RadioDrop(_RadioMetric):
    """Share of radio packets that were lost, from 0 to 1; no value if none was sent."""

    name = "radio_drop"

    def value(self) -> Value:
        sent = sum(link.sent for link in self.links)
        return sum(link.dropped + link.overflowed for link in self.links) / sent if sent else None


class RadioSent(_RadioMetric):
    """Number of radio packets sent, counted once for each receiver."""

    name, kind = "radio_sent", int

    def value(self) -> Value:
        return sum(link.sent for link in self.links)


class RadioLatency(_RadioMetric):
    """Mean latency of the radio packets that arrived; no value if none did."""

    name, unit, needs_messages = "radio_latency_ms", "ms", True  # packets arrive only as messages

    def value(self) -> Value:
        delivered = sum(link.delivered for link in self.links)
        ticks = sum(link.latency_sum for link in self.links)
        return 1000.0 * self.run.dt * ticks / delivered if delivered else None


# ---- the mission and the run -----------------------------------------------------------------------------------------


class _Judged(Metric):
    judges = True

    @classmethod
    def problem(cls, sim: Simulation, has_mission: bool) -> str:
        return "" if has_mission else "there is no mission to judge"

    @property
    def violations(self) -> int:
        assert self.run.pilot is not None  # `problem` ensures it
        return len(self.run.pilot.violations())


class Passed(_Judged):
    """Whether the mission met all of its expectations."""

    name, kind = "passed", bool

    def value(self) -> Value:
        return self.violations == 0


class Violations(_Judged):
    """Number of expectations of the mission that were not met."""

    name, kind = "violations", int

    def value(self) -> Value:
        return self.violations


class Ignored(Metric):
    """Number of inputs that were ignored, such as a NaN in a command or a teleport into an obstacle."""

    name, kind = "ignored", int

    def value(self) -> Value:
        return sum(self.run.sim.counters.values())


class Duration(Metric):
    """Simulated time at the end of the run."""

    name, unit = "duration_s", "s"

    def value(self) -> Value:
        return self.run.sim.time_ns / 1e9


class Digest(Metric):
    """SHA-256 over every message of the run."""

    name, kind, needs_messages = "digest", str, True

    def value(self) -> Value:
        return self.run.sim.digest()


METRICS: Mapping[str, type[Metric]] = {  # the built-in ones
    each.name: each for each in list(vars().values()) if is_subclass(each, Metric) and each.name
}
