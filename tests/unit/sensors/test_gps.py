"""GPS: where it says the robot is, with which noise, bias and covariance."""

import math

import numpy as np
import pytest

import microsim
from microsim.engine.geodesy import enu_from_wgs84, tangent_plane
from tests.support import bare, decoded, many, scenario

ORIGIN = (9.935, -84.09, 1150.0)


def standing(count, physics_hz=5, origin=ORIGIN, robot="drone", seed=1, **gps):
    """Fixes of a robot that stands still, as metres east, north and up of the map's origin, and their messages."""
    pose = {"x": 12.0, "y": 7.0, "yaw": 0.5} | ({"z": 9.0} if robot == "drone" else {})
    sim = microsim.Simulation(
        scenario(
            seed=seed,
            physics_hz=physics_hz,
            map={"size_xy_cells": [20, 20], "origin_wgs84": list(origin)},
            robots={robot: bare(gps={"hz": physics_hz, **gps}, start={"map_pose": pose})},
        )
    )
    fixes = decoded(sim.step(count - 1), f"/{robot}/gps/fix")
    plane = tangent_plane(*origin)
    metres = [enu_from_wgs84(plane, fix.latitude, fix.longitude, fix.altitude) for fix in fixes]
    return np.array(metres), fixes


@pytest.mark.parametrize(
    "origin", [ORIGIN, (0.0, 0.0, 0.0), (0.0, 179.9999, 5.0), (89.9, 30.0, 0.0), (-89.9, -7.0, 0.0)]
)
def test_without_noise_the_fix_is_where_the_antenna_is(origin):
    metres, _ = standing(3, origin=origin, sigma_m=0, bias_drift_m_per_s=0, mount={"xyz": [0.3, 0.1, 0.08]})
    sine, cosine = math.sin(0.5), math.cos(0.5)
    antenna = (12.0 + 0.3 * cosine - 0.1 * sine, 7.0 + 0.3 * sine + 0.1 * cosine, 9.08)
    assert np.abs(metres - antenna).max() < 1e-5


def test_white_noise_has_its_sigma_on_every_axis_and_no_memory():
    metres, _ = standing(many(8000), sigma_m=2.0, bias_drift_m_per_s=0)
    error = metres - (12.0, 7.0, 9.08)
    n = len(error)
    assert np.abs(error.mean(axis=0)).max() < 4 * 2.0 / math.sqrt(n)
    assert error.std(axis=0) == pytest.approx([2.0] * 3, rel=4 / math.sqrt(2 * n))
    for axis in range(3):
        assert abs(np.corrcoef(error[:-1, axis], error[1:, axis])[0, 1]) < 4 / math.sqrt(n)
        assert abs(np.corrcoef(error[:, axis], error[:, axis - 1])[0, 1]) < 4 / math.sqrt(n)


@pytest.mark.parametrize("physics_hz", [1, 20])
def test_the_bias_walks_by_its_drift_per_root_second_whatever_the_rate(physics_hz):
    """Steps are independent, with the standard deviation drift · sqrt(seconds between samples)."""
    metres, _ = standing(many(4000), physics_hz, sigma_m=0, bias_drift_m_per_s=0.5)
    steps = np.diff(metres, axis=0)
    n = len(steps)
    assert steps.std(axis=0) == pytest.approx([0.5 / math.sqrt(physics_hz)] * 3, rel=4 / math.sqrt(2 * n))
    assert abs(np.corrcoef(steps[:-1, 0], steps[1:, 0])[0, 1]) < 4 / math.sqrt(n)


def test_at_the_start_there_is_no_bias():
    metres, _ = standing(1, sigma_m=0, bias_drift_m_per_s=5.0)
    assert metres[0] == pytest.approx((12.0, 7.0, 9.08), abs=1e-6)


def test_the_covariance_is_that_of_noise_and_bias():
    _, fixes = standing(101, sigma_m=2.0, bias_drift_m_per_s=0.1)
    for index, fix in enumerate(fixes):
        variance = 4.0 + 0.01 * index / 5.0
        assert fix.position_covariance.reshape(3, 3) == pytest.approx(np.diag([variance] * 3), rel=1e-12)
        assert fix.position_covariance_type == 2  # diagonal known


def test_the_covariance_of_a_gps_without_noise_is_unknown_not_zero():
    """Zeros said to be known would be taken for a perfect measurement."""
    _, fixes = standing(3, sigma_m=0, bias_drift_m_per_s=0)
    assert {fix.position_covariance_type for fix in fixes} == {0}


def test_a_covariance_that_is_said_to_be_known_is_never_zero():
    """At tick 0 there is no bias yet; from then on the variance is that of its walk."""
    _, fixes = standing(3, sigma_m=0, bias_drift_m_per_s=0.3)
    assert {fix.position_covariance_type for fix in fixes} == {2}
    variances = [fix.position_covariance[0] for fix in fixes]
    assert variances == pytest.approx([0.09 / 5, 0.09 / 5, 0.09 * 2 / 5])  # at 5 Hz


def test_errors_over_seeds_fit_the_covariance_told():
    """Normalised by the variance in the message, the errors of many runs have variance 1."""
    errors = []
    for seed in range(many(150)):
        metres, fixes = standing(21, 1, seed=seed, sigma_m=1.0, bias_drift_m_per_s=0.5)
        errors += list((metres[-1] - (12.0, 7.0, 9.08)) / math.sqrt(fixes[-1].position_covariance[0]))
    assert np.var(errors) == pytest.approx(1.0, rel=5 * math.sqrt(2 / len(errors)))


def test_a_fix_tells_its_frame_and_service():
    _, fixes = standing(1, robot="rover")
    assert fixes[0].header.frame_id == "rover/gps_link"
    assert (fixes[0].status.status, fixes[0].status.service) == (0, 1)
