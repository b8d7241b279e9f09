"""Acceleration and jerk limits against closed forms."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.engine import speed_limits
from microsim.engine.speed_limits import towards
from microsim.robots import navigation_robot
from tests.support import many


def drive(target, max_accel, max_jerk, dt, ticks, v=0.0, a=0.0):
    """[(v, a)] of each tick."""
    found = []
    for _ in range(ticks):
        v, a = towards(v, a, target, max_accel, max_jerk, dt)
        found.append((v, a))
    return found


def test_without_limits_the_speed_is_the_target_at_once_and_to_the_bit():
    assert drive(0.1 + 0.2, 0.0, 0.0, 0.01, 1) == [(0.1 + 0.2, (0.1 + 0.2) / 0.01)]


def test_an_acceleration_limit_gives_a_straight_ramp_that_ends_on_the_target():
    dt, a_max, target = 0.01, 1.5, 0.6
    found = drive(target, a_max, 0.0, dt, 60)
    for tick, (v, _) in enumerate(found, start=1):
        assert v == pytest.approx(min(a_max * tick * dt, target), abs=1e-12)
    assert found[-1] == (target, 0.0)


def test_a_jerk_limited_rest_to_speed_takes_the_time_of_the_s_curve():
    """Speed change dv with a_max, j: a_max/j + dv/a_max; without reaching a_max: 2 sqrt(dv/j)."""
    dt = 0.001
    for target, a_max, jerk, seconds in ((2.0, 1.0, 4.0, 2.25), (0.25, 1.0, 4.0, 2.0 * math.sqrt(0.25 / 4.0))):
        found = drive(target, a_max, jerk, dt, 4000)
        arrived = next(tick for tick, (v, _) in enumerate(found, start=1) if v == target)
        assert arrived * dt == pytest.approx(seconds, abs=3 * dt)
        assert found[arrived + 4] == (target, 0.0)


def test_the_s_curve_is_parabola_line_parabola():
    dt, target, a_max, jerk = 0.0005, 2.0, 1.0, 4.0
    found = drive(target, a_max, jerk, dt, 5000)

    def expected(t):
        if t <= 0.25:
            return 0.5 * jerk * t * t
        if t <= 2.0:
            return 0.125 + a_max * (t - 0.25)
        return target - 0.5 * jerk * max(2.25 - t, 0.0) ** 2

    assert max(abs(v - expected(tick * dt)) for tick, (v, _) in enumerate(found, start=1)) < 2 * a_max * dt


FINITE = st.floats(-5.0, 5.0)


@settings(max_examples=many(60))
@given(
    target=FINITE,
    v=FINITE,
    a_max=st.sampled_from([0.0, 0.3, 2.0]),
    jerk=st.floats(0.2, 50.0),
    dt=st.sampled_from([0.1, 0.02, 0.001]),
)
def test_limits_hold_at_every_tick_and_a_resting_target_is_never_overshot(target, v, a_max, jerk, dt):
    before, low, high = 0.0, min(v, target), max(v, target)
    ticks = min(int(60.0 / dt), 4000)
    for speed, a in drive(target, a_max, jerk, dt, ticks, v=v):
        assert abs(a - before) <= jerk * dt * (1.0 + 1e-9) + 1e-12
        assert not a_max or abs(a) <= a_max * (1.0 + 1e-12)
        assert low - 1e-9 <= speed <= high + 1e-9
        before = a
    if dt >= 0.02:
        assert (speed, a) == (target, 0.0)


@settings(max_examples=many(40))
@given(targets=st.lists(FINITE, min_size=2, max_size=5), jerk=st.floats(0.5, 20.0))
def test_whatever_the_targets_were_the_last_one_is_met(targets, jerk):
    v = a = 0.0
    for target in targets:
        for _ in range(7):
            v, a = towards(v, a, target, 1.0, jerk, 0.1)
    assert drive(targets[-1], 1.0, jerk, 0.1, 400, v, a)[-1] == (targets[-1], 0.0)


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [(2.0, 1700.0), (1.5, 1200.0), (0.9, 1.0), (0.3, 0.0), (0.0, 0.0), (0.301, 0.001 / 1.2 * 2.0)],
)
def test_the_allowed_speed_falls_in_a_straight_line_to_zero(ahead, expected):
    assert navigation_robot.allowed_speed(ahead, 2.0, 1.5, 0.3, 0.001) == pytest.approx(expected, abs=1e-12)


def test_no_tick_reaches_past_the_stop_distance():
    assert navigation_robot.allowed_speed(0.35, 100.0, 1.5, 0.3, 0.1) == pytest.approx(0.5)


def test_kernels_and_their_plain_form_agree_to_the_bit():
    plain = getattr(speed_limits.towards, "py_func", speed_limits.towards)
    v = a = w = b = 0.0
    for tick in range(500):
        target = (1.3, -0.7, 0.2)[tick // 170]
        v, a = towards(v, a, target, 0.8, 2.5, 0.01)
        w, b = plain(w, b, target, 0.8, 2.5, 0.01)
        assert (v, a) == (w, b)
