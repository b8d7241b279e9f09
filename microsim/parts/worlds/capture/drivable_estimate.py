"""Where a car could drive: not steep, no step, not rough, nothing in the way, and connected to the start."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_model import Heightmap
from microsim.parts.worlds.capture.scene_layers import (
    GROUND,
    OBJECT,
    PIECE,
    Layers,
    SceneSplats,
    footprints,
)

Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Rings: TypeAlias = list[Floats]


_GAP_M = 1.5  # wider gaps between seen cells are not ground
_STEP_REACH_M = 0.4  # to either side of a step
_STEP_SLOPE_M = 1.5  # over which the slope is measured that is not a step
_LOW_M = 0.2  # lower things are noise of the ground, or a step in it
_HIDING_SHARE, _HIDING = 0.3, 0.1  # of what the ground hides, and at least, before something is in the way
_WAY_CAMERAS = 8


@dataclass(frozen=True)
class DrivableLimits:
    """What a car can take."""

    slope: float = 0.25  # rise per length
    step_m: float = 0.08  # beyond the slope; kerbs are 10 to 15 cm high, dropped ones 2 or 3
    roughness_m: float = 0.06  # standard deviation about the plane through a cell's neighbours
    clearance_m: float = 2.2  # nothing may be lower than this above the ground
    margin_m: float = 0.3  # kept from everything
    least_area_m2: float = 10.0


@dataclass(frozen=True)
class DrivableEstimate:
    """Polygons, and why the other cells are none."""

    polygons: list[Rings]  # each with its outer ring first; rings are closed
    reason: npt.NDArray[np.int8]  # (ny, nx) 0: drivable; else the index in REASONS

    @property
    def area_m2(self) -> float:
        from shapely import Polygon

        return float(sum(Polygon(rings[0], rings[1:]).area for rings in self.polygons))


REASONS = ("drivable", "no ground seen", "too steep", "step", "rough", "something in the way", "not connected")


def estimate_drivable(
    splats: SceneSplats, layers: Layers, limits: DrivableLimits, start: tuple[float, float] | None
) -> DrivableEstimate:
    """The part that contains `start`, or without one the largest part."""
    from scipy import ndimage

    ground, seen = layers.ground, layers.measured
    heights, cell = ground.values.astype(np.float64), ground.resolution_m
    reason = np.zeros(heights.shape, np.int8)
    slope, step, rough = _shape(heights, cell)
    for index, wrong in (
        (4, rough > limits.roughness_m),
        (3, step > limits.step_m),
        (2, slope > limits.slope),
    ):
        reason[wrong] = index
    reason[_blocked(splats, layers, limits.clearance_m)] = 5
    reason[~_without_gaps(seen, _GAP_M / cell) | np.isnan(heights)] = 1
    free = ndimage.distance_transform_edt(np.pad(reason == 0, 1))[1:-1, 1:-1] * cell > limits.margin_m
    free = ndimage.binary_opening(free, iterations=max(1, round(0.5 / cell)))
    parts, count = ndimage.label(free)
    if count:
        free = parts == _chosen_part(parts, ground, start)
    reason[(reason == 0) & ~free] = 6
    return DrivableEstimate(_polygons(free, ground, limits.least_area_m2), reason)


def _without_gaps(seen: Mask, reach: float) -> Mask:
    """Seen cells and the small gaps between them, but nothing around the outside (a closing)."""
    from scipy import ndimage

    around = math.ceil(reach) + 1
    grown = ndimage.distance_transform_edt(~np.pad(seen, around)) <= reach
    kept: Mask = ndimage.distance_transform_edt(grown) > reach
    return kept[around:-around, around:-around] | seen


def _shape(heights: Floats, cell: float) -> tuple[Floats, Floats, Floats]:
    """Slope over a metre, the largest step, and the deviation from the smoothed ground."""
    from scipy import ndimage

    filled = np.where(np.isnan(heights), np.nanmedian(heights), heights)
    smooth = ndimage.gaussian_filter(filled, 0.5 / cell)
    north, east = np.gradient(smooth, cell)
    off = filled - smooth
    rough = np.sqrt(np.maximum(0.0, ndimage.uniform_filter(off * off, max(3, round(1.0 / cell)))))
    step = np.maximum(_step_along(filled, cell, 0), _step_along(filled, cell, 1))
    return np.hypot(north, east), step, rough


def _step_along(heights: Floats, cell: float, axis: int) -> Floats:
    """Mean height of the cells after each cell, less that of the cells before it, less what the slope there explains.

    Means of several cells, because a kerb in the middle of a cell is half a step to either side.
    """
    from scipy import ndimage

    reach = max(1, round(_STEP_REACH_M / cell))
    wide = ndimage.uniform_filter1d(heights, 3, axis=1 - axis, mode="nearest")
    ahead = np.zeros(2 * reach + 1)
    ahead[:reach], ahead[reach + 1 :] = -1.0 / reach, 1.0 / reach
    rise = ndimage.correlate1d(wide, ahead, axis=axis, mode="nearest")
    slope = np.gradient(ndimage.gaussian_filter(heights, _STEP_SLOPE_M / cell), cell, axis=axis)
    return np.abs(rise - slope * (reach + 1) * cell)


def _blocked(splats: SceneSplats, layers: Layers, clearance_m: float) -> Mask:
    """Cells in which things between the ground and a car's roof hide a third of what the ground does.

    Their number says nothing: trainers draw the same car with few or many, and leave faint ones above any road.
    """
    ground = layers.ground
    lying, _ = _hidden(splats, np.flatnonzero((layers.label == GROUND) & splats.opaque), ground, clearance_m)
    things = np.flatnonzero((layers.label == OBJECT) & splats.opaque)
    _, standing = _hidden(splats, things, ground, clearance_m)
    usual = float(np.median(lying[lying > 0.0])) if lying.any() else 0.0
    blocked: Mask = standing > max(_HIDING_SHARE * usual, _HIDING)
    return blocked


def _hidden(
    splats: SceneSplats, chosen: npt.NDArray[np.int64], ground: Heightmap, clearance_m: float
) -> tuple[Floats, Floats]:
    """(ny, nx) optical depths, of all, and of what is above the ground but not above a car's roof.

    As if each Gaussian lay with its widest side up: a wall hides little of the ground, and is in the way.
    """
    rows, columns = ground.values.shape
    total, above = np.zeros(rows * columns), np.zeros(rows * columns)
    for start in range(0, len(chosen), PIECE):
        where, depths = footprints(splats, chosen[start : start + PIECE], ground.resolution_m, is_lying=True)
        i = np.floor((where[:, 0] - ground.west) / ground.resolution_m).astype(np.int64)
        j = np.floor((where[:, 1] - ground.south) / ground.resolution_m).astype(np.int64)
        inside = (i >= 0) & (i < columns) & (j >= 0) & (j < rows)
        cells, depths, heights = (j * columns + i)[inside], depths[inside], where[inside, 2]
        total += np.bincount(cells, depths, rows * columns)
        over = heights - ground.values.reshape(-1)[cells]
        with np.errstate(invalid="ignore"):
            is_above = (over > _LOW_M) & (over < clearance_m)
        above += np.bincount(cells[is_above], depths[is_above], rows * columns)
    return total.reshape(rows, columns), above.reshape(rows, columns)


def _chosen_part(parts: npt.NDArray[Any], ground: Heightmap, start: tuple[float, float] | None) -> int:
    sizes = np.bincount(parts.reshape(-1))
    sizes[0] = 0
    if start is not None:
        rows, columns = np.nonzero(parts)
        x = ground.west + (columns + 0.5) * ground.resolution_m
        y = ground.south + (rows + 0.5) * ground.resolution_m
        nearest = int(np.argmin((x - start[0]) ** 2 + (y - start[1]) ** 2))
        if math.hypot(x[nearest] - start[0], y[nearest] - start[1]) < 3.0:
            return int(parts[rows[nearest], columns[nearest]])
    return int(np.argmax(sizes))


def _polygons(free: Mask, ground: Heightmap, least_area_m2: float) -> list[Rings]:
    """Outlines of the free cells, with fewer corners: never more than half a cell from where they were."""
    import shapely
    from shapely import Polygon, box
    from shapely.geometry.polygon import orient

    cell, boxes = ground.resolution_m, []
    for row in range(free.shape[0]):  # in cells: whole numbers leave no gaps between rows
        edges = np.flatnonzero(np.diff(np.concatenate([[0], free[row].astype(np.int8), [0]])))
        boxes += [box(first, row, last, row + 1) for first, last in edges.reshape(-1, 2).tolist()]
    area = shapely.union_all(boxes).simplify(0.75).buffer(0)
    area = shapely.transform(area, lambda points: points * cell + (ground.west, ground.south))
    found = []
    for part in getattr(area, "geoms", [area]):
        if isinstance(part, Polygon) and part.area >= least_area_m2:
            holes = [ring for ring in part.interiors if Polygon(ring).area >= 1.0]
            whole = orient(Polygon(part.exterior, holes))
            found.append([np.round(np.array(ring.coords)[:, :2], 3) for ring in (whole.exterior, *whole.interiors)])
    return found


def start_pose(
    estimate: DrivableEstimate, ground: Heightmap, cameras: Floats | None, room_m: float = 1.2
) -> tuple[float, float, float] | None:
    """x, y and yaw: on the cameras' path where there is room to stand, looking along it; else where most room is."""
    from scipy import ndimage

    room = ndimage.distance_transform_edt(np.pad(estimate.reason == 0, 1))[1:-1, 1:-1] * ground.resolution_m
    if not room.any():
        return None
    rows, columns = room.shape
    if cameras is not None:
        for index in range(len(cameras) - 1):
            x, y = cameras[index, :2].tolist()
            i, j = int((x - ground.west) / ground.resolution_m), int((y - ground.south) / ground.resolution_m)
            later = _way_on(cameras, index)
            if 0 <= i < columns and 0 <= j < rows and room[j, i] > room_m and float(np.hypot(*later)) > 0.1:
                return x, y, math.atan2(float(later[1]), float(later[0]))
    j, i = divmod(int(np.argmax(room)), columns)
    return (
        ground.west + (i + 0.5) * ground.resolution_m,
        ground.south + (j + 0.5) * ground.resolution_m,
        0.0,
    )


def _way_on(cameras: Floats, index: int) -> Floats:
    """From the cameras here to the next ones: means of several, because people look and step to all sides."""
    here, next_ones = cameras[index : index + _WAY_CAMERAS, :2], cameras[index + _WAY_CAMERAS :][:_WAY_CAMERAS, :2]
    way: Floats = (next_ones if len(next_ones) else cameras[-1:, :2]).mean(axis=0) - here.mean(axis=0)
    return way
