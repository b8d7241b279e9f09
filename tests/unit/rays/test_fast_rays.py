"""The quick ways of LiDAR and camera against the plain ones, bit for bit: each ray alone, every thing for every ray."""

import math
from typing import Any

import numpy as np
import pytest

from microsim.engine import noise
from microsim.engine.geometry import matrix_from_rpy
from microsim.engine.motion import mounted_at, turned
from microsim.engine.world import Mesh, Shape, World
from microsim.rays import bvh
from microsim.rays.ground_rays import world_lattice
from microsim.rays.lidar_turn import GROUND, LidarTurn, beam_table
from microsim.render import relief
from microsim.render.palette_camera import CameraModel, Renderer
from tests.support import many
from tests.unit.sensors.test_lidar import NOBODY, distance_alone, motion_at

SIZES = ((1, 1), (2, 3), (40, 61), (7, 130), (100, 90))
TILTS = ((0.05, -0.05), (0.0, 0.003), (0.3, 0.2), (1.3, -0.7), (0.0, math.pi / 2))
YAWS = (0.0, math.pi / 2, 0.7)
HEIGHTS = (1.9, 0.02, -0.5, 12.0)  # above the ground


def ground_of(seed: int) -> Any:
    """Rough, smooth or in steps, on some seeds with holes."""
    random, size = np.random.default_rng(seed), SIZES[seed % len(SIZES)]
    heights = (
        random.normal(0.0, 0.4, size) if seed % 3 else 0.02 * np.cumsum(np.cumsum(random.normal(0, 1, size), 0), 1)
    )
    if seed % 4 == 0:
        heights = np.round(heights)
    for _ in range(3 if seed % 2 else 0):
        j, i = random.integers(0, size[0]), random.integers(0, size[1])
        heights[j : j + random.integers(1, 9), i : i + random.integers(1, 9)] = np.nan
    return heights


def scene(seed: int, mesh: Mesh | None = None, obstacles: tuple[Shape, ...] = ()) -> tuple[World, list[float]]:
    """A world, and a tilted sensor in it: over the map or beside it, above the ground or below."""
    random, heights = np.random.default_rng(1000 + seed), ground_of(seed)
    cell = (0.25, 0.7, 1.0)[seed % 3]
    world = World(cell, heights, np.zeros(heights.shape, np.uint8), obstacles, (), -3.25, 7.5, mesh)
    west, south, east, north = world.extent_m
    x, y = random.uniform(1.3 * west - 0.3 * east, 1.3 * east - 0.3 * west), random.uniform(south - 2.0, north + 2.0)
    if seed % 5 == 1:  # on the lines between cells
        x, y = west + cell * round((x - west) / cell), south + cell * round((y - south) / cell)
    below = world.ground(x, y)
    z = (below if math.isfinite(below) else 0.0) + HEIGHTS[seed % len(HEIGHTS)]
    return world, motion_at(x, y, z, *TILTS[seed % len(TILTS)], YAWS[seed % len(YAWS)])


def sensor_in(world: World, seed: int) -> LidarTurn:
    columns, rings = ((8, 40), (270, 5), (600, 9), (1, 33), (65, 16))[seed % 5]
    elevations = np.radians(np.linspace(-25.0, 15.0, rings))
    if seed % 7 == 0:
        elevations = np.random.default_rng(seed).uniform(-1.55, 1.55, rings)
    beams, reach = beam_table(elevations.tolist(), columns), (5.0, 40.0, 120.0)[seed % 3]
    return LidarTurn(world, (0.3, 0.0, 0.0), matrix_from_rpy(0.0, 0.0, 0.1), beams, 0.0, reach, 0.0, 0.0)


def rays_of(sensor: LidarTurn, motion: list[float]) -> tuple[Any, Any]:
    """(3, columns, rings), added up in the order in which the kernel does."""
    x, y, z = sensor.beams.directions
    rows = [a * x + b * y + c * z for a, b, c in turned(motion, sensor.axes)]
    return mounted_at(motion, sensor.mount), np.stack(rows)


