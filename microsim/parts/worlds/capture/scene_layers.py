"""What each Gaussian of a levelled capture is: ground, object, background (sky, far away) or floater; and heights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_model import Heightmap, rotation_matrix
from microsim.errors import UsageError

Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

GROUND, OBJECT, BACKGROUND, FLOATER = 0, 1, 2, 3
LAYERS = ("ground", "objects", "background", "floaters")

MAX_CELLS = 16_000_000
_VOXEL_M = 0.5
_FEW = 6  # splats in a voxel and its 26 neighbours: fewer float
_STEP_M = 0.12  # the ground rises at most so much from cell to cell, and by the slope
_NEAR_GROUND_M = 0.12
_BIN_M, _BIN_BITS = 0.01, 21  # heights are counted by the centimetre; keys have three numbers of 21 bits
_LAYER_BINS = 6  # a layer is so thick
_CLIMB_BINS, _NEAR_BINS = 12, 12  # from the lower end of a layer to its middle; what its height is the mean of
_LAYER_SHARE = 0.4  # of the deepest layer here, and of what is usual around
_LEAST_DEPTH = 0.1  # 10 % of the light are lost
PIECE = 1 << 17  # Gaussians at a time
_CAMERA_ROOM_M = 0.35  # nothing real is this close to a camera
_LARGE_M = 3.0  # a standard deviation; no solid thing is drawn by one such Gaussian
_DISC_SIGMAS = 1.2  # within which an opaque Gaussian covers what is behind it
_MOST_RINGS = 4  # of points on a disc
_EVEN_M = 0.006  # half the cells of even ground are nearer than this to the median around them
_SMOOTH_CELLS = 7
_FILL_M = 6.0  # holes up to this far from known ground are filled


@dataclass(frozen=True)
class SceneSplats:
    """Gaussians in the map frame, as far as geometry needs them."""

    points: npt.NDArray[np.float32]  # (n, 3) [m]
    sigmas: npt.NDArray[np.float32]  # (n, 3) [m]
    opacity: npt.NDArray[np.float32]  # (n,) 0..1
    quaternions: npt.NDArray[np.float32]  # (n, 4) [x, y, z, w]
    colours: npt.NDArray[np.uint8]  # (n, 3)

    @property
    def opaque(self) -> Mask:
        return self.opacity > 0.3


@dataclass(frozen=True)
class Layers:
    """The parts of a scene."""

    label: npt.NDArray[np.int8]  # (n,) one of GROUND, OBJECT, BACKGROUND, FLOATER
    ground: Heightmap
    measured: Mask  # (ny, nx) cells whose height was seen, not filled in

    def counts(self) -> dict[str, int]:
        return {name: int((self.label == index).sum()) for index, name in enumerate(LAYERS)}


def separate(
    splats: SceneSplats, cameras: Floats | None, extent_m: float | None, resolution_m: float, slope: float
) -> Layers:
    """Labels and ground; `cameras` are positions in the map frame, `slope` is the steepest ground."""
    near = _within(splats, cameras, extent_m)
    floating = near & _floating(splats, near, cameras)
    solid = near & ~floating & splats.opaque & (splats.sigmas.max(axis=1) < _LARGE_M)
    if int(solid.sum()) < 100:
        raise UsageError(
            "fewer than 100 opaque Gaussians are left near the ground; check --scale, --level and --extent"
        )
    ground, measured = _ground(_crossings(splats, solid, resolution_m), cameras, resolution_m, slope)
    above = splats.points[:, 2] - height_at(ground, splats.points)
    label = np.full(len(splats.points), BACKGROUND, np.int8)
    label[near] = OBJECT
    with np.errstate(invalid="ignore"):
        label[near & (np.abs(above) <= _NEAR_GROUND_M)] = GROUND
        floating |= near & (above < -_NEAR_GROUND_M - 2.0 * splats.sigmas.max(axis=1))
    label[near & (splats.sigmas.max(axis=1) >= _LARGE_M)] = BACKGROUND
    label[floating | (splats.opacity == 0.0)] = FLOATER  # and what cannot be drawn
    return Layers(label, ground, measured)


def _within(splats: SceneSplats, cameras: Floats | None, extent_m: float | None) -> Mask:
    """Near enough to be part of the map: within the extent of the cameras (or the middle), and not up in the sky."""
    across = splats.points[:, :2].astype(np.float64)
    if cameras is None:
        middle = np.median(across[splats.opaque], axis=0)
        distance = np.linalg.norm(across - middle, axis=1)
        limit = extent_m or 3.0 * float(np.median(distance))
    else:
        from scipy.spatial import cKDTree

        distance = cKDTree(cameras[:, :2]).query(across)[0]
        limit = extent_m or 25.0
    height = splats.points[:, 2]
    return (distance <= limit) & (height < max(15.0, 0.6 * limit)) & (height > -0.5 * limit)


def _floating(splats: SceneSplats, near: Mask, cameras: Floats | None) -> Mask:
    """Those with next to no others around them, and those in front of a camera's lens."""
    places = np.flatnonzero(near)
    points = splats.points[places].astype(np.float64)
    floating = np.zeros(len(near), np.bool_)
    floating[places] = _neighbours(points) < _FEW
    if cameras is not None:
        from scipy.spatial import cKDTree

        floating[places] |= cKDTree(cameras).query(points, distance_upper_bound=_CAMERA_ROOM_M)[0] < _CAMERA_ROOM_M
    return floating


