"""States, steps and resets."""

from __future__ import annotations

import math
from typing import Any

from microsim.parts.live_tools.conformance.simulator import (
    PAUSED,
    PLAYING,
    STOPPED,
    NotTestedError,
    Simulator,
    check,
    expect,
    expect_code,
    expect_refused,
)

GETTING, SETTING, PAUSE = "SIMULATION_STATE_GETTING", "SIMULATION_STATE_SETTING", "SIMULATION_STATE_PAUSE"
NAMES = ("STOPPED", "PLAYING", "PAUSED", "QUITTING", "NO_WORLD", "LOADING_WORLD")


@check("GetSimulationState.srv: state", GETTING)
def the_state_is_one_of_the_definition(sim: Simulator) -> None:
    """The state is one of the definition, with result 1."""
    response = sim.call("GetSimulationState")
    expect_code(response, 1, "GetSimulationState")
    expect(int(response.state.state) < len(NAMES), f"state {int(response.state.state)} is not defined")


def _is_in(sim: Simulator, wanted: int) -> None:
    found = sim.state()
    name = NAMES[found] if found < len(NAMES) else str(found)
    expect(found == wanted, f"after SetSimulationState {NAMES[wanted]}: GetSimulationState says {name}")


@check("SimulationState.msg: STATE_PLAYING, STATE_PAUSED", GETTING, SETTING, PAUSE)
def it_is_paused_and_played(sim: Simulator) -> None:
    """A playing simulation can be paused, and a paused one played."""
    sim.go(PLAYING)
    for wanted in (PAUSED, PLAYING):
        expect_code(sim.call("SetSimulationState", state={"state": wanted}), 1, f"SetSimulationState {NAMES[wanted]}")
        _is_in(sim, wanted)


@check("SetSimulationState.srv: ALREADY_IN_TARGET_STATE", GETTING, SETTING)
def the_present_state_is_reported_as_such(sim: Simulator) -> None:
    """Setting the present state gives ALREADY_IN_TARGET_STATE."""
    sim.go(PLAYING)
    expect_code(sim.call("SetSimulationState", state={"state": PLAYING}), 101, "SetSimulationState PLAYING twice")


@check("SimulationState.msg: STATE_STOPPED", GETTING, SETTING)
def it_is_stopped_and_played(sim: Simulator) -> None:
    """A playing simulation can be stopped, and a stopped one played."""
    sim.go(PLAYING)
    expect_code(sim.call("SetSimulationState", state={"state": STOPPED}), 1, "SetSimulationState STOPPED")
    _is_in(sim, STOPPED)
    expect_code(sim.call("SetSimulationState", state={"state": STOPPED}), 101, "SetSimulationState STOPPED twice")
    expect_code(sim.call("SetSimulationState", state={"state": PLAYING}), 1, "SetSimulationState PLAYING")
    _is_in(sim, PLAYING)


@check(
    "SimulationState.msg: STATE_STOPPED (reset); SetSimulationState.srv: INCORRECT_TRANSITION", GETTING, SETTING, PAUSE
)
def a_stopped_one_is_paused_or_that_is_refused(sim: Simulator) -> None:
    """Pausing a stopped simulation starts it paused, or is an INCORRECT_TRANSITION; the definitions allow both."""
    sim.go(STOPPED)
    response = sim.call("SetSimulationState", state={"state": PAUSED})
    expect_code(response, (1, 103), "SetSimulationState PAUSED when stopped")
    _is_in(sim, PAUSED if int(response.result.result) == 1 else STOPPED)


@check("SetSimulationState.srv: state", GETTING, SETTING)
def states_that_cannot_be_set_are_refused(sim: Simulator) -> None:
    """NO_WORLD, LOADING_WORLD and undefined states are refused, and change nothing."""
    sim.go(PLAYING)
    for wanted in (4, 5, 77):
        expect_refused(sim.call("SetSimulationState", state={"state": wanted}), f"SetSimulationState {wanted}")
        _is_in(sim, PLAYING)


@check("SimulationState.msg: STATE_PLAYING, STATE_PAUSED", SETTING, PAUSE)
def time_passes_while_playing_only(sim: Simulator) -> None:
    """Simulated time passes while playing, and stands still while paused."""
    sim.go(PLAYING)
    start = sim.time_ns()
    expect(sim.until(lambda: sim.time_ns() > start), "playing, but simulated time does not pass")
    sim.go(PAUSED)
    sim.until(lambda: sim.time_ns() == sim.time_ns())  # what was under way has arrived
    before = sim.time_ns()
    for _ in range(10):
        now = sim.time_ns()
        expect(now == before, f"paused, but simulated time passed by {(now - before) / 1e9:g} s")


# ---- steps ----------------------------------------------------------------------------------------------------------


