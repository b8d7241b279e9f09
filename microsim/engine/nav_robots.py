"""Planar robots for navigation tests: a held command, a timeout, limits, slow-down before obstacles, Euler's step.

All robots of a node are columns, moved by one call. Poses are kept in the odom frame, which is smooth; two transforms
lead from there to the map frame: MAP_* as localisation last said, which is published, and WORLD_* as it really is,
which decides what is in the robot's way and what its scanner sees.
"""

import math

import numpy as np
import numpy.typing as npt

from microsim.engine import exact, geometry, noise, speed_limits
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Grid
from microsim.rays import discs as _discs

_distance_to_occupied = geometry.distance_to_occupied
_normals = noise.normals
_sincos = exact.sincos
_towards = speed_limits.towards
_way_to_discs = _discs.way_to_discs
_wrap_angle = exact.wrap_angle

# rows of the state
X, Y, YAW = 0, 1, 2  # [m] [m] [rad] odom frame
V, OMEGA, ACCEL, ALPHA = 3, 4, 5, 6  # [m/s] [rad/s] [m/s^2] [rad/s^2]
MAP_X, MAP_Y, MAP_YAW = 7, 8, 9  # map -> odom, as published
WORLD_X, WORLD_Y, WORLD_YAW = 10, 11, 12  # map -> odom, as it is
AHEAD = 13  # [m] free way in the direction of the command, inf when there is none or nobody looked
ROWS = 14

# modes (the document's states)
IDLE, ACTIVE, TIMEOUT_STOP = 0, 1, 2

# rows of what `advance` is told, the same for all robots
DT, MAX_V, SLOW_M, STOP_M, RADIUS_M, MIN_TURN_M = range(6)
MAX_ACCEL, MAX_JERK, MAX_ALPHA, MAX_ANGULAR_JERK = range(6, 10)
PARAMETERS = 10


@kernel
def compose(x: float, y: float, yaw: float, dx: float, dy: float, dyaw: float) -> tuple[float, float, float]:
    """The pose (dx, dy, dyaw) of the frame at (x, y, yaw), in the frame that one is given in."""
    sine, cosine = _sincos(yaw)
    return x + cosine * dx - sine * dy, y + sine * dx + cosine * dy, _wrap_angle(yaw + dyaw)


@kernel
def origin_for(
    x: float, y: float, yaw: float, odom_x: float, odom_y: float, odom_yaw: float
) -> tuple[float, float, float]:
    """map -> odom under which the odometry's pose is (x, y, yaw) in the map."""
    turn = _wrap_angle(yaw - odom_yaw)
    sine, cosine = _sincos(turn)
    return x - (cosine * odom_x - sine * odom_y), y - (sine * odom_x + cosine * odom_y), turn


@kernel
def is_occupied(clearance: Grid, cell: float, u: float, v: float) -> bool:
    """True when a point of the grid's frame lies in an occupied cell; beyond the grid nothing is."""
    rows, columns = clearance.shape
    column, row = u / cell, v / cell
    # compared before they become integers: what an out-of-range number becomes depends on the processor
    return 0.0 <= column < columns and 0.0 <= row < rows and clearance[int(row), int(column)] == 0


@kernel
def free_way(
    x: float,
    y: float,
    dx: float,
    dy: float,
    radius: float,
    reach: float,
    has_grid: bool,
    clearance: Grid,
    cell: float,
    frame: Array,
    discs: Array,
) -> float:
    """How far a round robot at (x, y) can drive along the unit vector (dx, dy), inf beyond `reach`.

    The grid is looked at along parallel rays across the robot's width, at most half a cell apart. A ray that begins in
    an occupied cell does not count: who touches a wall may drive along it, and who was put into one may drive out.
    """
    free = _way_to_discs(discs, x, y, dx, dy, radius)
    if has_grid:
        east, north = x - frame[0], y - frame[1]
        sine, cosine = frame[2], frame[3]
        u, v = cosine * east + sine * north, cosine * north - sine * east
        du, dv = cosine * dx + sine * dy, cosine * dy - sine * dx
        rays = min(math.ceil(2.0 * radius / cell), 16)  # on either side
        for k in range(-rays, rays + 1):
            aside = radius * k / rays if rays > 0 else 0.0
            front = math.sqrt(max(radius * radius - aside * aside, 0.0))
            start_u, start_v = u - dv * aside, v + du * aside
            if not is_occupied(clearance, cell, start_u, start_v):
                way = _distance_to_occupied(clearance, cell, start_u, start_v, du, dv, reach + front, False)
                free = min(free, max(way - front, 0.0))
    return free if free <= reach else math.inf


@kernel
def allowed_speed(ahead: float, max_v: float, slow_m: float, stop_m: float, dt: float) -> float:
    """Falls in a straight line from max_v at slow_m to 0 at stop_m, and never lets a tick reach past stop_m."""
    if ahead >= slow_m:
        return math.inf
    if ahead <= stop_m:
        return 0.0
    left = ahead - stop_m
    return min(max_v * left / (slow_m - stop_m), left / dt)


