"""Latencies that keep the order: their distribution and correlation are those of the closed forms, at every rate."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from microsim.engine.delay_line import DelayLine, Latency, delay_at
from microsim.engine.jitter import INDEPENDENT, next_deviation
from microsim.engine.noise import mix, normals, stream_key
from tests.latency_laws import JITTER_MS, RATES, correlation, link_latencies, variance_of_mean, violations
from tests.support import many

KEY = stream_key(5, "a link")


def deviations(gap: float, count: int, key: int = KEY) -> np.ndarray:
    found = np.empty(count)
    found[0] = next_deviation(key, 0, 0.0, math.inf)
    for k in range(1, count):
        found[k] = next_deviation(key, k, found[k - 1], gap)
    return found


@given(
    st.integers(0, 2**62), st.integers(0, 10**9), st.floats(-8.3, 8.3), st.floats(0.0, INDEPENDENT, exclude_max=True)
)
def test_nothing_falls_faster_than_time_passes(key: int, number: int, last: float, elapsed: float) -> None:
    found = next_deviation(key, number, last, elapsed)
    assert last - elapsed <= found < 10.0
    assert elapsed or found == last  # the same moment, the same latency


@pytest.mark.parametrize("elapsed", [INDEPENDENT, 7.0, 1e300, math.inf, -1.0, math.nan])
def test_what_is_far_apart_has_a_latency_of_its_own(elapsed: float) -> None:
    assert next_deviation(KEY, 9, 3.0, elapsed) == normals(KEY, 9, 0)[0]


@pytest.mark.parametrize("gap", [0.03, 0.1, 0.3, 0.55, 1.0, 1.7, 3.0, 5.9, 6.0])
def test_every_deviation_is_normal_at_every_rate(gap: float) -> None:
    """Each from a chain of its own, two steps after its beginning: so they are independent (Kolmogorov-Smirnov)."""
    count = many(4000, 400)
    found = np.sort([deviations(gap, 3, mix(KEY, k))[2] for k in range(count)])
    normal = np.array([0.5 * math.erfc(-each / math.sqrt(2.0)) for each in found])
    furthest = np.abs(normal - (np.arange(count) + 0.5) / count).max()
    assert furthest < 2.0 / math.sqrt(count)  # one in 1500


@pytest.mark.parametrize("gap", [0.03, 0.3, 0.55, 1.0, 3.0])
def test_their_correlation_is_that_of_the_backward_equation(gap: float) -> None:
    count = many(20_000, 2000)
    found, lags = deviations(gap, count), np.array([1, 2, 3, 10])
    expected = correlation(gap * lags)
    error = 4.0 * math.sqrt(max(5.0 / gap, 1.0) / count)
    for lag, each in zip(lags, expected, strict=True):
        assert np.mean(found[lag:] * found[:-lag]) == pytest.approx(each, abs=error)


def test_they_are_nearly_independent_one_jitter_apart_and_further() -> None:
    """What the page of decisions says of the correlation of neighbours."""
    lags = np.arange(0.0, INDEPENDENT, 0.01)
    found = correlation(lags)
    assert found[0] == pytest.approx(1.0, abs=0.01)
    assert np.abs(found[lags >= 1.0]).max() < 0.09
    assert np.abs(found[lags >= 2.5]).max() < 0.03
    assert abs(found[-1]) < 1e-3


def test_a_long_mean_has_the_variance_of_the_closed_form() -> None:
    """sqrt(2/π) / T; of the same packets, independent: gap / T."""
    gap, count = 0.05, 100_000
    assert variance_of_mean(gap, count) * gap * count == pytest.approx(math.sqrt(2.0 / math.pi), rel=0.03)


@pytest.mark.parametrize(("rate", "share"), [(10, 0.999), (60, 0.99), (120, 0.95)])
def test_the_mean_of_a_hundred_packets_is_within_ten_milliseconds_at_this_share(rate: int, share: float) -> None:
    """PRD 11.4.3; independent latencies, which change places, have 0.9991 at every rate."""
    spread = JITTER_MS * math.sqrt(variance_of_mean(1000.0 / rate / JITTER_MS, 100))
    expected = math.erf(10.0 / spread / math.sqrt(2.0))
    assert expected == pytest.approx(share, abs=0.006)
    count = many(600, 60)
    close = np.mean([abs(link_latencies(seed, rate, 100).mean() - 80.0) <= 10.0 for seed in range(count)])
    assert close == pytest.approx(expected, abs=4.0 * math.sqrt(expected * (1 - expected) / count) + 1.0 / count)


@pytest.mark.parametrize("rate", RATES)
def test_a_link_keeps_order_mean_spread_and_correlation_at_every_rate(rate: int) -> None:
    assert violations(rate, many(4000, 400)) == []


def frame_delays(latency: Latency, period: int, count: int) -> np.ndarray:
    line = DelayLine(latency, np.array([KEY]))
    found = [delay_at(line.address, 0, tick) for tick in range(0, period * count, period)]
    assert all(a <= b + period for a, b in itertools.pairwise(each for each in found if each >= 0))
    return np.array(found)


@pytest.mark.parametrize("rate", [2, 10, 30, 60])
def test_images_keep_order_mean_and_spread_at_every_rate(rate: int) -> None:
    """60 Hz of ticks: rounding to them adds (1000/60)² / 12 ms²."""
    count = many(10_000, 500)
    found = frame_delays(Latency(80.0, JITTER_MS, 0.0, 60.0), 60 // rate, count) * (1000.0 / 60.0)
    gap = 1000.0 / rate / JITTER_MS
    assert found.mean() == pytest.approx(80.0, abs=4 * JITTER_MS * math.sqrt(variance_of_mean(gap, count)) + 0.1)
    assert found.std() == pytest.approx(math.sqrt(JITTER_MS**2 + (1000.0 / 60.0) ** 2 / 12.0), rel=0.03 + 20 / count)


def test_a_lost_image_takes_no_part_in_the_latency_of_others() -> None:
    line = DelayLine(Latency(80.0, JITTER_MS, 1.0, 60.0), np.array([KEY]))
    assert delay_at(line.address, 0, 12) == -1
    assert not line.queues.any()
