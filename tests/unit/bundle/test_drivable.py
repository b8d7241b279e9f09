"""Where a car may drive: against shapely, against exact fractions, and the document's words on holes and priorities."""

import inspect
import math
import sys
import types
from fractions import Fraction

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.engine import drivable
from microsim.engine.drivable import OFFROAD, DrivableArea, drivable_area, side

SQUARE = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 10.0], [0.0, 10.0], [0.0, 0.0]])


def square(x: float, y: float, size: float) -> np.ndarray:
    return np.array([[x, y], [x + size, y], [x + size, y + size], [x, y + size], [x, y]])


def star(x: float, y: float, radius: float, corners: int, turn: float) -> np.ndarray:
    """A ring with teeth, counter-clockwise."""
    angles = [turn + math.tau * index / corners for index in range(corners)]
    radii = [radius * (1.0 if index % 2 else 0.45) for index in range(corners)]
    points = [(x + r * math.cos(a), y + r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]
    return np.array([*points, points[0]])


def brute_force(polygons: list[list[np.ndarray]], priorities: list[float], x: float, y: float) -> int:
    """Shapely's word on each polygon, then the smallest priority; the first among equals."""
    point = shapely.Point(x, y)
    inside = [i for i, rings in enumerate(polygons) if shapely.Polygon(rings[0], rings[1:]).intersects(point)]
    return min(inside, key=lambda index: (priorities[index], index), default=OFFROAD)


def test_a_hole_is_off_road_and_its_edge_is_not():
    area = drivable_area([[SQUARE, square(4.0, 4.0, 2.0)[::-1]]], [0.0])
    assert area.polygon_at(1.0, 1.0) == 0
    assert area.polygon_at(5.0, 5.0) == OFFROAD
    assert area.polygon_at(4.0, 5.0) == 0
    assert area.polygon_at(6.0, 6.0) == 0


def test_an_island_in_a_hole_is_on_road():
    area = drivable_area([[SQUARE, square(2.0, 2.0, 6.0)[::-1]], [square(4.0, 4.0, 2.0)]], [0.0, 0.0])
    assert area.polygon_at(5.0, 5.0) == 1
    assert area.polygon_at(3.0, 3.0) == OFFROAD


def test_the_smaller_priority_number_wins_and_among_equals_the_first():
    area = drivable_area([[SQUARE], [square(5.0, 0.0, 10.0)], [square(5.0, 0.0, 5.0)]], [1.0, 0.0, 0.0])
    assert area.polygon_at(1.0, 1.0) == 0
    assert area.polygon_at(7.0, 2.0) == 1
    assert area.polygon_at(12.0, 2.0) == 1


@pytest.mark.parametrize("point", [(0, 0), (10, 10), (10, 0), (0, 10), (5, 0), (5, 10), (0, 5), (10, 5)])
def test_edges_and_corners_belong_to_their_polygon(point):
    assert drivable_area([[SQUARE]], [0.0]).polygon_at(*map(float, point)) == 0


@pytest.mark.parametrize("point", [(math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0), (1.0, -math.inf), (1e300, 0.0)])
def test_no_place_at_all_is_off_road(point):
    assert drivable_area([[SQUARE]], [0.0]).polygon_at(*point) == OFFROAD


def test_without_polygons_everything_is_off_road():
    assert drivable_area([], []).polygon_at(0.0, 0.0) == OFFROAD
    assert drivable_area([], []).footprint(np.zeros(5), np.zeros(5)) == (OFFROAD, 5)


def test_a_footprint_tells_the_reference_points_polygon_and_how_many_wheels_are_off():
    area = drivable_area([[SQUARE], [square(10.0, 0.0, 5.0)]], [0.0, 0.0])
    x, y = np.array([9.0, 9.0, 9.0, 12.0, 12.0]), np.array([1.0, 0.5, 2.0, 0.5, -0.5])
    assert area.footprint(x, y) == (0, 1)
    assert area.footprint(x[::-1].copy(), y[::-1].copy()) == (OFFROAD, 1)


coordinate = st.one_of(st.integers(-8, 8).map(float), st.floats(-8.0, 8.0, width=32), st.floats(-8.0, 8.0))


@given(*[coordinate] * 6)
@settings(max_examples=300, deadline=None)
def test_the_side_of_a_line_is_exact(ax, ay, bx, by, px, py):
    tiny = [value for value in (ax, ay, bx, by, px, py) if 0.0 < abs(value) < 1e-100]
    if tiny:
        return  # products of such numbers leave float64
    a, b, p = (Fraction(ax), Fraction(ay)), (Fraction(bx), Fraction(by)), (Fraction(px), Fraction(py))
    exact = (b[0] - a[0]) * (p[1] - a[1]) - (p[0] - a[0]) * (b[1] - a[1])
    found = side(ax, ay, bx, by, px, py)
    assert (found > 0) - (found < 0) == (exact > 0) - (exact < 0)


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.integers(1, 1000), st.integers(-3, 3))
@settings(max_examples=200, deadline=None)
def test_the_side_is_exact_where_rounding_would_guess(x, y, steps, off):
    bx, by = 12.0 + steps * 2.0**-20, 24.0 + steps * 2.0**-19
    px, py = 6.0 + 0.5 * steps * 2.0**-20, 12.0 + 0.5 * steps * 2.0**-19
    py += off * math.ulp(py)
    exact = Fraction(bx) * Fraction(py) - Fraction(px) * Fraction(by)
    found = side(0.0, 0.0, bx, by, px, py)
    assert (found > 0) - (found < 0) == (exact > 0) - (exact < 0)


