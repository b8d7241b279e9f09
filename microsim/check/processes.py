"""Runs children side by side: a bounded number, each run with a time limit, all ended when this process is told to end.

A child flies one mission after another in the environment it was started with: starting takes longer than flying.
"""

from __future__ import annotations

import json
import os
import queue
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from microsim.check.child import DIGEST_BYTES
from microsim.check.environments import Environment
from microsim.processes import kill, obituary

_PATIENCE_S = 5.0  # for a process whose pipe is closed to end
_LAST_WORDS = 4000  # bytes


@dataclass(frozen=True)
class Case:
    """What is flown."""

    scenario: str
    mission: str
    seed: int | None  # None: the mission's or the scenario's

    def __str__(self) -> str:
        return f"{self.scenario} × {self.mission}" + ("" if self.seed is None else f", seed {self.seed}")


@dataclass(frozen=True)
class Run:
    """A case in an environment."""

    case: Case
    environment: Environment


@dataclass(frozen=True)
class Result:
    run: Run
    chain: Path  # the digest after each tick, 32 bytes each
    digest: str = ""
    ticks: int = 0
    seed: int = 0
    error: str = ""  # why there is no digest
    is_refused: bool = False  # the input is wrong; otherwise the process broke

    def digest_at(self, tick: int) -> bytes:
        return self.chain.read_bytes()[DIGEST_BYTES * tick : DIGEST_BYTES * (tick + 1)]


class Child:
    """A process that is asked and answers, in lines."""

    def __init__(self, environment: Environment) -> None:
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", "microsim.check.child"],
            env=environment.process_variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for us; we end them
        )

    def ask(self, order: str, timeout_s: float) -> bytes | None:
        """The answer; empty: the process has ended; None: there was none in time."""
        assert self.process.stdin is not None
        with suppress(OSError):  # it is gone: then there is no answer either
            self.process.stdin.write(order.encode() + b"\n")
        return self._line(time.monotonic() + timeout_s)

    def _line(self, until: float) -> bytes | None:
        assert self.process.stdout is not None
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(until - time.monotonic(), 0.0)):
                    return None
                part = os.read(self.process.stdout.fileno(), 65536)
                if not part:
                    return b""
                line += part
        return line

    def end(self) -> str:
        """How it ended, if it did so by itself."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_PATIENCE_S)
        return self.ended()

    def ended(self) -> str:
        """End it, if it has not."""
        kill(self.process)
        code = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self._words.seek(0)
        words = self._words.read()[-_LAST_WORDS:].decode(errors="replace")
        self._words.close()
        return obituary(code, words)


class Children:
    """Starts processes and can end all of them at once."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        self.folder, self.timeout_s = folder, timeout_s
        self._lock = threading.Lock()
        self._alive: set[Child] = set()
        self._count = 0
        self._is_ending = False

    def run(self, run: Run, tick: int | None = None, dump: Path | None = None) -> Result:
        """Fly in a process of its own; with `tick` and `dump`, only to that tick, whose messages are written."""
        (result,) = self.fly([run], tick, dump)
        return result

    def fly(self, runs: Sequence[Run], tick: int | None = None, dump: Path | None = None) -> Iterator[Result]:
        """One after another in one process, all in the environment of the first; in a new one when that ends."""
        child: Child | None = None
        try:
            for run in runs:
                if child is None:
                    try:
                        child = self._started(run.environment)
                    except OSError as error:  # no more processes, or no memory for one
                        yield Result(run, Path(), error=f"a process could not be started: {error.strerror or error}")
                        continue
                    if child is None:
                        yield Result(run, Path(), error="stopped")
                        continue
                result, is_alive = self._asked(child, run, tick, dump)
                if not is_alive:
                    self._forget(child)
                    child = None
                yield result
        finally:
            if child is not None:
                child.ended()
                self._forget(child)

    def end(self) -> None:
        with self._lock:
            self._is_ending = True
            for child in self._alive:
                kill(child.process)

    def _asked(self, child: Child, run: Run, tick: int | None, dump: Path | None) -> tuple[Result, bool]:
        """The result, and whether the child is still there."""
        with self._lock:
            self._count += 1
            chain = self.folder / f"{self._count}.chain"
        answer = child.ask(json.dumps(_order(run, chain, tick, dump)), self.timeout_s)
        if answer is None:
            child.ended()
            return Result(run, chain, error=f"no answer in {self.timeout_s:g} s; give it more with --timeout"), False
        if not answer:
            return Result(run, chain, error=child.end()), False
        return _concluded(run, chain, json.loads(answer)), True

    def _started(self, environment: Environment) -> Child | None:
        with self._lock:
            if self._is_ending:
                return None
            child = Child(environment)
            self._alive.add(child)
        return child

    def _forget(self, child: Child) -> None:
        with self._lock:
            self._alive.discard(child)


def _order(run: Run, chain: Path, tick: int | None, dump: Path | None) -> dict[str, Any]:
    return {
        "scenario": run.case.scenario,
        "mission": run.case.mission,
        "seed": run.case.seed,
        "rtf": run.environment.rtf,
        "short_s": run.environment.short_s,
        "chain": str(chain),
        "tick": tick,
        "dump": None if dump is None else str(dump),
    }


def _concluded(run: Run, chain: Path, answer: dict[str, Any]) -> Result:
    if "error" in answer:
        return Result(run, chain, error=str(answer["error"]), is_refused=True)
    return Result(run, chain, answer["digest"], answer["ticks"], answer["seed"])


# ---- all of them -----------------------------------------------------------------------------------------------------


def run_all(
    runs: Sequence[Run], children: Children, jobs: int, on_result: Callable[[Result], None]
) -> dict[Run, Result]:
    """Every run's result, from at most `jobs` processes at a time."""
    results: dict[Run, Result] = {}
    found: queue.SimpleQueue[Result | BaseException] = queue.SimpleQueue()
    pool = ThreadPoolExecutor(jobs)
    try:
        for batch in batches(runs, jobs):
            pool.submit(_fly, children, batch, found)
        while len(results) < len(runs):
            with suppress(queue.Empty):  # in short turns, so that Ctrl-C is taken at once
                result = found.get(timeout=0.2)
                if isinstance(result, BaseException):
                    raise result
                results[result.run] = result
                on_result(result)
    except BaseException:
        children.end()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    return results


def _fly(children: Children, runs: Sequence[Run], found: queue.SimpleQueue[Result | BaseException]) -> None:
    try:
        for result in children.fly(runs):
            found.put(result)
    except BaseException as error:  # whoever waits for results must hear of it
        found.put(error)


def batches(runs: Sequence[Run], jobs: int) -> list[list[Run]]:
    """What one process flies each: runs of one environment, and of no other.

    Every second environment has the order reversed, so that a run that depends on what its process flew before is found
    out. Paced runs come first: they take longest, and leave the processor to others.
    """
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.environment.name, []).append(run)
    parts = max(1, -(-jobs // max(len(by_name), 1)))
    found = []
    for index, mine in enumerate(by_name.values()):
        ordered = mine[::-1] if index % 2 else mine
        found += [part for start in range(parts) if (part := ordered[start::parts])]
    return sorted(found, key=lambda batch: not batch[0].environment.rtf)
