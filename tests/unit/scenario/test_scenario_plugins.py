"""Sensors and generators that others write, and the maze that is shipped."""

import importlib.metadata
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.errors import PluginError, ScenarioError
from microsim.generators import Dice, Generator
from microsim.generators.random_maze import carve
from microsim.registry import Registry, is_subclass
from microsim.scenario import Box, Circle, Robot, load_scenario
from microsim.scenario.loading import occupancy
from microsim.sensors import SENSORS
from microsim.sensors.plugin import PluginSensor
from microsim.sensors.sensor import PythonSensor

THERMOMETER = """
from pydantic import BaseModel, Field
from microsim.sensors.sensor import PythonSensor

class Options(BaseModel):
    offset_k: float = Field(0.5, ge=0)

def create(context):
    raise NotImplementedError

SENSOR = PythonSensor("thermometer", "sensor_msgs/msg/Temperature", create, Options)
"""

ROW_OF_POSTS = """
from pydantic import BaseModel
from microsim.generators import Generator

class Options(BaseModel):
    count: int = 3

def generate(options, map, random):
    posts = [{"type": "cylinder", "center": [50 + 5 * n, 50 + random.uniform(0, 3), 0], "radius": 1, "height": 2}
             for n in range(options.count)]
    return [*posts, {"type": "circle", "class": "target", "center": [90, 90], "radius": 1}]

GENERATOR = Generator("posts", generate, Options)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "plugins"
    made.mkdir()
    (made / "thermometer.py").write_text(THERMOMETER)
    (made / "posts.py").write_text(ROW_OF_POSTS)
    (made / "shared.py").write_text("ANSWER = 42\n")
    return made


def with_sensor(folder: Path, **block: Any) -> dict[str, Any]:
    sensors = {"nose": {"type": "thermometer", **block}}
    return {"plugins": [str(folder)], "robots": {"drone": {"sensors": sensors}}}


def complaint(data: dict[str, Any]) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(data)
    return str(caught.value)


def test_a_sensor_from_a_folder_has_its_own_keys_beside_the_common_ones(folder: Path) -> None:
    data = with_sensor(folder, hz=4, offset_k=2, mount={"xyz": [1, 2, 3]})
    scenario = load_scenario(data)
    nose = scenario.robots["drone"].sensors["nose"]
    assert isinstance(nose, PluginSensor)
    assert (nose.type, nose.hz, nose.options, nose.mount.xyz) == ("thermometer", 4, {"offset_k": 2.0}, (1, 2, 3))
    assert load_scenario(scenario.to_dict()) == scenario
    found = SENSORS.find(nose.type, scenario.plugins)
    assert found is not None
    assert found.message_type == "sensor_msgs/msg/Temperature"


def test_folders_are_named_relative_to_the_scenario(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder.parent / "s.yaml"
    file.write_text("plugins: [plugins]\nrobots: {drone: {sensors: {nose: {type: thermometer}}}}\n")
    monkeypatch.chdir("/")
    scenario = load_scenario(file)
    assert scenario.robots["drone"].sensors["nose"].hz == 10
    assert load_scenario(scenario.to_dict()) == scenario


def test_the_keys_of_a_plug_in_are_checked_by_its_model(folder: Path) -> None:
    prefix = "robots.drone.sensors.nose"
    assert complaint(with_sensor(folder, ofset_k=1)) == (
        f"{prefix}.ofset_k: unknown key 'ofset_k'; did you mean 'offset_k'? there are: "
        "offset_k, enabled, hz, mount, type"
    )
    assert complaint(with_sensor(folder, offset_k=-1, hz=0)).splitlines() == [
        f"{prefix}.hz: expected a rate above 0 and up to 10000 Hz, found 0",
        f"{prefix}.offset_k: expected a value of at least 0, found -1",
    ]
    assert complaint(with_sensor(folder, hz=61)) == f"{prefix}.hz: expected at most physics_hz, which is 60, found 61"


def test_a_plug_in_may_have_its_own_kinds_of_errors(folder: Path) -> None:
    (folder / "thermometer.py").write_text(
        THERMOMETER.replace("= Field(0.5, ge=0)", "= 0.5")
        + "from pydantic import field_validator\n"
        + "from pydantic_core import PydanticCustomError\n"
        + "class Options(BaseModel):\n"
        + "    offset_k: float = 0.5\n"
        + "    @field_validator('offset_k')\n"
        + "    def cold(cls, value):\n"
        + "        raise PydanticCustomError('cold', 'too cold')\n"
        + "SENSOR = PythonSensor('thermometer', 'sensor_msgs/msg/Temperature', create, Options)\n"
    )
    assert complaint(with_sensor(folder, offset_k=3)) == "robots.drone.sensors.nose.offset_k: too cold"


def test_an_unknown_sensor_lists_the_plug_ins_too(folder: Path) -> None:
    said = complaint(with_sensor(folder, type="thermometre"))
    assert said.endswith(
        "unknown sensor type 'thermometre'; did you mean 'thermometer'? there are: "
        "odom, localisation, pose2D, gps, imu, ahrs, camera, range, scan, lidar, detections, thermometer"
    )


def test_nothing_is_imported_that_no_scenario_asks_for(folder: Path) -> None:
    (folder / "broken.py").write_text("raise RuntimeError('imported')\n")
    load_scenario({"plugins": [str(folder)]})
    with pytest.raises(PluginError):
        load_scenario(with_sensor(folder))


@pytest.mark.parametrize(
    ("text", "place", "cause"),
    [
        ("x = 1\ny = undefined\n", ":2", "NameError: name 'undefined' is not defined"),
        ("x = 1\n\nif:\n", ":3", "SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)\n", ":2", "SystemExit: 3"),
        ("import no_such_module_anywhere\n", ":1", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("def f():\n    return 1 / 0\nf()\n", ":2", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_broken_plug_in_is_told_with_file_line_and_cause(text: str, place: str, cause: str, folder: Path) -> None:
    (folder / "broken.py").write_text(text)
    with pytest.raises(PluginError) as caught:
        load_scenario(with_sensor(folder))
    assert str(caught.value) == f"{folder / 'broken.py'}{place}: plug-in could not be loaded: {cause}"


def test_a_constant_of_another_kind_is_refused(folder: Path) -> None:
    (folder / "wrong.py").write_text("SENSOR = 3\n")
    with pytest.raises(PluginError, match=r"wrong.py: expected SENSOR = PythonSensor\(\.\.\.\), .*, found int"):
        load_scenario(with_sensor(folder))


def test_two_plug_ins_of_one_name_are_refused(folder: Path) -> None:
    (folder / "again.py").write_text(THERMOMETER)
    with pytest.raises(PluginError, match=r"two plug-ins are named 'thermometer': .*again.py and .*thermometer.py"):
        load_scenario(with_sensor(folder))


@pytest.fixture
def entry_points(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[EntryPoint]]:
    """The entry points that packages would declare, by group."""
    declared: dict[str, list[EntryPoint]] = {}
    monkeypatch.setattr(Registry, "_entries", lambda self: declared.get(self.group, []))
    return declared


def test_installed_packages_are_looked_through_once_however_many_robots_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads a file of every package: for each robot of 2,000 that took 10 s."""
    asked: list[str] = []
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: asked.append(group) or [])
    robots = {f"r{n}": {"model": "rover", "start": {"map_pose": {"x": 1 + n, "y": 5}}} for n in range(100)}
    load_scenario({"robots": robots})
    assert len(asked) == len(set(asked))


