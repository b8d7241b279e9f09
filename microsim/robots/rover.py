"""Kinematic differential-drive rover (PRD 4.1.2, 6.2): stops at occupied cells and at the map's edge."""

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from microsim.engine import columns, exact, geometry
from microsim.engine.columns import BLOCK, FEW
from microsim.engine.compiled import inlined, kernel
from microsim.engine.components import (
    ACCELERATION_X,
    ACCELERATION_Y,
    ACCELERATION_Z,
    COMMON_ROWS,
    ROLL,
    VELOCITY_X,
    VELOCITY_Y,
    VELOCITY_Z,
    YAW,
    YAW_RATE,
    RobotModel,
    Wind,
    X,
    Y,
    Z,
)
from microsim.engine.geometry import Array, Grid
from microsim.robots.drone import approach, lag_factor

_distance_to_occupied = geometry.distance_to_occupied
_ground_height = geometry.ground_height
_is_free = geometry.is_free
_sincos = exact.sincos
_wrap_angle = exact.wrap_angle
_take = columns.take
_put_back = columns.put_back

# rows of the state after the common ones
V = COMMON_ROWS  # [m/s] forward
CONTACTS = COMMON_ROWS + 1  # ticks in which an occupied cell or the map's edge stopped the rover

_ROWS = COMMON_ROWS + 2

CONTACT_GAP_M = 1e-3  # how far from an occupied cell a stopped rover stands
_SLACK_M = 1e-6  # far above what rounding can move a rover by, far below a cell

_MAX_V, _MAX_OMEGA, _LAG = range(3)


class Settings(Protocol):
    max_v: float
    max_omega: float
    cmd_time_constant: float


def parameters(settings: Settings, wind: Wind, dt: float) -> tuple[float, ...]:
    return settings.max_v, settings.max_omega, lag_factor(dt, settings.cmd_time_constant)


@kernel
def free_length(
    clearance: Grid,
    cell: float,
    west: float,
    south: float,
    x: float,
    y: float,
    dx: float,
    dy: float,
    length: float,
) -> float:
    """How far, up to `length`, the way from (x, y) along the unit vector (dx, dy) is free of occupied cells."""
    wall = _distance_to_occupied(clearance, cell, x - west, y - south, dx, dy, length + CONTACT_GAP_M, True)
    if wall == math.inf:
        return length
    length = min(length, max(wall - CONTACT_GAP_M, 0.0))
    # The end point is rounded on its own: it must lie in a free cell too, whatever the crossing's rounding said.
    return length if _is_free(clearance, cell, x + dx * length - west, y + dy * length - south) else 0.0


@inlined
def _pull(state: Array, command: Array, parameters: Array, i: int) -> tuple[float, float]:
    """(v, omega) as they become in this tick."""
    lag = parameters[_LAG, i]
    v = approach(state[V, i], command[0, i], parameters[_MAX_V, i], lag)
    return v, approach(state[YAW_RATE, i], command[1, i], parameters[_MAX_OMEGA, i], lag)


@inlined
def _go(
    state: Array, i: int, x: float, y: float, velocity_x: float, velocity_y: float, omega: float, dt: float
) -> None:
    state[ACCELERATION_X, i] = (velocity_x - state[VELOCITY_X, i]) / dt
    state[ACCELERATION_Y, i] = (velocity_y - state[VELOCITY_Y, i]) / dt
    state[X, i], state[Y, i] = x, y
    state[YAW, i] = _wrap_angle(state[YAW, i] + omega * dt)
    state[VELOCITY_X, i], state[VELOCITY_Y, i], state[YAW_RATE, i] = velocity_x, velocity_y, omega


@inlined
def _stand(state: Array, i: int, ground: float, dt: float) -> None:
    velocity_z = (ground - state[Z, i]) / dt
    state[ACCELERATION_Z, i] = (velocity_z - state[VELOCITY_Z, i]) / dt
    state[VELOCITY_Z, i], state[Z, i] = velocity_z, ground


@inlined
def _drive_freely(state: Array, command: Array, parameters: Array, i: int, dt: float) -> None:
    """One tick where nothing can be in the way."""
    v, omega = _pull(state, command, parameters, i)
    sine, cosine = _sincos(state[YAW, i])
    state[V, i] = v
    _go(state, i, state[X, i] + cosine * v * dt, state[Y, i] + sine * v * dt, cosine * v, sine * v, omega, dt)