@pytest.mark.parametrize("seed", range(many(60, 4)))
def test_beams_in_packets_meet_the_ground_where_each_does_alone(seed: int) -> None:
    world, motion = scene(seed)
    sensor = sensor_in(world, seed)
    best, hit = sensor.distances(motion, NOBODY)
    place, rays = rays_of(sensor, motion)
    alone = np.empty(best.shape)
    for column, ring in np.ndindex(*best.shape):
        ray = rays[:, column, ring]
        alone[column, ring] = distance_alone(world.derived(world_lattice), place, ray, sensor.max_m)
    is_met = alone < sensor.max_m
    assert np.where(is_met, alone, sensor.max_m).tobytes() == best.tobytes()
    assert (hit == np.where(is_met, GROUND, bvh.NOTHING)).all()


def test_the_scenes_meet_ground_and_sky() -> None:
    """Otherwise the test above would compare nothing."""
    shares = []
    for seed in range(30):
        world, motion = scene(seed)
        shares.append((sensor_in(world, seed).distances(motion, NOBODY)[1] == GROUND).mean())
    assert sum(0.05 < share < 0.95 for share in shares) > 10


def mesh_of(seed: int) -> Mesh:
    """Triangles of many sizes; on some seeds with whole numbers, where rays and edges meet exactly, and twice each."""
    random = np.random.default_rng(2000 + seed)
    middles = random.uniform((-20, -5, -4), (30, 40, 8), (120, 1, 3))
    corners = middles + random.normal(0.0, (0.3, 1.0, 8.0)[seed % 3], (120, 3, 3))
    if seed % 2:
        corners = np.repeat(np.round(corners), 2, axis=0)
    return Mesh(corners.reshape(-1, 3), np.arange(3 * len(corners), dtype=np.int32).reshape(-1, 3))


def every_triangle(world: World, place: Any, rays: Any, best: Any, hit: Any) -> None:
    """Möller and Trumbore's test for each ray; of two at one distance the first counts."""
    dx, dy, dz = rays
    for number, (x, y, z, ax, ay, az, bx, by, bz) in enumerate(world.derived(bvh.tree).triangles.tolist()):
        sx, sy, sz = place[0] - x, place[1] - y, place[2] - z
        qx, qy, qz = sy * az - sz * ay, sz * ax - sx * az, sx * ay - sy * ax
        px, py, pz = dy * bz - dz * by, dz * bx - dx * bz, dx * by - dy * bx
        determinant = ax * px + ay * py + az * pz
        with np.errstate(all="ignore"):
            inverse = 1.0 / determinant
            u, v = (sx * px + sy * py + sz * pz) * inverse, (dx * qx + dy * qy + dz * qz) * inverse
            t = (bx * qx + by * qy + bz * qz) * inverse
            nearer = (u >= 0.0) & (v >= 0.0) & (u + v <= 1.0) & (determinant != 0.0) & (t > 0.0) & (t < best)
        best[nearer], hit[nearer] = t[nearer], number


@pytest.mark.parametrize("seed", range(many(30, 2)))
def test_a_lidar_meets_the_triangles_that_a_test_of_every_one_finds(seed: int) -> None:
    world, motion = scene(seed, mesh_of(seed))
    bare, _ = scene(seed)
    sensor = sensor_in(world, seed)
    best, hit = (each.copy() for each in sensor_in(bare, seed).distances(motion, NOBODY))
    every_triangle(world, *rays_of(sensor, motion), best, hit)
    found, what = sensor.distances(motion, NOBODY)
    assert found.tobytes() == best.tobytes()
    assert (what == hit).all()


@pytest.mark.parametrize("seed", range(many(8, 1)))
def test_obstacles_together_are_met_where_each_alone_is(seed: int) -> None:
    obstacles = tuple(
        Shape("rectangle", 1, (-2.0 + 3 * k, 9.0 + k), size=(1.0 + k, 2.0), yaw=0.4 * k, height_m=1.0 + k)
        if k % 2
        else Shape("circle", 1, (1.0 + 2 * k, 12.0 - k), radius=0.7, height_m=3.0)
        for k in range(11)
    )
    _, motion = scene(seed)
    best, hit = (each.copy() for each in sensor_in(scene(seed)[0], seed).distances(motion, NOBODY))
    for number, obstacle in enumerate(obstacles):
        alone, what = sensor_in(scene(seed, None, (obstacle,))[0], seed).distances(motion, NOBODY)
        nearer = (what == 0) & (alone < best)
        best[nearer], hit[nearer] = alone[nearer], number
    found, what = sensor_in(scene(seed, None, obstacles)[0], seed).distances(motion, NOBODY)
    assert found.tobytes() == best.tobytes()
    assert (what == hit).all()


