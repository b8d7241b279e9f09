"""The car: closed forms of the kinematic bicycle, its limits, the ground it stands on, and what stops it."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim.engine.components import Airflow
from microsim.engine.geodesy import tangent_plane
from microsim.engine.motion import AXES, X, Y, Z
from microsim.engine.world import Shape, World
from microsim.engine.worlds import Fleet, OneWorld, put_at, settle_on_ground
from microsim.errors import ScenarioError
from microsim.recording.bag_io import RecordOptions, open_bag
from microsim.recording.bag_replay import Replay
from microsim.recording.recorder import Recorder
from microsim.robots import car as bicycle
from microsim.robots.car import Bicycle
from microsim.scenario import load_scenario
from tests.support import bare, decoded, many, scenario

DT = 0.01
CAR, MODEL = Bicycle(), Bicycle.engine
BASE = CAR.wheelbase_m


def world(
    elevation: Any = None, cell: float = 0.5, obstacles: Any = (), west: float = -50.0, south: float = -40.0
) -> World:
    heights = np.zeros((160, 200)) if elevation is None else elevation
    return World(cell, heights, np.zeros(heights.shape, np.uint8), tuple(obstacles), (), west, south)


def one_world(
    ground: World, x: float = 0.0, y: float = 0.0, yaw: float = 0.0, cmd_timeout_s: float | None = None, **changes: Any
) -> OneWorld:
    car = CAR.model_copy(update={**changes, "cmd_timeout_s": cmd_timeout_s})
    state = np.zeros((MODEL.rows, 1))
    put_at(MODEL, state[:, 0], ground, x, y, 0.0, yaw)
    parameters = np.array([MODEL.parameters(car, Airflow(), DT)]).T.copy()
    fleet = Fleet(MODEL, ("ego",), state, parameters, np.zeros(1, np.int64))
    settle_on_ground(fleet, ground)
    return OneWorld(ground, DT, [fleet], tangent_plane(0.0, 0.0, 0.0))


def command(run: OneWorld, **values: float) -> None:
    run.command("ego", [values.get(name, 0.0) for name in MODEL.inputs])


def state(run: OneWorld) -> Any:
    rows = run.fleets[0].state[:, 0]
    return {name: float(rows[row]) for name, row in MODEL.state.items()}


def drive(run: OneWorld, ticks: int, start: int = 0) -> list[Any]:
    seen = []
    for tick in range(start, start + ticks):
        run.move(tick)
        seen.append(state(run))
    return seen


@given(st.floats(0.02, 0.6), st.sampled_from([-1.0, 1.0]), st.floats(0.5, 6.0))
@settings(max_examples=many(20, 3))
def test_a_held_steering_angle_gives_a_circle_of_radius_wheelbase_over_its_tangent(
    steering: float, side: float, speed: float
) -> None:
    run = one_world(world(west=-500.0, south=-400.0, cell=5.0))
    run.fleets[0].state[MODEL.row("steering")], run.fleets[0].state[MODEL.row("speed")] = side * steering, speed
    command(run, steering=side * steering, speed=speed)
    radius = BASE / math.tan(steering)
    for pose in drive(run, 500):
        assert math.hypot(pose["x"], pose["y"] - side * radius) == pytest.approx(radius, rel=1e-12)
        assert pose["yaw_rate"] == pytest.approx(side * speed / radius, rel=1e-9)
    travelled = 500 * DT * speed / radius
    assert math.cos(pose["yaw"] - side * travelled) == pytest.approx(1.0, abs=1e-12)


def test_full_throttle_is_uniform_acceleration_up_to_the_speed_limit() -> None:
    run = one_world(world(cell=5.0), max_acceleration=2.0, max_speed=6.0)
    command(run, throttle=1.0)
    poses = drive(run, 500)
    assert poses[199]["speed"] == pytest.approx(4.0, rel=1e-12)
    assert poses[199]["x"] == pytest.approx(0.5 * 2.0 * 2.0**2, rel=1e-12)
    assert poses[-1]["speed"] == 6.0
    assert poses[-1]["x"] == pytest.approx(9.0 + 6.0 * 2.0, rel=1e-12)


def test_a_brake_stops_within_v_squared_over_2a_and_never_drives_backward() -> None:
    run = one_world(world(cell=5.0))
    run.fleets[0].state[MODEL.row("speed")] = 9.0
    command(run, brake=1.0)
    poses = drive(run, 400)
    assert poses[-1]["speed"] == 0.0
    assert poses[-1]["x"] == pytest.approx(9.0**2 / (2 * 8.0), abs=0.5 * 8.0 * DT * DT)
    assert all(after["x"] >= before["x"] for before, after in pairwise(poses))


def test_a_wanted_speed_is_reached_and_held_also_backward_and_through_zero() -> None:
    run = one_world(world(cell=5.0))
    command(run, speed=4.0)
    assert drive(run, 200)[-1]["speed"] == 4.0
    command(run, speed=-2.0)
    poses = drive(run, 300)
    assert any(pose["speed"] == pytest.approx(0.0, abs=0.05) for pose in poses)
    assert poses[-1]["speed"] == -2.0
    command(run, speed=-50.0)
    assert drive(run, 300)[-1]["speed"] == -CAR.max_reverse_speed


def test_an_ackermann_acceleration_and_steering_rate_are_limits() -> None:
    run = one_world(world(cell=5.0))
    command(run, speed=9.0, acceleration=0.5, steering=0.5, steering_rate=0.1)
    pose = drive(run, 100)[-1]
    assert pose["speed"] == pytest.approx(0.5)
    assert pose["steering"] == pytest.approx(0.1)


def test_the_heading_over_a_steering_ramp_is_the_integral_of_its_tangent() -> None:
    """Steering w·t at speed v turns the car by -v / (wheelbase·w) · ln cos(w·t)."""
    run, speed, rate = one_world(world(cell=5.0)), 2.0, CAR.max_steering_rate
    run.fleets[0].state[MODEL.row("speed")] = speed
    command(run, steering=0.6, speed=speed)
    pose = drive(run, 70)[-1]
    assert pose["steering"] == pytest.approx(rate * 0.7)
    expected = -speed / (BASE * rate) * math.log(math.cos(rate * 0.7))
    assert pose["yaw"] == pytest.approx(expected, rel=0.02)  # the angle at the end of a tick holds over it
    run.fleets[0].state[MODEL.row("steering")] = -5.0
    command(run, steering=-9.0, speed=speed)
    assert min(each["steering"] for each in drive(run, 1)) <= -CAR.max_steering  # however it came there, it is led back


@given(st.floats(-0.4, 0.4), st.floats(-0.4, 0.4), st.floats(-math.pi, math.pi))
@settings(max_examples=many(30, 3))
def test_on_an_inclined_plane_the_car_stands_along_it(east: float, north: float, yaw: float) -> None:
    x, y = np.meshgrid(-50.0 + 0.5 * (np.arange(200) + 0.5), -40.0 + 0.5 * (np.arange(160) + 0.5))
    run = one_world(world(east * x + north * y), yaw=yaw)
    command(run, speed=3.0, steering=0.3)
    drive(run, 20)
    run.look()
    motion = run.motions["ego"]
    up = np.array(motion[AXES + 2 : AXES + 9 : 3])
    normal = np.array([-east, -north, 1.0]) / math.sqrt(1.0 + east * east + north * north)
    np.testing.assert_allclose(up, normal, atol=1e-9)
    assert motion[Z] == pytest.approx(east * motion[X] + north * motion[Y], abs=1e-9)


def test_on_a_slope_the_speed_is_that_along_the_ground() -> None:
    x, _ = np.meshgrid(-50.0 + 0.5 * (np.arange(200) + 0.5), np.zeros(160))
    run = one_world(world(0.75 * x))  # 3 up for 4 along
    run.fleets[0].state[MODEL.row("speed")] = 5.0
    command(run, speed=5.0)
    pose = drive(run, 100)[-1]
    assert (pose["x"], pose["z"]) == (pytest.approx(4.0, abs=1e-9), pytest.approx(3.0, abs=1e-9))


def hole(elevation: Any, i: slice, j: slice) -> Any:
    elevation[j, i] = np.nan
    return elevation


@pytest.mark.parametrize("speed", [1.0, 14.0])
def test_the_car_stops_at_the_edge_of_missing_ground_says_so_and_can_drive_back(speed: float) -> None:
    ground = world(hole(np.zeros((160, 200)), slice(150, 200), slice(0, 160)))  # from x = 25 on there is nothing
    run = one_world(ground)
    command(run, speed=speed)
    poses = drive(run, 3000)
    front = poses[-1]["x"] + CAR.length_m - CAR.rear_overhang_m
    assert 24.5 - 0.5 < front <= 25.0 - 0.5  # heights are known up to the middle of the last cell, used to its edge
    assert poses[-1]["speed"] == 0.0
    assert poses[-1]["blocked"] == bicycle.BY_MISSING_GROUND
    assert poses[-1]["contacts"] >= 1
    assert all(math.isfinite(pose["z"]) for pose in poses)
    command(run, speed=-2.0)
    assert drive(run, 200)[-1]["x"] < poses[-1]["x"] - 2.0
    assert state(run)["blocked"] == bicycle.FREE


@given(st.floats(-math.pi, math.pi), st.floats(-0.6, 0.6), st.floats(1.0, 12.0))
@settings(max_examples=many(15, 2))
def test_no_part_of_the_body_s_outline_enters_an_occupied_cell(yaw: float, steering: float, speed: float) -> None:
    boxes = [
        Shape("rectangle", 1, (10.0 * i, 10.0 * j), size=(2.0, 2.0), height_m=2.0) for i in (-1, 1) for j in (-1, 1)
    ]
    ground = world(obstacles=boxes)
    run = one_world(ground, yaw=yaw)
    command(run, speed=speed, steering=steering)
    last = drive(run, 300)[-1]
    for p in np.linspace(-CAR.rear_overhang_m, CAR.length_m - CAR.rear_overhang_m, 40):
        for q in (-0.5 * CAR.width_m, 0.5 * CAR.width_m):
            c, s = math.cos(last["yaw"]), math.sin(last["yaw"])
            x, y = last["x"] + c * p - s * q, last["y"] + s * p + c * q
            inside = min(max(abs(x - 10 * i) - 1.0, abs(y - 10 * j) - 1.0) for i in (-1, 1) for j in (-1, 1))
            assert inside > -0.26  # a corner of a cell may reach in between two points of the outline, not more


def test_a_car_put_down_half_over_the_map_s_edge_can_drive_in() -> None:
    run = one_world(world(), x=-49.9, y=0.0)
    command(run, speed=3.0)
    assert drive(run, 200)[-1]["x"] > -47.0


def test_a_command_times_out_after_its_ticks_into_an_emergency_stop_with_the_steering_held() -> None:
    run = one_world(world(cell=5.0), cmd_timeout_s=1.0)
    run.fleets[0].state[MODEL.row("speed")] = 10.0
    command(run, speed=10.0, steering=0.6, steering_rate=0.1)
    drive(run, 100, start=7)
    assert state(run)["emergency"] == 0.0
    held = state(run)
    assert held["speed"] == 10.0
    assert held["steering"] == pytest.approx(0.1)
    poses = drive(run, 400, start=107)
    assert all(pose["emergency"] == 1.0 for pose in poses)
    assert poses[99]["speed"] == pytest.approx(7.0)  # 3 m/s²
    assert poses[-1]["speed"] == 0.0
    assert all(pose["steering"] == held["steering"] for pose in poses)
    command(run, speed=2.0)
    assert drive(run, 90, start=507)[-1]["speed"] == pytest.approx(2.0)
    assert state(run)["emergency"] == 0.0


def test_many_ticks_at_once_are_as_many_single_ones_also_across_a_timeout() -> None:
    one, many_at_once = (one_world(world(cell=5.0), cmd_timeout_s=0.3) for _ in range(2))
    for run in (one, many_at_once):
        command(run, speed=5.0, steering=0.2)
    drive(one, 200)
    many_at_once.move(0, 200)
    np.testing.assert_array_equal(one.fleets[0].state, many_at_once.fleets[0].state)


@given(st.floats(-5.0, 5.0).filter(lambda v: abs(v) > 0.3), st.floats(-0.3, 0.3))
@settings(max_examples=many(20, 3))
def test_a_twist_becomes_the_steering_angle_that_turns_at_its_rate(forward: float, turn: float) -> None:
    inputs = bicycle.inputs_for_twist(CAR, forward, turn)
    assert forward * math.tan(inputs["steering"]) / BASE == pytest.approx(turn, abs=1e-9)


def car_scenario(**car: Any) -> dict[str, Any]:
    block = bare(odom={"hz": 20}, start={"map_pose": {"x": 40.0, "y": 40.0}}, **car)
    return scenario(
        physics_hz=100,
        map={"size_xy_cells": [80, 80], "elevation": {"generate": "hills", "seed": 3, "amplitude_m": 2.0}},
        robots={"ego": block},
    )


def wander(sim: Any, ticks: int) -> list[Any]:
    """Commands of every form, and none for long enough to time out."""
    sent = []
    while sim.tick < ticks:
        if sim.tick % 130 == 0:
            sim.command("ego", steering=0.1, speed=3.5)
        if sim.tick % 130 == 10:
            sim.command_twist("ego", (4.0, 0.0, 0.0), 0.37)
        if sim.tick % 130 == 20:
            sim.command("ego", steering=0.25, throttle=0.3)
        sent += sim.step(10)
    return sent


def test_frames_and_odometry_of_a_tilted_car_agree_with_its_state() -> None:
    sim = microsim.Simulation(car_scenario())
    messages = wander(sim, 300)
    now = sim.state("ego")
    assert abs(now.pitch) > 0.001
    (odom,) = decoded(messages, "/ego/odom")[-1:]
    pose, turn = odom.pose.pose.position, odom.pose.pose.orientation
    assert (pose.x, pose.y, pose.z) == (now.x, now.y, now.z)
    assert odom.child_frame_id == "base_link"
    nose = np.array([1 - 2 * (turn.y**2 + turn.z**2), 2 * (turn.x * turn.y + turn.z * turn.w)])
    assert math.atan2(nose[1], nose[0]) == pytest.approx(now.yaw, abs=1e-9)
    assert 2 * (turn.x * turn.z - turn.y * turn.w) == pytest.approx(-math.sin(now.pitch), abs=1e-9)
    (tf,) = decoded(messages, "/tf")[-1:]
    assert [(each.header.frame_id, each.child_frame_id) for each in tf.transforms] == [
        ("map", "odom"),
        ("odom", "base_link"),
    ]
    assert odom.twist.twist.linear.y == pytest.approx(0.0, abs=0.01)  # no slip, save the curve within a tick


def test_joint_states_tell_wheels_and_steering() -> None:
    sim = microsim.Simulation(car_scenario(joint_states={"hz": 100}, cmd_timeout_s=None))
    sim.command("ego", steering=0.3, speed=4.0)
    joints = decoded(sim.step(150), "/ego/joint_states")
    last, now = joints[-1], sim.state("ego")
    assert list(last.name) == list(bicycle.JOINTS)
    inner, outer = last.position[:2]
    assert outer < now.steering < inner
    centre = BASE / math.tan(now.steering)  # of the turn, to the left of the rear axle
    assert BASE / math.tan(inner) == pytest.approx(centre - 0.5 * CAR.track_m)
    assert BASE / math.tan(outer) == pytest.approx(centre + 0.5 * CAR.track_m)
    assert last.velocity[5] == pytest.approx(now.speed / CAR.wheel_radius_m)
    turned = [each.position[5] for each in joints]
    steps = [math.remainder(b - a, 2 * math.pi) for a, b in pairwise(turned)]
    assert sum(steps) * CAR.wheel_radius_m == pytest.approx(0.5 * 4.0**2 / 3.0 + 4.0 * (1.5 - 4.0 / 3.0), rel=1e-3)


def test_a_car_goes_on_bit_for_bit_from_a_snapshot_and_replays_from_a_recording(tmp_path: Any) -> None:
    sim = microsim.Simulation(car_scenario())
    with Recorder(tmp_path / "bag", sim, RecordOptions()) as recorder:
        recorder.on_messages(wander(sim, 250))
        middle = sim.snapshot()
        recorder.on_messages(wander(sim, 400))
        digest, rows = sim.digest(), sim.rows("ego")
    twin = microsim.Simulation(car_scenario())
    twin.restore(middle)
    wander(twin, 400)
    assert (twin.digest(), twin.rows("ego")) == (digest, rows)
    with Replay(open_bag(tmp_path / "bag")) as again:
        verdict = again.verify()
    assert verdict.is_identical, str(verdict)
    assert verdict.digest == digest


def test_two_cars_have_frames_of_their_own() -> None:
    far = {"start": {"map_pose": {"x": 60.0, "y": 60.0}}}
    sim = microsim.Simulation({**car_scenario(), "robots": {"ego": bare(), "other": bare(model="bicycle", **far)}})
    (tf,) = decoded(sim.step(0), "/tf")
    assert [each.child_frame_id for each in tf.transforms] == ["odom", "base_link", "other/base_link"]


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({"length_m": 3.0}, "expected length_m to be at least rear_overhang_m"),
        ({"max_steering": 1.6}, "max_steering"),
        ({"cmd_timeout_s": 0}, "cmd_timeout_s"),
        ({"frame_prefix": "Ego "}, "frame_prefix"),
        ({"max_omega": 1.0}, "max_omega"),
    ],
)
def test_a_car_that_cannot_be_is_refused_with_the_reason(block: Any, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        load_scenario({"robots": {"ego": block}})
