"""Kernels over worlds: what a batch of them does in a call. Each runs the functions that a single world runs.

Arrays have a column per world, readings a row. `worlds` are the numbers of those that are meant. Settings (k, n) that
all worlds share have a stride of 0. Grids are (1, ny, nx) where all worlds share one, else (n, ny, nx).
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import exact, geometry, motion, noise
from microsim.engine import random_layout as chance
from microsim.engine.compiled import inlined, threaded_kernel, threaded_kernel_of_kernel
from microsim.engine.components import PITCH as _PITCH
from microsim.engine.components import ROLL as _ROLL
from microsim.engine.components import YAW, X, Y, Z
from microsim.engine.geometry import Array, Grid, Vector
from microsim.engine.motion import (
    COS_YAW,
    FIELDS,
    FORWARD,
    LEFT,
    PITCH,
    PITCHING,
    QUATERNION_W,
    QUATERNION_X,
    QUATERNION_Y,
    QUATERNION_Z,
    ROLL,
    ROLLING,
    SIN_YAW,
    TURN,
    UP,
)
from microsim.sensors import gps, imu, odometry
from microsim.sensors import range as range_sensor
from microsim.sensors import scan as scan_sensor
from microsim.sensors.imu import Axes
from microsim.sensors.odometry import POSE_VARIANCE

Integers: TypeAlias = npt.NDArray[np.int64]
Grids: TypeAlias = Grid  # (1 or n, ny, nx)
Readings: TypeAlias = npt.NDArray[np.float32]

_observe = motion.observe
_place_of = motion.place_of
_ground_height = geometry.ground_height
_quaternion_from_rpy = geometry.quaternion_from_rpy
_wrap_angle = exact.wrap_angle
_sincos = exact.sincos
_start_place = chance.start_place
_uniforms = noise.uniforms
_beam = range_sensor.beam
_sweep = scan_sensor.sweep
_fix = gps.fix
_feel = imu.feel
_misjudge = odometry.misjudge

# rows of the settings of a sensor
SIGMA, DROPOUT = 0, 1  # range and scan
BIAS_DRIFT = 1  # gps
GYRO_SIGMA, ACCEL_SIGMA = 0, 1  # imu
POSITION_PER_M, YAW_PER_RAD = 0, 1  # odometry

# rows of a drift's memory
POSE, SEEN, DISTANCE, TURNED, DRIFT_ROWS = 0, 4, 8, 9, 10


@threaded_kernel
def take_commands(
    handed_in: Array, in_force: Array, state: Array, age: int, ignored: Integers, begin: int, end: int
) -> None:
    """Put commands into force; one with NaN or infinity is ignored as a whole. `age`: row of the state, or -1."""
    for i in range(begin, end):
        is_good = True
        for k in range(handed_in.shape[0]):
            is_good = is_good and np.isfinite(handed_in[k, i])
        if not is_good:
            ignored[i] += 1
            continue
        for k in range(handed_in.shape[0]):
            in_force[k, i] = handed_in[k, i]
        if age >= 0:
            state[age, i] = 0.0


@threaded_kernel_of_kernel
def move(
    advance: Callable[..., None],
    needs_tick: bool,
    state: Array,
    command: Array,
    parameters: Array,
    keys: Integers,
    elevation: Array,
    footings: Grids,
    cell: float,
    west: float,
    south: float,
    dt: float,
    tick: Integers,
    ticks: int,
    begin: int,
    end: int,
) -> None:
    """Worlds begin … end - 1 from their own tick on by `ticks`; neighbours of the same tick and grid in one call."""
    is_shared = footings.shape[0] == 1
    first = begin
    while first < end:
        last = first + 1
        while last < end and is_shared and (tick[last] == tick[first] or not needs_tick):
            last += 1
        advance(
            state[:, first:last],
            command[:, first:last],
            parameters[:, first:last],
            keys[first:last],
            elevation,
            footings[0 if is_shared else first],
            cell,
            west,
            south,
            dt,
            tick[first],
            ticks,
        )
        first = last


@threaded_kernel
def put_at_start(
    state: Array,
    pose: Array,
    chances: Array,
    gap_m: float,
    is_drawn: bool,
    is_ground_bound: bool,
    elevation: Array,
    footings: Grids,
    cell: float,
    west: float,
    south: float,
    keys: Integers,
    worlds: Integers,
) -> None:
    """Robots at rest: at the pose x, y, z, yaw, or where chance puts them within low and high (2, 4) of each."""
    for index in range(worlds.shape[0]):
        w = worlds[index]
        x, y, z, yaw = pose[0], pose[1], pose[2], pose[3]
        if is_drawn:
            footing = footings[0 if footings.shape[0] == 1 else w]
            key = keys[index]
            new_x, new_y, found = _start_place(
                footing, cell, west, south, chances[0, 0], chances[1, 0], chances[0, 1], chances[1, 1], gap_m, key
            )
            turn, height = _uniforms(key, 0, 1)
            if found:
                x, y = new_x, new_y
            if chances[0, 2] == chances[0, 2]:  # NaN: stays
                z = chances[0, 2] + (chances[1, 2] - chances[0, 2]) * height
            if chances[0, 3] == chances[0, 3]:
                yaw = chances[0, 3] + (chances[1, 3] - chances[0, 3]) * turn
        state[:, w] = 0.0
        state[X, w], state[Y, w], state[YAW, w] = x, y, _wrap_angle(yaw)
        state[Z, w] = _ground_height(elevation, cell, x - west, y - south) if is_ground_bound else z


@threaded_kernel
def last_firing(p: int, q: int, begin: Integers, ticks: int, offsets: Integers) -> None:
    """When a trigger of period p / q last fires within `ticks` ticks after `begin`; 0 where it does not."""
    for i in range(begin.shape[0]):
        end = begin[i] + ticks
        number = (2 * q * end + q - 1) // (2 * p)
        offset = (2 * number * p + q) // (2 * q) - begin[i]
        offsets[i] = offset if offset > 0 else 0


@inlined
def _sensor_at(state: Array, w: int, mount: Vector, seen: Array) -> tuple[float, float, float, float, float]:
    """Map position of a sensor of world w, and the sine and cosine of the robot's yaw; `seen` is room to work in."""
    if state[_ROLL, w] == 0.0 and state[_PITCH, w] == 0.0:  # as `observe` and `place_of`, without what they need not do
        sine, cosine = _sincos(state[YAW, w])
        x = state[X, w] + cosine * mount[0] - sine * mount[1]
        return x, state[Y, w] + sine * mount[0] + cosine * mount[1], state[Z, w] + mount[2], sine, cosine
    _observe(state[:, w : w + 1], seen)
    x, y, z = _place_of(seen[0], mount[0], mount[1], mount[2])
    return x, y, z, seen[0, SIN_YAW], seen[0, COS_YAW]


