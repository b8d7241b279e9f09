"""CameraRover: drive to a pillar that only the camera sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from microsim.engine.components import CONTACTS, X, Y
from microsim.parts.learning.observations import Reading
from microsim.parts.learning.task import NO_SENSORS, QUIET, Array, Integers, Mask, Outcome, Task, distance


class CameraRover(Task):
    """Drive a rover to a pillar. It sees nothing but the images of its camera, 32 × 24 pixels.

    The pillar's place and the rover's start differ from seed to seed. Reward of a step: metres that the rover came
    nearer to the pillar, −0.02 for the time; 10 within 2 m of it, −5 for touching the edge; both end the episode. It
    is cut after 20 s.
    """

    name, horizon = "CameraRover", 200
    actions = {"rover": {"v": 2.0, "omega": 1.2}}
    observations = {"image": Reading("rover/camera")}
    training = {
        "worlds": 128, "rollout": 32, "steps": 600_000, "minibatch": 1024, "learning_rate": 1e-3, "gamma": 0.97,
        "check_worlds": 200,
    }  # fmt: skip
    goal_m = 2.0

    def scenario(self) -> dict[str, Any]:
        camera = {
            "hz": 10,
            "resolution": {"width": 32, "height": 24},
            "intrinsics": {"fov_deg": 110},
            "latency_ms": {"mean": 0, "jitter": 0, "drop_probability": 0},
            "noise": {"blur_sigma_px": 0, "color_jitter": 0},
        }
        return {
            **QUIET,
            "name": "camera_rover",
            "map": {"cell_size_m": 0.5, "size_xy_cells": [48, 48]},
            "obstacles": [{"type": "cylinder", "center": [16, 12, 0], "radius": 0.7, "height": 3}],
            "robots": {"rover": {**NO_SENSORS, "camera": camera, "start": {"map_pose": {"x": 6, "y": 12, "yaw": 0}}}},
            "randomize": {
                "starts": {"rover": {"x": [4, 7], "y": [8, 16], "yaw": [-0.6, 0.6]}},
                "obstacles": {"shift_m": 3.5},
            },
        }

    def prepare(self) -> None:
        self.pillar: Array = self.xp.zeros((2, self.n))
        self.before: Array = self.xp.zeros(self.n)

    def begin(self, worlds: Integers) -> None:
        self.pillar[:, worlds] = self.batch.ground.moved[worlds, 0, :2].T
        self.before[worlds] = distance(self.batch.rows("rover")[:, worlds], self.pillar[:, worlds])

    def judge(self) -> Outcome:
        rows = self.batch.rows("rover")
        now = distance(rows, self.pillar)
        rewards: Array = self.before - now - 0.02
        self.before[:] = now
        arrived: Mask = now < self.goal_m
        touched: Mask = ~arrived & (rows[CONTACTS] > 0.0)
        rewards += 10.0 * arrived
        rewards -= 5.0 * touched
        return Outcome(rewards, arrived | touched, arrived, touched)

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        return [(float(self.pillar[X, world]), float(self.pillar[Y, world]), 0.7)]


TASK = CameraRover
