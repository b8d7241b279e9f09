"""PNG of an image, to the same bytes everywhere: those of zlib differ between its versions and builds.

Pixels that repeat the one to the left or above become matches of deflate with its fixed codes (RFC 1951), which suits
images in the palette's few colours; noise does not get smaller.
"""

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import kernel

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_SHORTEST, _LONGEST, _FARTHEST = 4, 258, 32768  # of matches: shorter ones take as many bits as literals
_CHANNELS = 3
Bytes = npt.NDArray[np.uint8]


@kernel
def _put(out: Bytes, at: int, value: int, bits: int) -> int:
    """Append bits, the lowest first; `at` counts bits."""
    for k in range(bits):
        if (value >> k) & 1:
            out[at >> 3] |= np.uint8(1 << (at & 7))
        at += 1
    return at


@kernel
def _put_code(out: Bytes, at: int, code: int, bits: int) -> int:
    """Append a Huffman code, its highest bit first."""
    for k in range(bits - 1, -1, -1):
        at = _put(out, at, (code >> k) & 1, 1)
    return at


@kernel
def _put_symbol(out: Bytes, at: int, symbol: int) -> int:
    """A literal, the end or a length, by the fixed code."""
    if symbol < 144:
        return _put_code(out, at, 0x30 + symbol, 8)
    if symbol < 256:
        return _put_code(out, at, 0x190 + symbol - 144, 9)
    if symbol < 280:
        return _put_code(out, at, symbol - 256, 7)
    return _put_code(out, at, 0xC0 + symbol - 280, 8)


@kernel
def _put_match(out: Bytes, at: int, length: int, distance: int) -> int:
    """Codes cover ranges that double: of every four lengths in a row, of every two distances."""
    if length == _LONGEST:
        at = _put_symbol(out, at, 285)
    else:
        rest, extra = length - 3, 0
        while (rest >> extra) >= 8:
            extra += 1
        at = _put_symbol(out, at, 257 + 4 * extra + (rest >> extra))
        at = _put(out, at, rest & ((1 << extra) - 1), extra)
    rest, extra = distance - 1, 0
    while (rest >> extra) >= 4:
        extra += 1
    at = _put_code(out, at, 2 * extra + (rest >> extra), 5)
    return _put(out, at, rest & ((1 << extra) - 1), extra)


@kernel
def _repeats(data: Bytes, at: int, distance: int) -> int:
    """How many bytes from `at` on are those `distance` before them."""
    length = 0
    if distance <= at and distance <= _FARTHEST:
        while length < _LONGEST and at + length < data.size and data[at + length] == data[at + length - distance]:
            length += 1
    return length


@kernel
def _deflate(data: Bytes, row: int, out: Bytes) -> int:
    """One block with fixed codes; its size in bytes."""
    place = _put(out, 0, 3, 3)  # the last block, fixed codes
    at = 0
    while at < data.size:
        left, above = _repeats(data, at, _CHANNELS), _repeats(data, at, row)
        length, distance = (left, _CHANNELS) if left >= above else (above, row)
        if length >= _SHORTEST:
            place = _put_match(out, place, length, distance)
            at += length
        else:
            place = _put_symbol(out, place, int(data[at]))
            at += 1
    return (_put_symbol(out, place, 256) + 7) >> 3


def png_of(image: npt.NDArray[Any]) -> bytes:
    """Of an image (height, width, 3) of bytes."""
    height, width, _ = image.shape
    rows = np.zeros((height, 1 + _CHANNELS * width), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = image.reshape(height, -1)
    data = rows.reshape(-1)
    packed = np.zeros(data.size + data.size // 8 + 16, np.uint8)  # a literal has 9 bits at most
    stream = b"\x78\x01" + packed[: _deflate(data, rows.shape[1], packed)].tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = stream + struct.pack(">I", zlib.adler32(data.tobytes()))
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
