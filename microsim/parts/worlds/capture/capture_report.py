"""What was found in a capture, as one page with a picture of every step and the options that give the same again."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.similarity import upright
from microsim.parts.worlds.capture.drivable_estimate import REASONS
from microsim.parts.worlds.capture.levelling import up_option
from microsim.parts.worlds.capture.scene_layers import LAYERS

if TYPE_CHECKING:
    from microsim.parts.worlds.capture.camera_poses import CameraPoses
    from microsim.parts.worlds.capture.capture_world import CaptureSteps
    from microsim.parts.worlds.capture.scene_layers import SceneSplats

Picture: TypeAlias = npt.NDArray[np.uint8]  # (height, width, 3)
Floats: TypeAlias = npt.NDArray[np.float64]

_WIDTH, _HEIGHT = 900, 520
_PAPER = np.array([250, 250, 248], np.uint8)
_LAYER_COLOURS = np.array([[122, 132, 112], [214, 106, 62], [140, 178, 222], [222, 60, 150]], np.uint8)
_REASON_COLOURS = np.array(
    [[92, 172, 108], [236, 236, 232], [214, 122, 60], [190, 70, 60], [206, 176, 80], [120, 110, 160], [190, 210, 190]],
    np.uint8,
)
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222;
  background: #fff }
img { width: 100%; border: 1px solid #ddd; border-radius: 6px } figure { margin: 1rem 0 2rem }
figcaption { color: #444 } code { background: #f2f2ee; padding: .15em .3em; border-radius: 4px;
  overflow-wrap: anywhere }
.key { display: inline-block; margin-right: 1.2em }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .4em }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #ddd } figcaption { color: #bbb }
  code { background: #26282e } img { border-color: #333 } }
"""


def report_page(name: str, command: str, steps: CaptureSteps) -> str:
    """HTML with its pictures inside."""
    cameras = "without camera poses" if steps.cameras is None else f"{len(steps.cameras)} cameras"
    source = f"{steps.found:,} Gaussians of <code>{html.escape(str(steps.splat_file))}</code>, {cameras}"
    parts = [
        f"<!doctype html><meta charset=utf-8><title>{html.escape(name)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(name)}</h1><p>Made from {source}.</p>",
        f"<p>The same again: <code>{html.escape(command)}</code></p>",
    ]
    for title, words, picture, keys in step_pictures(steps):
        legend = "".join(f'<span class=key><i style="background:rgb{colour}"></i>{key}</span>' for key, colour in keys)
        parts.append(f"<h2>{title}</h2><figure><img alt='{title}' src='{_embedded(picture)}'>")
        parts.append(f"<figcaption>{html.escape(words)}<br>{legend}</figcaption></figure>")
    return "\n".join(parts)


def unclear_page(
    name: str, message: str, scene: SceneSplats, cameras: CameraPoses | None, ups: Sequence[Floats] = ()
) -> str:
    """HTML about a capture that no world was made of: how it would stand, and its coordinates, which options take."""
    opaque = np.flatnonzero(scene.opaque)
    points, colours = scene.points[opaque].astype(np.float64), scene.colours[opaque]
    places = np.zeros((0, 3)) if cameras is None else cameras.positions
    reason = html.escape(message).replace("\n", "<br>")
    options = ", ".join(f"<code>{name}</code>" for name in ("--up", "--level-points", "--known-length"))
    parts = [
        f"<!doctype html><meta charset=utf-8><title>{html.escape(name)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(name)} was not made</h1><p>{reason}</p>",
        *_upright_views(points, colours, ups),
        f"<p>The capture in its own coordinates, which options such as {options} take. Red: the cameras.</p>",
    ]
    for across, up in ((0, 1), (0, 2), (1, 2)):
        title = f"{'xyz'[across]} to the right, {'xyz'[up]} up"
        picture = _along_axis(points, colours, places, across, up)
        parts.append(f"<h2>{title}</h2><figure><img alt='{title}' src='{_embedded(picture)}'></figure>")
    return "\n".join(parts)


def _upright_views(points: Floats, colours: Picture, ups: Sequence[Floats]) -> list[str]:
    """From the side, as each of the options would level it."""
    low, high = np.quantile(points, [0.02, 0.98], axis=0)  # the sky is left out
    near = ((points >= low) & (points <= high)).all(axis=1)
    parts = []
    for up in ups:
        option = html.escape(up_option(up))
        turned = points[near] @ upright(up).T
        picture = _plotted(turned[:, 0], turned[:, 2], turned[:, 1], colours[near])
        parts.append(f"<h2>Level with <code>{option}</code></h2>")
        parts.append(f"<figure><img alt='level with {option}' src='{_embedded(picture)}'></figure>")
    return parts


