"""Closed forms of the camera: where known things must appear, and what covers what."""

import math

import numpy as np
import pytest

from microsim import Simulation
from microsim.engine.geometry import matrix_from_rpy
from microsim.engine.world import GROUND, HAZARD, OBSTACLE, PALETTE, TARGET, WATER, Shape, World
from microsim.render.palette_camera import CameraModel, Renderer
from tests.unit.sensors.camera_reference import looking

# The drone's mount at yaw 0: image top = forward (+x), image right = the drone's right (-y).
DOWN = ((0.0, -1.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 0.0, -1.0))
SMALL = CameraModel(33, 25, 30.0, 30.0, 16.0, 12.0)
CENTRE = (12, 16)  # row, column of SMALL's axis


def flat_world(*features, obstacles=(), height=0.0, size=20, surface=None):
    elevation = np.full((size, size), height)
    return World(1.0, elevation, np.zeros((size, size), np.uint8) if surface is None else surface, obstacles, features)


def box(class_id, x, y, size_x, size_y, height, **more):
    return Shape("rectangle", class_id, (x, y), (size_x, size_y), height_m=height, **more)


def test_the_default_mount_looks_down_with_the_image_top_forward():
    assert np.allclose(matrix_from_rpy(math.pi, 0.0, -math.pi / 2.0), DOWN, atol=1e-15)
    ahead = Shape("circle", TARGET, (12.0, 10.0), radius=0.7)
    right = Shape("circle", HAZARD, (10.0, 8.0), radius=0.7)
    image = Renderer(flat_world(ahead, right), SMALL).classes((10.0, 10.0, 6.0), DOWN)
    assert image[12 - 10, 16] == TARGET  # 2 m at 6 m of depth is 10 px
    assert image[12, 16 + 10] == HAZARD
    assert image[12 + 10, 16] == image[12, 16 - 10] == GROUND


def test_a_grid_of_known_points_projects_within_a_pixel():
    """PRD 11.4.5, both ways: points to pixels, and pixels to points on the map."""
    points = [(x, y) for x in (8.0, 9.5, 11.0, 12.5) for y in (7.5, 9.0, 10.5, 12.0)]
    world = flat_world(*(Shape("circle", TARGET, point, radius=0.25) for point in points), height=3.0)
    model = CameraModel(128, 128, 120.0, 120.0, 64.0, 64.0)
    position, rotation = (10.1, 9.9, 11.0), matrix_from_rpy(math.pi - 0.1, 0.05, 0.3)
    renderer = Renderer(world, model)
    seen = np.argwhere(renderer.classes(position, rotation) == TARGET)
    matrix = np.array(rotation)
    for x, y in points:
        u, v = model.project(*(matrix.T @ (np.array([x, y, 3.0]) - position)))
        near = seen[np.hypot(seen[:, 0] - v, seen[:, 1] - u) < 8.0]
        assert np.hypot(*(near.mean(0) - (v, u))) < 0.5
    depths = renderer.depths(position, rotation)
    rays = model.rays()
    for v, u in np.ndindex(depths.shape):
        point = position + matrix @ np.array([rays[0, v, u], rays[1, v, u], 1.0]) * depths[v, u]
        assert point[2] == pytest.approx(3.0, abs=1e-12)
        if v % 16 == 0 and u % 16 == 0:
            assert model.project(*(matrix.T @ (point - position))) == pytest.approx((u, v), abs=1e-9)


def test_a_two_metre_obstacle_hides_the_ground_patch_it_overlaps():
    """PRD 11.4.4: from 10 m above, the lid of a 2 m x 2 m box is 8 m away, so 15 px to each side of the axis."""
    patch = Shape("rectangle", WATER, (10.0, 10.0), (4.0, 4.0))
    world = flat_world(patch, obstacles=(box(OBSTACLE, 10.0, 10.0, 2.0, 2.0, 2.0),))
    model = CameraModel(128, 128, 120.0, 120.0, 64.0, 64.0)
    image = Renderer(world, model).classes((10.0, 10.0, 10.0), DOWN)
    v, u = np.mgrid[:128, :128]
    from_axis = np.maximum(abs(u - 64), abs(v - 64))
    expected = np.where(from_axis <= 15, OBSTACLE, np.where(from_axis <= 24, WATER, GROUND))
    assert (image == expected).all()


