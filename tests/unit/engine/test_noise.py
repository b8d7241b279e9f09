"""Noise is what its name says, whatever else happens: known answers, distributions, independence."""

import math
import random

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from microsim.engine import noise
from tests.support import COMPILED, ks_distance, many

int64s = st.integers(-(2**63), 2**63 - 1)
MASK = 2**32 - 1


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(counter, key, answer):
    """The known-answer vectors of Random123, philox4x32 with 10 rounds."""
    assert noise._philox(*counter, *key) == answer


@given(int64s, st.integers(0, 2**62), st.integers(0, 2**31))
def test_uniforms_are_the_first_52_bits_of_each_half_of_a_block(seed, tick, index):
    key = noise.stream_key(seed, "any")
    a, b, c, d = noise._philox(index, 0, tick & MASK, tick >> 32, key & MASK, key >> 32)
    expected = tuple((((high << 32 | low) >> 12) + 0.5) / 2**52 for high, low in ((a, b), (c, d)))
    assert noise.uniforms(key, tick, index) == expected


def draws(count, key=1234, index=0):
    return np.array([noise.normals(key, tick, index) for tick in range(count)])


def test_normals_have_the_normal_distribution():
    numbers = draws(many(40_000)).ravel()
    cdf = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2.0)))
    assert ks_distance(numbers, cdf) < 1.95
    error = 4.0 / math.sqrt(len(numbers))
    assert abs(numbers.mean()) < error
    assert abs(numbers.var() - 1.0) < error * math.sqrt(2.0)
    assert abs((numbers**3).mean()) < error * math.sqrt(15.0)
    assert abs((numbers**4).mean() - 3.0) < error * math.sqrt(96.0)


def test_uniforms_are_uniform():
    numbers = np.array([noise.uniforms(77, tick, 3) for tick in range(many(40_000))]).ravel()
    assert ks_distance(numbers, lambda x: x) < 1.95


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("two streams", lambda n: draws(n, key=noise.stream_key(1, "drone/imu"))),
        ("two seeds", lambda n: draws(n, key=noise.stream_key(2, "drone/gps"))),
        ("two indices", lambda n: draws(n, key=noise.stream_key(1, "drone/gps"), index=1)),
        ("two ticks", lambda n: draws(n + 1, key=noise.stream_key(1, "drone/gps"))[1:]),
        ("both of a pair", lambda n: draws(n, key=noise.stream_key(1, "drone/gps"))[:, ::-1]),
    ],
)
def test_noise_is_independent_between(first, second):
    count = many(20_000)
    a, b = draws(count, key=noise.stream_key(1, "drone/gps")), second(count)
    for function in (lambda x: x, lambda x: x * x, np.sign):
        correlation = np.corrcoef(function(a[:, 0]), function(b[:, 0]))[0, 1]
        assert abs(correlation) < 4.0 / math.sqrt(count), first


def test_normal_quantiles_are_those_of_fifty_digits():
    mpmath.mp.prec = 200
    dice = random.Random(5)
    points = [dice.random() for _ in range(300)] + [2.0**-53, 1 - 2.0**-53, 1e-10, 1 - 1e-10, 0.075, 0.925, 0.5]
    points += [math.exp(-25.0), math.nextafter(math.exp(-25.0), 1), 0.5 + 2**-30]
    for u in points:
        true = mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(u) - 1)
        assert abs(noise.normal_from_uniform(u) - true) <= 4e-16 * max(1.0, abs(true)), u


def test_the_median_is_zero_and_quantiles_are_odd():
    assert noise.normal_from_uniform(0.5) == 0.0
    for u in (0.25, 0.0625, 2.0**-20):
        assert noise.normal_from_uniform(u) == -noise.normal_from_uniform(1.0 - u)


@given(int64s, st.integers(0, 2**62), st.integers(0, 2**21))
def test_uniforms_lie_strictly_between_zero_and_one(key, tick, index):
    for number in noise.uniforms(noise.stream_key(key, "any"), tick, index):
        assert 0.0 < number < 1.0
        assert number * 2.0**53 % 2 == 1  # an odd multiple: nothing was rounded


