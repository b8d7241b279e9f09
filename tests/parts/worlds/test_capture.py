"""Worlds from captures, against a synthetic street whose truth is known."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from examples.capture import street as made
from microsim import Simulation
from microsim.bundle import load_bundle
from microsim.bundle.bundle_model import rotation_matrix
from microsim.bundle.similarity import Similarity, fitted, matrix_of_rpy, quaternion_of_matrix, upright
from microsim.bundle.splat_sources import open_splats
from microsim.cli import app
from microsim.errors import MicroSimError, MissingExtraError, ScenarioError, UsageError
from microsim.parts.worlds.capture.camera_poses import read_cameras
from microsim.parts.worlds.capture.capture_world import (
    CaptureOptions,
    CaptureSteps,
    announced,
    build_capture,
    find_splats,
    write_capture,
)
from microsim.parts.worlds.capture.levelling import UnclearCaptureError, up_of_cameras
from microsim.parts.worlds.capture.scene_layers import BACKGROUND, FLOATER, GROUND, OBJECT, height_at

PLY = "point_cloud/iteration_30000/point_cloud.ply"
HEIGHT = CaptureOptions(camera_height_m=made.CAMERA_HEIGHT_M)


def quiet(step: str, done: int, total: int) -> None:
    assert 0 <= done <= total, step


@pytest.fixture(scope="module")
def truth() -> made.Street:
    return made.street()


@pytest.fixture(scope="module")
def capture(truth: made.Street, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("capture")
    made.write_ply(folder / PLY, truth)
    made.write_colmap(folder / "sparse/0", truth, binary=True)
    return folder


@pytest.fixture(scope="module")
def steps(capture: Path) -> CaptureSteps:
    return build_capture(capture, HEIGHT, quiet)


@pytest.fixture(scope="module")
def world(steps: CaptureSteps, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worlds") / "street"
    write_capture(folder, steps, HEIGHT, quiet)
    return folder


def on_map(steps: CaptureSteps, truth: made.Street, points: Any) -> np.ndarray:
    return steps.frame.points(truth.captured(np.asarray(points, float)))


# ---- accuracy --------------------------------------------------------------------------------------------------------


def test_it_comes_out_level_and_to_scale(steps: CaptureSteps, truth: made.Street) -> None:
    up = steps.frame.rotation @ truth.rotation @ np.array([0.0, 0.0, 1.0])
    assert math.degrees(math.acos(min(1.0, float(up[2])))) < 0.5
    assert steps.frame.scale == pytest.approx(truth.scale, rel=0.01)


def test_the_ground_of_the_road_is_right_to_5_cm(steps: CaptureSteps, truth: made.Street) -> None:
    x, y = (each.ravel() for each in np.meshgrid(np.linspace(-15.0, 15.0, 150), np.linspace(-4.0, 4.0, 60)))
    for car_x, car_y in made.PARKED:  # nothing was seen under them
        free = (np.abs(x - car_x) > made.CAR[0] / 2 + 0.2) | (np.abs(y - car_y) > made.CAR[1] / 2 + 0.2)
        x, y = x[free], y[free]
    points = on_map(steps, truth, np.stack([x, y, made.ground_height(x, y)], axis=1))
    errors = height_at(steps.layers.ground, points) - points[:, 2]
    assert float(np.abs(errors).max()) < 0.05


def test_sky_floaters_ground_and_objects_are_told_apart(steps: CaptureSteps, truth: made.Street) -> None:
    label, points = steps.layers.label, truth.points
    assert (label[np.linalg.norm(points, axis=1) > 200.0] == BACKGROUND).all()
    inside = (np.abs(points[:, 0]) < 17.0) & (np.abs(points[:, 1]) < 7.7)
    above = points[:, 2] - made.ground_height(points[:, 0], points[:, 1])
    assert float((label[inside & (np.abs(above) < 0.04)] == GROUND).mean()) > 0.99
    floating = label[inside & ((points[:, 2] < -0.7) | (points[:, 2] > 6.0))]
    assert float((floating == FLOATER).mean()) > 0.85
    (car_x, car_y), roof = made.PARKED[0], made.CAR[2] - 0.2
    on_car = (
        (np.abs(points[:, 0] - car_x) < 1.9) & (np.abs(points[:, 1] - car_y) < 0.8) & (above > roof) & (above < 2.0)
    )
    assert float((label[on_car] == OBJECT).mean()) > 0.98


def test_the_mesh_lies_on_the_true_surfaces(steps: CaptureSteps, truth: made.Street) -> None:
    """Within 10 cm on 95 % of the surfaces, both ways: nothing is missing, and nothing is there that should not be."""
    from trimesh import Trimesh
    from trimesh.proximity import closest_point
    from trimesh.sample import sample_surface

    assert steps.mesh is not None
    true = Trimesh(on_map(steps, truth, truth.vertices), truth.triangles, process=False)
    found = Trimesh(steps.mesh[0].astype(float), steps.mesh[1], process=False)
    for one, other in ((true, found), (found, true)):
        distances = closest_point(other, sample_surface(one, 1500, seed=3)[0])[1]
        assert float(np.quantile(distances, 0.95)) < 0.1


def test_the_drivable_area_is_the_road_without_the_cars(steps: CaptureSteps, truth: made.Street) -> None:
    from shapely import Point, Polygon

    area = [Polygon(rings[0], rings[1:]) for rings in steps.drivable.polygons]

    def drivable(x: float, y: float) -> bool:
        return any(part.contains(Point(*on_map(steps, truth, [[x, y, 0.0]])[0, :2])) for part in area)

    assert all(drivable(x, 0.0) for x in np.linspace(-14.0, 14.0, 30))
    assert not any(drivable(x, y) for x, y in made.PARKED)
    assert not drivable(0.0, 7.95)  # the façade
    assert not drivable(0.0, 12.0)  # behind it
    assert not any(drivable(x, side * 6.0) for x in np.linspace(-16.0, 16.0, 30) for side in (-1.0, 1.0))  # the lawns
    assert steps.start is not None
    heading = steps.frame.rotation @ truth.rotation @ np.array([1.0, 0.0, 0.0])
    assert steps.start[2] == pytest.approx(math.atan2(heading[1], heading[0]), abs=0.1)


# ---- the world one gets ----------------------------------------------------------------------------------------------


def test_the_bundle_is_valid_and_draws_what_was_captured(world: Path, steps: CaptureSteps) -> None:
    bundle = load_bundle(world)
    kept = steps.layers.label != FLOATER
    assert bundle.gaussians.count == int(kept.sum())
    np.testing.assert_allclose(bundle.gaussians.column("x", 3), steps.splats.points[kept], atol=1e-4)
    assert not bundle.origin_is_known
    assert bundle.mesh is not None


def test_a_parked_car_stops_the_car(world: Path, steps: CaptureSteps, truth: made.Street) -> None:
    (x, y), along = made.PARKED[0], on_map(steps, truth, [made.PARKED[0] + (0.0,)])[0]
    before = on_map(steps, truth, [[x - 8.0, y, 0.0]])[0]
    yaw = math.atan2(along[1] - before[1], along[0] - before[0])
    start = {"map_pose": {"x": float(before[0]), "y": float(before[1]), "yaw": yaw}}
    robot = {"start": start, "sensors": {"camera_front": None, "lidar_top": None}}
    sim = Simulation({"world": str(world), "robots": {"ego": robot}, "collisions": "stop"})
    for _ in range(60):
        sim.command("ego", steering=0.0, speed=2.0)
        sim.advance(10)
    travelled = math.hypot(sim.state("ego").x - before[0], sim.state("ego").y - before[1])
    front = 8.0 - made.CAR[0] / 2  # to the parked car's tail, from the rear axle
    assert sim.state("ego").contacts >= 1
    assert travelled < front


@pytest.mark.parametrize(("lidar", "share"), [({}, 0.9), ({"splats": True}, 0.87)], ids=["mesh", "splats"])
def test_the_lidar_sees_the_true_surfaces(
    lidar: dict[str, Any], share: float, world: Path, steps: CaptureSteps, truth: made.Street
) -> None:
    """Ranges within 5 cm of the same rays in the true scene, for this share of the returns."""
    from trimesh import Trimesh

    beams = {"elevations": [math.radians(-15.0 + 2.0 * ring) for ring in range(16)], "columns": 360, "hz": 20}
    mount = {"xyz": [0.9, 0.0, 1.8], "rpy": [0.0, 0.0, 0.0]}
    cameras = dict.fromkeys(("camera_front", "camera_left", "camera_right", "camera_rear"))
    sensors = {"lidar_top": {"sigma_m": 0.0, "mount": mount, **beams, **lidar}, **cameras}
    sim = Simulation({"world": str(world), "robots": {"ego": {"sensors": sensors}}})
    clouds = [message for message in sim.step(10) if message.topic == "/ego/lidar_top/points"]
    points, sensor = _cloud_on_map(sim, clouds[-1])
    directions = points - sensor
    ranges = np.linalg.norm(directions, axis=1)
    directions /= ranges[:, None]
    x, y = (each.ravel() for each in np.meshgrid(np.linspace(-18, 18, 181), np.linspace(-8, 8, 81)))
    grid = np.arange(181 * 81).reshape(81, 181)
    a, b, c, d = grid[:-1, :-1].ravel(), grid[:-1, 1:].ravel(), grid[1:, 1:].ravel(), grid[1:, :-1].ravel()
    ground = np.stack([x, y, made.ground_height(x, y)], axis=1)
    faces = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1), truth.triangles + len(ground)])
    true = Trimesh(on_map(steps, truth, np.concatenate([ground, truth.vertices])), faces, process=False)
    hits, rays, _ = true.ray.intersects_location(np.tile(sensor, (len(points), 1)), directions, multiple_hits=False)
    expected = np.full(len(points), np.inf)
    expected[rays] = np.linalg.norm(hits - sensor, axis=1)
    inside = np.isfinite(expected)
    assert float(inside.mean()) > 0.9
    assert float((np.abs(ranges - expected)[inside] < 0.05).mean()) > share


def _cloud_on_map(sim: Simulation, message: Any) -> tuple[np.ndarray, np.ndarray]:
    """The points and the sensor in the map frame."""
    rows = np.frombuffer(bytes(message.message.data), np.uint8).reshape(-1, message.message.point_step)
    points = rows[:, :12].copy().view("<f4").astype(float)
    points = points[np.isfinite(points).all(axis=1) & (np.linalg.norm(points, axis=1) > 0.5)]
    pose = sim.frame_poses()["base_link"][1]
    turn, place = rotation_matrix(*pose[3:7]), np.array(pose[0:3])
    mount = np.array([0.9, 0.0, 1.8])
    return (points + mount) @ turn.T + place, turn @ mount + place


def test_a_world_that_nobody_placed_has_no_gps(world: Path) -> None:
    sim = Simulation({"world": str(world)})
    assert not any("gps" in topic for topic in sim.topics)
    with pytest.raises(ScenarioError, match=r"robots\.ego\.gps.*does not say where on Earth it is"):
        Simulation({"world": str(world), "robots": {"ego": {"gps": {"hz": 5}}}})
    for requested in ({"gps": {}}, {"gps": True}, {"sensors": {"other": {"type": "gps"}}}):
        with pytest.raises(ScenarioError, match="does not say where on Earth it is"):
            Simulation({"world": str(world), "robots": {"ego": requested}})
    for left_out in ({"gps": None}, {"gps": False}, {"gps": {"enabled": False}}):
        assert not any(
            "gps" in topic for topic in Simulation({"world": str(world), "robots": {"ego": left_out}}).topics
        )


# ---- what people have ------------------------------------------------------------------------------------------------


def test_colours_may_be_bytes(truth: made.Street, capture: Path, tmp_path: Path) -> None:
    """As `ns-export gaussian-splat --ply-color-mode rgb` writes them."""
    rows = made.rows_of(truth)[:50]
    names = [name for name in made._NAMES if not name.startswith("f_dc")]
    kinds = [(name, "<f4") for name in names] + [(name, "u1") for name in ("red", "green", "blue")]
    table = np.zeros(len(rows), kinds)
    for name in names:
        table[name] = rows[:, made._NAMES.index(name)]
    for index, name in enumerate(("red", "green", "blue")):
        table[name] = np.clip(truth.colours[:50, index] * 255.0, 0, 255)
    lines = [f"property {'uchar' if kind == 'u1' else 'float'} {name}" for name, kind in kinds]
    head = "\n".join(["ply", "format binary_little_endian 1.0", "element vertex 50", *lines, "end_header", ""])
    found = open_splats(_write(tmp_path, "rgb.ply", head.encode() + table.tobytes())).rows(0, 50)
    np.testing.assert_allclose(found[:, 11:14], open_splats(capture / PLY).rows(0, 50)[:, 11:14], atol=0.02)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_ascii_files_of_any_system_are_read(truth: made.Street, tmp_path: Path, line_end: str) -> None:
    made.write_ply(tmp_path / "unix.ply", truth, ascii=True)
    text = (tmp_path / "unix.ply").read_text()
    (tmp_path / "other.ply").write_text(text.replace("\n", line_end), newline="")
    one, other = open_splats(tmp_path / "unix.ply"), open_splats(tmp_path / "other.ply")
    np.testing.assert_array_equal(one.rows(0, 9), other.rows(0, 9))


@pytest.mark.parametrize("form", ["ascii", "splat", "spz2", "spz3"])
def test_every_format_gives_the_same_gaussians(truth: made.Street, capture: Path, tmp_path: Path, form: str) -> None:
    file = tmp_path / ("scene.ply" if form == "ascii" else f"scene.{form.rstrip('23')}")
    if form == "ascii":
        made.write_ply(file, truth, ascii=True)
    elif form == "splat":
        made.write_splat(file, truth)
    else:
        made.write_spz(file, truth, int(form[-1]))
    expected, found = open_splats(capture / PLY), open_splats(file)
    assert (found.count, found.degree) == (expected.count, expected.degree)
    one, other = expected.rows(0, 20_000), found.rows(0, 20_000)
    np.testing.assert_allclose(other[:, 0:3], one[:, 0:3], atol=2e-4)
    np.testing.assert_allclose(other[:, 3:6], one[:, 3:6], atol=0.04)
    dots = np.abs((other[:, 6:10] * one[:, 6:10]).sum(axis=1)) / np.linalg.norm(other[:, 6:10], axis=1)
    assert float(np.quantile(dots, 0.001)) > (0.995 if form == "spz2" else 0.999)
    shares = [1.0 / (1.0 + np.exp(-rows[:, 10])) for rows in (one, other)]
    np.testing.assert_allclose(shares[1], shares[0], atol=0.005)
    np.testing.assert_allclose(other[:, 11:14], one[:, 11:14], atol=0.03)


def _nerfstudio_with_colmap(folder: Path, truth: made.Street) -> None:
    """`ns-train splatfacto colmap`: no transforms.json; the data parser's file begins with COLMAP's frame."""
    turn, scale, move = matrix_of_rpy(0.4, -0.7, 2.0), 0.31, np.array([0.5, -1.0, 2.0])
    before = replace(truth, rotation=turn.T @ truth.rotation, scale=truth.scale * scale)
    before.move = (truth.move / scale - move) @ turn
    made.write_colmap(folder / "colmap/sparse/0", before, binary=True)
    made.write_data_parser(folder, np.concatenate([turn, move[:, None]], axis=1), scale)


def _nerfstudio_scaled(folder: Path, truth: made.Street) -> None:
    """With a scale that was applied to the poses before they were written."""
    made.write_nerfstudio(folder, truth)
    for name, key in (("transforms.json", "applied_scale"), ("dataparser_transforms.json", "scale")):
        data = json.loads((folder / name).read_text())
        data[key] = 2.5 * data.get(key, 1.0)
        (folder / name).write_text(json.dumps(data))


def _nerfstudio_old(folder: Path, truth: made.Street) -> None:
    """Of a version that turned COLMAP's frame and did not say so; the folder of COLMAP shows it."""
    (folder / "colmap/sparse/0").mkdir(parents=True)
    made.write_nerfstudio(folder, truth, applied=False)
    file = folder / "dataparser_transforms.json"
    data = json.loads(file.read_text())
    before = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, -1, 0], [0, 0, 0, 1.0]])
    made.write_data_parser(folder, np.array(data["transform"]) @ before, data["scale"])


