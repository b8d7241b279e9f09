"""Instances, boxes and normals of cameras, against rays cast by NumPy at the true shapes, one by one."""

import hashlib
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.batch import BatchSimulation
from microsim.bundle.bundle_writing import mesh_ply, splat_ply
from microsim.documents.yaml_text import to_yaml
from microsim.engine.world import FIRST_OBJECT, FIRST_OBSTACLE
from microsim.errors import ScenarioError, UsageError
from microsim.render.segmentation import CLEAR_IN_VOLUME_M
from microsim.render.surface_normals import normals_of_depths
from tests.bundle_support import CUBE_TRIANGLES, CUBE_VERTICES, change, small_bundle
from tests.support import bare, decoded, scenario

WIDTH, HEIGHT, FOCAL, CX, CY = 48, 36, 30.0, 23.5, 17.5
EYE = np.array([2.0, 10.0, 1.5])
CAMERA: dict[str, Any] = {
    "hz": 10,
    "resolution": {"width": WIDTH, "height": HEIGHT},
    "intrinsics": {"fx": FOCAL, "fy": FOCAL, "cx": CX, "cy": CY},
    "noise": {"blur_sigma_px": 0},
    "latency_ms": {"mean": 0, "jitter": 0, "drop_probability": 0},
    "mount": {"xyz": [0, 0, 1.5], "rpy": [-math.pi / 2, 0, -math.pi / 2]},
    "sees_robots": True,
    "render": {"instances": True, "boxes": True},
}
CRATE = {"type": "box", "name": "crate", "center": [8.0, 11.0, 0.0], "size": [1.0, 2.0, 1.2]}
POST = {"type": "cylinder", "center": [6.0, 9.3, 0.0], "radius": 0.4, "height": 2.5, "class": 2}
SIGN = {"type": "box", "center": [11.0, 9.0, 1.0], "size": [0.2, 3.0, 1.0]}
LENSES: dict[str, Any] = {
    "pinhole": {},
    "barrel": {"distortion": {"model": "plumb_bob", "D": [-0.2, 0.03, 0.001, -0.002, 0.0]}},
    "fisheye": {"projection": "fisheye", "distortion": {"model": "equidistant", "D": [-0.02, 0.005, 0.0, 0.0]}},
}  # fmt: skip


def watched(camera: Any = None, **changes: Any) -> dict[str, Any]:
    """A rover that looks along x, another one and a drone before it."""
    start = {"map_pose": {"x": EYE[0], "y": EYE[1], "yaw": 0.0}}
    robots = {
        "first": {"model": "rover", **bare(), "start": {"map_pose": {"x": 7.0, "y": 7.6, "yaw": 0.5}}},
        "ego": {"model": "rover", **bare(camera={**CAMERA, **(camera or {})}), "start": start},
        "drone": {"model": "drone", **bare(), "start": {"map_pose": {"x": 6.0, "y": 10.6, "z": 1.6, "yaw": -0.3}}},
    }
    return scenario(robots=robots, obstacles=[CRATE, POST, SIGN], **changes)


def mask(sent: Any, camera: str = "camera", index: int = 0) -> Any:
    image = decoded(sent, f"/ego/{camera}/instances")[index]
    assert (image.encoding, image.is_bigendian, image.step) == ("mono16", 0, 2 * image.width)
    return np.frombuffer(bytes(image.data), "<u2").reshape(image.height, image.width)


def boxes(sent: Any, camera: str = "camera") -> dict[str, tuple[float, ...]]:
    """By name: class, first and last column, first and last row."""
    found = {}
    for each in decoded(sent, f"/ego/{camera}/boxes")[0].detections:
        middle, half_x, half_y = each.bbox.center.position, 0.5 * each.bbox.size_x, 0.5 * each.bbox.size_y
        assert (each.bbox.center.theta, len(each.results), each.results[0].hypothesis.score) == (0.0, 1, 1.0)
        sides = (middle.x - half_x + 0.5, middle.x + half_x - 0.5, middle.y - half_y + 0.5, middle.y + half_y - 0.5)
        found[each.id] = (each.results[0].hypothesis.class_id, *sides)
    return found


