"""What a sweep costs beside the bare runs, and what a second core gives.

The bare run is `fly_mission`: every message made, encoded and digested. The sweep flies the same runs in a worker
process, takes five metrics of each, keeps a journal and writes a result. CPU time of both processes (wall time where
the system does not tell), the least of several rounds taken in turns; two cores against one in wall time.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import Result

RUNS = 24
ROUNDS = 4
SCENARIO, MISSION = "default", "patrol"
METRICS = ("collisions", "path_length", "radio_drop", "passed")


def measure() -> list[Result]:
    cores = _all_cores()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _on(cores[-1:]), _pool(("digest", *METRICS), 1) as full, _pool(METRICS[:3], 1) as states:
            works = (_bare, lambda: _swept(full, folder), lambda: _swept(states, folder))
            bare, swept, quick = _least(*works, clock=lambda: _cpu_s(full, states))
        results = [
            Result(
                "a sweep over the bare runs, every message digested",
                100.0 * (swept / bare - 1.0),
                "%",
                5.0,
                at_most=True,
            ),
            Result("sweep: runs of `patrol` (35 s) with every message digested", RUNS / swept, "runs/s", 20, 40),
            Result("the same, where no metric needs messages", RUNS / quick, "runs/s"),
            Result("start of a sweep of one run to its result", _start(), "s"),
        ]
        if len(cores) > 1:
            with _on(cores), _pool(("digest", *METRICS), 1) as one, _pool(("digest", *METRICS), 2) as two:
                alone, together = _least(lambda: _swept(one, folder), lambda: _swept(two, folder))
            results.append(Result("two cores against one", alone / together, "×", goal=1.7))
    return results


def _all_cores() -> list[int]:
    return list(range(os.cpu_count() or 1)) if hasattr(os, "sched_setaffinity") else [0]


@contextmanager
def _on(cores: list[int]) -> Iterator[None]:
    """This process, and those it starts, on these cores."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _least(*works: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> list[float]:
    best = [float("inf")] * len(works)
    for _ in range(ROUNDS):
        for index, work in enumerate(works):
            start = clock()
            work()
            best[index] = min(best[index], clock() - start)
    return best


def _cpu_s(*made: tuple[Any, Any]) -> float:
    """Of this process and of the workers, all threads."""
    if not Path("/proc/self/schedstat").exists():
        return time.perf_counter()
    tasks = [task for _, pool in made for worker in pool._workers for task in _tasks(worker._process.pid)]
    return time.process_time() + sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _bare() -> None:
    from microsim.parts.missions import fly_mission, load_mission
    from microsim.scenario import load_scenario

    scenario, mission = load_scenario(SCENARIO), load_mission(MISSION)
    for seed in range(RUNS):
        fly_mission(mission, scenario, seed).sim.digest()


@contextmanager
def _pool(metrics: tuple[str, ...], jobs: int) -> Iterator[tuple[Any, Any]]:
    """A plan, and workers that are ready: their start is measured by itself."""
    from microsim.parts.sweep.plan import load_sweep, make_plan
    from microsim.parts.sweep.worker_pool import LocalWorkers

    wish = {"scenario": SCENARIO, "mission": MISSION, "seeds": f"0..{RUNS - 1}", "metrics": metrics}
    plan = make_plan(load_sweep(wish))
    pool = LocalWorkers(plan.order(), jobs, 600.0)
    while not pool.is_ready():
        list(pool.wait(0.2))
    try:
        yield plan, pool
    finally:
        pool.close()


class _Kept:
    """A pool that stays for the next round."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.size, self.has_room, self.give, self.wait = pool.size, pool.has_room, pool.give, pool.wait

    def close(self) -> None:
        pass


def _swept(made: tuple[Any, Any], folder: Path) -> None:
    from microsim.parts.sweep.run_all import check_files, sweep_to_file

    plan, pool = made
    out = folder / "results.parquet"
    check_files(out, resume=False, overwrite=True)
    finished = sweep_to_file(plan, lambda: _Kept(pool), out)
    assert finished.is_good
    assert len(finished.rows) == RUNS


def _start() -> float:
    import subprocess
    import sys

    command = [sys.executable, "-m", "microsim", "sweep", SCENARIO, "--mission", MISSION, "--jobs", "1"]
    return _least(lambda: subprocess.run([*command, "--metrics", "path_length"], check=True, capture_output=True))[0]
