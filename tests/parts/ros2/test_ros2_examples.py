"""The ROS 2 examples do what they say: their decisions, run against the simulator without ROS 2."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from microsim import Simulation
from microsim.engine.world import PALETTE
from microsim.messages.topics import table
from tests.forked_python import forked_python

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "ros2"
FILES = sorted(FOLDER.glob("*.py"))


def example(name: str) -> ModuleType:
    spec = spec_from_file_location(f"ros2_example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def play(
    sim: Simulation,
    seconds: float,
    handlers: Mapping[str, Callable[[Any], None]],
    until: Callable[[], bool] | None = None,
) -> None:
    """Steps as a node lives through it: each message goes to its handler, each answer counts from the next tick."""
    for _ in range(round(seconds / sim.clock.dt)):
        for sent in sim.step():
            if sent.topic in handlers:
                handlers[sent.topic](sent.message)
        if until is not None and until():
            return


# ---- hover and patrol ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["flat", "default"])
def test_the_patrol_closes_its_square(scenario: str) -> None:
    patrol, sim = example("patrol"), Simulation(scenario)
    start, square = sim.state("drone"), patrol.SquarePatrol(side_m=20.0)
    path, images = [], []

    def on_odometry(message: Any) -> None:
        sim.command("drone", **square.command(patrol.pose_of(message))._asdict())
        path.append(patrol.pose_of(message))

    play(
        sim,
        120.0,
        {"/drone/odom": on_odometry, "/drone/camera/image_raw": images.append},
        until=lambda: square.is_finished,
    )
    assert square.is_finished
    end = sim.state("drone")
    assert math.dist((end.x, end.y, end.z), (start.x, start.y, start.z)) < 1.0
    for corner in ((20.0, 0.0), (20.0, 20.0), (0.0, 20.0)):
        assert min(math.hypot(x - start.x - corner[0], y - start.y - corner[1]) for x, y, _, _ in path) < 1.0
    assert len(images) == pytest.approx(2.0 * sim.time_ns / 1e9, abs=3)


def test_the_patrol_flies_its_square_whatever_its_heading() -> None:
    patrol, sim = example("patrol"), Simulation("flat")
    sim.set_pose("drone", 60.0, 60.0, 10.0, yaw=2.5)
    sim.step(2)
    square, xs, ys = patrol.SquarePatrol(side_m=10.0, laps=2), [], []

    def on_odometry(message: Any) -> None:
        sim.command("drone", **square.command(patrol.pose_of(message))._asdict())
        xs.append(message.pose.pose.position.x)
        ys.append(message.pose.pose.position.y)

    play(sim, 120.0, {"/drone/odom": on_odometry}, until=lambda: square.is_finished)
    assert square.is_finished
    for values in (xs, ys):
        assert min(values) == pytest.approx(60.0, abs=0.7)
        assert max(values) == pytest.approx(70.0, abs=0.7)


def test_the_camera_watch_knows_the_palette_and_measures_the_rate() -> None:
    camera_watch, sim = example("camera_watch"), Simulation("showcase")
    assert list(camera_watch.PALETTE.values()) == [tuple(colour) for colour in PALETTE.tolist()]
    watch, lines, images = camera_watch.CameraWatch(), [], []
    play(sim, 4.0, {"/drone/camera/image_raw": lambda image: (lines.append(watch.see(image)), images.append(image))[0]})
    assert watch.images == len(lines)
    assert watch.rate_hz == pytest.approx(5.0, rel=0.15)  # one in a hundred is lost
    assert all(name in lines[0] for name in ("ground", "obstacle", "hazard", "target"))
    assert sum(camera_watch.shares(camera_watch.pixels_of(images[0])).values()) == pytest.approx(1.0)


# ---- obstacle avoidance -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [12345, 1, 2, 3])
def test_the_avoider_drives_for_a_minute_without_touching_anything(seed: int) -> None:
    sim, avoider = Simulation("obstacles_arena", seed=seed), example("avoid_obstacles").Avoider()
    way = 0.0

    def on_range(message: Any) -> None:
        nonlocal way
        sim.command("rover", **avoider.command(message.range)._asdict())
        way += abs(sim.state("rover").v) * 0.1

    play(sim, 60.0, {"/rover/range/front": on_range})
    assert sim.state("rover").contacts == 0
    assert way > 20.0


def test_the_avoider_goes_on_through_dropouts_and_turns_when_it_cannot_even_measure() -> None:
    avoid = example("avoid_obstacles")
    avoider = avoid.Avoider()
    driving = avoider.command(math.inf)
    assert driving.v > 0.0
    assert avoider.command(math.nan) == driving
    assert avoider.command(-math.inf).v == 0.0
    assert avoider.command(-math.inf).omega != 0.0


def test_the_range_watch_tells_the_nearest_of_each_second() -> None:
    watch = example("range_watch").RangeWatch()

    def see(second: int, distance: float) -> str | None:
        stamp = SimpleNamespace(sec=second, nanosec=0)
        header = SimpleNamespace(stamp=stamp)
        reading = SimpleNamespace(header=header, range=distance, min_range=0.2, max_range=10.0)
        return watch.see(reading)

    assert [see(0, math.nan), see(0, 3.0), see(0, 2.0), see(0, math.nan)] == [None] * 4
    assert see(1, math.inf) == "second 0: something at 2.00 m"
    assert see(2, -math.inf) == "second 1: free for 10.0 m and more"
    assert see(3, math.nan) == "second 2: something closer than 0.2 m"
    assert see(4, 1.0) == "second 3: no echo"


# ---- team task ----------------------------------------------------------------------------------------------------


class Team:
    """Drone and rover with nothing but the simulated radio between them."""

    def __init__(self, seed: int | None = None) -> None:
        self.sim = Simulation(FOLDER / "team_task.yaml", seed=seed)
        self.scout, self.driver = example("team_drone").Scout(), example("team_rover").Driver()
        (self.target,) = [shape.center for shape in self.sim.world.features if shape.class_id == 3]

    def run(self, seconds: float) -> None:
        handlers = {
            "/drone/odom": self._fly,
            "/drone/camera/camera_info": self.scout.on_camera_info,
            "/drone/camera/image_raw": lambda image: self._send("drone", self.scout.on_image(image)),
            "/radio/drone_rx": lambda packet: self.scout.on_radio(packet.data.tobytes()),
            "/rover/odom": self._drive,
            "/rover/range/front": self.driver.on_range,
            "/radio/rover_rx": lambda packet: self.driver.on_radio(packet.data.tobytes()),
        }
        play(self.sim, seconds, handlers, until=lambda: self.scout.is_finished and self.driver.is_finished)

    def _fly(self, odometry: Any) -> None:
        self.sim.command("drone", **self.scout.on_odometry(odometry)._asdict())

    def _drive(self, odometry: Any) -> None:
        self.sim.command("rover", **self.driver.on_odometry(odometry)._asdict())
        self._send("rover", self.driver.report())

    def _send(self, sender: str, payload: bytes | None) -> None:
        if payload:
            self.sim.radio_send(sender, payload)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_the_team_brings_the_rover_to_the_target(seed: int | None) -> None:
    team = Team(seed)
    team.run(240.0)
    assert team.scout.is_finished
    assert team.driver.is_finished
    assert math.dist(team.scout.target, team.target) < 0.3
    rover = team.sim.state("rover")
    assert math.dist((rover.x, rover.y), team.target) < 2.0
    assert rover.contacts == 0


def test_the_team_does_the_same_every_time() -> None:
    digests = set()
    for _ in range(2):
        team = Team()
        team.run(20.0)
        digests.add(team.sim.digest())
    assert len(digests) == 1


def test_a_pixel_is_where_the_ray_through_it_meets_the_ground() -> None:
    team_drone, sim = example("team_drone"), Simulation(FOLDER / "team_task.yaml")
    (center,) = [shape.center for shape in sim.world.features if shape.class_id == 3]
    found = []
    for dx, dy, yaw in ((0.0, 0.0, 0.0), (5.0, -4.0, 1.0), (-6.0, 3.0, -2.5)):
        sim.set_pose("drone", center[0] + dx, center[1] + dy, 18.0, yaw)
        sim.step(1)
        pixels = sim.render("drone")
        image = SimpleNamespace(data=pixels.tobytes(), height=pixels.shape[0], width=pixels.shape[1])
        pixel = team_drone.target_pixel(image)
        assert pixel is not None
        state = sim.state("drone")
        pose = team_drone.Pose(state.x, state.y, state.z, state.yaw)
        info = SimpleNamespace(k=np.array([120.0, 0.0, 64.0, 0.0, 120.0, 64.0, 0.0, 0.0, 1.0]))
        found.append(math.dist(team_drone.on_the_ground(pixel, info, pose), center))
    assert max(found) < 18.0 / 120.0  # one pixel


def test_half_a_target_or_none_is_not_taken_for_one() -> None:
    target_pixel = example("team_drone").target_pixel
    pixels = np.full((64, 64, 3), 0xC8, np.uint8)

    def seen() -> Any:
        return target_pixel(SimpleNamespace(data=pixels.tobytes(), height=64, width=64))

    assert seen() is None
    pixels[30:40, 0:8] = PALETTE[3]  # at the edge: there may be more of it
    assert seen() is None
    pixels[30:40, 0:8] = PALETTE[4]
    pixels[10:20, 20:31] = PALETTE[3]
    assert seen() == (25.0, 14.5)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\x00",
        b"[]",
        b"{}",
        b'{"target": 1}',
        b'{"target": [1]}',
        b'{"target": ["a", 2]}',
        b'{"target": [NaN, 2]}',
    ],
)
def test_the_rover_trusts_no_packet(payload: bytes) -> None:
    driver = example("team_rover").Driver()
    driver.on_radio(payload)
    assert driver.target is None
    driver.on_radio(json.dumps({"target": [1, 2.5]}).encode())
    driver.on_radio(payload)
    assert driver.target == (1.0, 2.5)


def test_the_radio_watch_shows_text_as_text_and_bytes_as_hex_and_every_direction() -> None:
    radio_watch, sim = example("radio_watch"), Simulation("default")
    assert radio_watch.shown(b'{"target": [1, 2]}') == '{"target": [1, 2]}'
    assert radio_watch.shown(b"\x00\xff") == "00 ff"
    assert radio_watch.shown(b"x" * 100) == "x" * 60 + "… (100 bytes)"
    (metrics,) = [sent.message for sent in sim.step(0) if sent.topic == "/radio/metrics"]
    lines = radio_watch.link_lines(metrics)
    assert len(lines) == 2
    assert "drop_percent 0.000" in lines[0]


# ---- all of them --------------------------------------------------------------------------------------------------


# ---- a lap of a world bundle --------------------------------------------------------------------------------------


def oval_without(*sensors: str) -> dict[str, Any]:
    return {"world": "oval", "robots": {"ego": {"sensors": dict.fromkeys(sensors)}}}


CAMERAS = ("camera_front", "camera_front_left", "camera_front_right")


@pytest.mark.parametrize("speed", [5.0, 9.0])
def test_the_pursuit_drives_a_lap_of_the_oval_on_the_road_and_leaves_it_when_told_nothing_else(speed: float) -> None:
    pursuit_file, sim = example("pure_pursuit"), Simulation(oval_without(*CAMERAS, "lidar_top"))
    pursuit = pursuit_file.PurePursuit(pursuit_file.oval(), speed)
    looks: list[bool] = []

    def on_odometry(message: Any) -> None:
        drive = pursuit.command(pursuit_file.pose_of(message))
        sim.command("ego", steering=drive.steering, speed=drive.speed)

    handlers = {"/ego/odom": on_odometry, "/sim/status": lambda message: looks.append(pursuit_file.is_offroad(message))}
    play(sim, 120.0, handlers, until=lambda: pursuit.is_finished)
    assert pursuit.is_finished
    assert len(looks) > 200
    assert not any(looks)
    assert sim.state("ego").contacts == 0
    for _ in range(12):
        sim.command("ego", steering=-0.3, speed=5.0)
        play(sim, 0.5, handlers | {"/ego/odom": lambda message: None})
    assert looks[-1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_needs_ros_only_when_it_runs(path: Path) -> None:
    code = f"import runpy, sys; runpy.run_path({str(path)!r}); print([n for n in sys.modules if n.startswith('rclpy')])"
    done = subprocess.run([*forked_python(), "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_names_topics_that_exist_relative_to_its_namespace(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    sensors = {"image": "camera", "camera_info": "camera", "range": "range/front"}
    known = {row.of(robot, sensors.get(row.kind, row.kind)) for row in table() for robot in ("drone", "rover", "ego")}
    listed = source.split('"""')[1]
    words = {word.strip(".,;()") for word in listed.split()}
    topics = {word for word in words if word.split("/")[0] in ("drone", "rover", "ego", "radio") and "/" in word}
    assert topics
    assert {f"/{topic}" for topic in topics} <= known
    assert "use_sim_time" in source
    assert '"/' not in source.replace('"/"', "")  # an absolute name would leave the namespace