def listed(sent: Any) -> Any:
    return json.loads(decoded(sent, "/sim/info")[0].data).get("instances")


# ---- the reference ---------------------------------------------------------------------------------------------------


def bent(a: Any, b: Any, lens: str) -> tuple[Any, Any]:
    """Where the ray (a, b, 1) is seen, in focal lengths from the centre: the published formulas."""
    if lens == "pinhole":
        return a, b
    k = LENSES[lens]["distortion"]["D"]
    radius = np.hypot(a, b)
    if lens == "fisheye":
        angle = np.arctan(radius)
        seen = angle * (1 + k[0] * angle**2 + k[1] * angle**4 + k[2] * angle**6 + k[3] * angle**8)
        scale = np.where(radius > 0, seen / np.where(radius > 0, radius, 1.0), 1.0)
        return a * scale, b * scale
    radial = 1 + k[0] * radius**2 + k[1] * radius**4 + k[4] * radius**6
    across = a * radial + 2 * k[2] * a * b + k[3] * (radius**2 + 2 * a**2)
    return across, b * radial + k[2] * (radius**2 + 2 * b**2) + 2 * k[3] * a * b


def true_rays(lens: str) -> Any:
    """(h, w, 3) in the map frame: forward, left, up. Solved for by steps that shrink, from the formulas alone."""
    v, u = np.mgrid[0:HEIGHT, 0:WIDTH]
    want_a, want_b = (u - CX) / FOCAL, (v - CY) / FOCAL
    a, b = want_a.copy(), want_b.copy()
    for _ in range(4000):
        seen_a, seen_b = bent(a, b, lens)
        a, b = a + 0.5 * (want_a - seen_a), b + 0.5 * (want_b - seen_b)
    return np.stack([np.ones(a.shape), -a, -b], axis=-1)


def into_box(rays: Any, eye: Any, middle: Any, axes: Any, half: Any) -> Any:
    place, along = (eye - np.asarray(middle)) @ np.asarray(axes), rays @ np.asarray(axes)
    with np.errstate(divide="ignore"):
        near, far = (-np.asarray(half) - place) / along, (np.asarray(half) - place) / along
    enter, leave = np.minimum(near, far).max(axis=-1), np.maximum(near, far).min(axis=-1)
    return np.where((enter <= leave) & (enter > 0.0), enter, np.inf)


def into_round(rays: Any, eye: Any, middle: Any, axes: Any, half: Any, is_ball: bool = False) -> Any:
    """A ball, or a cylinder along its third axis."""
    place, along = (eye - np.asarray(middle)) @ np.asarray(axes), rays @ np.asarray(axes)
    n = 3 if is_ball else 2
    square, mixed = (along[..., :n] ** 2).sum(-1), (along[..., :n] * place[:n]).sum(-1)
    inner = mixed**2 - square * ((place[:n] ** 2).sum() - half[0] ** 2)
    with np.errstate(all="ignore"):
        root = np.sqrt(inner)
        enter, leave = (-mixed - root) / square, (-mixed + root) / square
        if not is_ball:
            ends = np.sort(np.stack([(-half[2] - place[2]) / along[..., 2], (half[2] - place[2]) / along[..., 2]]), 0)
            enter, leave = np.maximum(enter, ends[0]), np.minimum(leave, ends[1])
        return np.where((inner >= 0) & (enter <= leave) & (enter > 0.0), enter, np.inf)


def nearest(rays: Any, eye: Any, shapes: dict[int, list[Any]]) -> tuple[Any, Any]:
    """Number of what each ray meets first above the level ground, and its depth."""
    with np.errstate(divide="ignore"):
        depth = np.where(rays[..., 2] < 0.0, -eye[2] / rays[..., 2], np.inf)
    number = np.zeros(depth.shape, int)
    for key, hits in shapes.items():
        for hit in hits:
            number, depth = np.where(hit < depth, key, number), np.minimum(hit, depth)
    return number, depth


def turned_by(yaw: float) -> Any:
    return [[math.cos(yaw), -math.sin(yaw), 0], [math.sin(yaw), math.cos(yaw), 0], [0, 0, 1]]