def test_an_obstacle_seen_from_the_side_hides_what_is_behind_it_and_not_what_is_before():
    before = Shape("circle", HAZARD, (8.0, 10.0), radius=0.5)
    behind = Shape("circle", TARGET, (11.0, 10.0), radius=0.5)
    wall = box(OBSTACLE, 10.0, 10.0, 0.5, 20.0, 2.0)
    model, rotation, position = CameraModel(65, 65, 40.0, 40.0, 32.0, 32.0), looking(0.0, 0.4), (4.0, 10.0, 2.0)
    image = Renderer(flat_world(before, behind, obstacles=(wall,)), model).classes(position, rotation)
    assert HAZARD in image
    assert TARGET not in image
    assert TARGET in Renderer(flat_world(before, behind), model).classes(position, rotation)


@pytest.mark.parametrize("class_id", range(5))
def test_every_class_has_exactly_its_colour_in_every_form(class_id):
    surface = np.full((20, 20), class_id, np.uint8)
    forms = (
        flat_world(surface=surface),
        flat_world(Shape("circle", class_id, (10.0, 10.0), radius=9.0), surface=1 - np.minimum(surface, 1)),
        flat_world(box(class_id, 10.0, 10.0, 9.0, 9.0, 1.0), surface=1 - np.minimum(surface, 1)),
    )
    for world in forms:
        image = Renderer(world, SMALL).render((10.0, 10.0, 4.0), DOWN)
        assert (image == PALETTE[class_id]).all()


def test_the_palette_is_the_one_of_the_requirements():
    wanted = ("c8c8c8", "3cb371", "e74c3c", "3498db", "1abc9c")
    assert [bytes(colour).hex() for colour in PALETTE] == list(wanted)


def test_a_feature_painted_later_paints_over_earlier_ones():
    first = Shape("circle", HAZARD, (10.0, 10.0), radius=2.0)
    second = Shape("rectangle", TARGET, (10.0, 10.0), (1.0, 1.0))
    position = (10.0, 10.0, 5.0)
    assert Renderer(flat_world(first, second), SMALL).classes(position, DOWN)[CENTRE] == TARGET
    assert Renderer(flat_world(second, first), SMALL).classes(position, DOWN)[CENTRE] == HAZARD


def test_of_two_solids_at_the_same_depth_the_earlier_is_seen():
    low, tall = box(HAZARD, 10.0, 10.0, 2.0, 2.0, 2.0), box(TARGET, 10.0, 10.0, 2.0, 2.0, 2.0)
    obstacle = box(OBSTACLE, 10.0, 10.0, 2.0, 2.0, 2.0)
    position = (10.0, 10.0, 5.0)
    assert Renderer(flat_world(low, tall), SMALL).classes(position, DOWN)[CENTRE] == HAZARD
    assert Renderer(flat_world(tall, low), SMALL).classes(position, DOWN)[CENTRE] == TARGET
    assert Renderer(flat_world(low, obstacles=(obstacle,)), SMALL).classes(position, DOWN)[CENTRE] == OBSTACLE


def test_a_triangle_is_the_same_whichever_way_its_vertices_run():
    vertices = ((9.0, 9.0), (11.5, 9.5), (9.5, 11.5))
    for height in (0.0, 1.5):
        one, other = (
            Renderer(flat_world(Shape("triangle", HAZARD, (10.0, 10.0), vertices=v, height_m=height)), SMALL)
            for v in (vertices, vertices[::-1])
        )
        image = one.classes((10.0, 10.0, 5.0), DOWN)
        assert (image == other.classes((10.0, 10.0, 5.0), DOWN)).all()
        assert image[CENTRE] == HAZARD


@pytest.mark.parametrize("yaw", [0.0, 0.6, 1.9, 3.0, -2.2])
def test_a_billboard_without_yaw_faces_the_camera_from_everywhere(yaw):
    """4 m wide at 10 m: 2 m to each side of the axis is 8 px at fx 40."""
    world = flat_world(Shape("billboard", TARGET, (10.0, 10.0), (4.0, 6.0), yaw=None))
    position = (10.0 - 10.0 * math.cos(yaw), 10.0 - 10.0 * math.sin(yaw), 3.0)
    model = CameraModel(65, 33, 40.0, 40.0, 32.5, 16.0)
    row = Renderer(world, model).classes(position, looking(yaw, 0.0))[16]
    assert np.flatnonzero(row == TARGET).tolist() == list(range(25, 41))


