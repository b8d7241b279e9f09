"""What all measurements share. Machines are noisy: the best of several rounds counts, in seconds of CPU time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEERS = Path(__file__).parent / "peers"
TORCH = ROOT / ".cache" / "learning-venv" / "bin" / "python"  # with the peers that need torch: peers/torch_setup.sh


@dataclass(frozen=True)
class Result:
    """One figure. `floor` is what it must reach, `goal` what we would like; `peer` says what it is compared with."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    goal: float | None = None
    at_most: bool = False  # the floor is a ceiling: smaller is better
    peer: str = ""

    @property
    def good(self) -> bool:
        if self.floor is None:
            return True
        return self.value <= self.floor if self.at_most else self.value >= self.floor


def use_one_core() -> None:
    """This process and its children run on one core, as the figures are stated for one."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})


def cpu_seconds(work: Callable[[], Any], rounds: int = 7) -> float:
    """CPU time of one call, the least of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def wall_seconds(work: Callable[[], Any], rounds: int = 25) -> float:
    """Wall time of one call, the least of several rounds: of work for several cores."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def has_two_cores() -> bool:
    return hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1


@contextmanager
def all_cores() -> Iterator[None]:
    """Meanwhile this process runs on any of them: wall times tell something if two are idle."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def peak_mb(process: int | str = "self") -> float:
    """The most memory that a running process has had at once. getrusage would count its parent's before `exec` too."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def run_peer(
    script: str, *arguments: str, environment: dict[str, str] | None = None, python: Path | None = None
) -> dict[str, Any] | None:
    """Run a script of `peers/` in its own process; its last line is JSON. None, and why on stderr, if it cannot."""
    if python is not None and not python.exists():
        print(f"peer {script} could not run here: benchmarks/peers/torch_setup.sh gets what it needs", file=sys.stderr)
        return None
    command = [str(python or sys.executable), str(PEERS / script), *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, timeout=600)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"peer {script} could not run here: {reason}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result
