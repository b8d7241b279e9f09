"""The shipped demos do what they say, and stills show it."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from typer.testing import CliRunner

from microsim.cli import app
from microsim.errors import MicroSimError, PluginError, UsageError
from microsim.parts.missions.demo_pilot import DemoPilot
from microsim.parts.missions.follower import steer_for
from microsim.paths import demo_file, demo_names
from microsim.robots.car import Bicycle
from microsim.robots.drone import Drone
from microsim.robots.robot import Robot
from microsim.robots.rover import Rover
from microsim.runner import Runner
from microsim.scenario import load_scenario
from microsim.shipped import demo_about, load_demo
from microsim.simulation import Simulation

OF_OVAL = ("camera", "camera_front", "camera_front_left", "camera_front_right", "lidar_top")  # what takes long


def flown(
    name: str, seconds: float, look: Any = None, hz: int = 60, without: Sequence[str] = ()
) -> tuple[Simulation, Any]:
    demo = load_demo(name)
    data = load_scenario(demo.scenario).to_dict() if without else demo.scenario
    for robot in data["robots"].values() if without else ():
        if robot.get("sensors"):  # null, since a world bundle brings those back that are left out
            robot["sensors"] |= {each: None for each in without if "_" in each}
        robot.update({each: None for each in without if each in robot})
    sim = Simulation(data)
    pilot = demo.pilot(sim)
    runner = Runner(sim, 0.0, pilot)
    if look is not None:
        runner.listen(messages=lambda messages: look(sim))
    runner.run(round(seconds * hz))
    return sim, pilot


def ends(pilot: Any) -> bool:
    """It has reported what happened, in order, and is done."""
    times = [when for when, _ in pilot.events]
    return bool(pilot.is_done and len(times) >= 2 and times == sorted(times))


def test_the_rover_of_the_team_reaches_the_target_that_the_drone_saw() -> None:
    sim, pilot = flown("team", 95.0)
    assert ends(pilot)
    assert "the drone found the target in its camera" in [words for _, words in pilot.events]
    x, y = pilot.scout.target
    assert math.dist((x, y), (45.0, 44.0)) < 0.5  # where the scenario has it, and nobody was told
    assert math.dist((sim.state("rover").x, sim.state("rover").y), (45.0, 44.0)) < 1.6
    assert sim.state("rover").contacts == 0


def test_the_hovering_drone_stays_within_two_metres_in_gusts() -> None:
    worst: list[float] = []
    _, pilot = flown("hover", 46.0, lambda sim: worst.append(math.dist(sim.state("drone")[:3], (30.0, 30.0, 9.0))))
    assert max(worst) < 2.0
    assert ends(pilot)


def test_the_avoiding_rover_never_touches_anything() -> None:
    sim, pilot = flown("avoid", 91.0)
    assert ends(pilot)
    assert sim.state("rover").contacts == 0


def test_the_patrol_passes_every_corner() -> None:
    _, pilot = flown("patrol", 1.0)
    nearest = {(robot, corner): math.inf for robot, each in pilot.followers.items() for corner in each.corners}

    def look(sim: Simulation) -> None:
        for (robot, corner), before in list(nearest.items()):
            state = sim.state(robot)
            nearest[robot, corner] = min(before, math.dist((state.x, state.y), corner[:2]))

    _, pilot = flown("patrol", 60.0, look)
    assert ends(pilot)
    assert max(nearest.values()) < 1.6


def test_the_car_laps_the_oval_and_the_drone_keeps_it_in_view() -> None:
    apart: list[float] = []
    off: list[float] = []

    def look(sim: Simulation) -> None:
        car, drone = sim.state("ego"), sim.state("drone")
        apart.append(math.dist((car.x, car.y), (drone.x, drone.y)))
        off.append(abs(math.hypot(car.x - min(max(car.x, -40.0), 40.0), car.y) - 30.0))

    sim, pilot = flown("oval", 33.0, look, hz=100, without=OF_OVAL)
    assert [words for _, words in pilot.events[1:]] == ["lap 1: 28.6 s"]
    assert max(off) < 1.0  # of the centre line
    assert 8.0 < min(apart[300:]) <= max(apart[300:]) < 16.0
    assert sim.state("ego").contacts == 0


def test_demos_are_listed_with_a_line_each() -> None:
    printed = " ".join(CliRunner().invoke(app, ["demo"]).output.split())
    for name in demo_names():
        assert f"{name} {demo_about(demo_file(name))}" in printed
        assert demo_about(demo_file(name)).endswith(".")


def test_mistakes_in_demos_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'team'"):
        load_demo("taem")
    path = tmp_path / "mine.py"
    path.write_text("SCENARIO = 'flat'")
    with pytest.raises(PluginError, match="no Pilot"):
        load_demo(str(path))
    path.write_text("1 / 0")
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        load_demo(str(path))


def test_a_still_shows_map_and_camera(tmp_path: Path) -> None:
    from PIL import Image

    target = tmp_path / "still.png"
    found = CliRunner().invoke(app, ["picture", "hover", "--at", "2", "--out", str(target)])
    assert found.exit_code == 0, found.output
    picture = Image.open(target).convert("RGB")
    assert picture.width > 1000
    colours = {colour for _, colour in picture.getcolors(1 << 24)}
    assert (0x34, 0x98, 0xDB) in colours  # the target, on the map and in the camera
    assert (0xC8, 0xC8, 0xC8) in colours


def test_stills_go_into_pictures_only(tmp_path: Path) -> None:
    with pytest.raises(MicroSimError, match=r"ends with \.png"):
        CliRunner().invoke(app, ["picture", "flat", "--out", str(tmp_path / "x.txt")], catch_exceptions=False)


class Boat(Rover):
    """A robot of another name that drives like a rover."""

    model: Literal["boat"] = "boat"  # type: ignore[assignment]


class Glider(Rover):
    follower: ClassVar[str] = "fly"  # which needs inputs that it does not have


@pytest.mark.parametrize(
    ("robot", "expected"),
    [(Drone(), "fly"), (Rover(), "drive"), (Boat(), "drive"), (Bicycle(), "CarSteering"), (Glider(), "NoneType")],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_follower_that_drives_a_robot_is_the_one_it_declares(robot: Robot, expected: str) -> None:
    steer = steer_for(robot.engine_model, robot)
    assert getattr(steer, "__name__", type(steer).__name__) == expected


def test_a_car_that_cannot_steer_has_no_follower() -> None:
    robot = Bicycle(max_steering=0.0)
    assert steer_for(robot.engine_model, robot) is None


def test_the_demo_pilot_takes_robots_by_what_they_declare() -> None:
    sim = Simulation({"robots": {"a": {"model": "drone"}, "b": {"model": "rover"}, "ego": {}}})
    pilots = {pilot.name: type(pilot).__name__ for pilot in DemoPilot(sim).pilots}
    assert pilots == {"a": "FlyingPilot", "b": "DrivingPilot"}
