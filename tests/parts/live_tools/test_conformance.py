"""The conformance suite against our node, and against the same node with one defect at a time."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

import microsim
from microsim import messages as wire
from microsim.cli import app
from microsim.messages import fill
from microsim.messages.topics import Qos
from microsim.parts.live_tools.client.remote_node import send_goal
from microsim.parts.live_tools.conformance import FAILED, SKIPPED, all_checks, run_checks
from microsim.parts.live_tools.conformance import simulator as under_test
from microsim.parts.live_tools.conformance.simulator import ConformanceCheck, Simulator
from microsim.parts.ros2 import sim_services
from microsim.parts.ros2.entity_services import RefusalError
from microsim.parts.ros2.microsim_node import MicroSimNode, start_node
from microsim.parts.ros2.sim_services import SERVICE_NAMES, SimulationInterfaces
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport
from tests.json_support import assert_published

SMALL = {
    "name": "flat",
    "map": {"size_xy_cells": [60, 60]},
    "world_topics": {"occupancy_hz": 0, "markers_hz": 0},
    "obstacles": [{"type": "box", "center": [50, 50, 0], "size": [2, 2, 2], "name": "crate"}],
    "robots": {
        "drone": {"camera": None, "start": {"map_pose": {"x": 20, "y": 20, "z": 10}}},
        "rover": {"start": {"map_pose": {"x": 10, "y": 10}}},
    },
}
Answer = dict[str, Any]
Defect = Callable[[MicroSimNode, Any, Answer], Answer | None]  # node, request, right answer -> wrong one


class FakeSimulator:
    """Our node on a thread of its own, whose answers can be made wrong."""

    def __init__(self) -> None:
        self.defects: Mapping[str, Defect] = {}  # by service
        self.bus = Bus()
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._is_up.wait(120.0)

    def _run(self) -> None:
        microsim.Simulation(SMALL).step(60)  # kernels are compiled before anybody waits for an answer
        transport = MemoryTransport("microsim", bus=self.bus)
        self.node = start_node(transport, microsim.load_scenario(SMALL), rtf=10.0)
        self._is_up.set()
        self.node.runner.run()
        transport.close()

    def answer(self, handler: Callable[[Any], Any], request: Any, response: Any) -> None:
        try:
            found = dict(handler(request))
        except RefusalError as refusal:
            found = dict(refusal.answer)
        defect = self.defects.get(handler.__name__)
        fill(response, (defect(self.node, request, found) if defect is not None else None) or found)

    def close(self) -> None:
        self.node.runner.stop()
        self._thread.join(60.0)


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeSimulator]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(under_test, "LONGEST_S", 0.4)
        made = FakeSimulator()
        patch.setattr(SimulationInterfaces, "_answer", lambda self, *given: made.answer(*given))
        made.start()
        yield made
        made.close()


class MemoryNetwork:
    """What the suite uses of `microsim.connect()`, on the bus of the fake."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self._transport = bus, MemoryTransport("tester", bus=bus)
        self._pool = ThreadPoolExecutor(1)

    def call(self, service: str, request: Mapping[str, Any], *, type: str = "", timeout: float = 5.0) -> Any:
        return self._transport.call(service, type, request, timeout)

    def begin_call(self, service: str, request: Mapping[str, Any], *, type: str = "", timeout: Any = None) -> Any:
        return self._pool.submit(lambda: MemoryTransport("other", bus=self._bus).call(service, type, request, 5.0))

    def subscribe(self, topic: str, callback: Callable[[Any], Any], *, type: str = "", depth: int = 10) -> Any:
        self._transport.subscribe(topic, type, Qos(depth), lambda cdr: callback(wire.decode(type, cdr)))
        return SimpleNamespace(close=lambda: None)

    def topics(self) -> dict[str, list[str]]:
        return {"/clock": ["rosgraph_msgs/msg/Clock"]}

    def wait_until(self, condition: Callable[[], Any], timeout: float) -> Any:
        end = time.monotonic() + timeout
        while not condition() and time.monotonic() < end:
            self._transport.poll(0.01)
        return condition()

    def send_goal(self, action: str, goal: Any, *, type: str, on_feedback: Any, timeout: float) -> Any:
        return send_goal(cast(Any, self), action, type, goal, on_feedback, timeout)


def simulator_on(bus: Bus, dialect: str = "2.x", to_spawn: str = "") -> Simulator:
    offered = {kind.rpartition("/")[2]: f"/{name}" for name, kind in SERVICE_NAMES.items()}
    interfaces = {**offered, "SimulateSteps": "/simulate_steps"}
    return Simulator(cast(Any, MemoryNetwork(bus)), "/microsim", interfaces, dialect, 5.0, to_spawn)


