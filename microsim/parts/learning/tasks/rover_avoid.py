"""RoverAvoid: drive across a field of obstacles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from microsim.engine.components import CONTACTS, YAW_RATE
from microsim.parts.learning.observations import Numbers, Reading
from microsim.parts.learning.task import NO_SENSORS, QUIET, Array, Float32s, Integers, Mask, Outcome, Task, distance


class RoverAvoid(Task):
    """Drive a rover across a field of obstacles to a goal on the other side, without touching anything.

    Reward of a step: metres that the rover came nearer to the goal, −0.02 for the time; 10 within 1 m of it, −5 for
    touching an obstacle or the edge; both end the episode. It is cut after 30 s. Obstacles, start and goal differ from
    seed to seed. Difficulty: how far away the goal is.
    """

    name, horizon = "RoverAvoid", 300
    actions = {"rover": {"v": 2.0, "omega": 1.2}}
    reach_m, goal_m = 8.0, 1.0
    observations = {
        "scan": Reading("rover/scan", per=reach_m, low=0.0),  # 15 distances over 240°, from right to left
        "goal": Numbers("forward", "left", low=-5, high=5),  # 15 m is 1
        "motion": Numbers("speed", "turn", low=-3, high=3),  # 2 m/s is 1; rad/s
    }

    def scenario(self) -> dict[str, Any]:
        scan = {"hz": 10, "beams": 15, "angle_min": -2.0944, "angle_max": 2.0944, "max_m": self.reach_m}
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

    def prepare(self) -> None:
        self.goal: Array = self.xp.zeros((2, self.n))
        self.before: Array = self.xp.zeros(self.n)

    def begin(self, worlds: Integers) -> None:
        nearest = 8.0 + 18.0 * self.difficulty
        places = self.batch.free_places("task/goal", (nearest, nearest + 2.0), (4.0, 26.0), 1.0, worlds)
        self.goal[:, worlds] = places.T
        self.before[worlds] = distance(self.batch.rows("rover")[:, worlds], self.goal[:, worlds])

    def fill(self, seen: dict[str, Float32s]) -> None:
        rows, _, _ = self.look("rover")
        self.see_offset(seen["goal"], rows, self.goal, 1.0 / 15.0)
        speed, turn = seen["motion"]
        speed[:] = self.velocity(rows)[0] * 0.5
        turn[:] = rows[YAW_RATE]

    def judge(self) -> Outcome:
        rows = self.batch.rows("rover")
        now = distance(rows, self.goal)
        rewards: Array = self.before - now - 0.02
        self.before[:] = now
        arrived: Mask = now < self.goal_m
        touched: Mask = rows[CONTACTS] > 0.0
        rewards += 10.0 * arrived
        rewards -= 5.0 * touched
        return Outcome(rewards, arrived | touched, arrived, touched)

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


TASK = RoverAvoid
