"""LiDAR: beams at fixed elevations and azimuths against the ground, the static mesh, obstacles and other robots.

Its frame: x forward, y left, z up. The first azimuth looks forward, the following ones counter-clockwise. A turn is
taken at one instant: every point is as of the message's stamp.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.sim import bvh, exact, ground_rays, noise
from microsim.sim.bvh import TreeArrays
from microsim.sim.compiled import kernel
from microsim.sim.geometry import Array, Grid, Vector
from microsim.sim.ground_rays import LatticeArrays
from microsim.sim.motion import Motion, Rotation, mounted_at, turned
from microsim.sim.sensors.reflection import GROUND, cosine_at, reflectivity_at
from microsim.sim.world import World

_cast = bvh.cast
_normals = noise.normals
_single = ground_rays.single
_uniforms = noise.uniforms
_walk = ground_rays.walk

Ints: TypeAlias = npt.NDArray[np.int32]

POINT = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("ring", "<u2"), ("time", "<f4")])
_NOISE_REACH = 10.0  # sigmas beyond max_m within which a hit may still be measured inside
_DROPOUTS = 1 << 24  # where a turn's uniforms begin in its stream


@dataclass(frozen=True)
class Beams:
    """The beams of one turn, in the sensor's frame."""

    directions: Array  # (3, columns, rings) unit vectors
    headings: Array  # (2, columns) cos and sin of each azimuth
    slopes: Array  # (rings,) dz per metre seen from above, ascending
    slants: Array  # (rings,) length per metre seen from above, in the order of `slopes`
    rings: Ints  # (rings,) ring of each slope

    @property
    def arrays(self) -> tuple[Array, Array, Array, Array, Ints]:
        return self.directions, self.headings, self.slopes, self.slants, self.rings


def beam_table(elevations: Sequence[float], columns: int) -> Beams:
    """elevations [rad] above the sensor's horizon, ring 0 first; columns: azimuths, evenly spaced over a turn."""
    azimuths = [exact.wrap_angle(exact.TWO_PI * column / columns) for column in range(columns)]
    headings = np.array([[exact.cos(azimuth) for azimuth in azimuths], [exact.sin(azimuth) for azimuth in azimuths]])
    level = np.array([exact.cos(elevation) for elevation in elevations])
    rise = np.array([exact.sin(elevation) for elevation in elevations])
    directions = np.empty((3, columns, len(elevations)))
    directions[0] = headings[0][:, None] * level[None, :]
    directions[1] = headings[1][:, None] * level[None, :]
    directions[2] = rise[None, :]
    rings = np.argsort(rise / level, kind="stable").astype(np.int32)
    return Beams(directions, headings, (rise / level)[rings], (1.0 / level)[rings], rings)


@dataclass(frozen=True)
class Body:
    """What others see of a robot: a box fixed to its base_link."""

    center: Vector  # [m] base_link
    size: Vector  # [m] along the axes of base_link


def body_row(motion: Motion, body: Body) -> tuple[float, ...]:
    """Middle and axes of the box in the map frame, half its size."""
    axes = turned(motion, ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)))
    half = (0.5 * body.size[0], 0.5 * body.size[1], 0.5 * body.size[2])
    return (*mounted_at(motion, body.center), *axes[0], *axes[1], *axes[2], *half)


@kernel
def _body(
    row: Array,
    number: int,
    ox: float,
    oy: float,
    oz: float,
    dx: Array,
    dy: Array,
    dz: Array,
    best: Array,
    hit: Ints,
) -> None:
    """Rays against a box with any attitude; one that holds the sensor is not seen."""
    sx, sy, sz = ox - row[0], oy - row[1], oz - row[2]
    for r in range(best.shape[0]):
        near, far = -math.inf, math.inf
        for k in range(3):
            p = row[3 + k] * sx + row[6 + k] * sy + row[9 + k] * sz
            d = row[3 + k] * dx[r] + row[6 + k] * dy[r] + row[9 + k] * dz[r]
            one = 1.0 / (d if d != 0.0 else 1e-300)
            a, b = (-row[12 + k] - p) * one, (row[12 + k] - p) * one
            near, far = max(near, min(a, b)), min(far, max(a, b))
        if near <= far and 0.0 < near < best[r]:
            best[r], hit[r] = near, number


