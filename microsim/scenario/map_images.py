"""Maps of map_server: a YAML file beside an image, the format in which ROS users have their buildings.

The rules are those of nav2_map_server (`map_io.cpp`, `loadMapFromFile`). A pixel's shade, 0 for black and 1 for white,
is the mean of its colour channels, in trinary mode of its alpha channel too. How occupied its cell is, occ, is
1 - shade, or the shade itself with `negate`. Then, by `mode`:
- trinary: 100 where occ > occupied_thresh, 0 where occ < free_thresh, else unknown;
- scale: the same, but from free_thresh to occupied_thresh a straight line from 0 to 100; unknown where not opaque;
- raw: the pixel's value (of 255) where it is 0 to 100, else unknown; `negate` and thresholds do not count.
The image's last row is the map's first.

map_server publishes the origin's yaw beside the cells; the engine's grids are not turned, so `upright` turns the cells.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, field_validator, model_validator
from typing_extensions import Self

from microsim.documents.values import Angle, Length, Metres, Model, Probability, detail, exactly, fail, show
from microsim.engine import exact
from microsim.engine.world import OCCUPIED_FROM, Mesh
from microsim.errors import MapError, Problem, did_you_mean
from microsim.paths import located, portable
from microsim.scenario.files import Places, model_of, read_file

OCCUPIED, UNKNOWN = 100, -1  # of nav_msgs/OccupancyGrid
MAX_FACES = 1_000_000  # of walls: 2 million triangles
_QUARTER_TURN, _NEARLY_RAD = 0.5 * exact.PI, 0.001
_ROWS_AT_ONCE = 256  # bounds the memory for large maps
_KINDS = {"PPM": "PGM", "PNG": "PNG"}
_DAMAGED = (OSError, ValueError, SyntaxError, OverflowError, EOFError, LookupError, TypeError, struct.error, zlib.error)

Occupancies: TypeAlias = npt.NDArray[np.int8]  # (rows, columns), first row in the south: 0 to 100, -1 unknown
Origin: TypeAlias = tuple[float, float, float]  # x, y [m], yaw [rad] of the corner of cell (0, 0) in the map frame


def _can_be_a_path(name: str) -> str:
    if "\0" in name:
        raise ValueError(f"expected a path, found {show(name)}")
    return name


class MapImage(Model):
    """A map of map_server: the keys of its YAML file. Keys of other tools are left out when such a file is read."""

    image: Annotated[str, Field(min_length=1), AfterValidator(_can_be_a_path)] = Field(
        description="PGM or PNG image, relative to the YAML file; of a loaded scenario, the image that was found."
    )
    mode: Literal["trinary", "scale", "raw"] = Field("trinary", description="What shades mean.")
    resolution: Length = Field(description="Width of a cell [m].")
    origin: Annotated[tuple[Metres, Metres, Angle], exactly(3, "[x, y, yaw]")] = Field(
        description="Pose of the lower left corner of the image's lower left pixel [m, m, rad]."
    )
    negate: bool = Field(description="True or 1: white is occupied.")
    occupied_thresh: Probability = Field(description="Occupied above this.")
    free_thresh: Probability = Field(description="Free below this.")

    @field_validator("negate", mode="before")
    @classmethod
    def _truth(cls, value: Any) -> Any:
        if isinstance(value, (bool, int)) and value in (0, 1):
            return bool(value)
        raise ValueError(f"expected 0, 1, true or false, found {show(value)}")

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> Self:
        if self.mode != "raw" and self.free_thresh >= self.occupied_thresh:
            message = f"expected a value below occupied_thresh, which is {self.occupied_thresh:g}, found "
            fail([detail(f"{message}{self.free_thresh:g}", "free_thresh", found=self.free_thresh)])
        return self


@dataclass(frozen=True)
class Pixels:
    """Of an image, first row at the top."""

    colour: npt.NDArray[np.uint32]  # (rows, columns) sum of its colour channels
    channels: int  # of colour: 1 or 3
    white: int  # of each channel: 255 or 65535
    alpha: npt.NDArray[np.uint32] | None  # `white` is opaque; None: an image without


@dataclass(frozen=True)
class MapCells:
    """A map as the engine takes it: its grid lies along the axes of the map frame."""

    values: Occupancies
    cell_m: float
    west: float  # [m] map frame
    south: float


def described_in(file: Path) -> tuple[MapImage, Places]:
    """What a YAML file says, with its image as a path that means the same everywhere; MapError lists what is wrong."""
    known = MapImage.key_names()
    data, places = read_file(file, MapError)
    if isinstance(data, Mapping):  # map_server ignores keys it does not know; those that look like a typo are refused
        data = {key: value for key, value in data.items() if key in known or did_you_mean(key, known)}
    described = model_of(MapImage, data, places, MapError)
    return described.model_copy(update={"image": portable(located(described.image, file.parent))}), places


def read_map_file(file: Path, max_cells: int) -> tuple[MapImage, Occupancies]:
    """A map and its cells, not yet turned; MapError says, with file and line, all that is wrong."""
    described, places = described_in(file)
    return described, occupancies_of(described, max_cells, places)


def occupancies_of(described: MapImage, max_cells: int, places: Places | None = None) -> Occupancies:
    """Those of the image, not yet turned. `places`: of the file that names it."""
    image = located(described.image)
    try:
        facts = image.stat()
        return _occupancies(image, facts.st_size, facts.st_mtime_ns, described, max_cells)
    except MapError as error:
        raise error if places is None else MapError(places.problem(str(error), ("image",))) from None
    except OSError as error:
        found = sorted(path.name for path in image.parent.glob("*") if path.suffix in (".pgm", ".png"))
        reason = f"no such file{did_you_mean(image.name, found)}" if isinstance(error, FileNotFoundError) else error
        message = f"{image}: cannot be read: {reason}"
        raise MapError(Problem(message) if places is None else places.problem(message, ("image",))) from None


@lru_cache(2)  # scenarios are checked over and over
def _occupancies(image: Path, size: int, changed_ns: int, described: MapImage, max_cells: int) -> Occupancies:
    values = occupancy(read_pixels(image, max_cells), described)
    values.flags.writeable = False
    return values


def read_pixels(file: Path, max_cells: int) -> Pixels:
    """Of a PGM or PNG image; MapError says what is wrong with it."""
    from PIL import Image, UnidentifiedImageError

    if not file.is_file():
        raise MapError(Problem(f"{file}: expected a regular file"))
    try:
        with Image.open(file, formats=tuple(_KINDS)) as image:
            columns, rows = image.size
            if not 0 < columns * rows <= max_cells:
                raise MapError(Problem(f"{file}: expected 1 to {max_cells:,} pixels, found {columns} by {rows}"))
            return _pixels_of(image)
    except UnidentifiedImageError:
        raise MapError(Problem(f"{file}: expected a PGM or PNG image; convert other formats to one of them")) from None
    except Image.DecompressionBombError:
        raise MapError(Problem(f"{file}: expected 1 to {max_cells:,} pixels, found far more")) from None
    except MemoryError:
        raise MapError(Problem(f"{file}: does not fit into memory")) from None
    except _DAMAGED as error:
        raise MapError(Problem(f"{file}: not a readable PGM or PNG image: {error}")) from None


def _pixels_of(image: Any) -> Pixels:
    """Pillow gives 16 bits for grey images alone, as `I;16` or `I`."""
    if image.mode in ("I", "I;16", "I;16B"):
        return Pixels(np.clip(np.asarray(image), 0, 65535).astype(np.uint32), 1, 65535, None)
    has_alpha = "transparency" in image.info or image.mode in ("LA", "RGBA", "PA")
    if image.mode not in ("1", "L", "LA", "RGB", "RGBA"):
        image = image.convert("RGB")
    if has_alpha:
        image = image.convert("RGBA")
    elif image.mode == "1":
        image = image.convert("L")
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        return Pixels(pixels.astype(np.uint32), 1, 255, None)
    alpha = pixels[:, :, 3].astype(np.uint32) if has_alpha else None
    return Pixels(pixels[:, :, :3].sum(axis=2, dtype=np.uint32), 3, 255, alpha)


def occupancy(pixels: Pixels, described: MapImage) -> Occupancies:
    """Of the cells, first row in the south."""
    sums, count = pixels.colour, pixels.channels
    if pixels.alpha is not None and described.mode == "trinary":
        sums, count = sums + pixels.alpha, count + 1
    shade = np.arange(count * pixels.white + 1) / count / pixels.white
    occ, low, high = shade if described.negate else 1.0 - shade, described.free_thresh, described.occupied_thresh
    if described.mode == "raw":
        grey = np.floor(shade * 255.0 + 0.5)
        meaning = np.where(grey <= OCCUPIED, grey, UNKNOWN)
    else:
        between: Any = np.rint((occ - low) / (high - low) * OCCUPIED) if described.mode == "scale" else UNKNOWN
        meaning = np.where(occ > high, OCCUPIED, np.where(occ < low, 0, between))
    values = meaning.astype(np.int8)[sums]
    if pixels.alpha is not None and described.mode == "scale":
        values[pixels.alpha != pixels.white] = UNKNOWN
    return np.ascontiguousarray(values[::-1])


# ---- where the cells are ---------------------------------------------------------------------------------------------


def cells_of(described: MapImage, max_cells: int) -> MapCells:
    """The map of a finished scenario."""
    values = occupancies_of(described, max_cells)
    return upright(values, described.resolution, described.origin, max_cells)


def upright(values: Occupancies, cell_m: float, origin: Origin, max_cells: int) -> MapCells:
    """A map on a grid along the axes of the map frame, which is itself where its origin has no yaw.

    Quarter turns are exact. Otherwise the grid has the same resolution, covers the whole map and is unknown beyond it:
    a cell has the value of the map at its middle, and is occupied if an occupied cell of the map overlaps it. So walls
    become thicker by up to a cell, and none has a gap.
    """
    x, y, yaw = origin
    rows, columns = values.shape
    quarters = round(yaw / _QUARTER_TURN)
    if abs(yaw - quarters * _QUARTER_TURN) > _NEARLY_RAD:
        return _resampled(values, cell_m, origin, max_cells)
    turn = quarters % 4
    west = x - (0.0, rows, columns, 0.0)[turn] * cell_m
    south = y - (0.0, 0.0, rows, columns)[turn] * cell_m
    return MapCells(np.ascontiguousarray(np.rot90(values, -turn)), cell_m, west, south)


def _resampled(values: Occupancies, cell_m: float, origin: Origin, max_cells: int) -> MapCells:
    sine, cosine = exact.sin(origin[2]), exact.cos(origin[2])
    rows, columns = values.shape
    start = origin[0] / cell_m, origin[1] / cell_m  # [cells], as all that follows
    corners = [
        (start[0] + cosine * u - sine * v, start[1] + sine * u + cosine * v) for u in (0, columns) for v in (0, rows)
    ]
    (west, south), (east, north) = (
        [int(np.floor(pick(axis))) for axis in zip(*corners, strict=True)] for pick in (min, max)
    )
    size = north - south + 1, east - west + 1
    if size[0] * size[1] > max_cells:
        raise MapError(Problem(f"expected a turned map of at most {max_cells:,} cells, found {size[1]} by {size[0]}"))
    found = np.full(size, UNKNOWN, np.int8)
    across = np.arange(size[1]) + (west + 0.5 - start[0])
    for first in range(0, size[0], _ROWS_AT_ONCE):
        up = (np.arange(first, min(first + _ROWS_AT_ONCE, size[0])) + (south + 0.5 - start[1]))[:, None]
        u, v = np.floor(cosine * across + sine * up), np.floor(cosine * up - sine * across)
        inside = (u >= 0) & (v >= 0) & (u < columns) & (v < rows)
        block = found[first : first + _ROWS_AT_ONCE]
        block[inside] = values[v[inside].astype(np.int64), u[inside].astype(np.int64)]
    _overlap(found, values, (start[0] - west, start[1] - south), sine, cosine)
    return MapCells(found, cell_m, west * cell_m, south * cell_m)


def _overlap(found: Occupancies, values: Occupancies, start: tuple[float, float], sine: float, cosine: float) -> None:
    """Mark every cell that an occupied one of the turned map overlaps."""
    half = 0.5 * (abs(sine) + abs(cosine))  # half the extent of a turned cell along either axis of the other grid
    for first in range(0, len(values), _ROWS_AT_ONCE):
        rows, columns = np.nonzero(values[first : first + _ROWS_AT_ONCE] >= OCCUPIED_FROM)
        u, v = columns + 0.5, rows + (first + 0.5)
        east, north = start[0] + cosine * u - sine * v, start[1] + sine * u + cosine * v
        first_j, first_i = np.floor(north - half), np.floor(east - half)
        for step_j in range(3):  # a turned cell is at most √2 cells wide: it overlaps no more than three either way
            for step_i in range(3):
                j, i = first_j + step_j, first_i + step_i
                dx, dy = i + 0.5 - east, j + 0.5 - north
                along, aside = np.abs(cosine * dx + sine * dy), np.abs(cosine * dy - sine * dx)
                # two squares are apart where an axis of one of them shows it
                meets = (j <= north + half) & (i <= east + half) & (along <= 0.5 + half) & (aside <= 0.5 + half)
                meets &= (j >= 0) & (i >= 0) & (j < found.shape[0]) & (i < found.shape[1])
                found[j[meets].astype(np.int64), i[meets].astype(np.int64)] = OCCUPIED


# ---- walls, as cameras and LiDARs see them ---------------------------------------------------------------------------


def walls_of(cells: MapCells, ground_m: float, height_m: float) -> Mesh | None:
    """The surface of all occupied cells: a face for every straight piece of wall, and for every row of tops."""
    solid = np.pad((cells.values >= OCCUPIED_FROM).astype(np.int8), 1)
    tops = _runs(solid[1:-1] > 0)
    northern, eastern = _runs(np.diff(solid, axis=0)[:, 1:-1] != 0), _runs(np.diff(solid, axis=1)[1:-1].T != 0)
    count = len(tops) + len(northern) + len(eastern)
    if count > MAX_FACES:
        remedy = "is it a photograph? Draw walls as straight lines, or remove its speckles"
        raise MapError(Problem(f"expected walls of at most {MAX_FACES:,} faces, found {count:,}; {remedy}"))
    if not count:
        return None
    low, high = np.zeros(count), np.ones(count)
    low[: len(tops)] = 1.0
    west, south, east, north = np.concatenate(
        [
            np.column_stack([tops[:, 1], tops[:, 0], tops[:, 2], tops[:, 0] + 1]),
            np.column_stack([northern[:, 1], northern[:, 0], northern[:, 2], northern[:, 0]]),
            np.column_stack([eastern[:, 0], eastern[:, 1], eastern[:, 0], eastern[:, 2]]),
        ]
    ).T
    # around a face: level ones by their corners, upright ones along their foot and back along their top
    x = np.stack([west, east, east, west], axis=1) * cells.cell_m + cells.west
    y = np.stack([south, np.where(low > 0.0, south, north), north, np.where(low > 0.0, north, south)], axis=1)
    z = np.stack([low, low, high, high], axis=1) * height_m + ground_m
    vertices = np.stack([x, y * cells.cell_m + cells.south, z], axis=2).reshape(-1, 3)
    corner = 4 * np.arange(count, dtype=np.int32)[:, None]
    triangles = np.concatenate([corner + np.array(each, np.int32) for each in ((0, 1, 2), (0, 2, 3))])
    return Mesh(np.ascontiguousarray(vertices, np.float64), np.ascontiguousarray(triangles, np.int32))


def _runs(marks: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """(n, 3) row, first column and the column after the last of every run of marks."""
    edges = np.diff(np.pad(marks.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    (rows, first), (_, end) = np.nonzero(edges == 1), np.nonzero(edges == -1)
    return np.column_stack([rows, first, end]).astype(np.int64)
