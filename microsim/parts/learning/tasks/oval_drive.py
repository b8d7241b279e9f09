"""Drive: a car on an oval road."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from microsim.engine.components import VELOCITY_X, VELOCITY_Y, YAW_RATE, X, Y
from microsim.parts.learning.observations import Numbers
from microsim.parts.learning.task import NO_SENSORS, QUIET, Array, Float32s, Integers, Mask, Outcome, Task
from microsim.robots.car import Bicycle

_SPEED, _STEERING = Bicycle.engine.row("speed"), Bicycle.engine.row("steering")


def on_oval(rows: Array, middle: tuple[float, float], half: float, radius: float) -> tuple[Array, Array, Array, Array]:
    """Distance to the left of a loop's middle line [m], its direction x, y, how far it stays straight [m]; 0 in a bend.

    The loop is driven counter-clockwise: straights of 2 `half` and half circles of `radius` round `middle`.
    """
    dx, dy = rows[X] - middle[0], rows[Y] - middle[1]
    beyond = dx - np.clip(dx, -half, half)  # 0 along the straights
    away = np.sqrt(np.square(beyond) + np.square(dy))
    along = np.maximum(away, 1e-9)
    direction_x, direction_y = -dy / along, beyond / along
    ahead: Array = np.where(beyond == 0.0, half - dx * np.sign(-dy), 0.0)
    return radius - away, direction_x, direction_y, ahead


class Drive(Task):
    """Drive a car round an oval road, as fast as it can be kept on it.

    The road is 8 m wide: two straights of 60 m and two half circles of 20 m radius, driven counter-clockwise. Reward of
    a step: a tenth of the metres driven along the road, −0.1 times the squared distance from its middle (4 m is 1). The
    episode ends off the road (−10) and is cut after 60 s. Success: one lap or more when it is cut.
    """

    name, horizon = "Drive", 600
    actions = {"car": {"steering": 0.6, "speed": 12.0}}
    observations = {
        "road": Numbers("left", "sine", "cosine", low=-2, high=2),  # 4 m left of its middle is 1; heading against it
        "motion": Numbers("speed", "steering", "turn", low=-3, high=3),  # 12 m/s is 1; 0.6 rad is 1; rad/s
        "ahead": Numbers("bend", "straight", low=0),  # whether it bends here; how far it does not, 60 m is 1
    }
    straight_m, radius_m, half_width_m, lap_m = 60.0, 20.0, 4.0, 245.0
    middle = (70.0, 50.0)

    def scenario(self) -> dict[str, Any]:
        start = {"map_pose": {"x": 60, "y": 30, "yaw": 0}}
        return {
            **QUIET,
            "name": "drive",
            "map": {"size_xy_cells": [140, 100]},
            "robots": {"car": {"model": "bicycle", **NO_SENSORS, "joint_states": None, "start": start}},
            "randomize": {"starts": {"car": {"x": [45, 90], "y": [28.5, 31.5], "yaw": [-0.2, 0.2], "gap_m": 5.0}}},
        }

    def prepare(self) -> None:
        self.driven: Array = self.xp.zeros(self.n)

    def begin(self, worlds: Integers) -> None:
        self.driven[worlds] = 0.0

    def road(self, rows: Array) -> tuple[Array, Array, Array, Array]:
        return on_oval(rows, self.middle, 0.5 * self.straight_m, self.radius_m)

    def fill(self, seen: dict[str, Float32s]) -> None:
        rows, sine, cosine = self.look("car")
        left, x, y, ahead = self.road(rows)
        road, motion, bend = seen["road"], seen["motion"], seen["ahead"]
        road[0], road[1], road[2] = left / self.half_width_m, sine * x - cosine * y, cosine * x + sine * y
        motion[0], motion[1], motion[2] = rows[_SPEED] / 12.0, rows[_STEERING] / 0.6, rows[YAW_RATE]
        bend[0], bend[1] = ahead == 0.0, ahead / self.straight_m

    def judge(self) -> Outcome:
        rows = self.batch.rows("car")
        left, x, y, _ = self.road(rows)
        step_s = self.ticks * self.batch.clock.dt
        along: Array = rows[VELOCITY_X] * x + rows[VELOCITY_Y] * y
        self.driven += step_s * along
        rewards: Array = 0.1 * step_s * along
        rewards -= 0.1 * np.square(left / self.half_width_m)
        off_road: Mask = np.abs(left) > self.half_width_m
        rewards[off_road] = -10.0
        return Outcome(rewards, off_road, ~off_road & (self.driven >= self.lap_m))

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        """The middle of the road, in dots."""
        (x, y), half, radius = self.middle, 0.5 * self.straight_m, self.radius_m
        dots = [(x + half * share, y + side * radius, 0.4) for share in np.linspace(-1, 1, 13) for side in (-1, 1)]
        for share in np.linspace(-0.95, 0.95, 9):
            across = radius * float(np.sqrt(1.0 - share * share))
            dots += [(x + side * (half + across), y + radius * share, 0.4) for side in (-1, 1)]
        return [(float(a), float(b), c) for a, b, c in dots]


TASK = Drive
