"""Kinematic differential-drive rover (PRD 4.1.2, 6.2): stops at occupied cells and at the map's edge."""

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from microsim.sim import exact, geometry
from microsim.sim.compiled import kernel
from microsim.sim.components import (
    ACCELERATION_X,
    ACCELERATION_Y,
    ACCELERATION_Z,
    COMMON_ROWS,
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
from microsim.sim.geometry import Array, Grid
from microsim.sim.robots.drone import approach, lag_factor

_distance_to_occupied = geometry.distance_to_occupied
_ground_height = geometry.ground_height
_is_free = geometry.is_free
_sincos = exact.sincos
_wrap_angle = exact.wrap_angle

# rows of the state after the common ones
V = COMMON_ROWS  # [m/s] forward
CONTACTS = COMMON_ROWS + 1  # ticks in which an occupied cell or the map's edge stopped the rover

CONTACT_GAP_M = 1e-3  # how far from an occupied cell a stopped rover stands

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
    blocked = free < length or not _is_free(clearance, cell, wanted_x - west, wanted_y - south)
    new_x = x + sign * cosine * free if blocked else wanted_x
    new_y = y + sign * sine * free if blocked else wanted_y
    z = _ground_height(elevation, cell, new_x - west, new_y - south)
    velocity_x, velocity_y, velocity_z = (new_x - x) / dt, (new_y - y) / dt, (z - state[Z, i]) / dt
    if blocked:
        v = 0.0
        state[CONTACTS, i] += 1.0
    else:
        velocity_x, velocity_y = cosine * v, sine * v
    state[ACCELERATION_X, i] = (velocity_x - state[VELOCITY_X, i]) / dt
    state[ACCELERATION_Y, i] = (velocity_y - state[VELOCITY_Y, i]) / dt
    state[ACCELERATION_Z, i] = (velocity_z - state[VELOCITY_Z, i]) / dt
    state[X, i], state[Y, i], state[Z, i] = new_x, new_y, z
    state[YAW, i] = _wrap_angle(state[YAW, i] + omega * dt)
    state[YAW_RATE, i] = omega
    state[VELOCITY_X, i], state[VELOCITY_Y, i], state[VELOCITY_Z, i] = velocity_x, velocity_y, velocity_z
    state[V, i] = v


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
    lag = parameters[_LAG, i]
    v = approach(state[V, i], command[0, i], parameters[_MAX_V, i], lag)
    omega = approach(state[YAW_RATE, i], command[1, i], parameters[_MAX_OMEGA, i], lag)
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
    for i in range(state.shape[1]):
        for _ in range(ticks):
            _drive(state, command, parameters, i, elevation, clearance, cell, west, south, dt)


ROBOT = RobotModel(
    name="rover",
    inputs=("v", "omega"),
    twist_fields=("linear.x", "angular.z"),
    rows=COMMON_ROWS + 2,
    state={"x": X, "y": Y, "z": Z, "yaw": YAW, "v": V, "omega": YAW_RATE, "contacts": CONTACTS},
    parameters=parameters,
    advance=advance,
    is_ground_bound=True,
)
