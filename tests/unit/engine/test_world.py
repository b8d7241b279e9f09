"""The world: which cells an obstacle occupies, where the map ends."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import microsim
from microsim.engine.geometry import is_free
from microsim.engine.world import CLASS_NAMES, PALETTE, TOUCHING, Shape, World
from microsim.render.palette_camera import CameraModel, Renderer
from tests.support import many, scenario

lengths = st.floats(0.05, 6.0)


def world(*obstacles, columns=12, rows=10, cell=1.0, elevation=None):
    heights = np.zeros((rows, columns)) if elevation is None else elevation
    return World(cell, heights, np.zeros(heights.shape, np.uint8), obstacles, ())


def box(x, y, width, depth):
    return Shape("rectangle", 1, (x, y), size=(width, depth), height_m=1.0)


def cylinder(x, y, radius):
    return Shape("circle", 1, (x, y), radius=radius, height_m=1.0)


def occupied_cells(*obstacles, **size):
    return {(int(c), int(r)) for r, c in zip(*np.nonzero(world(*obstacles, **size).occupied), strict=True)}


def test_a_box_on_cell_borders_occupies_exactly_the_cells_under_it():
    assert occupied_cells(box(3.0, 4.0, 2.0, 4.0)) == {(c, r) for c in (2, 3) for r in (2, 3, 4, 5)}


def test_a_box_a_little_over_a_border_occupies_the_next_cell_too():
    assert occupied_cells(box(2.5, 2.5, 1.0 + 3e-6, 1.0)) == {(1, 2), (2, 2), (3, 2)}
    assert occupied_cells(box(2.5, 2.5, 1.0 + 1e-6, 1.0)) == {(2, 2)}  # rounding would decide over less


def test_a_box_inside_a_cell_occupies_that_cell():
    assert occupied_cells(box(2.3, 2.7, 0.1, 0.1)) == {(2, 2)}


def test_what_lies_beyond_the_map_occupies_nothing():
    assert occupied_cells(box(-5.0, -5.0, 2.0, 2.0), box(100.0, 3.0, 2.0, 2.0), cylinder(3.0, -9.0, 2.0)) == set()


def test_an_obstacle_over_the_edge_occupies_what_is_on_the_map():
    assert occupied_cells(box(0.0, 0.0, 2.0, 2.0)) == {(0, 0)}
    assert occupied_cells(box(6.0, 5.0, 100.0, 100.0)) == {(c, r) for c in range(12) for r in range(10)}


def test_a_cylinder_that_only_touches_a_cell_does_not_occupy_it():
    assert occupied_cells(cylinder(2.5, 2.5, 0.5)) == {(2, 2)}
    assert occupied_cells(cylinder(3.0, 3.0, 1.0)) == {(2, 2), (3, 2), (2, 3), (3, 3)}


@settings(max_examples=many(200))
@given(st.floats(-2, 14), st.floats(-2, 12), lengths, lengths)
def test_a_box_occupies_the_cells_of_which_it_covers_an_area(x, y, width, depth):
    def overlap(low, centre, size):
        return min(low + 1, centre + size / 2) - max(low, centre - size / 2)

    expected = {
        (c, r)
        for c in range(12)
        for r in range(10)
        if overlap(c, x, width) > TOUCHING and overlap(r, y, depth) > TOUCHING
    }
    assert occupied_cells(box(x, y, width, depth)) == expected


@settings(max_examples=many(200))
@given(st.floats(-2, 14), st.floats(-2, 12), lengths)
def test_a_cylinder_occupies_the_cells_that_come_nearer_than_its_radius(x, y, radius):
    def nearest(c, r):
        return math.hypot(max(c - x, 0, x - c - 1), max(r - y, 0, y - r - 1))

    found = occupied_cells(cylinder(x, y, radius))
    for c in range(12):
        for r in range(10):
            if abs(nearest(c, r) - radius) > 1.1 * TOUCHING:
                assert ((c, r) in found) == (nearest(c, r) < radius)


def decimal(low, high):
    """What people write: a number with two decimals, whose rounding differs from place to place."""
    return st.integers(round(100 * low), round(100 * high)).map(lambda hundredths: hundredths / 100)


@settings(max_examples=many(300))
@given(
    st.sampled_from([0.05, 0.1, 0.2, 0.3, 0.5, 1.0]),
    st.sampled_from([box, cylinder]),
    decimal(0, 6),
    decimal(0, 6),
    st.tuples(decimal(0.01, 2), decimal(0.01, 2)),
    st.integers(0, 3000),
)
@example(0.1, cylinder, 0.5, 1.0, (0.3, 0.3), 200)
def test_an_obstacle_occupies_the_same_cells_mirrored_turned_and_elsewhere(cell, make, x, y, size, shift):
    """About the middle of 60 × 60 cells; elsewhere: by whole cells."""

    def cells(x, y, size, columns=60):
        sizes = size if make is box else size[:1]
        return world(make(x, y, *sizes), columns=columns, rows=60, cell=cell).occupied

    middle = round(30 * cell, 2)
    here = cells(middle + x - 3, middle + y - 3, size)
    assert (cells(middle - x + 3, middle + y - 3, size)[:, ::-1] == here).all()
    assert (cells(middle + x - 3, middle - y + 3, size)[::-1] == here).all()
    turned = cells(middle - y + 3, middle + x - 3, size[::-1] if make is box else size)
    assert (np.rot90(turned) == here).all()
    moved = cells(middle + x - 3 + shift * cell, middle + y - 3, size, 60 + shift)
    assert (moved[:, shift:] == here).all()


@settings(max_examples=many(200))
@given(lengths, st.integers(1, 300), st.integers(-3, 3))
def test_a_point_inside_the_map_has_a_cell_however_its_border_rounds(cell, count, ulps):
    """The border is count × cell rounded; the cell's number is x / cell rounded: the two may disagree by one."""
    x = count * cell
    for _ in range(abs(ulps)):
        x = math.nextafter(x, 0.0 if ulps < 0 else math.inf)
    place = world(columns=count, rows=1, cell=cell)
    assert place.is_inside(x, 0.0) == is_free(place.clearance, cell, x, 0.0)
    assert not place.is_occupied(x, 0.0)


