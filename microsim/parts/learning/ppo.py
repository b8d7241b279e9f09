"""PPO in one file (Schulman et al. 2017), over the worlds of one batch; needs torch (the extra `train`).

Observations are written into the memory of the rollout, on the CPU or on a GPU; they, actions and rewards stay on the
device. The network follows from the observations: images pass through convolutions, which actor and critic
share. An episode that ends begins again in the same step. One that is cut is worth what the critic expects of
its last observation.

    policy = Trainer("RoverAvoid", seed=0, threads=2).run(print)
    policy.save(Path("policy.npz"))
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.errors import MissingExtraError, UsageError, install_hint, unknown
from microsim.parts.learning.environments import NEXT_EPISODE, verdict_of
from microsim.parts.learning.evaluation import evaluate
from microsim.parts.learning.learning_curve import Progress
from microsim.parts.learning.policy import STRIDE, Layers, Policy, convolved, image_shape, input_names, input_of
from microsim.parts.learning.task import Task, find_task
from microsim.version import __version__

try:
    import torch
    from torch import nn
except ImportError:
    raise MissingExtraError(f"training needs torch: {install_hint('train')}") from None

CHECKED = 2 * 10**9  # seeds from here on: worlds in which the policy is checked while it is trained


@dataclass(frozen=True)
class PpoSettings:
    """A task's `training` changes them; `microsim policy train --set worlds=1024` does too."""

    worlds: int = 512
    rollout: int = 16  # steps in each world between two updates
    steps: int = 3_000_000  # of all worlds together; the learning rate falls to 0 until then
    epochs: int = 4  # how often an update goes through the rollout
    minibatch: int = 4096
    learning_rate: float = 3e-3
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.5
    entropy_weight: float = 0.0
    largest_gradient: float = 0.5
    log_std: float = -0.5  # of actions, at the start
    hidden: int = 64  # width of both hidden layers
    filters: int = 8  # of the first convolution over images; each further one has twice as many
    target: float = 0.98  # stop when this share of `check_worlds` succeeds; 0: train for all `steps`
    check_worlds: int = 500
    check_every: int = 5  # updates
    harder_at: float = 0.8  # share of successes at which the difficulty is raised by a tenth

    def changed(self, changes: Mapping[str, Any]) -> PpoSettings:
        names = [each.name for each in fields(self)]
        for name, value in changes.items():
            if name not in names:
                raise UsageError(unknown("training has no setting", repr(name), name, names))
            is_count = isinstance(getattr(self, name), int)
            if not math.isfinite(value) or (is_count and value < 1):
                expected = "a number of at least 1" if is_count else "a finite number"
                raise UsageError(f"the setting {name} of the training: expected {expected}, found {value:g}")
        return replace(self, **{name: type(getattr(self, name))(value) for name, value in changes.items()})


