"""The determinism check: missions in child processes of different environments, side by side, and what differs.

A child runs one mission after another in the environment it was started with: starting takes longer than running. It
receives a line of JSON for each mission and answers with one. It keeps the digest after every tick in a file, so that
the first tick that differs can be found.
"""

from __future__ import annotations

import json
import os
import queue
import selectors
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from microsim.errors import MicroSimError
from microsim.messages.outbox import Message
from microsim.processes import THREAD_VARIABLES, ChildProcess, answering

if TYPE_CHECKING:
    from microsim.recording.compare import BagEntry, Difference, StreamPlace

DIGEST_BYTES = 32
FAST = 25.0  # times real time: paced, and still quick
SHORT_S = 0.5  # simulated; without the compiler a tick takes a hundred times as long

_VARIED = ("PYTHONHASHSEED", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES", *THREAD_VARIABLES)


# ---- environments: what a run must not depend on, each differing from the reference in that alone --------------------


@dataclass(frozen=True)
class Environment:
    name: str
    about: str
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)
    rtf: float = 0.0  # 0: as fast as possible
    short_s: float | None = None  # only the first simulated seconds

    def process_variables(self) -> dict[str, str]:
        """All variables of the child: ours, without any that an environment varies, and those of this environment."""
        compiler = ("NUMBA_CPU_", "NUMBA_DISABLE_JIT", "NUMBA_OPT")
        kept = {key: value for key, value in os.environ.items() if key not in _VARIED and not key.startswith(compiler)}
        return {**kept, "PYTHONHASHSEED": "0", **self.variables}


def environments(slow: bool = False) -> tuple[Environment, ...]:
    """The reference first; without what this machine cannot vary."""
    found = [
        Environment("reference", "as fast as possible, compiled for this processor"),
        Environment("hash_seed", "another PYTHONHASHSEED", {"PYTHONHASHSEED": "271828"}),
        Environment("one_thread", "one thread", dict.fromkeys(THREAD_VARIABLES, "1")),
        Environment("real_time", f"paced, {FAST:g} × real time", rtf=FAST),
        Environment("generic_cpu", "compiled for any processor of this kind", _generic_processor()),
    ]
    features = dispatched_features()
    if features:
        off = {"NPY_DISABLE_CPU_FEATURES": " ".join(features)}
        found.append(Environment("numpy_plain", f"NumPy without {', '.join(features)}", off))
    if slow:
        without = {"NUMBA_DISABLE_JIT": "1"}
        found.append(Environment("no_compiler", f"plain Python, the first {SHORT_S:g} s", without, short_s=SHORT_S))
    return tuple(found)


def dispatched_features() -> list[str]:
    """The processor features that NumPy uses beyond its baseline."""
    try:
        umath = import_module("numpy._core._multiarray_umath")
        return [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)]
    except (ImportError, AttributeError):  # private to NumPy, and may move
        return []


def _generic_processor() -> dict[str, str]:
    """No vector units and no fused multiply-add; with a separate cache of kernels."""
    from microsim.engine.compiled import CACHE_FOLDER

    folder = Path(tempfile.gettempdir()) if CACHE_FOLDER is None else CACHE_FOLDER.parents[1]
    return {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(folder / "generic")}


# ---- in this process -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What is run."""

    scenario: str
    mission: str  # empty: none, for `duration` seconds
    seed: int | None  # None: the mission's or the scenario's
    controllers: tuple[str, ...] = ()  # as after `--controller`
    duration: float = 0.0

    def __str__(self) -> str:
        what = self.mission or ", ".join(self.controllers)
        return f"{self.scenario} × {what}" + ("" if self.seed is None else f", seed {self.seed}")


@dataclass(frozen=True)
class CheckRun:
    """A case in an environment."""

    case: Case
    environment: Environment

    def __str__(self) -> str:
        return f"{self.case} in {self.environment.name}"


