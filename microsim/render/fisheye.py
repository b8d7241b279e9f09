"""The fisheye lens of Kannala and Brandt: `equidistant` in sensor_msgs/CameraInfo, `cv::fisheye` in OpenCV.

What is seen at an angle t [rad] from the optical axis lies t (1 + k1 t^2 + k2 t^4 + k3 t^6 + k4 t^8) focal lengths
from the centre of the image. Rays have the form (a, b, 1), so that a lens sees at most 2 `LARGEST` across.
"""

import math
from collections.abc import Sequence

import numpy as np

from microsim.engine import exact
from microsim.engine.compiled import inlined, kernel
from microsim.engine.geometry import Array
from microsim.render.screen import Rays

LARGEST = 89.5 * exact.PI / 180.0
_SAMPLES = 180
_STEPS = 60
_NEAR_AXIS = 1e-9  # [rad] where the lens is a pinhole
_sincos = exact.sincos


@inlined
def radius_of(angle: float, k: Array) -> tuple[float, float]:
    """How far from the centre an angle is seen, in focal lengths, and how that grows with the angle."""
    square = angle * angle
    radius = angle * (1.0 + square * (k[0] + square * (k[1] + square * (k[2] + square * k[3]))))
    growth = 1.0 + square * (3.0 * k[0] + square * (5.0 * k[1] + square * (7.0 * k[2] + square * (9.0 * k[3]))))
    return radius, growth


def largest_angle(k: Sequence[float], most: float = LARGEST) -> float:
    """Up to which the image does not fold back [rad]."""
    numbers = np.array(k, np.float64)
    for sample in range(1, _SAMPLES + 1):
        if radius_of(most * sample / _SAMPLES, numbers)[1] <= 0.0:
            return most * (sample - 1) / _SAMPLES
    return most


def spread(k: Sequence[float], end: float) -> float:
    """The most by which an angle is larger on the image than on the axis, up to `end` [rad]."""
    numbers, most = np.array(k, np.float64), 1.0
    for sample in range(1, _SAMPLES + 1):
        angle = end * sample / _SAMPLES
        radius, growth = radius_of(angle, numbers)
        most = max(most, growth, radius / exact.sin(angle))
    return 1.02 * most  # between the samples


def radius_at(angle: float, k: Sequence[float]) -> float:
    return radius_of(angle, np.array(k, np.float64))[0]


def seen_at(x: float, y: float, z: float, k: Sequence[float]) -> tuple[float, float]:
    """Of a point of the optical frame: where it is seen, in focal lengths."""
    aside = math.sqrt(x * x + y * y)
    if aside == 0.0:
        return 0.0, 0.0
    scale = radius_at(exact.atan2(aside, z), k) / aside
    return x * scale, y * scale


@kernel
def unbend(seen: Rays, k: Array, end: float) -> None:
    """From the places of pixels, in focal lengths, to a and b of their rays; NaN beyond the angle `end`."""
    farthest = radius_of(end, k)[0]
    for v in range(seen.shape[1]):
        for u in range(seen.shape[2]):
            a, b = seen[0, v, u], seen[1, v, u]
            radius = math.sqrt(a * a + b * b)
            if radius > farthest:
                seen[0, v, u], seen[1, v, u] = math.nan, math.nan
            elif radius > _NEAR_AXIS:
                sine, cosine = _sincos(_angle_of(radius, k, end))
                scale = sine / (cosine * radius)
                seen[0, v, u], seen[1, v, u] = a * scale, b * scale


@kernel
def _angle_of(radius: float, k: Array, end: float) -> float:
    """The inverse of `radius_of`: Newton's method between bounds that close in."""
    low, high, angle = 0.0, end, min(radius, end)
    for _ in range(_STEPS):
        found, growth = radius_of(angle, k)
        if abs(found - radius) < 1e-15:
            break
        if found < radius:
            low = angle
        else:
            high = angle
        angle -= (found - radius) / growth
        if not low < angle < high:
            angle = 0.5 * (low + high)
    return angle
