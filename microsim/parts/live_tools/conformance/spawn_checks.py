"""Spawning and deleting entities."""

from __future__ import annotations

import math

from microsim.parts.live_tools.conformance.simulator import (
    Simulator,
    check,
    expect,
    expect_code,
    expect_refused,
    pose_message,
)

NAME = "conformance_one"


@check("GetSpawnables.srv: spawnables", "SPAWNABLES")
def spawnables_have_a_resource(sim: Simulator) -> None:
    """Every spawnable names its resource."""
    response = sim.call("GetSpawnables")
    expect_code(response, 1, "GetSpawnables")
    if sim.dialect == "2.x":
        nameless = [
            each for each in response.spawnables if not (sim.uri_of(each) or each.entity_resource.resource_string)
        ]
    else:
        nameless = [each for each in response.spawnables if not sim.uri_of(each)]
    expect(not nameless, f"{len(nameless)} spawnables have no resource")


@check("GetSpawnables.srv: sources, Unrecognized values are listed in the result.error_message", "SPAWNABLES")
def unknown_sources_do_not_hinder(sim: Simulator) -> None:
    """A source that is not recognised is named in the error message, and the rest is listed."""
    response = sim.call("GetSpawnables", sources=["no_such_source_9"])
    expect_code(response, 1, "GetSpawnables with an unknown source")
    why = str(response.result.error_message)
    expect("no_such_source_9" in why, f"the error message does not name the unknown source: {why!r}")


@check("SpawnEntity.srv: entity_name, initial_pose; DeleteEntity.srv: entity", "SPAWNING", "DELETING")
def an_entity_is_spawned_and_deleted(sim: Simulator) -> None:
    """A spawned entity is there, at its pose, until it is deleted."""
    sim.pause()
    before = sim.entities()
    response = sim.spawn(NAME, sim.spawnable())
    expect_code(response, 1, "SpawnEntity")
    name = str(response.entity_name)
    expect(name == NAME, f"SpawnEntity: expected the name {NAME}, found {name}")
    expect(sorted(sim.entities()) == sorted([*before, name]), "SpawnEntity: the entity is not in GetEntities")
    expect_code(sim.call("DeleteEntity", entity=name), 1, "DeleteEntity")
    expect(sorted(sim.entities()) == sorted(before), "DeleteEntity: the entity is still in GetEntities")
    expect_code(sim.call("DeleteEntity", entity=name), 2, "DeleteEntity of an entity that is gone")


@check("SpawnEntity.srv: initial_pose", "SPAWNING", "ENTITY_STATE_GETTING")
def it_is_spawned_at_its_pose(sim: Simulator) -> None:
    """A spawned entity is at its initial pose."""
    sim.pause()
    uri = sim.spawnable()
    for pose in sim.free_poses():
        response = sim.spawn(NAME, uri, pose=pose)
        if int(response.result.result) == 1:
            found = sim.pose(str(response.entity_name))
            expect(math.dist(found[:2], pose[:2]) < 0.02, f"spawned at {pose[:3]}, and is at {found[:3]}")
            return
    expect_code(response, 1, "SpawnEntity at any of 36 poses")


@check("SpawnEntity.srv: NAME_NOT_UNIQUE, allow_renaming", "SPAWNING")
def a_name_is_given_once(sim: Simulator) -> None:
    """A name that is taken is refused, unless it may be changed: then the response has the new one."""
    uri = sim.spawnable()
    expect_code(sim.spawn(NAME, uri), 1, "SpawnEntity")
    expect_code(sim.spawn(NAME, uri), 101, "SpawnEntity by a name that is taken")
    response = sim.spawn(NAME, uri, allow_renaming=True)
    expect_code(response, 1, "SpawnEntity with allow_renaming")
    name = str(response.entity_name)
    expect(name not in ("", NAME) and name in sim.entities(), f"SpawnEntity with allow_renaming: the name is {name!r}")


@check("SpawnEntity.srv: NAME_INVALID", "SPAWNING")
def an_empty_name_is_invalid(sim: Simulator) -> None:
    """An empty name without allow_renaming is refused; with it a name is generated."""
    uri = sim.spawnable()
    expect_code(sim.spawn("", uri), 102, "SpawnEntity without a name")
    response = sim.spawn("", uri, allow_renaming=True)
    expect_code(response, 1, "SpawnEntity without a name, with allow_renaming")
    expect(str(response.entity_name), "SpawnEntity without a name: entity_name is empty")


