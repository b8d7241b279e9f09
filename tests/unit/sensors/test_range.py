"""The range sensor: first occupied cell ahead, REP-117 at its limits, noise and dropouts."""

import math

import numpy as np
import pytest

import microsim
from microsim.engine.calls import BLOCK, Scene
from microsim.engine.geometry import clearance_of
from microsim.engine.motion import COS_YAW, PLACE_X, PLACE_Y, SENSOR_FIELDS, SIN_YAW, X, Y
from microsim.sensors.range import measured, sample, sample_many
from tests.support import bare, decoded, many, scenario

WALL = {"type": "box", "center": [15.5, 10, 0], "size": [1, 20, 1]}  # its face is at x = 15


def looking(x=10.0, y=10.0, yaw=0.0, physics_hz=10, obstacles=(WALL,), cell=1.0, seed=1, robot="rover", **beam):
    beam = {"hz": physics_hz, "sigma_m": 0, "mount": {"xyz": [0, 0, 0]}, **beam}
    pose = {"x": x, "y": y, "yaw": yaw} | ({"z": 5.0} if robot == "drone" else {})
    return microsim.Simulation(
        scenario(
            seed=seed,
            physics_hz=physics_hz,
            map={"size_xy_cells": [round(20 / cell)] * 2, "cell_size_m": cell},
            obstacles=list(obstacles),
            robots={robot: bare(range=beam, start={"map_pose": pose})},
        )
    )


def readings(sim, ticks=0, robot="rover"):
    return np.array([message.range for message in decoded(sim.step(ticks), f"/{robot}/range/front")])


def test_the_reading_is_the_distance_to_the_first_occupied_cell():
    assert readings(looking()) == [5.0]
    assert readings(looking(yaw=0.5)) == pytest.approx([5.0 / math.cos(0.5)], rel=1e-6)


def test_it_looks_from_where_and_whither_it_is_mounted():
    ahead = looking(mount={"xyz": [0.25, 0.1, 0.08]})
    assert readings(ahead) == pytest.approx([4.75])
    aside = looking(yaw=math.pi / 2, mount={"xyz": [0, 0, 0], "rpy": [0, 0, -math.pi / 2]})
    assert readings(aside) == pytest.approx([5.0])


def test_nothing_within_reach_reads_plus_infinity():
    assert readings(looking(max_m=4.99)) == [math.inf]
    assert readings(looking(yaw=math.pi)) == [math.inf]  # beyond the edge of the map there is nothing
    assert readings(looking(obstacles=())) == [math.inf]


def test_too_near_reads_minus_infinity():
    assert readings(looking(x=14.9)) == [-math.inf]
    assert readings(looking(min_m=5.001)) == [-math.inf]
    assert readings(looking(min_m=4.999)) == [5.0]


def test_touching_a_wall_reads_minus_infinity_not_what_lies_behind_it():
    """The rover stops when its centre reaches the wall; the sensor is ahead of it, even through a thin wall."""
    thin = {"type": "box", "center": [12.05, 10, 0], "size": [0.05, 20, 1]}
    sim = looking(cell=0.1, obstacles=(thin, WALL), mount={"xyz": [0.25, 0, 0]})
    sim.command("rover", v=2.0)
    seen = readings(sim, 40)
    assert sim.state("rover").v == 0.0
    assert (seen[-10:] == -math.inf).all()
    assert not (seen > 3.0).any()


def test_noise_has_its_sigma_and_no_memory():
    seen = readings(looking(sigma_m=0.05), many(6000))
    n = len(seen)
    assert seen.mean() == pytest.approx(5.0, abs=4 * 0.05 / math.sqrt(n))
    assert seen.std() == pytest.approx(0.05, rel=4 / math.sqrt(2 * n))
    assert abs(np.corrcoef(seen[:-1], seen[1:])[0, 1]) < 4 / math.sqrt(n)


