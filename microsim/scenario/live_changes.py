"""What may change while a scenario runs: settings, and entities, which are its robots and obstacles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

from microsim.documents.values import Model
from microsim.engine.world import CLASS_NAMES, FIRST_OBJECT, FIRST_OBSTACLE, FIRST_ROBOT
from microsim.errors import UsageError, show, unknown
from microsim.robots.robot import Robot
from microsim.scenario.bundles import bundle_of
from microsim.scenario.loading import reloaded
from microsim.scenario.models import Scenario
from microsim.scenario.scene import build_world
from microsim.scenario.world_models import OBSTACLES, Box, Cylinder

Entity: TypeAlias = Robot | Box | Cylinder

_FIXED: dict[str, Callable[[Scenario], Any]] = {  # mappings are compared where both have a key
    "physics_hz": lambda scenario: scenario.physics_hz,
    "the map": lambda scenario: (scenario.map, scenario.world),
    "features": lambda scenario: scenario.features,
    "a robot's model": lambda scenario: {name: robot.engine_name for name, robot in scenario.robots.items()},
    "frames.per_robot_odom": lambda scenario: scenario.frames.per_robot_odom,
    "randomize": lambda scenario: scenario.randomize,
    "odometry drift": lambda scenario: {
        (robot, name): getattr(block, "drift", None)
        for robot, name, block, sensor in scenario.all_sensors
        if sensor.tracker is not None
    },
}


def check_change(before: Scenario, after: Scenario) -> None:
    """Raises UsageError where a run cannot continue with the other scenario."""
    for what, of in _FIXED.items():
        old, new = of(before), of(after)
        if isinstance(old, dict):
            old, new = ({key: each[key] for key in old.keys() & new.keys()} for each in (old, new))
        if old != new:
            raise UsageError(f"{what} cannot change during a run; make a new Simulation")
    if before.randomize is not None and (before.obstacles, [*before.robots]) != (after.obstacles, [*after.robots]):
        raise UsageError("entities cannot be spawned, moved or deleted where `randomize` decides the layout")


def entities_of(scenario: Scenario) -> dict[str, Entity]:
    """Robots by name, then obstacles: by name, or as obstacle_0, obstacle_1, ... in their order."""
    found: dict[str, Entity] = dict(scenario.robots)
    taken = {*found, *(each.name for each in scenario.obstacles if each.name)}
    for index, obstacle in enumerate(scenario.obstacles):
        name = obstacle.name or f"obstacle_{index}"
        while not obstacle.name and name in taken:
            name += "_"
        found[name] = obstacle
    return found


def obstacle_names(scenario: Scenario) -> tuple[str, ...]:
    """In the order of `obstacles`: what contacts with them are called."""
    return tuple(name for name, entity in entities_of(scenario).items() if not isinstance(entity, Robot))


def instances_of(scenario: Scenario) -> dict[int, tuple[str, str]]:
    """What masks of cameras can show: number -> name and class, see `engine.world`."""
    found, count = {}, len(scenario.robots)
    for index, (name, entity) in enumerate(entities_of(scenario).items()):
        if isinstance(entity, Robot):
            found[FIRST_ROBOT + index] = (name, entity.kind)
        else:
            found[FIRST_OBSTACLE + index - count] = (name, CLASS_NAMES[entity.class_id])
    objects = () if scenario.world is None else bundle_of(scenario.world).objects
    found |= {FIRST_OBJECT + index: (each.name, "object") for index, each in enumerate(objects)}
    return dict(sorted(found.items()))


def with_entity(scenario: Scenario, name: str, block: Any) -> Scenario:
    """With another robot, or with another obstacle where the block has a `type`. ScenarioError says what is wrong."""
    if name in entities_of(scenario):
        raise UsageError(f"there is already an entity {name!r}")
    given = dict(block) if isinstance(block, Mapping) else block.model_dump(by_alias=True, exclude_unset=True)
    data = scenario.written_out().to_dict()
    if given.get("type") in OBSTACLES:
        data["obstacles"] = [*data["obstacles"], {**given, "name": name}]
    else:
        data["robots"] = {**data["robots"], name: given}
    return reloaded(data, scenario, starts=(name,))


def without_entity(scenario: Scenario, name: str) -> Scenario:
    """Other obstacles keep the names they are known by. Faults of a robot's sensors go with it."""
    found = entities_of(scenario)
    if name not in found:
        raise UsageError(unknown("there is no entity", repr(name), name, found))
    data = scenario.written_out().to_dict()
    if name in scenario.robots:
        del data["robots"][name]
        data["faults"] = [each for each in data["faults"] if not each["target"].startswith(f"{name}/")]
    else:
        data["obstacles"] = _named(found, {name: None})
    return reloaded(data, scenario)


