"""A controller is a file: part of its scenario, called at its ticks, saved with the run."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from microsim import load_scenario
from microsim.errors import PluginError, ScenarioError, UntrustedError, UsageError
from microsim.recording.state_file import load_state, resume, save_state
from microsim.registry import code_only_from
from microsim.scenario import Scenario
from microsim.simulation import Simulation
from microsim.timeline import repeated

WORLD: dict[str, Any] = {
    "name": "corridor",
    "map": {"size_xy_cells": [30, 20]},
    "obstacles": [{"type": "box", "name": "wall", "center": [20, 10, 0], "size": [1, 16, 2]}],
    "robots": {"rover": {"start": {"map_pose": {"x": 4, "y": 10, "yaw": 0}}, "range": {}, "camera": None}},
}
WANDER = """
    class Controller:
        def __init__(self, near_m=2.5, turn=0.8):
            self.near_m, self.turn = near_m, turn
            self.calls = 0

        def control(self, seen):
            self.calls += 1
            if seen["range"].range < self.near_m:
                return {"v": 0.0, "omega": self.turn}
            return {"v": 1.5, "omega": seen.random.normal(0.0, 0.3)}
"""


def written(folder: Path, code: str, name: str = "controller.py") -> Path:
    file = folder / name
    file.write_text(dedent(code).lstrip())
    return file


def scenario_with(folder: Path, code: str, **keys: Any) -> Scenario:
    return load_scenario({**WORLD, "controllers": {"rover": {"file": str(written(folder, code)), **keys}}})


def started(folder: Path, code: str, **keys: Any) -> Simulation:
    return Simulation(scenario_with(folder, code, **keys), 3)


def test_a_function_alone_is_a_controller(tmp_path: Path) -> None:
    sim = started(tmp_path, "def control(seen):\n    return {'v': 1.0}\n")
    sim.step(120)
    assert sim.state("rover").x == pytest.approx(6.0, abs=0.2)


def test_the_same_seed_gives_the_same_run_however_many_ticks_are_run_at_once(tmp_path: Path) -> None:
    whole, single = started(tmp_path, WANDER), started(tmp_path, WANDER)
    whole.step(400)
    for _ in range(400):
        single.step()
    assert whole.digest() == single.digest()


def test_it_is_called_at_its_own_rate_with_settings_of_the_scenario(tmp_path: Path) -> None:
    sim = started(tmp_path, WANDER, hz=10, turn=0.5)
    sim.step(60)
    (running,) = sim._controllers.all
    assert (running.instance.calls, running.instance.turn, running.instance.near_m) == (10, 0.5, 2.5)


def test_a_fork_and_a_restored_run_continue_with_the_state_of_the_controller(tmp_path: Path) -> None:
    sim = started(tmp_path, WANDER)
    sim.step(200)
    twin, snapshot = sim.fork(), sim.snapshot()
    sim.step(200)
    twin.step(200)
    digest = sim.digest()
    assert twin.digest() == digest
    sim.restore(snapshot)
    sim.step(200)
    assert sim.digest() == digest


def test_a_fork_with_other_noise_has_the_same_past_and_world_and_another_future(tmp_path: Path) -> None:
    sim = started(tmp_path, WANDER)
    sim.step(100)
    before = sim.state("rover")
    forks = [sim.fork(noise_seed=seed) for seed in (1, 2, 1)]
    assert all(fork.state("rover") == before and fork.seed == sim.seed for fork in forks)
    ends = []
    for fork in (sim, *forks):
        fork.step(200)
        ends.append(fork.state("rover"))
    assert ends[1] == ends[3]
    assert len({ends[0], ends[1], ends[2]}) == 3


def test_a_saved_state_continues_with_the_state_of_the_controller(tmp_path: Path) -> None:
    sim = started(tmp_path, WANDER)
    sim.step(200)
    save_state(tmp_path / "at.state", sim.snapshot())
    sim.step(200)
    again = started(tmp_path, WANDER)
    load_state(tmp_path / "at.state", again)
    again.step(200)
    (tmp_path / "files").mkdir()
    alone = resume(tmp_path / "at.state", tmp_path / "files")
    alone.step(200)
    assert sim.digest() == again.digest() == alone.digest()


def test_inputs_of_a_run_repeat_it_and_its_controller_does_not_command_twice(tmp_path: Path) -> None:
    sim = started(tmp_path, WANDER)
    start, inputs = sim.snapshot(), []
    sim.listen(inputs=lambda tick, item: inputs.append((tick, item)))
    sim.step(300)
    digest, count = sim.digest(), len(inputs)
    sim.restore(start)
    for _ in repeated(sim, inputs[:count], 300):
        pass
    assert (sim.digest(), count) == (digest, len(inputs) - count) == (digest, 100)
    sim.step(60)
    again = started(tmp_path, WANDER)
    again.step(360)
    assert sim.digest() == again.digest()


def test_one_controller_of_all_robots_commands_them_by_name(tmp_path: Path) -> None:
    code = "def control(seen):\n    return {'rover': {'v': seen['drone/odom'].x / 10}, 'drone': {'vz': 1}}\n"
    file = written(tmp_path, code)
    robots = {**WORLD["robots"], "drone": {"start": {"map_pose": {"x": 10, "y": 3, "z": 5}}, "camera": None}}
    sim = Simulation({**WORLD, "robots": robots, "controllers": {"*": str(file)}})
    sim.step(120)
    assert sim.state("drone").z > 6
    assert sim.state("rover").x > 5


def test_a_topic_gives_its_message_and_a_sensor_its_numbers(tmp_path: Path) -> None:
    sim = started(
        tmp_path,
        """
        def control(seen):
            odom, message = seen["odom"], seen["/rover/odom"]
            assert odom.x == message.pose.pose.position.x
            assert odom.yaw == 0.0 == message.pose.pose.orientation.z
            assert (seen.robot, seen.time, seen.dt) == ("rover", seen.tick / 60, 0.05)
            assert seen["/tf"].transforms
        """,
    )
    sim.step(1)


# ---- what users get wrong --------------------------------------------------------------------------------------------

AT_START = r"controller of rover at 0\.000 s"
MISTAKES = {  # what `control` does, and the sentence
    "raises": ("return 1 / 0", rf"controller\.py:2: {AT_START}: failed: ZeroDivisionError"),
    "exits": ("raise SystemExit", rf"controller\.py:2: {AT_START}: failed: SystemExit"),
    "NaN": ("return {'v': float('nan')}", rf"controller\.py:1: {AT_START}: .*v: expected a finite number, found nan"),
    "a wrong input": ("return {'vx': 1}", r"rover has no command 'vx'; .*there are: v, omega"),
    "a wrong shape": ("return {'v': [0, 1]}", r"v: expected a number, found \[0, 1\]"),
    "an array": ("import numpy; return {'v': numpy.ones(3)}", r"v: expected a number, found an array of shape \(3,\)"),
    "no mapping": ("return 1.0, 0.5", r"expected a mapping from inputs to numbers"),
    "a wrong sensor": ("seen['scan']", r"controller\.py:2: .*there is no sensor 'scan'.*range"),
    "a wrong number": ("seen['range'].rnge", r"controller\.py:2: .*no number 'rnge'; did you mean 'range'"),
    "a wrong topic": ("seen['/rover/odm']", r"there is no topic '/rover/odm'; did you mean '/rover/odom'"),
    "changes a reading": ("seen['odom'].x = 3", r"controller\.py:2: .*cannot be changed: x"),
    "changes the time": ("seen.time = 3", r"controller\.py:2: .*cannot be changed: time"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_with_file_and_line(tmp_path: Path, mistake: str) -> None:
    code, sentence = MISTAKES[mistake]
    with pytest.raises(PluginError, match=sentence) as found:
        started(tmp_path, f"def control(seen):\n    {code}\n").step(1)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("wait", ["while True: pass", "import time; time.sleep(60)"])
def test_a_call_that_does_not_return_is_stopped_at_its_line(
    tmp_path: Path, wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("microsim.controllers.guard.LONGEST_CALL_S", 0.05)
    with pytest.raises(PluginError, match=r"controller\.py:2: controller of rover at 0\.000 s: did not return within"):
        started(tmp_path, f"def control(seen):\n    {wait}\n").step(1)


def test_what_it_prints_is_not_in_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started(tmp_path, "def control(seen):\n    print('here')\n").step(1)
    assert capsys.readouterr() == ("", "here\n")


FILES = {
    "neither": ("speed = 3\n", "expected a function `control\\(seen\\)`, or a class `Controller`.*found neither"),
    "syntax": ("def control(seen)\n    pass\n", "controller.py:1: controller could not be loaded: SyntaxError"),
    "no parameter": (
        "def control():\n    pass\n",
        r"controller\.py:1: expected `control\(seen\)`, found `control\(\)`",
    ),
    "no method": ("class Controller:\n    pass\n", "controller.py:1: the class Controller has no method"),
    "no default": ("def control(seen, gain):\n    pass\n", "the parameter 'gain' needs a default"),
}


@pytest.mark.parametrize("mistake", FILES)
def test_a_file_that_holds_no_controller_is_refused_with_the_scenario(tmp_path: Path, mistake: str) -> None:
    code, sentence = FILES[mistake]
    with pytest.raises(ScenarioError, match=sentence):
        scenario_with(tmp_path, code)


def test_settings_and_robots_that_there_are_not_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no setting 'nera_m'; did you mean 'near_m'"):
        scenario_with(tmp_path, WANDER, nera_m=1)
    with pytest.raises(ScenarioError, match=r"near_m: expected a value like its default 2.5, found 'far'"):
        scenario_with(tmp_path, WANDER, near_m="far")
    file = str(written(tmp_path, WANDER))
    with pytest.raises(ScenarioError, match="no robot 'rovr'; did you mean 'rover'"):
        load_scenario({**WORLD, "controllers": {"rovr": file}})
    with pytest.raises(ScenarioError, match=r"no such file: 'none\.py'"):
        load_scenario({**WORLD, "controllers": {"rover": "none.py"}})
    with pytest.raises(UsageError, match="--controller: no robot 'rovr'"):
        load_scenario(WORLD, controllers=f"rovr={file}")


def test_a_file_that_the_user_has_not_named_does_not_run(tmp_path: Path) -> None:
    file = written(tmp_path, "raise SystemExit\n")
    with code_only_from(()), pytest.raises(UntrustedError, match="controllers are code"):
        load_scenario({**WORLD, "controllers": {"rover": str(file)}})


def test_advance_is_refused_because_controllers_need_what_is_sensed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"use step\(\)"):
        started(tmp_path, WANDER).advance(5)
