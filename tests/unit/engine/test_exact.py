"""exact.py against 50 digits: within 2 ulp over the ranges in use, and the same bits compiled or not."""

import math
import random

import mpmath
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from microsim.engine import exact
from tests.support import COMPILED, many

mpmath.mp.prec = 200
HALF_PI = mpmath.pi / 2


def ulps(got: float, true: mpmath.mpf) -> float:
    return float(abs(mpmath.mpf(got) - true) / math.ulp(float(true)))


def angles(count: int) -> list[float]:
    dice = random.Random(1)
    near = [float(k * HALF_PI) for k in dice.sample(range(63_000), count // 4)]
    return [
        *(dice.uniform(-math.pi, math.pi) for _ in range(count // 4)),
        *(dice.uniform(-1e5, 1e5) for _ in range(count // 4)),
        *(math.ldexp(dice.random(), -dice.randrange(60)) for _ in range(count // 4)),
        *near,
        *(math.nextafter(x, 0) for x in near),
        *(-math.nextafter(x, 1e9) for x in near),
    ]


def test_sine_and_cosine_are_within_two_ulp_up_to_1e5() -> None:
    for x in angles(many(20_000)):
        sine, cosine = exact.sincos(x)
        assert ulps(sine, mpmath.sin(mpmath.mpf(x))) <= 1.0, x
        assert ulps(cosine, mpmath.cos(mpmath.mpf(x))) <= 1.0, x


def test_sine_and_cosine_survive_the_worst_cancellation_below_1e5() -> None:
    """At the doubles nearest to every multiple of pi/2 almost all bits of the argument cancel."""
    worst = 0.0
    for k in range(1, 63_662, 1 if COMPILED else 97):
        x = float(k * HALF_PI)
        sine, cosine = exact.sincos(x)
        small, true = (sine, mpmath.sin(mpmath.mpf(x))) if k % 2 == 0 else (cosine, mpmath.cos(mpmath.mpf(x)))
        worst = max(worst, ulps(small, true))
    assert worst <= 2.0


@pytest.mark.parametrize(("x", "sine", "cosine"), [(0.0, 0.0, 1.0), (-0.0, 0.0, 1.0)])
def test_sine_and_cosine_of_zero_are_exact(x: float, sine: float, cosine: float) -> None:
    assert exact.sincos(x) == (sine, cosine)


@given(st.floats(-1e5, 1e5))
def test_sine_is_odd_and_cosine_even_to_the_bit(x: float) -> None:
    sine, cosine = exact.sincos(x)
    assert exact.sincos(-x) == (-sine, cosine)


@given(st.floats(-1e5, 1e5))
@example(math.pi)
@example(-math.pi)
@example(3 * math.pi)
def test_a_wrapped_angle_points_the_same_way_within_one_turn(angle: float) -> None:
    wrapped = exact.wrap_angle(angle)
    assert abs(wrapped) <= math.pi + 1e-15 * abs(angle)
    turns = (mpmath.mpf(angle) - mpmath.mpf(wrapped)) / (2 * mpmath.pi)
    assert abs(turns - mpmath.nint(turns)) < 1e-11


@given(st.floats(-math.pi, math.pi))
def test_wrapping_leaves_an_angle_within_a_half_turn_alone(angle: float) -> None:
    assert exact.wrap_angle(angle) == angle


def test_exp_is_within_two_ulp() -> None:
    dice = random.Random(2)
    points = [dice.uniform(-708, 709) for _ in range(many(4000))] + [dice.uniform(-1, 1) for _ in range(many(4000))]
    points += [k * math.log(2) / 2 for k in range(-2000, 2000, 7)]
    for x in points:
        assert ulps(exact.exp(x), mpmath.exp(mpmath.mpf(x))) <= 1.0, x


def test_exp_keeps_its_ends() -> None:
    assert exact.exp(0.0) == 1.0
    assert exact.exp(-math.inf) == 0.0
    assert exact.exp(-1e4) == 0.0
    assert exact.exp(1e4) == math.inf
    assert exact.exp(math.inf) == math.inf
    assert math.isnan(exact.exp(math.nan))


def test_log_is_within_two_ulp() -> None:
    dice = random.Random(3)
    points = [math.ldexp(dice.uniform(0.5, 1), dice.randrange(-1000, 1000)) for _ in range(many(4000))]
    points += [1 + dice.uniform(-0.3, 0.42) for _ in range(many(4000))] + [2.0**-53, 2.0**-52, 5e-324, 1.7e308]
    points += [math.nextafter(1.0, 2.0), math.nextafter(1.0, 0.0)]
    for x in points:
        assert ulps(exact.log(x), mpmath.log(mpmath.mpf(x))) <= 1.0, x


def test_log_of_one_is_zero() -> None:
    assert exact.log(1.0) == 0.0


def test_atan2_is_within_two_ulp_in_every_quadrant() -> None:
    dice = random.Random(4)
    for _ in range(many(10_000)):
        y, x = (math.copysign(math.exp(dice.uniform(-20, 20)), dice.random() - 0.5) for _ in range(2))
        assert ulps(exact.atan2(y, x), mpmath.atan2(mpmath.mpf(y), mpmath.mpf(x))) <= 2.0, (y, x)


@pytest.mark.parametrize("ratio", [0.4375, 0.6875, 1.1875, 2.4375])
def test_atan2_is_within_two_ulp_where_its_polynomials_meet(ratio: float) -> None:
    for y in (math.nextafter(ratio, 0), ratio, math.nextafter(ratio, 3)):
        assert ulps(exact.atan2(y, 1.0), mpmath.atan(mpmath.mpf(y))) <= 2.0


@pytest.mark.parametrize(
    ("y", "x", "angle"),
    [
        (0.0, 0.0, 0.0),
        (0.0, 1.0, 0.0),
        (0.0, -1.0, math.pi),
        (1.0, 0.0, math.pi / 2),
        (-1.0, 0.0, -math.pi / 2),
        (-0.0, -1.0, math.pi),  # signed zeros count as +0
        (1e300, 1e-300, math.pi / 2),
        (-1e300, 1e-300, -math.pi / 2),
        (1e-300, 1e300, 0.0),
        (1.0, 1.0, math.pi / 4),
        (-1.0, -1.0, -3 * math.pi / 4),
    ],
)
def test_atan2_is_exact_on_axes_and_diagonals(y: float, x: float, angle: float) -> None:
    assert exact.atan2(y, x) == angle


def test_tan_is_sine_over_cosine() -> None:
    for x in (0.1, 0.5, 1.2, -0.7):
        assert ulps(exact.tan(x), mpmath.tan(mpmath.mpf(x))) <= 3.0


@pytest.mark.skipif(not COMPILED, reason="there is only the plain form")
@given(st.floats(-1e5, 1e5))
def test_compiled_functions_give_the_bits_of_their_plain_form(x: float) -> None:
    for function in (exact.sincos, exact.exp, exact.wrap_angle):
        assert function(x) == function.py_func(x)
    if x > 0:
        assert exact.log(x) == exact.log.py_func(x)
    assert exact.atan2(x, 7.0) == exact.atan2.py_func(x, 7.0)
    assert exact.atan2(-3.0, x) == exact.atan2.py_func(-3.0, x)
