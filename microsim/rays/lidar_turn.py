"""A turn of a LiDAR: beams at fixed elevations and azimuths against the ground, meshes, obstacles and other robots.

Its frame: x forward, y left, z up. The first azimuth looks forward, the following ones counter-clockwise. A turn is
taken at one instant: every point is as of the message's stamp.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import exact, noise
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Grid, Vector, matrix_from_rpy
from microsim.engine.motion import Motion, Rotation, mounted_at, turned
from microsim.engine.world import World
from microsim.rays import POINT, bvh, ground_packets, ground_rays, screen_rays
from microsim.rays.bvh import TreeArrays
from microsim.rays.ground_packets import DX, DY, DZ, LANES, OUT, PACKET
from microsim.rays.ground_rays import LatticeArrays
from microsim.rays.reflection import GROUND, cosine_at, reflectivity_at
from microsim.render.screen import Pose, Spans, screen_index

_cast = screen_rays.cast
_fill_pairs = noise.fill_pairs
_meet_ground = ground_packets.meet_ground
_uniforms = noise.uniforms
_walk = ground_rays.walk

Ints: TypeAlias = npt.NDArray[np.int32]

_SECTOR = 64  # columns
_STEEPEST = 8.0  # slopes beyond count as this where beams are looked for
_NOISE_REACH = 10.0  # sigmas beyond max_m within which a hit may still be measured inside
_DROPOUTS = 1 << 24  # where a turn's uniforms begin in its stream


BeamArrays: TypeAlias = tuple[Array, Array, Array, Array, Ints]
SectorArrays: TypeAlias = tuple[int, Array, Array, Spans, Spans]


@dataclass(frozen=True)
class Sectors:
    """A turn in sectors of equally many columns, each a screen: across it lie the rings, down it the columns.

    Seen from the middle of a sector, a is the slope of a beam upward, b that to the left.
    """

    columns: int  # of a sector; the last one may have fewer
    middles: Array  # (2, sectors) cos and sin of their azimuths
    screen: Array  # with the following what `screen_index` gives
    across: Spans
    down: Spans

    @property
    def arrays(self) -> SectorArrays:
        """What the kernels take."""
        return self.columns, self.middles, self.screen, self.across, self.down


@dataclass(frozen=True)
class Beams:
    """The beams of one turn, in the sensor's frame."""

    directions: Array  # (3, columns, rings) unit vectors
    headings: Array  # (2, columns) cos and sin of each azimuth
    slopes: Array  # (rings,) dz per metre seen from above, ascending
    slants: Array  # (rings,) length per metre seen from above, in the order of `slopes`
    rings: Ints  # (rings,) ring of each slope
    sectors: Sectors

    @property
    def arrays(self) -> BeamArrays:
        """What the kernels take."""
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
    slopes = rise / level
    return Beams(directions, headings, slopes[rings], (1.0 / level)[rings], rings, _sectors(slopes, columns))


