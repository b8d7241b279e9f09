"""Pose in the plane, with white noise."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from microsim.documents.values import Hertz, Noise
from microsim.engine import exact, noise
from microsim.engine.calls import Scene
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array
from microsim.engine.motion import YAW, X, Y
from microsim.messages.topics import Qos
from microsim.messages.types import new
from microsim.sensors.sensor import Display, KernelSensor, MessageForm, SensorBlock, SensorContext

_normals = noise.normals
_wrap_angle = exact.wrap_angle

_SIGMA_M, _SIGMA_RAD = range(2)  # of the settings


class Pose2D(SensorBlock):
    """`geometry_msgs/Pose2D` on `pose2D`: where the robot is on the map, without a stamp."""

    hz: Hertz = Field(30, description="Rate; at most physics_hz [Hz].")
    position_sigma_m: Noise = Field(0.0, description="White noise of x and y, 1 sigma [m].")
    yaw_sigma_rad: Noise = Field(0.0, description="White noise of theta, 1 sigma [rad].")


@kernel
def sample(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """x, y [m] and theta [rad]; a sigma of 0 leaves them exact."""
    blurred_pose(motion[X], motion[Y], motion[YAW], settings[_SIGMA_M], settings[_SIGMA_RAD], key, tick, reading)


@kernel
def blurred_pose(
    x: float, y: float, yaw: float, sigma_m: float, sigma_rad: float, key: int, tick: int, reading: Array
) -> None:
    """Put a planar pose with white noise into the first three numbers of a reading."""
    if sigma_m > 0.0:
        first, second = _normals(key, tick, 0)
        x, y = x + sigma_m * first, y + sigma_m * second
    if sigma_rad > 0.0:
        yaw = _wrap_angle(yaw + sigma_rad * _normals(key, tick, 1)[0])
    reading[0], reading[1], reading[2] = x, y, yaw


def _numbers(context: SensorContext) -> tuple[float, ...]:
    return context.settings.position_sigma_m, context.settings.yaw_sigma_rad


def _pose(context: SensorContext) -> Any:
    return new("geometry_msgs/msg/Pose2D")


SENSOR = KernelSensor(
    "pose2D",
    Pose2D,
    sample,
    title="Planar pose",
    about="pose in the plane",
    reading={"x": "m", "y": "m", "theta": "rad"},
    numbers=_numbers,
    messages=(
        MessageForm(
            "geometry_msgs/msg/Pose2D",
            "/{robot}/{sensor}",
            Qos(10),
            "pose in the plane",
            _pose,
            {"x": "x", "y": "y", "theta": "theta"},
        ),
    ),
    display=Display("{x:.2f} m, {y:.2f} m, {theta:.2f} rad", plot=("x", "y", "theta")),
    position=21,
    omit_if_null=True,
)
