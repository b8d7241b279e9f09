"""Steering angle and speed of cars."""

from microsim.messages.inputs.declaration import InputKind
from microsim.messages.ros_inputs import take_drive
from microsim.messages.topics import Qos

INPUT = InputKind(
    "ackermann_cmd",
    "/{robot}/ackermann_cmd",
    "ackermann_msgs/msg/AckermannDriveStamped",
    Qos(10),
    "any",
    "of cars: steering angle and speed, held until the next or the timeout",
    take_drive,
    position=2,
)
