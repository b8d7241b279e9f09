"""Worlds from maps: map_server's YAML with its PGM image, occupancy grids on a topic, and scenarios.

A pixel's shade is 0 for black and 1 for white; how occupied its cell is, occ, is 1 - shade, or the shade itself with
`negate`. Then, by `mode`:
- trinary: 100 where occ > occupied_thresh, 0 where occ < free_thresh, else unknown;
- scale: the same, but from free_thresh to occupied_thresh a straight line from 0 to 100;
- raw: the pixel's value (of 255) where it is 0 to 100, else unknown; `negate` and thresholds do not count.
The image's last row is the map's first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, field_validator, model_validator
from typing_extensions import Self

from microsim.documents.values import (
    MAX_LENGTH_M,
    Angle,
    Length,
    Metres,
    Model,
    Probability,
    detail,
    exactly,
    fail,
    show,
)
from microsim.documents.yaml_text import read_yaml
from microsim.engine import exact
from microsim.engine.geometry import Grid, clearance_of, yaw_of_quaternion
from microsim.engine.world import World
from microsim.errors import MapError, Problem, ScenarioError, UsageError, did_you_mean
from microsim.scenario import load_scenario
from microsim.scenario.files import SUFFIXES, Places, in_order, read_text
from microsim.scenario.scene import build_world

OCCUPIED = 100  # of nav_msgs/OccupancyGrid
UNKNOWN = -1
DEFAULT_THRESHOLD = 65
MAX_PIXELS = 100_000_000

Origin = tuple[float, float, float]  # x, y [m], yaw [rad] of the corner of cell (0, 0) in the map frame


@dataclass(frozen=True)
class MapWorld(World):
    """Level ground under a grid of free and occupied cells; beyond the grid everything is free."""

    def with_cells(self, occupied: Grid) -> MapWorld:
        cells = np.ascontiguousarray(occupied, np.uint8)
        clearance = clearance_of(cells)
        for name, grid in (("occupied", cells), ("clearance", clearance), ("footing", clearance)):
            object.__setattr__(self, name, grid)
        return self

    def is_inside(self, x: float, y: float) -> bool:
        rows, columns = self.occupied.shape
        u, v = self.in_cells(x, y)
        return bool(0.0 <= u < columns and 0.0 <= v < rows)

    @property
    def size_m(self) -> tuple[float, float]:
        rows, columns = self.occupied.shape
        return columns * self.cell_m, rows * self.cell_m


def world_of_cells(occupied: Grid, cell_m: float, origin: Origin = (0.0, 0.0, 0.0)) -> MapWorld:
    """From cells (rows, columns), 0 free and 1 occupied. Row 0 lies along the origin's x axis, column 0 along its y.

    The engine's grids are not turned. A map whose origin is gets a new grid of the same resolution, in which every cell
    is occupied that an occupied cell of the map overlaps: walls become thicker by up to a cell, and none has a gap.
    """
    x, y, yaw = origin
    if yaw != 0.0:
        occupied, x, y = _unturned(np.ascontiguousarray(occupied, np.uint8), cell_m, origin)
    return MapWorld(cell_m, np.zeros((1, 1)), np.zeros((1, 1), np.uint8), (), (), x, y).with_cells(occupied)


NOWHERE = world_of_cells(np.zeros((1, 1), np.uint8), 1.0)  # no map: one free cell


def _unturned(occupied: Grid, cell_m: float, origin: Origin) -> tuple[Grid, float, float]:
    """A grid that is not turned and covers the occupied cells, and its south-west corner."""
    sine, cosine = exact.sin(origin[2]), exact.cos(origin[2])
    half = 0.5 * (abs(sine) + abs(cosine))  # half the extent of a turned cell along either axis of the other grid
    rows, columns = np.nonzero(occupied)
    if not rows.size:
        return np.zeros((1, 1), np.uint8), origin[0], origin[1]
    u, v = columns + 0.5, rows + 0.5
    east, north = origin[0] / cell_m + cosine * u - sine * v, origin[1] / cell_m + sine * u + cosine * v  # [cells]
    west, south = math.floor(east.min() - half), math.floor(north.min() - half)
    size = math.floor(north.max() + half) - south + 1, math.floor(east.max() + half) - west + 1
    if size[0] * size[1] > MAX_PIXELS:
        raise UsageError(f"a turned map of {size[1]} by {size[0]} cells is too large")
    found = np.zeros(size, np.uint8)
    first_j, first_i = np.floor(north - half), np.floor(east - half)
    for step_j in range(3):  # a turned cell is at most √2 cells wide: it overlaps no more than three either way
        for step_i in range(3):
            j, i = first_j + step_j, first_i + step_i
            dx, dy = i + 0.5 - east, j + 0.5 - north
            along, aside = np.abs(cosine * dx + sine * dy), np.abs(cosine * dy - sine * dx)
            # two squares are apart where an axis of one of them shows it
            meets = (j <= north + half) & (i <= east + half) & (along <= 0.5 + half) & (aside <= 0.5 + half)
            found[(j[meets] - south).astype(np.int64), (i[meets] - west).astype(np.int64)] = 1
    return found, west * cell_m, south * cell_m


def world_of_values(values: npt.NDArray[np.int8], cell_m: float, origin: Origin, threshold: int) -> MapWorld:
    """From occupancies (rows, columns) of 0 to 100 and -1. What is unknown is free."""
    return world_of_cells((values >= threshold).astype(np.uint8), cell_m, origin)


def world_of_message(message: Any, threshold: int = DEFAULT_THRESHOLD) -> MapWorld:
    """From a nav_msgs/OccupancyGrid; UsageError when it makes no sense."""
    info, place, turn = message.info, message.info.origin.position, message.info.origin.orientation
    rows, columns, cell_m = int(info.height), int(info.width), _metres(info.resolution)
    if not rows or not columns or rows * columns != len(message.data):
        raise UsageError(f"a map of {columns} by {rows} cells comes with {len(message.data)} values")
    if not (math.isfinite(cell_m) and 0.0 < cell_m <= MAX_LENGTH_M):
        raise UsageError(f"a map's cells cannot be {cell_m:g} m wide")
    pose = (float(place.x), float(place.y), heading(turn))
    if not all(math.isfinite(value) and abs(value) <= MAX_LENGTH_M for value in pose):
        raise UsageError(f"a map's origin cannot be at {pose}")
    return world_of_values(np.asarray(message.data, np.int8).reshape(rows, columns), cell_m, pose, threshold)


def world_of_scenario(source: str) -> MapWorld:
    """The occupied cells of a scenario: a shipped one's name, or a file."""
    world = build_world(load_scenario(source))
    return world_of_cells(world.occupied, world.cell_m, (world.west, world.south, 0.0))


