"""The world of a scenario: the map with its relief and surface, obstacles, and what only the camera sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from typing_extensions import Self

from microsim.documents.values import (
    Angle,
    ClassId,
    Count,
    Finite,
    Height,
    Length,
    Metres,
    Model,
    PointXY,
    PointXYZ,
    Seed,
    SizeXY,
    SizeXYZ,
    by_type,
    detail,
    exactly,
    fail,
    show,
    unknown,
    younger,
)
from microsim.robots.robot import ros_name
from microsim.scenario.map_images import MapImage

MAX_CELLS = 16_000_000
LEAST_CELL_M, MOST_CELL_M = 0.001, 1000.0
MAX_POLYGON_POINTS = 10_000
MIN_WAVELENGTH_CELLS = 0.001  # of hills


class ElevationFile(Model):
    """Ground heights from a file: one number per cell, row 0 is the south edge."""

    file: str = Field(
        min_length=1,
        description="Height of each cell in metres, `.npy` or `.csv`, one row per y from south to north, one column "
        "per x; a file with one height everywhere fits a map of any size. Looked for beside the scenario, in the "
        "folder above, in the current folder, in the shipped data; a loaded scenario names the file that was found.",
    )


class FlatElevation(Model):
    """Level ground."""

    generate: Literal["flat"] = Field("flat", description="Level ground.")
    height_m: Metres = Field(0.0, description="Height of the ground in the map frame [m].")


class HillsElevation(Model):
    """Rolling hills, the same for the same seed on every machine."""

    generate: Literal["hills"] = Field("hills", description="Rolling hills by seed.")
    seed: Seed | None = Field(None, description="Seed of the hills; null: that of the run.")
    amplitude_m: Height = Field(4.0, description="The heights span exactly -amplitude_m to +amplitude_m [m].")
    wavelength_m: Length = Field(
        40.0, description="Distance between the largest hills; at least a thousandth of a cell [m]."
    )


def _choose_elevation(value: Any) -> Any:
    kinds: dict[str, type[Model]] = {"flat": FlatElevation, "hills": HillsElevation}
    if isinstance(value, Model):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"expected {{file: PATH}} or {{generate: flat}} or {{generate: hills}}, found {show(value)}")
    if "file" in value and "generate" in value:
        raise ValueError("expected either 'file' or 'generate', found both")
    if "file" in value:
        return ElevationFile.model_validate(value)
    if "generate" not in value:
        keys = ["file", *HillsElevation.key_names(), *FlatElevation.key_names()]
        strange = [key for key in value if key not in keys]
        fail(
            [detail(unknown("key", key, dict.fromkeys(keys)), str(key), found=value) for key in strange]
            or [detail("missing key 'file' or 'generate'", found=value)]
        )
    kind = value["generate"]
    if not isinstance(kind, str) or kind not in kinds:
        fail([detail(unknown("generator", kind, kinds), "generate", found=kind)])
    return kinds[kind].model_validate(value)


Elevation = Annotated[ElevationFile | FlatElevation | HillsElevation, BeforeValidator(_choose_elevation)]


class RectanglePatch(Model):
    """A rectangle of another surface."""

    type: Literal["rectangle"] = Field("rectangle", description="A rectangle.")
    class_id: ClassId = Field(alias="class", description="Class of the surface: 0..4 or its name.")
    center: PointXY = Field(description="Middle [x, y] in the map frame [m].")
    size: SizeXY = Field(description="Extent [x, y] before turning [m].")
    yaw: Angle = Field(0.0, description="Turn about the middle, counter-clockwise [rad].")


class CirclePatch(Model):
    """A disc of another surface."""

    type: Literal["circle"] = Field("circle", description="A disc.")
    class_id: ClassId = Field(alias="class", description="Class of the surface: 0..4 or its name.")
    center: PointXY = Field(description="Middle [x, y] in the map frame [m].")
    radius: Length = Field(description="Radius [m].")


class PolygonPatch(Model):
    """A polygon of another surface."""

    type: Literal["polygon"] = Field("polygon", description="A polygon, closed by itself.")
    class_id: ClassId = Field(alias="class", description="Class of the surface: 0..4 or its name.")
    points: tuple[PointXY, ...] = Field(
        min_length=3, max_length=MAX_POLYGON_POINTS, description="Corners [[x, y], ...] in the map frame [m]."
    )


PATCHES: dict[str, type[Model]] = {"rectangle": RectanglePatch, "circle": CirclePatch, "polygon": PolygonPatch}
Patch = Annotated[RectanglePatch | CirclePatch | PolygonPatch, BeforeValidator(by_type(PATCHES, {}))]


class SurfaceTypes(Model):
    """What the ground is made of, for the camera's colours."""

    default: ClassId = Field(0, description="Class of every cell that no patch covers: 0..4 or its name.")
    patches: tuple[Patch, ...] = Field(
        (), description="Areas of another class; a cell takes the class of the last patch that contains its middle."
    )


