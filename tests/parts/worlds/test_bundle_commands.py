"""`microsim bundle` and `microsim validate BUNDLE`, through the command line's own functions."""

import io
import json
import math
import resource
import shutil
import stat
import struct
import types
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from microsim.bundle import check_bundle, load_bundle
from microsim.bundle.bundle_writing import write_bundle
from microsim.bundle.mapped_arrays import FIXED_COLUMNS, columns_of, read_image_heights
from microsim.bundle.splat_import import AXES, harmonics
from microsim.cli import app
from microsim.errors import BundleError, MicroSimError, UsageError
from microsim.parts.worlds.generate import generate_world
from tests.bundle_support import change, small_bundle


def run(*arguments: object) -> str:
    """What a command prints; the error that `microsim` would explain is raised."""
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- validate


def test_validate_takes_bundles_beside_scenarios_and_tells_warnings_apart(here):
    small_bundle(here / "small")
    change(here / "small/geometry/drivable.geojson", lambda data: data.update(features=[]))
    done = CliRunner().invoke(app, ["validate", "small", "small/world.yaml", "oval", "worlds/minimal_test", "flat"])
    assert done.exit_code == 0
    assert done.output.count(" ok ") == 5
    assert "warning: features: there are no polygons" in done.output
    change(here / "small/sim/timebase.yaml", lambda data: data.update(version="2.0.0"))
    done = CliRunner().invoke(app, ["validate", "small", "flat"])
    assert done.exit_code == 2
    assert "bad  small  1 problem, 1 warning" in done.output
    assert "small/sim/timebase.yaml:1:11: version: version 2.0.0 is not supported" in done.output


def test_validate_in_json_gives_rule_and_remedy(here):
    small_bundle(here / "small")
    (here / "small/geometry/heightmap.bin").unlink()
    done = CliRunner().invoke(app, ["validate", "small", "--json"])
    assert done.exit_code == 2
    (report,) = json.loads(done.stdout)
    assert (report["bundle"], report["ok"]) == ("small", False)
    (problem,) = report["problems"]
    assert problem["rule"] == "required-file"
    assert problem["remedy"]
    assert (problem["path"], problem["line"]) == ("geometry.heightmap", 9)
    assert not problem["is_warning"]


def test_worlds_are_listed(here):
    assert "oval" in json.loads(run("list", "--json"))["worlds"]


# ---- new


def test_a_bundle_from_nothing_is_the_minimal_world(here):
    assert "100 Gaussians" in run("bundle", "new", "plain")
    bundle = load_bundle("plain")
    assert bundle.name == "plain"
    assert bundle.heightmap.values.shape == (128, 128)


def test_a_bundle_from_a_scenario_has_its_relief_its_obstacles_and_no_road_through_them(here):
    scenario = {
        "name": "yard",
        "map": {"size_xy_cells": [40, 30], "cell_size_m": 0.5, "elevation": {"generate": "hills", "seed": 3}},
        "obstacles": [
            {"type": "box", "center": [5.0, 5.0, 0.0], "size": [2.0, 4.0, 3.0]},
            {"type": "cylinder", "center": [14.0, 9.0, 0.0], "radius": 1.0, "height": 2.0},
        ],
        "robots": {},
    }
    (here / "yard.json").write_text(json.dumps(scenario))
    run("bundle", "new", "yard", "--scenario", "yard.json")
    bundle = load_bundle("yard")
    from microsim.scenario import load_scenario
    from microsim.scenario.scene import elevation

    assert (bundle.heightmap.values == elevation(load_scenario(scenario)).astype(np.float32)).all()
    assert (bundle.heightmap.west, bundle.heightmap.south) == (0.0, 0.0)
    assert bundle.origin_wgs84 == load_scenario(scenario).map.origin_wgs84
    road = bundle.drivable
    assert [road.polygon_at(*point) for point in ((1.0, 1.0), (5.0, 5.0), (14.0, 9.0), (19.9, 14.9), (21.0, 1.0))] == [
        0, -1, -1, 0, -1,
    ]  # fmt: skip
    assert bundle.mesh is not None
    assert bundle.mesh.vertices[:, 0].min() == 4.0
    ground = float(bundle.heightmap.values[10, 10])
    box = bundle.mesh.vertices[bundle.mesh.vertices[:, 0] < 7.0]
    assert box[:, 2].max() == pytest.approx(ground + 3.0, abs=0.5)


