"""Rays over the grid, rotations, and the earth: functions of numbers.

Grids are indexed [row, column] = [y, x]; the cell of column i and row j covers [i*cell, (i+1)*cell) in x and
[j*cell, (j+1)*cell) in y, both counted from the grid's south-west corner, which lies at `World.west`, `World.south` of
the map frame: callers subtract these.
"""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import exact
from microsim.engine.compiled import inlined, kernel

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
def clearance_of(occupied: Grid) -> Grid:
    """For each cell, how many cells away the nearest occupied one or the map's edge is, at most 255.

    Counted along x or y, whichever is longer; 0 for an occupied cell. So all cells of the square around a cell that are
    nearer than this are free, and a ray can cross them in one step.
    """
    out = np.empty(occupied.shape, np.uint8)
    for j in range(occupied.shape[0]):
        for i in range(occupied.shape[1]):
            out[j, i] = 1 if occupied[j, i] else 0
    measure_clearance(out)
    return out


@kernel
def measure_clearance(cells: Grid) -> None:
    """Turn cells, 1 where they are occupied, into their `clearance_of`, in place."""
    rows, columns = cells.shape
    for j in range(rows):
        for i in range(columns):
            near = 255
            if cells[j, i]:
                near = 0
            elif i == 0 or j == 0 or i == columns - 1 or j == rows - 1:
                near = 1
            else:
                near = min(
                    near, 1 + int(min(cells[j, i - 1], cells[j - 1, i - 1], cells[j - 1, i], cells[j - 1, i + 1]))
                )
            cells[j, i] = near
    for j in range(rows - 2, 0, -1):
        for i in range(columns - 2, 0, -1):
            around = min(cells[j, i + 1], cells[j + 1, i + 1], cells[j + 1, i], cells[j + 1, i - 1])
            cells[j, i] = min(int(cells[j, i]), 1 + int(around))


@kernel
def is_free(clearance: Grid, cell: float, x: float, y: float) -> bool:
    """True when (x, y) lies on the map in a cell that is not occupied."""
    rows, columns = clearance.shape
    u, v = x / cell, y / cell
    # compared before they become integers: what an out-of-range number becomes depends on the processor
    return 0.0 <= u < columns and 0.0 <= v < rows and clearance[int(v), int(u)] != 0


@inlined
def distance_to_occupied(
    clearance: Grid, cell: float, x: float, y: float, dx: float, dy: float, reach: float, edge_is_wall: bool
) -> float:
    """Distance along the unit vector (dx, dy) to the first occupied cell, 0 when starting in one, inf beyond `reach`.

    Visits the cells the ray crosses, those with free surroundings many at once; each crossing is computed from the
    start, so nothing accumulates. Through a corner a neighbour is visited too. With `edge_is_wall` the map's border
    counts as occupied, and so does everything beyond it.
    """
    rows, columns = clearance.shape
    u, v = x / cell, y / cell
    enter = 0.0
    if u < 0.0 or v < 0.0 or u >= columns or v >= rows:
        if edge_is_wall:
            return 0.0
        enter = _entry(x, y, dx, dy, columns * cell, rows * cell)
        if enter > reach:
            return math.inf
        u, v = (x + dx * enter) / cell, (y + dy * enter) / cell
    i = int(min(max(u, 0.0), columns - 1.0))
    j = int(min(max(v, 0.0), rows - 1.0))
    per_x = 1.0 / dx if dx != 0.0 else math.inf
    per_y = 1.0 / dy if dy != 0.0 else math.inf
    per_cell = 1.0 / cell
    distance = enter
    while True:
        free = int(clearance[j, i])
        if free == 0:
            return max(distance, enter)
        edge_i = i + free if dx > 0.0 else i - free + 1
        edge_j = j + free if dy > 0.0 else j - free + 1
        to_i = (edge_i * cell - x) * per_x if dx != 0.0 else math.inf
        to_j = (edge_j * cell - y) * per_y if dy != 0.0 else math.inf
        if to_i <= to_j:
            distance = to_i
            j = min(max(int((y + dy * to_i) * per_cell), j - free + 1), j + free - 1)
            i = edge_i if dx > 0.0 else edge_i - 1
        else:
            distance = to_j
            i = min(max(int((x + dx * to_j) * per_cell), i - free + 1), i + free - 1)
            j = edge_j if dy > 0.0 else edge_j - 1
        if distance > reach:
            return math.inf
        if i < 0 or j < 0 or i >= columns or j >= rows:
            return max(distance, 0.0) if edge_is_wall else math.inf


@kernel
def _entry(x: float, y: float, dx: float, dy: float, width: float, height: float) -> float:
    """Distance at which a ray from outside reaches the map, inf when it does not."""
    first_x, last_x = _stretch(x, dx, width)
    first_y, last_y = _stretch(y, dy, height)
    enter = max(first_x, first_y, 0.0)
    return enter if enter <= min(last_x, last_y) else math.inf


@kernel
def _stretch(position: float, direction: float, size: float) -> tuple[float, float]:
    """The distances between which 0 <= coordinate <= size."""
    if direction == 0.0:
        return (-math.inf, math.inf) if 0.0 <= position <= size else (math.inf, -math.inf)
    first = -position / direction
    last = (size - position) / direction
    return (first, last) if first < last else (last, first)


def yaw_quaternion(yaw: float) -> tuple[float, float]:
    """(z, w) of the rotation by yaw about the vertical; x and y are 0."""
    return _half_sincos(yaw)


@kernel
def _half_sincos(yaw: float) -> tuple[float, float]:
    sine, cosine = _sincos(0.5 * yaw)
    return sine, cosine


@kernel
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


def rpy_from_quaternion(x: float, y: float, z: float, w: float) -> Vector:
    """Roll, pitch, yaw of a unit quaternion, as `quaternion_from_rpy` takes them."""
    return rpy_from_matrix(
        (
            (1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)),
            (2.0 * (x * y + z * w), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - x * w)),
            (2.0 * (x * z - y * w), 2.0 * (y * z + x * w), 1.0 - 2.0 * (x * x + y * y)),
        )
    )


def rpy_from_matrix(rows: tuple[Vector, Vector, Vector]) -> Vector:
    """Roll, pitch, yaw of a rotation, as `matrix_from_rpy` takes them; pitched straight up or down, roll 0."""
    (a, b, _), (d, e, _), (g, h, i) = rows
    level = math.sqrt(max(1.0 - g * g, 0.0))
    if level < 1e-6:
        return 0.0, float(_atan2(-g, level)), float(_atan2(-b, e))
    return float(_atan2(h, i)), float(_atan2(-g, level)), float(_atan2(d, a))


def yaw_of_quaternion(x: float, y: float, z: float, w: float) -> float:
    """Heading of a rotation that need not be normalised."""
    return float(_atan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z))