HERE = __name__
BY_ENTRY = PythonSensor("barometer", "sensor_msgs/msg/FluidPressure", lambda context: None)
SUBMARINE_DEPTH = 100.0


class Submarine(Robot):
    """A robot of another package."""

    model: str = "submarine"
    max_depth_m: float = SUBMARINE_DEPTH


@pytest.mark.parametrize("value", ["BY_ENTRY", "SENSOR"])
def test_a_sensor_is_found_by_entry_point(
    value: str, entry_points: dict[str, list[EntryPoint]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[HERE], "SENSOR", BY_ENTRY, raising=False)
    target = f"{HERE}:BY_ENTRY" if value == "BY_ENTRY" else HERE
    entry_points["microsim.sensors"] = [EntryPoint("barometer", target, "microsim.sensors")]
    data = {"robots": {"rover": {"sensors": {"ear": {"type": "barometer"}}}}}
    assert load_scenario(data).robots["rover"].sensors["ear"].hz == 10
    data["robots"]["rover"]["sensors"]["ear"] = {"type": "barometer", "x": 1}  # type: ignore[dict-item]
    assert "unknown key 'x'" in complaint(data)


def test_a_broken_entry_point_is_told_by_name(entry_points: dict[str, list[EntryPoint]]) -> None:
    entry_points["microsim.sensors"] = [EntryPoint("barometer", "no_such_package:SENSOR", "microsim.sensors")]
    with pytest.raises(
        PluginError, match=r"plug-in 'barometer' \(entry point microsim.sensors, no_such_package:SENSOR\)"
    ):
        load_scenario({"robots": {"rover": {"sensors": {"ear": {"type": "barometer"}}}}})


def test_a_robot_model_is_found_by_entry_point(entry_points: dict[str, list[EntryPoint]]) -> None:
    entry_points["microsim.robots"] = [EntryPoint("submarine", f"{HERE}:Submarine", "microsim.robots")]
    scenario = load_scenario({"robots": {"submarine": {"max_depth_m": 30}, "second": {"model": "submarine"}}})
    assert [each.max_depth_m for each in scenario.robots.values() if isinstance(each, Submarine)] == [30, 100]
    assert load_scenario(scenario.to_dict()) == scenario
    assert "there are: drone, rover, bicycle, navigation_robot, actor, submarine" in complaint(
        {"robots": {"x": {"model": "boat"}}}
    )
    entry_points["microsim.robots"] = [EntryPoint("submarine", f"{HERE}:SUBMARINE_DEPTH", "microsim.robots")]
    with pytest.raises(PluginError, match="submarine: expected ROBOT = a subclass of Robot, found float"):
        load_scenario({"robots": {"submarine": {}}})


def posts(folder: Path, seed: int = 1, **options: Any) -> dict[str, Any]:
    box = {"type": "box", "center": [120, 120, 0], "size": [1, 1, 1]}
    entry = {"plugin": "posts", **options}
    return {"seed": seed, "plugins": [str(folder)], "obstacles": [box, entry, box], "robots": {}}


def test_what_a_generator_makes_stands_in_its_place(folder: Path) -> None:
    scenario = load_scenario(posts(folder, count=2))
    assert [each.type for each in scenario.obstacles] == ["box", "cylinder", "cylinder", "box"]
    assert isinstance(scenario.features[0], Circle)
    assert load_scenario(scenario.to_dict()) == scenario


def test_generators_are_a_function_of_the_seed(folder: Path) -> None:
    first, again, other = (load_scenario(posts(folder, seed)).obstacles for seed in (1, 1, 2))
    assert first == again != other


def test_the_keys_of_a_generator_are_checked(folder: Path) -> None:
    assert complaint(posts(folder, cont=2)) == (
        "obstacles[1].cont: unknown key 'cont'; did you mean 'count'? there are: count, plugin"
    )
    assert complaint(posts(folder, count="x")).startswith("obstacles[1].count: ")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise KeyError('gone')", r"generator 'bad' \(obstacles\[0\]\) failed: KeyError: 'gone'"),
        ("return [3]", r"made an unusable element 0: expected a dict with a type, found 3"),
        ("return [{'type': 'box'}]", r"unusable element 0, a box: center: missing key 'center'.*; size: missing key"),
        ("return None", r"failed: TypeError"),
    ],
)
def test_a_generator_that_fails_is_a_plug_in_error(body: str, said: str, folder: Path) -> None:
    lines = ["from microsim.scenario.plugins import Generator", "def g(options, map, random):", f"    {body}"]
    (folder / "bad.py").write_text("\n".join([*lines, "GENERATOR = Generator('bad', g)", ""]))
    with pytest.raises(PluginError, match=said):
        load_scenario({"plugins": [str(folder)], "obstacles": [{"plugin": "bad"}]})


