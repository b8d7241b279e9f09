"""When sensors are sampled and when their measurements leave: at a rate, or later through a delay."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from microsim.engine.compiled import kernel, plain
from microsim.engine.jitter import next_deviation
from microsim.engine.noise import uniforms
from microsim.engine.timekeeper import Trigger

LARGEST_NORMAL = 8.3  # that `noise.normals` gives: its uniforms are 2**-53 or more


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


@dataclass(frozen=True)
class Latency:
    """Publishing delay and loss of a pipeline."""

    mean_ms: float
    jitter_ms: float
    drop_probability: float
    physics_hz: float
    key: int

    def ticks(self, tick: int, before: list[float]) -> int | None:
        """Delay of what was sampled at this tick, to the nearest tick; None when it is lost."""
        found: int = _plain_delay_of(self.numbers, self.key, tick, before)
        return None if found < 0 else found

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """As `delay_of` needs them."""
        return self.mean_ms, self.jitter_ms, self.drop_probability, self.physics_hz

    @property
    def longest(self) -> int:
        """No delay has more ticks."""
        longest_ms = max(self.mean_ms, 0.0) + LARGEST_NORMAL * max(self.jitter_ms, 0.0)
        return math.floor(longest_ms * self.physics_hz / 1000.0 + 0.5)


# what a delay depends on of the one before it: its deviation from the mean, and the tick of its sample
DEVIATION, AT = range(2)
NOTHING_BEFORE = (0.0, -math.inf)


@kernel
def delay_of(numbers: Any, key: int, tick: int, before: Any) -> int:
    """In ticks, of what is sampled at this tick; -1: it is lost. `numbers` are those of `Latency`."""
    if numbers[2] > 0.0 and uniforms(key, tick, 1)[0] < numbers[2]:
        return -1
    delay_ms, jitter_ms, hz = numbers[0], numbers[1], numbers[3]
    if jitter_ms > 0.0:
        elapsed = (tick - before[AT]) * 1000.0 / (hz * jitter_ms)
        before[DEVIATION], before[AT] = next_deviation(key, tick, before[DEVIATION], elapsed), float(tick)
        delay_ms += jitter_ms * before[DEVIATION]
    return int(max(delay_ms, 0.0) * hz / 1000.0 + 0.5)


_plain_delay_of: Callable[..., int] = plain(delay_of)


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
    before: list[float] = field(default_factory=lambda: list(NOTHING_BEFORE))

    def fire(self, tick: int, stamp_ns: int) -> None:
        if tick >= self.next_sample:
            self._enqueue(tick)
            self.next_sample = self.trigger.next_tick(tick + 1)
        while self.waiting and self.waiting[0][0] <= tick:
            _, sampled_at, sample = self.waiting.pop(0)
            self.send(sampled_at, sample)
        self._set_due()

    def _enqueue(self, tick: int) -> None:
        delay = self.latency.ticks(tick, self.before)
        if delay is None:
            return  # lost: not even rendered
        leaves = max(tick + delay, self.waiting[-1][0] if self.waiting else 0)
        sample = self.sample(tick)
        if sample is not None:
            self.waiting.append((leaves, tick, sample))

    def _set_due(self) -> None:
        self.due = min(self.next_sample, self.waiting[0][0]) if self.waiting else self.next_sample

    def memory(self) -> Any:
        kept = None if self.part is None else self.part.memory()
        return list(self.waiting), tuple(self.before), kept

    def recall(self, memory: Any, tick: int) -> None:
        waiting, before, kept = memory or ((), NOTHING_BEFORE, None)
        if self.part is not None and kept is not None:
            self.part.recall(kept)
        self.waiting, self.before = list(waiting), list(before)
        self.next_sample = self.trigger.next_tick(tick + 1)
        self._set_due()
