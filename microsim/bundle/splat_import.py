"""Converts Gaussians of other programs to the PLY of a bundle: turned, scaled, moved, cropped and thinned out.

Files are read and written in pieces. Gaussians that cannot be drawn are left out, rotations are normalised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_model import FIRST_HARMONIC, rotation_matrix
from microsim.bundle.bundle_writing import splat_header
from microsim.bundle.mapped_arrays import LARGEST, LARGEST_LOG_SCALE, SCALES, columns_of
from microsim.bundle.similarity import Similarity
from microsim.bundle.splat_sources import SplatSource, open_splats
from microsim.engine.random_layout import mix
from microsim.errors import UsageError

Floats: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = npt.NDArray[np.float32]

AXES = {  # how the source's axes lie, as the turn (x, y, z, w) that puts z up
    "z-up": (0.0, 0.0, 0.0, 1.0),
    "y-up": (math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)),
    "y-down": (-math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5)),
}

# spherical harmonics as 3D Gaussian splatting defines them
_C1 = 0.4886025119029199
_C2 = (1.0925484305920792, -1.0925484305920792, 0.31539156525252005, -1.0925484305920792, 0.5462742152960396)
_C3 = (
    -0.5900435899266435, 2.890611442640554, -0.4570457994644658, 0.3731763325901154, -0.4570457994644658,
    1.445305721320277, -0.5900435899266435,
)  # fmt: skip


@dataclass(frozen=True)
class SplatOptions:
    """What to do with the Gaussians: turn, then scale, then move, then crop, then thin out."""

    axes: str = "z-up"
    yaw: float = 0.0  # [rad] counter-clockwise about z, after the axes
    scale: float = 1.0
    translate: tuple[float, float, float] = (0.0, 0.0, 0.0)
    crop: tuple[float, ...] = ()  # x0 x1 y0 y1 or x0 x1 y0 y1 z0 z1 [m] in the map frame
    keep: int | None = None  # at most this number, chosen at random, evenly
    sh_degree: int | None = None  # at most this one
    w_first: bool = True

    @property
    def frame(self) -> Similarity:
        """From the axes of the file to the map frame."""
        quat = _times((0.0, 0.0, math.sin(0.5 * self.yaw), math.cos(0.5 * self.yaw)), AXES[self.axes])
        return Similarity(rotation_matrix(*quat).round(15), self.scale, self.translate)


@dataclass(frozen=True)
class Imported:
    """What was written, and the ground that can be guessed from it."""

    found: int
    kept: int
    sh_degree: int
    points: Rows  # (kept, 3) [m] map frame
    opaque: npt.NDArray[np.bool_]  # (kept,)


def import_splat(
    source: Path, target: Path, options: SplatOptions, progress: Callable[[int, int], None] | None = None
) -> Imported:
    """Writes `target`; raises UsageError when the source is not what it should be."""
    splats = open_splats(source, options.w_first)
    degree = min(splats.degree, 3 if options.sh_degree is None else options.sh_degree)
    chosen = drawable(splats, options.frame)
    _crop(splats, options, chosen)
    _thin_out(chosen, options.keep)
    kept = int(chosen.sum())
    points, opaque = write_splats(splats, target, options.frame, chosen, degree, progress)
    return Imported(splats.count, kept, degree, points, opaque)


def write_splats(
    splats: SplatSource,
    target: Path,
    frame: Similarity,
    chosen: npt.NDArray[np.bool_],
    degree: int,
    progress: Callable[[int, int], None] | None = None,
    w_first: bool = False,
) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """The chosen ones, in the target's frame; returns where they are, and which are opaque.

    `w_first`: for other programs, see `splat_header`.
    """
    kept = int(chosen.sum())
    turned = _Turn(frame, degree)
    points, opaque = np.empty((kept, 3), np.float32), np.empty(kept, np.bool_)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as stream:
        stream.write(splat_header(kept, degree, w_first))
        at = 0
        for start, rows in splats.pieces():
            piece = turned.applied(rows[chosen[start : start + len(rows)]], splats.degree)
            stream.write(piece.tobytes())
            points[at : at + len(piece)], opaque[at : at + len(piece)] = piece[:, 0:3], piece[:, 10] > 0.0
            at += len(piece)
            if progress is not None:
                progress(start + len(rows), splats.count)
    return points, opaque


class _Turn:
    """Turns, scales and moves Gaussians, with their colours."""

    def __init__(self, frame: Similarity, degree: int) -> None:
        self.frame, self.quat = frame, frame.quaternion
        self.degree = degree
        self.bands = turned_harmonics(frame.rotation, degree)[1:, 1:]

    def applied(self, rows: Floats, degree: int) -> Rows:
        out = np.empty((len(rows), len(columns_of(self.degree))))
        out[:, 0:3] = self.frame.points(rows[:, 0:3])
        out[:, 3:6] = rows[:, 3:6] + math.log(self.frame.scale)
        out[:, 6:10] = _products(self.quat, rows[:, 6:10])
        out[:, 10:14] = rows[:, 10:14]
        have, want = (degree + 1) ** 2 - 1, (self.degree + 1) ** 2 - 1
        for channel in range(3 if want else 0):
            rest = rows[:, 14 + channel * have : 14 + channel * have + want]
            out[:, 14 + channel * want : 14 + (channel + 1) * want] = rest @ self.bands.T
        return out.astype("<f4")


def drawable(splats: SplatSource, frame: Similarity) -> npt.NDArray[np.bool_]:
    """Which of them the renderer takes once they are in the target's frame: finite, with a rotation, not too large."""
    good = np.zeros(splats.count, np.bool_)
    for start, rows in splats.pieces():
        with np.errstate(invalid="ignore", over="ignore"):
            fine = (np.abs(rows) <= LARGEST).all(axis=1) & ((rows[:, 6:10] ** 2).sum(axis=1) > 1e-12)
            fine &= (np.abs(frame.points(rows[:, 0:3])) <= LARGEST).all(axis=1)
            fine &= (rows[:, SCALES] + math.log(frame.scale) <= LARGEST_LOG_SCALE).all(axis=1)
        good[start : start + len(rows)] = fine
    return good


