"""A world bundle seen from straight above, and what is at a point or on a line of sight."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np
from PIL import Image

from microsim.bundle import Bundle
from microsim.bundle.edited_world import background
from microsim.engine.world import World
from microsim.view.web.page.robot_bodies import Floats
from microsim.view.web.page.stage import ground_texture

_MOST_PX = 1800  # along the longer side
_MOST_DOTS = 12_000_000
_LARGEST_DOT_PX = 5
_SH_DC = 0.28209479177387814
_OPAQUE = 0.3
_NEAR_LINE = 0.006  # [rad] around a line of sight: a few pixels
_FARTHEST_M = 2000.0


class WorldSplats:
    """The opaque Gaussians of a bundle that are part of its map."""

    def __init__(self, bundle: Bundle) -> None:
        found = bundle.gaussians
        opacity = 1.0 / (1.0 + np.exp(-np.asarray(found.column("opacity"), np.float64)[:, 0]))
        rows = np.flatnonzero((opacity > _OPAQUE) & ~background(bundle))
        self.points: Floats = np.asarray(found.column("x", 3), np.float64)[rows]
        self.sizes: Floats = np.exp(np.sort(np.asarray(found.column("scale_0", 3), np.float64)[rows], axis=1)[:, 1])
        colours = np.clip(0.5 + _SH_DC * np.asarray(found.column("f_dc_0", 3), np.float64)[rows], 0.0, 1.0)
        self.colours = (255 * colours).astype(np.uint8)


def top_view(bundle: Bundle, world: World, splats: WorldSplats) -> str:
    """As the address of an image, north up: the ground, with the Gaussians on it from the lowest to the highest."""
    width, height = world.size_m
    ppm = _MOST_PX / max(width, height)
    size = max(1, round(width * ppm)), max(1, round(height * ppm))
    picture = np.array(ground_texture(world, bundle).convert("RGB").resize(size, Image.Resampling.BILINEAR))
    u = ((splats.points[:, 0] - world.west) * ppm).astype(np.int64)
    v = ((world.extent_m[3] - splats.points[:, 1]) * ppm).astype(np.int64)
    radius = np.clip((1.1 * splats.sizes * ppm).astype(np.int64), 0, _LARGEST_DOT_PX)
    while int(((2 * radius + 1) ** 2).sum()) > _MOST_DOTS and radius.max() > 0:
        radius = np.maximum(radius - 1, 0)
    parts = [_dots(u, v, np.flatnonzero(radius == each), each) for each in range(_LARGEST_DOT_PX + 1)]
    across, along, which = (np.concatenate(each) for each in zip(*parts, strict=True))
    inside = (across >= 0) & (across < size[0]) & (along >= 0) & (along < size[1])
    across, along, which = across[inside], along[inside], which[inside]
    order = np.argsort(splats.points[which, 2], kind="stable")
    picture[along[order], across[order]] = splats.colours[which[order]]
    data = io.BytesIO()
    Image.fromarray(picture).save(data, "WEBP", quality=82)
    return "data:image/webp;base64," + base64.b64encode(data.getvalue()).decode()


def _dots(u: Any, v: Any, rows: Any, radius: int) -> tuple[Any, Any, Any]:
    """Pixels of round dots, and the row that each belongs to."""
    dx, dy = np.meshgrid(np.arange(-radius, radius + 1), np.arange(-radius, radius + 1))
    disc = dx * dx + dy * dy <= (radius + 0.5) ** 2
    across, along = u[rows, None] + dx[disc], v[rows, None] + dy[disc]
    return across.reshape(-1), along.reshape(-1), np.repeat(rows, int(disc.sum()))


def on_the_line(bundle: Bundle, splats: WorldSplats, eye: Floats, direction: Floats) -> list[float] | None:
    """The nearest point of the world that is seen in a direction: on a Gaussian, or on the ground."""
    ahead = direction / np.linalg.norm(direction)
    away = splats.points - eye
    along = away @ ahead
    aside = np.linalg.norm(away - along[:, None] * ahead, axis=1)
    hit = (along > 0.1) & (aside < np.maximum(_NEAR_LINE * along, 0.7 * splats.sizes))
    found = [float(along[hit].min())] if hit.any() else []
    steps = np.geomspace(0.1, _FARTHEST_M, 4000)
    places = eye + steps[:, None] * ahead
    with np.errstate(invalid="ignore"):
        below = np.flatnonzero(places[:, 2] <= bundle.heightmap.heights(places[:, 0], places[:, 1]))
    if below.size:
        found.append(float(steps[below[0]]))
    return (eye + min(found) * ahead).round(3).tolist() if found else None


def eye_ray(camera: Any, u: float, v: float) -> tuple[Floats, Floats]:
    """Where a page looks from, and the direction of the point (u, v) of its picture, each 0 to 1 from the top left."""
    w, x, y, z = camera.wxyz
    from microsim.bundle.bundle_model import rotation_matrix

    half = math.tan(0.5 * camera.fov)
    seen = np.array([(2.0 * u - 1.0) * half * camera.aspect, (2.0 * v - 1.0) * half, 1.0])
    return np.array(camera.position, np.float64), rotation_matrix(float(x), float(y), float(z), float(w)) @ seen
