"""Directions and velocities in a robot's own axes, for all worlds at once, and the rows of numbers as columns.

The formulas are there once: loops over worlds compile them for the CPU, and CuPy's arrays take them as they are.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import inlined, plain, threaded_kernel
from microsim.engine.exact import sincos

Array: TypeAlias = npt.NDArray[np.float64]
Float32s: TypeAlias = npt.NDArray[np.float32]


@inlined
def heading(z: Any, w: Any) -> tuple[Any, Any]:
    """Sine and cosine of the heading of a quaternion (0, 0, z, w)."""
    return 2.0 * w * z, w * w - z * z


@inlined
def turned(sine: Any, cosine: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Forward and to the left, of a vector in map axes."""
    return cosine * x + sine * y, cosine * y - sine * x


heading_of_arrays, turned_arrays = plain(heading), plain(turned)


@threaded_kernel
def headings(yaw: Array, sines: Array, cosines: Array) -> None:
    """To the bit those of the quaternions that odometry reports."""
    for i in range(yaw.shape[0]):
        z, w = sincos(0.5 * yaw[i])
        sines[i], cosines[i] = heading(z, w)


@threaded_kernel
def turn_by_yaw(yaw: Array, x: Array, y: Array, ahead: Array, aside: Array) -> None:
    for i in range(yaw.shape[0]):
        sine, cosine = sincos(yaw[i])
        ahead[i], aside[i] = turned(sine, cosine, x[i], y[i])


@threaded_kernel
def turn_scaled(sines: Array, cosines: Array, x: Array, y: Array, scale: float, out: Float32s) -> None:
    for i in range(x.shape[0]):
        ahead, aside = turned(sines[i], cosines[i], x[i], y[i])
        out[0, i], out[1, i] = ahead * scale, aside * scale


@threaded_kernel
def clip_into_columns(rows: Float32s, low: Float32s, high: Float32s, out: Float32s) -> None:
    """out (n, numbers) from rows (numbers, n), kept between low and high (numbers, 1); NaN stays."""
    for i in range(rows.shape[1]):
        for k in range(rows.shape[0]):
            value = rows[k, i]
            value = high[k, 0] if value > high[k, 0] else value
            out[i, k] = low[k, 0] if value < low[k, 0] else value
