"""Nodes that stand still for a while."""

from microsim.faults.fault_kind import FaultKind

FAULT = FaultKind(
    "pause", "the nodes of `--with` are stopped, and continue", "pause", example="node:pause@3s-5s", position=9
)
