"""Things cut out of a world with a box: world and actor share its Gaussians, and together they are what was there."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.bundle import Bundle, load_bundle
from microsim.bundle.bundle_writing import write_bundle
from microsim.bundle.splat_sources import open_splats
from microsim.documents.yaml_text import read_yaml, to_yaml
from microsim.parts.worlds.apply_edits import write_edited
from microsim.parts.worlds.edits import WorldEdits, cut_outs, edit_problems, edits_of, robot_name, scenario_of
from microsim.parts.worlds.generate import generate_world
from tests.cli_support import run_microsim
from tests.support import COMPILED

BOX = {"name": "Van 1", "center": [8.0, 0.5, 1.2], "size": [3.0, 2.0, 2.0], "yaw": 0.6}
SMALL = {
    "resolution": {"width": 64, "height": 48}, "intrinsics": {"fx": 40.0, "fy": 40.0, "cx": 31.5, "cy": 23.5},
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Sloping ground, nothing but a cloud of Gaussians of degree 1 before the car, and a mesh with a part in it."""
    content = generate_world("minimal", "street")
    columns = content.heights.shape[1]
    content.heights = content.heights + (0.01 * np.arange(columns, dtype=np.float32))[None]
    rng = np.random.default_rng(2)
    cloud = np.zeros((600, 23), np.float32)
    cloud[:, 0:3] = rng.uniform([5.0, -3.0, 0.0], [12.0, 4.0, 3.0], (600, 3))
    cloud[:, 3:6] = rng.uniform(-3.0, -1.5, (600, 3))
    cloud[:, 6:10] = rng.normal(size=(600, 4))
    cloud[:, 6:10] /= np.linalg.norm(cloud[:, 6:10], axis=1)[:, None]
    cloud[:, 10], cloud[:, 11:] = 2.0, rng.normal(0.0, 0.5, (600, 12))
    content.gaussians, content.sh_degree = cloud, 1
    content.mesh = (
        np.array([[8, 0, 1], [9, 0, 1], [8, 1, 1], [-8, 0, 1], [-9, 0, 1], [-8, 1, 1]], np.float32),
        np.array([[0, 1, 2], [3, 4, 5]], np.int32),
    )
    folder = tmp_path_factory.mktemp("worlds") / "street"
    write_bundle(folder, content)
    return load_bundle(folder)


def cut(bundle: Bundle, folder: Path, **edits: Any) -> tuple[Bundle, dict[str, Any]]:
    """The world after, and the scenario that puts things back."""
    read = WorldEdits.model_validate(edits)
    after = write_edited(bundle, read, folder)
    return after, scenario_of(cut_outs(read.cut_out, read.frame, after.heightmap), str(folder))


def test_world_and_actor_share_the_gaussians_and_the_actor_has_its_own_frame(world: Bundle, tmp_path: Path) -> None:
    after, scenario = cut(world, tmp_path / "cut", objects=[{**BOX, "cut_out": True}])
    source = open_splats(tmp_path / "cut/actors/van_1.ply")
    own, before = source.rows(0, source.count), world.gaussians.column("x", 3).astype(np.float64)
    assert source.count + after.gaussians.count == world.gaussians.count
    assert source.count > 30
    start = scenario["robots"]["van_1"]["start"]["map_pose"]
    ground = float(world.heightmap.heights(np.array([start["x"]]), np.array([start["y"]]))[0])
    cosine, sine = math.cos(0.6), math.sin(0.6)
    there = own[:, 0:3] @ np.array([[cosine, sine, 0], [-sine, cosine, 0], [0, 0, 1]]) + [8.0, 0.5, ground]
    distances = np.abs(there[:, None] - before[None]).sum(axis=2).min(axis=1)
    assert distances.max() < 1e-5
    assert (np.abs(own[:, 0]) <= 1.5 + 1e-5).all()
    assert (np.abs(own[:, 1]) <= 1.0 + 1e-5).all()
    assert (np.abs(own[:, 2] + ground - 1.2) <= 1.0 + 1e-5).all()
    assert scenario["robots"]["van_1"]["size"] == pytest.approx([3.0, 2.0, 2.2 - ground], abs=1e-3)


def test_triangles_in_the_box_and_the_object_s_name_leave_with_it(world: Bundle, tmp_path: Path) -> None:
    named = write_edited(world, WorldEdits.model_validate({"objects": [BOX]}), tmp_path / "named")
    after, _ = cut(named, tmp_path / "cut", objects=[{"object": 0, **BOX, "cut_out": True}])
    assert after.objects == ()
    assert after.mesh is not None
    assert after.mesh.vertices[after.mesh.triangles].mean(axis=1)[:, 0] == pytest.approx([-25.0 / 3.0])
    assert (after.heightmap.values == world.heightmap.values).all()


