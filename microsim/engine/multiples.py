"""Multiples of a fraction, rounded half up, in 64 bits: the ticks of a trigger, and the nanoseconds of ticks.

The product of a tick and a rate with 17 digits needs 100 bits, which compiled code does not have. So a fraction is
given as whole + rest / parts, and i · rest is divided by parts before it can overflow.
"""

from fractions import Fraction
from typing import NamedTuple

from microsim.engine.compiled import inlined, kernel

_LARGEST = 2**60  # of rest, parts and their products


class Increment(NamedTuple):
    """whole + rest / parts, which is above 0, with rest < parts."""

    whole: int
    rest: int
    parts: int


def step_of(value: Fraction) -> Increment:
    """Of periods and ticks: the numbers of a rate with up to 17 digits fit."""
    whole, rest = divmod(value.numerator, value.denominator)
    if max(whole, value.denominator) >= _LARGEST:
        raise ValueError(f"{value} needs numbers of more than 60 bits")
    return Increment(whole, rest, value.denominator)


@kernel
def _of_long(whole: int, rest: int, parts: int, i: int) -> int:
    """`multiple` where i · rest needs more than 60 bits: long division, one bit of i after the other."""
    quotient, remainder = 0, 0
    for bit in range(62, -1, -1):
        quotient, remainder = 2 * quotient, 2 * remainder + ((i >> bit) & 1) * rest  # below 3 · parts
        while remainder >= parts:
            quotient, remainder = quotient + 1, remainder - parts
    return i * whole + quotient + (1 if 2 * remainder >= parts else 0)


@inlined
def multiple(whole: int, rest: int, parts: int, i: int) -> int:
    """i · (whole + rest / parts), rounded half up; i from 0 on."""
    if float(i) * float(rest) < _LARGEST:
        return i * whole + (2 * i * rest + parts) // (2 * parts)
    return _of_long(whole, rest, parts, i)


@inlined
def count_until(whole: int, rest: int, parts: int, end: int) -> int:
    """The largest i whose multiple is at most `end`, of a step of 1 or more; `end` from 0 on."""
    if rest == 0:
        return end // whole
    i = int(float(end + 1) / (float(whole) + float(rest) / float(parts)))  # to within one or two
    while multiple(whole, rest, parts, i) > end:
        i -= 1
    while multiple(whole, rest, parts, i + 1) <= end:
        i += 1
    return i


@kernel
def last_until(whole: int, rest: int, parts: int, end: int) -> int:
    """The largest multiple that is at most `end`."""
    return multiple(whole, rest, parts, count_until(whole, rest, parts, end))


@kernel
def first_from(whole: int, rest: int, parts: int, begin: int) -> int:
    """The smallest multiple that is at least `begin`."""
    if begin <= 0:
        return 0
    return multiple(whole, rest, parts, count_until(whole, rest, parts, begin - 1) + 1)
