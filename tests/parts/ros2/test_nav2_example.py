"""The example for Nav2, without Nav2: what its files name exists, its map is the world's, its mission can be met."""

import ast
import math
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from microsim import Simulation, load_scenario
from microsim.documents.yaml_text import read_yaml
from microsim.messages.topics import table
from microsim.parts.missions import fly_mission, load_mission
from microsim.parts.small_nodes.robot_simulator_settings import RobotSimulatorSettings
from microsim.scenario.map_images import read_map_file
from microsim.scenario.world_models import MAX_CELLS
from tests.support import decoded

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "nav2"
ROUTE = [[20, 13], [20, 16.5], [12, 18], [20, 17.5], [27, 21], [33.5, 25], [28, 28]]  # by hand, around everything


@pytest.fixture(scope="module")
def sim() -> Simulation:
    return Simulation(load_scenario(FOLDER / "arena.yaml"))


@pytest.fixture(scope="module")
def sent(sim: Simulation) -> list[Any]:
    return [*sim.step(0), *sim.step(12)]


def parameters(prefix: str, name: str = "nav2_params.yaml") -> dict[str, Any]:
    text = (FOLDER / name).read_text().replace("$(var prefix)", prefix)
    text = text.replace("$(var map_topic)", "/world/occupancy")
    assert "$(" not in text
    return dict(read_yaml(text, name).data)


