"""The world as RViz shows it: `/world/occupancy` and `/world/markers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from microsim.engine.geometry import yaw_quaternion
from microsim.engine.world import PALETTE, Shape, World
from microsim.messages.encoders import header
from microsim.messages.types import new
from microsim.robots.robot import Look

_CUBE, _CYLINDER, _TRIANGLES = 1, 3, 11
_FLAT_M = 0.02  # thickness in which painted features are shown


def occupancy_message(world: World) -> Any:
    """`nav_msgs/OccupancyGrid` of the occupied cells, 0 or 100."""
    rows, columns = world.occupied.shape
    message = new(
        "nav_msgs/msg/OccupancyGrid",
        header=header("map"),
        data=(world.occupied.astype(np.int8) * np.int8(100)).reshape(-1),
    )
    message.info.resolution, message.info.width, message.info.height = world.cell_m, columns, rows
    message.info.origin.position.x, message.info.origin.position.y = world.west, world.south
    message.info.origin.orientation.w = 1.0
    return message


def markers_message(world: World, robots: Mapping[str, Look]) -> Any:
    """`visualization_msgs/MarkerArray`: obstacles, features, then robots."""
    shapes = [("obstacles", shape) for shape in world.obstacles] + [("features", shape) for shape in world.features]
    things = [_shape_marker(world, space, index, shape) for index, (space, shape) in enumerate(shapes)]
    things += [_robot_marker(index, look) for index, look in enumerate(robots.values())]
    return new("visualization_msgs/msg/MarkerArray", markers=things)


def _marker(space: str, index: int, kind: int, size: tuple[float, float, float], colour: tuple[float, ...]) -> Any:
    marker = new("visualization_msgs/msg/Marker", header=header("map"), ns=space, id=index, type=kind)
    marker.scale.x, marker.scale.y, marker.scale.z = size
    marker.color.r, marker.color.g, marker.color.b, marker.color.a = *colour, 1.0
    marker.pose.orientation.w = 1.0
    return marker


def _robot_marker(index: int, look: Look) -> Any:
    return _marker("robots", index, _CYLINDER if look.shape == "cylinder" else _CUBE, look.size, look.colour)


def _shape_marker(world: World, space: str, index: int, shape: Shape) -> Any:
    height = shape.height_m or _FLAT_M
    colour = tuple(float(part) / 255.0 for part in PALETTE[shape.class_id])
    base = world.ground(*shape.center) + shape.base_m
    if shape.kind == "triangle":
        return _prism_marker(space, index, shape, base, height, colour)
    width, depth = (2.0 * shape.radius, 2.0 * shape.radius) if shape.kind == "circle" else shape.size
    if shape.kind == "billboard":
        width, depth = _FLAT_M, width  # yaw is the direction the plate faces
    marker = _marker(space, index, _CYLINDER if shape.kind == "circle" else _CUBE, (width, depth, height), colour)
    marker.pose.position.x, marker.pose.position.y = shape.center
    marker.pose.position.z = base + 0.5 * height
    marker.pose.orientation.z, marker.pose.orientation.w = yaw_quaternion(shape.yaw or 0.0)
    return marker


def _prism_marker(space: str, index: int, shape: Shape, base: float, height: float, colour: tuple[float, ...]) -> Any:
    marker = _marker(space, index, _TRIANGLES, (1.0, 1.0, 1.0), colour)
    low = [(x, y, base) for x, y in shape.vertices]
    high = [(x, y, base + height) for x, y in shape.vertices]
    corners = [*high]
    for i in range(3):
        j = (i + 1) % 3
        corners += [low[i], low[j], high[j], low[i], high[j], high[i]]
    marker.points = [new("geometry_msgs/msg/Point", x=x, y=y, z=z) for x, y, z in corners]
    return marker
