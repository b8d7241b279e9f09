"""The drone against closed forms: lag, clamps, integration, wind, gusts, ground."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim.robots.drone import approach, lag_factor
from tests.support import bare, many, scenario

TAU = 0.15


def flying(physics_hz=60, x=10.0, y=10.0, z=10.0, yaw=0.0, wind=None, seed=1, **robot):
    start = {"map_pose": {"x": x, "y": y, "z": z, "yaw": yaw}}
    settings_ = scenario(
        physics_hz=physics_hz, robots={"drone": bare(start=start, **robot)}, wind=wind or {}, seed=seed
    )
    return microsim.Simulation(settings_)


def closed_velocity(limit, t):
    return limit * (1.0 - math.exp(-t / TAU))


@pytest.mark.parametrize("physics_hz", [10, 60, 240, 1000])
@pytest.mark.parametrize(
    ("inputs", "name", "settled"),
    [
        ({"vx": 2.0}, "vx", 2.0),
        ({"vy": -1.5}, "vy", -1.5),
        ({"vz": 1.0}, "vz", 1.0),
        ({"yaw_rate": 0.5}, "yaw_rate", 0.5),
        ({"vx": 99.0}, "vx", 5.0),
        ({"vy": -99.0}, "vy", -5.0),
        ({"vz": 99.0}, "vz", 3.0),
        ({"yaw_rate": -99.0}, "yaw_rate", -1.5),
        ({"vx": 1e300}, "vx", 5.0),
    ],
)
def test_velocity_approaches_the_clamped_command_as_one_minus_exp(physics_hz, inputs, name, settled):
    """The lag is solved exactly, so the closed form holds at every tick and rate."""
    sim = flying(physics_hz)
    sim.command("drone", **inputs)
    for tick in range(1, physics_hz // 2):
        sim.advance()
        assert getattr(sim.state("drone"), name) == pytest.approx(
            closed_velocity(settled, tick / physics_hz), rel=1e-12
        )


@pytest.mark.parametrize("physics_hz", [10, 60, 1000])
def test_position_is_the_sum_of_the_velocities(physics_hz):
    """x_n = dt · v · Σ (1 − q^k), k = 1 … n, with q = exp(−dt/τ): a geometric series."""
    sim, dt, speed, n = flying(physics_hz), 1.0 / physics_hz, 3.0, 2 * physics_hz
    sim.command("drone", vx=speed)
    sim.advance(n)
    q = math.exp(-dt / TAU)
    series = dt * speed * (n - q * (1.0 - q**n) / (1.0 - q))
    assert sim.state("drone").x - 10.0 == pytest.approx(series, rel=1e-11)


@pytest.mark.parametrize("physics_hz", [60, 240, 1000])
def test_position_is_within_one_tick_of_the_continuous_integral(physics_hz):
    sim, t, speed = flying(physics_hz), 2.0, 3.0
    sim.command("drone", vx=speed)
    sim.advance(int(t * physics_hz))
    continuous = speed * (t - TAU * (1.0 - math.exp(-t / TAU)))
    assert abs(sim.state("drone").x - 10.0 - continuous) < speed / physics_hz


def test_the_error_of_integration_shrinks_with_the_tick():
    def error(physics_hz):
        sim = flying(physics_hz, x=10.0)
        sim.command("drone", vx=2.0, yaw_rate=1.0)
        sim.advance(physics_hz)
        return np.array([sim.state("drone").x, sim.state("drone").y])

    fine = error(8000)
    coarse, half = np.linalg.norm(error(100) - fine), np.linalg.norm(error(200) - fine)
    assert half == pytest.approx(coarse / 2, rel=0.05)


def test_yaw_is_the_sum_of_the_turns_and_stays_within_a_turn():
    sim = flying(yaw=3.0)
    sim.command("drone", yaw_rate=1.5)
    dt, q = 1.0 / 60.0, math.exp(-1.0 / 60.0 / TAU)
    for n in range(1, 600):
        sim.advance()
        turned = dt * 1.5 * (n - q * (1.0 - q**n) / (1.0 - q))
        yaw = sim.state("drone").yaw
        assert abs(yaw) <= math.pi
        assert abs(math.remainder(yaw - 3.0 - turned, 2 * math.pi)) < 1e-11


@given(st.floats(-math.pi, math.pi), st.floats(-5, 5), st.floats(-5, 5))
@settings(max_examples=many(30))
def test_commands_are_in_the_axes_of_the_body(yaw, vx, vy):
    sim = flying(yaw=yaw)
    sim.command("drone", vx=vx, vy=vy)
    sim.advance(60)
    moved = complex(sim.state("drone").x - 10.0, sim.state("drone").y - 10.0)
    scale = 1.0 - TAU  # nearly: the integral of the lag over a second
    assert abs(moved * np.exp(-1j * yaw) - complex(vx, vy) * scale) < 0.02 * (abs(vx) + abs(vy)) + 1e-9


def test_a_command_is_held_until_the_next_and_inputs_left_out_are_zero():
    sim = flying()
    sim.command("drone", vx=2.0, vy=1.0)
    sim.advance(120)
    assert sim.state("drone").vx == pytest.approx(2.0, abs=1e-4)
    sim.command("drone", vy=1.0)
    sim.advance(120)
    assert sim.state("drone").vx == pytest.approx(0.0, abs=1e-4)
    assert sim.state("drone").vy == pytest.approx(1.0, abs=1e-4)


def test_without_lag_the_command_is_the_velocity():
    sim = flying(cmd_time_constant=0)
    sim.command("drone", vx=2.0)
    sim.advance()
    assert sim.state("drone").vx == 2.0
    assert sim.state("drone").x == 10.0 + 2.0 / 60.0


def test_a_limit_of_zero_keeps_a_drone_still():
    sim = flying(max_vx=0, max_vy=0, max_vz=0, max_yaw_rate=0)
    before = sim.state("drone")
    sim.command("drone", vx=1, vy=1, vz=1, yaw_rate=1)
    sim.advance(100)
    assert sim.state("drone") == before


@given(st.floats(-1e6, 1e6), st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1e4), st.floats(0, 1))
def test_lag_never_overshoots_the_clamped_command(value, command, limit, lag):
    target = min(max(command, -limit), limit)
    after = approach(value, command, limit, lag)
    low, high = sorted((value, target))
    slack = 1e-9 * max(abs(value), limit, 1e-300)
    assert low - slack <= after <= high + slack


def test_lag_is_the_exact_solution_and_one_without_a_time_constant():
    assert lag_factor(0.1, 0.2) == pytest.approx(1.0 - math.exp(-0.5), rel=1e-15)
    assert lag_factor(0.1, 0.0) == 1.0
    assert lag_factor(0.1, 1e-9) == 1.0


# ---- wind


def test_a_constant_wind_carries_a_drone_along_at_its_speed():
    sim = flying(wind={"world_xyz": [0.2, -0.4, 0.1]}, yaw=2.0)
    sim.advance(600)
    state = sim.state("drone")
    assert (state.x, state.y, state.z) == pytest.approx((12.0, 6.0, 11.0), abs=1e-9)
    assert (state.vx, state.vy, state.vz) == (0.0, 0.0, 0.0)  # through the air it stands still


def gusts(count, physics_hz=20, sigma=0.8, tau=1.5, seed=1):
    """Ground velocity of a drone that only the gusts move, at every tick."""
    sim = flying(physics_hz, z=1e5, wind={"gust_sigma": sigma, "gust_tau_s": tau}, seed=seed)
    sim.advance(20 * physics_hz)
    places = np.empty((count + 1, 3))
    for k in range(count + 1):
        state = sim.state("drone")
        places[k] = state.x, state.y, state.z
        sim.advance()
    return np.diff(places, axis=0) * physics_hz


def test_gusts_have_their_standard_deviation_and_correlation_time():
    sigma, tau, hz, count = 0.8, 0.5, 20, many(60_000)
    speed = gusts(count, hz, sigma, tau)
    independent = count / hz / tau / 4  # roughly how many independent samples there are
    assert np.abs(speed.mean(axis=0)).max() < 5 * sigma / math.sqrt(independent)
    assert speed.std(axis=0) == pytest.approx([sigma] * 3, rel=4 / math.sqrt(independent))
    for lag_s in (0.25, 0.5, 1.0):
        lag = int(lag_s * hz)
        for axis in range(3):
            correlation = np.corrcoef(speed[:-lag, axis], speed[lag:, axis])[0, 1]
            smoothed = (1.0 + lag_s / tau) * math.exp(-lag_s / tau)  # of two equal lags, one after the other
            assert correlation == pytest.approx(smoothed, abs=5 / math.sqrt(independent) + 1.0 / (hz * tau))


def test_gusts_do_not_shake_the_imu_more_at_a_higher_tick_rate():
    """What a gust does to the accelerometer depends on sigma and tau: about sigma / tau."""
    sigma, tau = 1.0, 2.0
    for hz in (20, 200):
        acceleration = np.diff(gusts(many(20_000), hz, sigma, tau), axis=0) * hz
        assert acceleration.std() == pytest.approx(sigma / tau, rel=0.3)


def test_gusts_of_different_axes_seeds_and_drones_are_independent():
    count = many(20_000)
    one, other = gusts(count, tau=0.2, seed=1), gusts(count, tau=0.2, seed=2)
    bound = 5 / math.sqrt(count / 20 / 0.2 / 4)
    assert abs(np.corrcoef(one[:, 0], one[:, 1])[0, 1]) < bound
    assert abs(np.corrcoef(one[:, 0], one[:, 2])[0, 1]) < bound
    assert abs(np.corrcoef(one[:, 0], other[:, 0])[0, 1]) < bound


def test_gusts_do_not_depend_on_how_the_ticks_are_grouped():
    one, other = (flying(wind={"gust_sigma": 1.0}) for _ in range(2))
    one.advance(500)
    for ticks in (1, 2, 7, 90, 400):
        other.advance(ticks)
    assert one.state("drone") == other.state("drone")


# ---- ground


def relief(seed, amplitude, wavelength=6.0):
    return {"generate": "hills", "seed": seed, "amplitude_m": amplitude, "wavelength_m": wavelength}


def test_a_drone_that_is_driven_into_the_ground_stands_at_its_clearance():
    sim = flying(z=0.5, ground_clearance_m=0.25)
    sim.command("drone", vz=-3.0)
    sim.advance(120)
    state = sim.state("drone")
    assert state.z == 0.25
    assert state.vz == 0.0
    sim.command("drone", vz=1.0)
    sim.advance(60)
    assert sim.state("drone").z == pytest.approx(0.25 + 1.0 - TAU, abs=0.02)  # no wound-up descent to undo


@settings(max_examples=many(40))
@given(
    st.integers(0, 1000),
    st.floats(0.0, 5.0),
    st.sampled_from([1, 7, 60, 500]),
    st.floats(0.0, 2.0),
    st.lists(st.tuples(*[st.floats(-9, 9)] * 4), min_size=1, max_size=5),
    st.floats(-30, 5),
)
def test_a_drone_is_never_below_ground_plus_clearance(seed, amplitude, physics_hz, clearance, commands, downdraught):
    """Over hills, off the map, in a downdraught, at any rate."""
    sim = microsim.Simulation(
        scenario(
            physics_hz=physics_hz,
            map={"size_xy_cells": [20, 20], "elevation": relief(seed, amplitude)},
            wind={"world_xyz": [0.0, 0.0, downdraught], "gust_sigma": 1.0},
            robots={"drone": bare(ground_clearance_m=clearance, start={"map_pose": {"x": 10, "y": 10, "z": 20}})},
        )
    )
    for vx, vy, vz, yaw_rate in commands:
        sim.command("drone", vx=vx, vy=vy, vz=vz, yaw_rate=yaw_rate)
        for _ in range(20):
            sim.advance(max(physics_hz // 10, 1))
            state = sim.state("drone")
            assert state.z >= sim.world.ground(state.x, state.y) + clearance


def test_a_teleport_below_the_ground_ends_at_the_clearance():
    sim = flying()
    sim.set_pose("drone", x=5.0, y=5.0, z=-7.0)
    sim.advance()
    assert sim.state("drone").z == pytest.approx(0.1)


def test_a_teleport_takes_all_speed_away_but_not_the_command():
    sim = flying()
    sim.command("drone", vx=2.0, yaw_rate=1.0)
    sim.advance(60)
    sim.set_pose("drone", x=5.0, y=6.0, z=7.0, yaw=1.0)
    sim.command("drone")
    sim.advance()
    state = sim.state("drone")
    assert (state.x, state.y, state.z, state.yaw) == (5.0, 6.0, 7.0, 1.0)
    assert (state.vx, state.vy, state.vz, state.yaw_rate) == (0.0, 0.0, 0.0, 0.0)


def test_a_teleport_without_height_keeps_the_height():
    sim = flying(z=7.5)
    sim.set_pose("drone", x=5.0, y=6.0)
    sim.advance()
    assert sim.state("drone").z == 7.5


def test_a_drone_may_leave_the_map():
    sim = flying(x=1.0, yaw=math.pi)
    sim.command("drone", vx=5.0)
    sim.advance(600)
    assert sim.state("drone").x < -30.0