@pytest.fixture(scope="module")
def subject(fake: FakeSimulator) -> Simulator:
    return simulator_on(fake.bus)


CHECKS = {check.name: check for check in all_checks()}


def run_one(subject: Simulator, *names: str) -> dict[str, str]:
    checks: list[ConformanceCheck] = [CHECKS[name] for name in names]
    subject.__dict__.pop("features", None)  # they are part of what may be wrong
    return {each.name: each.status for each in run_checks(subject, checks).outcomes}


def ok(node: MicroSimNode, request: Any, answer: Answer) -> Answer:
    return {**answer, "result": {"result": 1, "error_message": ""}}


def code(number: int) -> Defect:
    return lambda node, request, answer: {**answer, "result": {"result": number, "error_message": "wrong"}}


def instead_of(right: int, wrong: int) -> Defect:
    """Another code in place of a right one."""
    return lambda node, request, answer: code(wrong)(node, request, answer) if _code(answer) == right else None


def _code(answer: Answer) -> int:
    return int(answer["result"]["result"])


def silent(node: MicroSimNode, request: Any, answer: Answer) -> Answer:
    return {**answer, "result": {**answer["result"], "error_message": ""}}


def without(key: str) -> Defect:
    return lambda node, request, answer: {**answer, key: []}


def announcing(*numbers: int) -> Defect:
    def add(node: MicroSimNode, request: Any, answer: Answer) -> Answer:
        return {"features": {**answer["features"], "features": [*answer["features"]["features"], *numbers]}}

    return add


def hiding(*numbers: int) -> Defect:
    def hide(node: MicroSimNode, request: Any, answer: Answer) -> Answer:
        kept = [each for each in answer["features"]["features"] if each not in numbers]
        return {"features": {**answer["features"], "features": kept}}

    return hide


def moves_anyway(node: MicroSimNode, request: Any, answer: Answer) -> None:
    node.sim.set_pose(request.entity, x=15.0, y=15.0)


def moves_a_drone(node: MicroSimNode, request: Any, answer: Answer) -> None:
    if request.scope == 2:
        node.sim.set_pose("drone", x=15.0, y=15.0)


def forgets_teleports(node: MicroSimNode, request: Any, answer: Answer) -> None:
    node.sim.waiting.clear()


_EVERY_OTHER = itertools.cycle((0, 1))


def steps_more_now_and_then(node: MicroSimNode, request: Any, answer: Answer) -> None:
    if node.runner.paused:
        node.runner.step(next(_EVERY_OTHER))


def steps_once_more(node: MicroSimNode, request: Any, answer: Answer) -> None:
    if node.runner.paused:
        node.runner.step(1)


def plays(node: MicroSimNode, request: Any, answer: Answer) -> None:
    node.runner.pause(False)


def keeps_spawned(node: MicroSimNode, request: Any, answer: Answer) -> None:
    node.sim.spawn("conformance_reset", {"type": "cylinder", "center": [40, 40, 0], "radius": 0.5, "height": 1})


def ignores_filters(node: MicroSimNode, request: Any, answer: Answer) -> Answer:
    return {**answer, "entities": list(node.sim.entities), **ok(node, request, {})}


def leaves_out_one_filter(name: str) -> Defect:
    """As if that filter were not given."""

    def forget(node: MicroSimNode, request: Any, answer: Answer) -> Answer | None:
        given = getattr(request.filters, name)
        is_given = bool(
            given if isinstance(given, (str, list)) else getattr(given, "tags", None) or getattr(given, "type", 0)
        )
        return ignores_filters(node, request, answer) if is_given else None

    return forget


def with_quaternion(length: float) -> Defect:
    def scale(node: MicroSimNode, request: Any, answer: Answer) -> Answer | None:
        if "state" not in answer:
            return None
        pose = {**answer["state"]["pose"], "orientation": {"w": length}}
        return {**answer, "state": {**answer["state"], "pose": pose}}

    return scale


def named(node: MicroSimNode, request: Any, answer: Answer) -> Answer:
    pose = {"name": "a", "tags": ["start"], "pose": {"orientation": {"w": 0.5}}}
    return {**answer, "poses": [pose, pose]}


def flat_box(node: MicroSimNode, request: Any, answer: Answer) -> Answer:
    return {**answer, "bounds": {"type": 1, "points": [{}, {}]}}


def elsewhere(node: MicroSimNode, request: Any, answer: Answer) -> None:
    if _code(answer) == 1 and request.name in node.sim.entities:
        node.sim.move_obstacle(request.name, (33.0, 44.0, 0.0))


