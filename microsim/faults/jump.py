"""A GPS that is off by a constant offset."""

from microsim.faults import FaultKind

FAULT = FaultKind(
    "jump",
    "a GPS fix is shifted by `offset_m`",
    "shift",
    takes_offset=True,
    example="gps:jump(10,0,0)@3s-9s",
    position=4,
)