def test_dice_are_the_same_on_every_machine() -> None:
    dice = Dice(7, "random_maze", 0)
    assert [dice.bits() for _ in range(3)] == DICE
    draws = [Dice("a", n).uniform(2, 3) for n in range(200)]
    assert all(2 <= draw <= 3 for draw in draws)
    assert 2.4 < sum(draws) / 200 < 2.6
    assert {Dice("b", n).below(3) for n in range(50)} == {0, 1, 2}


DICE = [970610471428482469, 16296506249315435796, 2615811457568357370]


@given(st.integers(1, 12), st.integers(1, 12), st.integers())
def test_a_maze_is_perfect(columns: int, rows: int, seed: int) -> None:
    """A connected graph with one passage fewer than chambers has exactly one way between any two."""
    passages = carve(columns, rows, Dice(seed))
    assert len(passages) == columns * rows - 1
    reached, frontier = {(0, 0)}, [(0, 0)]
    while frontier:
        here = frontier.pop()
        for passage in passages:
            if here in passage:
                (there,) = set(passage) - {here}
                if there not in reached:
                    reached.add(there)
                    frontier.append(there)
    assert len(reached) == columns * rows


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000), st.integers(2, 4), st.integers(1, 2))
def test_every_corridor_of_a_maze_can_be_reached_over_free_cells(seed: int, corridor: int, wall: int) -> None:
    maze = {"plugin": "random_maze", "region": [1, 1, 28, 24], "corridor_m": corridor, "wall_m": wall, "seed": seed}
    scenario = load_scenario({"map": {"size_xy_cells": [30, 26]}, "obstacles": [maze], "robots": {}})
    assert all(isinstance(each, Box) for each in scenario.obstacles)
    occupied = occupancy(scenario)
    free = {(int(row), int(column)) for row, column in zip(*(occupied == 0).nonzero(), strict=True)}
    reached, frontier = {(0, 0)}, [(0, 0)]
    while frontier:
        row, column = frontier.pop()
        for there in ((row + 1, column), (row, column + 1), (row - 1, column), (row, column - 1)):
            if there in free and there not in reached:
                reached.add(there)
                frontier.append(there)
    assert reached == free


