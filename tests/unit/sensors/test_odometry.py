"""Odometry: the truth without drift; with drift, errors that grow as told and a frame that makes up for them."""

import math

import numpy as np
import pytest

import microsim
from microsim.sensors import odometry
from microsim.sensors.odometry import map_to_odom
from tests.support import Probe, bare, decoded, many, on_topic, scenario


def moving(robot="drone", drift=None, hz=30, seed=1, **changes):
    pose = {"x": 100.0, "y": 100.0, "yaw": 0.4} | ({"z": 9.0} if robot == "drone" else {})
    odom = {"hz": hz} | ({"drift": drift} if drift is not None else {})
    return microsim.Simulation(
        scenario(
            seed=seed,
            map={"size_xy_cells": [200, 200]},
            frames={"per_robot_odom": drift is not None},
            robots={robot: bare(odom=odom, start={"map_pose": pose})},
            **changes,
        )
    )


def yaw_of(q):
    return math.atan2(2 * (q.w * q.z + q.x * q.y), 1 - 2 * (q.y * q.y + q.z * q.z))


def pose_of(message):
    p, q = message.pose.pose.position, message.pose.pose.orientation
    return np.array([p.x, p.y, p.z, yaw_of(q)])


def truth(sim, robot="drone"):
    state = sim.state(robot)
    return np.array([state.x, state.y, state.z, state.yaw])


@pytest.mark.parametrize("robot", ["drone", "rover"])
def test_without_drift_odometry_is_the_truth(robot):
    sim = moving(robot, hz=60)
    sim.command(
        robot, **({"vx": 1, "vy": 0.5, "vz": 0.2, "yaw_rate": 0.7} if robot == "drone" else {"v": 1, "omega": 0.7})
    )
    sim.step(0)
    for _ in range(100):
        message = decoded(sim.step(), f"/{robot}/odom")[0]
        assert pose_of(message) == pytest.approx(truth(sim, robot), abs=1e-14)
        q = message.pose.pose.orientation
        assert q.x == q.y == 0.0
        assert q.z * q.z + q.w * q.w == pytest.approx(1.0, abs=1e-15)


def test_velocity_is_over_ground_in_the_axes_of_the_body():
    sim = moving(wind={"world_xyz": [1.0, 0.0, 0.0]})
    sim.step(30)
    twist = decoded(sim.step(2), "/drone/odom")[-1].twist.twist
    assert (twist.linear.x, twist.linear.y) == pytest.approx((math.cos(0.4), -math.sin(0.4)), abs=1e-12)
    assert twist.angular.x == twist.angular.y == 0.0


def test_position_changes_by_the_velocity_of_the_tick():
    sim = moving("rover", hz=60)
    sim.command("rover", v=1.5, omega=0.8)
    before = pose_of(decoded(sim.step(60), "/rover/odom")[-1])
    after = decoded(sim.step(), "/rover/odom")[0]
    ahead = after.twist.twist.linear.x / 60.0
    assert math.dist(pose_of(after)[:2], before[:2]) == pytest.approx(ahead, rel=1e-3)


def test_frames_are_odom_and_base_link():
    message = decoded(moving().step(0), "/drone/odom")[0]
    assert (message.header.frame_id, message.child_frame_id) == ("odom", "drone/base_link")
    message = decoded(moving(drift={}).step(0), "/drone/odom")[0]
    assert message.header.frame_id == "drone/odom"


def test_covariances_are_diagonal_and_positive():
    message = decoded(moving().step(0), "/drone/odom")[0]
    for covariance in (message.pose.covariance, message.twist.covariance):
        matrix = covariance.reshape(6, 6)
        assert (np.diag(matrix) > 0).all()
        assert (matrix == np.diag(np.diag(matrix))).all()


# ---- drift


def final_errors(count, command, ticks, drift):
    """Odometry minus truth at the end of the same drive under many seeds, and the last message."""
    errors = []
    for seed in range(count):
        sim = moving(drift=drift, seed=seed)
        sim.command("drone", **command)
        message = decoded(sim.step(ticks), "/drone/odom")[-1]
        errors.append(pose_of(message) - truth(sim))
    return np.array(errors), message


