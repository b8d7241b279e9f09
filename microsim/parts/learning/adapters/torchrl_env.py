"""For TorchRL: an `EnvBase` with the worlds of one batch as its batch dimension, on the CPU or a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import AutoresetMode
from tensordict import TensorDict
from torchrl.data import Binary, Bounded, Composite, Unbounded
from torchrl.envs import EnvBase

from microsim.parts.learning.environments import TaskVectorEnv, each_of
from microsim.parts.learning.task import Task


def _spec_of(space: Any, count: int, device: str) -> Any:
    """Of a space for `count` worlds, also one with parts by name."""
    if hasattr(space, "spaces"):
        parts = {name: _spec_of(part, count, device) for name, part in space.spaces.items()}
        return Composite(parts, shape=(count,), device=device)
    low, high = (torch.as_tensor(edge, device=device) for edge in (space.low, space.high))
    return Bounded(low=low, high=high, shape=space.shape, dtype=low.dtype, device=device)


class TorchRlEnv(EnvBase):  # type: ignore[misc]
    """TorchRL resets the worlds whose episode has ended, by its key `_reset`."""

    def __init__(
        self, task: str | Path | type[Task], num_envs: int, device: str = "cpu", seed: int | None = None, **options: Any
    ) -> None:
        mode = AutoresetMode.DISABLED
        self.worlds = TaskVectorEnv(task, num_envs, device=device, autoreset_mode=mode, **options)
        super().__init__(device=torch.device(device), batch_size=[num_envs])
        observation = _spec_of(self.worlds.observation_space, num_envs, device)
        self.observation_spec = Composite(observation=observation, shape=(num_envs,), device=device)
        self.action_spec = _spec_of(self.worlds.action_space, num_envs, device)
        self.reward_spec = Unbounded(shape=(num_envs, 1), device=device)
        flag = Binary(1, shape=(num_envs, 1), dtype=torch.bool, device=device)
        flags = {key: flag.clone() for key in ("done", "terminated", "truncated")}
        self.done_spec = Composite(**flags, shape=(num_envs,), device=device)
        self._next_seed = seed

    def _set_seed(self, seed: int | None) -> None:
        self._next_seed = seed

    def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        options = None if mask is None else {"reset_mask": mask.reshape(-1)}
        seen, _ = self.worlds.reset(seed=self._next_seed, options=options)
        self._next_seed = None
        return TensorDict({"observation": each_of(seen, torch.as_tensor)}, self.batch_size, self.device)

    def _step(self, tensordict: Any) -> Any:
        actions = tensordict["action"].detach()
        seen, rewards, ended, cut, _ = self.worlds.step(actions if actions.is_cuda else actions.numpy())
        seen, rewards, ended, cut = (each_of(value, torch.as_tensor) for value in (seen, rewards, ended, cut))
        flags = {"terminated": ended, "truncated": cut, "done": ended | cut}
        column = {key: value.unsqueeze(-1) for key, value in flags.items()}
        values = {"observation": seen, "reward": rewards.float().unsqueeze(-1), **column}
        return TensorDict(values, self.batch_size, self.device)

    def close(self, **kwargs: Any) -> None:
        self.worlds.close()
        super().close(**kwargs)