def expected_mask(sim: Any, lens: str) -> tuple[Any, Any]:
    rays, shapes = true_rays(lens), {}
    for number, name in ((1, "first"), (3, "drone")):
        settings = sim.scenario.robots[name]
        (center, size), pose = settings.body(), settings.start.map_pose
        axes = np.array(turned_by(pose.yaw))
        middle = np.array([pose.x, pose.y, pose.z or 0.0]) + axes @ center
        shapes[number] = [into_box(rays, EYE, middle, axes, 0.5 * np.array(size))]
    for index, each in enumerate((CRATE, POST, SIGN)):
        x, y, base = each["center"]
        if each["type"] == "box":
            half = 0.5 * np.array(each["size"])
            hit = into_box(rays, EYE, (x, y, base + half[2]), np.eye(3), half)
        else:
            half = (each["radius"], each["radius"], 0.5 * each["height"])
            hit = into_round(rays, EYE, (x, y, base + half[2]), np.eye(3), half)
        shapes[FIRST_OBSTACLE + index] = [hit]
    return nearest(rays, EYE, shapes)


def boxes_of(numbers: Any, names: dict[int, tuple[str, str]]) -> dict[str, tuple[Any, ...]]:
    found = {}
    for number, (name, kind) in names.items():
        rows, columns = np.nonzero(numbers == number)
        if rows.size:
            found[name] = (kind, columns.min(), columns.max(), rows.min(), rows.max())
    return found


NAMES = {
    1: ("first", "rover"), 2: ("ego", "rover"), 3: ("drone", "drone"), 20001: ("crate", "obstacle"),
    20002: ("obstacle_1", "hazard"), 20003: ("obstacle_2", "obstacle"),
}  # fmt: skip


@pytest.mark.parametrize("lens", LENSES)
def test_plain_cameras_show_who_numpy_finds_behind_every_pixel(lens: str) -> None:
    sim = microsim.Simulation(watched(LENSES[lens]))
    sent = sim.step(0)
    expected, _ = expected_mask(sim, lens)
    assert {*np.unique(expected)} >= {0, 1, 3, 20001, 20002, 20003}  # each is seen, some behind others
    np.testing.assert_array_equal(mask(sent), expected)
    assert boxes(sent) == boxes_of(expected, NAMES)
    assert [*boxes(sent)] == ["first", "drone", "crate", "obstacle_1", "obstacle_2"]  # by number
    assert listed(sent) == [{"id": key, "name": name, "class": kind} for key, (name, kind) in NAMES.items()]


def test_depth_of_a_plain_camera_is_that_of_the_rays_and_its_classes_are_named() -> None:
    sim = microsim.Simulation(watched({"render": {"depth": True, "segmentation": True}}))
    sent = sim.step(0)
    _, depth = expected_mask(sim, "pinhole")
    found = np.frombuffer(bytes(decoded(sent, "/ego/camera/depth")[0].data), np.float32).reshape(HEIGHT, WIDTH)
    np.testing.assert_allclose(found, depth, rtol=1e-6)
    assert len(decoded(sent, "/ego/camera/segmentation")) == 1
    assert listed(sent) is None


ALL_KINDS = ("depth", "segmentation", "instances")


@pytest.mark.parametrize(
    "wanted", [(), *itertools.combinations(ALL_KINDS, 1), *itertools.combinations(ALL_KINDS, 2), ALL_KINDS]
)
def test_a_batch_gives_the_images_of_the_single_world_by_name(wanted: tuple[str, ...]) -> None:
    written = watched({"render": dict.fromkeys(wanted, True)}, world_topics={"occupancy_hz": 0, "markers_hz": 0})
    batch = BatchSimulation(written, 2, seeds=[3, 4], threads=1)
    batch.step(1)
    images = batch.images("ego/camera")
    assert list(images) == ["image", *wanted]
    assert all(np.shares_memory(each, batch.readings["ego/camera"]) for each in images.values())
    for world, seed in enumerate((3, 4)):
        sent = microsim.Simulation(written, seed).step(1)
        for kind, topic in (("image", "image_raw"), *((kind, kind) for kind in wanted)):
            message, found = decoded(sent, f"/ego/camera/{topic}")[-1], images[kind][world]
            assert found.tobytes() == bytes(message.data)
            assert found.dtype == {"depth": np.float32, "instances": np.uint16}.get(kind, np.uint8)
            assert found.shape[:2] == (HEIGHT, WIDTH)


