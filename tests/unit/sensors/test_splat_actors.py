"""Actors made of their own splats: drawn as if their Gaussians were part of the world, where the actor is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.bundle.bundle_writing import splat_header
from microsim.bundle.similarity import Similarity, matrix_of_rpy
from microsim.bundle.splat_import import write_splats
from microsim.bundle.splat_sources import open_splats
from microsim.errors import ScenarioError
from microsim.render.palette_camera import CameraModel
from microsim.render.splat.activation import activate
from microsim.render.splat.picture import CpuRenderer, Picture, Shot, SplatActor, Things, lens_of
from microsim.render.splat.rasteriser import Rasteriser
from tests.support import COMPILED, decoded, many
from tests.unit.render import splat_scenes

UNTURNED = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
AHEAD = ((0.0, 0.0, 1.0), (-1.0, 0.0, 0.0), (0.0, -1.0, 0.0))  # looking along x
CAMERA = CameraModel(48, 32, 30.0, 30.0, 23.5, 15.5)
FISHEYE = CameraModel(48, 32, 20.0, 20.0, 23.5, 15.5, (-0.02, 0.005, 0.0, 0.0), True)
C0 = 0.28209479177387814

compiled = pytest.mark.skipif(not COMPILED, reason="the minimal world as plain Python takes long; renderers are tested")


def gaussian(place: Any, colour: Any, scale: Any = (0.3, 0.3, 0.3), first: Any = ((0.0,) * 3,) * 3) -> Any:
    """A row with harmonics of degree 1: of each of the three further coefficients red, green, blue."""
    harmonics = np.concatenate([[(np.array(colour) - 0.5) / C0], np.array(first)])[None]
    return splat_scenes.file_rows(np.array([place]), np.array([scale]), np.array([[0, 0, 0, 1.0]]), [0.98], harmonics)


def thing(count: int = 400, degree: int = 3) -> Any:
    """A cloud of all kinds of Gaussians, 2 m wide, about the origin."""
    rows = splat_scenes.yard(many(count, 40), seed=5, degree=degree)
    rows[:, 0:3] = np.random.default_rng(3).uniform([-1, -1, 0], [1, 1, 2], (len(rows), 3))
    rows[:, 3:6] = np.log(0.15) + 0.3 * rows[:, 0:3]
    return rows


def drawn(world: Any, *actors: SplatActor, degree: int = 3, camera: CameraModel = CAMERA, **changes: Any) -> Picture:
    shot = Shot(lens_of(camera), (0.0, 0.0, 1.0), AHEAD, actors=actors, **changes)
    return CpuRenderer(activate(world, degree)).pictures([shot])[0]


def rows_as(rows: Any, matrix: Any, place: Any, folder: Path, degree: int = 3) -> Any:
    """The same Gaussians somewhere else, turned as importing a capture turns them."""
    (folder / "rows.ply").write_bytes(splat_header(len(rows), degree) + rows.tobytes())
    source = open_splats(folder / "rows.ply", w_first=False)
    write_splats(source, folder / "moved.ply", Similarity(matrix, 1.0, place), np.ones(len(rows), bool), degree)
    moved = open_splats(folder / "moved.ply", w_first=False)
    return moved.rows(0, moved.count).astype(np.float32)


# ---- the renderer


@pytest.mark.parametrize("camera", [CAMERA, FISHEYE], ids=["pinhole", "fisheye"])
def test_at_the_origin_an_actor_is_as_if_it_were_part_of_the_world(camera: CameraModel) -> None:
    world, own = splat_scenes.yard(many(2000, 100)), thing() + np.float32(1e-3)
    own[:, 0] += 4.0
    actor = SplatActor(activate(own), (0.0, 0.0, 0.0), UNTURNED)
    apart, baked = drawn(world, actor, camera=camera), drawn(np.vstack([world, own]), camera=camera)
    assert apart.colours.tobytes() == baked.colours.tobytes()
    assert apart.depths.tobytes() == baked.depths.tobytes()
    assert (apart.colours != drawn(world, camera=camera).colours).any(axis=2).mean() > 0.05


@pytest.mark.parametrize("rpy", [(0.0, 0.0, 1.0), (0.0, 0.0, -2.6), (0.4, -0.3, 2.0)])
@pytest.mark.parametrize("degree", [0, 3])
def test_wherever_it_stands_it_is_as_if_it_were_part_of_the_world(
    rpy: tuple[float, float, float], degree: int, tmp_path: Path
) -> None:
    world, own, matrix, place = splat_scenes.yard(many(2000, 100)), thing(degree=degree), matrix_of_rpy(*rpy), (4, 1, 0)
    rotation = tuple(tuple(row) for row in matrix.tolist())
    apart = drawn(world, SplatActor(activate(own, degree), place, rotation))  # type: ignore[arg-type]
    there = rows_as(own, matrix, place, tmp_path, degree)
    if degree == 0:
        there = np.concatenate([there, np.zeros((len(there), 45), np.float32)], axis=1)
    baked = drawn(np.vstack([world, there]))
    assert np.abs(apart.colours.astype(int) - baked.colours).max() <= 1
    assert (apart.colours != drawn(world).colours).any(axis=2).mean() > 0.05


def test_a_quarter_turn_in_closed_form() -> None:
    """About z, x becomes y and y becomes -x: place, scales and the harmonics -C1 y, C1 z, -C1 x by hand."""
    first = ((0.2, -0.1, 0.05), (0.1, 0.2, -0.2), (-0.15, 0.3, 0.1))
    own = gaussian((0.5, 0.25, 1.0), (0.6, 0.4, 0.3), (0.6, 0.2, 0.1), first)
    turned = gaussian((3.75, 0.5, 1.0), (0.6, 0.4, 0.3), (0.2, 0.6, 0.1), (first[2], first[1], -np.array(first[0])))
    quarter = ((0.0, -1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
    empty = np.empty((0, own.shape[1]), np.float32)
    found = drawn(empty, SplatActor(activate(own, 1), (4.0, 0.0, 0.0), quarter), degree=1)
    expected = drawn(turned, degree=1)
    assert expected.colours.max() > 100
    assert np.abs(found.colours.astype(int) - expected.colours).max() <= 1
    assert found.depths == pytest.approx(expected.depths)


@pytest.mark.parametrize(("actor", "expected"), [(3.0, "green"), (7.0, "red")])
def test_what_is_nearer_hides_what_is_farther(actor: float, expected: str) -> None:
    wall = np.vstack([gaussian((5.0 + 0.01 * k, 0.0, 1.0), (1.0, 0.0, 0.0)) for k in range(3)])
    own = np.vstack([gaussian((0.01 * k, 0.0, 1.0), (0.0, 1.0, 0.0)) for k in range(3)])
    found = drawn(wall, SplatActor(activate(own, 1), (actor, 0.0, 0.0), UNTURNED), degree=1).colours[15, 23]
    assert {"red": found[0], "green": found[1]}[expected] > 240


def test_a_thing_before_an_actor_hides_it_and_one_behind_does_not() -> None:
    own = SplatActor(activate(gaussian((3.0, 0.0, 1.0), (0.0, 1.0, 0.0)), 1), (0.0, 0.0, 0.0), UNTURNED)
    empty, colours = np.empty((0, 23), np.float32), np.full((32, 48, 3), 90, np.uint8)
    near, far = (
        drawn(empty, own, degree=1, things=Things(np.full((32, 48), depth, np.float32), colours)).colours[15, 23]
        for depth in (2.0, 4.0)
    )
    assert near.tolist() == [90, 90, 90]
    assert far[1] > 200


def test_outside_the_view_nothing_of_an_actor_is_looked_at() -> None:
    world, own = activate(splat_scenes.yard(many(2000, 300))), activate(thing(3000))
    view = Shot(lens_of(CAMERA), (0.0, 0.0, 1.0), AHEAD).view
    behind = SplatActor(own, (-8.0, 0.0, 0.0), UNTURNED)
    before = SplatActor(own, (8.0, 0.0, 0.0), UNTURNED)
    chunks = [Rasteriser(world)._project(view, [(each.view(view), own)]) for each in (behind, before)]
    assert chunks == [Rasteriser(world)._project(view), chunks[0] + own.spheres.shape[0]]


# ---- a run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With `post.ply`: a green post, as other programs write it."""
    found = tmp_path_factory.mktemp("actors")
    rows = np.vstack([gaussian((0.0, 0.0, 0.1 * k), (0.1, 0.9, 0.1), (0.2, 0.2, 0.1)) for k in range(20)])
    (found / "post.ply").write_bytes(splat_header(len(rows), 1, w_first=True) + rows.tobytes())
    return found


