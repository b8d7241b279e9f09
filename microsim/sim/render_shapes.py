"""What the camera sees of painted footprints, upright solids and billboards.

Each shape is a row of numbers (`tabulate`). Once per frame `aim` turns it into coefficients that give its hits for a
pixel's ray (a, b, 1) by a few multiplications, and finds the pixels it can cover; `render.draw` then tests it
against one row of pixels.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from microsim.sim import exact
from microsim.sim.compiled import kernel
from microsim.sim.geometry import Array
from microsim.sim.render_ground import Pose, Terrain
from microsim.sim.world import Shape, World

RECTANGLE, CIRCLE, TRIANGLE, FACING = range(4)

# Columns of the table of shapes; corners are relative to the centre and hold the footprint (they bound a circle).
KIND, CLASS, _BOTTOM, _TOP, _X, _Y, _CORNERS, _SHAPE = 0, 1, 2, 3, 4, 5, 6, 14
_TABLE_WIDTH = 23  # rectangle: cos, sin, half x, half y; circle: 1, 0, radius; triangle: 3 edges' outward x, y, offset

# Columns of the coefficients: directions first (three per direction: factors of a, b, 1), then what is said at `aim`.
LOW, HIGH = 12, 13
COEFFICIENTS = 14


def tabulate(world: World, terrain: Terrain) -> tuple[Array, int]:
    """(rows of shapes, number of painted ones): painted features in order, then obstacles, then standing features."""
    painted = [shape for shape in world.features if _is_painted(shape)]
    solid = [*world.obstacles, *(shape for shape in world.features if not _is_painted(shape))]
    rows = [_row(shape, *_painted_extent(shape, world, terrain)) for shape in painted]
    rows += [_row(shape, *_solid_extent(shape, world, terrain)) for shape in solid]
    return np.array(rows, np.float64).reshape(len(rows), _TABLE_WIDTH), len(painted)


def _is_painted(shape: Shape) -> bool:
    return shape.kind != "billboard" and shape.height_m <= 0.0


def _solid_extent(shape: Shape, world: World, terrain: Terrain) -> tuple[float, float]:
    """Bottom and top [m]; what stands on the ground reaches under it, so that nothing floats over a slope."""
    ground = world.ground(*shape.center)
    base = (ground if math.isfinite(ground) else terrain.lowest) + shape.base_m
    height = shape.size[1] if shape.kind == "billboard" else shape.height_m
    return (min(base, terrain.lowest) if shape.base_m <= 0.0 else base), base + height


def _painted_extent(shape: Shape, world: World, terrain: Terrain) -> tuple[float, float]:
    """Lowest and highest ground [m] the footprint can lie on."""
    x = [shape.center[0] + dx for dx, _ in _corners(shape)]
    y = [shape.center[1] + dy for _, dy in _corners(shape)]
    rows = _node_range(min(y), max(y), terrain.cell_m, terrain.nodes.shape[0])
    columns = _node_range(min(x), max(x), terrain.cell_m, terrain.nodes.shape[1])
    heights = terrain.nodes[rows, columns]
    heights = heights[np.isfinite(heights)]
    return (float(heights.min()), float(heights.max())) if heights.size else (terrain.lowest, terrain.lowest)


def _node_range(low: float, high: float, cell: float, count: int) -> slice:
    """Lattice nodes around [low, high], at least one on each side."""
    first = min(max(math.floor(low / cell + 0.5), 0), count - 1)
    last = min(max(math.ceil(high / cell + 0.5), 0), count - 1)
    return slice(first, last + 1)


def _corners(shape: Shape) -> list[tuple[float, float]]:
    if shape.kind == "triangle":
        around = [(x - shape.center[0], y - shape.center[1]) for x, y in shape.vertices]
        return [*around, around[2]]
    cosine, sine, half_x, half_y = _frame(shape)
    signs = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))
    return [(cosine * i * half_x - sine * j * half_y, sine * i * half_x + cosine * j * half_y) for i, j in signs]


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
    corners = _corners(shape)
    numbers = _edges(corners[:3]) if kind == TRIANGLE else list(_frame(shape))
    row = [float(kind), float(shape.class_id), bottom, top, *shape.center]
    row += [number for corner in corners for number in corner] + numbers
    return row + [0.0] * (_TABLE_WIDTH - len(row))


def _edges(corners: Sequence[tuple[float, float]]) -> list[float]:
    """Outward normals of a triangle's edges, whichever way its vertices run, each with its offset: n . p <= offset."""
    (ax, ay), (bx, by), (cx, cy) = corners
    turn = 1.0 if (bx - ax) * (cy - ay) - (by - ay) * (cx - ax) >= 0.0 else -1.0
    numbers = []
    for (x0, y0), (x1, y1) in (((ax, ay), (bx, by)), ((bx, by), (cx, cy)), ((cx, cy), (ax, ay))):
        normal_x, normal_y = turn * (y1 - y0), turn * (x0 - x1)
        numbers += [normal_x, normal_y, normal_x * x0 + normal_y * y0]
    return numbers


