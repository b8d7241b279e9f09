"""A scenario as the engine takes it: its map, obstacles and features as a World, its radio and faults."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from microsim.engine.exact import TWO_PI, cos, sin
from microsim.engine.faults import TimedFault
from microsim.engine.geometry import Array
from microsim.engine.radio import PathLoss, RadioSettings
from microsim.engine.timekeeper import Clock, exact_rate
from microsim.engine.world import GROUND, TARGET, Mesh, Shape, World
from microsim.errors import UsageError
from microsim.scenario.bundles import bundle_of
from microsim.scenario.models import Scenario
from microsim.scenario.terrain import elevation, surface
from microsim.scenario.world_models import Billboard, Box, Circle, Cylinder, Feature, Rectangle, Triangle

if TYPE_CHECKING:
    from microsim.bundle import Bundle

INT64 = range(-(2**63), 2**63)
_SQRT_3 = 1.7320508075688772


_newest: list[Any] = []  # the last world: what it was made of, and it


def build_world(scenario: Scenario) -> World:
    """Worlds do not change: the last one, with all that was derived from it, serves scenarios with the same map."""
    heights, key = None, (scenario.world, scenario.map, scenario.obstacles, scenario.features)
    if scenario.world is None:
        heights = elevation(scenario)  # of a file or a seed, so that they may differ from those of the same map
        heights.flags.writeable = False
    if _newest[:1] != [key] or not _are_same(heights, _newest[1].elevation):
        _newest[:] = [key, _world_of(scenario, heights)]
    world: World = _newest[1]
    return world


def _are_same(heights: Array | None, others: Array) -> bool:
    return heights is None or np.array_equal(heights, others, equal_nan=True)


def _world_of(scenario: Scenario, heights: Array | None) -> World:
    if heights is None:
        assert scenario.world is not None
        return bundle_world(bundle_of(scenario.world), *_shapes(scenario))
    classes, shapes = surface(scenario), _shapes(scenario)
    classes.flags.writeable = False
    return World(
        cell_m=float(scenario.map.cell_size_m),
        elevation=heights,
        surface=classes,
        obstacles=shapes[0],
        features=shapes[1],
    )


def _shapes(scenario: Scenario) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
    obstacles = tuple(obstacle_shape(obstacle) for obstacle in scenario.obstacles)
    return obstacles, tuple(feature_shape(feature) for feature in scenario.features)


def bundle_world(bundle: Bundle, obstacles: tuple[Shape, ...] = (), features: tuple[Shape, ...] = ()) -> World:
    """Ground inside the drivable area is of class target, elsewhere plain: cameras and LiDARs can tell them apart."""
    grid = bundle.heightmap
    heights = grid.values.astype(np.float64)
    rows, columns = heights.shape
    inside = bundle.drivable.cells((rows, columns), grid.resolution_m, grid.west, grid.south)
    classes = np.where(inside, np.uint8(TARGET), np.uint8(GROUND))
    heights.flags.writeable = classes.flags.writeable = False  # as those of other maps: kernels are compiled once
    return World(
        cell_m=float(grid.resolution_m),
        elevation=heights,
        surface=classes,
        obstacles=obstacles,
        features=features,
        west=grid.west,
        south=grid.south,
        mesh=None if bundle.mesh is None else Mesh(bundle.mesh.vertices, bundle.mesh.triangles),
    )


def obstacle_shape(obstacle: Box | Cylinder) -> Shape:
    x, y, base = obstacle.center
    if isinstance(obstacle, Box):
        width, depth, height = obstacle.size
        return Shape("rectangle", obstacle.class_id, (x, y), size=(width, depth), base_m=base, height_m=height)
    return Shape("circle", obstacle.class_id, (x, y), radius=obstacle.radius, base_m=base, height_m=obstacle.height)


def feature_shape(feature: Feature) -> Shape:
    if isinstance(feature, Circle):
        return Shape("circle", feature.class_id, feature.center, radius=feature.radius, height_m=feature.height)
    if isinstance(feature, Rectangle):
        return Shape(
            "rectangle", feature.class_id, feature.center, size=feature.size, yaw=feature.yaw, height_m=feature.height
        )
    if isinstance(feature, Billboard):
        return Shape(
            "billboard",
            feature.class_id,
            feature.center,
            size=feature.size,
            yaw=feature.yaw,
            base_m=feature.base_z,
            height_m=feature.size[1],
        )
    corners = _corners(feature)
    center = (
        (corners[0][0] + corners[1][0] + corners[2][0]) / 3.0,
        (corners[0][1] + corners[1][1] + corners[2][1]) / 3.0,
    )
    return Shape("triangle", feature.class_id, center, vertices=corners, height_m=feature.height)


def _corners(triangle: Triangle) -> tuple[tuple[float, float], ...]:
    """Counter-clockwise."""
    if triangle.vertices is not None:
        a, b, c = triangle.vertices
        turns_left = (b[0] - a[0]) * (c[1] - a[1]) > (c[0] - a[0]) * (b[1] - a[1])
        return (a, b, c) if turns_left else (a, c, b)
    assert triangle.center is not None  # the model refuses anything else
    assert triangle.side is not None
    (x, y), radius = triangle.center, triangle.side / _SQRT_3
    angles = [triangle.yaw + corner * (TWO_PI / 3.0) for corner in range(3)]
    return tuple((x + radius * cos(angle), y + radius * sin(angle)) for angle in angles)


def radio_settings(scenario: Scenario) -> RadioSettings:
    written = scenario.radio
    values = {field.name: getattr(written, field.name) for field in fields(RadioSettings) if field.name != "rssi"}
    rssi = None if written.rssi is None else PathLoss(**written.rssi.model_dump())
    return RadioSettings(**values, rssi=rssi)


def checked_packet(scenario: Scenario, sender: str, payload: Any) -> bytes:
    limit = scenario.radio.max_payload_bytes
    if not scenario.radio.enabled:
        raise UsageError("this scenario has no radio: set radio.enabled to true")
    if len(scenario.robots) < 2:
        raise UsageError(f"{sender} is the only robot: there is no receiver")
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise UsageError(f"a radio payload must be bytes; found {type(payload).__name__}")
    packet = bytes(payload)
    if len(packet) > limit:
        raise UsageError(f"a radio payload may have {limit} bytes at most, this one has {len(packet)}")
    return packet


def faults_in_ticks(scenario: Scenario, clock: Clock) -> tuple[TimedFault, ...]:
    ticks = clock.ticks_in
    return tuple(
        TimedFault(each.target, each.kind, ticks(exact_rate(each.from_s)), ticks(exact_rate(each.to_s)), each.offset_m)
        for each in scenario.faults
    )


def checked_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or int(seed) not in INT64:
        raise UsageError(f"a seed must be a 64-bit integer; found {seed!r}")
    return int(seed)


def checked_number(name: str, value: Any) -> float:
    """As a float; what is too large for one is infinite, which is then ignored and counted."""
    if type(value) is float:  # first, since pilots command at every tick
        return value
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        raise UsageError(f"{name} must be a number; found {value!r}")
    try:
        return float(value)
    except OverflowError:
        return math.inf
