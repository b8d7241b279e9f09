"""A topic on which messages change places."""

from microsim.faults import FaultKind

FAULT = FaultKind(
    "reordering",
    "a message on a topic arrives after the next one",
    "reorder",
    example="/rover/odom:reordering@3s-5s",
    position=8,
)
