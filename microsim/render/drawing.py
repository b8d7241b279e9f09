"""A frame, tile by tile: the ground, what is painted on it, then solids; the nearest surface wins. Robots come last.

The loops over the pixels of a row have no branches, so that LLVM turns them into SIMD. Rays that are NaN see nothing.
"""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import calls as _calls
from microsim.engine.compiled import inlined, kernel, threaded_kernel
from microsim.engine.geometry import Array, Grid
from microsim.render.relief import Surface, ground_classes, only_class, plane_depths
from microsim.render.screen import (
    TILE_COLUMNS,
    TILE_ROWS,
    TINY,
    Pose,
    Rays,
    ScreenIndex,
    Spans,
    between,
    column_span,
    into_body,
    inverse_of,
    row_span,
)
from microsim.render.shapes import CIRCLE, CLASS, HIGH, KIND, LOW, TRIANGLE, Shapes, aim

_room = _calls.room

Image: TypeAlias = npt.NDArray[np.uint8]  # (h, w, 3)
Instances: TypeAlias = npt.NDArray[np.uint16]  # (h, w) see `engine.world`; 0: none
Solids: TypeAlias = npt.NDArray[np.int32]  # (h, w) 1 + number of a standing shape, -1 - number of a part; 0: neither

_CELLS_OF_TILE, _CELLS_OF_FRAME = 256.0, 4096.0  # at most, that are looked at in place of pixels


@threaded_kernel
def draw(
    pose: Pose,
    ground_above_camera: float,
    is_plane: bool,
    needs_depths: bool,
    rays: Rays,
    tiles: Array,
    screen: ScreenIndex,
    surface: Surface,
    shapes: Shapes,
    inverse_dz: Array,
    depths: Array,
    classes: Grid,
) -> int:
    """Fill `classes` and, where they are needed, `depths` (h, w). `depths` holds the ground's, unless that is a plane.

    Tiles in which only one class can be seen are filled without a look at their pixels. If every pixel is known to show
    the same class, that is returned, and `classes` may be left as they were; otherwise -1. `tiles` are `tile_outlines`
    of the rays, `inverse_dz` is room to work in.
    """
    aim(pose, screen, shapes)
    common, filled = -1, 0
    (height, width), (_, _, _, spans) = classes.shape, shapes
    may_fill = is_plane and not needs_depths and ground_above_camera < 0.0
    if may_fill and not _meets_shape(spans, 0, width, 0, height):
        common = _only_class_of_all(pose, tiles, ground_above_camera, surface)
        if common >= 0:
            return common
    for band in range(tiles.shape[0]):
        top, bottom, begin = band * TILE_ROWS, min((band + 1) * TILE_ROWS, height), 0
        for k in range(tiles.shape[1]):
            left, right = k * TILE_COLUMNS, min((k + 1) * TILE_COLUMNS, width)
            if not may_fill or _meets_shape(spans, left, right, top, bottom):
                continue
            only = only_class(pose, tiles[band, k], ground_above_camera, surface, _CELLS_OF_TILE)
            if only < 0:
                continue
            if begin < left:
                _draw_part(
                    pose, ground_above_camera, is_plane, rays, surface, shapes, inverse_dz, depths, classes,
                    (top, bottom, begin, left),
                )  # fmt: skip
            begin = right
            common = only if filled == 0 or only == common else -1
            filled += 1
            for v in range(top, bottom):
                _fill(classes[v, left:right], only)
        if begin < width:
            _draw_part(
                pose, ground_above_camera, is_plane, rays, surface, shapes, inverse_dz, depths, classes,
                (top, bottom, begin, width),
            )  # fmt: skip
    return common if filled == tiles.shape[0] * tiles.shape[1] else -1


@kernel
def _only_class_of_all(pose: Pose, tiles: Array, ground_above_camera: float, surface: Surface) -> int:
    """`only_class` of the whole frame."""
    outline = _room(4)
    outline[0], outline[1], outline[2], outline[3] = math.inf, -math.inf, math.inf, -math.inf
    for band in range(tiles.shape[0]):
        for k in range(tiles.shape[1]):
            tile = tiles[band, k]
            if not tile[0] + tile[2] < math.inf:  # NaN: some pixels have no ray
                return -1
            outline[0], outline[1] = min(outline[0], tile[0]), max(outline[1], tile[1])
            outline[2], outline[3] = min(outline[2], tile[2]), max(outline[3], tile[3])
    return only_class(pose, outline, ground_above_camera, surface, _CELLS_OF_FRAME)


@inlined
def _fill(seen: Grid, class_id: int) -> None:
    for u in range(seen.shape[0]):
        seen[u] = class_id


