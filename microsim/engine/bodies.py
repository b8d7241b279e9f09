"""Bodies: robots as boxes, as others see them and as they touch things.

What bodies touch is another box, an upright cylinder or a triangle. Two things overlap when they share a volume: what
only touches at a face does not.
"""

import math
from dataclasses import dataclass
from typing import Any

from microsim.engine import exact
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Vector
from microsim.engine.motion import Motion, mounted_at, turned
from microsim.engine.records import VEC3, Record, record, record_room

_sincos = exact.sincos
_wrap_angle = exact.wrap_angle

MATRIX = (float, (3, 3))

POSE = record(place=VEC3, yaw=float, roll=float, pitch=float)  # [m], [rad]
BODY = record(center=VEC3, half=VEC3, reach=float)  # [m] base_link; `reach`: radius about base_link that holds it all

BOX, CYLINDER, TRIANGLE = range(3)
SOLID = record(
    kind=int,
    middle=VEC3,  # [m]; of a cylinder and a box
    axes=MATRIX,  # of a box: from its own axes to the map's
    half=VEC3,  # [m] half its size; of a cylinder: its radius, and half its height
    corners=MATRIX,  # [m] of a triangle, a row each
)

_pose_room, _solid_room, _triangle_room = record_room(POSE), record_room(SOLID), record_room(record(numbers=MATRIX))

_HALVINGS = 32  # of the way to the first touch: what is left of a metre is below a nanometre
_MOST_STEPS = 256  # in which a tick's way is looked at
_PARALLEL = 1e-9  # squared length of the product of two axes that are as good as parallel


@dataclass(frozen=True)
class Body:
    """A box fixed to its base_link."""

    center: Vector  # [m] base_link
    size: Vector  # [m] along the axes of base_link

    def row(self) -> tuple[Any, ...]:
        """A `BODY`."""
        half = (0.5 * self.size[0], 0.5 * self.size[1], 0.5 * self.size[2])
        far = [abs(middle) + reach for middle, reach in zip(self.center, half, strict=True)]
        return self.center, half, math.sqrt(sum(each * each for each in far))


def body_row(motion: Motion, body: Body) -> tuple[float, ...]:
    """The box of a robot: 15 numbers, its middle, the rows of its axes and half its size."""
    axes = turned(motion, ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)))
    half = (0.5 * body.size[0], 0.5 * body.size[1], 0.5 * body.size[2])
    return (*mounted_at(motion, body.center), *axes[0], *axes[1], *axes[2], *half)


@kernel
def put_box(pose: Record, body: Record, box: Record) -> None:
    """The box of a body whose base_link is at a pose."""
    axes, middle, half, center = box.axes, box.middle, box.half, body.center
    sy, cy = _sincos(pose.yaw)
    sr, cr, sp, cp = 0.0, 1.0, 0.0, 1.0
    if pose.roll != 0.0 or pose.pitch != 0.0:
        sr, cr = _sincos(pose.roll)
        sp, cp = _sincos(pose.pitch)
    axes[0, 0], axes[0, 1], axes[0, 2] = cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr
    axes[1, 0], axes[1, 1], axes[1, 2] = sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr
    axes[2, 0], axes[2, 1], axes[2, 2] = -sp, cp * sr, cp * cr
    for k in range(3):
        middle[k] = pose.place[k] + (axes[k, 0] * center[0] + axes[k, 1] * center[1] + axes[k, 2] * center[2])
        half[k] = body.half[k]
    box.kind = BOX


@kernel
def _is_apart(a: Record, b: Record, x: float, y: float, z: float, margin: float) -> bool:
    """Whether two boxes are farther apart than the margin along a direction."""
    reach, own, others = 0.0, a.axes, b.axes
    for k in range(3):
        reach += a.half[k] * abs(own[0, k] * x + own[1, k] * y + own[2, k] * z)
        reach += b.half[k] * abs(others[0, k] * x + others[1, k] * y + others[2, k] * z)
    to, start = b.middle, a.middle
    return abs((to[0] - start[0]) * x + (to[1] - start[1]) * y + (to[2] - start[2]) * z) >= reach + margin


@kernel
def boxes_meet(a: Record, b: Record, margin: float) -> bool:
    """Whether two boxes overlap or are nearer than the margin, by the theorem of separating axes."""
    own, others = a.axes, b.axes
    for k in range(3):
        if _is_apart(a, b, own[0, k], own[1, k], own[2, k], margin) or _is_apart(
            a, b, others[0, k], others[1, k], others[2, k], margin
        ):
            return False
    for i in range(3):
        for j in range(3):
            x = own[1, i] * others[2, j] - own[2, i] * others[1, j]
            y = own[2, i] * others[0, j] - own[0, i] * others[2, j]
            z = own[0, i] * others[1, j] - own[1, i] * others[0, j]
            square = x * x + y * y + z * z
            if square > _PARALLEL and _is_apart(a, b, x, y, z, margin * math.sqrt(square)):
                return False
    return True


