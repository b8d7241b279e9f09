"""Other robots in splat images: their models part by part, lit by the sun, and the shadows of their bodies.

A part is a row of numbers: a box as `screen.into_body` takes it (15), its shape, red, green, blue, and the robot's
number among those that are seen. Cylinders stand along their third axis. Shadows fall on what the finished picture
shows, by its depths: they are the same whichever back end has drawn it.
"""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from microsim.engine import geometry
from microsim.engine.compiled import kernel, threaded_kernel
from microsim.engine.geometry import Array, Grid, Vector
from microsim.engine.motion import is_level_row, motion_in, place_of
from microsim.paths import data_folder
from microsim.render.drawing import Image, Instances, Solids, pixels_of_body
from microsim.render.relief import Ground
from microsim.render.screen import Pose, Rays, ScreenIndex, between, into_body, inverse_of
from microsim.render.splat.activation import Floats
from microsim.render.splat.blending import SPLATS, Owners

SUN = (0.36, 0.24, 0.9015542135686)  # unit vector towards it, as in the generated worlds
BOX, CYLINDER, SPHERE = range(3)
_motion_in = motion_in

PART_NUMBERS, OWNER = 20, 19
SHADE = 0.55  # of the light that a shadow takes
SOFT_M, SOFT_LENGTH_M = 0.12, 0.6  # bodies cast shadows a little larger than they are; softness of the edge
OWN_M, LOW_M = 0.06, 0.3  # a surface so near to a body is its own, but not what lies at its feet
ON_GROUND_M = 0.5  # splats so near to the ground are on it
FALLING, GROUND_STEPS = -0.01, 3  # of rays that meet the ground, and steps to where
_BEYOND = 1.0001
_sun_x, _sun_y, _sun_z = SUN
_ground_height = geometry.ground_height


class Part(NamedTuple):
    """Fixed to a robot's base_link."""

    kind: int
    half: Vector  # [m] along its axes
    center: Vector  # [m]
    axes: tuple[Vector, Vector, Vector]  # rows of the matrix from its axes to those of base_link
    colour: Vector  # 0 to 1


@cache
def _shipped() -> dict[str, Any]:
    return dict(json.loads((data_folder() / "urdf" / "parts.json").read_text(encoding="utf-8")))


@cache
def parts_of_model(urdf: str) -> tuple[Part, ...]:
    """Of a shipped robot model; empty for any other."""
    kinds = {"box": BOX, "cylinder": CYLINDER, "sphere": SPHERE}
    return tuple(
        Part(
            kinds[kind], tuple(half), tuple(center), (tuple(axes[:3]), tuple(axes[3:6]), tuple(axes[6:])), tuple(colour)
        )
        for kind, half, center, axes, colour in _shipped().get(urdf, ())
    )


@cache
def part_table(parts: tuple[Part, ...]) -> Array:
    """(n, 19) of a robot at the origin: as `put_parts` takes them."""
    rows = [
        (*each.center, *each.axes[0], *each.axes[1], *each.axes[2], *each.half, each.kind, *each.colour)
        for each in parts
    ]
    return np.array(rows, np.float64).reshape(len(parts), PART_NUMBERS - 1)


@kernel
def put_parts(motion: Array, table: Array, owner: float, rows: Array) -> None:
    """Where the parts of a robot are now."""
    is_level, seen = is_level_row(motion), _motion_in(motion)
    sine, cosine = seen.sin_yaw, seen.cos_yaw
    for n in range(table.shape[0]):
        part, row = table[n], rows[n]
        row[0], row[1], row[2] = place_of(motion, part[0], part[1], part[2])
        for k in range(3):  # `motion.turned`
            a, b, c = part[3 + k], part[6 + k], part[9 + k]
            if is_level:
                row[3 + k], row[6 + k], row[9 + k] = cosine * a - sine * b, sine * a + cosine * b, c
            else:
                row[3 + k] = seen.x_forward * a + seen.x_left * b + seen.x_up * c
                row[6 + k] = seen.y_forward * a + seen.y_left * b + seen.y_up * c
                row[9 + k] = seen.z_forward * a + seen.z_left * b + seen.z_up * c
        row[12:OWNER] = part[12:OWNER]
        row[OWNER] = owner


def boxes_as_parts(bodies: Array) -> Array:
    """Robots as the boxes of their bodies."""
    rows = np.zeros((bodies.shape[0], PART_NUMBERS))
    rows[:, :15], rows[:, OWNER] = bodies, np.arange(bodies.shape[0])
    return rows


@kernel
def _local(body: Array, x: float, y: float, z: float, k: int) -> float:
    return body[3 + k] * x + body[6 + k] * y + body[9 + k] * z


