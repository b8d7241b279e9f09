"""Noise of the camera's image: a Gaussian blur, then one random gain per colour and frame, in whole numbers.

The blur's weights are whole numbers with the sum 2**11, applied along rows, then along columns, and rounded once at the
end; pixels beyond the image repeat its edge.
"""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import exact
from microsim.engine.compiled import kernel, threaded_kernel
from microsim.engine.geometry import Grid
from microsim.engine.noise import uniforms
from microsim.render.drawing import Image

Weights: TypeAlias = npt.NDArray[np.int64]
Sums: TypeAlias = npt.NDArray[np.int32]
SumRows: TypeAlias = npt.NDArray[np.int32]

_WEIGHT_BITS = 11  # 255 * 2**22 still fits 31 bits
_GAIN_BITS = 16
_REACH_SIGMAS = 3.5  # the rest of the bell is below half a unit of 2**-11


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


class ImageNoise:
    """Blur and jitter for images of one size; holds buffers, so one caller at a time."""

    def __init__(self, width: int, height: int, blur_sigma_px: float, color_jitter: float) -> None:
        self._weights = blur_weights(blur_sigma_px)
        self._jitter = color_jitter
        self._changes_nothing = self._weights.size == 1 and color_jitter == 0.0
        reach = self._weights.size - 1
        self._extended_row = np.empty(3 * (width + 2 * reach), np.int32)
        self._blurred_rows = np.empty((height, 3 * width), np.int32)
        self._gains = np.full((width, 3), 1 << _GAIN_BITS, np.int32)  # one for each number of a row of pixels

    def apply(self, image: Image, key: int, tick: int) -> Image:
        """The noisy image: a new array, or `image` itself when there is no noise."""
        if self._changes_nothing:
            return image
        if self._jitter:
            self._gains[:] = self._draw_gains(key, tick)
        height, width, _ = image.shape
        noisy = np.empty_like(image)
        _blur_and_scale(
            image.reshape(height, 3 * width),
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
        gains = (1.0 + self._jitter * (2.0 * draw - 1.0) for draw in (red, green, blue))
        return [math.floor(max(gain, 0.0) * (1 << _GAIN_BITS) + 0.5) for gain in gains]


# Below, a row of pixels is a row of numbers: red, green, blue, red, …


@threaded_kernel
def _blur_and_scale(
    rows: Grid, weights: Weights, gains: Sums, extended_row: Sums, blurred_rows: SumRows, noisy: Grid
) -> None:
    height, width = rows.shape
    reach = weights.shape[0] - 1
    for v in range(height):
        blurred = blurred_rows[v]
        _extend(rows[v], extended_row)
        _scaled(extended_row[3 * reach : 3 * reach + width], weights[0], blurred)
        for k in range(1, reach + 1):
            left, right = 3 * (reach - k), 3 * (reach + k)
            _add_scaled(extended_row[left : left + width], extended_row[right : right + width], weights[k], blurred)
    total = extended_row[:width]
    for v in range(height):
        _scaled(blurred_rows[v], weights[0], total)
        for k in range(1, reach + 1):
            _add_scaled(blurred_rows[max(v - k, 0)], blurred_rows[min(v + k, height - 1)], weights[k], total)
        _round_and_scale(total, gains, noisy[v])


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
        value = (value * gains[i] + (1 << (_GAIN_BITS - 1))) >> _GAIN_BITS
        row[i] = value if value < 255 else 255
