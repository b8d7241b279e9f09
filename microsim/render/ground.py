"""What the camera sees of the ground: per pixel, how far along the ray it lies, and the class of the cell it hits.

The ground is `geometry.ground_height` as a surface: bilinear patches between cell centres, with outer patches that
continue the edge to the horizon. On the lattice of its nodes, coordinates count cells: node (1, 1) is the centre of
cell (0, 0), patch i covers [i, i+1], and the first and last patch of a row are open outwards.

Depth is measured along the optical axis and is the ray's parameter t, ray directions having 1 as third component.
A camera below the ground sees the ground it is in, at depth 0, in every pixel. NaN in the heights is a hole.

Relief is drawn patch by patch, over the pixels whose rays can meet the patch, which is far quicker than following each
ray over the lattice: blocks of patches out of view are skipped, and the loop over pixels is SIMD.
"""

import math
from dataclasses import dataclass

import numpy as np

from microsim.engine.compiled import inlined, kernel, threaded_kernel
from microsim.engine.geometry import Array, Grid
from microsim.engine.world import World
from microsim.render.screen import Pose, Prism, Rays, Spans, bounds, span, whole_groups

_BLOCK = 16  # patches along a side of a block
_PART = 4  # patches along a side of a part of a block
_LOOK = 256  # pixels that are looked at to see whether a nearer part of the ground covers them
_OUTER_STEPS = (4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)  # [cells] from the edge: long patches would cover much screen
_FAR = 1e12  # [m] where an outer patch ends
_WHOLE, _BESIDE_A_HOLE, _HOLE = range(3)
_TINY = 1e-300  # stands for a zero denominator, so that no NaN arises


@dataclass(frozen=True)
class Terrain:
    """The ground prepared for drawing. Arrays are private writable copies: numba compiles once per kind of array."""

    cell_m: float
    west: float  # [m] where the surface's first column begins
    south: float  # [m] where its first row begins
    nodes: Array  # (ny + 2, nx + 2) [m] heights of the lattice, the edge repeated once
    edges_x: Array  # (nx + 2,) [m] where patches begin, the last one: where they end
    edges_y: Array  # (ny + 2,) [m]
    blocks: Array  # (rows of blocks, columns of blocks, 10) the prism that holds each block of patches
    surface: Grid  # (ny, nx)
    lowest: float  # [m]
    highest: float  # [m]
    holes: Grid  # per patch: _WHOLE, _BESIDE_A_HOLE, _HOLE


def prepare_terrain(elevation: Array, surface: Grid, cell_m: float, west: float = 0.0, south: float = 0.0) -> Terrain:
    rows, columns = elevation.shape
    edges_x, edges_y = _edges(columns, cell_m, west), _edges(rows, cell_m, south)
    nodes = np.pad(elevation.astype(np.float64, copy=False), len(_OUTER_STEPS) + 1, mode="edge")
    nodes[~np.isfinite(nodes)] = np.nan
    holes = _holes(nodes)
    lowest, highest = float(np.fmin.reduce(nodes, axis=None)), float(np.fmax.reduce(nodes, axis=None))
    is_known = lowest == lowest
    return Terrain(
        cell_m=float(cell_m),
        west=float(west),
        south=float(south),
        nodes=nodes,
        edges_x=edges_x,
        edges_y=edges_y,
        blocks=_blocks(nodes, edges_x, edges_y, holes),
        surface=np.array(surface, np.uint8, order="C", copy=True),
        lowest=lowest if is_known else 0.0,
        highest=highest if is_known else -_FAR,
        holes=holes,
    )


def world_terrain(world: World) -> Terrain:
    """For all cameras in it."""
    return prepare_terrain(world.elevation, world.surface, world.cell_m, world.west, world.south)


def _edges(cells: int, cell: float, start: float) -> Array:
    """Cell centres, and beyond them the steps out to the horizon."""
    centres = (np.arange(cells, dtype=np.float64) + 0.5) * cell + start
    outwards = np.array([*(cell * step for step in _OUTER_STEPS), _FAR])
    return np.concatenate([centres[0] - outwards[::-1], centres, centres[-1] + outwards])


