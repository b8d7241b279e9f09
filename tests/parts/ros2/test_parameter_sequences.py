"""Parameters in any order: what is live counts at once, what needs a reset waits for it, nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import microsim
from microsim.errors import UsageError
from microsim.parts.ros2.microsim_node import start_node
from microsim.parts.ros2.node_parameters import ScenarioParameters
from microsim.parts.ros2.transport import OnSet, Parameter, Value
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport
from tests.parameter_model import START, WORLD, Parameters, operations

PENDING: dict[str, Value] = {"physics_hz": 100.0, "world.size_xy_cells": [60, 40], "frames.per_robot_odom": True}


class DirectTransport(MemoryTransport):
    """Sets parameters without a service between."""

    on_set: OnSet

    def declare(self, parameters: Any, on_set: OnSet) -> None:
        super().declare(parameters, on_set)
        self.on_set = on_set


class Run:
    def __init__(self, world: Any = WORLD) -> None:
        self.transport = DirectTransport("microsim", (), Bus())
        self.node = start_node(self.transport, microsim.load_scenario(world))
        self.node.runner.pause(True)

    def set(self, changes: Mapping[str, Value]) -> str:
        return self.transport.on_set(changes)

    @property
    def now(self) -> dict[str, Any]:
        return ScenarioParameters(self.node.sim.scenario).values()

    @property
    def shown(self) -> dict[str, Any]:
        return self.node.settings.values()


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(each, marks=pytest.mark.slow) for each in range(6, 300))])
def test_any_sequence_of_sets_and_resets_does_what_the_model_says(seed: int) -> None:
    run, model = Run(), Parameters()
    for changes in operations(seed, 40):
        if changes is None:
            run.node.runner.reset()
            model.reset()
        else:
            accepted = model.set(changes)
            assert (run.set(changes) == "") == accepted, changes
        run.node.runner.step(1)
        now, shown = run.now, run.shown
        assert {name: now[name] for name in START} == model.now, changes
        assert {name: shown[name] for name in START} == model.shown, changes


@pytest.mark.parametrize("name", PENDING)
def test_what_waits_for_a_reset_survives_live_changes(name: str) -> None:
    run = Run()
    assert run.set({name: PENDING[name]}) == ""
    for live in ({"drone.max_vx": 2.0}, {"gps_hz": 2.0}, {"radio.reordering": True}):
        assert run.set(live) == ""
        run.node.runner.step(2)
        assert run.now[name] == START[name]
        assert run.shown[name] == PENDING[name]
    run.node.runner.reset()
    assert run.now[name] == PENDING[name]
    assert (run.now["drone.max_vx"], run.now["gps_hz"]) == (2.0, 2.0)


def test_what_waits_for_a_reset_survives_entities_that_come_and_go() -> None:
    run = Run()
    assert run.set(PENDING) == ""
    run.node.sim.spawn("far", {"model": "rover", "start": {"map_pose": {"x": 150, "y": 150}}})  # off the next map
    assert run.set({"drone.max_vx": 2.0}) == ""
    run.node.sim.delete("rover")
    assert run.set({"rover.start.map_pose.x": 3.0}) == "the scenario 'unnamed' has no rover.start.map_pose.x"
    run.node.runner.reset()
    assert set(run.node.sim.robots) == {"drone", "rover"}
    assert {name: run.now[name] for name in PENDING} == PENDING


def test_what_no_longer_fits_at_the_reset_is_reported_and_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    assert run.set({"physics_hz": 40.0}) == ""
    document = run.node.sim.scenario.to_dict()
    document["robots"]["rover"]["gps"]["hz"] = 50
    run.node.sim.reconfigure(microsim.load_scenario(document))  # as a mission does
    run.node.runner.reset()
    assert "no longer fits and is not used: physics_hz = 40.0: " in capsys.readouterr().err
    assert run.now["physics_hz"] == run.shown["physics_hz"] == 60.0


def test_a_refusal_names_the_values_that_wait_for_the_reset() -> None:
    run = Run()
    assert run.set({"physics_hz": 40.0}) == ""
    assert run.set({"gps_hz": 50.0}).endswith(" (with physics_hz = 40.0, which the next reset puts into force)")


DRIFTING = {"frames": {"per_robot_odom": True}, "robots": {"rover": {"odom": {"drift": {"position_per_m": 0.1}}}}}


@pytest.mark.parametrize("world", ["default", DRIFTING, pytest.param("showcase", marks=pytest.mark.slow)], ids=str)
def test_every_parameter_can_be_set_and_a_refusal_changes_nothing(world: Any) -> None:
    run = Run(world)
    for parameter in run.node.settings.declarations():
        before = run.node.sim.scenario
        assert run.set({parameter.name: parameter.value}) == "", parameter.name
        if other := _other(parameter):
            reason = run.set({parameter.name: other})
            assert reason == "" or run.node.sim.scenario == before, (parameter.name, reason)
            assert "make a new Simulation" not in reason, parameter.name
    run.node.runner.step(2)
    run.node.runner.reset()
    run.node.runner.step(2)


def _other(parameter: Parameter) -> Value | None:
    value = parameter.value
    if isinstance(value, bool):
        return not value
    return None if parameter.read_only or not isinstance(value, (int, float)) else type(value)(0.9 * value)


def test_a_change_that_cannot_run_leaves_the_run_as_it_was() -> None:
    run = Run({**WORLD, "faults": ["/rover/gps/fix:loss(1)@0s-5s"]})
    sim, twin = run.node.sim, microsim.Simulation({**WORLD, "faults": ["/rover/gps/fix:loss(1)@0s-5s"]})
    sim.step(30)
    before, topics = sim.scenario, dict(sim.topics)
    document = before.to_dict()
    document["robots"]["rover"]["gps"]["enabled"] = False
    with pytest.raises(UsageError, match="neither sends nor takes /rover/gps/fix"):
        sim.reconfigure(microsim.load_scenario(document))
    assert sim.scenario is before
    assert sim.topics == topics
    sim.step(60)
    twin.step(90)
    assert sim.digest() == twin.digest()
