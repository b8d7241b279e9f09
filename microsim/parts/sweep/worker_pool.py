"""Workers that receive runs and return results: processes of this machine, or actors on a Ray cluster.

A worker is `main` in a process. It receives lines of JSON, the order and then lists of tasks, and answers with a line
for each result.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from microsim.errors import MicroSimError, UsageError, install_hint, os_errors
from microsim.parts.sweep.metrics import Value
from microsim.parts.sweep.run_one import RunFailure, SweepOrder, SweepRunner
from microsim.processes import THREAD_VARIABLES, ChildProcess, answering
from microsim.version import __version__

MAX_STARTS = 3  # workers in a row that may die before they are ready

Task: TypeAlias = tuple[int, int, int]  # run, combination, seed


class WorkerError(MicroSimError):
    """There are no workers: they do not start, or the cluster cannot be reached."""


@dataclass(frozen=True)
class Done:
    run: int
    result: Sequence[Value] | RunFailure


@dataclass(frozen=True)
class Lost:
    """A worker died and was replaced."""

    suspects: Sequence[int]  # one of these runs was in progress
    others: Sequence[int]  # runs it had not started
    why: str


class WorkerPool(Protocol):
    size: int

    def has_room(self) -> bool:
        """Whether a worker has little left to do."""

    def give(self, tasks: Sequence[Task]) -> None:
        """To that worker."""

    def wait(self, seconds: float) -> Iterable[Done | Lost]:
        """What happened, after at most this long."""

    def close(self) -> None:
        """End all workers at once, whatever they are doing."""


@dataclass
class Starts:
    """Counts workers in a row that died before they were ready."""

    where: str = ""
    bad: int = 0

    def failed(self, why: str) -> None:
        self.bad += 1
        if self.bad >= MAX_STARTS:
            raise WorkerError(f"workers do not start{self.where}: {why}")


# ---- processes of this machine ---------------------------------------------------------------------------------------


class Worker(ChildProcess):
    def __init__(self, order: bytes, events: queue.SimpleQueue[tuple[Worker, bytes]]) -> None:
        super().__init__(__name__, {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")})
        self.pending: deque[int] = deque()  # runs, in the order in which it takes them
        self.is_ready = self.is_late = False
        self.since = time.monotonic()  # when it started what it is doing
        threading.Thread(target=self._listen, args=(events,), daemon=True).start()
        self.send(order)

    def _listen(self, events: queue.SimpleQueue[tuple[Worker, bytes]]) -> None:
        with suppress(ValueError):  # closed while it was read: the pool has ended it
            for line in self.answers:
                events.put((self, line))
        events.put((self, b""))

    def give(self, tasks: Sequence[Task]) -> None:
        if not self.pending:
            self.since = time.monotonic()
        self.pending.extend(run for run, _, _ in tasks)
        self.send(json.dumps(tasks).encode())


class LocalWorkers:
    """A number of processes; one that dies, or takes longer than `timeout_s` for a run, is replaced."""

    def __init__(self, order: SweepOrder, jobs: int, timeout_s: float) -> None:
        self.size, self.timeout_s = jobs, timeout_s
        self._order = json.dumps(order.to_plain()).encode()
        self._events: queue.SimpleQueue[tuple[Worker, bytes]] = queue.SimpleQueue()
        self._starts = Starts()
        self._workers: list[Worker] = []
        try:
            self._workers += [self._started() for _ in range(jobs)]
        except BaseException:  # Ctrl-C too: no process may stay behind
            self.close()
            raise

    def _started(self) -> Worker:
        with os_errors("a process could not be started", WorkerError):
            return Worker(self._order, self._events)

    def is_ready(self) -> bool:
        """Whether all have started."""
        return all(worker.is_ready for worker in self._workers)

    def has_room(self) -> bool:
        """A worker gets more when it has one run left, so that it never waits for us."""
        return len(self._least_busy().pending) <= 1

    def give(self, tasks: Sequence[Task]) -> None:
        self._least_busy().give(tasks)

    def _least_busy(self) -> Worker:
        return min(self._workers, key=lambda worker: len(worker.pending))

    def wait(self, seconds: float) -> Iterable[Done | Lost]:
        found: list[tuple[Worker, bytes]] = []
        with suppress(queue.Empty):
            found.append(self._events.get(timeout=seconds))
            while True:
                found.append(self._events.get_nowait())
        for worker, line in found:
            event = self._answered(worker, line) if line else self._lost(worker)
            if event is not None:
                yield event
        self._end_late()

    def _answered(self, worker: Worker, line: bytes) -> Done | None:
        answer = json.loads(line)
        worker.since = time.monotonic()
        if answer == "ready":
            worker.is_ready, self._starts.bad = True, 0
            return None
        run, values, error, is_final = answer
        worker.pending.remove(run)
        return Done(run, RunFailure(error, is_final) if error else values)

    def _lost(self, worker: Worker) -> Lost | None:
        if worker not in self._workers:
            return None
        self._workers.remove(worker)
        why = worker.end_gracefully()
        if worker.is_late:
            why = f"no result in {self.timeout_s:g} s; allow more with --timeout"
        if not worker.is_ready:
            self._starts.failed(why)
        self._workers.append(self._started())
        runs, started = list(worker.pending), 1 if worker.is_ready else 0
        return Lost(runs[:started], runs[started:], why)

    def _end_late(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.pending and worker.is_ready and not worker.is_late and now - worker.since > self.timeout_s:
                worker.is_late = True
                worker.kill()

    def close(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.end()


# ---- in the worker ---------------------------------------------------------------------------------------------------


def main() -> None:
    try:
        _work()
    except BrokenPipeError:  # the sweep is gone
        pass
    except BaseException:  # the sweep shows the last lines
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)  # without the interpreter's shutdown, which would wait for the thread that reads requests


def _work() -> None:
    with answering() as answer:
        requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_receive, args=(requests,), daemon=True).start()
        runner = SweepRunner(SweepOrder.from_plain(json.loads(requests.get())))
        answer("ready")
        while True:
            for run, combination, seed in json.loads(requests.get()):
                result = runner.run(combination, seed)
                failure = result if isinstance(result, RunFailure) else RunFailure("", is_final=False)
                answer([run, [] if isinstance(result, RunFailure) else result, failure.error, failure.is_final])


def _receive(requests: queue.SimpleQueue[bytes]) -> None:
    """When the sweep is gone, no result is of use: the worker ends in the middle of its run."""
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)


# ---- a Ray cluster: Ray is an optional extra and takes seconds to start, so it is imported only when requested -------

LOCAL = "local"  # as an address: a private cluster on this machine
_CONNECT_S = 5.0
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray warns about its own default otherwise
}


class RayWorker:
    """The actor, on a node of the cluster that has the same version of MicroSim."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.runner = SweepRunner(SweepOrder.from_plain(order))

    def version(self) -> str:
        return __version__

    def run(self, tasks: Sequence[Task]) -> list[Done]:
        return [Done(run, self.runner.run(combination, seed)) for run, combination, seed in tasks]


