"""What the camera sees of painted footprints, upright solids and billboards.

Each shape is a row of numbers (`tabulate`). Once per frame `aim` turns it into coefficients that give its hits for a
pixel's ray (a, b, 1) by a few multiplications, and finds the pixels it can cover; `render.draw` then tests it
against one row of pixels.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from microsim.engine import exact
from microsim.engine.compiled import kernel, plain
from microsim.engine.geometry import Array
from microsim.engine.world import Shape, World
from microsim.render.relief import Patches
from microsim.render.screen import (
    Pose,
    Scale,
    ScreenIndex,
    Span,
    Spans,
    bounds,
    fill_span,
)

Corner: TypeAlias = tuple[float, float]

RECTANGLE, CIRCLE, TRIANGLE, FACING = range(4)

# Columns of the table of shapes. The prism holds the shape; what follows it depends on the kind:
# rectangle: cos, sin, half x, half y; circle: 1, 0, radius; triangle: its 3 edges' outward x, y, offset.
KIND, CLASS, _X, _Y, _PRISM, _SHAPE, SHAPE_COLUMNS = 0, 1, 2, 3, 4, 14, 23

# Columns of the coefficients: factors of a, b and 1 in a ray's components, what `_aim_…` adds, bottom and top.
LOW, HIGH, COEFFICIENTS = 12, 13, 14


class Shapes(NamedTuple):
    """Painted features in order, then obstacles, then standing features; with room for what `aim` finds out."""

    table: Array  # (n, SHAPE_COLUMNS)
    painted: int  # how many of them are on the ground
    coefficients: Array  # (n, COEFFICIENTS)
    spans: Spans  # (n, 4) half-open spans of the columns and rows in which it may be seen


def tabulate(world: World, ground: Patches, lowest: float, obstacles: Sequence[Shape]) -> Shapes:
    """The world's features, and these obstacles; `lowest` [m] is the ground's lowest point."""
    painted = [shape for shape in world.features if _is_painted(shape)]
    solid = [*obstacles, *(shape for shape in world.features if not _is_painted(shape))]
    rows = [_row(shape, *_painted_extent(shape, ground, lowest)) for shape in painted]
    rows += [_row(shape, *_solid_extent(shape, world, lowest)) for shape in solid]
    return _with_room(rows, len(painted))


def _with_room(rows: list[list[float]], painted: int) -> Shapes:
    count, table = len(rows), np.array(rows, np.float64).reshape(len(rows), SHAPE_COLUMNS)
    return Shapes(table, painted, np.empty((count, COEFFICIENTS)), np.empty((count, 4), np.int32))


NO_SHAPES = _with_room([], 0)


def painted_alone(shapes: Shapes) -> Shapes:
    """Those on the ground."""
    return Shapes(shapes.table[: shapes.painted], *shapes[1:])


def _is_painted(shape: Shape) -> bool:
    return shape.kind != "billboard" and shape.height_m <= 0.0


def _solid_extent(shape: Shape, world: World, lowest: float) -> tuple[float, float]:
    """Bottom and top [m]; what stands on the ground reaches under it, so that nothing floats over a slope."""
    height = shape.size[1] if shape.kind == "billboard" else shape.height_m
    return _plain_extent_on(world.ground(*shape.center), lowest, shape.base_m, height)


@kernel
def _extent_on(ground: float, lowest: float, base_m: float, height_m: float) -> tuple[float, float]:
    """NaN as ground: there is none."""
    base = (ground if math.isfinite(ground) else lowest) + base_m
    return (min(base, lowest) if base_m <= 0.0 else base), base + height_m


_plain_extent_on: Callable[[float, float, float, float], tuple[float, float]] = plain(_extent_on)


def _painted_extent(shape: Shape, ground: Patches, lowest: float) -> tuple[float, float]:
    """Lowest and highest ground [m] the footprint can be on."""
    x, y = zip(*_corners(shape), strict=True)
    rows, columns = _around(ground.y, min(y), max(y)), _around(ground.x, min(x), max(x))
    heights = ground.nodes[rows, columns]
    heights = heights[np.isfinite(heights)]
    return (float(heights.min()), float(heights.max())) if heights.size else (lowest, lowest)


def _around(edges: Array, low: float, high: float) -> slice:
    """The nodes between low and high, and the next one on each side."""
    return slice(int(np.searchsorted(edges, low, side="right")) - 1, int(np.searchsorted(edges, high)) + 1)


def _corners(shape: Shape) -> list[tuple[float, float]]:
    """Four corners that hold the footprint [m], in order around it."""
    if shape.kind == "triangle":
        return [*shape.vertices, shape.vertices[2]]
    x, y, (cosine, sine, half_x, half_y) = *shape.center, _frame(shape)
    return [_plain_corner_of(x, y, cosine, sine, half_x, half_y, k) for k in range(4)]


@kernel
def _corner_of(x: float, y: float, cosine: float, sine: float, half_x: float, half_y: float, k: int) -> Corner:
    p = half_x if 1 <= k <= 2 else -half_x
    q = half_y if k >= 2 else -half_y
    return x + cosine * p - sine * q, y + sine * p + cosine * q


_plain_corner_of: Callable[..., Corner] = plain(_corner_of)


def _frame(shape: Shape) -> tuple[float, float, float, float]:
    """cos and sin of the footprint's x axis, half its extent along x and y; a billboard's x axis is its normal."""
    if shape.kind == "circle":
        return 1.0, 0.0, shape.radius, shape.radius
    yaw = shape.yaw or 0.0
    half_x, half_y = (0.0, 0.5 * shape.size[0]) if shape.kind == "billboard" else _half(shape.size)
    return exact.cos(yaw), exact.sin(yaw), half_x, half_y


def _half(size: Sequence[float]) -> tuple[float, float]:
    return 0.5 * size[0], 0.5 * size[1]


def _row(shape: Shape, bottom: float, top: float) -> list[float]:
    kind = {"rectangle": RECTANGLE, "circle": CIRCLE, "triangle": TRIANGLE, "billboard": RECTANGLE}[shape.kind]
    if shape.kind == "billboard" and shape.yaw is None:
        kind = FACING
    corners = [number for corner in _corners(shape) for number in corner]
    row = [float(kind), float(shape.class_id), *shape.center, bottom, top, *corners]
    row += _edges(shape) if kind == TRIANGLE else _frame(shape)
    return row + [0.0] * (SHAPE_COLUMNS - len(row))


def _edges(shape: Shape) -> list[float]:
    """A triangle's edges, whichever way they run: outward normal n and offset, n . (p - centre) <= offset inside."""
    (ax, ay), (bx, by), (cx, cy) = [(x - shape.center[0], y - shape.center[1]) for x, y in shape.vertices]
    turn = 1.0 if (bx - ax) * (cy - ay) - (by - ay) * (cx - ax) >= 0.0 else -1.0
    numbers = []
    for (x0, y0), (x1, y1) in (((ax, ay), (bx, by)), ((bx, by), (cx, cy)), ((cx, cy), (ax, ay))):
        normal_x, normal_y = turn * (y1 - y0), turn * (x0 - x1)
        numbers += [normal_x, normal_y, normal_x * x0 + normal_y * y0]
    return numbers


