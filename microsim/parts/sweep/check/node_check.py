"""Whether a user's node is deterministic: the same lockstep run with it under varied load, and what differs first."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from microsim.parts.ros2.node_process import split
from microsim.processes import StartedProcess, signal_all, started

PAUSE_S = 0.2  # longest that a node is stopped for, and
BETWEEN_S = 0.3  # longest time between two of these pauses
GRACE_S = 5.0  # for the run to end after the node has
POLL_S = 0.05


@dataclass(frozen=True)
class LoadCondition:
    """Under what the loop is closed; each differs from the first in one thing."""

    name: str
    about: str
    hash_seed: str = "0"  # PYTHONHASHSEED of the node
    rtf: float = 0.0
    on_one_core: bool = False
    is_busy: bool = False
    has_pauses: bool = False


def conditions() -> tuple[LoadCondition, ...]:
    """The reference first; without what this system cannot vary."""
    found = [
        LoadCondition("reference", "as fast as the node replies"),
        LoadCondition("again", "the same once more"),
        LoadCondition("hash_seed", "another PYTHONHASHSEED", hash_seed="271828"),
        LoadCondition("busy", "all cores are used by other processes", is_busy=True),
        LoadCondition("real_time", "not faster than real time", rtf=1.0),
    ]
    if hasattr(os, "sched_setaffinity"):
        found.append(LoadCondition("one_core", "the simulator and the node share one core", on_one_core=True))
    if hasattr(signal, "SIGSTOP"):
        about = f"the node is stopped for up to {1000 * PAUSE_S:.0f} ms, again and again"
        found.append(LoadCondition("pauses", about, has_pauses=True))
    return tuple(found)


@dataclass(frozen=True)
class LoopRun:
    """A run with the node."""

    condition: LoadCondition
    folder: Path  # its recording
    digest: str = ""
    ticks: int = 0
    seed: int | None = None
    error: str = ""


class NodeCheck:
    """`run_arguments`: of `microsim run`, beside what is varied; `command`: starts the node, without a shell."""

    def __init__(self, run_arguments: Sequence[str], command: str, folder: Path, timeout_s: float) -> None:
        self._arguments, self._folder, self._timeout_s = run_arguments, folder, timeout_s
        self._command = split(command)
        own = {"ROS_DOMAIN_ID": str(1 + os.getpid() % 100), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
        self._variables = {**own, **os.environ}

    def run(self, condition: LoadCondition) -> LoopRun:
        folder = self._folder / condition.name
        with ExitStack() as stack:
            if condition.is_busy:
                stack.enter_context(_busy_cores())
            with _one_core() if condition.on_one_core else ExitStack():  # what is started here stays on it
                simulator = stack.enter_context(started(self._simulator(folder, condition), self._variables))
                variables = {**self._variables, "PYTHONHASHSEED": condition.hash_seed}
                node = stack.enter_context(started(self._command, variables))
            if condition.has_pauses:
                stack.enter_context(_pauses(node.process))
            error = self._awaited(simulator, node)
            if error:
                return LoopRun(condition, folder, error=error)
            try:
                answer = json.loads(simulator.output())
                return LoopRun(condition, folder, str(answer["digest"]), int(answer["ticks"]), int(answer["seed"]))
            except (ValueError, KeyError, TypeError):
                return LoopRun(condition, folder, error=f"the run gave no result: {simulator.errors()}")

    def _simulator(self, folder: Path, condition: LoadCondition) -> list[str]:
        own = ["--record", str(folder), "--rtf", str(condition.rtf), "--json", "--quiet"]
        return [sys.executable, "-m", "microsim", "run", *self._arguments, *own]

    def _awaited(self, simulator: StartedProcess, node: StartedProcess) -> str:
        """Why there is no result."""
        end = time.monotonic() + self._timeout_s
        while simulator.process.poll() is None:
            if node.process.poll() is not None:
                end = min(end, time.monotonic() + GRACE_S)
            if time.monotonic() > end:
                if node.process.poll() is not None:
                    return f"the node ended before the run, with status {node.process.returncode}: {node.errors()}"
                return f"not finished within {self._timeout_s:g} s: {simulator.errors()}"
            with suppress(subprocess.TimeoutExpired):
                simulator.process.wait(POLL_S)
        return f"the run failed: {simulator.errors()}" if simulator.process.returncode else ""


@contextmanager
def _busy_cores() -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            stack.enter_context(started([sys.executable, "-c", "while True: pass"], os.environ))
        yield


@contextmanager
def _one_core() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _pauses(process: subprocess.Popen[bytes]) -> Iterator[None]:
    is_over, chance = threading.Event(), random.Random(1)

    def work() -> None:
        while not is_over.wait(BETWEEN_S * chance.random()):
            signal_all(process, signal.SIGSTOP)
            is_over.wait(PAUSE_S * chance.random())
            signal_all(process, signal.SIGCONT)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def first_differences(runs: Sequence[LoopRun]) -> dict[str, str]:
    """Name of each condition that gave another digest than the first -> what differs first."""
    from microsim.recording.bag_io import open_bag
    from microsim.recording.compare import diff

    reference, found = runs[0], {}
    for run in runs[1:]:
        if not run.error and run.digest != reference.digest:
            comparison = diff(open_bag(reference.folder), open_bag(run.folder))
            found[run.condition.name] = comparison.culprit or comparison.summary()
    return found


def check_node(check: NodeCheck, tried: Sequence[LoadCondition], on_run: Callable[[LoopRun], None]) -> list[LoopRun]:
    """One after another: they would disturb each other. Without a reference there is nothing to compare."""
    runs: list[LoopRun] = []
    for condition in tried:
        runs.append(check.run(condition))
        on_run(runs[-1])
        if runs[0].error:
            break
    return runs