class Worlds:
    """The worlds of a task as tensors, each with the row of its agents; what ends begins again."""

    def __init__(self, task: type[Task], count: int, threads: int, device: str, seed: int, options: Any) -> None:
        self.task = task(count, threads, device, **options)
        self.task.difficulty = task.easiest
        self.device = torch.device("cuda" if self.task.batch.device == "cuda" else "cpu")
        self.agents = len(self.task.agents) if self.task.alike else 1
        self.rows = count * self.agents
        self.task.reset(seeds=np.arange(count, dtype=np.int64) + seed * 1_000_003)
        dice = np.random.default_rng(seed)  # episodes end at different times from the start
        self._steps = self.task.batch.loops.array(dice.integers(0, task.horizon, count))
        self._total = torch.zeros(count, device=self.device)
        self.sums: list[Any] = [0.0, 0.0, 0.0, 0.0]  # of episodes that ended: reward, successes, collisions, how many

    def observe(self, out: Any) -> None:
        """Into out (rows, numbers)."""
        out.copy_(self._tensor(input_of(self.task)).reshape(out.shape))

    def _tensor(self, array: Any) -> Any:
        """Of the same memory."""
        return torch.as_tensor(array, device=self.device)

    def _each_agent(self, column: Any) -> Any:
        return column.repeat_interleave(self.agents) if self.agents > 1 else column

    def step(self, actions: Any, last_seen: Any) -> tuple[Any, Any, Any]:
        """(rewards, over, cut) of each row; `last_seen` gets the observations before the reset where one is cut."""
        task = self.task
        moves = actions.reshape(task.n, -1)
        task.act(moves.numpy() if self.device.type == "cpu" else task.xp.asarray(moves))
        outcome = task.judge()
        self._steps += 1
        cut = ~outcome.ended & (self._steps >= task.horizon)
        over = outcome.ended | cut
        rewards = self._tensor(outcome.rewards).float()
        self._total += rewards.mean(1) if rewards.ndim > 1 else rewards
        if cut.any():
            self.observe(last_seen)
        given = [self._tensor(each).clone() for each in (over, cut)]
        worlds = over.nonzero()[0]
        if worlds.size:
            self._note_ends(outcome, given[0])
            task.reset(worlds, task.batch.stream_keys(NEXT_EPISODE, worlds))
            self._steps[worlds] = 0
        rewards = rewards.reshape(-1) if rewards.ndim > 1 else self._each_agent(rewards)
        return rewards, self._each_agent(given[0]), self._each_agent(given[1])

    def _note_ends(self, outcome: Any, over: Any) -> None:
        verdict = verdict_of(self.task, outcome)
        never = self.task.xp.zeros(self.task.n, np.bool_)
        counted = [(over & self._tensor(verdict.get(key, never))).sum() for key in ("success", "collision")]
        parts = [self._total[over].sum(), *counted, over.sum()]
        self.sums = [total + part for total, part in zip(self.sums, parts, strict=True)]
        self._total[over] = 0.0

    def ended(self) -> tuple[float, float, float]:
        """Mean reward, share of successes and of collisions since the last call."""
        reward, success, collision, count = (float(each) for each in self.sums)
        self.sums = [0.0, 0.0, 0.0, 0.0]
        return (reward / count, success / count, collision / count) if count else (float("nan"), 0.0, 0.0)


class Rollout:
    """Memory of what was seen, done and gained in `steps` steps of each row."""

    def __init__(self, steps: int, rows: int, numbers: int, actions: int, device: Any) -> None:
        def zeros(*shape: int) -> Any:
            return torch.zeros(shape, device=device)

        self.seen, self.actions = zeros(steps + 1, rows, numbers), zeros(steps, rows, actions)
        self.chances, self.rewards, self.over = zeros(steps, rows), zeros(steps, rows), zeros(steps, rows)
        self.values, self.gains = zeros(steps + 1, rows), zeros(steps, rows)
        self.last_seen = zeros(rows, numbers)

    def estimate_gains(self, gamma: float, gae_lambda: float) -> None:
        """Generalised advantage estimation (Schulman et al. 2016)."""
        gain = torch.zeros_like(self.values[0])
        for k in reversed(range(len(self.rewards))):
            lives = 1.0 - self.over[k]
            error = self.rewards[k] + gamma * lives * self.values[k + 1] - self.values[k]
            gain = error + gamma * gae_lambda * lives * gain
            self.gains[k] = gain

    def samples(self) -> tuple[Any, ...]:
        """(seen, actions, chances, gains, returns), a row each."""
        returns = (self.gains + self.values[:-1]).reshape(-1)
        gains = self.gains.reshape(-1)
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        seen = self.seen[:-1].reshape(-1, self.seen.shape[-1])
        return seen, self.actions.reshape(-1, self.actions.shape[-1]), self.chances.reshape(-1), gains, returns


_SIDE, _SMALL = 3, 8  # of filters [px]; images are halved until one edge is at most that


def _started(layer: Any, scale: float = 2.0**0.5) -> Any:
    nn.init.orthogonal_(layer.weight, scale)
    nn.init.zeros_(layer.bias)
    return layer


def _dense(inputs: int, hidden: int, outputs: int, scale: float) -> Any:
    first, second = _started(nn.Linear(inputs, hidden)), _started(nn.Linear(hidden, hidden))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), _started(nn.Linear(hidden, outputs), scale))


