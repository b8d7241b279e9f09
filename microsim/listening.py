"""The one way to listen to a run: any number of listeners, each with functions for what it receives.

Listeners are called inside the run, so they must be quick. They see what happens and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from microsim.messages.outbox import Message, Messages
    from microsim.simulation import Simulation


@dataclass(eq=False)
class Listener:
    """Functions that are called during a run; those left out are not."""

    ticks: Callable[[bytes], None] | None = None  # the transcript of each tick, see `microsim.messages.outbox`
    inputs: Callable[[int, Any], None] | None = None  # the tick that takes it, and the input
    warnings: Callable[[str], None] | None = None  # a sensor begins to fail
    messages: Callable[[Sequence[Message]], None] | None = None  # what some ticks sent; of a `Runner`
    timing: Callable[[float, float], None] | None = None  # duration and lateness of each tick [s]; of a `Runner`
    restarts: Callable[[Simulation], None] | None = None  # a `Runner` continues with a simulation at its start
    steps: Callable[[Messages], None] | None = None  # what a call of `Simulation.step` returns
    jumps: Callable[[], None] | None = None  # the simulation of a `Runner` went to another tick
    # tick, topic, nodes of a reply; waited for it [s]; why it need not follow from the inputs alone, empty: it does
    waits: Callable[[int, str, str, float, str], None] | None = None
    every_s: float | None = None  # simulated time between two calls of `messages`, at most; None: any


class Listeners:
    """Who listens, in the order in which they are called."""

    def __init__(self) -> None:
        self._all: tuple[Listener, ...] = ()

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._all)  # one may leave meanwhile

    def add(self, listener: Listener) -> Listener:
        self._all = (*self._all, listener)
        return listener

    def remove(self, listener: Listener) -> None:
        self._all = tuple(each for each in self._all if each is not listener)

    @contextmanager
    def silenced(self) -> Iterator[None]:
        """Listeners are not called meanwhile: for a run that is only repeated."""
        before, self._all = self._all, ()
        try:
            yield
        finally:
            self._all = before

    def tick(self, transcript: bytes) -> None:
        for each in self._all:
            if each.ticks is not None:
                each.ticks(transcript)

    def input(self, tick: int, item: Any) -> None:
        for each in self._all:
            if each.inputs is not None:
                each.inputs(tick, item)

    def warning(self, text: str) -> None:
        for each in self._all:
            if each.warnings is not None:
                each.warnings(text)

    def message(self, messages: Sequence[Message]) -> None:
        for each in self._all:
            if each.messages is not None:
                each.messages(messages)

    def step(self, messages: Messages) -> None:
        for each in self._all:
            if each.steps is not None:
                each.steps(messages)

    def timing(self, took_s: float, late_s: float) -> None:
        for each in self._all:
            if each.timing is not None:
                each.timing(took_s, late_s)

    def restart(self, sim: Simulation) -> None:
        for each in self._all:
            if each.restarts is not None:
                each.restarts(sim)

    def jump(self) -> None:
        for each in self._all:
            if each.jumps is not None:
                each.jumps()

    def wait(self, tick: int, topic: str, nodes: str, waited_s: float, doubt: str = "") -> None:
        for each in self._all:
            if each.waits is not None:
                each.waits(tick, topic, nodes, waited_s, doubt)

    @property
    def want_ticks(self) -> bool:
        return any(each.ticks is not None for each in self._all)

    @property
    def want_timing(self) -> bool:
        return any(each.timing is not None for each in self._all)
