"""Feature flags against what is offered."""

from __future__ import annotations

from collections import Counter
from typing import Any

from microsim.parts.live_tools.conformance.simulator import (
    FEATURES,
    NotTestedError,
    Simulator,
    check,
    expect,
    expect_code,
    feature_names,
)

# interface -> the features that announce it, and a request that changes nothing
INTERFACES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "SpawnEntity": (("SPAWNING",), {}),
    "SpawnEntities": (("SPAWNING_ENTITIES",), {"spawn_requests": [{"name": ""}]}),
    "DeleteEntity": (("DELETING",), {"entity": "no_such_entity"}),
    "GetNamedPoses": (("NAMED_POSES",), {}),
    "GetNamedPoseBounds": (("POSE_BOUNDS",), {"name": "no_such_pose"}),
    "GetEntityBounds": (("ENTITY_BOUNDS",), {"entity": "no_such_entity"}),
    "GetEntityState": (("ENTITY_STATE_GETTING",), {"entity": "no_such_entity"}),
    "GetEntitiesStates": (("ENTITY_STATE_GETTING",), {}),
    "SetEntityState": (("ENTITY_STATE_SETTING",), {"entity": "no_such_entity"}),
    "GetEntityInfo": (("ENTITY_INFO_GETTING",), {"entity": "no_such_entity"}),
    "SetEntityInfo": (("ENTITY_INFO_SETTING",), {"entity": "no_such_entity"}),
    "GetSpawnables": (("SPAWNABLES",), {}),
    "ResetSimulation": (("SIMULATION_RESET",), {"scope": 128}),
    "GetSimulationState": (("SIMULATION_STATE_GETTING",), {}),
    "SetSimulationState": (("SIMULATION_STATE_SETTING",), {"state": {"state": 77}}),
    "StepSimulation": (("STEP_SIMULATION_SINGLE", "STEP_SIMULATION_MULTIPLE"), {"steps": 0}),
    "SimulateSteps": (("STEP_SIMULATION_ACTION",), {}),
    "LoadWorld": (("WORLD_LOADING",), {}),
    "UnloadWorld": (("WORLD_UNLOADING",), {}),
    "GetCurrentWorld": (("WORLD_INFO_GETTING",), {}),
    "GetAvailableWorlds": (("AVAILABLE_WORLDS",), {}),
}
UNTRIED = ("SimulateSteps", "UnloadWorld", "SpawnEntity", "SpawnEntities")  # no request of theirs is harmless
IMPLIED = {
    "SIMULATION_STATE_PAUSE": "SIMULATION_STATE_SETTING",
    "SIMULATION_RESET_TIME": "SIMULATION_RESET",
    "SIMULATION_RESET_STATE": "SIMULATION_RESET",
    "SIMULATION_RESET_SPAWNED": "SIMULATION_RESET",
    "SPAWNING_RESOURCE_STRING": "SPAWNING",
    "WORLD_RESOURCE_STRING": "WORLD_LOADING",
    "POSE_BOUNDS": "NAMED_POSES",
}


@check("GetSimulatorFeatures.srv: features")
def features_are_answered(sim: Simulator) -> None:
    """Features are numbers of the definition, each once."""
    numbers = [int(each) for each in sim.call("GetSimulatorFeatures").features.features]
    unknown = [each for each in numbers if each not in FEATURES]
    again = [each for each, count in Counter(numbers).items() if count > 1]
    expect(not unknown, f"features {unknown} are not defined")
    expect(not again, f"features {feature_names(frozenset(again))} are listed more than once")


@check("SimulatorFeatures.msg: features")
def announced_interfaces_are_offered(sim: Simulator) -> None:
    """Every announced interface is on the network."""
    announced = {kind: [each for each in needs if sim.has(each)] for kind, (needs, _) in INTERFACES.items()}
    gone = [f"{kind} ({', '.join(names)})" for kind, names in announced.items() if names and not sim.offers(kind)]
    expect(not gone, f"announced, but not offered: {', '.join(gone)}")


@check("Result.msg: RESULT_FEATURE_UNSUPPORTED")
def what_is_not_announced_says_so(sim: Simulator) -> None:
    """An offered interface that is not announced answers RESULT_FEATURE_UNSUPPORTED."""
    kinds = [
        kind
        for kind, (needs, _) in INTERFACES.items()
        if sim.offers(kind) and kind not in UNTRIED and not any(map(sim.has, needs))
    ]
    if not kinds:
        raise NotTestedError("everything offered is announced")
    for kind in kinds:
        expect_code(sim.call(kind, **INTERFACES[kind][1]), 0, f"{kind}, which the features do not announce")


@check("SimulatorFeatures.msg: features")
def flags_agree_with_each_other(sim: Simulator) -> None:
    """A detail is announced only together with its interface."""
    for detail, whole in IMPLIED.items():
        expect(not sim.has(detail) or sim.has(whole), f"{detail} is announced without {whole}")


@check("GetEntities.srv")
def entities_are_offered(sim: Simulator) -> None:
    """A simulator with interfaces about entities offers GetEntities."""
    about = [name for name in ("ENTITY_STATE_GETTING", "ENTITY_STATE_SETTING", "DELETING") if sim.has(name)]
    if not about:
        raise NotTestedError("no interface about entities is announced")
    expect(sim.offers("GetEntities"), f"{', '.join(about)} announced, but GetEntities is not offered")
