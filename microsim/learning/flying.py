"""Tasks of a drone: hover at a point, patrol along points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from microsim.engine.components import Z
from microsim.learning.tasks import NO_SENSORS, QUIET, Array, Float32s, Integers, Mask, Task, distance, no_more

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
    goal = np.array([[20.0], [20.0], [5.0]])

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
    corners = np.array([[10.0, 30.0, 30.0, 10.0], [10.0, 10.0, 30.0, 30.0], [5.0, 5.0, 5.0, 5.0]])
    reach_m = 1.0

    def scenario(
        self, wind: Sequence[float] = (0.0, 0.0, 0.0), gust_sigma: float = 0.0, **changes: Any
    ) -> dict[str, Any]:
        no_more(changes, "wind", "gust_sigma")
        return {"name": "patrol", **_world(wind, gust_sigma)}

    def __init__(self, n: int, threads: int = 1, **changes: Any) -> None:
        super().__init__(n, threads, **changes)
        self.visited: Integers = np.zeros(n, np.int64)
        self.before: Array = np.zeros(n)

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
        return [(float(x), float(y), self.reach_m) for x, y in self.corners[:2].T]
