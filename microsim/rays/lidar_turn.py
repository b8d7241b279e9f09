"""A turn of a LiDAR: beams at fixed elevations and azimuths against the ground, meshes, obstacles and other robots.

Its frame: x forward, y left, z up. The first azimuth looks forward, the following ones counter-clockwise. A turn is
taken at one instant: every point is as of the message's stamp.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import exact
from microsim.engine.compiled import inlined, kernel, threaded_kernel
from microsim.engine.geometry import Array, Grid, Vector, matrix_from_rpy
from microsim.engine.motion import Motion, Rotation, mounted_at, turned
from microsim.engine.noise import fill_pairs, uniforms
from microsim.engine.workers import OneWorker, Workers, parts_of
from microsim.engine.world import World
from microsim.rays import POINT, bvh
from microsim.rays.bvh import Tree
from microsim.rays.ground_packets import DX, DY, DZ, LANES, OUT, PACKET, meet_ground
from microsim.rays.ground_rays import Lattice, walk, world_lattice
from microsim.rays.screen_rays import cast
from microsim.render.screen import Pose, ScreenIndex, into_body, screen_index

Ints: TypeAlias = npt.NDArray[np.int32]
Place: TypeAlias = tuple[Vector, Rotation]  # [m] of the sensor, and its axes, in the map frame
Part: TypeAlias = tuple[int, int]  # of a turn: its first column, and the end of those

# What a beam has met: a thing's number in the tree (0, 1, 2 …), bvh.NOTHING, GROUND, SPLATS, or GROUND - 1 - n for the
# other robot number n.
GROUND = -2
SPLATS = -(2**31)  # Gaussians of a world bundle

# share of the light that comes back, by class of surface: ground, obstacle, hazard, target, water; robots
_REFLECTIVITY = (0.35, 0.6, 0.5, 0.9, 0.05)
_ROBOTS = 0.8

_SECTOR = 64  # columns
_STEEPEST = 8.0  # slopes beyond count as this where beams are looked for
_A_LITTLE_MORE = 1.0 + 1e-9  # than how far a beam has got: far above rounding
_NOISE_REACH = 10.0  # sigmas beyond max_m within which a hit may still be measured inside
_DROPOUTS = 1 << 24  # where a turn's uniforms begin in its stream
_WORTH_A_THREAD = 8192  # beams: two threads on one busy core then lose 8 % of a turn by handing over, below it more
_PARTS_OF_A_THREAD = 4


class Sectors(NamedTuple):
    """A turn in sectors of equally many columns, each a screen: the rings are across it, the columns down it.

    Seen from the middle of a sector, a is the slope of a beam upward, b that to the left.
    """

    columns: int  # of a sector; the last one may have fewer
    middles: Array  # (2, sectors) cos and sin of their azimuths
    screen: ScreenIndex


class Beams(NamedTuple):
    """The beams of one turn, in the sensor's frame."""

    directions: Array  # (3, columns, rings) unit vectors
    headings: Array  # (2, columns) cos and sin of each azimuth
    slopes: Array  # (rings,) dz per metre seen from above, ascending
    slants: Array  # (rings,) length per metre seen from above, in the order of `slopes`
    rings: Ints  # (rings,) ring of each slope
    sectors: Sectors


class Surroundings(NamedTuple):
    """What beams can meet."""

    lattice: Lattice
    tree: Tree
    bodies: Array  # (n, 15) other robots as `body_row` gives them
    surface: Grid  # class of each cell of the ground


class Accuracy(NamedTuple):
    """What becomes of a perfect distance."""

    min_m: float
    max_m: float
    sigma_m: float
    dropout_probability: float


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
    return Sectors(size, turns, screen_index(rays))


# Each of the following lessens best (columns, rings) [m], at first `reach`, and says in hit what was met. Both are of
# the azimuths from `start` on: threads share a turn. They are kernels of their own, so that a run compiles and loads
# only what it needs. The ground comes last: a ray walks over it only as far as the nearest thing.


