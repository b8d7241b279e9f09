"""Noise of the camera's image: a Gaussian blur, then one random gain per colour and frame, in whole numbers.

The blur's weights are whole numbers with the sum 2**11, applied along rows, then along columns, and rounded once at the
end; pixels beyond the image repeat its edge. Where all pixels within its reach are alike it changes nothing: tiles
without an edge nearby are left as they are.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import exact
from microsim.engine.compiled import inlined, kernel, plain, threaded_kernel
from microsim.engine.geometry import Grid
from microsim.engine.noise import uniforms
from microsim.render.appearance import ImageAppearance
from microsim.render.drawing import Image
from microsim.render.screen import TILE_COLUMNS, TILE_ROWS

Weights: TypeAlias = npt.NDArray[np.int64]
Sums: TypeAlias = npt.NDArray[np.int32]
SumRows: TypeAlias = npt.NDArray[np.int32]

_WEIGHT_BITS = 11  # 255 * 2**22 still fits 31 bits
_GAIN_BITS = 16
_REACH_SIGMAS = 3.5  # the rest of the bell is below half a unit of 2**-11
_ROWS, _NUMBERS = TILE_ROWS, 3 * TILE_COLUMNS  # of a tile
_SUMS, _BLUR = 1, 2  # marks of a tile: its sums along rows are needed; it is blurred


def blur_weights(sigma_px: float) -> Weights:
    """Whole weights of a Gaussian, of the middle and outwards to one side; [2**11] when there is nothing to blur."""
    reach = math.ceil(_REACH_SIGMAS * sigma_px)
    bell = [exact.exp(-0.5 * (k / sigma_px) * (k / sigma_px)) if k else 1.0 for k in range(reach + 1)]
    total = bell[0]
    for value in bell[1:]:
        total += 2.0 * value
    side, share, taken = [], 0.0, 0
    for value in bell[1:]:
        share += value / total
        side.append(math.floor(share * (1 << _WEIGHT_BITS) + 0.5) - taken)
        taken += side[-1]
    while side and side[-1] == 0:  # a bell too narrow or too far out to matter
        side.pop()
    return np.array([(1 << _WEIGHT_BITS) - 2 * sum(side), *side], np.int64)


class NoiseParts(NamedTuple):
    """What a blur works with."""

    weights: Weights
    gains: Sums
    extended_row: Sums
    blurred_rows: SumRows
    marks: Grid


class ImageNoise:
    """Blur and jitter for images of one size; holds buffers, so one caller at a time."""

    def __init__(
        self,
        width: int,
        height: int,
        blur_sigma_px: float,
        color_jitter: float,
        appearance: ImageAppearance | None = None,
    ) -> None:
        self._appearance = appearance
        self._weights = blur_weights(blur_sigma_px)
        self._jitter = color_jitter
        self._changes_nothing = self._weights.size == 1 and color_jitter == 0.0
        reach = self._weights.size - 1
        self._extended_row = np.empty(3 * (width + 2 * reach), np.int32)
        self._blurred_rows = np.empty((height, 3 * width), np.int32)
        self._gains = np.full((width, 3), 1 << _GAIN_BITS, np.int32)  # one for each number of a row of pixels
        self._marks = np.empty((-(-height // _ROWS), -(-3 * width // _NUMBERS)), np.uint8)

    @property
    def is_none(self) -> bool:
        """Images stay as they are."""
        return self._changes_nothing and self._appearance is None

    @property
    def blur_only(self) -> NoiseParts | None:
        """None: there is more than a blur."""
        if self._appearance is not None or self._jitter:
            return None
        return NoiseParts(self._weights, self._gains, self._extended_row, self._blurred_rows, self._marks)

    def apply(self, image: Image, key: int, tick: int, is_plain: bool = False) -> Image:
        """The noisy image: a new array, or `image` itself when nothing changes. `is_plain`: it has one colour."""
        if self._appearance is not None:
            image = self._appearance.apply(image, key, tick)
        if self._changes_nothing or (is_plain and self._appearance is None and not self._jitter):
            return image
        height, width, _ = image.shape
        rows = image.reshape(height, 3 * width)
        if self._jitter:
            self._gains[:] = self._draw_gains(key, tick)
        if not mark_edges(rows, self._weights.size - 1, self._marks) and not self._jitter:
            return image
        noisy = np.empty_like(image)
        blur_and_scale(
            rows,
            self._marks,
            self._weights,
            self._gains.reshape(-1),
            self._extended_row,
            self._blurred_rows,
            noisy.reshape(height, 3 * width),
        )
        return noisy

    def _draw_gains(self, key: int, tick: int) -> list[int]:
        red, green = uniforms(key, tick, 0)
        blue, _ = uniforms(key, tick, 1)
        return [_plain_gain_of(self._jitter, draw) for draw in (red, green, blue)]


@kernel
def gain_of(jitter: float, draw: float) -> int:
    gain = 1.0 + jitter * (2.0 * draw - 1.0)
    return int(max(gain, 0.0) * (1 << _GAIN_BITS) + 0.5)


_plain_gain_of: Callable[[float, float], int] = plain(gain_of)


# Below, a row of pixels is a row of numbers: red, green, blue, red, …


@threaded_kernel
def mark_edges(rows: Grid, reach: int, marks: Grid) -> bool:
    """Mark the tiles that have neighbouring pixels of two colours within reach; False when there are none."""
    marks[:] = 0
    if reach == 0:
        return False
    found = False
    up, aside = -(-reach // _ROWS), -(-3 * reach // _NUMBERS)
    for j in range(marks.shape[0]):
        for k in range(marks.shape[1]):
            if not _has_edge(rows, j * _ROWS, k * _NUMBERS):
                continue
            found = True
            for row in range(max(j - 2 * up, 0), min(j + 2 * up + 1, marks.shape[0])):
                mark = _BLUR if abs(row - j) <= up else _SUMS
                for column in range(max(k - aside, 0), min(k + aside + 1, marks.shape[1])):
                    marks[row, column] = max(int(marks[row, column]), mark)
    return found


@kernel
def _has_edge(rows: Grid, top: int, left: int) -> bool:
    """Whether a pixel of the tile differs from the next one in its row or in its column."""
    height, width = rows.shape
    right = min(left + _NUMBERS, width)
    for v in range(top, min(top + _ROWS, height)):
        row, below, differences = rows[v], rows[min(v + 1, height - 1)], np.uint8(0)
        here, under, after = row[left:right], below[left:right], row[left + 3 : min(right + 3, width)]
        for i in range(here.shape[0]):
            differences = np.uint8(differences | (here[i] ^ under[i]))
        for i in range(after.shape[0]):
            differences = np.uint8(differences | (here[i] ^ after[i]))
        if differences != 0:
            return True
    return False


@inlined
def _next_run(marks: Grid, mark: int, k: int, width: int) -> tuple[int, int]:
    """The numbers [begin, end) of the first marked tiles side by side from tile k on; end 0: there are none."""
    while k < marks.shape[0] and marks[k] < mark:
        k += 1
    first = k
    while k < marks.shape[0] and marks[k] >= mark:
        k += 1
    return first * _NUMBERS, min(k * _NUMBERS, width) if k > first else 0


@threaded_kernel
def blur_and_scale(
    rows: Grid, marks: Grid, weights: Weights, gains: Sums, extended_row: Sums, blurred_rows: SumRows, noisy: Grid
) -> None:
    height, width = rows.shape
    reach = weights.shape[0] - 1
    for v in range(height):
        blurred, tiles = blurred_rows[v], marks[v // _ROWS]
        a, b = _next_run(tiles, _SUMS, 0, width)
        if b > 0:
            _extend(rows[v], extended_row)
        while b > 0:
            begin, end, sums = a + 3 * reach, b + 3 * reach, blurred[a:b]
            _scaled(extended_row[begin:end], weights[0], sums)
            for k in range(1, reach + 1):
                left, right = extended_row[begin - 3 * k : end - 3 * k], extended_row[begin + 3 * k : end + 3 * k]
                _add_scaled(left, right, weights[k], sums)
            a, b = _next_run(tiles, _SUMS, -(-b // _NUMBERS), width)
    for v in range(height):
        tiles, done = marks[v // _ROWS], 0
        while done < width:
            a, b = _next_run(tiles, _BLUR, done // _NUMBERS, width)
            a, b = (a, b) if b > 0 else (width, width)
            _scale(rows[v, done:a], gains[done:a], noisy[v, done:a])
            total = extended_row[a:b]
            _scaled(blurred_rows[v, a:b], weights[0], total)
            for k in range(1, reach + 1):
                above, below = blurred_rows[max(v - k, 0), a:b], blurred_rows[min(v + k, height - 1), a:b]
                _add_scaled(above, below, weights[k], total)
            _round_and_scale(total, gains[a:b], noisy[v, a:b])
            done = b


@kernel
def _extend(row: Grid, extended: Sums) -> None:
    """Copy a row of pixels, repeating the first and the last one outwards."""
    width = row.shape[0]
    margin = (extended.shape[0] - width) // 2
    middle = extended[margin : margin + width]
    for i in range(width):
        middle[i] = row[i]
    for i in range(margin):
        extended[i] = row[i % 3]
        extended[margin + width + i] = row[width - 3 + i % 3]


@kernel
def _scaled(values: Sums, weight: int, total: Sums) -> None:
    for i in range(total.shape[0]):
        total[i] = np.int32(values[i] * weight)


@kernel
def _add_scaled(before: Sums, after: Sums, weight: int, total: Sums) -> None:
    for i in range(total.shape[0]):
        total[i] += np.int32((before[i] + after[i]) * weight)


@kernel
def _round_and_scale(total: Sums, gains: Sums, row: Grid) -> None:
    """Round the blurred sums to 0..255 and apply the gains, saturating."""
    for i in range(row.shape[0]):
        value = (total[i] + (1 << (2 * _WEIGHT_BITS - 1))) >> (2 * _WEIGHT_BITS)
        row[i] = _scaled_by(value, gains[i])


@kernel
def _scale(row: Grid, gains: Sums, noisy: Grid) -> None:
    for i in range(row.shape[0]):
        noisy[i] = _scaled_by(row[i], gains[i])


@inlined
def _scaled_by(value: int, gain: int) -> int:
    value = (value * gain + (1 << (_GAIN_BITS - 1))) >> _GAIN_BITS
    return value if value < 255 else 255


# ---- the same, pixel by pixel, by threads of a GPU: first all rows, then all columns


@kernel
def blur_in_row(classes: Grid, palette: SumRows, weights: Weights, u: int, sums: Sums) -> None:
    """The three sums (3,) along a row of pixels, `classes` (w,), of the pixel in column u."""
    last = classes.shape[0] - 1
    _scaled(palette[classes[u]], weights[0], sums)
    for k in range(1, weights.shape[0]):
        _add_scaled(palette[classes[max(u - k, 0)]], palette[classes[min(u + k, last)]], weights[k], sums)


@kernel
def blur_in_column(sums: SumRows, weights: Weights, gains: Sums, v: int, u: int, total: Sums, pixel: Grid) -> None:
    """The pixel (3,) from the sums of all rows (h, 3 w); total (3,) is room to work in."""
    first, end, last = 3 * u, 3 * u + 3, sums.shape[0] - 1
    _scaled(sums[v, first:end], weights[0], total)
    for k in range(1, weights.shape[0]):
        _add_scaled(sums[max(v - k, 0), first:end], sums[min(v + k, last), first:end], weights[k], total)
    _round_and_scale(total, gains, pixel)
