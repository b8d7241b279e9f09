"""Packets for the radio."""

from microsim.messages.inputs.declaration import InputKind
from microsim.messages.ros_inputs import take_packet
from microsim.messages.topics import Qos

INPUT = InputKind(
    "radio_tx",
    "/radio/{robot}_tx",
    "std_msgs/msg/ByteMultiArray",
    Qos(1, reliable=False),
    "any",
    "what the robot sends to the others",
    take_packet,
    applies=lambda sim, robot: sim.radio is not None,
    position=4,
)