def test_the_largest_draw_is_below_one(monkeypatch):
    plain = noise.uniforms.py_func if COMPILED else noise.uniforms
    monkeypatch.setitem(plain.__globals__, "words", lambda *_: (0xFFFFFFFF,) * 4)
    assert max(plain(1, 1, 1)) < 1.0
    monkeypatch.setitem(plain.__globals__, "words", lambda *_: (0,) * 4)
    assert min(plain(1, 1, 1)) > 0.0


def test_every_possible_draw_has_a_finite_quantile():
    assert 8.2 < noise.normal_from_uniform(1.0 - 2.0**-53) < 8.3
    assert -8.3 < noise.normal_from_uniform(2.0**-53) < -8.2


@pytest.mark.skipif(not COMPILED, reason="there is only the plain form")
@given(int64s, int64s, st.integers(0, 2**62), st.integers(0, 2**31))
def test_compiled_noise_gives_the_bits_of_its_plain_form(seed, stream, tick, index):
    key = noise.mix(seed, stream)
    assert key == noise.mix.py_func(seed, stream)
    assert noise.uniforms(key, tick, index) == noise.uniforms.py_func(key, tick, index)
    assert noise.normals(key, tick, index) == noise.normals.py_func(key, tick, index)


@given(int64s, st.text(max_size=40))
def test_a_key_fits_a_signed_integer_for_any_seed_and_name(seed, name):
    key = noise.stream_key(seed, name)
    assert 0 <= key < 2**63
    assert key == noise.stream_key(seed, name)


def test_keys_of_neighbouring_seeds_and_similar_names_differ():
    names = [f"{robot}/{sensor}" for robot in ("drone", "rover", "drone1") for sensor in ("gps", "imu", "gps1")]
    seeds = [0, 1, -1, 2, 2**31, 2**32, 2**63 - 1, -(2**63), 2**32 + 1]
    assert len({noise.stream_key(seed, name) for seed in seeds for name in names}) == len(names) * len(seeds)


def test_a_key_never_changes():
    """Streams are part of the digest: renaming or rehashing one is a change to announce."""
    assert noise.stream_key(12345, "drone/gps") == 3315077196287935169


@pytest.mark.parametrize("length", [0, 1, 2, 3, 6, 7])
def test_a_filled_row_holds_the_numbers_drawn_one_by_one(length):
    out = np.empty(length)
    noise.fill_normals(99, 5, out)
    assert out.tolist() == [noise.normals(99, 5, i // 2)[i % 2] for i in range(length)]


def test_six_normals_are_three_pairs():
    assert noise.six_normals(3, 4) == (*noise.normals(3, 4, 0), *noise.normals(3, 4, 1), *noise.normals(3, 4, 2))


def test_noise_of_many_worlds_is_that_of_each():
    dice = np.random.default_rng(6)
    keys, ticks, out = dice.integers(-(2**63), 2**63 - 1, 70), dice.integers(0, 2**40, 70), np.empty(140)
    noise.fill_uniforms(keys, ticks, 2, out)
    alone = [noise.uniforms(int(key), int(tick), 2) for key, tick in zip(keys, ticks, strict=True)]
    assert out.tolist() == [first for first, _ in alone] + [second for _, second in alone]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 500])
def test_quantiles_side_by_side_are_those_of_each(count):
    """Also where all are in the tails, none is, and some are farther out than any that the tests draw."""
    dice = np.random.default_rng(count)
    edges = np.array([0.5, 0.075, 0.925, 0.07499, 0.92501, 1e-9, 2.0**-53, 1.0 - 2.0**-53, 1e-11, 1.0 - 1e-11])
    for drawn in (
        dice.random(count),
        0.2 + 0.6 * dice.random(count),
        0.07 * dice.random(count),
        np.resize(edges, count),
    ):
        out = np.empty(count)
        noise.fill_quantiles(drawn, np.empty(count + 16, np.int64), out)
        assert out.tolist() == [noise.normal_from_uniform(float(u)) for u in drawn]
