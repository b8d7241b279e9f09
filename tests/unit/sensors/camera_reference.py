"""A second renderer for the tests, slow and written differently: each ray is cut at every grid line, and a parabola is
laid through three heights above the ground of each piece; solids are cut by planes in space; nothing is culled. It
shares no formula with `microsim.render.drawing*` but the pinhole's."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from microsim.engine.world import Shape, World
from microsim.render.palette_camera import CameraModel, Rotation

Array = npt.NDArray[np.float64]
FAR = 1e6  # where rays that meet nothing end


def looking(yaw: float, pitch: float, roll: float = 0.0) -> Rotation:
    """Camera looking along yaw, `pitch` radians below the horizon, turned clockwise about its axis by roll."""
    forward = np.array([math.cos(yaw) * math.cos(pitch), math.sin(yaw) * math.cos(pitch), -math.sin(pitch)])
    right = np.array([math.sin(yaw), -math.cos(yaw), 0.0])
    down = np.cross(forward, right)
    x = right * math.cos(roll) + down * math.sin(roll)
    y = down * math.cos(roll) - right * math.sin(roll)
    return tuple((float(x[k]), float(y[k]), float(forward[k])) for k in range(3))  # type: ignore[return-value]


def rays_of(model: CameraModel) -> tuple[Array, Array]:
    """Undistorted by plain repetition, as OpenCV does: enough for the mild distortions it is used with."""
    u, v = np.meshgrid(np.arange(model.width), np.arange(model.height))
    seen_a, seen_b = (u - model.cx) / model.fx, (v - model.cy) / model.fy
    if model.is_fisheye:
        angles = np.linspace(0.0, np.radians(89.5), 200_001)
        radii = sum(k * angles ** (3 + 2 * power) for power, k in enumerate(model.distortion)) + angles
        radius = np.maximum(np.hypot(seen_a, seen_b), 1e-12)
        scale = np.tan(np.interp(radius, radii, angles, right=np.nan)) / radius
        return seen_a * scale, seen_b * scale
    k1, k2, p1, p2, k3 = model.distortion
    a, b = seen_a, seen_b
    for _ in range(300):
        r2 = a**2 + b**2
        radial = 1 + k1 * r2 + k2 * r2**2 + k3 * r2**3
        shift_a = 2 * p1 * a * b + p2 * (r2 + 2 * a**2)
        shift_b = p1 * (r2 + 2 * b**2) + 2 * p2 * a * b
        a, b = (seen_a - shift_a) / radial, (seen_b - shift_b) / radial
    return a, b


def ground(world: World, x: Array, y: Array) -> Array:
    rows, columns = world.elevation.shape
    u = np.clip(x / world.cell_m - 0.5, 0, columns - 1)
    v = np.clip(y / world.cell_m - 0.5, 0, rows - 1)
    i, j = np.floor(u).astype(int), np.floor(v).astype(int)
    i1, j1 = np.minimum(i + 1, columns - 1), np.minimum(j + 1, rows - 1)
    u, v, h = u - i, v - j, world.elevation
    return h[j, i] * (1 - u) * (1 - v) + h[j, i1] * u * (1 - v) + h[j1, i] * (1 - u) * v + h[j1, i1] * u * v


def reference(world: World, model: CameraModel, position: tuple[float, float, float], rotation: Rotation) -> Array:
    """(h, w) class ids."""
    a, b = rays_of(model)
    ray = np.stack([a, b, np.ones_like(a)], -1) @ np.array(rotation).T
    origin = np.array(position)
    depth = _ground_depths(world, origin, ray)
    hit = np.isfinite(depth)
    point = origin + np.where(hit, depth, 0.0)[..., None] * ray
    rows, columns = world.surface.shape
    i = np.clip(np.floor(point[..., 0] / world.cell_m), 0, columns - 1).astype(int)
    j = np.clip(np.floor(point[..., 1] / world.cell_m), 0, rows - 1).astype(int)
    classes = np.where(hit, world.surface[j, i], 0)
    for shape in world.features:
        if shape.kind != "billboard" and shape.height_m == 0:
            classes = np.where(hit & _covers(shape, point[..., 0], point[..., 1]), shape.class_id, classes)
    for shape, solid_depth in _solids(world, origin, ray):
        nearer = solid_depth < depth
        classes = np.where(nearer, shape.class_id, classes)
        depth = np.where(nearer, solid_depth, depth)
    return classes


def _ground_depths(world: World, origin: Array, ray: Array) -> Array:
    """Between two grid lines the height of a ray above the ground is a parabola in its depth: the first zero of any."""
    rays = ray.reshape(-1, 3)
    rows, columns = world.elevation.shape
    lines = [(axis, (k + 0.5) * world.cell_m) for axis, count in ((0, columns), (1, rows)) for k in range(count)]
    with np.errstate(all="ignore"):
        crossings = np.stack([(place - origin[axis]) / rays[:, axis] for axis, place in lines], 1)
    ends = np.full((len(rays), 1), FAR)
    cuts = np.sort(np.hstack([ends * 0, np.where((crossings > 0) & (crossings < FAR), crossings, FAR), ends]), axis=1)

    def height(t: Array) -> Array:
        x, y, z = (origin[axis] + t * rays[:, axis, None] for axis in range(3))
        return z - ground(world, x, y)

    first, last = cuts[:, :-1], cuts[:, 1:]
    c, middle, end = height(first), height(0.5 * (first + last)), height(last)
    a, b = 2 * c - 4 * middle + 2 * end, -3 * c + 4 * middle - end
    with np.errstate(all="ignore"):
        q = -0.5 * (b + np.copysign(np.sqrt(b * b - 4 * a * c), b))
        shares = np.stack([q / a, c / q])
    shares = np.where((shares >= 0) & (shares <= 1), shares, np.inf).min(0)
    shares = np.where(c <= 0, 0.0, np.where(last > first, shares, np.inf))
    with np.errstate(all="ignore"):
        depths = np.where(np.isfinite(shares), first + shares * (last - first), np.inf)
    return depths.min(1).reshape(ray.shape[:2])


def _covers(shape: Shape, x: Array, y: Array) -> npt.NDArray[np.bool_]:
    if shape.kind == "circle":
        return np.hypot(x - shape.center[0], y - shape.center[1]) <= shape.radius
    inside = np.ones(x.shape, bool)
    corners = _footprint(shape)
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        inside &= (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) >= 0
    return inside


def _footprint(shape: Shape) -> list[tuple[float, float]]:
    """Corners, counter-clockwise."""
    if shape.kind == "triangle":
        corners = list(shape.vertices)
        area = sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True))
        return corners if area > 0 else corners[::-1]
    turn = complex(math.cos(shape.yaw or 0.0), math.sin(shape.yaw or 0.0))
    middle, (width, depth) = complex(*shape.center), shape.size
    offsets = (complex(-width, -depth), complex(width, -depth), complex(width, depth), complex(-width, depth))
    return [((p := middle + turn * offset / 2).real, p.imag) for offset in offsets]


def _solids(world: World, origin: Array, ray: Array) -> Iterator[tuple[Shape, Array]]:
    for shape in (*world.obstacles, *world.features):
        base = float(ground(world, np.array(shape.center[0]), np.array(shape.center[1]))) + shape.base_m
        bottom = base if shape.base_m > 0 else min(base, float(world.elevation.min()))
        if shape.kind == "billboard":
            yield shape, _plate(shape, bottom, base + shape.size[1], origin, ray)
        elif shape.height_m > 0:
            yield shape, _solid(shape, bottom, base + shape.height_m, origin, ray)


def _plate(shape: Shape, bottom: float, top: float, origin: Array, ray: Array) -> Array:
    toward = origin[:2] - shape.center
    yaw = math.atan2(toward[1], toward[0]) if shape.yaw is None else shape.yaw
    normal, along = np.array([math.cos(yaw), math.sin(yaw)]), np.array([-math.sin(yaw), math.cos(yaw)])
    with np.errstate(all="ignore"):
        t = -(toward @ normal) / (ray[..., :2] @ normal)
        point = origin + t[..., None] * ray
    across = (point[..., :2] - shape.center) @ along
    inside = (abs(across) <= shape.size[0] / 2) & (point[..., 2] >= bottom) & (point[..., 2] <= top) & (t > 0)
    return np.where(inside, t, np.inf)


def _solid(shape: Shape, bottom: float, top: float, origin: Array, ray: Array) -> Array:
    """Nearest of the hits on the walls and on the lid and the floor, each tested by itself; inside there is none."""
    if bottom < origin[2] < top and _covers(shape, np.array(origin[0]), np.array(origin[1])):
        return np.full(ray.shape[:2], np.inf)
    hits = [np.full(ray.shape[:2], np.inf)]
    with np.errstate(all="ignore"):
        for height in (bottom, top):
            t = (height - origin[2]) / ray[..., 2]
            inside = _covers(shape, origin[0] + t * ray[..., 0], origin[1] + t * ray[..., 1])
            hits.append(np.where(inside & (t > 0), t, np.inf))
        for t in _wall_hits(shape, origin, ray):
            z = origin[2] + t * ray[..., 2]
            hits.append(np.where((t > 0) & (z >= bottom) & (z <= top), t, np.inf))
    return np.minimum.reduce(hits)


def _wall_hits(shape: Shape, origin: Array, ray: Array) -> Iterator[Array]:
    """Depths at which rays cross the walls, which are endless up and down; NaN where they do not."""
    if shape.kind == "circle":
        # Foot of the perpendicular from the axis, then Pythagoras.
        length = np.hypot(ray[..., 0], ray[..., 1])
        foot = ((shape.center[0] - origin[0]) * ray[..., 0] + (shape.center[1] - origin[1]) * ray[..., 1]) / length**2
        distance = np.hypot(
            origin[0] + foot * ray[..., 0] - shape.center[0], origin[1] + foot * ray[..., 1] - shape.center[1]
        )
        half_chord = np.sqrt(shape.radius**2 - distance**2) / length
        yield foot - half_chord
        yield foot + half_chord
        return
    corners = _footprint(shape)
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        along = np.array([x1 - x0, y1 - y0])
        cross = ray[..., 0] * along[1] - ray[..., 1] * along[0]
        t = ((x0 - origin[0]) * along[1] - (y0 - origin[1]) * along[0]) / cross
        share = ((x0 - origin[0]) * ray[..., 1] - (y0 - origin[1]) * ray[..., 0]) / cross
        yield np.where((share >= 0) & (share <= 1), t, np.nan)
