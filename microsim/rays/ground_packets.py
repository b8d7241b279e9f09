"""Rays in any direction against the ground, many neighbouring ones at a time: the bits that each gives alone.

Rays that are close together cross nearly the same blocks. One line through their middle, over blocks widened by their
neighbours, shows how far each ray certainly meets nothing. Up to there it crosses the blocks without a test, in SIMD,
adding up the same numbers as the walk that it shortens. From there on it is walked like any other ray.
"""

import math

from microsim.engine.compiled import inlined, kernel
from microsim.engine.geometry import Array, Vector
from microsim.rays.ground_rays import BLOCK, NEVER, PER_BLOCK, UPRIGHT, Course, Lattice, onward, stay, upright

LANES = 32  # rays of a packet
_SLACK = 1e-9  # of heights and widths: far above rounding, far below what matters
# Where the numbers of a packet stand in its one array: places known to the compiler let the loops become SIMD.
DX, DY, DZ, OUT, _FLAT, _SLOPE, _UX, _UY, _VX, _VY, _PER_VX, _PER_VY = range(0, 12 * LANES, LANES)
_S, _END, _TO_X, _TO_Y, _COLUMN, _ROW, _CLEAR, _ALONE = range(12 * LANES, 20 * LANES, LANES)
PACKET = _ALONE + 1  # the last one: how far a ray gets that walks alone


@kernel
def meet_ground(lattice: Lattice, origin: Vector, reach: float, w: Array) -> None:
    """w (PACKET,): unit vectors from DX, DY and DZ on, LANES each, and how far they go from OUT on, at most `reach`.

    Gives distances from OUT on; beyond a ray's end, perhaps inf.
    """
    per_cell = 1.0 / lattice.cell
    gx, gy, oz = (origin[0] - lattice.west) * per_cell + 0.5, (origin[1] - lattice.south) * per_cell + 0.5, origin[2]
    _turn(per_cell, w)
    rows, columns = float(lattice.nodes.shape[0]), float(lattice.nodes.shape[1])
    for r in range(LANES):
        enter_x, leave_x = stay(gx, w[_VX + r], w[_PER_VX + r], columns)
        enter_y, leave_y = stay(gy, w[_VY + r], w[_PER_VY + r], rows)
        w[_S + r], w[_END + r] = max(enter_x, enter_y), min(leave_x, leave_y, w[OUT + r] * w[_FLAT + r])
    _find_clear(lattice.wide, gx, gy, oz, lattice.cell, reach, w)
    last_row, last_column = lattice.tops.shape[0] - 1.0, lattice.tops.shape[1] - 1.0
    for r in range(LANES):
        column = float(int(min(max((gx + w[_VX + r] * w[_S + r]) * PER_BLOCK, 0.0), last_column)))
        row = float(int(min(max((gy + w[_VY + r] * w[_S + r]) * PER_BLOCK, 0.0), last_row)))
        w[_TO_X + r] = ((column + (1.0 if w[_VX + r] >= 0.0 else 0.0)) * BLOCK - gx) * w[_PER_VX + r]
        w[_TO_Y + r] = ((row + (1.0 if w[_VY + r] >= 0.0 else 0.0)) * BLOCK - gy) * w[_PER_VY + r]
        w[_COLUMN + r], w[_ROW + r] = column, row
        w[_CLEAR + r] = w[_CLEAR + r] if w[_CLEAR + r] < w[_END + r] else -math.inf
        w[OUT + r] = math.inf
    _skip(_TO_X, _PER_VX, _VX, _COLUMN, w)
    _skip(_TO_Y, _PER_VY, _VY, _ROW, w)
    nodes, caps, tops, highest = lattice.nodes, lattice.caps, lattice.tops, lattice.highest
    way = w[_ALONE:]
    for r in range(LANES):
        column, row, s, end = w[_COLUMN + r], w[_ROW + r], w[_S + r], w[_END + r]
        is_on_map = 0.0 <= column <= last_column and 0.0 <= row <= last_row
        if w[_FLAT + r] < UPRIGHT:
            w[OUT + r] = upright(lattice, origin, w[DZ + r], reach)
        elif s <= end and w[_CLEAR + r] >= 0.0 and is_on_map:
            course = Course(gx, gy, oz, w[_VX + r], w[_VY + r], w[_PER_VX + r], w[_PER_VY + r])
            way[0] = math.inf
            exits = (w[_TO_X + r], w[_TO_Y + r])
            onward(
                nodes,
                caps,
                tops,
                highest,
                course,
                (int(row), int(column)),
                exits,
                s,
                end,
                (w[_SLOPE + r],),
                (end,),
                way,
            )
            w[OUT + r] = way[0] * (1.0 / w[_FLAT + r])