@dataclass(frozen=True)
class Result:
    run: CheckRun
    chain: Path  # the digest after each tick, 32 bytes each
    digest: str = ""
    ticks: int = 0
    seed: int = 0
    error: str = ""  # why there is no digest
    is_refused: bool = False  # the input is wrong; otherwise the process failed

    def digest_at(self, tick: int) -> bytes:
        return self.chain.read_bytes()[DIGEST_BYTES * tick : DIGEST_BYTES * (tick + 1)]


class CheckChild(ChildProcess):
    def __init__(self, environment: Environment) -> None:
        super().__init__(__name__, environment.process_variables())

    def ask(self, order: Mapping[str, Any], timeout_s: float) -> bytes | None:
        """The answer; empty: the process has ended; None: there was none in time."""
        self.send(json.dumps(order).encode())
        until, line = time.monotonic() + timeout_s, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.answers, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(until - time.monotonic(), 0.0)):
                    return None
                part = os.read(self.answers.fileno(), 65536)
                if not part:
                    return b""
                line += part
        return line


class Children:
    """Starts processes and can end all of them at once."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        self.folder, self.timeout_s = folder, timeout_s
        self._lock = threading.Lock()
        self._alive: set[CheckChild] = set()
        self._count = 0
        self._is_ending = False

    def run(self, run: CheckRun, tick: int | None = None, dump: Path | None = None) -> Result:
        """In a process of its own; with `tick` and `dump`, only up to that tick, whose messages are written."""
        (result,) = self.run_each([run], tick, dump)
        return result

    def run_each(self, runs: Sequence[CheckRun], tick: int | None = None, dump: Path | None = None) -> Iterator[Result]:
        """One after another in one process with the environment of the first; in a new process if that ends."""
        child: CheckChild | None = None
        try:
            for run in runs:
                try:
                    child = child or self._started(run.environment)
                except OSError as error:  # no more processes, or no memory for one
                    yield Result(run, Path(), error=f"a process could not be started: {error.strerror or error}")
                    continue
                result, is_alive = self._asked(child, run, tick, dump)
                if not is_alive:
                    self._forget(child)
                    child = None
                yield result
        finally:
            if child is not None:
                child.end()
                self._forget(child)

    def end(self) -> None:
        with self._lock:
            self._is_ending = True
            for child in self._alive:
                child.kill()

    def _asked(self, child: CheckChild, run: CheckRun, tick: int | None, dump: Path | None) -> tuple[Result, bool]:
        """The result, and whether the child is still running."""
        with self._lock:
            self._count += 1
            chain = self.folder / f"{self._count}.chain"
        answer = child.ask(_order(run, chain, tick, dump), self.timeout_s)
        if answer is None:
            child.end()
            return Result(run, chain, error=f"no answer in {self.timeout_s:g} s; allow more with --timeout"), False
        if not answer:
            return Result(run, chain, error=child.end_gracefully()), False
        return _concluded(run, chain, json.loads(answer)), True

    def _started(self, environment: Environment) -> CheckChild:
        with self._lock:
            if self._is_ending:
                raise InterruptedError("the check was stopped")
            child = CheckChild(environment)
            self._alive.add(child)
        return child

    def _forget(self, child: CheckChild) -> None:
        with self._lock:
            self._alive.discard(child)


def _order(run: CheckRun, chain: Path, tick: int | None, dump: Path | None) -> dict[str, Any]:
    how = {"rtf": run.environment.rtf, "short_s": run.environment.short_s, "chain": str(chain)}
    return {**vars(run.case), **how, "tick": tick, "dump": None if dump is None else str(dump)}


def _concluded(run: CheckRun, chain: Path, answer: dict[str, Any]) -> Result:
    if "error" in answer:
        return Result(run, chain, error=str(answer["error"]), is_refused=True)
    return Result(run, chain, answer["digest"], answer["ticks"], answer["seed"])


def run_all(
    runs: Sequence[CheckRun], children: Children, jobs: int, on_result: Callable[[Result], None]
) -> dict[CheckRun, Result]:
    """Every run's result, from at most `jobs` processes at a time."""
    results: dict[CheckRun, Result] = {}
    found: queue.SimpleQueue[Result | BaseException] = queue.SimpleQueue()
    pool = ThreadPoolExecutor(jobs)
    try:
        for batch in batches(runs, jobs):
            pool.submit(_run_batch, children, batch, found)
        while len(results) < len(runs):
            with suppress(queue.Empty):  # with a short timeout, so that Ctrl-C takes effect at once
                result = found.get(timeout=0.2)
                if isinstance(result, BaseException):
                    raise result
                results[result.run] = result
                on_result(result)
    except BaseException:  # Ctrl-C too: no process may stay behind
        children.end()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    return results


