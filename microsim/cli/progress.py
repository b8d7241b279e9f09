"""What is told on stderr while something takes its time."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from microsim.cli.quiet import is_quiet, note

if TYPE_CHECKING:
    from microsim.runner import Runner, Watcher

_PATIENCE_S = 60.0  # in a log, a line a second for the first minute, then one every ten
_BETWEEN_LINES_S = 5.0  # of a count, in a log


class Progress:
    """One line, rewritten in place on a terminal; in a log, a new line each time. `end`: the last tick."""

    def __init__(self, runner: Runner, end: int | None) -> None:
        self.runner = runner
        self.end_tick = end
        self._start_tick = runner.sim.tick
        self.is_terminal = _can_rewrite()
        self._told_s = 0.0
        self._has_told = False

    def watcher(self) -> Watcher:
        from microsim.runner import Watcher

        return Watcher(1.0, self.tell)

    def tell(self) -> None:
        wall = self.runner.wall_s
        if is_quiet():
            return
        if not self.is_terminal and wall > _PATIENCE_S and wall - self._told_s < 9.5:
            return
        self._told_s, self._has_told = wall, True
        start, end = ("\r\x1b[K", "") if self.is_terminal else ("", "\n")
        with suppress(OSError):  # nobody listens any more; the run goes on
            print(f"{start}{self.line()}", end=end, file=sys.stderr, flush=True)

    def line(self) -> str:
        runner = self.runner
        done = f"{runner.sim_s:.1f} s simulated, {runner.achieved_rtf:.2f} × real time"
        if not self.end_tick or self.end_tick <= self._start_tick:
            return f"{done}; Ctrl-C ends"
        part = max(runner.sim.tick - self._start_tick, 0) / (self.end_tick - self._start_tick)
        left = runner.wall_s * (1.0 - part) / part if part else 0.0
        return f"{100.0 * part:3.0f} %  {done}, {duration(left)} left"

    def end(self) -> None:
        if self._has_told and self.is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class LineProgress:
    """For work whose share done is known: nothing in the first two seconds, then a line a second."""

    def __init__(self) -> None:
        self._began = self._told_s = time.monotonic()
        self._is_terminal = _can_rewrite()
        self._has_told = False

    def tell(self, share: float) -> None:
        now = time.monotonic()
        if is_quiet() or now - self._began < 2.0 or now - self._told_s < 1.0:
            return
        self._told_s, self._has_told = now, True
        start, end = ("\r\x1b[K", "") if self._is_terminal else ("", "\n")
        left = f", {duration((now - self._began) * (1.0 - share) / share)} left" if share > 0.01 else ""  # else a guess
        with suppress(OSError):
            print(f"{start}{100.0 * share:3.0f} %{left}", end=end, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._has_told and self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _can_rewrite() -> bool:
    """Whether a line may be written over: not into files, and not where escapes are shown as they are."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def duration(seconds: float) -> str:
    """`8 s`, `2 min 05 s`, `3 h 07 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Bar:
    """Counts what is done, with rate and time left: a bar on a terminal, in a log a line now and then."""

    def __init__(self, doing: str, total: int | None, what: str, done: int = 0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self.total, self.what, self.done = total, what, done
        self._begun_with = done
        self._console = Console(stderr=True, highlight=False)
        self._is_shown = self._console.is_terminal and not is_quiet()
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[facts]}"))
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(doing, total=total, completed=done, facts="")
        self._start_s = self._told_s = time.monotonic()

    def __enter__(self) -> Bar:
        if self._is_shown:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._bar.stop()

    def facts(self) -> str:
        """`120 of 9,000 runs, 41 runs/s, 3 min 36 s left`."""
        seconds = time.monotonic() - self._start_s
        rate = (self.done - self._begun_with) / seconds if seconds > 0 else 0.0
        of = "" if self.total is None else f" of {self.total:,}"
        parts = [f"{self.done:,}{of} {self.what}"]
        if rate:
            parts.append(f"{rate:.3g} {self.what}/s")
            parts += [] if self.total is None else [f"{duration((self.total - self.done) / rate)} left"]
        return ", ".join(parts)

    def begin_with(self, done: int) -> None:
        """So many were done before."""
        self.done = self._begun_with = done

    def count(self, latest: str = "") -> None:
        """One more is done."""
        self.done += 1
        if self._is_shown:
            words = {"description": latest} if latest else {}
            self._bar.update(self._task, completed=self.done, facts=self.facts(), **words)  # type: ignore[arg-type]
        elif time.monotonic() - self._told_s > _BETWEEN_LINES_S:
            self._line(self.facts() + (f"; the last: {latest}" if latest else ""))

    def say(self, text: str) -> None:
        """Words between the figures."""
        if self._is_shown:
            self._bar.update(self._task, description=text)
        else:
            self._line(text)

    def note(self, text: str) -> None:
        """A line that stays."""
        if self._is_shown:
            self._console.print(text, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def _line(self, text: str) -> None:
        self._told_s = time.monotonic()
        note(text)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does: with the children."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
