"""Gaussians as other programs write them, PLY of any kind, .splat, .spz and .sog, as rows in the order of bundles.

Files are read in pieces. Rotations become [x, y, z, w]; the caller checks the numbers.
"""

from __future__ import annotations

import gzip
import json
import math
import struct
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from io import BytesIO
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

SPLAT_SUFFIXES = (".ply", ".splat", ".spz", ".sog")
MAX_ASCII_BYTES = 4_000_000_000
MAX_SPZ_BYTES = 4_000_000_000  # unpacked
MAX_SOG_BYTES = 1_000_000_000  # of one of its files
HARMONIC_PIXELS = 64  # of a row of the palette of a .sog, times its coefficients
CHUNK = 256  # Gaussians that share their bounds in a compressed PLY
_AT_ONCE = 1 << 16
_SPZ_MAGIC, _SPZ_HEADER = b"NGSP", struct.Struct("<IIIBBBBIIII")


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
    if suffix == ".sog":
        return _SogSplats(file)
    header = _ply_header(file)
    return _CompressedPly(file, header) if _is_compressed(header) else _PlySplats(file, header, w_first)


def _ply_header(file: Path) -> ply.PlyHeader:
    report = BundleReport()
    header = ply.read_header(BundleFile(report, file.name, file), "splat-format", ply.FORMATS)
    if header is None:
        problem = report.problems[0]  # without the rule, which is that of bundles
        raise UsageError(f"{file}{f':{problem.line}' if problem.line else ''}: {problem.message}")
    return header


class _PlySplats(SplatSource):
    """PLY, binary of either byte order or ASCII, with any other properties beside those of a splat."""

    def __init__(self, file: Path, header: ply.PlyHeader, w_first: bool) -> None:
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


_PACKED = ("packed_position", "packed_rotation", "packed_scale", "packed_color")
_BOUNDS = tuple(f"{end}_{part}{axis}" for part in ("", "scale_") for end in ("min", "max") for axis in "xyz")
_COLOUR_BOUNDS = tuple(f"{end}_{axis}" for end in ("min", "max") for axis in "rgb")


def _is_compressed(header: ply.PlyHeader) -> bool:
    return any(each.name == "chunk" for each in header.elements) and any(
        each.name == "vertex" and any(one.name in _PACKED for one in each.properties) for each in header.elements
    )