def _period_ns(sim: Simulator) -> int:
    """Simulated time of one step; leaves it paused."""
    sim.pause()
    before = sim.time_ns()
    expect_code(sim.call("StepSimulation", steps=1), 1, "StepSimulation 1 when paused")
    expect(sim.until(lambda: sim.time_ns() > before), "one step did not advance simulated time")
    return sim.time_ns() - before


def _advanced(sim: Simulator, before: int, steps: int, period: int) -> None:
    wanted = before + steps * period
    sim.until(lambda: sim.time_ns() >= wanted - steps)
    off = sim.time_ns() - wanted
    expect(abs(off) <= steps, f"{steps} steps of {period} ns: time is {off} ns beside {steps * period} ns")
    if sim.has(GETTING):
        expect(sim.state() in (PAUSED, STOPPED), "after stepping: expected the paused state")


@check("StepSimulation.srv: steps = 1", "STEP_SIMULATION_SINGLE")
def one_step_is_one_period(sim: Simulator) -> None:
    """Each single step advances time by the same period, and leaves the simulation paused."""
    period = _period_ns(sim)
    for _ in range(3):
        before = sim.time_ns()
        expect_code(sim.call("StepSimulation", steps=1), 1, "StepSimulation 1")
        _advanced(sim, before, 1, period)


@check("StepSimulation.srv: steps > 1", "STEP_SIMULATION_SINGLE", "STEP_SIMULATION_MULTIPLE")
def many_steps_are_exactly_as_many(sim: Simulator) -> None:
    """The service returns when all steps are done, neither more nor fewer."""
    period = _period_ns(sim)
    for steps in (2, 25):
        before = sim.time_ns()
        expect_code(sim.call("StepSimulation", steps=steps), 1, f"StepSimulation {steps}")
        _advanced(sim, before, steps, period)


@check("StepSimulation.srv: result; Result.msg: RESULT_INCORRECT_STATE", "STEP_SIMULATION_SINGLE", SETTING)
def a_playing_one_is_not_stepped(sim: Simulator) -> None:
    """Stepping a simulation that is not paused is refused with a message: OPERATION_FAILED, or INCORRECT_STATE."""
    sim.go(PLAYING)
    response = sim.call("StepSimulation", steps=1)
    expect_code(response, (4, 3), "StepSimulation when playing")
    expect(str(response.result.error_message), "StepSimulation when playing: the error message is empty")


def _simulate(sim: Simulator, steps: int) -> tuple[Any, list[Any]]:
    heard: list[Any] = []
    name = sim.interfaces.get("SimulateSteps")
    expect(name, "the action SimulateSteps is not offered")
    kind = "simulation_interfaces/action/SimulateSteps"
    goal = {"steps": steps}
    return sim.node.send_goal(str(name), goal, type=kind, on_feedback=heard.append, timeout=sim.timeout_s), heard


@check("SimulateSteps.action: steps, result", "STEP_SIMULATION_ACTION")
def the_action_steps_as_often(sim: Simulator) -> None:
    """The action simulates its steps, returns RESULT_OK, and leaves the simulation paused."""
    sim.pause()
    before = sim.time_ns()
    outcome, _ = _simulate(sim, 1)
    expect(outcome.status == "succeeded", f"SimulateSteps 1: the goal {outcome.status}")
    sim.until(lambda: sim.time_ns() > before)
    period = sim.time_ns() - before
    before = sim.time_ns()
    outcome, _ = _simulate(sim, 20)
    expect(outcome.status == "succeeded", f"SimulateSteps 20: the goal {outcome.status}")
    expect_code(outcome.result, 1, "SimulateSteps 20")
    _advanced(sim, before, 20, period)


@check("SimulateSteps.action: completed_steps, remaining_steps", "STEP_SIMULATION_ACTION")
def the_action_reports_each_step(sim: Simulator) -> None:
    """Feedback comes after each complete step, and its numbers add up."""
    sim.pause()
    _, heard = _simulate(sim, 4)
    sim.node.wait_until(lambda: len(heard) >= 4, 1.0)
    pairs = [(int(each.completed_steps), int(each.remaining_steps)) for each in heard]
    expect(pairs == [(1, 3), (2, 2), (3, 1), (4, 0)], f"4 steps: completed and remaining are {pairs}")


@check("SimulateSteps.action: result", "STEP_SIMULATION_ACTION", SETTING)
def the_action_fails_while_playing(sim: Simulator) -> None:
    """Called with the simulation unpaused, the action returns OPERATION_FAILED and a message."""
    sim.go(PLAYING)
    outcome, _ = _simulate(sim, 1)
    expect(outcome.result is not None, f"SimulateSteps when playing: the goal was {outcome.status}, without a result")
    expect_code(outcome.result, 4, "SimulateSteps when playing")
    expect(str(outcome.result.result.error_message), "SimulateSteps when playing: the error message is empty")


