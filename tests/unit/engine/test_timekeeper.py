"""Time is a number of ticks: stamps and triggers are exact over any window."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microsim.engine.timekeeper import NS_PER_S, Clock, Trigger, exact_rate, round_half_up

rates = st.one_of(
    st.integers(1, 10_000),
    st.floats(0.001, 10_000).map(lambda x: float(f"{x:.4g}")),
    st.sampled_from([59.94, 29.97, 0.1, 1 / 3, 12, 7.5, 240]),
)


def ideal(i, rate_hz, physics_hz):
    """Tick of the i-th trigger: nearest to its ideal time, half up."""
    return round_half_up(i * exact_rate(physics_hz) / exact_rate(rate_hz))


def firings(trigger, first, last):
    ticks, tick = [], trigger.next_tick(first)
    while tick <= last:
        ticks.append(tick)
        tick = trigger.next_tick(tick + 1)
    return ticks


def test_twelve_hertz_at_a_hundred_fires_at_the_nearest_ticks():
    assert firings(Trigger(12, 100), 0, 100) == [0, 8, 17, 25, 33, 42, 50, 58, 67, 75, 83, 92, 100]


@given(rates, rates, st.integers(0, 10**12), st.integers(0, 40))
def test_a_trigger_fires_at_the_rounded_multiples_of_its_period_from_any_tick_on(rate, physics_hz, start, count):
    if exact_rate(rate) > exact_rate(physics_hz):
        rate, physics_hz = physics_hz, rate
    period = exact_rate(physics_hz) / exact_rate(rate)
    first = next(i for i in range(int(start / period), int(start / period) + 3) if ideal(i, rate, physics_hz) >= start)
    expected = [ideal(i, rate, physics_hz) for i in range(first, first + count + 1)]
    trigger = Trigger(rate, physics_hz)
    tick, found = trigger.next_tick(start), []
    for _ in range(count + 1):
        found.append(tick)
        tick = trigger.after(tick)
    assert found == expected
    assert len(set(found)) == len(found)


@given(rates, rates, st.integers(0, 10**9), st.integers(1, 100_000))
def test_any_window_holds_its_share_of_firings_to_within_one(rate, physics_hz, start, length):
    if exact_rate(rate) > exact_rate(physics_hz):
        rate, physics_hz = physics_hz, rate
    share = length * exact_rate(rate) / exact_rate(physics_hz)
    if share > 3000:
        length, share = int(length * 3000 / share), Fraction(3000)
    share = length * exact_rate(rate) / exact_rate(physics_hz)
    assert abs(len(firings(Trigger(rate, physics_hz), start, start + length - 1)) - share) <= 1


def test_triggers_half_way_between_two_ticks_fire_at_the_later():
    """40 Hz at 60: every 1.5 ticks."""
    assert firings(Trigger(40, 60), 0, 9) == [0, 2, 3, 5, 6, 8, 9]
    assert Trigger(40, 60).next_tick(2) == 2
    assert firings(Trigger(8, 100), 0, 50) == [0, 13, 25, 38, 50]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 200))
def test_the_next_firing_from_any_tick_is_the_first_that_is_not_earlier(p, q, at_least):
    """Small whole rates, so that many firings are half-way."""
    rate, physics_hz = sorted((p, q))
    ticks = [ideal(i, rate, physics_hz) for i in range(300)]
    assert Trigger(rate, physics_hz).next_tick(at_least) == next(tick for tick in ticks if tick >= at_least)


def test_a_rate_above_the_ticks_is_refused():
    with pytest.raises(ValueError, match="61 Hz is above physics_hz = 60"):
        Trigger(61, 60)
    assert firings(Trigger(60, 60), 0, 5) == [0, 1, 2, 3, 4, 5]


@given(rates, st.integers(0, 10**12))
def test_a_stamp_is_the_nearest_nanosecond(physics_hz, tick):
    exact = tick * NS_PER_S / exact_rate(physics_hz)
    assert abs(Clock(physics_hz).time_ns(tick) - exact) <= Fraction(1, 2)


@given(rates, st.integers(0, 10**12))
def test_stamps_grow_with_every_tick(physics_hz, tick):
    clock = Clock(physics_hz)
    assert clock.time_ns(tick) < clock.time_ns(tick + 1)


def test_a_second_is_a_second_whatever_the_rate():
    for physics_hz in (1, 30, 60, 100, 1000, 10_000):
        assert Clock(physics_hz).time_ns(3600 * physics_hz) == 3600 * NS_PER_S


def test_a_rate_is_what_was_written_not_its_binary_neighbour():
    assert exact_rate(0.1) == Fraction(1, 10)
    assert exact_rate(59.94) == Fraction(5994, 100)
    assert Clock(0.1).time_ns(10**9) == 10 * 10**9 * NS_PER_S


@pytest.mark.parametrize(("value", "nearest"), [("0.5", 1), ("1.5", 2), ("2.4", 2), ("-0.5", 0), ("7", 7)])
def test_halves_round_up(value, nearest):
    assert round_half_up(Fraction(value)) == nearest


def test_seconds_become_the_nearest_number_of_ticks():
    assert Clock(60).ticks_in(Fraction("0.08")) == 5  # 4.8


@given(rates, st.floats(0, 2**31), st.integers(0, 50))
def test_a_column_of_times_is_that_of_each_tick(physics_hz, start_s, count):
    """Up to 2**31 seconds, where the stamps of ROS 2 end."""
    clock = Clock(physics_hz)
    first = clock.ticks_in(Fraction(start_s))
    assert clock.times_ns(first, count).tolist() == [clock.time_ns(tick) for tick in range(first, first + count)]
