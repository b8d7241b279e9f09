"""The standard `simulation_interfaces` (1.x, 2.x), for tools that control any simulator: the simulation and worlds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from microsim.documents.yaml_text import read_yaml
from microsim.errors import MicroSimError, did_you_mean
from microsim.messages import fill
from microsim.paths import scenario_names, world_names
from microsim.ros2.entity_services import (
    FAILED,
    INCORRECT_STATE,
    NOT_FOUND,
    UNSUPPORTED,
    EntityServices,
    RefusalError,
    result,
)
from microsim.scenario import load_scenario

if TYPE_CHECKING:
    from microsim.ros2.microsim_node import MicroSimNode

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
            self.node.reset()
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
            self.node.reset()
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
            self.node.load(scenario)
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
