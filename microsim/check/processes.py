"""Runs children side by side: a bounded number, each with a time limit, all ended when this process is told to end."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microsim.check.child import DIGEST_BYTES
from microsim.check.environments import Environment
from microsim.processes import kill, obituary


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
    """One process: a case in an environment."""

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


class Children:
    """Starts processes and can end all of them at once."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        self.folder, self.timeout_s = folder, timeout_s
        self._lock = threading.Lock()
        self._alive: set[subprocess.Popen[str]] = set()
        self._count = 0
        self._is_ending = False

    def run(self, run: Run, tick: int | None = None, dump: Path | None = None) -> Result:
        """Fly; with `tick` and `dump`, only to that tick, whose messages are written."""
        with self._lock:
            self._count += 1
            chain = self.folder / f"{self._count}.chain"
        order = {
            "scenario": run.case.scenario,
            "mission": run.case.mission,
            "seed": run.case.seed,
            "rtf": run.environment.rtf,
            "short_s": run.environment.short_s,
            "chain": str(chain),
            "tick": tick,
            "dump": None if dump is None else str(dump),
        }
        return self._concluded(run, chain, *self._answer(run, json.dumps(order)))

    def end(self) -> None:
        with self._lock:
            self._is_ending = True
            for process in self._alive:
                kill(process)

    def _answer(self, run: Run, order: str) -> tuple[int | None, str, str]:
        """(exit code, stdout, stderr); None: it was ended."""
        try:
            process = self._started(run, order)
        except OSError as error:  # no more processes, or no memory for one
            return None, "", f"the process could not be started: {error.strerror or error}"
        if process is None:
            return None, "", "stopped"
        try:
            stdout, stderr = process.communicate(timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            kill(process)
            process.communicate()
            return None, "", f"no answer in {self.timeout_s:g} s; give it more with --timeout"
        finally:
            with self._lock:
                self._alive.discard(process)
        return process.returncode, stdout, stderr

    def _started(self, run: Run, order: str) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._is_ending:
                return None
            process = subprocess.Popen(
                [sys.executable, "-m", "microsim.check.child", order],
                env=run.environment.process_variables(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C is for us; we end them
            )
            self._alive.add(process)
        return process

    @staticmethod
    def _concluded(run: Run, chain: Path, code: int | None, stdout: str, stderr: str) -> Result:
        if code is None:
            return Result(run, chain, error=stderr)
        lines = stdout.strip().splitlines()
        answer: Any = None
        with suppress(ValueError, IndexError):
            answer = json.loads(lines[-1])
        if code != 0 or not isinstance(answer, dict):
            return Result(run, chain, error=obituary(code, stderr))
        if "error" in answer:
            return Result(run, chain, error=str(answer["error"]), is_refused=True)
        return Result(run, chain, answer["digest"], answer["ticks"], answer["seed"])


def run_all(
    runs: Sequence[Run], children: Children, jobs: int, on_result: Callable[[Result], None]
) -> dict[Run, Result]:
    """Every run's result, at most `jobs` at a time. Each environment is tried once first: it may have to compile."""
    first = list({run.environment.name: run for run in reversed(runs)}.values())
    tried = set(first)
    rest = [run for run in runs if run not in tried]
    results: dict[Run, Result] = {}
    pool = ThreadPoolExecutor(jobs)
    try:
        for batch in (first, rest):
            for result in _completed([pool.submit(children.run, run) for run in batch]):
                results[result.run] = result
                on_result(result)
    except BaseException:
        children.end()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    return results


def _completed(futures: Iterable[Future[Result]]) -> Iterable[Result]:
    """As they come; waits in short turns, so that Ctrl-C is taken at once."""
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()
