"""Odometry: pose in the odom frame and velocity over ground; exact, or drifting as wheels and flow sensors do.

A drifting one states how wrong it is: the covariance P of x, y and yaw is propagated each tick, P <- F P Fᵀ + Q. F is
the derivative of the step by the pose before it, so that an error of heading becomes one of position on the way; Q is
the noise of the step. Its twist is that of the drifting pose over the last tick.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer
from pydantic_core import InitErrorDetails

from microsim.documents.values import Hertz, Model, Noise, Switch, detail
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
from microsim.sensors.sensor import Display, KernelSensor, MessageForm, RobotFrames, SensorBlock, SensorContext, Tracker

_sincos = exact.sincos
_six_normals = noise.six_normals
_wrap_angle = exact.wrap_angle
_quaternion_from_rpy = geometry.quaternion_from_rpy

POSE_VARIANCE = 1e-4  # [m^2], [rad^2] without drift: a centimetre, half a degree
TWIST_VARIANCE = 1e-4  # [(m/s)^2], [(rad/s)^2]

_HAS_FRAME, _POSITION_PER_M, _YAW_PER_RAD = range(3)  # of the settings; the first: its odom frame is not the map
# of the memory: x, y, z, yaw in the odom frame, the same in the map; the covariance in the odom frame; errors of the
# last step [m] in body axes and [rad], and its length [m] and turn [rad]
_POSE, _TRUE = 0, 4
_XX, _XY, _YY, _XT, _YT, _TT, _ZZ = range(8, 15)
_SLIP, _SLIP_TURN, _LENGTH, _TURNED = 15, 18, 19, 20


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
    starts_at_zero: Switch = Field(
        False,
        description="true: the odom frame is where the robot starts, as on real robots; needs frames.per_robot_odom.",
    )

    def unfit(self, name: str, others: Mapping[str, Any]) -> list[InitErrorDetails]:
        key, verb = ("drift", "drift") if self.drift is not None else ("starts_at_zero", "start at zero")
        if not _has_frame(self):
            return []
        if name != "odom":
            return [detail(f"only the sensor `odom` can {verb}: there is one odometry frame", key)]
        if others.get("frames") is not None and not others["frames"].per_robot_odom:
            message = f"odometry can {verb} only in a frame of its own: write `frames: {{per_robot_odom: true}}`"
            return [detail(message, key)]
        return []

    @model_serializer(mode="wrap")
    def _without_younger(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """/sim/info of runs without it is older than this key."""
        data: dict[str, Any] = handler(self)
        return {key: value for key, value in data.items() if key != "starts_at_zero" or value}


def _has_frame(settings: Odometry) -> bool:
    """Whether its odom frame is not the map."""
    return settings.drift is not None or settings.starts_at_zero


@kernel
def track(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """Turn the true step since the last tick into the odometry's: its length and turn are misjudged."""
    dx, dy, dz = motion[X] - memory[_TRUE], motion[Y] - memory[_TRUE + 1], motion[Z] - memory[_TRUE + 2]
    turn = _wrap_angle(motion[YAW] - memory[_TRUE + 3])
    a, b, c, d, _, _ = _six_normals(key, tick)
    length = math.sqrt(dx * dx + dy * dy + dz * dz)
    slip, slip_turn = settings[_POSITION_PER_M] * math.sqrt(length), settings[_YAW_PER_RAD] * math.sqrt(abs(turn))
    sine, cosine = _sincos(memory[_POSE + 3] - memory[_TRUE + 3])  # how far the odom frame has turned by now
    east, north = cosine * dx - sine * dy, sine * dx + cosine * dy
    memory[_POSE] += cosine * dx - sine * dy + slip * a
    memory[_POSE + 1] += sine * dx + cosine * dy + slip * b
    memory[_POSE + 2] += dz + slip * c
    memory[_POSE + 3] = _wrap_angle(memory[_POSE + 3] + turn + slip_turn * d)
    _propagate(memory, east, north, slip * slip, slip_turn * slip_turn)
    sine, cosine = _sincos(memory[_POSE + 3])
    memory[_SLIP] = slip * (cosine * a + sine * b)
    memory[_SLIP + 1] = slip * (cosine * b - sine * a)
    memory[_SLIP + 2] = slip * c
    memory[_SLIP_TURN], memory[_LENGTH], memory[_TURNED] = slip_turn * d, length, abs(turn)
    memory[_TRUE], memory[_TRUE + 1], memory[_TRUE + 2] = motion[X], motion[Y], motion[Z]
    memory[_TRUE + 3] = motion[YAW]


@kernel
def _propagate(memory: Array, east: float, north: float, position: float, heading: float) -> None:
    """The covariance after a step (east, north) in the odom frame, with variances of its errors."""
    tt, xt, yt = memory[_TT], memory[_XT], memory[_YT]
    memory[_XX] += position - 2.0 * north * xt + north * north * tt
    memory[_XY] += east * xt - north * yt - east * north * tt
    memory[_YY] += position + 2.0 * east * yt + east * east * tt
    memory[_XT] = xt - north * tt
    memory[_YT] = yt + east * tt
    memory[_TT] = tt + heading
    memory[_ZZ] += position