def step_pictures(steps: CaptureSteps) -> list[tuple[str, str, Picture, list[tuple[str, tuple[int, ...]]]]]:
    splats, layers, words = steps.splats, steps.layers, steps.notes.words
    near = np.flatnonzero((layers.label != 2) & splats.opaque)
    points = splats.points[near].astype(np.float64)
    layer_keys = [(name, tuple(_LAYER_COLOURS[index].tolist())) for index, name in enumerate(LAYERS)]
    reason_keys = [(name, tuple(_REASON_COLOURS[index].tolist())) for index, name in enumerate(REASONS)]
    seen = [
        (
            "Level and scale",
            f"{words['level']}. Scale: {words['scale']}. {words['place'].capitalize()}.",
            _side(points, splats.colours[near]),
            [],
        ),
        ("Layers", words["layers"], _dots(points, _LAYER_COLOURS[layers.label[near]]), layer_keys),
        ("Ground", _ground_words(steps), _hills(layers.ground.values), []),
    ]
    if steps.mesh is not None:
        seen.append(("Collision mesh", words["mesh"], _facets(*steps.mesh), []))
    seen.append(("Drivable area", words["drivable"], _map(_REASON_COLOURS[steps.drivable.reason], steps), reason_keys))
    return seen


def _ground_words(steps: CaptureSteps) -> str:
    values = steps.layers.ground.values
    seen, filled = int(steps.layers.measured.sum()), int((~np.isnan(values)).sum())
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    return f"heights from {low:.2f} m to {high:.2f} m; {seen:,} cells seen, {filled - seen:,} filled in"


# ---- drawing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _AxisView:
    """A view along an axis of the capture: which axis is to the right and which one up, and what is in the middle."""

    across: int
    up: int
    middle: Floats  # (3,)
    scale: float  # pixels per unit

    def pixels(self, where: Floats) -> npt.NDArray[np.int64]:
        """(n, 2) column and row; those far outside are put just outside."""
        columns = 0.5 * _WIDTH + (where[:, self.across] - self.middle[self.across]) * self.scale
        rows = 0.5 * _HEIGHT - (where[:, self.up] - self.middle[self.up]) * self.scale
        found = np.clip(np.stack([columns, rows], axis=1), -9, max(_WIDTH, _HEIGHT) + 9)
        return found.astype(np.int64)

    def marks(self, axis: int, length: int) -> list[float]:
        """Round coordinates along an axis of so many pixels, at least 70 pixels apart."""
        power: float = 10.0 ** math.floor(math.log10(70.0 / self.scale))
        step = next(times * power for times in (1.0, 2.0, 5.0, 10.0) if times * power * self.scale >= 70.0)
        half = 0.5 * length / self.scale
        first, last = math.ceil((self.middle[axis] - half) / step), math.floor((self.middle[axis] + half) / step)
        return [number * step for number in range(first, last + 1)]


def _along_axis(points: Floats, colours: Picture, places: Floats, across: int, up: int) -> Picture:
    """What is around the cameras, or in the middle, with coordinates along both axes."""
    from PIL import Image, ImageDraw

    low, high = np.quantile(points, [0.05, 0.95], axis=0)  # the sky is left out
    if len(places):
        low, high = np.minimum(low, places.min(axis=0)), np.maximum(high, places.max(axis=0))
    half = np.maximum(0.6 * (high - low), 1e-6)
    scale = min(0.5 * _WIDTH / float(half[across]), 0.5 * _HEIGHT / float(half[up]))
    view = _AxisView(across, up, 0.5 * (low + high), scale)
    image = _canvas()
    near = np.flatnonzero((np.abs(points - view.middle) <= half).all(axis=1))
    near = near[np.argsort(points[near, 3 - across - up], kind="stable")]
    at = view.pixels(points[near])
    inside = (at >= 0).all(axis=1) & (at[:, 0] < _WIDTH) & (at[:, 1] < _HEIGHT)
    image[at[inside, 1], at[inside, 0]] = colours[near][inside]
    picture = Image.fromarray(image)
    draw = ImageDraw.Draw(picture)
    for x, y in view.pixels(places).tolist():
        draw.ellipse((x - 2, y - 2, x + 2, y + 2), (220, 30, 30))
    for axis, length in ((across, _WIDTH), (up, _HEIGHT)):
        for mark in view.marks(axis, length):
            place = view.middle.copy()
            place[axis] = mark
            x, y = view.pixels(place[None])[0].tolist()
            line = (x, _HEIGHT - 10, x, _HEIGHT) if axis == across else (0, y, 10, y)
            draw.line(line, (0, 0, 0), 2)
            draw.text((line[2] + 4, line[3] - 14), f"{mark:g}", (0, 0, 0))
    return np.asarray(picture)


def _canvas() -> Picture:
    return np.tile(_PAPER, (_HEIGHT, _WIDTH, 1))


