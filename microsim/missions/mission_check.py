"""Checks a mission against its simulation: everything that cannot work is reported before the start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from microsim.documents.values import show
from microsim.errors import MissionError, ScenarioError, UsageError, unknown
from microsim.missions.follower import steer_for
from microsim.missions.judge import DERIVED, TOPIC_VALUES, FieldPath
from microsim.missions.mission_file import (
    CommandAction,
    Mission,
    RadioAction,
    RadioExpectation,
    RobotAction,
    RobotExpectation,
    SetAction,
    TeleportAction,
    TopicExpectation,
    WaypointsAction,
)
from microsim.scenario import Scenario
from microsim.scenario.files import in_order
from microsim.scenario.overrides import SettingError, with_values
from microsim.simulation import Simulation

Loc: TypeAlias = tuple[str | int, ...]
Found: TypeAlias = Iterator[tuple[str, Loc]]  # what is wrong, and where in the mission


def check(mission: Mission, sim: Simulation) -> None:
    """Raises MissionError with every reason why this simulation cannot run the mission."""
    found = [*_actions(mission, sim), *_settings(mission, sim), *_expectations(mission, sim)]
    if found:
        raise MissionError(in_order(mission._places.problem(message, loc) for message, loc in found))


def _actions(mission: Mission, sim: Simulation) -> Found:
    for index, entry in enumerate(mission.do):
        if not isinstance(entry, RobotAction):
            continue
        if entry.robot not in sim.robots:
            yield _no_robot(sim, entry.robot), ("do", index, "robot")
            continue
        for message, loc in _action(entry, sim):
            yield message, ("do", index, *loc)


def _no_robot(sim: Simulation, name: str) -> str:
    return unknown(f"the scenario {sim.scenario.name!r} has no robot", repr(name), name, sim.robots)


def _action(entry: RobotAction, sim: Simulation) -> Found:
    if isinstance(entry, CommandAction):
        inputs = sim.model(entry.robot).inputs
        for name in entry.command:
            if name not in inputs:
                yield unknown(f"{entry.robot} has no command", repr(name), name, inputs), ("command", name)
    elif isinstance(entry, TeleportAction):
        yield from _teleport(entry, sim)
    elif isinstance(entry, RadioAction):
        yield from _radio(entry, sim)
    elif isinstance(entry, WaypointsAction):
        yield from _waypoints(entry, sim)


def _teleport(entry: TeleportAction, sim: Simulation) -> Found:
    place, world = entry.teleport, sim.world
    if not sim.model(entry.robot).is_ground_bound:
        return
    if not world.is_inside(place.x, place.y):
        width, height = world.size_m
        yield f"({place.x:g}, {place.y:g}) is off the map of {width:g} m × {height:g} m", ("teleport",)
    elif world.is_occupied(place.x, place.y):
        yield f"({place.x:g}, {place.y:g}) is in an occupied cell", ("teleport",)


def _radio(entry: RadioAction, sim: Simulation) -> Found:
    if sim.radio is None:
        yield f"the scenario {sim.scenario.name!r} has no radio between robots", ("radio",)
    limit, size = sim.scenario.radio.max_payload_bytes, len(payload(entry, entry.times - 1))
    if size > limit:
        yield f"expected at most {limit} bytes (radio.max_payload_bytes), found {size}", ("radio",)


def _waypoints(entry: WaypointsAction, sim: Simulation) -> Found:
    model = sim.model(entry.robot)
    if steer_for(model, sim.drawn.robots[entry.robot]) is None:
        yield f"no follower can drive a {model.name}, whose inputs are {', '.join(model.inputs)}", ("waypoints",)
    for index, waypoint in enumerate(entry.waypoints):
        if model.is_ground_bound and len(waypoint) > 2:
            message = f"{entry.robot} is a ground robot: expected [x, y], found {show(waypoint)}"
            yield message, ("waypoints", index)


def payload(entry: RadioAction, repetition: int) -> bytes:
    return entry.radio.replace("{n}", str(repetition)).encode()


# ---- changed values of the scenario ----------------------------------------------------------------------------------


def changed(scenario: Scenario, changes: dict[str, Any]) -> Scenario:
    """The scenario with changed values; SettingError: a key that cannot change, ScenarioError: a wrong value."""
    for path in changes:
        if path.split(".")[0] in _FIXED:
            raise SettingError(f"{path.split('.')[0]} cannot change during a run", path)
    return with_values(scenario, changes)


_FIXED = ("name", "seed", "physics_hz", "map", "world", "obstacles", "features", "randomize", "plugins")


def _settings(mission: Mission, sim: Simulation) -> Found:
    """Changes in the order of time, each on top of those before it."""
    entries = [(index, entry) for index, entry in enumerate(mission.do) if isinstance(entry, SetAction)]
    scenario, twin = sim.scenario, None
    for index, entry in sorted(entries, key=lambda item: (item[1].after is not None, item[1].at, item[0])):
        try:
            scenario = changed(scenario, entry.set)
            twin = twin or sim.fork()
            twin.reconfigure(scenario)
        except ScenarioError as error:
            for problem in error.problems:
                key = next((path for path in entry.set if problem.path.startswith(path)), None)
                message = problem.message if key == problem.path else f"{problem.path}: {problem.message}"
                yield message, ("do", index, "set", *([key] if key else []))
        except SettingError as error:
            yield str(error), ("do", index, "set", error.path)
        except UsageError as error:
            yield str(error), ("do", index, "set")


# ---- expectations ----------------------------------------------------------------------------------------------------


def _expectations(mission: Mission, sim: Simulation) -> Found:
    is_open = any(isinstance(entry, SetAction) for entry in mission.do)  # a topic may appear later
    for index, entry in enumerate(mission.expect):
        if isinstance(entry, RobotExpectation):
            found = _about_robot(entry, sim)
        elif isinstance(entry, TopicExpectation):
            found = _about_topic(entry, sim, is_open)
        else:
            found = _about_radio(entry, sim)
        for message, key in found:
            yield message, ("expect", index, *key)


def _about_robot(entry: RobotExpectation, sim: Simulation) -> Found:
    if entry.robot not in sim.robots:
        yield _no_robot(sim, entry.robot), ("robot",)
        return
    values: Sequence[str] = [*sim.model(entry.robot).state, *DERIVED]
    if entry.value not in values:
        yield unknown(f"{entry.robot} has no value", repr(entry.value), entry.value, values), ("value",)


def _about_topic(entry: TopicExpectation, sim: Simulation, is_open: bool) -> Found:
    if entry.topic not in sim.topics:
        if not is_open:
            yield unknown("there is no topic", repr(entry.topic), entry.topic, sim.topics), ("topic",)
    elif entry.value not in TOPIC_VALUES:
        type_name = sim.topics[entry.topic][0]
        problem = FieldPath(entry.value).problem(type_name)
        if problem:
            yield f"{problem}; there are also: {', '.join(TOPIC_VALUES)}", ("value",)


def _about_radio(entry: RadioExpectation, sim: Simulation) -> Found:
    for position, name in enumerate(entry.radio):
        if name not in sim.robots:
            yield _no_robot(sim, name), ("radio", position)
    if sim.radio is None:
        yield f"the scenario {sim.scenario.name!r} has no radio between robots", ("radio",)
    elif entry.radio[0] == entry.radio[1]:
        yield "expected two robots: [sender, receiver]", ("radio",)
