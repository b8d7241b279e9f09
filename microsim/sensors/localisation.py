"""Localised pose, as AMCL publishes it: the robot's pose in the map with white noise, and how far it is wrong.

The memory is a planar transform, the correction: the believed pose is correction ∘ true pose. It starts as the
identity, which is perfect localisation. A run that takes poses of another localiser sets it; see `correction_for`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from microsim.documents.values import Hertz, Noise
from microsim.engine import exact
from microsim.engine.calls import Scene
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array
from microsim.engine.motion import YAW, X, Y
from microsim.messages.encoders import header
from microsim.messages.topics import Qos
from microsim.messages.types import new
from microsim.sensors.pose2d import blurred_pose
from microsim.sensors.sensor import Display, KernelSensor, MessageForm, SensorBlock, SensorContext

_sincos = exact.sincos
_wrap_angle = exact.wrap_angle
_blurred_pose = blurred_pose

POSE_TYPE = "geometry_msgs/msg/PoseWithCovarianceStamped"
_SIGMA_M, _SIGMA_RAD = range(2)  # of the settings


class Localisation(SensorBlock):
    """`geometry_msgs/PoseWithCovarianceStamped` on `amcl_pose`: the pose that a navigation stack works with."""

    hz: Hertz = Field(10, description="Rate; at most physics_hz [Hz].")
    position_sigma_m: Noise = Field(0.0, description="White noise of x and y, 1 sigma [m].")
    yaw_sigma_rad: Noise = Field(0.0, description="White noise of the heading, 1 sigma [rad].")
    frame_id: Annotated[str, Field(min_length=1, max_length=200)] = Field("map", description="Frame of the pose.")


@kernel
def compose(x: float, y: float, yaw: float, dx: float, dy: float, dyaw: float) -> tuple[float, float, float]:
    """The pose (dx, dy, dyaw) of the frame at (x, y, yaw), in the frame that one is given in."""
    sine, cosine = _sincos(yaw)
    return x + cosine * dx - sine * dy, y + sine * dx + cosine * dy, _wrap_angle(yaw + dyaw)


@kernel
def correction_for(
    x: float, y: float, yaw: float, from_x: float, from_y: float, from_yaw: float
) -> tuple[float, float, float]:
    """The transform that takes the second pose to the first."""
    turn = _wrap_angle(yaw - from_yaw)
    sine, cosine = _sincos(turn)
    return x - (cosine * from_x - sine * from_y), y - (sine * from_x + cosine * from_y), turn


@kernel
def sample(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """x, y [m] and the quaternion's z, w."""
    x, y, yaw = compose(memory[0], memory[1], memory[2], motion[X], motion[Y], motion[YAW])
    _blurred_pose(x, y, yaw, settings[_SIGMA_M], settings[_SIGMA_RAD], key, tick, reading)
    reading[2], reading[3] = _sincos(0.5 * reading[2])


@kernel
def map_to_base(
    settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array
) -> None:
    """The believed pose without noise, as a transform."""
    x, y, yaw = compose(memory[0], memory[1], memory[2], motion[X], motion[Y], motion[YAW])
    _as_transform(x, y, yaw, reading)


@kernel
def map_to_odom(
    settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array
) -> None:
    """Where the odom frame must be so that map -> odom -> base_link is the believed pose; settings: x, y, z, yaw of
    base_link in the odom frame, as odometry keeps them."""
    x, y, yaw = compose(memory[0], memory[1], memory[2], motion[X], motion[Y], motion[YAW])
    x, y, yaw = correction_for(x, y, yaw, settings[0], settings[1], settings[3])
    _as_transform(x, y, yaw, reading)


@kernel
def _as_transform(x: float, y: float, yaw: float, reading: Array) -> None:
    for k in range(7):
        reading[k] = 0.0
    reading[0], reading[1] = x, y
    reading[5], reading[6] = _sincos(0.5 * yaw)


def _numbers(context: SensorContext) -> tuple[float, ...]:
    return context.settings.position_sigma_m, context.settings.yaw_sigma_rad


def _pose(context: SensorContext) -> Any:
    message = new(POSE_TYPE, header=header(context.settings.frame_id))
    sigma_m, sigma_rad = _numbers(context)
    message.pose.covariance[[0, 7]] = sigma_m * sigma_m
    message.pose.covariance[35] = sigma_rad * sigma_rad
    return message


SENSOR = KernelSensor(
    "localisation",
    Localisation,
    sample,
    title="Localised pose",
    about="pose in the map, as AMCL sends it",
    reading={"x": "m", "y": "m", "qz": "", "qw": ""},
    numbers=_numbers,
    memory=("correction_x", "correction_y", "correction_yaw"),
    messages=(
        MessageForm(
            POSE_TYPE,
            "/{robot}/{sensor}",
            Qos(1),
            "pose in the map, as AMCL sends it",
            _pose,
            {
                "pose.pose.position.x": "x",
                "pose.pose.position.y": "y",
                "pose.pose.orientation.z": "qz",
                "pose.pose.orientation.w": "qw",
            },
        ),
    ),
    path="amcl_pose",
    display=Display("{x:.2f} m, {y:.2f} m", plot=("pose.pose.position.x", "pose.pose.position.y"), layer="pose"),
    position=11,
    omit_if_null=True,
)
