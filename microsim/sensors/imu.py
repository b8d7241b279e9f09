"""IMU: turn rate and specific force (gravity included, as an accelerometer feels it) in its own axes, with white noise.

It is turned as it is mounted, but measures as if it sat at base_link: the lever arm is left out.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from microsim.documents.values import Hertz, Noise
from microsim.engine import noise
from microsim.engine.calls import Scene
from microsim.engine.compiled import kernel
from microsim.engine.components import GRAVITY
from microsim.engine.geometry import Array, matrix_from_rpy
from microsim.engine.motion import (
    ACCEL_FORWARD,
    ACCEL_LEFT,
    ACCEL_UP,
    AXES,
    PITCHING,
    QUATERNION_X,
    QUATERNION_Y,
    ROLLING,
    TURN,
)
from microsim.messages.encoders import header
from microsim.messages.topics import Qos
from microsim.messages.types import new
from microsim.sensors.sensor import Display, KernelSensor, MessageForm, MountedSensor, SensorContext

_six_normals = noise.six_normals
_GYRO_SIGMA, _ACCEL_SIGMA, _IS_TURNED, _MATRIX = range(4)  # of the settings; the matrix has nine numbers


class Imu(MountedSensor):
    """`sensor_msgs/Imu` on `imu/data_raw`."""

    hz: Hertz = Field(60, description="Rate; at most physics_hz [Hz].")
    gyro_sigma_rad_per_s: Noise = Field(0.002, description="White noise of each rate, 1 sigma [rad/s].")
    accel_sigma_m_per_s2: Noise = Field(0.02, description="White noise of each acceleration, 1 sigma [m/s²].")


@kernel
def sample(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """Turn rate [rad/s] and specific force [m/s^2] in its axes: the rows of its rotation in base_link."""
    turn_x, turn_y, turn_z = motion[ROLLING], motion[PITCHING], motion[TURN]
    x, y, z = motion[ACCEL_FORWARD], motion[ACCEL_LEFT], motion[ACCEL_UP] + GRAVITY
    if not (motion[QUATERNION_X] == 0.0 and motion[QUATERNION_Y] == 0.0):
        x = motion[ACCEL_FORWARD] + GRAVITY * motion[AXES + 6]
        y = motion[ACCEL_LEFT] + GRAVITY * motion[AXES + 7]
        z = motion[ACCEL_UP] + GRAVITY * motion[AXES + 8]
    if settings[_IS_TURNED] != 0.0:  # times the transposed matrix
        p, q, r = settings[_MATRIX], settings[_MATRIX + 1], settings[_MATRIX + 2]
        s, t, u = settings[_MATRIX + 3], settings[_MATRIX + 4], settings[_MATRIX + 5]
        v, w, o = settings[_MATRIX + 6], settings[_MATRIX + 7], settings[_MATRIX + 8]
        turn_x, turn_y, turn_z = (
            p * turn_x + s * turn_y + v * turn_z,
            q * turn_x + t * turn_y + w * turn_z,
            r * turn_x + u * turn_y + o * turn_z,
        )
        x, y, z = p * x + s * y + v * z, q * x + t * y + w * z, r * x + u * y + o * z
    a, b, c, d, e, f = _six_normals(key, tick)
    gyro, accel = settings[_GYRO_SIGMA], settings[_ACCEL_SIGMA]
    reading[0], reading[1], reading[2] = turn_x + gyro * a, turn_y + gyro * b, turn_z + gyro * c
    reading[3], reading[4], reading[5] = x + accel * d, y + accel * e, z + accel * f


def numbers(context: SensorContext) -> tuple[float, ...]:
    block, rpy = context.settings, context.mount.rpy
    matrix = [number for row in matrix_from_rpy(*rpy) for number in row]
    return block.gyro_sigma_rad_per_s, block.accel_sigma_m_per_s2, float(any(rpy)), *matrix


def data(context: SensorContext) -> Any:
    """REP-145: no orientation, marked by a covariance of -1."""
    message = new("sensor_msgs/msg/Imu", header=header(context.frame))
    gyro, accel = context.settings.gyro_sigma_rad_per_s, context.settings.accel_sigma_m_per_s2
    message.orientation_covariance[0] = -1.0
    message.angular_velocity_covariance[::4] = gyro * gyro
    message.linear_acceleration_covariance[::4] = accel * accel
    message.orientation.w = 1.0
    return message


_AXIS_NAMES = tuple(f"{what}.{axis}" for what in ("angular_velocity", "linear_acceleration") for axis in "xyz")

_FORCE = " ".join(f"{{linear_acceleration.{axis}:+.2f}}" for axis in "xyz") + " m/s²"
_TURN = " ".join(f"{{angular_velocity.{axis}:+.2f}}" for axis in "xyz") + " rad/s"

SENSOR = KernelSensor(
    "imu",
    Imu,
    sample,
    title="IMU",
    about="turn rate and specific force",
    is_standard=True,
    reading={name: "rad/s" if name.startswith("angular") else "m/s²" for name in _AXIS_NAMES},
    numbers=numbers,
    messages=(
        MessageForm(
            "sensor_msgs/msg/Imu",
            "/{robot}/{sensor}/data_raw",
            Qos(10),
            "turn rate and specific force, no orientation (REP-145)",
            data,
            {name: name for name in _AXIS_NAMES},
        ),
    ),
    display=Display((f"{_FORCE}  {_TURN}", _FORCE), order=30),
    position=40,
)
