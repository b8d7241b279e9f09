"""The drivable polygon at a point: exact, with holes and priorities, fast for any number of polygons.

A polygon is closed: its edges, including those of its holes, belong to it. If several contain a point, the one with the
smallest priority number takes precedence; among equals, the first. Only + - * and comparisons decide, and the side of
an edge is computed exactly, so the answer is the same on every machine.

Two indices make it fast: a grid of buckets lists the polygons near a point, and for each polygon a stack of slabs in y
lists the edges that a ray to the east from that point can meet.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import kernel
from microsim.engine.geometry import Grid

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

OFFROAD = -1
_SPLIT = 134217729.0  # 2**27 + 1: halves a float64's digits
_BOUND = 3.3306690738754716e-16  # (3 + 16 eps) eps: above it, the rounded determinant has the right sign
_MAX_BUCKETS = 1 << 18
_MAX_SLABS = 4096
_MAX_ENTRIES_PER_EDGE = 16


@dataclass(frozen=True)
class DrivableArea:
    """Polygons in flat arrays, ready for the kernels below. Made by `drivable_area`."""

    edges: Floats  # (m, 4) x0 y0 x1 y1 [m] map frame, of all rings, polygon by polygon
    priority: Floats  # (n,) of each polygon
    slab_origin: Floats  # (n, 2) y of the lowest slab [m], slabs per metre
    slab_first: Ints  # (n + 1,) first slab of each polygon
    slab_start: Ints  # (slabs + 1,) where a slab's edges begin in slab_edges
    slab_edges: Ints  # rows of `edges`
    grid: Floats  # (4,) west, south [m], buckets per metre along x and y
    bucket_side: int  # buckets along x and along y
    buckets: Ints  # (side·side + 1,) where each one's polygons begin further on, in order of precedence

    @property
    def count(self) -> int:
        return int(self.priority.shape[0])

    @property
    def arrays(self) -> tuple[Floats, Floats, Ints, Ints, Ints, Floats, int, Ints]:
        """What the kernels take."""
        slabs = self.slab_origin, self.slab_first, self.slab_start, self.slab_edges
        return self.edges, *slabs, self.grid, self.bucket_side, self.buckets

    def polygon_at(self, x: float, y: float) -> int:
        """The polygon at a point that takes precedence, or OFFROAD. NaN is off-road."""
        return int(polygon_at(x, y, *self.arrays))

    def footprint(self, x: Floats, y: Floats) -> tuple[int, int]:
        """(the polygon at the first point, how many of the points are off-road)."""
        first, outside = footprint_at(x, y, *self.arrays)
        return int(first), int(outside)

    def cells(self, shape: tuple[int, int], cell: float, west: float, south: float) -> Grid:
        """1 for every cell of a map whose middle a polygon covers."""
        inside = np.zeros(shape, np.uint8)
        if self.count:
            _fill(inside, (cell, west, south), *self.arrays)
        return inside


@kernel
def _product(a: float, b: float) -> tuple[float, float]:
    """a·b as a rounded value and its exact error (Dekker)."""
    p = a * b
    c = _SPLIT * a
    a_high = c - (c - a)
    a_low = a - a_high
    c = _SPLIT * b
    b_high = c - (c - b)
    b_low = b - b_high
    return p, a_low * b_low - (((p - a_high * b_high) - a_low * b_high) - a_high * b_low)


@kernel
def _exact_sign(ax: float, ay: float, bx: float, by: float, px: float, py: float) -> float:
    """The sign of the determinant of (b - a, p - a), from twelve exact terms summed without error (Shewchuk)."""
    sums = np.zeros(12)
    count = 0
    for index in range(6):
        if index == 0:
            high, low = _product(ax, by)
        elif index == 1:
            high, low = _product(bx, py)
        elif index == 2:
            high, low = _product(px, ay)
        elif index == 3:
            high, low = _product(-ay, bx)
        elif index == 4:
            high, low = _product(-by, px)
        else:
            high, low = _product(-py, ax)
        for part in range(2):
            carried = low if part == 0 else high
            for each in range(count):
                total = carried + sums[each]
                other = total - carried
                error = (carried - (total - other)) + (sums[each] - other)
                sums[each] = error
                carried = total
            sums[count] = carried
            count += 1
    for each in range(11, -1, -1):
        if sums[each] != 0.0:
            return 1.0 if sums[each] > 0.0 else -1.0
    return 0.0


@kernel
def side(ax: float, ay: float, bx: float, by: float, px: float, py: float) -> float:
    """Positive when p is to the left of the line from a to b, 0 on it, exactly."""
    left = (bx - ax) * (py - ay)
    right = (px - ax) * (by - ay)
    rounded = left - right
    if abs(rounded) > _BOUND * (abs(left) + abs(right)):
        return rounded
    return _exact_sign(ax, ay, bx, by, px, py)


@kernel
def _contains(
    x: float,
    y: float,
    polygon: int,
    edges: Floats,
    slab_origin: Floats,
    slab_first: Ints,
    slab_start: Ints,
    slab_edges: Ints,
) -> bool:
    first, last = slab_first[polygon], slab_first[polygon + 1]
    place = (y - slab_origin[polygon, 0]) * slab_origin[polygon, 1]
    if not (place >= 0.0 and place <= last - first + 0.5):  # rounding may carry the very top a little above
        return False
    slab = min(first + int(place), last - 1)
    inside = False
    for index in range(slab_start[slab], slab_start[slab + 1]):
        edge = slab_edges[index]
        x0, y0, x1, y1 = edges[edge, 0], edges[edge, 1], edges[edge, 2], edges[edge, 3]
        if (y0 > y) == (y1 > y):  # the ray does not cross it; the point may still be on it
            if (x0 == x and y0 == y) or (x1 == x and y1 == y):
                return True
            if y0 == y and y1 == y and min(x0, x1) < x and x < max(x0, x1):
                return True
            continue
        if x < x0 and x < x1:
            inside = not inside
        elif not (x > x0 and x > x1):
            turn = side(x0, y0, x1, y1, x, y)
            if turn == 0.0:
                return True
            if (turn > 0.0) == (y1 > y0):
                inside = not inside
    return inside


@kernel
def polygon_at(
    x: float, y: float, edges: Floats, slab_origin: Floats, slab_first: Ints, slab_start: Ints, slab_edges: Ints,
    grid: Floats, bucket_side: int, buckets: Ints,
) -> int:  # fmt: skip
    """The polygon at a point that takes precedence, or OFFROAD."""
    across, along = (x - grid[0]) * grid[2], (y - grid[1]) * grid[3]
    if not (across >= 0.0 and along >= 0.0 and across < bucket_side and along < bucket_side):
        return OFFROAD
    bucket = int(along) * bucket_side + int(across)
    for index in range(buckets[bucket], buckets[bucket + 1]):
        polygon = buckets[index]
        if _contains(x, y, polygon, edges, slab_origin, slab_first, slab_start, slab_edges):
            return polygon
    return OFFROAD


@kernel
def footprint_at(
    x: Floats, y: Floats, edges: Floats, slab_origin: Floats, slab_first: Ints, slab_start: Ints, slab_edges: Ints,
    grid: Floats, bucket_side: int, buckets: Ints,
) -> tuple[int, int]:  # fmt: skip
    """The polygon at the first point, and how many of the points are off-road."""
    first, outside = OFFROAD, 0
    for index in range(x.shape[0]):
        polygon = polygon_at(
            x[index], y[index], edges, slab_origin, slab_first, slab_start, slab_edges, grid, bucket_side, buckets,
        )  # fmt: skip
        if index == 0:
            first = polygon
        if polygon == OFFROAD:
            outside += 1
    return first, outside


@kernel
def _fill(
    inside: Grid, map_grid: tuple[float, float, float], edges: Floats, slab_origin: Floats, slab_first: Ints,
    slab_start: Ints, slab_edges: Ints, grid: Floats, bucket_side: int, buckets: Ints,
) -> None:  # fmt: skip
    """Of each cell: whether a polygon covers its middle. `map_grid`: edge of a cell, west and south of the map [m]."""
    cell, west, south = map_grid
    for j in range(inside.shape[0]):
        for i in range(inside.shape[1]):
            x, y = west + (i + 0.5) * cell, south + (j + 0.5) * cell
            inside[j, i] = (
                polygon_at(x, y, edges, slab_origin, slab_first, slab_start, slab_edges, grid, bucket_side, buckets)
                != OFFROAD
            )


def drivable_area(polygons: Sequence[Sequence[Floats]], priorities: Sequence[float]) -> DrivableArea:
    """From rings, the outer one first, each (n, 2) with its first point repeated at the end."""
    edges = [np.concatenate([_ring_edges(ring) for ring in rings]) for rings in polygons]
    slab_origin = np.zeros((len(edges), 2))
    slab_first = [0]
    starts: list[Ints] = [np.zeros(1, np.int64)]
    members: list[Ints] = []
    offset = filled = 0
    for index, each in enumerate(edges):
        slab_origin[index], counts, numbers = _slabs(each)
        members.append(numbers + offset)
        starts.append(np.cumsum(counts) + filled)
        slab_first.append(slab_first[-1] + counts.size)
        offset, filled = offset + len(each), filled + numbers.size
    every = np.concatenate(edges) if edges else np.zeros((0, 4))
    priority = np.array(priorities, np.float64)
    slabs = np.array(slab_first, np.int64), np.concatenate(starts), np.concatenate([np.zeros(0, np.int64), *members])
    area = DrivableArea(every, priority, slab_origin, *slabs, *_buckets(edges, priority))
    for part in vars(area).values():
        if isinstance(part, np.ndarray):
            part.flags.writeable = False
    return area


def _ring_edges(ring: Floats) -> Floats:
    points = np.asarray(ring, np.float64)
    return np.concatenate([points[:-1], points[1:]], axis=1)


def _slabs(edges: Floats) -> tuple[tuple[float, float], Ints, Ints]:
    """Slabs of even height over a polygon: (origin and slabs per metre), edges per slab, their numbers slab by slab.

    An edge is listed one slab too many at either end: rounding must never lose it.
    """
    low, high = float(edges[:, [1, 3]].min()), float(edges[:, [1, 3]].max())
    count = min(max(len(edges) // 2, 1), _MAX_SLABS)
    while True:
        per_metre = count / (high - low) if high > low else 0.0
        if not math.isfinite(per_metre):
            per_metre, count = 0.0, 1
        first, last = _spans(edges[:, 1], edges[:, 3], low, per_metre, count)
        if count == 1 or int((last - first + 1).sum()) <= _MAX_ENTRIES_PER_EDGE * len(edges):
            break
        count //= 2
    numbers, slabs = _spread(first, last)
    order = np.argsort(slabs, kind="stable")
    return (low, per_metre), np.bincount(slabs, minlength=count), numbers[order]


def _spans(a: Floats, b: Floats, origin: float, per_metre: float, count: int) -> tuple[Ints, Ints]:
    """First and last cell that each interval touches, with one to spare."""
    first = np.floor((np.minimum(a, b) - origin) * per_metre) - 1.0
    last = np.floor((np.maximum(a, b) - origin) * per_metre) + 1.0
    return np.clip(first, 0, count - 1).astype(np.int64), np.clip(last, 0, count - 1).astype(np.int64)


def _spread(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Row numbers and cells: each row once for every cell of its span."""
    counts = last - first + 1
    rows = np.repeat(np.arange(first.size, dtype=np.int64), counts)
    begin = np.repeat(np.cumsum(counts) - counts, counts)
    return rows, np.repeat(first, counts) + np.arange(rows.size, dtype=np.int64) - begin


