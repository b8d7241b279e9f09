"""A topic on which messages are lost."""

from microsim.faults import FaultKind

FAULT = FaultKind("loss", "messages on a topic are lost", "lose", example="/rover/cmd_vel:loss(0.3)@3s-5s", position=6)