# defect -> the service that has it, what it does, and the check that must find it
DEFECTS: dict[str, tuple[str, Defect, str]] = {
    "a feature that is not defined": ("get_simulator_features", announcing(99), "features_are_answered"),
    "a feature announced twice": ("get_simulator_features", announcing(0), "features_are_answered"),
    "an interface that is missing": ("get_simulator_features", announcing(43), "announced_interfaces_are_offered"),
    "an interface that is not announced": ("get_simulator_features", hiding(12), "what_is_not_announced_says_so"),
    "pause without setting": ("get_simulator_features", hiding(25), "flags_agree_with_each_other"),
    "an undefined state": (
        "get_simulation_state", lambda n, r, a: {**a, "state": {"state": 9}}, "the_state_is_one_of_the_definition"),
    "a state without a result": ("get_simulation_state", code(0), "the_state_is_one_of_the_definition"),
    "pause that does not pause": ("set_simulation_state", plays, "it_is_paused_and_played"),
    "no code for the present state": (
        "set_simulation_state", instead_of(101, 1), "the_present_state_is_reported_as_such"),
    "stop that does not stop": ("set_simulation_state", plays, "it_is_stopped_and_played"),
    "a stopped one that plays when paused": (
        "set_simulation_state", plays, "a_stopped_one_is_paused_or_that_is_refused"),
    "undefined states accepted": ("set_simulation_state", instead_of(103, 1), "states_that_cannot_be_set_are_refused"),
    "time that passes while paused": ("get_entity_state", steps_once_more, "time_passes_while_playing_only"),
    "steps that are not alike": ("step_simulation", steps_more_now_and_then, "one_step_is_one_period"),
    "many steps and one more": ("step_simulation", steps_once_more, "many_steps_are_exactly_as_many"),
    "a step that ends playing": ("step_simulation", plays, "one_step_is_one_period"),
    "a playing one that is stepped": ("step_simulation", instead_of(3, 1), "a_playing_one_is_not_stepped"),
    "a refusal without a reason": ("step_simulation", silent, "a_playing_one_is_not_stepped"),
    "a reset that leaves poses": ("reset_simulation", moves_a_drone, "poses_are_reset_without_time"),
    "a reset that fails": ("reset_simulation", code(4), "a_full_reset_is_a_fresh_start"),
    "a scope announced in vain": ("get_simulator_features", announcing(21), "time_alone_is_reset"),
    "a reset that keeps what was spawned": ("reset_simulation", keeps_spawned, "spawned_entities_are_removed"),
    "a full reset that keeps it": ("reset_simulation", keeps_spawned, "a_full_reset_removes_spawned_entities"),
    "an unannounced scope": (
        "reset_simulation", instead_of(0, 1), "scopes_that_are_not_announced_are_unsupported"),
    "two entities of one name": (
        "get_entities", lambda n, r, a: {**a, "entities": ["rover", "rover"]}, "entities_have_unique_names"),
    "no filter by name": ("get_entities", leaves_out_one_filter("filter"), "names_are_matched_by_the_filter"),
    "a broken filter accepted": ("get_entities", ok, "a_filter_that_is_no_expression_is_refused"),
    "no filter by category": ("get_entities", leaves_out_one_filter("categories"), "categories_are_matched"),
    "no filter by tags": ("get_entities", leaves_out_one_filter("tags"), "tags_are_matched"),
    "no filter by sphere": ("get_entities", leaves_out_one_filter("bounds"), "spheres_are_matched"),
    "no filter by box": ("get_entities", leaves_out_one_filter("bounds"), "boxes_are_matched_or_unsupported"),
    "a hull that is not refused": ("get_entities", ok, "hulls_are_matched_or_unsupported"),
    "a hull announced in vain": ("get_simulator_features", announcing(7), "hulls_are_matched_or_unsupported"),
    "a quaternion of length 2": ("get_entity_state", with_quaternion(2.0), "states_are_complete"),
    "states without entities": ("get_entities_states", without("entities"), "all_states_agree_with_each"),
    "states that are not filtered": (
        "get_entities_states", lambda n, r, a: {**a, "entities": ["rover", "x"]}, "states_are_filtered_as_entities"),
    "a state of nobody": ("get_entity_state", ok, "the_state_of_nobody_is_not_found"),
    "a pose that is not set": ("set_entity_state", forgets_teleports, "a_pose_is_set_at_once"),
    "a pose set without its flag": ("set_entity_state", moves_anyway, "what_is_not_chosen_is_not_set"),
    "an invalid pose accepted": ("set_entity_state", ok, "an_invalid_pose_is_refused"),
    "another frame": ("set_entity_state", moves_anyway, "the_empty_frame_is_the_world"),
    "any frame": ("set_entity_state", ok, "a_frame_that_is_not_known_is_refused"),
    "nobody is moved": ("set_entity_state", ok, "nobody_cannot_be_moved"),
    "a twist for a crate": ("set_entity_state", ok, "a_static_object_takes_no_twist"),
    "information about nobody": ("get_entity_info", ok, "information_about_nobody_is_not_found"),
    "information that is not kept": (
        "get_entity_info", lambda n, r, a: {**a, "info": {}}, "information_that_was_set_is_read"),
    "bounds without a volume": ("get_entity_bounds", flat_box, "bounds_are_a_volume"),
    "named poses with one name": ("get_named_poses", named, "named_poses_are_poses"),
    "named poses that are not filtered": ("get_named_poses", named, "named_poses_are_filtered"),
    "pose bounds announced in vain": ("get_simulator_features", announcing(3), "bounds_of_poses_are_found_by_name"),
    "a spawnable without a resource": (
        "get_spawnables", lambda n, r, a: {**a, "spawnables": [{}]}, "spawnables_have_a_resource"),
    "an unknown source that is not named": ("get_spawnables", silent, "unknown_sources_do_not_hinder"),
    "deleted, and still there": (
        "delete_entity", lambda n, r, a: n.sim.spawn("conformance_one", SMALL["obstacles"][0] | {"center": [40, 40, 0]})
        if _code(a) == 1 else None, "an_entity_is_spawned_and_deleted"),
    "spawned elsewhere": ("spawn_entity", elsewhere, "it_is_spawned_at_its_pose"),
    "a name given twice": ("spawn_entity", instead_of(101, 1), "a_name_is_given_once"),
    "an empty name": ("spawn_entity", instead_of(102, 1), "an_empty_name_is_invalid"),
    "no resource": ("spawn_entity", instead_of(104, 1), "nothing_cannot_be_spawned"),
    "an unknown resource": ("spawn_entity", ok, "an_unknown_resource_is_refused"),
    "any namespace": ("spawn_entity", instead_of(105, 1), "an_invalid_namespace_is_refused"),
    "an invalid start": ("spawn_entity", instead_of(109, 1), "an_invalid_start_is_refused"),
    "any frame at the start": ("spawn_entity", ok, "an_unknown_frame_is_refused"),
    "broken text": ("spawn_entity", instead_of(106, 1), "text_is_parsed_or_unsupported"),
    "nobody is deleted": ("delete_entity", ok, "nobody_cannot_be_deleted"),
    "several without results": ("spawn_entities", without("results"), "each_of_several_has_its_result"),
    "a failure among several": ("spawn_entities", ok, "each_of_several_has_its_result"),
    "a world without a name": (
        "get_available_worlds", lambda n, r, a: {**a, "worlds": [{}]}, "worlds_are_listed"),
    "worlds for any tag": ("get_available_worlds", ok, "worlds_are_filtered_or_that_is_unsupported"),
    "a current world without a name": (
        "get_current_world", lambda n, r, a: {**a, "world": {}}, "the_current_world_is_named"),
    "nothing loaded": ("load_world", ok, "nothing_cannot_be_loaded"),
    "an unknown world is no resource": ("load_world", instead_of(2, 102), "an_unknown_world_is_refused"),
    "a broken world": ("load_world", ok, "broken_text_is_refused"),
    "a loaded world that plays": ("load_world", plays, "a_loaded_world_is_stopped"),
    "unloading announced in vain": ("get_simulator_features", announcing(43), "a_world_is_unloaded"),
}  # fmt: skip
# the action is not a service: its defects are below. And a node that offers no entities at all is not ours.
OF_ACTION = {"the_action_steps_as_often", "the_action_reports_each_step", "the_action_fails_while_playing"}
NOT_HERE = {"entities_are_offered"}
LATER = {"a_loaded_world_is_stopped"}  # changes the world for the other tests