@inlined
def _meets_shape(spans: Spans, left: int, right: int, top: int, bottom: int) -> bool:
    """True when a shape may be seen in these pixels."""
    for n in range(spans.shape[0]):
        if spans[n, 0] < right and left < spans[n, 1] and spans[n, 2] < bottom and top < spans[n, 3]:
            return True
    return False


@kernel
def _draw_part(
    pose: Pose,
    ground_above_camera: float,
    is_plane: bool,
    rays: Rays,
    surface: Surface,
    shapes: Shapes,
    inverse_dz: Array,
    depths: Array,
    classes: Grid,
    part: tuple[int, int, int, int],
) -> None:
    """Pixel by pixel, from row `top` to `bottom` and from column `left` to `right`."""
    table, painted, coefficients, spans = shapes
    top, bottom, left, right = part
    for v in range(top, bottom):
        ray_x, ray_y, room = rays[0, v, left:right], rays[1, v, left:right], inverse_dz[left:right]
        depth, seen = depths[v, left:right], classes[v, left:right]
        draw_row(
            pose, ground_above_camera, is_plane, ray_x, ray_y, surface, table, painted, coefficients, spans, room,
            depth, seen, v, left,
        )  # fmt: skip


@inlined
def draw_row(
    pose: Pose,
    ground_above_camera: float,
    is_plane: bool,
    ray_x: Array,
    ray_y: Array,
    surface: Surface,
    table: Array,
    painted: int,
    coefficients: Array,
    spans: Spans,
    inverse_dz: Array,
    depth: Array,
    seen: Grid,
    v: int,
    left: int,
) -> None:
    """Neighbouring pixels of row v, from column `left` on: as many as `seen` has."""
    _inverse_dz(pose, ray_x, ray_y, inverse_dz)
    if is_plane:
        plane_depths(inverse_dz, ground_above_camera, depth)
    ground_classes(pose, ray_x, ray_y, depth, surface, seen)
    for n in range(table.shape[0]):
        u0, u1 = max(spans[n, 0] - left, 0), min(spans[n, 1] - left, seen.shape[0])
        if spans[n, 2] <= v < spans[n, 3] and u0 < u1:
            kind, class_id, c = table[n, KIND], np.uint8(table[n, CLASS]), coefficients[n]
            if n < painted:
                _paint(kind, c, ray_x[u0:u1], ray_y[u0:u1], depth[u0:u1], class_id, seen[u0:u1])
                continue
            x, y, z, d, s = ray_x[u0:u1], ray_y[u0:u1], inverse_dz[u0:u1], depth[u0:u1], seen[u0:u1]
            _cover(kind, c, x, y, z, d, class_id, s)


@kernel
def number_obstacles(
    pose: Pose, rays: Rays, shapes: Shapes, count: int, first: int, room: Array, depths: Array, numbers: Instances
) -> None:
    """Which obstacle each pixel of a finished frame sees, counted from `first`; 0: none.

    Obstacles alone are covered again, with the same arithmetic: one is seen where its depth is that of the frame.
    `room` (2, w) is room to work in.
    """
    table, painted, coefficients, spans = shapes
    inverse_dz, near = room[0], room[1]
    for v in range(depths.shape[0]):
        ray_x, ray_y, seen = rays[0, v], rays[1, v], numbers[v]
        near[:], seen[:] = math.inf, 0
        _inverse_dz(pose, ray_x, ray_y, inverse_dz)
        for n in range(painted, painted + count):
            u0, u1 = spans[n, 0], spans[n, 1]
            if spans[n, 2] <= v < spans[n, 3] and u0 < u1:
                x, y, z, d, s = ray_x[u0:u1], ray_y[u0:u1], inverse_dz[u0:u1], near[u0:u1], seen[u0:u1]
                _cover(table[n, KIND], coefficients[n], x, y, z, d, np.uint16(first + n - painted), s)
        for u in range(seen.shape[0]):
            seen[u] = seen[u] if near[u] == depths[v, u] else 0


@kernel
def _inverse_dz(pose: Pose, ray_x: Array, ray_y: Array, inverse_dz: Array) -> None:
    for u in range(inverse_dz.shape[0]):
        inverse_dz[u] = inverse_of(pose[9] * ray_x[u] + pose[10] * ray_y[u] + pose[11])