@kernel
def _turn(per_cell: float, w: Array) -> None:
    """Directions as seen from above; those straight up or down do not move."""
    for r in range(LANES):
        flat = math.sqrt(w[DX + r] * w[DX + r] + w[DY + r] * w[DY + r])
        w[_FLAT + r] = flat
        per_flat = 1.0 / flat if flat >= UPRIGHT else 0.0
        ux, uy = w[DX + r] * per_flat, w[DY + r] * per_flat
        w[_SLOPE + r], w[_UX + r], w[_UY + r] = w[DZ + r] * per_flat, ux, uy
        vx, vy = ux * per_cell, uy * per_cell
        w[_VX + r], w[_VY + r] = vx, vy
        w[_PER_VX + r] = 1.0 / vx if vx != 0.0 else NEVER
        w[_PER_VY + r] = 1.0 / vy if vy != 0.0 else NEVER


@inlined
def _skip(to_side: int, per_v: int, v: int, block: int, w: Array) -> None:
    """Enter block after block along one axis, as far as the way is known to be clear."""
    going = 1
    while going > 0:
        going = 0
        for r in range(LANES):
            to, clear, s = w[to_side + r], w[_CLEAR + r], w[_S + r]
            goes = to < clear
            w[_S + r] = to if goes & (to > s) else s
            w[to_side + r] = to + abs(w[per_v + r]) * BLOCK if goes else to
            w[block + r] += (1.0 if w[v + r] >= 0.0 else -1.0) if goes else 0.0
            going += 1 if goes else 0


@kernel
def _find_clear(wide: Array, gx: float, gy: float, oz: float, cell: float, reach: float, w: Array) -> None:
    """How far, seen from above, each ray certainly stays above all ground; 0 where nothing is known."""
    x, y, farthest = 0.0, 0.0, 0.0
    for r in range(LANES):
        x, y, farthest = x + w[_UX + r], y + w[_UY + r], max(farthest, w[_END + r])
        w[_CLEAR + r] = 0.0
    column, row = int(gx * PER_BLOCK) + 1 if gx >= 0.0 else 0, int(gy * PER_BLOCK) + 1 if gy >= 0.0 else 0
    is_on_map = 1 <= column < wide.shape[1] - 1 and 1 <= row < wide.shape[0] - 1
    length = math.sqrt(x * x + y * y)
    if not (length > 1.0 and is_on_map):
        return
    x, y = x / length, y / length
    ahead, aside = 1.0, _SLACK
    for r in range(LANES):
        along, across = x * w[_UX + r] + y * w[_UY + r], abs(x * w[_UY + r] - y * w[_UX + r])
        ahead, aside = min(ahead, along), max(aside, across)
    if ahead < 0.5:
        return
    # As far as this a ray is less than a block beside the line. Along the line it sinks faster, by 1 / ahead.
    known = (1.0 - _SLACK) * BLOCK * cell * ahead / aside
    farthest, per_ahead = min(farthest, known), (1.0 + _SLACK) / ahead
    per_vx = cell / x if x != 0.0 else NEVER
    per_vy = cell / y if y != 0.0 else NEVER
    to_x = ((column - 1 + (1 if x >= 0.0 else 0)) * BLOCK - gx) * per_vx
    to_y = ((row - 1 + (1 if y >= 0.0 else 0)) * BLOCK - gy) * per_vy
    step_x, step_y = 1 if x >= 0.0 else -1, 1 if y >= 0.0 else -1
    more_x, more_y = abs(per_vx) * BLOCK, abs(per_vy) * BLOCK
    p, lift = 0.0, _SLACK * (1.0 + abs(oz) + reach) - oz
    while True:
        q = max(min(to_x, to_y, farthest), p)
        top, going = wide[row, column] + lift, 0
        for r in range(LANES):
            slope, clear = w[_SLOPE + r], w[_CLEAR + r]
            lowest = slope * p if slope >= 0.0 else slope * q * per_ahead
            goes = (clear >= p) & (lowest > top)
            w[_CLEAR + r] = q if goes else clear
            going += 1 if goes else 0
        if going == 0 or q >= farthest:
            return
        p = q
        through_x = to_x <= to_y
        column, to_x = (column + step_x, to_x + more_x) if through_x else (column, to_x)
        row, to_y = (row, to_y) if through_x else (row + step_y, to_y + more_y)
        if column < 0 or row < 0 or column >= wide.shape[1] or row >= wide.shape[0]:
            for r in range(LANES):
                w[_CLEAR + r] = known if w[_CLEAR + r] >= p else w[_CLEAR + r]
            return
