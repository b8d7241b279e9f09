"""`background.splat.ply` and `render_config.json`: mapped, never copied."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from microsim.bundle import ply
from microsim.bundle.fields import Fields
from microsim.bundle.models import Gaussians, RenderConfig
from microsim.bundle.report import Source

FILE_NAME = "background.splat.ply"
RECOMMENDED_GAUSSIANS = 5_000_000

QUATERNION_TOLERANCE = 1e-3  # float32 numbers that someone normalised
_VALUES_AT_ONCE = 1 << 21

FIXED_COLUMNS = (
    "x", "y", "z", "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3", "opacity",
    "f_dc_0", "f_dc_1", "f_dc_2",
)  # fmt: skip


def columns_of(sh_degree: int) -> tuple[str, ...]:
    """The properties of the document, in its order; degree 3 has 45 `f_rest`."""
    rest = 3 * ((sh_degree + 1) * (sh_degree + 1) - 1)
    return (*FIXED_COLUMNS, *(f"f_rest_{index}" for index in range(rest)))


def read_render_config(source: Source) -> RenderConfig:
    assert source.document is not None
    fields = Fields(source, source.document.data)
    fields.known.append("version")
    degree = fields.take("sh_degree", rule="sh-degree", remedy='add "sh_degree": 0, 1, 2 or 3')
    if not isinstance(degree, int) or isinstance(degree, bool) or not 0 <= degree <= 3:
        if fields.has("sh_degree"):
            fields.wrong(("sh_degree",), f"expected 0, 1, 2 or 3, found {degree!r}"[:200], "sh-degree")
        degree = -1
    red, green, blue = fields.numbers("background_rgb", 3, (0.0, 0.0, 0.0), least=0.0, most=1.0)
    near = fields.number("near_plane_m", 0.2, least=0.001, most=100.0)
    sky = fields.numbers("sky_rgb", 3, None, least=0.0, most=1.0) if fields.has("sky_rgb") else None
    exposure = fields.number("exposure_ev", 0.0, least=-10.0, most=10.0)
    gain_sigma = fields.number("gain_sigma", 0.0, least=0.0, most=1.0)
    noise_sigma = fields.number("noise_sigma", 0.0, least=0.0, most=255.0)
    fields.known.append("sky_rgb")
    fields.done()
    zenith = None if sky is None else (sky[0], sky[1], sky[2])
    return RenderConfig(degree, (red, green, blue), near, zenith, exposure, gain_sigma, noise_sigma)


def read_gaussians(source: Source, render: RenderConfig) -> Gaussians | None:
    """The Gaussians, mapped and looked at; None when they cannot be used."""
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
        source.problem("limit-gaussians", message, (), "thin them out with `microsim bundle import-splat --keep`")
    values = _mapped(source, header.length, vertex.count, len(columns))
    if values is not None:
        _check_values(source, values)
        return Gaussians(values, columns, render)
    return None


def _columns(source: Source, vertex: ply.Element, render: RenderConfig) -> tuple[str, ...] | None:
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
    if render.sh_degree >= 0 and degree != render.sh_degree:
        message = f"{rest} f_rest properties are sh_degree {degree}, the render config says {render.sh_degree}"
        source.problem("sh-degree", message, (), f"write sh_degree {degree} in the render config")
        return None
    return expected


def _has_size(source: Source, header: ply.Header, count: int, columns: int) -> bool:
    expected, found = header.length + count * columns * 4, source.file.stat().st_size
    if found == expected:
        return True
    what = "cut short" if found < expected else "too long"
    message = f"the file is {what}: {count:,} Gaussians make {expected:,} bytes, found {found:,}"
    source.problem("splat-size", message, (), "write it again")
    return False


def _mapped(source: Source, offset: int, count: int, columns: int) -> npt.NDArray[np.float32] | None:
    if count == 0:  # nothing can be mapped to nothing
        return np.zeros((0, columns), np.float32)
    try:
        return np.memmap(source.file, "<f4", "r", offset, (count, columns))
    except (OSError, ValueError) as error:
        source.problem("regular-file", f"cannot be mapped: {error}")
        return None


def _check_values(source: Source, values: npt.NDArray[np.float32]) -> None:
    """Everything finite, rotations of length 1; the first Gaussian that is not is named."""
    rows = max(1, _VALUES_AT_ONCE // values.shape[1])
    start_of_rotation = FIXED_COLUMNS.index("rot_0")
    for start in range(0, values.shape[0], rows):
        part = values[start : start + rows]
        with np.errstate(all="ignore"):
            looks_finite = bool(np.isfinite(part.sum(dtype=np.float64)))
        if not looks_finite:
            strange = np.flatnonzero(~np.isfinite(part).all(axis=1))
            if strange.size:
                row = int(strange[0])
                column = columns_of(3)[int(np.flatnonzero(~np.isfinite(part[row]))[0])]
                message = f"Gaussian {start + row} has {column} = {float(part[row][columns_of(3).index(column)])}"
                source.problem("splat-value", message, (), "take such Gaussians out; `import-splat` does")
                return
        rotation = part[:, start_of_rotation : start_of_rotation + 4].astype(np.float64)
        squared = rotation[:, 0] ** 2 + rotation[:, 1] ** 2 + rotation[:, 2] ** 2 + rotation[:, 3] ** 2
        bad = np.flatnonzero(~(np.abs(squared - 1.0) <= 2.0 * QUATERNION_TOLERANCE))
        if bad.size:
            row = int(bad[0])
            length = float(np.sqrt(squared[row]))
            message = f"the rotation of Gaussian {start + row} has length {length:.6g}, expected 1"
            source.problem("unit-quaternion", message, (), "`microsim bundle import-splat` normalises rotations")
            return
