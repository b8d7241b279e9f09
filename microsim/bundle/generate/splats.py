"""Gaussians that cover surfaces: flat discs on the ground and on solids, coloured and lit. Exact arithmetic only."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.gaussians import columns_of
from microsim.engine.exact import log

Floats: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = npt.NDArray[np.float32]

FIRST_HARMONIC = 0.28209479177387814  # colour = 0.5 + FIRST_HARMONIC · f_dc
SUN = (0.36, 0.24, 0.9015542135686)  # unit vector towards it
AMBIENT = 0.6
THICKNESS_M = 0.01


def dice(name: str, rows: int, columns: int) -> Floats:
    """Numbers in (0, 1) of the noise stream of that name; row i never changes when rows are added."""
    from microsim.engine.noise import stream_key, uniforms

    key = stream_key(0, f"made world {name}")
    out = np.empty((rows, 2 * math.ceil(columns / 2)))
    for row in range(rows):
        for pair in range(out.shape[1] // 2):
            out[row, 2 * pair], out[row, 2 * pair + 1] = uniforms(key, row, pair)
    return out[:, :columns]


def discs(points: Floats, normals: Floats, radius: Floats | float, colours: Floats, opacity: float = 0.95) -> Rows:
    """One flat Gaussian at each point, lying across its normal; `radius` is one standard deviation [m]."""
    rows = np.zeros((len(points), len(columns_of(0))))
    rows[:, 0:3] = points
    rows[:, 3] = rows[:, 4] = _logs(np.broadcast_to(np.asarray(radius, np.float64), (len(points),)))
    rows[:, 5] = log(THICKNESS_M)
    rows[:, 6:10] = _upright_to(normals)
    rows[:, 10] = log(opacity / (1.0 - opacity))
    rows[:, 11:14] = (_lit(colours, normals) - 0.5) / FIRST_HARMONIC
    return rows.astype(np.float32)


def _logs(values: Floats) -> Floats:
    different, places = np.unique(values, return_inverse=True)
    return np.array([log(float(value)) for value in different])[places]


def _upright_to(normals: Floats) -> Floats:
    """The shortest turns from the z axis to each normal, as x, y, z, w."""
    x, y, w = -normals[:, 1], normals[:, 0], 1.0 + normals[:, 2]
    over = w < 1e-9  # straight down: any half turn will do
    x, w = np.where(over, 1.0, x), np.where(over, 0.0, w)
    y = np.where(over, 0.0, y)
    length = np.sqrt(x * x + y * y + w * w)
    return np.stack([x / length, y / length, np.zeros(len(x)), w / length], axis=1)


def _lit(colours: Floats, normals: Floats) -> Floats:
    facing = normals[:, 0] * SUN[0] + normals[:, 1] * SUN[1] + normals[:, 2] * SUN[2]
    light = AMBIENT + (1.0 - AMBIENT) * np.maximum(facing, 0.0)
    return np.clip(colours * light[:, None], 0.0, 1.0)
