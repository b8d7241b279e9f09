"""GateRace: fly a drone through gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from microsim.engine.components import X, Y, Z
from microsim.engine.exact import PI, sincos
from microsim.parts.learning.observations import Numbers
from microsim.parts.learning.task import NO_SENSORS, QUIET, Array, Float32s, Integers, Mask, Outcome, Task, distance
from microsim.parts.learning.tasks.hover import DRONE, SIDE_M, has_landed

GATES = 6
TURNS = [sincos(2.0 * PI * gate / GATES) for gate in range(GATES)]  # (sine, cosine) of where each gate is on the loop


class GateRace(Task):
    """Fly through six round gates on a loop, in order, as fast as possible.

    Gates differ in place and height from seed to seed. Reward of a step: metres that the drone came nearer to the gate,
    5 for flying through it, −0.05 for the time. The episode ends after the last gate, which is a success, beside a gate
    or on the ground (−5), and is cut after 40 s. Difficulty: how uneven the course is.
    """

    name, horizon = "GateRace", 400
    easiest = 0.2
    actions = {"drone": DRONE}
    observations = {
        "gate": Numbers("forward", "left", "up", low=-5, high=5),  # 10 m is 1
        "through": Numbers("forward", "left"),  # the direction to fly through it
        "next_gate": Numbers("forward", "left", "up", low=-5, high=5),
        "velocity": Numbers("forward", "left", "up", "turn", low=-3, high=3),  # 5 m/s is 1; rad/s
    }
    opening_m = 1.2  # radius

    def scenario(self) -> dict[str, Any]:
        start = {"x": [30, 34], "y": [11, 14], "z": [3, 5], "yaw": [1.1, 2.0]}
        return {
            **QUIET,
            "name": "gate_race",
            "map": {"size_xy_cells": [SIDE_M, SIDE_M]},
            "robots": {"drone": {**NO_SENSORS, "start": {"map_pose": {"x": 32, "y": 12, "z": 4, "yaw": 1.57}}}},
            "randomize": {"starts": {"drone": start}},
        }

    def prepare(self) -> None:
        self.gates: Array = self.xp.zeros((3, GATES, self.n))
        self.headings: Array = self.xp.array([[-sine for sine, _ in TURNS], [cosine for _, cosine in TURNS]])
        self.passed: Integers = self.xp.zeros(self.n, np.int64)
        self.before: Array = self.xp.zeros((3, self.n))  # where the drone was
        self._worlds: Integers = self.xp.arange(self.n)

    def begin(self, worlds: Integers) -> None:
        for gate, (sine, cosine) in enumerate(TURNS):
            radius = 12.0 + self.difficulty * self.draw(f"task/gate {gate} radius", -3.0, 3.0, worlds)
            self.gates[X, gate, worlds] = 20.0 + cosine * radius
            self.gates[Y, gate, worlds] = 20.0 + sine * radius
            self.gates[Z, gate, worlds] = 4.0 + self.difficulty * self.draw(f"task/gate {gate} z", -1.5, 1.5, worlds)
        self.passed[worlds] = 0
        self.before[:, worlds] = self.batch.rows("drone")[:3, worlds]

    def _gate(self, later: int = 0) -> tuple[Array, Array]:
        """Place and heading of each world's gate."""
        number = (self.passed + later) % GATES
        return self.gates[:, number, self._worlds], self.headings[:, number]

    def fill(self, seen: dict[str, Float32s]) -> None:
        rows, sine, cosine = self.look("drone")
        gate, (x, y) = self._gate()
        self.see_offset(seen["gate"], rows, gate, 0.1)
        through = seen["through"]
        through[0], through[1] = cosine * x + sine * y, cosine * y - sine * x
        self.see_offset(seen["next_gate"], rows, self._gate(1)[0], 0.1)
        self.see_velocity(seen["velocity"], rows, 0.2)

    def judge(self) -> Outcome:
        rows = self.batch.rows("drone")
        gate, (x, y) = self._gate()
        behind, ahead = ((at[X] - gate[X]) * x + (at[Y] - gate[Y]) * y for at in (self.before, rows))
        crosses: Mask = (behind < 0.0) & (ahead >= 0.0)
        share = np.where(crosses, behind / np.where(crosses, behind - ahead, 1.0), 1.0)
        crossing = self.before + share * (rows[:3] - self.before)
        inside: Mask = crosses & (distance(crossing, gate) < self.opening_m)
        rewards: Array = distance(self.before, gate) - distance(rows, gate) - 0.05 + 5.0 * inside
        failed: Mask = (crosses & ~inside) | has_landed(rows)
        rewards[failed] = -5.0
        self.passed += inside
        self.before[:] = rows[:3]
        done: Mask = ~failed & (self.passed >= GATES)
        return Outcome(rewards, failed | done, done, failed)

    def landmarks(self, world: int) -> Sequence[tuple[float, float, float]]:
        return [(float(x), float(y), self.opening_m) for x, y in zip(*self.gates[:2, :, world], strict=True)]


TASK = GateRace