def _known_ranges(value: tuple[float, float, float]) -> tuple[float, float, float]:
    if not -90 <= value[0] <= 90:
        fail([detail(f"expected a latitude from -90 to 90 degrees, found {show(value[0])}", 0, found=value[0])])
    if not -180 <= value[1] <= 180:
        fail([detail(f"expected a longitude from -180 to 180 degrees, found {show(value[1])}", 1, found=value[1])])
    return value


FOLLOWS_FROM_IMAGE = ("cell_size_m", "size_xy_cells", "corner_xy_m")


class Map(Model):
    """The grid. It covers x from 0 to nx·cell_size_m (east), y from 0 to ny·cell_size_m (north).

    With an `image`, a map of map_server, it covers that: size, cells and corner follow from it.
    """

    image: MapImage | None = Field(
        None,
        description="A map of map_server: the path of its YAML file, or the keys of such a file. Occupied cells are "
        "walls; unknown ones are free. `cell_size_m` and `size_xy_cells` must be left out, the ground must be flat.",
    )
    wall_height_m: Length = Field(2.0, description="Height of the walls of an `image` [m].")
    corner_xy_m: PointXY = Field(
        (0.0, 0.0), description="South-west corner of the grid in the map frame [m]; follows from an `image`."
    )
    cell_size_m: Annotated[Finite, Field(ge=LEAST_CELL_M, le=MOST_CELL_M)] = Field(
        1.0, description="Edge of a square cell [m]."
    )
    size_xy_cells: Annotated[tuple[Count, Count], exactly(2, "[nx, ny]")] = Field(
        (200, 200), description=f"Cells along x and y; at most {MAX_CELLS:,} in all."
    )
    origin_wgs84: Annotated[tuple[Finite, Finite, Metres], exactly(3, "[latitude, longitude, altitude]")] = Field(
        (9.935, -84.09, 1150.0),
        description="Where the map's origin is on Earth: latitude [deg], longitude [deg], altitude [m].",
    )
    elevation: Elevation = Field(FlatElevation(), description="Height of the ground.")
    surface_types: SurfaceTypes = Field(SurfaceTypes(), description="What the ground is made of.")

    _earth = field_validator("origin_wgs84")(_known_ranges)

    @model_serializer(mode="wrap")
    def _without_what_follows(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Of an image; without one, as before there were any."""
        keys = FOLLOWS_FROM_IMAGE if self.image is not None else ("image", "wall_height_m", "corner_xy_m")
        return {key: value for key, value in handler(self).items() if key not in keys}

    @field_validator("size_xy_cells", mode="before")
    @classmethod
    def _some_cells(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            return value
        for count in value:
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"expected two whole numbers of at least 1, found {show(value)}")
        if value[0] * value[1] > MAX_CELLS:
            raise ValueError(f"expected at most {MAX_CELLS:,} cells in all, found {show(value)}")
        return value

    @model_validator(mode="after")
    def _hills_not_far_below_a_cell(self) -> Self:
        """Far below it, lattice points beyond the range of integers would be needed."""
        hills, least = self.elevation, self.cell_size_m * MIN_WAVELENGTH_CELLS
        if isinstance(hills, HillsElevation) and hills.wavelength_m < least:
            cell, found = f"a cell of {self.cell_size_m:g} m", show(hills.wavelength_m)
            message = f"expected at least {least:g} m, a thousandth of {cell}, found {found}"
            fail([detail(message, "elevation", "wavelength_m", found=hills.wavelength_m)])
        return self

    @model_validator(mode="after")
    def _fits_image(self) -> Self:
        problems = []
        if self.image is None:
            for key in {"wall_height_m", "corner_xy_m"} & self.model_fields_set:
                problems.append(detail(f"{key} belongs to a map with an `image`", key, at_key=True))
        elif not isinstance(self.elevation, FlatElevation):
            message = "the walls of an `image` stand on flat ground: leave `elevation` out, or write {generate: flat}"
            problems.append(detail(message, "elevation", at_key=True))
        if problems:
            fail(problems)
        return self

    @property
    def size_xy_m(self) -> tuple[float, float]:
        """Extent of the map along x and y [m]."""
        return self.size_xy_cells[0] * self.cell_size_m, self.size_xy_cells[1] * self.cell_size_m


_OBSTACLE_CLASS = "Class of the obstacle, for its colour: 0..4 or its name."
_FEATURE_CLASS = "Class of the feature, for its colour: 0..4 or its name."
_BASE = "Middle of the base: [x, y] in the map frame, z above the ground [m]."
_PRISM = "Height of the prism above the ground; 0: painted on the ground [m]."


class Solid(Model):
    """What obstacles have in common."""

    name: Annotated[str, AfterValidator(ros_name)] | None = Field(
        None, description="Its name as an entity; null: obstacle_ and its place in the list."
    )

    _without_younger = younger("name")


class Box(Solid):
    """An axis-aligned box that blocks robots and beams."""

    type: Literal["box"] = Field("box", description="An axis-aligned box.")
    center: PointXYZ = Field(description=_BASE)
    size: SizeXYZ = Field(description="Extent [x, y, z] [m].")
    class_id: ClassId = Field(1, alias="class", description=_OBSTACLE_CLASS)


class Cylinder(Solid):
    """An upright cylinder that blocks robots and beams."""

    type: Literal["cylinder"] = Field("cylinder", description="An upright cylinder.")
    center: PointXYZ = Field(description=_BASE)
    radius: Length = Field(description="Radius [m].")
    height: Length = Field(description="Height [m].")
    class_id: ClassId = Field(1, alias="class", description=_OBSTACLE_CLASS)


class Circle(Model):
    """A disc on the ground, or an upright round prism; seen by cameras, not in the way."""

    type: Literal["circle"] = Field("circle", description="A disc, or a round prism.")
    class_id: ClassId = Field(alias="class", description=_FEATURE_CLASS)
    center: PointXY = Field(description="Middle [x, y] in the map frame [m].")
    radius: Length = Field(description="Radius [m].")
    height: Height = Field(0.0, description=_PRISM)


class Rectangle(Model):
    """A rectangle on the ground, or an upright prism; seen by cameras, not in the way."""

    type: Literal["rectangle"] = Field("rectangle", description="A rectangle, or a prism over it.")
    class_id: ClassId = Field(alias="class", description=_FEATURE_CLASS)
    center: PointXY = Field(description="Middle [x, y] in the map frame [m].")
    size: SizeXY = Field(description="Extent [x, y] before turning [m].")
    yaw: Angle = Field(0.0, description="Turn about the middle, counter-clockwise [rad].")
    height: Height = Field(0.0, description=_PRISM)


Corners = Annotated[tuple[PointXY, PointXY, PointXY], exactly(3, "three corners [[x, y], [x, y], [x, y]]")]


class Triangle(Model):
    """A triangle on the ground, or a prism over it, given by its corners, or by middle and side."""

    type: Literal["triangle"] = Field("triangle", description="A triangle, or a prism over it.")
    class_id: ClassId = Field(alias="class", description=_FEATURE_CLASS)
    vertices: Corners | None = Field(None, description="Corners [[x, y], [x, y], [x, y]] in the map frame [m].")
    center: PointXY | None = Field(None, description="Middle [x, y] of an equilateral triangle, in place of vertices.")
    side: Length | None = Field(None, description="Side of the equilateral triangle [m].")
    yaw: Angle = Field(0.0, description="Direction in which the equilateral triangle points [rad].")
    height: Height = Field(0.0, description=_PRISM)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.vertices is None and (self.center is None or self.side is None):
            raise ValueError("expected 'vertices', or both 'center' and 'side'")
        if self.vertices is not None and (self.center is not None or self.side is not None or self.yaw != 0.0):
            raise ValueError("expected either 'vertices', or 'center', 'side' and 'yaw', found both")
        if self.vertices is not None and _doubled_area(*self.vertices) == 0.0:
            raise ValueError(f"expected three corners that are not on one line, found {show(self.vertices)}")
        return self


def _doubled_area(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])


class Billboard(Model):
    """An upright rectangle without thickness; seen by cameras, not in the way."""

    type: Literal["billboard"] = Field("billboard", description="An upright rectangle without thickness.")
    class_id: ClassId = Field(alias="class", description=_FEATURE_CLASS)
    center: PointXY = Field(description="Middle of its lower edge [x, y] in the map frame [m].")
    size: Annotated[SizeXY, exactly(2, "[width, height]")] = Field(description="[width, height] [m].")
    yaw: Angle | None = Field(None, description="Direction it faces [rad]; null: turns to face each camera.")
    base_z: Metres = Field(0.0, description="Height of its lower edge above the ground [m].")


OBSTACLES: dict[str, type[Model]] = {"box": Box, "cylinder": Cylinder}
FEATURES: dict[str, type[Model]] = {
    "circle": Circle,
    "rectangle": Rectangle,
    "triangle": Triangle,
    "billboard": Billboard,
}

Obstacle = Annotated[Box | Cylinder, BeforeValidator(by_type(OBSTACLES, dict.fromkeys(FEATURES, "features")))]
Feature = Annotated[
    Circle | Rectangle | Triangle | Billboard, BeforeValidator(by_type(FEATURES, dict.fromkeys(OBSTACLES, "obstacles")))
]
