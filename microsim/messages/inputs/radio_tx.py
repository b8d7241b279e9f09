"""Packets for the radio: `std_msgs/ByteMultiArray`."""

from typing import Any

from microsim.messages.inputs import InputKind, InputTarget
from microsim.messages.topics import Qos


def take_packet(sim: InputTarget, robot: str, message: Any) -> bool:
    return sim.radio_send(robot, bytes(message.data))


INPUT = InputKind(
    "radio_tx",
    "/radio/{robot}_tx",
    "std_msgs/msg/ByteMultiArray",
    Qos(1, reliable=False),
    "any",
    "what the robot sends to the others",
    take_packet,
    meant_for=lambda sim, robot: True,
    applies=lambda sim: sim.radio is not None,
    position=4,
    makes="packet",
)
