"""LiDAR: against planes, boxes and two other ray casters; its messages, noise and trigger times."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim.engine.bodies import Body, body_row
from microsim.engine.geometry import matrix_from_rpy
from microsim.engine.motion import FIELDS, observe
from microsim.engine.world import Mesh, Shape, World
from microsim.errors import ScenarioError
from microsim.messages import decode_checked
from microsim.rays import POINT, bvh
from microsim.rays.ground_rays import UPRIGHT, Lattice, lattice, upright, walk
from microsim.rays.lidar_turn import GROUND, Beams, LidarTurn, beam_table
from microsim.scenario import load_scenario
from tests.support import bare, decoded, many, on_topic, scenario, stamp_ns
from tests.unit.rays.ray_reference import ground_distance, triangle_distance

NOBODY = np.zeros((0, 15))


def motion_at(x: float, y: float, z: float, roll: float = 0.0, pitch: float = 0.0, yaw: float = 0.0) -> list[float]:
    state = np.zeros((15, 1))
    state[:4, 0], state[11:13, 0] = (x, y, z, yaw), (roll, pitch)
    out = np.empty((1, FIELDS))
    observe(state, out)
    seen: list[float] = out[0].tolist()
    return seen


def distance_alone(ground: Lattice, origin: Any, ray: Any, reach: float) -> float:
    """Along the unit vector `ray` to the ground, as a fan of one; inf beyond `reach`."""
    flat = math.sqrt(ray[0] * ray[0] + ray[1] * ray[1])
    if flat < UPRIGHT:
        return upright(ground, tuple(origin), ray[2], reach)
    per_flat, out = 1.0 / flat, np.empty(1)
    slopes, ends = np.array([ray[2] * per_flat]), np.array([math.inf])
    walk(ground, tuple(origin), ray[0] * per_flat, ray[1] * per_flat, reach * flat, slopes, ends, out)
    return float(out[0] * per_flat)


def world(elevation: Any, cell: float = 1.0, west: float = 0.0, south: float = 0.0, **more: Any) -> World:
    heights = np.asarray(elevation, np.float64)
    more = {"obstacles": (), **more}
    return World(cell, heights, np.zeros(heights.shape, np.uint8), features=(), west=west, south=south, **more)


def lidar(ground: World, elevations: Any, columns: int = 24, reach: float = 200.0, **changes: Any) -> Any:
    values = {"mount": (0.0, 0.0, 0.0), "axes": matrix_from_rpy(0.0, 0.0, 0.0), "sigma_m": 0.0} | changes
    beams: Beams = beam_table(elevations, columns)
    return LidarTurn(ground, beams=beams, min_m=0.0, max_m=reach, dropout_probability=0.0, **values)


def directions(sensor: LidarTurn, motion: list[float]) -> Any:
    axes = np.array(motion[21:30]).reshape(3, 3) @ np.array(sensor.axes)
    return np.einsum("ij,jkl->ikl", axes, sensor.beams.directions)


ELEVATIONS = tuple(np.radians((-25.0, -10.0, -3.0, -0.5, 2.0, 15.0)))
TILTS = st.tuples(st.floats(-0.3, 0.3), st.floats(-0.3, 0.3), st.floats(-3.0, 3.0))


def test_a_level_plane_is_met_at_height_over_sine() -> None:
    sensor = lidar(world(np.full((400, 400), 1.5)), ELEVATIONS)
    best, hit = sensor.distances(motion_at(200.0, 200.0, 4.0), NOBODY)
    for ring, elevation in enumerate(ELEVATIONS):
        if elevation < -0.02:
            np.testing.assert_allclose(best[:, ring], 2.5 / math.sin(-elevation), rtol=1e-12)
            assert (hit[:, ring] == GROUND).all()
        elif elevation > 0.0:
            assert (hit[:, ring] == bvh.NOTHING).all()


@given(TILTS, st.floats(-0.3, 0.3), st.floats(-0.3, 0.3))
@settings(max_examples=many(15, 2), deadline=None)
def test_an_inclined_plane_is_met_where_the_formula_says(tilt: Any, east: float, north: float) -> None:
    x, y = np.meshgrid(np.arange(400) + 0.5 - 200.0, np.arange(400) + 0.5 - 200.0)
    sensor = lidar(world(east * x + north * y, west=-200.0, south=-200.0), ELEVATIONS, reach=100.0)
    motion = motion_at(1.3, -2.7, 1.3 * east - 2.7 * north + 2.0, *tilt)
    best, hit = sensor.distances(motion, NOBODY)
    dx, dy, dz = directions(sensor, motion)
    expected = 2.0 / (east * dx + north * dy - dz)
    meets = (expected > 0.0) & (expected < 99.0)
    np.testing.assert_allclose(best[meets], expected[meets], rtol=1e-9)
    assert (hit[(expected < 0.0) | (expected > 101.0)] == bvh.NOTHING).all()


def rough(seed: int, holes: int) -> Any:
    random = np.random.default_rng(seed)
    heights = random.normal(0.0, 0.6, (23, 31)) + 2.0 * (random.random((23, 31)) < 0.05)
    for _ in range(holes):
        j, i = random.integers(0, 20), random.integers(0, 28)
        heights[j : j + random.integers(1, 4), i : i + random.integers(1, 4)] = np.nan
    return heights


def place_over(heights: Any, cell: float, west: float, south: float, random: Any) -> tuple[float, float, float]:
    rows, columns = heights.shape
    x, y = west + cell * columns * random.uniform(0.05, 0.95), south + cell * rows * random.uniform(0.05, 0.95)
    return x, y, float(np.nanmax(heights)) + random.uniform(0.05, 2.0)


@pytest.mark.parametrize("seed", range(many(8, 1)))
@pytest.mark.parametrize("is_tilted", [False, True])
def test_rough_ground_with_holes_is_what_another_caster_sees(seed: int, is_tilted: bool) -> None:
    random = np.random.default_rng(100 + seed)
    heights, cell, west, south = rough(seed, holes=seed % 4), 0.7, -3.3, 12.1
    sensor = lidar(world(heights, cell, west, south), ELEVATIONS, columns=16)
    tilt = random.uniform(-0.3, 0.3, 2) if is_tilted else (0.0, 0.0)
    motion = motion_at(*place_over(heights, cell, west, south, random), *tilt, random.uniform(-3, 3))
    best, hit = sensor.distances(motion, NOBODY)
    rays = directions(sensor, motion)
    for column in range(16):
        for ring in range(len(ELEVATIONS)):
            expected = ground_distance(heights, cell, west, south, motion[:3], rays[:, column, ring])
            if expected < 199.0:
                assert best[column, ring] == pytest.approx(expected, abs=1e-9)
                assert hit[column, ring] == GROUND
            else:
                assert hit[column, ring] == bvh.NOTHING


@pytest.mark.parametrize("seed", range(many(4, 1)))
def test_beams_that_share_their_walk_see_what_single_rays_see(seed: int) -> None:
    random = np.random.default_rng(seed)
    ground = lattice(np.cumsum(random.normal(0, 0.3, (150, 170)), axis=1), 0.5, -20.0, -30.0)
    table = beam_table(np.sort(random.uniform(-1.2, 0.5, 20)), 60)
    origin, met = (random.uniform(-40, 80), random.uniform(-40, 50), float(np.nanmax(ground.nodes)) + 1.0), 0
    for column in range(60):
        ux, uy = table.headings[:, column]
        flat = np.empty(20)
        walk(ground, origin, ux, uy, 100.0, table.slopes, np.full(flat.shape, math.inf), flat)
        for k in range(20):
            d = table.directions[:, column, table.rings[k]]
            alone = distance_alone(ground, origin, d, 1e9)
            if alone < 99.0:
                assert flat[k] * table.slants[k] == pytest.approx(alone, rel=1e-9)
                met += 1
    assert met > 100


def test_a_vertical_beam_meets_the_ground_below_and_nothing_above() -> None:
    ground = lattice(np.array([[1.0, 2.0], [3.0, 5.0]]), 1.0, 0.0, 0.0)
    assert distance_alone(ground, (1.0, 1.0, 10.0), (0.0, 0.0, -1.0), 100.0) == 10.0 - 2.75
    assert distance_alone(ground, (1.0, 1.0, 10.0), (0.0, 0.0, 1.0), 100.0) == math.inf
    assert distance_alone(ground, (5.0, 1.0, 10.0), (0.0, 0.0, -1.0), 100.0) == math.inf


def test_a_hole_lets_beams_through_and_its_far_side_stops_them() -> None:
    heights = np.zeros((20, 60))
    heights[:, 20:40] = np.nan
    sensor = lidar(world(heights), [math.radians(-20.0)], columns=4)
    best, hit = sensor.distances(motion_at(15.0, 10.0, 2.0), NOBODY)
    assert hit[0, 0] == GROUND
    assert best[0, 0] * math.cos(math.radians(20.0)) == pytest.approx(40.5 - 15.0)  # from there heights are known
    through = lidar(world(heights[:, :40]), [math.radians(-20.0)], columns=4)
    assert through.distances(motion_at(15.0, 10.0, 2.0), NOBODY)[1][0, 0] == bvh.NOTHING


def box_distance(low: Any, high: Any, origin: Any, direction: Any) -> float:
    with np.errstate(all="ignore"):
        a, b = (low - origin) / direction, (high - origin) / direction
    near, far = np.minimum(a, b).max(), np.maximum(a, b).min()
    return float(near) if near <= far and near > 0.0 else math.inf


@given(TILTS)
@settings(max_examples=many(15, 2), deadline=None)
def test_obstacles_are_met_where_boxes_and_cylinders_are(tilt: Any) -> None:
    box = Shape("rectangle", 1, (8.0, 3.0), size=(2.0, 4.0), height_m=3.0)
    tower = Shape("circle", 1, (-5.0, -6.0), radius=1.5, height_m=9.0)
    sensor = lidar(world(np.zeros((60, 60)), west=-30.0, south=-30.0, obstacles=(box, tower)), ELEVATIONS, 90, 25.0)
    motion = motion_at(0.2, 0.1, 1.7, *tilt)
    best, hit = sensor.distances(motion, NOBODY)
    rays, origin, met = directions(sensor, motion), np.array(motion[:3]), set()
    for column in range(90):
        for ring in range(len(ELEVATIONS)):
            d = rays[:, column, ring]
            found = {0: box_distance(np.array([7.0, 1.0, 0.0]), np.array([9.0, 5.0, 3.0]), origin, d)}
            a, b = d[:2] @ d[:2], 2 * d[:2] @ (origin[:2] - [-5.0, -6.0])
            c = ((origin[:2] - [-5.0, -6.0]) ** 2).sum() - 1.5**2
            root = b * b - 4 * a * c
            t = (-b - math.sqrt(root)) / (2 * a) if root >= 0 else -1.0
            found[1] = t if t > 0 and 0.0 <= origin[2] + t * d[2] <= 9.0 else math.inf
            found[GROUND] = -origin[2] / d[2] if d[2] < 0 else math.inf
            what = min(found, key=lambda key: found[key])
            if found[what] < 24.9:
                assert best[column, ring] == pytest.approx(found[what], rel=1e-9)
                assert hit[column, ring] == what
                met.add(what)
    assert met == {0, 1, GROUND}


def soup(count: int, seed: int) -> Mesh:
    random = np.random.default_rng(seed)
    middles = random.uniform((-20, -20, -4), (20, 20, 8), (count, 3))
    corners = middles[:, None, :] + random.normal(0.0, 1.0, (count, 3, 3))
    return Mesh(corners.reshape(-1, 3), np.arange(3 * count, dtype=np.int32).reshape(-1, 3))


@pytest.mark.parametrize("seed", range(3))
def test_a_mesh_is_what_another_caster_sees(seed: int) -> None:
    mesh = soup(many(300, 20), seed)
    sensor = lidar(world(np.full((2, 2), np.nan), mesh=mesh), ELEVATIONS, 24, 60.0)
    motion = motion_at(0.1, 0.2, 0.3, 0.05, -0.1, 0.4)
    best, hit = sensor.distances(motion, NOBODY)
    rays, corners = directions(sensor, motion), mesh.vertices[mesh.triangles]
    for column in range(24):
        for ring in range(len(ELEVATIONS)):
            expected = triangle_distance(corners, np.array(motion[:3]), rays[:, column, ring])
            if expected < 60.0:
                assert best[column, ring] == pytest.approx(expected, rel=1e-9)
                alone = triangle_distance(corners[hit[column, ring]][None], np.array(motion[:3]), rays[:, column, ring])
                assert alone == pytest.approx(expected, rel=1e-9)
            else:
                assert hit[column, ring] == bvh.NOTHING


def test_a_mesh_is_what_embree_sees() -> None:
    scene_module = pytest.importorskip("embreex.rtcore_scene", reason="embreex is an extra of the tests")
    from embreex.mesh_construction import TriangleMesh

    mesh = soup(5000, 7)
    scene = scene_module.EmbreeScene()
    TriangleMesh(scene, mesh.vertices[mesh.triangles].astype(np.float32))
    sensor = lidar(world(np.full((2, 2), np.nan), mesh=mesh), np.radians(np.linspace(-40, 40, 32)), 200, 100.0)
    motion = motion_at(0.0, 0.0, 1.0)
    best, hit = sensor.distances(motion, NOBODY)
    rays = directions(sensor, motion).reshape(3, -1).T.astype(np.float32)
    theirs = scene.run(np.tile(np.float32([0, 0, 1]), (len(rays), 1)), rays, query="DISTANCE").reshape(best.shape)
    both = (hit != bvh.NOTHING) & (theirs < 100.0)
    assert both.mean() > 0.3
    assert ((hit != bvh.NOTHING) != (theirs < 100.0)).sum() <= 3  # rays through an edge, in float32
    assert (np.abs(theirs - best)[both] > 1e-3).sum() <= 3


def test_of_two_triangles_at_one_distance_the_first_is_hit_whatever_the_tree() -> None:
    square = np.array([[5.0, -1.0, -1.0], [5.0, 1.0, -1.0], [5.0, 0.0, 2.0]])
    for copies in (2, 40):
        mesh = Mesh(np.tile(square, (copies, 1)), np.arange(3 * copies, dtype=np.int32).reshape(-1, 3))
        sensor = lidar(world(np.full((2, 2), np.nan), mesh=mesh), [0.0], 4, 60.0)
        assert sensor.distances(motion_at(0.0, 0.0, 0.0), NOBODY)[1][0, 0] == 0


def test_an_uneven_mesh_makes_no_tree_too_deep() -> None:
    steps = 2.0 ** np.arange(0, 300, dtype=np.float64)[:, None, None]
    corners = (np.array([[[1.0, 0.0, 0.0], [1.0, 0.1, 0.0], [1.0, 0.0, 0.1]]]) * steps)[:, :, :]
    tree = bvh.make_tree(corners.reshape(-1, 3), np.arange(900).reshape(-1, 3), np.zeros((0, 9)))
    depth = np.zeros(len(tree.first), int)
    for node in range(len(tree.first)):
        if tree.held[node] == 0:
            depth[tree.first[node] : tree.first[node] + 2] = depth[node] + 1
    assert depth.max() < 128
    assert sorted(tree.order.tolist()) == list(range(300))


def test_other_robots_are_seen_as_their_bodies_and_the_carrier_is_not() -> None:
    other = motion_at(10.0, 0.0, 0.0, 0.1, 0.2, 0.7)
    rows = np.array([body_row(other, Body((0.5, 0.0, 0.75), (4.0, 2.0, 1.5)))])
    sensor = lidar(world(np.full((2, 2), np.nan)), np.radians(np.linspace(-8, 8, 9)), 360, 60.0)
    best, hit = sensor.distances(motion_at(0.0, 0.0, 0.75), rows)
    rays, axes = directions(sensor, motion_at(0.0, 0.0, 0.75)), np.array(other[21:30]).reshape(3, 3)
    seen = 0
    for column in range(360):
        for ring in range(9):
            local = axes.T @ (np.array([0.0, 0.0, 0.75]) - other[:3]) - [0.5, 0.0, 0.75]
            expected = box_distance(
                -np.array([2.0, 1.0, 0.75]), np.array([2.0, 1.0, 0.75]), local, axes.T @ rays[:, column, ring]
            )
            assert (hit[column, ring] == GROUND - 1) == (expected < 60.0)
            if expected < 60.0:
                assert best[column, ring] == pytest.approx(expected, rel=1e-9)
                seen += 1
    assert seen > 20


# ---- in a run -------------------------------------------------------------------------------------------------------


def run_scenario(**sensor: Any) -> dict[str, Any]:
    start = {"map_pose": {"x": 30.0, "y": 30.0, "yaw": 0.3}}
    sensor = {"columns": 90, "sigma_m": 0.0, **sensor}
    return scenario(
        physics_hz=100,
        map={"size_xy_cells": [60, 60]},
        robots={"ego": bare(start=start, joint_states=None, lidar=sensor)},
    )


def points_of(message: Any) -> Any:
    """By the message's own description of its fields, as a consumer reads it."""
    kinds = {7: "<f4", 4: "<u2"}
    kind = np.dtype(
        {
            "names": [each.name for each in message.fields],
            "formats": [kinds[each.datatype] for each in message.fields],
            "offsets": [each.offset for each in message.fields],
            "itemsize": message.point_step,
        }
    )
    return np.frombuffer(message.data.tobytes(), kind)


