"""Any robot in a world bundle: what the bundle says becomes a scenario, a world, a car and its sensors."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.bundle import load_bundle
from microsim.engine.geometry import matrix_from_rpy, rpy_from_matrix, rpy_from_quaternion
from microsim.engine.world import OBSTACLE, TARGET, Mesh, World
from microsim.errors import MicroSimError, ScenarioError
from microsim.paths import world_folder
from microsim.recording.bag_io import RecordOptions, open_bag
from microsim.recording.bag_replay import Replay
from microsim.recording.recorder import Recorder
from microsim.recording.state_file import resume, save_state
from microsim.scenario import load_scenario
from tests.support import decoded, on_topic
from tests.unit.scenario.test_scenario_schema import VALIDATOR

SMALL = {
    "camera_front": {
        "resolution": {"width": 32, "height": 24},
        "intrinsics": {"fx": 20.0, "fy": 20.0, "cx": 15.5, "cy": 11.5},
    }
}


def minimal(**changes: Any) -> dict[str, Any]:
    return {"world": "worlds/minimal_test", "robots": {"ego": {"sensors": SMALL}}, **changes}


def test_the_bundle_s_timebase_origin_sensors_start_and_map_become_the_scenario_s() -> None:
    bundle, scenario = load_bundle("minimal_test"), load_scenario({"world": "minimal_test"})
    assert scenario.name == "minimal_test"
    assert scenario.physics_hz == bundle.timebase.physics_hz
    assert scenario.map.origin_wgs84 == bundle.origin_wgs84
    assert scenario.map.size_xy_cells == (128, 128)
    car: Any = scenario.robots["ego"]
    assert bundle.start is not None
    assert (car.start.map_pose.x, car.start.map_pose.y) == (bundle.start.x, bundle.start.y)
    camera, lidar = car.sensors["camera_front"], car.sensors["lidar_top"]
    assert (camera.intrinsics.fx, camera.resolution.width, camera.hz) == (200.0, 320, 12)
    assert lidar.ring_elevations() == bundle.lidars["top"].elevations
    assert (lidar.columns, lidar.hz) == (360, 20)
    assert car.emergency_deceleration == bundle.timebase.emergency_brake_m_per_s2


def test_what_a_scenario_writes_wins_over_the_bundle() -> None:
    robots = {
        "ego": {"max_speed": 3.0, "sensors": {"camera_front": None, "lidar_top": {"columns": 8}}},
        "drone": {},
        "rover": {},
    }
    scenario = load_scenario({"world": "minimal_test", "name": "mine", "physics_hz": 50, "robots": robots})
    car: Any = scenario.robots["ego"]
    assert (scenario.name, scenario.physics_hz, car.max_speed) == ("mine", 50, 3.0)
    assert set(car.sensors) == {"lidar_top"}
    assert car.sensors["lidar_top"].columns == 8
    assert not scenario.robots["drone"].sensors


def test_a_finished_scenario_loads_again_as_it_is() -> None:
    scenario = load_scenario(minimal())
    assert load_scenario(scenario.to_dict()) == scenario


@pytest.mark.parametrize("world", ["minimal_test", "oval"])
def test_sensors_of_a_bundle_that_are_left_out_stay_out(world: str) -> None:
    """Written out and read, and after spawns, moves and deletions, with a second car too."""
    bundle = load_bundle(world)
    own = [*(f"camera_{name}" for name in bundle.cameras), *(f"lidar_{name}" for name in bundle.lidars)]
    taxi = {"model": "bicycle", "start": {"map_pose": {"x": -7, "y": 6}}, "sensors": {"rear": {"type": "range"}}}
    for kept in (own[:0], own[:1], own[1:]):
        ego = {"sensors": {name: {"hz": 5} if name in kept else None for name in own}}
        scenario = load_scenario({"world": world, "robots": {"ego": ego, "taxi": taxi, "drone": {"camera": None}}})
        assert [name for robot, name, *_ in scenario.all_sensors if robot == "ego" and name in own] == kept
        data = scenario.to_dict()
        assert load_scenario(data) == load_scenario(json.loads(json.dumps(data))) == scenario
        VALIDATOR.validate(data)
        sim = microsim.Simulation(scenario)
        topics = set(sim.topics)
        sim.spawn("crate", {"type": "box", "center": [3, 5, 0], "size": [1, 1, 1]})
        sim.move_obstacle("crate", (4.0, 5.0, 0.0))
        assert set(sim.topics) == topics
        sim.delete("ego")
        assert set(sim.topics) == {topic for topic in topics if "ego" not in topic}


def test_a_run_without_the_sensors_of_a_bundle_replays_and_resumes(tmp_path: Path) -> None:
    left_out = {"camera_front": None, "lidar_top": {"hz": 5, "columns": 8}}
    sim = microsim.Simulation({"world": "minimal_test", "robots": {"ego": {"sensors": left_out}}})
    with Recorder(tmp_path / "bag", sim):
        sim.step(20)
        save_state(tmp_path / "a.state", sim.snapshot())
        sim.step(20)
    with Replay(open_bag(tmp_path / "bag")) as again:
        assert again.verify().is_identical
    resumed = resume(tmp_path / "a.state", tmp_path)
    resumed.step(20)
    assert resumed.digest() == sim.digest()


def test_every_robot_runs_in_a_bundle_and_the_car_in_a_grid_scenario() -> None:
    sim = microsim.Simulation(
        minimal(robots={"ego": {"sensors": SMALL}, "drone": {"camera": None}, "rover": {"lidar": {"columns": 8}}})
    )
    sim.command("ego", speed=2.0)
    sim.command("drone", vx=1.0)
    sim.command("rover", v=1.0)
    before = [sim.state(robot).x for robot in sim.robots]
    topics = {sent.topic for sent in sim.step(100)}
    assert all(sim.state(robot).x > x + 0.5 for robot, x in zip(sim.robots, before, strict=True))
    assert {"/ego/camera_front/image_raw", "/ego/lidar_top/points", "/rover/lidar/points", "/drone/odom"} <= topics
    grid = microsim.Simulation({"robots": {"ego": {}, "rover": {}}})
    grid.command("ego", speed=2.0)
    grid.step(60)
    assert grid.state("ego").speed > 1.0


def test_frames_are_those_of_the_bundle_s_tf_static() -> None:
    (static,) = decoded(microsim.Simulation(minimal()).step(0), "/tf_static")
    document = json.loads((world_folder("minimal_test") / "sensors" / "tf_static.json").read_text())
    found = {each.child_frame_id: each for each in static.transforms}
    assert {"camera_front", "lidar_top"} <= set(found)
    text = json.dumps(document)
    for name in ("camera_front", "lidar_top"):
        assert name in text
        move, turn = found[name].transform.translation, found[name].transform.rotation
        (entry,) = [each for each in document["transforms"] if name in json.dumps(each)]
        assert [move.x, move.y, move.z] == pytest.approx(entry["translation"])
        assert abs(np.dot([turn.x, turn.y, turn.z, turn.w], entry["rotation_quat"])) == pytest.approx(1.0, abs=1e-12)


def test_a_camera_with_the_document_s_ros_axes_has_an_optical_frame_besides() -> None:
    sensors = {"camera_front": {**SMALL["camera_front"], "convention": "ros"}}
    sent = microsim.Simulation(minimal(robots={"ego": {"sensors": sensors}})).step(0)
    plain = microsim.Simulation(minimal()).step(0)
    (static,) = decoded(sent, "/tf_static")
    frames = {each.child_frame_id: each for each in static.transforms}
    image = decoded(sent, "/ego/camera_front/image_raw")[0]
    assert image.header.frame_id == "camera_front_optical"
    assert frames["camera_front_optical"].header.frame_id == "camera_front"
    turn = frames["camera_front"].transform.rotation
    up = [
        2 * (turn.x * turn.y - turn.z * turn.w),
        1 - 2 * (turn.x**2 + turn.z**2),
        2 * (turn.y * turn.z + turn.x * turn.w),
    ]
    np.testing.assert_allclose(up, [0.0, 0.0, 1.0], atol=1e-9)  # its y axis
    assert bytes(image.data) == bytes(decoded(plain, "/ego/camera_front/image_raw")[0].data)


@pytest.mark.parametrize(
    "rpy", [(0.1, 0.2, 0.3), (-math.pi / 2, 0.0, -math.pi / 2), (3.0, -1.5, 2.0), (0.0, math.pi / 2, 0.4)]
)
def test_angles_from_a_rotation_give_that_rotation(rpy: Any) -> None:
    rows = matrix_from_rpy(*rpy)
    np.testing.assert_allclose(matrix_from_rpy(*rpy_from_matrix(rows)), rows, atol=1e-7)


def test_angles_from_the_quaternion_of_a_forward_camera() -> None:
    assert rpy_from_quaternion(-0.5, 0.5, -0.5, 0.5) == pytest.approx((-math.pi / 2, 0.0, -math.pi / 2))


def test_the_drivable_area_is_painted_and_the_mesh_is_seen_and_in_the_way() -> None:
    sim = microsim.Simulation(
        {
            "world": "oval",
            "robots": {
                "ego": {
                    "sensors": dict.fromkeys(("camera_front", "camera_front_left", "camera_front_right", "lidar_top"))
                }
            },
        }
    )
    bundle, world = load_bundle("oval"), sim.world
    assert world.surface[tuple(int(v) for v in reversed(world.in_cells(-20.0, -30.0)))] == TARGET
    assert 0.02 < (world.surface == TARGET).mean() < 0.6
    assert bundle.mesh is not None
    assert world.occupied.sum() > 50
    assert (world.west, world.south) == (bundle.heightmap.west, bundle.heightmap.south)


def wall(height: float) -> Mesh:
    corners = np.array([[5.0, -3.0, -1.0], [5.0, 3.0, -1.0], [5.0, 3.0, height], [5.0, -3.0, height]])
    return Mesh(corners, np.array([[0, 1, 2], [0, 2, 3]], np.int32))


def test_a_mesh_occupies_the_cells_where_it_stands_higher_than_a_kerb_and_lower_than_a_roof() -> None:
    def occupied(mesh: Mesh) -> Any:
        ground = np.zeros((40, 40))
        return World(0.5, ground, np.zeros((40, 40), np.uint8), (), (), -10.0, -10.0, mesh).occupied

    column = occupied(wall(1.0))[:, 30]  # x from 5.0 to 5.5
    assert column[14:26].all()  # y from -3 to 3
    assert not column[:13].any()
    assert not occupied(wall(0.15)).any()
    roof = Mesh(wall(1.0).vertices + np.array([0.0, 0.0, 3.5]), wall(1.0).triangles)
    assert not occupied(roof).any()


def test_a_plain_camera_sees_the_mesh_where_it_is() -> None:
    from microsim.render.palette_camera import CameraModel, Renderer

    ground = np.full((40, 40), -1.0)
    world = World(0.5, ground, np.zeros((40, 40), np.uint8), (), (), -10.0, -10.0, wall(0.5))
    renderer = Renderer(world, CameraModel(40, 30, 20.0, 20.0, 19.5, 14.5))
    forward = ((0.0, 0.0, 1.0), (-1.0, 0.0, 0.0), (0.0, -1.0, 0.0))
    classes, depths = renderer.classes((0.0, 0.0, 0.0), forward), renderer.depths((0.0, 0.0, 0.0), forward)
    for v in range(30):
        for u in range(40):
            y, z = -5.0 * (u - 19.5) / 20.0, -5.0 * (v - 14.5) / 20.0
            seen = abs(y) <= 3.0 and -1.0 <= z <= 0.5
            assert (classes[v, u] == OBSTACLE) == seen, (u, v)
            if seen:
                assert depths[v, u] == pytest.approx(5.0)


def copied(tmp_path: Path) -> Path:
    target = tmp_path / "my_world"
    shutil.copytree(world_folder("minimal_test"), target)
    return target


def test_a_recording_names_the_bundle_by_its_content_and_is_not_replayed_in_another(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    sim = microsim.Simulation(minimal(world=str(folder)))
    with Recorder(tmp_path / "bag", sim, RecordOptions()) as recorder:
        sim.command("ego", speed=3.0, steering=0.1)
        recorder.on_messages(sim.step(60))
    with Replay(open_bag(tmp_path / "bag")) as again:
        assert again.verify().is_identical
    heights = folder / "geometry" / "heightmap.bin"
    blob = bytearray(heights.read_bytes())
    blob[3] ^= 1
    heights.write_bytes(bytes(blob))
    with pytest.raises(MicroSimError, match="has changed"):
        Replay(open_bag(tmp_path / "bag"))


def test_a_world_written_with_its_hash_is_refused_when_it_is_another(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"has changed.*sha256"):
        load_scenario({"world": {"path": "minimal_test", "sha256": "0" * 64}})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"world": "minimal_tst"}, "did you mean 'minimal_test'"),
        ({"world": "minimal_test", "map": {"cell_size_m": 1.0}}, "a world bundle brings its own map"),
        ({"world": "minimal_test", "robots": {"ego": {"start": {"map_pose": {"x": 1e4}}}}}, "is outside the map"),
        ({"world": 3}, "world"),
        ({"world": {"pth": "x"}}, "did you mean 'path'"),
    ],
)
def test_a_world_that_cannot_be_is_refused_with_the_reason(data: Any, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        load_scenario(data)


def test_a_broken_bundle_is_told_with_its_own_problems(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "sensors" / "calibration.yaml").unlink()
    with pytest.raises(ScenarioError, match=r"calibration\.yaml"):
        load_scenario({"world": str(folder)})


def test_snapshots_and_forks_go_on_bit_for_bit_in_a_bundle() -> None:
    sim = microsim.Simulation(minimal())
    sim.command("ego", speed=3.0, steering=0.2)
    sim.step(30)
    twin = sim.fork()
    assert [sent.cdr for sent in sim.step(30)] == [sent.cdr for sent in twin.step(30)]
    assert on_topic(sim.step(10), "/ego/lidar_top/points")
