"""The whole attitude of a robot, as sensors and frames get it from the state's rows."""

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from microsim.engine.components import (
    ACCELERATION_X,
    COMMON_ROWS,
    GRAVITY,
    PITCH,
    PITCH_RATE,
    ROLL,
    ROLL_RATE,
    VELOCITY_X,
    YAW,
    YAW_RATE,
    X,
)
from microsim.engine.geometry import matrix_from_rpy
from microsim.engine.motion import (
    ACCEL_FORWARD,
    AXES,
    FIELDS,
    FORWARD,
    PITCHING,
    QUATERNION_W,
    QUATERNION_X,
    QUATERNION_Y,
    QUATERNION_Z,
    ROLLING,
    TURN,
    is_level,
    mounted_at,
    observe,
    turned,
)
from microsim.sensors import imu, odometry
from microsim.sensors.odometry import map_to_odom, odom_to_base
from tests.support import Probe

ANGLES = st.floats(-1.2, 1.2)
HEADINGS = st.floats(-math.pi, math.pi)


def rotation(roll: float, pitch: float, yaw: float) -> Any:
    """Three turns multiplied, from NumPy's sines."""
    cr, sr, cp, sp, cy, sy = (f(a) for a in (roll, pitch, yaw) for f in (np.cos, np.sin))
    about_x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    about_y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    about_z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    return about_z @ about_y @ about_x


def motion_of(**rows: Any) -> list[float]:
    state = np.zeros((COMMON_ROWS, 1))
    names = {"roll": ROLL, "pitch": PITCH, "yaw": YAW, "yaw_rate": YAW_RATE}
    names |= {"roll_rate": ROLL_RATE, "pitch_rate": PITCH_RATE}
    for name, value in rows.items():
        if name in names:
            state[names[name], 0] = value
        else:
            first = {"place": X, "velocity": VELOCITY_X, "acceleration": ACCELERATION_X}[name]
            state[first : first + 3, 0] = value
    out = np.empty((1, FIELDS))
    observe(state, out)
    seen: list[float] = out[0].tolist()
    return seen


def matrix_of_quaternion(x: float, y: float, z: float, w: float) -> Any:
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


@given(ANGLES, ANGLES, HEADINGS)
def test_matrix_and_quaternion_are_the_same_rotation(roll: float, pitch: float, yaw: float) -> None:
    motion, expected = motion_of(roll=roll, pitch=pitch, yaw=yaw), rotation(roll, pitch, yaw)
    np.testing.assert_allclose(np.reshape(motion[AXES : AXES + 9], (3, 3)), expected, atol=1e-14)
    turn = (motion[QUATERNION_X], motion[QUATERNION_Y], motion[QUATERNION_Z], motion[QUATERNION_W])
    np.testing.assert_allclose(matrix_of_quaternion(*turn), expected, atol=1e-14)


@given(ANGLES, ANGLES, HEADINGS)
def test_velocity_and_acceleration_are_given_in_the_tilted_axes(roll: float, pitch: float, yaw: float) -> None:
    velocity, acceleration = np.array([1.0, -2.0, 0.5]), np.array([0.3, 0.1, -4.0])
    motion = motion_of(roll=roll, pitch=pitch, yaw=yaw, velocity=velocity, acceleration=acceleration)
    axes = rotation(roll, pitch, yaw)
    np.testing.assert_allclose(motion[FORWARD : FORWARD + 3], axes.T @ velocity, atol=1e-13)
    np.testing.assert_allclose(motion[ACCEL_FORWARD : ACCEL_FORWARD + 3], axes.T @ acceleration, atol=1e-13)


@given(ANGLES, ANGLES, HEADINGS, st.tuples(*[st.floats(-2.0, 2.0)] * 3))
def test_turn_rates_are_those_of_the_turning_axes(
    roll: float, pitch: float, yaw: float, rates: tuple[float, float, float]
) -> None:
    h = 1e-6
    before, after = (
        rotation(roll + s * h * rates[0], pitch + s * h * rates[1], yaw + s * h * rates[2]) for s in (-1, 1)
    )
    skew = rotation(roll, pitch, yaw).T @ (after - before) / (2 * h)  # body rates, as a skew matrix
    motion = motion_of(roll=roll, pitch=pitch, yaw=yaw, roll_rate=rates[0], pitch_rate=rates[1], yaw_rate=rates[2])
    expected = (skew[2, 1], skew[0, 2], skew[1, 0])
    np.testing.assert_allclose((motion[ROLLING], motion[PITCHING], motion[TURN]), expected, atol=1e-8)


@given(ANGLES, ANGLES, HEADINGS)
def test_mounts_follow_the_tilt(roll: float, pitch: float, yaw: float) -> None:
    motion = motion_of(roll=roll, pitch=pitch, yaw=yaw, place=(5.0, 6.0, 7.0))
    axes, xyz, rpy = rotation(roll, pitch, yaw), (1.5, -0.3, 1.9), (0.1, 0.2, -0.4)
    np.testing.assert_allclose(mounted_at(motion, xyz), np.array([5, 6, 7]) + axes @ np.array(xyz), atol=1e-13)
    np.testing.assert_allclose(turned(motion, matrix_from_rpy(*rpy)), axes @ rotation(*rpy), atol=1e-13)


def test_a_level_robot_has_exact_zeros() -> None:
    motion = motion_of(yaw=0.7, yaw_rate=0.2)
    assert is_level(motion)
    assert [str(motion[field]) for field in (QUATERNION_X, QUATERNION_Y, ROLLING, PITCHING)] == ["0.0"] * 4
    assert motion[TURN] == 0.2


@given(ANGLES, ANGLES, HEADINGS)
def test_an_imu_at_rest_feels_gravity_along_the_map_s_vertical(roll: float, pitch: float, yaw: float) -> None:
    probe = Probe(imu.SENSOR, {"gyro_sigma_rad_per_s": 0.0, "accel_sigma_m_per_s2": 0.0})
    sample = probe.sample(motion_of(roll=roll, pitch=pitch, yaw=yaw))
    np.testing.assert_allclose(rotation(roll, pitch, yaw) @ sample[3:], (0.0, 0.0, GRAVITY), atol=1e-13)


def test_map_to_odom_to_base_link_is_the_true_pose_of_a_tilted_robot_with_drift() -> None:
    motion = motion_of(roll=0.2, pitch=-0.1, yaw=1.0, place=(3.0, 4.0, 5.0))
    probe = Probe(odometry.SENSOR, {"drift": {"position_per_m": 0.01, "yaw_per_rad": 0.01}}, key=3)
    probe.begin(motion)
    probe.memory[:4] = (2.0, 5.0, 5.5, 0.6)  # where it believes to be
    odom, base = probe.call(map_to_odom, motion), probe.call(odom_to_base, motion)
    outer, inner = matrix_of_quaternion(*odom[3:]), matrix_of_quaternion(*base[3:])
    np.testing.assert_allclose(outer @ inner, rotation(0.2, -0.1, 1.0), atol=1e-12)
    np.testing.assert_allclose(outer @ base[:3] + odom[:3], (3.0, 4.0, 5.0), atol=1e-12)
    np.testing.assert_array_equal(base[:3], (2.0, 5.0, 5.5))
