"""From a scenario with a `randomize:` block and a seed to the scenario that is run: everything decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microsim.engine.geometry import Array
from microsim.engine.noise import stream_key, uniforms
from microsim.engine.random_layout import move_obstacles, number_between, start_place
from microsim.engine.world import World, footprint
from microsim.scenario.fault_models import drawn_faults
from microsim.scenario.models import Scenario
from microsim.scenario.randomize import RandomStart, with_value
from microsim.scenario.scene import obstacle_shape

OBSTACLES = "randomize/obstacles"  # name of the stream


def start_stream(robot: str) -> str:
    return f"randomize/{robot}/start"


def value_stream(name: str) -> str:
    return f"randomize/{name}"


def draw(scenario: Scenario, world: World, seed: int) -> tuple[Scenario, World]:
    """The scenario and its world as this seed has them."""
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
    for robot, start in block.starts.items():
        drawn = _with_start(drawn, world, robot, start, seed)
    return drawn, world


def obstacle_table(scenario: Scenario) -> Array:
    """(m, 5): x, y, half the extent along x and y, whether it is round."""
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
    chance = scenario.randomize.obstacles if scenario.randomize else None
    assert chance is not None
    table = obstacle_table(scenario)
    out = np.empty((table.shape[0], 3))
    starts, key = start_table(scenario), stream_key(seed, OBSTACLES)
    move_obstacles(table, starts, chance.shift_m, chance.keep_probability, chance.gap_m, key, out)
    return tuple(
        obstacle.model_copy(update={"center": (x, y, obstacle.center[2])})
        for obstacle, (x, y, is_there) in zip(scenario.obstacles, out.tolist(), strict=True)
        if is_there
    )


def place_spans(pose: Any, start: RandomStart) -> tuple[tuple[float, float], tuple[float, float]]:
    return start.x or (pose.x, pose.x), start.y or (pose.y, pose.y)


def _with_start(scenario: Scenario, world: World, robot: str, start: RandomStart, seed: int) -> Scenario:
    pose, key = scenario.robots[robot].start.map_pose, stream_key(seed, start_stream(robot))
    spans_x, spans_y = place_spans(pose, start)
    grid = (world.footing, world.cell_m, world.west, world.south)
    x, y, found = start_place(*grid, *spans_x, *spans_y, start.gap_m, key)
    turn, height = uniforms(key, 0, 1)
    update: dict[str, Any] = {"x": float(x), "y": float(y)} if found else {}
    if start.yaw is not None:
        update["yaw"] = between(start.yaw, turn)
    if start.z is not None and pose.z is not None:
        update["z"] = between(start.z, height)
    keys = ("robots", robot, "start", "map_pose")
    return _scenario(with_value(scenario, keys, pose.model_copy(update=update)))


def between(span: Sequence[float], share: float) -> float:
    return span[0] + (span[1] - span[0]) * share


def _scenario(value: Any) -> Scenario:
    assert isinstance(value, Scenario)
    return value