@threaded_kernel
def meet_ground_upright(
    lattice: Lattice, beams: Beams, start: int, place: Place, reach: float, best: Array, hit: Ints
) -> None:
    """All beams of an azimuth share their walk."""
    position, ((a, b, _), (d, e, _), _) = place
    flat, ends = np.empty(beams.slopes.shape[0]), np.empty(beams.slopes.shape[0])
    for column in range(best.shape[0]):
        ahead, aside = beams.headings[0, start + column], beams.headings[1, start + column]
        for k in range(flat.shape[0]):
            ends[k] = _A_LITTLE_MORE * best[column, beams.rings[k]] / beams.slants[k]
        walk(lattice, position, a * ahead + b * aside, d * ahead + e * aside, reach, beams.slopes, ends, flat)
        for k in range(flat.shape[0]):
            _note_ground(flat[k] * beams.slants[k], reach, column, beams.rings[k], best, hit)


@threaded_kernel
def meet_ground_tilted(
    lattice: Lattice, beams: Beams, start: int, place: Place, reach: float, best: Array, hit: Ints
) -> None:
    """In packets of neighbouring beams: the finer the turn, the more azimuths."""
    columns, count = best.shape
    turn = beams.directions.shape[1]
    side = 4 if turn >= 512 else 2 if turn >= 256 else 1
    rings = LANES // side
    packet, turned = np.empty(PACKET), np.empty((3, side, count))
    for first in range(0, columns, side):
        last = min(first + side, columns)
        turn_beams(beams.directions[:, start + first : start + last], place[1], turned)
        for lowest in range(0, count, rings):
            for k in range(side):
                column = min(k, last - first - 1)
                for lane in range(rings):
                    ring = min(lowest + lane, count - 1)
                    packet[DX + k * rings + lane] = turned[0, column, ring]
                    packet[DY + k * rings + lane] = turned[1, column, ring]
                    packet[DZ + k * rings + lane] = turned[2, column, ring]
                    packet[OUT + k * rings + lane] = _A_LITTLE_MORE * best[first + column, ring]
            meet_ground(lattice, place[0], reach, packet)
            for column in range(first, last):
                for ring in range(lowest, min(lowest + rings, count)):
                    distance = packet[OUT + (column - first) * rings + ring - lowest]
                    _note_ground(distance, reach, column, ring, best, hit)


@inlined
def _note_ground(distance: float, reach: float, column: int, ring: int, best: Array, hit: Ints) -> None:
    if distance < reach and distance <= best[column, ring]:
        best[column, ring], hit[column, ring] = distance, GROUND


@threaded_kernel
def meet_things(tree: Tree, beams: Beams, start: int, place: Place, best: Array, hit: Ints) -> None:
    """Mesh and obstacles, sector by sector; a sector begins at `start`."""
    sector, middles = beams.sectors.columns, beams.sectors.middles
    turned, pose = np.empty((3, sector, best.shape[1])), np.empty(12)
    for first in range(0, best.shape[0], sector):
        last, number = min(first + sector, best.shape[0]), (start + first) // sector
        turn_beams(beams.directions[:, start + first : start + last], place[1], turned)
        _look(place, middles[0, number], middles[1, number], pose)
        cast(tree, pose, beams.sectors.screen, _STEEPEST, 1.0, turned, best[first:last], hit[first:last])


@threaded_kernel
def meet_bodies(bodies: Array, beams: Beams, start: int, place: Place, best: Array, hit: Ints) -> None:
    """Other robots; one that holds the sensor is not seen."""
    turned = np.empty((3, 1, best.shape[1]))
    for column in range(best.shape[0]):
        turn_beams(beams.directions[:, start + column : start + column + 1], place[1], turned)
        for n in range(bodies.shape[0]):
            for ring in range(best.shape[1]):
                ray = (turned[0, 0, ring], turned[1, 0, ring], turned[2, 0, ring])
                distance = into_body(bodies[n], place[0], ray)
                if distance < best[column, ring]:
                    best[column, ring], hit[column, ring] = distance, GROUND - 1 - n