def camera_in(world: World, seed: int) -> Renderer:
    distortion = (-0.2, 0.05, 0.01, 0.0, 0.0) if seed % 3 == 0 else (0.0,) * 5
    return Renderer(world, CameraModel(61, 43, 30.0, 33.0, 31.0, 19.5, distortion))


def view(seed: int) -> tuple[tuple[float, float, float], Any]:
    world, motion = scene(seed)
    x, y, z = motion[:3]
    below = world.ground(x, y)
    turn = np.array(matrix_from_rpy(0.1 * (seed % 3), 0.1 * (seed % 4 - 1), seed))
    optical = turn @ np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    return (x, y, max(z, below + 0.5) if math.isfinite(below) else z), tuple(map(tuple, optical.tolist()))


IS_ONE_CELL = [SIZES[seed % len(SIZES)] == (1, 1) for seed in range(many(30, 5))]


@pytest.mark.parametrize("seed", [seed for seed, is_one_cell in enumerate(IS_ONE_CELL) if not is_one_cell])
def test_relief_drawn_from_front_to_back_is_every_patch_drawn_everywhere(seed: int) -> None:
    world, (position, rotation) = scene(seed)[0], view(seed)
    assert not world.is_flat
    assert not world.ground(*position[:2]) >= position[2]  # it is above the ground, or above a hole
    camera = camera_in(world, seed)
    depths = camera.depths(position, rotation)
    ground, plain, patch = camera._patches, np.full(depths.shape, math.inf), np.empty(10)
    for j, i in np.ndindex(*ground.holes.shape):
        if ground.holes[j, i] != relief._HOLE:
            relief._fill_patch(camera._pose, ground.nodes, ground.x, ground.y, j, i, patch)
            relief._draw_patch(camera._pose, patch, camera._rays, 0, 61, 0, 43, plain)
    assert depths.tobytes() == plain.tobytes()
    assert 0.05 < np.isfinite(depths).mean() < 0.95  # there is ground and sky to be compared


@pytest.mark.parametrize(
    "seed", [seed for seed, is_one_cell in enumerate(IS_ONE_CELL) if is_one_cell and seed % 2 == 0]
)
def test_level_ground_is_where_each_ray_alone_meets_the_plane(seed: int) -> None:
    world, (position, rotation) = scene(seed)[0], view(seed)
    assert world.is_flat
    camera = camera_in(world, seed)
    depths = camera.depths(position, rotation)
    a, b = camera._rays
    fall = rotation[2][0] * a + rotation[2][1] * b + rotation[2][2]
    with np.errstate(all="ignore"):
        expected = (world.ground(*position[:2]) - position[2]) / fall
    np.testing.assert_allclose(depths, np.where(expected > 0.0, expected, math.inf), rtol=1e-12)
    assert 0.05 < np.isfinite(depths).mean() < 0.95


@pytest.mark.parametrize("seed", range(many(30, 2)))
def test_a_camera_sees_the_triangles_that_a_test_of_every_one_finds(seed: int) -> None:
    world, (position, rotation) = scene(seed, mesh_of(seed))[0], view(seed)
    best = camera_in(scene(seed)[0], seed).depths(position, rotation).copy()
    camera, hit = camera_in(world, seed), np.full(best.shape, bvh.NOTHING)
    found = camera.depths(position, rotation)
    a, b = camera._rays
    rays = np.stack([row[0] * a + row[1] * b + row[2] for row in rotation])
    every_triangle(world, position, rays, best, hit)
    assert found.tobytes() == best.tobytes()


def test_pairs_of_normals_in_a_row_are_those_drawn_one_by_one() -> None:
    for first, pairs in ((0, 1), (7, 33), (2**20, 500)):
        room, out = np.empty(2 * pairs), np.empty(2 * pairs)
        noise.fill_pairs(99, 5, first, room, out)
        drawn = [noise.normals(99, 5, first + k) for k in range(pairs)]
        assert out.tolist() == [each[0] for each in drawn] + [each[1] for each in drawn]