def _neighbours(points: Floats) -> npt.NDArray[np.int64]:
    """How many points are in each point's voxel and the 26 around it."""
    low = points.min(axis=0)
    index = ((points - low) / _VOXEL_M).astype(np.int64) + 1
    shape = index.max(axis=0) + 2
    strides = np.array([shape[1] * shape[2], shape[2], 1])
    voxels, inverse, counts = np.unique(index @ strides, return_inverse=True, return_counts=True)
    total = np.zeros(len(voxels), np.int64)
    for x in (-1, 0, 1):
        for y in (-1, 0, 1):
            for z in (-1, 0, 1):
                at = np.searchsorted(voxels, voxels + int(strides @ np.array([x, y, z])))
                there = np.minimum(at, len(voxels) - 1)
                hit = voxels[there] == voxels + int(strides @ np.array([x, y, z]))
                total[hit] += counts[there[hit]]
    return total[inverse]


@dataclass(frozen=True)
class _Crossings:
    """Where vertical lines through each cell cross surfaces: sorted by cell, then by height, at most one per `_BIN_M`.

    `depths` are optical depths of the cell: light that falls straight down is left with exp(-depth) of itself. Trainers
    divide the same depth among few Gaussians or many, so nothing that is decided by it depends on their number.
    """

    cells: npt.NDArray[np.int64]  # (n,)
    bins: npt.NDArray[np.int64]  # (n,) of heights
    heights: Floats  # (n,) [m] mean in the bin
    depths: Floats  # (n,)
    shape: tuple[int, int]
    west: float
    south: float

    @property
    def keys(self) -> npt.NDArray[np.int64]:
        return (self.cells << _BIN_BITS) + self.bins


def _crossings(splats: SceneSplats, chosen: Mask, resolution: float) -> _Crossings:
    """Of the chosen ones, a piece at a time: memory holds one number for each cell and height."""
    rows = np.flatnonzero(chosen)
    tables = [_crossed(splats, rows[start : start + PIECE], resolution) for start in range(0, len(rows), PIECE)]
    i, j, bins, heights, depths = _summed(*(np.concatenate(parts) for parts in zip(*tables, strict=True)))
    columns, rows_of_map = int(i.max() - i.min()) + 1, int(j.max() - j.min()) + 1
    if columns * rows_of_map > MAX_CELLS:
        raise UsageError(
            f"{columns} x {rows_of_map} heights would be too many; use a smaller --extent or a coarser --resolution"
        )
    west, south = float(i.min()) * resolution, float(j.min()) * resolution
    cells = (j - j.min()) * columns + (i - i.min())
    return _Crossings(cells, bins, heights, depths, (rows_of_map, columns), west, south)


_Table: TypeAlias = tuple[
    npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64], Floats, Floats
]  # column and row of the cell, bin of the height, height, depth