@kernel
def _look(place: Place, cosine: float, sine: float, pose: Pose) -> None:
    """The axes of a sector's screen: up, to the left, along its middle."""
    pose[0], pose[1], pose[2] = place[0]
    for k in range(3):
        row = place[1][k]
        pose[3 + 3 * k], pose[4 + 3 * k] = row[2], cosine * row[1] - sine * row[0]
        pose[5 + 3 * k] = cosine * row[0] + sine * row[1]


@kernel
def turn_beams(directions: Array, rotation: Rotation, turned: Array) -> None:
    """From the sensor's frame to the map's."""
    (a, b, c), (d, e, f), (g, h, i) = rotation
    for column in range(directions.shape[1]):
        for r in range(directions.shape[2]):
            x, y, z = directions[0, column, r], directions[1, column, r], directions[2, column, r]
            turned[0, column, r] = a * x + b * y + c * z
            turned[1, column, r] = d * x + e * y + f * z
            turned[2, column, r] = g * x + h * y + i * z


@threaded_kernel
def _measure(
    around: Surroundings,
    directions: Array,
    first: int,
    place: Place,
    best: Array,
    hit: Ints,
    accuracy: Accuracy,
    key: int,
    tick: int,
    points: npt.NDArray[np.float32],
    rings: npt.NDArray[np.uint16],
) -> int:
    """Points (n, 4) x, y, z, intensity and rings of the beams that come back, in firing order; gives how many.

    The azimuths are those from `first` on. Beam i draws number i of the stream, whatever the other beams saw. The
    intensity is what the surface reflects, times the cosine of the angle of incidence.
    """
    low, high, sigma, drop = accuracy
    position, rotation = place
    count = 0
    (a, b, c), (d, e, f), (g, h, i) = rotation
    drawn = np.empty((2, 2 * (best.shape[1] // 2 + 1)))
    for column in range(best.shape[0]):
        start = (first + column) * best.shape[1]
        pairs = (start + best.shape[1] + 1) // 2 - start // 2
        if sigma > 0.0:
            fill_pairs(key, tick, start // 2, drawn[0, : 2 * pairs], drawn[1, : 2 * pairs])
        for ring in range(best.shape[1]):
            if hit[column, ring] == bvh.NOTHING:
                continue
            index = start + ring
            value = best[column, ring]
            if sigma > 0.0:
                value += sigma * drawn[1, index // 2 - start // 2 + (pairs if index % 2 else 0)]
            if value < low or value > high or (drop > 0.0 and uniforms(key, tick, _DROPOUTS + index)[0] < drop):
                continue
            azimuth = first + column
            x, y, z = directions[0, azimuth, ring], directions[1, azimuth, ring], directions[2, azimuth, ring]
            ray = (a * x + b * y + c * z, d * x + e * y + f * z, g * x + h * y + i * z)
            distance, what = best[column, ring], hit[column, ring]
            point = (position[0] + ray[0] * distance, position[1] + ray[1] * distance, position[2] + ray[2] * distance)
            points[count, 0], points[count, 1], points[count, 2] = x * value, y * value, z * value
            points[count, 3] = 255.0 * _reflectivity(around, point, what) * _cosine(around, point, ray, what)
            rings[count] = ring
            count += 1
    return count


@inlined
def _reflectivity(around: Surroundings, point: Vector, what: int) -> float:
    if what == SPLATS:
        return _REFLECTIVITY[1]
    if what < GROUND:
        return _ROBOTS
    if what != GROUND:
        return _REFLECTIVITY[1]
    ground, surface = around.lattice, around.surface
    i = int(min(max((point[0] - ground.west) / ground.cell, 0.0), surface.shape[1] - 1.0))
    j = int(min(max((point[1] - ground.south) / ground.cell, 0.0), surface.shape[0] - 1.0))
    return _REFLECTIVITY[surface[j, i]]


@inlined
def _cosine(around: Surroundings, point: Vector, ray: Vector, what: int) -> float:
    """Cosine of the angle between the ray and the surface's normal, whichever side it is seen from."""
    triangles = around.tree.triangles
    if what == SPLATS:  # their normals are not known
        nx, ny, nz = ray
    elif what == GROUND:
        nx, ny, nz = _ground_normal(around.lattice, point, ray)
    elif what < GROUND:
        nx, ny, nz = _body_normal(around.bodies[GROUND - 1 - what], point)
    elif what < triangles.shape[0]:
        t = triangles[what]
        nx, ny, nz = t[4] * t[8] - t[5] * t[7], t[5] * t[6] - t[3] * t[8], t[3] * t[7] - t[4] * t[6]
    else:
        nx, ny, nz = _solid_normal(around.tree.solids[what - triangles.shape[0]], point)
    length = math.sqrt(nx * nx + ny * ny + nz * nz)
    return abs(nx * ray[0] + ny * ray[1] + nz * ray[2]) / length if length > 0.0 else 0.0


@inlined
def _ground_normal(lattice: Lattice, point: Vector, ray: Vector) -> Vector:
    nodes, cell = lattice.nodes, lattice.cell
    gx, gy = (point[0] - lattice.west) / cell + 0.5, (point[1] - lattice.south) / cell + 0.5
    i = int(min(max(gx, 0.0), nodes.shape[1] - 2.0))
    j = int(min(max(gy, 0.0), nodes.shape[0] - 2.0))
    p, q = gx - i, gy - j
    h00, h01, h10, h11 = nodes[j, i], nodes[j, i + 1], nodes[j + 1, i], nodes[j + 1, i + 1]
    twist = (h11 - h10) - (h01 - h00)
    slope_x, slope_y = ((h01 - h00) + twist * q) / cell, ((h10 - h00) + twist * p) / cell
    if not math.isfinite(slope_x + slope_y):  # the side of the ground at a hole
        return ray[0], ray[1], ray[2]
    return -slope_x, -slope_y, 1.0


@kernel
def _body_normal(row: Array, point: Vector) -> Vector:
    """The axis of the side on which the point is."""
    x, y, z = point[0] - row[0], point[1] - row[1], point[2] - row[2]
    side, outmost = 0, -math.inf
    for k in range(3):
        beyond = abs(row[3 + k] * x + row[6 + k] * y + row[9 + k] * z) - row[12 + k]
        if beyond > outmost:
            side, outmost = k, beyond
    return row[3 + side], row[6 + side], row[9 + side]


@kernel
def _solid_normal(solid: Array, point: Vector) -> Vector:
    x, y, z = point[0] - solid[1], point[1] - solid[2], point[2]
    above = max(z - solid[4], solid[3] - z)
    along, across = solid[5] * x + solid[6] * y, solid[5] * y - solid[6] * x
    if solid[0] == bvh.CYLINDER:
        return (0.0, 0.0, 1.0) if above >= math.sqrt(x * x + y * y) - solid[7] else (x, y, 0.0)
    beyond_x, beyond_y = abs(along) - solid[7], abs(across) - solid[8]
    if above >= max(beyond_x, beyond_y):
        return 0.0, 0.0, 1.0
    return (solid[5], solid[6], 0.0) if beyond_x >= beyond_y else (-solid[6], solid[5], 0.0)


class Scenery(Protocol):
    """What is met in place of the ground."""

    def meet(self, place: Place, reach: float, best: Array, hit: Ints) -> None: ...


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
    scenery: Scenery | None = None
    workers: Workers = field(default_factory=OneWorker)
    best: Array = field(init=False)
    hit: Ints = field(init=False)
    parts: list[Part] = field(init=False)  # what a worker takes at a time

    def __post_init__(self) -> None:
        shape = self.beams.directions.shape[1:]
        object.__setattr__(self, "best", np.zeros(shape))
        object.__setattr__(self, "hit", np.empty(shape, np.int32))
        object.__setattr__(self, "parts", self._parts())
        if (
            self.scenery is None and not self.world.is_flat
        ):  # compile both now: a run must not stall when the sensor first tilts
            for roll in (0.0, 0.1):
                place = (0.0, 0.0, 0.0), matrix_from_rpy(roll, 0.0, 0.0)
                self._meet_ground(self.world.derived(world_lattice), place, 0.0, self.parts[0])

    def _parts(self) -> list[Part]:
        """Whole sectors; as many parts as are worth a thread, and some more: beams differ in what they cost."""
        columns, sector = self.best.shape[0], self.beams.sectors.columns
        sectors, threads = -(-columns // sector), min(self.workers.count, self.best.size // _WORTH_A_THREAD)
        parts = min(_PARTS_OF_A_THREAD * threads, sectors) if threads > 1 else 1
        return [(first * sector, min(end * sector, columns)) for first, end in parts_of(sectors, parts)]

    def distances(self, motion: Motion, bodies: Array) -> tuple[Array, Ints]:
        """(columns, rings): what a perfect LiDAR would measure [m], and what is there. Reused by the next call.

        bodies (n, 15): other robots as `body_row` gives them.
        """
        place, reach = self._place(motion), self.max_m + _NOISE_REACH * self.sigma_m
        around, scenery = self._around(bodies), self.scenery
        self.best.fill(reach)
        self.hit.fill(bvh.NOTHING)
        if scenery is None:
            self._share(lambda part: self._meet(around, place, reach, part))
        else:
            self._share(lambda part: self._meet_things(around, place, part))
            scenery.meet(place, reach, self.best, self.hit)
            self._share(lambda part: self._meet_bodies(around, place, part))
        return self.best, self.hit

    def _share(self, work: Callable[[Part], None]) -> None:
        parts = self.parts
        self.workers.run(lambda number, _: work(parts[number]), len(parts))

    def _place(self, motion: Motion) -> Place:
        return mounted_at(motion, self.mount), turned(motion, self.axes)

    def _around(self, bodies: Array) -> Surroundings:
        world = self.world
        return Surroundings(world.derived(world_lattice), world.derived(bvh.tree), bodies, world.surface)

    def _meet(self, around: Surroundings, place: Place, reach: float, part: Part) -> None:
        self._meet_things(around, place, part)
        self._meet_ground(around.lattice, place, reach, part)
        self._meet_bodies(around, place, part)

    def _meet_things(self, around: Surroundings, place: Place, part: Part) -> None:
        if around.tree.order.shape[0]:
            meet_things(around.tree, self.beams, part[0], place, *self._seen(part))

    def _meet_ground(self, ground: Lattice, place: Place, reach: float, part: Part) -> None:
        meet = meet_ground_upright if place[1][2] == (0.0, 0.0, 1.0) else meet_ground_tilted
        meet(ground, self.beams, part[0], place, reach, *self._seen(part))

    def _meet_bodies(self, around: Surroundings, place: Place, part: Part) -> None:
        if around.bodies.shape[0]:
            meet_bodies(around.bodies, self.beams, part[0], place, *self._seen(part))

    def _seen(self, part: Part) -> tuple[Array, Ints]:
        return self.best[part[0] : part[1]], self.hit[part[0] : part[1]]

    def sample(self, motion: Motion, bodies: Array, key: int, tick: int) -> npt.NDArray[np.void]:
        """The points that come back, as an array of POINT."""
        self.distances(motion, bodies)
        place, around, directions = self._place(motion), self._around(bodies), self.beams.directions
        points, rings = np.empty((self.best.size, 4), np.float32), np.empty(self.best.size, np.uint16)
        accuracy = Accuracy(self.min_m, self.max_m, self.sigma_m, self.dropout_probability)
        counts: dict[int, int] = {}  # of points, by where they begin

        def measure(part: Part) -> None:
            begin, seen = part[0] * self.best.shape[1], self._seen(part)
            out = points[begin:], rings[begin:]
            counts[begin] = _measure(around, directions, part[0], place, *seen, accuracy, key, tick, *out)

        self._share(measure)
        return _cloud(points, rings, counts)


def _cloud(
    points: npt.NDArray[np.float32], rings: npt.NDArray[np.uint16], counts: Mapping[int, int]
) -> npt.NDArray[np.void]:
    """The parts one after the other, as an array of POINT."""
    cloud, done = np.zeros(sum(counts.values()), POINT), 0
    for begin, count in sorted(counts.items()):
        part, source = cloud[done : done + count], slice(begin, begin + count)
        for column, name in enumerate(("x", "y", "z", "intensity")):
            part[name] = points[source, column]
        part["ring"] = rings[source]
        done += count
    return cloud