@check("SpawnEntity.srv: NO_RESOURCE", "SPAWNING")
def nothing_cannot_be_spawned(sim: Simulator) -> None:
    """Without uri and resource_string there is NO_RESOURCE."""
    expect_code(sim.spawn(NAME), 104, "SpawnEntity without a resource")


@check("Resource.msg: uri", "SPAWNING")
def an_unknown_resource_is_refused(sim: Simulator) -> None:
    """A uri that does not exist is refused, and nothing is spawned."""
    expect_refused(sim.spawn(NAME, "no_such_resource_9"), "SpawnEntity of no_such_resource_9")
    expect(NAME not in sim.entities(), "SpawnEntity of no_such_resource_9: it is there")


@check("SpawnEntity.srv: NAMESPACE_INVALID", "SPAWNING")
def an_invalid_namespace_is_refused(sim: Simulator) -> None:
    """A namespace that ROS 2 does not allow gives NAMESPACE_INVALID."""
    response = sim.spawn(NAME, sim.spawnable(), entity_namespace="not a namespace!")
    expect_code(response, 105, "SpawnEntity in the namespace 'not a namespace!'")


@check("SpawnEntity.srv: INVALID_POSE", "SPAWNING")
def an_invalid_start_is_refused(sim: Simulator) -> None:
    """A quaternion of zeros, and a position that is not a number, give INVALID_POSE."""
    uri = sim.spawnable()
    for pose in ((0.0,) * 7, (math.nan, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)):
        expect_code(sim.spawn(NAME, uri, pose=pose), 109, f"SpawnEntity at {pose}")


@check("SpawnEntity.srv: initial_pose, This frame must be known to the simulator", "SPAWNING")
def an_unknown_frame_is_refused(sim: Simulator) -> None:
    """A pose in a frame that does not exist is refused."""
    pose = sim.free_poses()[0]
    response = sim.spawn(NAME, sim.spawnable(), pose=pose, frame="no_such_frame_9")
    expect_refused(response, "SpawnEntity in the frame no_such_frame_9")


@check("SimulatorFeatures.msg: SPAWNING_RESOURCE_STRING; SpawnEntity.srv: RESOURCE_PARSE_ERROR", "SPAWNING")
def text_is_parsed_or_unsupported(sim: Simulator) -> None:
    """Broken text gives RESOURCE_PARSE_ERROR, or FEATURE_UNSUPPORTED where resource strings are not announced."""
    wanted = (106, 103) if sim.has("SPAWNING_RESOURCE_STRING") else (0,)
    expect_code(sim.spawn(NAME, "", text="<{ this is [ no resource"), wanted, "SpawnEntity from broken text")


@check("DeleteEntity.srv: entity; Result.msg: RESULT_NOT_FOUND", "DELETING")
def nobody_cannot_be_deleted(sim: Simulator) -> None:
    """Deleting an entity that does not exist gives RESULT_NOT_FOUND."""
    expect_code(sim.call("DeleteEntity", entity="no_such_entity_9"), 2, "DeleteEntity no_such_entity_9")


@check("SpawnEntities.srv: results, ENTITIES_SPAWN_FAILED", "SPAWNING_ENTITIES")
def each_of_several_has_its_result(sim: Simulator) -> None:
    """Of several requests each has its result; one that fails makes ENTITIES_SPAWN_FAILED."""
    resource, codes = {"entity_resource": {"uri": sim.spawnable()}, "allow_renaming": True}, [0]
    for pose in sim.free_poses():
        stamped = {"pose": pose_message(pose)}
        requests = [{"name": NAME, "initial_pose": stamped, **resource}, {"name": "", "initial_pose": stamped}]
        response = sim.call("SpawnEntities", spawn_requests=requests)
        codes = [int(each.result.result) for each in response.results]
        sim.note_spawned(str(each.entity_name) for each in response.results)
        if codes[:1] != [109]:
            break
    expect_code(response, 150, "SpawnEntities of which the second fails")
    is_right = len(codes) == 2 and codes[0] == 1 and codes[1] != 1
    expect(is_right, f"SpawnEntities of which the second fails: the results are {codes}")