POSE_FORMS = {
    "colmap text": lambda folder, truth: made.write_colmap(folder / "sparse/0", truth, binary=False),
    "colmap binary": lambda folder, truth: made.write_colmap(folder / "sparse/0", truth, binary=True),
    "nerfstudio": made.write_nerfstudio,
    "nerfstudio, nothing applied": lambda folder, truth: made.write_nerfstudio(folder, truth, applied=False),
    "nerfstudio, scaled": _nerfstudio_scaled,
    "nerfstudio, old": _nerfstudio_old,
    "nerfstudio with colmap": _nerfstudio_with_colmap,
    "original trainer": made.write_original,
}


@pytest.mark.parametrize("form", POSE_FORMS)
def test_camera_poses_are_read_as_they_were(truth: made.Street, tmp_path: Path, form: str) -> None:
    POSE_FORMS[form](tmp_path, truth)
    cameras = read_cameras(tmp_path)
    assert cameras is not None
    np.testing.assert_allclose(cameras.positions, truth.captured(truth.positions), atol=1e-6)
    np.testing.assert_allclose(cameras.rotations, truth.rotation @ truth.turns, atol=1e-6)
    up = truth.rotation.T @ up_of_cameras(cameras)
    assert math.degrees(math.acos(float(up[2]))) < 1.0


