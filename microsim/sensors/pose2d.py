"""Pose in the plane, with noise if wanted, for all robots of a fleet at once."""

import numpy as np
import numpy.typing as npt

from microsim.engine import exact, noise
from microsim.engine.compiled import kernel
from microsim.engine.components import YAW, X, Y
from microsim.engine.geometry import Array

_normals = noise.normals
_sincos = exact.sincos
_wrap_angle = exact.wrap_angle


@kernel
def measure(state: Array, keys: npt.NDArray[np.int64], tick: int, sigma_m: float, sigma_rad: float, out: Array) -> None:
    """Fill out (n, 3) with x, y, yaw of state (rows, n); a sigma of 0 leaves them exact."""
    for i in range(state.shape[1]):
        x, y, yaw = state[X, i], state[Y, i], state[YAW, i]
        if sigma_m > 0.0:
            first, second = _normals(keys[i], tick, 0)
            x, y = x + sigma_m * first, y + sigma_m * second
        if sigma_rad > 0.0:
            third, _ = _normals(keys[i], tick, 1)
            yaw = _wrap_angle(yaw + sigma_rad * third)
        out[i, 0], out[i, 1], out[i, 2] = x, y, yaw


@kernel
def transforms(state: Array, out: Array) -> None:
    """Fill out (n, 7) with x, y, z = 0 and the quaternion x, y, z, w of the exact pose."""
    for i in range(state.shape[1]):
        sine, cosine = _sincos(0.5 * state[YAW, i])
        out[i, 0], out[i, 1], out[i, 2] = state[X, i], state[Y, i], 0.0
        out[i, 3], out[i, 4], out[i, 5], out[i, 6] = 0.0, 0.0, sine, cosine
