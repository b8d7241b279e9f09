"""Rays from one point that form a screen, against the things of a tree: the pixels of a camera, a sector of a LiDAR.

Boxes of the tree are laid over the screen, and only the rays within a leaf's outline are tried against its things.
Distances are float64 from + - * / alone, and of two things at one distance the one with the smaller number is hit: the
answer depends neither on the tree nor on the processor.
"""

import math

import numpy as np

from microsim.engine.compiled import inlined, kernel
from microsim.engine.geometry import Array, Grid
from microsim.rays.bvh import BOX, NOTHING, Numbers, Tree
from microsim.render.screen import (
    Pose,
    Rays,
    Scale,
    ScreenIndex,
    Spans,
    between,
    bounds,
    column_span,
    inverse_of,
    row_span,
    whole_groups,
)

_NEAR = 1e-3  # [m] before the eye: what reaches nearer is projected with more care
_LOOK = 1024  # rays that are looked at to see whether all that a node can hide behind is nearer


@kernel
def draw_mesh(
    pose: Pose,
    rays: Rays,
    screen: ScreenIndex,
    longest: float,
    tree: Tree,
    class_id: int,
    directions: Array,
    hit: Numbers,
    depths: Array,
    classes: Grid,
) -> None:
    """Give `class_id` and its depth to the pixels of a camera in which the mesh is nearer than what was seen so far.

    Directions are those of depth 1, so that distances along them are depths. `directions` (3, h, w) and `hit` (h, w)
    are room to work in.
    """
    height, width = depths.shape
    for v in range(height):
        for u in range(width):
            a, b = rays[0, v, u], rays[1, v, u]
            for k in range(3):
                directions[k, v, u] = pose[3 + 3 * k] * a + pose[4 + 3 * k] * b + pose[5 + 3 * k]
            hit[v, u] = NOTHING
    cast(tree, pose, screen, 1e300, longest, directions, depths, hit)
    for v in range(height):
        for u in range(width):
            classes[v, u] = class_id if hit[v, u] != NOTHING else classes[v, u]


@kernel
def cast(
    tree: Tree, pose: Pose, screen: ScreenIndex, limit: float, longest: float, rays: Array, best: Array, hit: Numbers
) -> None:
    """Nearest things along the rays from the pose's place, for distances below `best`.

    rays (3, h, w) are directions in the map frame, none longer than `longest`; NaN sees nothing. The screen is that of
    their a and b in the pose's axes, which have been clamped to +-`limit`. `best` (h, w) [units of the directions] and
    `hit`, the thing's number, are updated where something nearer is.
    """
    boxes, first, held, order, triangles, solids = tree
    scale, columns, rows = screen
    stack = np.empty(130, np.int32)  # a node's depth and one
    prism = np.empty(10)
    size, stack[0] = 1, 0
    while size > 0:
        size -= 1
        node = stack[size]
        box = boxes[node]
        u0, u1, v0, v1 = _window(scale, columns, rows, limit, _outline(pose, box, prism))
        v1 = min(v1, best.shape[0])
        if u0 >= u1 or v0 >= v1 or not _may_be_seen(pose, box, longest, u0, u1, v0, v1, best):
            continue
        if held[node] == 0:
            a, b = first[node], first[node] + 1
            if _towards(pose, boxes[a]) > _towards(pose, boxes[b]):
                a, b = b, a
            stack[size], stack[size + 1] = b, a  # the nearer one is taken first: it hides parts of the other
            size += 2
            continue
        for k in range(first[node], first[node] + held[node]):
            thing = order[k]
            if thing < triangles.shape[0]:
                triangle = triangles[thing]
                left, right, low, high = _window(scale, columns, rows, limit, _outline_of_triangle(pose, triangle))
                left, right, low, high = max(left, u0), min(right, u1), max(low, v0), min(high, v1)
                if left < right and low < high:
                    left, right = whole_groups(left, right, best.shape[1])
                    _triangle(triangle, thing, pose, rays, left, right, low, high, best, hit)
            else:
                _solid(solids[thing - triangles.shape[0]], thing, pose, rays, u0, u1, v0, v1, best, hit)


