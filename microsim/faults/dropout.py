"""A sensor that is silent for a while."""

from microsim.faults.fault_kind import FaultKind

FAULT = FaultKind("dropout", "nothing is sent", "silence", position=2)
