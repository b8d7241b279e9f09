"""What the camera sees of robots: a box for each, in any attitude."""

import math

from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Grid
from microsim.render.screen import Pose, Rays

_TINY = 1e-300


@kernel
def draw_bodies(pose: Pose, rays: Rays, bodies: Array, class_id: int, depths: Array, classes: Grid) -> None:
    """Give `class_id` and its depth to the pixels in which a body is nearer than what was seen so far.

    bodies (n, 15): middle [m] and axes (rows of the matrix from the body to the map frame), half its size [m].
    """
    for n in range(bodies.shape[0]):
        body = bodies[n]
        a_low, a_high, b_low, b_high = _bounds(pose, body)
        for v in range(depths.shape[0]):
            for u in range(depths.shape[1]):
                a, b = rays[0, v, u], rays[1, v, u]
                if (a >= a_low) & (a <= a_high) & (b >= b_low) & (b <= b_high):
                    depth = _depth(pose, body, a, b)
                    if depth < depths[v, u]:
                        depths[v, u], classes[v, u] = depth, class_id


@kernel
def _bounds(pose: Pose, body: Array) -> tuple[float, float, float, float]:
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


@kernel
def _depth(pose: Pose, body: Array, a: float, b: float) -> float:
    """Where the ray (a, b, 1) enters the box, as a depth; infinite when it misses it or starts inside."""
    x = pose[3] * a + pose[4] * b + pose[5]
    y = pose[6] * a + pose[7] * b + pose[8]
    z = pose[9] * a + pose[10] * b + pose[11]
    dx, dy, dz = pose[0] - body[0], pose[1] - body[1], pose[2] - body[2]
    enter, leave = -math.inf, math.inf
    for axis in range(3):
        along = body[3 + axis] * x + body[6 + axis] * y + body[9 + axis] * z
        start = body[3 + axis] * dx + body[6 + axis] * dy + body[9 + axis] * dz
        inverse = 1.0 / (along if along != 0.0 else _TINY)
        t0, t1 = (-body[12 + axis] - start) * inverse, (body[12 + axis] - start) * inverse
        enter, leave = max(enter, min(t0, t1)), min(leave, max(t0, t1))
    return enter if (enter <= leave) & (enter > 0.0) else math.inf
