"""Bodies: robots as boxes, as others see them and as they touch things.

A box is a row of 15 numbers: its middle [m], the rows of the matrix from its own axes to the map's, half its size [m].
What bodies touch is another box, an upright cylinder (x, y, z of its middle, radius, half its height) or a triangle
(three points). Two things overlap when they share a volume: what only touches at a face does not.
"""

import math
from dataclasses import dataclass

from microsim.engine import exact
from microsim.engine.calls import room
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Vector
from microsim.engine.motion import Motion, mounted_at, turned

_sincos = exact.sincos
_wrap_angle = exact.wrap_angle

BOX_NUMBERS = 15
POSE_NUMBERS = 6  # x, y, z [m], yaw, roll, pitch [rad]
A_BOX, A_CYLINDER, A_TRIANGLE = range(3)  # kinds of things

_HALVINGS = 32  # of the way to the first touch: what is left of a metre is below a nanometre
_MOST_STEPS = 256  # in which a tick's way is looked at
_PARALLEL = 1e-9  # squared length of the product of two axes that are as good as parallel


@dataclass(frozen=True)
class Body:
    """A box fixed to its base_link."""

    center: Vector  # [m] base_link
    size: Vector  # [m] along the axes of base_link

    def row(self) -> tuple[float, ...]:
        """Middle, half size and the radius about base_link that holds it all: what kernels take as a body."""
        half = (0.5 * self.size[0], 0.5 * self.size[1], 0.5 * self.size[2])
        far = [abs(middle) + reach for middle, reach in zip(self.center, half, strict=True)]
        return (*self.center, *half, math.sqrt(sum(each * each for each in far)))


def body_row(motion: Motion, body: Body) -> tuple[float, ...]:
    """The box of a robot."""
    axes = turned(motion, ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)))
    half = (0.5 * body.size[0], 0.5 * body.size[1], 0.5 * body.size[2])
    return (*mounted_at(motion, body.center), *axes[0], *axes[1], *axes[2], *half)


@kernel
def put_box(pose: Array, body: Array, box: Array) -> None:
    """The box of a body whose base_link is at a pose."""
    sy, cy = _sincos(pose[3])
    sr, cr, sp, cp = 0.0, 1.0, 0.0, 1.0
    if pose[4] != 0.0 or pose[5] != 0.0:
        sr, cr = _sincos(pose[4])
        sp, cp = _sincos(pose[5])
    box[3], box[4], box[5] = cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr
    box[6], box[7], box[8] = sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr
    box[9], box[10], box[11] = -sp, cp * sr, cp * cr
    for k in range(3):
        row = 3 + 3 * k
        box[k] = pose[k] + (box[row] * body[0] + box[row + 1] * body[1] + box[row + 2] * body[2])
        box[12 + k] = body[3 + k]


@kernel
def _is_apart(a: Array, b: Array, x: float, y: float, z: float, margin: float) -> bool:
    """Whether two boxes are farther apart than the margin along a direction."""
    reach = 0.0
    for k in range(3):
        reach += a[12 + k] * abs(a[3 + k] * x + a[6 + k] * y + a[9 + k] * z)
        reach += b[12 + k] * abs(b[3 + k] * x + b[6 + k] * y + b[9 + k] * z)
    return abs((b[0] - a[0]) * x + (b[1] - a[1]) * y + (b[2] - a[2]) * z) >= reach + margin


@kernel
def boxes_meet(a: Array, b: Array, margin: float) -> bool:
    """Whether two boxes overlap or are nearer than the margin, by the theorem of separating axes."""
    for k in range(3):
        if _is_apart(a, b, a[3 + k], a[6 + k], a[9 + k], margin) or _is_apart(
            a, b, b[3 + k], b[6 + k], b[9 + k], margin
        ):
            return False
    for i in range(3):
        for j in range(3):
            x = a[6 + i] * b[9 + j] - a[9 + i] * b[6 + j]
            y = a[9 + i] * b[3 + j] - a[3 + i] * b[9 + j]
            z = a[3 + i] * b[6 + j] - a[6 + i] * b[3 + j]
            square = x * x + y * y + z * z
            if square > _PARALLEL and _is_apart(a, b, x, y, z, margin * math.sqrt(square)):
                return False
    return True


@kernel
def _meets_cylinder(box: Array, thing: Array, margin: float) -> bool:
    """Exact for a level box; a leaning one counts as the level one that is as high and as long along its own axes."""
    tall = box[12] * abs(box[9]) + box[13] * abs(box[10]) + box[14] * abs(box[11])
    if abs(box[2] - thing[2]) >= tall + thing[4] + margin:
        return False
    dx, dy = thing[0] - box[0], thing[1] - box[1]
    length = math.sqrt(box[3] * box[3] + box[6] * box[6])
    if length == 0.0:
        return dx * dx + dy * dy < (thing[3] + margin) * (thing[3] + margin)
    cosine, sine = box[3] / length, box[6] / length
    along = max(abs(cosine * dx + sine * dy) - box[12], 0.0)
    across = max(abs(cosine * dy - sine * dx) - box[13], 0.0)
    return along * along + across * across < (thing[3] + margin) * (thing[3] + margin)