def test_without_cameras_the_ground_alone_levels_it(capture: Path, truth: made.Street) -> None:
    found = build_capture(capture / PLY, CaptureOptions(scale=truth.scale), quiet)
    up = found.frame.rotation @ truth.rotation @ np.array([0.0, 0.0, 1.0])
    assert math.degrees(math.acos(min(1.0, float(up[2])))) < 0.5
    assert found.mesh is not None


def test_photographs_with_gps_give_scale_north_and_place(truth: made.Street, tmp_path: Path) -> None:
    from PIL import Image

    from microsim.engine.geodesy import tangent_plane, wgs84_from_enu

    plane = tangent_plane(48.1, 11.5, 520.0)
    made.write_ply(tmp_path / PLY, truth)
    made.write_colmap(tmp_path / "sparse/0", truth, binary=False)
    (tmp_path / "images").mkdir()
    noise = np.random.default_rng(2).normal(0.0, 0.05, truth.positions.shape)
    for index, (east, north, up) in enumerate((truth.positions + noise).tolist()):
        latitude, longitude, altitude = wgs84_from_enu(plane, east, north, up)
        exif = Image.Exif()
        exif[0x8825] = {1: "N", 2: _dms(latitude), 3: "E", 4: _dms(longitude), 5: b"\0", 6: round(altitude, 3)}
        Image.new("RGB", (4, 4)).save(tmp_path / f"images/frame_{index:04}.jpg", exif=exif)
    found = build_capture(tmp_path, CaptureOptions(with_mesh=False), quiet)
    assert found.frame.scale == pytest.approx(truth.scale, rel=0.01)
    east = found.frame.rotation @ truth.rotation @ np.array([1.0, 0.0, 0.0])
    assert math.degrees(math.atan2(east[1], east[0])) == pytest.approx(0.0, abs=0.5)
    first = wgs84_from_enu(plane, *truth.positions[0])
    assert found.origin is not None
    assert found.origin[0] == pytest.approx(first[0], abs=2e-6)
    assert found.origin[1] == pytest.approx(first[1], abs=3e-6)


