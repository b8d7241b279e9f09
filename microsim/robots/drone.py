"""Kinematic drone (PRD 4.1.1, 6.2): body-frame velocity commands, first-order lag, wind, ground clearance."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from microsim.documents.values import Height, Metres
from microsim.engine import exact
from microsim.engine.calls import BLOCK, FARTHEST, TRACE_ROWS, Scene
from microsim.engine.column_blocks import note_distance, put_back, take, take_parameters
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
    Airflow,
    RobotModel,
    X,
    Y,
    Z,
)
from microsim.engine.exact import sincos, wrap_angle
from microsim.engine.geometry import Array, ground_height
from microsim.engine.noise import normals
from microsim.robots.robot import Limit, Look, Pose, Robot, Start, TimeConstant
from microsim.sensors.camera import LOOKING_DOWN, Camera
from microsim.sensors.sensor import Mount

Keys: TypeAlias = npt.NDArray[np.int64]

# rows of the state after the common ones
VX, VY, VZ = COMMON_ROWS, COMMON_ROWS + 1, COMMON_ROWS + 2  # [m/s] body frame, through the air
GUST_X, GUST_Y, GUST_Z = COMMON_ROWS + 3, COMMON_ROWS + 4, COMMON_ROWS + 5  # [m/s] map frame
_DRIVE_X, _DRIVE_Y, _DRIVE_Z = COMMON_ROWS + 6, COMMON_ROWS + 7, COMMON_ROWS + 8  # [m/s] what the gust follows

_ROWS = COMMON_ROWS + 9

# rows of the parameters
_MAX_VX, _MAX_VY, _MAX_VZ, _MAX_YAW_RATE, _LAG, _CLEARANCE = range(6)
_WIND_X, _WIND_Y, _WIND_Z, _GUST_KEEP, _GUST_NEW = range(6, 11)


def lag_factor(dt: float, time_constant: float) -> float:
    """Share of the way to a held command that a first-order lag goes in dt (exact solution); 1 without lag."""
    return 1.0 - exact.exp(-dt / time_constant) if time_constant > 0.0 else 1.0


def parameters(settings: Any, wind: Airflow, dt: float) -> tuple[float, ...]:
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


@inlined
def approach(value: float, command: float, limit: float, lag: float) -> float:
    """One tick of clamp and lag."""
    return value + (min(max(command, -limit), limit) - value) * lag


@kernel
def _blow(state: Array, parameters: Array, i: int, key: int, tick: int) -> None:
    """Gusts: in each axis a Gauss-Markov process, smoothed by its own time constant.

    Without the smoothing the drone's acceleration, and so its IMU, would be noise that grows with the tick rate.
    """
    first, second = normals(key, tick, 0)
    third, _ = normals(key, tick, 1)
    keep, new = parameters[_GUST_KEEP, i], parameters[_GUST_NEW, i]
    state[_DRIVE_X, i] = keep * state[_DRIVE_X, i] + new * first
    state[_DRIVE_Y, i] = keep * state[_DRIVE_Y, i] + new * second
    state[_DRIVE_Z, i] = keep * state[_DRIVE_Z, i] + new * third
    state[GUST_X, i] = keep * state[GUST_X, i] + (1.0 - keep) * state[_DRIVE_X, i]
    state[GUST_Y, i] = keep * state[GUST_Y, i] + (1.0 - keep) * state[_DRIVE_Y, i]
    state[GUST_Z, i] = keep * state[GUST_Z, i] + (1.0 - keep) * state[_DRIVE_Z, i]


@inlined
def _fly(state: Array, command: Array, parameters: Array, i: int, dt: float) -> None:
    """One tick over ground."""
    lag = parameters[_LAG, i]
    vx = approach(state[VX, i], command[0, i], parameters[_MAX_VX, i], lag)
    vy = approach(state[VY, i], command[1, i], parameters[_MAX_VY, i], lag)
    yaw_rate = approach(state[YAW_RATE, i], command[3, i], parameters[_MAX_YAW_RATE, i], lag)
    sine, cosine = sincos(state[YAW, i])
    world_x = cosine * vx - sine * vy + parameters[_WIND_X, i] + state[GUST_X, i]
    world_y = sine * vx + cosine * vy + parameters[_WIND_Y, i] + state[GUST_Y, i]
    state[X, i] += world_x * dt
    state[Y, i] += world_y * dt
    state[YAW, i] = wrap_angle(state[YAW, i] + yaw_rate * dt)
    state[VELOCITY_X, i], state[VELOCITY_Y, i], state[YAW_RATE, i] = world_x, world_y, yaw_rate
    state[VX, i], state[VY, i] = vx, vy


@inlined
def _climb(state: Array, command: Array, parameters: Array, i: int, ground: float, dt: float) -> None:
    """The same tick in height, no lower than the clearance over the ground at the new place."""
    vz = approach(state[VZ, i], command[2, i], parameters[_MAX_VZ, i], parameters[_LAG, i])
    world_z = vz + parameters[_WIND_Z, i] + state[GUST_Z, i]
    z = state[Z, i] + world_z * dt
    lowest = ground + parameters[_CLEARANCE, i]
    is_below = z < lowest
    world_z = (lowest - state[Z, i]) / dt if is_below else world_z
    state[Z, i] = lowest if is_below else z
    state[VZ, i] = max(vz, 0.0) if is_below else vz
    state[VELOCITY_Z, i] = world_z


@inlined
def accelerate(state: Array, i: int, x: float, y: float, z: float, dt: float) -> None:
    """x, y, z [m/s]: the velocity before the tick."""
    state[ACCELERATION_X, i] = (state[VELOCITY_X, i] - x) / dt
    state[ACCELERATION_Y, i] = (state[VELOCITY_Y, i] - y) / dt
    state[ACCELERATION_Z, i] = (state[VELOCITY_Z, i] - z) / dt


@kernel
def advance(state: Array, command: Array, parameters: Array, keys: Keys, scene: Scene, tick: int, ticks: int) -> None:
    for i in range(state.shape[1]):
        for k in range(tick, tick + ticks):
            if parameters[_GUST_NEW, i] > 0.0:
                _blow(state, parameters, i, keys[i], k)
            x, y, z = state[VELOCITY_X, i], state[VELOCITY_Y, i], state[VELOCITY_Z, i]
            _fly(state, command, parameters, i, scene.dt)
            ground = ground_height(scene.elevation, scene.cell, state[X, i] - scene.west, state[Y, i] - scene.south)
            _climb(state, command, parameters, i, ground, scene.dt)
            accelerate(state, i, x, y, z, scene.dt)


@kernel
def advance_many(
    state: Array, command: Array, parameters: Array, keys: Keys, scene: Scene, tick: int, ticks: int, trace: Array
) -> None:
    """What a tick overwrites is not computed before the last one."""
    elevation, cell, west, south, dt = scene.elevation, scene.cell, scene.west, scene.south, scene.dt
    s, c, p, ground = np.empty((_ROWS, BLOCK)), np.empty((4, BLOCK)), np.empty((11, BLOCK)), np.empty(BLOCK)
    t, before = np.empty((TRACE_ROWS, BLOCK)), np.empty((VELOCITY_Z + 1, BLOCK))
    ground[:] = elevation[0, 0]  # all there is of a level map
    for begin in range(0, state.shape[1], BLOCK):
        count = min(BLOCK, state.shape[1] - begin)
        if begin == 0 or parameters.strides[1] != 0:  # else all robots have the same
            take_parameters(p, parameters, begin, count)
        gusts = False
        for i in range(count):
            gusts |= p[_GUST_NEW, i] > 0.0
        take(s, state, begin, count, 0, ROLL)  # it never leans: rows from there on to the model's own stay 0
        take(s, state, begin, count, COMMON_ROWS, _ROWS if gusts else _DRIVE_X)
        take(c, command, begin, count, 0, 4)
        take(t, trace, begin, count, 0, TRACE_ROWS)
        for k in range(tick, tick + ticks):
            if gusts:
                for i in range(count):
                    if p[_GUST_NEW, i] > 0.0:
                        _blow(s, p, i, keys[begin + i], k)
            if k == tick + ticks - 1:
                take(before, s, 0, count, VELOCITY_X, VELOCITY_Z + 1)
            for i in range(count):
                _fly(s, c, p, i, dt)
            if elevation.size > 1:
                for i in range(count):
                    ground[i] = ground_height(elevation, cell, s[X, i] - west, s[Y, i] - south)
            for i in range(count):
                _climb(s, c, p, i, ground[i], dt)
                note_distance(s, i, t, i)
        for i in range(count):
            accelerate(s, i, before[VELOCITY_X, i], before[VELOCITY_Y, i], before[VELOCITY_Z, i], dt)
        put_back(s, state, begin, count, 0, ROLL)
        put_back(s, state, begin, count, COMMON_ROWS, _ROWS if gusts else GUST_X)
        put_back(t, trace, begin, count, FARTHEST, TRACE_ROWS)


class DronePose(Pose):
    """Where a drone starts, in the map frame."""

    x: Metres = Field(20.0, description="East [m].")
    y: Metres = Field(20.0, description="North [m].")
    z: Metres = Field(10.0, description="Height in the map frame [m].")


class DroneStart(Start):
    """How a drone starts."""

    map_pose: DronePose = Field(DronePose(), description="Pose in the map frame.")


class Drone(Robot):
    """A kinematic drone: it follows velocity commands with a lag."""

    position: ClassVar[int] = 1
    mounts: ClassVar[Mapping[str, Mount]] = {
        "gps": Mount(xyz=(0.0, 0.0, 0.08)),
        "camera": Mount(xyz=(0.10, 0.0, -0.05), rpy=LOOKING_DOWN),
    }
    follower: ClassVar[str] = "fly"
    urdf: ClassVar[str] = "drone"
    wind_parameter: ClassVar[bool] = True

    model: Literal["drone"] = Field("drone", description="A kinematic drone.")
    start: DroneStart = Field(DroneStart(), description="How it starts.")
    max_vx: Limit = Field(5.0, description="Greatest speed forward and backward [m/s].")
    max_vy: Limit = Field(5.0, description="Greatest speed left and right [m/s].")
    max_vz: Limit = Field(3.0, description="Greatest speed up and down [m/s].")
    max_yaw_rate: Limit = Field(1.5, description="Greatest turning rate [rad/s].")
    cmd_time_constant: TimeConstant = Field(0.15, description="Lag of commands, first order; 0: none [s].")
    ground_clearance_m: Height = Field(0.1, description="Least height above the ground [m].")
    camera: Camera | None = Field(Camera(), description="Camera looking down; null: none.")

    engine: ClassVar[RobotModel] = RobotModel(
        name="drone",
        inputs=("vx", "vy", "vz", "yaw_rate"),
        twist_fields=("linear.x", "linear.y", "linear.z", "angular.z"),
        rows=_ROWS,
        state={"x": X, "y": Y, "z": Z, "yaw": YAW, "vx": VX, "vy": VY, "vz": VZ, "yaw_rate": YAW_RATE},
        zero_when_held=(VX, VY, VZ),
        parameters=parameters,
        advance=advance,
        advance_many=advance_many,
        is_ground_bound=False,
        needs_tick=lambda parameters: bool((parameters[_GUST_NEW] > 0.0).any()),
    )

    def body(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        return (0.0, 0.0, 0.0), (0.5, 0.5, 0.15)

    def look(self) -> Look:
        return Look("cylinder", (0.3, 0.3, 0.05), (0.1, 0.1, 0.1))


ROBOT = Drone
