"""The standard's services about entities: robots and obstacles, queried, moved, spawned and deleted."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import ValidationError

from microsim.documents.yaml_text import read_yaml
from microsim.engine import components as row
from microsim.engine.geometry import yaw_of_quaternion, yaw_quaternion
from microsim.engine.schedule import Teleport
from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import MicroSimError, ScenarioError, there_are
from microsim.messages.inputs.set_pose import composed, frames_in_map
from microsim.robots.robot import ROBOTS, Robot, ros_name
from microsim.scenario.live_changes import Entity, entities_of
from microsim.scenario.world_models import OBSTACLES, Cylinder

if TYPE_CHECKING:
    from microsim.parts.ros2.microsim_node import MicroSimNode

Answer: TypeAlias = Mapping[str, Any]
Span: TypeAlias = tuple[list[float], list[float]]  # lowest and highest x, y, z

UNSUPPORTED, OK, NOT_FOUND, INCORRECT_STATE, FAILED = range(5)  # Result
INVALID_POSE, SPAWN_FAILED = 101, 150
NAME_NOT_UNIQUE, NAME_INVALID, NO_RESOURCE, NAMESPACE_INVALID, PARSE_ERROR, INVALID_START = 101, 102, 104, 105, 106, 109
ROBOT, STATIC_OBJECT = 1, 5  # EntityCategory
EMPTY, BOX, CONVEX_HULL, SPHERE = range(4)  # Bounds
ANY, ALL = range(2)  # TagsFilter
MAX_FILTER = 128
_MOST_IN_FILTER = (("*+?{", 4, "repetitions"), ("(", 4, "groups"), ("|", 16, "alternatives"))
WORLD = ("", "world", "map")  # names of the frame that poses are in by default
SHAPES: dict[str, dict[str, Any]] = {  # what is spawned by the name of an obstacle's type
    "box": {"type": "box", "size": [1.0, 1.0, 1.0]},
    "cylinder": {"type": "cylinder", "radius": 0.5, "height": 1.0},
}


def result(code: int = OK, why: str = "") -> Answer:
    return {"result": {"result": code, "error_message": why}}


class RefusalError(Exception):
    """Ends a request with this result."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code, self.why = code, why

    @property
    def answer(self) -> Answer:
        return result(self.code, self.why)


