"""Which pixels can see a thing: the camera's rays as a screen, the bounds of a prism on it, where rays enter boxes."""

import math
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import inlined, kernel
from microsim.engine.geometry import Array, Vector

Rays: TypeAlias = Array  # (2, h, w): a and b of each pixel's ray (a, b, 1) in the optical frame; NaN sees nothing
Pose: TypeAlias = Array  # (12,) camera position [m], then the rows of the rotation from the optical to the map frame
Prism: TypeAlias = Array  # (10,) bottom, top [m], x and y of the four corners of its footprint [m], map frame
Spans: TypeAlias = npt.NDArray[np.int32]
Span: TypeAlias = npt.NDArray[np.int32]  # (4,) first and end column, first and end row

_BINS_PER_PIXEL = 16
TINY = 1e-300
_SLACK = 1e-9  # of a and b, far above their rounding and far below a pixel
TILE_ROWS, TILE_COLUMNS = 8, 32  # [px]


class Scale(NamedTuple):
    """Of the bins of an index of a screen."""

    first_a: float
    per_a: float  # bins per a
    first_b: float
    per_b: float


class ScreenIndex(NamedTuple):
    """The rays of a camera, indexed: which columns see an a, and which rows a b.

    Kernels take it apart before their loops: an array taken out of a tuple in a loop is counted as a reference.
    """

    scale: Scale
    columns: Spans  # (2, bins) of each bin of a: the first column it can be in, and the end of those
    rows: Spans  # likewise of b


def screen_index(rays: Rays) -> ScreenIndex:
    columns, a_low, a_scale = _axis_index(np.fmin.reduce(rays[0], axis=0), np.fmax.reduce(rays[0], axis=0))
    rows, b_low, b_scale = _axis_index(np.fmin.reduce(rays[1], axis=1), np.fmax.reduce(rays[1], axis=1))
    return ScreenIndex(Scale(a_low, a_scale, b_low, b_scale), columns, rows)


def cut_to(screen: ScreenIndex, left: int, right: int, top: int, bottom: int) -> ScreenIndex:
    """Of these columns and rows alone."""
    columns, rows = np.clip(screen.columns, left, right), np.clip(screen.rows, top, bottom)
    return ScreenIndex(screen.scale, columns.astype(np.int32), rows.astype(np.int32))


def tile_outlines(rays: Rays) -> Array:
    """Per tile the lowest and highest a, then b, of its rays; NaN when it has a pixel without a ray."""
    rows, columns = range(0, rays.shape[1], TILE_ROWS), range(0, rays.shape[2], TILE_COLUMNS)
    bounds = [
        [least.reduceat(least.reduceat(axis, rows, axis=0), columns, axis=1) for least in (np.minimum, np.maximum)]
        for axis in rays
    ]
    return np.ascontiguousarray(np.moveaxis(np.concatenate(bounds), 0, -1))


def _axis_index(lows: Array, highs: Array) -> tuple[Spans, float, float]:
    """Cut the range of a (or b) into bins; for each, the first column it can lie in and the end of those.

    Given each column's lowest and highest ray, this holds for any distortion; bins 0 and -1 lie outside the screen.
    """
    count = lows.size
    bins = _BINS_PER_PIXEL * count
    ups = np.fmax.accumulate(highs)  # sorted, so that the first column that reaches a bin can be searched
    downs = np.fmin.accumulate(lows[::-1])[::-1]
    low, high = np.fmin.reduce(lows), np.fmax.reduce(highs)
    if not low < high:
        low, high = (low - 1.0, low + 1.0) if low == low else (0.0, 1.0)
    scale = bins / (high - low)
    edges = low + np.arange(bins + 1) / scale
    spans = np.zeros((2, bins + 2), np.int32)
    spans[0, 1:] = np.searchsorted(np.where(np.isnan(ups), -np.inf, ups), edges - _SLACK, side="left")
    spans[1, :-1] = np.searchsorted(np.where(np.isnan(downs), np.inf, downs), edges + _SLACK, side="right")
    spans[0, -1] = count
    spans[1, 0], spans[1, -1] = 0, count
    return spans, float(low), float(scale)


@inlined
def _span(spans: Spans, first: float, per_bin: float, low: float, high: float) -> tuple[int, int]:
    last = float(spans.shape[1] - 1)
    begin = min(max((low - _SLACK - first) * per_bin + 1.0, 0.0), last)
    end = min(max((high + _SLACK - first) * per_bin + 1.0, 0.0), last)
    return int(spans[0, int(begin)]), int(spans[1, int(end)])


@inlined
def column_span(scale: Scale, columns: Spans, low: float, high: float) -> tuple[int, int]:
    """Half-open range of the columns whose rays can have an a within [low, high]."""
    return _span(columns, scale.first_a, scale.per_a, low, high)