# ---- resets ---------------------------------------------------------------------------------------------------------

RESET, BY_TIME, BY_STATE = "SIMULATION_RESET", "SIMULATION_RESET_TIME", "SIMULATION_RESET_STATE"
BY_SPAWNED = "SIMULATION_RESET_SPAWNED"
SCOPES = {1: BY_TIME, 2: BY_STATE, 4: BY_SPAWNED}


def _pass_time(sim: Simulator) -> int:
    """Let some simulated time pass; gives how late it is then."""
    if sim.has(SETTING):
        sim.go(PLAYING)
    start = sim.time_ns()
    expect(sim.until(lambda: sim.time_ns() > start + 300_000_000), "simulated time does not pass")
    sim.pause()
    return sim.time_ns()


def _is_set_back(sim: Simulator, scope: int) -> None:
    late = _pass_time(sim)
    expect_code(sim.call("ResetSimulation", scope=scope), 1, f"ResetSimulation {scope}")
    expect(sim.until(lambda: sim.time_ns() < late), f"ResetSimulation {scope}: time was not set back")


@check("ResetSimulation.srv: SCOPE_DEFAULT, SCOPE_ALL", RESET)
def a_full_reset_is_a_fresh_start(sim: Simulator) -> None:
    """The default scope, and all scopes, set time back to the start."""
    for scope in (0, 255):
        _is_set_back(sim, scope)


@check("ResetSimulation.srv: SCOPE_TIME", BY_TIME)
def time_alone_is_reset(sim: Simulator) -> None:
    """SCOPE_TIME sets simulation time back to the start."""
    _is_set_back(sim, 1)


@check("ResetSimulation.srv: SCOPE_STATE", BY_STATE, "ENTITY_STATE_GETTING", "ENTITY_STATE_SETTING")
def poses_are_reset_without_time(sim: Simulator) -> None:
    """SCOPE_STATE puts entities back to where they started, and time continues."""
    expect_code(sim.call("ResetSimulation", scope=0), 1, "ResetSimulation SCOPE_DEFAULT")
    sim.pause()
    name = sim.an_entity(1)
    start = sim.pose(name)
    late = _pass_time(sim)
    moved = (start[0] + 1.0, start[1] + 1.0, *start[2:])
    expect_code(sim.set_pose(name, moved), 1, f"SetEntityState {name}")
    expect_code(sim.call("ResetSimulation", scope=2), 1, "ResetSimulation SCOPE_STATE")
    close = lambda: math.dist(sim.pose(name)[:2], start[:2]) < 0.05  # noqa: E731
    expect(sim.until(close), f"ResetSimulation SCOPE_STATE: {name} is at {sim.pose(name)[:3]}, started at {start[:3]}")
    expect(sim.time_ns() >= late, "ResetSimulation SCOPE_STATE: time was set back too")


@check("ResetSimulation.srv: SCOPE_SPAWNED", BY_SPAWNED, "SPAWNING")
def spawned_entities_are_removed(sim: Simulator) -> None:
    """SCOPE_SPAWNED removes spawned entities, and no others."""
    others = sim.entities()
    expect_code(sim.spawn("conformance_reset", sim.spawnable()), 1, "SpawnEntity")
    expect_code(sim.call("ResetSimulation", scope=4), 1, "ResetSimulation SCOPE_SPAWNED")
    found = sim.entities()
    expect(sorted(found) == sorted(others), f"ResetSimulation SCOPE_SPAWNED: expected entities {others}, found {found}")


@check("ResetSimulation.srv: Objects that were dynamically spawned are de-spawned", RESET, "SPAWNING")
def a_full_reset_removes_spawned_entities(sim: Simulator) -> None:
    """A full reset removes spawned entities."""
    expect_code(sim.spawn("conformance_reset", sim.spawnable()), 1, "SpawnEntity")
    expect_code(sim.call("ResetSimulation", scope=0), 1, "ResetSimulation SCOPE_DEFAULT")
    expect("conformance_reset" not in sim.entities(), "ResetSimulation SCOPE_DEFAULT: a spawned entity is still there")


@check("ResetSimulation.srv: scope; Result.msg: RESULT_FEATURE_UNSUPPORTED", RESET)
def scopes_that_are_not_announced_are_unsupported(sim: Simulator) -> None:
    """A scope that is not announced gives RESULT_FEATURE_UNSUPPORTED."""
    unannounced = [scope for scope, feature in SCOPES.items() if not sim.has(feature)]
    if not unannounced:
        raise NotTestedError("all scopes are announced")
    for scope in unannounced:
        expect_code(sim.call("ResetSimulation", scope=scope), 0, f"ResetSimulation {scope}")
