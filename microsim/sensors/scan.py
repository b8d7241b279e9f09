"""Planar laser scan: one beam per angle against the occupied cells."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from microsim.engine import exact, geometry, noise
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Grid, Vector
from microsim.engine.motion import COS_YAW, SIN_YAW, Motion, X, Y, mounted_at
from microsim.engine.world import World
from microsim.sensors.range import NOISE_REACH, is_behind_wall

_distance_to_occupied = geometry.distance_to_occupied
_normals = noise.normals
_uniforms = noise.uniforms
_is_behind_wall = is_behind_wall


@kernel
def cast(
    clearance: Grid, cell: float, x: float, y: float, sine: float, cosine: float, beams: Array, reach: float, out: Array
) -> None:
    """Distances along every beam; beams (2, n) are cos and sin in the sensor's frame."""
    for i in range(beams.shape[1]):
        dx = cosine * beams[0, i] - sine * beams[1, i]
        dy = sine * beams[0, i] + cosine * beams[1, i]
        out[i] = _distance_to_occupied(clearance, cell, x, y, dx, dy, reach, False)


@kernel
def measure(
    out: Array, ranges: npt.NDArray[np.float32], key: int, tick: int, low: float, high: float, sigma: float, drop: float
) -> None:
    """Noise, dropouts and REP-117; beam i draws number i of the stream, whatever the other beams saw."""
    first, second, drawn = 0.0, 0.0, -1
    for i in range(out.shape[0]):
        value = out[i]
        if sigma > 0.0 and value < math.inf:  # what is out of reach stays so
            if drawn != i // 2:
                drawn = i // 2
                first, second = _normals(key, tick, drawn)
            value += sigma * (first if i % 2 == 0 else second)
        value = -math.inf if value < low else math.inf if value > high else value
        if drop > 0.0 and _uniforms(key, tick, (1 << 20) + i)[0] < drop:
            value = math.nan
        ranges[i] = value


@kernel
def sweep(
    clearance: Grid,
    cell: float,
    west: float,
    south: float,
    robot_x: float,
    robot_y: float,
    x: float,
    y: float,
    sine: float,
    cosine: float,
    beams: Array,
    min_m: float,
    max_m: float,
    sigma_m: float,
    dropout_probability: float,
    key: int,
    tick: int,
    distances: Array,
    ranges: npt.NDArray[np.float32],
) -> None:
    """Fill `distances`, as a perfect scanner would see them, inf beyond reach, and `ranges`, as this one does."""
    if _is_behind_wall(clearance, cell, west, south, robot_x, robot_y, x, y):
        distances[:] = 0.0
    else:
        reach = max_m + NOISE_REACH * sigma_m
        cast(clearance, cell, x - west, y - south, sine, cosine, beams, reach, distances)
    measure(distances, ranges, key, tick, min_m, max_m, sigma_m, dropout_probability)


@dataclass(frozen=True)
class Scan:
    world: World
    mount: Vector  # [m] base_link -> sensor
    beams: Array  # (2, n) cos and sin of each beam's angle in base_link
    min_m: float
    max_m: float
    sigma_m: float
    dropout_probability: float
    key: int

    def sample(self, motion: Motion, tick: int) -> npt.NDArray[np.float32]:
        world, beams = self.world, self.beams.shape[1]
        distances, ranges = np.empty(beams), np.empty(beams, np.float32)
        x, y, _ = mounted_at(motion, self.mount)
        sweep(
            world.clearance,
            world.cell_m,
            world.west,
            world.south,
            motion[X],
            motion[Y],
            x,
            y,
            motion[SIN_YAW],
            motion[COS_YAW],
            self.beams,
            self.min_m,
            self.max_m,
            self.sigma_m,
            self.dropout_probability,
            self.key,
            tick,
            distances,
            ranges,
        )
        return ranges


def beam_table(angle_min: float, angle_max: float, beams: int, yaw: float) -> tuple[Array, float]:
    """((2, n) cos and sin of each beam, angle between beams). A full turn does not repeat its first beam."""
    span = angle_max - angle_min
    full_turn = abs(span - exact.TWO_PI) < 1e-9
    step = span / (beams if full_turn else max(beams - 1, 1))
    angles = [exact.wrap_angle(angle_min + i * step + yaw) for i in range(beams)]
    return np.array([[exact.cos(a) for a in angles], [exact.sin(a) for a in angles]]), step