def test_images_are_those_of_a_camera() -> None:
    with pytest.raises(UsageError, match="ego/gps is not a camera"):
        BatchSimulation({"robots": {"ego": {"model": "rover"}}}, 1).images("ego/gps")


def test_a_crate_straight_ahead_has_the_box_that_its_corners_give() -> None:
    """Its face is 5 m away, 2 m wide and 0.9 m high; the eye is 1.5 m high."""
    crate = {"type": "box", "center": [EYE[0] + 5.5, EYE[1], 0.0], "size": [1.0, 2.0, 0.9]}
    source = scenario(robots={"ego": watched()["robots"]["ego"]}, obstacles=[crate])
    sent = microsim.Simulation(source).step(0)
    left, right = CX - FOCAL * 1.0 / 5.0, CX + FOCAL * 1.0 / 5.0
    top, bottom = CY + FOCAL * 0.6 / 6.0, CY + FOCAL * 1.5 / 5.0  # the far edge of its top, the foot of its face
    sides = (math.ceil(left), math.floor(right), math.ceil(top), math.floor(bottom))
    assert boxes(sent) == {"obstacle_0": ("obstacle", *sides)}
    assert (mask(sent)[round(CY + 5), round(CX)]) == FIRST_OBSTACLE


def test_what_is_hidden_has_no_box_and_what_is_half_hidden_the_box_of_its_visible_half() -> None:
    near = {"type": "box", "name": "near", "center": [6.0, 9.0, 0.0], "size": [0.5, 2.0, 3.0]}  # y from 8 to 10
    half = {"type": "box", "name": "half", "center": [9.0, 10.0, 0.0], "size": [0.5, 2.0, 2.0]}
    whole = {"type": "box", "name": "whole", "center": [9.0, 8.8, 0.0], "size": [0.5, 0.4, 1.0]}
    source = scenario(robots={"ego": watched()["robots"]["ego"]}, obstacles=[whole, half, near])
    found = boxes(microsim.Simulation(source).step(0))
    assert [*found] == ["half", "near"]
    assert found["half"][2] == math.floor(CX)  # y = 10 is straight ahead, and all right of it is behind `near`
    assert found["half"][1] == math.ceil(CX - FOCAL * 1.0 / 6.75)


def test_robots_that_a_plain_camera_does_not_show_are_in_no_mask() -> None:
    sent = microsim.Simulation(watched({"sees_robots": False})).step(0)
    assert {*np.unique(mask(sent))} == {0, 20001, 20002, 20003}


def test_strips_of_a_rolling_shutter_make_the_same_mask_while_the_robot_stands() -> None:
    whole = microsim.Simulation(watched(LENSES["fisheye"])).step(0)
    strips = microsim.Simulation(watched({**LENSES["fisheye"], "readout_s": 0.05})).step(0)
    np.testing.assert_array_equal(mask(strips), mask(whole))


def test_numbers_stay_when_others_come_and_the_list_is_sent_again() -> None:
    sim = microsim.Simulation(watched())
    before = mask(sim.step(0))
    sim.spawn("guest", {"model": "rover", **bare(), "start": {"map_pose": {"x": 9.0, "y": 13.0}}})
    sim.spawn("bin", {"type": "box", "center": [4.0, 4.0, 0.0], "size": [0.5, 0.5, 0.5]})
    sent = sim.step(6)
    again = json.loads(decoded(sent, "/sim/info")[-1].data)["instances"]
    assert [each["id"] for each in again] == [1, 2, 3, 4, 20001, 20002, 20003, 20004]
    assert [each["name"] for each in again][3::4] == ["guest", "bin"]
    now = mask(sent)
    assert 4 in now
    assert (now == before)[(before > 0) & (now != 4)].all()


