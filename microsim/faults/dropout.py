"""A sensor that is silent for a while."""

from microsim.faults.declaration import FaultKind

FAULT = FaultKind("dropout", "nothing is sent", "silence", position=2)
