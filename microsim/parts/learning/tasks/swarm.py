"""Swarm: drones that cross each other's paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from microsim.engine.components import CONTACTS, VELOCITY_X, VELOCITY_Y, X, Y
from microsim.engine.exact import PI, sincos
from microsim.errors import UsageError
from microsim.parts.learning.observations import Numbers
from microsim.parts.learning.task import NO_SENSORS, QUIET, Array, Float32s, Integers, Mask, Outcome, Task
from microsim.parts.learning.tasks.hover import SIDE_M

MOST = 16
NEIGHBOURS = 2  # that each agent sees


class Swarm(Task):
    """Drones on a circle change places, each with the one as many places on, without touching each other.

    Observations and actions have an axis for the agents: (agents, 8) and (agents, 2). Reward of a step, for each agent:
    metres that it came nearer to its goal, −0.01 for the time, −5 for touching another, 5 when all are within 0.6 m of
    their goals, which is a success; both end the episode for all. It is cut after 30 s. Difficulty: how far goals are
    away.
    """

    name, horizon = "Swarm", 300
    alike = True
    easiest = 0.3
    goal_m = 0.6

    def scenario(self, agents: int = 4) -> dict[str, Any]:
        if not 2 <= agents <= MOST:
            raise UsageError(f"Swarm: agents must be from 2 to {MOST}, found {agents}")
        self.agents = tuple(f"drone_{number}" for number in range(1, agents + 1))
        self.actions = {agent: {"vx": 2.0, "vy": 2.0} for agent in self.agents}
        self.observations = {
            f"{agent}/{part}": numbers for agent in self.agents for part, numbers in self._parts().items()
        }
        radius = 6.0 + 0.5 * agents
        turns = [sincos(2.0 * PI * number / agents) for number in range(agents)]
        places = [(20.0 + radius * cosine, 20.0 + radius * sine) for sine, cosine in turns]
        self.places = np.array(places).T  # (2, agents)
        starts = {
            agent: {"x": [x - 1.0, x + 1.0], "y": [y - 1.0, y + 1.0]}
            for agent, (x, y) in zip(self.agents, places, strict=True)
        }
        robots = {
            agent: {"model": "drone", **NO_SENSORS, "start": {"map_pose": {"x": x, "y": y, "z": 5.0, "yaw": 0.0}}}
            for agent, (x, y) in zip(self.agents, places, strict=True)
        }
        size = {"size_xy_cells": [SIDE_M, SIDE_M]}
        return {**QUIET, "name": "swarm", "map": size, "robots": robots, "randomize": {"starts": starts}}

    @staticmethod
    def _parts() -> dict[str, Numbers]:
        near = [f"{axis}_{number}" for number in range(NEIGHBOURS) for axis in "xy"]
        return {
            "goal": Numbers("x", "y", low=-4, high=4),  # 10 m is 1
            "velocity": Numbers("x", "y", low=-2, high=2),  # 2 m/s is 1
            "others": Numbers(*near),  # offsets to the two that are nearest, 5 m is 1
        }

    def prepare(self) -> None:
        count = len(self.agents)
        self.goals: Array = self.xp.zeros((2, count, self.n))
        self.before: Array = self.xp.zeros((count, self.n))
        self._self, self._worlds = self.xp.arange(count), self.xp.arange(self.n)
        self._places: Array = self.batch.loops.array(self.places)

    def _rows(self, row: int) -> Array:
        """(agents, n)."""
        found: Array = self.xp.stack([self.batch.rows(agent)[row] for agent in self.agents])
        return found

    def begin(self, worlds: Integers) -> None:
        count = len(self.agents)
        farthest = 1.0 + self.difficulty * (count // 2 - 1)
        steps = self.draw("task/places", 1.0, farthest + 0.999, worlds).astype(np.int64)
        for agent in range(count):
            self.goals[:, agent, worlds] = self._places[:, (agent + steps) % count]
        self.before[:, worlds] = self._distances()[:, worlds]

    def _distances(self) -> Array:
        away: Array = np.sqrt(np.square(self.goals[X] - self._rows(X)) + np.square(self.goals[Y] - self._rows(Y)))
        return away

    def fill(self, seen: dict[str, Float32s]) -> None:
        x, y, vx, vy = (self._rows(row) for row in (X, Y, VELOCITY_X, VELOCITY_Y))
        near = self._nearest(x, y)
        for number, agent in enumerate(self.agents):
            goal, velocity, others = (seen[f"{agent}/{part}"] for part in ("goal", "velocity", "others"))
            goal[0] = 0.1 * (self.goals[X, number] - x[number])
            goal[1] = 0.1 * (self.goals[Y, number] - y[number])
            velocity[0], velocity[1] = 0.5 * vx[number], 0.5 * vy[number]
            for index, (dx, dy) in enumerate(near):
                others[2 * index], others[2 * index + 1] = 0.2 * dx[number], 0.2 * dy[number]
        if len(near) < NEIGHBOURS:
            for agent in self.agents:
                seen[f"{agent}/others"][2:] = 1.0

    def _nearest(self, x: Array, y: Array) -> list[tuple[Array, Array]]:
        """Offsets (agents, n) to the nearest other agents, the nearest first."""
        dx, dy = x[None] - x[:, None], y[None] - y[:, None]  # [i, j]: from i to j
        away = np.square(dx) + np.square(dy)
        away[self._self, self._self] = np.inf
        found: list[tuple[Array, Array]] = []
        for _ in range(min(NEIGHBOURS, len(self.agents) - 1)):
            nearest = np.argmin(away, axis=1)[:, None]
            x, y = (np.take_along_axis(each, nearest, axis=1)[:, 0] for each in (dx, dy))
            found.append((x, y))
            away[self._self[:, None], nearest[:, 0], self._worlds] = np.inf
        return found

    def judge(self) -> Outcome:
        now = self._distances()
        rewards: Array = self.before - now - 0.01
        self.before[:] = now
        touched: Mask = self._rows(CONTACTS) > 0.0
        collision: Mask = np.any(touched, axis=0)
        arrived: Mask = ~collision & np.all(now < self.goal_m, axis=0)
        rewards += 5.0 * arrived
        rewards -= 5.0 * touched
        return Outcome(rewards.T, collision | arrived, arrived, collision)

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        return [(float(x), float(y), self.goal_m) for x, y in zip(*self.goals[:, :, world], strict=True)]


TASK = Swarm