def test_position_errs_by_its_drift_per_root_metre():
    """Straight ahead for about 19 m: each axis errs by position_per_m · sqrt(distance)."""
    errors, message = final_errors(many(100, 20), {"vx": 5.0}, 240, {"position_per_m": 0.1, "yaw_per_rad": 0.0})
    distance = 5.0 * (4.0 - 0.15)
    bound = 4.5 / math.sqrt(2 * 3 * len(errors))
    assert errors[:, :3].std() == pytest.approx(0.1 * math.sqrt(distance), rel=bound)
    assert np.abs(np.corrcoef(errors[:, :3].T) - np.eye(3)).max() < 4.5 / math.sqrt(len(errors))
    assert message.pose.covariance[0] == pytest.approx(0.01 * distance, rel=0.02)
    assert np.abs(errors[:, 3]).max() < 1e-12


def test_heading_errs_by_its_drift_per_root_radian():
    errors, message = final_errors(many(100, 20), {"yaw_rate": 1.5}, 240, {"position_per_m": 0.0, "yaw_per_rad": 0.05})
    turned = 1.5 * (4.0 - 0.15)
    heading = (errors[:, 3] + math.pi) % (2 * math.pi) - math.pi
    assert heading.std() == pytest.approx(0.05 * math.sqrt(turned), rel=4.5 / math.sqrt(2 * len(errors)))
    assert message.pose.covariance[35] == pytest.approx(0.0025 * turned, rel=0.1)


def test_covariance_grows_with_the_way_and_not_with_time():
    sim = moving(drift={"position_per_m": 0.1})
    standing = [m.pose.covariance[0] for m in decoded(sim.step(60), "/drone/odom")]
    sim.command("drone", vx=3.0)
    driving = [m.pose.covariance[0] for m in decoded(sim.step(120), "/drone/odom")]
    assert len(set(standing)) == 1
    assert (np.diff(driving) > 0).all()


def test_a_robot_that_stands_still_does_not_drift():
    sim = moving(drift={"position_per_m": 1.0, "yaw_per_rad": 1.0})
    poses = [pose_of(m) for m in decoded(sim.step(100), "/drone/odom")]
    assert all(pose == pytest.approx(poses[0], abs=0.0) for pose in poses)


def test_map_to_odom_to_base_link_is_the_true_pose():
    """REP-105: what odometry gets wrong, map → odom makes up for."""
    sim = moving(drift={"position_per_m": 0.2, "yaw_per_rad": 0.2}, hz=60)
    sim.command("drone", vx=3.0, vy=-1.0, vz=0.3, yaw_rate=0.8)
    sim.step(0)
    for _ in range(200):
        messages = sim.step()
        frames = {t.child_frame_id: t for t in decoded(messages, "/tf")[0].transforms}
        outer, inner = frames["drone/odom"].transform, frames["drone/base_link"].transform
        turn = yaw_of(outer.rotation)
        x, y = inner.translation.x, inner.translation.y
        found = (
            outer.translation.x + math.cos(turn) * x - math.sin(turn) * y,
            outer.translation.y + math.sin(turn) * x + math.cos(turn) * y,
            outer.translation.z + inner.translation.z,
        )
        assert found == pytest.approx(tuple(truth(sim)[:3]), abs=1e-9)
        assert abs(math.remainder(turn + yaw_of(inner.rotation) - sim.state("drone").yaw, 2 * math.pi)) < 1e-12
        odom = decoded(messages, "/drone/odom")[0].pose.pose
        assert (odom.position.x, odom.position.y, odom.position.z) == (x, y, inner.translation.z)
        assert frames["drone/odom"].header.frame_id == "map"