def _dms(degrees: float) -> tuple[float, float, float]:
    whole = int(degrees)
    minutes = (degrees - whole) * 60.0
    return float(whole), float(int(minutes)), round((minutes - int(minutes)) * 60.0, 5)


@pytest.mark.parametrize(
    "options",
    [
        {"up": "up"},
        {"rotation": "matrix"},
        {"level": "cameras"},
        {"level_points": "points"},
        {"known_length": "length", "camera_height_m": None},
    ],
)
def test_what_the_user_says_decides(capture: Path, truth: made.Street, options: dict[str, Any]) -> None:
    values = {
        "up": tuple(truth.rotation @ np.array([0.0, 0.0, 1.0])),
        "matrix": truth.rotation.T,
        "cameras": "cameras",
        "points": truth.captured(np.array([[-10.0, 0.0, 0.0], [10.0, 0.2, -0.004], [0.0, -0.2, -0.004]])),
        "length": (*truth.captured(np.array([[0.0, 0.0, 0.0], [0.0, 4.0, 0.0]])), 4.0),
    }
    given = {name: values.get(value, value) for name, value in {"camera_height_m": 1.6, **options}.items()}
    found = build_capture(capture, CaptureOptions(with_mesh=False, **given), quiet)
    up = found.frame.rotation @ truth.rotation @ np.array([0.0, 0.0, 1.0])
    assert math.degrees(math.acos(min(1.0, float(up[2])))) < 1.2
    assert found.frame.scale == pytest.approx(truth.scale, rel=0.015)


