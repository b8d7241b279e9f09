"""How well a policy does: one episode in each of many worlds, which it has not seen before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.parts.learning.environments import team_rewards, verdict_of
from microsim.parts.learning.policy import Policy, input_of, load_policy
from microsim.parts.learning.task import Mask, Task, find_task
from microsim.scenario import Scenario

UNSEEN = 10**9  # seeds from here on are for evaluation; a trainer's begin elsewhere


@dataclass(frozen=True)
class Episodes:
    """One episode in each world, an entry for each."""

    seeds: npt.NDArray[np.int64]
    success: Mask
    collision: Mask
    rewards: npt.NDArray[np.float64]
    steps: npt.NDArray[np.int64]

    @property
    def failures(self) -> npt.NDArray[np.int64]:
        """Seeds of the worlds without success."""
        return self.seeds[~self.success]

    def figures(self) -> dict[str, float]:
        """Shares of the worlds with success and with a collision, and the mean reward."""
        found = {"success": self.success, "collision": self.collision, "reward": self.rewards}
        return {name: float(values.mean()) for name, values in found.items()}


def evaluate(
    policy: str | Path | Policy,
    worlds: int = 1000,
    first_seed: int = UNSEEN,
    threads: int = 1,
    task: str | Path | type[Task] | None = None,
    **options: Any,
) -> Episodes:
    """The policy in the worlds of seeds first_seed, first_seed + 1, …; without exploration, so the same every time."""
    policy = load_policy(policy)
    kind = find_task(task or policy.task)
    judged = kind(worlds, threads, **{**policy.about.get("options", {}), **options})
    policy.check(judged)
    seeds = first_seed + np.arange(worlds, dtype=np.int64)
    judged.reset(seeds=seeds)
    success, collision = np.zeros(worlds, np.bool_), np.zeros(worlds, np.bool_)
    rewards, steps = np.zeros(worlds), np.zeros(worlds, np.int64)
    lives = np.ones(worlds, np.bool_)
    for step in range(1, kind.horizon + 1):
        judged.act(policy.actions(input_of(judged)))
        outcome = judged.judge()
        rewards += np.where(lives, team_rewards(outcome.rewards), 0.0)
        over = lives & (outcome.ended | (step == kind.horizon))
        if over.any():
            verdict = verdict_of(judged, outcome)
            success |= over & verdict.get("success", ~outcome.ended)
            collision |= over & verdict["collision"]
            steps[over] = step
            lives &= ~over
            if not lives.any():
                break
    return Episodes(seeds, success, collision, rewards, steps)


@dataclass(frozen=True)
class RecordedEpisode:
    """What a policy did in one world, as a mission: the commands of every step."""

    scenario: Scenario
    duration: float  # [s]
    entries: list[dict[str, Any]]


def recorded(policy: str | Path | Policy, seed: int) -> RecordedEpisode:
    """The episode in the world of a seed, to the bit as in `evaluate`."""
    policy = load_policy(policy)
    kind = find_task(policy.task)
    world = kind(1, **policy.about.get("options", {}))
    policy.check(world)
    world.reset(seeds=np.array([seed], np.int64))
    step_s, entries = world.ticks * world.batch.clock.dt, []
    for step in range(kind.horizon):
        world.act(policy.actions(input_of(world)))
        for robot in world.actions:
            values = zip(world.batch.inputs(robot), world.batch.commands(robot)[:, 0].tolist(), strict=True)
            entries.append({"at": round(step * step_s, 6), "robot": robot, "command": dict(values)})
        if world.judge().ended[0]:
            break
    return RecordedEpisode(world.batch.scenario, round((step + 1) * step_s, 6), entries)
