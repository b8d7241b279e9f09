"""TeamTask: a drone finds a target for a rover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from microsim.engine.components import CONTACTS, TOUCHING, YAW_RATE, X, Y, Z
from microsim.parts.learning.observations import Numbers, Reading
from microsim.parts.learning.task import NO_SENSORS, QUIET, Array, Float32s, Integers, Mask, Outcome, Task, distance
from microsim.parts.learning.tasks.hover import DRONE


class TeamTask(Task):
    """A target lies somewhere on the field. The drone sees it from within 6 m; from then on the rover knows the way.

    Reward of a step, for both: 5 for finding the target, then metres that the rover came nearer, 10 within 1.5 m of it,
    which is a success and ends the episode; −0.02 for the time, −0.2 for a rover at a wall. It is cut after 60 s.
    """

    name, horizon = "TeamTask", 600
    training = {"worlds": 1024, "rollout": 32, "steps": 10_000_000, "gamma": 0.995, "check_every": 20}
    agents = ("drone", "rover")
    actions = {"drone": DRONE, "rover": {"v": 2.0, "omega": 1.2}}
    sight_m, reach_m, goal_m = 6.0, 8.0, 1.5
    observations = {
        "drone/place": Numbers("x", "y", "z", low=-2, high=2),  # 20 m from the middle is 1
        "drone/velocity": Numbers("forward", "left", "up", "turn", low=-3, high=3),  # 5 m/s is 1; rad/s
        "drone/is_found": Numbers("target", low=0),
        "drone/target": Numbers("forward", "left", low=-3, high=3),  # 20 m is 1; 0 before it is found
        "rover/scan": Reading("rover/scan", per=reach_m, low=0.0),  # 9 distances over 180°
        "rover/place": Numbers("x", "y", low=-2, high=2),
        "rover/motion": Numbers("speed", "turn", low=-2, high=2),  # 2 m/s is 1; rad/s
        "rover/is_found": Numbers("target", low=0),
        "rover/target": Numbers("forward", "left", low=-3, high=3),
        "rover/drone": Numbers("distance", low=0, high=3),  # 20 m is 1
    }

    def scenario(self) -> dict[str, Any]:
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

    def prepare(self) -> None:
        self.target: Array = self.xp.zeros((2, self.n))
        self.found: Mask = self.xp.zeros(self.n, np.bool_)
        self.before: Array = self.xp.zeros(self.n)
        self.bumped: Array = self.xp.zeros(self.n)

    def begin(self, worlds: Integers) -> None:
        self.target[:, worlds] = self.batch.free_places("task/target", (10.0, 36.0), (10.0, 36.0), 1.0, worlds).T
        self.found[worlds] = False
        self.bumped[worlds] = 0.0
        self.before[worlds] = distance(self.batch.rows("rover")[:, worlds], self.target[:, worlds])

    def fill(self, seen: dict[str, Float32s]) -> None:
        drone, _, _ = self.look("drone")
        place, motion = seen["drone/place"], seen["rover/motion"]
        place[0], place[1], place[2] = (drone[X] - 20.0) * 0.05, (drone[Y] - 20.0) * 0.05, drone[Z] * 0.05
        self.see_velocity(seen["drone/velocity"], drone, 0.2)
        self._see_target(seen["drone/target"], drone)
        rover, _, _ = self.look("rover")
        place = seen["rover/place"]
        place[0], place[1] = (rover[X] - 20.0) * 0.05, (rover[Y] - 20.0) * 0.05
        motion[0], motion[1] = self.velocity(rover)[0] * 0.5, rover[YAW_RATE]
        self._see_target(seen["rover/target"], rover)
        seen["drone/is_found"][0] = seen["rover/is_found"][0] = self.found
        seen["rover/drone"][0] = 0.05 * distance(rover, drone[:2])

    def _see_target(self, out: Float32s, rows: Array) -> None:
        self.see_offset(out, rows, self.target, 0.05)
        out[:, ~self.found] = 0.0

    def judge(self) -> Outcome:
        rover, drone = self.batch.rows("rover"), self.batch.rows("drone")
        now = distance(rover, self.target)
        rewards: Array = np.where(self.found, self.before - now, 0.0) - 0.02
        rewards -= 0.2 * ((rover[TOUCHING] > 0.0) | (rover[CONTACTS] > self.bumped))
        self.bumped[:] = rover[CONTACTS]
        self.before[:] = now
        sees: Mask = ~self.found & (distance(drone, self.target) < self.sight_m)
        self.found |= sees
        arrived: Mask = self.found & (now < self.goal_m)
        return Outcome(rewards + 5.0 * sees + 10.0 * arrived, arrived, arrived)

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        return [(float(self.target[0, world]), float(self.target[1, world]), self.goal_m)]


TASK = TeamTask