def _sectors(slopes: Array, columns: int) -> Sectors:
    """At most an eighth of a turn each, so that none of their beams looks far aside."""
    size = max(min(columns // 8, _SECTOR), 1)
    step = exact.TWO_PI / columns
    middles = [exact.wrap_angle(step * (first + 0.5 * (size - 1))) for first in range(0, columns, size)]
    aside = [step * (column - 0.5 * (size - 1)) for column in range(size)]
    rays = np.empty((2, size, len(slopes)))
    for column, angle in enumerate(aside):
        cosine = exact.cos(angle)
        rays[0, column] = np.clip(slopes / cosine, -_STEEPEST, _STEEPEST)
        rays[1, column] = exact.sin(angle) / cosine
    turns = np.array([[exact.cos(middle) for middle in middles], [exact.sin(middle) for middle in middles]])
    return Sectors(size, turns, *screen_index(rays))


@kernel
def _body(
    row: Array, number: int, ox: float, oy: float, oz: float, dx: Array, dy: Array, dz: Array, best: Array, hit: Ints
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


# Each of the following fills or lessens best (columns, rings) [m], distances up to `reach`, and hit, what was met (see
# `reflection`). They are kernels of their own, so that a run compiles and loads only what it needs.


@kernel
def meet_ground_upright(
    lattice: LatticeArrays,
    beams: BeamArrays,
    position: Vector,
    rotation: Rotation,
    reach: float,
    best: Array,
    hit: Ints,
) -> None:
    """All beams of an azimuth share their walk."""
    _, headings, slopes, slants, rings = beams
    (a, b, _), (d, e, _), _ = rotation
    flat = np.empty(slopes.shape[0])
    for column in range(best.shape[0]):
        ux = a * headings[0, column] + b * headings[1, column]
        uy = d * headings[0, column] + e * headings[1, column]
        _walk(*lattice, *position, ux, uy, reach, slopes, flat)
        for k in range(slopes.shape[0]):
            distance, ring = flat[k] * slants[k], rings[k]
            is_met = distance < reach
            best[column, ring], hit[column, ring] = (distance, GROUND) if is_met else (reach, bvh.NOTHING)


@kernel
def meet_ground_tilted(
    lattice: LatticeArrays,
    wide: Array,
    directions: Array,
    position: Vector,
    rotation: Rotation,
    reach: float,
    best: Array,
    hit: Ints,
) -> None:
    """In packets of neighbouring beams: the finer the turn, the more azimuths."""
    columns, count = best.shape
    side = 4 if columns >= 512 else 2 if columns >= 256 else 1
    rings = LANES // side
    packet, turned = np.empty(PACKET), np.empty((3, side, count))
    for first in range(0, columns, side):
        last = min(first + side, columns)
        _turn(directions[:, first:last], rotation, turned)
        for start in range(0, count, rings):
            for k in range(side):
                column = min(k, last - first - 1)
                for lane in range(rings):
                    ring = min(start + lane, count - 1)
                    packet[DX + k * rings + lane] = turned[0, column, ring]
                    packet[DY + k * rings + lane] = turned[1, column, ring]
                    packet[DZ + k * rings + lane] = turned[2, column, ring]
            _meet_ground(*lattice, wide, *position, reach, packet)
            for column in range(first, last):
                for ring in range(start, min(start + rings, count)):
                    distance = packet[OUT + (column - first) * rings + ring - start]
                    is_met = distance < reach
                    best[column, ring], hit[column, ring] = (distance, GROUND) if is_met else (reach, bvh.NOTHING)


@kernel
def meet_things(
    tree: TreeArrays,
    directions: Array,
    sectors: SectorArrays,
    position: Vector,
    rotation: Rotation,
    best: Array,
    hit: Ints,
) -> None:
    """Mesh and obstacles, sector by sector."""
    sector, middles, screen, across, down = sectors
    turned, pose = np.empty((3, sector, best.shape[1])), np.empty(12)
    for first in range(0, best.shape[0], sector):
        last = min(first + sector, best.shape[0])
        _turn(directions[:, first:last], rotation, turned)
        _look(position, rotation, middles[0, first // sector], middles[1, first // sector], pose)
        _cast(*tree, pose, screen, across, down, _STEEPEST, 1.0, turned, best[first:last], hit[first:last])


@kernel
def meet_bodies(bodies: Array, directions: Array, position: Vector, rotation: Rotation, best: Array, hit: Ints) -> None:
    """Other robots."""
    turned = np.empty((3, 1, best.shape[1]))
    for column in range(best.shape[0]):
        _turn(directions[:, column : column + 1], rotation, turned)
        for n in range(bodies.shape[0]):
            _body(
                bodies[n],
                GROUND - 1 - n,
                *position,
                turned[0, 0],
                turned[1, 0],
                turned[2, 0],
                best[column],
                hit[column],
            )


@kernel
def _look(position: Vector, rotation: Rotation, cosine: float, sine: float, pose: Pose) -> None:
    """The axes of a sector's screen: up, to the left, along its middle."""
    pose[0], pose[1], pose[2] = position
    for k in range(3):
        row = rotation[k]
        pose[3 + 3 * k], pose[4 + 3 * k] = row[2], cosine * row[1] - sine * row[0]
        pose[5 + 3 * k] = cosine * row[0] + sine * row[1]


@kernel
def _turn(directions: Array, rotation: Rotation, turned: Array) -> None:
    """From the sensor's frame to the map's."""
    (a, b, c), (d, e, f), (g, h, i) = rotation
    for column in range(directions.shape[1]):
        for r in range(directions.shape[2]):
            x, y, z = directions[0, column, r], directions[1, column, r], directions[2, column, r]
            turned[0, column, r] = a * x + b * y + c * z
            turned[1, column, r] = d * x + e * y + f * z
            turned[2, column, r] = g * x + h * y + i * z


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
    count = 0
    (a, b, c), (d, e, f), (g, h, i) = rotation
    drawn = np.empty((2, 2 * (best.shape[1] // 2 + 1)))
    for column in range(best.shape[0]):
        start = column * best.shape[1]
        pairs = (start + best.shape[1] + 1) // 2 - start // 2
        if sigma > 0.0:
            _fill_pairs(key, tick, start // 2, drawn[0, : 2 * pairs], drawn[1, : 2 * pairs])
        for ring in range(best.shape[1]):
            if hit[column, ring] == bvh.NOTHING:
                continue
            index = start + ring
            value = best[column, ring]
            if sigma > 0.0:
                value += sigma * drawn[1, index // 2 - start // 2 + (pairs if index % 2 else 0)]
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
class LidarTurn:
    world: World
    mount: Vector  # [m] base_link -> sensor
    axes: Rotation  # of the sensor in base_link
    beams: Beams
    min_m: float
    max_m: float
    sigma_m: float
    dropout_probability: float
    best: Array = field(init=False)
    hit: Ints = field(init=False)

    def __post_init__(self) -> None:
        shape = self.beams.directions.shape[1:]
        object.__setattr__(self, "best", np.empty(shape))
        object.__setattr__(self, "hit", np.empty(shape, np.int32))
        if not self.world.is_flat:  # tilted now, upright then: no kernel shall have to be compiled on the way
            for roll in (0.0, 0.1):
                self._meet_ground((0.0, 0.0, 0.0), matrix_from_rpy(roll, 0.0, 0.0), 0.0)

    def distances(self, motion: Motion, bodies: Array) -> tuple[Array, Ints]:
        """(columns, rings): what a perfect LiDAR would measure [m], and what is there. Reused by the next call.

        bodies (n, 15): other robots as `body_row` gives them.
        """
        reach = self.max_m + _NOISE_REACH * self.sigma_m
        place, axes = mounted_at(motion, self.mount), turned(motion, self.axes)
        beams, seen = self.beams, (self.best, self.hit)
        self._meet_ground(place, axes, reach)
        things = self.world.derived(bvh.tree)
        if not things.is_empty:
            tree = things.arrays
            meet_things(tree, beams.directions, beams.sectors.arrays, place, axes, *seen)
        if bodies.shape[0]:
            meet_bodies(bodies, beams.directions, place, axes, *seen)
        return self.best, self.hit

    def _meet_ground(self, place: Vector, axes: Rotation, reach: float) -> None:
        ground, beams, seen = self.world.derived(ground_rays.world_lattice), self.beams, (self.best, self.hit)
        if axes[2] == (0.0, 0.0, 1.0):
            meet_ground_upright(ground.arrays, beams.arrays, place, axes, reach, *seen)
        else:
            meet_ground_tilted(ground.arrays, ground.wide, beams.directions, place, axes, reach, *seen)

    def sample(self, motion: Motion, bodies: Array, key: int, tick: int) -> npt.NDArray[np.void]:
        """The points that come back, as an array of POINT."""
        best, hit = self.distances(motion, bodies)
        points, rings = np.empty((best.size, 4), np.float32), np.empty(best.size, np.uint16)
        world = self.world
        count = _measure(
            world.derived(ground_rays.world_lattice).arrays,
            world.derived(bvh.tree).arrays,
            bodies,
            world.surface,
            self.beams.directions,
            mounted_at(motion, self.mount),
            turned(motion, self.axes),
            best,
            hit,
            key,
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