def test_a_bundle_from_an_image_has_its_heights_with_north_up(here):
    image = np.zeros((30, 40), np.uint16)
    image[0, :] = 65535  # the northern edge
    image[29, 0] = 32768
    (here / "hills.png").write_bytes(png(image, 16))
    run("bundle", "new", "hills", "--heightmap", "hills.png", "--resolution", "0.25", "--low", "-2", "--high", "6")
    heights = load_bundle("hills").heightmap
    assert heights.values.shape == (30, 40)
    assert (heights.values[29] == 6.0).all()
    assert heights.values[0, 0] == pytest.approx(-2.0 + 8.0 * 32768 / 65535)
    assert heights.values[0, 1] == -2.0
    assert (heights.west, heights.south, heights.resolution_m) == (-5.0, -3.75, 0.25)


@pytest.mark.parametrize(("hole", "start"), [((10, 12), (-0.75, -0.25)), ((0, 20), None)])
def test_a_bundle_from_an_image_starts_where_there_is_ground(here, hole, start):
    image = np.full((30, 20, 2), 255, np.uint8)
    image[:, slice(*hole), 1] = 0
    (here / "hills.png").write_bytes(png(image, 8, colour=4))
    run("bundle", "new", "hills", "--heightmap", "hills.png")
    found = load_bundle("hills").start
    assert (None if found is None else (found.x, found.y)) == start