@threaded_kernel
def sense_range(
    state: Array,
    worlds: Integers,
    tick: Integers,
    clearances: Grids,
    cell: float,
    west: float,
    south: float,
    mount: Vector,
    heading: tuple[float, float],
    min_m: float,
    max_m: float,
    settings: Array,
    keys: Integers,
    out: Array,
) -> None:
    """out (n,)"""
    seen = np.empty((1, FIELDS))
    for index in range(worlds.shape[0]):
        w = worlds[index]
        x, y, _, sine, cosine = _sensor_at(state, w, mount, seen)
        out[w] = _beam(
            clearances[0 if clearances.shape[0] == 1 else w],
            cell,
            west,
            south,
            state[X, w],
            state[Y, w],
            x,
            y,
            sine,
            cosine,
            heading[0],
            heading[1],
            min_m,
            max_m,
            settings[SIGMA, w],
            settings[DROPOUT, w],
            keys[w],
            tick[w],
        )


@threaded_kernel
def sense_scan(
    state: Array,
    worlds: Integers,
    tick: Integers,
    clearances: Grids,
    cell: float,
    west: float,
    south: float,
    mount: Vector,
    beams: Array,
    min_m: float,
    max_m: float,
    settings: Array,
    keys: Integers,
    out: Readings,
) -> None:
    """out (n, beams)"""
    seen, distances = np.empty((1, FIELDS)), np.empty(beams.shape[1])
    for index in range(worlds.shape[0]):
        w = worlds[index]
        x, y, _, sine, cosine = _sensor_at(state, w, mount, seen)
        _sweep(
            clearances[0 if clearances.shape[0] == 1 else w],
            cell,
            west,
            south,
            state[X, w],
            state[Y, w],
            x,
            y,
            sine,
            cosine,
            beams,
            min_m,
            max_m,
            settings[SIGMA, w],
            settings[DROPOUT, w],
            keys[w],
            tick[w],
            distances,
            out[w],
        )


@threaded_kernel
def sense_gps(
    state: Array,
    worlds: Integers,
    tick: Integers,
    mount: Vector,
    plane: Array,
    dt: float,
    bias: Array,
    last_tick: Integers,
    settings: Array,
    keys: Integers,
    out: Array,
) -> None:
    """out (n, 4): latitude, longitude, altitude, variance; bias (3, n)"""
    seen = np.empty((1, FIELDS))
    for index in range(worlds.shape[0]):
        w = worlds[index]
        x, y, z, _, _ = _sensor_at(state, w, mount, seen)
        sigma, drift = settings[SIGMA, w], settings[BIAS_DRIFT, w]
        out[w, 0], out[w, 1], out[w, 2], out[w, 3], bias[0, w], bias[1, w], bias[2, w] = _fix(
            plane, x, y, z, bias[0, w], bias[1, w], bias[2, w], sigma, drift, dt, keys[w], last_tick[w], tick[w]
        )
        last_tick[w] = tick[w]


