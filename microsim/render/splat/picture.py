"""From splats to what a camera delivers: background, blended splats, lens, exposure and noise, bytes; on the CPU.

The background is one colour, or a sky that goes from the horizon's to the zenith's with the sine of the elevation; and
below the horizon that of the ground, if it has one.
A lens with distortion is applied by looking up each pixel in the picture of a pinhole camera that sees as much.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from microsim.engine.compiled import threaded_kernel
from microsim.engine.geometry import Array, Vector
from microsim.engine.noise import words
from microsim.engine.workers import Workers, parts_of
from microsim.render.drawing import Image
from microsim.render.palette_camera import CameraModel, Rotation
from microsim.render.relief import NO_GROUND, Ground
from microsim.render.robot_models import shade
from microsim.render.splat import NEAR_M
from microsim.render.splat.activation import Floats, Splats
from microsim.render.splat.blending import NOTHING, Frame, Owners
from microsim.render.splat.projection import AXES, CX, CY, FX, FY, POSITION, View, view_of
from microsim.render.splat.rasteriser import Rasteriser

_f32 = np.float32
_ZERO, _HALF, _BRIGHTEST = _f32(0.0), _f32(0.5), _f32(255.0)
# The sum of four bytes, less its mean 510, has this standard deviation: near enough to a normal distribution.
NOISE_UNIT = math.sqrt(4.0 * (256.0 * 256.0 - 1.0) / 12.0)
_LARGEST_CANVAS = 3  # times the image, each way


@dataclass(frozen=True)
class Sky:
    """What is behind everything; colours 0 to 1."""

    horizon: Vector = (0.0, 0.0, 0.0)
    zenith: Vector = (0.0, 0.0, 0.0)
    ground: Vector | None = None  # below the horizon; None: as at the horizon

    @property
    def colours(self) -> Floats:
        return np.array([*self.horizon, *self.zenith, *(self.ground or self.horizon)], np.float32)


@dataclass(frozen=True)
class Exposure:
    """Of one frame."""

    gain: float = 1.0
    noise_sigma: float = 0.0  # [levels of 255] standard deviation of each colour of each pixel
    key: int = 0  # of the noise
    tick: int = 0


@dataclass(frozen=True)
class Things:
    """What else the camera sees, in the canvas's picture: robots, obstacles, meshes."""

    depths: Floats  # (h, w) [m] along the optical axis, of a fisheye along the ray; infinite where there is none
    colours: Image  # (h, w, 3)


@dataclass(frozen=True)
class Lens:
    """What splats are blended on (`canvas`), and where each pixel of the camera looks in its picture; NaN: nowhere.

    The canvas of a lens with distortion is a pinhole's, that of a fisheye its own image: `rays` are those of its
    pixels, and its depths are distances along them, of which `stretch` makes depths along the optical axis.
    """

    canvas: CameraModel
    lookup: Floats | None  # (h, w, 2) column and row; None: the same pixel
    rays: Array | None = None  # (h, w, 2) a and b of (a, b, 1); NaN: sees nothing
    stretch: Array | None = None  # (h, w) length of (a, b, 1)
    top: int = 0  # row of the image in which it begins, where it is a strip of one
    strip: tuple[int, int] | None = None  # likewise of the canvas: first row, and height of the whole

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the camera's image."""
        if self.lookup is None:
            return self.canvas.height, self.canvas.width
        return self.lookup.shape[0], self.lookup.shape[1]

    def things(self, image: Image, depths: Array) -> Things:
        """From what the palette's renderer sees along the axis; where a fisheye sees nothing, a black thing is."""
        if self.stretch is None:
            return Things(depths.astype(np.float32), image)
        is_blind = np.isnan(self.stretch)
        image[is_blind] = 0
        return Things(np.where(is_blind, 0.0, depths * self.stretch).astype(np.float32), image)

    @property
    def no_things(self) -> Things | None:
        """Where nothing stands; None: the lens sees something in every pixel."""
        if self.stretch is None:
            return None
        return self.things(np.zeros((*self.stretch.shape, 3), np.uint8), np.full(self.stretch.shape, np.inf))

    def along_axis(self, depths: Floats) -> Floats:
        """From the depths of the canvas to those of the camera's image."""
        if self.stretch is None:
            return depths
        return np.where(np.isnan(self.stretch), np.inf, depths / self.stretch).astype(np.float32)


