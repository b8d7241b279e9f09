"""What only shows when the world is laid out: starts outside the map, in the ground, inside an obstacle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from microsim.documents.yaml_text import Path
from microsim.robots.robot import Robot
from microsim.scenario.models import Scenario
from microsim.scenario.world_models import Box, Cylinder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Found = tuple[str, Path]  # message, where


def check_starts(scenario: Scenario, heights: npt.NDArray[np.float64]) -> Iterator[Found]:
    """A problem for every robot that cannot start at its place."""
    occupied = occupancy(scenario)
    for name, robot in scenario.robots.items():
        message = _outside(scenario, robot) or (
            _in_solid(scenario, robot, heights)
            if robot.start.map_pose.z is not None
            else _in_cell(scenario, robot, occupied)
        )
        if message:
            yield message + _by_default(robot), ("robots", name, "start", "map_pose")


def check_bundle_starts(scenario: Scenario) -> Iterator[Found]:
    """The same in a world bundle, whose map may begin anywhere and have holes."""
    from microsim.scenario.scene import build_world

    world = build_world(scenario)
    west, south, east, north = world.extent_m
    for name, robot in scenario.robots.items():
        pose, message = robot.start.map_pose, ""
        if not world.is_inside(pose.x, pose.y):
            message = f"is outside the map, which is x from {west:g} to {east:g} and y from {south:g} to {north:g}"
        elif pose.z is None and math.isnan(world.ground(pose.x, pose.y)):
            message = "is where there is no ground"
        elif pose.z is None and not world.has_footing(pose.x, pose.y):
            message = "is in a cell that is occupied, or beside one without ground"
        elif pose.z is not None and pose.z < world.ground(pose.x, pose.y):
            message = f"is below the ground; z: {_rounded_up(world.ground(pose.x, pose.y) + 0.1)} would do"
        if message:
            yield f"the start {_at(robot)} {message}" + _by_default(robot), ("robots", name, "start", "map_pose")


def occupancy(scenario: Scenario) -> npt.NDArray[np.uint8]:
    """1 for every cell that an obstacle overlaps, shape (ny, nx)."""
    import numpy as np

    from microsim.engine.world import mark_occupied
    from microsim.scenario.scene import obstacle_shape

    nx, ny = scenario.map.size_xy_cells
    occupied = np.zeros((ny, nx), np.uint8)
    mark_occupied(occupied, scenario.map.cell_size_m, map(obstacle_shape, scenario.obstacles))
    return occupied


def _by_default(robot: Robot) -> str:
    pose = robot.start.map_pose
    written = {"x", "y", "z"} & pose.model_fields_set
    return (
        "" if written else f" (this start is the default of a {robot.model}; write start: {{map_pose: {{x: …, y: …}}}})"
    )


def _at(robot: Robot) -> str:
    pose = robot.start.map_pose
    place = f"x {pose.x:g}, y {pose.y:g}"
    return place if pose.z is None else f"{place}, z {pose.z:g}"


def _outside(scenario: Scenario, robot: Robot) -> str:
    (width, height), (nx, ny), cell = scenario.map.size_xy_m, scenario.map.size_xy_cells, scenario.map.cell_size_m
    pose = robot.start.map_pose
    if pose.x >= 0 and pose.y >= 0 and pose.x / cell < nx and pose.y / cell < ny:  # nx * cell may round up
        return ""
    return f"the start {_at(robot)} is outside the map, which is x from 0 to {width:g} and y from 0 to {height:g}"


def _in_cell(scenario: Scenario, robot: Robot, occupied: npt.NDArray[np.uint8]) -> str:
    pose, cell = robot.start.map_pose, scenario.map.cell_size_m
    column, row = math.floor(pose.x / cell), math.floor(pose.y / cell)
    if not occupied[row, column]:
        return ""
    owners = (
        index for index, each in enumerate(scenario.obstacles) if _covers_cell(each, column * cell, row * cell, cell)
    )
    index = next(owners, None)
    which = f"obstacles[{index}], a {scenario.obstacles[index].type}" if index is not None else "an obstacle"
    return f"the start {_at(robot)} is in a cell that is occupied by {which}"


def _covers_cell(obstacle: Box | Cylinder, x: float, y: float, cell: float) -> bool:
    near_x = min(max(obstacle.center[0], x), x + cell) - obstacle.center[0]
    near_y = min(max(obstacle.center[1], y), y + cell) - obstacle.center[1]
    if isinstance(obstacle, Cylinder):
        return near_x * near_x + near_y * near_y < obstacle.radius * obstacle.radius
    return abs(near_x) < obstacle.size[0] / 2 and abs(near_y) < obstacle.size[1] / 2


def _in_solid(scenario: Scenario, robot: Robot, heights: npt.NDArray[np.float64]) -> str:
    pose, cell = robot.start.map_pose, scenario.map.cell_size_m
    assert pose.z is not None
    clearance: float = getattr(robot, "ground_clearance_m", 0.0)
    lowest = ground(heights, cell, pose.x, pose.y) + clearance
    if pose.z < lowest:
        return (
            f"the start {_at(robot)} is below the ground plus a clearance of {clearance:g} m; "
            f"z: {_rounded_up(lowest)} would do"
        )
    for index, obstacle in enumerate(scenario.obstacles):
        base = ground(heights, cell, *obstacle.center[:2]) + obstacle.center[2]
        top = base + (obstacle.size[2] if isinstance(obstacle, Box) else obstacle.height)
        if base <= pose.z <= top and _covers_cell(obstacle, pose.x, pose.y, 0.0):
            above = _rounded_up(max(top, lowest) + 0.01)
            return f"the start {_at(robot)} is inside obstacles[{index}], a {obstacle.type}; z: {above} would do"
    return ""


def ground(heights: npt.NDArray[np.float64], cell: float, x: float, y: float) -> float:
    from microsim.engine.geometry import ground_height

    plain: Any = getattr(ground_height, "py_func", ground_height)  # a handful of points is not worth compiling for
    return float(plain(heights, cell, x, y))


def _rounded_up(value: float) -> str:
    return f"{math.ceil(value * 100) / 100:g}"
