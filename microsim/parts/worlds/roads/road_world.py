"""A world of a road map: ground under the lanes, asphalt with its markings, drivable area and lanes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_writing import BundleContent
from microsim.bundle.road_map import RoadMap
from microsim.errors import UsageError
from microsim.parts.worlds.generate.surfaces import MadeGround, Solids, plain_world
from microsim.parts.worlds.roads.road_splats import GRASS, VERGE_M, road_splats

Floats: TypeAlias = npt.NDArray[np.float64]

MAX_CELLS = 16_000_000
_MARGIN_M = 15.0


def read_roads(file: Path, origin: tuple[float, float, float] | None = None) -> RoadMap:
    """By the name of the file: `.xodr` or `.osm`."""
    if not file.is_file():
        raise UsageError(f"no such file: {file}")
    if file.suffix == ".xodr":
        from microsim.parts.worlds.roads.road_files import read_opendrive

        return read_opendrive(file)
    if file.suffix == ".osm":
        from microsim.parts.worlds.roads.road_files import read_lanelet2

        return read_lanelet2(file, origin)
    raise UsageError(f"{file}: expected a road map: OpenDRIVE (.xodr) or Lanelet2 (.osm)")


def road_world(name: str, roads: RoadMap, source: str, resolution_m: float) -> BundleContent:
    """Ground that follows the lanes' heights and stays level away from them."""
    points = np.concatenate([line for lane in roads.lanes.values() for line in (lane.left, lane.right)])
    low = np.floor(points[:, :2].min(axis=0) - _MARGIN_M)
    columns, rows = np.ceil((points[:, :2].max(axis=0) + _MARGIN_M - low) / resolution_m).astype(int).tolist()
    if columns * rows > MAX_CELLS:
        raise UsageError(f"{columns} x {rows} heights would be too many; take a coarser --resolution")
    heights, on_road = _rasters(roads, low, (rows, columns), resolution_m)
    ground = MadeGround(heights, resolution_m, float(low[0]), float(low[1]))
    colours = np.empty((rows, columns, 3))
    colours[:] = GRASS
    content = plain_world(name, f"Made from {source}.", ground, Solids(), colours, roads.polygons(), roads.origin)
    content.origin_wgs84 = roads.origin
    content.render = {**content.render, "ground_rgb": list(GRASS)}  # of what no Gaussian covers
    away_m = _distances(on_road) * resolution_m
    content.gaussians = np.concatenate([_beside(content.gaussians, ground, away_m), road_splats(roads, ground, away_m)])
    first = max(roads.lanes.values(), key=lambda lane: lane.length_m)
    middle = len(first.left) // 2
    x, y = first.centre[middle, :2].tolist()
    ahead = first.centre[min(middle + 1, len(first.left) - 1)] - first.centre[middle - 1]
    content.vehicle = {"start": {"x": round(x, 3), "y": round(y, 3), "yaw": round(math.atan2(ahead[1], ahead[0]), 4)}}
    return content


def _rasters(roads: RoadMap, low: Floats, shape: tuple[int, int], cell: float) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Heights; which cells are asphalt."""
    sums, counts = np.zeros(shape), np.zeros(shape)
    for lane in roads.lanes.values():
        steps = np.linalg.norm(np.diff(lane.centre, axis=0), axis=1).max()
        across = np.linalg.norm(lane.left - lane.right, axis=1).max()
        times, shares = max(1, math.ceil(2 * steps / cell)), np.linspace(0.0, 1.0, max(2, math.ceil(2 * across / cell)))
        at = np.linspace(0, len(lane.left) - 1, (len(lane.left) - 1) * times + 1)
        index, part = np.minimum(at.astype(int), len(lane.left) - 2), 0.0
        part = (at - index)[:, None]
        left = lane.left[index] * (1.0 - part) + lane.left[index + 1] * part
        right = lane.right[index] * (1.0 - part) + lane.right[index + 1] * part
        for share in shares.tolist():
            spots = left * (1.0 - share) + right * share
            i, j = ((spots[:, axis] - low[axis]) / cell for axis in (0, 1))
            np.add.at(sums, (j.astype(int), i.astype(int)), spots[:, 2])
            np.add.at(counts, (j.astype(int), i.astype(int)), 1.0)
    on_road = counts > 0.0
    return _spread_out(np.where(on_road, sums / np.maximum(counts, 1.0), np.nan), cell), on_road


def _distances(on_road: npt.NDArray[np.bool_]) -> Floats:
    """In cells."""
    from scipy import ndimage

    found: Floats = ndimage.distance_transform_edt(~on_road)
    return found


def _beside(splats: npt.NDArray[np.float32], ground: MadeGround, away_m: Floats) -> npt.NDArray[np.float32]:
    """Without those that would lie over the road: large maps have wide ones."""
    i, j = (
        ((splats[:, axis] - low) / ground.resolution_m).astype(int)
        for axis, low in ((0, ground.west), (1, ground.south))
    )
    reach = np.minimum(1.5 * np.exp(splats[:, 3]), VERGE_M)
    return splats[away_m[j, i] > reach]


def _spread_out(heights: Floats, cell: float) -> Floats:
    """Beside the road as high as the nearest road, smoothed."""
    known = ~np.isnan(heights)
    if float(np.nanmax(heights) - np.nanmin(heights)) < 1e-6:
        return np.full(heights.shape, float(np.nanmean(heights)))
    from scipy import ndimage

    _, (rows, columns) = ndimage.distance_transform_edt(~known, return_indices=True)
    nearest = heights[rows, columns]
    smooth = ndimage.gaussian_filter(nearest, 2.0 / cell)
    return np.where(known, heights, smooth)