class _CompressedPly(SplatSource):
    """PLY as PlayCanvas and SuperSplat compress it: 16 bytes each, between the bounds of every 256 of them."""

    def __init__(self, file: Path, header: ply.PlyHeader) -> None:
        parts = {each.name: each for each in header.elements}
        vertex, chunk, harmonics = parts["vertex"], parts["chunk"], parts.get("sh")
        rest = 0 if harmonics is None else len(harmonics.properties)
        self._has_colours = any(each.name == "min_r" for each in chunk.properties)
        self._wanted(file, "vertex", vertex, _PACKED, "u4")
        self._wanted(file, "chunk", chunk, (*_BOUNDS, *(_COLOUR_BOUNDS if self._has_colours else ())), "f4")
        degree = next((degree for degree in range(4) if len(columns_of(degree)) - 14 == rest), None)
        if degree is None or header.format != ply.LITTLE_ENDIAN:
            raise UsageError(
                f"{file}: expected a compressed PLY in little endian with 0, 9, 24 or 45 f_rest, found {rest}"
            )
        if harmonics is not None:
            self._wanted(file, "sh", harmonics, tuple(f"f_rest_{k}" for k in range(rest)), "u1")
        needed = -(-vertex.count // CHUNK)
        if chunk.count != needed or (harmonics is not None and harmonics.count != vertex.count):
            found = chunk.count if harmonics is None else f"{chunk.count:,} and {harmonics.count:,} of harmonics"
            raise UsageError(f"{file}: expected {needed:,} chunks for {vertex.count:,} Gaussians, found {found}")
        self.file, self.count, self.degree = file, vertex.count, degree
        tables, at = {}, header.length
        for each in header.elements:
            kind = np.dtype([(one.name, ply.KINDS[one.kind]) for one in each.properties])
            if at + each.count * kind.itemsize > file.stat().st_size:
                raise UsageError(f"{file}: the file is cut short: {vertex.count:,} Gaussians do not fit into it")
            tables[each.name] = np.memmap(file, kind, "r", at, (each.count,)) if each.count else np.zeros(0, kind)
            at += each.count * kind.itemsize
        self._table, self._harmonics = tables["vertex"], tables.get("sh")
        names = [*_BOUNDS, *(_COLOUR_BOUNDS if self._has_colours else ())]
        bounds = [tables["chunk"][name].astype(np.float64) for name in names]
        self._bounds = np.array(bounds).reshape(-1, 2, 3, chunk.count)  # of place, scale and colour

    @staticmethod
    def _wanted(file: Path, name: str, element: ply.PlyElement, properties: tuple[str, ...], kind: str) -> None:
        kinds = {each.name: "" if each.count_kind else ply.KINDS[each.kind].strip("<") for each in element.properties}
        missing = [each for each in properties if kinds.get(each) != kind]
        if missing or any(each.count_kind for each in element.properties):
            raise UsageError(
                f"{file}: not a compressed PLY: its element {name!r} has no {', '.join(missing[:3])} of {kind}"
            )

    def rows(self, start: int, stop: int) -> Floats:
        part, chunk = self._table[start:stop], np.arange(start, stop) // CHUNK
        out = np.empty((len(part), len(columns_of(self.degree))))
        out[:, 0:3] = self._between(0, chunk, _thirds(part["packed_position"]))
        out[:, 3:6] = self._between(1, chunk, _thirds(part["packed_scale"]))
        out[:, ROTATION] = _three_of_four(part["packed_rotation"])
        levels = (part["packed_color"].astype(np.int64)[:, None] >> np.array([24, 16, 8, 0]) & 255) / 255.0
        colours = self._between(2, chunk, levels[:, :3]) if self._has_colours else levels[:, :3]
        out[:, 10], out[:, 11:14] = _logit(levels[:, 3]), (colours - 0.5) / FIRST_HARMONIC
        if self._harmonics is not None:
            values = np.stack([self._harmonics[name][start:stop] for name in columns_of(self.degree)[14:]], axis=1)
            shares = np.where(values == 0, 0.0, np.where(values == 255, 1.0, (values + 0.5) / 256.0))
            out[:, 14:] = 8.0 * (shares - 0.5)
        return out

    def _between(self, what: int, chunk: npt.NDArray[np.int64], shares: Floats) -> Floats:
        low, high = (self._bounds[what, end].T[chunk] for end in (0, 1))
        return low * (1.0 - shares) + high * shares


def _thirds(packed: npt.NDArray[np.uint32]) -> Floats:
    """11, 10 and 11 bits as shares of 1."""
    bits = packed.astype(np.int64)[:, None] >> np.array([21, 11, 0]) & np.array([2047, 1023, 2047])
    return bits / np.array([2047.0, 1023.0, 2047.0])


def _three_of_four(packed: npt.NDArray[np.uint32]) -> Floats:
    """The two highest bits say which of w, x, y, z is largest; the others are in 10 bits each. Gives x, y, z, w."""
    bits = packed.astype(np.int64)
    others = ((bits[:, None] >> np.array([20, 10, 0]) & 1023) / 1023.0 - 0.5) * math.sqrt(2.0)
    return _with_largest(others, bits >> 30)


def _with_largest(others: Floats, largest: npt.NDArray[np.int64]) -> Floats:
    """A rotation [x, y, z, w] of its three smaller components in the order w, x, y, z, and which one is left out."""
    out = np.empty((len(others), 4))
    places = np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])[largest]
    np.put_along_axis(out, places, others, axis=1)
    left = np.sqrt(np.maximum(0.0, 1.0 - (others * others).sum(axis=1)))
    np.put_along_axis(out, largest[:, None], left[:, None], axis=1)
    return out[:, [1, 2, 3, 0]]


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
    """`.spz`, one block for each attribute: versions 2 and 3 in gzip, version 4 each in a stream of ZSTD."""

    def __init__(self, file: Path) -> None:
        with file.open("rb") as stream:
            start = stream.read(_SPZ_HEADER.size)
        is_plain = start[:4] == _SPZ_MAGIC
        data = b"" if is_plain else _gunzipped(file)
        header = start if is_plain else data
        if len(header) < 16:
            raise UsageError(f"{file}: not an spz file: it has no header")
        if header[:4] != _SPZ_MAGIC:
            found, expected = (int.from_bytes(each[:4], "little") for each in (header, _SPZ_MAGIC))
            raise UsageError(f"{file}: not an spz file: it begins with 0x{found:08x}, expected 0x{expected:08x}")
        _, version, count, degree, bits, _flags, streams = struct.unpack_from("<IIIBBBB", header)
        if version not in ((4,) if is_plain else (2, 3)):
            raise UsageError(f"{file}: expected version 2, 3 or 4 of spz, found {version}")
        if degree > 3:
            raise UsageError(f"{file}: expected harmonics of degree 0 to 3, found {degree}")
        self.file, self.count, self.degree, self._version = file, count, degree, version
        self._fraction = 2.0**-bits
        rest = 3 * ((degree + 1) ** 2 - 1)
        widths = (9, 1, 3, 3, 3 if version == 2 else 4, rest)
        if count * sum(widths) > MAX_SPZ_BYTES:
            raise UsageError(f"{file}: expected at most {MAX_SPZ_BYTES:,} bytes when unpacked")
        if is_plain:
            data = _spz_streams(file, streams, [count * width for width in widths if width])
        elif len(data) < 16 + count * sum(widths):
            raise UsageError(f"{file}: the file is cut short: {count:,} Gaussians do not fit into it")
        self._blocks, at = [], 0 if is_plain else 16
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
        out[:, 6:10] = _smallest_three(rotation) if self._version > 2 else _first_three(rotation)
        out[:, 10] = _logit(alpha[:, 0] / 255.0)
        out[:, 11:14] = (colour / 255.0 - 0.5) / 0.15
        harmonics = (rest.astype(np.float64) - 128.0) / 128.0  # of each coefficient red, green, blue
        out[:, 14:] = harmonics.reshape(len(out), -1, 3).transpose(0, 2, 1).reshape(len(out), -1)
        return out


