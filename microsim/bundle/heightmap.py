"""Ground heights: `heightmap.bin` with its `heightmap.yaml` (float32, rows from south to north), and grey images."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_model import Heightmap, HeightmapFile, StartPose, StaticMesh
from microsim.bundle.rules import BundleFile
from microsim.errors import UsageError

RECOMMENDED_CELLS = 4096 * 4096
MAX_HEIGHT_M = 1e6
MAX_IMAGE_CELLS = 64_000_000
MAX_IMAGE_BYTES = 512_000_000
_CELLS_AT_ONCE = 1 << 18  # small enough to stay in the processor's cache


def read_heightmap(config: BundleFile, binary: BundleFile) -> Heightmap | None:
    """The heights, mapped and checked; None and a problem if they cannot be used."""
    facts = config.read(HeightmapFile)
    if facts is None:
        return None
    rows, columns = facts.height, facts.width
    expected, found = rows * columns * 4, binary.file.stat().st_size
    if found != expected:
        message = f"{columns} x {rows} heights of 4 bytes are {expected:,} bytes, found {found:,}"
        binary.problem("heightmap-size", message, (), f"correct width and height in {config.name}, or the file")
        return None
    if rows * columns > RECOMMENDED_CELLS:
        message = f"{columns} x {rows} heights are more than the recommended 4096 x 4096"
        config.problem("limit-heightmap", message, ("width",), "use a coarser resolution")
    try:
        values = np.memmap(binary.file, "<f4", "r", shape=(rows, columns))
    except (OSError, ValueError) as error:
        binary.problem("regular-file", f"cannot be mapped: {error}")
        return None
    _check_values(binary, values)
    return Heightmap(values, facts.resolution_m, *facts.origin)


def _check_values(binary: BundleFile, values: npt.NDArray[np.float32]) -> None:
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
    from microsim.engine.mesh_cells import is_in_mesh

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
    """(ny, nx) [m] from a PNG of 8 or 16 bits: black is `low`, white is `high`, transparent is no ground; north is up.

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
