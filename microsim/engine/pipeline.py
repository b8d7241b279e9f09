"""When sensors are sampled and when their measurements leave: at a rate, or later through a delay."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from microsim.engine.delay_line import DelayLine, delay_at, next_leaving, pop_due, sampled_at
from microsim.engine.timekeeper import Trigger


class Saved(Protocol):
    def save(self) -> Any: ...

    def load(self, saved: Any) -> None: ...


class Output(Protocol):
    """Something that is sent. `fire` is called at the first tick not before `due`, and moves `due` on."""

    due: float

    def fire(self, tick: int, stamp_ns: int) -> None: ...

    def save(self) -> Any: ...

    def load(self, saved: Any, tick: int) -> None:
        """Continue after `tick` as when `save()` was called there; None: there was no such output then."""


@dataclass
class Periodic:
    """`encode(tick, stamp_ns)` is sent at the trigger's ticks; `part` is what must survive a snapshot."""

    trigger: Trigger
    encode: Callable[[int, int], bytes | None]  # None: nothing is sent
    send: Callable[[int, bytes], None]
    part: Saved | None = None
    due: float = 0

    def fire(self, tick: int, stamp_ns: int) -> None:
        cdr = self.encode(tick, stamp_ns)
        if cdr is not None:
            self.send(stamp_ns, cdr)
        self.due = self.trigger.after(tick)

    def save(self) -> Any:
        return None if self.part is None else self.part.save()

    def load(self, saved: Any, tick: int) -> None:
        if self.part is not None and saved is not None:
            self.part.load(saved)
        self.due = self.trigger.next_tick(tick + 1)


class Delayed:
    """`sample(tick)` at the trigger's ticks, `send(sample tick, sample)` when its delay is over, never out of order.

    A sample that is None is lost. `part` is what must survive a snapshot beside what is under way.
    """

    def __init__(
        self,
        trigger: Trigger,
        line: DelayLine,  # of one world
        sample: Callable[[int], Any],
        send: Callable[[int, Any], None],
        part: Saved | None = None,
    ) -> None:
        self.trigger, self.line, self.sample, self.send, self.part = trigger, line, sample, send, part
        self.samples: list[Any] = []  # of the first entries of the line; here of all
        self.next_sample, self.due = 0, 0.0

    def fire(self, tick: int, stamp_ns: int) -> None:
        if tick >= self.next_sample:
            self._enqueue(tick)
            self.next_sample = self.trigger.next_tick(tick + 1)
        self._send_due(tick)
        self.due = self._leaving(self.next_sample)

    def _enqueue(self, tick: int) -> None:
        delay = delay_at(self.line.address, 0, tick)
        if delay < 0:
            return  # lost: not even rendered
        sample = self.sample(tick)
        if sample is not None:
            self.line.push(0, tick, delay)
            self.samples.append(sample)

    def _send_due(self, tick: int) -> None:
        line = self.line.address
        while self.samples and (place := pop_due(line, 0, tick)) >= 0:
            self.send(sampled_at(line, 0, place), self.samples.pop(0))

    def _leaving(self, otherwise: float) -> float:
        """The tick at which the next sample leaves, if that is earlier."""
        return min(otherwise, next_leaving(self.line.address, 0)) if self.samples else otherwise

    def save(self) -> Any:
        return self.line.save([0]), list(self.samples), None if self.part is None else self.part.save()

    def load(self, saved: Any, tick: int) -> None:
        self.line.clear([0])
        self.samples.clear()
        if saved is not None:
            line, samples, part = saved
            self.line.load([0], line)
            self.samples += samples
            if self.part is not None and part is not None:
                self.part.load(part)
        self.next_sample = self.trigger.next_tick(tick + 1)
        self.due = self._leaving(self.next_sample)