def test_a_billboard_with_yaw_is_seen_from_both_sides_and_not_edge_on():
    world = flat_world(Shape("billboard", TARGET, (10.0, 10.0), (4.0, 6.0), yaw=0.0))
    renderer = Renderer(world, SMALL)
    for yaw, is_seen in ((0.0, True), (math.pi, True), (math.pi / 2.0, False)):
        x, y = math.cos(yaw), math.sin(yaw)
        image = renderer.classes((10.0 - 10.0 * x, 10.0 - 10.0 * y, 3.0), looking(yaw, 0.0))
        assert (image[CENTRE] == TARGET) is np.bool_(is_seen), yaw
    assert renderer.classes((10.0, 0.0, 3.0), ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, -1.0, 0.0))).max() == GROUND


def test_a_billboard_straight_below_is_seen_edge_on_whatever_it_faces():
    world = flat_world(Shape("billboard", TARGET, (10.0, 10.0), (4.0, 1.0), yaw=None))
    assert Renderer(world, SMALL).classes((10.0, 10.0, 8.0), DOWN).shape == (25, 33)


def test_a_raised_solid_floats_and_one_on_the_ground_reaches_into_every_hollow():
    slope = np.tile(np.arange(20.0) * 0.5, (20, 1))
    surface = np.full((20, 20), WATER, np.uint8)
    standing = World(1.0, slope, surface, (box(OBSTACLE, 10.0, 10.0, 6.0, 1.0, 2.0),), ())
    raised = World(1.0, slope, surface, (box(OBSTACLE, 10.0, 10.0, 6.0, 1.0, 2.0, base_m=2.0),), ())
    # From the low side, at the height of the slope's foot under the solid: only the raised one can be looked under.
    position, rotation = (2.0, 10.0, 4.8), looking(0.0, 0.0)
    assert Renderer(standing, SMALL).classes(position, rotation)[CENTRE] == OBSTACLE
    assert Renderer(raised, SMALL).classes(position, rotation)[CENTRE] == WATER


def test_level_with_the_horizon_the_ground_begins_right_below_it():
    depths = Renderer(flat_world(), SMALL).depths((10.0, 10.0, 2.0), looking(0.7, 0.0)).copy()
    rows = np.arange(25)
    assert np.isinf(depths[rows <= 12]).all()
    assert np.allclose(depths[rows > 12], (2.0 * 30.0 / (rows[rows > 12] - 12.0))[:, None], rtol=1e-12)


def test_looking_up_there_is_only_sky():
    world = flat_world(surface=np.full((20, 20), WATER, np.uint8))
    renderer = Renderer(world, SMALL)
    assert (renderer.classes((10.0, 10.0, 2.0), looking(0.3, -1.2)) == GROUND).all()
    assert np.isinf(renderer.depths((10.0, 10.0, 2.0), looking(0.3, -1.2))).all()


def test_beyond_the_map_its_edge_goes_on():
    """East of a map that rises to the north the ground keeps the profile of the last column of cells."""
    elevation = np.repeat(np.arange(12.0)[:, None] * 0.5, 12, axis=1)
    surface = np.repeat((np.arange(12) % 5)[:, None], 12, axis=1).astype(np.uint8)
    renderer = Renderer(World(1.0, elevation, surface, (), ()), SMALL)
    for x, y in ((60.0, 3.2), (60.0, 8.7), (-5000.0, 6.5), (4.0, 900.0), (4.0, -900.0), (500.0, 900.0)):
        ground = 0.5 * (min(max(y, 0.5), 11.5) - 0.5)
        depths = renderer.depths((x, y, 20.0), DOWN)
        assert depths[CENTRE] == pytest.approx(20.0 - ground, abs=1e-9)
        assert renderer.classes((x, y, 20.0), DOWN)[CENTRE] == int(min(max(y, 0.0), 11.0)) % 5
        assert np.isfinite(depths).all()


