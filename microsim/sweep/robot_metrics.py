"""Metrics of what robots did, from their states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from microsim.engine.components import VELOCITY_X, VELOCITY_Y, VELOCITY_Z, YAW, X, Y, Z
from microsim.engine.drivable import OFFROAD
from microsim.engine.exact import sincos
from microsim.engine.geometry import Array
from microsim.messages.status import Car
from microsim.scenario.bundles import bundle_of
from microsim.scenario.robots import Bicycle
from microsim.simulation import Simulation
from microsim.sweep.metric import Metric, Value
from microsim.sweep.trace import Block, Run


def _speeds_squared(states: Array) -> Array:
    vx, vy, vz = states[:, VELOCITY_X], states[:, VELOCITY_Y], states[:, VELOCITY_Z]
    squares: Array = vx * vx + vy * vy + vz * vz
    return squares


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
