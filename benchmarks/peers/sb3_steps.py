"""Environment steps per second of CPU time: the batch alone, as a Gymnasium vector, as Stable-Baselines3's VecEnv."""

import json
import sys
from collections.abc import Callable

import numpy as np

from benchmarks.harness import cpu_seconds
from microsim.parts.learning.adapters.sb3_vec_env import Sb3VecEnv
from microsim.parts.learning.environments import TaskVectorEnv

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

    def batch_alone() -> None:
        """From the start, so that robots move as they do in episodes."""
        vector.task.reset()
        vector.task.act(actions)
        for _ in range(STEPS - 1):
            vector.task.batch.step(vector.task.ticks)

    found = {"sb3": best(lambda: env.step(actions)), "vector": best(lambda: vector.step(actions))}
    return {**found, "batch": N * STEPS / cpu_seconds(batch_alone, ROUNDS)}


print(json.dumps({task: rates(task) for task in ("RoverAvoid", "Hover")}))