class EntityServices:
    """Each service by the method of its name."""

    def __init__(self, node: MicroSimNode) -> None:
        self.node = node
        self.info: dict[str, Answer] = {}  # what set_entity_info has set, by entity

    # ---- queries ----------------------------------------------------------------------------------------------------

    @property
    def entities(self) -> Mapping[str, Entity]:
        return self.node.sim.entities

    def get_entities(self, request: Any) -> Answer:
        return {"entities": self._matching(request.filters), **result()}

    def get_entities_states(self, request: Any) -> Answer:
        names = self._matching(request.filters)
        return {"entities": names, "states": [self._state_of(name) for name in names], **result()}

    def get_entity_state(self, request: Any) -> Answer:
        self._entity(request.entity)
        return {"state": self._state_of(request.entity), **result()}

    def get_entity_info(self, request: Any) -> Answer:
        self._entity(request.entity)
        return {"info": self._info_of(request.entity), **result()}

    def set_entity_info(self, request: Any) -> Answer:
        self._entity(request.entity)
        tags, info = list(map(str, request.info.tags)), request.info
        self.info[request.entity] = {
            "category": {"category": int(info.category.category)}, "description": str(info.description), "tags": tags,
        }  # fmt: skip
        return result()

    def get_entity_bounds(self, request: Any) -> Answer:
        low, high = _own_span(self._entity(request.entity))
        return {"bounds": {"type": BOX, "points": [_vector(high), _vector(low)]}, **result()}

    def get_named_poses(self, request: Any) -> Answer:
        """Where the robots of the scenario start."""
        poses = []
        for name, robot in self.node.sim.initial_scenario.robots.items():
            pose, tags = robot.start.map_pose, ["start", name, robot.model]
            z = self.node.sim.world.ground(pose.x, pose.y) if pose.z is None else pose.z
            qz, qw = yaw_quaternion(pose.yaw)
            if _fits_tags(tags, request.tags):
                place = {"position": _vector((pose.x, pose.y, z)), "orientation": {"z": qz, "w": qw}}
                entry = {"name": f"{name}_start", "description": f"start of {name}", "tags": tags, "pose": place}
                poses.append(entry)
        return {"poses": poses, **result()}

    def _entity(self, name: str) -> Entity:
        if name not in self.entities:
            raise RefusalError(NOT_FOUND, f"there is no entity {name!r}; {there_are(self.entities)}")
        return self.entities[name]

    def _info_of(self, name: str) -> Answer:
        entity = self.entities[name]
        kind = entity.model if isinstance(entity, Robot) else entity.type
        category = ROBOT if isinstance(entity, Robot) else STATIC_OBJECT
        own = {"category": {"category": category}, "description": f"MicroSim {kind}", "tags": [kind]}
        return self.info.get(name, own)

    def _matching(self, filters: Any) -> list[str]:
        pattern, categories = str(filters.filter), [int(each.category) for each in filters.categories]
        if why := _too_costly(pattern):
            raise RefusalError(FAILED, f"the filter is too complex: expected {why}")
        try:
            names = [name for name in self.entities if not pattern or re.fullmatch(pattern, name)]
        except re.error as error:
            raise RefusalError(FAILED, f"the filter is not a regular expression: {error}") from None
        info = {name: self._info_of(name) for name in names}
        names = [name for name in names if not categories or info[name]["category"]["category"] in categories]
        names = [name for name in names if _fits_tags(info[name]["tags"], filters.tags)]
        return [name for name in names if self._overlaps(name, filters.bounds)]

    def _overlaps(self, name: str, bounds: Any) -> bool:
        """With the entity's box, turned with it, in map axes."""
        kind, points = int(bounds.type), [(point.x, point.y, point.z) for point in bounds.points]
        if kind == EMPTY:
            return True
        if kind not in (BOX, SPHERE):
            raise RefusalError(
                UNSUPPORTED, f"bounds of type {kind} are not supported; there are: {BOX} box, {SPHERE} sphere"
            )
        numbers = [number for point in points for number in point]
        if len(points) != 2 or not all(map(math.isfinite, numbers)) or (kind == SPHERE and points[1][0] < 0):
            raise RefusalError(
                FAILED, "expected bounds with two points: corners, or a center and a radius of 0 or more"
            )
        low, high = self._span_in_map(name)
        if kind == BOX:
            ends = [sorted(pair) for pair in zip(*points, strict=True)]
            return all(a <= end and start <= b for (start, end), a, b in zip(ends, low, high, strict=True))
        nearest = [min(max(c, a), b) for c, a, b in zip(points[0], low, high, strict=True)]
        return math.dist(nearest, points[0]) <= float(points[1][0])

    def _span_in_map(self, name: str) -> Span:
        (low, high), (x, y, z, yaw) = _own_span(self.entities[name]), self._pose_of(name)
        sine, cosine = math.sin(yaw), math.cos(yaw)
        corners = [
            (px * cosine - py * sine, px * sine + py * cosine) for px in (low[0], high[0]) for py in (low[1], high[1])
        ]
        xs, ys = zip(*corners, strict=True)
        return [x + min(xs), y + min(ys), z + low[2]], [x + max(xs), y + max(ys), z + high[2]]

    def _pose_of(self, name: str) -> tuple[float, float, float, float]:
        """x, y, z [m], yaw: now, or by a teleport that waits for the next tick."""
        sim, entity = self.node.sim, self.entities[name]
        if not isinstance(entity, Robot):
            x, y, z = entity.center
            return x, y, z + sim.world.ground(x, y), 0.0
        moved = self._teleport_of(name)
        if moved is not None:
            z = sim.world.ground(moved.x, moved.y) if sim.model(name).is_ground_bound else moved.z
            return moved.x, moved.y, z, moved.yaw
        numbers = sim.rows(name)
        return numbers[row.X], numbers[row.Y], numbers[row.Z], numbers[row.YAW]

    def _teleport_of(self, name: str) -> Teleport | None:
        waiting = (each for each in reversed(self.node.sim.waiting) if isinstance(each, Teleport))
        return next((each for each in waiting if each.robot == name), None)

    def _state_of(self, name: str) -> Answer:
        seconds, nanoseconds = divmod(self.node.sim.time_ns, NS_PER_S)
        *place, yaw = self._pose_of(name)
        qz, qw = yaw_quaternion(yaw)
        state = {
            "header": {"stamp": {"sec": seconds, "nanosec": nanoseconds}, "frame_id": "map"},
            "pose": {"position": _vector(place), "orientation": {"z": qz, "w": qw}},
        }
        if not isinstance(self.entities[name], Robot) or self._teleport_of(name) is not None:
            return state
        numbers = self.node.sim.rows(name)
        linear, turn = numbers[row.VELOCITY_X : row.VELOCITY_Z + 1], {"z": numbers[row.YAW_RATE]}
        change = numbers[row.ACCELERATION_X : row.ACCELERATION_Z + 1]
        motion = {"twist": {"linear": _vector(linear), "angular": turn}, "acceleration": {"linear": _vector(change)}}
        return {**state, **motion}

    # ---- moving -----------------------------------------------------------------------------------------------------

    def set_entity_state(self, request: Any) -> Answer:
        entity, state = self._entity(request.entity), request.state
        is_old = not hasattr(request, "set_pose")  # 1.x sets all of it
        if (is_old or request.set_twist) and _is_moving(state.twist):
            if not isinstance(entity, Robot):
                raise RefusalError(FAILED, "a static object cannot have a twist")
            raise RefusalError(UNSUPPORTED, "a twist cannot be set: robots are put at rest, and driven by commands")
        if not is_old and not request.set_pose:
            return result()
        x, y, z, yaw = self._pose_in_map(state.header.frame_id, state.pose, INVALID_POSE)
        if not isinstance(entity, Robot):
            return self._move_obstacle(request.entity, entity, (x, y, z), yaw)
        if not self.node.sim.set_pose(request.entity, x=x, y=y, z=z, yaw=yaw):
            raise RefusalError(
                INVALID_POSE,
                "the robot cannot be there: off the map, in an occupied cell, not finite, or it follows a path",
            )
        return result()

    def _move_obstacle(self, name: str, entity: Entity, place: Sequence[float], yaw: float) -> Answer:
        if not isinstance(entity, Cylinder) and abs(yaw) > 1e-9:
            raise RefusalError(
                INVALID_POSE, f"boxes stay parallel to the axes of the map; expected yaw 0, found {yaw:.3g}"
            )
        x, y, z = place
        try:
            self.node.sim.move_obstacle(name, (x, y, _above(z - self.node.sim.world.ground(x, y))))
        except MicroSimError as error:
            raise RefusalError(INVALID_POSE, str(error)) from None
        self.node.entities_changed()
        return result()

    def _pose_in_map(self, frame: str, pose: Any, code: int) -> tuple[float, float, float, float]:
        place, turn = pose.position, pose.orientation
        numbers: Sequence[float] = (place.x, place.y, place.z, turn.x, turn.y, turn.z, turn.w)
        length = math.sqrt(sum(part * part for part in numbers[3:]))
        if not all(map(math.isfinite, numbers)) or not 0.9 < length < 1.1:
            raise RefusalError(code, f"expected finite numbers and a quaternion of length 1, found length {length:.3g}")
        if frame not in WORLD:
            frames = frames_in_map(self.node.sim)
            known = frame if frame in frames else f"{frame}/base_link"
            if known not in frames:
                raise RefusalError(code, f"there is no frame {frame!r}; {there_are(['map', *frames])}")
            numbers = composed(frames[known], numbers)
        return numbers[0], numbers[1], numbers[2], yaw_of_quaternion(*numbers[3:])

    # ---- spawning and deleting --------------------------------------------------------------------------------------

    @property
    def spawned(self) -> list[str]:
        """Entities that were not there at the start. An obstacle that was moved was there."""
        first = entities_of(self.node.sim.initial_scenario)
        return [name for name in self.entities if name not in first]

    def get_spawnables(self, request: Any) -> Answer:
        unknown = ", ".join(map(str, request.sources))
        found = [self._spawnable(*each) for each in self._spawnables()]
        return {"spawnables": found, **result(OK, f"no other sources are searched: {unknown}" if unknown else "")}

    def _spawnables(self) -> Iterator[tuple[str, str, Entity]]:
        for name, kind in ROBOTS.built_in.items():
            yield name, f"robot of the model {name}", kind(model=name)
        for name, block in SHAPES.items():
            shape: Any = OBSTACLES[name].model_validate({**block, "center": [0.0, 0.0, 0.0]})
            yield name, f"obstacle: a {name} of 1 m", shape

    def _spawnable(self, uri: str, text: str, entity: Entity) -> Answer:
        low, high = _own_span(entity)
        bounds = {"type": BOX, "points": [_vector(high), _vector(low)]}
        resource = {"uri": uri} if self._is_first_version() else {"entity_resource": {"uri": uri}}
        return {**resource, "description": text, "spawn_bounds": bounds}

    def _is_first_version(self) -> bool:
        if self.node.transport.name != "rclpy":
            return False
        kind: Any = import_module("simulation_interfaces.msg").Spawnable
        return "uri" in kind.get_fields_and_field_types()

    def spawn_entity(self, request: Any) -> Answer:
        return {"entity_name": self._spawn(request), **result()}

    def spawn_entities(self, request: Any) -> Answer:
        results: list[Answer] = []
        for each in request.spawn_requests:
            try:
                results.append({"entity_name": self._spawn(each), **result()})
            except RefusalError as refusal:
                results.append(refusal.answer)
        failed = [str(index) for index, each in enumerate(results) if each["result"]["result"] != OK]
        outcome = result(SPAWN_FAILED, f"failed: {', '.join(failed)}; see results") if failed else result()
        return {"results": results, **outcome}

    def _spawn(self, request: Any) -> str:
        resource = getattr(request, "entity_resource", request)  # 1.x has its fields in the request itself
        block = _block_of(str(resource.uri), str(resource.resource_string))
        name = self._new_name(str(request.name), block, bool(request.allow_renaming))
        _check_namespace(str(request.entity_namespace), name)
        stamped = request.initial_pose
        pose = self._pose_in_map(str(stamped.header.frame_id), stamped.pose, INVALID_START)
        try:
            self.node.sim.spawn(name, self._placed(block, pose))
        except ScenarioError as error:
            is_pose = all("map_pose" in str(problem) or "center" in str(problem) for problem in error.problems)
            raise RefusalError(INVALID_START if is_pose else PARSE_ERROR, str(error)) from None
        except MicroSimError as error:
            raise RefusalError(INVALID_START, str(error)) from None
        self.node.entities_changed()
        return name

    def _placed(self, block: dict[str, Any], pose: tuple[float, float, float, float]) -> dict[str, Any]:
        x, y, z, yaw = pose
        ground = self.node.sim.world.ground(x, y)
        if "type" in block:
            if block["type"] != "cylinder" and abs(yaw) > 1e-9:
                raise RefusalError(
                    INVALID_START, f"boxes are parallel to the axes of the map; expected yaw 0, found {yaw:.3g}"
                )
            return {**block, "center": [x, y, _above(z - ground)]}
        kind = ROBOTS.find(str(block.get("model")), self.node.sim.scenario.plugins)
        if kind is None:
            raise RefusalError(PARSE_ERROR, f"there is no model {block.get('model')!r}; {there_are(ROBOTS.names())}")
        try:
            robot = kind.model_validate(block, context={"plugins": self.node.sim.scenario.plugins})
        except ValidationError:  # `spawn` says what is wrong with it
            return block
        if robot.follows_path:
            return block
        height = {} if robot.engine_model.is_ground_bound else {"z": z}
        return {**block, "start": {"map_pose": {"x": x, "y": y, "yaw": yaw, **height}}}

    def _new_name(self, name: str, block: Mapping[str, Any], may_rename: bool) -> str:
        wanted = name or (str(block.get("type") or block.get("model")) if may_rename else "")
        try:
            ros_name(wanted)
        except ValueError:
            rule = "expected a lower-case letter, then lower-case letters, digits and underscores"
            raise RefusalError(NAME_INVALID, f"{name!r} is not a name for an entity: {rule}") from None
        if wanted in self.entities and not may_rename:
            raise RefusalError(NAME_NOT_UNIQUE, f"there is already an entity {wanted!r}")
        free = (f"{wanted}_{number}" for number in range(1, len(self.entities) + 2))
        return wanted if wanted not in self.entities else next(each for each in free if each not in self.entities)

    def delete_entity(self, request: Any) -> Answer:
        entity = self._entity(request.entity)
        if isinstance(entity, Robot) and self.node.runner.pilots:
            raise RefusalError(FAILED, "a mission or pilot commands the robots of this run; they cannot be deleted")
        self._delete(request.entity)
        self.node.entities_changed()
        return result()

    def _delete(self, name: str) -> None:
        try:
            self.node.sim.delete(name)
        except MicroSimError as error:
            raise RefusalError(FAILED, str(error)) from None
        self.info.pop(name, None)

    def remove_spawned(self) -> None:
        for name in self.spawned:
            self._delete(name)
        self.node.entities_changed()

    def reset_states(self) -> None:
        """Every entity to where it began, at rest; time and noise continue. Spawned obstacles stay."""
        sim = self.node.sim
        for name, first in entities_of(sim.initial_scenario).items():
            now = self.entities.get(name)
            if isinstance(first, Robot) or now is None or isinstance(now, Robot) or now.center == first.center:
                continue
            try:
                sim.move_obstacle(name, first.center)
            except MicroSimError as error:
                raise RefusalError(FAILED, f"{name} cannot return to where it began: {error}") from None
        self.node.entities_changed()
        for robot, settings in sim.scenario.robots.items():
            pose = settings.start.map_pose
            sim.command(robot)
            sim.set_pose(robot, x=pose.x, y=pose.y, z=pose.z, yaw=pose.yaw)


