"""Maps as map_server reads them: a YAML file that names a PGM image.

A pixel's shade is 0 for black and 1 for white; how occupied its cell is, occ, is 1 - shade, or the shade itself with
`negate`. Then, by `mode`:
- trinary: 100 where occ > occupied_thresh, 0 where occ < free_thresh, else unknown;
- scale: the same, but from free_thresh to occupied_thresh a straight line from 0 to 100;
- raw: the pixel's value (of 255) where it is 0 to 100, else unknown; `negate` and thresholds do not count.
The image's last row is the map's first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, field_validator, model_validator
from typing_extensions import Self

from microsim.documents.values import Angle, Length, Metres, Model, Probability, detail, exactly, fail, show
from microsim.documents.yaml_text import read_yaml
from microsim.errors import MapError, ScenarioError, did_you_mean
from microsim.ros2.robot_simulator.grids import DEFAULT_THRESHOLD, OCCUPIED, UNKNOWN, GridMap, grid_of_values
from microsim.ros2.robot_simulator.pgm import read_pgm
from microsim.scenario.files import read_text
from microsim.scenario.messages import Places, in_order


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


def read_map(file: str | Path, threshold: int = DEFAULT_THRESHOLD) -> GridMap:
    """The map; MapError says, with file and line, all that is wrong."""
    file = Path(file)
    try:
        document = read_yaml(read_text(file), str(file))
    except ScenarioError as error:
        raise MapError(error.problems) from None
    places = Places(str(file), document)
    described = _described(document.data, places)
    shades, depth = _image(file.parent / described.image, places)
    values = occupancy(shades, depth, described)
    return grid_of_values(values, described.resolution, described.origin, threshold)


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
        return read_pgm(file)
    except MapError as error:
        raise MapError(places.problem(str(error), ("image",))) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        beside = [path.name for path in file.parent.glob("*.pgm")] if file.parent.is_dir() else []
        hint = did_you_mean(file.name, beside)
        raise MapError(places.problem(f"{file}: cannot be read: {reason}{hint}", ("image",))) from None


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
