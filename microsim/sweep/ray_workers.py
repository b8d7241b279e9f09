"""Workers on a Ray cluster. Ray is imported only here: it is an optional extra, and takes seconds to start."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from microsim.errors import UsageError, install_hint
from microsim.sweep.run_one import SweepOrder, SweepRunner
from microsim.sweep.worker_pool import MAX_STARTS, Done, Lost, Task, WorkerError
from microsim.version import __version__

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
            self._bad_starts = 0
            self._calls: dict[Any, _Actor] = {}  # in progress; an actor that is not here is free
            self._free: list[_Actor] = []
            for _ in range(self.size):
                self._start()
        except BaseException:
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
            actor.is_ready, self._bad_starts = True, 0
        else:
            yield from answer
        actor.pending = []
        self._free.append(actor)

    def _lost(self, actor: _Actor, error: Exception) -> Iterable[Lost]:
        why = " ".join(str(error).split())[:300]
        if actor.is_late:
            why = f"no result within {self.timeout_s:g} s for each run; allow more with --timeout"
        if not actor.is_ready:
            self._bad_starts += 1
            if self._bad_starts >= MAX_STARTS:
                raise WorkerError(f"workers do not start on the cluster: {why}")
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
