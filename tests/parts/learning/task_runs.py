"""Tasks that are driven by random actions, for tests that compare one form of an environment with another."""

import hashlib
from typing import Any

import numpy as np

from microsim.parts.learning import TASKS

NAMES = sorted(TASKS.built_in)
OPTIONS: dict[str, dict[str, Any]] = {"Swarm": {"agents": 3}, "LaneKeeping": {"render": "plain"}}  # quicker


def random_actions(dice: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Mostly ahead, so that robots meet something; now and then beyond the limits, or NaN."""
    actions = dice.uniform(-1.3, 1.3, shape).astype(np.float32)
    actions[..., 0] = np.abs(actions[..., 0])
    actions[dice.random(shape) < 0.01] = np.nan
    return actions


def digest_of(name: str, device: str, n: int, steps: int, seed: int = 5) -> str:
    """Of all that a learner gets from a task: observations, rewards, ends, success and collisions."""
    task: Any = TASKS.built_in[name](n, device=device, **OPTIONS.get(name, {}))
    assert task.batch.device == device
    host, hashed, dice = task.batch.loops.host, hashlib.sha256(), np.random.default_rng(seed)
    task.reset(seeds=np.arange(n) + seed)
    for step in range(steps):
        task.act(task.batch.loops.array(random_actions(dice, (n, task.action_size))))
        outcome = task.judge()
        kept = [task.observe(), task.contacts, task.ignored, *outcome]
        kept += [task.layout.image(image) for image in task.layout.images]
        kept += [task.batch.rows(robot) for robot in task.batch.robots]
        for array in kept:
            if array is not None:
                hashed.update(np.ascontiguousarray(host(array)).tobytes())
        if step % 4 == 3:
            chosen = task.xp.arange(0, n, 2)
            task.reset(chosen, task.batch.stream_keys("next episode", chosen))
    return hashed.hexdigest()
