"""A collision mesh from Gaussians: the averaged signed distance to the discs they draw, and the surface where it is 0.

Every splat is a small disc with a normal that points to the camera which saw it. In each voxel near discs, the
distances to their planes are averaged, with the discs' own densities as weights. The surface is where that average
changes its sign, so it lies on the discs and not, as that of a density would, in front of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_model import Heightmap
from microsim.engine.compiled import kernel
from microsim.errors import UsageError
from microsim.parts.worlds.capture.scene_layers import OBJECT, Layers, SceneSplats, height_at, rotation_matrices

Floats: TypeAlias = npt.NDArray[np.float64]
Mesh: TypeAlias = tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]
_Part: TypeAlias = tuple[Floats, npt.NDArray[np.int32]]

MAX_TRIANGLES = 20_000_000  # before they are simplified
_MANY_TRIANGLES = 150_000
_TILE_VOXELS = 192  # edge of a tile; memory holds one tile at a time
_REACH = 2.5  # standard deviations of a disc
_LEAST_WEIGHT = 0.25
_LARGEST_DISC_M = 0.8  # standard deviation; larger ones are rough guesses of what was seen from afar
_LEAST_TRIANGLES = 60  # of a connected part
_SMALL_TRIANGLES, _SMALL_HEIGHT_M = 400, 0.5  # a part of fewer is noise unless it reaches so far above the ground
_LEAST_HEIGHT_M = 0.25  # above the ground, of its highest point
_WALKED_M, _WALKED_WAY_M, _WALKED_TRIANGLES = 0.5, 6.0, 3000


def collision_mesh(
    splats: SceneSplats,
    layers: Layers,
    viewpoints: Floats,
    voxel_m: float,
    progress: Callable[[int, int], None] | None = None,
    walked: Floats | None = None,
) -> Mesh:
    """Vertices [m] and triangles of the objects; `viewpoints` are places from which they can be seen.

    `walked`: the cameras in the order in which they were carried along.
    """
    is_small = splats.sigmas.max(axis=1) < _LARGEST_DISC_M
    chosen = np.flatnonzero((layers.label == OBJECT) & splats.opaque & is_small)
    if not len(chosen):
        return np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int32)
    discs = _discs(splats, chosen, viewpoints)
    low = discs[:, 0:3].min(axis=0) - 3.0 * voxel_m
    counts = np.ceil((discs[:, 0:3].max(axis=0) + 3.0 * voxel_m - low) / voxel_m).astype(np.int64) + 1
    parts: list[_Part] = []
    tiles = [range(math.ceil(count / _TILE_VOXELS)) for count in counts.tolist()]
    places = [(i, j, k) for i in tiles[0] for j in tiles[1] for k in tiles[2]]
    for number, place in enumerate(places):
        first = np.array(place) * _TILE_VOXELS
        size = np.minimum(counts - first, _TILE_VOXELS + 1)  # one voxel of overlap: neighbours share their border
        parts.append(_tile(discs, low + first * voxel_m, size, voxel_m))
        if progress is not None:
            progress(number + 1, len(places))
    vertices, triangles = _joined(parts, voxel_m)
    if len(triangles) > MAX_TRIANGLES:
        raise UsageError(f"{len(triangles):,} triangles would be too many; use a larger --voxel or a smaller --extent")
    vertices, triangles = _simplified(*_without_crumbs(vertices, triangles, layers.ground, walked))
    return vertices.astype(np.float32), triangles


def _discs(splats: SceneSplats, chosen: npt.NDArray[np.int64], viewpoints: Floats) -> Floats:
    """(n, 15): centre, three axes (the last one the normal, towards the viewpoint), two widths, weight."""
    from scipy.spatial import cKDTree

    points = splats.points[chosen].astype(np.float64)
    sigmas = splats.sigmas[chosen].astype(np.float64)
    axes = rotation_matrices(splats.quaternions[chosen].astype(np.float64))
    order = np.argsort(-sigmas, axis=1, kind="stable")
    axes = np.take_along_axis(axes, order[:, None, :], axis=2)
    sigmas = np.take_along_axis(sigmas, order, axis=1)
    nearest = viewpoints[cKDTree(viewpoints).query(points)[1]]
    normals = axes[:, :, 2]
    facing = (normals * (nearest - points)).sum(axis=1) >= 0.0
    normals = np.where(facing[:, None], normals, -normals)
    weight = splats.opacity[chosen] * np.clip(1.2 - sigmas[:, 2] / np.maximum(sigmas[:, 1], 1e-9), 0.1, 1.0)
    return np.concatenate([points, axes[:, :, 0], axes[:, :, 1], normals, sigmas[:, :2], weight[:, None]], axis=1)


def _tile(discs: Floats, low: Floats, size: npt.NDArray[np.int64], voxel_m: float) -> _Part:
    from skimage.measure import marching_cubes

    weights = np.zeros(size, np.float32)
    distances = np.zeros(size, np.float32)
    _splat_distances(discs, low, voxel_m, weights, distances)
    known = weights > _LEAST_WEIGHT
    empty = np.zeros((0, 3)), np.zeros((0, 3), np.int32)
    if not known.any():
        return empty
    field = np.where(known, distances / np.where(known, weights, 1.0), 1.0)
    if float(field.min()) >= 0.0 or float(field.max()) <= 0.0 or min(size) < 2:
        return empty
    vertices, triangles, _, _ = marching_cubes(field, 0.0, allow_degenerate=False)
    triangles = triangles[_between_known(vertices, known)[triangles].all(axis=1)]
    return vertices.astype(np.float64) * voxel_m + low, triangles.astype(np.int32)


def _between_known(vertices: Floats, known: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether both voxels that a vertex lies between are known; elsewhere a sign only seems to change."""
    low, high = np.floor(vertices).astype(np.int64), np.ceil(vertices).astype(np.int64)
    both: npt.NDArray[np.bool_] = known[tuple(low.T)] & known[tuple(high.T)]
    return both


