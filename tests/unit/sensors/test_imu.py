"""IMU: what an accelerometer and a gyro feel, in the axes they are mounted in."""

import math

import numpy as np
import pytest

import microsim
from microsim.engine.components import GRAVITY
from tests.support import bare, decoded, many, scenario

QUIET = {"gyro_sigma_rad_per_s": 0, "accel_sigma_m_per_s2": 0}


def carrying(robot="drone", physics_hz=100, wind=None, cmd_time_constant=None, **imu):
    pose = {"x": 10.0, "y": 10.0} | ({"z": 9.0} if robot == "drone" else {})
    block = bare(imu={"hz": physics_hz, **imu}, start={"map_pose": pose})
    if cmd_time_constant is not None:
        block["cmd_time_constant"] = cmd_time_constant
    return microsim.Simulation(scenario(physics_hz=physics_hz, robots={robot: block}, wind=wind or {}))


def feel(sim, ticks, robot="drone"):
    messages = decoded(sim.step(ticks), f"/{robot}/imu/data_raw")
    turn = np.array([(m.angular_velocity.x, m.angular_velocity.y, m.angular_velocity.z) for m in messages])
    force = np.array([(m.linear_acceleration.x, m.linear_acceleration.y, m.linear_acceleration.z) for m in messages])
    return turn, force, messages


@pytest.mark.parametrize("robot", ["drone", "rover"])
def test_at_rest_it_feels_gravity_upwards_and_no_turn(robot):
    turn, force, _ = feel(carrying(robot, **QUIET), 10, robot)
    assert (turn == 0.0).all()
    assert (force == (0.0, 0.0, GRAVITY)).all()


def test_a_constant_wind_from_the_start_is_felt_once():
    _, force, _ = feel(carrying(wind={"world_xyz": [1.0, 0.0, 0.0]}, **QUIET), 10)
    assert force[1][0] == pytest.approx(100.0)  # from rest to 1 m/s within a tick of 10 ms
    assert force[2:] == pytest.approx(np.tile((0.0, 0.0, GRAVITY), (9, 1)), abs=1e-9)


def test_speeding_up_is_felt_forward_and_sums_up_to_the_speed():
    sim = carrying(**QUIET)
    sim.command("drone", vx=2.0)
    _, force, _ = feel(sim, 200)
    assert force[1][0] == pytest.approx(2.0 * (1.0 - math.exp(-0.01 / 0.15)) / 0.01)
    assert force[:, 0].sum() * 0.01 == pytest.approx(2.0, abs=1e-4)


@pytest.mark.parametrize("robot", ["drone", "rover"])
def test_on_a_circle_it_feels_the_centripetal_acceleration_to_the_left(robot):
    sim = carrying(robot, physics_hz=1000, cmd_time_constant=0, **QUIET)
    sim.command(robot, **({"vx": 2.0, "yaw_rate": 1.0} if robot == "drone" else {"v": 2.0, "omega": 1.0}))
    turn, force, _ = feel(sim, 500, robot)
    assert turn[5:, 2] == pytest.approx(np.ones(496), abs=1e-12)
    assert force[5:, 1] == pytest.approx(np.full(496, 2.0 * 1.0), rel=2e-3)  # v · ω
    assert np.abs(force[5:, 0]).max() < 0.01


def test_a_stop_at_a_wall_is_felt_backwards():
    sim = microsim.Simulation(
        scenario(
            obstacles=[{"type": "box", "center": [12, 10, 0], "size": [1, 4, 1]}],
            robots={"rover": bare(imu={"hz": 60, **QUIET}, start={"map_pose": {"x": 10.0, "y": 10.0, "yaw": 0.0}})},
        )
    )
    sim.command("rover", v=2.0)
    _, force, _ = feel(sim, 120, "rover")
    assert force[:, 0].min() < -50.0


def test_noise_has_its_sigmas():
    turn, force, _ = feel(carrying(gyro_sigma_rad_per_s=0.01, accel_sigma_m_per_s2=0.5), many(6000))
    n = len(turn)
    assert turn.std(axis=0) == pytest.approx([0.01] * 3, rel=4 / math.sqrt(2 * n))
    assert force.std(axis=0) == pytest.approx([0.5] * 3, rel=4 / math.sqrt(2 * n))
    assert np.abs(turn.mean(axis=0)).max() < 4 * 0.01 / math.sqrt(n)
    assert np.abs(force.mean(axis=0) - (0, 0, GRAVITY)).max() < 4 * 0.5 / math.sqrt(n)
    six = np.corrcoef(np.hstack([turn, force]).T) - np.eye(6)
    assert np.abs(six).max() < 4.5 / math.sqrt(n)