def load_map(source: str, threshold: int = DEFAULT_THRESHOLD) -> MapWorld:
    """What the parameter `map` names; raises MapError or ScenarioError."""
    file = Path(source)
    return read_map(file, threshold) if file.suffix in SUFFIXES and is_map(file) else world_of_scenario(source)


def heading(quaternion: Any) -> float:
    """Yaw of an orientation; one that was not filled in (all zeros) looks along x. A NaN gives NaN."""
    x, y, z, w = (float(getattr(quaternion, name)) for name in "xyzw")
    length = x * x + y * y + z * z + w * w
    return yaw_of_quaternion(x, y, z, w) if length >= 1e-6 else 0.0 if length < 1e-6 else math.nan


def _metres(single: Any) -> float:
    """float32 as a person wrote it: 0.05, not its neighbour 0.0500000007."""
    return float(str(np.float32(single)))


class MapFile(Model):
    """The keys of a map's YAML."""

    image: Annotated[str, Field(min_length=1)] = Field(description="PGM image, relative to the YAML file.")
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


def read_map(file: str | Path, threshold: int = DEFAULT_THRESHOLD) -> MapWorld:
    """A map of map_server; MapError says, with file and line, all that is wrong."""
    file = Path(file)
    try:
        document = read_yaml(read_text(file), str(file))
    except ScenarioError as error:
        raise MapError(error.problems) from None
    places = Places(str(file), document)
    described = _described(document.data, places)
    shades, depth = _image(file.parent / described.image, places)
    values = occupancy(shades, depth, described)
    return world_of_values(values, described.resolution, described.origin, threshold)


