"""What a good scenario becomes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from microsim.errors import ScenarioError
from microsim.paths import scenario_file, scenario_names
from microsim.robots.drone import Drone
from microsim.robots.rover import Rover
from microsim.scenario import Box, Cylinder, ElevationFile, FlatElevation, Robot, Scenario, load_scenario
from microsim.sensors import SENSORS
from microsim.sensors.camera import Camera, Intrinsics
from microsim.sensors.sensor import Mount
from microsim.simulation import Simulation

PRD = """\
name: "default"
seed: 12345
map:
  cell_size_m: 1.0
  size_xy_cells: [200, 200]
  origin_wgs84: [9.935, -84.09, 1150.0]
  elevation:
    file: "scenarios/heightmaps/flat.npy"
  surface_types:
    default: 0
obstacles:
  - type: box
    center: [50, 60, 0]
    size: [4, 4, 2] # x,y,z meters
  - type: cylinder
    center: [80, 40, 0]
    radius: 2
    height: 1.5
robots:
  drone:
    start:
      map_pose: { x: 20, y: 20, z: 10, yaw: 0.0 }
    camera:
      hz: 2
      resolution: { width: 128, height: 128 }
      projection: pinhole
      intrinsics: { fx: 120.0, fy: 120.0, cx: 64.0, cy: 64.0 }
      distortion: { model: plumb_bob, D: [0, 0, 0, 0, 0] }
      noise: { blur_sigma_px: 0.5, color_jitter: 0.0 }
      latency_ms: { mean: 80, jitter: 30, drop_probability: 0.01 }
    gps:
      hz: 5
      sigma_m: 2.0
  rover:
    start:
      map_pose: { x: 10, y: 10, yaw: 1.57 }
    range:
      hz: 10
      min_m: 0.2
      max_m: 10.0
      sigma_m: 0.05
radio:
  latency_ms_mean: 80
  latency_ms_jitter: 30
  drop_probability: 0.03
wind:
  world_xyz: [0.2, 0.0, 0.0]