def test_the_border_of_a_map_of_tenths_has_cells():
    """26.7 is below 267 × 0.1, which rounds up, yet 26.7 / 0.1 is 267."""
    place = world(columns=267, rows=3, cell=0.1)
    assert not place.is_occupied(26.7, 0.1)


def test_inside_means_from_zero_up_to_the_size():
    place = world(cell=0.5)
    assert place.size_m == (6.0, 5.0)
    assert place.is_inside(0.0, 0.0)
    assert place.is_inside(5.999, 4.999)
    for x, y in ((6.0, 1.0), (1.0, 5.0), (-1e-9, 1.0), (1.0, -1e-9)):
        assert not place.is_inside(x, y)
        assert not place.is_occupied(x, y)


def test_a_world_cannot_be_changed():
    place = world(box(3, 3, 1, 1))
    with pytest.raises(ValueError, match="read-only"):
        place.occupied[0, 0] = 1
    with pytest.raises(AttributeError):
        place.cell_m = 2.0


def test_one_height_everywhere_is_flat_and_any_other_is_not():
    assert world().is_flat
    bumpy = np.zeros((4, 4))
    bumpy[3, 3] = 1e-300
    assert not world(elevation=bumpy).is_flat


def test_the_ground_is_asked_in_map_coordinates():
    slope = np.tile(np.arange(10.0), (4, 1))
    assert world(elevation=slope, cell=2.0).ground(5.0, 1.0) == 2.0


def test_the_palette_is_that_of_the_requirements():
    colours = ["#" + bytes(colour).hex().upper() for colour in PALETTE]
    assert dict(zip(CLASS_NAMES, colours, strict=True)) == {
        "ground": "#C8C8C8",
        "obstacle": "#3CB371",
        "hazard": "#E74C3C",
        "target": "#3498DB",
        "water": "#1ABC9C",
    }


@settings(deadline=None, max_examples=20)
@given(st.sampled_from([-64.0, -8.0, 16.0, 1024.0]), st.sampled_from([-128.0, 4.0]), st.integers(0, 1000))
def test_a_world_that_begins_elsewhere_is_the_same_world_moved(west, south, seed):
    """Offsets that are exact in binary: heights, occupied cells, rays and pictures agree to the last bit or nearly."""
    rng = np.random.default_rng(seed)
    heights = rng.integers(0, 8, (10, 12)) / 4.0
    here = world(box(3.0, 4.0, 2.0, 2.0), cylinder(8.0, 6.0, 1.5), elevation=heights)
    there = World(
        1.0,
        heights,
        np.zeros(heights.shape, np.uint8),
        (box(3.0 + west, 4.0 + south, 2.0, 2.0), cylinder(8.0 + west, 6.0 + south, 1.5)),
        (),
        west=west,
        south=south,
    )
    assert (there.occupied == here.occupied).all()
    assert there.extent_m == (west, south, west + 12.0, south + 10.0)
    for x, y in rng.integers(-16, 16 * 13, (20, 2)) / 16.0:
        assert there.ground(x + west, y + south) == here.ground(x, y)
        assert there.is_inside(x + west, y + south) == here.is_inside(x, y)
        assert there.is_occupied(x + west, y + south) == here.is_occupied(x, y)
    model = CameraModel(24, 16, 12.0, 12.0, 11.5, 7.5)
    down = ((0.0, -1.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 0.0, -1.0))
    seen = Renderer(there, model).classes((4.0 + west, 4.0 + south, 9.0), down)
    assert (seen == Renderer(here, model).classes((4.0, 4.0, 9.0), down)).all()


def test_scenarios_with_the_same_map_share_a_world_and_others_do_not(tmp_path):
    flat = scenario(map={"size_xy_cells": [20, 20]})
    first = microsim.Simulation(flat, seed=1)
    assert microsim.Simulation({**flat, "physics_hz": 50}, seed=2).world is first.world
    assert microsim.Simulation({**flat, "map": {"size_xy_cells": [21, 20]}}).world is not first.world

    hills = {**flat, "map": {"size_xy_cells": [20, 20], "elevation": {"generate": "hills", "amplitude_m": 1.0}}}
    one, other = (microsim.Simulation({**hills, "seed": seed}).world for seed in (1, 2))
    assert not np.array_equal(one.elevation, other.elevation)

    file = tmp_path / "ground.npy"
    filed = {**flat, "map": {"size_xy_cells": [20, 20], "elevation": {"file": str(file)}}}
    for height in (1.0, 2.0):  # the same scenario, another file
        np.save(file, np.full((20, 20), height))
        assert microsim.Simulation(filed).world.ground(5.0, 5.0) == height
