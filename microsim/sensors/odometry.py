"""Odometry: pose in the odom frame and velocity over ground; exact, or drifting as wheels and flow sensors do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import Field
from pydantic_core import InitErrorDetails

from microsim.documents.values import Hertz, Model, Noise, detail
from microsim.engine import exact, geometry, noise
from microsim.engine.calls import Scene
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array
from microsim.engine.motion import (
    FORWARD,
    LEFT,
    PITCH,
    PITCHING,
    QUATERNION_W,
    QUATERNION_X,
    QUATERNION_Y,
    QUATERNION_Z,
    ROLL,
    ROLLING,
    TURN,
    UP,
    YAW,
    Motion,
    X,
    Y,
    Z,
)
from microsim.messages.encoders import header
from microsim.messages.topics import Qos
from microsim.messages.types import new
from microsim.sensors.sensor import Display, MessageForm, RobotFrames, Sensor, SensorBlock, SensorContext

_sincos = exact.sincos
_six_normals = noise.six_normals
_wrap_angle = exact.wrap_angle
_quaternion_from_rpy = geometry.quaternion_from_rpy

POSE_VARIANCE = 1e-4  # [m^2], [rad^2] without drift: a centimetre, half a degree
TWIST_VARIANCE = 1e-4  # [(m/s)^2], [(rad/s)^2]

_HAS_DRIFT, _POSITION_PER_M, _YAW_PER_RAD = range(3)  # of the settings
_POSE, _TRUE, _DISTANCE, _TURNED = 0, 4, 8, 9  # of the memory: x, y, z, yaw in the odom frame, the same in the map


class OdometryDrift(Model):
    """How dead reckoning goes astray."""

    position_per_m: Noise = Field(
        0.01, description="Error of position after one metre, 1 sigma; it grows with the square root of the way [m/√m]."
    )
    yaw_per_rad: Noise = Field(
        0.01, description="Error of heading after one radian turned, 1 sigma; grows likewise [rad/√rad]."
    )


class Odometry(SensorBlock):
    """`nav_msgs/Odometry` on `odom`."""

    hz: Hertz = Field(30, description="Rate; at most physics_hz [Hz].")
    drift: OdometryDrift | None = Field(None, description="null: exact; otherwise needs frames.per_robot_odom: true.")

    def unfit(self, name: str, others: Mapping[str, Any]) -> list[InitErrorDetails]:
        if self.drift is None:
            return []
        if name != "odom":
            return [detail("only the sensor `odom` can drift: there is one odometry frame", "drift")]
        if others.get("frames") is not None and not others["frames"].per_robot_odom:
            message = "odometry can drift only in a frame of its own: write `frames: {per_robot_odom: true}`"
            return [detail(message, "drift")]
        return []


@kernel
def track(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """Turn the true step since the last tick into the odometry's: its length and turn are misjudged."""
    dx, dy, dz = motion[X] - memory[_TRUE], motion[Y] - memory[_TRUE + 1], motion[Z] - memory[_TRUE + 2]
    turn = _wrap_angle(motion[YAW] - memory[_TRUE + 3])
    a, b, c, d, _, _ = _six_normals(key, tick)
    length = math.sqrt(dx * dx + dy * dy + dz * dz)
    slip = settings[_POSITION_PER_M] * math.sqrt(length)
    sine, cosine = _sincos(memory[_POSE + 3] - memory[_TRUE + 3])  # how far the odom frame has turned by now
    memory[_POSE] += cosine * dx - sine * dy + slip * a
    memory[_POSE + 1] += sine * dx + cosine * dy + slip * b
    memory[_POSE + 2] += dz + slip * c
    memory[_POSE + 3] = _wrap_angle(memory[_POSE + 3] + turn + settings[_YAW_PER_RAD] * math.sqrt(abs(turn)) * d)
    memory[_TRUE], memory[_TRUE + 1], memory[_TRUE + 2] = motion[X], motion[Y], motion[Z]
    memory[_TRUE + 3] = motion[YAW]
    memory[_DISTANCE] += length
    memory[_TURNED] += abs(turn)


@kernel
def odom_to_base(
    settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array
) -> None:
    """x, y, z [m] and the quaternion x, y, z, w of base_link in the odom frame."""
    reading[0], reading[1], reading[2] = motion[X], motion[Y], motion[Z]
    reading[3], reading[4] = motion[QUATERNION_X], motion[QUATERNION_Y]
    reading[5], reading[6] = motion[QUATERNION_Z], motion[QUATERNION_W]
    if settings[_HAS_DRIFT] == 0.0:
        return
    reading[0], reading[1], reading[2] = memory[_POSE], memory[_POSE + 1], memory[_POSE + 2]
    yaw = memory[_POSE + 3]
    if motion[QUATERNION_X] == 0.0 and motion[QUATERNION_Y] == 0.0:
        reading[5], reading[6] = _sincos(0.5 * yaw)
    else:
        reading[3], reading[4], reading[5], reading[6] = _quaternion_from_rpy(motion[ROLL], motion[PITCH], yaw)


