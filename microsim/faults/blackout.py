"""A radio on which every packet is lost."""

from microsim.faults import FaultKind

FAULT = FaultKind("blackout", "the radio loses every packet", "blackout", example="radio:blackout@3s-5s", position=3)
