"""A loaded scenario means the same in every working directory, whatever files it names and whatever is there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import microsim
from microsim import paths
from microsim.bundle.bundle_writing import splat_header
from microsim.errors import ScenarioError
from microsim.parts.sweep.run_one import scenario_content
from microsim.recording.bag_io import RecordOptions, open_bag
from microsim.recording.bag_replay import Replay
from microsim.recording.recorder import Recorder
from microsim.recording.state_file import resume, save_state
from microsim.scenario.loading import with_values
from microsim.scenario.models import Scenario
from tests.bundle_support import small_bundle
from tests.recording_support import files_of
from tests.support import bare, scenario
from tests.unit.render.splat_scenes import file_rows

HERE = Path(__file__).resolve().parents[3]
GENERATOR = """
from microsim.generators import Generator

def generate(options, map, random):
    return [{{"type": "box", "center": [{x}, 15 + random.uniform(), 0], "size": [1, 1, 1]}}]

GENERATOR = Generator("post", generate)
"""
BOX = {"type": "box", "center": [17, 17, 0], "size": [1, 1, 1]}


def write_files(folder: Path, height: float) -> None:
    """A file for every key that names one. Those of another height have another content."""
    (folder / "scenarios/heightmaps").mkdir(parents=True)
    for name in ("ground.npy", "scenarios/heightmaps/flat.npy"):
        np.save(folder / name, np.full((20, 20), height))
    (folder / "ground.csv").write_text("\n".join([",".join([f"{height}"] * 20)] * 20))
    Image.fromarray(np.pad(np.full((18, 18), 254, np.uint8), 1)).save(folder / "plan.png")
    rules = "origin: [0, 0, 0]\nnegate: 0\noccupied_thresh: 0.65\nfree_thresh: 0.2\n"
    (folder / "plan.yaml").write_text(f"image: plan.png\nresolution: {height}\n{rules}")
    (folder / "walk.csv").write_text(f"t,x,y\n0,3,3\n5,{3 + height},5\n")
    one = np.array([[0.0, 0.0, height]]), np.full((1, 3), 0.3), np.array([[0.0, 0.0, 0.0, 1.0]])
    rows = file_rows(*one, [0.98], np.zeros((1, 4, 3)))
    (folder / "thing.ply").write_bytes(splat_header(len(rows), 1) + rows.tobytes())
    (folder / "parts").mkdir()
    (folder / "parts/post.py").write_text(GENERATOR.format(x=10 + height))


def with_map(file: str) -> dict[str, Any]:
    return {"size_xy_cells": [20, 20], "elevation": {"file": file}}


def user_scenarios() -> dict[str, dict[str, Any]]:
    """By the key that names a file."""
    walker = {"model": "actor", "shape": "box", "size": [0.5, 0.5, 1.0]}
    rover = bare(start={"map_pose": {"x": 8, "y": 8}})
    return {
        "elevation npy": scenario(map=with_map("ground.npy"), robots={"rover": rover}),
        "elevation csv": scenario(map=with_map("ground.csv"), robots={"rover": rover}),
        "shipped elevation": scenario(
            map=with_map("package://microsim/scenarios/heightmaps/flat.npy"), robots={"rover": rover}
        ),
        "map image": scenario(map={"image": "plan.yaml"}, robots={"rover": rover}),
        "path csv": scenario(robots={"rover": rover, "walker": {**walker, "path": "walk.csv"}}),
        "splats": scenario(
            robots={
                "rover": rover,
                "walker": {**walker, "splats": "thing.ply", "start": {"map_pose": {"x": 4, "y": 4}}},
            }
        ),
        "plugins": scenario(plugins=["parts"], obstacles=[{"plugin": "post"}], robots={"rover": rover}),
        "world folder": {"world": "small", "robots": {"rover": bare()}},
        "shipped world": {"world": "minimal_test", "robots": {"rover": bare()}},
    }


SHIPPED = paths.scenario_names()
SHORT = ("default", "maze", *user_scenarios())
CASES = [pytest.param(case, marks=() if case in SHORT else pytest.mark.slow) for case in (*SHIPPED, *user_scenarios())]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with files, and another with files of the same names and another content."""
    home, elsewhere = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("elsewhere")
    write_files(home, 1.0)
    write_files(elsewhere, 2.0)
    small_bundle(home / "small")
    shutil.copytree(HERE / "worlds/minimal_test", elsewhere / "worlds/minimal_test")
    for world in ("worlds/minimal_test", "small"):
        shutil.copytree(HERE / "worlds/minimal_test", elsewhere / world, dirs_exist_ok=True)
        with (elsewhere / world / "world.yaml").open("a") as file:
            file.write("# another content\n")
    for name, data in user_scenarios().items():
        (home / f"{name}.json").write_text(json.dumps(data))
    return home, elsewhere


