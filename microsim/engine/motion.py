"""What sensors and frames need of a robot's state, computed once a tick for all robots of a model."""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from microsim.engine import exact
from microsim.engine.compiled import inlined, kernel, plain
from microsim.engine.components import (
    ACCELERATION_X,
    ACCELERATION_Y,
    ACCELERATION_Z,
    PITCH_RATE,
    ROLL_RATE,
    VELOCITY_X,
    VELOCITY_Y,
    VELOCITY_Z,
    YAW_RATE,
)
from microsim.engine.components import PITCH as _PITCH
from microsim.engine.components import ROLL as _ROLL
from microsim.engine.components import YAW as _YAW
from microsim.engine.components import X as _X
from microsim.engine.components import Y as _Y
from microsim.engine.components import Z as _Z
from microsim.engine.geometry import Array, Vector

_sincos = exact.sincos

Motion: TypeAlias = Sequence[float]
Rotation: TypeAlias = tuple[Vector, Vector, Vector]  # rows of a matrix
# Fields of a Motion. Position in the map frame; velocity over ground and acceleration in body axes, without gravity.
X, Y, Z, YAW, SIN_YAW, COS_YAW = range(6)
QUATERNION_Z, QUATERNION_W = 6, 7
FORWARD, LEFT, UP, TURN = 8, 9, 10, 11  # [m/s] [m/s] [m/s] [rad/s] the last about the body's z axis
ACCEL_FORWARD, ACCEL_LEFT, ACCEL_UP = 12, 13, 14  # [m/s^2]
ROLL, PITCH, QUATERNION_X, QUATERNION_Y = 15, 16, 17, 18
ROLLING, PITCHING = 19, 20  # [rad/s] about the body's x and y axes
AXES = 21  # nine fields: the rows of the matrix from base_link to the map
FIELDS = 30
# What a sensor's kernel is given: its robot's motion, and where the sensor itself is in the map frame [m].
PLACE_X, PLACE_Y, PLACE_Z = 30, 31, 32
SENSOR_FIELDS = 33


@kernel
def observe(state: Array, out: Array) -> None:
    """Fill out (n, FIELDS) from state (rows, n)."""
    for i in range(state.shape[1]):
        observe_one(state, i, out[i])


@kernel
def observe_one(state: Array, i: int, out: Array) -> None:
    """Fill out (FIELDS,) from column i."""
    observe_place(state, i, out)
    if state[_ROLL, i] == 0.0 and state[_PITCH, i] == 0.0:
        _observe_level(state, out, i)


@kernel
def observe_place(state: Array, i: int, out: Array) -> None:
    """The same, of a robot that does not lean: place and heading alone."""
    out[X], out[Y], out[Z], out[YAW] = state[_X, i], state[_Y, i], state[_Z, i], state[_YAW, i]
    out[ROLL], out[PITCH] = state[_ROLL, i], state[_PITCH, i]
    out[SIN_YAW], out[COS_YAW] = _sincos(state[_YAW, i])
    out[QUATERNION_X], out[QUATERNION_Y] = 0.0, 0.0
    if state[_ROLL, i] != 0.0 or state[_PITCH, i] != 0.0:
        _observe_tilted(state, out, i)


@kernel
def _observe_level(state: Array, out: Array, i: int) -> None:
    sine, cosine = out[SIN_YAW], out[COS_YAW]
    half_sine, half_cosine = _sincos(0.5 * state[_YAW, i])
    out[QUATERNION_Z], out[QUATERNION_W] = half_sine, half_cosine
    vx, vy = state[VELOCITY_X, i], state[VELOCITY_Y, i]
    out[FORWARD], out[LEFT] = cosine * vx + sine * vy, cosine * vy - sine * vx
    out[UP], out[TURN] = state[VELOCITY_Z, i], state[YAW_RATE, i]
    out[ROLLING], out[PITCHING] = state[ROLL_RATE, i], state[PITCH_RATE, i]
    ax, ay = state[ACCELERATION_X, i], state[ACCELERATION_Y, i]
    out[ACCEL_FORWARD], out[ACCEL_LEFT] = cosine * ax + sine * ay, cosine * ay - sine * ax
    out[ACCEL_UP] = state[ACCELERATION_Z, i]
    for k in range(9):
        out[AXES + k] = 0.0
    out[AXES], out[AXES + 1] = cosine, -sine
    out[AXES + 3], out[AXES + 4] = sine, cosine
    out[AXES + 8] = 1.0


@kernel
def _observe_tilted(state: Array, out: Array, i: int) -> None:
    sy, cy = out[SIN_YAW], out[COS_YAW]
    sp, cp = _sincos(state[_PITCH, i])
    sr, cr = _sincos(state[_ROLL, i])
    hy, ky = _sincos(0.5 * state[_YAW, i])
    hp, kp = _sincos(0.5 * state[_PITCH, i])
    hr, kr = _sincos(0.5 * state[_ROLL, i])
    out[QUATERNION_X], out[QUATERNION_Y] = hr * kp * ky - kr * hp * hy, kr * hp * ky + hr * kp * hy
    out[QUATERNION_Z], out[QUATERNION_W] = kr * kp * hy - hr * hp * ky, kr * kp * ky + hr * hp * hy
    out[AXES], out[AXES + 1], out[AXES + 2] = cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr
    out[AXES + 3], out[AXES + 4], out[AXES + 5] = sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr
    out[AXES + 6], out[AXES + 7], out[AXES + 8] = -sp, cp * sr, cp * cr
    vx, vy, vz = state[VELOCITY_X, i], state[VELOCITY_Y, i], state[VELOCITY_Z, i]
    ax, ay, az = state[ACCELERATION_X, i], state[ACCELERATION_Y, i], state[ACCELERATION_Z, i]
    for k in range(3):
        p, q, r = out[AXES + k], out[AXES + 3 + k], out[AXES + 6 + k]
        out[FORWARD + k] = p * vx + q * vy + r * vz
        out[ACCEL_FORWARD + k] = p * ax + q * ay + r * az
    roll_rate, pitch_rate, yaw_rate = state[ROLL_RATE, i], state[PITCH_RATE, i], state[YAW_RATE, i]
    out[ROLLING] = roll_rate - yaw_rate * sp
    out[PITCHING] = pitch_rate * cr + yaw_rate * sr * cp
    out[TURN] = yaw_rate * cr * cp - pitch_rate * sr