def test_a_batch_has_the_masks_of_its_single_worlds_with_obstacles_of_their_own() -> None:
    chance = {"obstacles": {"shift_m": 1.0, "keep_probability": 0.7}}
    source = watched(randomize=chance)
    batch = BatchSimulation(source, seeds=[1, 2, 5])
    batch.step(7)
    readings, seen = batch.readings["ego/camera"], []
    for world, seed in enumerate((1, 2, 5)):
        sent = microsim.Simulation(source, seed).step(7)
        expected = mask(sent, index=-1)
        found = np.ascontiguousarray(readings[world][..., 3:5]).view("<u2")[..., 0]
        np.testing.assert_array_equal(found, expected)
        seen.append({*np.unique(expected).tolist()})
    assert len({frozenset(each) for each in seen}) > 1


GOLDEN = "70a7b038ed56b47be51bbdc1861507fdf6d7d350bc2c8c7f5f591d675aea0c12"


def images_digest() -> str:
    """Of all that a moving camera sends."""
    render = dict.fromkeys(("depth", "segmentation", "instances", "boxes", "normals"), True)
    small = {"resolution": {"width": 24, "height": 16}, "intrinsics": {"fx": 12, "fy": 12}, "render": render}
    sim = microsim.Simulation(watched({**LENSES["fisheye"], **small}))
    sim.command("ego", v=1.0, omega=0.4)
    sent = [message.cdr for message in sim.step(13) if message.topic.startswith("/ego/camera")]
    assert len(sent) == 3 * 7
    return hashlib.sha256(b"".join(sent)).hexdigest()


@pytest.mark.parametrize("disabled", ["0", "1"])
def test_the_bytes_are_the_golden_ones_with_the_compiler_and_without(disabled: str) -> None:
    command = [sys.executable, "-c", f"import {__name__} as tests; print(tests.images_digest())"]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": disabled}
    root = Path(__file__).parents[3]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment, check=False)
    assert ran.stdout.strip() == GOLDEN, ran.stderr


# ---- splat cameras ---------------------------------------------------------------------------------------------------

CUBE, BLOB = (-8.0, 1.03, 0.04), (-6.0, -1.5, 1.0)
OBJECTS = [
    {"name": "cube", "center": [-7.5, 1.53, 0.54], "size": [1.0, 1.0, 1.0], "yaw": 0.0},
    {"name": "bush", "center": [-6.0, -1.5, 1.0], "size": [3.0, 3.0, 2.0], "yaw": 0.4},
    {"name": "ego", "center": [0.0, 20.0, 1.0], "size": [1.0, 1.0, 1.0], "yaw": 0.0},  # seen nowhere
]
OTHER = (-3.0, 0.4)


def object_world(folder: Path) -> str:
    """A plane, a cube of a mesh, a ball of splats, and names for them."""
    bundle = small_bundle(folder)
    (bundle / "geometry/heightmap.bin").write_bytes(np.zeros((128, 128), np.float32).tobytes())
    (bundle / "geometry/static_mesh.ply").write_bytes(mesh_ply(CUBE_VERTICES + CUBE, CUBE_TRIANGLES))
    blob = [*BLOB, -1.2, -1.2, -1.2, 0.0, 0.0, 0.0, 1.0, 6.0, 1.0, 0.0, 0.0]
    (bundle / "gaussians/background.splat.ply").write_bytes(splat_ply(np.array([blob], np.float32), 0))
    (bundle / "geometry/objects.yaml").write_text(to_yaml({"version": "1.0.0", "objects": OBJECTS}))
    change(bundle / "world.yaml", lambda data: data["geometry"].update(objects="geometry/objects.yaml"))
    return str(bundle)


def among_objects(world: str, camera: Any = None) -> dict[str, Any]:
    lens = {"resolution": CAMERA["resolution"], "intrinsics": CAMERA["intrinsics"], **(camera or {})}
    render = dict.fromkeys(("depth", "segmentation", "instances", "boxes", "mesh"), True)  # `splat`, as the bundle says
    sensors = {"camera_front": {**lens, "render": render}, "lidar_top": None}
    other = {"model": "bicycle", "start": {"map_pose": {"x": OTHER[0], "y": OTHER[1], "yaw": 0.7}}}
    return {"world": world, "robots": {"ego": {"sensors": sensors}, "other": other}}


