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
from typing import NamedTuple

import numpy as np

from microsim.engine.calls import room as room_for
from microsim.engine.compiled import inlined, kernel, threaded_kernel
from microsim.engine.geometry import Array, Grid
from microsim.engine.world import World
from microsim.render.screen import (
    TINY,
    Pose,
    Prism,
    Rays,
    Scale,
    ScreenIndex,
    Span,
    Spans,
    between,
    bounds,
    column_span,
    fill_span,
    inverse_of,
    row_span,
    whole_groups,
)

_BLOCK = 16  # patches along a side of a block
_PART = 4  # patches along a side of a part of a block
_LOOK = 256  # pixels that are looked at to see whether a nearer part of the ground covers them
_OUTER_STEPS = (4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)  # [cells] from the edge: long patches would cover much screen
_FAR = 1e12  # [m] where an outer patch ends
_WHOLE, _BESIDE_A_HOLE, _HOLE = range(3)
_LEVEL = 1e-3  # slopes of rays below this count as towards the horizon
_SLACK = 1e-9  # far above the rounding of places on the ground


class Patches(NamedTuple):
    """The ground, or a part of it. Arrays are private writable copies: numba compiles once per kind of array."""

    nodes: Array  # (rows + 1, columns + 1) [m] heights of the lattice; of the whole, the edge is repeated outwards
    x: Array  # (columns + 1,) [m] where patches begin, the last one: where they end
    y: Array  # (rows + 1,) [m]
    holes: Grid  # per patch: _WHOLE, _BESIDE_A_HOLE, _HOLE


class Surface(NamedTuple):
    """What the ground consists of."""

    classes: Grid  # (ny, nx)
    cell_m: float
    west: float  # [m] where the first column begins
    south: float  # [m] where the first row begins


class Ground(NamedTuple):
    """Heights as `geometry.ground_height` takes them."""

    elevation: Array  # (ny, nx) [m], float64
    cell_m: float
    west: float
    south: float


NO_GROUND = Ground(np.full((1, 1), np.nan), 1.0, 0.0, 0.0)


def ground_of(world: World) -> Ground:
    return Ground(world.elevation.astype(np.float64), float(world.cell_m), float(world.west), float(world.south))


class Terrain(NamedTuple):
    """The ground prepared for drawing."""

    patches: Patches
    blocks: Array  # (rows of blocks, columns of blocks, 10) the prism that holds each block of patches
    surface: Surface
    lowest: float  # [m]


def world_terrain(world: World) -> Terrain:
    """For all cameras in it."""
    nodes = np.pad(world.elevation.astype(np.float64, copy=False), len(_OUTER_STEPS) + 1, mode="edge")
    nodes[~np.isfinite(nodes)] = np.nan
    rows, columns = world.elevation.shape
    edges = _edges(columns, world.cell_m, world.west), _edges(rows, world.cell_m, world.south)
    patches = Patches(nodes, *edges, _holes(nodes))
    classes = np.array(world.surface, np.uint8, order="C", copy=True)
    surface = Surface(classes, float(world.cell_m), float(world.west), float(world.south))
    lowest = float(np.fmin.reduce(nodes, axis=None))
    return Terrain(patches, _blocks(patches), surface, lowest if lowest == lowest else 0.0)


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


