"""What the launch files declare and start. `launch` is not on PyPI, so small stand-ins record how they are called."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from rosbags.highlevel import AnyReader

import microsim
from microsim.messages.topics import table
from tests.forked_python import forked_python

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "launch" / "microsim.launch.py"
ARGUMENTS = {
    "scenario",
    "seed",
    "use_rviz",
    "rviz_config",
    "headless",
    "record",
    "plugins",
    "params_file",
    "namespace",
    "use_robot_state_publisher",
    *("use_sim_time", "robot_name", "x_pose", "y_pose", "z_pose", "yaw"),
    *("world", "rviz_config_file", "use_robot_state_pub"),
}


class Said(SimpleNamespace):
    """Whatever a launch class is made with."""

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(values=values, **named)


class LaunchConfiguration(Said):
    def perform(self, context: dict[str, str]) -> str:
        return context[self.values[0]]


@pytest.fixture
def launch_file(stand_ins: None) -> dict[str, Any]:
    return runpy.run_path(str(FILE))


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        "launch": ("LaunchDescription", "LaunchContext"),
        "launch.actions": ("DeclareLaunchArgument", "OpaqueFunction", "Shutdown"),
        "launch.substitutions": (),
        "launch_ros": (),
        "launch_ros.actions": ("Node",),
        "launch_ros.parameter_descriptions": ("ParameterValue",),
        "ament_index_python": (),
        "ament_index_python.packages": (),
    }
    for name, classes in names.items():
        module = ModuleType(name)
        for kind in classes:
            setattr(module, kind, type(kind, (Said,), {}))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys.modules["launch.substitutions"], "LaunchConfiguration", LaunchConfiguration, raising=False)
    index = sys.modules["ament_index_python.packages"]
    monkeypatch.setattr(index, "PackageNotFoundError", KeyError, raising=False)
    monkeypatch.setattr(index, "get_package_prefix", {"rviz2": "/opt/ros/some"}.__getitem__, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")


class Started:
    """Everything the launch file starts when it is given these arguments."""

    def __init__(self, launch_file: dict[str, Any], **given: str) -> None:
        *arguments, start = launch_file["generate_launch_description"]().values[0]
        assert type(start).__name__ == "OpaqueFunction"
        self.arguments = {argument.values[0]: argument for argument in arguments}
        context = {name: argument.default_value for name, argument in self.arguments.items()}
        assert set(given) <= set(context)
        for name, value in given.items():
            assert self.arguments[name].choices is None or value in self.arguments[name].choices
        actions = start.function(context | given)
        assert {type(action).__name__ for action in actions} == {"Node"}
        self.nodes = {node.namespace + ":" + node.package: node for node in actions}

    @property
    def profile(self) -> str:
        """The name of what RViz shows."""
        option, path = self.nodes[":rviz2"].arguments
        assert option == "--display-config"
        return Path(path).name

    def parameters(self, node: str) -> dict[str, Any]:
        return {name: getattr(value, "values", [value])[0] for name, value in self.nodes[node].parameters[-1].items()}


def test_every_argument_has_a_default_and_an_explanation(launch_file: dict[str, Any]) -> None:
    arguments = Started(launch_file).arguments
    assert set(arguments) == ARGUMENTS
    assert all(argument.description for argument in arguments.values())


def test_every_argument_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "lookup/ros2_reference.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for name in ARGUMENTS)


def test_the_simulator_is_the_executable_of_the_package_and_ends_the_launch(launch_file: dict[str, Any]) -> None:
    node = Started(launch_file).nodes[":microsim"]
    assert (node.package, node.executable, node.name) == ("microsim", "microsim", "microsim")
    assert type(node.on_exit).__name__ == "Shutdown"


def test_the_simulator_starts_last_so_that_a_missing_package_leaves_nothing_running(
    launch_file: dict[str, Any],
) -> None:
    assert list(Started(launch_file, record="bag").nodes)[-1] == ":microsim"


def test_what_is_not_given_is_not_passed_on(launch_file: dict[str, Any]) -> None:
    started = Started(launch_file, headless="true")
    assert list(started.nodes) == [":microsim"]
    assert started.nodes[":microsim"].parameters == [{"use_sim_time": True}]
    assert started.nodes[":microsim"].arguments == []


def test_scenario_and_seed_come_after_the_params_file(launch_file: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.touch()
    started = Started(launch_file, scenario="flat", seed="-7", params_file=str(file), headless="true")
    assert started.nodes[":microsim"].parameters[0] == str(file)
    assert started.parameters(":microsim") == {"use_sim_time": True, "scenario": "flat", "seed": -7}


def test_with_rviz_the_models_are_published_and_the_frames_stay_those_of_the_scenario(
    launch_file: dict[str, Any],
) -> None:
    started = Started(launch_file)
    assert set(started.nodes) == {
        ":microsim",
        ":rviz2",
        "/drone:robot_state_publisher",
        "/rover:robot_state_publisher",
    }
    assert started.parameters(":microsim") == {"use_sim_time": True}
    for robot in ("drone", "rover"):
        node = f"/{robot}:robot_state_publisher"
        parameters = started.parameters(node)
        assert parameters["frame_prefix"] == f"{robot}/"
        assert parameters["use_sim_time"] is True
        model = ET.fromstring(parameters["robot_description"])
        assert model.get("name") == robot
        assert {joint.get("type") for joint in model.findall("joint")} == {"fixed"}  # nobody publishes joint states
        assert dict(started.nodes[node].remappings) == {
            "/tf": f"/{robot}/tf",
            "/tf_static": f"/{robot}/tf_static",
        }
    assert started.profile.startswith("microsim_view")
    assert started.parameters(":rviz2") == {"use_sim_time": True}


def test_a_world_bundle_starts_the_model_of_its_car_and_the_driving_view(launch_file: dict[str, Any]) -> None:
    started = Started(launch_file, scenario="oval")
    assert set(started.nodes) == {":microsim", ":rviz2", "/ego:robot_state_publisher"}
    parameters = started.parameters("/ego:robot_state_publisher")
    assert "frame_prefix" not in parameters
    assert ET.fromstring(parameters["robot_description"]).find("joint") is not None
    assert started.profile.startswith("microsim_drive")
    assert "/ego/robot_description" in Path(started.nodes[":rviz2"].arguments[1]).read_text(encoding="utf-8")


def test_the_model_of_a_car_has_the_sizes_of_its_world(launch_file: dict[str, Any], tmp_path: Path) -> None:
    world = shutil.copytree(ROOT / "worlds" / "minimal_test", tmp_path / "long")
    text = (world / "world.yaml").read_text(encoding="utf-8")
    (world / "world.yaml").write_text(text.replace("vehicle:\n", "vehicle:\n  wheelbase_m: 3.25\n"), encoding="utf-8")
    started = Started(launch_file, scenario=str(world))
    model = ET.fromstring(started.parameters("/ego:robot_state_publisher")["robot_description"])
    (steering,) = model.findall("joint[@name='front_left_steering']/origin")
    assert str(steering.get("xyz")).split()[0] == "3.25"


def test_a_profile_of_the_user_and_one_for_a_scenario_that_is_missing_are_taken_as_they_are(
    launch_file: dict[str, Any],
) -> None:
    drive = str(ROOT / "rviz" / "microsim_drive.rviz")
    assert Started(launch_file, rviz_config=drive).nodes[":rviz2"].arguments == ["--display-config", drive]
    assert Started(launch_file, scenario="no_such_scenario").profile == "microsim_view.rviz"


def test_names_of_nav2_and_gazebo_mean_the_same(launch_file: dict[str, Any]) -> None:
    drive = str(ROOT / "rviz" / "microsim_drive.rviz")
    started = Started(launch_file, world="oval", rviz_config_file=drive, use_robot_state_pub="false")
    assert set(started.nodes) == {":microsim", ":rviz2"}
    assert started.parameters(":microsim")["scenario"] == "oval"
    assert started.nodes[":rviz2"].arguments == ["--display-config", drive]
    wall = Started(launch_file, use_sim_time="false")
    assert wall.parameters(":rviz2")["use_sim_time"] is False
    assert wall.parameters("/rover:robot_state_publisher")["use_sim_time"] is False


@pytest.mark.parametrize(("given", "robot"), [({}, "rover"), ({"world": "oval"}, "ego"), ({"robot_name": "r2"}, "r2")])
def test_the_start_of_a_robot_is_given_as_parameters(
    launch_file: dict[str, Any], given: dict[str, str], robot: str
) -> None:
    started = Started(launch_file, x_pose="3.5", yaw="-1", headless="true", **given)
    parameters = started.parameters(":microsim")
    found = {name: value for name, value in parameters.items() if ".start." in name}
    assert found == {f"{robot}.start.map_pose.x": 3.5, f"{robot}.start.map_pose.yaw": -1.0}


def test_on_request_robot_state_publisher_gives_the_static_frames(launch_file: dict[str, Any]) -> None:
    started = Started(launch_file, use_robot_state_publisher="true")
    assert started.parameters(":microsim")["frames.publish_static_tf"] is False
    assert started.nodes["/drone:robot_state_publisher"].remappings == []


@pytest.mark.parametrize(
    ("given", "rviz", "models"),
    [
        ({"use_rviz": "false"}, False, False),
        ({"headless": "True", "use_rviz": "True"}, False, False),
        ({"headless": "true", "use_robot_state_publisher": "true"}, False, True),
        ({"use_robot_state_publisher": "false"}, True, False),
    ],
)
def test_rviz_and_models_can_be_had_apart(
    launch_file: dict[str, Any], given: dict[str, str], rviz: bool, models: bool
) -> None:
    started = Started(launch_file, **given)
    assert (":rviz2" in started.nodes) == rviz
    assert ("/drone:robot_state_publisher" in started.nodes) == models


def test_without_a_display_or_without_rviz_the_simulator_starts_alone_unless_rviz_is_asked_for(
    launch_file: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(launch_file["_can_show_rviz"].__globals__, "get_package_prefix", {}.__getitem__)
    assert list(Started(launch_file).nodes) == [":microsim"]
    assert ":rviz2" in Started(launch_file, use_rviz="true").nodes
    monkeypatch.undo()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert list(Started(launch_file).nodes) == [":microsim"]


def test_a_namespace_holds_every_node_and_every_absolute_name(launch_file: dict[str, Any]) -> None:
    started = Started(launch_file, namespace="one/two/", record="bag")
    assert set(started.nodes) == {
        "/one/two:microsim",
        "/one/two:rviz2",
        "/one/two/drone:robot_state_publisher",
        "/one/two/rover:robot_state_publisher",
    }
    for node in started.nodes.values():
        moved = dict(getattr(node, "remappings", []))
        assert all(after.startswith("/one/two/") and after.endswith(before) for before, after in moved.items())
        if node.package != "microsim":  # whose topics follow its namespace
            assert {"/clock", "/tf", "/tf_static"} <= set(moved)
    given = Started(launch_file, namespace="one/two", use_robot_state_publisher="true")
    assert dict(given.nodes["/one/two/drone:robot_state_publisher"].remappings)["/tf_static"] == "/one/two/tf_static"
    kinds = ("image", "camera_info", "markers", "occupancy")
    shown = {row.of("drone", "camera") for row in table() if row.kind in kinds}
    assert shown <= set(dict(started.nodes["/one/two:rviz2"].remappings))
    assert started.nodes["/one/two:microsim"].arguments == ["run", "--record", "bag"]


def test_without_a_namespace_nothing_is_remapped(launch_file: dict[str, Any]) -> None:
    assert Started(launch_file).nodes[":rviz2"].remappings == []


def test_folders_of_plug_ins_are_named_one_by_one_and_no_other_code_runs(
    launch_file: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "posts.py").write_text(
        "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"
    )
    yard = tmp_path / "yard.yaml"
    yard.write_text("plugins: [code]\nobstacles: [{plugin: posts}]\n")
    Started(launch_file, scenario=str(yard))
    assert not (tmp_path / "code" / "posts.ran").exists()
    started = Started(launch_file, scenario=str(yard), plugins=f"{tmp_path / 'code'}:other", record="bag")
    options = ["--record", "bag", "--plugins", str(tmp_path / "code"), "--plugins", "other"]
    assert started.nodes[":microsim"].arguments == ["run", *options]
    assert (tmp_path / "code" / "posts.ran").exists()


def test_the_simulator_records_itself_so_that_no_tick_is_missed(launch_file: dict[str, Any], tmp_path: Path) -> None:
    node = Started(launch_file, record=str(tmp_path / "bag"), headless="true").nodes[":microsim"]
    assert node.arguments == ["run", "--record", str(tmp_path / "bag")]
    command = [*forked_python(), "-m", "microsim", *node.arguments, "--duration", "0.1", "--rtf", "0"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    with AnyReader([tmp_path / "bag"]) as bag:
        clock = [at for connection, at, _ in bag.messages() if connection.topic == "/clock"]
    assert (len(clock), clock[0]) == (7, 0)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"record": str(ROOT / "docs")}, f"record:={ROOT / 'docs'} already exists; choose another folder"),
        ({"seed": "abc"}, "seed:=abc is not a whole number"),
        ({"seed": "1.5"}, "seed:=1.5 is not a whole number"),
        ({"params_file": "no.yaml"}, "params_file:=no.yaml does not exist"),
        ({"x_pose": "left"}, "x_pose:=left is not a number"),
    ],
)
def test_a_bad_argument_is_refused_before_anything_starts(
    launch_file: dict[str, Any], given: dict[str, str], why: str
) -> None:
    with pytest.raises(RuntimeError) as refused:
        Started(launch_file, **given)
    assert str(refused.value) == why


def test_the_parameter_that_leaves_static_frames_to_others_is_one_of_the_scenario() -> None:
    scenario = microsim.load_scenario({"frames": {"publish_static_tf": False}})
    sent = {message.topic for message in microsim.Simulation(scenario).step(0)}
    assert "/tf_static" not in sent


def test_the_real_launch_takes_the_file_where_it_is_installed() -> None:
    pytest.importorskip("launch_ros")
    from launch import LaunchContext
    from launch.launch_description_sources import get_launch_description_from_python_launch_file

    description = get_launch_description_from_python_launch_file(str(FILE))
    assert {argument.name for argument in description.get_launch_arguments()} == ARGUMENTS
    context = LaunchContext()
    context.launch_configurations["use_rviz"] = "true"
    started = [entity.visit(context) for entity in description.entities][-1]
    assert len(started) == 4


# ---- sim_rover.launch.py


def test_the_rover_starts_with_a_state_publisher_whose_joints_and_frames_are_its_own(stand_ins: None) -> None:
    from microsim.parts.small_nodes.rover_node import NODE_NAME, WHEEL_JOINTS, RoverSettings

    launch_file = runpy.run_path(str(ROOT / "launch" / "sim_rover.launch.py"))
    *arguments, start = launch_file["generate_launch_description"]().values[0]
    assert {each.values[0]: each.default_value for each in arguments} == {"robot_id": "p0", "params_file": ""}
    publisher, rover = start.function({"robot_id": "rover", "params_file": "/tmp/p.yaml"})
    assert (rover.package, rover.executable, rover.name) == ("microsim", "sim_rover", NODE_NAME)
    file, own = rover.parameters
    assert file == "/tmp/p.yaml"
    assert (own["robot_id"].values[0], own["publish_tf"]) == ("rover", True)
    assert set(own) <= set(RoverSettings.model_fields)
    assert type(rover.on_exit).__name__ == "Shutdown"
    (parameters,) = publisher.parameters
    assert (publisher.namespace, parameters["frame_prefix"]) == ("rover", "rover/")
    joints = ET.fromstring(parameters["robot_description"].values[0]).findall("joint[@type='continuous']")
    assert {joint.get("name") for joint in joints} == set(WHEEL_JOINTS)
