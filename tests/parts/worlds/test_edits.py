"""Edits of worlds against closed forms: what is saved is a valid bundle, to scale, level, and nothing else changes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from microsim.bundle import Bundle, load_bundle
from microsim.bundle.bundle_writing import write_bundle, yaml_bytes
from microsim.bundle.drivable_geojson import covered_area_m2
from microsim.bundle.mapped_arrays import columns_of
from microsim.bundle.similarity import matrix_of_rpy
from microsim.bundle.splat_import import harmonics
from microsim.errors import BundleError, Problem, UsageError
from microsim.parts.worlds.apply_edits import background, replace_edited, write_edited
from microsim.parts.worlds.edits import WorldEdits, edits_of, read_edits
from microsim.parts.worlds.generate import generate_world
from tests.bundle_support import change, small_bundle

SQUARE = [[0.0, 0.0], [10.0, 0.0], [10.0, 10.0], [0.0, 10.0]]
BENCH = {"name": "bench", "center": [3.0, 4.0, 0.5], "size": [2.0, 0.5, 1.0], "yaw": 0.3}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(small_bundle(tmp_path_factory.mktemp("worlds") / "small"))


def edited(bundle: Bundle, folder: Path, **edits: Any) -> Bundle:
    return write_edited(bundle, WorldEdits.model_validate(edits), folder / "edited")


def refused(bundle: Bundle, folder: Path, **edits: Any) -> list[Problem]:
    """The problems, after making sure that nothing was written."""
    found, problems = edits_of(edits)
    if found is not None:
        with pytest.raises(BundleError) as error:
            write_edited(bundle, found, folder / "edited")
        problems = list(error.value.problems)
    assert not any(folder.iterdir())
    return problems


def tilted_plane(folder: Path, slope_x: float, slope_y: float) -> Bundle:
    """Ground z = slope_x x + slope_y y + 2, with a splat of degree 1 on every metre, flat on it."""
    content = generate_world("minimal", "tilted")
    rows, columns = content.heights.shape
    x = content.west + (np.arange(columns) + 0.5) * content.resolution_m
    y = content.south + (np.arange(rows) + 0.5) * content.resolution_m
    content.heights = (slope_x * x[None] + slope_y * y[:, None] + 2.0).astype(np.float32)
    places = np.stack(np.meshgrid(np.arange(-20.0, 21.0), np.arange(-20.0, 21.0)), axis=-1).reshape(-1, 2)
    splats = np.zeros((len(places), len(columns_of(1))), np.float32)
    splats[:, 0:2] = places
    splats[:, 2] = places @ [slope_x, slope_y] + 2.0
    splats[:, 3:6], splats[:, 9], splats[:, 10] = (-1.0, -1.0, -5.0), 1.0, 3.0
    splats[:, 14:23] = np.linspace(-0.5, 0.5, 9)
    content.gaussians, content.sh_degree = splats, 1
    write_bundle(folder / "tilted", content)
    return load_bundle(folder / "tilted")


def test_an_edit_changes_nothing_else(small: Bundle, tmp_path: Path) -> None:
    after = edited(small, tmp_path, start={"x": 1.0, "y": 8.0, "yaw_deg": 90.0})
    assert after.start is not None
    assert [after.start.x, after.start.y, after.start.yaw] == pytest.approx([1.0, 8.0, math.pi / 2])
    assert after.name == "edited"
    for name in set(small.files) - {"world.yaml"}:
        assert after.files[name].read_bytes() == small.files[name].read_bytes(), name
    assert "objects" not in (after.root / "world.yaml").read_text()


@pytest.mark.parametrize(("slope_x", "slope_y"), [(0.1, -0.05), (0.4, 0.3)])
def test_three_points_level_a_tilted_plane(tmp_path: Path, slope_x: float, slope_y: float) -> None:
    before = tilted_plane(tmp_path, slope_x, slope_y)
    points = [[x, y, slope_x * x + slope_y * y + 2.0] for x, y in ((-10, -8), (12, -7), (1, 15))]
    after = edited(before, tmp_path, level=points, objects=[BENCH], start={"x": 5.0, "y": 5.0})
    normal = np.array([-slope_x, -slope_y, 1.0]) / math.sqrt(slope_x**2 + slope_y**2 + 1.0)
    height = 2.0 * normal[2]  # of the plane above the origin, which stays where it is
    heights = after.heightmap.values[~np.isnan(after.heightmap.values)]
    assert heights.size > 0.9 * before.heightmap.values.size * min(1.0, 1.0 / normal[2])
    assert np.quantile(np.abs(heights - height), 0.97) < 1e-3  # 0.5 degrees would be 0.28 m at the edge
    assert np.abs(heights - height).max() < 0.15  # half a cell at the edge, where the slope is not known
    np.testing.assert_allclose(after.gaussians.column("z"), height, atol=1e-3)
    assert after.objects[0].center == pytest.approx(
        tuple((np.array(BENCH["center"]) @ _levelling(normal).T).tolist()), abs=1e-3
    )
    assert len(after.cameras) == len(before.cameras)


def _levelling(normal: Any) -> Any:
    """Takes the normal to z and keeps x in the plane of x and z."""
    x = np.array([1.0, 0.0, 0.0]) - normal * normal[0]
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(normal, x), normal])


def test_levelling_turns_colours_and_rotations_along(tmp_path: Path) -> None:
    before = tilted_plane(tmp_path, 0.2, 0.0)
    after = edited(before, tmp_path, level=[[0, 0, 2], [10, 0, 4], [0, 10, 2]])
    turn = _levelling(np.array([-0.2, 0.0, 1.0]) / math.hypot(0.2, 1.0))
    direction = np.array([[0.36, -0.48, 0.8]])
    coefficients = [
        np.concatenate([np.zeros((1, 3)), np.asarray(each.gaussians.column("f_rest_0", 9))[:1].reshape(3, 3).T])
        for each in (before, after)
    ]
    seen = [
        harmonics(where, 1) @ each for where, each in zip((direction, direction @ turn.T), coefficients, strict=True)
    ]
    np.testing.assert_allclose(seen[0], seen[1], atol=1e-5)
    x, y, z, w = np.asarray(after.gaussians.column("rot_0", 4))[0]
    np.testing.assert_allclose(
        [x, y, z, w], [0, math.sin(0.5 * math.atan(0.2)), 0, math.cos(0.5 * math.atan(0.2))], atol=1e-6
    )


def test_two_points_and_a_length_scale_everything(small: Bundle, tmp_path: Path) -> None:
    after = edited(small, tmp_path, scale={"points": [[1, 2, 0], [4, 6, 0]], "length_m": 10.0}, objects=[BENCH])
    assert after.heightmap.resolution_m == pytest.approx(2 * small.heightmap.resolution_m, rel=1e-9)
    np.testing.assert_allclose(after.heightmap.values, 2 * small.heightmap.values, rtol=1e-6)
    np.testing.assert_allclose(after.gaussians.column("x", 3), 2 * small.gaussians.column("x", 3), rtol=1e-6)
    np.testing.assert_allclose(
        after.gaussians.column("scale_0", 3), small.gaussians.column("scale_0", 3) + math.log(2), atol=1e-6
    )
    assert after.mesh is not None
    assert small.mesh is not None
    np.testing.assert_allclose(after.mesh.vertices.max(axis=0), 2 * small.mesh.vertices.max(axis=0), rtol=1e-6)
    assert covered_area_m2(after.drivable) == pytest.approx(4 * covered_area_m2(small.drivable))
    assert after.start is not None
    assert (after.start.x, after.start.yaw) == (-30.0, 0.0)
    assert after.objects[0].size == (4.0, 1.0, 2.0)


def test_polygons_are_added_changed_and_removed(small: Bundle, tmp_path: Path) -> None:
    hole = [[2, 2], [4, 2], [4, 4], [2, 4]]
    after = edited(
        small,
        tmp_path,
        drivable=[{"outer": SQUARE[::-1], "holes": [hole], "priority": 3}, {"outer": [[20, 20], [22, 20], [22, 22]]}],
    )
    assert after.drivable.count == 3
    assert after.drivable.priority.tolist() == [0, 3, 0]
    again = edited(
        after, tmp_path / "again", drivable=[{"polygon": 0, "remove": True}, {"polygon": 1, "outer": SQUARE}]
    )
    assert covered_area_m2(again.drivable) == pytest.approx(102.0)
    assert again.drivable.priority.tolist() == [3, 0]  # as before
    assert again.drivable.polygon_at(3.0, 3.0) == 0


def test_a_crop_removes_what_is_outside_and_keeps_the_sky(small: Bundle, tmp_path: Path) -> None:
    after = edited(
        small,
        tmp_path,
        crop={"x": [-20, 5], "y": [-10, 10]},
        objects=[BENCH, {**BENCH, "name": "far", "center": [15, 0, 0]}],
    )
    grid = after.heightmap
    assert (grid.west, grid.south, *grid.size_m) == (-20.0, -10.0, 25.0, 20.0)
    np.testing.assert_array_equal(grid.values, small.heightmap.values[44:84, 24:74])
    x, y = np.asarray(after.gaussians.column("x", 2)).T
    assert after.gaussians.count > 0
    assert ((x >= -20) & (x <= 5) & (y >= -10) & (y <= 10) | background(after)).all()
    assert covered_area_m2(after.drivable) == pytest.approx(25 * 20)
    assert after.mesh is not None
    assert [each.name for each in after.objects] == ["bench"]


def test_a_crop_can_take_the_sky_and_the_mesh_away(small: Bundle, tmp_path: Path) -> None:
    after = edited(small, tmp_path, crop={"x": [-20, -5], "y": [-10, 10], "z": [-1, 5], "keep_background": False})
    assert after.mesh is None
    x, y, z = np.asarray(after.gaussians.column("x", 3)).T
    assert len(x) > 0
    assert ((x >= -20) & (x <= -5) & (np.abs(y) <= 10) & (z <= 5)).all()


def test_objects_are_named_renamed_and_removed(small: Bundle, tmp_path: Path) -> None:
    after = edited(small, tmp_path, objects=[BENCH, {**BENCH, "name": "tree"}])
    assert [each.name for each in after.objects] == ["bench", "tree"]
    assert after.objects[0].yaw == 0.3
    again = edited(after, tmp_path / "again", objects=[{"object": 0, "remove": True}, {"object": 1, **BENCH}])
    assert [each.name for each in again.objects] == ["bench"]
    last = edited(again, tmp_path / "last", objects=[{"object": 0, "remove": True}])
    assert last.objects == ()
    assert not (last.root / "geometry/objects.yaml").exists()


REFUSED = [
    ({"level": [[0, 0, 0], [1, 0, 0], [2, 0, 0]]}, "level", "on one line"),
    ({"level": [[0, 0, 0], [1, 0, 2], [0, 1, 0]]}, "level", "tilted by 63 degrees"),
    ({"scale": {"points": [[0, 0, 0], [0, 0, 0]], "length_m": 2}}, "scale", "found 2 m for 0 m"),
    ({"scale": {"points": [[0, 0, 0], [1, 0, 0]], "length_m": -2}}, "scale.length_m", "above 0"),
    ({"crop": {"x": [5, 5], "y": [0, 1]}}, "crop.x", "the lower bound first"),
    ({"crop": {"x": [500, 600], "y": [0, 1]}}, "crop", "nothing of the map"),
    ({"drivable": [{"outer": [[0, 0], [4, 4], [4, 0], [0, 4]]}]}, "drivable[0]", "crosses itself"),
    ({"drivable": [{"polygon": 7, "remove": True}]}, "drivable[0].polygon", "its polygons are 0 to 0"),
    ({"drivable": 2 * [{"polygon": 0, "outer": SQUARE}]}, "drivable[1].polygon", "two edits"),
    ({"drivable": [{"remove": True}]}, "drivable[0].remove", "missing field 'polygon'"),
    ({"drivable": [{"outer": SQUARE[:2]}]}, "drivable[0].outer", "at least 3"),
    ({"objects": [BENCH, BENCH]}, "objects[1].name", "another object is called 'bench'"),
    ({"objects": [{"name": "bench"}]}, "objects[0].center", "missing field 'center'"),
    ({"objects": [{"object": 0, "remove": True}]}, "objects[0].object", "it has no objects"),
    ({"start": {"x": 500.0, "y": 0.0}}, "start", "outside the map"),
    ({"start": {"x": 10.0, "y": 0.0}, "crop": {"x": [-20, 0], "y": [-9, 9]}}, "start", "outside the map"),
    ({"strat": {"x": 0.0, "y": 0.0}}, "strat", "did you mean 'start'?"),
]  # fmt: skip


@pytest.mark.parametrize(("edits", "path", "words"), REFUSED, ids=[f"{path} {words}" for _, path, words in REFUSED])
def test_a_wrong_edit_is_refused_where_it_is(
    small: Bundle, tmp_path: Path, edits: dict[str, Any], path: str, words: str
) -> None:
    problems = refused(small, tmp_path, **edits)
    assert [each.path for each in problems] == [path]
    assert words in problems[0].message


def test_edits_are_read_from_a_file_with_the_lines_of_its_mistakes(small: Bundle, tmp_path: Path) -> None:
    file = tmp_path / "edits.yaml"
    edits = WorldEdits.model_validate(
        {"drivable": [{"outer": SQUARE}], "start": {"x": 0.5, "y": 5.0}, "objects": [BENCH]}
    )
    file.write_bytes(yaml_bytes(edits.as_data()))
    assert read_edits(file).as_data() == edits.as_data()
    change(file, lambda data: data["objects"][0].update(size=[1, 2]))
    with pytest.raises(
        BundleError, match=r"edits.yaml:\d+:\d+: objects\[0\].size: expected \[x, y, z\], found 2 values"
    ):
        read_edits(file)
    with pytest.raises(BundleError, match="no such file"):
        read_edits(tmp_path / "other.yaml")


def test_a_world_is_replaced_only_when_the_new_one_is_valid(tmp_path: Path) -> None:
    folder = small_bundle(tmp_path / "small")
    (folder / "notes").mkdir()
    (folder / "notes/mine.txt").write_text("keep me")
    before = load_bundle(folder)
    with pytest.raises(BundleError):
        replace_edited(before, WorldEdits.model_validate({"start": {"x": 500.0, "y": 0.0}}), folder)
    assert load_bundle(folder).start == before.start
    after = replace_edited(
        before, WorldEdits.model_validate({"start": {"x": 5.0, "y": 5.0}, "objects": [BENCH]}), folder
    )
    assert after.start is not None
    assert after.start.x == 5.0
    assert after.name == before.name
    assert (folder / "notes/mine.txt").read_text() == "keep me"
    assert [each.name for each in tmp_path.iterdir()] == ["small"]
    with pytest.raises(UsageError, match="already exists"):
        write_edited(after, WorldEdits(), folder)
    with pytest.raises(UsageError, match="is a shipped world"):
        replace_edited(load_bundle("minimal_test"), WorldEdits(), load_bundle("minimal_test").root)


@settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    roll=st.floats(-0.3, 0.3),
    pitch=st.floats(-0.3, 0.3),
    factor=st.floats(0.1, 10.0),
    x=st.floats(-12, 12),
    y=st.floats(-12, 12),
)
def test_what_was_at_a_point_of_the_ground_is_there_after_any_turn_and_scale(
    tmp_path_factory: pytest.TempPathFactory,
    roll: float,
    pitch: float,
    factor: float,
    x: float,
    y: float,
) -> None:
    """The start, a polygon and an object that were in one place still are, on the ground, and to scale."""
    bundle = load_bundle("minimal_test")
    up = matrix_of_rpy(roll, pitch, 0.0)[2]
    points = [[a, b, -(up[0] * a + up[1] * b) / up[2]] for a, b in ((0, 0), (9, 0), (0, 9))]
    z = float(bundle.heightmap.heights(np.array([x]), np.array([y]))[0])
    corners = [[x - 1, y - 1], [x + 1, y - 1], [x + 1, y + 1], [x - 1, y + 1]]
    after = edited(
        bundle, tmp_path_factory.mktemp("any"), level=points,
        scale={"points": [[0, 0, 0], [1, 0, 0]], "length_m": factor},
        drivable=[{"polygon": 0, "remove": True}, {"outer": corners}], start={"x": x + 0.2, "y": y},
        objects=[{"name": "here", "center": [x, y, z], "size": [1, 1, 1]}],
    )  # fmt: skip
    here = np.array(after.objects[0].center)
    assert np.linalg.norm(here) == pytest.approx(factor * np.linalg.norm([x, y, z]), rel=1e-3, abs=1e-3)
    assert after.drivable.polygon_at(here[0], here[1]) == 0
    ground = float(after.heightmap.heights(here[:1], here[1:2])[0])
    assert ground == pytest.approx(here[2], abs=0.02 * factor)
    assert after.start is not None
    assert math.hypot(after.start.x - here[0], after.start.y - here[1]) == pytest.approx(0.2 * factor, rel=0.1)