def _blocks(ground: Patches) -> Array:
    """A block has one node more than patches on each side. The walls of holes reach down all the way."""
    rows, columns = range(0, ground.y.size - 1, _BLOCK), range(0, ground.x.size - 1, _BLOCK)
    blocks = np.empty((len(rows), len(columns), 10))
    for j in rows:
        for i in columns:
            heights = ground.nodes[j : j + _BLOCK + 1, i : i + _BLOCK + 1]
            has_hole = ground.holes[j : j + _BLOCK, i : i + _BLOCK].any()
            bottom = -_FAR if has_hole else heights.min()
            top = np.fmax.reduce(heights, axis=None, initial=-_FAR) if has_hole else heights.max()
            x, y = ground.x[i : i + _BLOCK + 1], ground.y[j : j + _BLOCK + 1]
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
def relief_depths(pose: Pose, rays: Rays, screen: ScreenIndex, ground: Patches, blocks: Array, depths: Array) -> None:
    """Put the bilinear surface into `depths` (h, w) where it is nearer; the camera is above the ground.

    Where there is nothing nearer the sky was: infinite depths. Pixels of depth 0 cost next to nothing.
    """
    scale, columns, rows = screen
    seen = np.empty((3, _BLOCK + 1, _BLOCK + 1))
    near_j, near_i = _place_in(pose[1], ground.y), _place_in(pose[0], ground.x)
    block_rows, block_columns = blocks.shape[0], blocks.shape[1]
    for nth_j in range(block_rows):
        block_j = _outwards(nth_j, near_j // _BLOCK, block_rows)
        for nth_i in range(block_columns):
            block_i = _outwards(nth_i, near_i // _BLOCK, block_columns)
            a_low, a_high, b_low, b_high = bounds(pose, blocks[block_j, block_i])
            u0, u1 = column_span(scale, columns, a_low, a_high)
            v0, v1 = row_span(scale, rows, b_low, b_high)
            if u0 >= u1 or v0 >= v1 or _is_covered(_ahead(pose, blocks[block_j, block_i]), u0, u1, v0, v1, depths):
                continue
            j, i = block_j * _BLOCK, block_i * _BLOCK
            nodes = ground.nodes[j : j + _BLOCK + 1, i : i + _BLOCK + 1]
            x, y = ground.x[i : i + _BLOCK + 1], ground.y[j : j + _BLOCK + 1]
            block = Patches(nodes, x, y, ground.holes[j:, i:])
            _project(pose, block, seen)
            _draw_block(pose, rays, scale, columns, rows, block, seen, near_j - j, near_i - i, depths)


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
def _project(pose: Pose, block: Patches, seen: Array) -> None:
    """a, b and the distance ahead of every node."""
    nodes = block.nodes
    for j in range(nodes.shape[0]):
        y = block.y[j] - pose[1]
        right, down, ahead = pose[6] * y, pose[7] * y, pose[8] * y
        for i in range(nodes.shape[1]):
            x = block.x[i] - pose[0]
            z = nodes[j, i] - pose[2]
            distance = pose[5] * x + ahead + pose[11] * z
            inverse = inverse_of(distance)
            seen[0, j, i] = (pose[3] * x + right + pose[9] * z) * inverse
            seen[1, j, i] = (pose[4] * x + down + pose[10] * z) * inverse
            seen[2, j, i] = distance


@inlined
def _draw_block(
    pose: Pose,
    rays: Rays,
    scale: Scale,
    columns: Spans,
    rows: Spans,
    block: Patches,
    seen: Array,
    near_j: int,
    near_i: int,
    depths: Array,
) -> None:
    """The patches of a block, beginning with the nearest one, (near_j, near_i), which may be outside of it."""
    prism, patch = np.empty(10), np.empty(10)
    nodes, x, y, holes = block
    end_j, end_i = nodes.shape[0] - 1, nodes.shape[1] - 1
    parts_j, parts_i = (end_j + _PART - 1) // _PART, (end_i + _PART - 1) // _PART
    for nth_part_j in range(parts_j):
        part_j = _PART * _outwards(nth_part_j, near_j // _PART, parts_j)
        size_j = min(_PART, end_j - part_j)
        for nth_part_i in range(parts_i):
            part_i = _PART * _outwards(nth_part_i, near_i // _PART, parts_i)
            size_i = min(_PART, end_i - part_i)
            if _is_unseen(scale, columns, rows, seen, holes, part_j, part_i, size_j, size_i, depths):
                continue
            for nth in range(size_j * size_i):
                j = part_j + _outwards(nth // size_i, near_j - part_j, size_j)
                i = part_i + _outwards(nth % size_i, near_i - part_i, size_i)
                if holes[j, i] == _HOLE:
                    continue
                nearest, a_low, a_high, b_low, b_high = _corner_bounds(seen, j, i)
                if not nearest > 0.0 or holes[j, i] != _WHOLE:
                    nearest = 0.0
                    _fill_prism(block, j, i, prism)
                    a_low, a_high, b_low, b_high = bounds(pose, prism)
                v0, v1 = row_span(scale, rows, b_low, b_high)
                if v0 >= v1:
                    continue
                u0, u1 = column_span(scale, columns, a_low, a_high)
                if u0 < u1 and not _is_covered(nearest, u0, u1, v0, v1, depths):
                    _fill_patch(pose, nodes, x, y, j, i, patch)
                    u0, u1 = whole_groups(u0, u1, depths.shape[1])
                    _draw_patch(pose, patch, rays, u0, u1, v0, v1, depths)


@inlined
def _corner_bounds(seen: Array, j: int, i: int) -> tuple[float, float, float, float, float]:
    """How far ahead patch (j, i) begins; lowest and highest a, then b, of its corners."""
    nearest = min(seen[2, j, i], seen[2, j, i + 1], seen[2, j + 1, i], seen[2, j + 1, i + 1])
    a00, a01, a10, a11 = seen[0, j, i], seen[0, j, i + 1], seen[0, j + 1, i], seen[0, j + 1, i + 1]
    b00, b01, b10, b11 = seen[1, j, i], seen[1, j, i + 1], seen[1, j + 1, i], seen[1, j + 1, i + 1]
    a_low, a_high = min(a00, a01, a10, a11), max(a00, a01, a10, a11)
    b_low, b_high = min(b00, b01, b10, b11), max(b00, b01, b10, b11)
    return nearest, a_low, a_high, b_low, b_high


@inlined
def _is_unseen(
    scale: Scale,
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
    v0, v1 = row_span(scale, rows, b_low, b_high)
    u0, u1 = column_span(scale, columns, a_low, a_high)
    return v0 >= v1 or u0 >= u1 or _is_covered(nearest, u0, u1, v0, v1, depths)


# ---- the same, pixel by pixel: a thread of a GPU finds the pixels of a patch, another looks at the patches of a pixel


@kernel
def patch_span(
    pose: Pose, scale: Scale, columns: Spans, rows: Spans, ground: Patches, n: int, room: Array, span: Span
) -> None:
    """Which pixels can see the nth patch, counted row by row; room (3, 2, 2) is room to work in."""
    nodes, x, y, holes = ground
    j, i, prism = n // holes.shape[1], n % holes.shape[1], room_for(10)
    if holes[j, i] == _HOLE:
        span[0], span[1], span[2], span[3] = 0, 0, 0, 0
        return
    patch = Patches(nodes[j : j + 2, i : i + 2], x[i : i + 2], y[j : j + 2], holes[j:, i:])
    _project(pose, patch, room)
    nearest, a_low, a_high, b_low, b_high = _corner_bounds(room, 0, 0)
    if not nearest > 0.0 or holes[j, i] != _WHOLE:
        _fill_prism(ground, j, i, prism)
        a_low, a_high, b_low, b_high = bounds(pose, prism)
    fill_span(scale, columns, rows, (a_low, a_high, b_low, b_high), span)


@kernel
def relief_depth(
    pose: Pose, ground: Patches, spans: Spans, ray_x: Array, ray_y: Array, v: int, u: int, depth: Array
) -> None:
    """What `relief_depths` finds for one pixel; `ray_x`, `ray_y` and `depth` are (1,).

    spans (patches + blocks, 4): the pixels that can see each patch, row by row, then each block of patches.
    """
    nodes, x, y, holes = ground
    patch, (height, width) = room_for(8), holes.shape
    block_columns = (width + _BLOCK - 1) // _BLOCK
    depth[0] = math.inf
    for n in range(height * width, spans.shape[0]):
        if not _holds(spans, n, v, u):
            continue
        block = n - height * width
        first_j, first_i = block // block_columns * _BLOCK, block % block_columns * _BLOCK
        for j in range(first_j, min(first_j + _BLOCK, height)):
            for i in range(first_i, min(first_i + _BLOCK, width)):
                if _holds(spans, j * width + i, v, u):
                    _fill_patch(pose, nodes, x, y, j, i, patch)
                    _draw_patch_row(pose, patch, ray_x, ray_y, depth)


@inlined
def _holds(spans: Spans, n: int, v: int, u: int) -> bool:
    return spans[n, 0] <= u and u < spans[n, 1] and spans[n, 2] <= v and v < spans[n, 3]


@kernel
def _fill_prism(block: Patches, j: int, i: int, prism: Prism) -> None:
    """What holds patch (j, i); beside a hole that includes the wall below it."""
    nodes = block.nodes
    h00, h01, h10, h11 = nodes[j, i], nodes[j, i + 1], nodes[j + 1, i], nodes[j + 1, i + 1]
    prism[0] = -_FAR if block.holes[j, i] == _BESIDE_A_HOLE else min(h00, h01, h10, h11)
    prism[1] = max(h00, h01, h10, h11)
    x0, x1, y0, y1 = block.x[i], block.x[i + 1], block.y[j], block.y[j + 1]
    prism[2], prism[3], prism[4], prism[5] = x0, y0, x1, y0
    prism[6], prism[7], prism[8], prism[9] = x1, y1, x0, y1


@inlined
def _fill_patch(pose: Pose, nodes: Array, x: Array, y: Array, j: int, i: int, patch: Array) -> None:
    """The surface as height + slope_x p + slope_y q + twist p q above the camera, p and q [m] from the camera.

    Outer patches have no slope outwards, and their far edge is in no formula but the bounds.
    """
    h00, h01, h10, h11 = nodes[j, i], nodes[j, i + 1], nodes[j + 1, i], nodes[j + 1, i + 1]
    x0, x1, y0, y1 = x[i] - pose[0], x[i + 1] - pose[0], y[j] - pose[1], y[j + 1] - pose[1]
    patch[0], patch[1], patch[2], patch[3] = x0, x1, y0, y1
    patch[4] = h00 - pose[2]
    patch[5] = (h01 - h00) / (x1 - x0)
    patch[6] = (h10 - h00) / (y1 - y0)
    patch[7] = ((h11 - h10) - (h01 - h00)) / ((x1 - x0) * (y1 - y0))


@inlined
def _draw_patch(pose: Pose, patch: Array, rays: Rays, u0: int, u1: int, v0: int, v1: int, depths: Array) -> None:
    for v in range(v0, v1):
        _draw_patch_row(pose, patch, rays[0, v, u0:u1], rays[1, v, u0:u1], depths[v, u0:u1])


@inlined
def _draw_patch_row(pose: Pose, patch: Array, ray_x: Array, ray_y: Array, depth: Array) -> None:
    """One patch in one row of pixels.

    Over the patch, between t = enter and t = leave, the ray is c0 + c1 s + c2 s^2 above it, s = t - enter. A ray that
    rounding carries under the surface at the border of two patches is caught there: the surface has no cracks.
    """
    for u in range(depth.shape[0]):
        a, b = ray_x[u], ray_y[u]
        dx = pose[3] * a + pose[4] * b + pose[5]
        dy = pose[6] * a + pose[7] * b + pose[8]
        dz = pose[9] * a + pose[10] * b + pose[11]
        enter, leave = between(patch[0], patch[1], inverse_of(dx))
        near, far = between(patch[2], patch[3], inverse_of(dy))
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
        ahead = 2.0 * c0 / (root - c1 if root != c1 else TINY)
        below = c0 <= 0.0
        t = enter if below else enter + ahead
        hit = (enter <= leave) & (below | (meets & (ahead > 0.0) & (t <= leave))) & (t < depth[u]) & (t < _FAR)
        depth[u] = t if hit else depth[u]


@kernel
def only_class(pose: Pose, outline: Array, ground_above_camera: float, surface: Surface, most_cells: float) -> int:
    """The class that all rays within an outline see of level ground or sky; -1: perhaps several.

    The ground that they see lies between the points that its four corners see. At most so many cells are looked at.
    """
    ground, per_cell = surface.classes, 1.0 / surface.cell_m
    camera_x, camera_y = pose[0] - surface.west, pose[1] - surface.south
    last_i, last_j = ground.shape[1] - 1.0, ground.shape[0] - 1.0
    low_i, high_i, low_j, high_j, up = last_i, 0.0, last_j, 0.0, 0
    for corner in range(4):
        a, b = outline[corner & 1], outline[2 + (corner >> 1)]
        dz = pose[9] * a + pose[10] * b + pose[11]
        if dz > _LEVEL:
            up += 1
            continue
        if not dz < -_LEVEL:  # towards the horizon, or no ray
            return -1
        t = ground_above_camera / dz
        i = (camera_x + t * (pose[3] * a + pose[4] * b + pose[5])) * per_cell
        j = (camera_y + t * (pose[6] * a + pose[7] * b + pose[8])) * per_cell
        slack = _SLACK * (1.0 + abs(i) + abs(j) + t * (1.0 + abs(a) + abs(b)) * per_cell)
        low_i, high_i = min(low_i, max(i - slack, 0.0)), max(high_i, min(i + slack, last_i))
        low_j, high_j = min(low_j, max(j - slack, 0.0)), max(high_j, min(j + slack, last_j))
    if up > 0:
        return 0 if up == 4 else -1
    if not (high_i - low_i + 2.0) * (high_j - low_j + 2.0) < most_cells:
        return -1
    found = ground[int(low_j), int(low_i)]
    for row in range(int(low_j), int(high_j) + 1):
        for column in range(int(low_i), int(high_i) + 1):
            if ground[row, column] != found:
                return -1
    return int(found)


@kernel
def ground_classes(pose: Pose, ray_x: Array, ray_y: Array, depths: Array, surface: Surface, classes: Grid) -> None:
    """Class of the cell under each pixel of a row, the nearest border cell beyond the map, 0 in the sky."""
    ground = surface.classes
    last_i, last_j = ground.shape[1] - 1.0, ground.shape[0] - 1.0
    per_cell = 1.0 / surface.cell_m
    camera_x, camera_y = pose[0] - surface.west, pose[1] - surface.south
    for u in range(depths.shape[0]):
        a, b, t = ray_x[u], ray_y[u], depths[u]
        i = (camera_x + t * (pose[3] * a + pose[4] * b + pose[5])) * per_cell
        j = (camera_y + t * (pose[6] * a + pose[7] * b + pose[8])) * per_cell
        i = i if i > 0.0 else 0.0
        j = j if j > 0.0 else 0.0
        i = i if i < last_i else last_i
        j = j if j < last_j else last_j
        classes[u] = ground[int(j), int(i)] if t < math.inf else 0


@kernel
def class_at(surface: Surface, x: float, y: float) -> int:
    """Of the cell at a place of the map frame, the nearest border cell beyond the map."""
    i = min(max((x - surface.west) / surface.cell_m, 0.0), surface.classes.shape[1] - 1.0)
    j = min(max((y - surface.south) / surface.cell_m, 0.0), surface.classes.shape[0] - 1.0)
    return int(surface.classes[int(j), int(i)])