def _block_of(uri: str, text: str) -> dict[str, Any]:
    """A block of a scenario: by the name of a model or shape, or written out."""
    if uri:
        if uri not in (*ROBOTS.built_in, *SHAPES):
            raise RefusalError(NOT_FOUND, f"there is no resource {uri!r}; {there_are([*ROBOTS.built_in, *SHAPES])}")
        return dict(SHAPES.get(uri, {"model": uri}))
    if not text:
        raise RefusalError(NO_RESOURCE, "expected the name of a model as uri, or the text of a block of a scenario")
    try:
        block = read_yaml(text, "resource_string").data
    except MicroSimError as error:
        raise RefusalError(PARSE_ERROR, str(error)) from None
    if not isinstance(block, Mapping) or not ({"model", "type"} & block.keys()):
        raise RefusalError(PARSE_ERROR, "expected a mapping with `model` (a robot) or `type` (box or cylinder)")
    return dict(block)


def _check_namespace(namespace: str, name: str) -> None:
    """Topics of a robot are below its name, always."""
    if namespace and not re.fullmatch(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*", namespace, re.ASCII):
        raise RefusalError(NAMESPACE_INVALID, f"{namespace!r} is not a namespace of ROS 2")
    if namespace.strip("/") not in ("", name):
        raise RefusalError(UNSUPPORTED, f"topics of {name} are below /{name}; leave the namespace empty")


def _too_costly(pattern: str) -> str:
    """What a filter has to be: some expressions take exponential time, and a filter of names needs none of them."""
    if len(pattern) > MAX_FILTER:
        return f"at most {MAX_FILTER} characters"
    if re.search(r"\)[*+{?]", pattern):
        return "no repeated groups"
    for characters, most, what in _MOST_IN_FILTER:
        if sum(map(pattern.count, characters)) > most:
            return f"at most {most} {what}"
    return ""


def _fits_tags(tags: Sequence[str], wanted: Any) -> bool:
    names = list(map(str, wanted.tags))
    if int(wanted.filter_mode) not in (ANY, ALL):
        raise RefusalError(
            FAILED, f"expected a filter_mode of {ANY} (any) or {ALL} (all), found {int(wanted.filter_mode)}"
        )
    return not names or (any if int(wanted.filter_mode) == ANY else all)(name in tags for name in names)


def _own_span(entity: Entity) -> Span:
    """Box in the entity's own axes."""
    if isinstance(entity, Robot):
        center, size = entity.body()
        pairs = [(c - s / 2, c + s / 2) for c, s in zip(center, size, strict=True)]
        return [low for low, _ in pairs], [high for _, high in pairs]
    half_x, half_y = (entity.radius,) * 2 if isinstance(entity, Cylinder) else (entity.size[0] / 2, entity.size[1] / 2)
    height = entity.height if isinstance(entity, Cylinder) else entity.size[2]
    return [-half_x, -half_y, 0.0], [half_x, half_y, height]


def _is_moving(twist: Any) -> bool:
    return any(vector.x or vector.y or vector.z for vector in (twist.linear, twist.angular))


def _above(height: float) -> float:
    """Above the ground; noise of the last bits is none."""
    return 0.0 if abs(height) < 1e-9 or not math.isfinite(height) else height


def _vector(numbers: Sequence[float]) -> Answer:
    return dict(zip("xyz", map(float, numbers), strict=True))