@kernel
def put_at(shape: Array, x: float, y: float, ground: float, lowest: float, base_m: float, height_m: float) -> None:
    """Move a solid rectangle or circle to another place: what `tabulate` would write of it there."""
    shape[_X], shape[_Y] = x, y
    shape[_PRISM], shape[_PRISM + 1] = _extent_on(ground, lowest, base_m, height_m)
    cosine, sine, half_x, half_y = shape[_SHAPE], shape[_SHAPE + 1], shape[_SHAPE + 2], shape[_SHAPE + 3]
    for k in range(4):
        corner_x, corner_y = _corner_of(x, y, cosine, sine, half_x, half_y, k)
        shape[_PRISM + 2 + 2 * k], shape[_PRISM + 3 + 2 * k] = corner_x, corner_y


@kernel
def aim(pose: Pose, screen: ScreenIndex, shapes: Shapes) -> None:
    """For every shape: coefficients for this pose, and the pixels it may cover."""
    (scale, columns, rows), (table, _, coefficients, spans) = screen, shapes
    for n in range(table.shape[0]):
        aim_one(pose, scale, columns, rows, table[n], coefficients[n], spans[n])


@kernel
def aim_one(
    pose: Pose, scale: Scale, columns: Spans, rows: Spans, shape: Array, coefficients: Array, span: Span
) -> None:
    """A billboard's row is turned to the camera."""
    if shape[KIND] == FACING:
        _turn_to(shape, pose[0], pose[1])
    if shape[KIND] == TRIANGLE:
        _aim_triangle(pose, shape, coefficients)
    else:
        _aim_rectangle_or_circle(pose, shape, coefficients)
    coefficients[LOW] = shape[_PRISM] - pose[2]
    coefficients[HIGH] = shape[_PRISM + 1] - pose[2]
    fill_span(scale, columns, rows, bounds(pose, shape[_PRISM : _PRISM + 10]), span)


