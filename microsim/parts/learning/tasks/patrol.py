"""Patrol: fly along the corners of a square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from microsim.parts.learning.observations import Numbers
from microsim.parts.learning.task import Array, Float32s, Integers, Mask, Outcome, Task, distance
from microsim.parts.learning.tasks.hover import DRONE, drone_world, has_landed


class Patrol(Task):
    """Fly along four corners of a square, each within 1 m, in order, beginning anywhere.

    Reward of a step: metres that the drone came nearer to the corner, 10 for reaching it, −0.05 for the time. The
    episode ends after the fourth corner, which is a success, or on the ground (−10), and is cut after 60 s.
    """

    name, horizon = "Patrol", 600
    actions = {"drone": DRONE}
    observations = {
        "corner": Numbers("forward", "left", "up", low=-5, high=5),  # 20 m is 1
        "next_corner": Numbers("forward", "left", "up", low=-5, high=5),
        "velocity": Numbers("forward", "left", "up", "turn", low=-3, high=3),  # 5 m/s is 1; rad/s
    }
    places = ((10.0, 30.0, 30.0, 10.0), (10.0, 10.0, 30.0, 30.0), (5.0, 5.0, 5.0, 5.0))  # x, y, z of the corners
    reach_m = 1.0

    def scenario(self, wind: Sequence[float] = (0.0, 0.0, 0.0), gust_sigma: float = 0.0) -> dict[str, Any]:
        return {"name": "patrol", **drone_world(wind, gust_sigma)}

    def prepare(self) -> None:
        self.corners: Array = self.xp.array(self.places)
        self.visited: Integers = self.xp.zeros(self.n, np.int64)
        self.before: Array = self.xp.zeros(self.n)

    def begin(self, worlds: Integers) -> None:
        self.visited[worlds] = 0
        self.before[worlds] = distance(self.batch.rows("drone")[:, worlds], self.corners[:, :1])

    def fill(self, seen: dict[str, Float32s]) -> None:
        rows, _, _ = self.look("drone")
        self.see_offset(seen["corner"], rows, self.corners[:, self.visited % 4], 0.05)
        self.see_offset(seen["next_corner"], rows, self.corners[:, (self.visited + 1) % 4], 0.05)
        self.see_velocity(seen["velocity"], rows, 0.2)

    def judge(self) -> Outcome:
        rows = self.batch.rows("drone")
        now = distance(rows, self.corners[:, self.visited % 4])
        rewards: Array = self.before - now - 0.05
        reached: Mask = now < self.reach_m
        rewards += 10.0 * reached
        self.visited += reached
        now[reached] = distance(rows, self.corners[:, self.visited % 4])[reached]
        self.before[:] = now
        landed = has_landed(rows)
        rewards[landed] = -10.0
        done: Mask = self.visited >= 4
        return Outcome(rewards, landed | done, done & ~landed)

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        return [(x, y, self.reach_m) for x, y in zip(*self.places[:2], strict=True)]


TASK = Patrol
