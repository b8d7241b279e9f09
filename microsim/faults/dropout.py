"""A sensor that sends nothing for some time."""

from microsim.faults import FaultKind

FAULT = FaultKind("dropout", "the sensor sends nothing", "silence", position=2)