@kernel
def _paint(kind: float, c: Array, ray_x: Array, ray_y: Array, depth: Array, class_id: int, seen: Grid) -> None:
    """Give the class to the pixels of a row whose ground is in the footprint; depth is that of the ground."""
    if kind == CIRCLE:
        for u in range(seen.shape[0]):
            a, b, t = ray_x[u], ray_y[u], depth[u]
            dx = c[0] * a + c[1] * b + c[2]
            dy = c[3] * a + c[4] * b + c[5]
            power = t * (t * (dx * dx + dy * dy) + 2.0 * (c[6] * dx + c[7] * dy)) + c[8]
            seen[u] = class_id if (power <= 0.0) & (t < math.inf) else seen[u]
    elif kind == TRIANGLE:
        for u in range(seen.shape[0]):
            a, b, t = ray_x[u], ray_y[u], depth[u]
            outside0 = c[9] + t * (c[0] * a + c[1] * b + c[2])
            outside1 = c[10] + t * (c[3] * a + c[4] * b + c[5])
            outside2 = c[11] + t * (c[6] * a + c[7] * b + c[8])
            inside = (outside0 <= 0.0) & (outside1 <= 0.0) & (outside2 <= 0.0) & (t < math.inf)
            seen[u] = class_id if inside else seen[u]
    else:
        for u in range(seen.shape[0]):
            a, b, t = ray_x[u], ray_y[u], depth[u]
            x = t * (c[0] * a + c[1] * b + c[2])
            y = t * (c[3] * a + c[4] * b + c[5])
            inside = (c[6] <= x) & (x <= c[7]) & (c[8] <= y) & (y <= c[9]) & (t < math.inf)
            seen[u] = class_id if inside else seen[u]


# A solid gives its class and depth to the pixels where it is nearer than what was seen so far. It is where all its
# slabs or half-planes overlap. One that holds the camera hides everything, at depth 0.


@kernel
def _cover(
    kind: float, c: Array, ray_x: Array, ray_y: Array, inverse_dz: Array, depth: Array, class_id: int, seen: Grid
) -> None:
    if kind == CIRCLE:
        _cover_with_cylinder(c, ray_x, ray_y, inverse_dz, depth, class_id, seen)
    elif kind == TRIANGLE:
        _cover_with_prism(c, ray_x, ray_y, inverse_dz, depth, class_id, seen)
    else:
        _cover_with_box(c, ray_x, ray_y, inverse_dz, depth, class_id, seen)


@kernel
def _cover_with_box(
    c: Array, ray_x: Array, ray_y: Array, inverse_dz: Array, depth: Array, class_id: int, seen: Grid
) -> None:
    for u in range(seen.shape[0]):
        a, b = ray_x[u], ray_y[u]
        enter, leave = between(c[LOW], c[HIGH], inverse_dz[u])
        near, far = between(c[6], c[7], inverse_of(c[0] * a + c[1] * b + c[2]))
        enter = near if near > enter else enter
        leave = far if far < leave else leave
        near, far = between(c[8], c[9], inverse_of(c[3] * a + c[4] * b + c[5]))
        enter = near if near > enter else enter
        leave = far if far < leave else leave
        hit = (enter <= leave) & (leave > 0.0) & (enter < depth[u]) & (depth[u] > 0.0)
        depth[u] = (enter if enter > 0.0 else 0.0) if hit else depth[u]
        seen[u] = class_id if hit else seen[u]


@kernel
def _cover_with_cylinder(
    c: Array, ray_x: Array, ray_y: Array, inverse_dz: Array, depth: Array, class_id: int, seen: Grid
) -> None:
    for u in range(seen.shape[0]):
        a, b = ray_x[u], ray_y[u]
        enter, leave = between(c[LOW], c[HIGH], inverse_dz[u])
        dx = c[0] * a + c[1] * b + c[2]
        dy = c[3] * a + c[4] * b + c[5]
        square = dx * dx + dy * dy
        square = square if square > TINY else TINY
        half = c[6] * dx + c[7] * dy
        discriminant = half * half - square * c[8]
        meets = discriminant >= 0.0
        root = math.sqrt(discriminant if meets else 0.0)
        inverse = 1.0 / square
        near = (-half - root) * inverse
        far = (root - half) * inverse
        enter = near if near > enter else enter
        leave = far if far < leave else leave
        hit = meets & (enter <= leave) & (leave > 0.0) & (enter < depth[u]) & (depth[u] > 0.0)
        depth[u] = (enter if enter > 0.0 else 0.0) if hit else depth[u]
        seen[u] = class_id if hit else seen[u]


