"""East-north-up and WGS-84: there and back within a millimetre anywhere, and as pymap3d says."""

import math

import pymap3d
import pytest
from hypothesis import given
from hypothesis import strategies as st

from microsim.engine.geodesy import enu_from_wgs84, tangent_plane, wgs84_from_enu

ORIGINS = [
    (9.935, -84.09, 1150.0),
    (0.0, 0.0, 0.0),
    (0.0, 179.9999, 10.0),
    (0.0, 180.0, 10.0),
    (51.5, -180.0, 0.0),
    (-36.8, 174.7, 20.0),
    (89.9, 45.0, 5.0),
    (-89.99, -120.0, 2800.0),
    (45.0, 90.0, -400.0),
    (-45.0, -90.0, 8800.0),
]
POINTS = [(0.0, 0.0, 0.0), (200.0, 0.0, 10.0), (0.0, 200.0, 0.0), (-150.0, -150.0, 100.0), (5000.0, -7000.0, 300.0)]


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("point", POINTS)
def test_a_round_trip_loses_less_than_a_micrometre(origin, point):
    plane = tangent_plane(*origin)
    back = enu_from_wgs84(plane, *wgs84_from_enu(plane, *point))
    assert math.dist(back, point) < 1e-6


@given(st.floats(-90, 90), st.floats(-180, 180), st.floats(-500, 9000), *[st.floats(-1e4, 1e4)] * 3)
def test_a_round_trip_loses_less_than_a_millimetre_from_any_origin(latitude, longitude, altitude, x, y, z):
    plane = tangent_plane(latitude, longitude, altitude)
    fix = wgs84_from_enu(plane, x, y, z)
    assert math.dist(enu_from_wgs84(plane, *fix), (x, y, z)) < 1e-3


@given(st.floats(-89.9, 89.9), st.floats(-180, 180), st.floats(-500, 9000), *[st.floats(-1e4, 1e4)] * 3)
def test_a_fix_is_within_a_tenth_of_a_millimetre_of_pymap3d(latitude, longitude, altitude, x, y, z):
    ours = wgs84_from_enu(tangent_plane(latitude, longitude, altitude), x, y, z)
    theirs = pymap3d.enu2geodetic(x, y, z, latitude, longitude, altitude)
    between = pymap3d.geodetic2enu(*ours, *(float(value) for value in theirs))
    assert math.hypot(*between) < 1e-4


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_origin_is_where_it_was_said_to_be(origin):
    latitude, longitude, altitude = wgs84_from_enu(tangent_plane(*origin), 0.0, 0.0, 0.0)
    assert latitude == pytest.approx(origin[0], abs=1e-12)
    assert math.remainder(longitude - origin[1], 360.0) == pytest.approx(0.0, abs=1e-11)
    assert altitude == pytest.approx(origin[2], abs=1e-7)


def test_east_raises_longitude_north_raises_latitude_up_raises_height():
    plane = tangent_plane(9.935, -84.09, 1150.0)
    zero = wgs84_from_enu(plane, 0.0, 0.0, 0.0)
    east, north, up = (wgs84_from_enu(plane, *p) for p in ((1, 0, 0), (0, 1, 0), (0, 0, 1)))
    assert (east[1] - zero[1]) * 111_320 * math.cos(math.radians(9.935)) == pytest.approx(1.0, rel=5e-3)
    assert (north[0] - zero[0]) * 110_574 == pytest.approx(1.0, rel=5e-3)
    assert up[2] - zero[2] == pytest.approx(1.0, abs=1e-9)


def test_the_date_line_is_crossed_without_a_jump_on_the_ground():
    plane = tangent_plane(-17.0, 179.9995, 0.0)
    west, east = wgs84_from_enu(plane, 0.0, 0.0, 0.0), wgs84_from_enu(plane, 100.0, 0.0, 0.0)
    assert west[1] > 179.0
    assert -180.0 <= east[1] < -179.0
    assert enu_from_wgs84(plane, *east) == pytest.approx((100.0, 0.0, 0.0), abs=1e-6)


@pytest.mark.parametrize("latitude", [90.0, -90.0])
def test_the_pole_itself_is_an_origin_like_any_other(latitude):
    plane = tangent_plane(latitude, 0.0, 0.0)
    for point in ((0.0, 0.0, 0.0), (10.0, -20.0, 5.0)):
        fix = wgs84_from_enu(plane, *point)
        assert all(map(math.isfinite, fix))
        assert math.dist(enu_from_wgs84(plane, *fix), point) < 1e-6
