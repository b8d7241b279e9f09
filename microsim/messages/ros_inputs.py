"""ROS 2 messages as inputs of a simulation: what a command, a pose or a packet means, live and in a recording."""

from __future__ import annotations

import math
from typing import Any

from microsim.engine.geometry import yaw_of_quaternion
from microsim.simulation import Simulation

# a car's inputs -> their fields in ackermann_msgs/AckermannDrive
ACKERMANN_FIELDS = {
    "steering": "steering_angle",
    "steering_rate": "steering_angle_velocity",
    "speed": "speed",
    "acceleration": "acceleration",
}
_NOT_FILLED_IN = 1e-3  # length of a quaternion below which nobody meant it


def stamp_of(message: Any) -> int | None:
    """[ns] of the message's header; None: it has none."""
    header = getattr(message, "header", None)
    return None if header is None else int(header.stamp.sec) * 10**9 + int(header.stamp.nanosec)


def take_twist(sim: Simulation, robot: str, message: Any) -> bool:
    """`geometry_msgs/Twist` or `TwistStamped`. False, here and below: ignored and counted."""
    twist = getattr(message, "twist", message)
    linear = (float(twist.linear.x), float(twist.linear.y), float(twist.linear.z))
    return sim.command_twist(robot, linear, float(twist.angular.z), stamp_of(message))


def take_drive(sim: Simulation, robot: str, message: Any) -> bool:
    """`ackermann_msgs/AckermannDriveStamped`; its jerk is not used."""
    values = {name: float(getattr(message.drive, field)) for name, field in ACKERMANN_FIELDS.items()}
    return sim.command_values(robot, values, stamp_of(message))


def take_pose(sim: Simulation, robot: str, message: Any) -> bool:
    """`geometry_msgs/PoseStamped`; an orientation that is not filled in looks east."""
    place, turn = message.pose.position, message.pose.orientation
    length = math.sqrt(turn.x * turn.x + turn.y * turn.y + turn.z * turn.z + turn.w * turn.w)
    # a NaN goes on and is refused by the simulation
    yaw = 0.0 if length < _NOT_FILLED_IN else yaw_of_quaternion(turn.x, turn.y, turn.z, turn.w)
    return sim.set_pose(robot, x=place.x, y=place.y, z=place.z, yaw=yaw, stamp_ns=stamp_of(message))


def take_packet(sim: Simulation, robot: str, message: Any) -> bool:
    """`std_msgs/ByteMultiArray`."""
    return sim.radio_send(robot, bytes(message.data))
