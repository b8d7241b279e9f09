"""LaneKeeping: steer a car by its camera in a captured world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from microsim.engine.components import VELOCITY_X, VELOCITY_Y
from microsim.parts.learning.observations import Reading
from microsim.parts.learning.task import Array, Integers, Mask, Outcome, Task
from microsim.parts.learning.tasks.oval_drive import on_oval

HALF_M, RADIUS_M = 40.0, 30.0  # of the loop of the world `oval`


class LaneKeeping(Task):
    """Keep a car in the right lane of the world `oval` at 6 m/s, by the images of its front camera, 48 × 32 pixels.

    A step is 0.2 s. Its reward is 0.2 in the middle of the lane, less by the squared distance from it (2.5 m: 0). The
    episode ends 2.5 m from it (−5) and is cut after 30 s, which is a success. Option `render`: `splat` shows the
    captured world, `plain` the palette's colours, many times as fast.
    """

    name, horizon, ticks = "LaneKeeping", 150, 20
    actions = {"ego": {"steering": 0.4}}
    observations = {"image": Reading("ego/camera_front")}
    training = {
        "worlds": 64, "rollout": 16, "steps": 100_000, "epochs": 8, "minibatch": 256, "learning_rate": 1e-3,
        "gamma": 0.95, "log_std": -1.0, "target": 0.95, "check_worlds": 32, "check_every": 10,
    }  # fmt: skip
    lane_m, half_width_m, speed = -2.5, 2.5, 6.0  # the lane's middle is to the right of the road's

    def scenario(self, render: str = "splat") -> dict[str, Any]:
        camera = {
            "hz": 5,
            "resolution": {"width": 48, "height": 32},
            "intrinsics": {"fx": 24.0, "fy": 24.0, "cx": 24.0, "cy": 16.0},
            "latency_ms": {"mean": 0, "jitter": 0, "drop_probability": 0},
            "noise": {"blur_sigma_px": 0, "color_jitter": 0},
            "render": render,
        }
        others = dict.fromkeys(("camera_front_left", "camera_front_right", "lidar_top"))
        start = {"x": [-35, 25], "y": [-33.5, -31.5], "yaw": [-0.15, 0.15], "gap_m": 0.0}
        return {
            "name": "lane_keeping",
            "world": "oval",
            "robots": {"ego": {"sensors": {"camera_front": camera, **others}}},
            "randomize": {"starts": {"ego": start}},
        }

    def begin(self, worlds: Integers) -> None:
        self.batch.commands("ego")[self.batch.inputs("ego").index("speed"), worlds] = self.speed

    def judge(self) -> Outcome:
        rows = self.batch.rows("ego")
        left, x, y, _ = on_oval(rows, (0.0, 0.0), HALF_M, RADIUS_M)
        off = (left - self.lane_m) / self.half_width_m
        outside: Mask = (np.abs(off) > 1.0) | (rows[VELOCITY_X] * x + rows[VELOCITY_Y] * y < 0.0)  # or turned round
        rewards: Array = 0.2 - 0.2 * np.square(off)
        rewards[outside] = -5.0
        return Outcome(rewards, outside, ~outside)

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        """The middle of the lane on the straights, in dots."""
        across = RADIUS_M - self.lane_m
        return [(float(x), side * across, 0.4) for x in np.linspace(-HALF_M, HALF_M, 17) for side in (-1.0, 1.0)]


TASK = LaneKeeping