@kernel
def odom_to_base(
    settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array
) -> None:
    """x, y, z [m] and the quaternion x, y, z, w of base_link in the odom frame."""
    reading[0], reading[1], reading[2] = motion[X], motion[Y], motion[Z]
    reading[3], reading[4] = motion[QUATERNION_X], motion[QUATERNION_Y]
    reading[5], reading[6] = motion[QUATERNION_Z], motion[QUATERNION_W]
    if settings[_HAS_FRAME] == 0.0:
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
    if settings[_HAS_FRAME] == 0.0:
        return
    turn = _wrap_angle(motion[YAW] - memory[_POSE + 3])
    sine, cosine = _sincos(turn)
    reading[0] = motion[X] - (cosine * memory[_POSE] - sine * memory[_POSE + 1])
    reading[1] = motion[Y] - (sine * memory[_POSE] + cosine * memory[_POSE + 1])
    reading[2] = motion[Z] - memory[_POSE + 2]
    reading[5], reading[6] = _sincos(0.5 * turn)


@kernel
def sample(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """Pose as in `odom_to_base`, velocity [m/s] and turn rate [rad/s] in body axes, and covariances."""
    odom_to_base(settings, motion, memory, scene, key, tick, reading)
    reading[7], reading[8], reading[9] = motion[FORWARD], motion[LEFT], motion[UP]
    reading[10], reading[11], reading[12] = motion[ROLLING], motion[PITCHING], motion[TURN]
    for k in range(7):
        reading[13 + k] = 0.0
    reading[20], reading[21] = TWIST_VARIANCE, TWIST_VARIANCE
    if settings[_HAS_FRAME] != 0.0:
        for k in range(7):
            reading[13 + k] = memory[_XX + k]
        for k in range(3):
            reading[7 + k] += memory[_SLIP + k] / scene.dt
        reading[12] += memory[_SLIP_TURN] / scene.dt
        slip, turn = settings[_POSITION_PER_M] / scene.dt, settings[_YAW_PER_RAD] / scene.dt
        reading[20] += slip * slip * memory[_LENGTH]
        reading[21] += turn * turn * memory[_TURNED]
    reading[13] += POSE_VARIANCE
    reading[15] += POSE_VARIANCE
    reading[18] += POSE_VARIANCE
    reading[19] += POSE_VARIANCE


def _numbers(context: SensorContext) -> tuple[float, ...]:
    drift, has_frame = context.settings.drift, float(_has_frame(context.settings))
    return (has_frame, 0.0, 0.0) if drift is None else (has_frame, drift.position_per_m, drift.yaw_per_rad)


def _begin(motion: Motion, settings: Odometry) -> tuple[float, ...]:
    pose = (motion[X], motion[Y], motion[Z], motion[YAW])
    return (*((0.0,) * 4 if settings.starts_at_zero else pose), *pose, *(0.0,) * 13)


def _odometry(context: SensorContext) -> Any:
    message = new("nav_msgs/msg/Odometry", header=header(context.odom_frame), child_frame_id=context.base_frame)
    message.pose.covariance[::7] = POSE_VARIANCE
    message.twist.covariance[::7] = TWIST_VARIANCE
    return message


_COVARIANCES = {  # name -> places in the 6x6 matrix; roll and pitch are those of the prototype
    "variance_x": (0,), "covariance_xy": (1, 6), "variance_y": (7,), "covariance_x_yaw": (5, 30),
    "covariance_y_yaw": (11, 31), "variance_yaw": (35,), "variance_z": (14,),
}  # fmt: skip
_POSE_SLOTS = {
    **{f"pose.pose.position.{axis}": axis for axis in "xyz"},
    **{f"pose.pose.orientation.{axis}": f"q{axis}" for axis in "xyzw"},
    **{f"twist.twist.linear.{axis}": f"v{axis}" for axis in "xyz"},
    **{f"twist.twist.angular.{axis}": f"w{axis}" for axis in "xyz"},
    **{f"pose.covariance[{place}]": name for name, places in _COVARIANCES.items() for place in places},
    **{f"twist.covariance[{place}]": "twist_variance" for place in (0, 7, 14)},
    "twist.covariance[35]": "turn_rate_variance",
}

SENSOR = KernelSensor(
    "odom",
    Odometry,
    sample,
    title="Odometry",
    about="pose and velocity",
    is_standard=True,
    reading={
        **dict.fromkeys("xyz", "m"),
        **{f"q{axis}": "" for axis in "xyzw"},
        **{f"v{axis}": "m/s" for axis in "xyz"},
        **{f"w{axis}": "rad/s" for axis in "xyz"},
        **dict.fromkeys(_COVARIANCES, "m²"),
        "covariance_x_yaw": "m rad",
        "covariance_y_yaw": "m rad",
        "variance_yaw": "rad²",
        "twist_variance": "m²/s²",
        "turn_rate_variance": "rad²/s²",
    },
    numbers=_numbers,
    memory=(
        *(f"odom_{axis}" for axis in ("x", "y", "z", "yaw")),
        *(f"true_{axis}" for axis in ("x", "y", "z", "yaw")),
        *_COVARIANCES,
        *("slip_forward", "slip_left", "slip_up", "slip_turn", "step_m", "step_rad"),
    ),
    tracker=Tracker(track, _begin, _has_frame, "/drift", RobotFrames(odom_to_base, map_to_odom), is_shared=True),
    messages=(
        MessageForm("nav_msgs/msg/Odometry", "/{robot}/{sensor}", Qos(10), "pose and velocity", _odometry, _POSE_SLOTS),
    ),
    display=Display(layer="pose", is_hidden=True),  # the dashboard shows the true pose
    common_parameters={"odom_hz": "hz"},
    position=10,
)