def png(pixels: np.ndarray, depth: int, filters: int = 0, colour: int = 0) -> bytes:
    """A PNG, its rows filtered with one of the five filters."""
    height, width = pixels.shape[:2]
    raw = pixels.astype(">u2" if depth == 16 else "u1").reshape(height, -1).view(np.uint8).astype(int)
    step = raw.shape[1] // width
    left = np.pad(raw, ((0, 0), (step, 0)))[:, : raw.shape[1]]
    up = np.pad(raw, ((1, 0), (0, 0)))[:height]
    corner = np.pad(left, ((1, 0), (0, 0)))[:height]
    guess = left + up - corner
    distances = [abs(guess - left), abs(guess - up), abs(guess - corner)]
    nearest = np.where(
        (distances[0] <= distances[1]) & (distances[0] <= distances[2]),
        left,
        np.where(distances[1] <= distances[2], up, corner),
    )
    predicted = [0 * raw, left, up, (left + up) // 2, nearest][filters]
    rows = b"".join(bytes([filters]) + row.astype(np.uint8).tobytes() for row in (raw - predicted) % 256)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("filters", range(5))
@pytest.mark.parametrize("depth", [8, 16])
def test_images_are_read_whatever_their_filter(tmp_path, filters, depth):
    pixels = np.random.default_rng(filters).integers(0, 1 << depth, (7, 9))
    (tmp_path / "grey.png").write_bytes(png(pixels, depth, filters))
    found = read_image_heights(tmp_path / "grey.png", 0.0, float((1 << depth) - 1))
    assert (found[::-1] == pixels).all()


def test_grey_images_with_transparency_keep_their_16_bits(tmp_path):
    pixels = np.random.default_rng(1).integers(0, 1 << 16, (6, 7, 2))
    pixels[:, :, 1] = 65535
    pixels[4, 3, 1] = 0
    (tmp_path / "grey.png").write_bytes(png(pixels, 16, 4, colour=4))
    found = read_image_heights(tmp_path / "grey.png", 0.0, 65535.0)[::-1]
    assert np.argwhere(np.isnan(found)).tolist() == [[4, 3]]
    known = np.isfinite(found)
    assert (found[known] == pixels[:, :, 0][known]).all()


def test_a_bomb_of_an_image_is_refused_before_it_is_decoded(tmp_path):
    (tmp_path / "bomb.png").write_bytes(png(np.zeros((1, 1)), 8).replace(
        struct.pack(">II", 1, 1), struct.pack(">II", 60_000, 60_000), 1
    ))  # fmt: skip
    with pytest.raises(UsageError, match=r"bomb\.png"):
        read_image_heights(tmp_path / "bomb.png", 0.0, 1.0)


@pytest.mark.parametrize(("depth", "colour"), [(16, 2), (8, 3)])
def test_images_whose_bits_would_be_lost_are_refused(tmp_path, depth, colour):
    pixels = np.zeros((3, 3, 3) if colour == 2 else (3, 3))
    (tmp_path / "colour.png").write_bytes(png(pixels, depth, colour=colour))
    with pytest.raises(UsageError, match="expected a grey PNG of 8 or 16 bits"):
        read_image_heights(tmp_path / "colour.png", 0.0, 1.0)


def test_transparent_pixels_are_no_ground(tmp_path):
    pixels = np.zeros((4, 5, 2), np.uint8)
    pixels[:, :, 1] = 255
    pixels[1, 2, 1] = 0
    (tmp_path / "holes.png").write_bytes(png(pixels, 8, 4, colour=4))
    heights = read_image_heights(tmp_path / "holes.png", 0.0, 1.0)
    assert np.argwhere(np.isnan(heights)).tolist() == [[2, 2]]


@pytest.mark.parametrize("raw", [b"", b"GIF89a", png(np.zeros((3, 3)), 8)[:-40], b"\x89PNG\r\n\x1a\n" + bytes(60)])
def test_what_is_no_image_is_refused(tmp_path, raw):
    (tmp_path / "bad.png").write_bytes(raw)
    with pytest.raises(UsageError, match=r"bad\.png"):
        read_image_heights(tmp_path / "bad.png", 0.0, 1.0)


def test_new_never_touches_what_is_there(here):
    (here / "mine").mkdir()
    (here / "mine/notes.txt").write_text("keep")
    with pytest.raises(UsageError, match="already exists"):
        run("bundle", "new", "mine")
    assert [path.name for path in (here / "mine").iterdir()] == ["notes.txt"]
    with pytest.raises(UsageError, match="found several"):
        run("bundle", "new", "other", "--scenario", "flat", "--template", "oval")


def test_a_map_of_walls_is_refused_instead_of_lost(here):
    Image.fromarray(np.where(np.eye(20, dtype=bool), 0, 254).astype(np.uint8)).save(here / "plan.png")
    (here / "plan.yaml").write_text(
        "{image: plan.png, resolution: 0.5, origin: [0, 0, 0], negate: 0, occupied_thresh: 0.65, free_thresh: 0.2}"
    )
    (here / "building.yaml").write_text("{map: {image: plan.yaml}, robots: {}}")
    with pytest.raises(UsageError, match=r"building\.yaml has a map with an image, whose walls a bundle cannot hold"):
        run("bundle", "new", "building", "--scenario", "building.yaml")
    assert not (here / "building").exists()


def test_a_disk_that_fills_up_is_reported_with_the_folder_and_leaves_nothing_behind(here):
    content = generate_world("minimal", "mine")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # a file that grows beyond it fails as a disk does
    try:
        with pytest.raises(OSError, match="File too large: 'mine'"):
            write_bundle(Path("mine"), content)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(here.iterdir()) == []
    write_bundle(Path("mine"), content)
    assert check_bundle("mine") == []


# ---- info and tf


def test_info_tells_what_is_in_a_bundle(here):
    facts = json.loads(run("bundle", "info", "oval", "--json"))
    assert facts["triangles"] > 1000
    assert facts["drivable_area_m2"] == pytest.approx(10 * 348.5 + 44 * 10, rel=0.001)
    assert "32 beams x 1024" in run("bundle", "info", "oval")
    with pytest.raises(MicroSimError, match="did you mean 'oval'"):
        run("bundle", "info", "ovla")


def test_info_prints_no_origin_that_is_not_known(here):
    assert json.loads(run("bundle", "info", "street", "--json"))["origin_wgs84"] == []
    (line,) = (line for line in run("bundle", "info", "street").splitlines() if line.startswith("origin wgs84"))
    assert line.split()[2:] == ["not", "known"]
    assert "35.6586, 139.745, 40" in run("bundle", "info", "oval")


def test_info_counts_overlapping_polygons_once(here):
    folder = small_bundle(here / "small")

    def edit(data):
        square = [[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]
        moved = [[x + 5, y] for x, y in square]
        hole = [[1, 1], [1, 2], [2, 2], [2, 1], [1, 1]]
        first = data["features"][0]
        first["geometry"]["coordinates"] = [square, hole]
        data["features"].append({**first, "geometry": {"type": "Polygon", "coordinates": [moved]}})

    change(folder / "geometry/drivable.geojson", edit)
    assert json.loads(run("bundle", "info", "small", "--json"))["drivable_area_m2"] == 149.0


def test_every_world_generator_is_a_template(here):
    from microsim.parts.worlds.generate import generate_world, world_templates

    assert world_templates() == ["minimal", "oval"]
    assert "<minimal|oval>" in run("bundle", "new", "--help")
    with pytest.raises(UsageError, match="did you mean 'oval'"):
        generate_world("ovla", "mine")


def test_tf_derives_the_transforms_from_the_calibration(here):
    folder = small_bundle(here / "small")
    (folder / "sensors/tf_static.json").unlink()
    change(
        folder / "sensors/calibration.yaml",
        lambda data: data["cameras"]["front"]["extrinsics"].update(translation=[2.0, 0.1, 1.0]),
    )
    assert check_bundle(folder)
    assert "wrote" in run("bundle", "tf", "small")
    assert check_bundle(folder) == []
    assert "is as the calibration has it" in run("bundle", "tf", "small")
    printed = json.loads(run("bundle", "tf", "small", "-o", "-"))
    assert printed["transforms"][0]["translation"] == [2.0, 0.1, 1.0]
    assert printed["transforms"][0]["child"] == "camera_front"
    (folder / "sensors/calibration.yaml").write_text("version: 1.0.0\ncameras: 3\n")
    with pytest.raises(BundleError, match="cameras"):
        run("bundle", "tf", "small")


# ---- import-splat


def usual_ply(count: int, degree: int, form: str = "binary_little_endian") -> tuple[bytes, np.ndarray]:
    """Gaussians as the usual programs write them: normals, w first, coefficients before opacity and scale."""
    rest = [name for name in columns_of(degree) if name.startswith("f_rest_")]
    names = ["x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2", *rest, "opacity"]
    names += ["scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3"]
    values = np.random.default_rng(1).normal(0.0, 1.0, (count, len(names))).astype(np.float32)
    lines = ["ply", f"format {form} 1.0", f"element vertex {count}", *(f"property float {name}" for name in names)]
    header = ("\n".join([*lines, "end_header"]) + "\n").encode()
    table = {name: values[:, index] for index, name in enumerate(names)}
    if form == "ascii":
        data = "\n".join(" ".join(repr(float(value)) for value in row) for row in values).encode()
    else:
        data = values.astype("<f4" if form == "binary_little_endian" else ">f4").tobytes()
    ordered = np.stack([table[name] for name in (*FIXED_COLUMNS, *rest)], axis=1)
    return header + data, ordered.astype(np.float64)


def as_xyzw(rows: np.ndarray) -> np.ndarray:
    quat = rows[:, [7, 8, 9, 6]]
    return quat / np.sqrt((quat**2).sum(axis=1))[:, None]


@pytest.mark.parametrize("form", ["binary_little_endian", "binary_big_endian", "ascii"])
def test_the_usual_ply_becomes_one_of_a_bundle(here, form):
    raw, rows = usual_ply(500, 2, form)
    (here / "scan.ply").write_bytes(raw)
    assert "took 500 of 500" in run("bundle", "import-splat", "scan.ply", "street")
    found = load_bundle("street").gaussians
    assert found.sh_degree == 2
    np.testing.assert_allclose(found.values[:, 0:6], rows[:, 0:6], rtol=1e-6)
    np.testing.assert_allclose(found.values[:, 6:10], as_xyzw(rows), atol=1e-6)
    np.testing.assert_allclose(found.values[:, 10:], rows[:, 10:], rtol=1e-6)
    assert [problem.rule for problem in check_bundle("street")] == ["drivable-empty"]


def test_an_import_can_be_cropped_thinned_out_and_plainer(here):
    raw, rows = usual_ply(2000, 3)
    (here / "scan.ply").write_bytes(raw)
    run("bundle", "import-splat", "scan.ply", "part", "--crop=-1,1,-0.5,2", "--keep", "300", "--sh-degree", "1")
    run("bundle", "import-splat", "scan.ply", "again", "--crop=-1,1,-0.5,2", "--keep", "300", "--sh-degree", "1")
    found = load_bundle("part").gaussians
    assert (found.count, found.sh_degree) == (300, 1)
    assert (np.abs(found.values[:, 0]) <= 1.0).all()
    assert (found.values[:, 1] >= -0.5).all()
    assert (found.values == load_bundle("again").gaussians.values).all()
    # the coefficients of each colour stand together: the first three of each are kept
    place = {tuple(row[:3].astype(np.float32).tolist()): row for row in rows}
    for row in found.values[:20]:
        whole = place[tuple(row[:3].tolist())]
        expected = [whole[14 + 15 * channel + k] for channel in range(3) for k in range(3)]
        np.testing.assert_allclose(row[14:], expected, rtol=1e-6)


@pytest.mark.parametrize("axes", AXES)
def test_turned_gaussians_look_the_same_from_turned_directions(here, axes):
    """Position, covariance and colour in every direction are those of the source, seen in the new axes."""
    raw, rows = usual_ply(50, 3)
    (here / "scan.ply").write_bytes(raw)
    options = ("--axes", axes, "--yaw-deg", "30", "--scale", "2", "--translate", "1,2,3")
    run("bundle", "import-splat", "scan.ply", "turned", *options)
    found = np.asarray(load_bundle("turned").gaussians.values, np.float64)
    upright = {
        "z-up": np.eye(3),
        "y-up": [[1, 0, 0], [0, 0, -1], [0, 1, 0]],
        "y-down": [[1, 0, 0], [0, 0, 1], [0, -1, 0]],
    }
    c, s = math.cos(math.pi / 6), math.sin(math.pi / 6)
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ np.array(upright[axes])
    np.testing.assert_allclose(found[:, :3], 2.0 * rows[:, :3] @ turn.T + [1, 2, 3], atol=1e-5)
    before, after = covariance(rows[:, 3:6], as_xyzw(rows)), covariance(found[:, 3:6], found[:, 6:10])
    np.testing.assert_allclose(after, 4.0 * turn @ before @ turn.T, rtol=1e-3, atol=1e-3)
    directions = np.random.default_rng(2).normal(size=(30, 3))
    directions /= np.sqrt((directions**2).sum(axis=1))[:, None]
    for row, source in zip(found, rows, strict=True):
        for channel in range(3):
            new = harmonics(directions @ turn.T, 3)[:, 1:] @ row[14 + 15 * channel : 29 + 15 * channel]
            old = harmonics(directions, 3)[:, 1:] @ source[14 + 15 * channel : 29 + 15 * channel]
            np.testing.assert_allclose(new, old, atol=1e-4)


def covariance(scales: np.ndarray, quats: np.ndarray) -> np.ndarray:
    x, y, z, w = quats.T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    turned = np.array(rows).transpose(2, 0, 1) * np.exp(scales)[:, None, :]
    return turned @ turned.transpose(0, 2, 1)


def test_an_import_guesses_the_ground_from_what_is_seen_and_leaves_out_what_is_not_finite(here):
    raw, _ = usual_ply(400, 0)
    table = np.frombuffer(raw[raw.index(b"end_header\n") + 11 :], "<f4").reshape(400, 17).copy()
    table[:, 0], table[:, 1] = np.tile(np.arange(20), 20) + 0.5, np.repeat(np.arange(20), 20) + 0.5
    table[:, 2], table[:, 9] = 7.0, 5.0
    table[3, 2] = np.nan
    table[5, 13:17] = 0.0  # no rotation
    (here / "flat.ply").write_bytes(raw[: raw.index(b"end_header\n") + 11] + table.tobytes())
    assert "took 398 of 400" in run("bundle", "import-splat", "flat.ply", "flat", "--resolution", "1")
    ground = load_bundle("flat").heightmap
    assert ground.values.shape == (20, 20)
    assert np.isnan(ground.values[0, [3, 5]]).all()
    assert (ground.values[np.isfinite(ground.values)] == 7.0).all()


def test_an_import_can_take_all_but_the_gaussians_from_another_bundle(here):
    raw, _ = usual_ply(30, 1)
    (here / "better.ply").write_bytes(raw)
    run("bundle", "import-splat", "better.ply", "mine", "--like", "oval")
    mine, oval = load_bundle("mine"), load_bundle("oval")
    assert (mine.name, mine.gaussians.count, mine.gaussians.sh_degree) == ("mine", 30, 1)
    assert (mine.heightmap.values == oval.heightmap.values)[np.isfinite(oval.heightmap.values)].all()
    assert mine.cameras == oval.cameras
    assert mine.gaussians.render.background_rgb == oval.gaussians.render.background_rgb


@pytest.mark.parametrize(
    ("raw", "options", "said"),
    [
        (b"no ply", (), "expected a PLY"),
        (usual_ply(10, 0)[0][:-4], (), "cut short"),
        (usual_ply(10, 0)[0].replace(b"float opacity", b"float opaque"), (), "no property opacity"),
        (usual_ply(10, 1)[0].replace(b"f_rest_8", b"g_rest_8"), (), "f_rest"),
        (usual_ply(10, 1)[0].replace(b"f_rest_8", b"opacity"), (), r"scan.ply:\d+: .* has two properties 'opacity'"),
        (usual_ply(10, 0)[0], ("--crop", "1,0,0,1"), "below its second"),
        (usual_ply(10, 0)[0], ("--crop", "1,2"), "4 or 6 numbers"),
        (usual_ply(10, 0)[0], ("--crop", "100,101,100,101"), "crop less"),
    ],
)
def test_an_import_that_cannot_be_leaves_nothing_behind(here, raw, options, said):
    (here / "scan.ply").write_bytes(raw)
    with pytest.raises(UsageError, match=said):
        run("bundle", "import-splat", "scan.ply", "street", *options)
    assert [path.name for path in here.iterdir()] == ["scan.ply"]


# ---- pack and unpack


def test_packing_gives_the_same_bytes_and_unpacking_the_same_bundle(here):
    folder = small_bundle(here / "small")
    (folder / "notes.txt").write_text("not named in world.yaml")
    (folder / "metadata.json").rename(folder / "sim/real.json")
    (folder / "metadata.json").symlink_to("sim/real.json")
    run("bundle", "pack", "small")
    run("bundle", "unpack", "small.zip", "again")
    run("bundle", "pack", "again", "second.zip")
    assert (here / "small.zip").read_bytes() == (here / "second.zip").read_bytes()
    kept = {path.relative_to(here / "again").as_posix() for path in (here / "again").rglob("*") if path.is_file()}
    assert kept == set(load_bundle("small").files)
    assert (here / "again/metadata.json").read_bytes() == (folder / "sim/real.json").read_bytes()


def test_a_bundle_with_problems_is_not_packed(here):
    folder = small_bundle(here / "small")
    (folder / "geometry/heightmap.bin").write_bytes(b"")
    with pytest.raises(BundleError):
        run("bundle", "pack", "small")
    assert [path.name for path in here.iterdir()] == ["small"]


def archive(entries: dict[str, bytes], mode: int = stat.S_IFREG | 0o644) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, data in entries.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            file.writestr(info, data)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (archive({"world.yaml": b"", "../evil.txt": b"x"}), "inside-bundle"),
        (archive({"world.yaml": b"", "/etc/evil.conf": b"x"}), "relative-path"),
        (archive({"world.yaml": b"", "sim\\evil.yaml": b"x"}), "forward-slash"),
        (archive({"world.yaml": b"", "Evil.yaml": b"x"}), "file-name"),
        (archive({"world.yaml": b"/etc/passwd"}, stat.S_IFLNK | 0o777), "not a regular file"),
        (archive({"metadata.json": b"{}"}), "no world.yaml"),
        (archive({f"f_{index}.bin": b"" for index in range(1001)}), "at most 1000 files"),
        (b"not a zip", "not a readable ZIP archive"),
        (archive({"world.yaml": b"version: 1.0.0\n"})[:-10], "not a readable ZIP archive"),
    ],
)
def test_an_archive_that_would_escape_or_is_no_bundle_leaves_nothing_behind(here, raw, said):
    (here / "bad.zip").write_bytes(raw)
    with pytest.raises(UsageError, match=said):
        run("bundle", "unpack", "bad.zip", "folder")
    assert [path.name for path in here.iterdir()] == ["bad.zip"]
    assert not (here.parent / "evil.txt").exists()


