"""The standard `simulation_interfaces` services (1.x, 2.x), for tools that control any simulator."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from microsim.documents.yaml_text import read_yaml
from microsim.engine import components as row
from microsim.engine.geometry import yaw_of_quaternion, yaw_quaternion
from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import MicroSimError
from microsim.messages import fill
from microsim.paths import scenario_names
from microsim.scenario import load_scenario

if TYPE_CHECKING:
    from microsim.ros2.microsim_node import MicroSimNode

UNSUPPORTED, OK, NOT_FOUND, INCORRECT_STATE, FAILED = range(5)
INVALID_POSE = ALREADY_IN_TARGET_STATE = 101
NO_RESOURCE, PARSE_ERROR, INCORRECT_TRANSITION = 102, 103, 103
STOPPED, PLAYING, PAUSED, QUITTING = range(4)
ROBOT = 1  # EntityCategory
SCOPE_DEFAULT, SCOPE_TIME, SCOPE_STATE, SCOPE_ALL = 0, 1, 2, 255
FEATURES = (8, 10, 11, 12, 20, 22, 24, 25, 26, 31, 32, 40, 41, 44, 45)  # SimulatorFeatures; only what is offered
STEP_ACTION = 33
MAX_FILTER = 128

Answer = Mapping[str, Any]

SERVICE_NAMES = {
    name: "simulation_interfaces/srv/" + "".join(part.title() for part in name.split("_"))
    for name in (
        *("get_simulator_features", "get_simulation_state", "set_simulation_state", "step_simulation"),
        *("reset_simulation", "get_entities", "get_entity_state", "set_entity_state", "get_entities_states"),
        *("get_entity_info", "get_current_world", "get_available_worlds", "load_world"),
    )
}


def result(code: int = OK, why: str = "") -> Answer:
    return {"result": {"result": code, "error_message": why}}


class SimulationInterfaces:
    """Serves the standard on a node: each service by the method of its name, in the namespace, without a prefix."""

    def __init__(self, node: MicroSimNode) -> None:
        self.node = node
        self.stopped = False  # a stopped simulation is a paused one at its start
        for name, type_name in SERVICE_NAMES.items():
            node.services.offer(f"/{name}", (type_name,), partial(self._answer, getattr(self, name)))

    def _answer(self, handler: Callable[[Any], Answer], request: Any, response: Any) -> None:
        fill(response, handler(request))

    # ---- the simulation ---------------------------------------------------------------------------------------------

    def get_simulator_features(self, request: Any) -> Answer:
        features = [*FEATURES, STEP_ACTION] if self.node.services.action is not None else [*FEATURES]
        return {"features": {"features": features, "custom_info": "MicroSim"}}

    @property
    def state(self) -> int:
        if not self.node.runner.paused:
            return PLAYING
        return STOPPED if self.stopped and self.node.sim.tick == 0 else PAUSED

    def get_simulation_state(self, request: Any) -> Answer:
        return {"state": {"state": self.state}, **result()}

    def set_simulation_state(self, request: Any) -> Answer:
        wanted, runner = int(request.state.state), self.node.runner
        if wanted == self.state:
            return result(ALREADY_IN_TARGET_STATE, "the simulation is already in that state")
        if wanted == QUITTING:
            runner.stop()
        elif wanted in (PLAYING, PAUSED):
            runner.pause(wanted == PAUSED)
            self.stopped = False
        elif wanted == STOPPED:
            runner.pause(True)
            self.node.reset()
            self.stopped = True
        else:
            return result(INCORRECT_TRANSITION, f"state {wanted} cannot be requested; there are 0 to 3")
        return result()

    def step_simulation(self, request: Any) -> Answer:
        if not self.node.runner.paused:
            return result(INCORRECT_STATE, "the simulation is running; pause it first")
        refusal = self.node.services.step(int(request.steps))
        return result(FAILED, refusal) if refusal else result()

    def reset_simulation(self, request: Any) -> Answer:
        scope = int(request.scope)
        if scope in (SCOPE_DEFAULT, SCOPE_ALL, SCOPE_TIME | SCOPE_STATE):
            self.node.reset()
            return result()
        if scope == SCOPE_STATE:
            for robot, settings in self.node.sim.scenario.robots.items():  # time and noise continue
                pose = settings.start.map_pose
                self.node.sim.command(robot)
                self.node.sim.set_pose(robot, x=pose.x, y=pose.y, z=pose.z, yaw=pose.yaw)
            return result()
        return result(UNSUPPORTED, f"scope {scope} is not supported; there are 0, {SCOPE_STATE}, 3 and {SCOPE_ALL}")

    # ---- entities: the robots ---------------------------------------------------------------------------------------

    def _matching(self, filters: Any) -> tuple[list[str], Answer]:
        if len(filters.tags.tags) or int(filters.bounds.type):
            return [], result(UNSUPPORTED, "filters by tags and by bounds are not supported")
        pattern = str(filters.filter)
        # a repeated group can take exponential time; a filter of names needs none
        if len(pattern) > MAX_FILTER or re.search(r"\)[*+{?]", pattern):
            return [], result(FAILED, f"expected a filter of at most {MAX_FILTER} characters without repeated groups")
        try:
            names = [name for name in self.node.sim.robots if not pattern or re.fullmatch(pattern, name)]
        except re.error as error:
            return [], result(FAILED, f"the filter is not a regular expression: {error}")
        categories = [int(item.category) for item in filters.categories]
        return (names if not categories or ROBOT in categories else []), result()

    def get_entities(self, request: Any) -> Answer:
        names, outcome = self._matching(request.filters)
        return {"entities": names, **outcome}

    def get_entities_states(self, request: Any) -> Answer:
        names, outcome = self._matching(request.filters)
        return {"entities": names, "states": [self._state_of(name) for name in names], **outcome}

    def get_entity_state(self, request: Any) -> Answer:
        return self._missing(request.entity) or {"state": self._state_of(request.entity), **result()}

    def get_entity_info(self, request: Any) -> Answer:
        if missing := self._missing(request.entity):
            return missing
        model = self.node.sim.scenario.robots[request.entity].model
        return {"info": {"category": {"category": ROBOT}, "description": f"MicroSim {model}"}, **result()}

    def _missing(self, entity: str) -> Answer | None:
        if entity in self.node.sim.robots:
            return None
        return result(NOT_FOUND, f"there is no entity {entity!r}; there are: {', '.join(self.node.sim.robots)}")

    def _state_of(self, robot: str) -> Answer:
        numbers = self.node.sim.rows(robot)
        qz, qw = yaw_quaternion(numbers[row.YAW])
        seconds, nanoseconds = divmod(self.node.sim.time_ns, NS_PER_S)
        return {
            "header": {"stamp": {"sec": seconds, "nanosec": nanoseconds}, "frame_id": "map"},
            "pose": {"position": _xyz(numbers, row.X, row.Y, row.Z), "orientation": {"z": qz, "w": qw}},
            "twist": {
                "linear": _xyz(numbers, row.VELOCITY_X, row.VELOCITY_Y, row.VELOCITY_Z),
                "angular": {"z": numbers[row.YAW_RATE]},
            },
            "acceleration": {"linear": _xyz(numbers, row.ACCELERATION_X, row.ACCELERATION_Y, row.ACCELERATION_Z)},
        }

    def set_entity_state(self, request: Any) -> Answer:
        if missing := self._missing(request.entity):
            return missing
        state = request.state
        if state.header.frame_id not in ("", "map"):
            return result(INVALID_POSE, f"expected a pose in the frame map, found {state.header.frame_id!r}")
        if not _sets_pose_alone(request):
            need = "set_pose true, set_twist and set_acceleration false"
            older = "in simulation_interfaces 1.x a twist and an acceleration of zeros"
            return result(UNSUPPORTED, f"only the pose can be set, at rest: {need}; {older}")
        place, turn = state.pose.position, state.pose.orientation
        length = math.sqrt(turn.x * turn.x + turn.y * turn.y + turn.z * turn.z + turn.w * turn.w)
        if not 0.9 < length < 1.1:
            return result(INVALID_POSE, f"the orientation's quaternion has length {length:.3g}, expected 1")
        yaw = yaw_of_quaternion(turn.x, turn.y, turn.z, turn.w)
        if not self.node.sim.set_pose(request.entity, x=place.x, y=place.y, z=place.z, yaw=yaw):
            return result(INVALID_POSE, "the robot cannot be there: off the map, in an occupied cell, or not finite")
        return result()

    # ---- worlds: the scenarios --------------------------------------------------------------------------------------

    def get_current_world(self, request: Any) -> Answer:
        scenario = self.node.sim.scenario
        return {"world": _resource(scenario.name, text=scenario.to_yaml()), **result()}

    def get_available_worlds(self, request: Any) -> Answer:
        return {"worlds": [_resource(name) for name in scenario_names()], **result()}

    def load_world(self, request: Any) -> Answer:
        """By the name of a shipped scenario, or by its text. Text from the network may not name plug-in folders."""
        resource = getattr(request, "world_resource", request)  # 1.x has its fields in the request itself
        uri, text = str(resource.uri), str(resource.resource_string)
        try:
            if uri and uri not in scenario_names():
                return result(NO_RESOURCE, f"there is no scenario {uri!r}; there are: {', '.join(scenario_names())}")
            if not uri and not text:
                return result(NO_RESOURCE, "expected the name of a scenario as uri, or the text of one")
            document: Any = uri or read_yaml(text, "world_resource").data
            if isinstance(document, Mapping) and document.get("plugins"):
                return result(UNSUPPORTED, "a scenario sent over the network may not name plug-in folders")
            scenario = load_scenario(document)
        except MicroSimError as error:
            return result(PARSE_ERROR, str(error))
        self.node.load(scenario)
        return {"world": _resource(scenario.name), **result()}


def _sets_pose_alone(request: Any) -> bool:
    if hasattr(request, "set_pose"):
        return bool(request.set_pose) and not (request.set_twist or request.set_acceleration)
    state = request.state  # 1.x sets all of it
    vectors = (part for motion in (state.twist, state.acceleration) for part in (motion.linear, motion.angular))
    return not any(vector.x or vector.y or vector.z for vector in vectors)


def _xyz(numbers: list[float], x: int, y: int, z: int) -> Answer:
    return {"x": numbers[x], "y": numbers[y], "z": numbers[z]}


def _resource(name: str, text: str = "") -> Answer:
    resource = {"uri": "" if text else name, "resource_string": text}
    return {"name": name, "world_resource": resource, "description": f"scenario {name}"}
