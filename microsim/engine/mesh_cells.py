"""A static mesh as cells: where it stands in a robot's way, and where polygons cover the map."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.engine import drivable, geometry
from microsim.engine.compiled import kernel
from microsim.engine.drivable import OFFROAD, DrivableArea, Floats, Ints
from microsim.engine.geometry import Array, Grid

_ground_height = geometry.ground_height
_polygon_at = drivable.polygon_at

STEP_M = 0.2  # what is lower is driven over
HEADROOM_M = 2.0  # what is higher is driven under


@kernel
def mark_mesh(
    occupied: Grid,
    elevation: Array,
    cell: float,
    west: float,
    south: float,
    vertices: Array,
    triangles: npt.NDArray[np.int32],
) -> None:
    """Set the cells in which the mesh is between STEP_M and HEADROOM_M above the ground.

    Each triangle is looked at in points at most half a cell apart.
    """
    rows, columns = occupied.shape
    for n in range(triangles.shape[0]):
        a, b, c = vertices[triangles[n, 0]], vertices[triangles[n, 1]], vertices[triangles[n, 2]]
        longest = 0.0
        for k in range(3):
            longest = max(longest, abs(b[k] - a[k]), abs(c[k] - a[k]), abs(c[k] - b[k]))
        steps = int(min(2.0 * longest / cell, 1e5)) + 1
        for i in range(steps + 1):
            for j in range(steps + 1 - i):
                p, q = i / steps, j / steps
                x = a[0] + (b[0] - a[0]) * p + (c[0] - a[0]) * q - west
                y = a[1] + (b[1] - a[1]) * p + (c[1] - a[1]) * q - south
                u, v = x / cell, y / cell
                if not (0.0 <= u < columns and 0.0 <= v < rows) or occupied[int(v), int(u)]:
                    continue
                height = a[2] + (b[2] - a[2]) * p + (c[2] - a[2]) * q - _ground_height(elevation, cell, x, y)
                if math.isnan(height) or STEP_M < height < HEADROOM_M:
                    occupied[int(v), int(u)] = 1


def is_in_mesh(
    column: int,
    row: int,
    elevation: npt.NDArray[np.floating[Any]],
    cell: float,
    west: float,
    south: float,
    vertices: Array,
    triangles: npt.NDArray[np.int32],
) -> bool:
    """Whether `mark_mesh` sets this cell: only triangles over it are looked at, only heights around it are read."""
    corners = vertices[:, :2][triangles]
    low = np.array([west + (column - 1) * cell, south + (row - 1) * cell])
    near = ((corners.max(axis=1) >= low) & (corners.min(axis=1) <= low + 3.0 * cell)).all(axis=1)
    occupied = np.zeros(elevation.shape, np.uint8)
    heights = np.zeros(elevation.shape)  # pages that are not written to take no memory
    rows = slice(max(row - 2, 0), row + 3)
    heights[rows] = elevation[rows]
    mark_mesh(occupied, heights, cell, west, south, vertices, triangles[near])
    return bool(occupied[row, column])


@kernel
def _fill(
    inside: Grid,
    cell: float,
    west: float,
    south: float,
    edges: Floats,
    slab_origin: Floats,
    slab_first: Ints,
    slab_start: Ints,
    slab_edges: Ints,
    grid: Floats,
    rows: int,
    columns: int,
    bucket_start: Ints,
    bucket_polygons: Ints,
) -> None:
    for j in range(inside.shape[0]):
        for i in range(inside.shape[1]):
            x, y = west + (i + 0.5) * cell, south + (j + 0.5) * cell
            found = _polygon_at(
                x, y, edges, slab_origin, slab_first, slab_start, slab_edges, grid, rows, columns, bucket_start,
                bucket_polygons,
            )  # fmt: skip
            inside[j, i] = found != OFFROAD


def drivable_cells(area: DrivableArea, shape: tuple[int, int], cell: float, west: float, south: float) -> Grid:
    """1 for every cell whose middle a polygon covers."""
    inside = np.zeros(shape, np.uint8)
    if area.count:
        _fill(inside, cell, west, south, *area.arrays)
    return inside
