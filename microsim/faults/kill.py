"""Nodes that are killed, and started again."""

from microsim.faults import FaultKind

FAULT = FaultKind(
    "kill", "the node of `--with` is killed, then restarted", "kill", example="node:kill@3s-5s", position=10
)
