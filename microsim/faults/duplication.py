"""A topic on which messages come twice."""

from microsim.faults import FaultKind

FAULT = FaultKind(
    "duplication", "messages on a topic arrive twice", "duplicate", example="/rover/odom:duplication@3s-5s", position=7
)
