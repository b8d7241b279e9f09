"""What a person sees: results on stdout, words about them and progress on stderr; and how Ctrl-C ends it."""

from __future__ import annotations

import codecs
import errno
import json
import os
import shutil
import signal
import stat
import sys
import textwrap
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from microsim.errors import ScenarioWarning

if TYPE_CHECKING:
    from microsim.runner import Runner


class ExitCode(IntEnum):
    """Of every command."""

    GOOD = 0
    FAILED = 1  # the run failed, or what was checked is not as it must be
    WRONG_INPUT = 2


_LOG_EVERY_SECOND_S = 60.0  # in a log, a line a second for the first minute, then one every ten
_BETWEEN_LINES_S = 5.0  # of a count, in a log
_RATE_WINDOW = 10  # the time left is estimated from the last ten lines of progress

# ---- streams ---------------------------------------------------------------------------------------------------------

_PLAIN = {"×": "x", "→": "->", "…": "...", "–": "-", "°": " deg", "±": "+-", "µ": "u", "²": "2", "³": "3"}


def _plain(error: UnicodeError) -> tuple[str, int]:
    """What a terminal without Unicode gets in place of a character it does not have."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_PLAIN.get(each, "?") for each in error.object[error.start : error.end]), error.end


def prepare_streams() -> None:
    """Streams that take any text: where a terminal has no Unicode, and where `2>&-` left no stream at all."""
    codecs.register_error("microsim-plain", _plain)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - stays open until the end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="microsim-plain")


@contextmanager
def guarded_output() -> Iterator[None]:
    """Flushes stdout; a closed pipe, a full disk, an unwritable path and too little memory become exit codes."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        _forget_stdout()
        sys.exit(ExitCode.GOOD)
    except MemoryError as error:
        warn(_out_of_memory(str(error)))
        sys.exit(ExitCode.FAILED)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            warn(_out_of_memory("" if error.filename is None else str(error.filename)))
            sys.exit(ExitCode.FAILED)
        if _is_of_stdout(error):  # else its text must still appear
            _forget_stdout()
        what = "the output cannot be written: " if _is_of_stdout(error) else ""
        what = what if error.filename is None else f"{error.filename}: "
        warn(f"{what}{error.strerror or error}")
        sys.exit(exit_code_of(error))


_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def _is_of_stdout(error: OSError) -> bool:
    """Writing to it fails without naming it; processes, sockets and memory fail for other reasons."""
    return error.filename is None and error.errno in _OF_WRITING


def _out_of_memory(what: str) -> str:
    return f"out of memory{': ' if what else ''}{what}; use a smaller map, fewer worlds or smaller images"


def exit_code_of(error: OSError) -> int:
    """A path that cannot be used is wrong input; a disk that fails or fills up is a failure."""
    wrong = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
    is_wrong = error.errno in (*wrong, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
    return ExitCode.WRONG_INPUT if is_wrong and error.filename is not None else ExitCode.FAILED


def _forget_stdout() -> None:
    """What is still in its buffer would be tried again, and complained about, at the very end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# ---- words -----------------------------------------------------------------------------------------------------------

_CHOICE = {"quiet": False}  # of this call


def is_quiet() -> bool:
    return _CHOICE["quiet"]


def set_quiet(quiet: bool) -> bool:
    _CHOICE["quiet"] = quiet
    return quiet


def note(text: str) -> None:
    """On stderr, unless `--quiet`."""
    if not is_quiet():
        with suppress(OSError):  # nobody reads it any more; the work continues
            print(text, file=sys.stderr, flush=True)


def warn(text: object) -> None:
    """On stderr, also with `--quiet`: what is wrong."""
    print(f"microsim: {text}", file=sys.stderr, flush=True)


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """What is probably a mistake in a scenario is printed as other warnings are, each once."""
    shown: set[str] = set()

    def show(message: Warning | str, *place: Any, **more: Any) -> None:
        if not isinstance(message, ScenarioWarning):
            before(message, *place, **more)
        elif str(message) not in shown:  # a run reads its scenario several times
            shown.add(str(message))
            warn(f"warning: {message.problem}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", ScenarioWarning)
        before, warnings.showwarning = warnings.showwarning, show
        yield


def tell(text: str) -> None:
    """On stdout: how it went, when it went well."""
    if not is_quiet():
        print(text)


def print_json(value: Any) -> None:
    """On one line; escaped where the terminal has no Unicode, so that nothing is lost."""
    print(json.dumps(value, ensure_ascii=not has_unicode()))


def has_unicode() -> bool:
    """Whether stdout can show every character."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")


def print_comparison(found: Any, as_json: bool) -> int:
    """The result of comparing two runs; the exit code."""
    if as_json:
        print_json(found.to_dict())
    elif found.is_identical:
        tell(wrapped(str(found)))
    else:
        print(wrapped(str(found)))
    return ExitCode.GOOD if found.is_identical else ExitCode.FAILED


