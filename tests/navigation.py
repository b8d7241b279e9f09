"""What tests of `robot_simulator` share: a core that is driven by hand, and a small navigator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from microsim.node.robot_simulator.core import Pose, RobotSimulator
from microsim.node.robot_simulator.grids import GridMap
from microsim.node.robot_simulator.moving import read_obstacles
from microsim.node.robot_simulator.settings import RobotSimulatorSettings


class Hand:
    """A core, its ticks, and what it said and sent."""

    def __init__(
        self, grid: GridMap | None = None, obstacles: Sequence[Mapping[str, Any]] = (), **settings: Any
    ) -> None:
        self.said: list[tuple[str, str]] = []
        moving = read_obstacles({"obstacles": list(obstacles)}) if obstacles else ()
        self.core = RobotSimulator(RobotSimulatorSettings(**settings), self._say, grid, moving)
        self.sent: list[Any] = []
        self._send()

    def _say(self, level: str, text: str, kind: str) -> None:
        self.said.append((level, text))

    def _send(self) -> None:
        self.core.send(self.core.tick, self.core.clock.time_ns(self.core.tick))
        self.core.outbox.close_tick()
        self.sent += self.core.outbox.take()

    def step(self, ticks: int = 1) -> None:
        for _ in range(ticks):
            self.core.move(self.core.tick)
            self._send()

    def start(self, x: float = 0.0, y: float = 0.0, yaw: float = 0.0) -> None:
        """A first target: the robot is there, and ACTIVE."""
        self.core.target(0, Pose(x, y, yaw))

    def on(self, topic: str) -> list[Any]:
        return [each.message for each in self.sent if each.topic == topic]

    def levels(self, word: str = "") -> list[str]:
        return [level for level, text in self.said if word in text]


def yaw_of(orientation: Any) -> float:
    return 2.0 * math.atan2(orientation.z, orientation.w)


def steer(x: float, y: float, yaw: float, goal: tuple[float, float], fastest: float = 0.8) -> tuple[float, float]:
    """The test navigator: turn towards the goal, drive when it is ahead, slower when near."""
    dx, dy = goal[0] - x, goal[1] - y
    error = math.remainder(math.atan2(dy, dx) - yaw, 2.0 * math.pi)
    v = min(fastest, 1.5 * math.hypot(dx, dy)) * max(math.cos(error), 0.0)
    return v, max(-1.5, min(1.5, 2.5 * error))