def test_a_cloud_says_what_its_bytes_mean() -> None:
    sim = microsim.Simulation(run_scenario(sigma_m=0.02))
    (sent,) = on_topic(sim.step(0), "/ego/lidar/points")
    cloud = decode_checked(sent.type, sent.cdr)
    points = points_of(cloud)
    assert [each.name for each in cloud.fields] == ["x", "y", "z", "intensity", "ring", "time"]
    assert (cloud.height, cloud.width, cloud.row_step) == (1, len(points), len(points) * cloud.point_step)
    assert cloud.point_step == POINT.itemsize
    assert cloud.is_dense
    assert not cloud.is_bigendian
    assert cloud.header.frame_id == "lidar_link"
    below = points[points["ring"] < 8]
    np.testing.assert_allclose(below["z"], -1.9, atol=0.05)  # the ground, as far below as the sensor is mounted
    assert set(points["ring"]) <= set(range(16))
    assert (points["time"] == 0.0).all()
    assert (points["intensity"] >= 0.0).all()
    assert (points["intensity"] <= 255.0).all()
    heights = np.sqrt(points["x"] ** 2 + points["y"] ** 2)
    assert np.arctan2(points["z"], heights).min() == pytest.approx(-0.2618, abs=1e-3)


def test_points_with_their_transforms_lie_on_the_ground_of_the_map() -> None:
    """x, y, z through /tf_static and /tf, as tf2 would, on the relief the world has."""
    setting = run_scenario(columns=60)
    setting["map"]["elevation"] = {"generate": "hills", "seed": 5, "amplitude_m": 2.0, "wavelength_m": 20.0}
    setting["robots"]["ego"]["lidar"]["mount"] = {"xyz": [1.0, 0.2, 1.8], "rpy": [0.05, 0.1, 0.3]}
    sim = microsim.Simulation(setting)
    sim.command("ego", speed=5.0, steering=0.2)
    sent = sim.step(80)
    (static,) = decoded(sent, "/tf_static")
    at_end = [each for each in sent if each.stamp_ns == 800_000_000]
    (tf,), (cloud,) = decoded(at_end, "/tf")[-1:] or decoded(sent, "/tf")[-1:], decoded(at_end, "/ego/lidar/points")

    def apply(transform: Any, points: Any) -> Any:
        move, turn = transform.translation, transform.rotation
        v = np.array([turn.x, turn.y, turn.z])
        return points + 2 * np.cross(v, np.cross(v, points) + turn.w * points) + [move.x, move.y, move.z]

    points = points_of(cloud)
    xyz = np.stack([points["x"], points["y"], points["z"]], axis=1).astype(np.float64)
    (mount,) = [each for each in static.transforms if each.child_frame_id == "lidar_link"]
    for transform in (mount, tf.transforms[1], tf.transforms[0]):
        xyz = apply(transform.transform, xyz)
    errors = [z - sim.world.ground(x, y) for x, y, z in xyz]
    assert len(errors) > 300
    assert np.abs(errors).max() < 1e-3
    assert abs(sim.state("ego").roll) > 0.003