def scenario(render: Any = None, **actor: Any) -> dict[str, Any]:
    camera = {
        "resolution": {"width": 64, "height": 48}, "intrinsics": {"fx": 40.0, "fy": 40.0, "cx": 31.5, "cy": 23.5},
        **({"render": render} if render else {}),
    }  # fmt: skip
    walker = {"model": "actor", "shape": "box", "size": [0.5, 0.5, 2.0], **actor}
    return {
        "world": "worlds/minimal_test",
        "robots": {"ego": {"sensors": {"camera_front": camera, "lidar_top": {"columns": 90}}}, "walker": walker},
    }


def ahead_of_the_car(metres: float = 6.0, **actor: Any) -> dict[str, Any]:
    start = microsim.Simulation("minimal_test").state("ego")
    x, y = start.x + metres * math.cos(start.yaw), start.y + metres * math.sin(start.yaw)
    pose = {"map_pose": {"x": x, "y": y, "yaw": 0.4}}
    return scenario(start=pose, **actor)


def messages(data: Any, topic: str, ticks: int = 1) -> list[Any]:
    return decoded(microsim.Simulation(data).step(ticks), topic)


def image(data: Any) -> Any:
    found = messages(data, "/ego/camera_front/image_raw")[0]
    return np.frombuffer(bytes(found.data), np.uint8).reshape(found.height, found.width, 3).astype(int)


