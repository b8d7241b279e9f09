"""What the author of a bad scenario is told. Messages are compared whole: they are part of the interface."""
# ruff: noqa: E501 (a message stands on one line, as the author sees it)

import os
import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from microsim.errors import Problem, ScenarioError, did_you_mean
from microsim.scenario import load_scenario
from microsim.scenario.scene import read_elevation

Said = Callable[[str], list[str]]

CLASSES = "the classes are 0 ground, 1 obstacle, 2 hazard, 3 target, 4 water"
ROS_NAME_RULE = "expected a lower-case letter, then lower-case letters, digits and underscores, 64 at most"
TOP = (
    "name, seed, physics_hz, map, world, obstacles, features, frames, robots, collisions, controllers, radio, wind, "
    "world_topics, randomize, faults, chaos, stamped_cmd_vel, lockstep, plugins"
)


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    """What loading this text as my.yaml complains about, a line for each problem."""
    monkeypatch.chdir(tmp_path)

    def load(text: str) -> list[str]:
        Path("my.yaml").write_text(text, encoding="utf-8")
        with pytest.raises(ScenarioError) as caught:
            load_scenario("my.yaml")
        return str(caught.value).splitlines()

    return load


def complaint(data: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(data)
    return str(caught.value)


def test_an_unknown_key_names_its_place_its_neighbours_and_the_nearest(said: Said) -> None:
    text = "robots:\n  drone:\n    camera:\n      hz: 2\n      reolution: {width: 128}\n"
    assert said(text) == [
        "my.yaml:5:7: robots.drone.camera.reolution: unknown key 'reolution'; did you mean 'resolution'? there are: "
        "enabled, hz, mount, resolution, encoding, projection, intrinsics, distortion, noise, latency_ms, convention, "
        "render, sees_robots, appearance, readout_s, compressed"
    ]


def test_all_problems_are_told_at_once_in_the_order_of_the_text(said: Said) -> None:
    text = """\
seed: 1.5
map:
  size_xy_cells: [0, 0]
  elevation: {file: nowhere.npy}
obstacles:
  - {type: box, center: [1, 2], size: [1, 1, 1]}
  - {type: cylinder, center: [1, 2, 0], radius: "2", height: -1}
robots:
  Rover: {model: rover}
  drone: {max_vx: true}
wind: {world_xyz: [0, .nan, 0]}
"""
    assert said(text) == [
        "my.yaml:1:7: seed: expected a whole number, found 1.5",
        "my.yaml:3:18: map.size_xy_cells: expected two whole numbers of at least 1, found [0, 0]",
        "my.yaml:6:25: obstacles[0].center: expected [x, y, z], found 2 values: [1, 2]",
        "my.yaml:7:49: obstacles[1].radius: expected a number, found '2' (text; write numbers without quotes)",
        "my.yaml:7:62: obstacles[1].height: expected a value above 0, found -1",
        f"my.yaml:9:3: robots.Rover: 'Rover' is not a valid ROS name; {ROS_NAME_RULE}",
        "my.yaml:10:19: robots.drone.max_vx: expected a number, found true",
        "my.yaml:11:23: wind.world_xyz[1]: expected a finite number, found nan",
    ]


@pytest.mark.parametrize("name", ["sim", "world", "radio"])
def test_a_robot_has_no_name_of_the_simulator_itself(said: Said, name: str) -> None:
    words = f"a robot cannot be called '{name}': /{name}/… are names of the simulator itself"
    assert said(f"robots:\n  {name}: {{model: rover}}\n") == [f"my.yaml:2:3: robots.{name}: {words}"]


def test_a_missing_file_is_told_together_with_the_rest(said: Said, tmp_path: Path) -> None:
    first, second = said("seed: x\nmap:\n  elevation: {file: nowhere.npy}\n")
    assert first == "my.yaml:1:7: seed: expected a whole number, found 'x' (text)"
    assert second.startswith("my.yaml:3:21: map.elevation.file: no such file: 'nowhere.npy'; looked in ")
    assert str(tmp_path) in second


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: x\nname: y", ["2:1: name: the key is already on line 1"]),
        ("\tname: x", ["1:1: not valid YAML: found a tab; indent with spaces"]),
        ("map:\n\tcell_size_m: 1", ["2:1: not valid YAML: found a tab; indent with spaces"]),
        ("a: b: c", ["1:5: not valid YAML: mapping values are not allowed here"]),
        ("a: 1\n---\nb: 2", ["2:1: not valid YAML: expected a single document in the stream, but found another document"]),
        ("- 1", [f"1:1: expected a mapping with any of the keys {TOP}, found [1]"]),
        ("flat", [f"1:1: expected a mapping with any of the keys {TOP}, found 'flat'"]),
        ("1: 2", ["1:1: expected text as a key, found 1; put it in quotes"]),
        ("? [a]\n: 3", ["1:3: expected text as a key, found a list or mapping"]),
        ("a: &a [*a]", ["1:1: nested too deeply; expected at most 50 levels"]),
        ("name: !!python/name:os.system x", [
            "1:7: name: expected plain data, found the tag 'tag:yaml.org,2002:python/name:os.system'"
        ]),
        ("name: !mine x", ["1:7: name: expected plain data, found the tag '!mine'"]),
        ("seed: !!int x", ["1:7: seed: expected a number, found 'x'"]),
        ("stamped_cmd_vel: !!bool x", ["1:18: stamped_cmd_vel: expected a truth value, found 'x'"]),
        ("robots: {a: {<<: 3}}", ["1:18: robots.a: expected a mapping to merge with <<"]),
    ],
)  # fmt: skip
def test_text_that_is_no_plain_mapping_is_refused(text: str, expected: list[str], said: Said) -> None:
    assert said(text) == [f"my.yaml:{line}" for line in expected]


