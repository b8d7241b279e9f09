"""What the camera sees of the ground: per pixel, how far along the ray it lies, and the class of the cell it hits.

The ground is `geometry.ground_height` as a surface: bilinear patches between cell centres, with outer patches that
continue the edge to infinity. Coordinates on the lattice count cells, node (1, 1) being the centre of cell (0, 0), so
patch i covers [i, i+1) and the first and the last patch of a row are open outwards.

A ray's parameter t is the depth along the optical axis, since ray directions have 1 as their third component.
A camera below the ground sees the ground it is in, at depth 0, in every pixel. NaN in the heights is a hole.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from microsim.sim.compiled import kernel
from microsim.sim.geometry import Array, Grid

Pose: TypeAlias = Array  # (12,) camera position [m], then the rows of the rotation from the optical to the map frame

_BLOCK_SHIFT = 3  # blocks of 8 x 8 patches share one maximum
_BLOCK = 1 << _BLOCK_SHIFT
_FAR = 1e30  # where an outer patch ends: finite, so that no inf - inf or 0 * inf arises
_BEYOND = 1e24  # no ray is followed further
_NO_SLOPE = 1e-100  # a ray this steep never leaves its column of patches


@dataclass(frozen=True)
class Terrain:
    """The ground prepared for rays. Arrays are private writable copies: numba compiles once per kind of array."""

    cell_m: float
    nodes: Array  # (ny + 2, nx + 2) [m] heights of the lattice, the edge repeated once
    block_tops: Array  # [m] highest node of each 8 x 8 patches, -inf when there is none
    edges_x: Array  # (nx + 2,) where patches begin on the lattice, the last one: where they end
    edges_y: Array  # (ny + 2,)
    surface: Grid  # (ny, nx)
    highest: float  # [m]
    lowest: float  # [m]


def prepare_terrain(elevation: Array, surface: Grid, cell_m: float) -> Terrain:
    nodes = np.ascontiguousarray(np.pad(np.asarray(elevation, np.float64), 1, mode="edge"))
    known = nodes[np.isfinite(nodes)]
    return Terrain(
        cell_m=float(cell_m),
        nodes=nodes,
        block_tops=_block_tops(nodes),
        edges_x=_edges(nodes.shape[1]),
        edges_y=_edges(nodes.shape[0]),
        surface=np.array(surface, np.uint8, order="C", copy=True),
        highest=float(known.max()) if known.size else -_FAR,
        lowest=float(known.min()) if known.size else 0.0,
    )


def _edges(nodes: int) -> Array:
    edges = np.arange(nodes, dtype=np.float64)
    edges[0], edges[-1] = -_FAR, _FAR
    return edges


def _block_tops(nodes: Array) -> Array:
    """A block of patches has one node more than patches on each side."""
    heights = np.where(np.isfinite(nodes), nodes, -np.inf)
    rows = range(0, nodes.shape[0] - 1, _BLOCK)
    columns = range(0, nodes.shape[1] - 1, _BLOCK)
    return np.array([[heights[j : j + _BLOCK + 1, i : i + _BLOCK + 1].max() for i in columns] for j in rows])


@kernel
def plane_depths(pose: Pose, inverse_dz: Array, height: float, depths: Array) -> None:
    """Depth of a horizontal plane in one row of pixels; inf where the ray does not go down to it."""
    above = height - pose[2]
    if above >= 0.0:
        for u in range(depths.shape[0]):
            depths[u] = 0.0
    else:
        for u in range(depths.shape[0]):
            t = above * inverse_dz[u]
            depths[u] = t if t > 0.0 else math.inf


@kernel
def relief_depths(
    pose: Pose,
    ray_x: Array,
    ray_y: Array,
    nodes: Array,
    block_tops: Array,
    edges_x: Array,
    edges_y: Array,
    cell: float,
    highest: float,
    depths: Array,
) -> None:
    """Depth of the bilinear surface in one row of pixels; inf where the ray misses it."""
    x = pose[0] / cell + 0.5
    y = pose[1] / cell + 0.5
    z = pose[2]
    for u in range(depths.shape[0]):
        a, b = ray_x[u], ray_y[u]
        dx = (pose[3] * a + pose[4] * b + pose[5]) / cell
        dy = (pose[6] * a + pose[7] * b + pose[8]) / cell
        dz = pose[9] * a + pose[10] * b + pose[11]
        start = 0.0 if z <= highest else (highest - z) / dz
        if 0.0 <= start < _BEYOND:
            depths[u] = _walk(nodes, block_tops, edges_x, edges_y, x, y, z, dx, dy, dz, start)
        else:
            depths[u] = math.inf


@kernel
def _patch_at(position: float, first: int, last: int) -> int:
    """The patch a lattice coordinate lies in, kept within [first, last] against rounding."""
    return int(min(max(position, float(first)), float(last)))


@kernel
def _walk(
    nodes: Array,
    block_tops: Array,
    edges_x: Array,
    edges_y: Array,
    x: float,
    y: float,
    z: float,
    dx: float,
    dy: float,
    dz: float,
    t: float,
) -> float:
    """First t at or after `t` where the ray is on or below the surface, inf when there is none.

    Every crossing is computed from the ray's start, so nothing accumulates, and a ray that rounding carries under the
    surface at a patch's border is caught at the border: the surface has no cracks.
    """
    last_i = nodes.shape[1] - 2
    last_j = nodes.shape[0] - 2
    dx = dx if abs(dx) > _NO_SLOPE else _NO_SLOPE
    dy = dy if abs(dy) > _NO_SLOPE else _NO_SLOPE
    per_x = 1.0 / dx
    per_y = 1.0 / dy
    ahead_i = 1 if dx > 0.0 else 0
    ahead_j = 1 if dy > 0.0 else 0
    i = _patch_at(x + dx * t, 0, last_i)
    j = _patch_at(y + dy * t, 0, last_j)
    while True:
        block_i = i >> _BLOCK_SHIFT
        block_j = j >> _BLOCK_SHIFT
        first_i = block_i << _BLOCK_SHIFT
        first_j = block_j << _BLOCK_SHIFT
        end_i = min(first_i + _BLOCK, last_i + 1)
        end_j = min(first_j + _BLOCK, last_j + 1)
        to_x = (edges_x[end_i if ahead_i else first_i] - x) * per_x
        to_y = (edges_y[end_j if ahead_j else first_j] - y) * per_y
        leave = min(to_x, to_y)
        top = block_tops[block_j, block_i]
        if min(z + dz * t, z + dz * leave) > top:
            if leave > _BEYOND:
                return math.inf
            t = leave
            if to_x <= to_y:
                i = end_i if ahead_i else first_i - 1
                j = _patch_at(y + dy * t, first_j, end_j - 1)
            else:
                j = end_j if ahead_j else first_j - 1
                i = _patch_at(x + dx * t, first_i, end_i - 1)
            continue
        if z + dz * t > top:
            t = max(t, (top - z) / dz)
            i = _patch_at(x + dx * t, first_i, end_i - 1)
            j = _patch_at(y + dy * t, first_j, end_j - 1)
        while first_i <= i < end_i and first_j <= j < end_j:
            to_x = (edges_x[i + ahead_i] - x) * per_x
            to_y = (edges_y[j + ahead_j] - y) * per_y
            leave = min(to_x, to_y)
            # On the patch, height above ground is c0 + c1 s + c2 s^2 with s = t' - t.
            p = x + dx * t - i
            q = y + dy * t - j
            corner = nodes[j, i]
            slope_x = nodes[j, i + 1] - corner
            slope_y = nodes[j + 1, i] - corner
            twist = nodes[j + 1, i + 1] - nodes[j + 1, i] - slope_x
            c0 = z + dz * t - (corner + slope_x * p + (slope_y + twist * p) * q)
            if c0 <= 0.0:
                return t
            c1 = dz - (slope_x * dx + slope_y * dy + twist * (p * dy + q * dx))
            c2 = -twist * dx * dy
            length = leave - t
            discriminant = c1 * c1 - 4.0 * c2 * c0
            dips = c2 > 0.0 and c1 < 0.0 and c1 + 2.0 * c2 * length > 0.0 and discriminant >= 0.0
            if dips or c0 + length * (c1 + c2 * length) <= 0.0:
                first_root = 2.0 * c0 / (math.sqrt(max(discriminant, 0.0)) - c1)
                return t + min(max(first_root, 0.0), length)
            if leave > _BEYOND:
                return math.inf
            t = leave
            if to_x <= to_y:
                i += 2 * ahead_i - 1
            else:
                j += 2 * ahead_j - 1


@kernel
def ground_classes(
    pose: Pose, ray_x: Array, ray_y: Array, depths: Array, surface: Grid, cell: float, classes: Grid
) -> None:
    """Class of the cell under each pixel of a row, the nearest border cell beyond the map, 0 in the sky."""
    last_i = surface.shape[1] - 1.0
    last_j = surface.shape[0] - 1.0
    per_cell = 1.0 / cell
    for u in range(depths.shape[0]):
        a, b, t = ray_x[u], ray_y[u], depths[u]
        i = (pose[0] + t * (pose[3] * a + pose[4] * b + pose[5])) * per_cell
        j = (pose[1] + t * (pose[6] * a + pose[7] * b + pose[8])) * per_cell
        i = i if i > 0.0 else 0.0
        j = j if j > 0.0 else 0.0
        i = i if i < last_i else last_i
        j = j if j < last_j else last_j
        classes[u] = surface[int(j), int(i)] if t < math.inf else 0
