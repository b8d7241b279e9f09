"""Faults injected on purpose: a constant `FAULT = FaultKind(...)` in a file; the shipped ones share one file.

`FAULTS` finds them: built in, installed, or in a folder. What a fault does is its effect: on sensors, on messages of a
topic in either direction, on the radio, or on the nodes that the run itself started. Sensors and the engine name no
kind by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from microsim.errors import show
from microsim.registry import Registry
from microsim.sensors.sensor import KernelSensor, Sensor, is_function

RADIO = "radio"  # target of a fault of the radio
NODE = "node"  # target of a fault of nodes: what `microsim run --with` started

Part = Literal["sensor", "radio", "messages", "node"]


@dataclass(frozen=True)
class OnSensor:
    """What happens to a sensor; several may be true."""

    is_silent: bool = False  # no message is sent
    fails: bool = False  # no new reading can be made; the sensor's declaration says what is sent instead
    is_shifted: bool = False  # the sensor's place is off by `offset_m`
    # a kernel with a sensor's signature that changes readings: its settings are the first tick of the fault, the first
    # after it, and `offset_m`; it has a number of memory for each of the reading
    alter: Callable[..., None] | None = None

    def __post_init__(self) -> None:
        if self.alter is not None and not is_function(self.alter):
            raise TypeError(f"alter: expected a kernel, found {show(self.alter)}")
        if not (self.is_silent or self.fails or self.is_shifted or self.alter):
            raise TypeError("OnSensor: expected one of is_silent, fails, is_shifted, alter")


@dataclass
class Passing:
    """A message on its way, as far as a fault may change that."""

    tick: int
    until: int  # the tick at which it continues
    copies: int = 1
    is_overtaken: bool = False  # it follows the next message
    delay: int = 0  # [ticks] the fault's `delay_s`
    draw: float = 0.0  # a random number from 0 to 1 for this fault and message


@dataclass(frozen=True)
class OnMessages:
    """What happens to a message on a topic."""

    change: Callable[[Passing], None]
    may_reorder: bool = False  # it may set `is_overtaken`


@dataclass(frozen=True)
class OnRadio:
    """The radio loses every packet."""


@dataclass(frozen=True)
class OnNode:
    """A node is suspended, then resumed; or killed, then restarted."""

    kills: bool = False


Effect: TypeAlias = OnSensor | OnMessages | OnRadio | OnNode
_PARTS: dict[type[Effect], Part] = {OnSensor: "sensor", OnMessages: "messages", OnRadio: "radio", OnNode: "node"}
_NAMED = {
    "silence": "OnSensor(is_silent=True)",
    "shift": "OnSensor(is_shifted=True)",
    "fail": "OnSensor(fails=True)",
    "alter": "OnSensor(alter=kernel)",
    "blackout": "OnRadio()",
    **dict.fromkeys(("delay", "lose", "duplicate", "reorder"), "OnMessages(change)"),
    **dict.fromkeys(("pause", "kill"), "OnNode()"),
}  # of version 0.1


@dataclass(frozen=True)
class FaultKind:
    name: str  # what a scenario writes as `kind:`
    about: str
    effect: Effect
    applies: Callable[[Sensor], bool] | None = None  # default: sensors that list it in `faults`
    takes_offset: bool = False  # it needs `offset_m`
    takes_delay: bool = False  # it needs `delay_s`
    example: str = ""  # as text, for messages
    position: int = 1000  # in lists

    def __new__(cls, *args: Any, **fields: Any) -> FaultKind:
        if "alter" in fields:
            raise TypeError("FaultKind: `alter` is now `effect=OnSensor(alter=kernel)`")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if type(self.effect) not in _PARTS:
            now = _NAMED.get(self.effect) if isinstance(self.effect, str) else None
            expected = f"now {now}" if now else f"one of {', '.join(each.__name__ for each in _PARTS)}"
            raise TypeError(f"{self.name}: effect: expected {expected}, found {show(self.effect)}")

    @property
    def of(self) -> Part:
        """What it is a fault of."""
        return _PARTS[type(self.effect)]

    def suits(self, sensor: Sensor) -> bool:
        if not isinstance(self.effect, OnSensor):
            return False
        if self.applies is not None:
            return self.applies(sensor)
        return self.name in sensor.faults or (self.effect.alter is not None and isinstance(sensor, KernelSensor))


FAULTS: Registry[FaultKind] = Registry(
    "FAULT",
    "microsim.faults",
    "microsim.faults",
    "FaultKind(...)",
    lambda part: isinstance(part, FaultKind),
    order=lambda part: part.position,
)
