"""A world from given heights and solids, such as those of a scenario or of an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_writing import BundleContent
from microsim.bundle.generate.surfaces import MadeGround, Rows, Solids, camera, discs, jittered_grid, lidar

Floats: TypeAlias = npt.NDArray[np.float64]
Polygons: TypeAlias = list[tuple[list[Floats], int]]

GROUND_SPLATS = 60_000
EARTH = (0.4, 0.37, 0.3)
SKY = (0.58, 0.73, 0.87)


def plain_world(
    name: str,
    description: str,
    ground: MadeGround,
    solids: Solids,
    colours: Floats | None = None,
    drivable: Polygons | None = None,
    origin_wgs84: tuple[float, float, float] | None = None,
) -> BundleContent:
    """A bundle with this ground and these solids; `colours` (ny, nx, 3) of the ground; no `drivable`: everywhere."""
    gaussians = [_ground_splats(ground, colours)]
    if solids.quads:
        gaussians.append(solids.splats(0.5, 0.1))
    calibration = {
        "cameras": {"front": camera((1.5, 0.0, 1.3))},
        "lidars": {"top": lidar((0.9, 0.0, 1.9), [-15.0 + 2.0 * ring for ring in range(16)], 720)},
    }
    start = _start(ground)
    content = BundleContent(
        name=name,
        description=description,
        heights=ground.heights.astype(np.float32),
        resolution_m=ground.resolution_m,
        west=ground.west,
        south=ground.south,
        polygons=drivable if drivable is not None else [([_outline(ground)], 0)],
        gaussians=np.concatenate(gaussians),
        sh_degree=0,
        calibration=calibration,
        mesh=solids.mesh() if solids.quads else None,
        vehicle=None if start is None else {"start": {"x": start[0], "y": start[1], "yaw": 0.0}},
        render={"background_rgb": list(SKY)},
    )
    if origin_wgs84 is not None:
        content.origin_wgs84 = origin_wgs84
    return content


def _start(ground: MadeGround) -> tuple[float, float] | None:
    """The middle of the map, or the nearest cell with ground in and around it; None if there is no such cell."""
    rows, columns = ground.heights.shape
    holes = np.pad(np.isnan(ground.heights), 1, mode="edge")
    near = [holes[j : j + rows, i : i + columns] for j in range(3) for i in range(3)]
    is_good = ~np.logical_or.reduce(near)
    x, y = 0.5 * (ground.west + ground.east), 0.5 * (ground.south + ground.north)
    if is_good[rows // 2, columns // 2]:
        return x, y
    j, i = np.nonzero(is_good)
    if not i.size:
        return None
    dx, dy = i + 0.5 - 0.5 * columns, j + 0.5 - 0.5 * rows
    best = int(np.argmin(dx * dx + dy * dy))
    return x + float(dx[best]) * ground.resolution_m, y + float(dy[best]) * ground.resolution_m


def _outline(ground: MadeGround) -> Floats:
    west, south, east, north = ground.west, ground.south, ground.east, ground.north
    return np.array([[west, south], [east, south], [east, north], [west, north], [west, south]])


def around(ground: MadeGround, footprints: Sequence[Sequence[tuple[float, float]]]) -> Polygons:
    """The whole map but these footprints."""
    import shapely
    from shapely.geometry.polygon import orient

    free = shapely.Polygon(_outline(ground)).difference(
        shapely.union_all([shapely.Polygon(each) for each in footprints])
    )
    parts = [part for part in shapely.get_parts(free) if part.geom_type == "Polygon" and part.area > 1e-6]
    polygons: Polygons = []
    for part in parts:
        turned = orient(part)
        polygons.append(([np.array(ring.coords)[:, :2] for ring in (turned.exterior, *turned.interiors)], 0))
    return polygons


def _ground_splats(ground: MadeGround, colours: Floats | None) -> Rows:
    """A jittered grid of discs over whatever has ground."""
    width, height = ground.east - ground.west, ground.north - ground.south
    spacing = max(ground.resolution_m, math.sqrt(width * height / GROUND_SPLATS))
    columns, rows = max(1, int(width / spacing)), max(1, int(height / spacing))
    x, y, tint = jittered_grid(ground, "plain", (columns, rows), (width / columns, height / rows)).T
    z, normals = ground.height(x, y), ground.normal(x, y)
    good = np.isfinite(z) & np.isfinite(normals).all(axis=1)
    shades = _colours(ground, colours, x, y) * (0.9 + 0.2 * tint)[:, None]
    points = np.stack([x, y, z], axis=1)
    return discs(points[good], normals[good], round(0.62 * spacing, 4), shades[good])


def _colours(ground: MadeGround, colours: Floats | None, x: Floats, y: Floats) -> Floats:
    if colours is None:
        return np.broadcast_to(np.array(EARTH), (len(x), 3))
    rows, columns = ground.heights.shape
    i = np.clip((x - ground.west) / ground.resolution_m, 0, columns - 1).astype(np.int64)
    j = np.clip((y - ground.south) / ground.resolution_m, 0, rows - 1).astype(np.int64)
    return colours[j, i]
