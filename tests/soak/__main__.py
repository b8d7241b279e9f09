"""Try what docs/reliability.md promises, at length, and write the result to docs/results/soak.md."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from tests.soak.hard_runs import Result, full_disk, kills, long_run, subscribers, viewer_frames
from tests.soak.mutated_inputs import SHARES, try_many, try_one

MILLION = 1_000_000
PORTION = 2_000  # inputs at a time
PORTIONS_PER_PROCESS = 8  # then new processes: what one leaks stays small
PARTS = ("inputs", "viewer", "time", "kills", "disk", "subscribers")
RESULT = Path(__file__).resolve().parents[2] / "docs/results/soak.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (all)")
    parser.add_argument("--scale", type=float, default=1.0, help="a fraction of it all, for a trial (1.0)")
    parser.add_argument("--seed", type=int, default=1, help="of the damage (1)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    parser.add_argument("--repeat", nargs=2, metavar=("KIND", "SEED:NUMBER"), help="one input, with its traceback")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}")
    if options.repeat:
        with tempfile.TemporaryDirectory(prefix="microsim-soak-") as name:
            try_one(*options.repeat, Path(name))
        return 0
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="microsim-soak-") as name:
        for part, work in _parts(options.scale, options.seed, options.workers, Path(name)).items():
            if not options.parts or part in options.parts:
                print(f"{part} …", file=sys.stderr, flush=True)
                began = time.monotonic()
                found = work()
                found[-1].seconds = time.monotonic() - began
                results += found
    text = table(results, options.scale)
    print(text)
    for result in results:
        for note in result.notes[:20]:
            print(f"{result.name}: {note}")
    if options.write:
        RESULT.write_text(text, encoding="utf-8")
    return 0 if all(result.is_good for result in results) else 1


def _parts(scale: float, seed: int, workers: int, folder: Path) -> dict[str, Callable[[], list[Result]]]:
    def scaled(number: int) -> int:
        return max(int(number * scale), 1)

    return {
        "inputs": lambda: mutated_inputs(scaled(MILLION), seed, workers, folder),
        "viewer": lambda: [viewer_frames(scaled(50_000))],
        "time": lambda: [long_run(24.0 * scale)],
        "kills": lambda: [kills(scaled(1_000), folder)],
        "disk": lambda: [full_disk(folder)],
        "subscribers": lambda: [subscribers(45, 5, max(int(60 * scale), 5))],
    }


def mutated_inputs(count: int, seed: int, workers: int, folder: Path) -> list[Result]:
    """A result for each kind of input."""
    portions = []
    for kind, share in SHARES.items():
        left = max(count * share // MILLION, 1)
        while left > 0:
            portions.append((kind, min(left, PORTION)))
            left -= PORTION
    results = {kind: Result(f"mutated {kind}", "") for kind in SHARES}
    tried = dict.fromkeys(SHARES, (0, 0))
    began, together = time.monotonic(), workers * PORTIONS_PER_PROCESS
    for first in range(0, len(portions), together):
        # A new pool each time: one that replaces its processes by itself (max_tasks_per_child) stops for ever in
        # Python 3.11 (gh-115634).
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            jobs = {}
            for number, (kind, size) in enumerate(portions[first : first + together], first):
                place = folder / f"{kind}_{number}"
                place.mkdir()
                jobs[pool.submit(try_many, kind, size, seed * MILLION + number, place)] = kind
            for job in as_completed(jobs):
                accepted, refused, tracebacks, hangs = job.result()
                result, kind = results[jobs[job]], jobs[job]
                tried[kind] = tried[kind][0] + accepted, tried[kind][1] + refused
                result.tracebacks += len(tracebacks) - hangs
                result.hangs += hangs
                result.notes += tracebacks
        done, wall_s = min(first + together, len(portions)), time.monotonic() - began
        print(f"  {done} of {len(portions)} portions, {wall_s:.0f} s", file=sys.stderr, flush=True)
    for kind, result in results.items():
        accepted, refused = tried[kind]
        result.tried = f"{accepted + refused + result.tracebacks + result.hangs:,} ({refused:,} refused)"
    return list(results.values())


def table(results: list[Result], scale: float) -> str:
    day, machine = time.strftime("%Y-%m-%d"), f"{platform.system()} {platform.machine()}"
    lines = [
        f"`make soak` of {day}, scale {scale:g}, Python {platform.python_version()}, {machine}:",
        "",
        "| What | Tried | Tracebacks | Hangs | Messages lost |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in results:
        lines.append(f"| {each.name} | {each.tried} | {each.tracebacks} | {each.hangs} | {each.lost} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
