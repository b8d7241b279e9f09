"""AHRS: an IMU that also reports its orientation in the map (REP-145, `imu/data`), with white noise about each axis.

Rates and forces are measured as the `imu` does, with noise of its own: beside an `imu` it is a second device.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from microsim.documents.values import Noise
from microsim.engine import geometry, noise
from microsim.engine.calls import Scene
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array
from microsim.engine.motion import QUATERNION_W, QUATERNION_X, QUATERNION_Y, QUATERNION_Z
from microsim.messages.topics import Qos
from microsim.sensors import imu
from microsim.sensors.sensor import Display, KernelSensor, MessageForm, SensorContext

_raw = imu.sample
_normals = noise.normals
_quaternion_from_rpy = geometry.quaternion_from_rpy
_MOUNT, _TILT_SIGMA, _YAW_SIGMA = 12, 16, 17  # of the settings, after those of the IMU; the first: a quaternion


class Ahrs(imu.Imu):
    """`sensor_msgs/Imu` with orientation on `imu/data`."""

    tilt_sigma_rad: Noise = Field(0.005, description="White noise of roll and pitch, 1 sigma [rad].")
    yaw_sigma_rad: Noise = Field(0.02, description="White noise of yaw (0: east), 1 sigma [rad].")


@kernel
def _product(
    a: tuple[float, float, float, float], b: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    """The rotation `b`, then `a`: quaternions x, y, z, w."""
    return (
        a[3] * b[0] + a[0] * b[3] + a[1] * b[2] - a[2] * b[1],
        a[3] * b[1] - a[0] * b[2] + a[1] * b[3] + a[2] * b[0],
        a[3] * b[2] + a[0] * b[1] - a[1] * b[0] + a[2] * b[3],
        a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2],
    )


@kernel
def sample(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """What the IMU measures, then the quaternion x, y, z, w of its frame in the map."""
    _raw(settings, motion, memory, scene, key, tick, reading)
    a, b = _normals(key, tick, 3)  # the first three pairs are those of the rates and forces
    c, _ = _normals(key, tick, 4)
    tilt, yaw = settings[_TILT_SIGMA], settings[_YAW_SIGMA]
    base = (motion[QUATERNION_X], motion[QUATERNION_Y], motion[QUATERNION_Z], motion[QUATERNION_W])
    mount = (settings[_MOUNT], settings[_MOUNT + 1], settings[_MOUNT + 2], settings[_MOUNT + 3])
    error = _quaternion_from_rpy(tilt * a, tilt * b, yaw * c)
    reading[6], reading[7], reading[8], reading[9] = _product(error, _product(base, mount))


def _numbers(context: SensorContext) -> tuple[float, ...]:
    block, mount = context.settings, _quaternion_from_rpy(*context.mount.rpy)
    return (*imu.numbers(context), *mount, block.tilt_sigma_rad, block.yaw_sigma_rad)


def _data(context: SensorContext) -> Any:
    message, block = imu.data(context), context.settings
    message.orientation_covariance[::4] = block.tilt_sigma_rad**2, block.tilt_sigma_rad**2, block.yaw_sigma_rad**2
    return message


_AXIS_NAMES = tuple(f"orientation.{axis}" for axis in "xyzw")

SENSOR = KernelSensor(
    "ahrs",
    Ahrs,
    sample,
    title="AHRS",
    about="orientation, turn rate and specific force",
    omit_if_null=True,
    reading={**imu.SENSOR.reading, **dict.fromkeys(_AXIS_NAMES, "")},
    numbers=_numbers,
    path="imu",
    messages=(
        MessageForm(
            "sensor_msgs/msg/Imu",
            "/{robot}/{sensor}/data",
            Qos(10),
            "orientation in the map, turn rate and specific force (REP-145)",
            _data,
            {name: name for name in (*imu.SENSOR.reading, *_AXIS_NAMES)},
        ),
    ),
    display=Display(" ".join(f"{{orientation.{axis}:+.3f}}" for axis in "xyzw"), order=31),
    position=41,
)
