"""A topic whose messages come late."""

from microsim.faults import FaultKind

FAULT = FaultKind(
    "delay",
    "messages on a topic are delayed by `delay_s`, in order",
    "delay",
    takes_delay=True,
    example="/rover/cmd_vel:delay(0.2)@3s-5s",
    position=5,
)