"""


def robot(block: dict[str, Any] | None, name: str = "drone", **scenario: Any) -> Robot:
    return load_scenario({"robots": {name: block}, **scenario}).robots[name]


def drone(block: dict[str, Any] | None, **scenario: Any) -> Drone:
    made = robot(block, **scenario)
    assert isinstance(made, Drone)
    return made


def camera(block: dict[str, Any]) -> Camera:
    made = drone({"camera": block}).camera
    assert made is not None
    return made


def test_the_scenario_of_the_requirements_loads_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prd.yaml").write_text(PRD)
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario("prd.yaml")
    assert scenario == load_scenario("default") == load_scenario(tmp_path / "prd.yaml")
    box, cylinder = scenario.obstacles
    assert box == Box(type="box", center=(50, 60, 0), size=(4, 4, 2), class_id=1)
    assert cylinder == Cylinder(type="cylinder", center=(80, 40, 0), radius=2, height=1.5, class_id=1)
    assert scenario.wind.world_xyz == (0.2, 0.0, 0.0)
    assert list(scenario.robots) == ["drone", "rover"]


def test_the_scenario_of_the_requirements_says_nothing_but_defaults_apart_from_obstacles_and_wind() -> None:
    default = load_scenario("default")
    level = default.map.model_copy(update={"elevation": FlatElevation()})  # its file is level too
    changed = {"name": "unnamed", "obstacles": (), "wind": Scenario().wind, "map": level}
    assert default.model_copy(update=changed) == load_scenario({})


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "{}", "\ufeff{}"])
def test_an_empty_scenario_has_every_default(text: str, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text(text, encoding="utf-8")
    assert load_scenario(tmp_path / "empty.yaml").model_copy(update={"name": "unnamed"}) == load_scenario({})
    assert load_scenario({}) == Scenario()


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("yard.yaml", "seed: 1", "yard"),
        ("my yard.v2.json", "{}", "my yard.v2"),
        (f"{'y' * 240}.yaml", "{}", "y" * 200),
        (b"\xff.yaml", "{}", "?"),
        ("yard.yaml", "name: theirs", "theirs"),
        ("yard.yaml", "world: minimal_test", "minimal_test"),
    ],
)
def test_a_scenario_without_a_name_has_that_of_its_world_or_file(
    file: str | bytes, text: str, name: str, tmp_path: Path
) -> None:
    path = tmp_path / os.fsdecode(file)
    path.write_text(text, encoding="utf-8")
    scenario = load_scenario(path)
    assert scenario.name == name
    assert load_scenario(scenario.to_dict()) == scenario
    info = next(each for each in Simulation(scenario).step(0) if each.topic == "/sim/info")
    assert json.loads(info.message.data)["scenario"] == name


def test_a_scenario_that_is_no_file_is_unnamed() -> None:
    assert load_scenario({}).name == "unnamed"


def test_the_defaults_are_those_of_the_requirements() -> None:
    scenario = load_scenario({})
    assert (scenario.seed, scenario.physics_hz, scenario.map.size_xy_cells) == (12345, 60, (200, 200))
    assert isinstance(scenario.physics_hz, int)
    assert scenario.map.elevation == FlatElevation()
    made, rover = scenario.robots.values()
    assert isinstance(made, Drone)
    assert isinstance(rover, Rover)
    assert (made.max_vx, made.max_vy, made.max_vz, made.max_yaw_rate, made.cmd_time_constant) == (5, 5, 3, 1.5, 0.15)
    assert (rover.max_v, rover.max_omega, rover.cmd_time_constant) == (2, 1.2, 0.10)
    assert list(made.all_sensors()) == ["odom", "gps", "imu", "camera"]
    assert list(rover.all_sensors()) == ["odom", "gps", "imu", "range"]
    assert {name: block.hz for name, block in made.all_sensors().items()} == {
        "odom": 30,
        "gps": 5,
        "imu": 60,
        "camera": 2,
    }
    assert made.gps is not None
    assert rover.gps is not None
    assert (made.gps.mount.xyz, rover.gps.mount.xyz) == ((0, 0, 0.08), (0, 0, 0.15))


def test_exactly_the_robots_that_are_listed_exist() -> None:
    assert load_scenario({"robots": {}}).robots == {}
    scenario = load_scenario({"robots": {"scout_2": {"model": "drone"}, "rover": None}})
    assert [(name, each.model) for name, each in scenario.robots.items()] == [("scout_2", "drone"), ("rover", "rover")]


@pytest.mark.parametrize("off", [None, False, {"enabled": False}])
def test_a_sensor_is_taken_away(off: object) -> None:
    assert drone({"camera": off}).camera is None


@pytest.mark.parametrize("on", [True, {}, {"enabled": True}])
def test_a_sensor_is_added_by_naming_it(on: object) -> None:
    made = drone({"scan": on}).scan
    assert made is not None
    assert (made.beams, made.mount.xyz) == (360, (0.25, 0, 0.08))


def test_a_partial_mount_keeps_the_rest_of_the_models_own() -> None:
    down = camera({}).mount
    assert camera({"mount": {"xyz": [0.3, 0, 0]}}).mount == Mount(xyz=(0.3, 0, 0), rpy=down.rpy)
    assert camera({"mount": {"rpy": [0, 0, 0]}}).mount == Mount(xyz=down.xyz, rpy=(0, 0, 0))


def test_a_partial_pose_keeps_the_rest_of_the_models_own() -> None:
    pose = drone({"start": {"map_pose": {"x": 5}}}).start.map_pose
    assert (pose.x, pose.y, pose.z, pose.yaw) == (5, 20, 10, 0)


@pytest.mark.parametrize("z", [None, 0])
def test_a_rover_may_be_told_that_it_is_on_the_ground(z: float | None) -> None:
    assert robot({"start": {"map_pose": {"z": z}}}, "rover").start.map_pose.z is None


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({}, Intrinsics(fx=120, fy=120, cx=64, cy=64)),
        ({"resolution": {"width": 640, "height": 480}}, Intrinsics(fx=600, fy=600, cx=320, cy=240)),
        ({"intrinsics": {"fov_deg": 90}}, Intrinsics(fov_deg=90, cx=64, cy=64)),
        ({"intrinsics": {"fx": 100}}, Intrinsics(fx=100, fy=100, cx=64, cy=64)),
        ({"intrinsics": {"cx": 60.5}}, Intrinsics(fx=120, fy=120, cx=60.5, cy=64)),
    ],
)
def test_intrinsics_are_completed(block: dict[str, Any], expected: Intrinsics) -> None:
    assert camera(block).intrinsics == expected


def test_rates_nobody_wrote_are_lowered_to_the_tick() -> None:
    scenario = load_scenario({"physics_hz": 20, "robots": {"drone": {"sensors": {"second": {"type": "imu"}}}}})
    rates = {name: block.hz for name, block in scenario.robots["drone"].all_sensors().items()}
    assert rates == {"odom": 20, "gps": 5, "imu": 20, "camera": 2, "second": 20}
    assert scenario.frames.tf_hz == 20
    assert load_scenario({"physics_hz": 0.5}).radio.metrics_hz == 0.5


def test_further_sensors_carry_their_type_and_mount() -> None:
    sensors = {"front": {"type": "camera", "hz": 5}, "off": {"type": "gps", "enabled": False}}
    made = robot({"sensors": sensors}, "rover")
    front = made.sensors["front"]
    assert list(made.sensors) == ["front"]
    assert isinstance(front, Camera)
    assert front.mount.xyz == (0.25, 0, 0.15)
    assert made.model_dump()["sensors"]["front"]["type"] == "camera"


@pytest.mark.parametrize(("written", "class_id"), [(4, 4), ("water", 4), ("Hazard", 2), (0, 0)])
@pytest.mark.parametrize("key", ["class", "class_id"])
def test_a_class_is_a_number_or_a_name(key: str, written: int | str, class_id: int) -> None:
    feature = {"type": "circle", "center": [1, 1], "radius": 1, key: written}
    assert load_scenario({"features": [feature]}).features[0].class_id == class_id


def test_scenarios_are_frozen() -> None:
    scenario = load_scenario({})
    with pytest.raises(ValidationError):
        scenario.seed = 3  # type: ignore[misc]
    with pytest.raises(ValidationError):
        scenario.map.cell_size_m = 3  # type: ignore[misc]
    assert load_scenario(scenario) is scenario


def test_numbers_and_arrays_of_numpy_are_taken() -> None:
    scenario = load_scenario({"seed": np.int64(3), "wind": {"world_xyz": np.array([1, 2, 3])}})
    assert (scenario.seed, scenario.wind.world_xyz) == (3, (1, 2, 3))


def test_aliases_and_merges_of_yaml_are_resolved(tmp_path: Path) -> None:
    text = "robots:\n  a: &first {model: rover, max_v: 3, max_omega: 1}\n  b: {<<: *first, max_v: 4}\n  c: *first\n"
    (tmp_path / "s.yaml").write_text(text)
    robots = load_scenario(tmp_path / "s.yaml").robots
    limits = {name: (each.max_v, each.max_omega) for name, each in robots.items() if isinstance(each, Rover)}
    assert limits == {"a": (3, 1), "b": (4, 1), "c": (3, 1)}


@pytest.mark.filterwarnings("error")
def test_an_anchor_may_be_used_again(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("seed: &n 1\nphysics_hz: &n 60\n")
    assert load_scenario(tmp_path / "s.yaml").seed == 1


def test_a_shipped_name_comes_before_a_file_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flat").write_text("name: mine")
    assert load_scenario("flat").name == "flat"
    assert load_scenario("./flat").name == "mine"
    assert load_scenario(Path("flat")).name == "mine"


def heightmap(folder: Path, height: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "h.npy", np.full((200, 200), height))


def test_files_are_looked_for_beside_the_scenario_then_above_then_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, above, beside = tmp_path / "here", tmp_path / "above", tmp_path / "above" / "beside"
    heightmap(here, 1)
    beside.mkdir(parents=True)
    (beside / "s.yaml").write_text("map: {elevation: {file: h.npy}}")
    monkeypatch.chdir(here)
    found = []
    for folder in (here, above, beside):
        heightmap(folder, 1)
        elevation = load_scenario(beside / "s.yaml").map.elevation
        assert isinstance(elevation, ElevationFile)
        found.append(Path(elevation.file).parent)
    assert found == [here, above, beside]


@pytest.mark.parametrize("name", scenario_names())
def test_every_shipped_scenario_comes_back_from_its_own_dump(name: str, tmp_path: Path) -> None:
    scenario = load_scenario(name)
    (tmp_path / "dump.yaml").write_text(scenario.to_yaml())
    assert load_scenario(scenario.to_dict()) == scenario
    assert load_scenario(tmp_path / "dump.yaml") == scenario
    assert load_scenario(json.loads(json.dumps(scenario.to_dict()))) == scenario


def test_a_dump_knows_its_files_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heightmap(tmp_path / "data", 2)
    (tmp_path / "data" / "s.yaml").write_text("map: {elevation: {file: h.npy}}")
    scenario = load_scenario(tmp_path / "data" / "s.yaml")
    monkeypatch.chdir("/")
    assert load_scenario(scenario.to_dict()) == scenario


metres = st.floats(-1000, 1000)
lengths = st.floats(0.001, 100)
classes = st.sampled_from([0, 1, 2, 3, 4])
boxes = st.fixed_dictionaries(
    {
        "type": st.just("box"),
        "center": st.tuples(st.floats(50, 200), st.floats(50, 200), metres),
        "size": st.tuples(*[st.floats(0.001, 20)] * 3),
        "class": classes,
    }
)
circles = st.fixed_dictionaries(
    {"type": st.just("circle"), "class": classes, "center": st.tuples(metres, metres), "radius": lengths}
)
rovers = st.fixed_dictionaries(
    {"model": st.just("rover")},
    optional={
        "max_v": st.floats(0, 100),
        "scan": st.sampled_from([None, True, False, {"beams": 7}]),
        "gps": st.none() | st.fixed_dictionaries({"hz": st.integers(1, 10) | st.floats(0.1, 10)}),
    },
)
scenarios = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20),
        "seed": st.integers(-(2**63), 2**63 - 1),
        "physics_hz": st.integers(10, 1000) | st.floats(10, 1000),
        "obstacles": st.lists(boxes, max_size=3),
        "features": st.lists(circles, max_size=3),
        "robots": st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), rovers, max_size=3),
        "stamped_cmd_vel": st.booleans(),
    },
)


@settings(deadline=None)
@given(scenarios)
def test_what_a_scenario_dumps_loads_back_to_an_equal_one(data: dict[str, Any]) -> None:
    from microsim.documents.yaml_text import read_yaml

    scenario = load_scenario(data)
    assert load_scenario(scenario.to_dict()) == scenario
    assert load_scenario(read_yaml(scenario.to_yaml(), "dump").data) == scenario


def test_importing_the_package_and_its_command_line_loads_no_heavy_library() -> None:
    """Scenarios themselves need numba: the file of a sensor holds its settings and its kernel."""
    code = (
        "import sys, microsim, microsim.cli; "
        "print(sorted({'numba', 'numpy', 'ruamel.yaml', 'rosbags', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(os.name != "posix", reason="hash seeds are set through the environment")
def test_a_dump_does_not_depend_on_the_hash_seed() -> None:
    code = "import microsim.scenario as s; print(s.load_scenario('maze').to_yaml())"
    dumps = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(dumps) == 1


DRONE, ROVER = ["odom", "gps", "imu", "camera"], ["odom", "gps", "imu", "range"]
SHIPPED = {
    "default": {"drone": DRONE, "rover": ROVER},
    "flat": {"drone": DRONE, "rover": ROVER},
    "maze": {"drone": DRONE, "rover": [*ROVER, "scan"]},
    "obstacles_arena": {"drone": DRONE, "rover": ROVER},
    "showcase": {"drone": DRONE, "rover": ["odom", "gps", "imu", "camera", "range", "scan"]},
}


@pytest.mark.parametrize("name", scenario_names())
def test_every_shipped_scenario_carries_the_sensors_that_its_text_says_each_with_its_own_settings(name: str) -> None:
    scenario = load_scenario(name)
    assert {robot: list(each.all_sensors()) for robot, each in scenario.robots.items()} == SHIPPED[name]
    for robot, sensor, block, kind in scenario.all_sensors:
        assert kind is SENSORS.built_in[sensor], robot  # none of them has a name of its own
        assert type(block) is kind.settings
        assert block is scenario.robots[robot].all_sensors()[sensor]
        assert 0 < block.hz <= scenario.physics_hz


def test_the_shipped_default_is_the_text_of_the_requirements_below_its_comment() -> None:
    text = scenario_file("default").read_text()
    assert text[text.index("name:") :] == PRD


def test_something_else_than_a_name_path_or_dict_is_refused() -> None:
    with pytest.raises(ScenarioError, match="expected the name of a scenario, a path or a dict, found int"):
        load_scenario(5)  # type: ignore[arg-type]
