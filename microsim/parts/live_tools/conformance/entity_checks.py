"""Entities: queries with filters, states, information, bounds, named poses."""

from __future__ import annotations

import math
import re
from typing import Any

from microsim.parts.live_tools.conformance.simulator import (
    NotTestedError,
    Simulator,
    check,
    expect,
    expect_code,
    expect_refused,
)

NOBODY = "no_such_entity_9"
GET_STATE, SET_STATE, GET_INFO = "ENTITY_STATE_GETTING", "ENTITY_STATE_SETTING", "ENTITY_INFO_GETTING"
CATEGORIES = (0, 1, 2, 4, 5)
FAR = 1e4  # [m]


def _unique(names: list[str], what: str) -> None:
    expect(len(set(names)) == len(names) and all(names), f"{what}: names are empty or not unique: {names}")


@check("GetEntities.srv: entities", GET_STATE)
def entities_have_unique_names(sim: Simulator) -> None:
    """Names of entities are unique and not empty."""
    _unique(sim.entities(), "GetEntities")


@check("EntityFilters.msg: filter", GET_STATE)
def names_are_matched_by_the_filter(sim: Simulator) -> None:
    """The filter is a POSIX extended regular expression over names; an empty one gives all."""
    names = sim.entities()
    first = sim.an_entity()
    expect(sim.entities(filter="") == names, "an empty filter does not give all entities")
    expect(sorted(sim.entities(filter=".*")) == sorted(names), "the filter .* does not give all entities")
    found = sim.entities(filter=f"^{re.escape(first)}$")
    expect(found == [first], f"the filter ^{first}$ gives {found}")
    found = sim.entities(filter=f"^({re.escape(first)}|{NOBODY})$")
    expect(found == [first], f"the filter ^({first}|{NOBODY})$ gives {found}")
    expect(not sim.entities(filter=f"^{NOBODY}$"), f"the filter ^{NOBODY}$ gives entities")


@check("EntityFilters.msg: filter; Result.msg: result", GET_STATE)
def a_filter_that_is_no_expression_is_refused(sim: Simulator) -> None:
    """A filter that is not a regular expression is refused."""
    expect_refused(sim.call("GetEntities", filters={"filter": "["}), "GetEntities with the filter [")


@check("EntityFilters.msg: categories; EntityCategory.msg", "ENTITY_CATEGORIES", GET_INFO)
def categories_are_matched(sim: Simulator) -> None:
    """Entities of any of the categories are given, as GetEntityInfo has them; filters apply together."""
    by_category: dict[int, list[str]] = {}
    for name in sim.entities()[:50]:
        category = int(sim.call("GetEntityInfo", entity=name).info.category.category)
        expect(category in CATEGORIES, f"GetEntityInfo {name}: category {category} is not defined")
        by_category.setdefault(category, []).append(name)
    for category in CATEGORIES:
        found, wanted = sim.entities(categories=[{"category": category}])[:50], by_category.get(category, [])
        expect(sorted(found) == sorted(wanted), f"category {category}: expected {wanted}, found {found}")
    every = sim.entities(categories=[{"category": each} for each in by_category])
    expect(sorted(every) == sorted(sim.entities()), "all categories together do not give all entities")
    nobody = sim.entities(filter=f"^{NOBODY}$", categories=[{"category": each} for each in CATEGORIES])
    expect(not nobody, f"filter and categories do not apply together: {nobody}")


@check("TagsFilter.msg: tags, filter_mode", "ENTITY_TAGS", GET_INFO)
def tags_are_matched(sim: Simulator) -> None:
    """FILTER_MODE_ANY and FILTER_MODE_ALL work on the tags of GetEntityInfo."""
    tags = {name: list(map(str, sim.call("GetEntityInfo", entity=name).info.tags)) for name in sim.entities()[:50]}
    tagged = next((name for name, each in tags.items() if each), None)
    if tagged is None:
        raise NotTestedError("no entity has a tag")
    tag = tags[tagged][0]
    wanted = sorted(name for name, each in tags.items() if tag in each)
    for mode in (0, 1):
        found = sorted(sim.entities(tags={"tags": [tag], "filter_mode": mode}))
        expect(found == wanted, f"tag {tag}, mode {mode}: expected {wanted}, found {found}")
    both = {"tags": [tag, "no_such_tag_9"], "filter_mode": 0}
    expect(sorted(sim.entities(tags=both)) == wanted, f"FILTER_MODE_ANY with {tag} and another tag")
    expect(not sim.entities(tags={**both, "filter_mode": 1}), f"FILTER_MODE_ALL with {tag} and another tag")


def _sphere(x: float, y: float, z: float, radius: float) -> dict[str, Any]:
    return {"type": 3, "points": [{"x": x, "y": y, "z": z}, {"x": radius}]}


