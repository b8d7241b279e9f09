"""A static mesh as buckets of triangles by squares of the ground, for bodies that may touch it."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array
from microsim.engine.world import World


@dataclass(frozen=True)
class MeshBuckets:
    """Triangles by squares of the ground that their bounds cover, for bodies that may touch them."""

    triangles: Array  # (m, 9) three points each [m], map frame
    starts: npt.NDArray[np.int64]  # (squares + 1,) where those of a square begin in `items`, rows from the south
    items: npt.NDArray[np.int64]
    facts: Array  # west, south, width of a square [m], columns, rows, lowest and highest point [m]


_MOST_SQUARES = 256  # along a side


@kernel
def _into_buckets(triangles: Array, facts: Array, starts: npt.NDArray[np.int64], items: npt.NDArray[np.int64]) -> int:
    """Count triangles into starts[square + 1], or with room in `items` put them there; gives how many there are."""
    columns, rows = int(facts[3]), int(facts[4])
    total = 0
    for n in range(triangles.shape[0]):
        p = triangles[n]
        i0 = int((min(p[0], p[3], p[6]) - facts[0]) / facts[2])
        i1 = min(int((max(p[0], p[3], p[6]) - facts[0]) / facts[2]), columns - 1)
        j0 = int((min(p[1], p[4], p[7]) - facts[1]) / facts[2])
        j1 = min(int((max(p[1], p[4], p[7]) - facts[1]) / facts[2]), rows - 1)
        for j in range(min(j0, rows - 1), j1 + 1):
            for i in range(min(i0, columns - 1), i1 + 1):
                total += 1
                if items.size:
                    items[starts[j * columns + i]] = n
                    starts[j * columns + i] += 1
                else:
                    starts[j * columns + i + 1] += 1
    return total


def mesh_buckets(world: World) -> MeshBuckets:
    """Squares so wide that a triangle is in few of them."""
    assert world.mesh is not None
    points = np.ascontiguousarray(world.mesh.vertices, np.float64)[world.mesh.triangles]
    triangles = np.ascontiguousarray(points.reshape(-1, 9))
    low, high = points.reshape(-1, 3).min(axis=0), points.reshape(-1, 3).max(axis=0)
    side = int(min(max(math.sqrt(len(triangles)), 1.0), _MOST_SQUARES))
    none = np.zeros(0, np.int64)
    while True:
        width = max(float(max(high[0] - low[0], high[1] - low[1])) / side, 1e-3)
        columns, rows = (int((high[k] - low[k]) / width) + 1 for k in range(2))
        facts = np.array([low[0], low[1], width, columns, rows, low[2], high[2]], np.float64)
        starts = np.zeros(rows * columns + 1, np.int64)
        total = _into_buckets(triangles, facts, starts, none)
        if side == 1 or total <= 16 * len(triangles) + 65536:
            break
        side //= 2
    starts = np.cumsum(starts)
    items = np.zeros(max(total, 1), np.int64)
    _into_buckets(triangles, facts, starts[:-1].copy(), items)
    return MeshBuckets(triangles, starts, items, facts)