def test_a_step_is_as_long_and_as_far_ahead_as_it_was_whatever_the_heading_has_drifted_to():
    """Dead reckoning errs in where it is and whither it looks, not in what the robot did in its own axes."""
    sim = moving(drift={"position_per_m": 0.0, "yaw_per_rad": 1.0}, hz=60)
    sim.command("drone", vx=3.0, vy=-1.0, vz=0.3, yaw_rate=1.0)
    sim.step(60)
    before, true_before = pose_of(decoded(sim.step(), "/drone/odom")[0]), truth(sim)
    assert abs(math.remainder(before[3] - true_before[3], 2 * math.pi)) > 0.05
    for _ in range(60):
        after, true_after = pose_of(decoded(sim.step(), "/drone/odom")[0]), truth(sim)
        step = complex(*(after - before)[:2]) * np.exp(-1j * before[3])
        true_step = complex(*(true_after - true_before)[:2]) * np.exp(-1j * true_before[3])
        assert step == pytest.approx(true_step, abs=1e-9)
        before, true_before = after, true_after


def test_drift_does_not_depend_on_how_often_odometry_is_sent():
    slow, fast = (moving(drift={"position_per_m": 0.2}, hz=hz) for hz in (1, 60))
    for sim in (slow, fast):
        sim.command("drone", vx=3.0, yaw_rate=0.5)
        messages = sim.step(60)
        sim.last = on_topic(messages, "/drone/odom")[-1].cdr
    assert slow.last == fast.last


def test_without_drift_nothing_is_kept_up_from_tick_to_tick():
    """The pose is the true one whatever the memory holds, the variances do not grow, and the odom frame is the map."""
    probe, motion = Probe(odometry.SENSOR), moving()._schedule.worlds.motions["drone"]
    assert not odometry.SENSOR.tracker.applies(probe.context.settings)
    probe.memory[:] = 77.0
    reading = probe.sample(motion)
    assert reading[:3].tolist() == [100.0, 100.0, 9.0]
    assert reading[13:].tolist() == [1e-4, 0.0, 1e-4, 0.0, 0.0, 1e-4, 1e-4, 1e-4, 1e-4]
    assert probe.call(map_to_odom, motion).tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert (probe.memory == 77.0).all()


# ---- honest covariances