@threaded_kernel
def sense_imu(
    state: Array, worlds: Integers, tick: Integers, axes: Axes, settings: Array, keys: Integers, out: Array
) -> None:
    """out (n, 6): turn rate x, y, z, specific force x, y, z"""
    seen = np.empty((1, FIELDS))
    for index in range(worlds.shape[0]):
        w = worlds[index]
        _observe(state[:, w : w + 1], seen)
        out[w, 0], out[w, 1], out[w, 2], out[w, 3], out[w, 4], out[w, 5] = _feel(
            seen[0], axes, settings[GYRO_SIGMA, w], settings[ACCEL_SIGMA, w], keys[w], tick[w]
        )


@threaded_kernel
def drift(state: Array, worlds: Integers, tick: Integers, settings: Array, keys: Integers, memory: Array) -> None:
    """One tick of odometry frames that slide; memory (DRIFT_ROWS, n)."""
    pose, seen, now = np.empty(4), np.empty(4), np.empty(4)
    for index in range(worlds.shape[0]):
        w = worlds[index]
        for k in range(4):
            pose[k], seen[k] = memory[POSE + k, w], memory[SEEN + k, w]
        now[0], now[1], now[2], now[3] = state[X, w], state[Y, w], state[Z, w], state[YAW, w]
        pose[0], pose[1], pose[2], pose[3], length, turn = _misjudge(
            pose, seen, now, settings[POSITION_PER_M, w], settings[YAW_PER_RAD, w], keys[w], tick[w]
        )
        for k in range(4):
            memory[POSE + k, w], memory[SEEN + k, w] = pose[k], now[k]
        memory[DISTANCE, w] += length
        memory[TURNED, w] += turn


@threaded_kernel
def sense_odometry(state: Array, worlds: Integers, has_drift: bool, settings: Array, memory: Array, out: Array) -> None:
    """out (n, 15): x, y, z, quaternion x, y, z, w, velocity, turn rate, variance of position and of yaw"""
    seen = np.empty((1, FIELDS))
    for index in range(worlds.shape[0]):
        w = worlds[index]
        _observe(state[:, w : w + 1], seen)
        row = seen[0]
        out[w, 0], out[w, 1], out[w, 2] = row[X], row[Y], row[Z]
        out[w, 3], out[w, 4] = row[QUATERNION_X], row[QUATERNION_Y]
        out[w, 5], out[w, 6] = row[QUATERNION_Z], row[QUATERNION_W]
        out[w, 7], out[w, 8], out[w, 9] = row[FORWARD], row[LEFT], row[UP]
        out[w, 10], out[w, 11], out[w, 12] = row[ROLLING], row[PITCHING], row[TURN]
        out[w, 13], out[w, 14] = POSE_VARIANCE, POSE_VARIANCE
        if has_drift:
            out[w, 0], out[w, 1], out[w, 2] = memory[POSE, w], memory[POSE + 1, w], memory[POSE + 2, w]
            yaw = memory[POSE + 3, w]
            if row[QUATERNION_X] == 0.0 and row[QUATERNION_Y] == 0.0:
                out[w, 5], out[w, 6] = _sincos(0.5 * yaw)
            else:
                out[w, 3], out[w, 4], out[w, 5], out[w, 6] = _quaternion_from_rpy(row[ROLL], row[PITCH], yaw)
            slip, turn = settings[POSITION_PER_M, w], settings[YAW_PER_RAD, w]
            out[w, 13] = POSE_VARIANCE + slip * slip * memory[DISTANCE, w]
            out[w, 14] = POSE_VARIANCE + turn * turn * memory[TURNED, w]


@threaded_kernel
def sincos_each(angles: Array, sines: Array, cosines: Array) -> None:
    for i in range(angles.shape[0]):
        sines[i], cosines[i] = _sincos(angles[i])


@threaded_kernel
def free_places(
    footings: Grids,
    cell: float,
    west: float,
    south: float,
    x: tuple[float, float],
    y: tuple[float, float],
    gap_m: float,
    keys: Integers,
    worlds: Integers,
    out: Array,
) -> None:
    """out (len(worlds), 2): a free place in each, as `start_place` finds it."""
    for index in range(worlds.shape[0]):
        footing = footings[0 if footings.shape[0] == 1 else worlds[index]]
        out[index, 0], out[index, 1], _ = _start_place(
            footing, cell, west, south, x[0], x[1], y[0], y[1], gap_m, keys[index]
        )