def test_noise_carries_readings_over_the_limit_both_ways():
    """A wall exactly at max_m is measured half of the time."""
    seen = readings(looking(sigma_m=0.1, max_m=5.0), many(2000))
    share = np.isfinite(seen).mean()
    assert share == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(len(seen)))
    seen = readings(looking(sigma_m=0.1, max_m=4.9), many(2000))
    assert np.isfinite(seen).mean() == pytest.approx(0.1587, abs=4 * 0.37 / math.sqrt(len(seen)))


def test_dropouts_are_nan_at_their_rate_and_no_message_is_skipped():
    sim = looking(dropout_probability=0.1, sigma_m=0.05)
    seen = readings(sim, many(5000))
    assert len(seen) == sim.tick + 1
    assert np.isnan(seen).mean() == pytest.approx(0.1, abs=4 * 0.3 / math.sqrt(len(seen)))


def test_dropouts_leave_the_noise_of_the_others_alone():
    without, with_drops = (readings(looking(sigma_m=0.05, dropout_probability=p), 200) for p in (0.0, 0.3))
    kept = ~np.isnan(with_drops)
    assert (without[kept] == with_drops[kept]).all()


def test_a_drone_may_carry_one_too():
    assert readings(looking(robot="drone"), robot="drone") == [5.0]


def test_the_message_tells_what_the_sensor_is():
    message = decoded(looking(sigma_m=0.05, field_of_view_rad=0.1).step(0), "/rover/range/front")[0]
    assert message.header.frame_id == "rover/range_link"
    assert message.radiation_type == 1
    expected = (0.1, 0.2, 10.0, 0.0025)
    assert (message.field_of_view, message.min_range, message.max_range, message.variance) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("distance", "noise", "reading"),
    [(1.0, 0.0, 1.0), (0.2, 0.0, 0.2), (10.0, 0.0, 10.0), (0.2, -1e-9, -math.inf), (10.0, 1e-9, math.inf)],
)
def test_the_limits_themselves_are_measured(distance, noise, reading):
    assert measured(distance, noise, 0.2, 10.0) == reading


@pytest.mark.parametrize("arm", [0.0, 0.4, 1.5])
def test_a_block_of_worlds_reads_what_each_reads_alone(arm):
    """In, before and behind single occupied cells, and off the map, where only rays from outside are left."""
    dice = np.random.default_rng(8)
    clearance = clearance_of((dice.random((9, 9)) < 0.1).astype(np.uint8))
    nothing, level = np.zeros((1, 1), np.uint8), np.zeros((1, 1))
    scene = Scene(level, nothing, clearance, clearance, 0.5, -1.0, -2.0, 0.1, np.zeros(12), np.zeros(1))
    settings = np.repeat([[0.2], [3.0], [0.05], [0.1], [0.6], [0.8], [0.0]], BLOCK, axis=1)
    for _ in range(many(20, 2)):
        motion, yaw = np.zeros((SENSOR_FIELDS, BLOCK)), dice.uniform(-4, 4, BLOCK)
        motion[SIN_YAW], motion[COS_YAW] = np.sin(yaw), np.cos(yaw)
        motion[X], motion[Y] = dice.uniform(-1.2, 3.7, BLOCK), dice.uniform(-2.2, 2.7, BLOCK)
        motion[PLACE_X], motion[PLACE_Y] = motion[X] + arm * motion[COS_YAW], motion[Y] + arm * motion[SIN_YAW]
        keys, ticks = dice.integers(0, 2**62, BLOCK), dice.integers(0, 1000, BLOCK)
        reading, alone, memory = np.zeros((1, BLOCK)), np.zeros((BLOCK, 1)), np.zeros(1)
        sample_many(settings, motion, np.zeros((1, BLOCK)), scene, keys, ticks, reading)
        for i in range(BLOCK):
            own = settings[:, i].copy(), motion[:, i].copy(), memory, scene, int(keys[i]), int(ticks[i])
            sample(*own, alone[i])
        np.testing.assert_array_equal(reading[0], alone[:, 0])
