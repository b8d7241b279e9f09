"""What parameters of the node must do, in a few lines: the tests on each transport compare with it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

WORLD: Mapping[str, Any] = {  # quick: few messages, no camera
    "world_topics": {"occupancy_hz": 0, "markers_hz": 0},
    "frames": {"tf_hz": 20},
    "robots": {
        "drone": {"camera": None, "imu": {"hz": 20}, "start": {"map_pose": {"x": 20, "y": 20, "z": 10}}},
        "rover": {"imu": {"hz": 20}},
    },
}
START: Mapping[str, Any] = {
    "physics_hz": 60.0,
    "world.size_xy_cells": [200, 200],
    "frames.per_robot_odom": False,
    "rover.start.map_pose.x": 10.0,
    "gps_hz": 5.0,
    "odom_hz": 30.0,
    "drone.max_vx": 5.0,
    "rover.max_v": 2.0,
    "radio.latency_ms_mean": 80.0,
    "radio.reordering": False,
    "wind.gust_sigma": 0.0,
}
AT_RESET = ("physics_hz", "world.size_xy_cells", "frames.per_robot_odom", "rover.start.map_pose.x")
CHOICES: Mapping[str, list[Any]] = {
    "physics_hz": [25.0, 40.0, 60.0, 100.0, 240.0],
    "world.size_xy_cells": [[200, 200], [60, 40], [30, 90], [10, 10]],  # the drone starts outside the last
    "frames.per_robot_odom": [True, False],
    "rover.start.map_pose.x": [3.0, 8.0, 15.5],
    "gps_hz": [1.0, 5.0, 30.0, 80.0],
    "odom_hz": [10.0, 30.0, 60.0, 80.0],
    "drone.max_vx": [0.5, 2.0, 5.0, -1.0],
    "rover.max_v": [0.25, 1.0, 2.0],
    "radio.latency_ms_mean": [0.0, 40.0, 250.0],
    "radio.reordering": [True, False],
    "wind.gust_sigma": [0.0, 0.4],
}


@dataclass
class Parameters:
    """`now`: what the run uses; `shown`: what was set last, and what the next reset uses."""

    now: dict[str, Any] = field(default_factory=lambda: dict(START))
    shown: dict[str, Any] = field(default_factory=lambda: dict(START))

    def set(self, changes: Mapping[str, Any]) -> bool:
        now = {**self.now, **{name: value for name, value in changes.items() if name not in AT_RESET}}
        shown = {**self.shown, **changes}
        if not (_is_valid(now) and _is_valid(shown)):
            return False
        self.now, self.shown = now, shown
        return True

    def reset(self) -> None:
        self.now = dict(self.shown)


def _is_valid(values: Mapping[str, Any]) -> bool:
    fits = min(values["world.size_xy_cells"]) > 20 and values["drone.max_vx"] >= 0
    return fits and max(values["gps_hz"], values["odom_hz"]) <= values["physics_hz"]


def operations(seed: int, count: int) -> Iterator[Mapping[str, Any] | None]:
    """Changes to be made together; None: a reset."""
    dice = random.Random(seed)
    for _ in range(count):
        names = dice.sample(list(CHOICES), dice.choice([1, 1, 1, 2, 3]))
        yield None if dice.random() < 0.2 else {name: dice.choice(CHOICES[name]) for name in names}