def leaves(data: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """(key, value) of everything in it that is neither a mapping nor a list."""
    for name, value in data.items() if isinstance(data, dict) else ((key, each) for each in data):
        if isinstance(value, (dict, list)):
            yield from leaves(value, name)
        else:
            yield name, value


def test_parameters_name_topics_and_frames_of_the_rover(sim: Simulation, sent: list[Any]) -> None:
    odometry, scan = decoded(sent, "/rover/odom")[-1], decoded(sent, "/rover/scan")[-1]
    frames = {odometry.header.frame_id, odometry.child_frame_id}
    assert frames == {"rover/odom", "rover/base_link"}
    files = (parameters("rover/"), parameters("rover/", "slam.yaml"))
    found = [(key, value) for each in files for key, value in leaves(each) if isinstance(value, str)]
    topics = {value for key, value in found if key.endswith("topic") and value.startswith("/rover/")}
    taken = {row.of("rover") for row in table() if row.direction == "in"}
    assert topics == {"/rover/odom", "/rover/scan", "/rover/cmd_vel"}
    assert topics <= {*sim.topics, *taken}
    assert sim.topics["/world/occupancy"][1].latched  # as AMCL and the static layer demand of a map
    assert [value for key, value in found if key == "map_topic"] == 2 * ["/world/occupancy"]
    named = {value for key, value in found if "frame" in key}
    assert named == {*frames, "map"}
    assert scan.header.frame_id == "rover/scan_link"
    moving = decoded(sent, "/tf")[-1].transforms
    assert [(each.header.frame_id, each.child_frame_id) for each in moving] == [tuple(sorted(frames, reverse=True))]
    height = next(each for each in decoded(sent, "/tf_static")[-1].transforms if "scan" in each.child_frame_id)
    bounds = parameters("rover/")["collision_monitor"]["ros__parameters"]["scan"]
    assert bounds["min_height"] < height.transform.translation.z < bounds["max_height"]


def test_the_car_has_the_same_names_and_its_footprint() -> None:
    sim = Simulation(load_scenario(FOLDER / "oval.yaml"))
    odometry = decoded(sim.step(0), "/ego/odom")[-1]
    assert (odometry.header.frame_id, odometry.child_frame_id) == ("ego/odom", "ego/base_link")
    assert {"/ego/scan", "/world/occupancy"} <= set(sim.topics)
    car, shape = sim.scenario.robots["ego"], read_yaml((FOLDER / "car.yaml").read_text(), "car.yaml").data
    front, back = car.length_m - car.rear_overhang_m, -car.rear_overhang_m
    corners = ast.literal_eval(shape["global_costmap"]["global_costmap"]["ros__parameters"]["footprint"])
    assert {tuple(each) for each in corners} == {(x, y) for x in (front, back) for y in (-0.9, 0.9)}
    assert car.width_m == 1.8
    base = {key for node in parameters("ego/").values() for key, _ in leaves(node)}
    assert {key for node in shape.values() for key, _ in leaves(node)} - base == {
        *("footprint", "min_lookahead_dist", "regulated_linear_scaling_min_radius", "use_rotate_to_heading"),
        *("max_obstacle_height", "min_obstacle_height"),
    }


def test_without_a_prefix_they_fit_robot_simulator() -> None:
    given = read_yaml((FOLDER / "robot_simulator.yaml").read_text(), "robot_simulator.yaml").data
    settings = RobotSimulatorSettings(**given["/robot_simulator"]["ros__parameters"])
    found = dict(leaves(parameters("")))
    assert found["odom_frame_id"] == settings.frame_odom
    assert found["base_frame_id"] == settings.frame_base
    assert found["odom_topic"] == "/odom"
    assert found["cmd_vel_out_topic"] == "/cmd_vel"
    assert settings.tf_tree == "map_odom_base"


def test_the_world_is_that_of_obstacles_arena_and_the_map_is_its_occupancy(sim: Simulation, sent: list[Any]) -> None:
    assert sim.scenario.obstacles == load_scenario("obstacles_arena").obstacles
    message = decoded(sent, "/world/occupancy")[-1]
    described, cells = read_map_file(FOLDER / "arena_map.yaml", MAX_CELLS)
    np.testing.assert_array_equal(cells.reshape(-1), message.data)
    assert set(message.data.tolist()) == {-1, 0, 100}  # the inside of obstacles is unknown, as a scanner leaves it
    np.testing.assert_array_equal(message.data != 0, sim.world.occupied.reshape(-1) > 0)
    origin, info = message.info.origin.position, message.info
    assert (*described.origin, described.resolution) == pytest.approx((origin.x, origin.y, 0.0, info.resolution))


def test_amcl_starts_where_the_rover_does_and_the_map_of_slam_has_its_origin_there(sim: Simulation) -> None:
    start, believed = sim.scenario.robots["rover"].start.map_pose, parameters("rover/")["amcl"]["ros__parameters"]
    assert believed["initial_pose"] == {"x": start.x, "y": start.y, "z": 0.0, "yaw": start.yaw}
    given = f"{start.x:g},{start.y:g},{start.yaw}"
    assert f'"start": ("{given}"' in (FOLDER / "nav2.launch.py").read_text()
    seen_from = runpy.run_path(str(FOLDER / "goals.py"))["seen_from"]
    x, y, yaw = seen_from(given, "12,18,0.5")
    c, s = math.cos(start.yaw), math.sin(start.yaw)
    assert (start.x + c * x - s * y, start.y + s * x + c * y, start.yaw + yaw) == pytest.approx((12, 18, 0.5))
    assert seen_from("0,0,0", "12,18,0.5") == (12, 18, 0.5)


def test_the_mission_is_met_by_a_good_drive_and_not_by_standing_still() -> None:
    mission = load_mission(FOLDER / "arena_mission.yaml")
    assert len(fly_mission(mission).violations) == 4
    drive = {"robot": "rover", "waypoints": ROUTE, "speed": 1.0, "tolerance": 0.3}
    good = mission.model_copy(update={"do": load_mission({"duration": 90, "do": [drive]}).do})
    assert fly_mission(good).violations == ()


def test_the_launch_file_starts_every_node_that_has_parameters_and_goals_are_those_of_the_mission() -> None:
    tree = ast.parse((FOLDER / "nav2.launch.py").read_text())
    named = {
        each.targets[0].id: each.value for each in tree.body
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)
    }  # fmt: skip
    groups = [ast.literal_eval(named[name]) for name in ("LOCALISATION", "SLAM", "NAVIGATION")]
    nodes = {name for group in groups for name in group}
    assert set(ast.literal_eval(named["EXECUTABLES"])) <= nodes
    given = {*parameters(""), *parameters("", "slam.yaml")}
    assert given - {"local_costmap", "global_costmap"} == nodes - {"map_server"}
    tours = next(
        ast.literal_eval(each.value) for each in ast.parse((FOLDER / "goals.py").read_text()).body
        if isinstance(each, ast.Assign)
    )  # fmt: skip
    for name in ("arena", "oval"):
        places = [tuple(map(float, goal.split(",")[:2])) for goal in tours[name]]
        expected = [each.equals for each in load_mission(FOLDER / f"{name}_mission.yaml").expect]
        assert set(filter(None, expected)) <= set(places)
        assert places[-1] in expected
