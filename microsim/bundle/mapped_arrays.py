"""Arrays of float32 that are mapped, checked and never copied: heights (rows from south to north) and Gaussians.

Heights can also be read from grey images.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.bundle import ply
from microsim.bundle.bundle_model import Gaussians, Heightmap, HeightmapFile, RenderConfig, StartPose, StaticMesh
from microsim.bundle.rules import BundleFile
from microsim.errors import UsageError

RECOMMENDED_CELLS = 4096 * 4096
MAX_HEIGHT_M = 1e6
MAX_IMAGE_CELLS = 64_000_000
MAX_IMAGE_BYTES = 512_000_000
_CELLS_AT_ONCE = 1 << 18  # small enough to stay in the processor's cache

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
ROTATION_W_FIRST = ("rot_1", "rot_2", "rot_3", "rot_0")  # x, y, z, w by the names that other programs give them


def read_heightmap(config: BundleFile, binary: BundleFile) -> Heightmap | None:
    """The heights, mapped and checked; None and a problem if they cannot be used."""
    written = config.read(HeightmapFile)
    if written is None:
        return None
    rows, columns = written.height, written.width
    expected, found = rows * columns * 4, binary.file.stat().st_size
    if found != expected:
        message = f"{columns} x {rows} heights of 4 bytes are {expected:,} bytes, found {found:,}"
        binary.problem("heightmap-size", message, (), f"correct width and height in {config.name}, or the file")
        return None
    if rows * columns > RECOMMENDED_CELLS:
        message = f"{columns} x {rows} heights are more than the recommended 4096 x 4096"
        config.problem("limit-heightmap", message, ("width",), "use a coarser resolution")
    values = _mapped(binary, 0, rows, columns)
    if values is None:
        return None
    _check_heights(binary, values)
    return Heightmap(values, written.resolution_m, *written.origin)


def _check_heights(binary: BundleFile, values: npt.NDArray[np.float32]) -> None:
    flat = values.reshape(-1)
    for start in range(0, flat.size, _CELLS_AT_ONCE):
        wrong = np.abs(flat[start : start + _CELLS_AT_ONCE]) > MAX_HEIGHT_M  # infinity too; NaN is not
        if wrong.any():
            index = start + int(wrong.argmax())
            row, column = divmod(index, values.shape[1])
            message = f"height {float(flat[index])} m in row {row}, column {column}"
            binary.problem("heightmap-value", message, (), "write NaN where there is no ground")
            return


def check_start(world: BundleFile, written: StartPose | None, ground: Heightmap, mesh: StaticMesh | None) -> None:
    """A problem if the car cannot stand where it starts; of the start that a bundle leaves out, a warning."""
    start = written or StartPose(x=0.0, y=0.0)
    wrong, remedy = _start_problem(start, ground, mesh)
    if wrong:
        place = ("vehicle", "start") if written else ()
        default = "" if written else " (the default, since `vehicle.start` is missing)"
        message = f"the start x {start.x:g}, y {start.y:g}{default} {wrong}"
        world.problem("start-pose", message, place, f"move the start {remedy}", warning=written is None)


def _start_problem(start: StartPose, ground: Heightmap, mesh: StaticMesh | None) -> tuple[str, str]:
    """What is wrong with it, and where it could be."""
    from microsim.engine.world import is_in_mesh

    rows, columns = ground.values.shape
    u, v = (start.x - ground.west) / ground.resolution_m, (start.y - ground.south) / ground.resolution_m
    if not (0.0 <= u < columns and 0.0 <= v < rows):
        width, height = ground.size_m
        across = f"x from {ground.west:g} to {ground.west + width:g}"
        along = f"y from {ground.south:g} to {ground.south + height:g}"
        return f"is outside the map, which is {across} and {along}", "onto the map"
    i, j = int(u), int(v)
    if np.isnan(ground.values[max(j - 1, 0) : j + 2, max(i - 1, 0) : i + 2]).any():
        return "is in or beside a cell without ground", "to where there is ground"
    grid = (ground.values, ground.resolution_m, ground.west, ground.south)
    if mesh is not None and is_in_mesh(i, j, *grid, mesh.vertices, mesh.triangles):
        return "is in a cell that the static mesh occupies", "away from the mesh"
    return "", ""


def read_image_heights(file: Path, low: float, high: float) -> npt.NDArray[np.float32]:
    """(ny, nx) [m] from a PNG of 8 or 16 bits: black is `low`, white `high`, transparent means no ground; north is up.

    Row 0 of the result is in the south. Colours are averaged.
    """
    pixels, largest, transparent = _png(file)
    rows, columns, channels = pixels.shape
    heights = np.empty((rows, columns), np.float32)
    step = max(1, _CELLS_AT_ONCE // columns)
    for start in range(0, rows, step):  # in pieces: float64 copies of the whole image would be large
        part = pixels[start : start + step]
        grey = part[:, :, 0].astype(np.float64)
        if channels >= 3:
            grey = (grey + part[:, :, 1] + part[:, :, 2]) / 3.0
        piece = low + (high - low) * (grey / largest)
        if channels in (2, 4):
            piece[part[:, :, -1] == 0] = np.nan
        if transparent is not None:
            piece[grey == transparent] = np.nan
        heights[start : start + step] = piece
    return heights[::-1]


def _png(file: Path) -> tuple[npt.NDArray[np.unsignedinteger[Any]], int, int | None]:
    """Pixels (rows, columns, channels), the largest possible value, and the grey that stands for transparent."""
    from PIL import Image, UnidentifiedImageError

    bound = f"{file}: expected 1 to {MAX_IMAGE_CELLS:,} pixels"
    try:
        if file.stat().st_size > MAX_IMAGE_BYTES:
            raise UsageError(f"{file}: expected at most {MAX_IMAGE_BYTES:,} bytes, found more")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own bound follows
            image = Image.open(file, formats=["PNG"])
        with image:
            if not 0 < image.width * image.height <= MAX_IMAGE_CELLS:
                raise UsageError(f"{bound}, found {image.width} x {image.height}")
            return _decoded(file, image)
    except UnidentifiedImageError:
        raise UsageError(f"{file}: expected a PNG image") from None
    except Image.DecompressionBombError:
        raise UsageError(f"{bound}, found far more") from None
    except (OSError, SyntaxError, EOFError) as error:  # Pillow raises SyntaxError for a broken PNG
        raise UsageError(f"{file}: {getattr(error, 'strerror', None) or error}") from None


def _decoded(file: Path, image: Any) -> tuple[npt.NDArray[np.unsignedinteger[Any]], int, int | None]:
    raw_mode = image.tile[0].args
    if raw_mode == "LA;16B":  # Pillow would keep 8 bits: decode the four bytes of a pixel as they are
        image.tile = [image.tile[0]._replace(args="RGBA")]
        return np.asarray(image).view(">u2"), 0xFFFF, None
    if raw_mode not in ("L", "LA", "RGB", "RGBA", "I;16B"):
        raise UsageError(f"{file}: expected a grey PNG of 8 or 16 bits, or a colour PNG of 8 bits without a palette")
    pixels = np.asarray(image)
    transparent = image.info.get("transparency")
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    return pixels, 0xFFFF if raw_mode == "I;16B" else 0xFF, transparent if isinstance(transparent, int) else None


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
    _check_gaussians(source, values)
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


def _check_gaussians(source: BundleFile, values: npt.NDArray[np.float32]) -> None:
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