@kernel
def _into_round(part: Array, eye: Vector, ray: Vector) -> float:
    """Where a ray enters a cylinder or a sphere, as a multiple of `ray`; inf: it misses, or starts in it."""
    x, y, z = eye[0] - part[0], eye[1] - part[1], eye[2] - part[2]
    square, half, rest = 0.0, 0.0, -part[12] * part[12]
    for k in range(3 if part[15] == SPHERE else 2):
        place, along = _local(part, x, y, z, k), _local(part, ray[0], ray[1], ray[2], k)
        square += along * along
        half += place * along
        rest += place * place
    room = half * half - square * rest
    if room < 0.0 or square <= 0.0:
        room = -1.0 if rest > 0.0 else 0.0
        if room < 0.0:
            return math.inf
    root = math.sqrt(room)
    enter, leave = (-half - root) * inverse_of(square), (root - half) * inverse_of(square)
    if square <= 0.0:
        enter, leave = -math.inf, math.inf
    if part[15] == CYLINDER:
        place, inverse = _local(part, x, y, z, 2), inverse_of(_local(part, ray[0], ray[1], ray[2], 2))
        low, high = (-part[14] - place) * inverse, (part[14] - place) * inverse
        enter, leave = max(enter, min(low, high)), min(leave, max(low, high))
    return enter if (enter <= leave) & (enter > 0.0) else math.inf


@kernel
def _into_part(part: Array, eye: Vector, ray: Vector) -> float:
    return into_body(part, eye, ray) if part[15] == BOX else _into_round(part, eye, ray)


@kernel
def outward_of_part(part: Array, x: float, y: float, z: float) -> Vector:
    """Which way the surface of a part faces at this place seen from its middle [m, map axes]."""
    a, b, c = _local(part, x, y, z, 0), _local(part, x, y, z, 1), _local(part, x, y, z, 2)
    if part[15] == BOX:
        u, v, w = abs(a) / part[12], abs(b) / part[13], abs(c) / part[14]
        first, second = (u >= v) & (u >= w), v >= w
        a = (1.0 if a > 0.0 else -1.0) if first else 0.0
        b = (1.0 if b > 0.0 else -1.0) if (not first) & second else 0.0
        c = (1.0 if c > 0.0 else -1.0) if (not first) & (not second) else 0.0
    elif part[15] == CYLINDER:
        is_end = abs(c) / part[14] > math.sqrt(a * a + b * b) / part[12]
        a, b, c = (0.0, 0.0, 1.0 if c > 0.0 else -1.0) if is_end else (a / part[12], b / part[12], 0.0)
    else:
        a, b, c = a / part[12], b / part[12], c / part[12]
    return (
        part[3] * a + part[4] * b + part[5] * c,
        part[6] * a + part[7] * b + part[8] * c,
        part[9] * a + part[10] * b + part[11] * c,
    )


@kernel
def _light(part: Array, x: float, y: float, z: float) -> float:
    """On the surface of a part, at this place seen from its middle [m, map axes]: from the sun, and from the sky."""
    east, north, up = outward_of_part(part, x, y, z)
    facing = east * _sun_x + north * _sun_y + up * _sun_z
    return 0.5 + 0.12 * up + 0.48 * (facing if facing > 0.0 else 0.0)


@threaded_kernel
def draw_parts(
    pose: Pose, rays: Rays, screen: ScreenIndex, parts: Array, ground: Array, depths: Array, image: Image
) -> None:
    """Put parts that are nearer than what was seen so far, and than the ground, into `depths` and `image`."""
    eye = (pose[0], pose[1], pose[2])
    for n in range(parts.shape[0]):
        part = parts[n]
        first, last, top, bottom = pixels_of_body(pose, screen, part)
        for v in range(top, bottom):
            for u in range(first, last):
                a, b = rays[0, v, u], rays[1, v, u]
                x = pose[3] * a + pose[4] * b + pose[5]
                y = pose[6] * a + pose[7] * b + pose[8]
                z = pose[9] * a + pose[10] * b + pose[11]
                depth = _into_part(part, eye, (x, y, z))
                if (depth < depths[v, u]) & (depth < ground[v, u]):
                    depths[v, u] = depth
                    light = _light(
                        part,
                        pose[0] + depth * x - part[0],
                        pose[1] + depth * y - part[1],
                        pose[2] + depth * z - part[2],
                    )
                    for channel in range(3):
                        image[v, u, channel] = np.uint8(min(255.0 * part[16 + channel] * light, 255.0))


@threaded_kernel
def look_no_farther(depths: Array, ground: Array) -> tuple[int, int, int, int]:
    """Fill `ground` with a little more than the depths, 0 where nothing is.

    Gives first and end column, then row, of what there is.
    """
    left, right, top, bottom = depths.shape[1], 0, depths.shape[0], 0
    for v in range(depths.shape[0]):
        nearest = math.inf
        for u in range(depths.shape[1]):
            depth = depths[v, u]
            ground[v, u] = _BEYOND * depth if depth < math.inf else 0.0
            nearest = min(nearest, depth)
        if nearest < math.inf:
            top, bottom = min(top, v), v + 1
            for u in range(depths.shape[1]):
                if depths[v, u] < math.inf:
                    left, right = min(left, u), max(right, u + 1)
    return left, right, top, bottom