def load(case: str, home: Path) -> Scenario:
    return microsim.load_scenario(case if case in SHIPPED else home / f"{case}.json")


def digest(sim: microsim.Simulation) -> str:
    sim.step(5)
    return sim.digest()


def free_place(sim: microsim.Simulation) -> dict[str, Any]:
    """A box where nothing else is: above everything."""
    state = sim.state(sim.robots[0])
    return {**BOX, "center": [state.x + 2.0, state.y + 2.0, 0.0], "size": [0.2, 0.2, 0.2]}


def changed(sim: microsim.Simulation) -> str:
    """The digest after all that writes the scenario out and reads it again."""
    sim.step(2)
    sim.reconfigure(with_values(sim.scenario, {"wind.world_xyz": [1.0, 0.0, 0.0]}))
    sim.spawn("crate", free_place(sim))
    sim.step(2)
    sim.move_obstacle("crate", (free_place(sim)["center"][0] + 1.0, *free_place(sim)["center"][1:]))
    sim.delete("crate")
    return digest(sim.fork())


@pytest.mark.parametrize("case", CASES)
def test_a_scenario_is_the_same_in_another_folder(
    case: str, places: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = places
    monkeypatch.chdir(home)
    first = load(case, home)
    expected, after_changes = digest(microsim.Simulation(first)), changed(microsim.Simulation(first))

    def check(loaded: Callable[[], Scenario], what: str) -> None:
        found = loaded()
        assert found == first, what
        assert digest(microsim.Simulation(found)) == expected, what

    monkeypatch.chdir(elsewhere)
    check(lambda: load(case, home), "loaded there")
    check(lambda: microsim.load_scenario(first.to_dict()), "written out and read")
    check(lambda: microsim.load_scenario(json.loads(json.dumps(first.to_dict()))), "as JSON")
    file = tmp_path / "written.yaml"
    file.write_text(first.to_yaml())
    check(lambda: microsim.load_scenario(file), "as a file elsewhere")
    assert changed(microsim.Simulation(first)) == after_changes
    assert changed(microsim.Simulation(microsim.load_scenario(first.to_dict()))) == after_changes


@pytest.mark.parametrize("case", CASES)
def test_recordings_states_and_tokens_do_not_depend_on_the_folder(
    case: str, places: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = places
    written = []
    for number, folder in enumerate((home, elsewhere)):
        monkeypatch.chdir(folder)
        sim = microsim.Simulation(load(case, home))
        bag = tmp_path / str(number) / "bag"
        bag.parent.mkdir()
        with Recorder(bag, sim, RecordOptions()) as recorder:
            recorder.on_messages(sim.step(3))
            sim.spawn("crate", free_place(sim))
            recorder.on_messages(sim.step(3))
        sim = microsim.Simulation(load(case, home))
        sim.step(3)
        save_state(tmp_path / f"{number}.state", sim.snapshot())
        written.append((files_of(bag), scenario_content(sim.scenario)))
    assert written[0] == written[1]
    monkeypatch.chdir(elsewhere)
    plugins = [home / "parts"]
    with Replay(open_bag(tmp_path / "0/bag"), plugin_folders=plugins) as replay:
        assert replay.verify().is_identical
    again = resume(tmp_path / "0.state", tmp_path, plugins)
    monkeypatch.chdir(home)
    assert digest(again) == digest(sim)


def test_what_is_shipped_is_named_without_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    data = microsim.load_scenario("default").to_dict()
    assert data["map"]["elevation"] == {"file": "package://microsim/scenarios/heightmaps/flat.npy"}
    assert microsim.load_scenario("oval").to_dict()["world"]["path"] == "package://microsim/worlds/oval"


@pytest.mark.parametrize(
    "name", ["package://microsim/../setup.py", "package://microsim/none.npy", "package://other/a.npy"]
)
def test_names_of_shipped_data_lead_nowhere_else(name: str) -> None:
    with pytest.raises(ScenarioError, match="no such file"):
        microsim.load_scenario({"map": {"elevation": {"file": name}}})
