"""Nodes that are suspended for some time."""

from microsim.faults import FaultKind

FAULT = FaultKind(
    "pause", "the node of `--with` is suspended, then resumed", "pause", example="node:pause@3s-5s", position=9
)
