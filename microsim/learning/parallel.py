"""`TeamTask` for two learners in PettingZoo's parallel API: the agents `drone` and `rover` share one reward."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from pettingzoo import ParallelEnv

from microsim.learning.environments import info_of, next_seeds
from microsim.learning.flying import TeamTask
from microsim.learning.rendering import RENDER_MODES, RenderWindow

_METADATA = {"name": "microsim_team_task_v0", "render_modes": list(RENDER_MODES), "is_parallelizable": True}
AGENTS = ("drone", "rover")


class TeamParallelEnv(ParallelEnv):  # type: ignore[misc]
    metadata = _METADATA

    def __init__(self, render_mode: str | None = None, max_cycles: int = TeamTask.horizon) -> None:
        self.task = TeamTask(1)
        self.render_mode, self.max_cycles = render_mode, max_cycles
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.observation_spaces = {agent: self._seen_space(agent) for agent in AGENTS}
        self.action_spaces = {
            agent: gymnasium.spaces.Box(-1.0, 1.0, (len(TeamTask.limits[agent]),), np.float32) for agent in AGENTS
        }
        self._window = RenderWindow(self.task, render_mode)
        self._has_seed = False

    @staticmethod
    def _seen_space(agent: str) -> gymnasium.spaces.Box:
        part = TeamTask.parts[agent]
        low, high = np.array(TeamTask.low[part], np.float32), np.array(TeamTask.high[part], np.float32)
        return gymnasium.spaces.Box(low, high, dtype=np.float32)

    def observation_space(self, agent: str) -> gymnasium.spaces.Box:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.spaces.Box:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, npt.NDArray[np.float32]], dict[str, dict[str, Any]]]:
        fresh = np.random.default_rng().integers(0, 2**63 - 1, 1, np.int64)
        seeds = next_seeds(self.task.batch.seeds) if self._has_seed else fresh
        if seed is not None:
            seeds = np.array([seed], np.int64)
        self._has_seed = True
        self.agents = list(AGENTS)
        self._cycles = 0
        self.task.reset(seeds=seeds)
        self._window.after_step()
        return self._seen(), {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, npt.NDArray[np.float32]]) -> tuple[Any, ...]:
        both = np.concatenate([np.asarray(actions[agent], np.float64) for agent in AGENTS])
        self.task.act(both[None])
        rewards, ended = self.task.judge()
        self._cycles += 1
        cut = self._cycles >= self.max_cycles
        self._window.after_step()
        if ended[0] or cut:
            self.agents = []
        return (
            self._seen(),
            dict.fromkeys(AGENTS, float(rewards[0])),
            dict.fromkeys(AGENTS, bool(ended[0])),
            dict.fromkeys(AGENTS, cut and not bool(ended[0])),
            {agent: info_of(self.task) for agent in AGENTS},
        )

    def _seen(self) -> dict[str, npt.NDArray[np.float32]]:
        seen = self.task.observe()[0]
        return {agent: seen[TeamTask.parts[agent]].copy() for agent in AGENTS}

    def render(self) -> Any:
        images = self._window.render([0])
        return None if images is None else images[0]

    def close(self) -> None:
        self._window.close()