def test_on_a_plane_that_slopes_depth_is_that_of_the_plane():
    x, y = np.meshgrid(np.arange(40) + 0.5, np.arange(40) + 0.5)
    world = World(1.0, 0.2 * x - 0.1 * y, np.zeros((40, 40), np.uint8), (), ())
    assert not world.is_flat
    position, rotation = (20.0, 20.0, 12.0), looking(0.5, 1.2)
    depths = Renderer(world, SMALL).depths(position, rotation)
    rays = SMALL.rays()
    direction = np.einsum("kc,cvu->kvu", np.array(rotation), np.stack([rays[0], rays[1], np.ones_like(rays[0])]))
    expected = (0.2 * 20.0 - 0.1 * 20.0 - 12.0) / (direction[2] - 0.2 * direction[0] + 0.1 * direction[1])
    assert np.allclose(depths, expected, rtol=1e-12)


def test_the_saddle_of_a_patch_is_met_where_its_quadratic_says():
    """One cell's twist: height p q over four nodes; a ray along the diagonal p = q meets it where p^2 = its height."""
    world = World(1.0, np.array([[0.0, 0.0], [0.0, 1.0]]), np.zeros((2, 2), np.uint8), (), ())
    diagonal = 1.0 / math.sqrt(2.0)
    rotation = ((diagonal, 0.0, diagonal), (-diagonal, 0.0, diagonal), (0.0, -1.0, 0.0))
    depths = Renderer(world, CameraModel(1, 1, 1.0, 1.0, 0.0, 0.0)).depths((0.5, 0.5, 0.25), rotation)
    assert depths[0, 0] == pytest.approx(0.5 * math.sqrt(2.0), rel=1e-12)  # p = q = 0.5


def test_a_flat_world_gives_the_same_depths_as_a_plane_and_as_relief():
    """One tiny bump far away sends the same ground through the general way."""
    bumpy = np.zeros((30, 30))
    bumpy[29, 29] = 1e-9
    surface = np.zeros((30, 30), np.uint8)
    flat, relief = World(1.0, np.zeros((30, 30)), surface, (), ()), World(1.0, bumpy, surface, (), ())
    for rotation in (DOWN, looking(0.4, 0.6), looking(2.0, 0.1)):
        one = Renderer(flat, SMALL).depths((10.3, 9.7, 3.0), rotation)
        other = Renderer(relief, SMALL).depths((10.3, 9.7, 3.0), rotation)
        both = np.isfinite(one) & np.isfinite(other)
        assert np.array_equal(np.isfinite(one), np.isfinite(other))
        assert np.allclose(one[both], other[both], rtol=1e-9)


SOLIDS = {
    "box": box(OBSTACLE, 10.0, 10.0, 4.0, 4.0, 8.0),
    "cylinder": Shape("circle", OBSTACLE, (10.0, 10.0), radius=2.0, height_m=8.0),
    "triangle": Shape(
        "triangle", OBSTACLE, (10.0, 10.0), vertices=((7.0, 8.0), (13.0, 8.0), (10.0, 14.0)), height_m=8.0
    ),
}


@pytest.mark.parametrize("solid", SOLIDS.values(), ids=SOLIDS)
@pytest.mark.parametrize("rotation", [DOWN, looking(0.0, 0.0), looking(2.0, 0.7), looking(-1.0, -1.2)])
def test_a_camera_inside_a_solid_sees_nothing_else(solid, rotation):
    """It is at depth 0 in all directions, also where something else is inside it."""
    inside = box(HAZARD, 10.5, 10.0, 0.4, 0.4, 6.0)
    renderer = Renderer(flat_world(inside, Shape("circle", WATER, (10.0, 10.0), radius=9.0), obstacles=(solid,)), SMALL)
    for position in ((10.0, 10.0, 5.0), (9.2, 9.1, 0.5), (10.0, 9.0, 7.9)):
        assert (renderer.classes(position, rotation) == OBSTACLE).all()
        assert (renderer.depths(position, rotation) == 0.0).all()
    assert (renderer.depths((10.0, 10.0, 8.1), rotation) > 0.0).all()


def test_a_camera_that_only_touches_a_solid_looks_away_from_it():
    renderer = Renderer(flat_world(obstacles=(box(OBSTACLE, 10.0, 10.0, 2.0, 2.0, 4.0),)), SMALL)
    assert OBSTACLE not in renderer.classes((11.0, 10.0, 2.0), looking(0.0, 0.0))  # at its east side, to the east