def _crop(splats: SplatSource, options: SplatOptions, chosen: npt.NDArray[np.bool_]) -> None:
    frame = options.frame
    for start, rows in splats.pieces() if options.crop else ():
        with np.errstate(invalid="ignore", over="ignore"):
            points = frame.points(rows[:, 0:3])
        for axis in range(len(options.crop) // 2):
            low, high = options.crop[2 * axis], options.crop[2 * axis + 1]
            chosen[start : start + len(rows)] &= (points[:, axis] >= low) & (points[:, axis] <= high)


def _thin_out(chosen: npt.NDArray[np.bool_], keep: int | None) -> None:
    """At most `keep` of them, evenly."""
    places = np.flatnonzero(chosen)
    if keep is not None and len(places) > keep:
        order = np.argsort(_scrambled(places), kind="stable")
        chosen[:] = False
        chosen[places[order[:keep]]] = True


def _scrambled(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """A number for each number, as if random, the same everywhere."""
    return mix(numbers.astype(np.uint64))


def _times(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float, float, float]:
    x, y, z, w = _products(a, np.array([b]))[0].tolist()
    return x, y, z, w


def _products(a: tuple[float, ...], b: Floats) -> Floats:
    """a · b for many b, each normalised."""
    x, y, z, w = a
    bx, by, bz, bw = b.T
    rows = [
        w * bx + x * bw + y * bz - z * by,
        w * by - x * bz + y * bw + z * bx,
        w * bz + x * by - y * bx + z * bw,
        w * bw - x * bx - y * by - z * bz,
    ]
    out = np.stack(rows, axis=1)
    return out / np.sqrt((out * out).sum(axis=1))[:, None]


def guessed_ground(imported: Imported, resolution: float) -> tuple[Floats, float, float]:
    """Heights (ny, nx), west and south: in each cell the lower tenth of what can be seen; NaN where nothing is."""
    points = imported.points[imported.opaque].astype(np.float64)
    if not len(points):
        raise UsageError("no Gaussian is left that could be ground; crop less")
    west, south = (math.floor(float(points[:, axis].min()) / resolution) * resolution for axis in (0, 1))
    columns = int((float(points[:, 0].max()) - west) / resolution) + 1
    rows = int((float(points[:, 1].max()) - south) / resolution) + 1
    if columns * rows > 64_000_000:
        raise UsageError(f"{columns} x {rows} heights would be too many; crop, or take a coarser --resolution")
    cells = ((points[:, 1] - south) / resolution).astype(np.int64) * columns
    cells += ((points[:, 0] - west) / resolution).astype(np.int64)
    order = np.lexsort((points[:, 2], cells))
    cells, heights = cells[order], points[order, 2]
    first = np.flatnonzero(np.concatenate([[True], cells[1:] != cells[:-1]]))
    counts = np.diff(np.append(first, len(cells)))
    out = np.full(columns * rows, np.nan)
    out[cells[first]] = heights[first + counts // 10]
    return out.reshape(rows, columns), west, south


# ---- spherical harmonics ---------------------------------------------------------------------------------------------


def harmonics(directions: Floats, degree: int) -> Floats:
    """(n, (degree + 1)²) at unit vectors (n, 3)."""
    x, y, z = directions.T
    parts = [np.full(len(x), FIRST_HARMONIC)]
    if degree >= 1:
        parts += [-_C1 * y, _C1 * z, -_C1 * x]
    xx, yy, zz = x * x, y * y, z * z
    if degree >= 2:
        parts += [_C2[0] * x * y, _C2[1] * y * z, _C2[2] * (2 * zz - xx - yy), _C2[3] * x * z, _C2[4] * (xx - yy)]
    if degree >= 3:
        parts += [
            _C3[0] * y * (3 * xx - yy), _C3[1] * x * y * z, _C3[2] * y * (4 * zz - xx - yy),
            _C3[3] * z * (2 * zz - 3 * xx - 3 * yy), _C3[4] * x * (4 * zz - xx - yy), _C3[5] * z * (xx - yy),
            _C3[6] * x * (xx - 3 * yy),
        ]  # fmt: skip
    return np.stack(parts, axis=1)


def turned_harmonics(matrix: Floats, degree: int) -> Floats:
    """What a turn of the world does to the coefficients: new = turn · old, so that new(R d) = old(d)."""
    count = 200
    index = np.arange(count) + 0.5
    z = 1.0 - 2.0 * index / count
    angle = index * 2.399963229728653  # the golden angle spreads directions evenly
    radius = np.sqrt(1.0 - z * z)
    directions = np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=1)
    after, before = harmonics(directions @ matrix.T, degree), harmonics(directions, degree)
    return np.linalg.lstsq(after, before, rcond=None)[0].round(12)
