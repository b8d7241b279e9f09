"""Tasks as Gymnasium environments: one world, or n at once without a process or a copy for each.

Both run the same task on the same `BatchSimulation`: environment i of a vector that was reset with seed s behaves
exactly like a single one that was reset with s + i.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from microsim.engine.noise import stream_keys
from microsim.errors import MissingExtraError, UsageError
from microsim.learning.rendering import RENDER_MODES, RenderWindow
from microsim.learning.tasks import Task

_METADATA: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 10}
_VECTOR_METADATA = {**_METADATA, "render_modes": ["rgb_array"], "autoreset_mode": AutoresetMode.NEXT_STEP}
NEXT_EPISODE = "next episode"  # name of the stream that derives the seed of an episode from that of the one before


def spaces_of(task: type[Task]) -> tuple[Any, Any]:
    """(observations, actions) of one world."""
    size = sum(len(scale) for scale in task.limits.values())
    seen = gymnasium.spaces.Box(np.array(task.low, np.float32), np.array(task.high, np.float32), dtype=np.float32)
    return seen, gymnasium.spaces.Box(-1.0, 1.0, (size,), np.float32)


def next_seeds(seeds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return stream_keys(seeds, NEXT_EPISODE)


def info_of(task: Task) -> dict[str, Any]:
    """The info of one world: contacts in this episode, what robots touch now; whether the task's goal was reached."""
    touching = {robot: task.batch.touching(robot, 0) for robot in task.batch.robots}
    info = {"contacts": int(task.contacts[0]), "touching": touching}
    return info if task.arrived is None else {**info, "is_success": bool(task.arrived[0])}


def _import_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("an environment on a GPU gives torch tensors: pip install torch") from None
    return torch


class TaskEnv(gymnasium.Env[npt.NDArray[np.float32], npt.NDArray[np.float32]]):
    metadata = _METADATA

    def __init__(self, task: type[Task], render_mode: str | None = None, **options: Any) -> None:
        self.task = task(1, **options)
        self.observation_space, self.action_space = spaces_of(task)
        self.render_mode = render_mode
        self._window = RenderWindow(self.task, render_mode)
        self._has_seed = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            seeds = np.array([seed], np.int64)
        elif self._has_seed:
            seeds = next_seeds(self.task.batch.seeds)
        else:
            seeds = self.np_random.integers(0, 2**63 - 1, 1, np.int64)
        self._has_seed = True
        self.task.reset(seeds=seeds)
        self._window.after_step()
        return self.task.observe()[0].copy(), {}

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.task.act(np.asarray(action, np.float64)[None])
        rewards, ended = self.task.judge()
        self._window.after_step()
        return self.task.observe()[0].copy(), float(rewards[0]), bool(ended[0]), False, info_of(self.task)

    def render(self) -> Any:
        images = self._window.render([0])
        return None if images is None else images[0]

    def close(self) -> None:
        self._window.close()


