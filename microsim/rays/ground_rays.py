"""Rays against the ground: `geometry.ground_height` as a solid, bilinear patches between cell centres.

All rays of one azimuth of an upright sensor share their way over the patches: the walk keeps the lowest ray that has
not met the ground, since a higher one cannot have met it before. A single ray is such a fan of one. Blocks of patches
whose highest point is below the ray are crossed in one step.

A hole (NaN) lets rays through; behind it they meet the ground's side. There is no ground beyond the map.
"""

import math
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import inlined, kernel
from microsim.engine.geometry import Array, Vector
from microsim.engine.world import World

BLOCK = 8  # patches along a side of a block
PER_BLOCK = 1.0 / BLOCK
NEVER = 1e300  # per step, of a coordinate that does not change
UPRIGHT = 1e-9  # of a unit vector's length as seen from above: below this it has no azimuth

Caps: TypeAlias = npt.NDArray[np.float32]
Slopes: TypeAlias = Array | tuple[float, ...]  # a tuple of one: its length is known when the walk is compiled


class Lattice(NamedTuple):
    """Heights as a lattice of nodes; node (1, 1) is the centre of cell (0, 0), the edge is repeated once around."""

    nodes: Array  # (ny + 2, nx + 2) [m]; NaN: no ground
    caps: Caps  # (ny + 1, nx + 1) [m] the patch is below; -inf in a hole
    tops: Array  # highest node of each block of 8 by 8 patches [m]
    wide: Array  # (rows of blocks + 2, columns + 2) [m] the ground of each block and those around it is below
    highest: float  # [m] of all `tops`
    cell: float
    west: float
    south: float


class Course(NamedTuple):
    """Where rays start and in which direction they go, seen from above. A way along it is in metres."""

    x: float  # of the start, on the lattice
    y: float
    z: float  # [m]
    vx: float  # nodes per metre
    vy: float
    per_vx: float  # metres per node; NEVER where it does not change
    per_vy: float


def world_lattice(world: World) -> Lattice:
    """The ground, for rays."""
    return lattice(world.elevation, world.cell_m, world.west, world.south)


def lattice(elevation: Array, cell: float, west: float, south: float) -> Lattice:
    nodes = np.pad(elevation.astype(np.float64, copy=False), 1, mode="edge")
    caps = _caps(nodes)
    tops = _highest(caps)
    return Lattice(nodes, caps, tops, _around(tops), float(tops.max()), float(cell), float(west), float(south))