def test_noise_has_its_sigma_and_dropouts_their_share() -> None:
    plain = points_of(decoded(microsim.Simulation(run_scenario()).step(0), "/ego/lidar/points")[0])
    noisy = points_of(decoded(microsim.Simulation(run_scenario(sigma_m=0.05)).step(0), "/ego/lidar/points")[0])
    lengths = [np.sqrt(p["x"].astype(float) ** 2 + p["y"] ** 2 + p["z"] ** 2) for p in (plain, noisy)]
    assert len(plain) == len(noisy)
    assert np.std(lengths[1] - lengths[0]) == pytest.approx(0.05, rel=0.15)
    lossy = points_of(
        decoded(microsim.Simulation(run_scenario(dropout_probability=0.3)).step(0), "/ego/lidar/points")[0]
    )
    assert len(lossy) / len(plain) == pytest.approx(0.7, abs=0.06)


def test_another_sensor_does_not_change_a_lidar_s_noise() -> None:
    setting = run_scenario(sigma_m=0.05)
    first = on_topic(microsim.Simulation(setting).step(0), "/ego/lidar/points")[0].cdr
    setting["robots"]["ego"]["sensors"] = {"lidar_rear": {"type": "lidar", "columns": 10, "sigma_m": 0.1}}
    second = microsim.Simulation(setting).step(0)
    assert on_topic(second, "/ego/lidar/points")[0].cdr == first
    assert decoded(second, "/ego/lidar_rear/points")[0].header.frame_id == "lidar_rear"