class TaskVectorEnv(VectorEnv[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[Any]]):
    """n worlds at once. An episode that has ended is reset in the next step (AutoresetMode.NEXT_STEP).

    With `autoreset=False` it is not: its world continues until `reset`, and its values have no meaning. With
    `copy=False` observations are one array, which each step overwrites. With `device="cuda"` worlds live on a GPU, and
    actions, observations and all else are torch tensors there, shared without a copy.
    """

    metadata = _VECTOR_METADATA

    def __init__(
        self,
        task: type[Task],
        num_envs: int = 1,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        threads: int = 1,
        copy: bool = True,
        autoreset: bool = True,
        device: str = "cpu",
        **options: Any,
    ) -> None:
        self._torch: Any = _import_torch() if device != "cpu" else None
        self.metadata = {**_VECTOR_METADATA}
        if not autoreset:
            self.metadata["autoreset_mode"] = AutoresetMode.DISABLED
        self._autoresets = autoreset
        self.task = task(num_envs, threads, device, **options)
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space, self.single_action_space = spaces_of(task)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.horizon = task.horizon if max_episode_steps is None else max_episode_steps
        self._copies = copy
        self._window = RenderWindow(self.task, render_mode)
        self._steps: npt.NDArray[np.int64] = self.task.xp.zeros(num_envs, np.int64)
        self._over: npt.NDArray[np.bool_] = self.task.xp.zeros(num_envs, np.bool_)
        self._has_seed = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """`options={"reset_mask": (num_envs,) of bool}` begins an episode in these worlds only, as in Gymnasium."""
        first = seed if isinstance(seed, int) else None
        chosen = self._masked((options or {}).get("reset_mask"))
        super().reset(seed=first)
        worlds = self.task.batch.loops.array(chosen)
        self.task.reset(worlds, self._first_seeds(seed)[chosen])
        self._has_seed = True
        self._steps[worlds] = 0
        self._over[worlds] = False
        return self._seen(), self._contacts()

    def _contacts(self) -> dict[str, Any]:
        """Of each world in this episode, in Gymnasium's form."""
        everywhere = self.task.xp.ones(self.num_envs, np.bool_)
        return {"contacts": self._given(self.task.contacts), "_contacts": self._given(everywhere)}

    def _masked(self, mask: Any) -> npt.NDArray[np.int64]:
        if mask is None:
            return np.arange(self.num_envs)
        if self._torch is not None and isinstance(mask, self._torch.Tensor):
            mask = mask.cpu().numpy()
        if getattr(mask, "dtype", None) != np.bool_ or mask.shape != (self.num_envs,) or not mask.any():
            raise UsageError(
                f"reset_mask: expected an array of {self.num_envs} bool, at least one of them true, found {mask!r}"
            )
        return np.flatnonzero(mask)

    def _first_seeds(self, seed: int | list[int | None] | None) -> npt.NDArray[np.int64]:
        if isinstance(seed, (int, np.integer)):
            counted: npt.NDArray[np.int64] = int(seed) + np.arange(self.num_envs, dtype=np.int64)
            return counted
        drawn = self.np_random.integers(0, 2**63 - 1, self.num_envs, np.int64)
        seeds = self.task.batch.loops.host(self.task.batch.stream_keys(NEXT_EPISODE)) if self._has_seed else drawn
        if seed is not None:
            if len(seed) != self.num_envs:
                raise UsageError(f"expected a seed for each of {self.num_envs} worlds, found {len(seed)}")
            for world, each in enumerate(seed):
                seeds[world] = seeds[world] if each is None else each
        return seeds

    def step(
        self, actions: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        task, over = self.task, self._over
        task.act(actions if self._torch is None else self._taken(actions))
        rewards, ended = task.judge()
        self._steps += 1
        restarted = (over & self._autoresets).nonzero()[0]
        if restarted.size:
            task.reset(restarted, task.batch.stream_keys(NEXT_EPISODE, restarted))
            rewards[restarted], ended[restarted], self._steps[restarted] = 0.0, False, 0
        cut = ~ended & (self._steps >= self.horizon)
        self._over = ended | cut
        info = self._contacts()
        if task.arrived is not None and self._over.any():  # Gymnasium's form: values, and which worlds have one
            info |= {"is_success": self._given(task.arrived & ended), "_is_success": self._given(self._over.copy())}
        return self._seen(), self._given(rewards), self._given(ended), self._given(cut), info

    def _seen(self) -> npt.NDArray[np.float32]:
        seen = self.task.observe()
        given: npt.NDArray[np.float32] = self._given(seen.copy() if self._copies else seen)
        return given

    def _taken(self, actions: Any) -> Any:
        """A policy's actions as an array on the batch's device."""
        there = self._torch.as_tensor(actions).detach()
        return there if self.task.batch.device == "cuda" and there.is_cuda else there.cpu().numpy()

    def _given(self, array: Any) -> Any:
        """What a step returns: an array, or a tensor of the same memory."""
        return array if self._torch is None else self._torch.as_tensor(array)

    def render(self) -> Any:
        images = self._window.render(range(self.num_envs))
        return None if images is None else tuple(images)

    def close_extras(self, **kwargs: Any) -> None:
        self._window.close()