@kernel
def _aim_triangle(pose: Pose, shape: Array, c: Array) -> None:
    """Per edge: the ray's outward component, and how far outside the camera is."""
    for k in range(3):
        normal_x, normal_y, offset = shape[_SHAPE + 3 * k], shape[_SHAPE + 3 * k + 1], shape[_SHAPE + 3 * k + 2]
        _component(pose, normal_x, normal_y, c[3 * k : 3 * k + 3])
        c[9 + k] = normal_x * (pose[0] - shape[_X]) + normal_y * (pose[1] - shape[_Y]) - offset


@kernel
def _aim_rectangle_or_circle(pose: Pose, shape: Array, c: Array) -> None:
    """The ray's components along the footprint's x and y, and the footprint as the camera sees it from its place."""
    cosine, sine, half_x, half_y = shape[_SHAPE], shape[_SHAPE + 1], shape[_SHAPE + 2], shape[_SHAPE + 3]
    _component(pose, cosine, sine, c[0:3])
    _component(pose, -sine, cosine, c[3:6])
    x = cosine * (pose[0] - shape[_X]) + sine * (pose[1] - shape[_Y])
    y = cosine * (pose[1] - shape[_Y]) - sine * (pose[0] - shape[_X])
    if shape[KIND] == CIRCLE:
        c[6], c[7], c[8] = x, y, x * x + y * y - half_x * half_x
    else:
        c[6], c[7], c[8], c[9] = -half_x - x, half_x - x, -half_y - y, half_y - y


@kernel
def _turn_to(shape: Array, x: float, y: float) -> None:
    """Turn a billboard's normal to the camera at (x, y); straight above it stands as at yaw 0."""
    normal_x, normal_y = x - shape[_X], y - shape[_Y]
    length = math.sqrt(normal_x * normal_x + normal_y * normal_y)
    normal_x, normal_y = (normal_x / length, normal_y / length) if length > 0.0 else (1.0, 0.0)
    shape[_SHAPE], shape[_SHAPE + 1] = normal_x, normal_y
    half = shape[_SHAPE + 3]
    for k in range(4):
        side = half if k < 2 else -half
        shape[_PRISM + 2 + 2 * k] = shape[_X] - normal_y * side
        shape[_PRISM + 3 + 2 * k] = shape[_Y] + normal_x * side


@kernel
def _component(pose: Pose, x: float, y: float, factors: Array) -> None:
    """Factors of a, b and 1 of a ray in its component along the horizontal (x, y)."""
    for k in range(3):
        factors[k] = x * pose[3 + k] + y * pose[6 + k]


@kernel
def outward_of_shape(shape: Array, x: float, y: float, z: float) -> tuple[float, float, float]:
    """Which way the surface of what stands there faces at a place of it [m, map frame]."""
    x, y, low, high = x - shape[_X], y - shape[_Y], shape[_PRISM] - z, z - shape[_PRISM + 1]
    cosine, sine, half_x, half_y = shape[_SHAPE], shape[_SHAPE + 1], shape[_SHAPE + 2], shape[_SHAPE + 3]
    along, across = cosine * x + sine * y, cosine * y - sine * x
    if shape[KIND] == CIRCLE:
        length = math.sqrt(x * x + y * y)
        outside, east, north = length - half_x, x / length, y / length
    elif shape[KIND] == TRIANGLE:
        outside, east, north = -math.inf, 0.0, 0.0
        for k in range(3):
            edge_x, edge_y = shape[_SHAPE + 3 * k], shape[_SHAPE + 3 * k + 1]
            beyond = edge_x * x + edge_y * y - shape[_SHAPE + 3 * k + 2]
            if beyond > outside:
                outside, east, north = beyond, edge_x, edge_y
    elif abs(along) - half_x > abs(across) - half_y:
        sign = 1.0 if along > 0.0 else -1.0
        outside, east, north = abs(along) - half_x, sign * cosine, sign * sine
    else:
        sign = 1.0 if across > 0.0 else -1.0
        outside, east, north = abs(across) - half_y, -sign * sine, sign * cosine
    if high > outside and high >= low:
        return 0.0, 0.0, 1.0
    if low > outside:
        return 0.0, 0.0, -1.0
    return east, north, 0.0
