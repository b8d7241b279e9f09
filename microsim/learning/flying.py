"""Tasks with a drone: hover at a point, patrol along points, find a target for a rover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from microsim.engine.components import CONTACTS, TOUCHING, YAW_RATE, X, Y, Z
from microsim.learning.driving import see_ranges
from microsim.learning.tasks import NO_SENSORS, QUIET, Array, Float32s, Integers, Mask, Task, distance, no_more
from microsim.robots.rover import V

_DRONE = (5.0, 5.0, 3.0, 1.5)  # its limits: m/s, m/s, m/s, rad/s
_MAP_M = 40


def _world(wind: Sequence[float], gust_sigma: float) -> dict[str, Any]:
    return {
        **QUIET,
        "map": {"size_xy_cells": [_MAP_M, _MAP_M]},
        "robots": {"drone": {**NO_SENSORS, "start": {"map_pose": {"x": 20, "y": 20, "z": 5}}}},
        "wind": {"world_xyz": list(wind), "gust_sigma": gust_sigma},
        "randomize": {"starts": {"drone": {"x": [10, 30], "y": [10, 30], "z": [2, 8], "yaw": [-3.1, 3.1]}}},
    }


class Hover(Task):
    """Fly to the point (20, 20, 5) from anywhere and stay there, in wind.

    Action: forward, left, up, turn. Observation: offset to the point (forward, left, up; 10 m is 1), velocity over
    ground (forward, left, up; 5 m/s is 1), turn rate [rad/s]. Reward of a step: 1 − distance / 5 m, at least −1. The
    episode ends on the ground (−10) and is cut after 20 s.
    """

    name, horizon = "Hover", 200
    limits: ClassVar = {"drone": _DRONE}
    low, high = (-10.0,) * 7, (10.0,) * 7
    goal = (20.0, 20.0, 5.0)

    def scenario(
        self, wind: Sequence[float] = (1.0, 0.0, 0.0), gust_sigma: float = 0.0, **changes: Any
    ) -> dict[str, Any]:
        no_more(changes, "wind", "gust_sigma")
        return {"name": "hover", **_world(wind, gust_sigma)}

    def observe(self) -> Float32s:
        rows, _, _ = self.look("drone")
        self.see_offset(0, rows, self.goal, 0.1)
        self.see_velocity(3, rows, 0.2)
        return self.seen

    def judge(self) -> tuple[Array, Mask]:
        rows = self.batch.rows("drone")
        away = distance(rows, self.goal)
        away *= -0.2
        away += 1.0
        rewards: Array = np.maximum(away, -1.0, out=away)
        landed: Mask = rows[Z] <= 0.1001  # its clearance over the ground
        rewards[landed] = -10.0
        return rewards, landed

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        return [(20.0, 20.0, 0.5)]


class Patrol(Task):
    """Fly along four corners of a square, each within 1 m, in order, beginning anywhere.

    Action: forward, left, up, turn. Observation: offsets to the next corner and to the one after it (forward, left, up;
    20 m is 1), velocity over ground (5 m/s is 1), turn rate [rad/s]. Reward of a step: metres that the drone came
    nearer to the corner, 10 for reaching it, −0.05 for the time. The episode ends after the fourth corner, or on the
    ground (−10), and is cut after 60 s.
    """

    name, horizon = "Patrol", 600
    limits: ClassVar = {"drone": _DRONE}
    low, high = (-10.0,) * 10, (10.0,) * 10
    places = ((10.0, 30.0, 30.0, 10.0), (10.0, 10.0, 30.0, 30.0), (5.0, 5.0, 5.0, 5.0))  # x, y, z of the corners
    reach_m = 1.0

    def scenario(
        self, wind: Sequence[float] = (0.0, 0.0, 0.0), gust_sigma: float = 0.0, **changes: Any
    ) -> dict[str, Any]:
        no_more(changes, "wind", "gust_sigma")
        return {"name": "patrol", **_world(wind, gust_sigma)}

    def __init__(self, n: int, threads: int = 1, device: str = "cpu", **changes: Any) -> None:
        super().__init__(n, threads, device, **changes)
        self.corners: Array = self.xp.array(self.places)
        self.visited: Integers = self.xp.zeros(n, np.int64)
        self.before: Array = self.xp.zeros(n)

    def begin(self, worlds: Integers) -> None:
        self.visited[worlds] = 0
        self.before[worlds] = distance(self.batch.rows("drone")[:, worlds], self.corners[:, :1])

    def observe(self) -> Float32s:
        rows, _, _ = self.look("drone")
        self.see_offset(0, rows, self.corners[:, self.visited % 4], 0.05)
        self.see_offset(3, rows, self.corners[:, (self.visited + 1) % 4], 0.05)
        self.see_velocity(6, rows, 0.2)
        return self.seen

    def judge(self) -> tuple[Array, Mask]:
        rows = self.batch.rows("drone")
        now = distance(rows, self.corners[:, self.visited % 4])
        rewards: Array = self.before - now - 0.05
        reached: Mask = now < self.reach_m
        rewards += 10.0 * reached
        self.visited += reached
        now[reached] = distance(rows, self.corners[:, self.visited % 4])[reached]
        self.before[:] = now
        landed: Mask = rows[Z] <= 0.1001
        rewards[landed] = -10.0
        done: Mask = self.visited >= 4
        self.arrived = done & ~landed
        return rewards, landed | done

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        return [(x, y, self.reach_m) for x, y in zip(*self.places[:2], strict=True)]


class TeamTask(Task):
    """A target lies somewhere on the field. The drone sees it from within 6 m; from then on the rover knows the way.

    Action: the drone's forward, left, up, turn, then the rover's speed and turn. Observation of the drone (10): its
    place on the field (x, y, z; 20 m from the middle is 1), velocity (5 m/s is 1), turn rate, whether the target is
    found, offset to it (forward, left; 20 m is 1; 0 before). Of the rover (17): 9 distances of a scan over 180° as
    shares of 8 m, its place (x, y), speed / 2 m/s, turn rate, whether the target is found, offset to it, distance to
    the drone (20 m is 1). Reward of a step, for both: 5 for finding the target, then metres that the rover came nearer,
    10 within 1.5 m of it, which ends the episode; −0.02 for the time, −0.2 for a rover at a wall. It is cut after 60 s.
    """

    name, horizon = "TeamTask", 600
    limits: ClassVar = {"drone": (5.0, 5.0, 3.0, 1.5), "rover": (2.0, 1.2)}
    sensors = ("rover/scan",)
    parts: ClassVar = {"drone": slice(0, 10), "rover": slice(10, 27)}  # of an observation
    low = (-10.0,) * 10 + (0.0,) * 9 + (-10.0,) * 8
    high = (10.0,) * 10 + (1.0,) * 9 + (10.0,) * 8
    sight_m, reach_m, goal_m = 6.0, 8.0, 1.5

    def scenario(self, **changes: Any) -> dict[str, Any]:
        no_more(changes)
        scan = {"hz": 10, "beams": 9, "angle_min": -1.5708, "angle_max": 1.5708, "max_m": self.reach_m}
        places = [(12, 12), (28, 12), (20, 20), (12, 28), (28, 28), (20, 8), (8, 20), (32, 20), (20, 32)]
        return {
            **QUIET,
            "name": "team_task",
            "map": {"size_xy_cells": [40, 40]},
            "obstacles": [{"type": "box", "center": [x, y, 0], "size": [2, 2, 2]} for x, y in places],
            "robots": {
                "drone": {**NO_SENSORS, "start": {"map_pose": {"x": 6, "y": 4, "z": 6}}},
                "rover": {**NO_SENSORS, "start": {"map_pose": {"x": 4, "y": 4, "yaw": 0.8}}, "scan": scan},
            },
            "randomize": {
                "obstacles": {"shift_m": 3.0, "keep_probability": 0.9},
                "starts": {robot: {"x": [3, 7], "y": [3, 7], "yaw": [-0.5, 2.1]} for robot in ("drone", "rover")},
            },
        }

    def __init__(self, n: int, threads: int = 1, device: str = "cpu", **changes: Any) -> None:
        super().__init__(n, threads, device, **changes)
        self.target: Array = self.xp.zeros((2, n))
        self.found: Mask = self.xp.zeros(n, np.bool_)
        self.before: Array = self.xp.zeros(n)
        self.bumped: Array = self.xp.zeros(n)

    def begin(self, worlds: Integers) -> None:
        self.target[:, worlds] = self.batch.free_places("task/target", (10.0, 36.0), (10.0, 36.0), 1.0, worlds).T
        self.found[worlds] = False
        self.bumped[worlds] = 0.0
        self.before[worlds] = distance(self.batch.rows("rover")[:, worlds], self.target[:, worlds])

    def observe(self) -> Float32s:
        seen, found, batch = self.seen, self.found, self.batch
        rows, _, _ = self.look("drone")
        seen[:, 0], seen[:, 1], seen[:, 2] = (rows[X] - 20.0) * 0.05, (rows[Y] - 20.0) * 0.05, rows[Z] * 0.05
        self.see_velocity(3, rows, 0.2)
        self._see_target(7, rows)
        see_ranges(batch.readings["rover/scan"], self.reach_m, seen[:, 10:19])
        drone, (rows, _, _) = rows, self.look("rover")
        seen[:, 19], seen[:, 20] = (rows[X] - 20.0) * 0.05, (rows[Y] - 20.0) * 0.05
        seen[:, 21], seen[:, 22] = rows[V] * 0.5, rows[YAW_RATE]
        self._see_target(23, rows)
        seen[:, 26] = 0.05 * distance(rows, drone[:2])
        seen[~found, 8:10] = seen[~found, 24:26] = 0.0
        return seen

    def _see_target(self, column: int, rows: Array) -> None:
        self.seen[:, column] = self.found
        self.see_offset(column + 1, rows, self.target, 0.05)

    def judge(self) -> tuple[Array, Mask]:
        rover, drone = self.batch.rows("rover"), self.batch.rows("drone")
        now = distance(rover, self.target)
        rewards: Array = np.where(self.found, self.before - now, 0.0) - 0.02
        rewards -= 0.2 * ((rover[TOUCHING] > 0.0) | (rover[CONTACTS] > self.bumped))
        self.bumped[:] = rover[CONTACTS]
        self.before[:] = now
        sees: Mask = ~self.found & (distance(drone, self.target) < self.sight_m)
        self.found |= sees
        arrived: Mask = self.found & (now < self.goal_m)
        self.arrived = arrived
        return rewards + 5.0 * sees + 10.0 * arrived, arrived

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        return [(float(self.target[0, world]), float(self.target[1, world]), self.goal_m)]