@inlined
def row_span(scale: Scale, rows: Spans, low: float, high: float) -> tuple[int, int]:
    """Half-open range of the rows whose rays can have a b within [low, high]."""
    return _span(rows, scale.first_b, scale.per_b, low, high)


@inlined
def whole_groups(begin: int, end: int, count: int) -> tuple[int, int]:
    """Columns, widened to groups of 8: quicker than the odd ones out, which SIMD does one by one."""
    return (begin & -8, min((end + 7) & -8, count)) if begin < end else (0, 0)


@inlined
def fill_span(scale: Scale, columns: Spans, rows: Spans, limits: tuple[float, float, float, float], span: Span) -> None:
    """The pixels, in whole groups, whose rays can be within these limits: lowest and highest a, then b."""
    u0, u1 = column_span(scale, columns, limits[0], limits[1])
    span[0], span[1] = whole_groups(u0, u1, int(columns[1, -1]))
    span[2], span[3] = row_span(scale, rows, limits[2], limits[3])


@inlined
def inverse_of(number: float) -> float:
    """A zero is replaced by `TINY`: the quotient then decides as its limit would, and no NaN arises."""
    return 1.0 / (number if number != 0.0 else TINY)


@inlined
def between(low: float, high: float, inverse: float) -> tuple[float, float]:
    """Where a ray enters and leaves the slab from low to high, `inverse` being that of its component across it."""
    t0, t1 = low * inverse, high * inverse
    return (t0 if t0 < t1 else t1), (t1 if t0 < t1 else t0)


@inlined
def into_body(body: Array, start: Vector, ray: Vector) -> float:
    """Where a ray enters a box in any attitude, as a multiple of `ray`; inf: it misses the box or starts in it.

    body (15,): middle [m] and axes (rows of the matrix from the body to the map frame), half its size [m].
    """
    x, y, z = start[0] - body[0], start[1] - body[1], start[2] - body[2]
    enter, leave = -math.inf, math.inf
    for k in range(3):
        place = body[3 + k] * x + body[6 + k] * y + body[9 + k] * z
        inverse = inverse_of(body[3 + k] * ray[0] + body[6 + k] * ray[1] + body[9 + k] * ray[2])
        near, far = between(-body[12 + k] - place, body[12 + k] - place, inverse)
        enter, leave = max(enter, near), min(leave, far)
    return enter if (enter <= leave) & (enter > 0.0) else math.inf


@kernel
def bounds(pose: Pose, prism: Prism) -> tuple[float, float, float, float]:
    """Lowest and highest a, then b, of the rays that can hit a prism: its corners, and where edges pass the eye.

    Nothing is in front of the eye: (inf, -inf, inf, -inf).
    """
    a_low, a_high, b_low, b_high = math.inf, -math.inf, math.inf, -math.inf
    low = prism[0] - pose[2]
    high = prism[1] - pose[2]
    for k in range(4):
        x0 = prism[2 + 2 * k] - pose[0]
        y0 = prism[3 + 2 * k] - pose[1]
        for edge in range(3):  # bottom, top, upright
            after = k if edge == 2 else (k + 1) % 4
            x1 = prism[2 + 2 * after] - pose[0]
            y1 = prism[3 + 2 * after] - pose[1]
            z0 = high if edge == 1 else low
            z1 = low if edge == 0 else high
            ahead0 = pose[5] * x0 + pose[8] * y0 + pose[11] * z0
            ahead1 = pose[5] * x1 + pose[8] * y1 + pose[11] * z1
            if ahead0 <= 0.0 and ahead1 <= 0.0:
                continue
            right0 = pose[3] * x0 + pose[6] * y0 + pose[9] * z0
            down0 = pose[4] * x0 + pose[7] * y0 + pose[10] * z0
            if ahead0 > 0.0:
                a_low, a_high = min(a_low, right0 / ahead0), max(a_high, right0 / ahead0)
                b_low, b_high = min(b_low, down0 / ahead0), max(b_high, down0 / ahead0)
                if ahead1 > 0.0:
                    continue
            # The edge passes beside the eye: on that side the prism continues to infinity.
            sign = 1.0 if ahead1 > ahead0 else -1.0
            right1 = pose[3] * x1 + pose[6] * y1 + pose[9] * z1
            down1 = pose[4] * x1 + pose[7] * y1 + pose[10] * z1
            right = sign * (right0 * ahead1 - right1 * ahead0)
            down = sign * (down0 * ahead1 - down1 * ahead0)
            a_low = -math.inf if right <= 0.0 else a_low
            a_high = math.inf if right >= 0.0 else a_high
            b_low = -math.inf if down <= 0.0 else b_low
            b_high = math.inf if down >= 0.0 else b_high
    return a_low, a_high, b_low, b_high