@pytest.mark.parametrize(("robot", "height"), [("drone", {"z": 2.0}), ("rover", {})])
def test_every_robot_can_carry_one(robot: str, height: dict[str, float]) -> None:
    setting = scenario(
        robots={robot: bare(lidar={"columns": 40}, start={"map_pose": {"x": 10.0, "y": 10.0, **height}})}
    )
    cloud = decoded(microsim.Simulation(setting).step(0), f"/{robot}/lidar/points")[0]
    assert cloud.width > 50
    assert cloud.header.frame_id == f"{robot}/lidar_link"


def test_triggers_and_stamps_are_those_of_the_conventions_document() -> None:
    """100 Hz: a camera of 12 Hz at 0, 80, 170, 250 ms, a LiDAR of 20 Hz every 50 ms; one stamp where both fire."""
    setting = run_scenario(hz=20, columns=8)
    latency = {"mean": 0.0, "jitter": 0.0, "drop_probability": 0.0}
    setting["robots"]["ego"]["camera"] = {"hz": 12, "resolution": {"width": 8, "height": 8}, "latency_ms": latency}
    sent = microsim.Simulation(setting).step(100)
    camera = [stamp_ns(each.header) for each in decoded(sent, "/ego/camera/image_raw")]
    cloud = [stamp_ns(each.header) for each in decoded(sent, "/ego/lidar/points")]
    assert [stamp // 1_000_000 for stamp in camera[:5]] == [0, 80, 170, 250, 330]
    assert [stamp // 1_000_000 for stamp in cloud[:4]] == [0, 50, 100, 150]
    ideal = [round(1e9 * i / 12) for i in range(len(camera))]
    assert max(abs(a - b) for a, b in zip(camera, ideal, strict=True)) <= 5_000_000
    assert {0, 250_000_000, 500_000_000} <= set(camera) & set(cloud)


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({"min_m": 5, "max_m": 2}, "expected min_m below max_m"),
        ({"lowest": 0.3, "highest": 0.1}, "expected lowest below highest"),
        ({"elevations": []}, "elevations"),
        ({"elevations": [1.6]}, "elevations"),
        ({"columns": 65536, "rings": 100}, "beams a turn"),
        ({"colums": 3}, "did you mean 'columns'"),
    ],
)
def test_a_lidar_that_cannot_be_is_refused_with_the_reason(block: Any, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        load_scenario({"robots": {"rover": {"lidar": block}}})
