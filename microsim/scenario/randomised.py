"""`randomize:` what the seed decides in each run: starts, obstacles, limits and noise; and the scenario that is run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field, ValidationError

from microsim.documents.values import Angle, Finite, Height, Model, Probability, exactly, show
from microsim.documents.yaml_text import Path
from microsim.engine.geometry import Array
from microsim.engine.noise import stream_key
from microsim.engine.random_layout import START, move_obstacles, number_between, start_pose
from microsim.engine.records import Records, rows_of
from microsim.engine.world import World, footprint
from microsim.errors import unknown
from microsim.scenario.fault_models import drawn_faults
from microsim.sensors.sensor import varies

if TYPE_CHECKING:
    from microsim.robots.robot import Robot
    from microsim.scenario.models import Scenario


Found = tuple[str, Path]  # message, where


def _rising(span: tuple[float, float]) -> tuple[float, float]:
    if span[0] > span[1]:
        raise ValueError(f"expected [low, high], found {show(span)}")
    return span


Span = Annotated[tuple[Finite, Finite], exactly(2, "[low, high]"), AfterValidator(_rising)]
Directions = Annotated[tuple[Angle, Angle], exactly(2, "[low, high]"), AfterValidator(_rising)]


class RandomStart(Model):
    """Where a robot may start: anywhere free in a rectangle. What is left out stays as `start` says."""

    x: Span | None = Field(None, description="East, [low, high] [m].")
    y: Span | None = Field(None, description="North, [low, high] [m].")
    z: Span | None = Field(None, description="Height in the map frame of a robot that flies, [low, high] [m].")
    yaw: Directions | None = Field(None, description="Heading, [low, high] [rad].")
    gap_m: Height = Field(1.0, description="No occupied cell and no edge of the map is nearer than this [m].")


class RandomObstacles(Model):
    """How obstacles change places. None comes near a robot's `start`."""

    shift_m: Height = Field(0.0, description="Each is moved by up to this along x and along y [m].")
    keep_probability: Probability = Field(1.0, description="Probability that an obstacle is there at all.")
    gap_m: Height = Field(1.0, description="One that would come nearer to a robot's `start` is left out [m].")


class Randomize(Model):
    """What differs from seed to seed. Each number is drawn from a stream of its own, evenly between low and high."""

    starts: dict[str, RandomStart] = Field({}, description="By robot: where it may start.")
    obstacles: RandomObstacles | None = Field(None, description="How obstacles change places; null: they stay.")
    values: dict[str, Span] = Field(
        {},
        description="Limits, noise and wind by their place in the scenario: `robots.rover.max_v: [1.5, 2.5]`, "
        "`robots.drone.gps.sigma_m: [1, 4]`, `wind.gust_sigma: [0, 2]`.",
    )


def check_randomize(scenario: Scenario) -> Iterator[Found]:
    """A problem for everything that cannot be drawn."""
    block = scenario.randomize
    if block is None:
        return
    for robot in block.starts:
        if robot not in scenario.robots:
            yield unknown("no robot", repr(robot), robot, scenario.robots), ("randomize", "starts", robot)
        elif scenario.robots[robot].follows_path:
            yield f"{robot} starts at the first waypoint of its path: leave it out", ("randomize", "starts", robot)
    for name, span in block.values.items():
        message = _why_not(scenario, name) or _refused(scenario, name, span)
        if message:
            yield message, ("randomize", "values", name)


def _why_not(scenario: Scenario, name: str) -> str:
    keys = name.split(".")
    if keys[0] not in ("robots", "wind"):
        return f"expected a place that begins with robots or wind, found {name!r}"
    try:
        value = _at(scenario, keys)
    except LookupError as error:
        return str(error.args[0])
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{name} is {show(value)}; only a number can be drawn"
    if keys[0] == "robots" and not is_drawable(keys, scenario.robots[keys[1]]):
        return (
            f"{name} cannot be drawn: only a robot's own numbers and the noise of its sensors can, such as "
            "`sigma_m`; starts have a block of their own"
        )
    return ""


def is_limit(keys: Sequence[str], name: str, robot: Robot) -> bool:
    """True when the keys lead to a number of that robot itself, not of one of its sensors or of its start."""
    if keys[:2] != ["robots", name]:
        return False
    return keys[2] not in ("start", "sensors", *robot.all_sensors())


def is_drawable(keys: Sequence[str], robot: Robot) -> bool:
    """A limit of the robot, or a number that the declaration of one of its sensors marks as varying."""
    if is_limit(keys, keys[1], robot):
        return True
    skip = 4 if keys[2] == "sensors" else 3
    block: Any = robot.all_sensors().get(keys[skip - 1])
    for key in keys[skip:-1]:
        block = getattr(block, key, None)
    return isinstance(block, Model) and varies(type(block), keys[-1])


def _at(value: Any, keys: Sequence[str], done: str = "") -> Any:
    if not keys:
        return value
    choices: Mapping[str, Any]
    if isinstance(value, Model):
        choices = {name: getattr(value, name) for name in type(value).model_fields}
    elif isinstance(value, Mapping):
        choices = value
    elif isinstance(value, tuple):
        choices = {str(index): each for index, each in enumerate(value)}
    else:
        choices = {}
    if keys[0] not in choices:
        raise LookupError(unknown(f"{done or 'the scenario'} has no", repr(keys[0]), keys[0], choices))
    return _at(choices[keys[0]], keys[1:], f"{done}.{keys[0]}".strip("."))


