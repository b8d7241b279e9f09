"""`edits.yaml`: what `microsim bundle edit` changes in a world. Coordinates are those of the world before the edits.

scale:     two points and the metres between them
level:     three points on level ground
crop:      a box; what is outside is removed
drivable:  polygons that are added, changed or removed
start:     where the ego car begins
objects:   boxes with a name that are added, changed, removed or cut out of the world as actors
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator
from typing_extensions import Self

from microsim.bundle.bundle_files import read_document
from microsim.bundle.bundle_model import (
    MAX_OBJECTS,
    Bundle,
    BundleBlock,
    BundleText,
    Heightmap,
    NamedObject,
    ObjectName,
    StartPose,
    Yaw,
)
from microsim.bundle.drivable_geojson import Ring, crossing_of, signed_area
from microsim.bundle.rules import BundleFile, BundleReport
from microsim.bundle.similarity import UNCHANGED, Similarity, matrix_of_rpy, upright
from microsim.documents.values import Finite, Length, Metres, PointXY, PointXYZ, SizeXYZ, detail, exactly, fail, show
from microsim.errors import BundleError, Problem

BACK_FILE = "actors/scenario.yaml"  # beside the actors: puts them back where they were


class CutOut(NamedTuple):
    """A box of the world before, and where its actor stands in the world after."""

    box: NamedObject
    x: float
    y: float
    ground: float  # [m] below its centre
    yaw: float
    size: tuple[float, float, float]  # of its body, from the ground up

    @property
    def name(self) -> str:
        return robot_name(self.box.name)

    @property
    def file(self) -> str:
        """In the world's folder, but not part of the bundle."""
        return f"actors/{self.name}.ply"

    @property
    def frame(self) -> Similarity:
        """From the map to the actor: x ahead, z up, origin on the ground below its centre."""
        back = matrix_of_rpy(0.0, 0.0, -self.yaw)
        x, y, z = (-back @ np.array([self.x, self.y, self.ground])).tolist()
        return Similarity(back, 1.0, (x, y, z))


def robot_name(text: str) -> str:
    """A name for topics that is like the text."""
    found = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:50]
    return found if found[:1].isalpha() else f"actor_{found}".rstrip("_")


def cut_outs(boxes: Sequence[NamedObject], frame: Similarity, ground: Heightmap) -> list[CutOut]:
    """`frame`: from the world before to the world after, whose ground is given."""
    found = []
    for box in boxes:
        x, y, z = frame.points([box.center])[0].round(4).tolist()
        ahead = frame.rotation @ np.array([math.cos(box.yaw), math.sin(box.yaw), 0.0])
        yaw = round(math.atan2(ahead[1], ahead[0]), 6) + 0.0
        level = float(ground.heights(np.array([x]), np.array([y]))[0])
        length, width, height = (frame.scale * side for side in box.size)
        top = z + 0.5 * height - level
        found.append(CutOut(box, x, y, level, yaw, (round(length, 4), round(width, 4), round(max(top, 0.01), 4))))
    return found