def _buckets(edges: Sequence[Floats], priority: Floats) -> tuple[Floats, int, Ints]:
    """A grid over all polygons; each bucket lists those whose bounding box is near, in order of precedence."""
    if not edges:
        return np.array([0.0, 0.0, 1.0, 1.0]), 0, np.zeros(1, np.int64)
    corners = [each.reshape(-1, 2) for each in edges]
    boxes = np.array([(*each.min(axis=0), *each.max(axis=0)) for each in corners])
    west, south = float(boxes[:, 0].min()), float(boxes[:, 1].min())
    width, height = float(boxes[:, 2].max()) - west, float(boxes[:, 3].max()) - south
    side_count = max(1, math.isqrt(min(16 * len(edges), _MAX_BUCKETS)))
    while True:
        # a little smaller than the grid allows, so that the eastern and northern edges fall into the last bucket
        per_x, per_y = ((side_count - 0.001) / extent if extent > 1e-9 else 0.0 for extent in (width, height))
        left, right = _spans(boxes[:, 0], boxes[:, 2], west, per_x, side_count)
        bottom, top = _spans(boxes[:, 1], boxes[:, 3], south, per_y, side_count)
        if side_count == 1 or int(((right - left + 1) * (top - bottom + 1)).sum()) <= 64 * len(edges) + 4096:
            break
        side_count //= 2
    order = np.lexsort((np.arange(len(edges)), priority))
    lists: list[list[int]] = [[] for _ in range(side_count * side_count)]
    for polygon in order:
        for row in range(bottom[polygon], top[polygon] + 1):
            for column in range(left[polygon], right[polygon] + 1):
                lists[row * side_count + column].append(int(polygon))
    start = len(lists) + 1 + np.cumsum([0, *(len(each) for each in lists)])
    buckets = np.concatenate([start, np.array([polygon for each in lists for polygon in each], np.int64)])
    return np.array([west, south, per_x, per_y]), side_count, buckets.astype(np.int64)
