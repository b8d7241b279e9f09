"""The core of `robot_simulator`: states, commands, places, noise, messages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.errors import UsageError
from microsim.messages.outbox import Message
from microsim.parts.ros2.node_parameters import changed, declarations
from microsim.parts.small_nodes.robot_simulator_node import PlanarPose
from microsim.parts.small_nodes.robot_simulator_settings import RobotSimulatorSettings
from tests.navigation import Hand, yaw_of
from tests.support import ks_distance, many, stamp_ns

# §4 of the document: name, type, default
PARAMETERS = {
    "cycle_hz": 10.0,
    "max_linear_mps": 2.0,
    "max_angular_rps": 3.0,
    "enable_cmd_limit": True,
    "pose_noise_std_m": 0.0,
    "yaw_noise_std_deg": 0.0,
    "publish_tf": True,
    "frame_map": "map",
    "frame_odom": "odom",
    "frame_base": "base_link",
    "x0": 0.0,
    "y0": 0.0,
    "yaw0_deg": 0.0,
    "timer_publish_odom_ms": 100,
    "cmd_timeout_sec": 2.0,
}


def test_the_fifteen_parameters_have_the_documents_names_types_and_defaults():
    declared = {each.name: each.value for each in declarations(RobotSimulatorSettings())}
    for name, default in PARAMETERS.items():
        assert declared[name] == default
        assert type(declared[name]) is type(default), name
    assert list(declared)[3:18] == list(PARAMETERS)
    assert all(each.description for each in declarations(RobotSimulatorSettings()))


# ---- states ---------------------------------------------------------------------------------------------------------


def test_it_starts_idle_and_ignores_commands_with_an_info():
    hand = Hand()
    hand.core.command(0, 1.0, 0.5)
    hand.step(20)
    assert hand.core.state() == "IDLE"
    assert hand.core.odometry() == (0.0, 0.0, 0.0)
    assert hand.levels("/cmd_vel: ignored") == ["info"]
    assert not hand.on("/odom") + hand.on("/amcl_pose") + hand.on("/tf")
    assert hand.on("/diagnostics")[0].status[0].message == "IDLE"


def test_somebody_who_gives_no_target_is_reminded_every_five_seconds_until_it_comes():
    hand = Hand()
    hand.step(110)
    assert hand.levels("waiting for a first") == ["info"] * 3
    hand.start()
    hand.step(200)
    assert hand.levels("waiting for a first") == ["info"] * 3


def test_the_first_target_fixes_the_place_and_later_ones_do_not():
    hand = Hand()
    hand.start(3.0, -2.0, 1.0)
    assert hand.core.state() == "ACTIVE"
    assert hand.core.pose() == pytest.approx((3.0, -2.0, 1.0), abs=1e-12)
    hand.core.target(0, PlanarPose(9.0, 9.0, 0.0))
    assert hand.core.pose() == pytest.approx((3.0, -2.0, 1.0), abs=1e-12)
    assert hand.levels("/active_target:") == ["info", "info"]


def test_odometry_starts_at_x0_y0_yaw0_while_the_map_shows_the_first_target():
    hand = Hand(x0=5.0, y0=6.0, yaw0_deg=90.0)
    hand.start(-1.0, 2.0, 0.3)
    assert hand.core.odometry() == pytest.approx((5.0, 6.0, math.pi / 2))
    assert hand.core.pose() == pytest.approx((-1.0, 2.0, 0.3))
    hand.core.command(0, 1.0, 0.0)
    hand.step(10)
    assert hand.core.odometry() == pytest.approx((5.0, 7.0, math.pi / 2))
    assert hand.core.pose() == pytest.approx((-1.0 + math.cos(0.3), 2.0 + math.sin(0.3), 0.3))


@pytest.mark.parametrize(
    ("hz", "timeout", "ticks"), [(10.0, 2.0, 20), (10.0, 0.25, 2), (30.0, 0.1, 3), (1000.0, 0.0015, 1)]
)
def test_a_command_holds_for_the_timeout_and_not_a_tick_longer(hz, timeout, ticks):
    """It is exceeded when more than the timeout has passed: a command moves the robot floor(timeout · hz) ticks."""
    hand = Hand(cycle_hz=hz, cmd_timeout_sec=timeout)
    hand.start()
    hand.core.command(0, 1.0, 0.0)
    hand.step(ticks)
    assert hand.core.state() == "ACTIVE"
    assert hand.core.odometry().x == pytest.approx(ticks / hz)
    hand.step()
    assert hand.core.state() == "TIMEOUT_STOP"
    assert hand.core.velocity() == (0.0, 0.0)
    assert hand.core.odometry().x == pytest.approx(ticks / hz)
    assert hand.levels("TIMEOUT_STOP") == ["warn"]
    hand.step(50)
    assert hand.levels("TIMEOUT_STOP") == ["warn"]


def test_with_a_timeout_shorter_than_a_cycle_a_command_still_acts_for_one():
    hand = Hand(cmd_timeout_sec=0.001)
    hand.start()
    hand.core.command(0, 1.0, 0.0)
    hand.step()
    assert hand.core.odometry().x == pytest.approx(0.1)
    assert hand.core.state() == "ACTIVE"
    hand.step()
    assert (hand.core.state(), hand.core.velocity()) == ("TIMEOUT_STOP", (0.0, 0.0))


def test_the_timeout_counts_from_the_latest_command_and_without_any_from_the_target():
    hand = Hand()
    hand.start()
    hand.step(20)
    assert hand.core.state() == "ACTIVE"
    hand.core.command(0, 0.5, 0.0)
    hand.step(15)
    hand.core.command(0, 0.5, 0.0)
    hand.step(20)
    assert hand.core.state() == "ACTIVE"
    hand.step()
    assert hand.core.state() == "TIMEOUT_STOP"
    silent = Hand()
    silent.start()
    silent.step(21)
    assert silent.core.state() == "TIMEOUT_STOP"


def test_a_stop_is_published_at_once_even_when_odometry_is_not_due():
    hand = Hand(timer_publish_odom_ms=1000, cmd_timeout_sec=0.45)
    hand.start()
    hand.core.command(0, 1.0, 0.2)
    hand.step(5)
    speeds = [(stamp_ns(each.header) // 10**6, each.twist.twist.linear.x) for each in hand.on("/odom")]
    assert speeds == [(100, 1.0), (500, 0.0)]  # the change to ACTIVE, then the stop
    assert hand.on("/odom")[-1].twist.twist.angular.z == 0.0


def test_a_fresh_command_after_a_timeout_resumes():
    hand = Hand()
    hand.start()
    hand.step(21)
    assert hand.core.state() == "TIMEOUT_STOP"
    hand.core.command(0, 1.0, 0.0)
    assert hand.core.state() == "ACTIVE"
    hand.step(10)
    assert hand.core.odometry().x == pytest.approx(1.0)


def test_without_auto_resume_only_a_new_target_ends_the_stop():
    hand = Hand(auto_resume=False)
    hand.start()
    hand.step(21)
    hand.core.command(0, 1.0, 0.0)
    hand.step(5)
    assert (hand.core.state(), hand.core.odometry().x) == ("TIMEOUT_STOP", 0.0)
    assert hand.levels("auto_resume") == ["info"]
    hand.core.target(0, PlanarPose(5.0, 0.0, 0.0))
    assert hand.core.state() == "ACTIVE"
    hand.step(3)
    assert hand.core.odometry().x == 0.0  # the old command is gone
    hand.core.command(0, 1.0, 0.0)
    hand.step(10)
    assert hand.core.odometry().x == pytest.approx(1.0)


EVENTS = st.lists(st.sampled_from(["command", "target", "external", "initial", "nan", "step", "long"]), max_size=30)


@settings(max_examples=many(60))
@given(events=EVENTS, auto_resume=st.booleans())
def test_the_state_machine_agrees_with_a_second_one(events, auto_resume):
    """An independent reading of §6: a clock, a state, nothing else."""
    hand = Hand(auto_resume=auto_resume)
    state, silence = "IDLE", 0
    for event in events:
        if event == "command":
            hand.core.command(0, 0.1, 0.0)
            if state == "ACTIVE" or (state == "TIMEOUT_STOP" and auto_resume):
                state, silence = "ACTIVE", 0
        elif event == "nan":
            hand.core.command(0, math.nan, 0.0)
        elif event == "target":
            hand.start(1.0)
            if state == "IDLE" or (state == "TIMEOUT_STOP" and not auto_resume):
                state, silence = "ACTIVE", 0
        elif event == "external":
            hand.core.external_pose(0, PlanarPose(1.0, 2.0, 3.0))
        elif event == "initial":
            hand.core.initial_pose(0, PlanarPose(1.0, 2.0, 3.0))
            state, silence = "ACTIVE", 0
        else:
            ticks = 21 if event == "long" else 1
            hand.step(ticks)
            silence += ticks
            if state == "ACTIVE" and silence > 20:
                state = "TIMEOUT_STOP"
        assert hand.core.state() == state


# ---- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "limited", "expected"),
    [
        ((5.0, -9.0), True, (2.0, -3.0)),
        ((-5.0, 9.0), True, (-2.0, 3.0)),
        ((2.0, 3.0), True, (2.0, 3.0)),
        ((1.5, -0.5), True, (1.5, -0.5)),
        ((5.0, -9.0), False, (5.0, -9.0)),
    ],
)
def test_commands_are_clipped_to_the_limits_when_these_are_on(given_, limited, expected):
    hand = Hand(enable_cmd_limit=limited)
    hand.start()
    hand.core.command(0, *given_)
    hand.step()
    assert hand.core.velocity() == expected
    twist = hand.on("/odom")[-1].twist.twist
    assert (twist.linear.x, twist.angular.z) == expected


def test_limits_that_change_hold_for_the_command_in_force_too():
    hand = Hand()
    hand.start()
    hand.core.command(0, 2.0, 0.0)
    hand.core.configure(RobotSimulatorSettings(max_linear_mps=0.5))
    hand.step()
    assert hand.core.velocity() == (0.5, 0.0)
    hand.core.configure(RobotSimulatorSettings(max_linear_mps=1.5))
    hand.step()
    assert hand.core.velocity() == (1.5, 0.0)


@pytest.mark.parametrize("bad", [(math.nan, 0.0), (0.0, math.nan), (math.inf, 0.0), (0.0, -math.inf), (1e300, 0.0)])
def test_what_is_no_velocity_is_an_error_and_changes_nothing(bad):
    hand = Hand(enable_cmd_limit=False)
    hand.start()
    hand.core.command(0, 1.0, 0.0)
    hand.step(15)
    hand.core.command(0, *bad)
    assert hand.levels("is not a velocity") == ["error"]
    hand.step(5)
    assert hand.core.velocity() == (1.0, 0.0)
    hand.step()  # 2.1 s after the good one: a bad one is no sign of life
    assert hand.core.state() == "TIMEOUT_STOP"
    assert hand.core.figures()["bad_commands"] == "1"


@pytest.mark.parametrize(
    "bad",
    [
        PlanarPose(math.nan, 0.0, 0.0),
        PlanarPose(0.0, math.inf, 0.0),
        PlanarPose(0.0, 0.0, math.nan),
        PlanarPose(1e12, 0.0, 0.0),
    ],
)
def test_what_is_no_pose_is_an_error_and_changes_nothing(bad):
    hand = Hand()
    hand.core.target(0, bad)
    hand.core.initial_pose(0, bad)
    assert hand.core.state() == "IDLE"
    hand.start()
    hand.core.external_pose(0, bad)
    assert hand.core.pose() == (0.0, 0.0, 0.0)
    assert hand.levels("is not a pose") == ["error"] * 3


# ---- motion ---------------------------------------------------------------------------------------------------------


def test_motion_is_eulers_step_with_the_heading_before_it():
    hand = Hand(cycle_hz=10.0)
    hand.start()
    hand.core.command(0, 1.0, 0.5)
    x = y = yaw = 0.0
    for _ in range(20):
        hand.step()
        x, y, yaw = x + math.cos(yaw) * 0.1, y + math.sin(yaw) * 0.1, yaw + 0.05
        assert hand.core.odometry() == pytest.approx((x, y, yaw), abs=1e-12)


def test_a_circle_closes_within_eulers_error():
    hand = Hand(cycle_hz=1000.0, cmd_timeout_sec=100.0)
    hand.start()
    hand.core.command(0, 1.0, math.pi / 2)  # once around in 4 s, radius 2/π
    hand.step(4000)
    assert math.hypot(hand.core.odometry().x, hand.core.odometry().y) < 1e-9  # Euler's polygon closes too
    assert hand.core.odometry().yaw == pytest.approx(0.0, abs=1e-9)


@settings(max_examples=many(30))
@given(yaw=st.floats(-math.pi, math.pi), omega=st.floats(-3.0, 3.0), ticks=st.integers(1, 200))
def test_the_heading_stays_within_pi_and_is_the_sum_of_turns(yaw, omega, ticks):
    hand = Hand(cmd_timeout_sec=1000.0)
    hand.start(0.0, 0.0, yaw)
    hand.core.command(0, 0.0, omega)
    hand.step(ticks)
    found = hand.core.pose().yaw
    assert abs(found) <= math.pi
    assert math.remainder(found - (yaw + omega * 0.1 * ticks), 2.0 * math.pi) == pytest.approx(0.0, abs=1e-9)


def test_a_turn_past_pi_wraps_to_minus_pi():
    hand = Hand()
    hand.start(0.0, 0.0, math.pi - 0.05)
    hand.core.command(0, 0.0, 1.0)
    hand.step()
    assert hand.core.pose().yaw == pytest.approx(-math.pi + 0.05)
    assert yaw_of(hand.on("/amcl_pose")[-1].pose.pose.orientation) == pytest.approx(-math.pi + 0.05)


def test_acceleration_and_jerk_limits_act_on_the_robot():
    ramp = Hand(max_linear_accel=0.5, max_angular_accel=1.0, cmd_timeout_sec=100.0)
    ramp.start()
    ramp.core.command(0, 2.0, 1.0)
    for tick in range(1, 60):
        ramp.step()
        assert ramp.core.velocity() == pytest.approx((min(0.05 * tick, 2.0), min(0.1 * tick, 1.0)), abs=1e-12)
    smooth = Hand(max_linear_jerk=0.5, cmd_timeout_sec=100.0)
    smooth.start()
    smooth.core.command(0, 2.0, 0.0)
    speeds = []
    for _ in range(60):
        smooth.step()
        speeds.append(smooth.core.velocity()[0])
    assert max(abs(np.diff(np.diff([0.0, 0.0, *speeds])))) <= 0.5 * 0.1 * 0.1 + 1e-12
    assert speeds[-1] == 2.0


def test_with_limits_on_a_timeout_brakes_within_them():
    hand = Hand(max_linear_accel=1.0)
    hand.start()
    hand.core.command(0, 1.0, 0.0)
    hand.step(20)
    hand.step(5)
    assert (hand.core.state(), hand.core.velocity()[0]) == ("TIMEOUT_STOP", pytest.approx(0.5))
    hand.step(6)
    assert hand.core.velocity()[0] == 0.0


def test_a_turn_radius_limits_the_curvature_as_of_a_car():
    hand = Hand(min_turn_radius_m=2.0)
    hand.start()
    hand.core.command(0, 0.0, 1.0)
    hand.step()
    assert hand.core.velocity() == (0.0, 0.0)
    hand.core.command(0, -1.0, 3.0)
    hand.step()
    assert hand.core.velocity() == (-1.0, 0.5)
    hand.core.command(0, 1.0, 0.1)
    hand.step()
    assert hand.core.velocity() == (1.0, 0.1)


@settings(max_examples=many(30))
@given(
    radius=st.floats(0.2, 5.0),
    alpha=st.floats(0.1, 5.0),
    jerk=st.sampled_from([0.0, 1.0]),
    commands=st.lists(st.tuples(st.floats(-2.0, 2.0), st.floats(-3.0, 3.0)), min_size=1, max_size=8),
)
def test_no_curve_is_tighter_than_the_turn_radius_whatever_else_is_limited(radius, alpha, jerk, commands):
    hand = Hand(min_turn_radius_m=radius, max_angular_accel=alpha, max_angular_jerk=jerk, max_linear_accel=3.0)
    hand.start()
    for command in commands:
        hand.core.command(0, *command)
        for _ in range(5):
            hand.step()
            v, omega = hand.core.velocity()
            assert abs(omega) * radius <= abs(v) * (1.0 + 1e-12)


# ---- places ---------------------------------------------------------------------------------------------------------

POSES = st.builds(PlanarPose, st.floats(-50.0, 50.0), st.floats(-50.0, 50.0), st.floats(-3.1, 3.1))


@settings(max_examples=many(40))
@given(first=POSES, second=POSES)
def test_an_external_pose_moves_the_odom_frame_and_not_the_odometry(first, second):
    hand = Hand(tf_tree="map_odom_base")
    hand.start(*first)
    hand.core.command(0, 1.0, 0.7)
    hand.step(7)
    odometry, place = hand.core.odometry(), hand.core.place()
    hand.core.external_pose(0, second)
    assert hand.core.odometry() == odometry
    assert hand.core.place() == place  # localisation may err; the robot is where it is
    assert hand.core.pose() == pytest.approx(second, abs=1e-9)
    hand.step()
    map_odom, odom_base = hand.on("/tf")[-1].transforms
    yaw = yaw_of(map_odom.transform.rotation)
    t, b = map_odom.transform.translation, odom_base.transform.translation
    chained = (t.x + math.cos(yaw) * b.x - math.sin(yaw) * b.y, t.y + math.sin(yaw) * b.x + math.cos(yaw) * b.y)
    assert chained == pytest.approx(hand.core.pose()[:2], abs=1e-9)


@pytest.mark.parametrize("late_ticks", [0, 1, 7, 20])
def test_a_late_localiser_that_is_right_does_not_pull_a_moving_robot_back(late_ticks):
    hand = Hand()
    hand.start(2.0, 1.0, 0.5)
    hand.core.command(0, 1.0, 0.8)
    seen = []
    for _ in range(20):
        hand.step()
        seen.append((hand.core.pose(), hand.core.clock.time_ns(hand.core.tick)))
    expected = hand.core.pose()
    pose, stamp = seen[max(len(seen) - 1 - late_ticks, 0)]
    hand.core.external_pose(0, pose, stamp)
    assert hand.core.pose() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("back", [0, 3])
def test_a_pose_stamped_between_two_ticks_is_compared_with_where_the_robot_was_then(share, back):
    """At 10 Hz and 2 m/s, up to 0.2 m lie between ticks; without interpolation all of it would be a step forward."""
    hand = Hand()
    hand.start(1.0, 1.0, 0.3)
    hand.core.command(0, 2.0, 0.0)
    hand.step(15)
    tick = hand.core.tick - back
    seconds = 0.1 * (tick + share)
    true = PlanarPose(1.0 + 2.0 * seconds * math.cos(0.3), 1.0 + 2.0 * seconds * math.sin(0.3), 0.3)
    before = hand.core.pose()
    hand.core.external_pose(0, true, round(1e9 * seconds))
    assert hand.core.pose() == pytest.approx(before, abs=1e-8)


def test_a_pose_of_before_an_initial_pose_does_not_undo_it():
    hand = Hand()
    hand.start(1.0, 1.0)
    hand.step(15)
    stamp = hand.core.clock.time_ns(hand.core.tick - 2)
    hand.core.initial_pose(0, PlanarPose(8.0, 3.0, 1.0))
    hand.core.external_pose(0, PlanarPose(1.0, 1.0, 0.0), stamp)
    hand.step(2)
    hand.core.external_pose(0, PlanarPose(1.0, 1.0, 0.0), stamp)
    assert hand.core.pose() == pytest.approx((8.0, 3.0, 1.0))
    assert hand.levels("of before the robot was put elsewhere") == ["info"] * 2
    assert hand.core.figures()["stale_poses"] == "2"
    hand.core.external_pose(0, PlanarPose(8.5, 3.0, 1.0), hand.core.clock.time_ns(hand.core.tick - 1))
    assert hand.core.pose() == pytest.approx((8.5, 3.0, 1.0))


@pytest.mark.parametrize("stamp", [0, 5, 10**19 // 2, -3])
def test_a_pose_with_no_stamp_or_one_of_another_clock_counts_as_of_now(stamp):
    hand = Hand()
    hand.core.initial_pose(0, PlanarPose(0.0, 0.0, 0.0))
    hand.core.command(0, 1.0, 0.0)
    hand.step(60 if stamp == 5 else 10)  # the first tick was long ago
    hand.core.external_pose(0, PlanarPose(7.0, 7.0, 1.0), stamp)
    assert hand.core.pose() == pytest.approx((7.0, 7.0, 1.0))


def test_an_external_pose_before_the_first_target_is_ignored_with_an_info():
    hand = Hand()
    hand.core.external_pose(0, PlanarPose(5.0, 5.0, 0.0))
    assert hand.core.state() == "IDLE"
    assert hand.levels("/amcl_pose: ignored") == ["info"]


def test_an_initial_pose_puts_the_robot_at_rest_anywhere():
    hand = Hand()
    hand.core.initial_pose(0, PlanarPose(1.0, 2.0, 0.5))
    assert hand.core.state() == "ACTIVE"
    hand.core.command(0, 2.0, 0.0)
    hand.step(10)
    hand.core.initial_pose(0, PlanarPose(-4.0, 3.0, -1.0))
    assert hand.core.velocity() == (0.0, 0.0)
    hand.step(3)
    assert hand.core.pose() == pytest.approx((-4.0, 3.0, -1.0))
    assert hand.core.place() == pytest.approx((-4.0, 3.0, -1.0))
    assert hand.core.odometry().x == pytest.approx(2.0)  # odometry never jumps


# ---- messages -------------------------------------------------------------------------------------------------------


def test_without_noise_the_pose_is_exact_and_certain():
    hand = Hand()
    hand.start(1.0, 2.0, 0.0)
    hand.core.command(0, 1.0, 0.0)
    hand.step(10)
    message = hand.on("/amcl_pose")[-1]
    assert (message.pose.pose.position.x, message.pose.pose.position.y) == hand.core.pose()[:2]
    assert message.pose.pose.position.x == pytest.approx(2.0)
    assert not message.pose.covariance.any()


def test_noise_has_its_standard_deviation_and_leaves_the_rest_alone():
    count = many(20000, least=1000)
    hand = Hand(cycle_hz=1000.0, pose_noise_std_m=0.2, yaw_noise_std_deg=3.0, diagnostics_hz=0.0, seed=5)
    hand.start(10.0, 20.0, 1.0)
    hand.step(count)
    poses = [each.pose.pose for each in hand.on("/amcl_pose")]
    errors = {
        "x": ([pose.position.x - 10.0 for pose in poses], 0.2),
        "y": ([pose.position.y - 20.0 for pose in poses], 0.2),
        "yaw": ([yaw_of(pose.orientation) - 1.0 for pose in poses], math.radians(3.0)),
    }
    normal = np.vectorize(lambda value: 0.5 * (1.0 + math.erf(value / math.sqrt(2.0))))
    for name, (values, sigma) in errors.items():
        assert ks_distance(np.array(values) / sigma, normal) < 1.95, name
    assert abs(np.corrcoef(errors["x"][0], errors["y"][0])[0, 1]) < 4.0 / math.sqrt(count)
    covariance = hand.on("/amcl_pose")[-1].pose.covariance
    assert covariance[[0, 7, 35]] == pytest.approx([0.04, 0.04, math.radians(3.0) ** 2])
    assert hand.on("/odom")[-1].pose.pose.position.x == 0.0  # the odometer is perfect
    assert hand.on("/tf")[-1].transforms[0].transform.translation.x == 10.0  # and so is /tf


def test_another_seed_is_other_noise_and_another_robots_noise_is_its_own():
    def noise(seed, names=("",)):
        hand = Hand(pose_noise_std_m=1.0, seed=seed, robots=names)
        for robot in range(len(names)):
            hand.core.initial_pose(robot, PlanarPose(0.0, 0.0, 0.0))
        hand.step(3)
        return {name: [each.pose.pose.position.x for each in hand.on(f"/{name}/amcl_pose")] for name in names if name}

    assert noise(1, ("a", "b"))["a"] != noise(1, ("a", "b"))["b"]
    assert noise(1, ("a",))["a"] == noise(1, ("b", "a"))["a"]
    assert noise(2, ("a",))["a"] != noise(1, ("a",))["a"]


def test_poses_come_at_every_cycle_odometry_and_tf_at_their_own_period():
    hand = Hand(cycle_hz=50.0, timer_publish_odom_ms=100, cmd_timeout_sec=100.0)
    hand.start()
    hand.step(100)
    assert [stamp_ns(each.header) for each in hand.on("/amcl_pose")] == [20_000_000 * k for k in range(1, 101)]
    odom = [stamp_ns(each.header) // 10**6 for each in hand.on("/odom")]
    assert odom == [20, *range(100, 2001, 100)]  # once when it became ACTIVE
    assert [stamp_ns(each.transforms[0].header) // 10**6 for each in hand.on("/tf")] == odom


def test_odometry_faster_than_the_cycle_comes_at_every_cycle():
    hand = Hand(cycle_hz=7.3, timer_publish_odom_ms=1)
    hand.start()
    hand.step(10)
    assert len(hand.on("/odom")) == 10


@pytest.mark.parametrize("publish", [True, False])
def test_tf_holds_map_to_base_link_or_is_silent(publish):
    hand = Hand(publish_tf=publish)
    hand.start(1.0, 2.0, math.pi / 2)
    hand.step(5)
    assert len(hand.on("/tf")) == (5 if publish else 0)
    if publish:
        (transform,) = hand.on("/tf")[-1].transforms
        assert (transform.header.frame_id, transform.child_frame_id) == ("map", "base_link")
        assert transform.transform.translation.x == pytest.approx(1.0)
        assert transform.transform.rotation.z == pytest.approx(math.sin(math.pi / 4))


def test_tf_can_be_switched_while_it_runs():
    hand = Hand()
    hand.start()
    hand.step(2)
    hand.core.configure(RobotSimulatorSettings(publish_tf=False))
    hand.step(2)
    assert len(hand.on("/tf")) == 2
    hand.core.configure(RobotSimulatorSettings(publish_tf=True))
    hand.step(2)
    assert len(hand.on("/tf")) == 4


def test_frames_have_the_names_of_the_parameters():
    hand = Hand(frame_map="world", frame_odom="o", frame_base="b", tf_tree="map_odom_base")
    hand.start()
    hand.step()
    assert hand.on("/amcl_pose")[0].header.frame_id == "world"
    assert (hand.on("/odom")[0].header.frame_id, hand.on("/odom")[0].child_frame_id) == ("o", "b")
    assert [(each.header.frame_id, each.child_frame_id) for each in hand.on("/tf")[0].transforms] == [
        ("world", "o"),
        ("o", "b"),
    ]


def test_where_somebody_else_localises_tf_holds_odom_to_base_link_alone():
    hand = Hand(tf_tree="odom_base")
    hand.start(5.0, 5.0)
    hand.core.command(0, 1.0, 0.0)
    hand.step(10)
    (transform,) = hand.on("/tf")[-1].transforms
    assert (transform.header.frame_id, transform.child_frame_id) == ("odom", "base_link")
    assert transform.transform.translation.x == pytest.approx(1.0)


def test_topics_have_the_documents_types_and_quality():
    topics = Hand(scan_hz=1.0).core.sim.topics
    assert topics["/amcl_pose"][0] == "geometry_msgs/msg/PoseWithCovarianceStamped"
    assert topics["/odom"][0] == "nav_msgs/msg/Odometry"
    assert topics["/tf"][0] == "tf2_msgs/msg/TFMessage"
    quality = {name: (qos.depth, qos.reliable, qos.latched) for name, (_, qos) in topics.items()}
    assert quality["/amcl_pose"] == (1, True, False)
    assert quality["/odom"] == (10, True, False)


def test_diagnostics_show_the_state_machine_at_every_change_and_every_second():
    hand = Hand()
    hand.step(5)
    hand.start()
    hand.step(36)
    hand.core.command(0, 1.0, 0.0)
    hand.step(1)
    seen = [
        (stamp_ns(each.header) // 10**6, each.status[0].message, each.status[0].level)
        for each in hand.on("/diagnostics")
    ]
    assert seen == [
        (0, "IDLE", 0),
        (600, "ACTIVE", 0),
        (1000, "ACTIVE", 0),
        (2000, "ACTIVE", 0),
        (2600, "TIMEOUT_STOP", 1),
        (3000, "TIMEOUT_STOP", 1),
        (4000, "TIMEOUT_STOP", 1),
        (4200, "ACTIVE", 0),
    ]
    values = {pair.key: pair.value for pair in hand.on("/diagnostics")[-1].status[0].values}
    assert (values["state"], values["timeouts"], values["commands"]) == ("ACTIVE", "1", "1")
    assert Hand(diagnostics_hz=0.0).on("/diagnostics") == []


def test_robots_of_one_node_have_topics_of_their_own_and_do_not_touch_each_other():
    hand = Hand(robots=("left", "right"))
    hand.core.target(0, PlanarPose(0.0, 0.0, 0.0))
    hand.core.target(1, PlanarPose(5.0, 0.0, math.pi))
    hand.core.command(0, 1.0, 0.0)
    hand.step(10)
    assert hand.core.pose(0).x == pytest.approx(1.0)
    assert hand.core.pose(1).x == pytest.approx(5.0)
    hand.step(11)
    assert [hand.core.state(robot) for robot in (0, 1)] == ["TIMEOUT_STOP"] * 2
    assert {each.topic for each in hand.sent} == {
        *("/left/odom", "/left/amcl_pose", "/left/tf", "/right/odom", "/right/amcl_pose", "/right/tf", "/diagnostics")
    }
    assert [each.name for each in hand.on("/diagnostics")[-1].status] == [
        "robot_simulator: left",
        "robot_simulator: right",
    ]


def test_one_robot_among_a_hundred_moves_as_it_does_alone():
    alone, crowd = (
        Hand(robots=("r7",), seed=3, pose_noise_std_m=0.1),
        Hand(robots=tuple(f"r{i}" for i in range(100)), seed=3, pose_noise_std_m=0.1),
    )
    for hand, number in ((alone, 0), (crowd, 7)):
        hand.core.target(number, PlanarPose(1.0, 2.0, 3.0))
        hand.core.command(number, 1.1, -0.4)
        hand.step(40)

    def of_robot(messages: list[Message]) -> list[tuple[str, bytes]]:
        return [(each.topic, each.cdr) for each in messages if each.topic.startswith("/r7/")]

    assert of_robot(alone.sent) == of_robot(crowd.sent)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stop_distance_m": 2.0}, "slow_distance_m"),
        ({"scan_hz": 20.0}, "cycle_hz"),
        ({"robots": ("a", "a")}, "two robots"),
        ({"cycle_hz": 0.0}, "above 0"),
        ({"timer_publish_odom_ms": 0}, "at least 1"),
        ({"scan_range_min": 50.0}, "scan_range_max"),
        ({"robots": ("no name",)}, "match"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(change, said):
    with pytest.raises(UsageError, match=said) as refusal:
        changed(RobotSimulatorSettings(), change)
    assert next(iter(change)) in str(refusal.value)