def _refused(scenario: Scenario, name: str, span: tuple[float, float]) -> str:
    """Both ends must be values the scenario could be written with."""
    from microsim.scenario.models import Scenario as Complete

    for end in span:
        data = with_value(scenario.written_out(), name.split("."), end).model_dump(mode="json", by_alias=True)
        try:
            Complete.model_validate({**data, "randomize": None}, context={"plugins": scenario.plugins})
        except ValidationError as error:
            return f"{show(end)} would be refused: {error.errors(include_url=False)[0]['msg']}"
    return ""


def with_value(model: Any, keys: Sequence[str], value: Any) -> Any:
    """A copy of a model in which the number at that place is another."""
    if not keys:
        return value
    key, rest = keys[0], keys[1:]
    if isinstance(model, Model):
        return model.model_copy(update={key: with_value(getattr(model, key), rest, value)})
    if isinstance(model, Mapping):
        return {**model, key: with_value(model[key], rest, value)}
    index = int(key)
    return (*model[:index], with_value(model[index], rest, value), *model[index + 1 :])


OBSTACLES = "randomize/obstacles"  # name of the stream


def start_stream(robot: str) -> str:
    return f"randomize/{robot}/start"


def value_stream(name: str) -> str:
    return f"randomize/{name}"


def draw(scenario: Scenario, world: World, seed: int) -> tuple[Scenario, World]:
    """The scenario and its world as this seed has them."""
    from microsim.scenario.scene import obstacle_shape  # imports the models, which import this module

    block = scenario.randomize
    if scenario.chaos is not None:
        scenario = scenario.model_copy(update={"faults": drawn_faults(scenario, seed)})
    if block is None:
        return scenario, world
    drawn = scenario.model_copy(update={"randomize": None})
    if block.obstacles is not None:
        kept = _obstacles(scenario, seed)
        drawn = drawn.model_copy(update={"obstacles": kept})
        world = replace(world, obstacles=tuple(map(obstacle_shape, kept)))
    for name, (low, high) in block.values.items():
        number = float(number_between(stream_key(seed, value_stream(name)), low, high))
        drawn = with_value(drawn, name.split("."), number)
    for robot in block.starts:
        drawn = _with_start(drawn, world, robot, start_row(scenario, robot), seed)
    return drawn, world


def obstacle_table(scenario: Scenario) -> Array:
    """(m, 5): x, y, half the extent along x and y, whether it is round."""
    from microsim.scenario.scene import obstacle_shape

    rows = []
    for obstacle in scenario.obstacles:
        shape = obstacle_shape(obstacle)
        is_disc, half_x, half_y = footprint(shape)
        rows.append((*shape.center, half_x, half_y, float(is_disc)))
    return np.array(rows, np.float64).reshape(-1, 5)


def start_table(scenario: Scenario) -> Array:
    """(r, 2): x, y of every robot's start as it is written."""
    poses = [robot.start.map_pose for robot in scenario.robots.values()]
    return np.array([(pose.x, pose.y) for pose in poses], np.float64).reshape(-1, 2)


def _obstacles(scenario: Scenario, seed: int) -> tuple[Any, ...]:
    """Those that are there, at their places and with the names that they have among all."""
    from microsim.scenario.live_changes import obstacle_names

    chance = scenario.randomize.obstacles if scenario.randomize else None
    assert chance is not None
    table = obstacle_table(scenario)
    out = np.empty((table.shape[0], 3))
    starts, key = start_table(scenario), stream_key(seed, OBSTACLES)
    move_obstacles(table, starts, chance.shift_m, chance.keep_probability, chance.gap_m, key, out)
    names = obstacle_names(scenario)
    return tuple(
        obstacle.model_copy(update={"center": (x, y, obstacle.center[2]), "name": name})
        for obstacle, name, (x, y, is_there) in zip(scenario.obstacles, names, out.tolist(), strict=True)
        if is_there
    )


def start_row(scenario: Scenario, robot: str) -> Records:
    """Where a robot starts, and what chance may make of that: a `START`."""
    settings, chance = scenario.robots[robot], scenario.randomize
    pose, start = settings.start.map_pose, chance.starts.get(robot) if chance else None
    is_ground_bound = settings.engine_model.is_ground_bound
    row = rows_of(START, pose=(pose.x, pose.y, pose.z or 0.0, pose.yaw), is_ground_bound=is_ground_bound)
    if start is not None:
        x, y, stays = start.x or (pose.x, pose.x), start.y or (pose.y, pose.y), (math.nan, math.nan)
        z = start.z if start.z is not None and pose.z is not None else stays
        row["low"], row["high"] = zip(x, y, z, start.yaw or stays, strict=True)
        row["gap"], row["is_drawn"] = start.gap_m, 1
    return row


def _with_start(scenario: Scenario, world: World, robot: str, row: Records, seed: int) -> Scenario:
    pose, key = scenario.robots[robot].start.map_pose, stream_key(seed, start_stream(robot))
    x, y, z, yaw = map(float, start_pose(row[0], world.footing, world.cell_m, world.west, world.south, key))
    height = {} if pose.z is None else {"z": z}
    keys = ("robots", robot, "start", "map_pose")
    drawn: Scenario = with_value(scenario, keys, pose.model_copy(update={"x": x, "y": y, "yaw": yaw, **height}))
    return drawn
