"""What the faults of a run do to one of its sensors, in one world and in many: windows of ticks, by effect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from microsim.engine.compiled_tick import Window
from microsim.engine.faults import TimedFault, of_target
from microsim.faults import FAULTS, FaultKind, OnRadio, OnSensor


@dataclass
class SensorFaults:
    silent: list[Window] = field(default_factory=list)  # nothing is sent
    fails: list[Window] = field(default_factory=list)  # there is no new reading
    jumps: list[Window] = field(default_factory=list)  # its place is off
    altering: list[tuple[FaultKind, OnSensor, TimedFault]] = field(default_factory=list)  # kernels change its readings

    def __bool__(self) -> bool:
        return bool(self.silent or self.fails or self.jumps or self.altering)


def sensor_faults(faults: Iterable[TimedFault], target: str, folders: Iterable[str]) -> SensorFaults:
    """`folders`: of plug-ins."""
    found = SensorFaults()
    for fault in of_target(faults, target):
        kind = FAULTS.find(fault.kind, folders)
        if kind is None or not isinstance(kind.effect, OnSensor):
            continue
        effect, window = kind.effect, (fault.first_tick, fault.end_tick, *fault.offset)
        windows = (effect.is_silent, found.silent), (effect.fails, found.fails), (effect.is_shifted, found.jumps)
        for applies, those in windows:
            if applies:
                those.append(window)
        if effect.alter is not None:
            found.altering.append((kind, effect, fault))
    return found


def radio_blackouts(faults: Iterable[TimedFault], target: str, folders: Iterable[str]) -> tuple[tuple[int, int], ...]:
    """From, to [ticks]."""
    kinds = [(FAULTS.find(fault.kind, folders), fault) for fault in of_target(faults, target)]
    return tuple(
        (fault.first_tick, fault.end_tick) for kind, fault in kinds if kind and isinstance(kind.effect, OnRadio)
    )


def is_in(windows: Iterable[Window], tick: int) -> bool:
    return any(first <= tick < end for first, end, *_ in windows)
