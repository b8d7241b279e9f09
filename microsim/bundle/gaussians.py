"""`background.splat.ply`: mapped, checked, never copied."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from microsim.bundle import ply
from microsim.bundle.bundle_model import Gaussians, RenderConfig
from microsim.bundle.rules import BundleFile

FILE_NAME = "background.splat.ply"
RECOMMENDED_GAUSSIANS = 5_000_000

QUATERNION_TOLERANCE = 1e-3  # float32 numbers that someone normalised
LARGEST = 1e6  # of any number: the renderer leaves out what is larger
LARGEST_LOG_SCALE = 13.8  # a standard deviation of 1000 km, likewise
_VALUES_AT_ONCE = 1 << 19

FIXED_COLUMNS = (
    "x", "y", "z", "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3", "opacity",
    "f_dc_0", "f_dc_1", "f_dc_2",
)  # fmt: skip
SCALES, ROTATION = slice(3, 6), slice(6, 10)


def columns_of(sh_degree: int) -> tuple[str, ...]:
    """The properties of a splat file, in order; degree 3 has 45 `f_rest`."""
    rest = 3 * ((sh_degree + 1) * (sh_degree + 1) - 1)
    return (*FIXED_COLUMNS, *(f"f_rest_{index}" for index in range(rest)))


def read_gaussians(source: BundleFile, render: RenderConfig | None) -> Gaussians | None:
    """The Gaussians, mapped and checked; None if they cannot be used, or without a valid render config."""
    if source.file.name != FILE_NAME:
        source.problem("splat-name", f"expected a file named {FILE_NAME}", (), "rename it, here and in world.yaml")
    header = ply.read_header(source, "splat-format")
    if header is None:
        return None
    if len(header.elements) != 1 or header.elements[0].name != "vertex":
        names = ", ".join(element.name for element in header.elements) or "none"
        source.problem("splat-properties", f"expected the one element 'vertex', found: {names}")
        return None
    vertex = header.elements[0]
    columns = _columns(source, vertex, render)
    if columns is None or not _has_size(source, header, vertex.count, len(columns)):
        return None
    if vertex.count > RECOMMENDED_GAUSSIANS:
        message = f"{vertex.count:,} Gaussians are more than the recommended {RECOMMENDED_GAUSSIANS:,}"
        source.problem("limit-gaussians", message, (), "keep fewer with `microsim bundle import-splat --keep`")
    values = _mapped(source, header.length, vertex.count, len(columns))
    if values is None:
        return None
    _check_values(source, values)
    return None if render is None else Gaussians(values, columns, render)


def _columns(source: BundleFile, vertex: ply.PlyElement, render: RenderConfig | None) -> tuple[str, ...] | None:
    found = tuple(each.name for each in vertex.properties)
    rest = sum(name.startswith("f_rest_") for name in found)
    degree = next((degree for degree in range(4) if len(columns_of(degree)) - len(FIXED_COLUMNS) == rest), 3)
    expected = columns_of(degree)
    for index, name in enumerate(expected):
        each = vertex.properties[index] if index < len(found) else None
        if each is None or each.name != name or each.kind not in ("float", "float32") or each.count_kind:
            what = "nothing" if each is None else f"'{each.kind} {each.name}'"
            message = f"expected 'property float {name}' as property {index + 1}, found {what}"
            remedy = "convert it with `microsim bundle import-splat`"
            source.problem("splat-properties", message, (), remedy, line=each.line if each else None)
            return None
    if len(found) > len(expected):
        extra = vertex.properties[len(expected)]
        remedy = "convert it with `microsim bundle import-splat`"
        source.problem("splat-properties", f"unexpected property '{extra.name}'", (), remedy, line=extra.line)
        return None
    if render is not None and degree != render.sh_degree:
        message = f"{rest} f_rest properties mean sh_degree {degree}, the render config says {render.sh_degree}"
        source.problem("sh-degree", message, (), f"write sh_degree {degree} in the render config")
        return None
    return expected


def _has_size(source: BundleFile, header: ply.PlyHeader, count: int, columns: int) -> bool:
    expected, found = header.length + count * columns * 4, source.file.stat().st_size
    if found == expected:
        return True
    what = "cut short" if found < expected else "too long"
    message = f"the file is {what}: {count:,} Gaussians take {expected:,} bytes, found {found:,}"
    source.problem("splat-size", message, (), "write it again")
    return False


def _mapped(source: BundleFile, offset: int, count: int, columns: int) -> npt.NDArray[np.float32] | None:
    if count == 0:  # nothing can be mapped to nothing
        return np.zeros((0, columns), np.float32)
    try:
        return np.memmap(source.file, "<f4", "r", offset, (count, columns))
    except (OSError, ValueError) as error:
        source.problem("regular-file", f"cannot be mapped: {error}")
        return None


def _check_values(source: BundleFile, values: npt.NDArray[np.float32]) -> None:
    """All numbers within what can be drawn, rotations of length 1; names the first Gaussian that is not."""
    rows = max(1, _VALUES_AT_ONCE // values.shape[1])
    for start in range(0, values.shape[0], rows):
        part = values[start : start + rows]
        good = part.min() >= -LARGEST and part.max() <= LARGEST  # NaN compares false
        if not good or part[:, SCALES].max() > LARGEST_LOG_SCALE:
            _report_value(source, part, start)
            return
        x, y, z, w = part[:, ROTATION].astype(np.float64).T
        squared = x * x + y * y + z * z + w * w
        bad = np.flatnonzero(~(np.abs(squared - 1.0) <= 2.0 * QUATERNION_TOLERANCE))
        if bad.size:
            length = float(np.sqrt(squared[bad[0]]))
            message = f"the rotation of Gaussian {start + int(bad[0])} has length {length:.6g}, expected 1"
            source.problem("unit-quaternion", message, (), "`microsim bundle import-splat` normalises rotations")
            return


def _report_value(source: BundleFile, part: npt.NDArray[np.float32], start: int) -> None:
    upper = np.full(part.shape[1], LARGEST)
    upper[SCALES] = LARGEST_LOG_SCALE
    row, column = np.argwhere(~((part >= -LARGEST) & (part <= upper)))[0].tolist()
    expected = f"expected {-LARGEST:g} to {upper[column]:g}"
    message = f"Gaussian {start + row} has {columns_of(3)[column]} = {float(part[row, column]):g}, {expected}"
    source.problem("splat-value", message, (), "remove such Gaussians; `microsim bundle import-splat` does")
