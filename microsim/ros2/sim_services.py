"""The node's services: /sim/*, the action simulate_steps, and the standard `simulation_interfaces` (1.x, 2.x).

The first reset, pause, seed and step a simulation; the standard is for tools that control any simulator.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from microsim import messages as wire
from microsim.documents.yaml_text import read_yaml
from microsim.engine import components as row
from microsim.engine.geometry import yaw_of_quaternion, yaw_quaternion
from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import MicroSimError
from microsim.messages import fill
from microsim.messages.topics import Qos
from microsim.paths import scenario_names
from microsim.ros2.lockstep import ACKNOWLEDGED_S, TICKS_AHEAD
from microsim.ros2.transport import MissingTypeError, Publisher
from microsim.ros2.transport.standalone import NotYet
from microsim.scenario import load_scenario

if TYPE_CHECKING:
    from microsim.ros2.microsim_node import MicroSimNode


# No distribution of ROS 2 has the first type; `interfaces/` has the second. `simulation_interfaces` and /sim/step_once
# do the same with types that every installation has.
SET_INT = ("example_interfaces/srv/SetInt32", "microsim_interfaces/srv/SetInt32")
SET_BOOL = ("example_interfaces/srv/SetBool", "std_srvs/srv/SetBool")

MAX_STEPS = 1_000_000  # ticks of one call
INPUT_S = 2.0  # how long a step waits for the messages of `step_waits_for`


class SimServices:
    """Serves /sim/* on a node, each under every type that the transport has."""

    def __init__(self, node: MicroSimNode) -> None:
        self._node = node
        self.missing: dict[str, list[str]] = {}  # why -> what is not offered
        self.ticks_per_step = 1  # of /sim/step_once
        self.step_waits_for: tuple[str, ...] = ()  # topics that must bring a message before each step
        self.arrived: set[str] = set()  # topics that have, since the last step
        self._ahead = 0  # ticks since the subscribers were last known to have received everything
        self._give_up_s: float | None = None  # when the step that waits for them is refused
        self._left = 0  # ticks of a step that waits for nodes at a gate
        self.offer("/sim/reset", ("std_srvs/srv/Empty",), lambda request, response: node.reset())
        self.offer("/sim/pause", SET_BOOL, self._on_pause)
        self.offer("/sim/set_seed", SET_INT, self._on_set_seed)
        self.offer("/sim/step", SET_INT, lambda request, response: self._on_step(int(request.data), response))
        trigger = ("std_srvs/srv/Trigger",)
        self.offer("/sim/step_once", trigger, lambda request, response: self._on_step(self.ticks_per_step, response))
        self.action: SimulateSteps | None = None
        try:
            self.action = SimulateSteps(node, self)
        except MissingTypeError as error:
            self.missing.setdefault(error.reason, []).append("the action simulate_steps")

    def offer(self, service: str, types: tuple[str, ...], handler: Callable[[Any, Any], None]) -> None:
        """Serve under the types that the transport has, or under the first of them where it cannot serve several."""
        served, reason = False, ""
        for type_name in types:
            try:
                self._node.transport.serve(service, type_name, handler)
            except MissingTypeError as error:
                reason = error.reason
            else:
                served = True
                if not self._node.transport.serves_many_types:
                    return
        if not served:
            self.missing.setdefault(reason, []).append(service)

    def _on_pause(self, request: Any, response: Any) -> None:
        self._node.runner.pause(bool(request.data))
        response.success, response.message = True, "paused" if request.data else "running"

    def _on_set_seed(self, request: Any, response: Any) -> None:
        self._node.sim.set_seed(int(request.data))
        response.success, response.message = True, f"seed {int(request.data)} takes effect at the next reset"

    def _on_step(self, ticks: int, response: Any) -> None:
        refusal = self.step(ticks)
        response.success, response.message = not refusal, refusal or f"now at tick {self._node.sim.tick}"

    def step(self, ticks: int) -> str:
        """Advance a paused simulation; gives the reason when it cannot, and raises NotYet while an input is missing."""
        if not self._node.runner.paused:
            self._left = 0
            return "the simulation is running; pause it first (/sim/pause with data: true)"
        if not 1 <= ticks <= MAX_STEPS:
            return f"the number of ticks must be from 1 to {MAX_STEPS}, found {ticks}"
        missing = [topic for topic in self.step_waits_for if topic not in self.arrived and not self._left]
        if missing:
            now = self._node.runner.clock.now()
            self._give_up_s = now + INPUT_S if self._give_up_s is None else self._give_up_s
            if now < self._give_up_s:
                raise NotYet
        self._give_up_s = None
        if missing:
            return f"no message on {', '.join(missing)} within {INPUT_S:g} s (parameter step_waits_for)"
        self.arrived.clear()
        left = self._left or ticks
        self._left = left - self.advance(left)
        if self._left:
            raise NotYet
        return ""

    def advance(self, ticks: int) -> int:
        """A few ticks at a time, and then wait until the subscribers have received them; gives how many it were.

        If all were sent in one burst, a subscriber that keeps the last ten messages would lose the others. When one
        does not acknowledge in time, the rest of the step does not wait: it must not hold up the others.
        """
        are_keeping_up, start = True, self._node.sim.tick
        for _ in range(ticks):
            if not self._node.runner.step(1):  # at a gate
                break
            self._ahead += 1
            if self._ahead >= TICKS_AHEAD and are_keeping_up:
                are_keeping_up = self._node.transport.wait_for_acks(ACKNOWLEDGED_S)
                self._ahead = 0
        return self._node.sim.tick - start


ACTION = "simulation_interfaces/action/SimulateSteps"
TOPIC = "/simulate_steps/_action"
EXECUTING, SUCCEEDED, CANCELED = 2, 4, 5  # action_msgs/msg/GoalStatus
AT_ONCE = 20  # ticks between two polls, so that a cancellation is received
KEPT = 100  # finished goals whose result can still be requested


@dataclass
class StepGoal:
    id: bytes
    steps: int
    stamp_ns: int
    done: int = 0
    status: int = EXECUTING

    def info(self) -> dict[str, Any]:
        """As an action_msgs/msg/GoalInfo."""
        seconds, nanoseconds = divmod(self.stamp_ns, NS_PER_S)
        return {"goal_id": {"uuid": list(self.id)}, "stamp": {"sec": seconds, "nanosec": nanoseconds}}


class SimulateSteps:
    """`simulation_interfaces/action/SimulateSteps`, from the services and topics that an action consists of.

    Goals run one after the other; each steps a paused simulation.
    """

    def __init__(self, node: MicroSimNode, services: SimServices) -> None:
        self._node, self._services = node, services
        self.goals: OrderedDict[bytes, StepGoal] = OrderedDict()
        node.transport.serve(f"{TOPIC}/send_goal", f"{ACTION}_SendGoal", self._on_goal)
        node.transport.serve(f"{TOPIC}/get_result", f"{ACTION}_GetResult", self._on_result)
        node.transport.serve(f"{TOPIC}/cancel_goal", "action_msgs/srv/CancelGoal", self._on_cancel)
        self._feedback = node.transport.publisher(f"{TOPIC}/feedback", f"{ACTION}_FeedbackMessage", Qos(10))
        latched = Qos(1, latched=True)
        self._status = node.transport.publisher(f"{TOPIC}/status", "action_msgs/msg/GoalStatusArray", latched)

    @property
    def current(self) -> StepGoal | None:
        return next((goal for goal in self.goals.values() if goal.status == EXECUTING), None)

    def advance(self) -> bool:
        """A few ticks of the current goal; called at every poll of the node. False: there is none, or it waits."""
        goal = self.current
        if goal is None:
            return False
        if not self._node.runner.paused:  # it was resumed meanwhile
            self._end(goal, CANCELED)
            return True
        count = self._services.advance(min(AT_ONCE, goal.steps - goal.done))
        if not count:
            return False
        goal.done += count
        feedback = {"completed_steps": goal.done, "remaining_steps": goal.steps - goal.done}
        _publish(
            self._feedback, f"{ACTION}_FeedbackMessage", {"goal_id": {"uuid": list(goal.id)}, "feedback": feedback}
        )
        if goal.done == goal.steps:
            self._end(goal, SUCCEEDED)
        return True

    def _on_goal(self, request: Any, response: Any) -> None:
        goal = StepGoal(bytes(request.goal_id.uuid), int(request.goal.steps), self._node.sim.time_ns)
        response.accepted = self._node.runner.paused and goal.steps >= 1 and goal.id not in self.goals
        response.stamp.sec, response.stamp.nanosec = divmod(goal.stamp_ns, NS_PER_S)
        if not response.accepted:
            self._node.warn("simulate_steps: refused; pause the simulation and request 1 step or more")
            return
        self.goals[goal.id] = goal
        while len(self.goals) > KEPT and next(iter(self.goals.values())).status != EXECUTING:
            self.goals.popitem(last=False)
        self._publish_status()

    def _on_result(self, request: Any, response: Any) -> None:
        goal = self.goals.get(bytes(request.goal_id.uuid))
        if goal is None:
            return  # status 0: unknown
        if goal.status == EXECUTING:
            raise NotYet
        response.status = goal.status
        outcome = {"result": 1, "error_message": ""}
        if goal.status != SUCCEEDED:
            outcome = {"result": 4, "error_message": f"canceled after {goal.done} of {goal.steps} steps"}
        wire.fill(response.result, {"result": outcome})

    def _on_cancel(self, request: Any, response: Any) -> None:
        wanted = bytes(request.goal_info.goal_id.uuid)
        ended = [goal for goal in self.goals.values() if goal.status == EXECUTING and wanted in (bytes(16), goal.id)]
        for goal in ended:
            self._end(goal, CANCELED)
        response.return_code = 0 if ended else 2
        wire.fill(response, {"goals_canceling": [goal.info() for goal in ended]})

    def _end(self, goal: StepGoal, status: int) -> None:
        goal.status = status
        self._publish_status()

    def _publish_status(self) -> None:
        entries = [{"goal_info": goal.info(), "status": goal.status} for goal in self.goals.values()]
        _publish(self._status, "action_msgs/msg/GoalStatusArray", {"status_list": entries})


def _publish(publisher: Publisher, kind: str, values: dict[str, Any]) -> None:
    publisher.publish(wire.encode(kind, wire.from_mapping(kind, values)))


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
