"""Spherical harmonics as 3D Gaussian splatting has them: their values, and how a turn of the world mixes them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

_C0 = 0.28209479177387814
_C1 = 0.4886025119029199
_C2 = (1.0925484305920792, -1.0925484305920792, 0.31539156525252005, -1.0925484305920792, 0.5462742152960396)
_C3 = (
    -0.5900435899266435, 2.890611442640554, -0.4570457994644658, 0.3731763325901154, -0.4570457994644658,
    1.445305721320277, -0.5900435899266435,
)  # fmt: skip


def values(directions: Floats, degree: int) -> Floats:
    """(n, (degree + 1)²) at unit vectors (n, 3)."""
    x, y, z = directions.T
    parts = [np.full(len(x), _C0)]
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


def turn(matrix: Floats, degree: int) -> Floats:
    """What a turn of the world does to the coefficients: new = turn · old, so that new(R d) = old(d)."""
    count = 200
    index = np.arange(count) + 0.5
    z = 1.0 - 2.0 * index / count
    angle = index * 2.399963229728653  # the golden angle spreads directions evenly
    radius = np.sqrt(1.0 - z * z)
    directions = np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=1)
    after, before = values(directions @ matrix.T, degree), values(directions, degree)
    return np.linalg.lstsq(after, before, rcond=None)[0].round(12)