def with_obstacle_at(scenario: Scenario, name: str, center: tuple[float, float, float]) -> Scenario:
    found = entities_of(scenario)
    data = {**scenario.written_out().to_dict(), "obstacles": _named(found, {name: center})}
    return reloaded(data, scenario)


def _named(entities: Mapping[str, Entity], moved: Mapping[str, tuple[float, float, float] | None]) -> list[Model]:
    """The obstacles with their names; `moved`: where some are now, None for those that are gone."""
    return [
        each.model_copy(update={"name": name, "center": moved.get(name, each.center)})
        for name, each in entities.items()
        if not isinstance(each, Robot) and moved.get(name, each.center) is not None
    ]


def at_start(first: Scenario, now: Scenario) -> Scenario:
    """The scenario after a reset: settings as they are now, entities as in the first one."""
    robots = {name: _kept(robot, now.robots.get(name)) for name, robot in first.robots.items()}
    if first.obstacles == now.obstacles and [*robots.items()] == [*now.robots.items()]:  # in this order
        return now
    lists = {"obstacles": first.obstacles, "features": first.features, "faults": first.faults}
    return now.model_copy(update={"robots": robots, **lists}).with_world_seed(first._world_seed, first._layout)


def _kept(first: Robot, now: Robot | None) -> Robot:
    is_same = now is not None and (now.engine_name, now.start) == (first.engine_name, first.start)
    return now if now is not None and is_same else first


def difference(there: Scenario, here: Scenario) -> str:
    """Where two scenarios first differ; empty: runs of them are the same."""
    return "" if there is here else first_difference(there.to_dict(), here.to_dict())


def first_difference(there: Any, here: Any, place: str = "") -> str:
    """Of plain data. The order of keys counts: that of robots decides the order of messages. So does 60 or 60.0."""
    if isinstance(there, dict) and isinstance(here, dict):
        parts = [(key, f"{place}.{key}".strip(".")) for key in {**there, **here}]
        found = (first_difference(there.get(key), here.get(key), part) for key, part in parts)
        return next(filter(None, found), "" if [*there] == [*here] else f"the order of {place or 'its keys'}")
    if isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        pairs = enumerate(zip(there, here, strict=True))
        return next(filter(None, (first_difference(*pair, f"{place}[{index}]") for index, pair in pairs)), "")
    return "" if repr(there) == repr(here) else f"{place} is {show(there)} there and {show(here)} here"


def check_room(before: Scenario, after: Scenario, place_of: Callable[[str], Sequence[float]]) -> None:
    """Raises UsageError where an entity that is new or moved overlaps a robot. `place_of`: x, y, z of a robot now."""
    old, new = entities_of(before), entities_of(after)
    stay = {name: place_of(name) for name in before.robots if name in after.robots}
    changed = [name for name in new if name not in stay and _shape(new[name]) != _shape(old.get(name))]
    for name, (robot, place) in product(changed, stay.items()):
        if _overlap(new[name], before.robots[robot], place):
            raise UsageError(f"{name} would overlap {robot}, which is at x {place[0]:g}, y {place[1]:g}")
    if any(not isinstance(new[name], Robot) for name in changed):
        world = build_world(after)
        for robot, (x, y, _) in stay.items():
            if before.robots[robot].engine_model.is_ground_bound and not world.has_footing(x, y):
                raise UsageError(f"{robot} stands in a cell that would be occupied, at x {x:g}, y {y:g}")


def _shape(entity: Entity | None) -> Any:
    """Without an obstacle's name."""
    return entity if entity is None or isinstance(entity, Robot) else entity.model_copy(update={"name": None})


def _overlap(entity: Entity, robot: Robot, place: Sequence[float]) -> bool:
    """Whether it overlaps the upright cylinder about a robot at x, y, z."""
    reach, bottom, top = _reach(robot)
    if isinstance(entity, Robot):
        pose, (radius, low, high) = entity.start.map_pose, _reach(entity)
        (x, y, z), half_x, half_y = (pose.x, pose.y, pose.z), 0.0, 0.0
    else:
        x, y, z = entity.center
        radius, half_x, half_y, low = 0.0, 0.0, 0.0, 0.0
        if isinstance(entity, Cylinder):
            radius, high = entity.radius, entity.height
        else:
            half_x, half_y, high = entity.size[0] / 2, entity.size[1] / 2, entity.size[2]
    is_level = z is None or (place[2] + bottom < z + high and z + low < place[2] + top)
    gap = math.hypot(max(abs(place[0] - x) - half_x, 0.0), max(abs(place[1] - y) - half_y, 0.0))
    return is_level and gap < radius + reach


def _reach(robot: Robot) -> tuple[float, float, float]:
    """Radius about its vertical axis, and lowest and highest point above its pose [m]."""
    (x, y, z), (length, width, height) = robot.body()
    return math.hypot(abs(x) + length / 2, abs(y) + width / 2), z - height / 2, z + height / 2
