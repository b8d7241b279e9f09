"""Keys in the terminal: each does to the run what it says, and driving overrides the pilot."""

from collections.abc import Sequence
from typing import Any

import pytest

import microsim
from microsim.messages.outbox import Message
from microsim.parts.view.dashboard.keyboard import HOLD_S, SPEEDS, KeyControls, keys_in
from microsim.runner import Runner
from tests.support import SleepClock

FLAT: dict[str, Any] = {"name": "keys", "robots": {"drone": {"camera": None}, "rover": {"camera": None}}, "wind": {}}


class Circling:
    """A pilot that never stops commanding."""

    def __init__(self, sim: microsim.Simulation) -> None:
        self.sim = sim

    def __call__(self, messages: Sequence[Message]) -> None:
        self.sim.command("rover", v=1.0, omega=0.5)


@pytest.fixture
def runner() -> Runner:
    return Runner(microsim.Simulation(FLAT, seed=1), 1.0, clock=SleepClock())


def controls_of(runner: Runner) -> KeyControls:
    def reset(seed: int | None) -> None:
        runner.sim.reset(seed)
        runner.restart(runner.sim)

    return KeyControls(runner, reset)


def test_a_terminal_sends_keys_in_several_forms_and_at_once() -> None:
    assert list(keys_in("\x1b[A\x1bOB w\x1b[5~")) == ["up", "down", " ", "w", "pgup"]


def test_arrow_keys_move_the_chosen_robot_and_let_go_after_a_moment(runner: Runner) -> None:
    keys = controls_of(runner)
    keys.take(["\t", "up", "left"])
    assert (keys.robot, keys.state.is_driven) == ("rover", True)
    runner.step(60)
    moving = runner.sim.state("rover")
    assert moving.v > 0.5
    assert moving.yaw > 0.2
    runner.clock.sleep(HOLD_S)
    keys.take([])
    runner.step(120)
    assert runner.sim.state("rover").v == pytest.approx(0.0, abs=0.05)


def test_keys_pass_over_actors_on_a_path() -> None:
    walker = {"model": "actor", "path": [[0, 5, 5], [9, 9, 5]]}
    robots = {"walker": walker, **FLAT["robots"], "other": walker | {"path": [[0, 5, 9]]}}
    keys = controls_of(Runner(microsim.Simulation({**FLAT, "robots": robots}), 1.0, clock=SleepClock()))
    seen = [keys.robot]
    for _ in range(3):
        keys.take(["\t"])
        seen.append(keys.robot)
    assert seen == ["drone", "rover", "drone", "rover"]


def test_keys_override_the_pilot_until_the_robot_is_given_back(runner: Runner) -> None:
    runner.steer(Circling)
    keys = controls_of(runner)
    keys.take(["\t", "s"])
    runner.step(60)
    assert runner.sim.state("rover").v < -0.5
    keys.take(["p"])
    runner.step(60)
    assert runner.sim.state("rover").v > 0.5


def test_pause_step_reset_and_speed(runner: Runner) -> None:
    keys = controls_of(runner)
    keys.take(["."])
    assert (runner.paused, runner.sim.tick) == (True, 1)
    keys.take([" ", "+"])
    assert (runner.paused, runner.rtf) == (False, 2.0)
    keys.take(["+"] * 20)
    assert runner.rtf == 0.0
    keys.take(["-"] * 20)
    assert runner.rtf == SPEEDS[0]
    keys.take(["r"])
    assert runner.sim.tick == 0
    keys.take(["?", "x", "q"])
    assert keys.is_helping
    assert runner.is_stopping


def test_while_paused_repeated_keys_do_not_pile_up_commands(runner: Runner) -> None:
    keys = controls_of(runner)
    keys.take([" ", *["up"] * 50])
    assert len(runner.sim.waiting) == 1


def test_a_run_that_cannot_be_reset_says_so(runner: Runner) -> None:
    keys = KeyControls(runner)
    keys.take(["r"])
    assert keys.state.note == "this run cannot be reset"
