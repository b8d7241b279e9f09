"""A robot model that somebody else brings, by entry point, running in a Simulation; and commands that grow old."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.engine.command_timeout import timeout_ticks
from microsim.recording.inputs import plugin_hashes
from tests.support import bare, decoded, scenario

# A sled that does at once what it is told, on rails along x; after 10 ticks without a command it stands.
SLED = """
from typing import Literal
from pydantic import Field
from microsim.robots.robot import Robot
from microsim.engine.command_timeout import expire, timeout_ticks
from microsim.engine.components import RobotModel

def parameters(settings, wind, dt):
    return settings.gain, timeout_ticks(10 * dt, dt)

def advance(robot, command, parameters, key, scene, tick):
    expire(robot, command, parameters.timeout)
    robot.velocity_x = parameters.gain * command.v
    robot.x += robot.velocity_x * scene.dt

class Sled(Robot):
    "On rails."
    engine = RobotModel(
        name="sled", inputs=("v",), twist_fields=("linear.x",), own=("command_age",),
        shown={"x": "x", "age": "command_age"}, parameter_names=("gain", "timeout"), parameters=parameters,
        advance=advance, is_ground_bound=True, command_age="command_age",
    )
    model: Literal["sled"] = Field("sled", description="On rails.")
    gain: float = Field(1.0, description="Speed for a command of 1 [m/s].")