def _crossed(splats: SceneSplats, rows: npt.NDArray[np.int64], resolution: float) -> _Table:
    where, depths = footprints(splats, rows, resolution)
    i, j = (np.floor(where[:, axis] / resolution).astype(np.int64) for axis in (0, 1))
    return _summed(i, j, np.floor(where[:, 2] / _BIN_M).astype(np.int64), where[:, 2], depths)


def footprints(
    splats: SceneSplats, rows: npt.NDArray[np.int64], resolution: float, is_lying: bool = False
) -> tuple[Floats, Floats]:
    """Points where vertical lines cross Gaussians, and the optical depth of a cell that each stands for.

    `is_lying`: the depth is that of the Gaussian with its widest side up.

    Along a vertical line a Gaussian is densest where the first two columns of its covariance's Cholesky factor lie.
    Trainers cover an even road with few large discs: their middles alone would leave most of it unseen.
    """
    points, sigmas = splats.points[rows].astype(np.float64), splats.sigmas[rows].astype(np.float64)
    scaled = rotation_matrices(splats.quaternions[rows].astype(np.float64)) * sigmas[:, None, :]
    covariance = scaled @ scaled.transpose(0, 2, 1)
    factor = np.zeros((len(rows), 3, 2))
    factor[:, 0, 0] = np.sqrt(covariance[:, 0, 0]) + 1e-9
    factor[:, 1:, 0] = covariance[:, 1:, 0] / factor[:, :1, 0]
    factor[:, 1, 1] = np.sqrt(np.maximum(covariance[:, 1, 1] - factor[:, 1, 0] ** 2, 0.0)) + 1e-9
    steep = (covariance[:, 2, 1] - factor[:, 2, 0] * factor[:, 1, 0]) / factor[:, 1, 1]
    limit = np.sqrt(covariance[:, 2, 2])
    factor[:, 2, 1] = np.clip(steep, -limit, limit)
    widths = np.sort(sigmas, axis=1)
    area = widths[:, 1] * widths[:, 2] if is_lying else factor[:, 0, 0] * factor[:, 1, 1]
    depth = optical_depth(splats.opacity[rows]) * 2.0 * math.pi * area / resolution**2
    wide = _DISC_SIGMAS * np.sqrt((factor[:, :2] ** 2).sum(axis=(1, 2)))
    rings = np.where(wide < 0.5 * resolution, 0, np.clip(np.ceil(wide / resolution), 1, _MOST_RINGS))
    found = []
    for count in range(_MOST_RINGS + 1):
        some, places = np.flatnonzero(rings == count), _DISC_SIGMAS * _points_of_disc(count)
        spread = points[some][:, None, :] + np.einsum("kc,nrc->nkr", places, factor[some])
        each = np.repeat(depth[some] / len(places), len(places))
        found.append((spread.reshape(-1, 3), each))
    where, depths = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return where, depths