def plain(function):
    """The function before compilation, with all it calls."""
    source = inspect.getsource(drivable).replace("@kernel\n", "")
    names: dict[str, object] = {"__name__": "microsim.engine.drivable_plain"}
    sys.modules[str(names["__name__"])] = types.ModuleType(str(names["__name__"]))
    exec(compile(source, drivable.__file__, "exec"), names)  # noqa: S102
    return names[function.__name__]


def test_compiled_and_plain_forms_answer_alike(crowd):
    _, _, area = crowd
    uncompiled = plain(drivable.polygon_at)
    for x, y in [*area.edges[:100, :2].tolist(), *np.random.default_rng(5).uniform(-60, 60, (200, 2)).tolist()]:
        assert uncompiled(x, y, *area.arrays) == area.polygon_at(x, y)


@pytest.fixture(scope="module")
def crowd() -> tuple[list[list[np.ndarray]], list[float], DrivableArea]:
    """Two hundred stars with and without holes, overlapping, in five priorities."""
    random = np.random.default_rng(3)
    polygons: list[list[np.ndarray]] = []
    priorities: list[float] = []
    for index in range(200):
        x, y, radius = random.uniform(-50, 50), random.uniform(-50, 50), random.uniform(1, 15)
        outer = star(x, y, radius, 6 + 2 * int(random.integers(0, 40)), float(random.uniform(0, 6)))
        hole = [star(x, y, radius * 0.3, 12, 0.3)[::-1]] if index % 3 == 0 else []
        polygons.append([outer, *hole])
        priorities.append(float(random.integers(-2, 3)))
    return polygons, priorities, drivable_area(polygons, priorities)


def test_it_says_what_shapely_says_everywhere(crowd):
    polygons, priorities, area = crowd
    shapes = [shapely.Polygon(rings[0], rings[1:]) for rings in polygons]
    assert all(shape.is_valid for shape in shapes)
    points = np.random.default_rng(4).uniform(-70, 70, (3000, 2))
    inside = np.array([shapely.intersects_xy(shape, points[:, 0], points[:, 1]) for shape in shapes])
    order = np.lexsort((np.arange(len(shapes)), priorities))
    ranked = inside[order]
    expected = np.where(ranked.any(axis=0), order[ranked.argmax(axis=0)], OFFROAD)
    found = [area.polygon_at(float(x), float(y)) for x, y in points]
    assert found == expected.tolist()


def test_every_corner_of_every_ring_is_on_road(crowd):
    polygons, priorities, area = crowd
    for index, rings in enumerate(polygons):
        for x, y in np.concatenate(rings):
            found = area.polygon_at(float(x), float(y))
            assert (priorities[found], found) <= (priorities[index], index)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30), st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_lattice_points_on_edges_and_corners_agree_with_shapely(points, seed):
    random = np.random.default_rng(seed)
    polygons: list[list[np.ndarray]] = []
    for _ in range(3):
        corners = random.integers(0, 7, (5, 2)).astype(float)
        shape = shapely.convex_hull(shapely.MultiPoint(corners))
        if shape.geom_type == "Polygon":
            polygons.append([np.array(shapely.Polygon(shape).normalize().exterior.coords)[::-1]])
    priorities = [float(index % 2) for index in range(len(polygons))]
    area = drivable_area(polygons, priorities)
    for x, y in points:
        assert area.polygon_at(float(x), float(y)) == brute_force(polygons, priorities, float(x), float(y))


def test_a_ring_of_long_thin_teeth_needs_no_quadratic_memory():
    count = 20_000
    comb = [(float(i), 1000.0 if i % 2 else 0.0) for i in range(count)]
    ring = np.array([(float(count), -1.0), *comb[::-1], (0.0, -1.0), (float(count), -1.0)])[::-1]
    area = drivable_area([[ring]], [0.0])
    assert area.slab_edges.size <= 16 * (count + 10)
    assert area.polygon_at(1.0, 999.0) == 0
    assert area.polygon_at(2.0, 999.0) == OFFROAD
