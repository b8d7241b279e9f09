"""Rays over the grid, rotations, and the earth: functions of numbers.

Grids are indexed [row, column] = [y, x]; the cell of column i and row j covers [i*cell, (i+1)*cell) in x and
[j*cell, (j+1)*cell) in y of the map frame.
"""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.sim import exact
from microsim.sim.compiled import kernel

Array: TypeAlias = npt.NDArray[np.float64]
Grid: TypeAlias = npt.NDArray[np.uint8]
Vector: TypeAlias = tuple[float, float, float]
Quaternion: TypeAlias = tuple[float, float, float, float]  # x, y, z, w

_sincos = exact.sincos
_atan2 = exact.atan2


@kernel
def ground_height(elevation: Array, cell: float, x: float, y: float) -> float:
    """Height of the ground: bilinear between cell centres, continued from the edge beyond them."""
    rows, columns = elevation.shape
    u = min(max(x / cell - 0.5, 0.0), columns - 1.0)
    v = min(max(y / cell - 0.5, 0.0), rows - 1.0)
    i = min(int(u), max(columns - 2, 0))
    j = min(int(v), max(rows - 2, 0))
    i1 = min(i + 1, columns - 1)
    j1 = min(j + 1, rows - 1)
    u -= i
    v -= j
    south = elevation[j, i] + (elevation[j, i1] - elevation[j, i]) * u
    north = elevation[j1, i] + (elevation[j1, i1] - elevation[j1, i]) * u
    return south + (north - south) * v


@kernel
def is_free(occupied: Grid, cell: float, x: float, y: float) -> bool:
    """True when (x, y) lies on the map in a cell that is not occupied."""
    rows, columns = occupied.shape
    i = math.floor(x / cell)
    j = math.floor(y / cell)
    return 0 <= i < columns and 0 <= j < rows and occupied[int(j), int(i)] == 0


@kernel
def distance_to_occupied(
    occupied: Grid, cell: float, x: float, y: float, dx: float, dy: float, reach: float, edge_is_wall: bool
) -> float:
    """Distance along the unit vector (dx, dy) to the first occupied cell, 0 when starting in one, inf beyond `reach`.

    Walks every cell the ray crosses; each crossing is computed from the start, so nothing accumulates. Through a corner
    both neighbours are visited. With `edge_is_wall` the map's border counts as occupied.
    """
    rows, columns = occupied.shape
    outside = 0.0 if edge_is_wall else math.inf
    start_i = math.floor(x / cell)
    start_j = math.floor(y / cell)
    if start_i < 0 or start_j < 0 or start_i >= columns or start_j >= rows:
        if edge_is_wall:
            return 0.0
        return _from_outside(occupied, cell, x, y, dx, dy, reach)
    i, j = int(start_i), int(start_j)
    if occupied[j, i]:
        return 0.0
    step_i, ahead_i = (1, 1) if dx > 0.0 else (-1, 0)
    step_j, ahead_j = (1, 1) if dy > 0.0 else (-1, 0)
    while True:
        to_i = ((i + ahead_i) * cell - x) / dx if dx != 0.0 else math.inf
        to_j = ((j + ahead_j) * cell - y) / dy if dy != 0.0 else math.inf
        if to_i <= to_j:
            distance = to_i
            i += step_i
            left = i < 0 or i >= columns
        else:
            distance = to_j
            j += step_j
            left = j < 0 or j >= rows
        if distance > reach:
            return math.inf
        if left:
            return max(distance, outside)
        if occupied[j, i]:
            return max(distance, 0.0)


@kernel
def _entry(position: float, direction: float, size: float) -> tuple[float, float]:
    """The stretch of a ray, as distances, on which 0 <= coordinate <= size."""
    if direction == 0.0:
        return (-math.inf, math.inf) if 0.0 <= position <= size else (math.inf, -math.inf)
    first = -position / direction
    last = (size - position) / direction
    return (first, last) if first < last else (last, first)


@kernel
def _from_outside(occupied: Grid, cell: float, x: float, y: float, dx: float, dy: float, reach: float) -> float:
    """`distance_to_occupied` from beyond the map: go to where the ray enters it, then walk."""
    rows, columns = occupied.shape
    first_x, last_x = _entry(x, dx, columns * cell)
    first_y, last_y = _entry(y, dy, rows * cell)
    enter = max(first_x, first_y, 0.0)
    if enter > min(last_x, last_y) or enter > reach:
        return math.inf
    # The border cell is found by clamping: the entry point may round to either side of the border.
    i = int(min(max((x + dx * enter) / cell, 0.0), columns - 1.0))
    j = int(min(max((y + dy * enter) / cell, 0.0), rows - 1.0))
    if occupied[j, i]:
        return enter
    step_i, ahead_i = (1, 1) if dx > 0.0 else (-1, 0)
    step_j, ahead_j = (1, 1) if dy > 0.0 else (-1, 0)
    while True:
        to_i = ((i + ahead_i) * cell - x) / dx if dx != 0.0 else math.inf
        to_j = ((j + ahead_j) * cell - y) / dy if dy != 0.0 else math.inf
        distance = min(to_i, to_j)
        if to_i <= to_j:
            i += step_i
        else:
            j += step_j
        if distance > reach or i < 0 or j < 0 or i >= columns or j >= rows:
            return math.inf
        if occupied[j, i]:
            return max(distance, enter)


def yaw_quaternion(yaw: float) -> tuple[float, float]:
    """(z, w) of the rotation by yaw about the vertical; x and y are 0."""
    return _half_sincos(yaw)


@kernel
def _half_sincos(yaw: float) -> tuple[float, float]:
    sine, cosine = _sincos(0.5 * yaw)
    return sine, cosine


def quaternion_from_rpy(roll: float, pitch: float, yaw: float) -> Quaternion:
    """Fixed-axis roll, pitch, yaw (URDF's order: Rz(yaw) Ry(pitch) Rx(roll))."""
    sr, cr = _half_sincos(roll)
    sp, cp = _half_sincos(pitch)
    sy, cy = _half_sincos(yaw)
    return (
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
        cr * cp * cy + sr * sp * sy,
    )


def matrix_from_rpy(roll: float, pitch: float, yaw: float) -> tuple[Vector, Vector, Vector]:
    """Rows of Rz(yaw) Ry(pitch) Rx(roll): child to parent."""
    sr, cr = exact.sin(roll), exact.cos(roll)
    sp, cp = exact.sin(pitch), exact.cos(pitch)
    sy, cy = exact.sin(yaw), exact.cos(yaw)
    return (
        (cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr),
        (sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr),
        (-sp, cp * sr, cp * cr),
    )


def yaw_of_quaternion(x: float, y: float, z: float, w: float) -> float:
    """Heading of a rotation that need not be normalised."""
    return float(_atan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z))
