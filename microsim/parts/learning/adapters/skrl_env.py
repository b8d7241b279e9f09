"""For skrl: a wrapper whose tensors are the memory of the batch, on the CPU or a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import AutoresetMode
from skrl.envs.wrappers.torch import Wrapper

from microsim.parts.learning.environments import TaskVectorEnv
from microsim.parts.learning.task import Task


class SkrlEnv(Wrapper):  # type: ignore[misc]
    """An episode that ends begins again in the same step."""

    def __init__(
        self, task: str | Path | type[Task], num_envs: int, device: str = "cpu", seed: int | None = None, **options: Any
    ) -> None:
        env = TaskVectorEnv(task, num_envs, device=device, autoreset_mode=AutoresetMode.SAME_STEP, **options)
        super().__init__(env)
        self._device, self._seed = torch.device(device), seed
        self._seen: Any = None  # after the first reset, worlds begin again by themselves

    @property
    def observation_space(self) -> Any:
        return self._env.single_observation_space

    @property
    def action_space(self) -> Any:
        return self._env.single_action_space

    def reset(self) -> tuple[Any, dict[str, Any]]:
        if self._seen is None:
            seen, _ = self._env.reset(seed=self._seed)
            self._seen = self._rows(seen)
        return self._seen, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        actions = actions.detach()
        seen, rewards, ended, cut, info = self._env.step(actions if actions.is_cuda else actions.numpy())
        self._seen = self._rows(seen)
        columns = (torch.as_tensor(each).unsqueeze(-1) for each in (rewards, ended, cut))
        rewards, ended, cut = columns
        return self._seen, rewards.float(), ended, cut, info

    def _rows(self, seen: Any) -> Any:
        return torch.as_tensor(seen).reshape(self.num_envs, -1)

    def state(self) -> None:
        """There is no state beside the observation."""

    def render(self, *args: Any, **kwargs: Any) -> Any:
        return self._env.render()

    def close(self) -> None:
        self._env.close()
