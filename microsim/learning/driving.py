"""Tasks on the ground: a rover among obstacles, a car on a road."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from microsim.engine.components import CONTACTS, VELOCITY_X, VELOCITY_Y, YAW_RATE, X, Y
from microsim.learning.tasks import NO_SENSORS, QUIET, Array, Float32s, Integers, Mask, Task, distance, no_more
from microsim.robots.car import SPEED, STEERING


def see_ranges(ranges: Float32s, reach_m: float, out: Float32s) -> None:
    """Distances of a scan as shares of its reach: 0 at a wall, 1 where nothing is."""
    np.clip(ranges, 0.0, reach_m, out=out)
    np.nan_to_num(out, copy=False, nan=reach_m)
    out /= np.float32(reach_m)


class RoverAvoid(Task):
    """Drive a rover across a field of obstacles to a goal on the other side, without touching anything.

    Action: speed (1 is 2 m/s), turn (1 is 1.2 rad/s). Observation: 15 distances of a scan over 240° from right to left,
    as shares of 8 m; offset to the goal (forward, left; 15 m is 1), speed / 2 m/s, turn rate [rad/s]. Reward of a step:
    metres that the rover came nearer to the goal, −0.02 for the time; 10 within 1 m of it, −5 for touching an obstacle
    or the edge; both end the episode. It is cut after 30 s. Obstacles, start and goal differ from seed to seed.
    """

    name, horizon = "RoverAvoid", 300
    limits: ClassVar = {"rover": (2.0, 1.2)}
    sensors = ("rover/scan",)
    beams, reach_m, goal_m = 15, 8.0, 1.0
    low, high = (0.0,) * 15 + (-10.0,) * 4, (1.0,) * 15 + (10.0,) * 4

    def scenario(self, **changes: Any) -> dict[str, Any]:
        no_more(changes)
        scan = {"hz": 10, "beams": self.beams, "angle_min": -2.0944, "angle_max": 2.0944, "max_m": self.reach_m}
        return {
            **QUIET,
            "name": "rover_avoid",
            "map": {"cell_size_m": 0.5, "size_xy_cells": [60, 60]},
            "obstacles": list(_field_of_obstacles()),
            "robots": {"rover": {**NO_SENSORS, "start": {"map_pose": {"x": 2.5, "y": 15, "yaw": 0}}, "scan": scan}},
            "randomize": {
                "starts": {"rover": {"x": [2, 4], "y": [4, 26], "yaw": [-0.8, 0.8]}},
                "obstacles": {"shift_m": 2.2, "keep_probability": 0.85, "gap_m": 0.5},
            },
        }

    def __init__(self, n: int, threads: int = 1, device: str = "cpu", **changes: Any) -> None:
        super().__init__(n, threads, device, **changes)
        self.goal: Array = self.xp.zeros((2, n))
        self.before: Array = self.xp.zeros(n)

    def begin(self, worlds: Integers) -> None:
        places = self.batch.free_places("task/goal", (26.0, 28.0), (4.0, 26.0), 1.0, worlds)
        self.goal[:, worlds] = places.T
        self.before[worlds] = distance(self.batch.rows("rover")[:, worlds], self.goal[:, worlds])

    def observe(self) -> Float32s:
        see_ranges(self.batch.readings["rover/scan"], self.reach_m, self.seen[:, : self.beams])
        rows, sine, cosine = self.look("rover")
        self.see_offset(self.beams, rows, self.goal, 1.0 / 15.0)
        self.seen[:, self.beams + 2] = (cosine * rows[VELOCITY_X] + sine * rows[VELOCITY_Y]) * 0.5  # as odometry has it
        self.seen[:, self.beams + 3] = rows[YAW_RATE]
        return self.seen

    def judge(self) -> tuple[Array, Mask]:
        rows = self.batch.rows("rover")
        now = distance(rows, self.goal)
        rewards: Array = self.before - now - 0.02
        self.before[:] = now
        arrived: Mask = now < self.goal_m
        self.arrived = arrived
        touched: Mask = rows[CONTACTS] > 0.0
        rewards += 10.0 * arrived
        rewards -= 5.0 * touched
        return rewards, arrived | touched

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        return [(float(self.goal[0, world]), float(self.goal[1, world]), self.goal_m)]


def _field_of_obstacles() -> Sequence[dict[str, Any]]:
    """Four columns of boxes and cylinders between start and goal; each seed moves them."""
    things: list[dict[str, Any]] = []
    for column, x in enumerate((8.0, 13.0, 18.0, 23.0)):
        for row in range(6):
            y = 2.5 + 5.0 * row + (2.5 if column % 2 else 0.0)
            if (column + row) % 2:
                things.append({"type": "box", "center": [x, y, 0], "size": [1.6, 1.6, 1]})
            else:
                things.append({"type": "cylinder", "center": [x, y, 0], "radius": 0.9, "height": 1})
    return things


class Drive(Task):
    """Drive a car round an oval road, as fast as it can be kept on it.

    The road is 8 m wide: two straights of 60 m and two half circles of 20 m radius, driven counter-clockwise. Action:
    steering (1 is 0.6 rad left), wanted speed (1 is 12 m/s; negative: backward). Observation: distance from the
    middle of the road (4 m to the left is 1), sine and cosine of the heading against the road's, speed / 12 m/s,
    steering / 0.6 rad, turn rate [rad/s], whether the road bends here, how far it stays straight (60 m is 1). Reward
    of a step: a tenth of the metres driven along the road, −0.1 times the squared distance from its middle (4 m is 1).
    The episode ends off the road (−10) and is cut after 60 s.
    """

    name, horizon = "Drive", 600
    limits: ClassVar = {"car": (0.6, 12.0)}
    low, high = (-5.0,) * 8, (5.0,) * 8
    straight_m, radius_m, half_width_m = 60.0, 20.0, 4.0
    middle = (70.0, 50.0)

    def scenario(self, **changes: Any) -> dict[str, Any]:
        no_more(changes)
        start = {"map_pose": {"x": 60, "y": 30, "yaw": 0}}
        return {
            **QUIET,
            "name": "drive",
            "map": {"size_xy_cells": [140, 100]},
            "robots": {"car": {"model": "bicycle", **NO_SENSORS, "joint_states": None, "start": start}},
            "randomize": {"starts": {"car": {"x": [45, 90], "y": [28.5, 31.5], "yaw": [-0.2, 0.2], "gap_m": 5.0}}},
        }

    def _road(self, rows: Array) -> tuple[Array, Array, Array, Array]:
        """Distance to the left of its middle [m], direction x, y, how far it stays straight [m]; 0 in a bend."""
        dx, dy = rows[X] - self.middle[0], rows[Y] - self.middle[1]
        half = 0.5 * self.straight_m
        beyond = dx - np.clip(dx, -half, half)  # 0 along the straights
        away = np.sqrt(np.square(beyond) + np.square(dy))
        along = np.maximum(away, 1e-9)
        left = self.radius_m - away
        direction_x, direction_y = -dy / along, beyond / along
        ahead: Array = np.where(beyond == 0.0, half - dx * np.sign(-dy), 0.0)
        return left, direction_x, direction_y, ahead

    def observe(self) -> Float32s:
        rows, sine, cosine = self.look("car")
        left, x, y, ahead = self._road(rows)
        seen = self.seen
        seen[:, 0] = left / self.half_width_m
        seen[:, 1] = sine * x - cosine * y
        seen[:, 2] = cosine * x + sine * y
        seen[:, 3] = rows[SPEED] / 12.0
        seen[:, 4] = rows[STEERING] / 0.6
        seen[:, 5] = rows[YAW_RATE]
        seen[:, 6] = ahead == 0.0
        seen[:, 7] = ahead / self.straight_m
        return seen

    def judge(self) -> tuple[Array, Mask]:
        rows = self.batch.rows("car")
        left, x, y, _ = self._road(rows)
        step_s = self.ticks * self.batch.clock.dt
        rewards: Array = 0.1 * step_s * (rows[VELOCITY_X] * x + rows[VELOCITY_Y] * y)
        rewards -= 0.1 * np.square(left / self.half_width_m)
        off_road: Mask = np.abs(left) > self.half_width_m
        rewards[off_road] = -10.0
        return rewards, off_road

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        """The middle of the road, in dots."""
        (x, y), half, radius = self.middle, 0.5 * self.straight_m, self.radius_m
        dots = [(x + half * share, y + side * radius, 0.4) for share in np.linspace(-1, 1, 13) for side in (-1, 1)]
        for share in np.linspace(-0.95, 0.95, 9):
            across = radius * float(np.sqrt(1.0 - share * share))
            dots += [(x + side * (half + across), y + radius * share, 0.4) for side in (-1, 1)]
        return [(float(a), float(b), c) for a, b, c in dots]
