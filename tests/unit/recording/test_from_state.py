"""`microsim run --from-state`: going on from a file is never having stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from microsim.cli import app
from microsim.errors import UsageError
from microsim.messages.outbox import Message
from microsim.recording.attachment import resume
from microsim.recording.bag_io import open_bag
from microsim.recording.state_file import SnapshotError, save_state
from microsim.runner import Runner
from microsim.scenario import load_scenario
from microsim.simulation import Simulation
from tests.parts.ros2.test_node import Stage
from tests.recording_support import WORLD, fly

MISSION = """
duration: 3
do:
  - { set: { wind.world_xyz: [0.5, 0, 0], radio.latency_ms_mean: 900 } }
  - { at: 0.5, robot: drone, command: { vx: 2, yaw_rate: 0.4 } }
  - { at: 0.7, robot: rover, teleport: { x: 12, y: 9, yaw: 1.1 } }
  - { at: 1.2, robot: rover, command: { v: 1, omega: 0.1 } }
  - { at: 1.4, robot: drone, radio: "still in the air at 1.5 s" }
"""


def microsim(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three seconds whose last command comes at 1.4 s, and its state at 1.5 s."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "fly.yaml").write_text(MISSION)
    done = microsim("run", "showcase", "--mission", folder / "fly.yaml", "--rtf", 0, "--record", folder / "bag")
    assert done.exit_code == 0, done.output
    done = microsim("replay", folder / "bag", "--at", "1.5s", "--save-state", folder / "at.state")
    assert done.exit_code == 0
    assert f"resume from there: microsim run --from-state {folder / 'at.state'}" in done.output
    return folder


@pytest.mark.parametrize("speed", [("--rtf", "0"), ("--rtf", "20", "--transport", "none")])
def test_going_on_from_a_file_is_never_having_stopped(recorded: Path, speed: tuple[str, ...]) -> None:
    done = microsim("run", "--from-state", recorded / "at.state", "--duration", "1.5", "--json", *speed)
    assert done.exit_code == 0
    facts = json.loads(done.stdout.splitlines()[-1])
    told = open_bag(recorded / "bag").run_info.end
    assert (facts["digest"], str(facts["ticks"])) == (told["digest"], told["ticks"])
    assert facts["scenario"] == "showcase"
    assert any(link["delivered"] for link in facts["radio"])  # what was in the air has arrived


def test_states_of_a_history_can_be_gone_on_from(tmp_path: Path) -> None:
    whole = microsim("run", "flat", "--duration", "3", "--rtf", "0", "--record", tmp_path / "bag", "--history", "2s")
    assert whole.exit_code == 0
    digest = open_bag(tmp_path / "bag").run_info.end["digest"]
    for path in (tmp_path / "bag_states").iterdir():
        left = 3.0 - int(path.stem[5:]) / 60
        done = microsim("run", "--from-state", path, "--duration", left, "--rtf", "0", "--digest")
        assert done.stdout.splitlines()[-1] == digest


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["flat"], "leave out SCENARIO"),
        (["--seed", "0"], "leave out --seed"),
        (["--inject", "radio:blackout@1s-2s"], "leave out --inject"),
        (["--mission", "hover"], "a mission begins at time 0"),
        (["--record", "x"], "a recording begins at time 0"),
    ],
)
def test_what_the_file_decides_or_what_begins_at_the_start_is_refused(
    recorded: Path, arguments: list[str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        microsim("run", "--from-state", recorded / "at.state", *arguments)


def test_a_damaged_state_is_refused_in_words(recorded: Path, tmp_path: Path) -> None:
    whole = (recorded / "at.state").read_bytes()
    (tmp_path / "bad.state").write_bytes(whole[:-40])
    with pytest.raises(SnapshotError, match=r"bad\.state: damaged"):
        microsim("run", "--from-state", tmp_path / "bad.state", "--rtf", "0")


def test_a_recording_is_no_state_and_the_way_from_one_to_the_other_is_told(recorded: Path) -> None:
    with pytest.raises(UsageError, match="is a folder; a state of a recording is made by `microsim replay"):
        microsim("run", "--from-state", recorded / "bag", "--rtf", "0")


def test_who_listens_hears_what_was_latched_before(tmp_path: Path) -> None:
    sim = Simulation(WORLD, 3)
    fly(sim, lambda messages: None, 60)
    save_state(tmp_path / "at.state", sim.snapshot())
    heard: list[Message] = []
    runner = Runner(Simulation(WORLD, 3), 0.0)
    runner.listen(messages=heard.extend)
    resume(tmp_path / "at.state", runner)
    assert {"/tf_static", "/sim/info"} <= {message.topic for message in heard}
    assert runner.sim.tick == 60
    runner.run(60)
    sim.step(60)
    assert runner.sim.digest() == sim.digest()


def test_a_node_that_resumes_has_the_robots_and_the_settings_of_the_state(tmp_path: Path) -> None:
    sim = Simulation(WORLD, 3)
    sim.spawn("scout", {"model": "rover", "start": {"map_pose": {"x": 30.0, "y": 8.0}}})
    sim.reconfigure(load_scenario({**sim.scenario.to_dict(), "wind": {"world_xyz": [1.5, 0.0, 0.0]}}))
    sim.step(20)
    save_state(tmp_path / "at.state", sim.snapshot())
    stage = Stage(WORLD)
    stage.controller.listen("/scout/odom", "nav_msgs/msg/Odometry")
    resume(tmp_path / "at.state", stage.node.runner)
    stage.controller.twist("scout", x=1.0)
    stage.tick(60)
    assert stage.node.sim.state("scout").v > 0.5
    assert len(stage.controller.received["/scout/odom"]) == 30
    asked = {"names": ["drone.wind_world_xyz"]}
    found = stage.call("/microsim/get_parameters", "rcl_interfaces/srv/GetParameters", **asked).values[0]
    assert found.double_array_value.tolist() == [1.5, 0.0, 0.0]
    stage.node.runner.reset()
    assert "scout" not in stage.node.sim.robots


def test_a_demo_takes_over_without_catching_up_on_seconds_that_are_gone(tmp_path: Path) -> None:
    sim = Simulation("flat", 3)
    sim.step(600)
    save_state(tmp_path / "at.state", sim.snapshot())
    done = microsim(
        "run", "--from-state", tmp_path / "at.state", "--autopilot", "--duration", "1", "--rtf", "0", "--json"
    )
    facts = json.loads(done.stdout.splitlines()[-1])
    assert max(link["sent"] for link in facts["radio"]) <= 3