@kernel
def travel(
    state: Array,
    i: int,
    v: float,
    omega: float,
    sine: float,
    cosine: float,
    elevation: Array,
    clearance: Grid,
    cell: float,
    west: float,
    south: float,
    dt: float,
) -> None:
    """Column i drives at v along (cosine, sine) for dt, over the ground and no farther than to an occupied cell."""
    x, y = state[X, i], state[Y, i]
    wanted_x, wanted_y = x + cosine * v * dt, y + sine * v * dt
    length = abs(v * dt)
    sign = 1.0 if v >= 0.0 else -1.0
    free = free_length(clearance, cell, west, south, x, y, sign * cosine, sign * sine, length)
    if free < length or not _is_free(clearance, cell, wanted_x - west, wanted_y - south):
        new_x, new_y = x + sign * cosine * free, y + sign * sine * free
        state[V, i] = 0.0
        state[CONTACTS, i] += 1.0
        _go(state, i, new_x, new_y, (new_x - x) / dt, (new_y - y) / dt, omega, dt)
    else:
        state[V, i] = v
        _go(state, i, wanted_x, wanted_y, cosine * v, sine * v, omega, dt)
    _stand(state, i, _ground_height(elevation, cell, state[X, i] - west, state[Y, i] - south), dt)


@kernel
def _is_far_from_walls(clearance: Grid, cell: float, x: float, y: float, reach: float) -> bool:
    """True when no way of length `reach` from (x, y) can touch an occupied cell or the map's edge."""
    rows, columns = clearance.shape
    u, v = x / cell, y / cell
    if not (0.0 <= u < columns and 0.0 <= v < rows):
        return False
    i, j = int(u), int(v)
    border = min(u - i, i + 1.0 - u, v - j, j + 1.0 - v)  # of its own cell; those around it are free too
    return reach + CONTACT_GAP_M + _SLACK_M < (float(clearance[j, i]) - 1.0 + border) * cell


@kernel
def _drive(
    state: Array,
    command: Array,
    parameters: Array,
    i: int,
    elevation: Array,
    clearance: Grid,
    cell: float,
    west: float,
    south: float,
    dt: float,
) -> None:
    v, omega = _pull(state, command, parameters, i)
    sine, cosine = _sincos(state[YAW, i])
    travel(state, i, v, omega, sine, cosine, elevation, clearance, cell, west, south, dt)


@kernel
def advance(
    state: Array,
    command: Array,
    parameters: Array,
    keys: npt.NDArray[np.int64],
    elevation: Array,
    clearance: Grid,
    cell: float,
    west: float,
    south: float,
    dt: float,
    tick: int,
    ticks: int,
) -> None:
    if state.shape[1] >= FEW:
        _advance_many(state, command, parameters, elevation, clearance, cell, west, south, dt, ticks)
        return
    for i in range(state.shape[1]):
        for _ in range(ticks):
            _drive(state, command, parameters, i, elevation, clearance, cell, west, south, dt)


@kernel
def _advance_many(
    state: Array,
    command: Array,
    parameters: Array,
    elevation: Array,
    clearance: Grid,
    cell: float,
    west: float,
    south: float,
    dt: float,
    ticks: int,
) -> None:
    """Those far from walls for all these ticks go side by side, the others one by one."""
    s, c, p, ground = np.empty((_ROWS, BLOCK)), np.empty((2, BLOCK)), np.empty((3, BLOCK)), np.empty(BLOCK)
    ground[:] = elevation[0, 0]  # all there is of a level map
    for begin in range(0, state.shape[1], BLOCK):
        count = min(BLOCK, state.shape[1] - begin)
        _take(s, state, begin, count, 0, ROLL)  # it never leans: rows from there on to the model's own stay 0
        _take(s, state, begin, count, COMMON_ROWS, _ROWS)
        _take(c, command, begin, count, 0, 2)
        if begin == 0 or parameters.strides[1] != 0:  # else all robots have the same
            _take(p, parameters, begin, count, 0, 3)
        for _ in range(ticks):
            for i in range(count):
                _drive_freely(s, c, p, i, dt)
            if elevation.size > 1:
                for i in range(count):
                    ground[i] = _ground_height(elevation, cell, s[X, i] - west, s[Y, i] - south)
            for i in range(count):
                _stand(s, i, ground[i], dt)
        for i in range(count):
            k = begin + i
            reach = max(abs(state[V, k]), p[_MAX_V, i]) * dt * ticks
            if not _is_far_from_walls(clearance, cell, state[X, k] - west, state[Y, k] - south, reach):
                for _ in range(ticks):
                    _drive(state, command, parameters, k, elevation, clearance, cell, west, south, dt)
                for row in range(_ROWS):
                    s[row, i] = state[row, k]
        _put_back(s, state, begin, count, 0, ROLL)
        _put_back(s, state, begin, count, COMMON_ROWS, _ROWS)


ROBOT = RobotModel(
    name="rover",
    inputs=("v", "omega"),
    twist_fields=("linear.x", "angular.z"),
    rows=_ROWS,
    state={"x": X, "y": Y, "z": Z, "yaw": YAW, "v": V, "omega": YAW_RATE, "contacts": CONTACTS},
    parameters=parameters,
    advance=advance,
    is_ground_bound=True,
    needs_tick=lambda parameters: False,
)
