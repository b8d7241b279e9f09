"""Rays over the grid's cells, many side by side in SIMD: the bits that `geometry.distance_to_occupied` gives each."""

import math

from microsim.engine import calls
from microsim.engine.compiled import inlined
from microsim.engine.geometry import Array, Grid

_room = calls.room
LANES = 16  # rays of a packet
_ROUND = 6755399441055744.0  # 1.5 * 2**52: added and taken away, it leaves the nearest whole number


@inlined
def is_on_cells(clearance: Grid, cell: float, x: float, y: float) -> bool:
    """Whether a ray may start there in a packet; x, y from the grid's corner."""
    u, v = x / cell, y / cell
    return (u >= 0.0) & (u < clearance.shape[1]) & (v >= 0.0) & (v < clearance.shape[0])


@inlined
def meet_cells(
    clearance: Grid, cell: float, xs: Array, ys: Array, dxs: Array, dys: Array, reaches: Array, out: Array
) -> None:
    """Distances from places on the map along unit vectors, inf beyond a ray's reach.

    Arrays have LANES numbers, and are the caller's `room`: so the compiler sees that they do not overlap. Cells are
    whole numbers in floats.
    """
    rows, columns, per_cell = float(clearance.shape[0]), float(clearance.shape[1]), 1.0 / cell
    goes, per_x, per_y, column, row = _room(LANES), _room(LANES), _room(LANES), _room(LANES), _room(LANES)
    found = _room(LANES)
    for r in range(LANES):
        dx, dy = dxs[r], dys[r]
        per_x[r], per_y[r] = 1.0 / (dx if dx != 0.0 else 1.0), 1.0 / (dy if dy != 0.0 else 1.0)
        column[r], row[r], found[r], goes[r] = float(int(xs[r] / cell)), float(int(ys[r] / cell)), 0.0, 1.0
    going = 1
    while going > 0:
        for r in range(LANES):
            i, j, x, y, dx, dy = column[r], row[r], xs[r], ys[r], dxs[r], dys[r]
            free = float(clearance[int(j), int(i)])
            is_right, is_up, less = dx > 0.0, dy > 0.0, 1.0 - free
            edge_i, edge_j = i + (free if is_right else less), j + (free if is_up else less)
            to_i, to_j = (edge_i * cell - x) * per_x[r], (edge_j * cell - y) * per_y[r]
            to_i, to_j = to_i if dx != 0.0 else math.inf, to_j if dy != 0.0 else math.inf
            by_i = to_i <= to_j
            distance, beside = to_i if by_i else to_j, j if by_i else i
            exactly = ((y if by_i else x) + (dy if by_i else dx) * distance) * per_cell
            there = (exactly + _ROUND) - _ROUND
            there = there - 1.0 if there > exactly else there
            lowest, highest = beside + less, beside - less
            there = there if there > lowest else lowest
            there = there if there < highest else highest
            next_i, next_j = edge_i if is_right else edge_i - 1.0, edge_j if is_up else edge_j - 1.0
            next_i, next_j = next_i if by_i else there, there if by_i else next_j
            is_off = (next_i < 0.0) | (next_j < 0.0) | (next_i >= columns) | (next_j >= rows) | (distance > reaches[r])
            is_met, was_met = free == 0.0, goes[r] == 0.0
            found[r] = found[r] if is_met | was_met else (math.inf if is_off else distance)
            ends = is_met | was_met | is_off
            goes[r] = 0.0 if ends else 1.0
            column[r], row[r] = i if ends else next_i, j if ends else next_j
        going = 0
        for r in range(LANES):
            going += 1 if goes[r] > 0.0 else 0
    for r in range(LANES):
        out[r] = 0.0 if found[r] < 0.0 else found[r]
