"""Rays over the grid against brute force and closed forms; ground between cells; rotations."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from microsim.engine.geometry import (
    clearance_of,
    distance_to_occupied,
    ground_height,
    is_free,
    matrix_from_rpy,
    quaternion_from_rpy,
    yaw_of_quaternion,
    yaw_quaternion,
)
from tests.support import many

angles = st.floats(-20.0, 20.0)
grids = st.integers(1, 12).flatmap(
    lambda rows: st.integers(1, 12).flatmap(
        lambda columns: st.lists(st.integers(0, 5), min_size=rows * columns, max_size=rows * columns).map(
            lambda cells: (np.array(cells, np.uint8) == 0).astype(np.uint8).reshape(rows, columns)
        )
    )
)


def cast(occupied, x, y, angle, reach=1e9, cell=1.0, edge_is_wall=False):
    return along(occupied, cell, x, y, math.cos(angle), math.sin(angle), reach, edge_is_wall)


def along(occupied, cell, x, y, dx, dy, reach=1e9, edge_is_wall=False):
    return distance_to_occupied(clearance_of(occupied), cell, x, y, dx, dy, reach, edge_is_wall)


def brute_force(occupied, cell, x, y, dx, dy):
    """The nearest entry into the box of any occupied cell: no walking, no order, no clamping."""
    nearest = math.inf
    for row, column in zip(*np.nonzero(occupied), strict=True):
        near, far = 0.0, math.inf
        for low, position, direction in ((column * cell, x, dx), (row * cell, y, dy)):
            if direction == 0.0:
                near, far = (near, far) if low <= position < low + cell else (math.inf, 0.0)
                continue
            a, b = sorted((float(low - position) / direction, float(low + cell - position) / direction))
            near, far = max(near, a), min(far, b)
        if near <= far:
            nearest = min(nearest, near)
    return nearest


@settings(max_examples=many(400))
@given(grids, st.floats(-3, 15), st.floats(-3, 15), angles, st.sampled_from([1.0, 0.5, 0.1, 2.5]))
def test_a_ray_ends_where_brute_force_over_all_cells_says(occupied, x, y, angle, cell):
    x, y, dx, dy = x * cell, y * cell, math.cos(angle), math.sin(angle)
    expected = brute_force(occupied, cell, x, y, dx, dy)
    # a ray that grazes a corner may count either way: only rays that any slight shift leaves alone are compared
    for shift in (1e-7, -1e-7):
        assume(
            abs(brute_force(occupied, cell, x - shift * dy, y + shift * dx, dx, dy) - expected) < 1e-3
            or expected == math.inf
        )
        moved = brute_force(occupied, cell, x - shift * dy, y + shift * dx, dx, dy)
        assume((moved == math.inf) == (expected == math.inf))
    found = along(occupied, cell, x, y, dx, dy)
    assert found == expected or abs(found - expected) < 1e-9


@given(grids, st.floats(0, 12), st.floats(0, 12), angles, st.floats(0.01, 20))
def test_reach_only_hides_what_lies_beyond_it(occupied, x, y, angle, reach):
    full, short = cast(occupied, x, y, angle), cast(occupied, x, y, angle, reach)
    assert short == (full if full <= reach else math.inf)


@given(grids, st.floats(0, 12), st.floats(0, 12), angles)
def test_a_wall_at_the_edge_changes_nothing_nearer_and_bounds_the_rest(occupied, x, y, angle):
    rows, columns = occupied.shape
    assume(x < columns and y < rows)
    open_end, walled = cast(occupied, x, y, angle), cast(occupied, x, y, angle, edge_is_wall=True)
    dx, dy = math.cos(angle), math.sin(angle)
    edge = min(
        ((columns if dx > 0 else 0) - x) / dx if dx else math.inf,
        ((rows if dy > 0 else 0) - y) / dy if dy else math.inf,
    )
    assert walled == pytest.approx(min(open_end, max(edge, 0.0)), abs=1e-9)


ROOM = np.ones((7, 7), np.uint8)
ROOM[1:6, 1:6] = 0  # walls all around a room of 5 m × 5 m


@pytest.mark.parametrize(
    ("angle", "distance"),
    [(0, 2.5), (math.pi / 2, 2.5), (math.pi, 2.5), (-math.pi / 2, 2.5), (math.pi / 4, 2.5 * math.sqrt(2))],
)
def test_from_the_middle_of_a_room_the_walls_are_where_they_are(angle, distance):
    assert cast(ROOM, 3.5, 3.5, angle) == pytest.approx(distance, abs=1e-12)


def test_axis_aligned_rays_are_exact():
    assert along(ROOM, 1.0, 1.25, 3.5, 1.0, 0.0) == 4.75
    assert along(ROOM, 1.0, 1.25, 3.5, -1.0, 0.0) == 0.25
    assert along(ROOM, 1.0, 3.5, 1.25, 0.0, 1.0) == 4.75
    assert along(ROOM, 1.0, 3.5, 1.25, 0.0, -1.0) == 0.25


def test_a_ray_that_starts_in_an_occupied_cell_has_no_length():
    assert cast(ROOM, 0.5, 0.5, 1.0) == 0.0


def test_a_start_on_the_border_of_an_occupied_cell_touches_it_only_when_heading_into_it():
    assert along(ROOM, 1.0, 1.0, 3.5, -1.0, 0.0) == 0.0
    assert along(ROOM, 1.0, 1.0, 3.5, 1.0, 0.0) == 5.0


def test_a_ray_does_not_slip_between_two_cells_that_share_a_corner():
    diagonal = np.zeros((4, 4), np.uint8)
    diagonal[1, 2] = diagonal[2, 1] = 1  # they touch in (2, 2)
    assert cast(diagonal, 1.5, 1.5, math.pi / 4) <= math.sqrt(0.5) + 1e-9
    assert cast(diagonal, 2.5, 2.5, -3 * math.pi / 4) <= math.sqrt(0.5) + 1e-9
    assert cast(np.fliplr(diagonal).copy(), 1.5, 2.5, -math.pi / 4) <= math.sqrt(0.5) + 1e-9


def test_a_ray_runs_along_a_corridor_one_cell_wide():
    corridor = np.ones((3, 50), np.uint8)
    corridor[1, :49] = 0
    assert cast(corridor, 0.5, 1.5, 0.0) == 48.5
    assert cast(corridor, 0.5, 1.0000001, 0.0) == 48.5


def test_from_outside_a_ray_enters_the_map_and_ends_at_what_is_there():
    block = np.zeros((5, 5), np.uint8)
    block[2, 2] = 1
    assert cast(block, -3.0, 2.5, 0.0) == 5.0
    assert cast(block, 8.0, 2.5, math.pi) == pytest.approx(5.0)
    assert cast(block, 2.5, -4.0, math.pi / 2) == pytest.approx(6.0)
    assert cast(block, -3.0, 2.5, math.pi) == math.inf
    assert cast(block, -3.0, 7.0, 0.0) == math.inf
    assert cast(block, -3.0, 2.5, 0.0, reach=4.9) == math.inf
    assert cast(block, -3.0, 2.5, 0.0, edge_is_wall=True) == 0.0


def test_a_border_cell_is_hit_where_the_map_begins():
    filled = np.ones((3, 3), np.uint8)
    assert cast(filled, -2.0, 1.5, 0.0) == 2.0
    assert cast(filled, 5.0, 1.5, math.pi) == 2.0


@given(grids, st.floats(-50, 50), st.floats(-50, 50), angles)
def test_every_ray_ends(occupied, x, y, angle):
    """Whatever the start and direction: no endless walk, no NaN, never negative."""
    assert cast(occupied, x, y, angle) >= 0.0


@pytest.mark.parametrize(("dx", "dy"), [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)])
@given(grids, st.integers(-2, 14), st.integers(-2, 14))
def test_rays_along_cell_borders_end(dx, dy, occupied, x, y):
    assert along(occupied, 1.0, float(x), float(y), dx, dy) >= 0.0


def test_a_cell_is_free_when_it_is_on_the_map_and_not_occupied():
    assert is_free(clearance_of(ROOM), 1.0, 3.0, 3.0)
    assert not is_free(clearance_of(ROOM), 1.0, 0.5, 3.0)
    for x, y in ((-0.001, 3.0), (7.0, 3.0), (3.0, -0.001), (3.0, 7.0), (math.inf, 3.0)):
        assert not is_free(clearance_of(np.zeros((7, 7), np.uint8)), 1.0, x, y)


@settings(max_examples=many(200))
@given(grids)
def test_clearance_is_the_way_in_cells_to_what_is_occupied_or_to_the_edge(occupied):
    rows, columns = occupied.shape
    walled = np.pad(occupied, 1, constant_values=1)
    taken = np.argwhere(walled) - 1
    clearance = clearance_of(occupied)
    for row in range(rows):
        for column in range(columns):
            assert clearance[row, column] == np.abs(taken - (row, column)).max(axis=1).min()


def test_clearance_saturates_on_a_large_map_compiled_or_not():
    """A byte holds 255: one more would be 0, an occupied cell, where there is nothing."""
    plain = getattr(clearance_of, "py_func", clearance_of)
    clearance = plain(np.zeros((520, 520), np.uint8))
    assert clearance.min() == 1
    assert clearance[260, 260] == 255
    assert (clearance == clearance_of(np.zeros((520, 520), np.uint8))).all()


@settings(max_examples=many(100, least=2))
@given(st.floats(0, 600), st.floats(0, 600))
def test_a_ray_crosses_a_large_empty_map_to_the_one_cell_that_is_taken(x, y):
    target = math.atan2(300.5 - y, 300.5 - x)
    distance = math.dist((x, y), (300.5, 300.5))
    found = cast(LARGE, x, y, target)
    assert max(distance - 0.71, 0.0) <= found <= max(distance - 0.49, 0.0)


LARGE = np.zeros((600, 600), np.uint8)
LARGE[300, 300] = 1

# ---- ground


def test_the_ground_is_exact_at_cell_centres_and_linear_between():
    elevation = np.array([[0.0, 2.0], [4.0, 10.0]])
    assert ground_height(elevation, 1.0, 0.5, 0.5) == 0.0
    assert ground_height(elevation, 1.0, 1.5, 1.5) == 10.0
    assert ground_height(elevation, 1.0, 1.0, 0.5) == 1.0
    assert ground_height(elevation, 1.0, 0.5, 1.0) == 2.0
    assert ground_height(elevation, 1.0, 1.0, 1.0) == 4.0
    assert ground_height(elevation, 0.5, 0.5, 0.5) == 4.0


@pytest.mark.parametrize(("x", "y", "corner"), [(-9, -9, 0.0), (99, -9, 2.0), (-9, 99, 4.0), (1e9, 1e9, 10.0)])
def test_beyond_the_edge_the_ground_goes_on_level(x, y, corner):
    assert ground_height(np.array([[0.0, 2.0], [4.0, 10.0]]), 1.0, float(x), float(y)) == corner


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1)])
def test_a_map_of_one_row_or_column_has_ground(shape):
    elevation = np.arange(shape[0] * shape[1], dtype=float).reshape(shape)
    assert ground_height(elevation, 1.0, 0.5, 0.5) == 0.0
    assert ground_height(elevation, 1.0, shape[1] - 0.5, shape[0] - 0.5) == elevation[-1, -1]


@given(st.floats(-5, 30), st.floats(-5, 30))
def test_a_sloping_plane_is_reproduced(x, y):
    columns, rows = np.meshgrid(np.arange(25) + 0.5, np.arange(25) + 0.5)
    elevation = 0.25 * columns - 0.5 * rows + 3.0
    inside = (min(max(x, 0.5), 24.5), min(max(y, 0.5), 24.5))
    assert ground_height(elevation, 1.0, x, y) == pytest.approx(0.25 * inside[0] - 0.5 * inside[1] + 3.0, abs=1e-12)


@given(st.floats(0, 10), st.floats(0, 10), st.integers(0, 2**32 - 1))
def test_the_ground_stays_between_the_heights_around_it(x, y, seed):
    elevation = np.random.default_rng(seed).normal(size=(10, 10))
    i, j = min(max(int(x - 0.5), 0), 8), min(max(int(y - 0.5), 0), 8)
    around = elevation[j : j + 2, i : i + 2]
    assert around.min() - 1e-12 <= ground_height(elevation, 1.0, x, y) <= around.max() + 1e-12


# ---- rotations


def matrix_of(quaternion):
    x, y, z, w = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def rotation(axis, angle):
    c, s = math.cos(angle), math.sin(angle)
    matrix = np.eye(3)
    i, j = [(1, 2), (2, 0), (0, 1)][axis]
    matrix[i, i] = matrix[j, j] = c
    matrix[i, j], matrix[j, i] = -s, s
    return matrix


@given(angles, angles, angles)
def test_roll_pitch_yaw_is_about_fixed_axes_in_the_order_of_urdf(roll, pitch, yaw):
    expected = rotation(2, yaw) @ rotation(1, pitch) @ rotation(0, roll)
    assert np.allclose(matrix_from_rpy(roll, pitch, yaw), expected, atol=1e-13)
    quaternion = quaternion_from_rpy(roll, pitch, yaw)
    assert math.sqrt(sum(part * part for part in quaternion)) == pytest.approx(1.0, abs=1e-14)
    assert np.allclose(matrix_of(quaternion), expected, atol=1e-13)


@given(st.floats(-math.pi, math.pi), st.floats(0.1, 10))
def test_a_heading_survives_the_quaternion_normalised_or_not(yaw, scale):
    z, w = yaw_quaternion(yaw)
    turn = yaw_of_quaternion(0.0, 0.0, scale * z, scale * w) - yaw
    assert abs(math.remainder(turn, 2 * math.pi)) < 1e-14


@given(st.floats(-1.5, 1.5), st.floats(-1.5, 1.5), st.floats(-3.1, 3.1))
def test_the_heading_of_a_tilted_rotation_is_that_of_its_x_axis(roll, pitch, yaw):
    assert yaw_of_quaternion(*quaternion_from_rpy(roll, pitch, yaw)) == pytest.approx(yaw, abs=1e-9)
