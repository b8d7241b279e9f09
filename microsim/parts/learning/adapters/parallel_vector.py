"""PettingZoo's parallel API over many worlds: what each agent sees, gets and does are arrays with a row for each world.

PettingZoo itself has no vectors; AgileRL and others expect them in this form.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from microsim.errors import UsageError
from microsim.parts.learning.environments import TaskVectorEnv
from microsim.parts.learning.parallel import agent_columns, agent_spaces
from microsim.parts.learning.task import Task


class ParallelVectorEnv:
    """World i equals `TaskParallelEnv` with its seed. An episode that ends begins again in the same step."""

    def __init__(self, task: str | Path | type[Task], num_envs: int, **options: Any) -> None:
        self.env = TaskVectorEnv(task, num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **options)
        self.observation_spaces, self.action_spaces = agent_spaces(self.env.task)
        self.possible_agents = list(self.env.task.agents)
        self.agents, self.num_envs, self.metadata = list(self.possible_agents), num_envs, self.env.metadata
        self.num_agents, self._columns = len(self.agents), agent_columns(self.env.task)
        self._actions: Any = self.env.task.xp.zeros((num_envs, self.env.task.action_size), np.float32)

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], Any]:
        seen, info = self.env.reset(seed=seed, options=options)
        return self._views(seen), dict.fromkeys(self.agents, info)

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Observations, rewards, terminations, truncations and infos by agent."""
        for agent, (_, mine) in self._columns.items():
            if agent not in actions:
                raise UsageError(f"no actions of the agent {agent!r}; expected those of {', '.join(self.agents)}")
            self._actions[:, mine] = self.env.task.xp.asarray(actions[agent])
        seen, rewards, ended, cut, info = self.env.step(self._actions)
        each = info.get("final_info", info).get("agent_rewards")
        gained = dict.fromkeys(self.agents, rewards)
        if each is not None:
            gained = {agent: each[:, place] for place, agent in enumerate(self.agents)}
        infos = dict.fromkeys(self.agents, info)
        return self._views(seen), gained, dict.fromkeys(self.agents, ended), dict.fromkeys(self.agents, cut), infos

    def _views(self, seen: Any) -> dict[str, Any]:
        """Each agent's columns, without a copy."""
        rows = seen.reshape(self.num_envs, -1)
        return {agent: rows[:, mine] for agent, (mine, _) in self._columns.items()}

    def close(self) -> None:
        self.env.close()