def _run_batch(children: Children, runs: Sequence[CheckRun], found: queue.SimpleQueue[Result | BaseException]) -> None:
    try:
        for result in children.run_each(runs):
            found.put(result)
    except BaseException as error:  # raised where results are awaited
        found.put(error)


def batches(runs: Sequence[CheckRun], jobs: int) -> list[list[CheckRun]]:
    """What each process runs, all in one environment.

    Every second environment has the order reversed, which reveals a run that depends on what its process ran before.
    Paced runs come first: they take longest, and leave the processor to others.
    """
    by_name: dict[str, list[CheckRun]] = {}
    for run in runs:
        by_name.setdefault(run.environment.name, []).append(run)
    parts = max(1, -(-jobs // max(len(by_name), 1)))
    found = []
    for index, mine in enumerate(by_name.values()):
        ordered = mine[::-1] if index % 2 else mine
        found += [part for start in range(parts) if (part := ordered[start::parts])]
    return sorted(found, key=lambda batch: not batch[0].environment.rtf)


# ---- in the child ----------------------------------------------------------------------------------------------------


def run_order(order: dict[str, Any]) -> dict[str, Any]:
    """Run one mission; write the digests to `chain` and the messages of `tick` to `dump`."""
    from microsim.parts.missions import MissionPilot, load_mission
    from microsim.runner import Runner
    from microsim.scenario import load_scenario
    from microsim.simulation import Simulation

    mission = load_mission(order["mission"] or {"duration": order["duration"]})
    seed = order["seed"] if order["seed"] is not None else mission.seed
    sim = Simulation(load_scenario(order["scenario"], controllers=order["controllers"]), seed)
    pilot = MissionPilot(sim, mission)
    ticks = pilot.end
    if order["short_s"] is not None:
        ticks = min(ticks, sim.clock.ticks_in(Fraction(str(order["short_s"]))))
    if order.get("dump") is not None:
        ticks = min(ticks, order["tick"])
    with Path(order["chain"]).open("wb") as chain:

        def keep(messages: Sequence[Message]) -> None:
            chain.write(bytes.fromhex(sim.digest()))
            if order.get("dump") is not None and sim.tick == order["tick"]:
                _dump(messages, runner.messages - len(messages), Path(order["dump"]))

        runner = Runner(sim, order["rtf"], pilot)
        runner.listen(messages=keep)
        runner.run(ticks)
    return {"digest": sim.digest(), "ticks": sim.tick, "seed": sim.seed, "violations": pilot.violations()}


def _dump(messages: Sequence[Message], before: int, file: Path) -> None:
    """The messages of one tick, and how many came before it."""
    rows = [[each.topic, each.type, each.stamp_ns, each.cdr.hex()] for each in messages]
    file.write_text(json.dumps({"before": before, "messages": rows}), encoding="utf-8")


def main() -> None:
    with answering() as answer:
        for line in sys.stdin:
            try:
                answer(run_order(json.loads(line)))
            except MicroSimError as error:
                answer({"error": str(error)})


# ---- what differs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheckVerdict:
    """One case in all environments."""

    case: Case
    reference: Result
    same: tuple[str, ...]  # names of environments with the reference's messages
    different: tuple[Result, ...]
    broken: tuple[Result, ...]  # no digest at all

    @property
    def is_good(self) -> bool:
        return not self.different and not self.broken


def judged(case: Case, environments: Sequence[Environment], results: Mapping[CheckRun, Result]) -> CheckVerdict:
    """The first environment is the reference."""
    mine = [results[CheckRun(case, environment)] for environment in environments]
    reference = mine[0]
    broken = tuple(result for result in mine if result.error)
    if reference.error:
        return CheckVerdict(case, reference, (), (), broken)
    whole = [result for result in mine[1:] if not result.error]
    different = tuple(result for result in whole if not _agree(reference, result))
    same = tuple(result.run.environment.name for result in whole if result not in different)
    return CheckVerdict(case, reference, same, different, broken)


def _agree(reference: Result, result: Result) -> bool:
    """A shorter run must have had the reference's digest at the same tick."""
    is_short = result.run.environment.short_s is not None
    if not is_short and result.ticks != reference.ticks:
        return False
    return bytes.fromhex(result.digest) == reference.digest_at(result.ticks)


def first_tick(one: Path, other: Path) -> int:
    """The first tick after which two chains of digests differ."""
    left, right = one.read_bytes(), other.read_bytes()
    shared = min(len(left), len(right))
    return next((place for place in range(shared) if left[place] != right[place]), shared) // DIGEST_BYTES


@dataclass(frozen=True)
class Finding:
    """Where two environments differ."""

    result: Result
    tick: int
    difference: Difference | None  # None: not reproduced, so the run differs from itself
    error: str = ""

    @property
    def topic(self) -> str:
        here = self.difference and (self.difference.first.here or self.difference.second.here)
        return here.topic if here else ""

    def __str__(self) -> str:
        case, name = self.result.run.case, self.result.run.environment.name
        head = f"{case}: {name} differs from the reference, first at tick {self.tick}"
        if self.error:
            return f"{head}; repeating both failed: {self.error}"
        if self.difference is None:
            return (
                f"{head}; repeated, each alone, both agree there: the run sometimes differs from itself, or depends on "
                "what its process ran before"
            )
        return f"{head}, on {self.topic}\n" + "\n".join(f"  {line}" for line in str(self.difference).splitlines())


def find(reference: Result, result: Result, children: Children) -> Finding:
    """Repeat both up to the first tick that differs and compare its messages."""
    tick = first_tick(reference.chain, result.chain)
    dumps = [children.folder / f"{name}.json" for name in ("reference", "other")]
    for run, dump in zip((reference.run, result.run), dumps, strict=True):
        again = children.run(run, tick, dump)
        if again.error or not dump.exists():
            return Finding(result, tick, None, again.error or "the run ends before that tick")
    names = (reference.run.environment.name, result.run.environment.name)
    before, one = _dumped(dumps[0])
    _, other = _dumped(dumps[1])
    return Finding(result, tick, _difference(before, one, other, names))


def _dumped(file: Path) -> tuple[int, list[BagEntry]]:
    """(number of messages before the tick, those of the tick); removes the file."""
    from microsim.recording.compare import BagEntry

    dumped = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    return dumped["before"], [
        BagEntry(topic, kind, at, bytes.fromhex(cdr)) for topic, kind, at, cdr in dumped["messages"]
    ]


def _difference(
    before: int, one: Sequence[BagEntry], other: Sequence[BagEntry], names: tuple[str, str]
) -> Difference | None:
    from microsim.recording.compare import Difference

    for index in range(max(len(one), len(other))):
        if index >= min(len(one), len(other)) or one[index] != other[index]:
            return Difference(before + index, _around(one, index), _around(other, index), names)
    return None


def _around(entries: Sequence[BagEntry], index: int) -> StreamPlace:
    from microsim.recording.compare import StreamPlace

    before, here, after = (entries[i] if 0 <= i < len(entries) else None for i in (index - 1, index, index + 1))
    return StreamPlace(before, here, after)
