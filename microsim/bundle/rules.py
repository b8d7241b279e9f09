"""Every rule that a world bundle must follow, and the report of those it breaks, each with file, place and remedy.

The rules are those of the GS-ROS2 common conventions 1.0.2, and what reading a file safely adds to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from microsim.documents.values import describe_error
from microsim.documents.yaml_text import dotted
from microsim.errors import Problem

if TYPE_CHECKING:
    from microsim.documents.yaml_text import Document
    from microsim.documents.yaml_text import Path as KeyPath

RULES: dict[str, str] = {
    # files
    "entry-point": "`world.yaml` is the entry point of a bundle",
    "required-file": "every file of the minimal bundle is named in `world.yaml` and exists",
    "regular-file": "every named file is a regular file that can be read, of a bounded size",
    "relative-path": "paths are relative to `world.yaml`; absolute paths are refused",
    "inside-bundle": "no path leaves the bundle through `..`",
    "link-inside": "a symbolic link is followed only to a target inside the bundle",
    "forward-slash": "the separator in paths is `/`, on Windows too",
    "file-name": "file names consist of lower-case letters, digits and underscores",
    "file-extension": "every file name has the extension that belongs to its content",
    # texts
    "parse": "YAML, JSON and GeoJSON can be parsed",
    "version": "every configuration file has a version MAJOR.MINOR.PATCH, with MAJOR 1",
    "unknown-field": "fields have the names of the documentation; unknown fields of a newer MINOR are ignored",
    "field-value": "every required field is present, has its type and is within its bounds",
    "degrees": "angles are in radians; in degrees only under a name with the suffix `_deg`",
    # conventions
    "map-frame": "the map frame is ENU: x east, y north, z up, in metres",
    "unit-quaternion": "quaternions are [x, y, z, w] of length 1",
    "camera-convention": "every camera has a `camera_convention`: opencv or ros",
    "sensor-id": "sensor ids consist of lower-case letters, digits and underscores",
    "sensor-id-meaning": "sensor ids say where the sensor is; numbers alone do not",
    "sensor-rate": "no sensor is faster than the simulation's steps",
    "calibration-wins": "`tf_static.json` is derived from `calibration.yaml` and agrees with it",
    "simulated-time": "`use_sim_time` is always true",
    "start-pose": "the car starts on the map, in a cell with ground in and around it, outside the static mesh",
    # binaries
    "little-endian-float32": "binary data is little endian IEEE 754, heights are float32",
    "heightmap-size": "the heightmap has exactly width x height x 4 bytes",
    "heightmap-value": "heights are finite, or NaN where there is no ground",
    "splat-format": "Gaussians are a PLY in binary_little_endian 1.0; neither ASCII nor NPZ",
    "splat-name": "the file of the Gaussians is called `background.splat.ply`",
    "splat-properties": "the PLY has exactly the documented properties, in the documented order",
    "splat-size": "the PLY has as many bytes as its header declares",
    "splat-value": "every number of a Gaussian is finite and within the bounds that can be drawn",
    "sh-degree": "`sh_degree` is in `render_config.json` and fits the number of `f_rest` properties",
    "lanes-format": "lanes are a GeoJSON of centre lines with borders and followers that are there",
    "object-name": "objects with a name have different names",
    "mesh-format": "a static mesh is a binary PLY, an OBJ or a GLB that can be read",
    "mesh-value": "vertices of a mesh are finite, faces refer to existing vertices and are simple polygons",
    # drivable area
    "drivable-structure": "the drivable area is a FeatureCollection of Polygons and MultiPolygons",
    "drivable-frame": "coordinates are in the map frame: `crs` is `map_frame`",
    "drivable-type": "the property `type` of every feature is `drivable`",
    "drivable-priority": "the property `priority` is a number; the smallest takes precedence",
    "ring-closed": "the first and the last point of a ring are the same",
    "ring-orientation": "outer rings run counter-clockwise, holes clockwise",
    "ring-simple": "rings do not cross or touch themselves or each other, and holes lie within",
    "drivable-empty": "without any polygon the whole world is off-road",
    # recommended limits
    "limit-bundle-size": "a bundle has at most 2 GB (2,000,000,000 bytes)",
    "limit-gaussians": "at most 5 million Gaussians",
    "limit-heightmap": "at most 4096 x 4096 heights",
    "limit-triangles": "at most 10 million triangles in the static mesh",
}

WARNINGS = frozenset({
    "sensor-id-meaning", "drivable-empty", "limit-bundle-size", "limit-gaussians", "limit-heightmap", "limit-triangles",
})  # fmt: skip

MAX_PROBLEMS = 200  # errors, and as many warnings, that are listed for one bundle

KEY_MARK = "[key]"  # pydantic's mark for an error about a key of a mapping

_Block = TypeVar("_Block", bound=BaseModel)


@dataclass
class BundleReport:
    """The problems found so far, in the order they were found; errors and warnings are counted separately."""

    listed: list[Problem] = field(default_factory=list)
    error_count: int = 0
    warning_count: int = 0

    def add(self, problem: Problem) -> None:
        if problem.is_warning:
            self.warning_count += 1
        else:
            self.error_count += 1
        if (self.warning_count if problem.is_warning else self.error_count) <= MAX_PROBLEMS:
            self.listed.append(problem)

    @property
    def problems(self) -> list[Problem]:
        """What was found; of very many, the first, and how many more there are."""
        more = self.error_count + self.warning_count - len(self.listed)
        note = Problem(f"{more:,} more problems are not listed", is_warning=not self.error_count)
        return [*self.listed, note] if more else list(self.listed)


@dataclass
class BundleFile:
    """One file of the bundle, and the report that collects its problems."""

    report: BundleReport
    name: str  # as written in world.yaml
    file: Path
    document: Document | None = None  # of a text file, once parsed
    newer_minor: bool = False  # written for a later version: fields that this one does not have are ignored

    def problem(
        self,
        rule: str,
        message: str,
        path: KeyPath = (),
        remedy: str = "",
        *,
        at_key: bool = False,
        line: int | None = None,
        warning: bool = False,
    ) -> None:
        assert rule in RULES, rule
        mark = self.document.place(path, at_key) if self.document is not None else None
        row, column = mark if mark is not None else (line, None)
        is_warning = warning or rule in WARNINGS
        advice = remedy or RULES[rule]
        self.report.add(Problem(message, dotted(path), str(self.file), row, column, rule, advice, is_warning))

    def read(self, model: type[_Block]) -> _Block | None:
        """The whole document as that model; None and a problem for every error."""
        assert self.document is not None
        return self.read_block(model, self.document.data, ())

    def read_block(self, model: type[_Block], data: Any, path: KeyPath) -> _Block | None:
        """A part of the document, located at `path`, likewise."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            found = error.errors(include_url=False)
        later = set()
        for each in found:
            context: Any = each.get("ctx", {})
            rule = context.get("rule") or "field-value"
            location = tuple(part for part in each["loc"] if part != KEY_MARK)
            is_later = self.newer_minor and rule == "unknown-field"
            if is_later:
                later.add(location)
            place = (*path, *_as_written(location, data))
            at_key = KEY_MARK in each["loc"] or bool(context.get("at_key"))
            self.problem(rule, describe_error(each), place, context.get("remedy", ""), at_key=at_key, warning=is_later)
        return self.read_block(model, _without(data, later), path) if len(later) == len(found) else None


def _as_written(location: KeyPath, data: Any) -> KeyPath:
    """`elevations_deg` where the author wrote that in place of `elevations`."""
    path: KeyPath = ()
    for name in location:
        in_degrees = isinstance(data, Mapping) and name not in data and f"{name}_deg" in data
        part = f"{name}_deg" if in_degrees else name
        path = (*path, part)
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            data = None
    return path


def _without(data: Any, locations: set[KeyPath], path: KeyPath = ()) -> Any:
    if isinstance(data, Mapping):
        inner = {key: _without(value, locations, (*path, key)) for key, value in data.items()}
        return {key: value for key, value in inner.items() if (*path, key) not in locations}
    if isinstance(data, list):
        return [_without(value, locations, (*path, index)) for index, value in enumerate(data)]
    return data