@kernel
def _cover_with_prism(
    c: Array, ray_x: Array, ray_y: Array, inverse_dz: Array, depth: Array, class_id: int, seen: Grid
) -> None:
    for u in range(seen.shape[0]):
        a, b = ray_x[u], ray_y[u]
        enter, leave = between(c[LOW], c[HIGH], inverse_dz[u])
        for k in range(3):
            outward = c[3 * k] * a + c[3 * k + 1] * b + c[3 * k + 2]
            outward = outward if outward != 0.0 else TINY
            t = -c[9 + k] / outward
            enter = t if (outward < 0.0) & (t > enter) else enter
            leave = t if (outward > 0.0) & (t < leave) else leave
        hit = (enter <= leave) & (leave > 0.0) & (enter < depth[u]) & (depth[u] > 0.0)
        depth[u] = (enter if enter > 0.0 else 0.0) if hit else depth[u]
        seen[u] = class_id if hit else seen[u]


def coloured(classes: Grid, palette: Grid) -> Image:
    """A new image of the classes' colours."""
    image: Image = np.empty((*classes.shape, 3), np.uint8)
    colour_rows(classes, palette, image.reshape(len(image), -1))
    return image


@threaded_kernel
def colour_rows(classes: Grid, palette: Grid, rows: Grid) -> None:
    """rows (h, 3 w): red, green, blue, red, … Stretches of one class are copied from a bar of its colour."""
    height, width = classes.shape
    bars = np.empty((palette.shape[0], 3 * TILE_COLUMNS), np.uint8)
    for class_id in range(palette.shape[0]):
        for i in range(bars.shape[1]):
            bars[class_id, i] = palette[class_id, i % 3]
    for v in range(height):
        for left in range(0, width, TILE_COLUMNS):
            seen = classes[v, left : min(left + TILE_COLUMNS, width)]
            numbers, bar, others = rows[v, 3 * left : 3 * (left + seen.shape[0])], bars[seen[0]], np.uint8(0)
            for u in range(seen.shape[0]):
                others = np.uint8(others | (seen[u] ^ seen[0]))
            if others == 0:
                for i in range(numbers.shape[0]):
                    numbers[i] = bar[i]
                continue
            for u in range(seen.shape[0]):
                for channel in range(3):
                    numbers[3 * u + channel] = palette[seen[u], channel]


@kernel
def draw_bodies(pose: Pose, rays: Rays, bodies: Array, class_id: int, depths: Array, classes: Grid) -> None:
    """Give `class_id` and its depth to the pixels in which a body is nearer than what was seen so far.

    bodies (n, 15): see `into_body`.
    """
    eye = (pose[0], pose[1], pose[2])
    for n in range(bodies.shape[0]):
        body = bodies[n]
        a_low, a_high, b_low, b_high = bounds_of_body(pose, body)
        for v in range(depths.shape[0]):
            for u in range(depths.shape[1]):
                a, b = rays[0, v, u], rays[1, v, u]
                if (a >= a_low) & (a <= a_high) & (b >= b_low) & (b <= b_high):
                    ray = (pose[3] * a + pose[4] * b + pose[5], pose[6] * a + pose[7] * b + pose[8])
                    depth = into_body(body, eye, (*ray, pose[9] * a + pose[10] * b + pose[11]))
                    if depth < depths[v, u]:
                        depths[v, u], classes[v, u] = depth, class_id


@kernel
def pixels_of_body(pose: Pose, screen: ScreenIndex, body: Array) -> tuple[int, int, int, int]:
    """First and end column, first and end row, of the pixels that can see the body."""
    scale, columns, rows = screen
    a_low, a_high, b_low, b_high = bounds_of_body(pose, body)
    first, last = column_span(scale, columns, a_low, a_high)
    top, bottom = row_span(scale, rows, b_low, b_high)
    return first, last, top, bottom


@kernel
def bounds_of_body(pose: Pose, body: Array) -> tuple[float, float, float, float]:
    """Lowest and highest a, then b, of the rays that can meet the body; unbounded when part of it is beside the eye."""
    a_low, a_high, b_low, b_high = math.inf, -math.inf, math.inf, -math.inf
    for corner in range(8):
        x = body[12] if corner & 1 else -body[12]
        y = body[13] if corner & 2 else -body[13]
        z = body[14] if corner & 4 else -body[14]
        dx = body[0] + body[3] * x + body[4] * y + body[5] * z - pose[0]
        dy = body[1] + body[6] * x + body[7] * y + body[8] * z - pose[1]
        dz = body[2] + body[9] * x + body[10] * y + body[11] * z - pose[2]
        ahead = pose[5] * dx + pose[8] * dy + pose[11] * dz
        if ahead <= 1e-3:
            return -math.inf, math.inf, -math.inf, math.inf
        a = (pose[3] * dx + pose[6] * dy + pose[9] * dz) / ahead
        b = (pose[4] * dx + pose[7] * dy + pose[10] * dz) / ahead
        a_low, a_high, b_low, b_high = min(a_low, a), max(a_high, a), min(b_low, b), max(b_high, b)
    return a_low, a_high, b_low, b_high
