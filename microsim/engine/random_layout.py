"""What a seed decides about a world before its first tick: where obstacles and robots stand, and other numbers.

Every draw has a named stream of its own, so that adding one changes no other. One world and a batch of them draw with
the same functions.
"""

import numpy as np
import numpy.typing as npt

from microsim.engine import geometry, noise, world
from microsim.engine.calls import Scene
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Grid

_uniforms = noise.uniforms
_measure_clearance = geometry.measure_clearance
_mark_footprint = world.mark_footprint

ATTEMPTS = 100  # to find a free place for a robot

# columns of a table of obstacles
_X, _Y, _HALF_X, _HALF_Y, _IS_DISC = range(5)


@kernel
def number_between(key: int, low: float, high: float) -> float:
    return low + (high - low) * _uniforms(key, 0, 0)[0]


@kernel
def numbers_between(keys: npt.NDArray[np.int64], low: float, high: float) -> Array:
    out = np.empty(keys.shape[0])
    for i in range(keys.shape[0]):
        out[i] = number_between(keys[i], low, high)
    return out


@kernel
def move_obstacles(
    table: Array, starts: Array, shift_m: float, keep_probability: float, gap_m: float, key: int, out: Array
) -> None:
    """Fill out (m, 3): x, y and whether it is there, of each obstacle of the table (m, 5).

    Each is moved along x and y by up to shift_m and kept with a probability, unless it would come nearer than gap_m to
    one of the starts (r, 2).
    """
    for i in range(table.shape[0]):
        right, ahead = _uniforms(key, i, 0)
        x = table[i, _X] + shift_m * (2.0 * right - 1.0)
        y = table[i, _Y] + shift_m * (2.0 * ahead - 1.0)
        is_there = _uniforms(key, i, 1)[0] < keep_probability
        for r in range(starts.shape[0]):
            beside_x = abs(x - starts[r, 0]) >= table[i, _HALF_X] + gap_m
            beside_y = abs(y - starts[r, 1]) >= table[i, _HALF_Y] + gap_m
            is_there = is_there and (beside_x or beside_y)
        out[i, 0], out[i, 1], out[i, 2] = x, y, 1.0 if is_there else 0.0


@kernel
def start_place(
    clearance: Grid,
    cell: float,
    west: float,
    south: float,
    x_low: float,
    x_high: float,
    y_low: float,
    y_high: float,
    gap_m: float,
    key: int,
) -> tuple[float, float, bool]:
    """A place on the map, in a free cell, with no occupied one nearer than gap_m; the freest of those tried if none is.

    The last value tells whether a free cell was found at all.
    """
    rows, columns = clearance.shape
    best, best_x, best_y = 0, x_low, y_low
    for attempt in range(ATTEMPTS):
        along, across = _uniforms(key, attempt, 0)
        x, y = x_low + (x_high - x_low) * along, y_low + (y_high - y_low) * across
        u, v = (x - west) / cell, (y - south) / cell
        free = 0
        if 0.0 <= u < columns and 0.0 <= v < rows:
            free = int(clearance[int(v), int(u)])
        if free > best:
            best, best_x, best_y = free, x, y
        if free > 0 and (free - 1) * cell >= gap_m:
            break
    return best_x, best_y, best > 0


@kernel
def lay_out(
    table: Array, starts: Array, chances: Array, scene: Scene, lacking: Grid, moved: Array, is_separate: bool, key: int
) -> None:
    """The obstacles `moved` (m, 3) of a world, and the grids of its scene, in place.

    chances: shift_m, keep_probability, gap_m. The footing is the clearance unless it `is_separate`: then cells lack
    ground where `lacking` (ny, nx) is 1.
    """
    cells, footing = scene.clearance, scene.footing
    move_obstacles(table, starts, chances[0], chances[1], chances[2], key, moved)
    for j in range(cells.shape[0]):
        for i in range(cells.shape[1]):
            cells[j, i] = 0
    for k in range(table.shape[0]):
        if moved[k, 2] > 0.0:
            x, y = moved[k, 0] - scene.west, moved[k, 1] - scene.south
            is_disc = table[k, _IS_DISC] > 0.0
            _mark_footprint(cells, scene.cell, x, y, table[k, _HALF_X], table[k, _HALF_Y], is_disc)
    if is_separate:
        for j in range(cells.shape[0]):
            for i in range(cells.shape[1]):
                footing[j, i] = max(cells[j, i], lacking[j, i])
        _measure_clearance(footing)
    _measure_clearance(cells)
