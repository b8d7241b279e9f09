"""Writes Gaussians for other programs: PLY as trainers write it, compressed PLY as SuperSplat, and spz, version 4.

Rows are those of bundles (see `SplatSource.rows`), in the map frame, and stay in their order.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_model import FIRST_HARMONIC
from microsim.bundle.bundle_writing import splat_header
from microsim.bundle.mapped_arrays import columns_of
from microsim.bundle.splat_sources import CHUNK
from microsim.bundle.zstd import packed
from microsim.errors import UsageError

Floats: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = npt.NDArray[Any]  # (n, 14 + rest)

EXPORT_SUFFIXES = (".compressed.ply", ".ply", ".spz")
_SPZ_REACH = 1 << 23  # of the 24 bits of a coordinate
_MOST_FRACTION_BITS = 16


def write_for_others(rows: Rows, file: Path, degree: int) -> int:
    """In the format that the file's name says; gives its bytes."""
    name = file.name.lower()
    if name.endswith(".compressed.ply"):
        data = compressed_ply(rows.astype(np.float64), degree)
    elif name.endswith(".ply"):
        data = splat_header(len(rows), degree, w_first=True) + rows.astype("<f4").tobytes()
    elif name.endswith(".spz"):
        data = spz(rows.astype(np.float64), degree)
    else:
        raise UsageError(
            f"{file}: expected a name that ends in {', '.join(EXPORT_SUFFIXES[:-1])} or {EXPORT_SUFFIXES[-1]}"
        )
    file.write_bytes(data)
    return len(data)


def spz(rows: Floats, degree: int) -> bytes:
    """Version 4: a header, a table of streams, and each attribute in a stream of ZSTD."""
    reach = float(np.abs(rows[:, 0:3]).max(initial=0.0))
    bits = next((each for each in range(_MOST_FRACTION_BITS, 0, -1) if reach * 2**each < _SPZ_REACH), 0)
    whole = np.clip(np.round(rows[:, 0:3] * 2.0**bits), -_SPZ_REACH, _SPZ_REACH - 1).astype(np.int32)
    rest = rows[:, 14:].reshape(len(rows), 3, -1).transpose(0, 2, 1).reshape(len(rows), -1)
    parts = [
        np.stack([whole >> shift & 255 for shift in (0, 8, 16)], axis=2).astype(np.uint8),
        _byte(255.0 * _sigmoid(rows[:, 10])),
        _byte(255.0 * (0.5 + 0.15 * rows[:, 11:14])),
        _byte(16.0 * (rows[:, 3:6] + 10.0)),
        _smallest_three(rows[:, 6:10]).astype("<u4"),
        _byte(128.0 * rest + 128.0),
    ]
    blocks = [part.tobytes() for part in parts if part.size]
    streams = [packed(block) for block in blocks]
    header = struct.pack("<4sIIBBBBIIII", b"NGSP", 4, len(rows), degree, bits, 0, len(streams), 32, 0, 0, 0)
    table = b"".join(struct.pack("<QQ", len(a), len(b)) for a, b in zip(streams, blocks, strict=True))
    return header + table + b"".join(streams)


def _byte(values: Floats) -> npt.NDArray[np.uint8]:
    return np.clip(np.round(values), 0.0, 255.0).astype(np.uint8)


def _sigmoid(values: Floats) -> Floats:
    with np.errstate(over="ignore"):
        shares: Floats = 1.0 / (1.0 + np.exp(-values))
    return shares


def _smallest_three(rotations: Floats) -> npt.NDArray[np.int64]:
    """Of [x, y, z, w]: the two highest bits say which is largest, the others have a sign and nine bits, x highest."""
    unit, largest = _turned_to_largest(rotations)
    bits: npt.NDArray[np.int64] = largest.copy()
    for component in range(4):
        level = np.clip(np.round(np.abs(unit[:, component]) * np.sqrt(2.0) * 511.0), 0, 511).astype(np.int64)
        level |= np.where(unit[:, component] < 0.0, 512, 0)
        bits = np.where(largest == component, bits, bits << 10 | level)
    return bits


def _turned_to_largest(rotations: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Of length 1, and which component is largest: that one is positive."""
    unit = rotations / np.linalg.norm(rotations, axis=1, keepdims=True)
    largest = np.argmax(np.abs(unit), axis=1)
    sign = np.sign(np.take_along_axis(unit, largest[:, None], axis=1))
    return unit * np.where(sign == 0.0, 1.0, sign), largest


def compressed_ply(rows: Floats, degree: int) -> bytes:
    """16 bytes each, between the bounds of every 256 of them, and a byte for each further harmonic."""
    chunks, rest = -(-len(rows) // CHUNK), len(columns_of(degree)) - 14
    lines = ["ply", "format binary_little_endian 1.0", f"element chunk {chunks}"]
    parts = (rows[:, 0:3], np.clip(rows[:, 3:6], -20.0, 20.0), 0.5 + FIRST_HARMONIC * rows[:, 11:14])
    bounds, shares = zip(*(_within_bounds(part) for part in parts), strict=True)
    for part, axes in (("", "xyz"), ("scale_", "xyz"), ("", "rgb")):
        lines += [f"property float {end}_{part}{axis}" for end in ("min", "max") for axis in axes]
    lines += [f"element vertex {len(rows)}"]
    lines += [f"property uint packed_{name}" for name in ("position", "rotation", "scale", "color")]
    if rest:
        lines += [f"element sh {len(rows)}", *(f"property uchar f_rest_{k}" for k in range(rest))]
    unit, largest = _turned_to_largest(rows[:, [9, 6, 7, 8]])  # w first
    rotation = largest.copy()
    for component in range(4):
        level = _level(unit[:, component] * np.sqrt(0.5) + 0.5, 10)
        rotation = np.where(largest == component, rotation, rotation << 10 | level)
    colour = _packed([*shares[2].T, _sigmoid(rows[:, 10])], (8, 8, 8, 8))
    vertices = np.stack(
        [_packed(shares[0].T, (11, 10, 11)), rotation, _packed(shares[1].T, (11, 10, 11)), colour], axis=1
    )
    data = [
        ("\n".join([*lines, "end_header", ""])).encode("ascii"),
        np.concatenate(bounds, axis=1).astype("<f4").tobytes(),
    ]
    data += [vertices.astype("<u4").tobytes()]
    if rest:
        data.append(np.clip(np.floor((rows[:, 14:] / 8.0 + 0.5) * 256.0), 0.0, 255.0).astype(np.uint8).tobytes())
    return b"".join(data)


def _within_bounds(values: Floats) -> tuple[Floats, Floats]:
    """Lowest and highest of each chunk (chunks, 6), and where each value is between them, 0 to 1."""
    starts = np.arange(0, len(values), CHUNK)
    if not len(starts):
        return np.zeros((0, 6)), values
    low, high = (
        each.reduceat(values, starts).astype(np.float32).astype(np.float64) for each in (np.minimum, np.maximum)
    )
    own = np.arange(len(values)) // CHUNK
    span = np.maximum(high - low, 1e-12)
    return np.concatenate([low, high], axis=1), np.clip((values - low[own]) / span[own], 0.0, 1.0)


def _level(shares: Floats, bits: int) -> npt.NDArray[np.int64]:
    most = (1 << bits) - 1
    return np.clip(np.floor(shares * most + 0.5), 0, most).astype(np.int64)


def _packed(shares: Any, bits: tuple[int, ...]) -> npt.NDArray[np.int64]:
    found = np.zeros(len(shares[0]), np.int64)
    for share, width in zip(shares, bits, strict=True):
        found = found << width | _level(share, width)
    return found