def test_our_node_passes_everything_it_announces(fake: FakeSimulator, subject: Simulator) -> None:
    report = run_checks(subject, [check for check in all_checks() if check.name not in LATER])
    assert [(each.name, each.detail) for each in report.outcomes if each.status == FAILED] == []
    untested = {each.name for each in report.outcomes if each.status == SKIPPED}
    assert untested == {
        *("what_is_not_announced_says_so", "time_alone_is_reset", "bounds_of_poses_are_found_by_name"),
        "a_world_is_unloaded",
    }
    assert list(fake.node.sim.entities) == ["drone", "rover", "crate"]


@pytest.mark.parametrize("defect", DEFECTS)
def test_every_defect_is_found(fake: FakeSimulator, subject: Simulator, defect: str) -> None:
    service, wrong, check = DEFECTS[defect]
    fake.defects = {service: wrong}
    try:
        assert run_one(subject, check) == {check: FAILED}
    finally:
        fake.defects = {}
        fake.node.runner.load(microsim.load_scenario(SMALL))


@pytest.mark.parametrize(
    ("name", "value", "check"),
    [
        ("AT_ONCE", 0, "the_action_steps_as_often"),
        ("_publish", lambda *given: None, "the_action_reports_each_step"),
        ("MAX_STEPS", -1, "the_action_steps_as_often"),
        ("SUCCEEDED", 6, "the_action_fails_while_playing"),  # says that all went well
    ],
)
def test_defects_of_the_action_are_found(
    fake: FakeSimulator, subject: Simulator, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, check: str
) -> None:
    monkeypatch.setattr(subject, "timeout_s", 0.5)
    monkeypatch.setattr(sim_services, name, value)
    assert run_one(subject, check) == {check: FAILED}