@kernel
def _meets_cylinder(box: Record, cylinder: Record, margin: float) -> bool:
    """Exact for a level box; a leaning one counts as the level one that is as high and as long along its own axes."""
    axes, half, radius = box.axes, box.half, cylinder.half[0]
    tall = half[0] * abs(axes[2, 0]) + half[1] * abs(axes[2, 1]) + half[2] * abs(axes[2, 2])
    if abs(box.middle[2] - cylinder.middle[2]) >= tall + cylinder.half[2] + margin:
        return False
    dx, dy = cylinder.middle[0] - box.middle[0], cylinder.middle[1] - box.middle[1]
    length = math.sqrt(axes[0, 0] * axes[0, 0] + axes[1, 0] * axes[1, 0])
    if length == 0.0:
        return dx * dx + dy * dy < (radius + margin) * (radius + margin)
    cosine, sine = axes[0, 0] / length, axes[1, 0] / length
    along = max(abs(cosine * dx + sine * dy) - half[0], 0.0)
    across = max(abs(cosine * dy - sine * dx) - half[1], 0.0)
    return along * along + across * across < (radius + margin) * (radius + margin)


@kernel
def _misses(p: Any, reach: float, x: float, y: float, z: float) -> bool:
    """Whether a triangle p (3, 3) about the middle of a box is beyond the box's reach along a direction."""
    a, b = x * p[0, 0] + y * p[0, 1] + z * p[0, 2], x * p[1, 0] + y * p[1, 1] + z * p[1, 2]
    c = x * p[2, 0] + y * p[2, 1] + z * p[2, 2]
    # a direction without a length, from an edge along an axis of the box, shows nothing
    return reach > 0.0 and (min(a, b, c) >= reach or max(a, b, c) <= -reach)


@kernel
def _meets_triangle(box: Record, triangle: Record, margin: float) -> bool:
    """By the theorem of separating axes, in the axes of the box."""
    p, e, axes, middle = _triangle_room().numbers, _triangle_room().numbers, box.axes, box.middle
    for corner in range(3):
        x, y = triangle.corners[corner, 0] - middle[0], triangle.corners[corner, 1] - middle[1]
        z = triangle.corners[corner, 2] - middle[2]
        for k in range(3):
            p[corner, k] = axes[0, k] * x + axes[1, k] * y + axes[2, k] * z
    hx, hy, hz = box.half[0] + margin, box.half[1] + margin, box.half[2] + margin
    if _misses(p, hx, 1.0, 0.0, 0.0) or _misses(p, hy, 0.0, 1.0, 0.0) or _misses(p, hz, 0.0, 0.0, 1.0):
        return False
    for corner in range(3):  # edges
        for k in range(3):
            e[corner, k] = p[(corner + 1) % 3, k] - p[corner, k]
    nx, ny = e[0, 1] * e[1, 2] - e[0, 2] * e[1, 1], e[0, 2] * e[1, 0] - e[0, 0] * e[1, 2]
    nz = e[0, 0] * e[1, 1] - e[0, 1] * e[1, 0]
    distance = nx * p[0, 0] + ny * p[0, 1] + nz * p[0, 2]
    if abs(distance) > hx * abs(nx) + hy * abs(ny) + hz * abs(nz):
        return False
    for corner in range(3):
        x, y, z = e[corner, 0], e[corner, 1], e[corner, 2]
        if (
            _misses(p, hy * abs(z) + hz * abs(y), 0.0, -z, y)
            or _misses(p, hx * abs(z) + hz * abs(x), z, 0.0, -x)
            or _misses(p, hx * abs(y) + hy * abs(x), -y, x, 0.0)
        ):
            return False
    return True


@kernel
def meets(box: Record, solid: Record, margin: float) -> bool:
    """Whether a body overlaps a solid, or is nearer than the margin."""
    if solid.kind == BOX:
        return boxes_meet(box, solid, margin)
    if solid.kind == CYLINDER:
        return _meets_cylinder(box, solid, margin)
    return _meets_triangle(box, solid, margin)


@kernel
def pose_between(start: Record, end: Record, share: float, pose: Record) -> None:
    """The pose after a share of the way."""
    for k in range(3):
        pose.place[k] = end.place[k] if share == 1.0 else start.place[k] + (end.place[k] - start.place[k]) * share
    yaw, roll = _wrap_angle(end.yaw - start.yaw), _wrap_angle(end.roll - start.roll)
    pitch = _wrap_angle(end.pitch - start.pitch)
    pose.yaw = end.yaw if share == 1.0 else start.yaw + yaw * share
    pose.roll = end.roll if share == 1.0 else start.roll + roll * share
    pose.pitch = end.pitch if share == 1.0 else start.pitch + pitch * share


@kernel
def first_touch(start: Record, end: Record, body: Record, solid: Record) -> float:
    """The share of a way after which a body begins to overlap a solid; -1: it does from the start; 2: it does not.

    Looked at in steps so short that nothing is passed through.
    """
    pose, box = _pose_room(), _solid_room()
    put_box(start, body, box)
    if meets(box, solid, 0.0):
        return -1.0
    dx, dy, dz = end.place[0] - start.place[0], end.place[1] - start.place[1], end.place[2] - start.place[2]
    far = math.sqrt(dx * dx + dy * dy + dz * dz) + abs(_wrap_angle(end.yaw - start.yaw)) * body.reach
    steps = int(min(far / max(min(body.half[0], body.half[1], body.half[2]), 1e-3), _MOST_STEPS - 1.0)) + 1
    low = 0.0
    for k in range(1, steps + 1):
        high = k / steps
        pose_between(start, end, high, pose)
        put_box(pose, body, box)
        if meets(box, solid, 0.0):
            for _ in range(_HALVINGS):
                middle = 0.5 * (low + high)
                pose_between(start, end, middle, pose)
                put_box(pose, body, box)
                if meets(box, solid, 0.0):
                    high = middle
                else:
                    low = middle
            return low
        low = high
    return 2.0
