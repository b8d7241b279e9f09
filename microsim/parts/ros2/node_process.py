"""Nodes that a run starts and ends, and that faults suspend, kill and restart."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal, TypeAlias

from microsim.engine.faults import of_target
from microsim.errors import UsageError
from microsim.faults import FAULTS, NODE, OnNode
from microsim.processes import kill_all, signal_all, started
from microsim.runner import Runner, Watcher
from microsim.simulation import Simulation

if TYPE_CHECKING:
    from microsim.parts.ros2.microsim_node import MicroSimNode

Presence: TypeAlias = Literal["there", "paused", "dead"]


def split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--with: {error} in {command!r}") from None
    if not words:
        raise UsageError("--with needs a command that starts the node, such as 'ros2 run my_package my_node'")
    return words


class NodeProcess:
    """What `--with` started. `look` follows the faults of the run; a context, which ends the processes."""

    def __init__(self, command: str, note: Callable[[str], None]) -> None:
        if not hasattr(os, "killpg"):
            raise UsageError("--with needs signals for groups of processes, which this system does not have")
        self._command, self._note = split(command), note
        self._stack = ExitStack()
        self.presence: Presence = "there"

    def __enter__(self) -> NodeProcess:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self._stack.close()
        self._process = self._stack.enter_context(started(self._command, os.environ))

    def check(self) -> None:
        """That it runs, unless a fault ended it."""
        status = self._process.process.poll()
        if status is not None and self.presence != "dead":
            raise UsageError(f"--with: {self._command[0]} ended with status {status}: {self._process.errors()}")

    def look(self, sim: Simulation) -> Presence:
        """Bring it into the state that the faults of this tick say."""
        wanted: Presence = "there"
        for fault in of_target(sim.health.faults, NODE):
            kind = FAULTS.find(fault.kind, sim.scenario.plugins)
            effect = None if kind is None else kind.effect
            if isinstance(effect, OnNode) and fault.first_tick <= sim.tick < fault.end_tick:
                wanted = "dead" if effect.kills or wanted == "dead" else "paused"
        if wanted != self.presence:
            before, self.presence = self.presence, wanted
            self._change(before, wanted)
        return wanted

    def _change(self, before: Presence, wanted: Presence) -> None:
        if wanted == "dead":
            kill_all(self._process.process)
        elif before == "dead":
            self._start()
        if wanted == "paused":
            signal_all(self._process.process, signal.SIGSTOP)
        elif before == "paused":
            signal_all(self._process.process, signal.SIGCONT)
        self._note(f"{self._command[0]} was {_DONE[before, wanted]}")


_DONE: dict[tuple[Presence, Presence], str] = {
    ("there", "paused"): "stopped",
    ("paused", "there"): "continued",
    ("there", "dead"): "killed",
    ("paused", "dead"): "killed",
    ("dead", "there"): "started again",
    ("dead", "paused"): "started again and stopped",
}


def start_nodes(command: str, node: MicroSimNode | None, runner: Runner, stack: ExitStack) -> None:
    """What `--with` says."""
    if node is None:
        raise UsageError("--with starts a ROS 2 node: leave out --transport none and --rtf 0")
    node.processes = stack.enter_context(NodeProcess(command, lambda text: runner.note("info", text)))
    runner.watchers.append(Watcher(1.0, node.processes.check))
