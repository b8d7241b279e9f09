"""CRC-32 of a whole from the CRC-32 of its parts, so that no byte is summed twice."""

from __future__ import annotations

from functools import cache

_POLYNOMIAL = 0xEDB88320  # reflected: the highest bit stands for x**0
_ONE = 1 << 31


def combined(first: int, second: int, length: int) -> int:
    """The checksum of two parts side by side, of which the second has `length` bytes."""
    return _times(_power(8 * length), first) ^ second


def _times(a: int, b: int) -> int:
    """Product of two polynomials modulo CRC-32's."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@cache
def _doubling(exponent: int) -> int:
    """x ** (2 ** exponent)"""
    if exponent == 0:
        return _ONE >> 1
    half = _doubling(exponent - 1)
    return _times(half, half)


def _power(exponent: int) -> int:
    """x ** exponent"""
    result, bit = _ONE, 0
    while exponent >> bit:
        if exponent >> bit & 1:
            result = _times(_doubling(bit), result)
        bit += 1
    return result
