"""How long training takes until a task is solved: at least 95 % of 1,000 unseen worlds.

    python -m benchmarks.time_to_solve RoverAvoid Hover --seeds 0 1 2 --threads 2 --out results
    python -m benchmarks.time_to_solve RoverAvoid --device cuda --set worlds=4096

Writes policy and learning curve of every run, and prints a line for each: task, seed, environment steps, seconds
of training, seconds until the batch was ready, share of unseen worlds with success and with a collision.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from microsim.parts.learning.evaluation import evaluate
from microsim.parts.learning.learning_curve import Progress
from microsim.parts.learning.ppo import Trainer


def run(task: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    settings = {name: float(value) for name, value in (text.split("=") for text in options.set)}
    begun_s = time.perf_counter()
    trainer = Trainer(task, seed, options.threads, options.device, settings)
    ready_s = time.perf_counter() - begun_s
    curve: list[Progress] = []
    policy = trainer.run(curve.append)
    found = evaluate(policy, options.worlds, threads=options.threads)
    result = {
        "task": task, "seed": seed, "device": options.device, "threads": options.threads, "steps": curve[-1].steps,
        "seconds": trainer.seconds, "ready_s": ready_s, "set": options.set, **found.figures(),
    }  # fmt: skip
    policy.about["unseen"] = {"worlds": len(found.seeds), **found.figures()}
    options.out.mkdir(parents=True, exist_ok=True)
    name = f"{task}_{options.device}_{seed}{options.tag}"
    policy.save(options.out / f"{name}.npz")
    rows = [asdict(each) for each in curve]
    (options.out / f"{name}.json").write_text(json.dumps({**result, "curve": rows}), encoding="utf-8")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worlds", type=int, default=1000, help="unseen ones, for the evaluation")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--tag", default="", help="added to the names of files")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/training"))
    options = parser.parse_args()
    for task in options.tasks:
        for seed in options.seeds:
            found = run(task, seed, options)
            words = [
                f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}" for key, value in found.items()
            ]
            print(", ".join(words), flush=True)


if __name__ == "__main__":
    sys.exit(main())
