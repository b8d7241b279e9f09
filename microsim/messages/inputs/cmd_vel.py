"""Velocity commands: `geometry_msgs/Twist`, or `TwistStamped`."""

from typing import Any

from microsim.messages.inputs import InputKind, InputTarget, stamp_of
from microsim.messages.topics import Qos


def take_twist(sim: InputTarget, robot: str, message: Any) -> bool:
    twist = getattr(message, "twist", message)
    linear = (float(twist.linear.x), float(twist.linear.y), float(twist.linear.z))
    return sim.command_twist(robot, linear, float(twist.angular.z), stamp_of(message))


INPUT = InputKind(
    "cmd_vel",
    "/{robot}/cmd_vel",
    "geometry_msgs/msg/Twist",
    Qos(10),
    "≤ 60 Hz",
    "body-frame velocity, held until the next or, where a robot has one, its timeout",
    take_twist,
    stamped_type="geometry_msgs/msg/TwistStamped",
    position=1,
)