class Empty(Robot):
    "Brings no engine."
    model: Literal["empty"] = Field("empty", description="Nothing.")
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pip leaves it: a module, and metadata with an entry point."""
    (tmp_path / "sled_plugin.py").write_text(SLED)
    facts = tmp_path / "sled_plugin-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: sled_plugin\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[microsim.robots]\nsled = sled_plugin:Sled\nempty = sled_plugin:Empty\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def world(**robots: Any) -> dict[str, Any]:
    common = {"start": {"map_pose": {"x": 2.0, "y": 3.0, "yaw": 0.0}}, "odom": {"hz": 60}}
    return scenario(robots={name: bare(**common, **block) for name, block in robots.items()})


def test_a_plugin_robot_runs_beside_built_in_ones() -> None:
    sim = microsim.Simulation(world(sled={"gain": 2.0}, rover={"cmd_time_constant": 0.0}))
    assert sim.command("sled", v=3.0)
    assert sim.command("rover", v=1.0)
    messages = sim.step(5)
    assert sim.state("sled").x == pytest.approx(2.0 + 5 * 6.0 / 60)
    odometry = decoded(messages, "/sled/odom")
    assert len(odometry) == 6
    assert odometry[-1].pose.pose.position.x == sim.state("sled").x
    assert odometry[-1].twist.twist.linear.x == 6.0
    assert sim.model("sled").name == "sled"


def test_a_plugin_robot_has_snapshots_forks_and_the_same_digest_again() -> None:
    first = microsim.Simulation(world(sled={}), seed=3)
    first.command("sled", v=1.0)
    first.step(4)
    second = first.fork()
    first.step(20)
    second.step(20)
    assert first.digest() == second.digest()
    assert first.state("sled") == second.state("sled")


def test_a_plugin_robot_without_an_engine_is_refused_by_name() -> None:
    with pytest.raises(microsim.PluginError, match="robot model 'empty' brings no engine"):
        microsim.Simulation(world(empty={}))


def in_folder(folder: Path, code: str) -> dict[str, Any]:
    """A scenario that names a folder of plug-ins with this file."""
    folder.mkdir()
    (folder / "sledge.py").write_text(code)
    return {**world(sledge={}), "plugins": [str(folder)]}


def test_a_robot_in_a_folder_of_plugins_is_found_by_its_models_name(tmp_path: Path) -> None:
    code = SLED.replace('"sled"', '"sledge"') + "\nROBOT = Sled\n"
    sim = microsim.Simulation(in_folder(tmp_path / "mine", code))
    sim.command("sledge", v=3.0)
    sim.step(5)
    assert sim.state("sledge").x == pytest.approx(2.0 + 5 * 3.0 / 60)
    before = plugin_hashes(sim.scenario)
    (tmp_path / "mine" / "sledge.py").write_text(code + "# changed\n")
    changed = microsim.load_scenario(sim.scenario.to_dict())
    assert list(before) == ["model sledge"]
    assert plugin_hashes(changed) != before


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("ROBOT = 3", "expected ROBOT = a subclass of Robot, found int"),
        ("class Sledge: pass\nROBOT = Sledge", r"sledge\.py: expected ROBOT = a subclass of Robot, found type"),
        ("ROBOT = nothing", "sledge.py:1: plug-in could not be loaded: NameError"),
    ],
)
def test_what_is_no_robot_in_a_folder_of_plugins_is_refused_with_its_place(
    tmp_path: Path, code: str, words: str
) -> None:
    with pytest.raises(microsim.PluginError, match=words):
        microsim.load_scenario(in_folder(tmp_path / "mine", code))


def test_a_command_acts_for_its_ticks_and_a_new_one_starts_anew() -> None:
    sim = microsim.Simulation(world(sled={}))
    sim.command("sled", v=6.0)
    sim.step(8)
    sim.command("sled", v=6.0)
    sim.step(50)
    assert sim.state("sled").x == pytest.approx(2.0 + 18 * 0.1)


def test_many_ticks_at_once_are_as_many_single_ones() -> None:
    single, at_once = (microsim.Simulation(world(sled={})) for _ in range(2))
    for sim in (single, at_once):
        sim.command("sled", v=1.0)
    single.step(25)
    at_once.advance(25)
    assert single.state("sled") == at_once.state("sled")


def test_a_teleport_does_not_revive_a_command_that_has_run_out() -> None:
    sim = microsim.Simulation(world(sled={}))
    sim.command("sled", v=6.0)
    sim.step(4)
    sim.set_pose("sled", 5.0, 3.0)
    sim.step(30)
    assert sim.state("sled").x == pytest.approx(5.0 + 6 * 0.1)
    sim.set_pose("sled", 5.0, 3.0)
    sim.step(30)
    assert sim.state("sled").x == 5.0


def test_a_snapshot_carries_the_age_of_a_command() -> None:
    sim = microsim.Simulation(world(sled={}))
    sim.command("sled", v=6.0)
    sim.step(7)
    twin = sim.fork()
    twin.step(20)
    assert twin.state("sled").x == pytest.approx(2.0 + 10 * 0.1)


def test_robots_without_a_timeout_keep_their_command() -> None:
    sim = microsim.Simulation(world(rover={"cmd_time_constant": 0.0}))
    sim.command("rover", v=0.1)
    sim.step(6000)
    assert sim.state("rover").x == pytest.approx(2.0 + 10.0)


def test_commands_for_many_columns_are_taken_at_once() -> None:
    sim = microsim.Simulation(world(sled={}, second={"model": "sled"}, third={"model": "sled"}))
    sim.step(5)
    fleet = sim._schedule.worlds.home["sled"][0]
    fleet.take(slice(1, 3), [[1.0, 2.0]])
    assert fleet.command.tolist() == [[0.0, 1.0, 2.0]]
    assert fleet.state[sim.model("sled").age_row].tolist() == [5.0, 0.0, 0.0]
    assert isinstance(fleet.command, np.ndarray)


@pytest.mark.parametrize(
    ("timeout_s", "dt", "ticks"),
    [(0.5, 1 / 60, 30), (0.5, 0.02, 25), (1e-6, 0.02, 1), (0.03, 0.02, 2), (0.0, 0.02, float("inf"))],
)
def test_a_timeout_is_the_nearest_number_of_ticks(timeout_s: float, dt: float, ticks: float) -> None:
    assert timeout_ticks(timeout_s, dt) == ticks
