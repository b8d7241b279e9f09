"""Weather, light and lens on a finished image: rain, dusk, vignetting, exposure, in whole numbers.

In this order: rain takes colour and contrast and draws streaks, dusk darkens and turns to blue, the lens loses light
towards its corners, the exposure multiplies, and levels saturate. Depth and classes stay the truth.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import exact
from microsim.engine.compiled import inlined, threaded_kernel
from microsim.engine.noise import words
from microsim.render.drawing import Image

Table: TypeAlias = npt.NDArray[np.int64]

_TONE_BITS, _LIGHT_BITS = 8, 14
_RAIN_INDEX = 3 << 30  # of the random numbers of a tick: others of a camera begin at 0 and at 2**31
_LN_2 = 0.6931471805599453
_DUSK = ((0.55, 1.45), (0.5, 1.25), (0.55, 1.05))  # of red, green, blue: what is left of white, exponent below it
_DUSK_GREY = 0.35
_RAIN_GREY, _RAIN_VEIL, _HAZE = 0.5, 0.35, (138.0, 144.0, 150.0)
_STREAK_AREA_PX = 330  # of the image for each streak, in the heaviest rain
_STREAK_LEVELS = 214
_LEAST_ROWS = 6


class ImageAppearance:
    """Of the images of one camera; numbers as in the block `appearance` of a scenario."""

    def __init__(
        self,
        size: tuple[int, int],  # width, height [px]
        centre: tuple[float, float],  # of the lens [px]
        blind: npt.NDArray[np.bool_] | None = None,  # (h, w) pixels that see nothing, and stay black
        *,
        exposure_ev: float,
        vignetting: float,
        dusk: float,
        rain: float,
    ) -> None:
        self._tones = np.array([_tones(channel, exposure_ev, dusk, rain) for channel in range(3)], np.int64)
        self._light = _light(*size, *centre, vignetting)
        if blind is not None:
            self._light[blind] = 0
        self._grey = _rounded(256.0 * (1.0 - (1.0 - _DUSK_GREY * dusk) * (1.0 - _RAIN_GREY * rain)))
        self._streaks = _rounded(rain * size[0] * size[1] / _STREAK_AREA_PX)

    def apply(self, image: Image, key: int, tick: int) -> Image:
        changed = np.empty_like(image)
        _change(image, self._grey, self._streaks, key, tick, self._tones, self._light, changed)
        return changed


def _rounded(value: float) -> int:
    return math.floor(value + 0.5)


def _tones(channel: int, exposure_ev: float, dusk: float, rain: float) -> list[int]:
    """From each level to what the camera makes of it."""
    white, exponent = _DUSK[channel]
    gain, power = (
        exact.exp(_LN_2 * exposure_ev + dusk * exact.log(white)) * (1 << _TONE_BITS),
        1.0 + (exponent - 1.0) * dusk,
    )
    curve = [0.0, *(255.0 * exact.exp(power * exact.log(k / 255.0)) for k in range(1, 256))]
    hazy = [level + (_HAZE[channel] - level) * _RAIN_VEIL * rain for level in range(256)]
    return [_rounded(gain * _between(curve, level)) for level in hazy]


def _between(curve: Sequence[float], level: float) -> float:
    below = min(int(level), 254)
    return curve[below] + (curve[below + 1] - curve[below]) * (level - below)


def _light(width: int, height: int, cx: float, cy: float, vignetting: float) -> Table:
    """What the lens lets through: less with the square of the distance from its centre."""
    across, down = np.arange(width, dtype=np.float64) - cx, np.arange(height, dtype=np.float64) - cy
    squares = across[None, :] * across[None, :] + down[:, None] * down[:, None]
    farthest = float(squares.max())
    share = 1.0 - vignetting * (squares / (farthest if farthest > 0.0 else 1.0))
    table: Table = np.floor(share * (1 << _LIGHT_BITS) + 0.5).astype(np.int64)
    return table


@threaded_kernel
def _change(
    image: Image, grey_share: int, streaks: int, key: int, tick: int, tones: Table, light: Table, out: Image
) -> None:
    height, width = light.shape
    for v in range(height):
        for u in range(width):
            red, green, blue = int(image[v, u, 0]), int(image[v, u, 1]), int(image[v, u, 2])
            grey = (77 * red + 150 * green + 29 * blue) >> 8
            out[v, u, 0] = red + (((grey - red) * grey_share) >> 8)
            out[v, u, 1] = green + (((grey - green) * grey_share) >> 8)
            out[v, u, 2] = blue + (((grey - blue) * grey_share) >> 8)
    for k in range(streaks):
        _draw_streak(words(key, tick, _RAIN_INDEX + k), out)
    half = 1 << (_TONE_BITS + _LIGHT_BITS - 1)
    for v in range(height):
        for u in range(width):
            for channel in range(3):
                level = (tones[channel, int(out[v, u, channel])] * light[v, u] + half) >> (_TONE_BITS + _LIGHT_BITS)
                out[v, u, channel] = level if level < 255 else 255


@threaded_kernel
def _draw_streak(drawn: tuple[int, int, int, int], image: Image) -> None:
    """A drop that falls while the shutter is open: long, wide and faint where it is near. Lengths in 1/256 px."""
    height, width = image.shape[0], image.shape[1]
    near = drawn[2] & 255
    near = (near * near) >> 8
    rows = _LEAST_ROWS + (height * (8 + ((40 * near) >> 8))) // 320
    top = ((drawn[0] * (height + rows)) >> 32) - rows
    slant = 20 + ((drawn[2] >> 8) & 31)
    x = (((drawn[1] * (width + rows)) >> 32) - rows) * 256 + (drawn[3] & 255)
    half_width = 20 + ((height * near) // 640)
    opacity = 70 + ((drawn[3] >> 8) & 63) - (near >> 2)
    for row in range(max(top, 0), min(top + rows, height)):
        along = row - top
        fade = min(min(along + 1, rows - along) * 1024 // rows, 256)
        middle = x + slant * along
        first, last = (middle - half_width - 128) >> 8, (middle + half_width + 128) >> 8
        for column in range(max(first, 0), min(last + 1, width)):
            cover = min(max(half_width + 128 - abs(column * 256 - middle), 0), 256)
            _brighten(image, row, column, (cover * fade * opacity) >> 16)


@inlined
def _brighten(image: Image, row: int, column: int, share: int) -> None:
    for channel in range(3):
        level = int(image[row, column, channel])
        image[row, column, channel] = level + (((_STREAK_LEVELS - level) * share) >> 8)
