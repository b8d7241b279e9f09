"""Tasks for several learners in PettingZoo's parallel API: each agent has its part of observations and actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from pettingzoo import ParallelEnv

from microsim.errors import UsageError
from microsim.parts.learning.environments import check_open, info_of, next_seeds
from microsim.parts.learning.rendering import RENDER_MODES, RenderWindow
from microsim.parts.learning.task import TASKS, Task, find_task
from microsim.scenario.scene import checked_seed


def agent_columns(task: Task) -> dict[str, tuple[slice, slice]]:
    """By agent: its columns of the observations, and of the actions."""
    found, names = {}, task.action_names
    for agent in task.agents:
        parts = [at.columns for name, at in task.layout.places.items() if name.startswith(f"{agent}/")]
        mine = [column for column, name in enumerate(names) if name.startswith(f"{agent}.")]
        found[agent] = (slice(parts[0].start, parts[-1].stop), slice(mine[0], mine[-1] + 1))
    return found


def agent_spaces(task: Task) -> tuple[dict[str, gymnasium.spaces.Box], dict[str, gymnasium.spaces.Box]]:
    """By agent: its observations, its actions. A task with one learner is refused."""
    if not task.agents:
        known = ", ".join(name for name, each in TASKS.built_in.items() if each.agents or each.alike)
        raise UsageError(f"{task.name} has one learner; tasks with agents: {known}")
    columns, (low, high) = agent_columns(task), task.layout.bounds
    return (
        {agent: gymnasium.spaces.Box(low[mine], high[mine]) for agent, (mine, _) in columns.items()},
        {
            agent: gymnasium.spaces.Box(-1.0, 1.0, (mine.stop - mine.start,), np.float32)
            for agent, (_, mine) in columns.items()
        },
    )


class TaskParallelEnv(ParallelEnv):  # type: ignore[misc]
    """One world of a task with agents."""

    def __init__(
        self,
        task: type[Task] | str | Path,
        render_mode: str | None = None,
        max_cycles: int | None = None,
        **options: Any,
    ) -> None:
        self.task = find_task(task)(1, **options)
        self.observation_spaces, self.action_spaces = agent_spaces(self.task)
        self.metadata = {
            "name": f"microsim_{self.task.batch.scenario.name}_v0",
            "render_modes": list(RENDER_MODES),
            "is_parallelizable": True,
        }
        self.render_mode = render_mode
        self.max_cycles = self.task.horizon if max_cycles is None else max_cycles
        self.possible_agents = list(self.task.agents)
        self.agents: list[str] = []
        self._columns = agent_columns(self.task)
        self._window = RenderWindow(self.task, render_mode)
        self._has_seed = self._is_closed = False

    def observation_space(self, agent: str) -> gymnasium.spaces.Box:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.spaces.Box:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, npt.NDArray[np.float32]], dict[str, dict[str, Any]]]:
        check_open(self._is_closed)
        fresh = np.random.default_rng().integers(0, 2**63 - 1, 1, np.int64)
        seeds = next_seeds(self.task.batch.seeds) if self._has_seed else fresh
        if seed is not None:
            seeds = np.array([checked_seed(seed)], np.int64)
        self._has_seed = True
        self.agents = list(self.possible_agents)
        self._cycles = 0
        self.task.reset(seeds=seeds)
        self._window.after_step()
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, npt.NDArray[np.float32]]) -> tuple[Any, ...]:
        check_open(self._is_closed, self._has_seed)
        if not self.agents:
            raise UsageError("the episode has ended; call reset()")
        together = np.concatenate([np.asarray(actions[agent], np.float64) for agent in self.possible_agents])
        self.task.act(together[None])
        outcome = self.task.judge()
        self._cycles += 1
        ended = bool(outcome.ended[0])
        cut = not ended and self._cycles >= self.max_cycles
        self._window.after_step()
        agents, rewards = self.agents, np.broadcast_to(outcome.rewards[0], len(self.agents))
        if ended or cut:
            self.agents = []
        return (
            self._seen(),
            {agent: float(reward) for agent, reward in zip(agents, rewards, strict=True)},
            dict.fromkeys(agents, ended),
            dict.fromkeys(agents, cut),
            {agent: info_of(self.task, outcome) for agent in agents},
        )

    def _seen(self) -> dict[str, npt.NDArray[np.float32]]:
        seen = self.task.observe()[0]
        return {agent: seen[mine].copy() for agent, (mine, _) in self._columns.items()}

    def render(self) -> Any:
        images = self._window.render([0])
        return None if images is None else images[0]

    def close(self) -> None:
        self._is_closed = True
        self._window.close()


class TeamParallelEnv(TaskParallelEnv):
    """`TeamTask`: the agents `drone` and `rover` share one reward."""

    def __init__(self, render_mode: str | None = None, max_cycles: int | None = None) -> None:
        super().__init__("TeamTask", render_mode, max_cycles)
