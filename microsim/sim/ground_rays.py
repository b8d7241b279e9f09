"""Rays against the ground: `geometry.ground_height` as a solid, bilinear patches between cell centres.

All rays of one azimuth of an upright sensor share their way over the patches: the walk keeps the lowest ray that has
not met the ground, since a higher one cannot have met it before. A single ray is such a fan of one. Blocks of patches
whose highest point lies below the ray are crossed in one step.

A hole (NaN) lets rays through; behind it they meet the ground's side. There is no ground beyond the map.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.sim.compiled import kernel
from microsim.sim.geometry import Array

_BLOCK_BITS = 3  # blocks of 8 by 8 patches
_WIDE_BITS = 6  # and of 64 by 64
_NEVER = 1e300  # per step, of a coordinate that does not change

Caps: TypeAlias = npt.NDArray[np.float32]
LatticeArrays: TypeAlias = tuple[Array, Caps, Array, Array, float, float, float]


@dataclass(frozen=True)
class Lattice:
    """Heights as a lattice of nodes; node (1, 1) is the centre of cell (0, 0), the edge is repeated once around."""

    nodes: Array  # (ny + 2, nx + 2) [m]; NaN: no ground
    caps: Caps  # (ny + 1, nx + 1) [m] the patch lies below; -inf in a hole
    tops: Array  # highest node of each block of 8 by 8 patches [m]
    summits: Array  # of each block of 64 by 64 patches [m]
    cell: float
    west: float
    south: float

    @property
    def arrays(self) -> LatticeArrays:
        """What the kernels take."""
        return self.nodes, self.caps, self.tops, self.summits, self.cell, self.west, self.south


def lattice(elevation: Array, cell: float, west: float, south: float) -> Lattice:
    nodes = np.ascontiguousarray(np.pad(elevation.astype(np.float64), 1, mode="edge"))
    caps = _caps(nodes)
    tops, summits = (_highest(caps, bits) for bits in (_BLOCK_BITS, _WIDE_BITS))
    return Lattice(nodes, caps, tops, summits, float(cell), float(west), float(south))


def _highest(caps: Caps, bits: int) -> Array:
    """Over each block of 2**bits by 2**bits patches."""
    rows, columns = (-(-count >> bits) for count in caps.shape)
    whole = np.full((rows << bits, columns << bits), -np.inf)
    whole[: caps.shape[0], : caps.shape[1]] = caps
    return np.ascontiguousarray(whole.reshape(rows, 1 << bits, columns, 1 << bits).max(axis=(1, 3)))


def _caps(nodes: Array) -> Caps:
    """Rounded up to float32: half the memory to walk through."""
    above = np.maximum(np.maximum(nodes[:-1, :-1], nodes[:-1, 1:]), np.maximum(nodes[1:, :-1], nodes[1:, 1:]))
    caps: Caps = np.nextafter(above.astype(np.float32), np.float32(np.inf))
    caps[np.isnan(above)] = -np.inf  # a hole: nothing to meet
    return caps


@kernel
def _stay(position: float, step: float, size: float) -> tuple[float, float]:
    """The stretch of the way over which 0.5 <= coordinate <= size - 1.5, in which the map has cells."""
    if step == 0.0:
        return (0.0, math.inf) if 0.5 <= position <= size - 1.5 else (math.inf, 0.0)
    a, b = (0.5 - position) / step, (size - 1.5 - position) / step
    return max(min(a, b), 0.0), max(a, b)


@kernel
def _in_patch(
    nodes: Array,
    i: int,
    j: int,
    gx: float,
    gy: float,
    oz: float,
    vx: float,
    vy: float,
    s: float,
    e: float,
    slopes: Array,
    first: int,
    out: Array,
) -> int:
    """Note which rays meet patch (i, j) between s and e; gives the first ray that goes on.

    Along the way the ground lies at f0 + c1 x + c2 x^2 above a ray, x = way - s: negative until they meet.
    """
    h00, h01, h10, h11 = nodes[j, i], nodes[j, i + 1], nodes[j + 1, i], nodes[j + 1, i + 1]
    along, across, twist = h01 - h00, h10 - h00, (h11 - h10) - (h01 - h00)
    p, q = min(max(gx + vx * s - i, 0.0), 1.0), min(max(gy + vy * s - j, 0.0), 1.0)
    ground = h00 + along * p + (across + twist * p) * q - oz
    rise = (along + twist * q) * vx + (across + twist * p) * vy
    c2 = twist * vx * vy
    length = e - s
    bump = max(-0.25 * c2 * length * length, 0.0)  # above the chord
    k = first
    while k < slopes.shape[0]:
        f0, c1 = ground - slopes[k] * s, rise - slopes[k]
        f1 = f0 + (c1 + c2 * length) * length
        if f0 >= 0.0:
            out[k] = s
            k += 1
            continue
        if max(f0, f1) + bump < 0.0:
            break
        root = math.sqrt(max(c1 * c1 - 4.0 * c2 * f0, 0.0))
        way = -2.0 * f0 / (c1 + root) if c1 + root > 0.0 else math.inf
        if way <= length and c1 * c1 >= 4.0 * c2 * f0:
            out[k] = s + way
        elif f1 >= 0.0:
            out[k] = e
        else:
            break
        k += 1
    return k


@kernel
def _exits(
    i: int, j: int, bits: int, on_x: int, on_y: int, gx: float, gy: float, per_vx: float, per_vy: float
) -> tuple[float, float]:
    """Where the way leaves the block of 2**bits patches around patch (i, j), through its side in x and in y."""
    to_x = ((((i >> bits) + on_x) << bits) - gx) * per_vx
    to_y = ((((j >> bits) + on_y) << bits) - gy) * per_vy
    return to_x, to_y


@kernel
def _beyond(
    i: int, j: int, bits: int, on_x: int, on_y: int, through_x: bool, at_x: float, at_y: float
) -> tuple[int, int]:
    """The patch in which the way goes on after that block; (at_x, at_y) is where it leaves it."""
    last = (1 << bits) - 1
    west, south = i & ~last, j & ~last
    if through_x:
        return (west + last + 1 if on_x else west - 1), min(max(int(at_y), south), south + last)
    return min(max(int(at_x), west), west + last), (south + last + 1 if on_y else south - 1)


@kernel
def walk(
    nodes: Array,
    caps: Caps,
    tops: Array,
    summits: Array,
    cell: float,
    west: float,
    south: float,
    ox: float,
    oy: float,
    oz: float,
    ux: float,
    uy: float,
    reach: float,
    slopes: Array,
    out: Array,
) -> None:
    """How far, seen from above, each ray from (ox, oy, oz) goes until it meets the ground; inf: it does not.

    (ux, uy) is the unit vector of all of them as seen from above, `slopes` their dz per metre of it, ascending.
    """
    for k in range(slopes.shape[0]):
        out[k] = math.inf
    per_cell = 1.0 / cell
    gx, gy = (ox - west) * per_cell + 0.5, (oy - south) * per_cell + 0.5
    vx, vy = ux * per_cell, uy * per_cell
    last_i, last_j = nodes.shape[1] - 2, nodes.shape[0] - 2
    enter_x, leave_x = _stay(gx, vx, nodes.shape[1])
    enter_y, leave_y = _stay(gy, vy, nodes.shape[0])
    s, end = max(enter_x, enter_y), min(leave_x, leave_y, reach)
    if not s <= end:
        return
    i, j = min(max(int(gx + vx * s), 0), last_i), min(max(int(gy + vy * s), 0), last_j)
    on_x, on_y = 1 if vx >= 0.0 else 0, 1 if vy >= 0.0 else 0
    per_vx = 1.0 / vx if vx != 0.0 else _NEVER
    per_vy = 1.0 / vy if vy != 0.0 else _NEVER
    k = 0
    while True:
        to_x, to_y = _exits(i, j, _WIDE_BITS, on_x, on_y, gx, gy, per_vx, per_vy)
        wide_leave = max(min(to_x, to_y, end), s)
        slope = slopes[k]
        if min(slope * s, slope * wide_leave) > summits[j >> _WIDE_BITS, i >> _WIDE_BITS] - oz:
            s = wide_leave
            if s >= end:
                return
            i, j = _beyond(i, j, _WIDE_BITS, on_x, on_y, to_x <= to_y, gx + vx * s, gy + vy * s)
            if i < 0 or j < 0 or i > last_i or j > last_j:
                return
            continue
        wide_i, wide_j = i >> _WIDE_BITS, j >> _WIDE_BITS
        while i >> _WIDE_BITS == wide_i and j >> _WIDE_BITS == wide_j:
            block_i, block_j = i >> _BLOCK_BITS, j >> _BLOCK_BITS
            to_x, to_y = _exits(i, j, _BLOCK_BITS, on_x, on_y, gx, gy, per_vx, per_vy)
            leave = max(min(to_x, to_y, end), s)
            slope = slopes[k]
            if min(slope * s, slope * leave) > tops[block_j, block_i] - oz:
                s = leave
                if s >= end:
                    return
                i, j = _beyond(i, j, _BLOCK_BITS, on_x, on_y, to_x <= to_y, gx + vx * s, gy + vy * s)
                if i < 0 or j < 0 or i > last_i or j > last_j:
                    return
                continue
            while i >> _BLOCK_BITS == block_i and j >> _BLOCK_BITS == block_j:
                to_x = (i + on_x - gx) * per_vx
                to_y = (j + on_y - gy) * per_vy
                leave = max(min(to_x, to_y, end), s)
                slope = slopes[k]
                if min(slope * s, slope * leave) <= caps[j, i] - oz:
                    k = _in_patch(nodes, i, j, gx, gy, oz, vx, vy, s, leave, slopes, k, out)
                    if k == slopes.shape[0]:
                        return
                s = leave
                if s >= end:
                    return
                if to_x <= to_y:
                    i += 1 if on_x else -1
                else:
                    j += 1 if on_y else -1
                if i < 0 or j < 0 or i > last_i or j > last_j:
                    return


@kernel
def fall(
    nodes: Array,
    caps: Caps,
    tops: Array,
    summits: Array,
    cell: float,
    west: float,
    south: float,
    ox: float,
    oy: float,
    oz: float,
) -> float:
    """Height of (ox, oy, oz) above the ground: negative below it, inf where there is none."""
    rows, columns = nodes.shape
    gx, gy = (ox - west) / cell + 0.5, (oy - south) / cell + 0.5
    if not (0.5 <= gx <= columns - 1.5 and 0.5 <= gy <= rows - 1.5):
        return math.inf
    i, j = min(int(gx), columns - 2), min(int(gy), rows - 2)
    p, q = gx - i, gy - j
    along = nodes[j, i] + (nodes[j, i + 1] - nodes[j, i]) * p
    beyond = nodes[j + 1, i] + (nodes[j + 1, i + 1] - nodes[j + 1, i]) * p
    height = oz - (along + (beyond - along) * q)
    return height if height == height else math.inf


@kernel
def single(
    nodes: Array,
    caps: Caps,
    tops: Array,
    summits: Array,
    cell: float,
    west: float,
    south: float,
    ox: float,
    oy: float,
    oz: float,
    dx: float,
    dy: float,
    dz: float,
    reach: float,
    room: Array,
) -> float:
    """Distance along the unit vector (dx, dy, dz) to the ground, inf beyond `reach`. `room` (2,) is to work in."""
    flat = math.sqrt(dx * dx + dy * dy)
    if flat < 1e-9:
        height = fall(nodes, caps, tops, summits, cell, west, south, ox, oy, oz)
        if height <= 0.0:
            return 0.0
        return height / -dz if dz < 0.0 and height / -dz <= reach else math.inf
    room[0] = dz / flat
    walk(
        nodes,
        caps,
        tops,
        summits,
        cell,
        west,
        south,
        ox,
        oy,
        oz,
        dx / flat,
        dy / flat,
        reach * flat,
        room[:1],
        room[1:],
    )
    return room[1] / flat