class Network(nn.Module):  # type: ignore[misc,unused-ignore]
    """Actor and critic for observations: `numbers`, then an image (height, width, channels), which may be empty."""

    def __init__(self, numbers: int, image: tuple[int, ...], actions: int, chosen: PpoSettings) -> None:
        super().__init__()
        self.numbers, self.image, parts, filters = numbers, image, [], chosen.filters
        while image and min(image[:2]) > _SMALL:
            parts += [_started(nn.Conv2d(image[2], filters, _SIDE, STRIDE)), nn.ReLU()]
            image, filters = convolved(image, _SIDE, filters), 2 * filters
        self.front = nn.Sequential(*parts)
        inputs = numbers + (math.prod(image) if image else 0)
        self.actor = _dense(inputs, chosen.hidden, actions, 0.01)
        self.critic = _dense(inputs, chosen.hidden, 1, 1.0)
        self.log_std = nn.Parameter(torch.full((actions,), chosen.log_std))

    def features(self, seen: Any) -> Any:
        """What both see: the numbers, then what the convolutions make of the image."""
        if not self.image:
            return seen
        rows = seen.reshape(-1, seen.shape[-1])
        maps = self.front(rows[:, self.numbers :].reshape(-1, *self.image).permute(0, 3, 1, 2))
        together = torch.cat([rows[:, : self.numbers], maps.permute(0, 2, 3, 1).flatten(1)], 1)
        return together.reshape(*seen.shape[:-1], -1)

    def layers(self) -> Layers:
        """Of the policy."""
        order = {nn.Conv2d: (2, 3, 1, 0), nn.Linear: (1, 0)}
        made = [part for part in (*self.front, *self.actor) if type(part) in order]
        return tuple((_numbers(part.weight.permute(order[type(part)])), _numbers(part.bias)) for part in made)


def _numbers(tensor: Any) -> npt.NDArray[np.float32]:
    return np.array(tensor.detach().cpu(), np.float32, order="C")