@threaded_kernel
def hide(ground: Array, top: int, bottom: int, depths: Array) -> None:
    """What is not nearer than the ground becomes infinitely far, in these rows."""
    for v in range(top, bottom):
        for u in range(depths.shape[1]):
            depths[v, u] = math.inf if depths[v, u] >= ground[v, u] else depths[v, u]


@threaded_kernel
def label_parts(
    pose: Pose,
    rays: Rays,
    screen: ScreenIndex,
    parts: Array,
    class_id: int,
    numbers: Instances,
    depths: Array,
    classes: Grid,
    instances: Instances,
    solids: Solids,
) -> None:
    """Put parts that are nearer than what was seen so far into the four images; `numbers`: of their owners.

    In `solids` part n is -1 - n.
    """
    eye = (pose[0], pose[1], pose[2])
    for n in range(parts.shape[0]):
        part, number = parts[n], numbers[int(parts[n, OWNER])]
        first, last, top, bottom = pixels_of_body(pose, screen, part)
        for v in range(top, bottom):
            for u in range(first, last):
                a, b = rays[0, v, u], rays[1, v, u]
                ray = (pose[3] * a + pose[4] * b + pose[5], pose[6] * a + pose[7] * b + pose[8])
                depth = _into_part(part, eye, (*ray, pose[9] * a + pose[10] * b + pose[11]))
                if depth < depths[v, u]:
                    depths[v, u], classes[v, u], instances[v, u], solids[v, u] = depth, class_id, number, -1 - n


@threaded_kernel
def shade(
    pose: Pose,
    rays: Rays,
    depths: Floats,
    owners: Owners,
    ground: Ground,
    boxes: Array,
    begin: int,
    end: int,
    image: Image,
) -> None:
    """Darken what lies in the shadow of robots, softly at its edge, in rows begin to end.

    Their own surfaces are left as they are. The world's splats near the ground are taken to be on it: surfaces of
    single splats would tear the shadow.
    """
    for v in range(begin, end):
        for u in range(image.shape[1]):
            depth, a, b = np.float64(depths[v, u]), rays[0, v, u], rays[1, v, u]
            if not depth < math.inf:
                continue
            east = pose[3] * a + pose[4] * b + pose[5]
            north = pose[6] * a + pose[7] * b + pose[8]
            up = pose[9] * a + pose[10] * b + pose[11]
            x, y, z = pose[0] + depth * east, pose[1] + depth * north, pose[2] + depth * up
            if owners[v, u] == SPLATS:
                x, y, z = _on_ground(ground, pose, (east, north, up), (x, y, z))
            light = 1.0
            for n in range(boxes.shape[0]):
                light = min(light, 1.0 - SHADE * _covered(boxes[n], x, y, z))
            if light < 1.0:
                for channel in range(3):
                    image[v, u, channel] = np.uint8(light * image[v, u, channel])


@threaded_kernel
def _on_ground(ground: Ground, pose: Pose, ray: Vector, place: Vector) -> Vector:
    """Where the ray of a place near the ground or below meets it; the place itself where it does not."""
    x, y, z = place
    height = _ground_height(ground.elevation, ground.cell_m, x - ground.west, y - ground.south)
    if not (z - height <= ON_GROUND_M and ray[2] < FALLING):  # NaN: no ground
        return place
    for _ in range(GROUND_STEPS):
        depth = (height - pose[2]) / ray[2]
        x, y, z = pose[0] + depth * ray[0], pose[1] + depth * ray[1], height
        height = _ground_height(ground.elevation, ground.cell_m, x - ground.west, y - ground.south)
    return (x, y, z) if abs(z - height) <= ON_GROUND_M else place


@threaded_kernel
def _covered(body: Array, x: float, y: float, z: float) -> float:
    """How much of the sun a box hides from a place, 0 to 1: by how long the way to the sun is inside the box."""
    dx, dy, dz = x - body[0], y - body[1], z - body[2]
    reach, across = body[12] + body[13] + body[14], dz / _sun_z
    east, north = dx - across * _sun_x, dy - across * _sun_y
    if (east * east + north * north > reach * reach) | (dz > reach):
        return 0.0
    enter, leave, is_near = 0.0, math.inf, True
    for k in range(3):
        place, along = _local(body, dx, dy, dz, k), _local(body, _sun_x, _sun_y, _sun_z, k)
        half = body[12 + k] + (SOFT_M if k < 2 else 0.0)
        near, far = between(-half - place, half - place, inverse_of(along))
        enter, leave = max(enter, near), min(leave, far)
        is_near &= abs(place) < body[12 + k] + OWN_M
    if is_near and _local(body, dx, dy, dz, 2) > min(LOW_M, 0.6 * body[14]) - body[14]:
        return 0.0  # its own surface
    length, whole = leave - enter, min(2.0 * body[14], SOFT_LENGTH_M)
    return min(max(length / whole, 0.0), 1.0)