def is_map(file: Path) -> bool:
    """Whether a YAML file is a map's, rather than a scenario's."""
    try:
        data = read_yaml(read_text(file), str(file)).data
    except ScenarioError:
        return False
    return isinstance(data, Mapping) and ("image" in data or "resolution" in data)


def _described(data: Any, places: Places) -> MapFile:
    known = MapFile.key_names()
    if isinstance(data, Mapping):  # map_server ignores keys it does not know; those that look like a slip are refused
        data = {key: value for key, value in data.items() if key in known or did_you_mean(key, known)}
    try:
        return MapFile.model_validate(data)
    except ValidationError as error:
        raise MapError(in_order(places.problems(error, data, lambda path: path))) from None


def _image(file: Path, places: Places) -> tuple[npt.NDArray[np.uint16], int]:
    try:
        return read_grey(file)
    except MapError as error:
        raise MapError(places.problem(str(error), ("image",))) from None
    except FileNotFoundError:
        beside = [path.name for path in file.parent.glob("*.pgm")] if file.parent.is_dir() else []
        hint = did_you_mean(file.name, beside)
        raise MapError(places.problem(f"{file}: cannot be read: no such file{hint}", ("image",))) from None


def read_grey(file: Path) -> tuple[npt.NDArray[np.uint16], int]:
    """Pixels (rows, columns) of a PGM image, first row at the top, and the value of white: 255 or 65535."""
    from PIL import Image, UnidentifiedImageError

    if not file.is_file():
        raise FileNotFoundError(2, "no such file")
    try:
        with Image.open(file, formats=("PPM",)) as image:
            columns, rows = image.size
            if not 0 < columns * rows <= MAX_PIXELS:
                raise MapError(Problem(f"{file}: expected 1 to {MAX_PIXELS:,} pixels, found {columns} by {rows}"))
            if image.mode not in ("L", "I", "1"):
                raise MapError(Problem(f"{file}: expected a grey PGM image (P5 or P2), found a colour image"))
            white = 65535 if image.mode == "I" else 255
            pixels = np.asarray(image if image.mode != "1" else image.convert("L"))
    except UnidentifiedImageError:
        message = f"{file}: expected a grey PGM image (P5 or P2); convert other formats to PGM"
        raise MapError(Problem(message)) from None
    except (Image.DecompressionBombError, OSError, ValueError, SyntaxError, OverflowError, MemoryError) as error:
        raise MapError(Problem(f"{file}: not a readable PGM image: {error}")) from None
    return np.clip(pixels, 0, white).astype(np.uint16), white


def occupancy(pixels: npt.NDArray[np.uint16], depth: int, described: MapFile) -> npt.NDArray[np.int8]:
    """Occupancies of the cells, first row at the bottom; `depth` is the value of white."""
    meaning = _meaning_of_shades(np.arange(depth + 1) / depth, described)
    return meaning[pixels[::-1]]


def _meaning_of_shades(shade: npt.NDArray[np.float64], described: MapFile) -> npt.NDArray[np.int8]:
    if described.mode == "raw":
        grey = np.floor(shade * 255.0 + 0.5)
        return np.where(grey <= OCCUPIED, grey, UNKNOWN).astype(np.int8)
    occ = shade if described.negate else 1.0 - shade
    low, high = described.free_thresh, described.occupied_thresh
    between: Any = UNKNOWN
    if described.mode == "scale":
        between = np.rint((occ - low) / (high - low) * OCCUPIED)
    return np.where(occ > high, OCCUPIED, np.where(occ < low, 0, between)).astype(np.int8)
