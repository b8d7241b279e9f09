"""The shipped worlds: made by their programs to the byte, valid, and consistent in themselves."""

import re
from pathlib import Path

import numpy as np
import pytest

from microsim import paths
from microsim.bundle import check_bundle, load_bundle
from microsim.bundle.bundle_model import BundleBlock
from microsim.bundle.bundle_writing import bundle_files
from microsim.parts.worlds.edits import CropEdit
from microsim.parts.worlds.generate import generate_world
from microsim.parts.worlds.generate import world_oval as track

MAKERS = {"minimal_test": "minimal", "oval": "oval"}


DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_every_field_that_is_read_is_in_the_documentation():
    def blocks(kind: type[BundleBlock]) -> set[type[BundleBlock]]:
        return {kind}.union(*(blocks(each) for each in kind.__subclasses__()))

    assert CropEdit in blocks(BundleBlock)  # those of files of edits too
    names = {name for kind in blocks(BundleBlock) for name in kind.key_names()} - {"transforms"}
    assert len(names) > 50
    pages = "".join((DOCS / page).read_text(encoding="utf-8") for page in ("lookup/world_bundle.md", "do/editor.md"))
    missing = [name for name in sorted(names) if not re.search(rf"\b{name.removesuffix('_deg')}(?:_deg)?\b", pages)]
    assert missing == []


@pytest.fixture(scope="module")
def oval():
    return load_bundle("oval")


def test_the_shipped_worlds_are_listed_by_name():
    assert paths.world_names() == sorted([*MAKERS, "street"])  # of which test_trained_street.py tells how it was made


@pytest.mark.parametrize("name", MAKERS)
def test_a_shipped_world_is_what_its_program_makes_to_the_byte(name):
    folder = paths.world_folder(name)
    made = bundle_files(generate_world(MAKERS[name], name))
    kept = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert sorted(made) == sorted(kept)
    assert [file for file in made if made[file] != kept[file]] == []
    assert sum(map(len, made.values())) <= 20_000_000


@pytest.mark.parametrize("name", ["oval", "worlds/oval", "minimal_test", "worlds/minimal_test", "street"])
def test_a_shipped_world_has_no_problem_and_no_warning(name):
    assert check_bundle(name) == []


def test_the_minimal_world_is_what_the_document_asks_for():
    world = load_bundle("minimal_test")
    assert world.gaussians.count == 100
    assert world.heightmap.values.shape == (128, 128)
    assert world.drivable.count == len(world.cameras) == len(world.lidars) == 1


def test_the_oval_has_three_cameras_a_lidar_of_32_beams_and_about_100_000_gaussians(oval):
    assert len(oval.cameras) == 3
    assert [len(lidar.elevations) for lidar in oval.lidars.values()] == [32]
    assert 90_000 <= oval.gaussians.count <= 110_000
    assert oval.mesh is not None
    assert len(oval.mesh.triangles) > 1000


def test_a_car_on_the_centre_line_of_the_oval_is_never_off_road(oval):
    half = 0.8
    for s in np.arange(0.0, track.LENGTH, 0.5):
        x, y, ux, uy = track.along(float(s))
        wheels = [(x + a * ux - b * uy, y + a * uy + b * ux) for a in (0.0, 2.7) for b in (-half, half)]
        points = np.array([(x, y), *wheels])
        first, outside = oval.drivable.footprint(points[:, 0].copy(), points[:, 1].copy())
        assert (first, outside) == (0, 0)


def test_off_the_asphalt_of_the_oval_is_off_road(oval):
    for across in (5.5, 8.0, -5.5, -20.0):
        x, y, _, _ = track.along(100.0, across)
        assert oval.drivable.polygon_at(x, y) == -1


def test_the_pit_has_a_priority_of_its_own_where_the_road_does_not_cover_it(oval):
    assert oval.drivable.polygon_at(0.0, -26.0) == 0
    assert oval.drivable.polygon_at(0.0, -20.0) == 1
    assert oval.drivable.priority.tolist() == [0.0, 1.0]


def test_there_is_ground_everywhere_but_in_the_pond_and_the_road_is_gentle(oval):
    heights = oval.heightmap.values
    rows, columns = np.nonzero(np.isnan(heights))
    x = oval.heightmap.west + (columns + 0.5) * oval.heightmap.resolution_m
    y = oval.heightmap.south + (rows + 0.5) * oval.heightmap.resolution_m
    assert rows.size > 100
    assert (np.hypot(x - track.POND[0], y - track.POND[1]) <= track.POND[2]).all()
    ground = track.course_ground()
    places = np.array(
        [track.along(s, across)[:2] for s in np.arange(0.0, track.LENGTH, 2.0) for across in (-4.0, 0.0, 4.0)]
    )
    normals = ground.normal(places[:, 0], places[:, 1])
    assert normals[:, 2].min() > 0.985  # less than 10 degrees
    assert np.ptp(ground.height(places[:, 0], places[:, 1])) > 2.0


def test_what_stands_in_the_oval_is_seen_by_cameras_and_lidar_at_the_same_place(oval):
    """Every Gaussian well above the ground lies on a triangle of the mesh; leaves lie within 0.6 m of theirs."""
    assert oval.mesh is not None
    ground = track.course_ground()
    splats = np.asarray(oval.gaussians.values[:, :3], np.float64)
    high = splats[splats[:, 2] > ground.height(splats[:, 0], splats[:, 1]) + 0.5][::50]
    corners = oval.mesh.vertices[oval.mesh.triangles]
    middles = corners.mean(axis=1)
    reach = np.sqrt(((corners - middles[:, None]) ** 2).sum(axis=2)).max(axis=1)
    assert len(high) > 300
    for point in high:
        off = float(track.offset(point[:1], point[1:2])[0])
        room = 0.0 if -7.0 < off < track.WALL_OFFSET + 1.0 else 0.6  # no leaf hangs so near to the road
        near = np.flatnonzero(((middles - point) ** 2).sum(axis=1) <= (reach + room) ** 2)
        assert any(_height_above(point, corners[index]) < 0.02 + room for index in near), point


def _height_above(point, triangle):
    normal = np.cross(triangle[1] - triangle[0], triangle[2] - triangle[0])
    return abs((point - triangle[0]) @ normal) / np.sqrt(normal @ normal)


def test_no_wall_cone_or_tree_stands_on_the_road(oval):
    assert oval.mesh is not None
    x, y = oval.mesh.vertices[:, 0], oval.mesh.vertices[:, 1]
    assert not [point for point in zip(x.tolist(), y.tolist(), strict=True) if oval.drivable.polygon_at(*point) == 0]


def test_the_cameras_of_the_oval_look_where_their_names_say(oval):
    """The optical axis in base_link (x forward, y left): third column of the rotation."""
    ahead = {}
    for name, camera in oval.cameras.items():
        x, y, z, w = camera.optical_quat
        ahead[name] = (2.0 * (x * z + w * y), 2.0 * (y * z - w * x))
    assert ahead["front"] == pytest.approx((1.0, 0.0), abs=1e-9)
    assert ahead["front_left"] == pytest.approx((0.5**0.5, 0.5**0.5))
    assert ahead["front_right"] == pytest.approx((0.5**0.5, -(0.5**0.5)))
