"""GPS (PRD 4.2.1): white noise and a slowly walking bias in metres, then WGS-84."""

import math
from dataclasses import dataclass

from microsim.sim.geodesy import wgs84_from_enu
from microsim.sim.geometry import Array, Vector
from microsim.sim.motion import Motion, mounted_at
from microsim.sim.noise import six_normals


@dataclass
class Gps:
    plane: Array  # tangent plane at the map's origin
    mount: Vector  # [m] base_link -> antenna
    sigma_m: float  # [m] white noise, 1 sigma per axis
    bias_drift: float  # [m/sqrt(s)] the bias' standard deviation after one second
    dt: float  # [s] per tick
    key: int
    bias: Vector = (0.0, 0.0, 0.0)  # [m] east, north, up
    last_tick: int = 0

    def sample(self, motion: Motion, tick: int) -> tuple[float, float, float, float]:
        """(latitude [deg], longitude [deg], altitude [m], variance per axis [m^2])."""
        x, y, z = mounted_at(motion, self.mount)
        e, n, u, walk_e, walk_n, walk_u = six_normals(self.key, tick)
        step = self.bias_drift * math.sqrt((tick - self.last_tick) * self.dt)
        self.last_tick = tick
        bias = self.bias
        self.bias = bias = (bias[0] + step * walk_e, bias[1] + step * walk_n, bias[2] + step * walk_u)
        sigma = self.sigma_m
        latitude, longitude, altitude = wgs84_from_enu(
            self.plane, x + sigma * e + bias[0], y + sigma * n + bias[1], z + sigma * u + bias[2]
        )
        return latitude, longitude, altitude, sigma * sigma + self.bias_drift * self.bias_drift * tick * self.dt

    def memory(self) -> tuple[Vector, int]:
        return self.bias, self.last_tick

    def recall(self, memory: tuple[Vector, int]) -> None:
        self.bias, self.last_tick = memory
