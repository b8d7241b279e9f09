"""Try at length what docs/understand/reliability.md promises; write docs/understand/results/soak.md."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from tests.soak.hard_runs import Result, full_disk, kills, latencies, long_run, subscribers, viewer_frames
from tests.soak.mutated_inputs import SHARES, try_many, try_one

MILLION = 1_000_000
PORTION = 2_000  # inputs at a time
PORTIONS_PER_PROCESS = 8  # then new processes: what one leaks stays small
PARTS = ("inputs", *SHARES, "viewer", "time", "kills", "disk", "subscribers", "latencies")
RESULT = Path(__file__).resolve().parents[2] / "docs/understand/results/soak.md"


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
        for part, work in _parts(options, Path(name)).items():
            print(f"{part} …", file=sys.stderr, flush=True)
            found = work()
            results += found
            for result in found:
                print(row(result), *result.notes[:20], sep="\n  ", flush=True)
            if options.write:
                RESULT.write_text(table(results, options.scale, RESULT.read_text("utf-8")), encoding="utf-8")
    return 0 if all(result.is_good for result in results) else 1


def _parts(options: argparse.Namespace, folder: Path) -> dict[str, Callable[[], list[Result]]]:
    def scaled(number: int) -> int:
        return max(int(number * options.scale), 1)

    kinds = [kind for kind in SHARES if not options.parts or {kind, "inputs"} & set(options.parts)]
    parts: dict[str, Callable[[], list[Result]]] = {
        "viewer": lambda: [viewer_frames(scaled(50_000))],
        "time": lambda: [long_run(24.0 * options.scale)],
        "kills": lambda: [kills(scaled(1_000), folder)],
        "disk": lambda: [full_disk(folder)],
        "latencies": lambda: [latencies(scaled(MILLION))],
        "subscribers": lambda: [subscribers(45, 5, max(int(60 * options.scale), 5))],
    }
    parts = {part: work for part, work in parts.items() if not options.parts or part in options.parts}
    if kinds:
        inputs = lambda: mutated_inputs(kinds, scaled(MILLION), options.seed, options.workers, folder)  # noqa: E731
        return {", ".join(kinds): inputs, **parts}
    return parts


def mutated_inputs(kinds: Sequence[str], count: int, seed: int, workers: int, folder: Path) -> list[Result]:
    """A result for each kind of input."""
    portions = []
    for kind, share in SHARES.items():
        left = max(count * share // MILLION, 1)
        while left > 0:
            portions.append((kind, min(left, PORTION), len(portions)))  # numbered alike whatever kinds are tried
            left -= PORTION
    portions = [portion for portion in portions if portion[0] in kinds]
    results = {kind: Result(f"mutated {kind}", "") for kind in kinds}
    tried = dict.fromkeys(kinds, (0, 0))
    began, together = time.monotonic(), workers * PORTIONS_PER_PROCESS
    for first in range(0, len(portions), together):
        # A new pool each time: one that replaces its processes by itself (max_tasks_per_child) stops for ever in
        # Python 3.11 (gh-115634).
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            jobs = {}
            for kind, size, number in portions[first : first + together]:
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


HEAD = "| What | Tried | Tracebacks | Hangs | Messages lost | Date |"


def row(each: Result) -> str:
    cells = (each.name, each.tried, each.tracebacks, each.hangs, each.lost, time.strftime("%Y-%m-%d"))
    return f"| {' | '.join(map(str, cells))} |"


def table(results: Sequence[Result], scale: float, before: str = "") -> str:
    """Rows of parts that did not run this time are those of before."""
    rows = {line.split(" | ")[0]: line for line in before.partition(HEAD)[2].splitlines() if line.startswith("| ")}
    rows.pop("| ---", None)
    rows.update({f"| {each.name}": row(each) for each in results})
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    lines = [f"`make soak`, scale {scale:g}, {machine}:", "", HEAD, "| --- | --- | --- | --- | --- | --- |"]
    return "\n".join([*lines, *rows.values()]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
