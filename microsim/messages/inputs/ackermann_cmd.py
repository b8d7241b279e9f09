"""Steering angle and speed of cars: `ackermann_msgs/AckermannDriveStamped`; its jerk is not used."""

from typing import Any

from microsim.messages.inputs import InputKind, InputTarget, stamp_of
from microsim.messages.topics import Qos

# a car's inputs -> their fields in ackermann_msgs/AckermannDrive
ACKERMANN_FIELDS = {
    "steering": "steering_angle",
    "steering_rate": "steering_angle_velocity",
    "speed": "speed",
    "acceleration": "acceleration",
}


def take_drive(sim: InputTarget, robot: str, message: Any) -> bool:
    values = {name: float(getattr(message.drive, field)) for name, field in ACKERMANN_FIELDS.items()}
    return sim.command_values(robot, values, stamp_of(message))


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
