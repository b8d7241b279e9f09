"""Environment steps per second of CPU time: the batch alone, as a Gymnasium vector, as Stable-Baselines3's VecEnv."""

import json
import sys
from collections.abc import Callable

import numpy as np

from benchmarks.harness import cpu_seconds
from microsim.learning.adapters.sb3_vec_env import Sb3VecEnv
from microsim.learning.environments import TaskVectorEnv

N, STEPS, ROUNDS = int(sys.argv[1]), 60, 4


def best(step: Callable[[], object]) -> float:
    """Of some rounds, in which episodes end and begin."""
    return N * STEPS / cpu_seconds(lambda: [step() for _ in range(STEPS)], ROUNDS)


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


print(json.dumps({task: rates(task) for task in ("RoverAvoid", "Hover")}))
