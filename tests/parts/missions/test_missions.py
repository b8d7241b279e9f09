"""Missions: what is done at which tick, what is refused before the start, what is told when an expectation fails."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import microsim
from microsim.attachment import Run
from microsim.engine.schedule import Command, Teleport, Transmission
from microsim.errors import MissionError, ScenarioError
from microsim.parts.missions import MissionPilot, fly_mission, load_mission
from microsim.parts.missions.attachment import MissionRun
from microsim.parts.missions.follower import FollowedPose, Follower, FollowerGoal, drive, fly
from microsim.parts.missions.judge import DERIVED, TOPIC_VALUES, FieldPath, clearance_cells, is_met
from microsim.parts.missions.mission_file import ACTIONS, EXPECTATIONS, Mission, is_mission
from microsim.parts.ros2.microsim_node import start_node
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport
from microsim.paths import mission_file, mission_names, scenario_file, scenario_names
from microsim.runner import Runner
from microsim.simulation import Reconfiguration
from tests.cli_support import ROOT
from tests.cli_support import run_microsim as cli
from tests.support import COMPILED, SleepClock, bare, many, on_topic, scenario

# Two robots without sensors in 20 m × 20 m: quick, and nothing is random.
QUIET = scenario(
    robots={
        "drone": bare(start={"map_pose": {"x": 10, "y": 10, "z": 5}}, odom={"hz": 10}),
        "rover": bare(start={"map_pose": {"x": 5, "y": 5, "yaw": 0.0}}),
    },
    radio={"latency_ms_mean": 100, "latency_ms_jitter": 0, "drop_probability": 0},
)


def plan(*do: Mapping[str, Any], duration: float = 2.0, expect: tuple[Mapping[str, Any], ...] = ()) -> Mission:
    return load_mission({"duration": duration, "do": list(do), "expect": list(expect)})


def inputs_of(mission: Mission, world: Any = None) -> list[tuple[int, Any]]:
    """(tick that takes it, input) of a whole mission."""
    sim = microsim.Simulation(world or QUIET)
    taken: list[tuple[int, Any]] = []
    sim.listen(inputs=lambda tick, item: taken.append((tick, item)))
    pilot = MissionPilot(sim, mission)
    Runner(sim, 0.0, pilot).run(pilot.end)
    return taken


def violations(*expect: Mapping[str, Any], do: tuple[Mapping[str, Any], ...] = (), duration: float = 2.0) -> list[str]:
    return list(fly_mission(plan(*do, duration=duration, expect=expect), QUIET).violations)


# ---- what is done, and when -----------------------------------------------------------------------------------------


def test_an_entry_is_taken_at_the_nearest_tick_to_its_time() -> None:
    times = {0: 0, 0.5: 30, 0.508: 30, 0.509: 31, 1.99: 119}
    mission = plan(*({"at": at, "robot": "rover", "command": {"v": 1.0}} for at in times))
    assert [tick for tick, _ in inputs_of(mission)] == list(times.values())


def test_a_repetition_never_drifts_from_its_ideal_times() -> None:
    """0.07 s is 4.2 ticks: added up, the error would be 20 ticks after a hundred."""
    mission = plan({"robot": "drone", "radio": "ping {n}", "every": 0.07, "times": 100}, duration=8)
    taken = inputs_of(mission)
    assert [tick for tick, _ in taken] == [math.floor(4.2 * i + 0.5) for i in range(100)]
    assert [item.payload for _, item in taken] == [f"ping {i}".encode() for i in range(100)]


def test_every_kind_of_entry_goes_through_the_public_interface() -> None:
    taken = inputs_of(
        plan(
            {"robot": "drone", "command": {"vx": 1, "yaw_rate": 0.5}},
            {"at": 0.1, "robot": "rover", "teleport": {"x": 2, "y": 3, "yaw": 1}},
            {"at": 0.2, "robot": "rover", "radio": "grüß"},
            {"at": 0.3, "set": {"robots.drone.max_vx": 0.5, "wind.world_xyz": [0, 1, 0]}},
            {"at": 0.4, "pause": 1},
        )
    )
    assert taken[0] == (0, Command("drone", (1.0, 0.0, 0.0, 0.5)))
    assert taken[1] == (6, Teleport("rover", 2.0, 3.0, 0.0, 1.0))
    assert taken[2] == (6, Command("rover", (0.0, 0.0)))  # a teleported robot stands still
    assert taken[3] == (12, Transmission("rover", "grüß".encode()))
    tick, change = taken[4]
    assert tick == 18
    assert isinstance(change, Reconfiguration)
    assert (change.scenario.robots["drone"].max_vx, change.scenario.wind.world_xyz) == (0.5, (0.0, 1.0, 0.0))
    assert len(taken) == 5


def test_a_mission_is_the_run_of_its_commands_sent_by_hand() -> None:
    mission = load_mission("team_task")
    world = {"robots": {"drone": bare(odom={}), "rover": bare(odom={}, gps={})}, "wind": {"gust_sigma": 0.3}}
    flown = fly_mission(mission, world).sim
    by_hand = microsim.Simulation(world)
    for tick, item in inputs_of(mission, world):
        by_hand.step(tick - by_hand.tick)
        if isinstance(item, Command):
            by_hand.command(item.robot, **dict(zip(by_hand.model(item.robot).inputs, item.values, strict=True)))
        else:
            by_hand.radio_send(item.sender, item.payload)
    by_hand.step(flown.tick - by_hand.tick)
    assert by_hand.digest() == flown.digest()


def test_an_entry_after_another_waits_for_it() -> None:
    taken = inputs_of(
        plan(
            {"name": "tell", "at": 0.5, "robot": "drone", "radio": "go"},
            {"name": "drive", "after": "tell", "robot": "rover", "command": {"v": 1}},
            {"after": "drive", "at": 0.25, "robot": "rover", "command": {"v": 0}},
        )
    )
    # sent at tick 30, taken by tick 31; 100 ms are 6 ticks; heard and answered at once; then 15 ticks
    assert [tick for tick, _ in taken] == [30, 36, 51]


def test_who_waits_for_a_lost_packet_never_begins_and_that_is_told() -> None:
    mission = plan(
        {"set": {"radio.drop_probability": 1}},
        {"at": 0.1, "name": "tell", "robot": "drone", "radio": "go"},
        {"after": "tell", "robot": "rover", "command": {"v": 1}},
    )
    outcome = fly_mission(mission, QUIET)
    assert outcome.violations == ("do[2]: never started, because 'tell' was never done",)
    assert outcome.sim.state("rover").x == 5.0


def test_a_packet_of_another_with_the_same_text_is_not_taken_for_ones_own() -> None:
    world = {**QUIET, "robots": {**QUIET["robots"], "third": {**QUIET["robots"]["rover"], "model": "rover"}}}
    mission = plan(
        {"set": {"radio.drop_probability": 1}},
        {"at": 0.1, "name": "lost", "robot": "drone", "radio": "go"},
        {"at": 0.2, "set": {"radio.drop_probability": 0}},
        {"at": 0.3, "name": "heard", "robot": "third", "radio": "go"},
        {"after": "lost", "robot": "rover", "command": {"v": 1}},
        {"after": "heard", "robot": "third", "command": {"v": 1}},
    )
    outcome = fly_mission(mission, world)
    assert outcome.violations == ("do[4]: never started, because 'lost' was never done",)
    assert outcome.sim.state("third").x > 5.0


def flight_in(runner: Runner, mission: Any) -> MissionRun:
    return MissionRun(mission, Run(runner))


@pytest.mark.parametrize(("rtf", "wall_s"), [(1.0, 5.0), (2.0, 4.0)])
def test_a_pause_is_wall_time_in_real_time_and_nothing_to_the_digest(rtf: float, wall_s: float) -> None:
    mission = plan({"robot": "drone", "command": {"vx": 1}}, {"at": 1, "pause": 3})
    sim = microsim.Simulation(QUIET)
    runner = Runner(sim, rtf, clock=SleepClock())
    flight_in(runner, mission)
    runner.run(120)
    assert runner.wall_s == pytest.approx(wall_s, abs=0.1)
    flown = fly_mission(plan({"robot": "drone", "command": {"vx": 1}}), QUIET).sim
    assert sim.digest() == flown.digest() == fly_mission(mission, QUIET).sim.digest()


def test_as_fast_as_possible_nobody_waits_for_a_pause() -> None:
    sim = microsim.Simulation(QUIET)
    runner = Runner(sim, 0.0)
    flight_in(runner, plan({"at": 1, "pause": 3600}))
    runner.run(120)
    assert runner.wall_s < 60.0
    assert not runner.paused


def test_who_steps_through_a_paused_run_is_not_overtaken_by_the_missions_pause() -> None:
    sim = microsim.Simulation(QUIET)
    runner = Runner(sim, 1.0, clock=SleepClock())
    flight_in(runner, plan({"at": 0.5, "pause": 0.01}))
    runner.pause(True)
    runner.step(60)
    runner.clock.sleep(10)
    runner.watchers[-1].look()
    assert runner.paused


def test_on_ros_2_a_reset_begins_the_mission_anew_and_a_world_that_cannot_fly_it_goes_without() -> None:
    node = start_node(MemoryTransport("microsim", (), Bus()), microsim.load_scenario("flat"))
    flight = flight_in(node.runner, load_mission("patrol"))
    node.runner.pause(True)
    node.runner.publish(node.sim.step(0))
    node.runner.step(200)
    first = node.sim.digest()
    node.runner.reset()
    node.runner.step(200)
    assert node.sim.digest() == first
    node.runner.load(
        microsim.load_scenario(scenario(robots={"drone": bare(start={"map_pose": {"x": 9, "y": 9, "z": 5}})}))
    )
    node.runner.step(20)
    assert not node.runner.pilots
    assert flight.verdict()["undecided"] == 4


# ---- waypoints ------------------------------------------------------------------------------------------------------


def fly_to(*waypoints: list[float], robot: str = "drone", duration: float = 30.0, **options: Any) -> Any:
    return fly_mission(plan({"robot": robot, "waypoints": list(waypoints), **options}, duration=duration), QUIET)


def test_a_drone_visits_every_waypoint_in_order_and_holds_the_last() -> None:
    goals = [[15.0, 10.0, 5.0], [15.0, 15.0, 8.0, 2.0], [3.0, 3.0]]
    track: list[tuple[float, float, float]] = []
    mission = plan({"robot": "drone", "waypoints": goals, "speed": 3}, duration=30)
    sim = microsim.Simulation(QUIET)
    pilot = MissionPilot(sim, mission)
    for _ in range(pilot.end):
        pilot(sim.step())
        state = sim.state("drone")
        track.append((state.x, state.y, state.z))
    first = [
        next(i for i, place in enumerate(track) if math.dist(place, goal) < 0.5)
        for goal in ((15, 10, 5), (15, 15, 8), (3, 3, 8))
    ]
    assert first == sorted(first)
    assert math.dist(track[-1], (3, 3, 8)) < 0.01  # without z it keeps the height
    assert not pilot.violations()


def test_a_drone_holds_its_place_in_a_steady_wind_to_the_centimetre() -> None:
    windy = {**QUIET, "wind": {"world_xyz": [2.0, -1.0, 0.5]}}
    mission = plan({"robot": "drone", "waypoints": [[10, 10, 5, 2.0]], "tolerance": 0.3}, duration=20)
    outcome = fly_mission(mission, windy)
    assert not outcome.violations
    assert outcome.sim.state("drone")[:3] == pytest.approx((10, 10, 5), abs=0.01)


def test_a_drone_that_is_sent_below_the_ground_comes_up_again_at_once() -> None:
    """The ground is no wind that could be flown against."""
    mission = plan(
        {"robot": "drone", "waypoints": [[10, 10, 0.0]], "speed": 3},
        {"at": 10, "robot": "drone", "waypoints": [[10, 10, 3.0]], "speed": 3},
        duration=13,
    )
    assert fly_mission(mission, QUIET).sim.state("drone").z == pytest.approx(3.0, abs=0.1)


def test_a_drone_turns_to_the_yaw_of_its_waypoint() -> None:
    state = fly_to([10.0, 10.0, 5.0, -2.5]).sim.state("drone")
    assert state.yaw == pytest.approx(-2.5, abs=0.01)


def test_relative_waypoints_count_from_where_the_robot_is() -> None:
    assert fly_to([2, -3, 1], relative=True).sim.state("drone")[:3] == pytest.approx((12, 7, 6), abs=0.02)
    rover = fly_to([3, 4], robot="rover", relative=True, tolerance=0.1).sim.state("rover")
    assert (rover.x, rover.y) == pytest.approx((8, 9), abs=0.11)
    assert (rover.v, rover.omega) == pytest.approx((0, 0), abs=1e-6)


def test_a_waypoint_out_of_reach_is_a_violation_at_its_timeout_and_the_robot_stops() -> None:
    outcome = fly_to([10.0, 10.0], [15, 10], robot="drone", timeout=2, speed=1)
    assert outcome.violations == (
        "do[0]: drone did not reach waypoint 2 of 2 within its timeout, which ended at 2.000 s",
    )
    assert outcome.sim.state("drone").vx == pytest.approx(0.0, abs=1e-9)


def test_without_a_timeout_the_end_of_the_mission_is_the_limit() -> None:
    assert fly_to([19, 10], speed=1, duration=3).violations == (
        "do[0]: drone did not reach waypoint 1 of 1 by the end of the mission",
    )


def test_a_command_takes_the_controls_from_the_follower() -> None:
    outcome = fly_mission(
        plan(
            {"robot": "rover", "waypoints": [[15, 5]]},
            {"at": 1, "robot": "rover", "command": {}},
            duration=3,
        ),
        QUIET,
    )
    assert outcome.sim.state("rover").v == pytest.approx(0.0, abs=1e-6)
    assert "before another entry took control at 1.000 s" in outcome.violations[0]


coordinate = st.floats(1.0, 19.0)


@settings(max_examples=many(30, 3), deadline=None)
@given(x=coordinate, y=coordinate, z=st.floats(1.0, 15.0), yaw=st.floats(-3.1, 3.1), speed=st.floats(1.0, 8.0))
def test_a_drone_reaches_any_place_in_the_air(x: float, y: float, z: float, yaw: float, speed: float) -> None:
    outcome = fly_to([x, y, z, yaw], speed=speed, duration=30)
    assert not outcome.violations
    assert outcome.sim.state("drone")[:3] == pytest.approx((x, y, z), abs=0.01)


@settings(max_examples=many(30, 3), deadline=None)
@given(x=coordinate, y=coordinate, speed=st.floats(0.5, 4.0))
def test_a_rover_reaches_any_free_place(x: float, y: float, speed: float) -> None:
    assert not fly_to([x, y], robot="rover", speed=speed, duration=60).violations


LOT = {
    "name": "parking lot",
    "map": {"size_xy_cells": [120, 120]},
    "robots": {"ego": bare(model="bicycle", start={"map_pose": {"x": 60, "y": 60}})},
}


@settings(max_examples=many(30, 4), deadline=None)
@given(x=st.floats(-15.0, 15.0), y=st.floats(-15.0, 15.0), speed=st.floats(1.0, 6.0))
@example(0.2, 2.7, 3.0)  # within its turning circle
@example(-1.6, 6.6, 3.0)
@example(-1.9, -0.1, 3.0)  # behind it
def test_a_car_reaches_any_place_around_it_and_stands(x: float, y: float, speed: float) -> None:
    outcome = fly_mission(
        plan({"robot": "ego", "waypoints": [[x, y]], "relative": True, "speed": speed}, duration=90), LOT
    )
    assert not outcome.violations
    assert outcome.sim.state("ego").speed == pytest.approx(0.0, abs=1e-6)


def test_a_car_follows_a_course_without_stopping() -> None:
    course = [[20, 0], [40, 10], [40, 30], [20, 40], [0, 30]]
    mission = plan(
        {"robot": "ego", "waypoints": course, "relative": True, "speed": 5, "tolerance": 1},
        duration=60,
        expect=({"robot": "ego", "value": "speed", "at_least": 1.2, "from": 1, "to": 20},),
    )
    world = {**LOT, "robots": {"ego": bare(model="bicycle", start={"map_pose": {"x": 40, "y": 30}})}}
    assert not fly_mission(mission, world).violations


@given(*[st.floats(-1e4, 1e4)] * 6, st.floats(-4.0, 4.0), st.floats(0.01, 100), st.booleans())
def test_the_follower_never_asks_for_more_than_the_speed(
    x: float, y: float, z: float, gx: float, gy: float, gz: float, yaw: float, speed: float, is_last: bool
) -> None:
    flown = fly(FollowedPose(x, y, z, yaw), FollowerGoal(gx, gy, gz, None), speed, is_last)
    assert math.hypot(flown["vx"], flown["vy"], flown["vz"]) <= speed * (1 + 1e-9)
    driven = drive(FollowedPose(x, y, z, yaw), FollowerGoal(gx, gy, None, None), speed, is_last)
    assert 0.0 <= driven["v"] <= speed


def test_a_follower_at_its_goal_is_done_and_still() -> None:
    follower = Follower(fly, [FollowerGoal(1, 2, 3, None)], speed=1, tolerance=0.1)
    assert follower.command(FollowedPose(1, 2, 3, 0)) == {"vx": 0, "vy": 0, "vz": 0, "yaw_rate": 0}
    assert follower.is_done


# ---- expectations ---------------------------------------------------------------------------------------------------

EAST = {"robot": "drone", "command": {"vx": 1}}


@pytest.mark.parametrize(
    ("good", "bad", "sentence"),
    [
        (
            {"robot": "drone", "value": "x", "equals": 10, "at": 0},
            {"robot": "drone", "value": "x", "at_most": 10.5},
            "expect[0]: x of drone was 11.8582 at 2.000 s; expected at most 10.5",
        ),
        (
            {"robot": "drone", "value": "x", "at_least": 10, "from": 0},
            {"robot": "drone", "value": "x", "at_most": 10.5, "from": 0, "to": 1},
            "expect[0]: x of drone was 10.51 at 0.650 s; expected at most 10.5",
        ),
        (
            {"robot": "drone", "value": "position", "equals": [11.858, 10, 5], "within": 0.01},
            {"robot": "drone", "value": "position", "equals": [10, 10], "within": 1},
            "expect[0]: drone was at (11.858, 10.000) at 2.000 s, 1.858 m away; expected [10.0, 10.0] within 1",
        ),
        (
            {"robot": "drone", "value": "displacement", "equals": 1.85, "within": 0.01},
            {"robot": "drone", "value": "speed", "at_least": 1.5},
            "expect[0]: speed of drone was 0.999998 at 2.000 s; expected at least 1.5",
        ),
        (
            {"robot": "drone", "value": "height", "equals": 5},
            {"robot": "rover", "value": "contacts", "at_least": 1},
            "expect[0]: contacts of rover was 0 at 2.000 s; expected at least 1",
        ),
        (
            {"robot": "rover", "value": "clearance_cells", "equals": 5},
            {"robot": "rover", "value": "clearance_cells", "at_most": 1},
            "expect[0]: clearance_cells of rover was 5 at 2.000 s; expected at most 1",
        ),
        (
            {"topic": "/drone/odom", "value": "count", "equals": 20},
            {"topic": "/drone/odom", "value": "count", "equals": 20, "within": 1, "from": 1},
            "expect[0]: count of /drone/odom was 10; expected 20 within 1",
        ),
        (
            {"topic": "/drone/odom", "value": "rate_hz", "equals": 10, "from": 0.5, "to": 1.5},
            {"topic": "/drone/odom", "value": "rate_hz", "at_least": 11, "at_most": 12},
            "expect[0]: rate_hz of /drone/odom was 10; expected at least 11 and at most 12",
        ),
        (
            {"topic": "/drone/odom", "value": "pose.pose.position.x", "at_least": 10, "at_most": 12},
            {"topic": "/drone/odom", "value": "pose.pose.position.x", "at_most": 10.5},
            "expect[0]: pose.pose.position.x of /drone/odom was 10.5595 at 0.700 s; expected at most 10.5",
        ),
        (
            {"topic": "/drone/odom", "value": "pose.covariance[0]", "at_least": 0},
            {"topic": "/drone/odom", "value": "pose.covariance[77]", "at_least": 0},
            "expect[0]: /drone/odom had no pose.covariance[77] at 0.000 s; expected at least 0",
        ),
        (
            {"radio": ["drone", "rover"], "value": "sent", "equals": 0},
            {"radio": ["drone", "rover"], "value": "latency_ms", "at_most": 1},
            "expect[0]: there is no latency_ms from drone to rover: no packet was delivered; expected at most 1",
        ),
    ],
)  # fmt: skip
def test_an_expectation_that_fails_is_told_in_a_sentence(good: Any, bad: Any, sentence: str) -> None:
    assert violations(good, do=(EAST,)) == []
    assert violations(bad, do=(EAST,)) == [sentence]


def test_by_a_time_is_met_at_any_tick_until_then() -> None:
    there = {"robot": "drone", "value": "position", "equals": [10.6, 10], "within": 0.1}
    assert violations({**there, "by": 1}, {**there, "by": 2}, do=(EAST,)) == []
    assert len(violations({**there, "at": 1}, {**there, "at": 2}, do=(EAST,))) == 2  # it passes by in between
    early = violations({**there, "by": 0.25}, do=(EAST,))
    assert len(early) == 1
    assert "at 0.250 s" in early[0]
    sim = microsim.Simulation(QUIET)
    pilot = MissionPilot(sim, plan(EAST, expect=({**there, "by": 2}, {**there, "equals": [0, 0], "by": 2})))
    Runner(sim, 0.0, pilot).run(60)
    assert (pilot.violations(), pilot.undecided()) == ([], 1)  # the first is decided when it is met


def test_radio_expectations_count_one_direction() -> None:
    ping = {"robot": "drone", "radio": "x", "every": 0.1, "times": 10}
    about = {"radio": ["drone", "rover"]}
    good = ({**about, "value": "delivered", "equals": 10}, {**about, "value": "drop_rate", "equals": 0})
    assert not violations(*good, {**about, "value": "latency_ms", "equals": 100}, do=(ping,))
    assert violations({**about, "value": "sent", "equals": 4}, do=(ping,)) == [
        "expect[0]: sent from drone to rover was 10; expected 4"
    ]
    assert not violations({"radio": ["rover", "drone"], "value": "sent", "equals": 0}, do=(ping,))
    assert not violations({**about, "value": "sent", "equals": 5, "at": 0.45}, do=(ping,))


def test_a_field_nobody_sent_fails_the_expectation() -> None:
    assert violations({"topic": "/radio/rover_rx", "value": "data[0]", "at_least": 0}) == [
        "expect[0]: there was no message on /radio/rover_rx; expected at least 0"
    ]


def test_a_nan_meets_no_expectation_and_infinity_only_what_allows_it() -> None:
    def bounds(**values: Any) -> Any:
        return load_mission(
            {"duration": 1, "expect": [{"topic": "/rover/range/front", "value": "range", **values}]}
        ).expect[0]

    for expectation in (bounds(at_least=0), bounds(at_most=0), bounds(equals=0, within=1e9)):
        assert not is_met(expectation, math.nan)
    assert is_met(bounds(at_most=0.5), -math.inf)
    assert not is_met(bounds(at_least=0.5), -math.inf)
    assert not is_met(bounds(equals=0.5, within=1e6), math.inf)
    assert is_met(bounds(equals=0.03, within=0.01), 0.04)  # whatever binary fractions make of it
    assert not is_met(bounds(equals=0.03, within=0.01), 0.0400001)


def test_a_run_that_ends_too_soon_leaves_expectations_undecided() -> None:
    sim = microsim.Simulation(QUIET)
    early = {"robot": "drone", "value": "z", "at_least": 7, "at": 0.5}
    pilot = MissionPilot(sim, plan(expect=(early, {**early, "at": 1.5}, {**early, "at": 2})))
    Runner(sim, 0.0, pilot).run(60)
    assert len(pilot.violations()) == 1
    assert pilot.undecided() == 2


def test_clearance_is_the_distance_to_the_nearest_occupied_cell_or_the_edge() -> None:
    box = {"type": "box", "center": [10.5, 10.5, 0], "size": [1, 1, 1]}
    world = microsim.Simulation(scenario(obstacles=[box])).world
    assert clearance_cells(world, 10.5, 10.5) == 0.0
    assert clearance_cells(world, 8.5, 10.5) == 1.5
    assert clearance_cells(world, 9.0, 9.0) == pytest.approx(math.sqrt(2))
    assert clearance_cells(world, 0.25, 10.0) == 0.25
    assert clearance_cells(world, -1.0, 10.0) == 0.0


def test_a_field_path_is_checked_against_the_type() -> None:
    assert FieldPath("pose.pose.position.x").problem("nav_msgs/msg/Odometry") == ""
    assert FieldPath("pose.covariance[35]").problem("nav_msgs/msg/Odometry") == ""
    assert "did you mean 'position'" in FieldPath("pose.pose.positon.x").problem("nav_msgs/msg/Odometry")
    for wrong in ("pose", "header.frame_id", "pose.pose.position.x.y", "pose[0]", "a b", ""):
        assert FieldPath(wrong).problem("nav_msgs/msg/Odometry"), wrong


# ---- what is refused ------------------------------------------------------------------------------------------------

HEAD = "scenario: flat\nduration: 5\n"


# ¦ marks the place that is told
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("¦duraton: 5\n", "unknown key 'duraton'; did you mean 'duration'?"),
        ("¦do: []\n", "missing key 'duration'"),
        ("duration: ¦0\n", "expected a value above 0, found 0"),
        ("duration: ¦soon\n", "expected a number, found 'soon' (text)"),
        ("¦- 1\n", "expected a mapping with any of the keys name, scenario"),
        ("do: [\n¦", "not valid YAML"),
        (f"{HEAD}do: ¦5\n", "expected a list of mappings, found 5"),
        (f"{HEAD}do:\n  - ¦7\n", "expected a mapping with one of the keys command, teleport"),
        (f"{HEAD}do:\n  - ¦{{at: 1}}\n", "missing what to do; there are: command, teleport, radio"),
        (f"{HEAD}do:\n  - {{robot: drone, ¦comand: {{}}}}\n", "did you mean 'command'?"),
        (f"{HEAD}do:\n  - ¦{{command: {{v: 1}}}}\n", "missing key 'robot'"),
        (f"{HEAD}do:\n  - {{robot: rover, command: {{v: 1}}, ¦pause: 1}}\n", "found command and pause"),
        (f"{HEAD}do:\n  - {{robot: drone, command: {{vx: ¦.nan}}}}\n", "expected a finite number, found nan"),
        (f"{HEAD}do:\n  - {{at: ¦-1, pause: 1}}\n", "expected a value of at least 0, found -1"),
        (f"{HEAD}do:\n  - {{at: ¦9, pause: 1}}\n", "9 s is after the end of the mission, whose duration is 5 s"),
        (f"{HEAD}do:\n  - {{pause: 1, every: 1, times: ¦7}}\n", "6 s is after the end of the mission"),
        (f"{HEAD}do:\n  - {{pause: 1, ¦every: 1}}\n", "`every` needs `times: COUNT`"),
        (f"{HEAD}do:\n  - {{pause: 1, ¦times: 2}}\n", "`times` needs `every: SECONDS`"),
        (f"{HEAD}do:\n  - {{after: ¦x, pause: 1}}\n", "unknown entry 'x'; there are: none before this one"),
        (f"{HEAD}do:\n  - {{robot: rover, waypoints: ¦[]}}\n", "expected at least one waypoint"),
        (f"{HEAD}do:\n  - {{robot: rover, waypoints: [¦[1]]}}\n", "expected [x, y], [x, y, z] or"),
        (f"{HEAD}do:\n  - {{robot: rover, waypoints: [¦[1, 2, 3]]}}\n", "rover is a ground robot"),
        (f"{HEAD}do:\n  - {{robot: ¦rovr, command: {{v: 1}}}}\n", "has no robot 'rovr'; did you mean 'rover'?"),
        (f"{HEAD}do:\n  - {{robot: rover, command: {{vx: ¦1}}}}\n", "rover has no command 'vx'"),
        (f"{HEAD}do:\n  - {{robot: rover, teleport: ¦{{x: 999, y: 1}}}}\n", "is off the map"),
        (f"{HEAD}do:\n  - {{robot: rover, ¦teleport: {{x: 9}}}}\n", "missing key 'y'"),
        (f"{HEAD}do:\n  - {{set: ¦{{}}}}\n", "expected at least 1 values"),
        (f"{HEAD}do:\n  - {{set: {{radio.drop: ¦1}}}}\n", "the scenario has no 'radio.drop'"),
        (f"{HEAD}do:\n  - {{set: {{robots.dron.max_vx: ¦1}}}}\n", "did you mean 'drone'?"),
        (f"{HEAD}do:\n  - {{set: {{radio.reordering: ¦5}}}}\n", "expected true or false, found 5"),
        (f"{HEAD}do:\n  - {{set: {{physics_hz: ¦5}}}}\n", "physics_hz cannot change during a run"),
        (f"{HEAD}do:\n  - {{set: {{world: ¦oval}}}}\n", "world cannot change during a run"),
        (f"{HEAD}do:\n  - {{set: ¦{{frames.per_robot_odom: true}}}}\n", "cannot change during a run"),
        (f"{HEAD}expect:\n  - ¦{{robot: drone, value: z}}\n", "nothing is expected"),
        (f"{HEAD}expect:\n  - {{¦robt: drone, value: z, equals: 1}}\n", "did you mean 'robot'?"),
        (f"{HEAD}expect:\n  - {{robot: drone, value: ¦zz, equals: 1}}\n", "drone has no value 'zz'"),
        (f"{HEAD}expect:\n  - {{robot: drone, value: z, equals: ¦[1, 2]}}\n", "expected a number for the value"),
        (f"{HEAD}expect:\n  - {{robot: drone, value: z, equals: ¦x}}\n", "found 'x' (text)"),
        (f"{HEAD}expect:\n  - {{robot: drone, value: z, equals: ¦1{400 * '0'}}}\n", "found a number of many digits"),
        (f"{HEAD}expect:\n  - {{robot: drone, value: ¦position, equals: [1, 2]}}\n", "and `within`"),
        (f"{HEAD}expect:\n  - {{robot: drone, value: z, at_most: 1, ¦at: 1, to: 2}}\n", "either `at`, or"),
        (f"{HEAD}expect:\n  - {{robot: drone, value: z, at_most: 1, ¦by: 1, from: 0}}\n", "either `at`, or `by`"),
        (f"{HEAD}expect:\n  - {{robot: drone, value: z, at_most: 1, by: ¦6}}\n", "after the end of the mission"),
        (f"{HEAD}expect:\n  - {{robot: drone, value: z, at_most: 1, from: ¦3, to: 2}}\n", "must be before"),
        (f"{HEAD}expect:\n  - {{robot: drone, value: z, at_most: 1, at: ¦6}}\n", "after the end of the mission"),
        (f"{HEAD}expect:\n  - {{topic: ¦/drone/odo, value: count, equals: 1}}\n", "did you mean '/drone/odom'?"),
        (f"{HEAD}expect:\n  - {{topic: /clock, value: ¦clok.sec, equals: 1}}\n", "did you mean 'clock'?"),
        (f"{HEAD}expect:\n  - {{radio: ¦drone, value: sent, equals: 1}}\n", "expected [sender, receiver]"),
        (f"{HEAD}expect:\n  - {{radio: ¦[drone, drone], value: sent, equals: 1}}\n", "expected two robots"),
        (f"{HEAD}expect:\n  - {{radio: [drone, rover], value: ¦sen, equals: 1}}\n", "did you mean 'sent'?"),
        (f"{HEAD}¦scenario: flat\n", "the key is already on line 1"),
        (f"{HEAD}do:\n  - {{robot: drone, command: {{vx: ¦true}}}}\n", "expected a number, found true"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    before, _, after = text.partition("¦")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    file = tmp_path / "bad.yaml"
    file.write_text(before + after)
    with pytest.raises(MissionError) as caught:
        fly_mission(file)
    problems = [str(problem) for problem in caught.value.problems]
    assert any(each.startswith(f"{file}:{line}:{column}: ") and words in each for each in problems), problems


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(f"{HEAD}do:\n  - {{robot: a, command: {{}}}}\nexpect:\n  - {{robot: b, value: z, equals: 1}}\n")
    with pytest.raises(MissionError) as caught:
        fly_mission(file)
    assert [problem.line for problem in caught.value.problems] == [4, 6]


def test_a_robot_without_a_radio_or_a_scenario_without_the_robot_is_refused_before_the_start() -> None:
    alone = scenario(robots={"drone": bare(start={"map_pose": {"x": 9, "y": 9, "z": 5}})})
    with pytest.raises(MissionError, match="no radio between robots"):
        fly_mission(plan({"robot": "drone", "radio": "x"}), alone)
    with pytest.raises(MissionError, match="has no robot 'rover'"):
        fly_mission("patrol", alone)


def test_a_rover_is_not_put_into_an_obstacle() -> None:
    with pytest.raises(MissionError, match="is in an occupied cell"):
        fly_mission(plan({"robot": "rover", "teleport": {"x": 20, "y": 20}}), "obstacles_arena")


def test_an_actor_on_a_path_cannot_be_sent_elsewhere() -> None:
    walking = scenario(robots={"walker": {"model": "actor", "path": [[0, 5, 5], [9, 9, 5]]}})
    with pytest.raises(MissionError, match="walker follows its own path and cannot be put elsewhere"):
        fly_mission(plan({"robot": "walker", "teleport": {"x": 9, "y": 9}}), walking)
    with pytest.raises(MissionError, match="walker cannot follow waypoints, which needs other inputs; it has: none"):
        fly_mission(plan({"robot": "walker", "waypoints": [[9, 9]]}), walking)


def test_settings_are_checked_on_top_of_each_other_in_the_order_of_time() -> None:
    off, on = {"radio.metrics_hz": 0}, {"radio.metrics_hz": 2}
    taken = inputs_of(plan({"at": 1, "set": on}, {"set": off}))
    assert [change.scenario.radio.metrics_hz for _, change in taken] == [0, 2]
    with pytest.raises(MissionError):
        inputs_of(plan({"at": 1, "set": {"radio.metrics_hz": 61}}, {"set": off}))


def test_an_unknown_mission_is_answered_with_those_there_are() -> None:
    with pytest.raises(MissionError, match=r"did you mean 'patrol'.* there are: hover, obstacle_stop"):
        load_mission("patroll")
    with pytest.raises(MissionError, match="no such file"):
        load_mission("nowhere/patrol.yaml")
    for strange in ("", "a\0b.yaml", "x" * 5000):
        with pytest.raises(MissionError):
            load_mission(strange)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 100) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(
    [
        "at",
        "after",
        "name",
        "every",
        "times",
        "robot",
        "command",
        "teleport",
        "radio",
        "set",
        "pause",
        "waypoints",
        "topic",
        "value",
        "equals",
        "within",
        "at_least",
        "at_most",
        "from",
        "to",
        "speed",
        "timeout",
    ]
)
entries = st.lists(st.dictionaries(keys, values | st.sampled_from(["drone", "rover", [[1, 2]], {"v": 1}])), max_size=3)


def flown_or_refused(data: Mapping[str, Any]) -> bool:
    """Whether it was run: then to its end; otherwise every reason says something about a place in it."""
    try:
        outcome = fly_mission(data, QUIET)
    except MissionError as error:
        problems = error.problems
    else:
        assert outcome.sim.tick == 30
        return True
    assert problems
    assert all(problem.message and problem.path.startswith(("do", "expect")) for problem in problems)
    return False


@settings(max_examples=many(300, 30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.fixed_dictionaries({"duration": st.just(0.5)}, optional={"do": entries, "expect": entries}))
def test_whatever_is_written_is_run_to_its_end_or_refused_with_reasons(data: dict[str, Any]) -> None:
    is_empty = not data.get("do") and not data.get("expect")
    assert flown_or_refused(data) or not is_empty


@given(values)
def test_a_duration_is_a_number_of_seconds_or_refused(value: Any) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and 0 < value <= 86_400 * 365:
        assert load_mission({"duration": value}).duration == value
    else:
        with pytest.raises(MissionError, match="duration"):
            load_mission({"duration": value})


place = st.floats(1.0, 19.0)
good_entries = st.fixed_dictionaries({}, optional={"at": st.floats(0, 0.5)}).flatmap(
    lambda when: st.one_of(
        st.builds(lambda v: {**when, "robot": "rover", "command": {"v": v}}, st.floats(-9, 9)),
        st.builds(lambda v: {**when, "robot": "drone", "command": {"vx": v, "yaw_rate": v}}, st.floats(-9, 9)),
        st.builds(lambda x, y: {**when, "robot": "rover", "teleport": {"x": x, "y": y}}, place, place),
        st.builds(lambda x, y: {**when, "robot": "drone", "waypoints": [[x, y]]}, place, place),
        st.builds(lambda text: {**when, "robot": "rover", "radio": text}, st.text(max_size=5)),
        st.builds(lambda wind: {**when, "set": {"wind.gust_sigma": wind}}, st.floats(0, 3)),
    )
)
good_expectations = st.one_of(
    st.builds(lambda z: {"robot": "drone", "value": "z", "at_least": z}, st.floats(-5, 5)),
    st.builds(lambda n: {"topic": "/drone/odom", "value": "count", "at_most": n}, st.integers(0, 9)),
    st.builds(lambda n: {"radio": ["rover", "drone"], "value": "sent", "equals": n}, st.integers(0, 3)),
)


@settings(max_examples=many(60, 5), deadline=None)
@given(st.lists(good_entries, min_size=1, max_size=4), st.lists(good_expectations, min_size=1, max_size=3), st.data())
def test_a_good_mission_is_run_and_one_more_key_is_refused_by_name(do: Any, expect: Any, data: st.DataObject) -> None:
    mission = {"duration": 0.5, "do": do, "expect": expect}
    assert flown_or_refused(mission)
    part = data.draw(st.sampled_from(["do", "expect"]))
    index = data.draw(st.integers(0, len(mission[part]) - 1))
    worse = [{**entry, "zz": 1} if i == index else entry for i, entry in enumerate(mission[part])]
    with pytest.raises(MissionError, match=re.escape(f"{part}[{index}]") + ".*unknown key 'zz'"):
        load_mission({**mission, part: worse})


def until(first: float, length: float) -> dict[str, float]:
    return {"from": first, "to": min(first + length, 0.5)}


windowed_expectations = st.builds(until, st.floats(0, 0.4), st.floats(0.02, 0.5)).flatmap(
    lambda window: st.sampled_from(
        [
            {"robot": "drone", "value": "x", "at_most": 10.02, **window},
            {"topic": "/drone/odom", "value": "count", "equals": 2, **window},
            {"topic": "/drone/odom", "value": "rate_hz", "at_least": 9, **window},
            {"topic": "/drone/odom", "value": "pose.pose.position.x", "at_most": 10.02, **window},
        ]
    )
)


@settings(max_examples=many(60, 5), deadline=None)
@given(st.lists(good_entries, max_size=4), st.lists(good_expectations | windowed_expectations, max_size=4))
def test_a_mission_run_many_ticks_at_a_time_is_the_run_tick_by_tick(do: Any, expect: Any) -> None:
    mission = {"duration": 0.5, "do": do, "expect": expect}
    quick, slow = fly_mission(mission, QUIET), fly_mission(mission, QUIET, on_messages=lambda messages: None)
    assert quick.sim.digest() == slow.sim.digest()
    assert quick.violations == slow.violations


def test_a_pilot_is_not_needed_while_it_has_nothing_to_do_or_to_judge() -> None:
    do = {"at": 0.5, "robot": "drone", "waypoints": [[15, 10]]}
    expect = (
        {"topic": "/drone/odom", "value": "count", "equals": 1, "from": 0.2, "to": 0.3},
        {"robot": "rover", "value": "x", "equals": 5, "at": 0.4},
    )
    sim = microsim.Simulation(QUIET)
    pilot = MissionPilot(sim, plan(do, expect=expect, duration=1.0))
    pilot(sim.step(0))
    called = []
    while sim.tick < 36:
        pilot(sim.step(pilot.ticks_to_run(60)))
        called.append(sim.tick)
    assert called == [11, 17, 18, 23, 24, 30, 33, 36]  # then at the rate of the follower
    assert pilot.violations() == []


# ---- shipped missions and files -------------------------------------------------------------------------------------


def test_the_five_missions_are_shipped_each_with_a_sentence_about_it() -> None:
    assert mission_names() == ["hover", "obstacle_stop", "patrol", "radio_ping", "team_task"]
    for name in mission_names():
        mission = load_mission(name)
        assert mission.name == name
        assert mission.expect
        assert mission_file(name).read_text(encoding="utf-8").startswith("# ")


def test_missions_and_scenarios_are_told_apart_by_their_keys() -> None:
    assert all(is_mission(mission_file(name)) for name in mission_names())
    assert not any(is_mission(scenario_file(name)) for name in scenario_names())
    assert not set(mission_names()) & set(scenario_names())


def test_a_mission_names_the_scenario_beside_it(tmp_path: Path) -> None:
    (tmp_path / "world.yaml").write_text("name: beside\nrobots: {drone: {}}\n")
    (tmp_path / "m.yaml").write_text("scenario: world.yaml\nseed: 77\nduration: 0.1\n")
    sim = fly_mission(tmp_path / "m.yaml").sim
    assert (sim.scenario.name, sim.seed, sim.tick) == ("beside", 77, 6)
    assert fly_mission(tmp_path / "m.yaml", "flat", seed=3).sim.seed == 3


def test_a_tap_sees_every_message() -> None:
    seen: list[Any] = []
    outcome = fly_mission(plan(duration=1), QUIET, on_messages=seen.extend)
    assert len(on_topic(seen, "/clock")) == outcome.sim.tick + 1 == 61


def test_a_mission_error_is_a_scenario_error_so_that_one_except_catches_both() -> None:
    assert issubclass(MissionError, ScenarioError)


# ---- the command line -----------------------------------------------------------------------------------------------


FAST = ("--rtf", "0", "--headless")


def test_run_ends_with_the_mission_and_is_good_when_all_is_as_expected() -> None:
    done = cli("run", "--mission", "obstacle_stop", *FAST, "--json")
    facts = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (facts["scenario"], facts["ticks"]) == ("obstacles_arena", 600)
    assert facts["mission"] == {"name": "obstacle_stop", "expectations": 5, "violations": [], "undecided": 0}


def test_a_violation_is_exit_code_1_and_a_sentence_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("duration: 1\nexpect:\n  - {robot: drone, value: z, at_least: 20}\n")
    done = cli("run", "flat", "--mission", "m.yaml", *FAST, "--digest", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["microsim: m.yaml:3:5: z of drone was 10 at 1.000 s; expected at least 20"]
    assert "mission     m: FAILED" in done.stdout
    assert len(done.stdout.splitlines()[-1]) == 64


def test_a_shorter_duration_leaves_expectations_open() -> None:
    done = cli("run", "flat", "--mission", "patrol", "--duration", "1", *FAST)
    assert done.returncode == 0
    assert "0 of 4 expectations met, 4 not judged" in done.stdout


def test_run_refuses_a_bad_mission_and_two_pilots(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("duration: 1\ndo: [{robot: x, command: {}}, {robot: y, command: {}}]\n")
    done = cli("run", "flat", "--mission", "m.yaml", *FAST, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("microsim: the mission has 2 problems:\n  m.yaml:2:14: do[0].robot: ")
    done = cli("run", "--mission", "hover", "--autopilot", *FAST)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--mission and --autopilot" in done.stderr


def test_validate_and_list_know_missions(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("scenario: flat\nduration: 1\ndo: [{robot: x, command: {}}]\n")
    done = cli("validate", "flat", "patrol", "m.yaml", "--json", cwd=tmp_path)
    good, also_good, bad = json.loads(done.stdout)
    assert done.returncode == 2
    assert (good["scenario"], also_good["mission"], bad["mission"]) == ("flat", "patrol", "m.yaml")
    assert [each["ok"] for each in (good, also_good, bad)] == [True, True, False]
    assert (bad["problems"][0]["line"], bad["problems"][0]["column"]) == (3, 14)
    assert list(json.loads(cli("list", "--json").stdout)["missions"]) == mission_names()


# ---- the documentation ----------------------------------------------------------------------------------------------


def test_every_key_and_value_is_explained_on_the_page() -> None:
    page = (ROOT / "docs" / "do/missions.md").read_text(encoding="utf-8")
    models = (Mission, *ACTIONS.values(), *EXPECTATIONS.values())
    words = {key for model in models for key in model.key_names()} | {*DERIVED, *TOPIC_VALUES, *mission_names()}
    assert not [word for word in sorted(words) if f"`{word}`" not in page and f"`{word}:" not in page]


@pytest.mark.skipif(not COMPILED, reason="slow without the compiler")
def test_the_mission_on_the_page_flies() -> None:
    page = (ROOT / "docs" / "do/missions.md").read_text(encoding="utf-8")
    text = page.split(":caption: first.yaml\n")[1].split("```")[0]
    from microsim.documents.yaml_text import read_yaml

    assert not fly_mission(load_mission(read_yaml(text, "first.yaml").data)).violations
