"""A sensor that sends nothing for some time."""

from microsim.faults.fault_kind import FaultKind

FAULT = FaultKind("dropout", "nothing is sent", "silence", position=2)
