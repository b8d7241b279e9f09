"""Where a LiDAR's beams end among the Gaussians of a world bundle.

A Gaussian takes light from a beam by how near the beam passes to its middle, as in an image, but at the place on the
beam where that is so: flat ones that overlap on a road end all beams on the road. A beam ends where half its light is
gone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from microsim.engine import exact
from microsim.engine.compiled import inlined, kernel
from microsim.engine.geometry import Array, Vector
from microsim.rays.lidar_turn import SPLATS, Beams, Ints, Place, turn_beams
from microsim.render.splat import CHUNK
from microsim.render.splat.activation import Floats, Splats, X, Y, Z
from microsim.render.splat.activation import splat_in as _splat_in

_exp, _atan2 = exact.exp, exact.atan2
_TWO_PI = exact.TWO_PI
_f64 = np.float64
_MOST_TAKEN = 0.99  # of a beam's light, by one Gaussian
_HALF = 0.5


@kernel
def _in_reach(geometry: Floats, spheres: Array, position: Vector, reach: float, ids: Ints, distances: Floats) -> int:
    """Which Gaussians beams may meet, and how far they are; gives how many."""
    count = 0
    for chunk in range(spheres.shape[0]):
        x, y, z = spheres[chunk, 0] - position[0], spheres[chunk, 1] - position[1], spheres[chunk, 2] - position[2]
        if math.sqrt(x * x + y * y + z * z) - spheres[chunk, 3] > reach:
            continue
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, geometry.shape[0])):
            x, y, z = _from(position, geometry[i])
            distance = math.sqrt(x * x + y * y + z * z)
            if distance - _radius(geometry[i]) <= reach:
                ids[count], distances[count] = i, distance
                count += 1
    return count


@inlined
def _from(position: Vector, row: Floats) -> Vector:
    """To the middle of a Gaussian [m]."""
    return _f64(row[X]) - position[0], _f64(row[Y]) - position[1], _f64(row[Z]) - position[2]


@inlined
def _times(matrix: Array, vector: Vector) -> Vector:
    x, y, z = vector
    return (
        matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2] * z,
        matrix[1, 0] * x + matrix[1, 1] * y + matrix[1, 2] * z,
        matrix[2, 0] * x + matrix[2, 1] * y + matrix[2, 2] * z,
    )


@kernel
def _radius(row: Floats) -> float:
    """Beyond it nothing of a Gaussian is seen [m]."""
    splat = _splat_in(row)
    return math.sqrt(2.0 * _f64(splat.extent)) * _f64(max(splat.scale_x, splat.scale_y, splat.scale_z))


@kernel
def _to_units(row: Floats, units: Array) -> None:
    """The matrix (3, 3) from the map's axes to a Gaussian's own, in each of which it is 1 wide."""
    splat = _splat_in(row)
    x, y, z, w = _f64(splat.qx), _f64(splat.qy), _f64(splat.qz), _f64(splat.qw)
    units[0, 0], units[0, 1], units[0, 2] = 1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)
    units[1, 0], units[1, 1], units[1, 2] = 2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)
    units[2, 0], units[2, 1], units[2, 2] = 2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)
    for column in range(3):
        units[0, column] /= _f64(splat.scale_x)
        units[1, column] /= _f64(splat.scale_y)
        units[2, column] /= _f64(splat.scale_z)


@kernel
def _window(beams: Beams, place: Place, row: Floats, columns: int) -> tuple[int, int, int, int]:
    """First and end column, first and end of the slopes, of the beams that may meet a Gaussian."""
    (a, b, c), (d, e, f), (g, h, i) = place[1]
    mx, my, mz = _from(place[0], row)
    x, y, z = a * mx + d * my + g * mz, b * mx + e * my + h * mz, c * mx + f * my + i * mz
    radius, level = _radius(row), math.sqrt(x * x + y * y)
    if level <= radius:
        return 0, columns, 0, beams.slopes.shape[0]
    per_radian, middle = columns / _TWO_PI, _atan2(y, x)
    aside = _atan2(radius, math.sqrt(level * level - radius * radius))
    first = math.floor((middle - aside) * per_radian)
    end = min(math.ceil((middle + aside) * per_radian) + 1, first + columns)
    low, high = z - radius, z + radius
    lowest = low / (level + radius if low > 0.0 else level - radius)
    highest = high / (level - radius if high > 0.0 else level + radius)
    slopes = beams.slopes
    return first, end, int(np.searchsorted(slopes, lowest)), int(np.searchsorted(slopes, highest, "right"))


@kernel
def _end_beams(
    geometry: Floats, nearest: Ints, beams: Beams, directions: Array, place: Place, light: Array, best: Array, hit: Ints
) -> None:  # fmt: skip
    """Nearest Gaussians first. `light` (columns, rings): what is left of each beam's."""
    columns, units = best.shape[0], np.empty((3, 3))
    for n in nearest:
        row = geometry[n]
        first, end, low, high = _window(beams, place, row, columns)
        if low >= high:
            continue
        _to_units(row, units)
        u, v, w = _times(units, _from(place[0], row))
        splat = _splat_in(row)
        away, widest, opacity = u * u + v * v + w * w, 2.0 * _f64(splat.extent), _f64(splat.opacity)
        for k in range(first, end):
            column = k % columns
            for slope in range(low, high):
                ring = beams.rings[slope]
                if light[column, ring] < _HALF:
                    continue
                ray = directions[0, column, ring], directions[1, column, ring], directions[2, column, ring]
                p, q, r = _times(units, ray)
                along, square = u * p + v * q + w * r, p * p + q * q + r * r
                aside = away - along * along / square
                if along <= 0.0 or aside >= widest:
                    continue
                light[column, ring] *= 1.0 - min(opacity * _exp(-0.5 * max(aside, 0.0)), _MOST_TAKEN)
                distance = along / square
                if light[column, ring] < _HALF and distance < best[column, ring]:
                    best[column, ring], hit[column, ring] = distance, SPLATS


@dataclass
class SplatScenery:
    """The Gaussians as `LidarTurn` meets them."""

    splats: Splats
    beams: Beams
    _ids: Ints = field(init=False)
    _distances: Floats = field(init=False)

    def __post_init__(self) -> None:
        self._ids, self._distances = np.empty(len(self.splats), np.int32), np.empty(len(self.splats), np.float32)

    def meet(self, place: Place, reach: float, best: Array, hit: Ints) -> None:
        """End beams at Gaussians that are nearer than what was met before."""
        splats, directions = self.splats, self.beams.directions
        count = _in_reach(splats.geometry, splats.spheres, place[0], reach, self._ids, self._distances)
        order: npt.NDArray[np.int64] = np.argsort(self._distances[:count], kind="stable")
        turned = np.empty(directions.shape)
        turn_beams(directions, place[1], turned)
        light = np.ones(best.shape)
        _end_beams(splats.geometry, self._ids[order], self.beams, turned, place, light, best, hit)