@inlined
def _window(
    scale: Scale, columns: Spans, rows: Spans, limit: float, outline: tuple[float, float, float, float]
) -> tuple[int, int, int, int]:
    """Half-open ranges of the columns and rows that can see something within an outline."""
    a_low, a_high, b_low, b_high = outline
    if a_low > a_high:
        return 0, 0, 0, 0
    u0, u1 = column_span(scale, columns, _clamped(a_low, limit), _clamped(a_high, limit))
    v0, v1 = row_span(scale, rows, _clamped(b_low, limit), _clamped(b_high, limit))
    return u0, u1, v0, v1


@inlined
def _clamped(value: float, limit: float) -> float:
    return min(max(value, -limit), limit)


@inlined
def _towards(pose: Pose, box: Array) -> float:
    """How far along the view the middle of a box is, but for a constant."""
    return (box[0] + box[3]) * pose[5] + (box[1] + box[4]) * pose[8] + (box[2] + box[5]) * pose[11]


@inlined
def _may_be_seen(pose: Pose, box: Array, longest: float, u0: int, u1: int, v0: int, v1: int, best: Array) -> bool:
    """False when each of these rays ends before it could reach the box."""
    if (u1 - u0) * (v1 - v0) > _LOOK:
        return True
    x = max(box[0] - pose[0], pose[0] - box[3], 0.0)
    y = max(box[1] - pose[1], pose[1] - box[4], 0.0)
    z = max(box[2] - pose[2], pose[2] - box[5], 0.0)
    near = 0.999999 * math.sqrt(x * x + y * y + z * z) / longest
    for v in range(v0, v1):
        beyond = 0
        for u in range(u0, u1):
            beyond += 1 if best[v, u] >= near else 0
        if beyond > 0:
            return True
    return False


@inlined
def _outline(pose: Pose, box: Array, prism: Array) -> tuple[float, float, float, float]:
    """Lowest and highest a, then b, of the rays that can hit a box; (inf, -inf, inf, -inf) when all is behind."""
    x0, y0, z0 = box[0] - pose[0], box[1] - pose[1], box[2] - pose[2]
    x1, y1, z1 = box[3] - pose[0], box[4] - pose[1], box[5] - pose[2]
    nearest, farthest = _extent(pose[5], pose[8], pose[11], x0, y0, z0, x1, y1, z1)
    if farthest < -_NEAR:
        return math.inf, -math.inf, math.inf, -math.inf
    if nearest < _NEAR:
        prism[0], prism[1] = box[2], box[5]
        prism[2], prism[3], prism[4], prism[5] = box[0], box[1], box[3], box[1]
        prism[6], prism[7], prism[8], prism[9] = box[3], box[4], box[0], box[4]
        return bounds(pose, prism)
    # Rather the least and the most of each coordinate than eight corners: a little wide, and with two divisions.
    right, most_right = _extent(pose[3], pose[6], pose[9], x0, y0, z0, x1, y1, z1)
    down, most_down = _extent(pose[4], pose[7], pose[10], x0, y0, z0, x1, y1, z1)
    per_near, per_far = 1.0 / nearest, 1.0 / farthest
    return (
        right * (per_near if right < 0.0 else per_far),
        most_right * (per_far if most_right < 0.0 else per_near),
        down * (per_near if down < 0.0 else per_far),
        most_down * (per_far if most_down < 0.0 else per_near),
    )


@inlined
def _extent(
    p: float, q: float, r: float, x0: float, y0: float, z0: float, x1: float, y1: float, z1: float
) -> tuple[float, float]:
    """The least and the most that p x + q y + r z is in a box."""
    a, b, c, d, e, f = p * x0, p * x1, q * y0, q * y1, r * z0, r * z1
    return min(a, b) + min(c, d) + min(e, f), max(a, b) + max(c, d) + max(e, f)


@inlined
def _widened(
    outline: tuple[float, float, float, float], pose: Pose, x: float, y: float, z: float, ahead: float
) -> tuple[float, float, float, float]:
    """An outline that also holds a point, given from the eye, that is so far ahead."""
    per_ahead = 1.0 / ahead
    a = (pose[3] * x + pose[6] * y + pose[9] * z) * per_ahead
    b = (pose[4] * x + pose[7] * y + pose[10] * z) * per_ahead
    return min(outline[0], a), max(outline[1], a), min(outline[2], b), max(outline[3], b)