def _box(x: float, y: float, z: float, half: float) -> dict[str, Any]:
    corners = [{"x": x + side, "y": y + side, "z": z + side} for side in (half, -half)]
    return {"type": 1, "points": corners}


def _found_by_bounds(sim: Simulator, name: str, near: dict[str, Any], far: dict[str, Any]) -> None:
    found = sim.entities(bounds=near)
    expect(name in found, f"bounds about {name} give {found}")
    found = sim.entities(bounds=far)
    expect(name not in found, f"bounds {FAR:g} m away from {name} give it")


@check("EntityFilters.msg: bounds, at least TYPE_SPHERE needs to be supported", "ENTITY_BOUNDS", GET_STATE)
def spheres_are_matched(sim: Simulator) -> None:
    """Entities that overlap a sphere are given, and no others."""
    name = sim.an_entity()
    x, y, z = sim.pose(name)[:3]
    _found_by_bounds(sim, name, _sphere(x, y, z, 1.0), _sphere(x + FAR, y, z, 1.0))


@check("SimulatorFeatures.msg: ENTITY_BOUNDS_BOX", "ENTITY_BOUNDS", GET_STATE)
def boxes_are_matched_or_unsupported(sim: Simulator) -> None:
    """Bounds of TYPE_BOX work where ENTITY_BOUNDS_BOX is announced, else give RESULT_FEATURE_UNSUPPORTED."""
    name = sim.an_entity()
    x, y, z = sim.pose(name)[:3]
    if sim.has("ENTITY_BOUNDS_BOX"):
        _found_by_bounds(sim, name, _box(x, y, z, 1.0), _box(x + FAR, y, z, 1.0))
    else:
        expect_code(sim.call("GetEntities", filters={"bounds": _box(x, y, z, 1.0)}), 0, "GetEntities within a box")


@check("SimulatorFeatures.msg: ENTITY_BOUNDS_CONVEX", "ENTITY_BOUNDS", GET_STATE)
def hulls_are_matched_or_unsupported(sim: Simulator) -> None:
    """TYPE_CONVEX_HULL works where ENTITY_BOUNDS_CONVEX is announced, else gives RESULT_FEATURE_UNSUPPORTED."""
    name = sim.an_entity()
    x, y, z = sim.pose(name)[:3]

    def hull(far: float) -> dict[str, Any]:
        corners = [(1, 1, -1), (-1, 1, -1), (0, -1, -1), (0, 0, 1)]
        return {"type": 2, "points": [{"x": x + far + 2 * a, "y": y + 2 * b, "z": z + 2 * c} for a, b, c in corners]}

    if sim.has("ENTITY_BOUNDS_CONVEX"):
        _found_by_bounds(sim, name, hull(0.0), hull(FAR))
    else:
        expect_code(sim.call("GetEntities", filters={"bounds": hull(0.0)}), 0, "GetEntities within a convex hull")


# ---- states ---------------------------------------------------------------------------------------------------------


@check("EntityState.msg: header, pose", GET_STATE)
def states_are_complete(sim: Simulator) -> None:
    """A state has a finite pose with a quaternion of length 1."""
    for name in sim.entities()[:20]:
        response = sim.call("GetEntityState", entity=name)
        expect_code(response, 1, f"GetEntityState {name}")
        numbers = sim.pose(name)
        expect(all(map(math.isfinite, numbers)), f"GetEntityState {name}: not finite: {numbers}")
        length = math.hypot(*numbers[3:])
        expect(abs(length - 1.0) < 1e-3, f"GetEntityState {name}: the quaternion has length {length:g}")


@check("GetEntitiesStates.srv: entities, states", GET_STATE)
def all_states_agree_with_each(sim: Simulator) -> None:
    """GetEntitiesStates gives the entities of GetEntities, each with the pose of GetEntityState."""
    sim.pause()
    response = sim.call("GetEntitiesStates")
    expect_code(response, 1, "GetEntitiesStates")
    names = list(map(str, response.entities))
    expect(len(names) == len(response.states), f"{len(names)} entities, but {len(response.states)} states")
    expect(sorted(names) == sorted(sim.entities()), "GetEntitiesStates and GetEntities give different entities")
    for name, state in list(zip(names, response.states, strict=True))[:20]:
        place = (state.pose.position.x, state.pose.position.y, state.pose.position.z)
        expect(math.dist(place, sim.pose(name)[:3]) < 1e-3, f"{name}: GetEntityState has another position")


@check("GetEntitiesStates.srv: filters", GET_STATE)
def states_are_filtered_as_entities(sim: Simulator) -> None:
    """GetEntitiesStates applies the filters of GetEntities."""
    filters = {"filter": f"^{re.escape(sim.an_entity())}$"}
    found = list(map(str, sim.call("GetEntitiesStates", filters=filters).entities))
    expect(found == sim.entities(**filters), f"the filter {filters['filter']} gives {found}")


