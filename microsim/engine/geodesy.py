"""East-north-up on the tangent plane at an origin <-> WGS-84 latitude, longitude, height.

Through earth-centred coordinates, so exact on the ellipsoid: a round trip over the map loses less than a micrometre.
"""

import math

import numpy as np

from microsim.engine import exact
from microsim.engine.compiled import inlined
from microsim.engine.geometry import Array, Vector

_A = 6378137.0  # [m] equatorial radius
_F = 1.0 / 298.257223563
_B = _A * (1.0 - _F)
_E2 = _F * (2.0 - _F)  # first eccentricity squared
_EP2 = _E2 / (1.0 - _E2)  # second
_DEGREE = 0.017453292519943295
_PER_DEGREE = 57.29577951308232
_atan2 = exact.atan2


def _earth_centred(latitude_deg: float, longitude_deg: float, altitude: float) -> Vector:
    sine, cosine = exact.sin(latitude_deg * _DEGREE), exact.cos(latitude_deg * _DEGREE)
    normal = _A / math.sqrt(1.0 - _E2 * sine * sine)
    horizontal = (normal + altitude) * cosine
    longitude = longitude_deg * _DEGREE
    return (
        horizontal * exact.cos(longitude),
        horizontal * exact.sin(longitude),
        (normal * (1.0 - _E2) + altitude) * sine,
    )


def tangent_plane(latitude_deg: float, longitude_deg: float, altitude: float) -> Array:
    """The origin in earth-centred metres, then the unit vectors east, north and up: 12 numbers."""
    sin_lat, cos_lat = exact.sin(latitude_deg * _DEGREE), exact.cos(latitude_deg * _DEGREE)
    sin_lon, cos_lon = exact.sin(longitude_deg * _DEGREE), exact.cos(longitude_deg * _DEGREE)
    east = (-sin_lon, cos_lon, 0.0)
    north = (-sin_lat * cos_lon, -sin_lat * sin_lon, cos_lat)
    up = (cos_lat * cos_lon, cos_lat * sin_lon, sin_lat)
    return np.array((*_earth_centred(latitude_deg, longitude_deg, altitude), *east, *north, *up))


@inlined
def wgs84_from_enu(plane: Array, x: float, y: float, z: float) -> tuple[float, float, float]:
    """(latitude [deg], longitude [deg], height over the ellipsoid [m]); Bowring's formula, applied three times."""
    ex = plane[0] + x * plane[3] + y * plane[6] + z * plane[9]
    ey = plane[1] + x * plane[4] + y * plane[7] + z * plane[10]
    ez = plane[2] + x * plane[5] + y * plane[8] + z * plane[11]
    p = max(math.sqrt(ex * ex + ey * ey), 1e-9)
    tangent = ez * _A / (p * _B)
    north, east = ez, p
    for _ in range(3):
        cosine = 1.0 / math.sqrt(1.0 + tangent * tangent)
        sine = tangent * cosine
        north = ez + _EP2 * _B * sine * sine * sine
        east = p - _E2 * _A * cosine * cosine * cosine
        tangent = (1.0 - _F) * north / east
    length = math.sqrt(north * north + east * east)
    sine, cosine = north / length, east / length
    height = p * cosine + ez * sine - _A * math.sqrt(1.0 - _E2 * sine * sine)
    return _atan2(north, east) * _PER_DEGREE, _atan2(ey, ex) * _PER_DEGREE, height


def enu_from_wgs84(plane: Array, latitude_deg: float, longitude_deg: float, altitude: float) -> Vector:
    point = _earth_centred(latitude_deg, longitude_deg, altitude)
    dx, dy, dz = (point[axis] - float(plane[axis]) for axis in range(3))
    rows = [[float(number) for number in plane[3 * row : 3 * row + 3]] for row in (1, 2, 3)]
    east, north, up = (row[0] * dx + row[1] * dy + row[2] * dz for row in rows)
    return east, north, up
