"""Faults injected on purpose, by tick: what is out of order, when, and what came of it so far."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from microsim.engine.geometry import Vector

DROPOUT = "dropout"
RADIO = "radio"  # target of a blackout


@dataclass(frozen=True)
class TimedFault:
    target: str  # "robot/sensor", or RADIO
    kind: str
    first_tick: int
    end_tick: int  # the first one without the fault
    offset: Vector = (0.0, 0.0, 0.0)  # [m] of a jump


class Counts(Counter[str]):
    """How often, by sensor."""

    def update_to(self, counts: Mapping[str, int]) -> None:
        """These sensors have these counts now; a count of 0 needs no entry."""
        for name, count in counts.items():
            if count:
                self[name] = count


@dataclass
class Health:
    """What sensors suffered; `warn` is called when one begins to."""

    faults: tuple[TimedFault, ...] = ()
    warn: Callable[[str], None] = lambda text: None
    degraded: Counter[str] = field(default_factory=Counter)  # messages with an old image or no points, by sensor
    dropped: Counts = field(default_factory=Counts)  # messages that were not sent, by sensor
    failing: set[str] = field(default_factory=set)  # sensors whose last message was degraded

    def at(self, target: str, kind: str, tick: int) -> TimedFault | None:
        """The fault in force."""
        for fault in self.faults:
            if fault.target == target and fault.kind == kind and fault.first_tick <= tick < fault.end_tick:
                return fault
        return None

    def note(self, target: str, problem: str) -> None:
        """A message was made without a new measurement (problem says why), or all went well ("")."""
        if not problem:
            self.failing.discard(target)
            return
        self.degraded[target] += 1
        if target not in self.failing:
            self.failing.add(target)
            self.warn(f"{target}: {problem}")

    def state(self, target: str, tick: int) -> str:
        """ok, failed or dropout."""
        if target in self.failing:
            return "failed"
        return "dropout" if self.at(target, DROPOUT, tick) is not None else "ok"

    def concerns(self, target: str) -> bool:
        """Whether it has, had or will have a fault."""
        suffered = self.degraded[target] or self.dropped[target]
        return bool(suffered) or any(fault.target == target for fault in self.faults)

    def save(self) -> Any:
        return dict(self.degraded), dict(self.dropped), sorted(self.failing)

    def load(self, saved: Any) -> None:
        degraded, dropped, failing = saved
        self.degraded, self.dropped, self.failing = Counter(degraded), Counts(dropped), set(failing)


def of_target(faults: Iterable[TimedFault], target: str) -> tuple[TimedFault, ...]:
    return tuple(fault for fault in faults if fault.target == target)