@kernel
def map_to_odom(
    settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array
) -> None:
    """Where the odom frame must be so that map -> odom -> base_link is the true pose."""
    for k in range(7):
        reading[k] = 0.0
    reading[6] = 1.0
    if settings[_HAS_DRIFT] == 0.0:
        return
    turn = _wrap_angle(motion[YAW] - memory[_POSE + 3])
    sine, cosine = _sincos(turn)
    reading[0] = motion[X] - (cosine * memory[_POSE] - sine * memory[_POSE + 1])
    reading[1] = motion[Y] - (sine * memory[_POSE] + cosine * memory[_POSE + 1])
    reading[2] = motion[Z] - memory[_POSE + 2]
    reading[5], reading[6] = _sincos(0.5 * turn)


@kernel
def sample(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """Pose as in `odom_to_base`, velocity [m/s] and turn rate [rad/s] in body axes, variances of position and yaw."""
    odom_to_base(settings, motion, memory, scene, key, tick, reading)
    reading[7], reading[8], reading[9] = motion[FORWARD], motion[LEFT], motion[UP]
    reading[10], reading[11], reading[12] = motion[ROLLING], motion[PITCHING], motion[TURN]
    reading[13], reading[14] = POSE_VARIANCE, POSE_VARIANCE
    if settings[_HAS_DRIFT] != 0.0:
        slip, turn = settings[_POSITION_PER_M], settings[_YAW_PER_RAD]
        reading[13] = POSE_VARIANCE + slip * slip * memory[_DISTANCE]
        reading[14] = POSE_VARIANCE + turn * turn * memory[_TURNED]


def _numbers(context: SensorContext) -> tuple[float, ...]:
    drift = context.settings.drift
    return (0.0, 0.0, 0.0) if drift is None else (1.0, drift.position_per_m, drift.yaw_per_rad)


def _begin(motion: Motion) -> tuple[float, ...]:
    pose = (motion[X], motion[Y], motion[Z], motion[YAW])
    return (*pose, *pose, 0.0, 0.0)


def _odometry(context: SensorContext) -> Any:
    message = new("nav_msgs/msg/Odometry", header=header(context.odom_frame), child_frame_id=context.base_frame)
    message.pose.covariance[::7] = POSE_VARIANCE
    message.twist.covariance[::7] = TWIST_VARIANCE
    return message


_POSE_SLOTS = {
    **{f"pose.pose.position.{axis}": axis for axis in "xyz"},
    **{f"pose.pose.orientation.{axis}": f"q{axis}" for axis in "xyzw"},
    **{f"twist.twist.linear.{axis}": f"v{axis}" for axis in "xyz"},
    **{f"twist.twist.angular.{axis}": f"w{axis}" for axis in "xyz"},
    **{f"pose.covariance[{7 * axis}]": "position_variance" if axis < 3 else "yaw_variance" for axis in range(6)},
}

SENSOR = Sensor(
    "odom",
    title="Odometry",
    about="pose and velocity",
    settings=Odometry,
    is_standard=True,
    sample=sample,
    reading={
        **dict.fromkeys("xyz", "m"),
        **{f"q{axis}": "" for axis in "xyzw"},
        **{f"v{axis}": "m/s" for axis in "xyz"},
        **{f"w{axis}": "rad/s" for axis in "xyz"},
        "position_variance": "m²",
        "yaw_variance": "rad²",
    },
    numbers=_numbers,
    memory=(
        *(f"odom_{axis}" for axis in ("x", "y", "z", "yaw")),
        *(f"true_{axis}" for axis in ("x", "y", "z", "yaw")),
        "distance_m",
        "turned_rad",
    ),
    begin=_begin,
    track=track,
    is_tracking=lambda settings: settings.drift is not None,
    shares_memory=True,
    stream="/drift",
    frames=RobotFrames(odom_to_base, map_to_odom),
    messages=(
        MessageForm("nav_msgs/msg/Odometry", "/{robot}/{sensor}", Qos(10), "pose and velocity", _odometry, _POSE_SLOTS),
    ),
    display=Display(layer="pose", is_hidden=True),  # the dashboard shows the true pose
    common_parameters={"odom_hz": "hz"},
    position=10,
)
