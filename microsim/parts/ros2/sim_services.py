"""The services of a node: its own, /sim/*, which reset, pause, seed and step it; the action simulate_steps; those of
`simulation_interfaces` (1.x, 2.x), for tools that control any simulator: the simulation and worlds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from microsim import messages as wire
from microsim.documents.yaml_text import read_yaml
from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import MicroSimError, ScenarioError, did_you_mean
from microsim.messages import fill
from microsim.messages.topics import Qos
from microsim.parts.ros2.entity_services import (
    FAILED,
    INCORRECT_STATE,
    NOT_FOUND,
    UNSUPPORTED,
    EntityServices,
    RefusalError,
    result,
)
from microsim.parts.ros2.lockstep import ACKNOWLEDGED_S, TICKS_AHEAD
from microsim.parts.ros2.transport import MissingTypeError, Publisher
from microsim.parts.ros2.transport.standalone import NotYet
from microsim.paths import scenario_names, world_names
from microsim.scenario import load_scenario

if TYPE_CHECKING:
    from microsim.parts.ros2.microsim_node import MicroSimNode

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
        self.offer("/sim/reset", ("std_srvs/srv/Empty",), lambda request, response: node.runner.reset())
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

    def offer(self, service: str, types: tuple[str, ...], handler: Callable[[Any, Any], None]) -> bool:
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
                    return True
        if not served:
            self.missing.setdefault(reason, []).append(service)
        return served

    def _on_pause(self, request: Any, response: Any) -> None:
        self._node.runner.pause(bool(request.data))
        response.success, response.message = True, "paused" if request.data else "running"

    def _on_set_seed(self, request: Any, response: Any) -> None:
        try:
            self._node.sim.set_seed(int(request.data))
        except ScenarioError as error:
            response.success, response.message = False, str(error)
            return
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
EXECUTING, SUCCEEDED, CANCELED, ABORTED = 2, 4, 5, 6  # action_msgs/msg/GoalStatus
AT_ONCE = 8  # ticks between two polls: a cancellation is received, and feedback fits into the ten that clients keep
KEPT = 100  # finished goals whose result can still be requested


@dataclass
class StepGoal:
    id: bytes
    steps: int
    stamp_ns: int
    done: int = 0
    status: int = EXECUTING
    refusal: str = ""  # why it was aborted

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
        before = goal.done
        while goal.done < min(before + AT_ONCE, goal.steps) and self._services.advance(1):
            goal.done += 1
            feedback = {"completed_steps": goal.done, "remaining_steps": goal.steps - goal.done}
            values = {"goal_id": {"uuid": list(goal.id)}, "feedback": feedback}
            _publish(self._feedback, f"{ACTION}_FeedbackMessage", values)
        if goal.done == goal.steps:
            self._end(goal, SUCCEEDED)
        return goal.done > before

    def _on_goal(self, request: Any, response: Any) -> None:
        goal = StepGoal(bytes(request.goal_id.uuid), int(request.goal.steps), self._node.sim.time_ns)
        response.accepted = goal.id not in self.goals
        response.stamp.sec, response.stamp.nanosec = divmod(goal.stamp_ns, NS_PER_S)
        if not response.accepted:
            return
        if not self._node.runner.paused:
            goal.refusal = "the simulation is running; pause it first"
        elif not 1 <= goal.steps <= MAX_STEPS:
            goal.refusal = f"the number of steps must be from 1 to {MAX_STEPS}, found {goal.steps}"
        if goal.refusal:  # the standard has an accepted goal fail, with the reason in its result
            goal.status = ABORTED
            self._node.warn(f"simulate_steps: {goal.refusal}")
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
            why = goal.refusal or f"canceled after {goal.done} of {goal.steps} steps"
            outcome = {"result": 4, "error_message": why}
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


Answer: TypeAlias = Mapping[str, Any]

ALREADY_IN_TARGET_STATE, INCORRECT_TRANSITION = 101, 103
NO_RESOURCE, PARSE_ERROR = 102, 103
STOPPED, PLAYING, PAUSED, QUITTING = range(4)
SCOPE_TIME, SCOPE_STATE, SCOPE_SPAWNED, SCOPE_ALL = 1, 2, 4, 255
STEP_ACTION = 33
FEATURES = {  # SimulatorFeatures -> the service that it needs
    0: "spawn_entity", 1: "delete_entity", 2: "get_named_poses", 4: "get_entities", 5: "get_entity_bounds",
    6: "get_entities", 8: "get_entities", 9: "spawn_entity", 10: "get_entity_state", 11: "set_entity_state",
    12: "get_entity_info", 13: "set_entity_info", 14: "get_spawnables", 20: "reset_simulation",
    22: "reset_simulation", 23: "reset_simulation", 24: "get_simulation_state", 25: "set_simulation_state",
    26: "set_simulation_state", 31: "step_simulation", 32: "step_simulation", 40: "load_world", 41: "load_world",
    44: "get_current_world", 45: "get_available_worlds", 50: "spawn_entities",
}  # fmt: skip

SERVICE_NAMES = {
    name: "simulation_interfaces/srv/" + "".join(part.title() for part in name.split("_"))
    for name in (
        *("get_simulator_features", "get_simulation_state", "set_simulation_state", "step_simulation"),
        *("reset_simulation", "get_entities", "get_entity_state", "set_entity_state", "get_entities_states"),
        *("get_entity_info", "set_entity_info", "get_entity_bounds", "get_spawnables", "spawn_entity"),
        *("spawn_entities", "delete_entity", "get_named_poses", "get_current_world", "get_available_worlds"),
        "load_world",
    )
}


class SimulationInterfaces(EntityServices):
    """Serves the standard on a node: each service by the method of its name, in the namespace, without a prefix."""

    def __init__(self, node: MicroSimNode) -> None:
        super().__init__(node)
        self.stopped = False  # a stopped simulation is a paused one at its start
        self.offered = {
            name
            for name, type_name in SERVICE_NAMES.items()
            if node.services.offer(f"/{name}", (type_name,), partial(self._answer, getattr(self, name)))
        }

    def _answer(self, handler: Callable[[Any], Answer], request: Any, response: Any) -> None:
        try:
            fill(response, handler(request))
        except RefusalError as refusal:
            fill(response, refusal.answer)

    # ---- the simulation ---------------------------------------------------------------------------------------------

    def get_simulator_features(self, request: Any) -> Answer:
        features = [number for number, service in FEATURES.items() if service in self.offered]
        features += [STEP_ACTION] if self.node.services.action is not None else []
        return {"features": {"features": features, "spawn_formats": ["microsim"], "custom_info": "MicroSim"}}

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
            self._stop()
            self.node.runner.reset()
        else:
            return result(INCORRECT_TRANSITION, f"state {wanted} cannot be requested; there are 0 to 3")
        return result()

    def _stop(self) -> None:
        self.node.runner.pause(True)
        self.stopped = True

    def step_simulation(self, request: Any) -> Answer:
        if not self.node.runner.paused:
            return result(INCORRECT_STATE, "the simulation is running; pause it first")
        refusal = self.node.services.step(int(request.steps))
        return result(FAILED, refusal) if refusal else result()

    def reset_simulation(self, request: Any) -> Answer:
        scope, everything = int(request.scope), SCOPE_TIME | SCOPE_STATE | SCOPE_SPAWNED
        if not scope or scope & everything == everything or (scope == everything - SCOPE_SPAWNED and not self.spawned):
            self.node.runner.reset()
            self.info.clear()
            return result()
        if scope & SCOPE_TIME or scope & ~everything:
            why = "time is reset only together with state and spawned entities"
            return result(UNSUPPORTED, f"scope {scope} is not supported: {why}; there are 0, 2, 4, 6, 7 and 255")
        if scope & SCOPE_SPAWNED:
            self.remove_spawned()
        if scope & SCOPE_STATE:
            self.reset_states()
        return result()

    # ---- worlds: the scenarios and world bundles ---------------------------------------------------------------------

    def get_current_world(self, request: Any) -> Answer:
        scenario = self.node.sim.scenario
        return {"world": _resource(scenario.name, text=scenario.to_yaml()), **result()}

    def get_available_worlds(self, request: Any) -> Answer:
        if len(request.filter.tags):
            return result(UNSUPPORTED, "worlds have no tags")
        if len(request.additional_sources) and not request.continue_on_error:
            return result(FAILED, f"no other sources are searched: {', '.join(request.additional_sources)}")
        return {"worlds": [_resource(name) for name in _worlds()], **result()}

    def load_world(self, request: Any) -> Answer:
        """By the name of a shipped scenario or world bundle, or by the text of a scenario.

        Text from the network may not name plug-in folders. The simulation is then stopped.
        """
        resource = getattr(request, "world_resource", request)  # 1.x has its fields in the request itself
        uri, text = str(resource.uri), str(resource.resource_string)
        try:
            if uri and uri not in _worlds():
                hint = did_you_mean(uri, _worlds()) or ";"
                return result(NOT_FOUND, f"there is no world {uri!r}{hint} there are: {', '.join(_worlds())}")
            if not uri and not text:
                return result(NO_RESOURCE, "expected the name of a world as uri, or the text of a scenario")
            document: Any = uri or read_yaml(text, "world_resource").data
            if not uri and not isinstance(document, Mapping):  # a text could be the path of a file
                return result(PARSE_ERROR, "expected the text of a scenario, such as `robots: {rover: {}}`")
            if isinstance(document, Mapping) and document.get("plugins"):
                return result(UNSUPPORTED, "a scenario sent over the network may not name plug-in folders")
            scenario = load_scenario(document)
            self.node.runner.load(scenario)
        except MicroSimError as error:
            return result(PARSE_ERROR, str(error))
        self._stop()
        self.info.clear()
        return {"world": _resource(scenario.name), **result()}


def _worlds() -> list[str]:
    return [*scenario_names(), *(name for name in world_names() if name not in scenario_names())]


def _resource(name: str, text: str = "") -> Answer:
    resource = {"uri": "" if text else name, "resource_string": text}
    kind = "scenario" if text or name in scenario_names() else "world bundle"
    return {"name": name, "world_resource": resource, "description": f"{kind} {name}"}