def test_the_options_of_the_report_give_the_same_world(steps: CaptureSteps, capture: Path) -> None:
    again = steps.notes.reproduce
    rotation = np.array([float(word) for word in again["--matrix"].split(",")]).reshape(3, 3)
    repeated = build_capture(
        capture, CaptureOptions(rotation=rotation, scale=float(again["--scale"]), with_mesh=False), quiet
    )
    np.testing.assert_allclose(repeated.frame.rotation, steps.frame.rotation, atol=1e-8)
    np.testing.assert_allclose(repeated.frame.move[:2], steps.frame.move[:2], atol=0.02)
    assert repeated.drivable.area_m2 == pytest.approx(steps.drivable.area_m2, rel=0.02)


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_a_capture_without_scale_asks_for_it(capture: Path) -> None:
    with pytest.raises(UnclearCaptureError, match=r"no scale.*--camera-height M, --known-length, --scale X"):
        build_capture(capture, CaptureOptions(), quiet)


def test_a_box_has_no_ground(tmp_path: Path) -> None:
    """Three pairs of equal planes: nothing tells which one is below."""
    random = np.random.default_rng(4)
    points = random.uniform(-1.0, 1.0, (6000, 3))
    axis = np.arange(6000) % 3
    points[np.arange(6000), axis] = np.where(random.uniform(size=6000) < 0.5, -1.0, 1.0)
    frames = np.eye(3)[np.stack([(axis + 1) % 3, (axis + 2) % 3, axis], axis=1)].transpose(0, 2, 1)
    box = made.Street(
        points, frames * np.linalg.det(frames)[:, None, None], np.tile([0.05, 0.05, 0.001], (6000, 1)),
        np.full(6000, 0.9), np.full((6000, 3), 0.5), points[:3], np.array([[0, 1, 2]]), np.zeros((1, 3)),
        np.eye(3)[None],
    )  # fmt: skip
    made.write_ply(tmp_path / "box.ply", box)
    with pytest.raises(UnclearCaptureError, match=r"--up X,Y,Z"):
        build_capture(tmp_path / "box.ply", CaptureOptions(scale=1.0), quiet)