@kernel
def scan(
    lattice: LatticeArrays,
    tree: TreeArrays,
    bodies: Array,
    beams: tuple[Array, Array, Array, Array, Ints],
    position: Vector,
    rotation: Rotation,
    reach: float,
    best: Array,
    hit: Ints,
) -> None:
    """Fill best (columns, rings) [m] with distances up to `reach`, and hit with what was met (see `reflection`)."""
    directions, headings, slopes, slants, rings = beams
    ox, oy, oz = position
    (a, b, c), (d, e, f), (g, h, i) = rotation
    is_upright = g == 0.0 and h == 0.0 and i == 1.0
    count = slopes.shape[0]
    dx, dy, dz = np.empty(count), np.empty(count), np.empty(count)
    flat, inverse, room = np.empty(count), np.empty((3, count)), np.empty(2)
    has_things = tree[3].shape[0] > 0 or bodies.shape[0] > 0
    for column in range(best.shape[0]):
        for r in range(count):
            best[column, r], hit[column, r] = reach, bvh.NOTHING
        if has_things or not is_upright:
            for r in range(count):
                x, y, z = directions[0, column, r], directions[1, column, r], directions[2, column, r]
                dx[r] = a * x + b * y + c * z
                dy[r] = d * x + e * y + f * z
                dz[r] = g * x + h * y + i * z
        if is_upright:
            ux = a * headings[0, column] + b * headings[1, column]
            uy = d * headings[0, column] + e * headings[1, column]
            _walk(*lattice, ox, oy, oz, ux, uy, reach, slopes, flat)
            for k in range(count):
                distance = flat[k] * slants[k]
                if distance < reach:
                    best[column, rings[k]], hit[column, rings[k]] = distance, GROUND
        else:
            for r in range(count):
                distance = _single(*lattice, ox, oy, oz, dx[r], dy[r], dz[r], reach, room)
                if distance < reach:
                    best[column, r], hit[column, r] = distance, GROUND
        if tree[3].shape[0] > 0:
            _cast(*tree, ox, oy, oz, dx, dy, dz, inverse, best[column], hit[column])
        for n in range(bodies.shape[0]):
            _body(bodies[n], GROUND - 1 - n, ox, oy, oz, dx, dy, dz, best[column], hit[column])


@kernel
def _measure(
    lattice: LatticeArrays,
    tree: TreeArrays,
    bodies: Array,
    surface: Grid,
    directions: Array,
    position: Vector,
    rotation: Rotation,
    best: Array,
    hit: Ints,
    key: int,
    tick: int,
    low: float,
    high: float,
    sigma: float,
    drop: float,
    points: npt.NDArray[np.float32],
    rings: npt.NDArray[np.uint16],
) -> int:
    """Points (n, 4) x, y, z, intensity and rings of the beams that come back, in firing order; gives how many.

    Beam i draws number i of the stream, whatever the other beams saw.
    """
    count, drawn, pair = 0, -1, (0.0, 0.0)
    (a, b, c), (d, e, f), (g, h, i) = rotation
    for column in range(best.shape[0]):
        for ring in range(best.shape[1]):
            if hit[column, ring] == bvh.NOTHING:
                continue
            index = column * best.shape[1] + ring
            value = best[column, ring]
            if sigma > 0.0:
                if index // 2 != drawn:
                    drawn = index // 2
                    pair = _normals(key, tick, drawn)
                value += sigma * (pair[0] if index % 2 == 0 else pair[1])
            if value < low or value > high or (drop > 0.0 and _uniforms(key, tick, _DROPOUTS + index)[0] < drop):
                continue
            x, y, z = directions[0, column, ring], directions[1, column, ring], directions[2, column, ring]
            ray = (a * x + b * y + c * z, d * x + e * y + f * z, g * x + h * y + i * z)
            distance, what = best[column, ring], hit[column, ring]
            share = reflectivity_at(lattice, tree, surface, position, ray, distance, what)
            cosine = cosine_at(lattice, tree, bodies, position, ray, distance, what)
            points[count, 0], points[count, 1], points[count, 2] = x * value, y * value, z * value
            points[count, 3] = 255.0 * share * cosine
            rings[count] = ring
            count += 1
    return count


@dataclass(frozen=True)
class Lidar:
    world: World
    mount: Vector  # [m] base_link -> sensor
    axes: Rotation  # of the sensor in base_link
    beams: Beams
    min_m: float
    max_m: float
    sigma_m: float
    dropout_probability: float
    key: int
    best: Array = field(init=False)
    hit: Ints = field(init=False)

    def __post_init__(self) -> None:
        shape = self.beams.directions.shape[1:]
        object.__setattr__(self, "best", np.empty(shape))
        object.__setattr__(self, "hit", np.empty(shape, np.int32))

    def distances(self, motion: Motion, bodies: Array) -> tuple[Array, Ints]:
        """(columns, rings): what a perfect LiDAR would measure [m], and what is there. Reused by the next call.

        bodies (n, 15): other robots as `body_row` gives them.
        """
        reach = self.max_m + _NOISE_REACH * self.sigma_m
        place, axes = mounted_at(motion, self.mount), turned(motion, self.axes)
        world = self.world
        scan(
            world.lattice.arrays, world.tree.arrays, bodies, self.beams.arrays, place, axes, reach, self.best, self.hit
        )
        return self.best, self.hit

    def sample(self, motion: Motion, bodies: Array, tick: int) -> npt.NDArray[np.void]:
        """The points that come back, as an array of POINT."""
        best, hit = self.distances(motion, bodies)
        points, rings = np.empty((best.size, 4), np.float32), np.empty(best.size, np.uint16)
        world = self.world
        count = _measure(
            world.lattice.arrays,
            world.tree.arrays,
            bodies,
            world.surface,
            self.beams.directions,
            mounted_at(motion, self.mount),
            turned(motion, self.axes),
            best,
            hit,
            self.key,
            tick,
            self.min_m,
            self.max_m,
            self.sigma_m,
            self.dropout_probability,
            points,
            rings,
        )
        cloud = np.zeros(count, POINT)
        for column, name in enumerate(("x", "y", "z", "intensity")):
            cloud[name] = points[:count, column]
        cloud["ring"] = rings[:count]
        return cloud
