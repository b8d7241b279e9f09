"""Where the time of the tests goes: seconds of the processor, of compiling and of waiting, for each test.

Wall time says little on a machine that does other work too. So each test is charged with what it used: processor time
of its process and of the processes that it started, and the time in which it waited while none of them computed.

    make times ARGS=tests/unit/robots        # run the fast tests, all or some, and print the tables
    python -m tests.times [FOLDER]           # print the tables of a run again; default .cache/times
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(os.environ.get("MICROSIM_TIMES", ".cache/times"))
LARGEST = 40


@dataclass
class Times:
    """Seconds: of the process, part of it compiling kernels, of processes it started, asleep; and by the clock."""

    own: float = 0.0
    compiling: float = 0.0
    children: float = 0.0
    asleep: float = 0.0
    wall: float = 0.0

    def __add__(self, other: Times) -> Times:
        return Times(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __neg__(self) -> Times:
        return Times(*(-a for a in astuple(self)))

    def __sub__(self, other: Times) -> Times:
        return self + -other

    @property
    def processor(self) -> float:
        return self.own + self.children

    @property
    def waiting(self) -> float:
        """Asleep while none of its processes computed either."""
        return max(0.0, self.asleep - self.children)


# ---- measuring: a plugin for pytest ----------------------------------------------------------------------------------


class Meter:
    """One for each process of pytest; a line of JSON for each test."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._lines = file.open("w")
        self._compiling = _CompileClock()
        self._children = self._lost = self._looked = 0.0

    def write(self, name: str, times: dict[str, Times]) -> None:
        self._lines.write(json.dumps({"name": name, **{phase: astuple(each) for phase, each in times.items()}}) + "\n")
        self._lines.flush()

    def now(self) -> Times:
        wall = time.perf_counter()
        asleep = wall - _running_or_ready()
        if asleep > self._looked + 0.02:  # only who sleeps can have waited for others, and looking takes milliseconds
            ended = resource.getrusage(resource.RUSAGE_CHILDREN)
            found = ended.ru_utime + ended.ru_stime + _processor_seconds_of_descendants()
            self._lost = max(self._lost, self._children - found)  # with processes that ended after their parent
            self._children, self._looked = found + self._lost, asleep
        return Times(time.process_time(), self._compiling.seconds, self._children, asleep, wall)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        before = self.now()
        result = yield
        self.write("collection", {"call": self.now() - before})
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._compiling.listen()
        item.stash[_PHASES] = {}
        result = yield
        self.write(item.nodeid, item.stash[_PHASES])
        return result

    def _phase(self, item: pytest.Item, phase: str) -> Generator[None, Any, Any]:
        before = self.now()
        try:
            return (yield)
        finally:
            item.stash[_PHASES][phase] = self.now() - before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._phase(item, "setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._phase(item, "call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._phase(item, "teardown"))


_PHASES = pytest.StashKey[dict[str, Times]]()


class _CompileClock:
    """Processor time inside numba's compiler, once the process has imported numba."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._is_listening, self._depth, self._began = False, 0, 0.0

    def listen(self) -> None:
        if self._is_listening or "numba" not in sys.modules:
            return
        from numba.core import event

        class Listener(event.Listener):  # type: ignore[misc]
            def on_start(_, event: object) -> None:  # noqa: N805
                if self._depth == 0:
                    self._began = time.thread_time()
                self._depth += 1

            def on_end(_, event: object) -> None:  # noqa: N805
                self._depth -= 1
                if self._depth == 0:
                    self.seconds += max(0.0, time.thread_time() - self._began)

        event.register("numba:compile", Listener())
        self._is_listening = True


def _processor_seconds_of_descendants() -> float:
    """Of those that still run, and of those that have ended there."""
    seconds, children = {}, defaultdict(list)
    for folder in os.scandir("/proc"):
        if folder.name.isdecimal():
            try:
                fields = Path(folder.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            process, parent = int(folder.name), int(fields[1])
            children[parent].append(process)
            seconds[process] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    todo, total = [os.getpid()], 0.0
    while todo:
        found = children[todo.pop()]
        todo += found
        total += sum(seconds[each] for each in found)
    return total


def _running_or_ready() -> float:
    """Seconds in which this thread ran, or had to wait for a core that others used."""
    try:
        running, ready, _ = map(int, Path("/proc/thread-self/schedstat").read_text().split())
    except OSError:  # not Linux
        return time.thread_time()
    return (running + ready) * 1e-9


def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", {}).get("workerid", "main")
    if worker == "main" and FOLDER.is_dir():
        for old in FOLDER.glob("*.jsonl"):
            old.unlink()
    config.pluginmanager.register(Meter(FOLDER / f"{worker}.jsonl"))


# ---- printing --------------------------------------------------------------------------------------------------------

COLUMNS = ("tests", "processor [s]", "of it compiling [s]", "waiting [s]")


def measured(folder: Path) -> Iterator[tuple[str, Times]]:
    """Name and times of each test, and of the collection in each process."""
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            test = json.loads(line)
            yield test.pop("name"), sum((Times(*each) for each in test.values()), Times())


def folder_of(name: str) -> str:
    parts = name.partition("::")[0].split("/")
    return "/".join(parts[: 3 if parts[:2] == ["tests", "unit"] else 2]) if len(parts) > 1 else name


def function_of(name: str) -> str:
    return name.partition("[")[0]


def table(title: str, tests: Iterable[tuple[str, Times]], key: Callable[[str], str], most: int = 1000) -> Iterator[str]:
    """Lines of Markdown: a row for each group of tests, the longest first."""
    sums: dict[str, Times] = defaultdict(Times)
    counts: Counter[str] = Counter()
    for name, times in tests:
        sums[key(name)] += times
        counts[key(name)] += 1
    yield f"| {title} | {' | '.join(COLUMNS)} |"
    yield f"|---|{'---:|' * len(COLUMNS)}"
    for group in sorted(sums, key=lambda each: -sums[each].processor - sums[each].waiting)[:most]:
        yield row(f"`{group}`", counts[group], sums[group])
    yield row("all", counts.total(), sum(sums.values(), Times()))


def row(title: str, count: int, times: Times) -> str:
    return f"| {title} | {count:,} | {times.processor:.1f} | {times.compiling:.1f} | {times.waiting:.1f} |"


def main() -> None:
    tests = list(measured(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
    print(*table("folder", tests, folder_of), "", sep="\n")
    print(*table(f"{LARGEST} longest tests", tests, function_of, LARGEST), sep="\n")


if __name__ == "__main__":
    main()
