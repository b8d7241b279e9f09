"""Triggers and stamps in 64 bits are those of exact fractions, for every rate that a scenario may have, at any tick."""

from fractions import Fraction
from itertools import count, takewhile
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.batch.host_loops import HostLoops
from microsim.engine.compiled import plain
from microsim.engine.compiled_tick import LAST_TICK
from microsim.engine.multiples import first_from, last_until, multiple, step_of
from microsim.engine.timekeeper import NS_PER_S, Clock, Trigger
from tests.support import bare, many
from tests.unit.engine.rate_samples import Sample, assert_worlds_fire, samples


def check(sample: Sample) -> None:
    """Each tick by itself, and as worlds of a batch."""
    assert_worlds_fire(HostLoops(), sample)
    trigger, clock = Trigger(sample.rate, sample.physics_hz), Clock(sample.physics_hz)
    for tick in sample.ticks:
        last = sample.last_firing(tick)
        assert last_until(*trigger.step, tick) == last, (sample, tick)
        assert trigger.next_tick(last) == last, (sample, tick)
        following = first_from(*trigger.step, tick + 1)
        assert following == trigger.next_tick(tick + 1), (sample, tick)
        assert sample.last_firing(following) == following > tick, (sample, tick)
        assert sample.last_firing(following - 1) == last, (sample, tick)
        time_ns = sample.time_ns(tick)
        assert clock.time_ns(tick) == time_ns, (sample, tick)
        if time_ns < 2**31 * NS_PER_S:
            assert multiple(*clock.step_ns, tick) == time_ns, (sample, tick)


def test_triggers_and_stamps_are_those_of_fractions() -> None:
    for sample in samples(many(8_000, 800), seed=29):
        check(sample)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_million_triggers_and_stamps_are_those_of_fractions(seed: int) -> None:
    for sample in samples(many(100_000), seed):
        check(sample)


def test_the_uncompiled_form_gives_the_same_numbers() -> None:
    for sample in samples(400, seed=3):
        step = Trigger(sample.rate, sample.physics_hz).step
        for kernel in (last_until, first_from):
            assert [plain(kernel)(*step, tick) for tick in sample.ticks] == [
                kernel(*step, tick) for tick in sample.ticks
            ]


def test_a_step_that_64_bits_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="60 bits"):
        step_of(Fraction(2**61))
    with pytest.raises(ValueError, match="60 bits"):
        step_of(Fraction(1, 2**60 + 1))


# ---- runs


def scenario(rate: float, physics_hz: float) -> dict[str, Any]:
    place = {"map_pose": {"x": 10, "y": 10}}
    return {"physics_hz": physics_hz, "obstacles": [], "robots": {"rover": bare(start=place, imu={"hz": rate})}}


PAIRS = [(250 / 3, 250), (60 / 7, 60), (1 / 3, 1000), (7.3, 250 / 3), (1 / 30, 1 / 7), (9999.999999999998, 10_000)]


def stamps(rate: float, physics_hz: float, first: int, last: int) -> list[int]:
    """Of the firings among these ticks."""
    sample = Sample(rate, physics_hz, [])
    i = int(first / sample.period)
    ticks = (Fraction(n) * sample.period + Fraction(1, 2) for n in count(i))
    return [sample.time_ns(tick) for tick in takewhile(lambda tick: tick <= last, map(int, ticks)) if tick >= first]


@pytest.mark.parametrize(("rate", "physics_hz"), PAIRS)
@pytest.mark.parametrize("begin", [0, 500, 1600, 100_000])
def test_a_sensor_fires_at_its_ticks_with_their_stamps(rate: float, physics_hz: float, begin: int) -> None:
    sim = microsim.Simulation(scenario(rate, physics_hz))
    sim.step(0)
    sim.advance(begin)
    found = [message.stamp_ns for message in sim.step(300) if message.topic == "/rover/imu/data_raw"]
    assert found == stamps(rate, physics_hz, begin + 1, begin + 300)
    clocks = [message.stamp_ns for message in sim.step(5) if message.topic == "/clock"]
    assert set(clocks) <= {Sample(rate, physics_hz, []).time_ns(begin + 300 + k) for k in range(1, 6)}


@pytest.mark.parametrize(("rate", "physics_hz"), PAIRS)
def test_worlds_at_different_ticks_read_their_sensors_at_their_own(rate: float, physics_hz: float) -> None:
    batch = microsim.BatchSimulation(scenario(rate, physics_hz), n=5)
    sample = Sample(rate, physics_hz, [])
    for world, ticks in enumerate((530, 20, 1090, 7)):
        batch.advance(ticks)
        batch.reset([world])
    read = 0
    for ticks in (1, 2, 13, 50, 1):
        batch.step(ticks)
        seen, now = batch.sampled_at["rover/imu"], batch.tick
        last = np.array([sample.last_firing(tick) for tick in now.tolist()])
        is_new = last > now - ticks
        assert seen[is_new].tolist() == last[is_new].tolist()
        assert (seen[~is_new] <= last[~is_new]).all()
        read += int(is_new.sum())
    assert read or rate / physics_hz < 0.001


def test_the_last_tick_of_the_longest_run_has_its_stamp() -> None:
    assert multiple(*Clock(10_000).step_ns, LAST_TICK) == 2**31 * NS_PER_S
    assert multiple(*Clock(250 / 3).step_ns, 10**11) == Sample(1, 250 / 3, []).time_ns(10**11)


def test_a_rate_too_slow_for_any_run_is_refused() -> None:
    for data in ({"physics_hz": 1e-300}, {"robots": {"rover": {"gps": {"hz": 1e-10}}}}):
        with pytest.raises(microsim.ScenarioError, match=r"expected a rate of at least 1e-09 Hz, found 1e-"):
            microsim.load_scenario(data)
