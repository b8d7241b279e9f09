"""Hover: fly to a point and stay there, in wind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from microsim.engine.components import Z
from microsim.parts.learning.observations import Numbers
from microsim.parts.learning.task import NO_SENSORS, QUIET, Array, Float32s, Mask, Outcome, Task, distance

DRONE = {"vx": 5.0, "vy": 5.0, "vz": 3.0, "yaw_rate": 1.5}  # its limits
SIDE_M = 40


def drone_world(wind: Sequence[float], gust_sigma: float) -> dict[str, Any]:
    """A drone anywhere in the middle of an empty map."""
    return {
        **QUIET,
        "map": {"size_xy_cells": [SIDE_M, SIDE_M]},
        "robots": {"drone": {**NO_SENSORS, "start": {"map_pose": {"x": 20, "y": 20, "z": 5}}}},
        "wind": {"world_xyz": list(wind), "gust_sigma": gust_sigma},
        "randomize": {"starts": {"drone": {"x": [10, 30], "y": [10, 30], "z": [2, 8], "yaw": [-3.1, 3.1]}}},
    }


def has_landed(rows: Array) -> Mask:
    landed: Mask = rows[Z] <= 0.1001  # its clearance over the ground
    return landed


class Hover(Task):
    """Fly to the point (20, 20, 5) from anywhere and stay there, in wind.

    Reward of a step: 1 − distance / 5 m, at least −1. The episode ends on the ground (−10) and is cut after 20 s.
    Success: within 0.5 m of the point when it is cut.
    """

    name, horizon = "Hover", 200
    training = {"gamma": 0.97, "log_std": -1.0}
    actions = {"drone": DRONE}
    observations = {
        "point": Numbers("forward", "left", "up", low=-5, high=5),  # 10 m is 1
        "velocity": Numbers("forward", "left", "up", "turn", low=-3, high=3),  # 5 m/s is 1; rad/s
    }
    goal = (20.0, 20.0, 5.0)
    near_m = 0.5

    def scenario(self, wind: Sequence[float] = (1.0, 0.0, 0.0), gust_sigma: float = 0.0) -> dict[str, Any]:
        return {"name": "hover", **drone_world(wind, gust_sigma)}

    def fill(self, seen: dict[str, Float32s]) -> None:
        rows, _, _ = self.look("drone")
        self.see_offset(seen["point"], rows, self.goal, 0.1)
        self.see_velocity(seen["velocity"], rows, 0.2)

    def judge(self) -> Outcome:
        rows = self.batch.rows("drone")
        away = distance(rows, self.goal)
        is_near: Mask = away < self.near_m
        away *= -0.2
        away += 1.0
        rewards: Array = np.maximum(away, -1.0, out=away)
        landed = has_landed(rows)
        rewards[landed] = -10.0
        return Outcome(rewards, landed, is_near)

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        return [(20.0, 20.0, self.near_m)]


TASK = Hover