@dataclass
class _Actor:
    handle: Any
    pending: list[int] = field(default_factory=list)
    is_ready: bool = False
    is_late: bool = False
    since: float = field(default_factory=time.monotonic)


class RayWorkers:
    def __init__(self, order: SweepOrder, address: str, jobs: int | None, timeout_s: float) -> None:
        self._ray = _ray(address)
        self.timeout_s = timeout_s
        _connect(self._ray, address, jobs)
        try:
            self.size = jobs or max(int(self._ray.cluster_resources().get("CPU", 1)), 1)
            self._order = self._ray.put(order.to_plain())
            self._actor_class = self._ray.remote(num_cpus=1, max_restarts=0)(RayWorker)
            self._starts = Starts(" on the cluster")
            self._calls: dict[Any, _Actor] = {}  # in progress; an actor that is not here is free
            self._free: list[_Actor] = []
            for _ in range(self.size):
                self._start()
        except BaseException:  # Ctrl-C too: no process may stay behind
            self.close()
            raise

    def _start(self) -> None:
        actor = _Actor(self._actor_class.remote(self._order))
        self._calls[actor.handle.version.remote()] = actor

    def has_room(self) -> bool:
        return bool(self._free)

    def give(self, tasks: Sequence[Task]) -> None:
        actor = self._free.pop(0)
        actor.pending, actor.since = [run for run, _, _ in tasks], time.monotonic()
        self._calls[actor.handle.run.remote(tasks)] = actor

    def wait(self, seconds: float) -> Iterable[Done | Lost]:
        if not self._calls:
            return
        calls = list(self._calls)
        ready, _ = self._ray.wait(calls, num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0)
        for call in ready:
            yield from self._concluded(call, self._calls.pop(call))
        self._end_late()

    def _concluded(self, call: Any, actor: _Actor) -> Iterable[Done | Lost]:
        try:
            answer = self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            yield from self._lost(actor, error)
            return
        if isinstance(answer, str):
            if answer != __version__:
                raise WorkerError(
                    f"the cluster has microsim {answer}, this machine has {__version__}; install the same version"
                )
            actor.is_ready, self._starts.bad = True, 0
        else:
            yield from answer
        actor.pending = []
        self._free.append(actor)

    def _lost(self, actor: _Actor, error: Exception) -> Iterable[Lost]:
        why = " ".join(str(error).split())[:300]
        if actor.is_late:
            why = f"no result within {self.timeout_s:g} s for each run; allow more with --timeout"
        if not actor.is_ready:
            self._starts.failed(why)
        self._ray.kill(actor.handle)  # it may be alive, and only have raised an error
        self._start()
        if actor.is_ready:
            yield Lost(actor.pending, [], why)

    def _end_late(self) -> None:
        now = time.monotonic()
        for actor in self._calls.values():
            allowed = self.timeout_s * max(len(actor.pending), 1)
            if actor.is_ready and not actor.is_late and now - actor.since > allowed:
                actor.is_late = True
                self._ray.kill(actor.handle)

    def close(self) -> None:
        self._ray.shutdown()