@pytest.mark.parametrize("is_flat", [True, False])
def test_a_camera_below_the_ground_sees_only_the_ground_it_is_in(is_flat):
    elevation = np.zeros((20, 20))
    elevation[0, 0] = 0.0 if is_flat else 1.0
    surface = np.zeros((20, 20), np.uint8)
    surface[10, 10] = WATER
    renderer = Renderer(World(1.0, elevation, surface, (box(OBSTACLE, 12.0, 10.5, 1.0, 9.0, 3.0),), ()), SMALL)
    for rotation in (DOWN, looking(0.0, 0.0), looking(0.0, -1.0)):
        assert (renderer.classes((10.5, 10.5, -1.0), rotation) == WATER).all()
        assert (renderer.depths((10.5, 10.5, -1.0), rotation) == 0.0).all()


def test_a_hole_in_the_ground_is_seen_as_sky_and_its_walls_as_ground():
    elevation = np.zeros((20, 20))
    elevation[8:12, 8:12] = np.nan
    surface = np.full((20, 20), WATER, np.uint8)
    renderer = Renderer(World(1.0, elevation, surface, (), ()), CameraModel(65, 65, 30.0, 30.0, 32.0, 32.0))
    image = renderer.classes((10.0, 10.0, 4.0), DOWN).copy()
    assert image[32, 32] == GROUND
    assert image[0, 0] == image[32, 0] == image[64, 32] == WATER
    # The wall at x = 12.5 begins 2.5 m beside the axis 4 m below: 18.75 px; deeper parts of it lie further in.
    assert (image[32, :] == WATER)[[0, 13, 51, 64]].all()
    depths = renderer.depths((10.0, 10.0, 4.0), DOWN)
    assert depths[32, 32 + 10] == pytest.approx(2.5 * 30.0 / 10.0)


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (7, 19), (50, 3)])
def test_images_of_any_shape_with_or_without_things_in_them(size):
    width, height = size
    model = CameraModel(width, height, 20.0, 20.0, (width - 1) / 2.0, (height - 1) / 2.0)
    empty = Renderer(flat_world(), model).render((10.0, 10.0, 5.0), DOWN)
    assert empty.shape == (height, width, 3)
    assert (empty == PALETTE[GROUND]).all()
    full = Renderer(flat_world(box(HAZARD, 10.0, 10.0, 1.0, 1.0, 1.0)), model).classes((10.0, 10.0, 5.0), DOWN)
    assert full[height // 2, width // 2] == HAZARD


def test_a_map_of_one_cell_is_a_plane():
    world = World(2.0, np.array([[1.5]]), np.array([[WATER]], np.uint8), (), ())
    renderer = Renderer(world, SMALL)
    assert (renderer.classes((100.0, -50.0, 5.0), DOWN) == WATER).all()
    assert np.allclose(renderer.depths((100.0, -50.0, 5.0), DOWN), 3.5)


def test_images_are_new_arrays_and_classes_are_reused():
    renderer = Renderer(flat_world(), SMALL)
    pose = ((10.0, 10.0, 5.0), DOWN)
    assert renderer.render(*pose) is not renderer.render(*pose)
    assert renderer.classes(*pose) is renderer.classes(*pose)


def test_of_an_image_it_is_known_whether_it_shows_one_class():
    surface = np.zeros((40, 40), np.uint8)
    surface[:, 20:] = WATER
    renderer = Renderer(flat_world(surface=surface, size=40), CameraModel(128, 64, 60.0, 60.0, 64.0, 32.0))
    for x, only in ((8.0, GROUND), (20.0, -1), (32.0, WATER), (8.0, GROUND)):
        image = renderer.render((x, 20.0, 6.0), DOWN)
        assert renderer.only_class == only
        assert (image == PALETTE[renderer.classes((x, 20.0, 6.0), DOWN)]).all()
        image[:] = 7  # of the caller alone
    assert (renderer.render((32.0, 20.0, 6.0), DOWN) == PALETTE[WATER]).all()


def test_a_pose_that_is_not_finite_is_refused():
    renderer = Renderer(flat_world(), SMALL)
    with pytest.raises(ValueError, match="not finite"):
        renderer.render((math.nan, 0.0, 1.0), DOWN)
    with pytest.raises(ValueError, match="not finite"):
        renderer.render((0.0, 0.0, 1.0), ((math.inf, 0.0, 0.0), *DOWN[1:]))


# Distortion


@pytest.mark.parametrize(
    "distortion",
    [(-0.3, 0.1, 0.001, -0.002, -0.01), (0.25, 0.05, 0.0, 0.0, 0.02), (0.0, 0.0, 0.02, -0.01, 0.0), (0.1, 0, 0, 0, 0)],
)
def test_pixel_to_ray_to_pixel_comes_back(distortion):
    model = CameraModel(64, 48, 60.0, 62.0, 31.2, 24.9, distortion)
    rays = model.rays()
    assert np.isfinite(rays).all()
    for v in range(48):
        for u in range(64):
            assert model.project(*rays[:, v, u], 1.0) == pytest.approx((u, v), abs=1e-9)


def test_without_distortion_rays_are_the_pinholes():
    rays = SMALL.rays()
    assert rays[0, 3, 5] == (5 - 16.0) / 30.0
    assert rays[1, 3, 5] == (3 - 12.0) / 30.0


def test_pixels_beyond_a_strong_barrel_see_nothing_and_those_within_the_inner_branch():
    """r (1 - r^2 / 3) grows up to r = 1, where it is 2/3: no ray is seen further out than 2/3 of the focal length."""
    model = CameraModel(101, 3, 50.0, 50.0, 50.0, 1.0, (-1.0 / 3.0, 0.0, 0.0, 0.0, 0.0))
    a = model.rays()[0, 1]
    seen = abs(np.arange(101) - 50.0) / 50.0 < 2.0 / 3.0
    assert np.array_equal(np.isfinite(a), seen)
    assert (abs(a[seen]) < 1.0).all()
    image = Renderer(flat_world(surface=np.full((20, 20), WATER, np.uint8)), model).classes((10.0, 10.0, 5.0), DOWN)
    assert np.array_equal(image[1] == WATER, seen)


def test_a_distortion_that_shows_nothing_at_all_gives_an_empty_picture():
    model = CameraModel(3, 3, 1.0, 1.0, -50.0, -50.0, (-5.0, 0.0, 0.0, 0.0, 0.0))
    world = flat_world(box(HAZARD, 10.0, 10.0, 1.0, 1.0, 1.0))
    assert (Renderer(world, model).classes((10.0, 10.0, 5.0), DOWN) == GROUND).all()


def test_other_robots_are_boxes_of_class_1_where_a_camera_sees_them():
    """Against the projection of every pixel's ray into the box, by NumPy."""
    place = {"x": 12.0, "y": 9.0, "yaw": 0.7}
    robots = {
        "drone": {"start": {"map_pose": {"x": 10, "y": 10, "z": 6}}, "camera": {"sees_robots": True}},
        "ego": {"model": "bicycle", "start": {"map_pose": place}},
    }
    scenario = {"name": "seen", "map": {"size_xy_cells": [30, 30]}, "robots": robots}
    image = Simulation(scenario).render("drone")
    robots["drone"]["camera"] = {"sees_robots": False}
    assert (Simulation(scenario).render("drone") == PALETTE[GROUND]).all()
    model = CameraModel(128, 128, 120.0, 120.0, 64.0, 64.0)
    rays = model.rays()
    directions = np.stack([rays[0], rays[1], np.ones((128, 128))], axis=-1) @ np.array(DOWN).T
    cosine, sine = math.cos(place["yaw"]), math.sin(place["yaw"])
    turn = np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])
    eye = (np.array([10.1, 10.0, 5.95]) - (place["x"], place["y"], 0.0)) @ turn  # as the drone carries it
    with np.errstate(divide="ignore"):
        low = (np.array([-0.9, -0.9, 0.0]) - eye) / (directions @ turn)
        high = (np.array([3.6, 0.9, 1.5]) - eye) / (directions @ turn)
    hit = np.minimum(low, high).max(axis=-1) <= np.maximum(low, high).min(axis=-1)
    assert 500 < hit.sum() < 10_000
    np.testing.assert_array_equal((image == PALETTE[OBSTACLE]).all(axis=-1), hit)
