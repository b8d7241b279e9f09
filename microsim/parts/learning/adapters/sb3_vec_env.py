"""For Stable-Baselines3: a `VecEnv` over the worlds of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import VecEnv

from microsim.parts.learning.environments import TaskVectorEnv
from microsim.parts.learning.task import Task


class Sb3VecEnv(VecEnv):  # type: ignore[misc]
    """`PPO("MlpPolicy", Sb3VecEnv("RoverAvoid", 1024, threads=2))`; options as of `gymnasium.make_vec`."""

    def __init__(self, task: str | Path | type[Task], num_envs: int, **options: Any) -> None:
        self.env = TaskVectorEnv(task, num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **options)
        super().__init__(num_envs, self.env.single_observation_space, self.env.single_action_space)
        self._actions: Any = None
        self._infos: list[dict[str, Any]] = [{} for _ in range(num_envs)]
        self._ended: Sequence[int] = ()  # worlds that have something in `_infos`

    def reset(self) -> Any:
        seen, _ = self.env.reset(seed=None if self._seeds[0] is None else self._seeds)
        self._reset_seeds()
        self._reset_options()
        return seen

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        seen, rewards, ended, cut, info = self.env.step(self._actions)
        for world in self._ended:
            self._infos[world] = {}
        over = ended | cut
        worlds = over.nonzero()[0]
        self._ended = worlds.tolist()
        if self._ended:
            self._note_ends(info["final_obs"], info["final_info"], worlds, cut)
        return seen, rewards.astype(np.float32), over, list(self._infos)

    def _note_ends(self, last: Any, info: dict[str, Any], worlds: Any, cut: Any) -> None:
        known = [key for key, value in info.items() if f"_{key}" in info and value.ndim == 1]
        keys = [*known, "TimeLimit.truncated"]
        columns = [each[worlds].tolist() for each in (*(info[key] for key in known), cut)]
        for world, *values in zip(self._ended, *columns, strict=True):
            picked = {key: part[world] for key, part in last.items()} if isinstance(last, dict) else last[world]
            self._infos[world] = {**dict(zip(keys, values, strict=True)), "terminal_observation": picked}

    def close(self) -> None:
        self.env.close()

    def get_images(self) -> Sequence[Any]:
        return self.env.render() or ()

    # ---- VecEnv addresses single environments; all worlds are one here ------------------------------------------

    def has_attr(self, attr_name: str) -> bool:
        return hasattr(self.env, attr_name)

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.env, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return [getattr(self.env, method_name)(*args, **kwargs)] * len(list(self._get_indices(indices)))

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))