@check("GetEntityState.srv: entity; Result.msg: RESULT_NOT_FOUND", GET_STATE)
def the_state_of_nobody_is_not_found(sim: Simulator) -> None:
    """The state of an entity that does not exist gives RESULT_NOT_FOUND."""
    expect_code(sim.call("GetEntityState", entity=NOBODY), 2, f"GetEntityState {NOBODY}")


@check("SetEntityState.srv: instant change in its pose", GET_STATE, SET_STATE)
def a_pose_is_set_at_once(sim: Simulator) -> None:
    """A pose that was set is the pose that is read, at once."""
    sim.pause()
    name = sim.an_entity(1)
    start = sim.pose(name)
    wanted = (start[0] + 1.0, start[1] + 0.5, *start[2:])
    expect_code(sim.set_pose(name, wanted), 1, f"SetEntityState {name}")
    found = sim.pose(name)
    expect(math.dist(found[:2], wanted[:2]) < 0.02, f"{name} was put at {wanted[:3]}, and is at {found[:3]}")
    sim.set_pose(name, start)


@check("SetEntityState.srv: set_pose, set_twist, set_acceleration", GET_STATE, SET_STATE)
def what_is_not_chosen_is_not_set(sim: Simulator) -> None:
    """Without set_pose the pose stays (2.x)."""
    if sim.dialect != "2.x":
        raise NotTestedError("1.x has no such flags")
    sim.pause()
    name = sim.an_entity(1)
    start = sim.pose(name)
    response = sim.set_pose(name, (start[0] + 1.0, *start[1:]), set_pose=False)
    expect_code(response, 1, "SetEntityState with every flag false")
    expect(math.dist(sim.pose(name)[:3], start[:3]) < 0.02, f"SetEntityState without set_pose moved {name}")


@check("SetEntityState.srv: INVALID_POSE", SET_STATE)
def an_invalid_pose_is_refused(sim: Simulator) -> None:
    """A quaternion of zeros, and a position that is not a number, give INVALID_POSE."""
    sim.pause()
    name = sim.an_entity()
    zeros = (*sim.pose(name)[:3], 0.0, 0.0, 0.0, 0.0) if sim.has(GET_STATE) else (0.0,) * 7
    expect_code(sim.set_pose(name, zeros), 101, "SetEntityState with a quaternion of zeros")
    nowhere = (math.nan, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    expect_code(sim.set_pose(name, nowhere), 101, "SetEntityState at x = NaN")


@check("EntityState.msg: header.frame_id, Empty frame defaults to world", GET_STATE, SET_STATE)
def the_empty_frame_is_the_world(sim: Simulator) -> None:
    """A pose without a frame is in the same frame as the states that are read."""
    sim.pause()
    name = sim.an_entity(1)
    start = sim.pose(name)
    frame = str(sim.call("GetEntityState", entity=name).state.header.frame_id)
    for given in ("", frame):
        expect_code(sim.set_pose(name, start, given), 1, f"SetEntityState in the frame {given!r}")
        expect(math.dist(sim.pose(name)[:3], start[:3]) < 0.02, f"in the frame {given!r} {name} is elsewhere")


@check("EntityState.msg: header.frame_id", SET_STATE, GET_STATE)
def a_frame_that_is_not_known_is_refused(sim: Simulator) -> None:
    """A pose in a frame that does not exist is refused."""
    name = sim.an_entity(1)
    response = sim.set_pose(name, sim.pose(name), "no_such_frame_9")
    expect_refused(response, "SetEntityState in the frame no_such_frame_9")


@check("SetEntityState.srv: entity; Result.msg: RESULT_NOT_FOUND", SET_STATE)
def nobody_cannot_be_moved(sim: Simulator) -> None:
    """Setting the state of an entity that does not exist gives RESULT_NOT_FOUND."""
    expect_code(sim.set_pose(NOBODY, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)), 2, f"SetEntityState {NOBODY}")


@check("SetEntityState.srv: non-zero twist for static object", GET_STATE, SET_STATE, GET_INFO)
def a_static_object_takes_no_twist(sim: Simulator) -> None:
    """A twist for a static object gives RESULT_OPERATION_FAILED."""
    name = sim.an_entity(5)
    state = {"pose": sim.call("GetEntityState", entity=name).state.pose, "twist": {"linear": {"x": 1.0}}}
    flags = {"set_twist": True} if sim.dialect == "2.x" else {}
    expect_code(sim.call("SetEntityState", entity=name, state=state, **flags), 4, f"a twist for {name}")