@pytest.mark.parametrize("lens", ["pinhole", "fisheye"])
def test_splat_cameras_show_models_and_the_objects_of_the_bundle(tmp_path: Path, lens: str) -> None:
    """The car's camera is at (-13.5, 0), 1.2 m high, and looks along x; the other car is a model of many parts."""
    sim = microsim.Simulation(among_objects(object_world(tmp_path / "objects"), LENSES[lens]))
    sent = sim.step(0)
    eye, rays, axes = np.array([-13.5, 0.0, 1.2]), true_rays(lens), np.array(turned_by(0.7))
    parts = []
    for kind, half, center, own, _ in sim.scenario.robots["other"].parts():
        middle, turn = np.array([*OTHER, 0.0]) + axes @ center, axes @ np.array(own)
        round_one = into_round(rays, eye, middle, turn, half, is_ball=kind == 2)
        parts.append(round_one if kind else into_box(rays, eye, middle, turn, half))
    cube = into_box(rays, eye, np.array(CUBE) + 0.5, np.eye(3), (0.5, 0.5, 0.5))
    expected, behind = nearest(rays, eye, {2: parts, FIRST_OBJECT: [cube]})
    depth = np.frombuffer(bytes(decoded(sent, "/ego/camera_front/depth")[0].data), np.float32).reshape(HEIGHT, WIDTH)
    point = eye + np.where(np.isfinite(depth), depth, 0.0)[..., None] * rays
    local = (point - OBJECTS[1]["center"]) @ np.array(turned_by(0.4))
    inside = (np.abs(local) <= [1.51, 1.51, 1.01]).all(-1) & (point[..., 2] > CLEAR_IN_VOLUME_M)
    before = np.isfinite(depth) & (depth < behind - CLEAR_IN_VOLUME_M) & inside
    expected = np.where(before, FIRST_OBJECT + 1, expected)
    found = mask(sent, "camera_front")
    assert {*np.unique(expected)} == {0, 2, 10001, 10002}
    unsure = np.isfinite(depth) & (depth < behind - 0.01) & ~before  # a veil of splats, or the edge of the rule
    assert unsure.sum() < 60
    np.testing.assert_array_equal(found[~unsure], expected[~unsure])
    names = {2: ("other", "car"), 10001: ("cube", "object"), 10002: ("bush", "object")}
    assert boxes(sent, "camera_front") == boxes_of(found, names)
    assert [each["id"] for each in listed(sent)] == [1, 2, 10001, 10002, 10003]
    image = decoded(sent, "/ego/camera_front/segmentation")[0]
    robot = (np.frombuffer(bytes(image.data), np.uint8).reshape(HEIGHT, WIDTH, 3) == (0, 0, 0x8E)).all(-1)
    np.testing.assert_array_equal(robot, found == 2)  # masks and classes agree


def test_an_actor_of_splats_is_who_is_seen_where_its_splats_are(tmp_path: Path) -> None:
    """It hides half of the other car and has no model: its mask is that of its own splats, not of its body."""
    source = among_objects(object_world(tmp_path / "objects"))
    ball = [0.0, 0.0, 0.9, -1.0, -1.0, -1.0, 0.0, 0.0, 0.0, 1.0, 6.0, 1.0, 0.0, 0.0]
    (tmp_path / "ball.ply").write_bytes(splat_ply(np.array([ball], np.float32), 0))
    actor = {"model": "actor", "shape": "box", "size": [2, 2, 2], "splats": str(tmp_path / "ball.ply")}
    source["robots"]["ball"] = {**actor, "start": {"map_pose": {"x": -7.0, "y": 0.0, "yaw": 0.3}}}
    found = mask(microsim.Simulation(source).step(0), "camera_front")
    rows, columns = np.nonzero(found == 3)
    middle = CX, CY + FOCAL * (1.2 - 0.9) / 6.5
    assert (columns.mean(), rows.mean()) == pytest.approx(middle, abs=0.5)
    radius = math.sqrt(rows.size / math.pi) * 6.5 / FOCAL  # [m]: where the ball is less than half opaque, it ends
    assert 1.0 < radius / math.exp(-1.0) < 2.5
    assert (found == 2).any()