def _write(folder: Path, name: str, data: bytes) -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return folder / name


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.splat", b"x" * 33, "expected 32 bytes for each Gaussian, found 33"),
        ("a.spz", b"no gzip", "not an spz file"),
        ("a.spz", gzip.compress(b"\0" * 20), "it begins with 0x00000000"),
        ("a.ply", b"ply\nformat ascii 1.0\nelement vertex 0\nend_header\n", "not a splat: it has no property x"),
    ],
    ids=["splat", "no gzip", "no magic", "ply"],
)
def test_a_file_that_is_not_what_it_says_is_refused(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_splats(_write(tmp_path, name, data))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("images.txt", b"1 1 0 0 0 x 0 0 1 a.jpg\n", r"images.txt:1: expected IMAGE_ID QW"),
        ("images.txt", b"1 0 0 0 0 0 0 0 1 a.jpg\n\n", "not a rotation"),
        ("images.bin", b"\x05" + b"\0" * 20, "cut short"),
        ("transforms.json", b"{", "not JSON"),
        ("transforms.json", b'{"frames": []}', "under 'frames'"),
        ("transforms.json", b'{"frames": [{"transform_matrix": [[1, 2]]}]}', r"frames\[0\].transform_matrix"),
        ("cameras.json", b'{"a": 1}', "expected a list of 1 to .* cameras.*--ignore-cameras"),
        ("cameras.json", b'[{"position": [1, 2]}]', r"'\[0\].position': expected 3 finite numbers"),
    ],
)
def test_poses_that_cannot_be_read_are_named(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    _write(tmp_path, name, data)
    with pytest.raises(UsageError, match=message):
        read_cameras(tmp_path)


def test_any_bytes_are_read_or_refused(tmp_path: Path, truth: made.Street) -> None:
    """No traceback, whatever is broken in poses and packed files."""
    made.write_colmap(tmp_path / "c", truth, binary=True)
    made.write_nerfstudio(tmp_path / "n", truth)
    random = np.random.default_rng(8)
    for name in ("c/images.bin", "n/transforms.json"):
        good = (tmp_path / name).read_bytes()
        for _ in range(60):
            bad = bytearray(good[: random.integers(1, len(good))])
            for at in random.integers(0, len(bad), 5):
                bad[at] = random.integers(0, 256)
            target = _write(tmp_path / "bad", Path(name).name, bytes(bad))
            with contextlib.suppress(MicroSimError):
                assert read_cameras(target.parent) is not None
            target.unlink()


def test_too_little_memory_is_announced(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"{open_splats(capture / PLY).count:,} Gaussians of degree 0: about 0.5 GB of memory"
    for free, more in ((None, ""), (200_000_000, ", of which 0.2 GB are free here: ")):
        monkeypatch.setattr("microsim.parts.worlds.capture.capture_world._free_memory", lambda free=free: free)
        assert announced(capture).startswith(words + more)
        assert bool(more) == announced(capture).endswith("the system may end it")


def test_gaussians_that_cannot_be_drawn_are_counted(truth: made.Street, tmp_path: Path) -> None:
    broken = replace(truth, points=truth.points.copy(), scale=truth.scale)
    broken.points[::10, 0] = np.nan
    made.write_ply(tmp_path / "nan.ply", broken)
    found = build_capture(tmp_path / "nan.ply", CaptureOptions(scale=truth.scale, with_mesh=False), quiet)
    assert found.notes.words["left out"].startswith(f"{len(truth.points[::10]):,} Gaussians that are not finite")
    assert (found.layers.label[::10] == FLOATER).all()
    broken.points[:, 0] = np.nan
    made.write_ply(tmp_path / "nan.ply", broken)
    with pytest.raises(UsageError, match=r"nan\.ply: expected at least 100 opaque Gaussians, found 0; left out: "):
        build_capture(tmp_path / "nan.ply", CaptureOptions(scale=truth.scale), quiet)


def test_a_folder_with_several_splats_asks_which_one(tmp_path: Path, truth: made.Street) -> None:
    for name in ("a.splat", "b.splat"):
        made.write_splat(tmp_path / name, truth)
    with pytest.raises(UsageError, match=r"a\.splat, b\.splat.*--splats FILE"):
        build_capture(tmp_path, CaptureOptions(scale=1.0), quiet)
    assert find_splats(tmp_path, Path("b.splat")) == tmp_path / "b.splat"
    with pytest.raises(UsageError, match=r"--splats: no such file: c\.splat"):
        find_splats(tmp_path, Path("c.splat"))


@pytest.mark.parametrize("name", ["point_cloud/iteration_{}/point_cloud.ply", "ply/point_cloud_{}.ply"])
def test_the_last_iteration_counts(tmp_path: Path, name: str) -> None:
    for number in (7000, 30000, 9):
        _write(tmp_path, name.format(number), b"ply\nproperty float scale_0\nproperty float rot_3\nend_header\n")
    _write(tmp_path, "input.ply", b"ply\nproperty float x\nend_header\n")
    assert find_splats(tmp_path) == tmp_path / name.format(30000)


def test_poses_of_another_frame_are_doubted(capture: Path, truth: made.Street, tmp_path: Path) -> None:
    """The file that most people forget to copy."""
    made.write_nerfstudio(tmp_path, truth)
    (tmp_path / "dataparser_transforms.json").unlink()
    with pytest.raises(UnclearCaptureError, match=r"(?s)poses: 80 in transforms\.json.*copy its dataparser_transforms"):
        build_capture(tmp_path, HEIGHT, quiet, capture / PLY)
    (tmp_path / "transforms.json").write_text("{")
    ignoring = CaptureOptions(scale=truth.scale, ignore_cameras=True, with_mesh=False)
    assert build_capture(tmp_path, ignoring, quiet, capture / PLY).cameras is None


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "name"),
    [("scipy", "SciPy"), ("skimage", "scikit-image"), ("fast_simplification", "fast-simplification")],
)
def test_a_package_that_is_not_installed_is_named(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda each: None if each == module else found(each))
    target = tmp_path / "world"
    done = CliRunner().invoke(app, ["bundle", "from-capture", str(capture), str(target), "--camera-height", "1.6"])
    assert isinstance(done.exception, MissingExtraError)
    assert f"from-capture needs {name}: " in str(done.exception)
    assert not target.exists()