@kernel
def is_level_row(motion: Array) -> bool:
    return motion[QUATERNION_X] == 0.0 and motion[QUATERNION_Y] == 0.0


@inlined
def level_place(
    x: float, y: float, z: float, sine: float, cosine: float, mount: tuple[float, float, float]
) -> tuple[float, float, float]:
    """`place_of` for a robot that does not lean."""
    return x + cosine * mount[0] - sine * mount[1], y + sine * mount[0] + cosine * mount[1], z + mount[2]


@kernel
def place_of(motion: Array, x: float, y: float, z: float) -> tuple[float, float, float]:
    """Map position of a point fixed to the robot at (x, y, z) in its base_link."""
    if motion[QUATERNION_X] == 0.0 and motion[QUATERNION_Y] == 0.0:  # the sums in the order of the golden digests
        return level_place(motion[X], motion[Y], motion[Z], motion[SIN_YAW], motion[COS_YAW], (x, y, z))
    return (
        motion[X] + (motion[AXES] * x + motion[AXES + 1] * y + motion[AXES + 2] * z),
        motion[Y] + (motion[AXES + 3] * x + motion[AXES + 4] * y + motion[AXES + 5] * z),
        motion[Z] + (motion[AXES + 6] * x + motion[AXES + 7] * y + motion[AXES + 8] * z),
    )


_plain_place_of: Callable[[Motion, float, float, float], Vector] = plain(place_of)
is_level: Callable[[Motion], bool] = plain(is_level_row)


def mounted_at(motion: Motion, xyz: Vector) -> Vector:
    """Map position of a point fixed to the robot at xyz in its base_link."""
    return _plain_place_of(motion, *xyz)


@kernel
def turned_by(motion: Array, rotation: Rotation) -> Rotation:
    (a, b, c), (d, e, f), (g, h, i) = rotation
    if motion[QUATERNION_X] == 0.0 and motion[QUATERNION_Y] == 0.0:
        sine, cosine = motion[SIN_YAW], motion[COS_YAW]
        return (
            (cosine * a - sine * d, cosine * b - sine * e, cosine * c - sine * f),
            (sine * a + cosine * d, sine * b + cosine * e, sine * c + cosine * f),
            (g, h, i),
        )
    k, m, n = motion[AXES], motion[AXES + 1], motion[AXES + 2]
    p, q, r = motion[AXES + 3], motion[AXES + 4], motion[AXES + 5]
    s, t, u = motion[AXES + 6], motion[AXES + 7], motion[AXES + 8]
    return (
        (k * a + m * d + n * g, k * b + m * e + n * h, k * c + m * f + n * i),
        (p * a + q * d + r * g, p * b + q * e + r * h, p * c + q * f + r * i),
        (s * a + t * d + u * g, s * b + t * e + u * h, s * c + t * f + u * i),
    )


turned: Callable[[Motion, Rotation], Rotation] = plain(turned_by)  # a rotation given in base_link, in the map frame


def moved(motion: Motion, position: Vector, rotation: Rotation, seconds: float) -> tuple[Vector, Rotation]:
    """Where something fixed to the robot is so much later, if the robot keeps its velocity and its turn."""
    axes = _rows(motion[AXES : AXES + 9])
    turn = _times(axes, (motion[ROLLING], motion[PITCHING], motion[TURN]))
    after, halfway = _turn(turn, seconds), _turn(turn, 0.5 * seconds)
    way = _times(halfway, _times(axes, motion[FORWARD : FORWARD + 3]))
    base = motion[X], motion[Y], motion[Z]
    arm = _times(after, [place - middle for place, middle in zip(position, base, strict=True)])
    x, y, z = (base[k] + seconds * way[k] + arm[k] for k in range(3))
    columns = [_times(after, [row[k] for row in rotation]) for k in range(3)]
    first, second, third = ((columns[0][k], columns[1][k], columns[2][k]) for k in range(3))
    return (x, y, z), (first, second, third)


def _rows(numbers: Sequence[float]) -> Rotation:
    a, b, c, d, e, f, g, h, i = numbers
    return (a, b, c), (d, e, f), (g, h, i)


def _times(matrix: Rotation, vector: Sequence[float]) -> Vector:
    x, y, z = (row[0] * vector[0] + row[1] * vector[1] + row[2] * vector[2] for row in matrix)
    return x, y, z


def _turn(rate: Vector, seconds: float) -> Rotation:
    """The matrix of a turn at that rate [rad/s], by Rodrigues."""
    x, y, z = rate
    speed = math.sqrt(x * x + y * y + z * z)
    if speed == 0.0:
        return (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
    x, y, z = x / speed, y / speed, z / speed
    sine, cosine = _sincos(speed * seconds)
    rest = 1.0 - cosine
    return (
        (cosine + rest * x * x, rest * x * y - sine * z, rest * x * z + sine * y),
        (rest * x * y + sine * z, cosine + rest * y * y, rest * y * z - sine * x),
        (rest * x * z - sine * y, rest * y * z + sine * x, cosine + rest * z * z),
    )
