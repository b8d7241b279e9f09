"""What is told on stderr while something takes its time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from microsim.runner import Runner, Watcher

COMPILE_S = 20  # on a laptop of 2020
_PATIENCE_S = 60.0  # in a log, a line a second for the first minute, then one every ten


class Progress:
    """One line, rewritten in place on a terminal; in a log, a new line each time."""

    def __init__(self, runner: Runner, ticks: int | None) -> None:
        self.runner = runner
        self.ticks = ticks
        self.is_terminal = sys.stderr.isatty()
        self._told_s = 0.0
        self._has_told = False

    def watcher(self) -> Watcher:
        from microsim.runner import Watcher

        return Watcher(1.0, self.tell)

    def tell(self) -> None:
        wall = self.runner.wall_s
        if not self.is_terminal and wall > _PATIENCE_S and wall - self._told_s < 9.5:
            return
        self._told_s, self._has_told = wall, True
        start, end = ("\r\x1b[K", "") if self.is_terminal else ("", "\n")
        with suppress(OSError):  # nobody listens any more; the run goes on
            print(f"{start}{self.line()}", end=end, file=sys.stderr, flush=True)

    def line(self) -> str:
        runner = self.runner
        done = f"{runner.sim_s:.1f} s simulated, {runner.achieved_rtf:.2f} × real time"
        if not self.ticks:
            return f"{done}; Ctrl-C ends"
        part = runner.sim.tick / self.ticks
        left = runner.wall_s * (1.0 - part) / part if part else 0.0
        return f"{100.0 * part:3.0f} %  {done}, {duration(left)} left"

    def end(self) -> None:
        if self._has_told and self.is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """`8 s`, `2 min 05 s`, `3 h 07 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


@contextmanager
def compiling() -> Iterator[None]:
    """Tells that kernels are being compiled."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    text = f"compiling kernels, about {COMPILE_S} s, first run only"
    if not console.is_terminal:
        console.print(f"{text} …")
        yield
        return
    with console.status(text, spinner="dots"):
        yield