class Trainer:
    """Trains a policy. On a CPU, the same seed, settings, threads, machine and torch give the same weights."""

    def __init__(
        self,
        task: str | Path | type[Task],
        seed: int = 0,
        threads: int = 1,
        device: str = "cpu",
        settings: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.kind, self.name, self.seed = find_task(task), str(task), seed
        self.settings = chosen = PpoSettings().changed({**self.kind.training, **(settings or {})})
        self.options, self.threads, self.is_stopping = options, threads, False
        torch.set_num_threads(threads)
        self.worlds = Worlds(self.kind, chosen.worlds, threads, device, seed + 1, options)
        here = self.worlds.device
        self.dice = torch.Generator(here)
        self.dice.manual_seed(seed)
        inputs = input_of(self.worlds.task).shape[1] // self.worlds.agents
        actions = self.worlds.task.action_size // self.worlds.agents
        self.image = image_shape(self.worlds.task)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            numbers = inputs - (math.prod(self.image) if self.image else 0)
            self.network = Network(numbers, self.image, actions, chosen).to(here)
        parts = (self.network.front, self.network.actor, self.network.critic)
        self.weights = [*(each for part in parts for each in part.parameters()), self.network.log_std]
        self.optimizer = torch.optim.Adam(self.weights, lr=chosen.learning_rate, eps=1e-5, fused=True)
        self.rollout = Rollout(chosen.rollout, self.worlds.rows, inputs, actions, here)

    def run(self, report: Callable[[Progress], None] = lambda progress: None) -> Policy:
        """Until the target is reached, the steps are used up, or `stop` is called."""
        chosen, worlds = self.settings, self.worlds
        per_update = chosen.rollout * chosen.worlds
        updates = max(chosen.steps // per_update, 1)
        self.seconds, begun_s = 0.0, time.perf_counter()
        worlds.observe(self.rollout.seen[-1])
        for update in range(1, updates + 1):
            for group in self.optimizer.param_groups:
                group["lr"] = chosen.learning_rate * (1.0 - (update - 1) / updates)
            with torch.backends.cudnn.flags(enabled=True, deterministic=True):
                self._collect()
                self._improve()
            reward, success, collision = worlds.ended()
            difficulty = worlds.task.difficulty
            checked = self._check(success, update == updates) if update % chosen.check_every == 0 else None
            seconds = time.perf_counter() - begun_s
            report(Progress(update, update * per_update, seconds, reward, success, collision, difficulty, checked))
            if success >= chosen.harder_at:
                worlds.task.difficulty = min(1.0, round(difficulty + 0.1, 1))
            if self.is_stopping or (checked is not None and chosen.target and checked >= chosen.target):
                break
        self.seconds = time.perf_counter() - begun_s
        return self.policy(update * per_update)

    def stop(self) -> None:
        """After the update under way; the policy is what has been learned until then."""
        self.is_stopping = True

    def _check(self, success: float, is_last: bool) -> float | None:
        """The share of worlds in which the policy succeeds; only when that is likely to be what is wanted."""
        chosen = self.settings
        if self.worlds.task.difficulty < 1.0 or not (is_last or success >= 0.7 * chosen.target):
            return None
        policy = self.policy()
        found = evaluate(policy, chosen.check_worlds, CHECKED, self.threads, task=self.kind, **self.options)
        return float(found.success.mean())

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def _collect(self) -> None:
        chosen, worlds, rollout = self.settings, self.worlds, self.rollout
        network, seen = self.network, self.rollout.seen
        log_std, std = network.log_std, network.log_std.exp()
        seen[0].copy_(seen[-1])  # begins where the last one ended
        for k in range(chosen.rollout):
            middle = network.actor(network.features(seen[k]))
            noise = torch.empty_like(middle).normal_(generator=self.dice)
            torch.addcmul(middle, std, noise, out=rollout.actions[k])
            rollout.chances[k] = -(0.5 * noise.square() + log_std).sum(-1)
            rewards, over, cut = worlds.step(rollout.actions[k], rollout.last_seen)
            rollout.rewards[k], rollout.over[k] = rewards, over
            if bool(cut.any()):
                rollout.rewards[k] += chosen.gamma * cut * network.critic(network.features(rollout.last_seen))[:, 0]
            worlds.observe(seen[k + 1])
        rollout.values.copy_(network.critic(network.features(seen))[..., 0])
        rollout.estimate_gains(chosen.gamma, chosen.gae_lambda)

    def _improve(self) -> None:
        chosen = self.settings
        samples = self.rollout.samples()
        count = len(samples[0])
        for _ in range(chosen.epochs):
            order = torch.randperm(count, generator=self.dice, device=self.worlds.device)
            for start in range(0, count, chosen.minibatch):
                mine = order[start : start + chosen.minibatch]
                loss = self._loss(*(each[mine] for each in samples))
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.weights, chosen.largest_gradient)
                self.optimizer.step()

    def _loss(self, seen: Any, actions: Any, chances: Any, gains: Any, returns: Any) -> Any:
        chosen = self.settings
        network, found = self.network, self.network.features(seen)
        noise = (actions - network.actor(found)) * torch.exp(-network.log_std)
        ratio = torch.exp(-(0.5 * noise.square() + network.log_std).sum(-1) - chances)
        kept = ratio.clamp(1.0 - chosen.clip, 1.0 + chosen.clip)
        policy_loss = -torch.min(ratio * gains, kept * gains).mean()
        value_loss = (network.critic(found)[:, 0] - returns).square().mean()
        return policy_loss + chosen.value_weight * value_loss - chosen.entropy_weight * network.log_std.sum()

    def policy(self, steps: int = 0) -> Policy:
        """What was learned so far, without exploration."""
        task = self.worlds.task
        about = {
            "task": self.name, "options": self.options, "observations": input_names(task),
            "actions": list(task.action_names), "seed": self.seed, "steps": steps, "threads": self.threads,
            "device": self.worlds.device.type, "settings": asdict(self.settings), "microsim": __version__,
            "torch": str(torch.__version__), **({"image": list(self.image)} if self.image else {}),
        }  # fmt: skip
        return Policy(self.network.layers(), about)
