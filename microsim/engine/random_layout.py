"""What a seed decides about a world before its first tick: where obstacles and robots are, hills, other numbers.

Every draw has a named stream of its own, so that adding one changes no other. One world and a batch of them draw with
the same functions.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.calls import Scene
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Grid, measure_clearance
from microsim.engine.noise import uniforms
from microsim.engine.records import Record, record, record_at
from microsim.engine.world import mark_footprint

Words: TypeAlias = npt.NDArray[np.uint64]

ATTEMPTS = 100  # to find a free place for a robot
OCTAVES = 4  # each of half the wavelength and half the height of the one before

# columns of a table of obstacles
_X, _Y, _HALF_X, _HALF_Y, _IS_DISC = range(5)


@kernel
def number_between(key: int, low: float, high: float) -> float:
    return low + (high - low) * uniforms(key, 0, 0)[0]


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
        right, ahead = uniforms(key, i, 0)
        x = table[i, _X] + shift_m * (2.0 * right - 1.0)
        y = table[i, _Y] + shift_m * (2.0 * ahead - 1.0)
        is_there = uniforms(key, i, 1)[0] < keep_probability
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
        along, across = uniforms(key, attempt, 0)
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


SPOT = record(x=float, y=float, z=float, yaw=float)  # [m], [rad]
START = record(  # of a robot: its pose, and the least and the greatest that chance may make of it (NaN: it stays)
    pose=SPOT,
    low=SPOT,
    high=SPOT,
    gap=float,  # how far occupied cells are [m]
    is_drawn=int,  # whether chance puts it
    is_ground_bound=int,
)
start_at = record_at(START)


@kernel
def start_pose(
    start: Record, footing: Grid, cell: float, west: float, south: float, key: int
) -> tuple[float, float, float, float]:
    """Where a robot starts: x, y, z, yaw. `footing`: free cells of its world, as `start_place` takes them."""
    low, high = start.low, start.high
    x, y, z, yaw = start.pose.x, start.pose.y, start.pose.z, start.pose.yaw
    if start.is_drawn:
        new_x, new_y, found = start_place(footing, cell, west, south, low.x, high.x, low.y, high.y, start.gap, key)
        turn, height = uniforms(key, 0, 1)
        if found:
            x, y = new_x, new_y
        if low.z == low.z:
            z = low.z + (high.z - low.z) * height
        if low.yaw == low.yaw:
            yaw = low.yaw + (high.yaw - low.yaw) * turn
    return x, y, z, yaw


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
            mark_footprint(cells, scene.cell, x, y, table[k, _HALF_X], table[k, _HALF_Y], is_disc)
    if is_separate:
        for j in range(cells.shape[0]):
            for i in range(cells.shape[1]):
                footing[j, i] = max(cells[j, i], lacking[j, i])
        measure_clearance(footing)
    measure_clearance(cells)


# ---- smooth random heights, from + - * on single elements: the same bits on every machine ----------------------------


def octaves(x: Array, y: Array, seed: int, wavelength: float) -> Array:
    total = np.zeros((len(y), len(x)), np.float64)
    weight = 1.0
    for octave in range(OCTAVES):
        total += weight * _value_noise(x / wavelength, y / wavelength, seed, octave)
        weight *= 0.5
        wavelength *= 0.5
    return total


def _value_noise(u: Array, v: Array, seed: int, octave: int) -> Array:
    """Random values in [0, 1) at whole coordinates, joined smoothly (first and second derivative)."""
    i, j = np.floor(u), np.floor(v)
    s, t = _smooth(u - i)[None, :], _smooth(v - j)[:, None]
    columns, rows = i.astype(np.int64).astype(np.uint64)[None, :], j.astype(np.int64).astype(np.uint64)[:, None]
    one = np.uint64(1)
    stream = mix(np.array((seed & (2**64 - 1)) ^ (octave * 0x9E3779B97F4A7C15 & (2**64 - 1)), np.uint64))
    south_west, south_east = _lattice(columns, rows, stream), _lattice(columns + one, rows, stream)
    north_west, north_east = _lattice(columns, rows + one, stream), _lattice(columns + one, rows + one, stream)
    south = south_west + (south_east - south_west) * s
    north = north_west + (north_east - north_west) * s
    return south + (north - south) * t


def _smooth(t: Array) -> Array:
    return t * t * t * (t * (t * 6.0 - 15.0) + 10.0)


def _lattice(columns: Words, rows: Words, stream: Words) -> Array:
    """The random value of each lattice point, in [0, 1)."""
    word: Words = mix(mix(stream ^ columns) ^ rows)
    values: Array = (word >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return values


def mix(word: Any) -> Any:
    """SplitMix64 of every element."""
    with np.errstate(over="ignore"):
        word = word + np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
