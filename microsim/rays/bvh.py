"""A tree of boxes over triangles and upright solids, for the rays of `screen_rays`."""

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import inlined, kernel, plain
from microsim.engine.exact import cos, sin
from microsim.engine.geometry import Array
from microsim.engine.world import Shape, World, lowest_and_highest, standing

Numbers: TypeAlias = npt.NDArray[np.int32]
Bins: TypeAlias = npt.NDArray[np.int64]

NOTHING = -1  # number of what a ray does not hit
_LEAF = 8  # things in a leaf at most
_BINS = 12
_DEEPEST = 80  # from there on nodes are halved, so that no tree is deeper than 128

BOX, CYLINDER = 0, 1
# columns of a solid: kind, x, y of its axis, bottom, top, cos, sin of its x axis, half size along x and y (or radius)
SOLID_COLUMNS = 9


class Tree(NamedTuple):
    """Boxes as (low x, y, z, high x, y, z). An inner node has `held` 0 and its children at `first` and `first` + 1."""

    boxes: Array  # (nodes, 6) [m] map frame
    first: Numbers  # (nodes,) first child, or where a leaf's things begin in `order`
    held: Numbers  # (nodes,) how many things a leaf holds
    order: Numbers  # numbers of things: triangles, then solids
    triangles: Array  # (m, 9) corner, then the two edges from it [m]
    solids: Array  # (k, SOLID_COLUMNS)


def make_tree(vertices: Array, indices: npt.NDArray[np.integer], solids: Array) -> Tree:
    """Over triangles, rows of `indices` (m, 3) into `vertices` (n, 3), and solids (k, SOLID_COLUMNS)."""
    corners = np.asarray(vertices, np.float64)[np.asarray(indices, np.int64)].reshape(-1, 3, 3)
    solids = np.ascontiguousarray(solids, np.float64).reshape(-1, SOLID_COLUMNS)
    bounds = np.empty((len(corners) + len(solids), 6))
    bounds[: len(corners), :3], bounds[: len(corners), 3:] = corners.min(axis=1), corners.max(axis=1)
    if len(solids):
        _bound_solids(solids, bounds[len(corners) :])
    edges = np.concatenate([corners[:, 0], corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]], axis=1)
    order = np.arange(len(bounds), dtype=np.int32)
    nodes = max(2 * len(bounds), 1)
    boxes, first, count = np.zeros((nodes, 6)), np.zeros(nodes, np.int32), np.zeros(nodes, np.int32)
    used = _build(bounds, order, boxes, first, count) if len(bounds) else 1
    kept = boxes[:used].copy(), first[:used].copy(), count[:used].copy()
    return Tree(*kept, order, np.ascontiguousarray(edges), solids)


@kernel
def _bound_solids(solids: Array, bounds: Array) -> None:
    for n in range(solids.shape[0]):
        s = solids[n]
        x, y = s[7], s[8]
        if s[0] == BOX:
            x = abs(s[5]) * s[7] + abs(s[6]) * s[8]
            y = abs(s[6]) * s[7] + abs(s[5]) * s[8]
        slack = 1e-9 * (1.0 + abs(s[1]) + abs(s[2]))  # far above the rounding of the turned corners
        bounds[n, 0], bounds[n, 1], bounds[n, 2] = s[1] - x - slack, s[2] - y - slack, s[3]
        bounds[n, 3], bounds[n, 4], bounds[n, 5] = s[1] + x + slack, s[2] + y + slack, s[4]


@kernel
def _build(bounds: Array, order: Numbers, boxes: Array, first: Numbers, count: Numbers) -> int:
    """Split along the axis and at the place that the surface areas of the halves favour; gives the number of nodes."""
    begin, end = np.zeros(boxes.shape[0], np.int32), np.zeros(boxes.shape[0], np.int32)
    depth = np.zeros(boxes.shape[0], np.int32)
    end[0] = order.shape[0]
    used, node = 1, 0
    while node < used:
        low, high = begin[node], end[node]
        _enclose(bounds, order, low, high, boxes[node])
        middle = _split(bounds, order, low, high) if high - low > _LEAF and depth[node] < _DEEPEST else low
        if high - low > _LEAF and (middle <= low or middle >= high):
            middle = (low + high) // 2
        if high - low <= _LEAF:
            first[node], count[node] = low, high - low
        else:
            first[node], count[node] = used, 0
            begin[used], end[used] = low, middle
            begin[used + 1], end[used + 1] = middle, high
            depth[used] = depth[used + 1] = depth[node] + 1
            used += 2
        node += 1
    return used


@kernel
def _enclose(bounds: Array, order: Numbers, low: int, high: int, box: Array) -> None:
    _clear(box)
    for n in range(low, high):
        _widen(box, bounds[order[n]])