def _ray(address: str) -> Any:
    variables = {**_QUIET, **(_private_cluster() if address == LOCAL else {})}
    for key, value in variables.items():
        os.environ.setdefault(key, value)
    try:
        return import_module("ray")
    except ImportError:
        raise WorkerError(f"--ray needs Ray: {install_hint('ray')}") from None


def _private_cluster() -> dict[str, str]:
    """On 127.0.0.1 and only for us, with a token that is not stored; Ray by default stores one in the home folder."""
    loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # despite its name it has this effect on every system
    if "RAY_AUTH_MODE" in os.environ:
        return loopback
    return {**loopback, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _connect(ray: Any, address: str, jobs: int | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": "error", "configure_logging": False}
    _check_reachable(address)
    if address == LOCAL:
        ray.init(num_cpus=jobs, include_dashboard=False, **quiet)
    else:
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            reason = " ".join(str(error).split())[:300]
            hint = "" if "RAY_AUTH_MODE" in os.environ else "; does it require a token (RAY_AUTH_MODE, RAY_AUTH_TOKEN)?"
            raise WorkerError(f"no Ray cluster at {address!r}: {reason}{hint}") from None


def _check_reachable(address: str) -> None:
    """Ray itself waits minutes for a cluster that does not exist."""
    host, found, port = address.removeprefix("ray://").rpartition(":")
    if not found or not port.isdecimal():
        if address not in (LOCAL, "auto"):
            raise UsageError(f"--ray: expected HOST:PORT, ray://HOST:PORT, auto or {LOCAL}, found {address!r}")
        return
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise WorkerError(f"no Ray cluster at {address!r}: {error}") from None