def test_aliases_cannot_blow_up(said: Said) -> None:
    levels = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert said("\n".join(levels)) == ["my.yaml:1:1: expected at most 500,000 values with aliases expanded, found more"]


def test_brackets_cannot_blow_up(said: Said) -> None:
    assert "nested too deeply" in said("[" * 800)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed: 9223372036854775808", "1:7: seed: expected a value of at most 9223372036854775807, found 9223372036854775808"),
        ("seed: true", "1:7: seed: expected a whole number, found true"),
        ("name: 3", "1:7: name: expected text, found 3"),
        ("physics_hz: 0", "1:13: physics_hz: expected a rate above 0 and up to 10000 Hz, found 0"),
        ("physics_hz: .inf", "1:13: physics_hz: expected a rate above 0 and up to 10000 Hz, found inf"),
        ("physics_hz: -1", "1:13: physics_hz: expected a rate above 0 and up to 10000 Hz, found -1"),
        ("physics_hz: fast", "1:13: physics_hz: expected a rate in Hz, found 'fast' (text)"),
        ("stamped_cmd_vel: 1", "1:18: stamped_cmd_vel: expected true or false, found 1"),
        ("map: {size_xy_cells: [5000, 5000]}", "1:22: map.size_xy_cells: expected at most 16,000,000 cells in all, found [5000, 5000]"),
        ("map: {size_xy_cells: [10]}", "1:22: map.size_xy_cells: expected [nx, ny], found 1 values: [10]"),
        ("map: {cell_size_m: -1}", "1:20: map.cell_size_m: expected a value of at least 0.001, found -1"),
        ("map: {origin_wgs84: [91, 0, 0]}", "1:22: map.origin_wgs84[0]: expected a latitude from -90 to 90 degrees, found 91.0"),
        ("map: {elevation: {generate: hils}}", "1:29: map.elevation.generate: unknown generator 'hils'; did you mean 'hills'? there are: flat, hills"),
        ("map: {elevation: {generate: hills, wavelength_m: 1.0e-17}}", "1:50: map.elevation.wavelength_m: expected at least 0.001 m, a thousandth of a cell of 1 m, found 1e-17"),
        ("map: {elevation: {}}", "1:18: map.elevation: missing key 'file' or 'generate'"),
        ("map: {elevation: {file: a.npy, generate: flat}}", "1:18: map.elevation: expected either 'file' or 'generate', found both"),
        ("map: {surface_types: {default: watr}}", f"1:32: map.surface_types.default: unknown class 'watr'; did you mean 'water'? {CLASSES}"),
        ("map: {surface_types: {default: 5}}", f"1:32: map.surface_types.default: unknown class 5; {CLASSES}"),
        ("obstacles: [{type: circle}]", "1:20: obstacles[0].type: a circle belongs under `features:`; here there are: box, cylinder"),
        ("features: [{type: box}]", "1:19: features[0].type: a box belongs under `obstacles:`; here there are: circle, rectangle, triangle, billboard"),
        ("obstacles: [{typ: box}]", "1:13: obstacles[0]: missing key 'type'; there are: box, cylinder"),
        ("obstacles: [{type: bx}]", "1:20: obstacles[0].type: unknown type 'bx'; did you mean 'box'? there are: box, cylinder"),
        ("obstacles: 3", "1:12: obstacles: expected a list, found 3"),
        ("features: [{type: circle, center: [1, 2], radius: 3}]", "1:12: features[0].class: missing key 'class'; the keys are type, class, center, radius, height"),
        ("features: [{type: circle, class_id: 9, center: [1, 2], radius: 3}]", f"1:37: features[0].class_id: unknown class 9; {CLASSES}"),
        ("features: [{type: triangle, class: 2, vertices: [[0, 0], [1, 1], [2, 2]]}]", "1:12: features[0]: expected three corners that are not on one line, found [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]"),
        ("features: [{type: triangle, class: 2}]", "1:12: features[0]: expected 'vertices', or both 'center' and 'side'"),
        ("robots:", "1:1: robots: expected a mapping from names to robots, found nothing (null); leave the key out for a drone and a rover, write {} for none"),
        ("robots: {scout: {}}", "1:17: robots.scout: missing key 'model', because 'scout' is not the name of a model; there are: drone, rover, bicycle, navigation_robot, actor"),
        ("robots: {scout: {modle: rover}}", "1:18: robots.scout.modle: unknown key 'modle'; did you mean 'model'? the choices of 'model' are: drone, rover, bicycle, navigation_robot, actor"),
        ("robots: {drone: {sensors: {nose: {tpye: gps}}}}", "1:35: robots.drone.sensors.nose.tpye: unknown key 'tpye'; did you mean 'type'? the choices of 'type' are: odom, localisation, pose2D, gps, imu, ahrs, camera, range, scan, lidar, detections"),
        ("robots: {scout: {model: dron}}", "1:25: robots.scout.model: unknown model 'dron'; did you mean 'drone'? there are: drone, rover, bicycle, navigation_robot, actor"),
        ("robots: {rover: {start: {map_pose: {z: 3}}}}", "1:40: robots.rover.start.map_pose.z: a rover stands on the ground: leave z out; found 3.0"),
        ("robots: {rover: {range: {min_m: 3, max_m: 1}}}", "1:25: robots.rover.range: expected min_m below max_m, found min_m 3.0 and max_m 1.0"),
        ("robots: {drone: {camera: {projection: flat}}}", "1:39: robots.drone.camera.projection: expected 'pinhole' or 'fisheye', found 'flat'"),
        ("robots: {drone: {camera: {distortion: {D: [1, 2]}}}}", "1:43: robots.drone.camera.distortion.D: expected [k1, k2, t1, t2, k3], found 2 values: [1, 2]"),
        ("robots: {drone: {camera: {distortion: {model: none, D: [1, 0, 0, 0, 0]}}}}", "1:39: robots.drone.camera.distortion: model 'none' takes no coefficients, found D: [1.0, 0.0, 0.0, 0.0, 0.0]; write model: plumb_bob"),
        ("robots: {drone: {camera: {latency_ms: {drop_probability: 1.5}}}}", "1:58: robots.drone.camera.latency_ms.drop_probability: expected a value of at most 1, found 1.5"),
        ("robots: {drone: {camera: {intrinsics: {fx: 1, fov_deg: 60}}}}", "1:39: robots.drone.camera.intrinsics: expected either 'fov_deg', or 'fx' and 'fy', found both"),
        ("robots: {drone: {sensors: {eye: {type: camra}}}}", "1:40: robots.drone.sensors.eye.type: unknown sensor type 'camra'; did you mean 'camera'? there are: odom, localisation, pose2D, gps, imu, ahrs, camera, range, scan, lidar, detections"),
        ("robots: {drone: {sensors: {gps: {type: gps}}}}", "1:28: robots.drone.sensors.gps: 'gps' is a built-in sensor: write it beside 'sensors', or name it otherwise"),
        ("robots: {drone: {odom: {drift: {}}}}", "1:32: robots.drone.odom.drift: odometry can drift only in a frame of its own: write `frames: {per_robot_odom: true}`"),
        ("physics_hz: 20\nrobots: {drone: {camera: {hz: 30}}}", "2:31: robots.drone.camera.hz: expected at most physics_hz, which is 20, found 30"),
        ("frames: {tf_hz: 100}", "1:17: frames.tf_hz: expected at most physics_hz, which is 60, found 100"),
        ("radio: {drop_probability: -0.1}", "1:27: radio.drop_probability: expected a value of at least 0, found -0.1"),
        ("elevation: {generate: flat}", f"1:1: elevation: 'elevation' belongs under `map:`; here there are: {TOP}"),
        ("plugins: [nowhere]", "1:11: plugins[0]: no such folder: 'nowhere'"),
        ("obstacles: [{plugin: random_maz}]", "1:22: obstacles[0].plugin: unknown generator 'random_maz'; did you mean 'random_maze'? there are: random_maze"),
        ("obstacles: [{plugin: random_maze, region: [0, 0, 2, 2]}]", "1:13: obstacles[0]: region [0.0, 0.0, 2.0, 2.0] has no room for a chamber, which needs 5 m each way"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(text: str, expected: str, said: Said) -> None:
    assert said(text) == [f"my.yaml:{expected}"]


def test_the_key_of_another_model_is_told_apart(said: Said) -> None:
    (line,) = said("robots: {drone: {max_v: 3}}")
    assert line.startswith("my.yaml:1:18: robots.drone.max_v: 'max_v' is a key of the model rover; there are: model, ")


def test_indices_are_those_of_the_text_beside_plugin_entries(said: Said) -> None:
    text = "obstacles:\n- {plugin: random_maze, region: [0, 0, 9, 9]}\n- {type: box}\n"
    assert [line.split(": ")[1] for line in said(text)] == ["obstacles[1].center", "obstacles[1].size"]


def test_a_dict_is_told_by_key_path() -> None:
    assert complaint({"robots": {"drone": {"gps": {"hz": "5"}}}}) == (
        "robots.drone.gps.hz: expected a rate in Hz, found '5' (text; write numbers without quotes)"
    )
    assert complaint({1: 2}) == "expected text as a key, found 1"
    assert complaint({"map": {"cell_size_m": float("nan")}}) == "map.cell_size_m: expected a finite number, found nan"
    endless: dict[str, Any] = {}
    endless["map"] = endless
    assert "nested too deeply" in complaint(endless)


BOX = {"type": "box", "center": [10, 10, 0], "size": [1, 1, 2]}
TOWER = {"type": "cylinder", "center": [20, 20, 1], "radius": 3, "height": 20}


@pytest.mark.parametrize(
    ("robots", "expected"),
    [
        ({"rover": {"start": {"map_pose": {"x": -0.5}}}}, "the start x -0.5, y 10 is outside the map, which is x from 0 to 200 and y from 0 to 200"),
        ({"drone": {"start": {"map_pose": {"y": 200}}}}, "the start x 20, y 200, z 10 is outside the map, which is x from 0 to 200 and y from 0 to 200"),
        ({"rover": {"start": {"map_pose": {"x": 9.2, "y": 10.9}}}}, "the start x 9.2, y 10.9 is in a cell that is occupied by obstacles[0], a box"),
        ({"drone": {"start": {"map_pose": {"z": 0.05, "x": 50}}}}, "the start x 50, y 20, z 0.05 is below the ground plus a clearance of 0.1 m; z: 0.1 would do"),
        ({"drone": {"start": {"map_pose": {"x": 21}}}}, "the start x 21, y 20, z 10 is inside obstacles[1], a cylinder; z: 21.01 would do"),
        ({"rover": None}, "the start x 10, y 10 is in a cell that is occupied by obstacles[0], a box (this start is the default of a rover; write start: {map_pose: {x: …, y: …}})"),
    ],
)  # fmt: skip
def test_a_start_where_no_robot_can_be_is_refused(robots: dict[str, Any], expected: str) -> None:
    (name,) = robots
    said = complaint({"obstacles": [BOX, TOWER], "robots": robots})
    assert said == f"robots.{name}.start.map_pose: {expected}"


def test_a_start_just_beside_and_above_obstacles_is_fine() -> None:
    starts = {
        "rover": {"start": {"map_pose": {"x": 11.0, "y": 10.5}}},
        "drone": {"start": {"map_pose": {"x": 20, "z": 21.01}}},
        "low": {"model": "drone", "start": {"map_pose": {"x": 20, "y": 20, "z": 0.5}}},
    }
    assert list(load_scenario({"obstacles": [BOX, TOWER], "robots": starts}).robots) == list(starts)


def test_the_height_that_is_proposed_is_accepted() -> None:
    hills = {"elevation": {"generate": "hills", "amplitude_m": 30, "seed": 3}}
    start: dict[str, float] = {"x": 60.3, "y": 71.7, "z": -40}
    said = complaint({"map": hills, "robots": {"drone": {"start": {"map_pose": start}}}})
    start["z"] = float(said.split("z: ")[1].split(" ")[0])
    load_scenario({"map": hills, "robots": {"drone": {"start": {"map_pose": start}}}})


def test_an_unknown_name_lists_what_there_is() -> None:
    there_are = "there are: default, flat, maze, obstacles_arena, showcase"
    assert complaint("defualt") == f"no scenario 'defualt'; did you mean 'default'? {there_are}"
    assert complaint("zzz") == f"no scenario 'zzz'; {there_are}"
    assert complaint("") == f"no scenario ''; {there_are}"


def test_files_that_cannot_be_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mission.yaml").write_text("{}")
    Path("latin.yaml").write_bytes(b"seed: 1\nname: caf\xe9\n")
    Path("long.yaml").write_bytes(b"#" * 4_000_001)
    Path("folder.yaml").mkdir()
    os.mkfifo("pipe.yaml")
    assert complaint("missoin.yaml") == "missoin.yaml: no such file; did you mean 'mission.yaml'?"
    assert complaint("no/such.yaml") == "no/such.yaml: no such file"
    assert complaint("lattice.yaml") == "lattice.yaml: no such file"  # `latin.yaml` is another file
    assert complaint("default.yml") == "default.yml: no such file; there is a shipped scenario 'default'"
    assert complaint("latin.yaml") == "latin.yaml:2: expected text in UTF-8"
    assert complaint("long.yaml") == "long.yaml: expected at most 4,000,000 bytes, found more"
    assert complaint("folder.yaml") == "folder.yaml: expected a file, found a folder"
    assert complaint("pipe.yaml") == "pipe.yaml: expected a regular file"
    assert complaint(Path("a\0b")).startswith("a\0b: ")
    assert complaint("x" * 5000 + ".yaml").startswith("xxx")


def elevation_complaint(file: Path) -> str:
    said = complaint({"map": {"size_xy_cells": [3, 2], "elevation": {"file": str(file)}}, "robots": {}})
    prefix = "map.elevation.file: "
    assert said.startswith(prefix)
    return said.removeprefix(prefix).replace(str(file), "FILE")


ROWS = "expected 2 rows (y) of 3 columns (x), as size_xy_cells [3, 2] says"
LEVEL = "level ground of any size is `elevation: {generate: flat}`"


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.arange(6).reshape(3, 2), f"FILE: {ROWS}, found 3 by 2; it is transposed: rows are y, columns are x"),
        (np.eye(3), f"FILE: {ROWS}, found 3 by 3; {LEVEL}"),
        (np.zeros(6), f"FILE: {ROWS}, found 6; {LEVEL}"),
        (np.array(1.0), f"FILE: {ROWS}, found a single number; {LEVEL}"),
        (np.array([[0, 1, 2], [3, np.nan, 5]]), "FILE: row 1, column 1 (from 0): expected a height in metres, found nan"),
        (np.array([[0, 1, 2], [3, 4, np.inf]]), "FILE: row 1, column 2 (from 0): expected a height in metres, found inf"),
        (np.zeros((2, 3), complex), "FILE: expected numbers, found values of type complex128"),
        (np.zeros((2, 3), bool), "FILE: expected numbers, found values of type bool"),
        (np.array([[{}] * 3] * 2), "FILE: expected numbers, found values of type object"),
    ],
)  # fmt: skip
def test_a_heightmap_that_does_not_fit_is_refused(array: np.ndarray, expected: str, tmp_path: Path) -> None:
    np.save(tmp_path / "h.npy", array, allow_pickle=True)
    assert elevation_complaint(tmp_path / "h.npy") == expected


