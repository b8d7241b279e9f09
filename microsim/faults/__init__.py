"""Faults injected on purpose: a constant `FAULT = FaultKind(...)` in a file; the shipped ones share one file.

`FAULTS` finds them: built in, installed, or in a folder. The engine carries out the effect. `silence`: no message is
sent. `shift`: the sensor's place is off by `offset_m`. `fail`: no new reading can be made, and the sensor's declaration
says what is sent instead. `blackout`: the radio loses every packet. `alter`: a kernel with a sensor's signature changes
the reading; its settings are the first tick, the first tick after it, and `offset_m`. `delay`, `lose`, `duplicate`,
`reorder`: of messages on a topic, in either direction. `pause`, `kill`: of the nodes that the run itself started, until
they continue or are started again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from microsim.errors import unknown
from microsim.registry import Registry
from microsim.sensors.sensor import KernelSensor, Sensor, is_function

RADIO = "radio"  # target of a blackout
NODE = "node"  # target of a pause and of a kill: what `microsim run --with` started

Part = Literal["sensor", "radio", "messages", "node"]
Effect = Literal[
    "silence", "shift", "fail", "blackout", "alter", "delay", "lose", "duplicate", "reorder", "pause", "kill"
]
_OTHERS: dict[str, Part] = {
    "blackout": "radio",
    **dict.fromkeys(("delay", "lose", "duplicate", "reorder"), "messages"),
    **dict.fromkeys(("pause", "kill"), "node"),
}  # by effect; all else is a sensor's


@dataclass(frozen=True)
class FaultKind:
    name: str  # what a scenario writes as `kind:`
    about: str
    effect: Effect
    applies: Callable[[Sensor], bool] | None = None  # default: sensors that list it in `faults`
    takes_offset: bool = False  # it needs `offset_m`
    takes_delay: bool = False  # it needs `delay_s`
    example: str = ""  # as text, for messages
    alter: Any = None  # the kernel of the effect `alter`
    position: int = 1000  # in lists

    def __post_init__(self) -> None:
        if self.effect == "alter" and not is_function(self.alter):
            raise TypeError(f"{self.name}: alter: expected a kernel, found {self.alter!r}")
        effects: tuple[str, ...] = get_args(Effect)
        if self.effect not in effects:
            problem = unknown("there is no effect", repr(self.effect), self.effect, effects)
            raise ValueError(f"{self.name}: {problem}")

    @property
    def of(self) -> Part:
        """What it is a fault of."""
        return _OTHERS.get(self.effect, "sensor")

    def suits(self, sensor: Sensor) -> bool:
        if self.of != "sensor":
            return False
        if self.applies is not None:
            return self.applies(sensor)
        return self.name in sensor.faults or (self.effect == "alter" and isinstance(sensor, KernelSensor))


FAULTS: Registry[FaultKind] = Registry(
    "FAULT",
    "microsim.faults",
    "microsim.faults",
    "FaultKind(...)",
    lambda part: isinstance(part, FaultKind),
    order=lambda part: part.position,
)