@kernel
def _misses(p: Array, reach: float, x: float, y: float, z: float) -> bool:
    """Whether a triangle p (9 numbers about the middle of a box) is beyond the box's reach along a direction."""
    a, b = x * p[0] + y * p[1] + z * p[2], x * p[3] + y * p[4] + z * p[5]
    c = x * p[6] + y * p[7] + z * p[8]
    # a direction without a length, from an edge along an axis of the box, shows nothing
    return reach > 0.0 and (min(a, b, c) >= reach or max(a, b, c) <= -reach)


@kernel
def _meets_triangle(box: Array, thing: Array, margin: float) -> bool:
    """By the theorem of separating axes, in the axes of the box."""
    p = room(9)
    for corner in range(3):
        x, y, z = (thing[3 * corner] - box[0], thing[3 * corner + 1] - box[1], thing[3 * corner + 2] - box[2])
        for k in range(3):
            p[3 * corner + k] = box[3 + k] * x + box[6 + k] * y + box[9 + k] * z
    hx, hy, hz = box[12] + margin, box[13] + margin, box[14] + margin
    if _misses(p, hx, 1.0, 0.0, 0.0) or _misses(p, hy, 0.0, 1.0, 0.0) or _misses(p, hz, 0.0, 0.0, 1.0):
        return False
    edges = room(9)
    for corner in range(3):
        for k in range(3):
            edges[3 * corner + k] = p[(3 * corner + 3) % 9 + k] - p[3 * corner + k]
    nx, ny = edges[1] * edges[5] - edges[2] * edges[4], edges[2] * edges[3] - edges[0] * edges[5]
    nz = edges[0] * edges[4] - edges[1] * edges[3]
    middle = nx * p[0] + ny * p[1] + nz * p[2]
    if abs(middle) > hx * abs(nx) + hy * abs(ny) + hz * abs(nz):
        return False
    for corner in range(3):
        x, y, z = edges[3 * corner], edges[3 * corner + 1], edges[3 * corner + 2]
        if (
            _misses(p, hy * abs(z) + hz * abs(y), 0.0, -z, y)
            or _misses(p, hx * abs(z) + hz * abs(x), z, 0.0, -x)
            or _misses(p, hx * abs(y) + hy * abs(x), -y, x, 0.0)
        ):
            return False
    return True


@kernel
def meets(box: Array, kind: int, thing: Array, margin: float) -> bool:
    """Whether a body overlaps a thing of a kind, or is nearer than the margin."""
    if kind == A_BOX:
        return boxes_meet(box, thing, margin)
    if kind == A_CYLINDER:
        return _meets_cylinder(box, thing, margin)
    return _meets_triangle(box, thing, margin)


@kernel
def pose_between(start: Array, end: Array, share: float, pose: Array) -> None:
    """The pose after a share of the way."""
    for k in range(POSE_NUMBERS):
        step = end[k] - start[k] if k < 3 else _wrap_angle(end[k] - start[k])
        pose[k] = end[k] if share == 1.0 else start[k] + step * share


@kernel
def first_touch(start: Array, end: Array, body: Array, kind: int, thing: Array) -> float:
    """The share of a way after which a body begins to overlap a thing; -1: it does from the start; 2: it does not.

    Looked at in steps so short that nothing is passed through.
    """
    pose, box = room(POSE_NUMBERS), room(BOX_NUMBERS)
    put_box(start, body, box)
    if meets(box, kind, thing, 0.0):
        return -1.0
    dx, dy, dz = end[0] - start[0], end[1] - start[1], end[2] - start[2]
    far = math.sqrt(dx * dx + dy * dy + dz * dz) + abs(_wrap_angle(end[3] - start[3])) * body[6]
    steps = int(min(far / max(min(body[3], body[4], body[5]), 1e-3), _MOST_STEPS - 1.0)) + 1
    low = 0.0
    for k in range(1, steps + 1):
        high = k / steps
        pose_between(start, end, high, pose)
        put_box(pose, body, box)
        if meets(box, kind, thing, 0.0):
            for _ in range(_HALVINGS):
                middle = 0.5 * (low + high)
                pose_between(start, end, middle, pose)
                put_box(pose, body, box)
                if meets(box, kind, thing, 0.0):
                    high = middle
                else:
                    low = middle
            return low
        low = high
    return 2.0