def _spz_streams(file: Path, count: int, sizes: list[int]) -> bytes:
    """Of version 4, one after the other. The header says where their table is: packed size and size of each."""
    from microsim.bundle.zstd import unpacked

    data = file.read_bytes()
    (table,) = struct.unpack_from("<I", data.ljust(_SPZ_HEADER.size, b"\0"), 16)
    if count < len(sizes) or len(data) < table + 16 * count:
        raise UsageError(f"{file}: expected {len(sizes)} streams, found {count}, or the file is cut short")
    found, at = [], table + 16 * count
    for number, size in enumerate(sizes):
        packed, whole = struct.unpack_from("<QQ", data, table + 16 * number)
        if whole != size or at + packed > len(data):
            raise UsageError(
                f"{file}: stream {number} is cut short: expected {size:,} bytes when unpacked, found {whole:,}"
            )
        part = unpacked(data[at : at + packed], size)
        if part is None or len(part) != size:
            raise UsageError(f"{file}: stream {number} is not {size:,} bytes in ZSTD")
        found.append(part)
        at += packed
    return b"".join(found)


class _SogSplats(SplatSource):
    """`.sog`: a ZIP of images, in whose pixels Gaussians are, and of `meta.json`, which says how. Version 2."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            with zipfile.ZipFile(file) as archive:
                self._read(archive)
        except (zipfile.BadZipFile, zlib.error, OSError, NotImplementedError, EOFError) as error:
            raise UsageError(f"{file}: not a sog file: {error}") from None
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise UsageError(f"{file}: meta.json is not that of a sog file: {type(error).__name__} {error}") from None

    def _read(self, archive: zipfile.ZipFile) -> None:
        meta = self._meta(archive)
        version = meta.get("version", 1)
        if version != 2:
            raise UsageError(f"{self.file}: expected version 2 of sog, found {version}")
        self.count = self._number(meta["count"])
        harmonics = meta.get("shN")
        self.degree = self._number(harmonics["bands"]) if harmonics else 0
        if self.degree > 3:
            raise UsageError(f"{self.file}: expected harmonics of degree 0 to 3, found {self.degree}")
        low, high = (self._pixels(archive, name) for name in meta["means"]["files"])
        whole = low[:, :3].astype(np.uint16) | high[:, :3].astype(np.uint16) << 8
        least, most = (self._numbers(meta["means"][end], 3) for end in ("mins", "maxs"))
        self._places = least, most, whole
        self._quaternions = self._pixels(archive, meta["quats"]["files"][0])
        self._scales = self._numbers(meta["scales"]["codebook"], 256)[
            self._pixels(archive, meta["scales"]["files"][0])[:, :3]
        ].astype(np.float32)
        first = self._pixels(archive, meta["sh0"]["files"][0])
        self._colours = self._numbers(meta["sh0"]["codebook"], 256)[first[:, :3]].astype(np.float32)
        self._opacity = first[:, 3] / 255.0
        if harmonics and self.degree:
            self._read_harmonics(archive, harmonics)

    def _read_harmonics(self, archive: zipfile.ZipFile, harmonics: Any) -> None:
        """A palette of whole sets of coefficients, and which of them each Gaussian has."""
        coefficients = (self.degree + 1) ** 2 - 1
        palette = self._image(archive, harmonics["files"][0])[:, :, :3]
        labels = self._pixels(archive, harmonics["files"][1])
        if palette.shape[1] != HARMONIC_PIXELS * coefficients:
            wanted = HARMONIC_PIXELS * coefficients
            raise UsageError(f"{self.file}: expected a palette {wanted} pixels wide, found {palette.shape[1]}")
        self._palette = self._numbers(harmonics["codebook"], 256)[palette.reshape(-1, coefficients, 3)]
        self._labels = labels[:, 0].astype(np.int64) | labels[:, 1].astype(np.int64) << 8
        if self.count and int(self._labels.max()) >= len(self._palette):
            raise UsageError(
                f"{self.file}: a Gaussian has harmonics {int(self._labels.max()):,}, there are {len(self._palette):,}"
            )

    def _meta(self, archive: zipfile.ZipFile) -> Any:
        try:
            found = json.loads(self._bytes(archive, "meta.json"))
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self.file}: meta.json is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise UsageError(f"{self.file}: meta.json: expected a mapping")
        return found

    def _bytes(self, archive: zipfile.ZipFile, name: str) -> bytes:
        size = archive.getinfo(str(name)).file_size
        if size > MAX_SOG_BYTES:
            raise UsageError(f"{self.file}: {name}: expected at most {MAX_SOG_BYTES:,} bytes, found {size:,}")
        return archive.read(str(name))

    def _image(self, archive: zipfile.ZipFile, name: str) -> npt.NDArray[np.uint8]:
        from PIL import Image

        try:
            with Image.open(BytesIO(self._bytes(archive, name))) as image:
                return np.asarray(image.convert("RGBA"))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise UsageError(f"{self.file}: {name} is not an image: {error}") from None

    def _pixels(self, archive: zipfile.ZipFile, name: str) -> npt.NDArray[np.uint8]:
        """(count, 4): a pixel for each Gaussian."""
        pixels = self._image(archive, name).reshape(-1, 4)
        if len(pixels) < self.count:
            raise UsageError(f"{self.file}: {name} has {len(pixels):,} pixels for {self.count:,} Gaussians")
        return pixels[: self.count]

    def _number(self, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
            raise UsageError(f"{self.file}: meta.json: expected a whole number, found {value!r}")
        return value

    def _numbers(self, values: Any, count: int) -> Floats:
        found = np.array([float(each) for each in values if isinstance(each, (int, float))])
        if found.shape != (count,) or not np.isfinite(found).all():
            raise UsageError(f"{self.file}: meta.json: expected {count} finite numbers, found {len(values)} values")
        return found

    def rows(self, start: int, stop: int) -> Floats:
        part = slice(start, stop)
        least, most, whole = self._places
        logs = least + (most - least) * (whole[part] / 65535.0)
        out = np.zeros((len(logs), len(columns_of(self.degree))))
        with np.errstate(over="ignore"):  # too far away: such a Gaussian is left out later
            out[:, 0:3] = np.sign(logs) * np.expm1(np.abs(logs))
        quaternions = self._quaternions[part].astype(np.int64)
        others = (quaternions[:, :3] / 255.0 - 0.5) * math.sqrt(2.0)
        largest = quaternions[:, 3] - 252
        out[:, ROTATION] = np.where(
            (largest >= 0)[:, None], _with_largest(others, np.maximum(largest, 0)), (0, 0, 0, 1)
        )
        out[:, 3:6], out[:, 10], out[:, 11:14] = self._scales[part], _logit(self._opacity[part]), self._colours[part]
        if self.degree:
            out[:, 14:] = self._palette[self._labels[part]].transpose(0, 2, 1).reshape(len(out), -1)
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