def test_a_simulator_that_stops_answering_fails_once_and_the_rest_is_not_tested(fake: FakeSimulator) -> None:
    class Stopping(MemoryNetwork):
        left = 5  # calls that are answered

        def call(self, service: str, *given: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise TimeoutError(f"no answer from {service} within 5 s")
            return super().call(service, *given, **more)

    sim = simulator_on(fake.bus)
    sim.node = cast(Any, Stopping(fake.bus))
    names = ("names_are_matched_by_the_filter", "states_are_complete", "one_step_is_one_period")
    report = run_checks(sim, [CHECKS[name] for name in names])
    assert [each.status for each in report.outcomes] == [FAILED, SKIPPED, SKIPPED]
    assert "no answer from /get_entity_info" in report.outcomes[0].detail
    assert report.outcomes[1].detail == "/microsim has stopped answering"
    assert not report.is_conformant
    silent = simulator_on(fake.bus)
    silent.node = sim.node
    with pytest.raises(TimeoutError, match="/microsim does not answer"):
        run_checks(silent, [CHECKS[names[0]]])


def test_every_check_has_a_defect_that_it_finds() -> None:
    found = {check for _, _, check in DEFECTS.values()}
    assert found | OF_ACTION | NOT_HERE == set(CHECKS)


def test_every_check_cites_a_definition() -> None:
    names = {path.name for path in under_test.DEFINITIONS.glob("simulation_interfaces/*/*")}
    for check in CHECKS.values():
        cited = [part.strip().partition(":")[0].partition(" ")[0] for part in check.cites.split(";")]
        assert set(cited) <= names, check.name


def test_a_report_is_text_json_and_html(subject: Simulator) -> None:
    chosen, shown = [CHECKS["the_state_of_nobody_is_not_found"], CHECKS["a_world_is_unloaded"]], []
    report = run_checks(subject, chosen, lambda done, total: shown.append(f"{done} of {total}"))
    assert shown == ["1 of 2", "2 of 2"]
    data = json.loads(report.to_json())
    assert_published("conformance", data)
    assert (data["node"], data["dialect"], data["passed"], data["failed"]) == ("/microsim", "2.x", 1, 0)
    text = "\n".join(report.lines())
    for cited in ("[GetEntityState.srv: entity; Result.msg: RESULT_NOT_FOUND]", "1 passed, 0 failed, 1 not tested"):
        assert cited in text
    assert "<td>GetEntityState.srv: entity; Result.msg: RESULT_NOT_FOUND</td>" in report.to_html()


def test_a_report_that_cannot_be_written_is_refused_before_the_checks(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["conformance", "--html", str(tmp_path / "nowhere" / "report.html")])
    assert "there is no folder" in str(result.exception)


def test_clients_of_the_first_version_are_served(fake: FakeSimulator, subject: Simulator) -> None:
    """All but GetSpawnables, which is answered as in 2.x."""
    spawnables = {"spawnables_have_a_resource", "unknown_sources_do_not_hinder"}
    names = [name for name in CHECKS if name not in LATER | spawnables | {"time_passes_while_playing_only"}]
    older = simulator_on(fake.bus, "1.x", "cylinder")
    report = run_checks(older, [CHECKS[name] for name in names])
    assert [(each.name, each.detail) for each in report.outcomes if each.status == FAILED] == []
    assert report.dialect == "1.x"