def inside_box(box: NamedObject, points: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of many points (n, 3) are in it."""
    x, y, z = (points.astype(np.float64) - np.array(box.center)).T
    sine, cosine = math.sin(box.yaw), math.cos(box.yaw)
    length, width, height = (0.5 * side for side in box.size)
    across = (np.abs(cosine * y - sine * x) <= width) & (np.abs(z) <= height)
    found: npt.NDArray[np.bool_] = across & (np.abs(cosine * x + sine * y) <= length)
    return found


def cut_problem(bundle: Bundle, box: NamedObject) -> str:
    """Why it cannot be cut out; empty: it can."""
    x, y, _ = box.center
    if not inside_box(box, bundle.gaussians.column("x", 3)).any():
        return "no Gaussian has its centre in this box; make it larger, or move it"
    if math.isnan(bundle.heightmap.heights(np.array([x]), np.array([y]))[0]):
        return "the map has no ground below the middle of this box; move the box to where the actor can stand"
    return ""


def scenario_of(cuts: Sequence[CutOut], folder: str) -> dict[str, Any]:
    """What puts the actors back where they were, in the world of that folder, from where it is called so."""
    robots: dict[str, Any] = {"ego": {}}
    for cut in cuts:
        robots[cut.name] = {
            "model": "actor",
            "shape": "box",
            "size": list(cut.size),
            "splats": {"file": f"{folder}/{cut.file}", "shadow": False},
            "start": {"map_pose": {"x": cut.x, "y": cut.y, "yaw": cut.yaw}},
        }
    return {"world": folder, "robots": robots}


Floats: TypeAlias = npt.NDArray[np.float64]

MAX_EDITS = 10_000
MAX_TILT_DEG = 45.0  # of the ground that three points level
_LEAST_ANGLE = 0.02  # [rad] of the triangle of these points: they must not be on one line
_SCALES = (0.001, 1000.0)
_LEVEL_FIRST = "level such a capture with `microsim bundle from-capture --level-points`"

RingPoints = Annotated[tuple[PointXY, ...], Field(min_length=3, max_length=100_000)]
Span = Annotated[tuple[Metres, Metres], exactly(2, "[lowest, highest]")]
Number = Annotated[int, Field(strict=True, ge=0)]


class ListEdit(BundleBlock):
    """Of a list of things: adds one; or, with a number, changes or removes one that is there."""

    things: ClassVar[str] = ""  # the key that numbers them
    needed: ClassVar[tuple[str, ...]] = ()  # of one that is not removed

    remove: bool = False

    @property
    def number(self) -> int | None:
        found: int | None = getattr(self, self.things)
        return found

    @property
    def is_gone(self) -> bool:
        """Whether the list of the edited world is without it."""
        return self.remove

    @model_validator(mode="after")
    def _complete(self) -> Self:
        missing = [name for name in self.needed if getattr(self, name) is None]
        if self.remove and self.number is None:
            fail([detail(f"missing field '{self.things}': which one is to be removed", "remove")])
        if missing and not self.remove:
            fail([detail(f"missing field '{missing[0]}'", missing[0])])
        return self


class PolygonEdit(ListEdit):
    """A polygon that a car may drive on; its rings may run either way, and need not repeat their first point."""

    things: ClassVar[str] = "polygon"
    needed: ClassVar[tuple[str, ...]] = ("outer",)

    polygon: Number | None = None
    outer: RingPoints | None = None
    holes: tuple[RingPoints, ...] = ()
    priority: Finite | None = None  # None: as before; of a new one 0

    @property
    def rings(self) -> list[Ring]:
        """The outer one first and counter-clockwise, holes clockwise, all closed."""
        found = []
        for index, points in enumerate((self.outer or (), *self.holes)):
            ring = np.array(points, np.float64)
            ring = ring if (ring[0] == ring[-1]).all() else np.concatenate([ring, ring[:1]])
            found.append(ring if (signed_area(ring) > 0.0) == (index == 0) else ring[::-1])
        return found


class ObjectEdit(ListEdit):
    """A box with a name."""

    angles: ClassVar[tuple[str, ...]] = NamedObject.angles
    things: ClassVar[str] = "object"
    needed: ClassVar[tuple[str, ...]] = ("name", "center", "size")

    object: Number | None = None
    cut_out: bool = False  # what is inside leaves the world, and becomes the splats of an actor
    name: ObjectName | None = None
    center: PointXYZ | None = None
    size: SizeXYZ | None = None
    yaw: Yaw = 0.0

    @property
    def is_gone(self) -> bool:
        return self.remove or self.cut_out

    @property
    def box(self) -> NamedObject:
        return NamedObject.model_validate(self.model_dump(include=set(NamedObject.model_fields)))


class ScaleEdit(BundleBlock):
    points: Annotated[tuple[PointXYZ, PointXYZ], exactly(2, "two points [x, y, z]")]
    length_m: Length  # between them


class CropEdit(BundleBlock):
    x: Span
    y: Span
    z: Span | None = None  # None: any height
    keep_background: bool = True  # Gaussians outside the map: the sky and what is far away


class WorldEdits(BundleText):
    """`edits.yaml`."""

    scale: ScaleEdit | None = None
    level: Annotated[tuple[PointXYZ, PointXYZ, PointXYZ], exactly(3, "three points [x, y, z]")] | None = None
    crop: CropEdit | None = None
    drivable: Annotated[tuple[PolygonEdit, ...], Field(max_length=MAX_EDITS)] = ()
    start: StartPose | None = None
    objects: Annotated[tuple[ObjectEdit, ...], Field(max_length=MAX_OBJECTS)] = ()

    @property
    def frame(self) -> Similarity:
        """From the world before to the world after; the origin of the map stays where it is."""
        frame = UNCHANGED
        if self.level is not None:
            frame = Similarity(upright(ground_normal(self.level)))
        return frame if self.scale is None else frame.then(Similarity(np.eye(3), scale_factor(self.scale)))

    @property
    def cut_out(self) -> list[NamedObject]:
        return [each.box for each in self.objects if each.cut_out and not each.remove]

    @property
    def moves_everything(self) -> bool:
        return self.scale is not None or self.level is not None

    def as_data(self) -> dict[str, Any]:
        """What `edits.yaml` contains: only what is edited."""
        return {"version": "1.0.0", **self.model_dump(mode="json", exclude_defaults=True, exclude={"version"})}


def read_edits(file: Path) -> WorldEdits:
    """Raises BundleError with every problem of the file."""
    source = BundleFile(BundleReport(), file.name, file)
    if not file.is_file():
        raise BundleError(Problem("no such file", file=str(file)))
    if file.suffix != ".yaml":
        raise BundleError(Problem("expected a file .yaml", file=str(file)))
    edits = source.read(WorldEdits) if read_document(source) else None
    if edits is None:
        raise BundleError(source.report.problems)
    return edits


def edits_of(data: Any) -> tuple[WorldEdits | None, list[Problem]]:
    """Of plain data, such as a page sends it; None and every problem if it is malformed."""
    source = BundleFile(BundleReport(), "edits", Path("edits"))
    edits = source.read_block(WorldEdits, data, ())
    return edits, [Problem(each.message, each.path) for each in source.report.problems]


def ground_normal(points: tuple[Any, ...]) -> Floats:
    """Upwards, of the plane through three points."""
    a, b, c = (np.array(each) for each in points)
    normal = np.cross(b - a, c - a)
    length = float(np.linalg.norm(normal))
    return np.array([0.0, 0.0, 1.0]) if length == 0.0 else normal * (math.copysign(1.0, normal[2]) / length)


def scale_factor(scale: ScaleEdit) -> float:
    between = math.dist(*scale.points)
    return scale.length_m / between if between > 0.0 else math.inf


# ---- what cannot be done ---------------------------------------------------------------------------------------------


def edit_problems(bundle: Bundle, edits: WorldEdits) -> list[Problem]:
    """Every edit that cannot be applied to this world, each with the path of the edit."""
    found = [*_scale_problems(edits), *_level_problems(edits), *_crop_problems(bundle, edits)]
    found += _number_problems("drivable", "polygons", edits.drivable, bundle.drivable.count)
    found += _number_problems("objects", "objects", edits.objects, len(bundle.objects))
    for index, polygon in enumerate(edits.drivable):
        reason = "" if polygon.remove else crossing_of(polygon.rings)
        if reason:
            found.append(Problem(f"the polygon crosses itself: {reason}", f"drivable[{index}]"))
    return [*found, *_name_problems(bundle, edits), *_cut_problems(bundle, edits)]


def _scale_problems(edits: WorldEdits) -> list[Problem]:
    if edits.scale is None or _SCALES[0] <= scale_factor(edits.scale) <= _SCALES[1]:
        return []
    low, high = _SCALES
    found = f"found {edits.scale.length_m:g} m for {math.dist(*edits.scale.points):g} m"
    return [Problem(f"expected two points whose distance changes by a factor of {low:g} to {high:g}, {found}", "scale")]


def _level_problems(edits: WorldEdits) -> list[Problem]:
    if edits.level is None:
        return []
    a, b, c = (np.array(each) for each in edits.level)
    sides = sorted(float(np.linalg.norm(each)) for each in (b - a, c - b, a - c))
    if float(np.linalg.norm(np.cross(b - a, c - a))) <= _LEAST_ANGLE * sides[1] * sides[2]:
        return [Problem("the three points are on one line; choose a third one beside it", "level")]
    tilt = math.degrees(math.acos(min(1.0, float(ground_normal(edits.level)[2]))))
    if tilt > MAX_TILT_DEG:
        return [
            Problem(
                f"the three points are tilted by {tilt:.0f} degrees, more than {MAX_TILT_DEG:g}; {_LEVEL_FIRST}",
                "level",
            )
        ]
    return []


def _crop_problems(bundle: Bundle, edits: WorldEdits) -> list[Problem]:
    if edits.crop is None:
        return []
    spans = {"x": edits.crop.x, "y": edits.crop.y, **({"z": edits.crop.z} if edits.crop.z else {})}
    wrong = [
        Problem(f"expected the lower bound first, found {show(span)}", f"crop.{axis}")
        for axis, span in spans.items()
        if span[0] >= span[1]
    ]
    if not wrong and not all(rows.stop > rows.start for rows in cropped_cells(bundle, edits.crop)):
        return [Problem("nothing of the map is inside this box", "crop")]
    return wrong


def cropped_cells(bundle: Bundle, crop: CropEdit) -> tuple[slice, slice]:
    """Rows and columns of the heightmap whose centres are inside."""
    grid = bundle.heightmap

    def inside(span: tuple[float, float], first: float, count: int) -> slice:
        low, high = ((each - first) / grid.resolution_m - 0.5 for each in span)
        return slice(min(max(math.ceil(low), 0), count), min(max(math.floor(high) + 1, 0), count))

    rows, columns = grid.values.shape
    return inside(crop.y, grid.south, rows), inside(crop.x, grid.west, columns)


def _number_problems(key: str, things: str, edits: tuple[ListEdit, ...], count: int) -> list[Problem]:
    found, seen = [], set()
    for index, edit in enumerate(edits):
        path = f"{key}[{index}].{edit.things}"
        if edit.number is None:
            continue
        if edit.number >= count:
            there = f"its {things} are 0 to {count - 1}" if count else f"it has no {things}"
            found.append(Problem(f"the world has no {edit.things} {edit.number}; {there}", path))
        elif edit.number in seen:
            found.append(Problem(f"two edits change {edit.things} {edit.number}", path))
        seen.add(edit.number)
    return found


def _cut_problems(bundle: Bundle, edits: WorldEdits) -> list[Problem]:
    found, names = [], set[str]()
    for index, edit in enumerate(edits.objects):
        if not edit.cut_out or edit.remove:
            continue
        if reason := cut_problem(bundle, edit.box):
            found.append(Problem(reason, f"objects[{index}]"))
        name = robot_name(edit.box.name)
        if name in names:
            found.append(Problem(f"two actors would be called {show(name)}; rename one", f"objects[{index}].name"))
        names.add(name)
    return found


def _name_problems(bundle: Bundle, edits: WorldEdits) -> list[Problem]:
    touched = {edit.number for edit in edits.objects}
    names = {each.name for number, each in enumerate(bundle.objects) if number not in touched}
    found = []
    for index, edit in enumerate(edits.objects):
        if not edit.remove and edit.name in names:
            found.append(
                Problem(f"another object is called {show(edit.name)}; rename one of them", f"objects[{index}].name")
            )
        if not edit.remove:
            names.add(str(edit.name))
    return found
