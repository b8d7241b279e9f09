"""From the numbers of a splat file to what a frame needs: activated, culled and put in order of place, once.

A row of the file (little-endian float32): x, y, z [m], log of 3 scales [m], quaternion x, y, z, w, logit of the
opacity, colour (`f_dc`), further spherical harmonics (`f_rest`, all of red, then green, then blue).
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import exact
from microsim.engine.columns import column_in
from microsim.engine.compiled import threaded_kernel
from microsim.engine.geometry import Array
from microsim.render.splat import ALPHA_MIN, CHUNK

Floats: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.int64]
Cells: TypeAlias = npt.NDArray[np.uint64]

CELL_M = 0.25
_HALF_SPAN = 1 << 20  # cells on each side of the origin: 21 bits a coordinate
_LARGEST = 1e6  # of any number in a file: beyond, sums of products could overflow a float32
_LARGEST_LOG_SCALE = 13.8  # 1000 km
_SMALLEST_SQUARE = 1e-12  # of a quaternion's length

# Columns of a splat's geometry.
X, Y, Z, SCALE, QUATERNION, OPACITY, EXTENT, GEOMETRY = 0, 1, 2, 3, 6, 10, 11, 12
splat_in = column_in((  # the same by name
    "x", "y", "z", "scale_x", "scale_y", "scale_z", "qx", "qy", "qz", "qw", "opacity", "extent",
))  # fmt: skip

DRAWN, TRANSPARENT, BAD = range(3)

_exp, _log = exact.exp, exact.log
_f64 = np.float64  # in compiled code, `float` leaves a float32 as it is


@dataclass(frozen=True)
class Splats:
    """A scene ready to be drawn. Splats stand in the order of their cells, `CHUNK` of them to a sphere."""

    geometry: Floats  # (n, 12) x, y, z [m], 3 scales [m], unit quaternion x, y, z, w, opacity, ln(255 opacity)
    harmonics: Floats  # (n, k, 3) red, green, blue of each of the (degree + 1)^2 spherical harmonics
    spheres: Array  # (chunks, 4) centre [m], radius that holds all its splats as far as they can be seen
    order: Integers  # (n,) each splat's place in the file
    degree: int  # of the spherical harmonics, 0 to 3
    transparent: int  # left out: opacity below 1/255
    bad: int  # left out: NaN, infinite, absurdly large, or no rotation

    def __len__(self) -> int:
        return self.geometry.shape[0]


def columns_of_degree(degree: int) -> int:
    """Numbers in a row of a file whose spherical harmonics have this degree."""
    return 11 + 3 * (degree + 1) * (degree + 1)


def activate(rows: Floats, degree: int = 3) -> Splats:
    """`rows` (n, at least columns_of_degree(degree)), as in the file; harmonics beyond the degree are not used.

    `f_rest` is laid out for as many harmonics as the rows have room for.
    """
    count, columns = rows.shape
    rest = (columns - columns_of_degree(0)) // 3
    if columns < columns_of_degree(degree) or columns != columns_of_degree(0) + 3 * rest:
        raise ValueError(f"{columns} numbers a splat do not hold spherical harmonics of degree {degree}")
    kinds, cells = np.empty(count, np.uint8), np.empty(count, np.uint64)
    _look(rows, kinds, cells)
    drawn = np.flatnonzero(kinds == DRAWN)
    order = drawn[np.argsort(cells[drawn], kind="stable")]
    geometry = np.empty((order.size, GEOMETRY), np.float32)
    harmonics = np.empty((order.size, (degree + 1) * (degree + 1), 3), np.float32)
    _activate(rows, order, rest, geometry, harmonics)
    spheres = np.empty((-(-order.size // CHUNK), 4))
    _enclose(geometry, spheres)
    transparent, bad = int(np.count_nonzero(kinds == TRANSPARENT)), int(np.count_nonzero(kinds == BAD))
    return Splats(geometry, harmonics, spheres, order, degree, transparent, bad)


@threaded_kernel
def _look(rows: Floats, kinds: npt.NDArray[np.uint8], cells: Cells) -> None:
    """What becomes of each splat, and the cell it lies in."""
    for i in range(rows.shape[0]):
        row = rows[i]
        kinds[i] = _kind(row)
        cells[i] = 0
        if kinds[i] == DRAWN:
            cells[i] = _spread(row[0]) | (_spread(row[1]) << np.uint64(1)) | (_spread(row[2]) << np.uint64(2))


@threaded_kernel
def _kind(row: Floats) -> int:
    for column in range(row.shape[0]):
        if not abs(row[column]) <= _LARGEST:
            return BAD
    square = 0.0
    for k in range(4):
        square += _f64(row[6 + k]) * _f64(row[6 + k])
    if square < _SMALLEST_SQUARE or max(row[3], row[4], row[5]) > _LARGEST_LOG_SCALE:
        return BAD
    return DRAWN if np.float32(_sigmoid(_f64(row[10]))) >= np.float32(ALPHA_MIN) else TRANSPARENT


@threaded_kernel
def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + _exp(-x))


@threaded_kernel
def _spread(x: float) -> int:
    """The cell of a coordinate, its 21 bits three apart: interleaved, near cells get near numbers (Morton)."""
    cell = min(max(math.floor(x / CELL_M) + _HALF_SPAN, 0), 2 * _HALF_SPAN - 1)
    bits = np.uint64(cell)
    bits = (bits | (bits << np.uint64(32))) & np.uint64(0x001F00000000FFFF)
    bits = (bits | (bits << np.uint64(16))) & np.uint64(0x001F0000FF0000FF)
    bits = (bits | (bits << np.uint64(8))) & np.uint64(0x100F00F00F00F00F)
    bits = (bits | (bits << np.uint64(4))) & np.uint64(0x10C30C30C30C30C3)
    return (bits | (bits << np.uint64(2))) & np.uint64(0x1249249249249249)


@threaded_kernel
def _activate(rows: Floats, order: Integers, rest: int, geometry: Floats, harmonics: Floats) -> None:
    for i in range(order.shape[0]):
        row, out = rows[order[i]], geometry[i]
        for k in range(3):
            out[k] = row[k]
            out[SCALE + k] = _exp(_f64(row[3 + k]))
        square = 0.0
        for k in range(4):
            square += _f64(row[6 + k]) * _f64(row[6 + k])
        length = math.sqrt(square)
        for k in range(4):
            out[QUATERNION + k] = _f64(row[6 + k]) / length
        out[OPACITY] = _sigmoid(_f64(row[10]))
        out[EXTENT] = max(_log(255.0 * _f64(out[OPACITY])), 0.0)
        for channel in range(3):
            harmonics[i, 0, channel] = row[11 + channel]
            for k in range(1, harmonics.shape[1]):
                harmonics[i, k, channel] = row[13 + channel * rest + k]


@threaded_kernel
def _enclose(geometry: Floats, spheres: Array) -> None:
    """Spheres around the boxes of each chunk's means, as large as the splats reach."""
    for chunk in range(spheres.shape[0]):
        begin, end = chunk * CHUNK, min((chunk + 1) * CHUNK, geometry.shape[0])
        for k in range(3):
            low = high = _f64(geometry[begin, k])
            for i in range(begin + 1, end):
                low, high = min(low, _f64(geometry[i, k])), max(high, _f64(geometry[i, k]))
            spheres[chunk, k] = 0.5 * (low + high)
        radius = 0.0
        for i in range(begin, end):
            row = geometry[i]
            x = _f64(row[X]) - spheres[chunk, 0]
            y = _f64(row[Y]) - spheres[chunk, 1]
            z = _f64(row[Z]) - spheres[chunk, 2]
            scale = _f64(max(row[SCALE], row[SCALE + 1], row[SCALE + 2]))
            reach = math.sqrt(x * x + y * y + z * z) + math.sqrt(2.0 * _f64(row[EXTENT])) * scale
            radius = max(radius, reach)
        spheres[chunk, 3] = 1.001 * radius