def _summed(
    i: npt.NDArray[np.int64], j: npt.NDArray[np.int64], bins: npt.NDArray[np.int64], heights: Floats, depths: Floats
) -> _Table:
    """One row for each cell and bin, sorted."""
    half = 1 << (_BIN_BITS - 1)
    keys = ((j + half) << (2 * _BIN_BITS)) + ((i + half) << _BIN_BITS) + bins + half
    order = np.argsort(keys, kind="stable")
    keys, heights, depths = keys[order], heights[order], depths[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    sums = np.add.reduceat(depths, first)
    means = np.add.reduceat(heights * depths, first) / np.maximum(sums, 1e-300)
    keys, mask = keys[first], (1 << _BIN_BITS) - 1
    return ((keys >> _BIN_BITS) & mask) - half, (keys >> (2 * _BIN_BITS)) - half, (keys & mask) - half, means, sums


def optical_depth(opacity: npt.NDArray[np.float32]) -> Floats:
    """Of the middle of a Gaussian; renderers let 1 % of the light through."""
    found: Floats = -np.log1p(-np.minimum(opacity.astype(np.float64), 0.99))
    return found


def rotation_matrices(quaternions: Floats) -> Floats:
    """(n, 3, 3) of [x, y, z, w]."""
    unit = quaternions / np.linalg.norm(quaternions, axis=1, keepdims=True)
    return rotation_matrix(*unit.T).transpose(2, 0, 1)


def _points_of_disc(rings: int) -> Floats:
    """(n, 2) of a disc of radius 1: its middle, and rings with six points more each."""
    around = [(0.0, 0.0)] + [
        (ring / rings, 2.0 * math.pi * k / (6 * ring)) for ring in range(1, rings + 1) for k in range(6 * ring)
    ]
    return np.array([(radius * math.cos(angle), radius * math.sin(angle)) for radius, angle in around])


# ---- ground ----------------------------------------------------------------------------------------------------------


def _ground(crossings: _Crossings, cameras: Floats | None, resolution: float, slope: float) -> tuple[Heightmap, Mask]:
    west, south = crossings.west, crossings.south
    low = _without_pits(_lowest_surface(crossings))
    low[_stands_out(low, resolution, slope)] = np.nan
    reached = _reached(low, _seeds(low, cameras, west, south, resolution), _STEP_M + slope * resolution)
    filled = _smooth(_filled(np.where(reached, low, np.nan), resolution), reached)
    return Heightmap(filled.astype(np.float32), resolution, west, south), reached


def _lowest_surface(crossings: _Crossings) -> Floats:
    """In each cell the height of the lowest layer that hides something of what is below it; NaN where there is none.

    A layer is what lies within `_LAYER_BINS` of height. What is half transparent and lies beside the surfaces is spread
    over many layers, none of which hides much.
    """
    cells, keys = crossings.cells, crossings.keys
    total = np.concatenate([[0.0], np.cumsum(crossings.depths)])
    moment = np.concatenate([[0.0], np.cumsum(crossings.depths * crossings.heights)])

    def within(low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Depth and mean height from bin `low` to before bin `high`."""
        first, last = np.searchsorted(keys, low), np.searchsorted(keys, high)
        depth = total[last] - total[first]
        return depth, (moment[last] - moment[first]) / np.maximum(depth, 1e-300)

    layers, _ = within(keys, keys + _LAYER_BINS)
    starts = np.flatnonzero(np.concatenate([[True], cells[1:] != cells[:-1]]))
    deepest = np.zeros(crossings.shape[0] * crossings.shape[1])
    deepest[cells[starts]] = np.maximum.reduceat(layers, starts)
    is_layer = layers >= np.maximum(_LAYER_SHARE * _usual(deepest.reshape(crossings.shape)), _LEAST_DEPTH)[cells]
    is_layer &= layers >= _LAYER_SHARE * deepest[cells]
    chosen = np.flatnonzero(is_layer)
    lowest = chosen[np.concatenate([[True], cells[chosen][1:] != cells[chosen][:-1]])] if len(chosen) else chosen
    best = lowest.copy()  # up to the middle of the layer: its lower end would be too low
    for later in range(1, _CLIMB_BINS + 1):
        following = np.minimum(lowest + later, len(keys) - 1)
        is_better = (keys[following] <= keys[lowest] + _CLIMB_BINS) & (layers[following] > layers[best])
        best = np.where(is_better, following, best)
    _, heights = within(keys[best], keys[best] + _LAYER_BINS)
    for _ in range(2):
        middle = (cells[best] << _BIN_BITS) + np.floor(heights / _BIN_M).astype(np.int64)
        _, heights = within(middle - _NEAR_BINS, middle + _NEAR_BINS + 1)
    out = np.full(deepest.shape, np.nan)
    out[cells[best]] = heights
    return out.reshape(crossings.shape)


def _usual(depths: Floats) -> Floats:
    """The median around each cell, of those that something is in; flat."""
    from scipy import ndimage

    return ndimage.median_filter(depths, 5, mode="nearest").reshape(-1)


def _without_pits(low: Floats) -> Floats:
    """Cells far below what surrounds them are reflections and floaters, not ground."""
    from scipy import ndimage

    filled = np.where(np.isnan(low), np.inf, low)
    around = ndimage.percentile_filter(filled, 30, size=9, mode="nearest")
    with np.errstate(invalid="ignore"):
        return np.where(low < around - 0.5, np.nan, low)


def _stands_out(low: Floats, resolution: float, slope: float) -> Mask:
    """Cells too high to be ground so close to lower cells: opening with ever larger windows (Zhang 2003)."""
    from scipy import ndimage

    surface = np.where(np.isnan(low), np.inf, low)
    out = np.zeros(low.shape, np.bool_)
    reach = 1
    while reach * resolution <= 8.0:
        size = 2 * reach + 1
        eroded = ndimage.minimum_filter(surface, size, mode="nearest")
        opened = ndimage.maximum_filter(np.where(np.isinf(eroded), -np.inf, eroded), size, mode="nearest")
        with np.errstate(invalid="ignore"):
            out |= low - opened > _STEP_M + slope * reach * resolution
        reach *= 2
    return out


def _seeds(low: Floats, cameras: Floats | None, west: float, south: float, resolution: float) -> Mask:
    """Where ground is sure: under the cameras; without cameras, the middling heights of the map."""
    seeds = np.zeros(low.shape, np.bool_)
    if cameras is None:
        middle = float(np.nanmedian(low))
        with np.errstate(invalid="ignore"):
            return np.abs(low - middle) < 0.3
    reach = max(1, round(1.0 / resolution))
    for x, y, z in cameras.tolist():
        i, j = int((x - west) / resolution), int((y - south) / resolution)
        part = (slice(max(j - reach, 0), max(j + reach + 1, 0)), slice(max(i - reach, 0), max(i + reach + 1, 0)))
        with np.errstate(invalid="ignore"):
            seeds[part] |= low[part] < z
    return seeds & ~np.isnan(low)


def _reached(low: Floats, seeds: Mask, step: float) -> Mask:
    """Cells to which one gets from a seed without a step: walls, roofs and trees are not."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    numbers = np.arange(low.size).reshape(low.shape)
    with np.errstate(invalid="ignore"):
        north = np.abs(np.diff(low, axis=0)) <= step
        east = np.abs(np.diff(low, axis=1)) <= step
    one = np.concatenate([numbers[:-1][north], numbers[:, :-1][east]])
    other = np.concatenate([numbers[1:][north], numbers[:, 1:][east]])
    graph = coo_matrix((np.ones(len(one), np.int8), (one, other)), shape=(low.size, low.size))
    part = connected_components(graph, directed=False)[1].reshape(low.shape)
    joined: Mask = np.isin(part, np.unique(part[seeds])) & ~np.isnan(low)
    return joined


def _filled(heights: Floats, resolution: float) -> Floats:
    """Holes, such as the ground under a car, between what is around them; NaN far from known ground."""
    from scipy import ndimage

    known = ~np.isnan(heights)
    if not known.any():
        raise UsageError("no ground was found; check --level and --scale, or allow steeper ground with --max-slope")
    distance, (rows, columns) = ndimage.distance_transform_edt(~known, return_indices=True)
    out = heights[rows, columns]
    for _ in range(200):  # relaxes towards a membrane between the known heights
        smooth = ndimage.uniform_filter(out, 3, mode="nearest")
        out = np.where(known, heights, smooth)
    out[distance * resolution > _FILL_M] = np.nan
    return out


def _smooth(heights: Floats, known: Mask) -> Floats:
    """Without the noise of what was trained, where there is some. Medians keep kerbs, which means would blur."""
    from scipy import ndimage

    filled = np.where(np.isnan(heights), np.nanmedian(heights), heights)
    off = np.abs(filled - ndimage.median_filter(filled, 5, mode="nearest"))
    if float(np.median(off[known])) < _EVEN_M:
        return heights
    return np.where(np.isnan(heights), np.nan, ndimage.median_filter(filled, _SMOOTH_CELLS, mode="nearest"))


def height_at(ground: Heightmap, points: npt.NDArray[np.floating[Any]]) -> Floats:
    """Of the ground's cell under each point; NaN outside."""
    rows, columns = ground.values.shape
    i = np.floor((points[:, 0].astype(np.float64) - ground.west) / ground.resolution_m)
    j = np.floor((points[:, 1].astype(np.float64) - ground.south) / ground.resolution_m)
    inside = (i >= 0) & (i < columns) & (j >= 0) & (j < rows)
    out = np.full(len(points), np.nan)
    out[inside] = ground.values[j[inside].astype(np.int64), i[inside].astype(np.int64)]
    return out