@inlined
def _clear(box: Array) -> None:
    for k in range(3):
        box[k], box[3 + k] = math.inf, -math.inf


@inlined
def _widen(box: Array, other: Array) -> None:
    for k in range(3):
        box[k], box[3 + k] = min(box[k], other[k]), max(box[3 + k], other[3 + k])


@kernel
def _split(bounds: Array, order: Numbers, low: int, high: int) -> int:
    """Reorder order[low:high] into two parts; gives where the second begins, `low` when no plane parts them."""
    best_cost, best_axis, best_bin = math.inf, -1, 0
    best_start, best_scale = 0.0, 0.0
    boxes = np.empty((_BINS, 6))
    counts = np.empty(_BINS, np.int64)
    areas = np.empty(_BINS)
    for axis in range(3):
        start, stop = math.inf, -math.inf
        for n in range(low, high):
            middle = 0.5 * (bounds[order[n], axis] + bounds[order[n], 3 + axis])
            start, stop = min(start, middle), max(stop, middle)
        if not stop > start:
            continue
        scale = _BINS / (stop - start)
        _fill_bins(bounds, order[low:high], axis, start, scale, boxes, counts)
        _areas_from_the_right(boxes, counts, areas)
        cost, place = _cheapest(boxes, counts, areas)
        if cost < best_cost:
            best_cost, best_axis, best_bin, best_start, best_scale = cost, axis, place, start, scale
    if best_axis < 0:
        return low
    i, j = low, high
    while i < j:
        if _bin(bounds, order[i], best_axis, best_start, best_scale) < best_bin:
            i += 1
        else:
            j -= 1
            order[i], order[j] = order[j], order[i]
    return i


@kernel
def _bin(bounds: Array, thing: int, axis: int, start: float, scale: float) -> int:
    return min(int((0.5 * (bounds[thing, axis] + bounds[thing, 3 + axis]) - start) * scale), _BINS - 1)


@kernel
def _fill_bins(
    bounds: Array, things: Numbers, axis: int, start: float, scale: float, boxes: Array, counts: Bins
) -> None:
    for b in range(_BINS):
        counts[b] = 0
        _clear(boxes[b])
    for thing in things:
        b = _bin(bounds, thing, axis, start, scale)
        counts[b] += 1
        _widen(boxes[b], bounds[thing])


@kernel
def _area(box: Array) -> float:
    x, y, z = box[3] - box[0], box[4] - box[1], box[5] - box[2]
    return x * y + y * z + z * x


@kernel
def _areas_from_the_right(boxes: Array, counts: Bins, areas: Array) -> None:
    """areas[b]: surface area times number of all things in bins b and beyond."""
    box, number = np.empty(6), 0
    _clear(box)
    for b in range(_BINS - 1, -1, -1):
        number += counts[b]
        _widen(box, boxes[b])
        areas[b] = _area(box) * number if number > 0 else math.inf


@kernel
def _cheapest(boxes: Array, counts: Bins, areas: Array) -> tuple[float, int]:
    box, number, best, place = np.empty(6), 0, math.inf, 0
    _clear(box)
    for b in range(1, _BINS):
        number += counts[b - 1]
        _widen(box, boxes[b - 1])
        cost = _area(box) * number + areas[b] if number > 0 else math.inf
        if cost < best:
            best, place = cost, b
    return best, place


def mesh_tree(world: World) -> Tree:
    """The world's mesh alone, for cameras, which draw obstacles in their own way."""
    return _tree_of(world, ())


def tree(world: World) -> Tree:
    """Mesh and obstacles, for rays."""
    return _tree_of(world, world.obstacles) if world.obstacles else world.derived(mesh_tree)


def _tree_of(world: World, obstacles: Sequence[Shape]) -> Tree:
    lowest = world.derived(lowest_and_highest)[0] if obstacles else 0.0
    rows = np.array([_solid_row(world, shape, lowest) for shape in obstacles]).reshape(-1, SOLID_COLUMNS)
    if world.mesh is None:
        return make_tree(np.zeros((0, 3)), np.zeros((0, 3), np.int32), rows)
    return make_tree(world.mesh.vertices, world.mesh.triangles, rows)


def _solid_row(world: World, shape: Shape, lowest: float) -> list[float]:
    bottom, top = plain(standing)(world.ground(*shape.center), lowest, shape.base_m, shape.height_m)
    if shape.kind == "circle":
        return [CYLINDER, *shape.center, bottom, top, 1.0, 0.0, shape.radius, shape.radius]
    yaw = shape.yaw or 0.0
    turn = [cos(yaw), sin(yaw)]
    return [BOX, *shape.center, bottom, top, *turn, 0.5 * shape.size[0], 0.5 * shape.size[1]]