def _holes(nodes: Array) -> Grid:
    """A patch with an unknown node is a hole; of its neighbours the walls can be seen."""
    unknown = np.isnan(nodes)
    if not unknown.any():
        return np.full((nodes.shape[0] - 1, nodes.shape[1] - 1), _WHOLE, np.uint8)
    hole = unknown[:-1, :-1] | unknown[:-1, 1:] | unknown[1:, :-1] | unknown[1:, 1:]
    around = np.pad(hole, 1)
    rows, columns = hole.shape
    beside = np.zeros_like(hole)
    for j in range(3):
        for i in range(3):
            beside |= around[j : j + rows, i : i + columns]
    found = np.where(beside, np.uint8(_BESIDE_A_HOLE), np.uint8(_WHOLE))
    found[hole] = _HOLE
    return found


def _blocks(nodes: Array, edges_x: Array, edges_y: Array, holes: Grid) -> Array:
    """A block has one node more than patches on each side. The walls of holes reach down all the way."""
    rows, columns = range(0, edges_y.size - 1, _BLOCK), range(0, edges_x.size - 1, _BLOCK)
    blocks = np.empty((len(rows), len(columns), 10))
    for j in rows:
        for i in columns:
            heights = nodes[j : j + _BLOCK + 1, i : i + _BLOCK + 1]
            has_hole = holes[j : j + _BLOCK, i : i + _BLOCK].any()
            bottom = -_FAR if has_hole else heights.min()
            top = np.fmax.reduce(heights, axis=None, initial=-_FAR) if has_hole else heights.max()
            x, y = edges_x[i : i + _BLOCK + 1], edges_y[j : j + _BLOCK + 1]
            footprint = (x[0], y[0], x[-1], y[0], x[-1], y[-1], x[0], y[-1])
            blocks[j // _BLOCK, i // _BLOCK] = (bottom, top, *footprint)
    return blocks


@kernel
def plane_depths(inverse_dz: Array, ground_above_camera: float, depths: Array) -> None:
    """Depth of a horizontal plane in one row of pixels; inf where the ray does not go down to it."""
    if ground_above_camera >= 0.0:
        for u in range(depths.shape[0]):
            depths[u] = 0.0
    else:
        for u in range(depths.shape[0]):
            t = ground_above_camera * inverse_dz[u]
            depths[u] = t if t > 0.0 else math.inf


@threaded_kernel
def relief_depths(
    pose: Pose,
    rays: Rays,
    screen: Array,
    columns: Spans,
    rows: Spans,
    nodes: Array,
    edges_x: Array,
    edges_y: Array,
    blocks: Array,
    holes: Grid,
    depths: Array,
) -> None:
    """Fill `depths` (h, w) with that of the bilinear surface, inf in the sky; the camera is above the ground."""
    depths[:] = math.inf
    seen = np.empty((3, _BLOCK + 1, _BLOCK + 1))
    near_j, near_i = _place_in(pose[1], edges_y), _place_in(pose[0], edges_x)
    block_rows, block_columns = blocks.shape[0], blocks.shape[1]
    for nth_j in range(block_rows):
        block_j = _outwards(nth_j, near_j // _BLOCK, block_rows)
        for nth_i in range(block_columns):
            block_i = _outwards(nth_i, near_i // _BLOCK, block_columns)
            a_low, a_high, b_low, b_high = bounds(pose, blocks[block_j, block_i])
            u0, u1 = span(columns, screen[0], screen[1], a_low, a_high)
            v0, v1 = span(rows, screen[2], screen[3], b_low, b_high)
            if u0 >= u1 or v0 >= v1 or _is_covered(_ahead(pose, blocks[block_j, block_i]), u0, u1, v0, v1, depths):
                continue
            j, i = block_j * _BLOCK, block_i * _BLOCK
            block_nodes = nodes[j : j + _BLOCK + 1, i : i + _BLOCK + 1]
            x, y = edges_x[i : i + _BLOCK + 1], edges_y[j : j + _BLOCK + 1]
            _project(pose, x, y, block_nodes, seen)
            _draw_block(
                pose,
                rays,
                screen,
                columns,
                rows,
                block_nodes,
                x,
                y,
                seen,
                holes[j:, i:],
                near_j - j,
                near_i - i,
                depths,
            )


@kernel
def _place_in(position: float, edges: Array) -> int:
    """Number of the patch along an axis in which a position lies, the nearest one beyond them."""
    low, high = 0, edges.shape[0] - 2
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if edges[middle] <= position else (low, middle - 1)
    return low


@inlined
def _outwards(nth: int, start: int, count: int) -> int:
    """Of the numbers up to `count` those from `start` upwards first, then those below it downwards.

    Along both axes this is an order from front to back: what is seen comes before what it hides.
    """
    start = min(max(start, 0), count)
    return start + nth if nth < count - start else count - 1 - nth


@kernel
def _ahead(pose: Pose, prism: Prism) -> float:
    """How far ahead of the eye a prism begins."""
    nearest = math.inf
    for k in range(4):
        nearest = min(nearest, pose[5] * (prism[2 + 2 * k] - pose[0]) + pose[8] * (prism[3 + 2 * k] - pose[1]))
    return nearest + min(pose[11] * (prism[0] - pose[2]), pose[11] * (prism[1] - pose[2]))


@inlined
def _is_covered(ahead: float, u0: int, u1: int, v0: int, v1: int, depths: Array) -> bool:
    """True when all these pixels see something nearer than `ahead`; those of many pixels are not looked at."""
    if not ahead > 0.0 or (u1 - u0) * (v1 - v0) > _LOOK:
        return False
    ahead -= 1e-9 * ahead  # more than rounding can do
    for v in range(v0, v1):
        for u in range(u0, u1):
            if not depths[v, u] < ahead:
                return False
    return True


@inlined
def _project(pose: Pose, edges_x: Array, edges_y: Array, nodes: Array, seen: Array) -> None:
    """a, b and the distance ahead of every node."""
    for j in range(nodes.shape[0]):
        y = edges_y[j] - pose[1]
        right, down, ahead = pose[6] * y, pose[7] * y, pose[8] * y
        for i in range(nodes.shape[1]):
            x = edges_x[i] - pose[0]
            z = nodes[j, i] - pose[2]
            distance = pose[5] * x + ahead + pose[11] * z
            inverse = 1.0 / (distance if distance != 0.0 else _TINY)
            seen[0, j, i] = (pose[3] * x + right + pose[9] * z) * inverse
            seen[1, j, i] = (pose[4] * x + down + pose[10] * z) * inverse
            seen[2, j, i] = distance


@inlined
def _draw_block(
    pose: Pose,
    rays: Rays,
    screen: Array,
    columns: Spans,
    rows: Spans,
    nodes: Array,
    edges_x: Array,
    edges_y: Array,
    seen: Array,
    holes: Grid,
    near_j: int,
    near_i: int,
    depths: Array,
) -> None:
    """The patches of a block, beginning with the nearest one, (near_j, near_i), which may be outside of it."""
    prism, patch = np.empty(10), np.empty(10)
    end_j, end_i = nodes.shape[0] - 1, nodes.shape[1] - 1
    parts_j, parts_i = (end_j + _PART - 1) // _PART, (end_i + _PART - 1) // _PART
    for nth_part_j in range(parts_j):
        part_j = _PART * _outwards(nth_part_j, near_j // _PART, parts_j)
        size_j = min(_PART, end_j - part_j)
        for nth_part_i in range(parts_i):
            part_i = _PART * _outwards(nth_part_i, near_i // _PART, parts_i)
            size_i = min(_PART, end_i - part_i)
            if _is_unseen(screen, columns, rows, seen, holes, part_j, part_i, size_j, size_i, depths):
                continue
            for nth in range(size_j * size_i):
                j = part_j + _outwards(nth // size_i, near_j - part_j, size_j)
                i = part_i + _outwards(nth % size_i, near_i - part_i, size_i)
                if holes[j, i] == _HOLE:
                    continue
                nearest = min(seen[2, j, i], seen[2, j, i + 1], seen[2, j + 1, i], seen[2, j + 1, i + 1])
                if nearest > 0.0 and holes[j, i] == _WHOLE:
                    a00, a01, a10, a11 = seen[0, j, i], seen[0, j, i + 1], seen[0, j + 1, i], seen[0, j + 1, i + 1]
                    b00, b01, b10, b11 = seen[1, j, i], seen[1, j, i + 1], seen[1, j + 1, i], seen[1, j + 1, i + 1]
                    a_low, a_high = min(a00, a01, a10, a11), max(a00, a01, a10, a11)
                    b_low, b_high = min(b00, b01, b10, b11), max(b00, b01, b10, b11)
                else:
                    nearest = 0.0
                    _fill_prism(nodes, edges_x, edges_y, j, i, holes[j, i], prism)
                    a_low, a_high, b_low, b_high = bounds(pose, prism)
                v0, v1 = span(rows, screen[2], screen[3], b_low, b_high)
                if v0 >= v1:
                    continue
                u0, u1 = span(columns, screen[0], screen[1], a_low, a_high)
                if u0 < u1 and not _is_covered(nearest, u0, u1, v0, v1, depths):
                    _fill_patch(pose, nodes, edges_x, edges_y, j, i, patch)
                    u0, u1 = whole_groups(u0, u1, depths.shape[1])
                    _draw_patch(pose, patch, rays, u0, u1, v0, v1, depths)


@inlined
def _is_unseen(
    screen: Array,
    columns: Spans,
    rows: Spans,
    seen: Array,
    holes: Grid,
    first_j: int,
    first_i: int,
    size_j: int,
    size_i: int,
    depths: Array,
) -> bool:
    """True when no pixel's ray meets these patches, as with many that are far away, or only behind nearer ground."""
    a_low, a_high, b_low, b_high, nearest = math.inf, -math.inf, math.inf, -math.inf, math.inf
    for j in range(first_j, first_j + size_j + 1):
        for i in range(first_i, first_i + size_i + 1):
            a, b = seen[0, j, i], seen[1, j, i]
            a_low, a_high, b_low, b_high = min(a_low, a), max(a_high, a), min(b_low, b), max(b_high, b)
            nearest = min(nearest, seen[2, j, i])
    if not nearest > 0.0:
        return False
    for j in range(first_j, first_j + size_j):
        for i in range(first_i, first_i + size_i):
            if holes[j, i] != _WHOLE:
                return False
    v0, v1 = span(rows, screen[2], screen[3], b_low, b_high)
    u0, u1 = span(columns, screen[0], screen[1], a_low, a_high)
    return v0 >= v1 or u0 >= u1 or _is_covered(nearest, u0, u1, v0, v1, depths)


@kernel
def _fill_prism(nodes: Array, edges_x: Array, edges_y: Array, j: int, i: int, hole: int, prism: Prism) -> None:
    """What holds patch (j, i); beside a hole that includes the wall below it."""
    h00, h01, h10, h11 = nodes[j, i], nodes[j, i + 1], nodes[j + 1, i], nodes[j + 1, i + 1]
    prism[0] = -_FAR if hole == _BESIDE_A_HOLE else min(h00, h01, h10, h11)
    prism[1] = max(h00, h01, h10, h11)
    x0, x1, y0, y1 = edges_x[i], edges_x[i + 1], edges_y[j], edges_y[j + 1]
    prism[2], prism[3], prism[4], prism[5] = x0, y0, x1, y0
    prism[6], prism[7], prism[8], prism[9] = x1, y1, x0, y1


@inlined
def _fill_patch(pose: Pose, nodes: Array, edges_x: Array, edges_y: Array, j: int, i: int, patch: Array) -> None:
    """The surface as height + slope_x p + slope_y q + twist p q above the camera, p and q [m] from the camera.

    Outer patches have no slope outwards, and their far edge stands in no formula but the bounds.
    """
    h00, h01, h10, h11 = nodes[j, i], nodes[j, i + 1], nodes[j + 1, i], nodes[j + 1, i + 1]
    x0, x1, y0, y1 = edges_x[i] - pose[0], edges_x[i + 1] - pose[0], edges_y[j] - pose[1], edges_y[j + 1] - pose[1]
    patch[0], patch[1], patch[2], patch[3] = x0, x1, y0, y1
    patch[4] = h00 - pose[2]
    patch[5] = (h01 - h00) / (x1 - x0)
    patch[6] = (h10 - h00) / (y1 - y0)
    patch[7] = ((h11 - h10) - (h01 - h00)) / ((x1 - x0) * (y1 - y0))


@inlined
def _draw_patch(pose: Pose, patch: Array, rays: Rays, u0: int, u1: int, v0: int, v1: int, depths: Array) -> None:
    """One patch in one row of pixels.

    Over the patch, between t = enter and t = leave, the ray is c0 + c1 s + c2 s^2 above it, s = t - enter. A ray that
    rounding carries under the surface at the border of two patches is caught there: the surface has no cracks.
    """
    for v in range(v0, v1):
        ray_x, ray_y, depth = rays[0, v, u0:u1], rays[1, v, u0:u1], depths[v, u0:u1]
        for u in range(depth.shape[0]):
            a, b = ray_x[u], ray_y[u]
            dx = pose[3] * a + pose[4] * b + pose[5]
            dy = pose[6] * a + pose[7] * b + pose[8]
            dz = pose[9] * a + pose[10] * b + pose[11]
            inverse = 1.0 / (dx if dx != 0.0 else _TINY)
            t0, t1 = patch[0] * inverse, patch[1] * inverse
            enter = t0 if t0 < t1 else t1
            leave = t1 if t0 < t1 else t0
            inverse = 1.0 / (dy if dy != 0.0 else _TINY)
            t0, t1 = patch[2] * inverse, patch[3] * inverse
            near = t0 if t0 < t1 else t1
            far = t1 if t0 < t1 else t0
            enter = near if near > enter else enter
            leave = far if far < leave else leave
            enter = enter if enter > 0.0 else 0.0
            p = dx * enter - patch[0]
            q = dy * enter - patch[2]
            slope = patch[6] + patch[7] * p
            c0 = dz * enter - (patch[4] + patch[5] * p + slope * q)
            c1 = dz - (patch[5] * dx + slope * dy + patch[7] * q * dx)
            c2 = -patch[7] * dx * dy
            discriminant = c1 * c1 - 4.0 * c2 * c0
            meets = discriminant >= 0.0
            root = math.sqrt(discriminant if meets else 0.0)
            ahead = 2.0 * c0 / (root - c1 if root != c1 else _TINY)
            below = c0 <= 0.0
            t = enter if below else enter + ahead
            hit = (enter <= leave) & (below | (meets & (ahead > 0.0) & (t <= leave))) & (t < depth[u]) & (t < _FAR)
            depth[u] = t if hit else depth[u]


@kernel
def ground_classes(
    pose: Pose,
    ray_x: Array,
    ray_y: Array,
    depths: Array,
    surface: Grid,
    cell: float,
    west: float,
    south: float,
    classes: Grid,
) -> None:
    """Class of the cell under each pixel of a row, the nearest border cell beyond the map, 0 in the sky."""
    last_i = surface.shape[1] - 1.0
    last_j = surface.shape[0] - 1.0
    per_cell = 1.0 / cell
    camera_x, camera_y = pose[0] - west, pose[1] - south
    for u in range(depths.shape[0]):
        a, b, t = ray_x[u], ray_y[u], depths[u]
        i = (camera_x + t * (pose[3] * a + pose[4] * b + pose[5])) * per_cell
        j = (camera_y + t * (pose[6] * a + pose[7] * b + pose[8])) * per_cell
        i = i if i > 0.0 else 0.0
        j = j if j > 0.0 else 0.0
        i = i if i < last_i else last_i
        j = j if j < last_j else last_j
        classes[u] = surface[int(j), int(i)] if t < math.inf else 0