# ---- normals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lens", LENSES)
def test_normals_of_level_ground_point_up_and_those_of_a_wall_back(lens: str) -> None:
    wall = {"type": "box", "center": [7.5, 10.0, 0.0], "size": [1.0, 14.0, 9.0]}
    ego = watched({**LENSES[lens], "render": {"normals": True}})["robots"]["ego"]
    sent = microsim.Simulation(scenario(robots={"ego": ego}, obstacles=[wall])).step(0)
    image = decoded(sent, "/ego/camera/normals")[0]
    assert (image.encoding, image.step) == ("32FC3", 12 * WIDTH)
    assert not decoded(sent, "/ego/camera/depth")
    found = np.frombuffer(bytes(image.data), np.float32).reshape(HEIGHT, WIDTH, 3)
    rays = true_rays(lens)
    foot = 5.0 * rays[..., 2] / rays[..., 0] + EYE[2]  # height at which a ray meets the wall
    np.testing.assert_allclose(found[foot > 0.3], np.broadcast_to((0, 0, -1), found[foot > 0.3].shape), atol=1e-3)
    np.testing.assert_allclose(found[foot < -0.5], np.broadcast_to((0, -1, 0), found[foot < -0.5].shape), atol=1e-3)


def test_normals_of_a_slanted_plane_are_exact_and_nothing_has_none() -> None:
    """Depths of n . p = -4 along rays (a, b, 1): -4 / (n . ray)."""
    normal = np.array([0.36, -0.48, -0.8])
    v, u = np.mgrid[0:9, 0:11]
    rays = np.stack([(u - 5.0) / 20.0, (v - 4.0) / 20.0])
    depths = (-4.0 / (normal[0] * rays[0] + normal[1] * rays[1] + normal[2])).astype(np.float32)
    depths[0, :3] = np.inf
    found = np.empty((9, 11, 3), np.float32)
    normals_of_depths(rays, depths, found)
    assert np.isnan(found[0, :3]).all()
    rest = np.isfinite(depths)
    np.testing.assert_allclose(found[rest], np.broadcast_to(normal, (rest.sum(), 3)), atol=1e-4)


def test_a_pixel_without_a_neighbour_has_no_normal() -> None:
    found = np.empty((1, 3, 3), np.float32)
    normals_of_depths(np.zeros((2, 1, 3)), np.ones((1, 3), np.float32), found)
    assert np.isnan(found).all()


def outward(kind: int, place: Any, half: Any) -> Any:
    """Of a box, a cylinder along z or a ball around the origin, at places (n, 3) of its surface."""
    if kind == 2:
        return place / np.linalg.norm(place, axis=-1, keepdims=True)
    if kind == 1:
        round_one = place * (1, 1, 0) / np.linalg.norm(place[..., :2], axis=-1, keepdims=True)
        is_end = np.abs(place[..., 2:]) / half[2] > np.linalg.norm(place[..., :2], axis=-1, keepdims=True) / half[0]
        return np.where(is_end, np.sign(place) * (0, 0, 1), round_one)
    face = np.argmax(np.abs(place) / half, axis=-1)
    return np.eye(3)[face] * np.sign(np.take_along_axis(place, face[..., None], -1))


def seen_normals(sent: Any, camera: str) -> Any:
    """In the map frame, of a camera that looks along x."""
    data = bytes(decoded(sent, f"/ego/{camera}/normals")[0].data)
    right, down, ahead = np.moveaxis(np.frombuffer(data, np.float32).reshape(HEIGHT, WIDTH, 3), -1, 0)
    return np.stack([ahead, -right, -down], axis=-1)