@dataclass(frozen=True)
class SplatActor:
    """Splats that move as one, and where they are now."""

    splats: Splats
    position: Vector  # [m] map frame
    rotation: Rotation  # rows of the matrix from their frame to the map frame

    def view(self, view: View) -> View:
        """A camera in the frame of these splats. It moves in place of them, and so their colours turn with them."""
        own, r = view.copy(), self.rotation
        x, y, z = (float(view[POSITION + k]) - self.position[k] for k in range(3))
        own[POSITION : POSITION + 3] = [r[0][k] * x + r[1][k] * y + r[2][k] * z for k in range(3)]
        for at in range(AXES, AXES + 9, 3):
            x, y, z = view[at : at + 3].tolist()
            own[at : at + 3] = [r[0][k] * x + r[1][k] * y + r[2][k] * z for k in range(3)]
        return own


@dataclass(frozen=True)
class Shadows:
    """Of bodies that stand between the sun and what the camera shows."""

    bodies: Array  # (n, 15) as `body_row` gives them
    rays: Array  # (2, h, w) of the image's pixels
    ground: Ground = NO_GROUND


@dataclass(frozen=True)
class Shot:
    """All that one picture depends on, beside the scene."""

    lens: Lens
    position: Vector  # [m] map frame
    rotation: Rotation
    sky: Sky = Sky()
    exposure: Exposure = Exposure()
    things: Things | None = None
    near_m: float = NEAR_M
    actors: tuple[SplatActor, ...] = ()
    shadows: Shadows | None = None
    has_depths: bool = True  # False: nobody will look at them

    @property
    def pose(self) -> Array:
        """Position, and the rows of the rotation."""
        return np.array([*self.position, *self.rotation[0], *self.rotation[1], *self.rotation[2]])

    @property
    def view(self) -> View:
        canvas = self.lens.canvas
        size, focal, centre = (canvas.width, canvas.height), (canvas.fx, canvas.fy), (canvas.cx, canvas.cy)
        bend = canvas.distortion if canvas.is_fisheye else None
        return view_of(*size, focal, centre, self.position, self.rotation, self.near_m, bend, self.lens.strip)


@dataclass(frozen=True)
class Picture:
    colours: Image  # (h, w, 3)
    depths: Floats  # (h, w) [m] along the optical axis, of the surface that is seen; inf: none; (0, 0): not wanted
    owners: Owners  # (h, w) whose surface it is, as in a `Frame`; (0, 0): not wanted


def strip_of(lens: Lens, begin: int, end: int) -> Lens:
    """Of the rows begin to end of its image alone."""
    canvas, lookup, first, last = lens.canvas, lens.lookup, begin, end
    if lookup is not None:
        lookup = lookup[begin:end].copy()
        seen = lookup[..., 1][np.isfinite(lookup[..., 1])]
        first = max(int(seen.min(initial=np.inf)), 0) if seen.size else 0
        last = min(int(seen.max(initial=0.0)) + 2, canvas.height)
        lookup[..., 1] -= first
    part = replace(canvas, height=max(last - first, 1), cy=canvas.cy - first)
    rays, stretch = (None if each is None else each[begin:end] for each in (lens.rays, lens.stretch))
    return Lens(part, lookup, rays, stretch, begin, (first, canvas.height))


def lens_of(model: CameraModel) -> Lens:
    if model.is_fisheye:
        a, b = model.rays()
        return Lens(model, None, np.stack([a, b], axis=-1), np.sqrt(a * a + b * b + 1.0))
    if not any(model.distortion):
        return Lens(model, None)
    rays = model.rays()
    columns, fx, cx = _canvas_axis(rays[0], model.fx, model.width)
    rows, fy, cy = _canvas_axis(rays[1], model.fy, model.height)
    lookup = np.stack([rays[0] * fx + cx, rays[1] * fy + cy], axis=-1).astype(np.float32)
    return Lens(CameraModel(columns, rows, fx, fy, cx, cy), lookup)


