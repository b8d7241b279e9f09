"""Faults injected on purpose, one file each. `FAULTS` finds them: built in, installed, or in a folder."""

from microsim.faults.fault_kind import FaultKind
from microsim.registry import Registry

FAULTS: Registry[FaultKind] = Registry(
    "FAULT",
    "microsim.faults",
    "microsim.faults",
    "FaultKind(...)",
    lambda part: isinstance(part, FaultKind),
    order=lambda part: part.position,
)