def test_a_heightmap_is_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    (tmp_path / "h.npy").write_bytes(pickle.dumps(Trap()))
    np.save(tmp_path / "o.npy", np.array([[Trap()] * 3] * 2), allow_pickle=True)
    assert elevation_complaint(tmp_path / "h.npy").startswith("FILE: not a .npy file of numbers: ")
    assert elevation_complaint(tmp_path / "o.npy") == "FILE: expected numbers, found values of type object"
    assert not (tmp_path / "sprung").exists()


def test_a_heightmap_that_is_cut_or_padded_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "h.npy", np.zeros((2, 3)))
    whole = (tmp_path / "h.npy").read_bytes()
    for raw, word in ((whole[:-1], "fewer"), (whole + b"x", "more")):
        (tmp_path / "h.npy").write_bytes(raw)
        expected = f"FILE: expected 48 bytes of heights, as its header says, found {word}"
        assert elevation_complaint(tmp_path / "h.npy") == expected
    for length in range(len(whole)):
        (tmp_path / "h.npy").write_bytes(whole[:length])
        elevation_complaint(tmp_path / "h.npy")


def test_no_broken_heightmap_makes_numpy_warn(tmp_path: Path) -> None:
    """Signalling NaN, numbers too large, headers of Python 2, and any other bytes, of every kind of number."""
    file, dice = tmp_path / "h.npy", np.random.default_rng(5)
    for kind in ("<f2", "<f4", ">f4", "<f8", ">f8", "<f16", "<i8", "<u8"):
        np.save(file, np.zeros((2, 3), kind))
        whole = file.read_bytes()
        size = np.dtype(kind).itemsize * 6
        python_2 = whole.replace(b"(2, 3)", b"(2L,3)")
        broken = [whole[:-size] + bytes([each]) * size for each in (0x7F, 0xFF, 0x80)]
        broken += [whole[:-size] + b"\x01\x00\xa0\x7f" * (size // 4), python_2[:-size] + b"\x7f" * size]
        for _ in range(40):
            at = int(dice.integers(0, len(whole)))
            broken.append(whole[:at] + dice.integers(0, 256, 4, np.uint8).tobytes() + whole[at + 4 :])
        for content in broken:
            file.write_bytes(content)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with suppress(ScenarioError):  # some are good
                    read_elevation(file, (2, 3))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,2,3\n4,x,6\n", "FILE:2:3: value 2 of the line: expected a height in metres, found 'x'"),
        ("1,2,3\n4,5,nan\n", "FILE:2:5: value 3 of the line: expected a height in metres, found 'nan'"),
        ("1,2,3\n\n4,5\n", "FILE:3: expected 3 values as on the lines before, found 2"),
        ("1,2\n3,4\n5,6\n", f"FILE: {ROWS}, found 3 by 2; it is transposed: rows are y, columns are x"),
        ("", f"FILE: {ROWS}, found 0 by 0; {LEVEL}"),
        ("\xff", "FILE: expected text in UTF-8"),
    ],
)
def test_a_table_of_heights_is_told_by_line_and_value(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_bytes(text.encode("latin-1"))
    assert elevation_complaint(tmp_path / "h.csv") == expected


def test_other_kinds_of_heightmaps_are_refused(tmp_path: Path) -> None:
    (tmp_path / "h.tif").write_text("")
    (tmp_path / "h.npy").mkdir()
    assert elevation_complaint(tmp_path / "h.tif") == "FILE: expected a file that ends in .npy or .csv, found '.tif'"
    assert elevation_complaint(tmp_path / "h.npy") == "FILE: expected a regular file"


def test_an_error_can_be_pickled_and_lists_its_problems() -> None:
    error = ScenarioError([Problem("wrong", "a.b", "f.yaml", 3, 7), Problem("worse")])
    assert str(error) == "f.yaml:3:7: a.b: wrong\nworse"
    assert pickle.loads(pickle.dumps(error)).problems == error.problems  # noqa: S301 (our own bytes)


def test_guesses_are_near_or_absent() -> None:
    assert did_you_mean("Defualt", ["default", "flat"]) == "; did you mean 'default'?"
    assert did_you_mean("zzz", ["default", "flat"]) == ""
    assert did_you_mean(3, []) == ""


@pytest.mark.parametrize(
    ("sensors", "message"),
    [
        ({"cmd_vel": {"type": "gps"}}, "is the name of a topic the robot listens to"),
        ({"second": {"type": "odom", "drift": {}}}, "only the sensor `odom` can drift"),
    ],
)
def test_further_sensors_may_not_disturb_what_is_there(sensors, message):
    scenario = {"frames": {"per_robot_odom": True}, "robots": {"drone": {"sensors": sensors}}}
    with pytest.raises(ScenarioError, match=message):
        load_scenario(scenario)