def _canvas_axis(slopes: Array, focal: float, size: int) -> tuple[int, float, float]:
    """Pixels, focal length and centre of an axis that holds all slopes; coarser where that would be too large."""
    low, high = float(np.fmin.reduce(slopes, axis=None)), float(np.fmax.reduce(slopes, axis=None))
    if not low <= high:
        return 1, focal, 0.0
    room = _LARGEST_CANVAS * size
    focal = min(focal, (room - 2) / (high - low)) if high > low else focal
    return math.ceil(focal * (high - low)) + 2, focal, -focal * low


@threaded_kernel
def fill_sky(view: View, sky: Floats, rays: Array, begin: int, end: int, behind: Floats) -> None:
    """Rows begin to end of `behind` (h, w, 3). `rays` (h, w, 2) has no rows when the camera is a pinhole."""
    for v in range(begin, end):
        for u in range(behind.shape[1]):
            x, y = (u - view[CX]) / view[FX], (v - view[CY]) / view[FY]
            if rays.shape[0] > 0:
                x, y = rays[v, u, 0], rays[v, u, 1]
            if x != x:  # a fisheye sees nothing there
                behind[v, u] = _ZERO
                continue
            up = view[AXES + 2] * x + view[AXES + 5] * y + view[AXES + 8]
            share = _f32(max(up, 0.0) / math.sqrt(x * x + y * y + 1.0))
            low = 6 if up < 0.0 else 0
            for channel in range(3):
                behind[v, u, channel] = sky[low + channel] + (sky[channel + 3] - sky[low + channel]) * share


@threaded_kernel
def put_things(depths: Floats, colours: Image, begin: int, end: int, behind: Floats) -> None:
    for v in range(begin, end):
        for u in range(behind.shape[1]):
            if depths[v, u] < math.inf:
                for channel in range(3):
                    behind[v, u, channel] = _f32(colours[v, u, channel]) / _BRIGHTEST


@threaded_kernel
def develop(
    colours: Floats,
    lookup: Floats,
    gain: float,
    noise_level: float,
    key: int,
    tick: int,
    first: int,
    begin: int,
    end: int,
    image: Image,
) -> None:
    """Rows begin to end of the image. `lookup` has no rows when there is no distortion; gain and level are float32.

    `first`: the first pixel's number in the noise.
    """
    for v in range(begin, end):
        for u in range(image.shape[1]):
            noise = (0, 0, 0, 0)
            if noise_level > _ZERO:
                noise = words(key, tick, first + v * image.shape[1] + u)
            for channel in range(3):
                if lookup.shape[0] == 0:
                    value = colours[v, u, channel]
                else:
                    value = _looked_up(colours, channel, lookup[v, u, 0], lookup[v, u, 1])
                value = gain * value
                if noise_level > _ZERO:
                    value += noise_level * _sum_of_bytes(noise[channel])
                image[v, u, channel] = _byte(value)


@threaded_kernel
def _looked_up(colours: Floats, channel: int, x: float, y: float) -> float:
    """Between four pixels; black outside."""
    if not ((x >= _ZERO) & (y >= _ZERO) & (x < colours.shape[1] - 1) & (y < colours.shape[0] - 1)):
        return _ZERO
    u, v = int(x), int(y)
    a, b = x - _f32(u), y - _f32(v)
    above = _mix(colours[v, u, channel], colours[v, u + 1, channel], a)
    below = _mix(colours[v + 1, u, channel], colours[v + 1, u + 1, channel], a)
    return _mix(above, below, b)


@threaded_kernel
def _mix(first: float, second: float, share: float) -> float:
    return first + (second - first) * share


@threaded_kernel
def _sum_of_bytes(word: int) -> float:
    return _f32((word & 255) + ((word >> 8) & 255) + ((word >> 16) & 255) + ((word >> 24) & 255) - 510)


@threaded_kernel
def _byte(value: float) -> int:
    value = min(max(value, _ZERO), _BRIGHTEST)
    return np.uint8(value + _HALF)


