"""What tests of `robot_simulator` share: a core that is driven by hand, a small navigator, and the scenario it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from microsim.engine.world import World
from microsim.parts.small_nodes.robot_maps import read_obstacles
from microsim.parts.small_nodes.robot_simulator_node import PlanarPose, RobotSimulator
from microsim.parts.small_nodes.robot_simulator_settings import RobotSimulatorSettings


class Hand:
    """A core, its ticks, and what it said and sent."""

    def __init__(self, grid: World | None = None, obstacles: Sequence[Mapping[str, Any]] = (), **settings: Any) -> None:
        self.said: list[tuple[str, str]] = []
        moving = read_obstacles({"obstacles": list(obstacles)}) if obstacles else ()
        self.core = RobotSimulator(RobotSimulatorSettings(**settings), self._say, grid, moving)
        self.sent: list[Any] = list(self.core.step(0))

    def _say(self, level: str, text: str, kind: str) -> None:
        self.said.append((level, text))

    def step(self, ticks: int = 1) -> None:
        self.sent += self.core.step(ticks)

    def start(self, x: float = 0.0, y: float = 0.0, yaw: float = 0.0) -> None:
        """A first target: the robot is there, and ACTIVE."""
        self.core.target(0, PlanarPose(x, y, yaw))

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


class Link(Protocol):
    """A navigator's way to a simulator that runs elsewhere."""

    def listen(self) -> None:
        """Wait a little for messages; afterwards the values below are the newest."""

    @property
    def pose(self) -> tuple[float, float, float] | None:
        """From /amcl_pose."""

    @property
    def speed(self) -> tuple[float, float] | None:
        """From /odom."""

    @property
    def status(self) -> dict[str, str]:
        """From /diagnostics."""

    def command(self, v: float, omega: float) -> None: ...

    def target(self, x: float, y: float) -> None: ...


WALL_X = 4.0  # where the scenario's wall begins
RADIUS_M, SLOW_M, STOP_M, MAX_MPS = 0.25, 1.5, 0.3, 2.0  # the parameters' defaults
FAST = 1.2  # how fast the navigator would drive into the wall


def write_wall(folder: Path) -> Path:
    """A map of map_server: a wall from WALL_X on, 0.5 m thick, from y = -3 to 3."""
    rows = "\n".join(" ".join("0" if column >= 80 else "254" for column in range(90)) for _ in range(120))
    (folder / "wall.pgm").write_text(f"P2 90 120 255\n{rows}\n")
    settings = "resolution: 0.05\norigin: [0.0, -3.0, 0.0]\nnegate: 0\noccupied_thresh: 0.65\nfree_thresh: 0.25\n"
    (folder / "wall.yaml").write_text(f"image: wall.pgm\n{settings}")
    return folder / "wall.yaml"


def navigate(link: Link, patience_s: float) -> dict[str, Any]:
    """The document's §12 in one go: follow targets, fall silent until the stop is seen, go on, drive at the wall."""
    end = time.monotonic() + patience_s

    def until(done: Callable[[], object], act: Callable[[], None] = lambda: None) -> None:
        while not done():
            assert time.monotonic() < end, f"it never happened; {link.pose} {link.speed} {link.status}"
            act()
            link.listen()

    until(lambda: link.pose is not None, lambda: link.target(0.0, 0.0))  # again until it has arrived
    reached = []
    for goal in ((1.0, 0.0), (1.0, 1.0)):
        link.target(*goal)
        until(lambda goal=goal: _is_near(link, goal), lambda goal=goal: link.command(*steer(*link.pose, goal)))
        reached.append(goal)
    before = link.pose
    until(lambda: link.status.get("state") == "TIMEOUT_STOP" and link.speed == (0.0, 0.0))  # and says nothing meanwhile
    stopped = link.pose
    until(lambda: link.status.get("state") == "ACTIVE", lambda: link.command(0.0, 0.1))
    goal = (1.5, 0.0)
    link.target(*goal)
    until(lambda: _is_near(link, goal), lambda: link.command(*steer(*link.pose, goal)))
    until(lambda: abs(link.pose[2]) < 0.02, lambda: link.command(0.0, -1.5 * link.pose[2]))
    reached.append(goal)
    approach: list[tuple[float, float]] = []  # x, speed

    def drive_at_the_wall() -> None:
        link.command(FAST, 0.0)
        approach.append((link.pose[0], link.speed[0]))

    until(lambda: len(approach) > 20 and 0.0 < link.speed[0] < 0.05 * FAST, drive_at_the_wall)
    return {"reached": reached, "before": before, "stopped": stopped, "approach": approach}


def check_navigation(found: dict[str, Any]) -> None:
    assert found["reached"] == [(1.0, 0.0), (1.0, 1.0), (1.5, 0.0)]
    coasted = math.hypot(found["stopped"][0] - found["before"][0], found["stopped"][1] - found["before"][1])
    assert coasted < 2.5 * 0.8  # it held the last command for the timeout, no longer
    approach = found["approach"]
    assert max(speed for _, speed in approach) == pytest.approx(FAST)
    assert max(x for x, _ in approach) < WALL_X - RADIUS_M - STOP_M
    for x, speed in approach:  # pose and speed are of neighbouring ticks, at most two apart
        left = WALL_X - RADIUS_M - STOP_M - (x - 0.2 * FAST)
        assert speed <= MAX_MPS * left / (SLOW_M - STOP_M) + 1e-6


def _is_near(link: Link, goal: tuple[float, float]) -> bool:
    return link.pose is not None and math.hypot(goal[0] - link.pose[0], goal[1] - link.pose[1]) < 0.1
