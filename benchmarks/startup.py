"""How long a user waits: help, an empty run, and how much memory a run takes."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.harness import ROOT, Result

_MEMORY = """
import microsim
from benchmarks.harness import peak_mb
sim = microsim.Simulation("default")
for _ in range(60):
    sim.step(60)
print(peak_mb())
"""


def measure() -> list[Result]:
    run = ["-m", "microsim", "run", "--duration", "0", "--headless"]
    _seconds(run)  # fills the kernel cache
    memory = subprocess.run(
        [sys.executable, "-c", _MEMORY], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout
    return [
        Result("microsim --help", _seconds(["-m", "microsim", "--help"]), "s", 0.3, at_most=True),
        Result("microsim run --duration 0, warm cache", _seconds(run), "s", 1.5, at_most=True),
        Result("memory after a minute of the default scenario", float(memory), "MB", 300, at_most=True),
    ]


def _seconds(arguments: list[str], rounds: int = 5) -> float:
    """Wall time of a whole process, the least of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        best = min(best, time.perf_counter() - start)
    return best
