"""CRC-32 of a whole from the CRC-32 of its parts, so that no byte is summed twice; and one that kernels can call."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import kernel

_POLYNOMIAL = 0xEDB88320  # reflected: the highest bit stands for x**0
_ONE = 1 << 31
_ALL = 0xFFFFFFFF


@kernel
def combined(first: int, second: int, length: int) -> int:
    """The checksum of two parts side by side, of which the second has `length` bytes."""
    power, bits, left = _ONE, _ONE >> 1, 8 * length  # x ** (8 * length), by squaring x
    while left:
        if left & 1:
            power = _times(bits, power)
        bits = _times(bits, bits)
        left >>= 1
    return _times(power, first) ^ second


@kernel
def _times(a: int, b: int) -> int:
    """Product of two polynomials modulo CRC-32's."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & _ALL
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _table() -> npt.NDArray[np.int64]:
    values = np.arange(256, dtype=np.int64)
    for _ in range(8):
        values = (values >> 1) ^ np.where(values & 1, _POLYNOMIAL, 0)
    return values


_BYTES = _table()


@kernel
def crc32_of(data: npt.NDArray[np.uint8]) -> int:
    """Byte by byte: slower than zlib's, for small things inside of kernels."""
    crc = _ALL
    for byte in data:
        crc = (crc >> 8) ^ _BYTES[(crc ^ byte) & 0xFF]
    return crc ^ _ALL