@kernel
def _splat_distances(discs: Any, low: Any, voxel: float, weights: Any, distances: Any) -> None:
    """Adds every disc's weight and weighted signed distance to the voxels around it."""
    band = 2.0 * voxel
    for row in range(discs.shape[0]):
        wide, high = discs[row, 12], discs[row, 13]
        var_u, var_v = wide * wide + 0.25 * voxel * voxel, high * high + 0.25 * voxel * voxel
        reach_u, reach_v = _REACH * math.sqrt(var_u), _REACH * math.sqrt(var_v)
        first_x, last_x = _span(discs, row, 0, reach_u, reach_v, band, low, voxel, weights.shape[0])
        first_y, last_y = _span(discs, row, 1, reach_u, reach_v, band, low, voxel, weights.shape[1])
        first_z, last_z = _span(discs, row, 2, reach_u, reach_v, band, low, voxel, weights.shape[2])
        for i in range(first_x, last_x):
            x = low[0] + i * voxel - discs[row, 0]
            for j in range(first_y, last_y):
                y = low[1] + j * voxel - discs[row, 1]
                for k in range(first_z, last_z):
                    z = low[2] + k * voxel - discs[row, 2]
                    off = x * discs[row, 9] + y * discs[row, 10] + z * discs[row, 11]
                    if abs(off) > band:
                        continue
                    u = x * discs[row, 3] + y * discs[row, 4] + z * discs[row, 5]
                    v = x * discs[row, 6] + y * discs[row, 7] + z * discs[row, 8]
                    far = u * u / var_u + v * v / var_v
                    if far > _REACH * _REACH:
                        continue
                    weight = discs[row, 14] * math.exp(-0.5 * far)
                    weights[i, j, k] += weight
                    distances[i, j, k] += weight * off


@kernel
def _span(
    discs: Any, row: int, axis: int, reach_u: float, reach_v: float, band: float, low: Any, voxel: float, count: int
) -> tuple[int, int]:
    """Voxels along an axis that the disc's slab can touch."""
    half = reach_u * abs(discs[row, 3 + axis]) + reach_v * abs(discs[row, 6 + axis]) + band * abs(discs[row, 9 + axis])
    middle = (discs[row, axis] - low[axis]) / voxel
    first = max(0, math.ceil(middle - half / voxel))
    last = min(count, math.floor(middle + half / voxel) + 1)
    return first, max(first, last)


