"""When sensors are sampled and when their measurements leave: at a rate, or later through a delay."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from microsim.engine import noise as _noise
from microsim.engine.compiled import kernel
from microsim.engine.noise import stream_key
from microsim.engine.timekeeper import Trigger

_normals, _uniforms = _noise.normals, _noise.uniforms


class Remembers(Protocol):
    def memory(self) -> Any: ...

    def recall(self, memory: Any) -> None: ...


class Output(Protocol):
    """Something that is sent. `fire` is called at the first tick not before `due`, and moves `due` on."""

    due: float

    def fire(self, tick: int, stamp_ns: int) -> None: ...

    def memory(self) -> Any: ...

    def recall(self, memory: Any, tick: int) -> None:
        """Continue after `tick` as when `memory()` was taken there; None: there was no such output then."""


@dataclass
class Periodic:
    """`encode(tick, stamp_ns)` is sent at the trigger's ticks; `part` is what must survive a snapshot."""

    trigger: Trigger
    encode: Callable[[int, int], bytes | None]  # None: nothing is sent
    send: Callable[[int, bytes], None]
    part: Remembers | None = None
    due: float = 0

    def fire(self, tick: int, stamp_ns: int) -> None:
        cdr = self.encode(tick, stamp_ns)
        if cdr is not None:
            self.send(stamp_ns, cdr)
        self.due = self.trigger.after(tick)

    def memory(self) -> Any:
        return None if self.part is None else self.part.memory()

    def recall(self, memory: Any, tick: int) -> None:
        if self.part is not None and memory is not None:
            self.part.recall(memory)
        self.due = self.trigger.next_tick(tick + 1)


@kernel
def delay_in_ticks(
    mean_ms: float, jitter_ms: float, drop_probability: float, physics_hz: float, key: int, tick: int
) -> int:
    """Delay of what was sampled at this tick, to the nearest tick; -1: it is lost."""
    if drop_probability > 0.0 and _uniforms(key, tick, 1)[0] < drop_probability:
        return -1
    delay_ms = mean_ms
    if jitter_ms > 0.0:
        delay_ms += jitter_ms * _normals(key, tick, 0)[0]
    return math.floor(max(delay_ms, 0.0) * physics_hz / 1000.0 + 0.5)


@dataclass(frozen=True)
class Latency:
    """Publishing delay and loss of a pipeline."""

    mean_ms: float
    jitter_ms: float
    drop_probability: float
    physics_hz: float
    key: int

    def ticks(self, tick: int) -> int | None:
        """Delay of what was sampled at this tick, to the nearest tick; None when it is lost."""
        delay = delay_in_ticks(self.mean_ms, self.jitter_ms, self.drop_probability, self.physics_hz, self.key, tick)
        return None if delay < 0 else delay


@dataclass
class Delayed:
    """`sample(tick)` at the trigger's ticks, `send(sample tick, sample)` when its delay is over, never out of order.

    A sample that is None is lost. `part` is what must survive a snapshot beside what is under way.
    """

    trigger: Trigger
    latency: Latency
    sample: Callable[[int], Any]
    send: Callable[[int, Any], None]
    part: Remembers | None = None
    due: float = 0
    next_sample: int = 0
    waiting: list[tuple[int, int, Any]] = field(default_factory=list)  # (leaves at, sampled at, sample)

    def fire(self, tick: int, stamp_ns: int) -> None:
        if tick >= self.next_sample:
            self._enqueue(tick)
            self.next_sample = self.trigger.next_tick(tick + 1)
        while self.waiting and self.waiting[0][0] <= tick:
            _, sampled_at, sample = self.waiting.pop(0)
            self.send(sampled_at, sample)
        self._set_due()

    def _enqueue(self, tick: int) -> None:
        delay = self.latency.ticks(tick)
        if delay is None:
            return  # lost: not even rendered
        leaves = max(tick + delay, self.waiting[-1][0] if self.waiting else 0)
        sample = self.sample(tick)
        if sample is not None:
            self.waiting.append((leaves, tick, sample))

    def _set_due(self) -> None:
        self.due = min(self.next_sample, self.waiting[0][0]) if self.waiting else self.next_sample

    def memory(self) -> Any:
        kept = self.part.memory() if self.part is not None else None
        return list(self.waiting) if kept is None else (list(self.waiting), kept)

    def recall(self, memory: Any, tick: int) -> None:
        if isinstance(memory, tuple):
            memory, kept = memory
            if self.part is not None:
                self.part.recall(kept)
        self.waiting = list(memory or ())
        self.next_sample = self.trigger.next_tick(tick + 1)
        self._set_due()


def latency(
    mean_ms: float, jitter_ms: float, drop_probability: float, physics_hz: float, seed: int, stream: str
) -> Latency:
    return Latency(mean_ms, jitter_ms, drop_probability, float(physics_hz), stream_key(seed, stream))