@kernel
def aim(
    pose: Pose, table: Array, column_bounds: Array, row_bounds: Array, coefficients: Array, spans: npt.NDArray[np.int64]
) -> None:
    """For every shape: coefficients for this camera pose, and the half-open spans of columns and rows it may cover.

    column_bounds (2, w): for each column the largest ray a of it and of those before, the smallest of it and of those
    after; row_bounds (2, h) likewise for b. They serve any distortion.
    """
    for n in range(table.shape[0]):
        shape = table[n]
        c = coefficients[n]
        if shape[KIND] == FACING:
            _turn_to(shape, pose[0], pose[1])
        x = pose[0] - shape[_X]
        y = pose[1] - shape[_Y]
        c[LOW] = shape[_BOTTOM] - pose[2]
        c[HIGH] = shape[_TOP] - pose[2]
        if shape[KIND] == TRIANGLE:
            for k in range(3):
                normal_x, normal_y = shape[_SHAPE + 3 * k], shape[_SHAPE + 3 * k + 1]
                _direction(pose, normal_x, normal_y, c, 3 * k)
                c[9 + k] = normal_x * x + normal_y * y - shape[_SHAPE + 3 * k + 2]  # how far the camera is outside
        else:
            cosine, sine, half_x, half_y = shape[_SHAPE], shape[_SHAPE + 1], shape[_SHAPE + 2], shape[_SHAPE + 3]
            _direction(pose, cosine, sine, c, 0)
            _direction(pose, -sine, cosine, c, 3)
            x, y = cosine * x + sine * y, cosine * y - sine * x
            if shape[KIND] == CIRCLE:
                c[6], c[7], c[8] = x, y, x * x + y * y - half_x * half_x
            else:
                c[6], c[7], c[8], c[9] = -half_x - x, half_x - x, -half_y - y, half_y - y
        a_low, a_high, b_low, b_high = _screen_bounds(pose, shape)
        spans[n, 0], spans[n, 1] = _span(column_bounds, a_low, a_high)
        spans[n, 2], spans[n, 3] = _span(row_bounds, b_low, b_high)


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
        shape[_CORNERS + 2 * k], shape[_CORNERS + 2 * k + 1] = -normal_y * side, normal_x * side


@kernel
def _direction(pose: Pose, x: float, y: float, coefficients: Array, at: int) -> None:
    """Factors of a, b and 1 in the component of a ray along the horizontal (x, y)."""
    for k in range(3):
        coefficients[at + k] = x * pose[3 + k] + y * pose[6 + k]


@kernel
def _screen_bounds(pose: Pose, shape: Array) -> tuple[float, float, float, float]:
    """Bounds of a and b over the rays that can hit the shape: its corners, and where its edges pass the eye's plane."""
    a_low, a_high, b_low, b_high = math.inf, -math.inf, math.inf, -math.inf
    for k in range(4):
        from_x = shape[_CORNERS + 2 * k] + shape[_X] - pose[0]
        from_y = shape[_CORNERS + 2 * k + 1] + shape[_Y] - pose[1]
        k1 = (k + 1) % 4
        to_x = shape[_CORNERS + 2 * k1] + shape[_X] - pose[0]
        to_y = shape[_CORNERS + 2 * k1 + 1] + shape[_Y] - pose[1]
        low = shape[_BOTTOM] - pose[2]
        high = shape[_TOP] - pose[2]
        for edge in range(3):  # bottom, top, upright
            z0 = high if edge == 1 else low
            z1 = low if edge == 0 else high
            x1, y1 = (from_x, from_y) if edge == 2 else (to_x, to_y)
            ahead0 = pose[5] * from_x + pose[8] * from_y + pose[11] * z0
            ahead1 = pose[5] * x1 + pose[8] * y1 + pose[11] * z1
            if ahead0 <= 0.0 and ahead1 <= 0.0:
                continue
            right0 = pose[3] * from_x + pose[6] * from_y + pose[9] * z0
            down0 = pose[4] * from_x + pose[7] * from_y + pose[10] * z0
            if ahead0 > 0.0:
                a_low, a_high = min(a_low, right0 / ahead0), max(a_high, right0 / ahead0)
                b_low, b_high = min(b_low, down0 / ahead0), max(b_high, down0 / ahead0)
            if ahead0 > 0.0 and ahead1 > 0.0:
                continue
            right1 = pose[3] * x1 + pose[6] * y1 + pose[9] * z1
            down1 = pose[4] * x1 + pose[7] * y1 + pose[10] * z1
            # The edge passes beside the eye: on that side the shape goes on to infinity.
            right = right0 * ahead1 - right1 * ahead0
            down = down0 * ahead1 - down1 * ahead0
            side = 1.0 if ahead1 > ahead0 else -1.0
            a_low = -math.inf if right * side <= 0.0 else a_low
            a_high = math.inf if right * side >= 0.0 else a_high
            b_low = -math.inf if down * side <= 0.0 else b_low
            b_high = math.inf if down * side >= 0.0 else b_high
    return a_low, a_high, b_low, b_high


@kernel
def _span(bounds: Array, low: float, high: float) -> tuple[int, int]:
    """Half-open range of the columns (or rows) whose rays can lie within [low, high], a little widened."""
    if low > high:
        return 0, 0
    low -= 1e-9 + 1e-9 * abs(low)
    high += 1e-9 + 1e-9 * abs(high)
    first, end = 0, bounds.shape[1]
    while first < end:
        middle = (first + end) >> 1
        if bounds[0, middle] < low:
            first = middle + 1
        else:
            end = middle
    begin = first
    end = bounds.shape[1]
    while first < end:
        middle = (first + end) >> 1
        if bounds[1, middle] <= high:
            first = middle + 1
        else:
            end = middle
    return begin, first
