"""Gaussians as other programs write them, PLY of any kind, .splat and .spz, as rows in the order of bundles.

Files are read in pieces. Rotations become [x, y, z, w]; the caller checks the numbers.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle import ply
from microsim.bundle.bundle_model import FIRST_HARMONIC
from microsim.bundle.mapped_arrays import FIXED_COLUMNS, ROTATION, ROTATION_W_FIRST, columns_of
from microsim.bundle.rules import BundleFile, BundleReport
from microsim.errors import UsageError

Floats: TypeAlias = npt.NDArray[np.float64]

SPLAT_SUFFIXES = (".ply", ".splat", ".spz")
MAX_ASCII_BYTES = 4_000_000_000
MAX_SPZ_BYTES = 4_000_000_000  # unpacked
_AT_ONCE = 1 << 16


class SplatSource(ABC):
    """A file of Gaussians."""

    file: Path
    count: int
    degree: int

    @abstractmethod
    def rows(self, start: int, stop: int) -> Floats:
        """(stop - start, 14 + rest): log scales, rotation [x, y, z, w], logit opacity, harmonics by channel."""

    def pieces(self) -> Iterator[tuple[int, Floats]]:
        """(number of the first row, rows)."""
        for start in range(0, self.count, _AT_ONCE):
            yield start, self.rows(start, min(start + _AT_ONCE, self.count))


def open_splats(file: Path, w_first: bool = True) -> SplatSource:
    """Raises UsageError when the file is not what its name says."""
    if not file.is_file():
        raise UsageError(f"no such file: {file}")
    suffix = file.suffix.lower()
    if suffix == ".splat":
        return _PackedSplats(file)
    if suffix == ".spz":
        return _SpzSplats(file)
    return _PlySplats(file, w_first)


class _PlySplats(SplatSource):
    """PLY, binary of either byte order or ASCII, with any other properties beside those of a splat."""

    def __init__(self, file: Path, w_first: bool) -> None:
        report = BundleReport()
        source = BundleFile(report, file.name, file)
        header = ply.read_header(source, "splat-format", ply.FORMATS)
        if header is None:
            problem = report.problems[0]  # without the rule, which is that of bundles
            raise UsageError(f"{file}{f':{problem.line}' if problem.line else ''}: {problem.message}")
        vertex = header.elements[0] if header.elements else None
        if vertex is None or vertex.name != "vertex" or any(each.count_kind for each in vertex.properties):
            raise UsageError(f"{file}: expected the element 'vertex' first, without lists")
        self.file, self.count = file, vertex.count
        self._colours = _plain_colours(vertex)
        self.degree = self._degree([*(each.name for each in vertex.properties), *self._colours])
        columns = list(columns_of(self.degree))
        if w_first:
            columns[ROTATION] = ROTATION_W_FIRST
        self._columns = columns
        self._table = self._mapped(header, vertex)

    def _degree(self, names: list[str]) -> int:
        missing = [name for name in FIXED_COLUMNS if name not in names]
        if missing:
            raise UsageError(f"{self.file}: not a splat: it has no property {', '.join(missing)}")
        rest = sum(name.startswith("f_rest_") for name in names)
        degree = next((degree for degree in range(4) if len(columns_of(degree)) - 14 == rest), None)
        if degree is None or any(name not in names for name in columns_of(degree)):
            raise UsageError(f"{self.file}: expected 0, 9, 24 or 45 properties f_rest_0, f_rest_1 …, found {rest}")
        return degree

    def _mapped(self, header: ply.PlyHeader, vertex: ply.PlyElement) -> Any:
        order = ">" if header.format == "binary_big_endian" else "<"
        kind = np.dtype([(each.name, ply.KINDS[each.kind].replace("<", order)) for each in vertex.properties])
        size = self.file.stat().st_size
        if header.format == "ascii":
            return self._from_ascii(header, kind, size)
        if header.length + self.count * kind.itemsize > size:
            raise UsageError(f"{self.file}: the file is cut short: {self.count:,} Gaussians do not fit into it")
        return np.memmap(self.file, kind, "r", header.length, (self.count,)) if self.count else np.zeros(0, kind)

    def _from_ascii(self, header: ply.PlyHeader, kind: Any, size: int) -> Any:
        if size > MAX_ASCII_BYTES:
            raise UsageError(f"{self.file}: expected at most {MAX_ASCII_BYTES:,} bytes of ASCII")
        words = self.file.read_bytes()[header.length :].split()
        names = kind.names
        if len(words) < self.count * len(names):
            raise UsageError(f"{self.file}: the file is cut short: {self.count:,} Gaussians do not fit into it")
        try:
            numbers = np.array(words[: self.count * len(names)], np.float32).reshape(self.count, len(names))
        except ValueError as error:
            raise UsageError(f"{self.file}: {error}") from None
        rows = np.zeros(self.count, [(name, np.float32) for name in names])
        for index, name in enumerate(names):
            rows[name] = numbers[:, index]
        return rows

    def rows(self, start: int, stop: int) -> Floats:
        part = self._table[start:stop]
        with np.errstate(invalid="ignore"):  # NumPy warns of a signalling NaN; such splats are left out
            return np.stack([self._column(part, name) for name in self._columns], axis=1)

    def _column(self, part: Any, name: str) -> Floats:
        if name in self._colours:
            return (part[self._colours[name]] / 255.0 - 0.5) / FIRST_HARMONIC
        column: Floats = part[name].astype(np.float64)
        return column


def _plain_colours(vertex: ply.PlyElement) -> dict[str, str]:
    """Bytes of red, green and blue in place of harmonics of degree 0, as some programs write them."""
    kinds = {each.name: ply.KINDS[each.kind] for each in vertex.properties}
    if "f_dc_0" in kinds or any(kinds.get(name) != "u1" for name in ("red", "green", "blue")):
        return {}
    return {"f_dc_0": "red", "f_dc_1": "green", "f_dc_2": "blue"}


class _PackedSplats(SplatSource):
    """`.splat`: 32 bytes each, colours and rotation of 8 bits, no harmonics."""

    _KIND = np.dtype([("xyz", "<f4", 3), ("scale", "<f4", 3), ("rgba", "u1", 4), ("wxyz", "u1", 4)])

    def __init__(self, file: Path) -> None:
        size = file.stat().st_size
        self.count, over = divmod(size, self._KIND.itemsize)
        if over or not self.count:
            raise UsageError(f"{file}: expected 32 bytes for each Gaussian, found {size:,} bytes")
        self.file, self.degree = file, 0
        self._table = np.memmap(file, self._KIND, "r", 0, (self.count,))

    def rows(self, start: int, stop: int) -> Floats:
        part = self._table[start:stop]
        out = np.empty((len(part), 14))
        out[:, 0:3] = part["xyz"]
        with np.errstate(divide="ignore", invalid="ignore"):  # a Gaussian with a scale of 0 is left out later
            out[:, 3:6] = np.log(part["scale"].astype(np.float64))
        out[:, 6:10] = (part["wxyz"][:, [1, 2, 3, 0]].astype(np.float64) - 128.0) / 128.0
        out[:, 10] = _logit(part["rgba"][:, 3] / 255.0)
        out[:, 11:14] = (part["rgba"][:, 0:3] / 255.0 - 0.5) / FIRST_HARMONIC
        return out


class _SpzSplats(SplatSource):
    """`.spz`, versions 2 and 3: gzip around one block for each attribute."""

    _MAGIC = 0x5053474E

    def __init__(self, file: Path) -> None:
        data = _gunzipped(file)
        if len(data) < 16:
            raise UsageError(f"{file}: not an spz file: it has no header")
        magic, version, count, degree, bits, _flags, _ = struct.unpack_from("<IIIBBBB", data)
        if magic != self._MAGIC:
            raise UsageError(f"{file}: not an spz file: it begins with 0x{magic:08x}, expected 0x{self._MAGIC:08x}")
        if version not in (2, 3):
            raise UsageError(f"{file}: expected version 2 or 3 of spz, found {version}")
        if degree > 3:
            raise UsageError(f"{file}: expected harmonics of degree 0 to 3, found {degree}")
        self.file, self.count, self.degree, self._version = file, count, degree, version
        self._fraction = 2.0**-bits
        rest = 3 * ((degree + 1) ** 2 - 1)
        widths = (9, 1, 3, 3, 4 if version == 3 else 3, rest)
        if len(data) < 16 + count * sum(widths):
            raise UsageError(f"{file}: the file is cut short: {count:,} Gaussians do not fit into it")
        self._blocks, at = [], 16
        for width in widths:
            block = np.frombuffer(data, np.uint8, count * width, at).reshape(count, width)
            self._blocks.append(block)
            at += count * width

    def rows(self, start: int, stop: int) -> Floats:
        position, alpha, colour, scale, rotation, rest = (block[start:stop] for block in self._blocks)
        out = np.empty((len(position), 14 + rest.shape[1]))
        parts = position.reshape(-1, 3, 3).astype(np.int32)
        whole = parts[:, :, 0] | parts[:, :, 1] << 8 | parts[:, :, 2] << 16
        out[:, 0:3] = np.where(whole & 0x800000, whole - 0x1000000, whole) * self._fraction
        out[:, 3:6] = scale / 16.0 - 10.0
        out[:, 6:10] = _smallest_three(rotation) if self._version == 3 else _first_three(rotation)
        out[:, 10] = _logit(alpha[:, 0] / 255.0)
        out[:, 11:14] = (colour / 255.0 - 0.5) / 0.15
        harmonics = (rest.astype(np.float64) - 128.0) / 128.0  # of each coefficient red, green, blue
        out[:, 14:] = harmonics.reshape(len(out), -1, 3).transpose(0, 2, 1).reshape(len(out), -1)
        return out


def _gunzipped(file: Path) -> bytes:
    try:
        with gzip.open(file) as stream:
            data = stream.read(MAX_SPZ_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{file}: not an spz file: {error}") from None
    if len(data) > MAX_SPZ_BYTES:
        raise UsageError(f"{file}: expected at most {MAX_SPZ_BYTES:,} bytes when unpacked")
    return data


def _first_three(rotation: npt.NDArray[np.uint8]) -> Floats:
    xyz = rotation / 127.5 - 1.0
    w = np.sqrt(np.maximum(0.0, 1.0 - (xyz * xyz).sum(axis=1)))
    return np.concatenate([xyz, w[:, None]], axis=1)


def _smallest_three(rotation: npt.NDArray[np.uint8]) -> Floats:
    """The two highest bits say which component is missing; the last of the others is in the lowest ten."""
    bits = np.ascontiguousarray(rotation).view("<u4")[:, 0].astype(np.int64)
    missing = bits >> 30
    out = np.zeros((len(bits), 4))
    rest = np.zeros(len(bits))
    for component in (3, 2, 1, 0):
        there = missing != component
        value = (bits & 511) / 511.0 * math.sqrt(0.5)
        value = np.where(bits & 512, -value, value)
        out[there, component] = value[there]
        rest[there] += value[there] ** 2
        bits = np.where(there, bits >> 10, bits)
    out[np.arange(len(bits)), missing] = np.sqrt(np.maximum(0.0, 1.0 - rest))
    return out


def _logit(share: Floats) -> Floats:
    inside = np.clip(share, 1.0 / 512.0, 1.0 - 1.0 / 512.0)  # 8 bits cannot say how close to 0 or 1 it was
    return np.log(inside / (1.0 - inside))