def _fit(x: Floats, y: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pixels, with the same scale along both axes."""
    low_x, high_x = np.quantile(x, [0.001, 0.999])
    low_y, high_y = np.quantile(y, [0.001, 0.999])
    scale = 0.94 * min(_WIDTH / max(high_x - low_x, 1e-9), _HEIGHT / max(high_y - low_y, 1e-9))
    i = (x - 0.5 * (low_x + high_x)) * scale + 0.5 * _WIDTH
    j = 0.5 * _HEIGHT - (y - 0.5 * (low_y + high_y)) * scale
    return np.clip(i, -1, _WIDTH).astype(np.int64), np.clip(j, -1, _HEIGHT).astype(np.int64)


def _plotted(x: Floats, y: Floats, depth: Floats, colours: Picture) -> Picture:
    """Dots of 2 x 2 pixels, the nearest on top (smallest depth last)."""
    image = _canvas()
    order = np.argsort(-depth, kind="stable")
    i, j = _fit(x, y)
    i, j, colours = i[order], j[order], colours[order]
    for across in (0, 1):
        for down in (0, 1):
            a, b = i + across, j + down
            inside = (a >= 0) & (a < _WIDTH) & (b >= 0) & (b < _HEIGHT)
            image[b[inside], a[inside]] = colours[inside]
    return image


def _oblique(points: Floats) -> tuple[Floats, Floats, Floats]:
    """Seen from the south-west and above: right, up, depth."""
    turn, tilt = math.radians(35.0), math.radians(38.0)
    right = points[:, 0] * math.cos(turn) - points[:, 1] * math.sin(turn)
    away = points[:, 0] * math.sin(turn) + points[:, 1] * math.cos(turn)
    return (
        right,
        away * math.sin(tilt) + points[:, 2] * math.cos(tilt),
        away * math.cos(tilt) - points[:, 2] * math.sin(tilt),
    )


def _dots(points: Floats, colours: Picture) -> Picture:
    return _plotted(*_oblique(points), colours)


def _side(points: Floats, colours: Picture) -> Picture:
    """From the south, with the horizon of the map as a line: what is level can be seen."""
    image = _plotted(points[:, 0], points[:, 2], points[:, 1], colours)
    _, j = _fit(points[:, 0], np.concatenate([points[:, 2][:-1], [0.0]]))
    row = int(np.clip(j[-1], 0, _HEIGHT - 1))
    image[row, ::2] = (30, 90, 200)
    return image


def _facets(vertices: npt.NDArray[np.float32], triangles: npt.NDArray[np.int32]) -> Picture:
    """Corners and middles of the triangles, shaded by where they face."""
    corners = vertices[triangles].astype(np.float64)
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
    shade = 0.55 + 0.45 * np.abs(normals @ np.array([0.35, -0.45, 0.82]))
    colours = (shade[:, None] * np.array([196, 176, 150])).astype(np.uint8)
    spots = np.concatenate([corners.mean(axis=1), corners[:, 0], 0.5 * (corners[:, 1] + corners[:, 2])])
    return _plotted(*_oblique(spots), np.tile(colours, (3, 1)))


def _hills(heights: npt.NDArray[np.float32]) -> Picture:
    """Heights in colour, lit from the north-west."""
    values = heights.astype(np.float64)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    share = np.nan_to_num((values - low) / max(high - low, 1e-9))
    north, east = np.gradient(np.nan_to_num(values, nan=low))
    light = np.clip(0.75 + 6.0 * (east - north) / max(high - low, 0.5), 0.35, 1.0)
    green, sand = np.array([96, 148, 98]), np.array([224, 204, 150])
    image = ((green + share[..., None] * (sand - green)) * light[..., None]).astype(np.uint8)
    image[np.isnan(values)] = _PAPER
    return _enlarged(image[::-1])


def _map(image: Picture, steps: CaptureSteps) -> Picture:
    """North up, with the outlines, the cameras' path and the start."""
    from PIL import Image, ImageDraw

    ground = steps.layers.ground
    large = Image.fromarray(_enlarged(image[::-1]))
    scale = large.width / (image.shape[1] * ground.resolution_m)

    def pixels(points: Any) -> list[tuple[float, float]]:
        return [((x - ground.west) * scale, large.height - (y - ground.south) * scale) for x, y, *_ in points]

    draw = ImageDraw.Draw(large)
    for rings in steps.drivable.polygons:
        for ring in rings:
            draw.line(pixels(ring.tolist()), (20, 90, 40), 2)
    if steps.cameras is not None:
        draw.line(pixels(steps.frame.points(steps.cameras.positions).tolist()), (40, 80, 200), 2)
    if steps.start is not None:
        x, y, yaw = steps.start
        nose = (x + 3.0 * math.cos(yaw), y + 3.0 * math.sin(yaw))
        draw.line(pixels([(x, y), nose]), (200, 30, 30), 4)
        (i, j), *_ = pixels([(x, y)])
        draw.ellipse((i - 6, j - 6, i + 6, j + 6), (200, 30, 30))
    return np.asarray(large)


def _enlarged(image: Picture) -> Picture:
    """To the width of the page, cell by cell."""
    times = max(1, _WIDTH // image.shape[1])
    step = max(1, image.shape[1] // (2 * _WIDTH))
    return np.repeat(np.repeat(image[::step, ::step], times, axis=0), times, axis=1)


def _embedded(picture: Picture) -> str:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(picture).quantize(128).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
