"""GPS (PRD 4.2.1): white noise and a slowly walking bias in metres, then WGS-84."""

import math
from dataclasses import dataclass

from microsim.engine import geodesy, noise
from microsim.engine.compiled import kernel, plain
from microsim.engine.faults import Fault
from microsim.engine.geometry import Array, Vector
from microsim.engine.motion import Motion, mounted_at

_six_normals = noise.six_normals
_wgs84_from_enu = geodesy.wgs84_from_enu


@kernel
def fix(
    plane: Array,
    x: float,
    y: float,
    z: float,
    east: float,
    north: float,
    up: float,
    sigma_m: float,
    bias_drift: float,
    dt: float,
    key: int,
    last_tick: int,
    tick: int,
) -> tuple[float, float, float, float, float, float, float]:
    """Latitude, longitude [deg], altitude [m], variance [m^2]; and the bias, which was (east, north, up) before."""
    e, n, u, walk_e, walk_n, walk_u = _six_normals(key, tick)
    step = bias_drift * math.sqrt((tick - last_tick) * dt)
    east, north, up = east + step * walk_e, north + step * walk_n, up + step * walk_u
    latitude, longitude, altitude = _wgs84_from_enu(
        plane, x + sigma_m * e + east, y + sigma_m * n + north, z + sigma_m * u + up
    )
    return latitude, longitude, altitude, sigma_m * sigma_m + bias_drift * bias_drift * tick * dt, east, north, up


_fix = plain(fix)


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
    jumps: tuple[Fault, ...] = ()  # during which it is off

    def sample(self, motion: Motion, tick: int) -> tuple[float, float, float, float]:
        """(latitude [deg], longitude [deg], altitude [m], variance per axis [m^2])."""
        place = mounted_at(motion, self.mount)
        for jump in self.jumps:
            if jump.first_tick <= tick < jump.end_tick:
                place = place[0] + jump.offset[0], place[1] + jump.offset[1], place[2] + jump.offset[2]
        latitude, longitude, altitude, variance, *bias = _fix(
            self.plane, *place, *self.bias, self.sigma_m, self.bias_drift, self.dt, self.key, self.last_tick, tick
        )
        self.bias, self.last_tick = (bias[0], bias[1], bias[2]), tick
        return latitude, longitude, altitude, variance

    def memory(self) -> tuple[Vector, int]:
        return self.bias, self.last_tick

    def recall(self, memory: tuple[Vector, int]) -> None:
        self.bias, self.last_tick = memory
