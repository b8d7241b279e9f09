"""Heights from a grey image: PNG with 8 or 16 bits, not interlaced. Transparent pixels are no ground."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from microsim.errors import UsageError

MAX_PIXELS = 64_000_000
MAX_BYTES = 512_000_000
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # by colour type; 3, a palette, has no heights


def read_heights(file: Path, low: float, high: float) -> npt.NDArray[np.float32]:
    """(ny, nx) [m], row 0 in the south: black is `low`, white is `high`; the top of the image is north."""
    pixels, largest = read_png(file)
    channels = pixels.shape[2]
    grey = pixels[:, :, 0].astype(np.float64)
    if channels >= 3:
        grey = (grey + pixels[:, :, 1] + pixels[:, :, 2]) / 3.0
    heights = low + (high - low) * (grey / largest)
    if channels in (2, 4):
        heights[pixels[:, :, -1] == 0] = np.nan
    return heights[::-1].astype(np.float32)


def read_png(file: Path) -> tuple[npt.NDArray[np.uint16], int]:
    """(rows, columns, channels), and the largest value a pixel can have."""
    try:
        raw = file.read_bytes() if file.stat().st_size <= MAX_BYTES else b""
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return _decoded(raw)
    except (_PngError, struct.error, zlib.error) as error:
        raise UsageError(f"{file}: {error}") from None


class _PngError(Exception):
    pass


def _decoded(raw: bytes) -> tuple[npt.NDArray[np.uint16], int]:
    if not raw.startswith(_SIGNATURE):
        raise _PngError("expected a PNG image")
    header, data = _chunks(raw)
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if depth not in (8, 16) or colour not in _CHANNELS or interlaced:
        raise _PngError("expected a grey PNG of 8 or 16 bits without a palette, not interlaced")
    if not 0 < width * height <= MAX_PIXELS:
        raise _PngError(f"expected 1 to {MAX_PIXELS:,} pixels, found {width} x {height}")
    pixel = _CHANNELS[colour] * depth // 8
    expected = height * (1 + width * pixel)
    inflater = zlib.decompressobj()
    flat = inflater.decompress(data, expected)
    if len(flat) != expected:
        raise _PngError("the image is cut short")
    rows = np.frombuffer(flat, np.uint8).reshape(height, 1 + width * pixel)
    plain = _unfiltered(rows, pixel)
    values = plain.view(">u2") if depth == 16 else plain
    return values.astype(np.uint16).reshape(height, width, _CHANNELS[colour]), (1 << depth) - 1


def _chunks(raw: bytes) -> tuple[bytes, bytes]:
    """The header, and all image data in one piece."""
    header, data, at = b"", [], len(_SIGNATURE)
    while at + 12 <= len(raw):
        (size,) = struct.unpack_from(">I", raw, at)
        kind, content = raw[at + 4 : at + 8], raw[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            header = content
        elif kind == b"IDAT":
            data.append(content)
        at += 12 + size
    return header, b"".join(data)


def _unfiltered(rows: npt.NDArray[np.uint8], pixel: int) -> npt.NDArray[np.uint8]:
    """Undoes the five filters of PNG, row by row."""
    out = np.zeros((rows.shape[0], rows.shape[1] - 1), np.uint8)
    above = np.zeros(out.shape[1], np.uint8)
    for index, row in enumerate(rows):
        kind, line = int(row[0]), row[1:]
        if kind == 0:
            out[index] = line
        elif kind == 1:
            parts = line.reshape(-1, pixel)
            out[index] = np.cumsum(parts, axis=0, dtype=np.uint8).reshape(-1)
        elif kind == 2:
            out[index] = line + above
        elif kind in (3, 4):
            out[index] = _from_neighbours(kind, line, above, pixel)
        else:
            raise _PngError(f"row {index} has an unknown filter")
        above = out[index]
    return out


def _from_neighbours(kind: int, line: npt.NDArray[np.uint8], above: npt.NDArray[np.uint8], pixel: int) -> list[int]:
    found: list[int] = []
    up_row = above.tolist()
    for index, value in enumerate(line.tolist()):
        left = found[index - pixel] if index >= pixel else 0
        up, corner = up_row[index], up_row[index - pixel] if index >= pixel else 0
        if kind == 3:
            guess = (left + up) // 2
        else:
            to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            guess = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
        found.append((value + guess) & 255)
    return found
