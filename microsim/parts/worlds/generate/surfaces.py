"""What generated worlds consist of: sensors, ground, Gaussians on surfaces, and solids. Exact arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_model import FIRST_HARMONIC
from microsim.bundle.bundle_writing import BundleContent
from microsim.bundle.mapped_arrays import columns_of
from microsim.engine.exact import TWO_PI, log, sincos

Floats: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = npt.NDArray[np.float32]
Point: TypeAlias = tuple[float, float, float]
Colour: TypeAlias = tuple[float, float, float]

FORWARD = (-0.5, 0.5, -0.5, 0.5)  # from x right, y down, z forward to base_link: the optical axis along x
SUN = (0.36, 0.24, 0.9015542135686)  # unit vector towards it
AMBIENT = 0.6
THICKNESS_M = 0.01


# ---- sensors: blocks of calibration.yaml -----------------------------------------------------------------------------


def camera(xyz: tuple[float, float, float], quat: tuple[float, ...] = FORWARD, **changes: Any) -> dict[str, Any]:
    """A plain camera of 640 x 480 that looks forward."""
    return {
        "camera_convention": "opencv",
        "width": 640,
        "height": 480,
        "intrinsics": {"fx": 400.0, "fy": 400.0, "cx": 319.5, "cy": 239.5},
        "rate_hz": 12,
        "extrinsics": {"parent": "base_link", "translation": list(xyz), "rotation_quat": list(quat)},
        **changes,
    }


def car_sensors() -> dict[str, dict[str, object]]:
    """Of a car in a captured place: a camera that looks ahead, one to each other side, and a LiDAR on the roof."""
    half = 0.7071067811865476
    small: dict[str, Any] = {
        "width": 320,
        "height": 240,
        "intrinsics": {"fx": 200.0, "fy": 200.0, "cx": 159.5, "cy": 119.5},
        "rate_hz": 6,
    }
    wide: dict[str, Any] = {"height": 400, "intrinsics": {"fx": 400.0, "fy": 400.0, "cx": 319.5, "cy": 199.5}}
    return {
        "cameras": {
            "front": camera((1.6, 0.0, 1.3), **wide),
            "left": camera((1.4, 0.9, 1.0), (-half, 0.0, 0.0, half), **small),
            "right": camera((1.4, -0.9, 1.0), (0.0, half, -half, 0.0), **small),
            "rear": camera((-0.9, 0.0, 1.0), (-0.5, -0.5, 0.5, 0.5), **small),
        },
        "lidars": {"top": lidar((0.9, 0.0, 1.9), [-25.0 + 1.25 * ring for ring in range(32)], 720, rate_hz=10)},
    }


def lidar(xyz: tuple[float, float, float], elevations_deg: list[float], columns: int, **changes: Any) -> dict[str, Any]:
    return {
        "elevations_deg": elevations_deg,
        "columns": columns,
        "rate_hz": 20,
        "range_min_m": 0.5,
        "range_max_m": 100.0,
        "range_sigma_m": 0.02,
        "dropout_probability": 0.0,
        "extrinsics": {"parent": "base_link", "translation": list(xyz), "rotation_quat": [0.0, 0.0, 0.0, 1.0]},
        **changes,
    }


# ---- ground ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MadeGround:
    """A heightmap while a world is being made: heights and normals anywhere on it."""

    heights: Floats  # (ny, nx) [m] at cell centres, row 0 in the south
    resolution_m: float
    west: float
    south: float

    @property
    def east(self) -> float:
        return self.west + self.heights.shape[1] * self.resolution_m

    @property
    def north(self) -> float:
        return self.south + self.heights.shape[0] * self.resolution_m

    def height(self, x: Floats, y: Floats) -> Floats:
        """Bilinear between cell centres, continued from the edge."""
        rows, columns = self.heights.shape
        u = np.clip((x - self.west) / self.resolution_m - 0.5, 0.0, columns - 1.0)
        v = np.clip((y - self.south) / self.resolution_m - 0.5, 0.0, rows - 1.0)
        i = np.minimum(u.astype(np.int64), max(columns - 2, 0))
        j = np.minimum(v.astype(np.int64), max(rows - 2, 0))
        s, t = u - i, v - j
        east, north = np.minimum(i + 1, columns - 1), np.minimum(j + 1, rows - 1)
        low = self.heights[j, i] * (1.0 - s) + self.heights[j, east] * s
        high = self.heights[north, i] * (1.0 - s) + self.heights[north, east] * s
        return low * (1.0 - t) + high * t

    def normal(self, x: Floats, y: Floats) -> Floats:
        """Unit normals, from the slope over one cell to either side."""
        step = self.resolution_m
        slope_x = (self.height(x + step, y) - self.height(x - step, y)) / (2.0 * step)
        slope_y = (self.height(x, y + step) - self.height(x, y - step)) / (2.0 * step)
        length = np.sqrt(slope_x * slope_x + slope_y * slope_y + 1.0)
        return np.stack([-slope_x / length, -slope_y / length, 1.0 / length], axis=1)


# ---- Gaussians -------------------------------------------------------------------------------------------------------


def dice(name: str, rows: int, columns: int) -> Floats:
    """Numbers in (0, 1) of the noise stream of that name; row i never changes when rows are added."""
    from microsim.engine.noise import stream_key, uniforms

    key = stream_key(0, f"made world {name}")
    out = np.empty((rows, 2 * math.ceil(columns / 2)))
    for row in range(rows):
        for pair in range(out.shape[1] // 2):
            out[row, 2 * pair], out[row, 2 * pair + 1] = uniforms(key, row, pair)
    return out[:, :columns]


def jittered_grid(ground: MadeGround, name: str, counts: tuple[int, int], steps: tuple[float, float]) -> Floats:
    """(n, 3): a grid of points x, y, each moved by up to a quarter of its step, and a random number in (0, 1)."""
    (columns, rows), (step_x, step_y) = counts, steps
    rolls = dice(name, columns * rows, 3)
    x = ground.west + (np.tile(np.arange(columns), rows) + 0.5 + 0.5 * (rolls[:, 0] - 0.5)) * step_x
    y = ground.south + (np.repeat(np.arange(rows), columns) + 0.5 + 0.5 * (rolls[:, 1] - 0.5)) * step_y
    return np.stack([x, y, rolls[:, 2]], axis=1)


def discs(points: Floats, normals: Floats, radius: Floats | float, colours: Floats, opacity: float = 0.95) -> Rows:
    """One flat Gaussian at each point, lying across its normal; `radius` is one standard deviation [m]."""
    rows = np.zeros((len(points), len(columns_of(0))))
    rows[:, 0:3] = points
    rows[:, 3] = rows[:, 4] = _logs(np.broadcast_to(np.asarray(radius, np.float64), (len(points),)))
    rows[:, 5] = log(THICKNESS_M)
    rows[:, 6:10] = _upright_to(normals)
    rows[:, 10] = log(opacity / (1.0 - opacity))
    rows[:, 11:14] = (_lit(colours, normals) - 0.5) / FIRST_HARMONIC
    return rows.astype(np.float32)


def _logs(values: Floats) -> Floats:
    different, places = np.unique(values, return_inverse=True)
    return np.array([log(float(value)) for value in different])[places]


def _upright_to(normals: Floats) -> Floats:
    """The shortest turns from the z axis to each normal, as x, y, z, w."""
    x, y, w = -normals[:, 1], normals[:, 0], 1.0 + normals[:, 2]
    over = w < 1e-9  # straight down: any half turn will do
    x, w = np.where(over, 1.0, x), np.where(over, 0.0, w)
    y = np.where(over, 0.0, y)
    length = np.sqrt(x * x + y * y + w * w)
    return np.stack([x / length, y / length, np.zeros(len(x)), w / length], axis=1)


def _lit(colours: Floats, normals: Floats) -> Floats:
    facing = normals[:, 0] * SUN[0] + normals[:, 1] * SUN[1] + normals[:, 2] * SUN[2]
    light = AMBIENT + (1.0 - AMBIENT) * np.maximum(facing, 0.0)
    return np.clip(colours * light[:, None], 0.0, 1.0)


# ---- solids: one source for the mesh and for the Gaussians -----------------------------------------------------------


class Solids:
    """Quadrilaterals, counter-clockwise seen from outside; the last two corners may be one."""

    def __init__(self) -> None:
        self.quads: list[tuple[Point, Point, Point, Point]] = []
        self.colours: list[Colour] = []

    def __add__(self, other: Solids) -> Solids:
        both = Solids()
        both.quads, both.colours = self.quads + other.quads, self.colours + other.colours
        return both

    def quad(self, a: Point, b: Point, c: Point, d: Point, colour: Colour) -> None:
        self.quads.append((a, b, c, d))
        self.colours.append(colour)

    def prism(self, corners: Sequence[tuple[float, float]], bottom: float, top: float, colour: Colour) -> None:
        """Upright, over four corners that run counter-clockwise; open below."""
        for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True):
            self.quad((x0, y0, bottom), (x1, y1, bottom), (x1, y1, top), (x0, y0, top), colour)
        a, b, c, d = ((x, y, top) for x, y in corners)
        self.quad(a, b, c, d, colour)

    def barrel(
        self, center: Point, radii: Sequence[float], heights: Sequence[float], colours: Sequence[Colour], sides: int
    ) -> None:
        """Rings of these radii at these heights above `center`, joined; one colour between each two."""
        turns = [sincos(TWO_PI * index / sides) for index in range(sides + 1)]
        x, y, z = center
        rings = [
            [(x + radius * cos, y + radius * sin, z + height) for sin, cos in turns]
            for radius, height in zip(radii, heights, strict=True)
        ]
        for low, high, colour in zip(rings[:-1], rings[1:], colours, strict=True):
            for index in range(sides):
                self.quad(low[index], low[index + 1], high[index + 1], high[index], colour)

    def mesh(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
        """Vertices, each once, and triangles; what has no area is left out."""
        corners = np.array(self.quads, np.float32).reshape(-1, 3) + np.float32(0.0)  # one zero, not two
        vertices, names = np.unique(corners, axis=0, return_inverse=True)
        quads = names.reshape(-1, 4)
        triangles = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]], axis=1).reshape(-1, 3)
        a, b, c = triangles.T
        return vertices, triangles[(a != b) & (b != c) & (c != a)].astype(np.int32)

    def splats(self, spacing: float, shade: float = 0.0) -> Rows:
        """Discs about `spacing` apart over every quadrilateral; `shade` mixes light and dark into their colours."""
        points, normals, radii, colours = [], [], [], []
        for quad, colour in zip(self.quads, self.colours, strict=True):
            places, normal, radius = _lattice(quad, spacing)
            points += places
            normals += [normal] * len(places)
            radii += [radius] * len(places)
            colours += [colour] * len(places)
        tint = 1.0 + shade * (2.0 * dice("shades", len(points), 1) - 1.0)
        return discs(np.array(points), np.array(normals), np.array(radii), np.array(colours) * tint)


def _lattice(quad: Sequence[Point], spacing: float) -> tuple[list[Point], Point, float]:
    """Points spread over a quadrilateral, its normal, and a radius that covers it."""
    a, b, c, d = quad
    along = max(_distance(a, b), _distance(d, c))
    across = max(_distance(a, d), _distance(b, c))
    columns, rows = max(1, math.ceil(along / spacing)), max(1, math.ceil(across / spacing))
    points = []
    for row in range(rows):
        t = (row + 0.5) / rows
        left, right = _between(a, d, t), _between(b, c, t)
        points += [_between(left, right, (column + 0.5) / columns) for column in range(columns)]
    step = max(along / columns, across / rows)
    return points, _normal(a, b, c, d), round(0.5 * step, 3) or 0.001


def _between(a: Point, b: Point, t: float) -> Point:
    return (a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t, a[2] + (b[2] - a[2]) * t)


def _distance(a: Point, b: Point) -> float:
    return math.sqrt(sum((p - q) * (p - q) for p, q in zip(a, b, strict=True)))


def _normal(a: Point, b: Point, c: Point, d: Point) -> Point:
    """Of the diagonals, so that it also fits a quadrilateral with two corners in one."""
    u, v = [p - q for p, q in zip(c, a, strict=True)], [p - q for p, q in zip(d, b, strict=True)]
    x, y, z = u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]
    length = math.sqrt(x * x + y * y + z * z)
    return (x / length, y / length, z / length) if length > 0.0 else (0.0, 0.0, 1.0)


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
