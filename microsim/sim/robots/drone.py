"""Kinematic drone (PRD 4.1.1, 6.2): body-frame velocity commands, first-order lag, wind, ground clearance."""

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from microsim.sim import exact, geometry, noise
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

_ground_height = geometry.ground_height
_normals = noise.normals
_sincos = exact.sincos
_wrap_angle = exact.wrap_angle

# rows of the state after the common ones
VX, VY, VZ = COMMON_ROWS, COMMON_ROWS + 1, COMMON_ROWS + 2  # [m/s] body frame, through the air
GUST_X, GUST_Y, GUST_Z = COMMON_ROWS + 3, COMMON_ROWS + 4, COMMON_ROWS + 5  # [m/s] map frame
_DRIVE_X, _DRIVE_Y, _DRIVE_Z = COMMON_ROWS + 6, COMMON_ROWS + 7, COMMON_ROWS + 8  # [m/s] what the gust follows

# rows of the parameters
_MAX_VX, _MAX_VY, _MAX_VZ, _MAX_YAW_RATE, _LAG, _CLEARANCE = range(6)
_WIND_X, _WIND_Y, _WIND_Z, _GUST_KEEP, _GUST_NEW = range(6, 11)


class Settings(Protocol):
    max_vx: float
    max_vy: float
    max_vz: float
    max_yaw_rate: float
    cmd_time_constant: float
    ground_clearance_m: float


def lag_factor(dt: float, time_constant: float) -> float:
    """Share of the way to a held command that a first-order lag goes in dt (exact solution); 1 without lag."""
    return 1.0 - exact.exp(-dt / time_constant) if time_constant > 0.0 else 1.0


def parameters(settings: Settings, wind: Wind, dt: float) -> tuple[float, ...]:
    keep = exact.exp(-dt / wind.gust_tau_s)
    return (
        settings.max_vx,
        settings.max_vy,
        settings.max_vz,
        settings.max_yaw_rate,
        lag_factor(dt, settings.cmd_time_constant),
        settings.ground_clearance_m,
        *wind.world_xyz,
        keep,
        # the drive's variance is such that the gust, which follows it with the same time constant, has sigma^2
        wind.gust_sigma * (1.0 + keep) / math.sqrt(1.0 + keep * keep) * math.sqrt(1.0 - keep * keep),
    )


@kernel
def approach(value: float, command: float, limit: float, lag: float) -> float:
    """One tick of clamp and lag."""
    return value + (min(max(command, -limit), limit) - value) * lag


@kernel
def _blow(state: Array, parameters: Array, i: int, key: int, tick: int) -> None:
    """Gusts: in each axis a Gauss-Markov process, smoothed by its own time constant.

    Without the smoothing the drone's acceleration, and so its IMU, would be noise that grows with the tick rate.
    """
    first, second = _normals(key, tick, 0)
    third, _ = _normals(key, tick, 1)
    keep, new = parameters[_GUST_KEEP, i], parameters[_GUST_NEW, i]
    state[_DRIVE_X, i] = keep * state[_DRIVE_X, i] + new * first
    state[_DRIVE_Y, i] = keep * state[_DRIVE_Y, i] + new * second
    state[_DRIVE_Z, i] = keep * state[_DRIVE_Z, i] + new * third
    state[GUST_X, i] = keep * state[GUST_X, i] + (1.0 - keep) * state[_DRIVE_X, i]
    state[GUST_Y, i] = keep * state[GUST_Y, i] + (1.0 - keep) * state[_DRIVE_Y, i]
    state[GUST_Z, i] = keep * state[GUST_Z, i] + (1.0 - keep) * state[_DRIVE_Z, i]


@kernel
def _fly(
    state: Array,
    command: Array,
    parameters: Array,
    i: int,
    elevation: Array,
    cell: float,
    west: float,
    south: float,
    dt: float,
) -> None:
    lag = parameters[_LAG, i]
    vx = approach(state[VX, i], command[0, i], parameters[_MAX_VX, i], lag)
    vy = approach(state[VY, i], command[1, i], parameters[_MAX_VY, i], lag)
    vz = approach(state[VZ, i], command[2, i], parameters[_MAX_VZ, i], lag)
    yaw_rate = approach(state[YAW_RATE, i], command[3, i], parameters[_MAX_YAW_RATE, i], lag)
    sine, cosine = _sincos(state[YAW, i])
    world_x = cosine * vx - sine * vy + parameters[_WIND_X, i] + state[GUST_X, i]
    world_y = sine * vx + cosine * vy + parameters[_WIND_Y, i] + state[GUST_Y, i]
    world_z = vz + parameters[_WIND_Z, i] + state[GUST_Z, i]
    x = state[X, i] + world_x * dt
    y = state[Y, i] + world_y * dt
    z = state[Z, i] + world_z * dt
    lowest = _ground_height(elevation, cell, x - west, y - south) + parameters[_CLEARANCE, i]
    if z < lowest:
        world_z = (lowest - state[Z, i]) / dt
        z = lowest
        vz = max(vz, 0.0)
    state[ACCELERATION_X, i] = (world_x - state[VELOCITY_X, i]) / dt
    state[ACCELERATION_Y, i] = (world_y - state[VELOCITY_Y, i]) / dt
    state[ACCELERATION_Z, i] = (world_z - state[VELOCITY_Z, i]) / dt
    state[X, i], state[Y, i], state[Z, i] = x, y, z
    state[YAW, i] = _wrap_angle(state[YAW, i] + yaw_rate * dt)
    state[YAW_RATE, i] = yaw_rate
    state[VELOCITY_X, i], state[VELOCITY_Y, i], state[VELOCITY_Z, i] = world_x, world_y, world_z
    state[VX, i], state[VY, i], state[VZ, i] = vx, vy, vz


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
        for k in range(tick, tick + ticks):
            if parameters[_GUST_NEW, i] > 0.0:
                _blow(state, parameters, i, keys[i], k)
            _fly(state, command, parameters, i, elevation, cell, west, south, dt)


ROBOT = RobotModel(
    name="drone",
    inputs=("vx", "vy", "vz", "yaw_rate"),
    twist_fields=("linear.x", "linear.y", "linear.z", "angular.z"),
    rows=COMMON_ROWS + 9,
    state={"x": X, "y": Y, "z": Z, "yaw": YAW, "vx": VX, "vy": VY, "vz": VZ, "yaw_rate": YAW_RATE},
    parameters=parameters,
    advance=advance,
    is_ground_bound=False,
)