def test_the_command_makes_a_world_and_a_page(capture: Path, tmp_path: Path) -> None:
    target = tmp_path / "street"
    done = CliRunner().invoke(
        app,
        [
            "bundle",
            "from-capture",
            str(capture),
            str(target),
            "--camera-height",
            "1.6",
            "--no-mesh",
            "--sh-degree",
            "1",
        ],
    )
    assert done.exit_code == 0, done.output
    printed = done.output
    assert "Gaussians of degree 0" in printed
    assert "GPS sensors are left out" in printed
    page = (tmp_path / "street_report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 4
    assert "--matrix=" in page
    assert "--sh-degree=1" in page
    assert json.loads((target / "metadata.json").read_text())["origin_is_known"] is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scale", "1", "--camera-height", "1"], "expected one of --scale, --camera-height"),
        (["--up", "0,0,1", "--matrix", "1,0,0,0,1,0,0,0,1"], "expected one of --up, --matrix"),
        (["--matrix", "1,0,0,0,1,0,0,0,2"], "expected a rotation"),
        (["--origin", "95,0"], "expected latitude and longitude"),
        (["--known-length", "1,2"], "--known-length: expected 7 numbers"),
        (["--known-length", "0,0,0,1,0,0,-3"], "--known-length: expected a length of 0.001"),
        (["--scale", "1", "--mesh", "missing.obj"], "--mesh: no such file: missing.obj"),
    ],
)
def test_options_that_contradict_are_refused(capture: Path, tmp_path: Path, options: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["bundle", "from-capture", str(capture), str(tmp_path / "new"), *options])
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)
    assert not (tmp_path / "new").exists()


