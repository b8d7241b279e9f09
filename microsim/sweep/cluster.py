"""Workers on a Ray cluster. The one place where Ray is imported: it is an extra, and takes seconds to start."""

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
from microsim.sweep.crew import CrewError, Done, Lost, Task
from microsim.sweep.flying import Flyer, Order
from microsim.version import __version__

LOCAL = "local"  # as an address: a cluster of our own on this machine
_STARTS = 3  # workers in a row that may die before they are ready
_REACH_S = 5.0
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray warns about its own default otherwise
}


class RayWorker:
    """The actor: lives on a node of the cluster, which must have the same MicroSim."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.flyer = Flyer(Order.from_plain(order))

    def version(self) -> str:
        return __version__

    def fly(self, tasks: Sequence[Task]) -> list[Done]:
        return [Done(run, self.flyer.fly(combination, seed)) for run, combination, seed in tasks]


@dataclass
class _Hand:
    actor: Any
    pending: list[int] = field(default_factory=list)
    is_ready: bool = False
    is_late: bool = False
    since: float = field(default_factory=time.monotonic)


class RayCrew:
    def __init__(self, order: Order, address: str, jobs: int | None, timeout_s: float) -> None:
        self._ray = _ray(address)
        self.timeout_s = timeout_s
        _connect(self._ray, address, jobs)
        try:
            self.size = jobs or max(int(self._ray.cluster_resources().get("CPU", 1)), 1)
            self._order = self._ray.put(order.to_plain())
            self._actor_class = self._ray.remote(num_cpus=1, max_restarts=0)(RayWorker)
            self._bad_starts = 0
            self._calls: dict[Any, _Hand] = {}  # what is under way; a hand that is not here is free
            self._free: list[_Hand] = []
            for _ in range(self.size):
                self._hire()
        except BaseException:
            self.dismiss()
            raise

    def _hire(self) -> None:
        hand = _Hand(self._actor_class.remote(self._order))
        self._calls[hand.actor.version.remote()] = hand

    def has_room(self) -> bool:
        return bool(self._free)

    def give(self, tasks: Sequence[Task]) -> None:
        hand = self._free.pop(0)
        hand.pending, hand.since = [run for run, _, _ in tasks], time.monotonic()
        self._calls[hand.actor.fly.remote(tasks)] = hand

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

    def _concluded(self, call: Any, hand: _Hand) -> Iterable[Done | Lost]:
        try:
            answer = self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            yield from self._lost(hand, error)
            return
        if isinstance(answer, str):
            if answer != __version__:
                raise CrewError(f"the cluster has microsim {answer}, this machine {__version__}: install the same")
            hand.is_ready, self._bad_starts = True, 0
        else:
            yield from answer
        hand.pending = []
        self._free.append(hand)

    def _lost(self, hand: _Hand, error: Exception) -> Iterable[Lost]:
        why = " ".join(str(error).split())[:300]
        if hand.is_late:
            why = f"no result in time, which is {self.timeout_s:g} s a run; give it more with --timeout"
        if not hand.is_ready:
            self._bad_starts += 1
            if self._bad_starts >= _STARTS:
                raise CrewError(f"workers do not start on the cluster: {why}")
        self._ray.kill(hand.actor)  # it may be alive, and only have raised something
        self._hire()
        if hand.is_ready:
            yield Lost(hand.pending, [], why)

    def _end_late(self) -> None:
        now = time.monotonic()
        for hand in self._calls.values():
            allowed = self.timeout_s * max(len(hand.pending), 1)
            if hand.is_ready and not hand.is_late and now - hand.since > allowed:
                hand.is_late = True
                self._ray.kill(hand.actor)

    def dismiss(self) -> None:
        self._ray.shutdown()


def _ray(address: str) -> Any:
    variables = {**_QUIET, **(_own_cluster() if address == LOCAL else {})}
    for key, value in variables.items():
        os.environ.setdefault(key, value)
    try:
        return import_module("ray")
    except ImportError:
        raise CrewError(f"--ray needs Ray: {install_hint('ray')}") from None


def _own_cluster() -> dict[str, str]:
    """On 127.0.0.1 only, and for us only; left to itself, Ray would keep its token in the user's home."""
    loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # what it is called; it works on every system
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
            hint = "" if "RAY_AUTH_MODE" in os.environ else "; does it want a token (RAY_AUTH_MODE, RAY_AUTH_TOKEN)?"
            raise CrewError(f"no Ray cluster at {address!r}: {reason}{hint}") from None


def _check_reachable(address: str) -> None:
    """Ray itself would wait for minutes for a cluster that is not there."""
    host, found, port = address.removeprefix("ray://").rpartition(":")
    if not found or not port.isdecimal():
        if address not in (LOCAL, "auto"):
            raise UsageError(f"--ray: expected HOST:PORT, ray://HOST:PORT, auto or {LOCAL}, found {address!r}")
        return
    try:
        socket.create_connection((host, int(port)), _REACH_S).close()
    except (OSError, OverflowError) as error:
        raise CrewError(f"no Ray cluster at {address!r}: {error}") from None
