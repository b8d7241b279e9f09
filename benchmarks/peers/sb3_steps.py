"""Environment steps per second of CPU time: the batch alone, as a Gymnasium vector, as Stable-Baselines3's VecEnv."""

import json
import sys
import time
from collections.abc import Callable

import numpy as np

from microsim.learning.adapters.sb3_vec_env import Sb3VecEnv
from microsim.learning.environments import TaskVectorEnv

N, STEPS, ROUNDS = int(sys.argv[1]), 60, 4


def best(step: Callable[[], object]) -> float:
    """Of some rounds, in which episodes end and begin."""
    found = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(STEPS):
            step()
        found = min(found, time.process_time() - start)
    return N * STEPS / found


def rates(task: str) -> dict[str, float]:
    env = Sb3VecEnv(task, N)
    env.seed(0)
    env.reset()
    size = env.action_space.shape[0]
    actions = np.random.default_rng(0).uniform(-1, 1, (N, size)).astype(np.float32)
    vector = TaskVectorEnv(task, N, autoreset_mode="SameStep")
    vector.reset(seed=0)
    for _ in range(20):  # worlds no longer march in step
        env.step(actions)
        vector.step(actions)
    batch = vector.task.batch
    return {"sb3": best(lambda: env.step(actions)), "vector": best(lambda: vector.step(actions)),
            "batch": best(lambda: batch.step(6))}  # fmt: skip


print(json.dumps({**rates("RoverAvoid"), **{f"hover_{key}": value for key, value in rates("Hover").items()}}))
