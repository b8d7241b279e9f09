"""Tasks as Gymnasium environments: one world, or n at once without a process or a copy for each.

Both run the same task on the same `BatchSimulation`: environment i of a vector that was reset with seed s behaves
exactly like a single one that was reset with s + i.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from microsim.engine.noise import stream_keys
from microsim.errors import MissingExtraError, UsageError, unknown
from microsim.parts.learning.rendering import RENDER_MODES, RenderWindow
from microsim.parts.learning.task import Array, Integers, Mask, Outcome, Task, find_task
from microsim.scenario.scene import checked_seed

_METADATA: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 10}
_VECTOR_METADATA = {**_METADATA, "autoreset_mode": AutoresetMode.NEXT_STEP}
NEXT_EPISODE = "next episode"  # name of the stream that derives the seed of an episode from that of the one before


class NotResetError(UsageError, gymnasium.error.ResetNeeded):
    """A step before the first reset."""


class ClosedError(UsageError, gymnasium.error.ClosedEnvironmentError):
    """A call after `close`."""


def check_open(is_closed: bool, is_begun: bool = True) -> None:
    if is_closed:
        raise ClosedError("the environment is closed; make a new one")
    if not is_begun:
        raise NotResetError("call reset() before the first step()")


def _checked_mode(mode: str | AutoresetMode) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = [each.value for each in AutoresetMode]
        raise UsageError(unknown("no autoreset_mode", repr(mode), str(mode), known)) from None


def spaces_of(task: Task, is_named: bool = False) -> tuple[Any, Any]:
    """(observations, actions) of one world."""
    layout, agents = task.layout, len(task.agents) if task.alike else 1
    axis = (agents, -1) if task.alike else (-1,)
    actions = Box(-1.0, 1.0, np.zeros(task.action_size).reshape(axis).shape, np.float32)
    images: dict[str, Any] = {name: Box(0, 255, layout.image(name).shape[1:], np.uint8) for name in layout.images}
    low, high = layout.bounds
    if is_named or (images and layout.size):
        numbers = {name: Box(low[at.columns], high[at.columns]) for name, at in layout.places.items()}
        return gymnasium.spaces.Dict({**images, **numbers}), actions
    if images:
        return next(iter(images.values())) if len(images) == 1 else gymnasium.spaces.Dict(images), actions
    return Box(low.reshape(axis), high.reshape(axis)), actions


def seen_by(task: Task, space: Any, is_copied: bool) -> Any:
    """The observations of all worlds in the form of the space of one."""
    layout = task.layout
    out: Any = task.xp.empty((task.n, layout.size), np.float32) if is_copied else None
    numbers = task.observe(out)
    images = {name: layout.image(name) for name in layout.images}
    if is_copied:
        images = {name: image.copy() for name, image in images.items()}
    if isinstance(space, gymnasium.spaces.Dict):
        parts = {name: numbers[:, at.columns] for name, at in layout.places.items() if name in space.spaces}
        return {**images, **parts}
    return next(iter(images.values())) if images else numbers.reshape(task.n, *space.shape)


def each_of(value: Any, change: Callable[[Any], Any]) -> Any:
    """A change of an array, or of every array in a dict."""
    return {key: each_of(inner, change) for key, inner in value.items()} if isinstance(value, dict) else change(value)


def next_seeds(seeds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return stream_keys(seeds, NEXT_EPISODE)


def team_rewards(rewards: Array) -> Array:
    """(n,): of agents the mean, added in their order so that it is the same on every device."""
    if rewards.ndim == 1:
        return rewards
    total: Array = rewards[:, 0].copy()
    for agent in range(1, rewards.shape[1]):
        total += rewards[:, agent]
    total /= rewards.shape[1]
    return total


def verdict_of(task: Task, outcome: Outcome, among: Any = True) -> dict[str, Mask]:
    """How an episode stands, in these worlds: whether its aim is reached, whether a robot touched anything."""
    collision = among & (task.contacts > 0 if outcome.collision is None else outcome.collision)
    if outcome.success is None:
        return {"collision": collision}
    success = among & outcome.success
    return {"success": success, "is_success": success, "collision": collision}


def counts_of(task: Task) -> dict[str, int]:
    """Of one world: contacts, and actions that were ignored, in this episode."""
    return {"contacts": int(task.contacts[0]), "ignored_actions": int(task.ignored[0])}


def info_of(task: Task, outcome: Outcome) -> dict[str, Any]:
    """The info of one world: counts, what robots touch now, and how the episode stands."""
    return {
        **counts_of(task),
        "touching": {robot: task.batch.touching(robot, 0) for robot in task.batch.robots},
        **{key: bool(value[0]) for key, value in verdict_of(task, outcome).items()},
    }


def _import_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("an environment on a GPU gives torch tensors: pip install torch") from None
    return torch


def _names_of(task: Task) -> dict[str, Any]:
    return {"observation_names": task.layout.names, "action_names": task.action_names}


class TaskEnv(gymnasium.Env[Any, npt.NDArray[np.float32]]):
    """One world. `named=True` gives observations as a dict, by the names of their parts."""

    metadata = _METADATA

    def __init__(
        self, task: type[Task] | str | Path, render_mode: str | None = None, named: bool = False, **options: Any
    ) -> None:
        self.task = find_task(task)(1, **options)
        self.metadata = {**_METADATA, **_names_of(self.task)}
        self.observation_space, self.action_space = spaces_of(self.task, named)
        self.render_mode = render_mode
        self._window = RenderWindow(self.task, render_mode)
        self._has_seed = self._is_closed = False
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        check_open(self._is_closed)
        given = None if seed is None else checked_seed(seed)
        super().reset(seed=given)
        if given is not None:
            seeds = np.array([given], np.int64)
        elif self._has_seed:
            seeds = next_seeds(self.task.batch.seeds)
        else:
            seeds = self.np_random.integers(0, 2**63 - 1, 1, np.int64)
        self._has_seed, self._steps = True, 0
        self.task.reset(seeds=seeds)
        self._window.after_step()
        return self._seen(), counts_of(self.task)

    def step(self, action: npt.NDArray[np.float32]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        check_open(self._is_closed, self._has_seed)
        self.task.act(np.asarray(action)[None])
        outcome = self.task.judge()
        self._steps += 1
        self._window.after_step()
        info, ended = info_of(self.task, outcome), bool(outcome.ended[0])
        if outcome.rewards.ndim > 1:
            info["agent_rewards"] = outcome.rewards[0]
        return self._seen(), float(team_rewards(outcome.rewards)[0]), ended, not ended and self._is_late, info

    @property
    def _is_late(self) -> bool:
        """Whether to cut the episode here; an environment of `gymnasium.make` is cut by its wrapper."""
        return self._steps >= self.task.horizon and (self.spec is None or self.spec.max_episode_steps is None)

    def _seen(self) -> Any:
        return each_of(seen_by(self.task, self.observation_space, is_copied=True), lambda array: array[0])

    def render(self) -> Any:
        check_open(self._is_closed, self._has_seed)
        images = self._window.render([0])
        return None if images is None else images[0]

    def close(self) -> None:
        self._is_closed = True
        self._window.close()


class TaskVectorEnv(VectorEnv[Any, Any, Any]):
    """n worlds at once. An episode that has ended is reset in the next step (AutoresetMode.NEXT_STEP).

    With `autoreset_mode="SameStep"` it is reset in the same step, and `info` has `final_obs` and `final_info`. With
    "Disabled" (or `autoreset=False`) it is not: its world continues until `reset`, and its values have no meaning. With
    `copy=False` observations are one array, which each step overwrites. With `device="cuda"` worlds live on a GPU, and
    actions, observations and all else are torch tensors there, shared without a copy.
    """

    metadata = _VECTOR_METADATA

    def __init__(
        self,
        task: type[Task] | str | Path,
        num_envs: int = 1,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        threads: int = 1,
        copy: bool = True,
        autoreset: bool = True,
        device: str = "cpu",
        named: bool = False,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        **options: Any,
    ) -> None:
        self._torch: Any = _import_torch() if device != "cpu" else None
        self.autoreset_mode = _checked_mode(autoreset_mode) if autoreset else AutoresetMode.DISABLED
        if max_episode_steps is not None and max_episode_steps < 1:
            raise UsageError(f"max_episode_steps must be at least 1, found {max_episode_steps}")
        self.task = find_task(task)(num_envs, threads, device, **options)
        self.metadata = {**_METADATA, "autoreset_mode": self.autoreset_mode, **_names_of(self.task)}
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space, self.single_action_space = spaces_of(self.task, named)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.horizon = self.task.horizon if max_episode_steps is None else max_episode_steps
        self._copies = copy
        self._window = RenderWindow(self.task, render_mode)
        self._steps: Integers = self.task.xp.zeros(num_envs, np.int64)
        self._over: Mask = self.task.xp.zeros(num_envs, np.bool_)
        self._has_seed = False

    @property
    def difficulty(self) -> float:
        """Of episodes that begin from now on, from 0 to 1."""
        return self.task.difficulty

    @difficulty.setter
    def difficulty(self, difficulty: float) -> None:
        self.task.difficulty = difficulty

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """`options={"reset_mask": (num_envs,) of bool}` begins an episode in these worlds only, as in Gymnasium."""
        check_open(self.closed)
        given = self._checked_seeds(seed)
        worlds = self._masked((options or {}).get("reset_mask"))
        super().reset(seed=given if isinstance(given, int) else None)
        self.task.reset(worlds, self._seeds_for(worlds, given))
        self._has_seed = True
        self._steps[worlds] = 0
        self._over[worlds] = False
        self._window.after_step()
        return self._given(self._seen()), self._given(self._counts())

    def _counts(self) -> dict[str, Any]:
        """Of each world in this episode, in Gymnasium's form: values, and which worlds have one."""
        everywhere = self.task.xp.ones(self.num_envs, np.bool_)
        info: dict[str, Any] = {"contacts": self.task.contacts, "ignored_actions": self.task.ignored}
        return {**info, **{f"_{key}": everywhere for key in info}}

    def _masked(self, mask: Any) -> Integers:
        """Numbers of the worlds in a mask, on the batch's device."""
        if mask is None:
            everyone: Integers = self.task.xp.arange(self.num_envs)
            return everyone
        values = mask if hasattr(mask, "dtype") else np.zeros(0)  # no list: Gymnasium takes arrays alone
        found = self.task.xp.asarray(values if self._torch is None else self._taken(values))
        if found.dtype != np.bool_ or found.shape != (self.num_envs,) or not found.any():
            raise UsageError(
                f"reset_mask: expected an array of {self.num_envs} bool, at least one of them true, found {mask!r}"
            )
        worlds: Integers = found.nonzero()[0]
        return worlds

    def _checked_seeds(self, seed: Any) -> int | list[int | None] | None:
        """A seed, or one for each world, before anything is reset."""
        each_has_one = isinstance(seed, (list, tuple)) or (isinstance(seed, np.ndarray) and seed.ndim > 0)
        if seed is None or not each_has_one:
            return None if seed is None else checked_seed(seed)
        if len(seed) != self.num_envs:
            raise UsageError(f"expected a seed for each of {self.num_envs} worlds, found {len(seed)}")
        return [None if each is None else checked_seed(each) for each in seed]

    def _seeds_for(self, worlds: Integers, seed: int | list[int | None] | None) -> Integers:
        """The seeds that a reset gives these worlds; without one, the next of each world, on the batch's device."""
        batch = self.task.batch
        if isinstance(seed, int):
            seeds: Integers = batch.loops.array(seed + np.arange(self.num_envs, dtype=np.int64))
        elif self._has_seed:
            seeds = batch.stream_keys(NEXT_EPISODE)
        else:
            seeds = batch.loops.array(self.np_random.integers(0, 2**63 - 1, self.num_envs, np.int64))
        if isinstance(seed, list):
            named = batch.loops.host(seeds)
            for world, each in enumerate(seed):
                named[world] = named[world] if each is None else each
            seeds = batch.loops.array(named)
        return seeds[worlds]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        check_open(self.closed, self._has_seed)
        task, mode = self.task, self.autoreset_mode
        task.act(actions if self._torch is None else self._taken(actions))
        outcome = task.judge()
        rewards, ended, restarted = team_rewards(outcome.rewards), outcome.ended, None
        self._steps += 1
        worlds = self._over.nonzero()[0]
        if worlds.size and mode == AutoresetMode.NEXT_STEP:
            restarted = self._over
            self._restart(worlds)
            rewards[restarted], ended[restarted] = 0.0, False
        cut = ~ended & (self._steps >= self.horizon)
        self._over = over = ended | cut
        info = self._counts() | self._agent_rewards(outcome, restarted)
        worlds = over.nonzero()[0]
        if worlds.size:
            there = over.copy()  # the mask of all that is known of ends
            final = verdict_of(task, outcome, there)
            info |= {**final, **{f"_{key}": there for key in final}}
        seen = self._seen()
        if worlds.size and mode == AutoresetMode.SAME_STEP:
            last = seen if self._copies else each_of(seen, lambda array: array.copy())
            final = {key: there if key.startswith("_") else value for key, value in info.items()}
            ends = {"final_obs": last, "_final_obs": there, "final_info": final, "_final_info": there}
            self._restart(worlds)
            info, seen = self._counts() | self._agent_rewards(outcome, over) | ends, self._seen()
        self._window.after_step()
        return tuple(map(self._given, (seen, rewards, ended, cut, info)))

    def _agent_rewards(self, outcome: Outcome, restarted: Mask | None) -> dict[str, Any]:
        """Of each agent, in worlds that were not restarted."""
        if outcome.rewards.ndim == 1:
            return {}
        there = self.task.xp.ones(self.num_envs, np.bool_) if restarted is None else ~restarted
        return {"agent_rewards": outcome.rewards, "_agent_rewards": there}

    def _restart(self, worlds: Integers) -> None:
        """Begin the next episode in these worlds."""
        batch = self.task.batch
        self.task.reset(worlds, batch.loops.stream_keys(batch.seeds[worlds], NEXT_EPISODE))
        self._steps[worlds] = 0

    def _seen(self) -> Any:
        return seen_by(self.task, self.single_observation_space, self._copies)

    def _taken(self, actions: Any) -> Any:
        """A policy's actions as an array on the batch's device."""
        there = self._torch.as_tensor(actions).detach()
        return there if self.task.batch.device == "cuda" and there.is_cuda else there.cpu().numpy()

    def _given(self, value: Any) -> Any:
        """What a step returns: an array, or a tensor of the same memory."""
        return value if self._torch is None else each_of(value, self._torch.as_tensor)

    def render(self) -> Any:
        check_open(self.closed, self._has_seed)
        images = self._window.render(range(self.num_envs))
        return None if images is None else tuple(images)

    def close_extras(self, **kwargs: Any) -> None:
        self._window.close()
