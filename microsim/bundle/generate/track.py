"""The course of the oval: two straights and two half circles, its width, its relief, and what is painted on it."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.generate.heights import Ground
from microsim.engine.exact import PI, TWO_PI, sincos
from microsim.engine.value_noise import octaves

Floats: TypeAlias = npt.NDArray[np.float64]

HALF_STRAIGHT = 40.0  # the straights run from x = -40 m to x = 40 m ...
RADIUS = 30.0  # ... at y = -30 m and y = 30 m
HALF_WIDTH = 5.0  # of the asphalt
LENGTH = 4.0 * HALF_STRAIGHT + TWO_PI * RADIUS

WEST, SOUTH, COLUMNS, ROWS, RESOLUTION = -100.0, -70.0, 800, 560, 0.25
PIT = ((-22.0, -27.0), (22.0, -27.0), (22.0, -15.0), (-22.0, -15.0))  # a paved square beside the southern straight
POND = (-28.0, 4.0, 6.0)  # x, y, radius: no ground in it


def offset(x: Floats, y: Floats) -> Floats:
    """Distance from the centre line [m], positive outside."""
    dx = x - np.clip(x, -HALF_STRAIGHT, HALF_STRAIGHT)
    return np.sqrt(dx * dx + y * y) - RADIUS


def along(s: float, across: float = 0.0) -> tuple[float, float, float, float]:
    """x, y and the unit direction, s metres counter-clockwise from the middle of the southern straight."""
    s = s - LENGTH * (s // LENGTH)
    straight, bend = 2.0 * HALF_STRAIGHT, PI * RADIUS
    radius = RADIUS + across
    if s < HALF_STRAIGHT or s >= LENGTH - HALF_STRAIGHT:
        x = s if s < HALF_STRAIGHT else s - LENGTH
        return x, -radius, 1.0, 0.0
    s -= HALF_STRAIGHT
    if s < bend:
        sin, cos = sincos(s / RADIUS)
        return HALF_STRAIGHT + radius * sin, -radius * cos, cos, sin
    s -= bend
    if s < straight:
        return HALF_STRAIGHT - s, radius, -1.0, 0.0
    sin, cos = sincos((s - straight) / RADIUS)
    return -HALF_STRAIGHT - radius * sin, radius * cos, -cos, -sin


def ring(across: float, spacing: float = 1.0) -> Floats:
    """The line at that distance from the centre line, closed, counter-clockwise, as a polygon."""
    bend = max(8, round(PI * (RADIUS + across) / spacing))
    east = [along(HALF_STRAIGHT + PI * RADIUS * index / bend, across)[:2] for index in range(bend + 1)]
    points = [(round(x, 4), round(y, 4)) for x, y in east]
    points += [(-x, -y) for x, y in points]
    return np.array([*points, points[0]])


def is_pit(x: Floats, y: Floats) -> npt.NDArray[np.bool_]:
    (west, south), _, (east, north), _ = PIT
    return (x >= west) & (x <= east) & (y >= south) & (y <= north)


def _beside_pit(x: Floats, y: Floats) -> Floats:
    (west, south), _, (east, north), _ = PIT
    dx = np.maximum(np.maximum(west - x, x - east), 0.0)
    dy = np.maximum(np.maximum(south - y, y - north), 0.0)
    return np.sqrt(dx * dx + dy * dy)


def pond_depth(x: Floats, y: Floats) -> Floats:
    """Positive inside the pond [m]."""
    dx, dy = x - POND[0], y - POND[1]
    return POND[2] - np.sqrt(dx * dx + dy * dy)


def ground() -> Ground:
    """Gentle slopes under the road, hills beside it that grow with the distance."""
    x = (np.arange(COLUMNS, dtype=np.float64) + 0.5) * RESOLUTION + WEST
    y = (np.arange(ROWS, dtype=np.float64) + 0.5) * RESOLUTION + SOUTH
    waves_x = np.array([sincos(TWO_PI * value / 150.0)[0] for value in x.tolist()])
    waves_y = np.array([sincos(TWO_PI * value / 170.0)[0] for value in y.tolist()])
    base = 1.5 * waves_x[None, :] + 1.0 * waves_y[:, None] + 0.6 * waves_x[None, :] * waves_y[:, None]
    beside = np.maximum(np.abs(offset(x[None, :], y[:, None])) - HALF_WIDTH - 2.0, 0.0)
    beside = np.minimum(beside, _beside_pit(x[None, :], y[:, None]))
    grow = np.minimum(beside / 25.0, 1.0)
    bumps = (octaves(x, y, 11, 30.0) - 0.9) * 6.0
    heights = base + grow * grow * (3.0 - 2.0 * grow) * bumps
    return Ground(heights, RESOLUTION, WEST, SOUTH)