@threaded_kernel
def look_up_surfaces(
    depths: Floats, owners: Owners, lookup: Floats, begin: int, end: int, to_depths: Floats, to_owners: Owners
) -> None:
    """The nearest pixel's: two surfaces are not mixed."""
    for v in range(begin, end):
        for u in range(to_depths.shape[1]):
            x, y = lookup[v, u, 0] + _HALF, lookup[v, u, 1] + _HALF
            is_inside = (x >= _ZERO) & (y >= _ZERO) & (x < depths.shape[1]) & (y < depths.shape[0])
            to_depths[v, u] = depths[int(y), int(x)] if is_inside else math.inf
            to_owners[v, u] = owners[int(y), int(x)] if is_inside else NOTHING


NO_DEPTHS: Floats = np.empty((0, 0), np.float32)
NO_OWNERS: Owners = np.empty((0, 0), np.uint16)
NO_LOOKUP: Floats = np.empty((0, 0, 2), np.float32)
NO_RAYS: Array = np.empty((0, 0, 2))


class SplatRenderer(Protocol):
    """A back end: the CPU's, or one that gives the same pictures sooner."""

    def pictures(self, shots: Sequence[Shot]) -> list[Picture]:
        """Of several cameras at once."""


class CpuRenderer:
    def __init__(self, splats: Splats, workers: Workers | None = None) -> None:
        self._rasteriser = Rasteriser(splats, workers)
        self._workers = self._rasteriser.workers

    def pictures(self, shots: Sequence[Shot]) -> list[Picture]:
        return [self._picture(shot) for shot in shots]

    def _picture(self, shot: Shot) -> Picture:
        behind, limits = self._background(shot)
        view = shot.view
        frame = self._rasteriser.render(view, behind, limits, [(each.view(view), each.splats) for each in shot.actors])
        height, width = shot.lens.size
        image = np.empty((height, width, 3), np.uint8)
        lookup = NO_LOOKUP if shot.lens.lookup is None else shot.lens.lookup
        exposure, first = shot.exposure, shot.lens.top * width
        gain, level = np.float32(255.0 * exposure.gain), np.float32(exposure.noise_sigma / NOISE_UNIT)
        self._by_rows(
            height,
            lambda begin, end: develop(
                frame.colours, lookup, gain, level, exposure.key, exposure.tick, first, begin, end, image
            ),
        )
        depths, owners = self._surfaces(frame, shot)
        if shot.shadows is not None:
            self._shade(shot.pose, shot.shadows, depths, owners, image)
        return Picture(image, depths, owners)

    def _shade(self, pose: Array, shadows: Shadows, depths: Floats, owners: Owners, image: Image) -> None:
        surfaces = pose, shadows.rays, depths, owners, shadows.ground, shadows.bodies

        def shade_rows(begin: int, end: int) -> None:
            with np.errstate(all="ignore"):
                shade(*surfaces, begin, end, image)

        self._by_rows(image.shape[0], shade_rows)

    def _background(self, shot: Shot) -> tuple[Floats, Floats]:
        height, width, things = shot.lens.canvas.height, shot.lens.canvas.width, shot.things
        behind = np.empty((height, width, 3), np.float32)
        view, sky = shot.view, shot.sky.colours
        rays = NO_RAYS if shot.lens.rays is None else shot.lens.rays

        def fill(begin: int, end: int) -> None:
            fill_sky(view, sky, rays, begin, end, behind)
            if things is not None:
                put_things(things.depths, things.colours, begin, end, behind)

        self._by_rows(height, fill)
        return behind, np.full((height, width), np.inf, np.float32) if things is None else things.depths

    def _surfaces(self, frame: Frame, shot: Shot) -> tuple[Floats, Owners]:
        lookup = shot.lens.lookup
        if lookup is None:
            return shot.lens.along_axis(frame.depths), frame.owners
        seen = frame.depths, frame.owners, lookup
        depths, owners = np.empty(shot.lens.size, np.float32), np.empty(shot.lens.size, np.uint16)
        self._by_rows(depths.shape[0], lambda begin, end: look_up_surfaces(*seen, begin, end, depths, owners))
        return depths, owners

    def _by_rows(self, rows: int, task: Callable[[int, int], None]) -> None:
        parts = parts_of(rows, self._workers.count)
        self._workers.run(lambda part, _: task(*parts[part]), len(parts))