@kernel
def advance(
    state: Array,
    mode: npt.NDArray[np.int64],
    since: npt.NDArray[np.int64],
    command: Array,
    parameters: Array,
    timeout_ticks: int,
    tick: int,
    has_grid: bool,
    clearance: Grid,
    cell: float,
    frame: Array,
    discs: Array,
) -> int:
    """From tick to tick + 1; gives how many robots timed out in it.

    command (2, n): v, omega, within its limits; since (n,): tick of the latest command. A command taken at tick k moves
    the robot up to tick k + timeout_ticks; the step after that is one of TIMEOUT_STOP.
    """
    dt = parameters[DT]
    looks = parameters[SLOW_M] > 0.0 and (has_grid or discs.shape[1] > 0)
    stopped = 0
    for i in range(state.shape[1]):
        if mode[i] == ACTIVE and tick + 1 - since[i] > timeout_ticks:
            mode[i] = TIMEOUT_STOP
            stopped += 1
        v = command[0, i] if mode[i] == ACTIVE else 0.0
        omega = command[1, i] if mode[i] == ACTIVE else 0.0
        state[AHEAD, i] = math.inf
        if looks and v != 0.0:
            x, y, yaw = compose(
                state[WORLD_X, i], state[WORLD_Y, i], state[WORLD_YAW, i], state[X, i], state[Y, i], state[YAW, i]
            )
            sine, cosine = _sincos(yaw)
            sign = 1.0 if v > 0.0 else -1.0
            reach = parameters[SLOW_M]
            ahead = free_way(
                x, y, sign * cosine, sign * sine, parameters[RADIUS_M], reach, has_grid, clearance, cell, frame, discs
            )
            state[AHEAD, i] = ahead
            most = allowed_speed(ahead, parameters[MAX_V], reach, parameters[STOP_M], dt)
            v = min(max(v, -most), most)
        v, a = _towards(state[V, i], state[ACCEL, i], v, parameters[MAX_ACCEL], parameters[MAX_JERK], dt)
        if parameters[MIN_TURN_M] > 0.0:
            most = abs(v) / parameters[MIN_TURN_M]
            omega = min(max(omega, -most), most)
        omega, alpha = _towards(
            state[OMEGA, i], state[ALPHA, i], omega, parameters[MAX_ALPHA], parameters[MAX_ANGULAR_JERK], dt
        )
        sine, cosine = _sincos(state[YAW, i])
        state[X, i] += v * cosine * dt
        state[Y, i] += v * sine * dt
        state[YAW, i] = _wrap_angle(state[YAW, i] + omega * dt)
        state[V, i], state[OMEGA, i], state[ACCEL, i], state[ALPHA, i] = v, omega, a, alpha
    return stopped


# columns of what `observe` fills in, one row per robot
ODOM_X, ODOM_Y, ODOM_QZ, ODOM_QW, SPEED, TURN = range(6)
POSE_X, POSE_Y, POSE_QZ, POSE_QW = range(6, 10)  # map frame, with localisation's noise
TRUE_X, TRUE_Y, TRUE_QZ, TRUE_QW = range(10, 14)  # map -> base_link without noise: for /tf
ORIGIN_X, ORIGIN_Y, ORIGIN_QZ, ORIGIN_QW = range(14, 18)  # map -> odom
FIELDS = 18


@kernel
def observe(state: Array, keys: npt.NDArray[np.int64], tick: int, sigma_m: float, sigma_yaw: float, out: Array) -> None:
    """What messages hold: (n, FIELDS)."""
    for i in range(state.shape[1]):
        ox, oy, oyaw = state[X, i], state[Y, i], state[YAW, i]
        x, y, yaw = compose(state[MAP_X, i], state[MAP_Y, i], state[MAP_YAW, i], ox, oy, oyaw)
        out[i, ODOM_X], out[i, ODOM_Y] = ox, oy
        out[i, ODOM_QZ], out[i, ODOM_QW] = _sincos(0.5 * oyaw)
        out[i, SPEED], out[i, TURN] = state[V, i], state[OMEGA, i]
        out[i, TRUE_X], out[i, TRUE_Y] = x, y
        out[i, TRUE_QZ], out[i, TRUE_QW] = _sincos(0.5 * yaw)
        out[i, ORIGIN_X], out[i, ORIGIN_Y] = state[MAP_X, i], state[MAP_Y, i]
        out[i, ORIGIN_QZ], out[i, ORIGIN_QW] = _sincos(0.5 * state[MAP_YAW, i])
        if sigma_m > 0.0:
            first, second = _normals(keys[i], tick, 0)
            x, y = x + sigma_m * first, y + sigma_m * second
        if sigma_yaw > 0.0:
            yaw = _wrap_angle(yaw + sigma_yaw * _normals(keys[i], tick, 1)[0])
        out[i, POSE_X], out[i, POSE_Y] = x, y
        out[i, POSE_QZ], out[i, POSE_QW] = _sincos(0.5 * yaw)