def final_nees(seeds, seconds, drift):
    """Normalised squared error of x, y and yaw per degree of freedom, over many seeds."""
    found = []
    for seed in range(seeds):
        sim = moving("rover", drift=drift, seed=seed, hz=1, physics_hz=30)
        message = None
        for leg in range(seconds // 10):  # curves and straights
            sim.command("rover", v=1.0, omega=(0.0, 0.4, -0.4)[leg % 3])
            message = decoded(sim.step(300), "/rover/odom")[-1]
        error = pose_of(message) - truth(sim, "rover")
        error = np.array([error[0], error[1], (error[3] + math.pi) % (2 * math.pi) - math.pi])
        covariance = message.pose.covariance.reshape(6, 6)[np.ix_([0, 1, 5], [0, 1, 5])]
        assert np.allclose(covariance, covariance.T)
        found.append(error @ np.linalg.solve(covariance, error) / 3.0)
    return float(np.mean(found))


@pytest.mark.parametrize("seconds", [60, 120])
@pytest.mark.parametrize("drift", [{}, {"position_per_m": 0.03, "yaw_per_rad": 0.05}])
def test_the_stated_covariance_is_honest_over_many_seeds(seconds, drift):
    """NEES per degree of freedom is 1; without the heading's share it was 18 after 60 s."""
    seeds = many(60, 25)
    assert final_nees(seeds, seconds, drift) == pytest.approx(1.0, abs=4.0 * math.sqrt(2.0 / (3 * seeds)))


def test_an_error_of_heading_becomes_one_of_position():
    sim = moving("rover", drift={"position_per_m": 0.0, "yaw_per_rad": 0.05}, hz=60)
    sim.command("rover", v=0.0, omega=1.0)
    sim.step(60)
    sim.command("rover", v=1.5)
    sim.step(30)
    before = decoded(sim.step(60), "/rover/odom")
    after = decoded(sim.step(240), "/rover/odom")[-1]
    start = before[-1].pose.covariance.reshape(6, 6)
    found = after.pose.covariance.reshape(6, 6)
    way = pose_of(after)[:2] - pose_of(before[-1])[:2]
    sideways = np.array([-way[1], way[0]]) / np.linalg.norm(way)
    grown = sideways @ (found - start)[:2, :2] @ sideways
    assert found[5, 5] == pytest.approx(start[5, 5], rel=1e-3)
    assert grown > 0.5 * (found[5, 5] - odometry.POSE_VARIANCE) * np.linalg.norm(way) ** 2
    assert sideways @ found[:2, 5] > 0.0


def test_velocities_integrate_to_the_drifting_pose():
    sim = moving("rover", drift={"position_per_m": 0.05, "yaw_per_rad": 0.05}, hz=60)
    sim.step(1)
    sim.command("rover", v=1.5, omega=0.3)
    messages = decoded(sim.step(300), "/rover/odom")
    x, y, _, yaw = pose_of(messages[0])
    for message in messages[1:]:
        twist = message.twist.twist
        yaw += twist.angular.z / 60.0
        x += (math.cos(yaw) * twist.linear.x - math.sin(yaw) * twist.linear.y) / 60.0
        y += (math.sin(yaw) * twist.linear.x + math.cos(yaw) * twist.linear.y) / 60.0
    drifted, true = pose_of(messages[-1]), truth(sim, "rover")
    assert math.dist((x, y), drifted[:2]) < 0.05
    assert math.dist(true[:2], drifted[:2]) > 0.05


def test_the_stated_variance_of_the_twist_is_honest():
    sim = moving("rover", drift={"position_per_m": 0.05, "yaw_per_rad": 0.05}, hz=60)
    sim.command("rover", v=1.5, omega=0.5)
    sim.step(120)
    errors = []
    for _ in range(many(600, 300)):
        message, state = decoded(sim.step(), "/rover/odom")[-1], sim.state("rover")
        twist, covariance = message.twist.twist, message.twist.covariance
        errors.append((twist.linear.x - state.v) / math.sqrt(covariance[0] - odometry.TWIST_VARIANCE))
        errors.append((twist.angular.z - state.omega) / math.sqrt(covariance[35] - odometry.TWIST_VARIANCE))
    assert np.std(errors) == pytest.approx(1.0, rel=0.15)


# ---- frames


def test_an_odom_frame_may_start_where_the_robot_starts():
    robot = bare(odom={"hz": 60, "starts_at_zero": True}, start={"map_pose": {"x": 50.0, "y": 40.0, "yaw": 0.4}})
    world = scenario(map={"size_xy_cells": [99, 99]}, frames={"per_robot_odom": True}, robots={"rover": robot})
    sim = microsim.Simulation(world)
    first = decoded(sim.step(0), "/rover/odom")[0]
    assert pose_of(first) == pytest.approx(np.zeros(4), abs=1e-12)
    sim.command("rover", v=1.0)
    messages = sim.step(120)
    x, y = pose_of(decoded(messages, "/rover/odom")[-1])[:2]
    assert (x, abs(y) < 1e-9) == (pytest.approx(math.dist(truth(sim, "rover")[:2], (50.0, 40.0))), True)
    frame = next(t for t in decoded(messages, "/tf")[-1].transforms if t.child_frame_id == "rover/odom").transform
    assert (frame.translation.x, frame.translation.y) == pytest.approx((50.0, 40.0), abs=1e-9)


@pytest.mark.parametrize(
    ("frames", "children"),
    [
        ({}, ["rover/odom", "rover/base_link"]),
        ({"publish_map_to_odom": False}, ["rover/base_link"]),
        ({"publish_odom_to_base": False}, ["rover/odom"]),
        ({"publish_map_to_odom": False, "publish_odom_to_base": False}, []),
    ],
)
def test_transforms_can_be_left_to_others(frames, children):
    world = scenario(frames={"per_robot_odom": True, **frames}, robots={"rover": bare(odom={"hz": 30})})
    sim = microsim.Simulation(world)
    assert [t.child_frame_id for t in decoded(sim.step(10), "/tf")[-1].transforms] == children
    x, y = sim.frame_poses()["rover/base_link"][1][:2]  # poses may still be given in these frames
    assert (x, y) == pytest.approx(truth(sim, "rover")[:2])


def test_starting_at_zero_needs_a_frame_of_its_own():
    with pytest.raises(microsim.ScenarioError, match="start at zero only in a frame of its own"):
        microsim.load_scenario(scenario(robots={"rover": bare(odom={"starts_at_zero": True})}))