@compiled
def test_a_splat_camera_shows_the_splats_with_a_shadow_and_a_plain_one_the_model(folder: Path) -> None:
    splats = {"splats": str(folder / "post.ply")}
    model, own = image(ahead_of_the_car()), image(ahead_of_the_car(**splats))
    green = (own[:, :, 1] > own[:, :, 0] + 60) & (own[:, :, 1] > own[:, :, 2] + 60)
    columns = np.nonzero(green)[1]
    assert 20 < green.sum() < 400
    assert abs(columns.mean() - 31.5) < 2.0
    assert not ((model[:, :, 1] > model[:, :, 0] + 60) & (model[:, :, 1] > model[:, :, 2] + 60)).any()
    bare = image(ahead_of_the_car(splats={"file": splats["splats"], "shadow": False}))
    darker = own.sum(axis=2) < bare.sum(axis=2) - 20
    assert darker.sum() > 5
    assert (own[~darker] == bare[~darker]).mean() > 0.9
    plain = [image(ahead_of_the_car(render="plain", **each)) for each in ({}, splats)]
    assert (plain[0] == plain[1]).all()


@compiled
def test_it_moves_with_the_actor_and_everything_else_senses_its_body(folder: Path) -> None:
    here, farther = (image(ahead_of_the_car(splats=str(folder / "post.ply"), metres=m)) for m in (6.0, 12.0))
    sizes = [((each[:, :, 1] > each[:, :, 0] + 60) & (each[:, :, 1] > 120)).sum() for each in (here, farther)]
    assert sizes[0] > 2 * sizes[1] > 0
    clouds = [
        messages(ahead_of_the_car(**each), "/ego/lidar_top/points", 20)[-1].data
        for each in ({}, {"splats": str(folder / "post.ply")})
    ]
    assert bytes(clouds[0]) == bytes(clouds[1])


# ---- files


def test_only_where_it_is_written_is_it_part_of_a_scenario(folder: Path) -> None:
    without = microsim.load_scenario(scenario()).to_dict()["robots"]["walker"]
    assert "splats" not in without
    finished = microsim.load_scenario(scenario(splats=str(folder / "post.ply")))
    block = finished.to_dict()["robots"]["walker"]["splats"]
    assert block["file"] == str((folder / "post.ply").resolve())
    assert len(block["sha256"]) == 64
    assert microsim.load_scenario(finished.to_dict()) == finished


def test_a_file_beside_the_scenario_is_found(folder: Path) -> None:
    (folder / "world.yaml").write_text(
        "robots: {walker: {model: actor, splats: post.ply, start: {map_pose: {x: 5, y: 5}}}}"
    )
    found = microsim.load_scenario(folder / "world.yaml").robots["walker"].own_splats
    assert found is not None
    assert found.file == str((folder / "post.ply").resolve())


def complaint(data: Any) -> str:
    with pytest.raises(ScenarioError) as error:
        microsim.load_scenario(data)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("gone.ply", None, "no such file: "),
        ("car.obj", b"v 0 0 0", "expected a file .ply, .splat, .spz or .sog"),
        ("car.ply", b"solid", "car.ply"),
        ("mesh.ply", b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nend_header\n0\n", "not a splat"),
        ("car.splat", b"123", "expected 32 bytes for each Gaussian, found 3 bytes"),
        ("nothing.splat", bytes(64), "none of its 2 Gaussians can be drawn"),
        ("car.spz", b"123", "not an spz file"),
        ("cut.ply", splat_header(1000, 0, w_first=True), "the file is cut short"),
        ("large.ply", splat_header(1_000_001, 0) + bytes(56 * 1_000_001), "at most 1,000,000 Gaussians"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(
    name: str, content: bytes | None, expected: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    found = complaint(scenario(splats=str(tmp_path / name)))
    assert expected in found
    assert "robots.walker.splats" in found


def test_a_file_that_has_changed_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "post.ply"
    copy.write_bytes((folder / "post.ply").read_bytes())
    data = microsim.load_scenario(scenario(splats=str(copy))).to_dict()
    copy.write_bytes((folder / "post.ply").read_bytes()[:-1] + b"\x3f")
    assert "has changed: its SHA-256 is" in complaint(data)
