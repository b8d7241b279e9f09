"""Commands that robots drive by: velocities, steering angle and speed of cars, and what Autoware sends."""

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
_HOLD = 1e-12  # of full throttle: neither pedal pressed would mean to follow the speed


def take_twist(sim: InputTarget, robot: str, message: Any) -> bool:
    """`geometry_msgs/Twist`, or `TwistStamped`."""
    twist = getattr(message, "twist", message)
    linear = (float(twist.linear.x), float(twist.linear.y), float(twist.linear.z))
    return sim.command_twist(robot, linear, float(twist.angular.z), stamp_of(message))


def take_drive(sim: InputTarget, robot: str, message: Any) -> bool:
    """`ackermann_msgs/AckermannDriveStamped`; its jerk is not used."""
    values = {name: float(getattr(message.drive, field)) for name, field in ACKERMANN_FIELDS.items()}
    return sim.command_values(robot, values, stamp_of(message))


def pedals(settings: Any, velocity: float, acceleration: float) -> dict[str, float]:
    """Throttle and brake that give an acceleration along the car's x axis [m/s²]."""
    way = -1.0 if velocity < 0.0 else 1.0
    if way * acceleration < 0.0:
        return {"brake": min(abs(acceleration) / max(settings.max_deceleration, 1e-9), 1.0)}
    return {"throttle": way * max(min(abs(acceleration) / max(settings.max_acceleration, 1e-9), 1.0), _HOLD)}


def take_control(sim: InputTarget, robot: str, message: Any) -> bool:
    """`autoware_control_msgs/Control`; control times and jerk are not used.

    With `is_defined_acceleration` the car follows the acceleration, as the planning simulator's `..._ACC` models do;
    the sign of the velocity says which way it drives. Without, it follows the velocity, as the `..._VEL` models do.
    """
    lateral, longitudinal = message.lateral, message.longitudinal
    values = {"steering": float(lateral.steering_tire_angle), "speed": float(longitudinal.velocity)}
    if lateral.is_defined_steering_tire_rotation_rate:
        values["steering_rate"] = abs(float(lateral.steering_tire_rotation_rate))
    if longitudinal.is_defined_acceleration:
        values |= pedals(sim.scenario.robots[robot], values["speed"], float(longitudinal.acceleration))
    return sim.command_values(robot, values, stamp_of(message))


def _has_autoware(sim: InputTarget, robot: str) -> bool:
    return getattr(sim.scenario.robots[robot], "autoware", None) is not None


INPUT = (
    InputKind(
        "cmd_vel",
        "/{robot}/cmd_vel",
        "geometry_msgs/msg/Twist",
        Qos(10),
        "≤ 60 Hz",
        "body-frame velocity, held until the next or, where a robot has one, its timeout",
        take_twist,
        stamped_type="geometry_msgs/msg/TwistStamped",
        position=1,
    ),
    InputKind(
        "ackermann_cmd",
        "/{robot}/ackermann_cmd",
        "ackermann_msgs/msg/AckermannDriveStamped",
        Qos(10),
        "any",
        "of cars: steering angle and speed, held until the next or the timeout",
        take_drive,
        position=2,
    ),
    InputKind(
        "control_cmd",
        "/control/command/control_cmd",
        "autoware_control_msgs/msg/Control",
        Qos(1),
        "any",
        "of a car with `autoware`: steering angle, and acceleration or velocity",
        take_control,
        meant_for=_has_autoware,
        position=9,
    ),
)
