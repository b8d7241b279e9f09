"""What sensors and frames need of a robot's state, computed once a tick for all robots of a model."""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from microsim.engine import exact
from microsim.engine.columns import Column, column_at, column_in
from microsim.engine.compiled import inlined, kernel, plain
from microsim.engine.components import state_at
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

# The same by name. `motion_in(motion)` views one, `motions_at(block, i)` one of many in columns.
MOTION = (
    *("x", "y", "z", "yaw", "sin_yaw", "cos_yaw", "quaternion_z", "quaternion_w"),
    *("forward", "left", "up", "turn", "accel_forward", "accel_left", "accel_up"),
    *("roll", "pitch", "quaternion_x", "quaternion_y", "rolling", "pitching"),
    *("x_forward", "x_left", "x_up"),  # how far along the map's x a step along the body's axes goes
    *("y_forward", "y_left", "y_up"),
    *("z_forward", "z_left", "z_up"),
    *("place_x", "place_y", "place_z"),
)
motion_in, motions_at = column_in(MOTION), column_at(MOTION)
_motion_in, _state_at = motion_in, state_at


@kernel
def observe(state: Array, out: Array) -> None:
    """Fill out (n, FIELDS) from state (rows, n)."""
    for i in range(state.shape[1]):
        observe_one(state, i, out[i])


@kernel
def observe_one(state: Array, i: int, out: Array) -> None:
    """Fill out (FIELDS,) from column i."""
    observe_place(state, i, out)
    robot = _state_at(state, i)
    if robot.roll == 0.0 and robot.pitch == 0.0:
        _observe_level(robot, _motion_in(out))


@kernel
def observe_place(state: Array, i: int, out: Array) -> None:
    """The same, of a robot that does not lean: place and heading alone."""
    robot, seen = _state_at(state, i), _motion_in(out)
    seen.x, seen.y, seen.z, seen.yaw = robot.x, robot.y, robot.z, robot.yaw
    seen.roll, seen.pitch = robot.roll, robot.pitch
    seen.sin_yaw, seen.cos_yaw = _sincos(robot.yaw)
    seen.quaternion_x, seen.quaternion_y = 0.0, 0.0
    if robot.roll != 0.0 or robot.pitch != 0.0:
        _observe_tilted(robot, seen)


@kernel
def _observe_level(robot: Column, seen: Column) -> None:
    sine, cosine = seen.sin_yaw, seen.cos_yaw
    half_sine, half_cosine = _sincos(0.5 * robot.yaw)
    seen.quaternion_z, seen.quaternion_w = half_sine, half_cosine
    vx, vy = robot.velocity_x, robot.velocity_y
    seen.forward, seen.left = cosine * vx + sine * vy, cosine * vy - sine * vx
    seen.up, seen.turn = robot.velocity_z, robot.yaw_rate
    seen.rolling, seen.pitching = robot.roll_rate, robot.pitch_rate
    ax, ay = robot.acceleration_x, robot.acceleration_y
    seen.accel_forward, seen.accel_left = cosine * ax + sine * ay, cosine * ay - sine * ax
    seen.accel_up = robot.acceleration_z
    seen.x_forward, seen.x_left, seen.x_up = cosine, -sine, 0.0
    seen.y_forward, seen.y_left, seen.y_up = sine, cosine, 0.0
    seen.z_forward, seen.z_left, seen.z_up = 0.0, 0.0, 1.0


@kernel
def _observe_tilted(robot: Column, seen: Column) -> None:
    sy, cy = seen.sin_yaw, seen.cos_yaw
    sp, cp = _sincos(robot.pitch)
    sr, cr = _sincos(robot.roll)
    hy, ky = _sincos(0.5 * robot.yaw)
    hp, kp = _sincos(0.5 * robot.pitch)
    hr, kr = _sincos(0.5 * robot.roll)
    seen.quaternion_x, seen.quaternion_y = hr * kp * ky - kr * hp * hy, kr * hp * ky + hr * kp * hy
    seen.quaternion_z, seen.quaternion_w = kr * kp * hy - hr * hp * ky, kr * kp * ky + hr * hp * hy
    seen.x_forward, seen.x_left, seen.x_up = cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr
    seen.y_forward, seen.y_left, seen.y_up = sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr
    seen.z_forward, seen.z_left, seen.z_up = -sp, cp * sr, cp * cr
    vx, vy, vz = robot.velocity_x, robot.velocity_y, robot.velocity_z
    ax, ay, az = robot.acceleration_x, robot.acceleration_y, robot.acceleration_z
    p, q, r = seen.x_forward, seen.y_forward, seen.z_forward
    seen.forward, seen.accel_forward = p * vx + q * vy + r * vz, p * ax + q * ay + r * az
    p, q, r = seen.x_left, seen.y_left, seen.z_left
    seen.left, seen.accel_left = p * vx + q * vy + r * vz, p * ax + q * ay + r * az
    p, q, r = seen.x_up, seen.y_up, seen.z_up
    seen.up, seen.accel_up = p * vx + q * vy + r * vz, p * ax + q * ay + r * az
    seen.rolling = robot.roll_rate - robot.yaw_rate * sp
    seen.pitching = robot.pitch_rate * cr + robot.yaw_rate * sr * cp
    seen.turn = robot.yaw_rate * cr * cp - robot.pitch_rate * sr


@kernel
def is_level_row(motion: Array) -> bool:
    seen = _motion_in(motion)
    return seen.quaternion_x == 0.0 and seen.quaternion_y == 0.0


@inlined
def level_place(
    x: float, y: float, z: float, sine: float, cosine: float, mount: tuple[float, float, float]
) -> tuple[float, float, float]:
    """`place_of` for a robot that does not lean."""
    return x + cosine * mount[0] - sine * mount[1], y + sine * mount[0] + cosine * mount[1], z + mount[2]


@kernel
def place_of(motion: Array, x: float, y: float, z: float) -> tuple[float, float, float]:
    """Map position of a point fixed to the robot at (x, y, z) in its base_link."""
    m = _motion_in(motion)
    if m.quaternion_x == 0.0 and m.quaternion_y == 0.0:  # the sums in the order of the golden digests
        return level_place(m.x, m.y, m.z, m.sin_yaw, m.cos_yaw, (x, y, z))
    return (
        m.x + (m.x_forward * x + m.x_left * y + m.x_up * z),
        m.y + (m.y_forward * x + m.y_left * y + m.y_up * z),
        m.z + (m.z_forward * x + m.z_left * y + m.z_up * z),
    )


_plain_place_of: Callable[[Motion, float, float, float], Vector] = plain(place_of)
is_level: Callable[[Motion], bool] = plain(is_level_row)


def mounted_at(motion: Motion, xyz: Vector) -> Vector:
    """Map position of a point fixed to the robot at xyz in its base_link."""
    return _plain_place_of(motion, *xyz)


@kernel
def turned_by(motion: Array, rotation: Rotation) -> Rotation:
    (a, b, c), (d, e, f), (g, h, i) = rotation
    seen = _motion_in(motion)
    if seen.quaternion_x == 0.0 and seen.quaternion_y == 0.0:
        sine, cosine = seen.sin_yaw, seen.cos_yaw
        return (
            (cosine * a - sine * d, cosine * b - sine * e, cosine * c - sine * f),
            (sine * a + cosine * d, sine * b + cosine * e, sine * c + cosine * f),
            (g, h, i),
        )
    k, m, n = seen.x_forward, seen.x_left, seen.x_up
    p, q, r = seen.y_forward, seen.y_left, seen.y_up
    s, t, u = seen.z_forward, seen.z_left, seen.z_up
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