def _highest(caps: Caps) -> Array:
    """Over each block of patches; a row of blocks at a time, as large maps need the memory."""
    rows, columns = (-(-count // BLOCK) for count in caps.shape)
    highest, whole = np.empty((rows, columns)), np.empty((BLOCK, columns * BLOCK))
    for row in range(rows):
        part = caps[row * BLOCK : (row + 1) * BLOCK]
        whole[:] = -np.inf
        whole[: part.shape[0], : part.shape[1]] = part
        highest[row] = whole.reshape(BLOCK, columns, BLOCK).max(axis=(0, 2))
    return highest


def _caps(nodes: Array) -> Caps:
    """Rounded up to float32: half the memory to walk through."""
    caps: Caps = np.empty((nodes.shape[0] - 1, nodes.shape[1] - 1), np.float32)
    for row in range(caps.shape[0]):
        pair = np.maximum(nodes[row], nodes[row + 1])
        above = np.maximum(pair[:-1], pair[1:])
        caps[row] = np.nextafter(above.astype(np.float32), np.float32(np.inf))
        caps[row, np.isnan(above)] = -np.inf  # a hole: nothing to meet
    return caps


def _around(tops: Array) -> Array:
    """Of each block and its neighbours, from one block beyond the map on, and a little more than rounding can do."""
    rows, columns = tops.shape
    padded = np.pad(tops, 2, constant_values=-np.inf)
    wide = np.full((rows + 2, columns + 2), -np.inf)
    for j in range(3):
        for i in range(3):
            np.maximum(wide, padded[j : j + rows + 2, i : i + columns + 2], out=wide)
    wide += 1e-9 * (1.0 + np.abs(np.where(np.isfinite(wide), wide, 0.0)))
    return wide


@kernel
def stay(position: float, step: float, per_step: float, size: float) -> tuple[float, float]:
    """The stretch of the way over which 0.5 <= coordinate <= size - 1.5, in which the map has cells."""
    if step == 0.0:
        return (0.0, math.inf) if 0.5 <= position <= size - 1.5 else (math.inf, 0.0)
    a, b = (0.5 - position) * per_step, (size - 1.5 - position) * per_step
    return max(min(a, b), 0.0), max(a, b)


@inlined
def _in_patch(
    nodes: Array, course: Course, i: int, j: int, s: float, e: float, slope: float, slopes: Slopes, k: int, out: Array
) -> tuple[int, float]:
    """Note which rays from k on, whose slope is given, meet patch (i, j) between s and e; gives the first that misses.

    Along the way the ground is f0 + c1 x + c2 x^2 above a ray, x = way - s: negative until they meet.
    """
    gx, gy, oz, vx, vy, _, _ = course
    h00, h01, h10, h11 = nodes[j, i], nodes[j, i + 1], nodes[j + 1, i], nodes[j + 1, i + 1]
    along, across, twist = h01 - h00, h10 - h00, (h11 - h10) - (h01 - h00)
    p, q = min(max(gx + vx * s - i, 0.0), 1.0), min(max(gy + vy * s - j, 0.0), 1.0)
    ground = h00 + along * p + (across + twist * p) * q - oz
    rise = (along + twist * q) * vx + (across + twist * p) * vy
    c2 = twist * vx * vy
    length = e - s
    bump = max(-0.25 * c2 * length * length, 0.0)  # above the chord
    way = _meeting(ground, rise, c2, length, bump, s, e, slope)
    while way < math.inf:
        out[k] = way
        k += 1
        if k == len(slopes):
            break
        slope = slopes[k]
        way = _meeting(ground, rise, c2, length, bump, s, e, slope)
    return k, slope


@inlined
def _meeting(
    ground: float, rise: float, c2: float, length: float, bump: float, s: float, e: float, slope: float
) -> float:
    """Where a ray meets a patch between s and e, inf when it continues. The numbers are those of `_in_patch`."""
    f0, c1 = ground - slope * s, rise - slope
    f1 = f0 + (c1 + c2 * length) * length
    if f0 >= 0.0:
        return s
    if max(f0, f1) + bump < 0.0:
        return math.inf
    root = math.sqrt(max(c1 * c1 - 4.0 * c2 * f0, 0.0))
    way = -2.0 * f0 / (c1 + root) if c1 + root > 0.0 else math.inf
    if way <= length and c1 * c1 >= 4.0 * c2 * f0:
        return s + way
    return e if f1 >= 0.0 else math.inf


@inlined
def _in_block(
    nodes: Array,
    caps: Caps,
    course: Course,
    block: tuple[int, int],
    s: float,
    leave: float,
    slope: float,
    slopes: Slopes,
    k: int,
    out: Array,
) -> tuple[int, float]:
    """Walk over the patches of block (row, column) from s to `leave`; the rest is as in `_in_patch`."""
    gx, gy, oz, vx, vy, per_vx, per_vy = course
    first_j, first_i = block[0] * BLOCK, block[1] * BLOCK
    on_x, on_y = 1 if vx >= 0.0 else 0, 1 if vy >= 0.0 else 0
    step_x, step_y = 2 * on_x - 1, 2 * on_y - 1
    last_i, last_j = min(first_i + BLOCK, nodes.shape[1] - 1) - 1, min(first_j + BLOCK, nodes.shape[0] - 1) - 1
    i, j = min(max(int(gx + vx * s), first_i), last_i), min(max(int(gy + vy * s), first_j), last_j)
    to_x, to_y = (i + on_x - gx) * per_vx, (j + on_y - gy) * per_vy
    more_x, more_y = abs(per_vx), abs(per_vy)
    while True:
        until = max(min(to_x, to_y, leave), s)
        if min(slope * s, slope * until) <= caps[j, i] - oz:
            k, slope = _in_patch(nodes, course, i, j, s, until, slope, slopes, k, out)
            if k == len(slopes):
                return k, slope
        if until >= leave:
            return k, slope
        s = until
        through_x = to_x <= to_y
        i, to_x = (i + step_x, to_x + more_x) if through_x else (i, to_x)
        j, to_y = (j, to_y) if through_x else (j + step_y, to_y + more_y)
        if i < first_i or i > last_i or j < first_j or j > last_j:  # by a rounding only
            return k, slope


@kernel
def walk(
    lattice: Lattice, origin: Vector, ux: float, uy: float, reach: float, slopes: Array, ends: Array, out: Array
) -> None:
    """How far, seen from above, each ray from `origin` goes until it meets the ground; inf: it does not.

    (ux, uy) is the unit vector of all of them as seen from above, `slopes` their dz per metre of it, ascending, `ends`
    how far along it each is followed.
    """
    for k in range(slopes.shape[0]):
        out[k] = math.inf
    per_cell = 1.0 / lattice.cell
    gx, gy = (origin[0] - lattice.west) * per_cell + 0.5, (origin[1] - lattice.south) * per_cell + 0.5
    vx, vy = ux * per_cell, uy * per_cell
    per_vx = 1.0 / vx if vx != 0.0 else NEVER
    per_vy = 1.0 / vy if vy != 0.0 else NEVER
    enter_x, leave_x = stay(gx, vx, per_vx, lattice.nodes.shape[1])
    enter_y, leave_y = stay(gy, vy, per_vy, lattice.nodes.shape[0])
    s, end = max(enter_x, enter_y), min(leave_x, leave_y, reach)
    if not s <= end:
        return
    last_row, last_column = lattice.tops.shape[0] - 1, lattice.tops.shape[1] - 1
    column = min(max(int((gx + vx * s) * PER_BLOCK), 0), last_column)
    row = min(max(int((gy + vy * s) * PER_BLOCK), 0), last_row)
    to_x = ((column + (1 if vx >= 0.0 else 0)) * BLOCK - gx) * per_vx
    to_y = ((row + (1 if vy >= 0.0 else 0)) * BLOCK - gy) * per_vy
    course = Course(gx, gy, origin[2], vx, vy, per_vx, per_vy)
    heights = lattice.nodes, lattice.caps, lattice.tops, lattice.highest
    onward(*heights, course, (row, column), (to_x, to_y), s, end, slopes, ends, out)


@inlined
def onward(
    nodes: Array,
    caps: Caps,
    tops: Array,
    highest: float,
    course: Course,
    block: tuple[int, int],
    exits: tuple[float, float],
    s: float,
    end: float,
    slopes: Slopes,
    ends: Slopes,
    out: Array,
) -> None:
    """The walk from s to `end`, in block (row, column) first, which it leaves at the nearer of the exits along x and y.

    What is beyond a ray's own end is of no interest: it may be found or not.

    The arrays are those of a Lattice: taking them out of it in a loop would count references, which takes long.
    """
    (row, column), (to_x, to_y) = block, exits
    last_row, last_column = tops.shape[0] - 1, tops.shape[1] - 1
    step_x, step_y = 1 if course.vx >= 0.0 else -1, 1 if course.vy >= 0.0 else -1
    more_x, more_y = abs(course.per_vx) * BLOCK, abs(course.per_vy) * BLOCK
    k, slope = 0, slopes[0]
    while True:
        leave = max(min(to_x, to_y, end), s)
        while ends[k] < s:
            k += 1
            if k == len(slopes):
                return
            slope = slopes[k]
        if min(slope * s, slope * end) > highest - course.z:  # and so are the rays above it
            return
        if min(slope * s, slope * leave) <= tops[row, column] - course.z:
            k, slope = _in_block(nodes, caps, course, (row, column), s, leave, slope, slopes, k, out)
            if k == len(slopes):
                return
        if leave >= end:
            return
        s = leave
        through_x = to_x <= to_y
        column, to_x = (column + step_x, to_x + more_x) if through_x else (column, to_x)
        row, to_y = (row, to_y) if through_x else (row + step_y, to_y + more_y)
        if column < 0 or row < 0 or column > last_column or row > last_row:
            return


@kernel
def upright(lattice: Lattice, origin: Vector, dz: float, reach: float) -> float:
    """Distance to the ground along a ray straight up or down, inf beyond `reach`; 0 below the ground."""
    nodes = lattice.nodes
    rows, columns = nodes.shape
    gx, gy = (origin[0] - lattice.west) / lattice.cell + 0.5, (origin[1] - lattice.south) / lattice.cell + 0.5
    if not (0.5 <= gx <= columns - 1.5 and 0.5 <= gy <= rows - 1.5):
        return math.inf
    i, j = min(int(gx), columns - 2), min(int(gy), rows - 2)
    p, q = gx - i, gy - j
    along = nodes[j, i] + (nodes[j, i + 1] - nodes[j, i]) * p
    beyond = nodes[j + 1, i] + (nodes[j + 1, i + 1] - nodes[j + 1, i]) * p
    height = origin[2] - (along + (beyond - along) * q)
    if height <= 0.0:
        return 0.0
    return height / -dz if dz < 0.0 and height / -dz <= reach else math.inf  # NaN is not: there is no ground
