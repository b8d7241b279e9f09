"""Train a rover to cross a field of obstacles: CMA-ES over a small network, a few minutes on two cores.

    pip install '.[rl,plot]' cma
    python train_rover_avoid.py                       (writes rover_avoid.npz and rover_avoid.png)
    python drive_rover_avoid.py rover_avoid.npz       (drives the same policy through ROS 2)

Each generation tries `--population` policies, each in the same `--worlds` worlds, all at once in one batch. Worlds
change from generation to generation; at the end the mean of the search is judged in worlds it has never seen.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import policy

ENVIRONMENT = "microsim.learning:MicroSim/RoverAvoid-v0"
UNSEEN = 10**9  # seeds from here on are for judging only


class Course:
    """Worlds in which policies are tried side by side, once each."""

    def __init__(self, policies: int, worlds: int, threads: int) -> None:
        self.policies, self.worlds = policies, worlds
        options = {"threads": threads, "copy": False, "autoreset": False}
        self.env: Any = gymnasium.make_vec(ENVIRONMENT, num_envs=policies * worlds, **options)

    def run(self, weights: Any, first_seed: int) -> tuple[Any, Any]:
        """(reward of an episode, whether it ended at the goal), each (policies, worlds)."""
        seeds = first_seed + np.arange(self.worlds)
        seen, _ = self.env.reset(seed=np.tile(seeds, self.policies).tolist())
        shape = (self.policies, self.worlds)
        total, arrived, alive = np.zeros(shape), np.zeros(shape, bool), np.ones(shape, bool)
        while alive.any():
            done = policy.actions(weights, seen.reshape(*shape, -1)).reshape(-1, 2)
            seen, rewards, ended, cut, _ = self.env.step(done)
            rewards = rewards.reshape(shape)
            total += np.where(alive, rewards, 0.0)
            arrived |= alive & ended.reshape(shape) & (rewards > 0.0)
            alive &= ~(ended | cut).reshape(shape)
        return total, arrived


def train(options: argparse.Namespace) -> tuple[Any, list[tuple[float, float, float]]]:
    """(weights, curve): per generation the seconds so far, the mean reward and the share that arrived."""
    import cma

    search = cma.CMAEvolutionStrategy(
        np.zeros(policy.SIZE), 0.5, {"popsize": options.population, "seed": options.seed + 1, "verbose": -9}
    )
    course = Course(options.population, options.worlds, options.threads)
    curve: list[tuple[float, float, float]] = []
    start = time.perf_counter()
    for generation in range(options.generations):
        candidates = np.array(search.ask())
        total, arrived = course.run(candidates, options.seed + 1 + generation * options.worlds)
        search.tell(list(candidates), list(-total.mean(axis=1)))
        curve.append((time.perf_counter() - start, float(total.mean()), float(arrived.mean())))
        if generation % 10 == 9 or generation == options.generations - 1:
            print(
                f"generation {generation + 1:4d}  {curve[-1][0]:6.1f} s  reward {curve[-1][1]:6.2f}  "
                f"arrived {100 * curve[-1][2]:5.1f} %",
                flush=True,
            )
    return search.result.xfavorite, curve


def judge(weights: Any, worlds: int, threads: int) -> tuple[float, float]:
    """Mean reward and share that arrives, in worlds never seen."""
    total, arrived = Course(1, worlds, threads).run(np.asarray(weights)[None], UNSEEN)
    return float(total.mean()), float(arrived.mean())


def picture(curve: list[tuple[float, float, float]], unseen: float, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    seconds, reward, arrived = np.array(curve).T
    figure, left = plt.subplots(figsize=(7, 3.6), layout="constrained")
    left.plot(seconds, 100 * arrived, color="#3498DB", label="arrived, all policies of a generation")
    left.axhline(100 * unseen, color="#3CB371", linestyle="--", label="arrived, final policy in unseen worlds")
    left.set(xlabel="seconds of training", ylabel="episodes that reach the goal [%]", ylim=(0, 102))
    right = left.twinx()
    right.plot(seconds, reward, color="#E74C3C", alpha=0.6, label="mean reward")
    right.set_ylabel("mean reward of an episode")
    lines = [*left.get_lines(), *right.get_lines()]
    left.legend(lines, [str(line.get_label()) for line in lines], loc="center right", frameon=False)
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=100)
    parser.add_argument("--population", type=int, default=32, help="policies tried in a generation")
    parser.add_argument("--worlds", type=int, default=48, help="worlds in which each is tried")
    parser.add_argument("--unseen", type=int, default=1000, help="worlds in which the result is judged")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("rover_avoid.npz"))
    parser.add_argument("--picture", type=Path, help="learning curve; default: beside --out")
    options = parser.parse_args(arguments)
    weights, curve = train(options)
    reward, arrived = judge(weights, options.unseen, options.threads)
    policy.save(options.out, weights, curve)
    picture(curve, arrived, options.picture or options.out.with_suffix(".png"))
    print(f"in {options.unseen} unseen worlds: reward {reward:.2f}, arrived {100 * arrived:.1f} %; wrote {options.out}")
    return arrived


if __name__ == "__main__":
    sys.exit(main() < 0.5)