@inlined
def _outline_of_triangle(pose: Pose, triangle: Array) -> tuple[float, float, float, float]:
    """As `_outline`; without bounds when the triangle reaches beside the eye, where its box has to do."""
    x, y, z = triangle[0] - pose[0], triangle[1] - pose[1], triangle[2] - pose[2]
    outline = (math.inf, -math.inf, math.inf, -math.inf)
    for corner in range(3):
        k = 3 * corner
        cx = x + triangle[k] if corner > 0 else x
        cy = y + triangle[k + 1] if corner > 0 else y
        cz = z + triangle[k + 2] if corner > 0 else z
        ahead = pose[5] * cx + pose[8] * cy + pose[11] * cz
        if ahead < _NEAR:
            return -math.inf, math.inf, -math.inf, math.inf
        outline = _widened(outline, pose, cx, cy, cz, ahead)
    return outline


@inlined
def _triangle(
    triangle: Array, number: int, pose: Pose, rays: Array, u0: int, u1: int, v0: int, v1: int, best: Array, hit: Numbers
) -> None:
    """Möller and Trumbore's test; seen from both sides, edges belong to it."""
    ax, ay, az = triangle[3], triangle[4], triangle[5]
    bx, by, bz = triangle[6], triangle[7], triangle[8]
    sx, sy, sz = pose[0] - triangle[0], pose[1] - triangle[1], pose[2] - triangle[2]
    qx, qy, qz = sy * az - sz * ay, sz * ax - sx * az, sx * ay - sy * ax  # s x a
    height = bx * qx + by * qy + bz * qz
    for v in range(v0, v1):
        dx, dy, dz = rays[0, v, u0:u1], rays[1, v, u0:u1], rays[2, v, u0:u1]
        nearest, number_there = best[v, u0:u1], hit[v, u0:u1]
        for r in range(dx.shape[0]):
            px = dy[r] * bz - dz[r] * by
            py = dz[r] * bx - dx[r] * bz
            pz = dx[r] * by - dy[r] * bx
            determinant = ax * px + ay * py + az * pz
            inverse = inverse_of(determinant)
            u = (sx * px + sy * py + sz * pz) * inverse
            w = (dx[r] * qx + dy[r] * qy + dz[r] * qz) * inverse
            t = height * inverse
            inside = (u >= 0.0) & (w >= 0.0) & (u + w <= 1.0) & (determinant != 0.0) & (t > 0.0)
            nearer = inside & ((t < nearest[r]) | ((t == nearest[r]) & (number < number_there[r])))
            nearest[r] = t if nearer else nearest[r]
            number_there[r] = number if nearer else number_there[r]


@kernel
def _solid(
    solid: Array, number: int, pose: Pose, rays: Array, u0: int, u1: int, v0: int, v1: int, best: Array, hit: Numbers
) -> None:
    """An upright box or cylinder; one that holds the eye is not seen from within."""
    cosine, sine = solid[5], solid[6]
    x = cosine * (pose[0] - solid[1]) + sine * (pose[1] - solid[2])
    y = cosine * (pose[1] - solid[2]) - sine * (pose[0] - solid[1])
    low, high = solid[3] - pose[2], solid[4] - pose[2]
    for v in range(v0, v1):
        for u in range(u0, u1):
            dx, dy, dz = rays[0, v, u], rays[1, v, u], rays[2, v, u]
            near, far = between(low, high, inverse_of(dz))
            along = cosine * dx + sine * dy
            across = cosine * dy - sine * dx
            if solid[0] == BOX:
                a, b = between(-solid[7] - x, solid[7] - x, inverse_of(along))
                near, far = max(near, a), min(far, b)
                a, b = between(-solid[8] - y, solid[8] - y, inverse_of(across))
                near, far = max(near, a), min(far, b)
            else:
                square = max(along * along + across * across, 1e-300)
                half = x * along + y * across
                power = half * half - square * (x * x + y * y - solid[7] * solid[7])
                root = math.sqrt(max(power, 0.0))
                near = max(near, (-half - root) / square)
                far = min(far, (root - half) / square) if power >= 0.0 else -math.inf
            if near <= far and near > 0.0 and (near < best[v, u] or (near == best[v, u] and number < hit[v, u])):
                best[v, u], hit[v, u] = near, number