def test_a_maze_stays_in_its_region() -> None:
    maze = {"plugin": "random_maze", "region": [10, 20, 50, 45], "corridor_m": 2.5, "wall_m": 0.5, "class": "hazard"}
    for box in load_scenario({"obstacles": [maze], "robots": {}}).obstacles:
        assert isinstance(box, Box)
        assert box.class_id == 2
        for axis, (low, high) in enumerate(((10, 50), (20, 45))):
            assert low <= box.center[axis] - box.size[axis] / 2
            assert box.center[axis] + box.size[axis] / 2 <= high


def test_a_maze_without_entrances_is_closed() -> None:
    maze = {"plugin": "random_maze", "region": [0, 0, 9, 9], "corridor_m": 3, "wall_m": 1, "entrances": False}
    occupied = occupancy(load_scenario({"map": {"size_xy_cells": [9, 9]}, "obstacles": [maze], "robots": {}}))
    assert occupied[0].all()
    assert occupied[8].all()
    assert occupied[:, 0].all()
    assert occupied[:, 8].all()


def test_generators_can_be_described_without_options() -> None:
    assert Generator("g", lambda options, map, random: []).options is None


def test_only_classes_are_subclasses() -> None:
    """In Python 3.10 `list[int]` is an instance of `type`, and `issubclass` refuses it."""
    assert is_subclass(bool, int)
    assert not [each for each in (list[int], dict[str, int], list, 3, None) if is_subclass(each, int)]