def wrapped(text: str) -> str:
    """Long lines are broken between words, on a terminal; in a log they stay."""
    if not sys.stdout.isatty():
        return text

    lines = ((line, " " * (len(line) - len(line.lstrip()) + 4)) for line in text.splitlines())
    fill = partial(
        textwrap.fill, width=shutil.get_terminal_size().columns, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(fill(line, subsequent_indent=indent) for line, indent in lines)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], column: int, styles: Sequence[str]) -> None:
    """In colour on a terminal, else a row per line, however long, for grep. `styles`: of one column's cells."""
    if not sys.stdout.isatty():
        widths = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]
        for row in (titles, *rows):
            print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    for row, style in zip(rows, styles, strict=True):
        table.add_row(*row[:column], Text(row[column], style), *row[column + 1 :])
    Console(highlight=False).print(table)


def duration(seconds: float) -> str:
    """`8 s`, `2 min 05 s`, `3 h 07 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


# ---- progress --------------------------------------------------------------------------------------------------------


def can_rewrite(stream: TextIO) -> bool:
    """Whether a line may be written over: not in files, and not where escapes are shown as they are."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


class _Line:
    """One line on stderr, rewritten in place on a terminal; in a log, a new line each time."""

    def __init__(self) -> None:
        self.is_terminal = can_rewrite(sys.stderr)
        self._is_shown = False

    def show(self, text: str) -> None:
        self._is_shown = True
        start, end = ("\r\x1b[K", "") if self.is_terminal else ("", "\n")
        with suppress(OSError):  # nobody reads it any more; the run continues
            print(f"{start}{text}", end=end, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_shown and self.is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class RunProgress:
    """How far a run is, each second. `end`: its last tick; None: until Ctrl-C."""

    def __init__(self, runner: Runner, end: int | None) -> None:
        self.runner = runner
        self._end_tick = end
        self._start_tick = runner.sim.tick
        self._line = _Line()
        self._shown_s = 0.0
        self._pace: deque[tuple[float, float]] = deque(maxlen=_RATE_WINDOW)  # wall time, simulated time gone by
        self._wall_per_sim: float | None = None  # of the last lines

    @contextmanager
    def shown(self) -> Iterator[None]:
        """During the run."""
        from microsim.runner import Watcher

        self.runner.watchers.append(Watcher(1.0, self.tell))
        try:
            yield
        finally:
            self._line.end()

    def tell(self) -> None:
        wall = self.runner.wall_s
        text = self.line()
        if is_quiet():
            return
        if not self._line.is_terminal and wall > _LOG_EVERY_SECOND_S and wall - self._shown_s < 9.5:
            return
        self._shown_s = wall
        self._line.show(text)

    def line(self) -> str:
        runner = self.runner
        done = f"{runner.sim_s:.1f} s simulated, {runner.achieved_rtf:.2f} × real time"
        if runner.paused:
            self._pace.clear()  # a pause says nothing about the pace
            return f"{done}; paused"
        self._measure_pace()
        if not self._end_tick or self._end_tick <= self._start_tick:
            return f"{done}; Ctrl-C ends"
        # after a reset the run is at tick 0 again, which may be before the tick it started from
        start = min(self._start_tick, runner.sim.tick)
        share = (runner.sim.tick - start) / (self._end_tick - start)
        if self._wall_per_sim is None:
            return f"{100.0 * share:3.0f} %  {done}"
        left = (self._end_tick - runner.sim.tick) * runner.sim.clock.dt * self._wall_per_sim
        return f"{100.0 * share:3.0f} %  {done}, {duration(left)} left"

    def _measure_pace(self) -> None:
        """Of the last lines only, so that pauses, resets and another real-time factor do not spoil the time left."""
        now = (self.runner.wall_s, self.runner.advanced_s)
        self._pace.append(now)
        first = self._pace[0] if len(self._pace) > 1 else (0.0, 0.0)
        if now[1] > first[1] and (len(self._pace) > 1 or self._wall_per_sim is None):
            self._wall_per_sim = (now[0] - first[0]) / (now[1] - first[1])


class TimeLeft:
    """The time left, from the pace of the recent half: what happens once, such as starting workers, drops out."""

    def __init__(self, done: float = 0.0) -> None:
        self._began = time.monotonic()
        self._past: deque[tuple[float, float]] = deque([(self._began, done)])
        self._steps = 0

    def update(self, done: float) -> None:
        now = time.monotonic()
        self._steps += done > self._past[-1][1]
        if now - self._past[-1][0] >= (now - self._began) / 100:  # a hundred points are enough
            self._past.append((now, done))
        while len(self._past) > 2 and self._past[1][0] <= 0.5 * (self._began + now):
            self._past.popleft()

    def words(self, done: float, total: float) -> str:
        """`, about 3 min left`; empty as long as it would be a guess, and at the end."""
        now = time.monotonic()
        then, before = self._past[0]
        if self._steps < 3 or done <= before or done >= total or now - self._began < 2.0:
            return ""
        return f", about {rounded_duration((total - done) * (now - then) / (done - before))} left"


def rounded_duration(seconds: float) -> str:
    """No more digits than an estimate has: `8 s`, `40 s`, `3 min`, `1 h 20 min`."""
    step = next((step for limit, step in ((10, 1), (60, 5), (600, 60), (3600, 300)) if seconds < limit), 600)
    whole = max(round(seconds / step), 1) * step
    hours, minutes = divmod(whole // 60, 60)
    parts = (f"{hours} h" * bool(hours), f"{minutes} min" * bool(minutes), f"{whole} s" * (whole < 60))
    return " ".join(filter(None, parts))


class ShareProgress:
    """For work whose share done is known: nothing in the first two seconds, then a line a second."""

    def __init__(self, doing: str = "") -> None:
        self._doing = f"{doing}: " if doing else ""
        self._began = self._shown_s = time.monotonic()
        self._left = TimeLeft()
        self._line = _Line()

    def tell(self, share: float) -> None:
        now = time.monotonic()
        self._left.update(share)
        if is_quiet() or now - self._began < 2.0 or now - self._shown_s < 1.0:
            return
        self._shown_s = now
        self._line.show(f"{self._doing}{100.0 * share:3.0f} %{self._left.words(share, 1.0)}")

    def count(self, done: int, total: int) -> None:
        self.tell(done / max(total, 1))

    def end(self) -> None:
        self._line.end()


class Bar:
    """Counts what is done, with rate and time left: a bar on a terminal, in a log a line now and then."""

    def __init__(self, doing: str, total: int | None, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self.total, self.what = total, what
        self.begin_with(0)
        self._console = Console(stderr=True, highlight=False)
        self._is_shown = self._console.is_terminal and not is_quiet()
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[tally]}"))
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(doing, total=total, tally="")
        self._start_s = self._shown_s = time.monotonic()

    def __enter__(self) -> Bar:
        if self._is_shown:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._bar.stop()

    def tally(self) -> str:
        """`120 of 9,000 runs, 41 runs/s, about 4 min left`."""
        seconds = time.monotonic() - self._start_s
        rate = (self.done - self._begun_with) / seconds if seconds > 0 else 0.0
        of = "" if self.total is None else f" of {self.total:,}"
        parts = [f"{self.done:,}{of} {self.what}"]
        if rate:
            parts.append(f"{rate:.3g} {self.what}/s")
        return ", ".join(parts) + ("" if self.total is None else self._left.words(self.done, self.total))

    def begin_with(self, done: int) -> None:
        """So many were done before."""
        self.done = self._begun_with = done
        self._left = TimeLeft(done)

    def count(self, latest: str = "") -> None:
        """One more is done."""
        self.done += 1
        self._left.update(self.done)
        if self._is_shown:
            words = {"description": latest} if latest else {}
            self._bar.update(self._task, completed=self.done, tally=self.tally(), **words)  # type: ignore[arg-type]
        elif time.monotonic() - self._shown_s > _BETWEEN_LINES_S:
            self._log(self.tally() + (f"; the last: {latest}" if latest else ""))

    def say(self, text: str) -> None:
        """Words between the figures."""
        if self._is_shown:
            self._bar.update(self._task, description=text)
        else:
            self._log(text)

    def note(self, text: str) -> None:
        """A line that stays."""
        if self._is_shown:
            self._console.print(text, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def _log(self, text: str) -> None:
        self._shown_s = time.monotonic()
        note(text)


# ---- Ctrl-C ----------------------------------------------------------------------------------------------------------


@contextmanager
def _signals(handler: Any, *more: int) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM, *more)}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that child processes end too."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _signals(stop):
        yield


class Stoppable(Protocol):
    is_stopping: bool

    def stop(self) -> None: ...


class Interrupts:
    """Ctrl-C, SIGTERM and SIGHUP (a closed terminal) end the run after the tick under way; a second one at once."""

    def __init__(self) -> None:
        self.runner: Stoppable | None = None

    def stop(self, number: int, frame: FrameType | None) -> None:
        if number not in (signal.SIGINT, signal.SIGTERM):
            _leave_terminal()
        if self.runner is None or self.runner.is_stopping:
            raise KeyboardInterrupt
        self.runner.stop()


@contextmanager
def interrupts_end_the_run() -> Iterator[Interrupts]:
    """From when `runner` is set; before that they raise KeyboardInterrupt."""
    interrupts = Interrupts()
    hang_up: Any = getattr(signal, "SIGHUP", None)
    is_ignored = hang_up is None or signal.getsignal(hang_up) is signal.SIG_IGN  # as under nohup
    with _signals(interrupts.stop, *([] if is_ignored else [hang_up])):
        yield interrupts


def _leave_terminal() -> None:
    """After it was closed, whatever is still printed to it would fail, and keep the recording from being finished."""
    with Path(os.devnull).open("wb") as nothing:
        for descriptor in (1, 2):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nothing.fileno(), descriptor)