@pytest.mark.parametrize("lens", LENSES)
def test_obstacles_and_bodies_have_the_normals_of_their_own_surfaces_also_round_ones(lens: str) -> None:
    sim = microsim.Simulation(watched({**LENSES[lens], "render": {"normals": True, "instances": True}}))
    sent = sim.step(0)
    numbers, depth = expected_mask(sim, lens)
    found, point = seen_normals(sent, "camera"), EYE + depth[..., None] * true_rays(lens)
    for index, each in enumerate((CRATE, POST, SIGN)):
        size = each.get("size") or [2 * each["radius"], 2 * each["radius"], each["height"]]
        half, is_seen = 0.5 * np.array(size), numbers == FIRST_OBSTACLE + index
        middle = np.add(each["center"], (0.0, 0.0, half[2]))
        expected = outward(int(each["type"] == "cylinder"), point[is_seen] - middle, half)
        np.testing.assert_allclose(found[is_seen], expected, atol=1e-5)
    settings = sim.scenario.robots["first"]
    (center, size), pose = settings.body(), settings.start.map_pose
    axes, is_seen = np.array(turned_by(pose.yaw)), numbers == 1
    place = (point[is_seen] - (pose.x, pose.y, 0.0)) @ axes - center
    np.testing.assert_allclose(found[is_seen], outward(0, place, 0.5 * np.array(size)) @ axes.T, atol=1e-5)


def test_parts_of_models_have_the_normals_of_their_own_surfaces(tmp_path: Path) -> None:
    """Wheels are cylinders; each pixel is compared with the part that its ray meets first."""
    source = among_objects(object_world(tmp_path / "objects"))
    source["robots"]["other"]["start"]["map_pose"].update(x=-9.0, y=-0.2)
    source["robots"]["ego"]["sensors"]["camera_front"]["render"] = {"normals": True, "instances": True, "depth": True}
    sim = microsim.Simulation(source)
    sent = sim.step(0)
    found, rays, axes = seen_normals(sent, "camera_front"), true_rays("pinhole"), np.array(turned_by(0.7))
    eye, is_seen, best = np.array([-13.5, 0.0, 1.2]), mask(sent, "camera_front") == 2, np.inf
    expected = np.full(rays.shape, np.nan)
    for kind, half, center, own, _ in sim.scenario.robots["other"].parts():
        middle, turn = np.array([-9.0, -0.2, 0.0]) + axes @ center, axes @ np.array(own)
        shape = (
            into_box(rays, eye, middle, turn, half)
            if kind == 0
            else into_round(rays, eye, middle, turn, half, kind == 2)
        )
        place = (eye + np.where(np.isfinite(shape), shape, 0.0)[..., None] * rays - middle) @ turn
        with np.errstate(all="ignore"):
            expected = np.where((shape < best)[..., None], outward(kind, place, np.array(half)) @ turn.T, expected)
        best = np.minimum(best, shape)
    assert is_seen.sum() > 100
    off = np.degrees(np.arccos(np.clip((found * expected).sum(axis=-1)[is_seen], -1.0, 1.0)))
    assert np.mean(off < 0.1) > 0.99, np.sort(off)[-20:]  # where two faces meet, rounding decides


# ---- what users get wrong --------------------------------------------------------------------------------------------


def test_runs_without_them_do_not_mention_them() -> None:
    sim = microsim.Simulation(watched({"render": "plain"}))
    assert sim.scenario.to_dict()["robots"]["ego"]["camera"]["render"] == {
        "type": "plain", "mesh": False, "depth": False, "segmentation": False,
    }  # fmt: skip
    assert listed(sim.step(0)) is None
    assert not any(topic.endswith(("instances", "boxes", "normals")) for topic in sim.topics)


@pytest.mark.parametrize(
    ("render", "words"),
    [
        ({"instance": True}, ("robots.ego.camera.render", "instance", "instances")),
        ({"instances": "all"}, ("robots.ego.camera.render.instances", "all")),
        ({"boxes": 3}, ("robots.ego.camera.render.boxes", "3")),
    ],
)
def test_bad_requests_are_named_with_their_place(render: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(ScenarioError) as error:
        microsim.Simulation(watched({"render": render}))
    for word in words:
        assert word in str(error.value)


def test_more_obstacles_than_numbers_are_refused() -> None:
    from microsim.sensors.camera import Camera

    camera = Camera.model_validate({"render": {"boxes": True}})
    assert not camera.unfit("camera", {"world": None, "obstacles": range(45_535), "robots": range(10_000)})
    found = camera.unfit("camera", {"world": None, "obstacles": range(45_536), "robots": range(10_001)})
    assert [str(each["type"]).count("found") for each in found] == [1, 1]
    assert "at most 45535 obstacles apart, found 45536" in str(found[1])