@pytest.mark.skipif(not COMPILED, reason="a world as plain Python takes long")
@pytest.mark.parametrize(
    "edits",
    [
        {},
        {"scale": {"points": [[0, 0, 0], [1, 0, 0]], "length_m": 1.5}},
        {"level": [[0, 0, 0], [1, 0, 0.05], [0, 1, 0.02]]},
    ],
    ids=["as it was", "scaled", "levelled"],
)
def test_put_back_the_picture_is_the_same(edits: dict[str, Any], world: Bundle, tmp_path: Path) -> None:
    whole = write_edited(world, WorldEdits.model_validate({"start": {"x": 0, "y": 0}, **edits}), tmp_path / "whole")
    after, scenario = cut(world, tmp_path / "cut", start={"x": 0, "y": 0}, objects=[{**BOX, "cut_out": True}], **edits)
    ego = {"sensors": {"camera_front": SMALL, "lidar_top": None}}
    scenario["robots"]["ego"] = ego
    pictures = [
        microsim.Simulation(each).render("ego", "camera_front").astype(int)
        for each in (
            {"world": str(whole.root), "robots": {"ego": ego}},
            scenario,
            {"world": str(after.root), "robots": {"ego": ego}},
        )
    ]
    assert np.abs(pictures[0] - pictures[1]).max() <= 1
    assert (np.abs(pictures[0] - pictures[2]).max(axis=2) > 30).sum() > 50


@pytest.mark.parametrize(
    ("objects", "path", "message"),
    [
        ([{**BOX, "center": [0, 0, 90]}], "objects[0]", "no Gaussian has its centre in this box"),
        ([BOX, {**BOX, "name": "van-1"}], "objects[1].name", "two actors would be called 'van_1'"),
        ([{"name": "x", "cut_out": True}], "objects[0].center", "missing field 'center'"),
    ],
)
def test_what_cannot_be_cut_out_is_refused(objects: Any, path: str, message: str, world: Bundle) -> None:
    edits, problems = edits_of({"version": "1.0.0", "objects": [{**each, "cut_out": True} for each in objects]})
    problems = problems if edits is None else edit_problems(world, edits)
    assert [(each.path, message in each.message) for each in problems] == [(path, True)]


def test_without_ground_below_it_nothing_is_cut_out(tmp_path: Path) -> None:
    content = generate_world("minimal", "hole")
    content.heights = content.heights.copy()
    west, south, cell = content.west, content.south, content.resolution_m
    j, i = int((0.0 - south) / cell), int((12.0 - west) / cell)
    content.heights[j - 2 : j + 3, i - 2 : i + 3] = np.nan
    write_bundle(tmp_path / "hole", content)
    edits = WorldEdits.model_validate(
        {"objects": [{"name": "x", "center": [12, 0, 0], "size": [9, 9, 9], "cut_out": True}]}
    )
    (problem,) = edit_problems(load_bundle(tmp_path / "hole"), edits)
    assert "no ground below the middle" in problem.message


@pytest.mark.parametrize(
    ("text", "name"), [("Van 1", "van_1"), ("1", "actor_1"), ("Bäume!", "b_ume"), ("…", "actor"), ("x" * 99, "x" * 50)]
)
def test_names_of_actors_are_names_of_robots(text: str, name: str) -> None:
    assert robot_name(text) == name


def test_the_printed_lines_are_a_scenario(world: Bundle, tmp_path: Path) -> None:
    (tmp_path / "cut.yaml").write_text(to_yaml({"version": "1.0.0", "objects": [{**BOX, "cut_out": True}]}))
    done = run_microsim("bundle", "edit", str(world.root), "--apply", "cut.yaml", "-o", "cut", cwd=tmp_path)
    lines = done.stdout.split("back where it was:\n")[1]
    (tmp_path / "back.yaml").write_text(lines)
    loaded = microsim.load_scenario(tmp_path / "back.yaml")
    assert read_yaml(lines, "lines").data["world"] == "cut"
    own = loaded.robots["van_1"].own_splats
    assert own is not None
    assert own.file == str((tmp_path / "cut/actors/van_1.ply").resolve())
    assert not own.shadow
    assert microsim.load_scenario(tmp_path / "cut/actors/scenario.yaml").robots == loaded.robots