def _joined(parts: list[_Part], voxel_m: float) -> tuple[Floats, npt.NDArray[np.int32]]:
    """One mesh; vertices that two tiles have in common become one."""
    starts = np.cumsum([0, *(len(vertices) for vertices, _ in parts)])
    vertices = np.concatenate([each for each, _ in parts]).astype(np.float64)
    triangles = np.concatenate([each + start for (_, each), start in zip(parts, starts.tolist(), strict=False)])
    if not len(vertices):
        return vertices, triangles.astype(np.int32)
    keys = np.round(vertices / (1e-4 * voxel_m)).astype(np.int64)
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    triangles = inverse.reshape(-1)[triangles]
    whole = (
        (triangles[:, 0] != triangles[:, 1])
        & (triangles[:, 1] != triangles[:, 2])
        & (triangles[:, 0] != triangles[:, 2])
    )
    return vertices[first], triangles[whole].astype(np.int32)


def _without_crumbs(
    vertices: Floats, triangles: npt.NDArray[np.int32], ground: Heightmap, walked: Floats | None
) -> tuple[Floats, npt.NDArray[np.int32]]:
    """Connected parts of few triangles are leaves and noise, as are parts that lie flat on the ground.

    Small parts on the path of the cameras are noise too, because the person who carried them walked there.
    """
    from scipy import ndimage
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    if not len(triangles):
        return vertices, triangles
    pairs = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]]])
    graph = coo_matrix((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=(len(vertices),) * 2)
    count, part = connected_components(graph, directed=False)
    sizes = np.bincount(part[triangles[:, 0]], minlength=count)
    with np.errstate(invalid="ignore"):
        above = np.nan_to_num(vertices[:, 2] - height_at(ground, vertices), nan=math.inf)
    highest = ndimage.maximum(above, part, np.arange(count))
    least_height = np.where(sizes < _SMALL_TRIANGLES, _SMALL_HEIGHT_M, _LEAST_HEIGHT_M)
    is_kept = (sizes >= _LEAST_TRIANGLES) & (highest > least_height)
    if walked is not None:
        in_the_way = np.bincount(part[_is_on_path(vertices, walked)], minlength=count) > 0
        is_kept &= ~in_the_way | (sizes > _WALKED_TRIANGLES)
    triangles = triangles[is_kept[part[triangles[:, 0]]]]
    used, renumbered = np.unique(triangles, return_inverse=True)
    return vertices[used], renumbered.reshape(-1, 3).astype(np.int32)


def _is_on_path(vertices: Floats, walked: Floats) -> npt.NDArray[np.bool_]:
    """Whether a walker with the cameras would have touched it: below the head, and beside a short way between two."""
    from scipy.spatial import cKDTree

    ways = np.diff(walked, axis=0)
    short = np.linalg.norm(ways, axis=1) < _WALKED_WAY_M
    along = np.linspace(0.0, 1.0, 13)[:, None, None]
    path = (walked[:-1][short] + along * ways[short]).reshape(-1, 3)
    if not len(path):
        return np.zeros(len(vertices), np.bool_)
    distance, nearest = cKDTree(path[:, :2]).query(vertices[:, :2])
    touched: npt.NDArray[np.bool_] = (distance < _WALKED_M) & (vertices[:, 2] < path[nearest, 2])
    return touched


def _simplified(vertices: Floats, triangles: npt.NDArray[np.int32]) -> tuple[Floats, npt.NDArray[np.int32]]:
    """Of even walls a few large triangles are left: no more than _MANY_TRIANGLES in all."""
    if len(triangles) <= _MANY_TRIANGLES:
        return vertices, triangles
    from fast_simplification import simplify

    reduction = 1.0 - _MANY_TRIANGLES / len(triangles)
    points, corners = simplify(vertices.astype(np.float32), triangles.astype(np.int32), target_reduction=reduction)
    return points.astype(np.float64), corners.astype(np.int32)


def viewpoints_above(layers: Layers, height_m: float = 1.5) -> Floats:
    """Places above seen ground, for captures without cameras: objects are looked at from the open."""
    rows, columns = np.nonzero(layers.measured)
    step = max(1, len(rows) // 2000)
    ground = layers.ground
    x = ground.west + (columns[::step] + 0.5) * ground.resolution_m
    y = ground.south + (rows[::step] + 0.5) * ground.resolution_m
    places = np.stack([x, y, np.zeros_like(x)], axis=1)
    places[:, 2] = height_at(ground, places) + height_m
    return places
