"""A camera or LiDAR that cannot make a new reading."""

from microsim.faults import FaultKind

FAULT = FaultKind("fail", "a camera repeats its last image, a LiDAR gives no points", "fail", position=1)