def test_there_is_no_orientation_and_the_message_says_so():
    """REP-145: the first element of the covariance is -1."""
    _, _, messages = feel(carrying(gyro_sigma_rad_per_s=0.01, accel_sigma_m_per_s2=0.5), 1)
    message = messages[0]
    assert message.orientation_covariance[0] == -1.0
    assert message.angular_velocity_covariance.reshape(3, 3) == pytest.approx(np.diag([1e-4] * 3))
    assert message.linear_acceleration_covariance.reshape(3, 3) == pytest.approx(np.diag([0.25] * 3))
    assert message.header.frame_id == "drone/imu_link"


@pytest.mark.parametrize(
    ("rpy", "felt"),
    [
        ((math.pi, 0, 0), (0, 0, -1)),  # upside down
        ((math.pi / 2, 0, 0), (0, 1, 0)),  # rolled right: its y axis points up
        ((0, math.pi / 2, 0), (-1, 0, 0)),  # nose down: its x axis points down
        ((0, 0, 1.0), (0, 0, 1)),
    ],
)
def test_an_imu_mounted_askew_feels_gravity_in_its_own_axes(rpy, felt):
    _, force, _ = feel(carrying(mount={"rpy": list(rpy)}, **QUIET), 3)
    assert force == pytest.approx(np.tile(np.array(felt) * GRAVITY, (4, 1)), abs=1e-9)


def test_an_imu_mounted_askew_feels_turns_in_its_own_axes():
    sim = carrying(mount={"rpy": [math.pi / 2, 0, 0]}, cmd_time_constant=0, **QUIET)
    sim.command("drone", yaw_rate=1.0)
    turn, _, _ = feel(sim, 3)
    assert turn[1:] == pytest.approx(np.tile((0.0, 1.0, 0.0), (3, 1)), abs=1e-12)


def orientations(sim, ticks, topic="/drone/imu/data"):
    messages = decoded(sim.step(ticks), topic)
    return np.array([[getattr(m.orientation, axis) for axis in "xyzw"] for m in messages]), messages


def attitude(rpy=(0.0, 0.0, 0.0), yaw=0.0, **settings):
    drone = bare(
        ahrs={"hz": 100, "mount": {"rpy": list(rpy)}, **settings},
        start={"map_pose": {"x": 10.0, "y": 10.0, "z": 9.0, "yaw": yaw}},
    )
    return microsim.Simulation(scenario(physics_hz=100, robots={"drone": drone}))


def test_an_ahrs_without_noise_reports_how_its_frame_is_turned_in_the_map():
    quiet = {**QUIET, "tilt_sigma_rad": 0, "yaw_sigma_rad": 0}
    found, messages = orientations(attitude(yaw=1.2, **quiet), 2)
    assert found == pytest.approx(np.tile((0.0, 0.0, math.sin(0.6), math.cos(0.6)), (3, 1)), abs=1e-15)
    assert messages[0].header.frame_id == "drone/ahrs_link"
    half = math.sqrt(0.5)  # the robot's yaw of a quarter turn, then a mount rolled by another
    found, _ = orientations(attitude((math.pi / 2, 0, 0), math.pi / 2, **quiet), 0)
    assert found[0] == pytest.approx((half * half, half * half, half * half, half * half))


def test_the_orientation_of_an_ahrs_errs_as_its_covariance_says():
    found, messages = orientations(attitude(yaw=-2.0, tilt_sigma_rad=0.01, yaw_sigma_rad=0.05), many(6000))
    assert messages[0].orientation_covariance.reshape(3, 3) == pytest.approx(np.diag([1e-4, 1e-4, 25e-4]))
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.ones(len(found)), abs=1e-12)
    z, w = math.sin(-1.0), math.cos(-1.0)
    x, y, v, u = found.T  # of the measured rotation times the inverse of the true one, about the map's axes
    error = 2.0 * np.array([w * x - z * y, w * y + z * x, w * v - z * u])
    tolerance = 5 / math.sqrt(2 * len(found))
    assert error.std(axis=1) == pytest.approx([0.01, 0.01, 0.05], rel=tolerance)
    assert np.abs(np.corrcoef(error) - np.eye(3)).max() < 5 / math.sqrt(len(found))


def test_an_ahrs_measures_rates_and_forces_as_an_imu_does():
    sim = attitude(rpy=(math.pi, 0, 0), **QUIET)
    sim.command("drone", yaw_rate=1.0)
    _, messages = orientations(sim, 300)
    last = messages[-1]
    assert last.linear_acceleration.z == pytest.approx(-GRAVITY)
    assert last.angular_velocity.z == pytest.approx(-1.0)
