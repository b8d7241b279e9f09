"""Nodes that are killed, and started again."""

from microsim.faults.fault_kind import FaultKind

FAULT = FaultKind(
    "kill", "the nodes of `--with` are killed, and started again", "kill", example="node:kill@3s-5s", position=10
)