def test_a_reader_of_the_page_gets_a_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.pages import DOCS
    from tests.unit.cli.test_docs import run_page

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["street.py", "my_capture"])
    made.main()
    run_page(DOCS / "do/capture.md")
    assert (tmp_path / "my_street/world.yaml").is_file()
    assert not (tmp_path / "another").exists()


# ---- similarity ------------------------------------------------------------------------------------------------------


def test_similarities_follow_their_closed_forms() -> None:
    random = np.random.default_rng(0)
    for _ in range(30):
        roll, pitch, yaw = random.uniform(-3.0, 3.0, 3)
        rotation = matrix_of_rpy(roll, pitch, yaw)
        x, y, z, w = quaternion_of_matrix(rotation)
        np.testing.assert_allclose(rotation_matrix(x, y, z, w), rotation, atol=1e-12)
        one = Similarity(rotation, float(random.uniform(0.1, 5.0)), tuple(random.normal(size=3)))
        points = random.normal(size=(12, 3))
        found, errors = fitted(points, one.points(points))
        assert float(errors.max()) < 1e-9
        assert found.scale == pytest.approx(one.scale)
        np.testing.assert_allclose(one.then(found).points(points), found.points(one.points(points)), atol=1e-9)
        up = rotation[2]
        np.testing.assert_allclose(upright(up) @ up, [0.0, 0.0, 1.0], atol=1e-12)


# ---- ground, whatever it was trained with ----------------------------------------------------------------------------


def road_errors_and_drivable_share(folder: Path, truth: made.Street) -> tuple[float, float]:
    """95 % of the road's heights err by less [m]; share of the road, without the parked cars, that is drivable."""
    import shapely

    made.write_ply(folder / PLY, truth)
    made.write_colmap(folder / "sparse/0", truth, binary=True)
    found = build_capture(folder, replace(HEIGHT, with_mesh=False), quiet)
    x, y = (each.ravel() for each in np.meshgrid(np.linspace(-14.5, 14.5, 150), np.linspace(-3.5, 3.5, 60)))
    for car_x, car_y in made.PARKED:  # and the margin that is kept from them
        free = (np.abs(x - car_x) > made.CAR[0] / 2 + 0.6) | (np.abs(y - car_y) > made.CAR[1] / 2 + 0.6)
        x, y = x[free], y[free]
    points = on_map(found, truth, np.stack([x, y, made.ground_height(x, y)], axis=1))
    errors = np.abs(height_at(found.layers.ground, points) - points[:, 2])
    area = shapely.union_all([shapely.Polygon(rings[0], rings[1:]) for rings in found.drivable.polygons])
    assert not shapely.contains_xy(area, *on_map(found, truth, [[x, y, 0.0] for x, y in made.PARKED])[:, :2].T).any()
    return float(np.quantile(errors, 0.95)), float(shapely.contains_xy(area, points[:, 0], points[:, 1]).mean())


ONE_OF_EACH = [(0.15, 0.25), (0.055, 0.12)]
ALL = [(spacing, soft) for spacing in (0.15, 0.078, 0.055, 0.039, 0.0315, 0.0142) for soft in (0.0, 0.05, 0.12, 0.25)]


@pytest.mark.parametrize(
    ("spacing", "soft"),
    [*ONE_OF_EACH, *(pytest.param(*each, marks=pytest.mark.slow) for each in ALL if each not in ONE_OF_EACH)],
)
def test_the_ground_does_not_depend_on_the_number_of_gaussians(spacing: float, soft: float, tmp_path: Path) -> None:
    """Up to a quarter of them half transparent and 20 cm beside the surfaces."""
    error, drivable = road_errors_and_drivable_share(tmp_path, made.street(spacing=spacing, noise_m=0.02, soft=soft))
    assert error < 0.03
    assert drivable > 0.97