def test_an_archive_of_an_invalid_bundle_leaves_nothing_behind(here):
    (here / "bad.zip").write_bytes(archive({"world.yaml": b"version: 1.0.0\n"}))
    with pytest.raises(BundleError, match="required-file"):
        run("bundle", "unpack", "bad.zip", "folder")
    assert [path.name for path in here.iterdir()] == ["bad.zip"]


def test_an_archive_larger_than_allowed_is_refused_before_anything_is_written(here):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("world.yaml", bytes(50_000_000))
    (here / "bomb.zip").write_bytes(stream.getvalue())
    assert len(stream.getvalue()) < 100_000
    with pytest.raises(UsageError, match="larger than 1,000,000 bytes"):
        run("bundle", "unpack", "bomb.zip", "folder", "--max-size", "1MB")
    with pytest.raises(UsageError, match=r"at most 500,000 bytes of 'world\.yaml', found 50,000,000"):
        run("bundle", "unpack", "bomb.zip", "folder")
    assert [path.name for path in here.iterdir()] == ["bomb.zip"]


def test_an_archive_is_refused_before_the_disk_is_full_or_more_than_4_gb_are_written(here, monkeypatch):
    from microsim.bundle import bundle_writing

    assert bundle_writing.MAX_UNPACKED_BYTES == 4_000_000_000
    run("bundle", "pack", "minimal_test", "small.zip")
    monkeypatch.setattr(bundle_writing, "MAX_UNPACKED_BYTES", 50_000)
    with pytest.raises(UsageError, match="larger than 50,000 bytes; allow more with --max-size"):
        run("bundle", "unpack", "small.zip", "folder")
    free = types.SimpleNamespace(free=40_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(UsageError, match="has 40,000 left"):
        run("bundle", "unpack", "small.zip", "folder", "--max-size", "1MB")
    assert [path.name for path in here.iterdir()] == ["small.zip"]


@pytest.mark.parametrize("command", ["new", "info", "tf", "import-splat", "pack", "unpack"])
def test_every_command_has_help_with_examples(command):
    text = run("bundle", command, "--help")
    assert "Examples:" in text
    assert f"microsim bundle {command}" in text
