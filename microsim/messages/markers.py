"""The world as RViz shows it: `/world/occupancy` and `/world/markers`.

Ground and painted surfaces are triangles; what is painted lies in layers above one another, so that it does not flicker
where it overlaps. Robots are the parts of their models, fixed to base_link: RViz moves them with /tf.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from microsim.engine.exact import PI, sincos
from microsim.engine.geometry import (
    Array,
    Grid,
    Vector,
    quaternion_from_rpy,
    rpy_from_matrix,
    yaw_quaternion,
)
from microsim.engine.world import CLASS_NAMES, OCCUPIED_FROM, PALETTE, Shape, World
from microsim.messages.encoders import header
from microsim.messages.template import Prepared
from microsim.messages.types import ENCAPSULATION, encode, new, store_with

if TYPE_CHECKING:
    from microsim.render.robot_models import Part
    from microsim.robots.robot import Robot

_ARRAY, _MARKER = "visualization_msgs/msg/MarkerArray", "visualization_msgs/msg/Marker"
_CUBE, _SPHERE, _CYLINDER, _TRIANGLES = 1, 2, 3, 11
_PART_SHAPES = (_CUBE, _CYLINDER, _SPHERE)  # by kind of part
_DELETE_ALL = 3
_LAYER_M, _LAYER_PER_M = 0.02, 0.0005  # distance between layers: at least, and per metre of the map
_CLASS_CELLS, _RELIEF_CELLS = 128, 32  # along the longer side of the map: finest paint and relief that are shown
_CIRCLE_POINTS = 24
_MOST_TRIANGLES = 100_000  # of painted features together; beyond, they follow the ground less closely
_MOST_PARTS = 1000  # of all robots together; where there are more, each is drawn as its `look`

Place = tuple[float, float]
Corners = list[Vector]  # three for each triangle, counter-clockwise from above


def occupancy_message(world: World, is_hollow: bool = False) -> Any:
    """`nav_msgs/OccupancyGrid` of the occupied cells, 0 or 100; hollow: -1 where all cells around are occupied.

    Of a map of map_server: its own values, and 100 where obstacles are.
    """
    rows, columns = world.occupied.shape
    cells = world.occupied.astype(np.int8) * np.int8(100)
    if world.map_values is not None:
        cells = np.where(world.occupied > (world.map_values >= OCCUPIED_FROM), cells, world.map_values)
    if is_hollow:
        around = np.pad(world.occupied > 0, 1, constant_values=True)
        shifted = [around[j : j + rows, i : i + columns] for j in range(3) for i in range(3)]
        cells[np.logical_and.reduce(shifted)] = -1
    message = new(
        "nav_msgs/msg/OccupancyGrid",
        header=header("map"),
        data=cells.reshape(-1),
    )
    message.info.resolution, message.info.width, message.info.height = world.cell_m, columns, rows
    message.info.origin.position.x, message.info.origin.position.y = world.west, world.south
    message.info.origin.orientation.w = 1.0
    return message


def prepared_markers(world: World, robots: Mapping[str, Robot]) -> Prepared:
    """`visualization_msgs/MarkerArray` of the world and of robots by their base frames; only its stamps change."""
    parts = {frame: robot.parts() for frame, robot in robots.items()}
    if sum(map(len, parts.values())) > _MOST_PARTS:
        parts = {frame: robot.parts(is_simple=True) for frame, robot in robots.items()}
    body, stamps, count = bytearray(), [], 0
    for run, at in _runs(world, parts):
        stamps += [8 + len(body) + offset for offset in at]  # after the encapsulation and the number of markers
        count += len(at)
        body += run
    return Prepared(_ARRAY, ENCAPSULATION + struct.pack("<I", count) + body, stamps)


def _runs(world: World, robots: Mapping[str, tuple[Part, ...]]) -> Iterator[tuple[bytes, Sequence[int]]]:
    """Markers side by side as CDR, each run with the offsets of its stamps."""
    run, at = world.derived(_world_run)
    yield run, at
    place, index = 4 + len(run), 0
    for frame, parts in robots.items():
        run, at = _robot_run(parts, frame, index, place % 8)
        yield run, at
        place, index = place + len(run), index + len(parts)


def _world_run(world: World) -> tuple[bytes, tuple[int, ...]]:
    """The first of them."""
    clear = _marker("", 0, 0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), action=_DELETE_ALL)
    return _encoded([clear, *_world_markers(world)], 4)


def _encoded(markers: Iterable[Any], place: int) -> tuple[bytes, tuple[int, ...]]:
    """Markers from a `place` on, and where each begins, which is with its stamp; CDR is aligned to 8 bytes."""
    out, stamps = bytearray(), []
    for marker in markers:
        stamps.append(len(out))
        if (place + len(out)) % 8 == 0:
            out += encode(_MARKER, marker)[4:]
        else:  # as the first of an array, which is at 4
            out += encode(_ARRAY, new(_ARRAY, markers=[marker]))[8:]
    return bytes(out), tuple(stamps)


@lru_cache(64)
def _robot_run(parts: tuple[Part, ...], frame: str, first: int, place: int) -> tuple[bytes, tuple[int, ...]]:
    return _encoded([_part_marker(frame, first + k, part) for k, part in enumerate(parts)], place)


def _part_marker(frame: str, index: int, part: Part) -> Any:
    a, b, c = part.half
    marker = _marker("robots", index, _PART_SHAPES[part.kind], (2.0 * a, 2.0 * b, 2.0 * c), part.colour, frame)
    marker.frame_locked = True
    position, turn = marker.pose.position, marker.pose.orientation
    position.x, position.y, position.z = part.center
    turn.x, turn.y, turn.z, turn.w = quaternion_from_rpy(*rpy_from_matrix(part.axes))
    return marker


def _marker(
    space: str, index: int, kind: int, size: Vector, colour: Sequence[float], frame: str = "map", action: int = 0
) -> Any:
    marker = new(_MARKER, header=header(frame), ns=space, id=index, type=kind, action=action)
    marker.scale.x, marker.scale.y, marker.scale.z = size
    marker.color.r, marker.color.g, marker.color.b, marker.color.a = *colour, 1.0
    marker.pose.orientation.w = 1.0
    return marker


def _triangles_marker(space: str, index: int, class_id: int, corners: Corners) -> Any:
    marker = _marker(space, index, _TRIANGLES, (1.0, 1.0, 1.0), _colour(class_id))
    point = store_with(_MARKER).types["geometry_msgs/msg/Point"]
    marker.points = [point(x=float(x), y=float(y), z=float(z)) for x, y, z in corners]
    return marker


def _colour(class_id: int) -> tuple[float, ...]:
    return tuple(float(part) / 255.0 for part in PALETTE[class_id])


def _world_markers(world: World) -> list[Any]:
    """Ground, painted surfaces, obstacles and features."""
    ground = _Ground(world)
    found = [_triangles_marker("ground", 0, ground.class_id, ground.corners())]
    for class_id in range(len(CLASS_NAMES)):
        corners = ground.painted(class_id) if class_id != ground.class_id else []
        if corners:
            found.append(_triangles_marker("surfaces", class_id, class_id, corners))
    found += [_shape_marker(world, "obstacles", k, each, ground.layer) for k, each in enumerate(world.obstacles)]
    for index, (shape, level) in enumerate(zip(world.features, _levels(world.features), strict=True)):
        if ground.is_draped(shape):
            corners = ground.draped(shape, level)
            found.append(_triangles_marker("features", index, shape.class_id, corners))
        else:
            found.append(_shape_marker(world, "features", index, shape, level * ground.layer))
    return found


class _Ground:
    """Triangles over nodes that are `step` apart, a layer below the real ground, on which everything stands."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.west, self.south, self.east, self.north = world.extent_m
        longest = max(world.surface.shape)
        self.thin = -(-longest // _CLASS_CELLS)  # shows every so many cells
        rows, columns = (-(-cells // self.thin) for cells in world.surface.shape)
        self.block = max(rows, columns) if world.is_flat else -(-max(rows, columns) // _RELIEF_CELLS)
        self.step = self.block * self.thin * world.cell_m
        self.layer = min(max(_LAYER_M, _LAYER_PER_M * longest * world.cell_m), 5.0 * _LAYER_M)
        self.class_id = int(np.bincount(world.surface.reshape(-1)).argmax())
        self.x = [min(self.west + k * self.step, self.east) for k in range(-(-columns // self.block) + 1)]
        self.y = [min(self.south + k * self.step, self.north) for k in range(-(-rows // self.block) + 1)]
        self.z: Array = np.array([[world.ground(x, y) for x in self.x] for y in self.y]) - self.layer
        self.twist = np.abs(self.z[:-1, :-1] - self.z[:-1, 1:] - self.z[1:, :-1] + self.z[1:, 1:])  # of each square
        self.span = self.step  # of the triangles of painted features
        reaches = np.array([_radius(shape) for shape in world.features if self.is_draped(shape)])
        while _triangles(reaches / self.span) > _MOST_TRIANGLES and self.span < 2.0 * reaches.max():
            self.span *= 2.0

    def is_draped(self, shape: Shape) -> bool:
        return _is_painted(shape) and shape.base_m == 0.0 and not self.world.is_flat

    def corners(self) -> Corners:
        found: Corners = []
        for j in range(len(self.y) - 1):
            for i in range(len(self.x) - 1):
                places = ((i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1))
                found += _quad([(self.x[u], self.y[v], float(self.z[v, u])) for u, v in places])
        return found

    def square(self, x: float, y: float) -> tuple[int, int]:
        """Column and row of the one with this place in it."""
        column, row = int((x - self.west) / self.step), int((y - self.south) / self.step)
        return min(max(column, 0), len(self.x) - 2), min(max(row, 0), len(self.y) - 2)

    def _within(self, i: int, j: int, x: float, y: float) -> tuple[float, float]:
        return (x - self.x[i]) / (self.x[i + 1] - self.x[i]), (y - self.y[j]) / (self.y[j + 1] - self.y[j])

    def height(self, x: float, y: float) -> float:
        """Of the triangles, which divide each square from south-west to north-east."""
        i, j = self.square(x, y)
        u, v = self._within(i, j, x, y)
        a, b, c, d = self.z[j, i], self.z[j, i + 1], self.z[j + 1, i + 1], self.z[j + 1, i]
        return float(a + u * (b - a) + v * (c - b) if u >= v else a + v * (d - a) + u * (c - d))

    def painted(self, class_id: int) -> Corners:
        """Where the surface is of this class, half a layer above the ground."""
        found: Corners = []
        size = self.thin * self.world.cell_m
        for column, row, columns, rows in _rectangles(
            self.world.surface[:: self.thin, :: self.thin] == class_id, self.block
        ):
            west, south = self.west + column * size, self.south + row * size
            east, north = min(west + columns * size, self.east), min(south + rows * size, self.north)
            places = [(west, south), (east, south), (east, north), (west, north)]
            for part in self._on_planes(places, *self.square(0.5 * (west + east), 0.5 * (south + north))):
                corners = [(x, y, self.height(x, y) + 0.5 * self.layer) for x, y in part]
                for k in range(1, len(corners) - 1):
                    found += _known([corners[0], corners[k], corners[k + 1]])
        return found

    def _on_planes(self, places: list[Place], i: int, j: int) -> list[list[Place]]:
        """A rectangle within a square, divided where its two triangles meet unless they are in one plane."""
        side = [u - v for u, v in (self._within(i, j, x, y) for x, y in places)]
        if min(side) >= 0.0 or max(side) <= 0.0 or self.twist[j, i] == 0.0:
            return [places]
        parts: tuple[list[Place], list[Place]] = ([], [])
        for k, ((x, y), here) in enumerate(zip(places, side, strict=True)):
            for part, is_there in zip(parts, (here >= 0.0, here <= 0.0), strict=True):
                if is_there:
                    part.append((x, y))
            (to_x, to_y), there = places[(k + 1) % 4], side[(k + 1) % 4]
            if here * there < 0.0:
                share = here / (here - there)
                for part in parts:
                    part.append((x + share * (to_x - x), y + share * (to_y - y)))
        return list(parts)

    def _bend(self, shape: Shape) -> float:
        """A plane through corners on the triangles below a shape is nowhere deeper in them than this."""
        (x, y), reach = shape.center[:2], _radius(shape)
        (west, south), (east, north) = self.square(x - reach, y - reach), self.square(x + reach, y + reach)
        twist = self.twist[south : north + 1, west : east + 1]
        return 0.25 * float(np.max(twist, where=np.isfinite(twist), initial=0.0))

    def draped(self, shape: Shape, level: int) -> Corners:
        """A painted feature in rings about its middle, so that it follows the ground."""
        lift = self._bend(shape) + self.layer * (1 + level)
        rings = int(2.0 * _radius(shape) / self.span) + 1
        outline = list(_outline(shape, 0.5 * self.span))

        def at(k: int, ring: int) -> Vector:
            x, y = outline[k % len(outline)]
            x = shape.center[0] + (x - shape.center[0]) * ring / rings
            y = shape.center[1] + (y - shape.center[1]) * ring / rings
            inside = min(max(x, self.west), self.east), min(max(y, self.south), self.north)
            return x, y, self.height(*inside) + lift

        found: Corners = []
        for ring in range(rings):
            for k in range(len(outline)):
                found += _known([at(k, ring), at(k, ring + 1), at(k + 1, ring + 1)])
                if ring > 0:
                    found += _known([at(k, ring), at(k + 1, ring + 1), at(k + 1, ring)])
        return found


def _triangles(reaches: Array) -> float:
    """At most so many are in painted features with these radii [spans]: rings, times places around them."""
    return float((2.0 * (2.0 * reaches + 1.0) * (12.0 * reaches + _CIRCLE_POINTS)).sum())


def _quad(places: Corners) -> Corners:
    a, b, c, d = places
    return [*_known([a, b, c]), *_known([a, c, d])]


def _known(corners: Corners) -> Corners:
    """A triangle, where there is ground."""
    return corners if all(np.isfinite(z) for _, _, z in corners) else []


def _rectangles(cells: Grid, block: int) -> Iterator[tuple[int, int, int, int]]:
    """Column, row, columns, rows of rectangles that cover the set cells, none across the border of a block."""
    rows, columns = cells.shape
    for south in range(0, rows, block):
        for west in range(0, columns, block):
            part, grown = cells[south : south + block, west : west + block], dict[tuple[int, int], int]()
            for row in range(part.shape[0] + 1):
                runs = set(_set_runs(part[row])) if row < part.shape[0] else set[tuple[int, int]]()
                for run in [run for run in grown if run not in runs]:
                    first = grown.pop(run)
                    yield west + run[0], south + first, run[1] - run[0], row - first
                for run in sorted(runs):
                    grown.setdefault(run, row)


def _set_runs(row: Grid) -> Iterator[tuple[int, int]]:
    """First and end of each run of set cells."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(np.int8), [0]]))).tolist()
    yield from zip(edges[::2], edges[1::2], strict=True)


def _is_painted(shape: Shape) -> bool:
    return shape.height_m == 0.0 and shape.kind != "billboard"


def _radius(shape: Shape) -> float:
    """Of a circle about its centre that holds it."""
    if shape.kind == "circle":
        return shape.radius
    corners = np.array(shape.vertices or [(0.5 * shape.size[0], 0.5 * shape.size[1])])
    offsets = corners - (shape.center if shape.vertices else 0.0)
    return float(np.sqrt((offsets * offsets)[:, 0] + (offsets * offsets)[:, 1]).max())


def _levels(features: Sequence[Shape]) -> list[int]:
    """The layer of each feature: above the painted ones before it that it may overlap."""
    x, y = (np.array([shape.center[axis] for shape in features]) for axis in (0, 1))
    reach = np.array([_radius(shape) if _is_painted(shape) else -np.inf for shape in features])
    levels = np.zeros(len(features), int)
    for k in range(len(features)):
        dx, dy, sum_ = x[:k] - x[k], y[:k] - y[k], reach[:k] + reach[k]
        below = levels[:k][(sum_ > 0.0) & (dx * dx + dy * dy < sum_ * sum_)]
        levels[k] = 1 + below.max(initial=0)
    return [int(level) for level in levels]


def _outline(shape: Shape, longest: float) -> Iterator[tuple[float, float]]:
    """Points around a painted feature, counter-clockwise, at most so far apart along straight edges."""
    x, y = shape.center
    if shape.kind == "circle":
        for k in range(_CIRCLE_POINTS):
            sine, cosine = sincos(2.0 * PI * k / _CIRCLE_POINTS)
            yield x + shape.radius * cosine, y + shape.radius * sine
        return
    corners = list(shape.vertices)
    if shape.kind == "rectangle":
        sine, cosine = sincos(shape.yaw or 0.0)
        for a, b in ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)):
            u, v = a * shape.size[0], b * shape.size[1]
            corners.append((x + cosine * u - sine * v, y + sine * u + cosine * v))
    for (a, b), (c, d) in zip(corners, corners[1:] + corners[:1], strict=True):
        pieces = int(max(abs(c - a), abs(d - b)) / longest) + 1
        for k in range(pieces):
            yield a + (c - a) * k / pieces, b + (d - b) * k / pieces


def _shape_marker(world: World, space: str, index: int, shape: Shape, flat_m: float) -> Any:
    """flat_m: the height in which it is shown if it has none."""
    height = shape.height_m or flat_m
    base = world.ground(*shape.center) + shape.base_m
    if shape.kind == "triangle":
        return _prism_marker(space, index, shape, base, height)
    width, depth = (2.0 * shape.radius, 2.0 * shape.radius) if shape.kind == "circle" else shape.size
    if shape.kind == "billboard":
        width, depth = _LAYER_M, width  # yaw is the direction the plate faces
    kind = _CYLINDER if shape.kind == "circle" else _CUBE
    marker = _marker(space, index, kind, (width, depth, height), _colour(shape.class_id))
    marker.pose.position.x, marker.pose.position.y = shape.center
    marker.pose.position.z = base + 0.5 * height
    marker.pose.orientation.z, marker.pose.orientation.w = yaw_quaternion(shape.yaw or 0.0)
    return marker


def _prism_marker(space: str, index: int, shape: Shape, base: float, height: float) -> Any:
    low = [(x, y, base) for x, y in shape.vertices]
    high = [(x, y, base + height) for x, y in shape.vertices]
    corners = [*high]
    for i in range(3):
        j = (i + 1) % 3
        corners += [low[i], low[j], high[j], low[i], high[j], high[i]]
    return _triangles_marker(space, index, shape.class_id, corners)
