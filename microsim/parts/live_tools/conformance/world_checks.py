"""Worlds: listed, loaded, unloaded."""

from __future__ import annotations

from typing import Any

from microsim.parts.live_tools.conformance.simulator import (
    STOPPED,
    NotTestedError,
    Simulator,
    check,
    expect,
    expect_code,
    expect_refused,
)

NO_WORLD = 4


def _load(sim: Simulator, uri: str = "", text: str = "") -> Any:
    resource = {"uri": uri, "resource_string": text}
    return sim.call("LoadWorld", **({"world_resource": resource} if sim.dialect == "2.x" else resource))


@check("GetAvailableWorlds.srv: worlds", "AVAILABLE_WORLDS")
def worlds_are_listed(sim: Simulator) -> None:
    """Available worlds have a name and a resource."""
    response = sim.call("GetAvailableWorlds")
    expect_code(response, 1, "GetAvailableWorlds")
    for each in response.worlds:
        has_resource = each.world_resource.uri or each.world_resource.resource_string
        expect(each.name and has_resource, f"the world {each.name!r} has no name or no resource")


@check("GetAvailableWorlds.srv: filter; SimulatorFeatures.msg: WORLD_TAGS", "AVAILABLE_WORLDS")
def worlds_are_filtered_or_that_is_unsupported(sim: Simulator) -> None:
    """A tag that no world has gives none, or FEATURE_UNSUPPORTED where WORLD_TAGS is not announced."""
    response = sim.call("GetAvailableWorlds", filter={"tags": ["no_such_tag_9"]})
    expect_code(response, 1 if sim.has("WORLD_TAGS") else 0, "GetAvailableWorlds with a tag")
    expect(not len(response.worlds), "GetAvailableWorlds gives worlds for a tag that none has")


@check("GetCurrentWorld.srv: world", "WORLD_INFO_GETTING")
def the_current_world_is_named(sim: Simulator) -> None:
    """The current world has a name."""
    response = sim.call("GetCurrentWorld")
    expect_code(response, 1, "GetCurrentWorld")
    expect(str(response.world.name), "GetCurrentWorld: the name is empty")


@check("LoadWorld.srv: NO_RESOURCE", "WORLD_LOADING")
def nothing_cannot_be_loaded(sim: Simulator) -> None:
    """Without uri and resource_string there is NO_RESOURCE."""
    expect_code(_load(sim), 102, "LoadWorld without a resource")


@check("LoadWorld.srv: world_resource", "WORLD_LOADING")
def an_unknown_world_is_refused(sim: Simulator) -> None:
    """A uri that does not exist is refused, and is not NO_RESOURCE."""
    response = _load(sim, "no_such_world_9")
    expect_refused(response, "LoadWorld no_such_world_9")
    expect(
        int(response.result.result) != 102, "LoadWorld no_such_world_9: NO_RESOURCE means that both fields are empty"
    )


@check("LoadWorld.srv: RESOURCE_PARSE_ERROR; SimulatorFeatures.msg: WORLD_RESOURCE_STRING", "WORLD_LOADING")
def broken_text_is_refused(sim: Simulator) -> None:
    """Broken text gives RESOURCE_PARSE_ERROR, or FEATURE_UNSUPPORTED where resource strings are not announced."""
    wanted = (103, 101) if sim.has("WORLD_RESOURCE_STRING") else (0,)
    expect_code(_load(sim, text="<{ this is [ no world"), wanted, "LoadWorld from broken text")


@check("LoadWorld.srv: simulation will be left in a Stopped state", "WORLD_LOADING", "AVAILABLE_WORLDS")
def a_loaded_world_is_stopped(sim: Simulator) -> None:
    """A world is loaded by its resource, is then the current one, and is stopped. The first world is loaded again."""
    worlds = {str(each.name): str(each.world_resource.uri) for each in sim.call("GetAvailableWorlds").worlds}
    now = sim.call("GetCurrentWorld").world if sim.has("WORLD_INFO_GETTING") else None
    chosen = next((name for name, uri in worlds.items() if uri and (now is None or name == str(now.name))), None)
    chosen = chosen or next((name for name, uri in worlds.items() if uri), None)
    if chosen is None:
        raise NotTestedError("no available world has a uri")
    expect_code(_load(sim, worlds[chosen]), 1, f"LoadWorld {worlds[chosen]}")
    if sim.has("SIMULATION_STATE_GETTING"):
        expect(
            sim.until(lambda: sim.state() == STOPPED), f"after LoadWorld the state is {sim.state()}, expected STOPPED"
        )
    if now is not None:
        found = str(sim.call("GetCurrentWorld").world.name)
        expect(found == chosen, f"LoadWorld {chosen}: the current world is {found}")
        text = str(now.world_resource.resource_string)
        if text and sim.has("WORLD_RESOURCE_STRING"):
            expect_code(_load(sim, text=text), 1, "LoadWorld from the text of GetCurrentWorld")


@check("UnloadWorld.srv; SimulationState.msg: STATE_NO_WORLD", "WORLD_UNLOADING", "SIMULATION_STATE_GETTING")
def a_world_is_unloaded(sim: Simulator) -> None:
    """After UnloadWorld there is no world; unloading again gives NO_WORLD_LOADED. Its resource is then loaded again."""
    now = sim.call("GetCurrentWorld").world if sim.has("WORLD_INFO_GETTING") and sim.has("WORLD_LOADING") else None
    if now is None:
        raise NotTestedError("the world could not be loaded again")
    expect_code(sim.call("UnloadWorld"), 1, "UnloadWorld")
    expect(sim.until(lambda: sim.state() == NO_WORLD), f"after UnloadWorld the state is {sim.state()}")
    again = sim.call("UnloadWorld")
    _load(sim, str(now.world_resource.uri), str(now.world_resource.resource_string))
    expect_code(again, 101, "UnloadWorld without a world")