# ---- information, bounds, named poses -------------------------------------------------------------------------------


@check("GetEntityInfo.srv: entity; Result.msg: RESULT_NOT_FOUND", GET_INFO)
def information_about_nobody_is_not_found(sim: Simulator) -> None:
    """Information about an entity that does not exist gives RESULT_NOT_FOUND."""
    expect_code(sim.call("GetEntityInfo", entity=sim.an_entity()), 1, "GetEntityInfo")
    expect_code(sim.call("GetEntityInfo", entity=NOBODY), 2, f"GetEntityInfo {NOBODY}")


@check("SetEntityInfo.srv: info, which will override its current values", "ENTITY_INFO_SETTING", GET_INFO)
def information_that_was_set_is_read(sim: Simulator) -> None:
    """Category, description and tags that were set are those that are read."""
    name = sim.an_entity()
    before = sim.call("GetEntityInfo", entity=name).info
    info = {"category": {"category": 4}, "description": "set by the conformance suite", "tags": ["conformance"]}
    expect_code(sim.call("SetEntityInfo", entity=name, info=info), 1, f"SetEntityInfo {name}")
    found = sim.call("GetEntityInfo", entity=name).info
    read = (int(found.category.category), str(found.description), list(map(str, found.tags)))
    sim.call("SetEntityInfo", entity=name, info=before)
    expect(read == (4, info["description"], ["conformance"]), f"SetEntityInfo {name}: reads back as {read}")
    expect_code(sim.call("SetEntityInfo", entity=NOBODY, info=info), 2, f"SetEntityInfo {NOBODY}")


@check("GetEntityBounds.srv: bounds, Bounds with TYPE_BOX should be returned", "ENTITY_BOUNDS")
def bounds_are_a_volume(sim: Simulator) -> None:
    """Bounds are a box with two points that enclose a volume."""
    for name in sim.entities()[:10]:
        response = sim.call("GetEntityBounds", entity=name)
        expect_code(response, 1, f"GetEntityBounds {name}")
        kind, points = int(response.bounds.type), response.bounds.points
        expect((kind, len(points)) == (1, 2), f"{name}: expected a box of 2 points, found type {kind}, {len(points)}")
        high, low = ((point.x, point.y, point.z) for point in points)
        is_volume = all(math.isfinite(a) and a > b for a, b in zip(high, low, strict=True))
        expect(is_volume, f"{name}: the corners {high} and {low} enclose nothing")
    expect_code(sim.call("GetEntityBounds", entity=NOBODY), 2, f"GetEntityBounds {NOBODY}")


@check("GetNamedPoses.srv: poses; NamedPose.msg: name, Unique name", "NAMED_POSES")
def named_poses_are_poses(sim: Simulator) -> None:
    """Named poses have unique names and quaternions of length 1."""
    response = sim.call("GetNamedPoses")
    expect_code(response, 1, "GetNamedPoses")
    _unique([str(each.name) for each in response.poses], "GetNamedPoses")
    for each in response.poses:
        turn = each.pose.orientation
        length = math.hypot(turn.x, turn.y, turn.z, turn.w)
        expect(abs(length - 1.0) < 1e-3, f"{each.name}: the quaternion has length {length:g}")


@check("GetNamedPoses.srv: tags; TagsFilter.msg: filter_mode", "NAMED_POSES")
def named_poses_are_filtered(sim: Simulator) -> None:
    """Only named poses with matching tags are given."""
    tags = {str(each.name): list(map(str, each.tags)) for each in sim.call("GetNamedPoses").poses}
    tag = next((each[0] for each in tags.values() if each), None)
    if tag is None:
        raise NotTestedError("no named pose has a tag")
    found = sorted(str(each.name) for each in sim.call("GetNamedPoses", tags={"tags": [tag]}).poses)
    wanted = sorted(name for name, each in tags.items() if tag in each)
    expect(found == wanted, f"tag {tag}: expected {wanted}, found {found}")
    both = {"tags": [tag, "no_such_tag_9"], "filter_mode": 1}
    expect(not len(sim.call("GetNamedPoses", tags=both).poses), "FILTER_MODE_ALL with a tag that nothing has")


@check("GetNamedPoseBounds.srv: name", "POSE_BOUNDS")
def bounds_of_poses_are_found_by_name(sim: Simulator) -> None:
    """Bounds of named poses are given, and those of a name that does not exist are RESULT_NOT_FOUND."""
    for each in sim.call("GetNamedPoses").poses:
        expect_code(sim.call("GetNamedPoseBounds", name=each.name), 1, f"GetNamedPoseBounds {each.name}")
    expect_code(sim.call("GetNamedPoseBounds", name="no_such_pose_9"), 2, "GetNamedPoseBounds no_such_pose_9")
