"""IMU: turn rate and specific force (gravity included, as an accelerometer feels it) in its own axes, with white noise.

It is turned as it is mounted, but measures as if it sat at base_link: the lever arm is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from microsim.engine import noise
from microsim.engine.compiled import kernel, plain
from microsim.engine.components import GRAVITY
from microsim.engine.geometry import Array, Vector, matrix_from_rpy
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
    Motion,
)

_six_normals = noise.six_normals

Axes: TypeAlias = tuple[float, float, float, float, float, float, float, float, float]
ALIGNED: Axes = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)


@kernel
def feel(
    motion: Array, axes: Axes, gyro_sigma: float, accel_sigma: float, key: int, tick: int
) -> tuple[float, float, float, float, float, float]:
    """Turn rate [rad/s] and specific force [m/s^2] in its axes: the rows of its rotation in base_link."""
    a, b, c, d, e, f = _six_normals(key, tick)
    turn_x, turn_y, turn_z = motion[ROLLING], motion[PITCHING], motion[TURN]
    x, y, z = motion[ACCEL_FORWARD], motion[ACCEL_LEFT], motion[ACCEL_UP] + GRAVITY
    if not (motion[QUATERNION_X] == 0.0 and motion[QUATERNION_Y] == 0.0):
        x = motion[ACCEL_FORWARD] + GRAVITY * motion[AXES + 6]
        y = motion[ACCEL_LEFT] + GRAVITY * motion[AXES + 7]
        z = motion[ACCEL_UP] + GRAVITY * motion[AXES + 8]
    if axes != ALIGNED:  # times the transposed matrix
        p, q, r, s, t, u, v, w, o = axes
        turn_x, turn_y, turn_z = (
            p * turn_x + s * turn_y + v * turn_z,
            q * turn_x + t * turn_y + w * turn_z,
            r * turn_x + u * turn_y + o * turn_z,
        )
        x, y, z = p * x + s * y + v * z, q * x + t * y + w * z, r * x + u * y + o * z
    return (
        turn_x + gyro_sigma * a,
        turn_y + gyro_sigma * b,
        turn_z + gyro_sigma * c,
        x + accel_sigma * d,
        y + accel_sigma * e,
        z + accel_sigma * f,
    )


_feel: Callable[..., tuple[float, float, float, float, float, float]] = plain(feel)


@dataclass(frozen=True)
class Imu:
    gyro_sigma: float  # [rad/s]
    accel_sigma: float  # [m/s^2]
    key: int
    axes: Axes = ALIGNED

    def sample(self, motion: Motion, tick: int) -> tuple[float, float, float, float, float, float]:
        """(turn rate x, y, z [rad/s], acceleration x, y, z [m/s^2])."""
        return _feel(motion, self.axes, self.gyro_sigma, self.accel_sigma, self.key, tick)


def axes_of(rpy: Vector) -> Axes:
    """The axes of an IMU that is mounted turned."""
    if not any(rpy):
        return ALIGNED
    (a, b, c), (d, e, f), (g, h, i) = matrix_from_rpy(*rpy)
    return a, b, c, d, e, f, g, h, i
