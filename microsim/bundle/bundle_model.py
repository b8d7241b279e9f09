"""What a world bundle consists of: the blocks of its files as pydantic models, and the loaded bundle.

Everything is frozen and read-only; large arrays are mapped from their files. Map frame: x east, y north, z up [m].
Quaternions are [x, y, z, w]. Angles are in radians, whatever the files use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails
from typing_extensions import Self

from microsim.documents.values import (
    Count,
    Finite,
    Hertz,
    Metres,
    Model,
    PointXY,
    PointXYZ,
    SizeXYZ,
    describe_error,
    detail,
    exactly,
    fail,
    refusal,
    show,
    unknown,
)
from microsim.engine.exact import PI

if TYPE_CHECKING:
    from microsim.bundle.calibration import CameraCalibration, LidarCalibration
    from microsim.engine.drivable import DrivableArea
    from microsim.errors import Problem

Float32: TypeAlias = npt.NDArray[np.float32]
Float64: TypeAlias = npt.NDArray[np.float64]
Int32: TypeAlias = npt.NDArray[np.int32]

Vector: TypeAlias = tuple[float, float, float]
Quaternion: TypeAlias = tuple[float, float, float, float]  # x, y, z, w

MAX_SIDE = 1_000_000  # cells
MAX_OBJECTS = 1000  # with a name
DEGREE = PI / 180.0
FIRST_HARMONIC = 0.28209479177387814  # colour = 0.5 + FIRST_HARMONIC · f_dc


def rotation_matrix(x: Any, y: Any, z: Any, w: Any) -> Float64:
    """(3, 3) of a unit quaternion; (3, 3, n) of arrays of them."""
    rows = [
        [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)],
        [2.0 * (x * y + z * w), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - x * w)],
        [2.0 * (x * z - y * w), 2.0 * (y * z + x * w), 1.0 - 2.0 * (x * x + y * y)],
    ]
    return np.array(rows)


# ---- blocks of files -------------------------------------------------------------------------------------------------


def breaks(rule: str, remedy: str = "") -> Any:
    """For `json_schema_extra` of a field: the rule that a wrong or missing value breaks, and what to do about it."""
    return {"rule": rule, "remedy": remedy}


class BundleBlock(Model):
    """A mapping in a bundle's file. Angles may be written in degrees, under their name with the suffix `_deg`."""

    model_config = ConfigDict(validate_by_name=False)

    angles: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _mark_degrees(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        marked = dict(data)
        for name in cls.angles:
            if f"{name}_deg" in marked and name not in marked:
                marked[name] = _InDegrees(marked.pop(f"{name}_deg"))
        return marked

    @classmethod
    def _with_choices(cls, error: ErrorDetails) -> InitErrorDetails:
        """The same error, with the rule of its field."""
        if len(error["loc"]) != 1:
            return super()._with_choices(error)
        key = str(error["loc"][0])
        if error["type"] == "extra_forbidden":
            return cls._unknown_field(key, error["input"])
        fields = {each.alias or name: each.json_schema_extra for name, each in cls.model_fields.items()}
        about: Any = fields.get(key) or breaks("")
        if error["type"] == "missing":
            remedy = about["remedy"] or f"add '{key}:'"
            return detail(f"missing field '{key}'", key, rule=about["rule"], remedy=remedy)
        if about["rule"] and error["type"] != "scenario":
            return detail(describe_error(error), key, found=error["input"], **about)
        return super()._with_choices(error)

    @classmethod
    def _unknown_field(cls, key: str, found: Any) -> InitErrorDetails:
        names, stem = cls.key_names(), key.removesuffix("_deg")
        rule, remedy = "degrees", "keep one of the two"
        if stem != key and stem in cls.angles:
            message = f"expected either '{stem}' in radians or '{key}' in degrees, found both"
        elif stem != key and stem in names:
            message, remedy = f"'{key}' is not an angle", f"write '{stem}', without the suffix"
        elif f"{key}_deg" in names:
            message, remedy = f"'{key}' is in degrees", f"name it '{key}_deg'"
        else:
            message, rule = unknown("field", key, names), "unknown-field"
            remedy = "remove it, or spell it as in the documentation"
        return detail(message, key, found=found, at_key=True, rule=rule, remedy=remedy)


@dataclass(frozen=True)
class _InDegrees:
    value: Any


def angle(least: float, most: float) -> BeforeValidator:
    """Of a number: an angle within these bounds [rad]."""

    def check(given: Any, info: ValidationInfo) -> float:
        value, factor = (given.value, DEGREE) if isinstance(given, _InDegrees) else (given, 1.0)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= 1e9:
            raise ValueError(f"expected an angle, found {show(value)}")
        if least - 1e-9 <= value * factor <= most + 1e-9:
            return float(value) * factor if factor != 1.0 else float(value)
        unit = "degrees" if factor != 1.0 else "radians"
        message = f"expected {least / factor:.6g} to {most / factor:.6g} {unit}, found {show(value)}"
        if factor == 1.0 and least <= value * DEGREE <= most:
            remedy = f"if this is in degrees, name the field '{info.field_name}_deg'"
            raise refusal(message, rule="degrees", remedy=remedy)
        raise ValueError(message)

    return BeforeValidator(check)


def angle_list(least: int, most: int) -> BeforeValidator:
    """Of a list of angles: its length."""

    def check(given: Any) -> Any:
        values = given.value if isinstance(given, _InDegrees) else given
        if not isinstance(values, (list, tuple)) or not least <= len(values) <= most:
            count = f"{least} to {most}" if least < most else f"{least}"
            raise ValueError(f"expected a list of {count} angles, found {show(values)}")
        return [_InDegrees(each) for each in values] if isinstance(given, _InDegrees) else values

    return BeforeValidator(check)


Share = Annotated[Finite, Field(ge=0, le=1)]
Rgb = Annotated[tuple[Share, Share, Share], exactly(3, "[red, green, blue]")]
Text = Annotated[str, Field(strict=True, max_length=10_000)]
_Size = Annotated[Finite, Field(gt=0, le=1000)]
_Overhang = Annotated[Finite, Field(ge=0, le=100)]
Yaw = Annotated[float, angle(-2.0 * PI, 2.0 * PI)]  # [rad] from east, counter-clockwise
ObjectName = Annotated[str, Field(strict=True, min_length=1, max_length=100)]
_MAP_FRAME = breaks("map-frame", "map coordinates are x east, y north, z up, in metres")


class BundleText(BundleBlock):
    """A configuration file; its version has been checked by then."""

    version: Any = None


class MapOrigin(BundleBlock):
    """Where the map frame's origin is on Earth (WGS 84)."""

    latitude_deg: Annotated[Finite, Field(ge=-90, le=90)]
    longitude_deg: Annotated[Finite, Field(ge=-180, le=180)]
    altitude_m: Annotated[Finite, Field(ge=-20_000, le=1e7)] = 0.0


class MetadataFile(BundleText):
    """`metadata.json`. Fields of other programs are ignored: this is the place for them."""

    model_config = ConfigDict(extra="ignore")

    origin: MapOrigin
    origin_is_known: bool = True  # false: of a capture that nobody has placed; its origin is a stand-in
    description: Text = ""
    coordinate_system: Literal["ENU"] = Field("ENU", json_schema_extra=_MAP_FRAME)
    units: Literal["m", "metre", "meter"] = Field("m", json_schema_extra=_MAP_FRAME)


def _whole(value: float) -> float | int:
    return int(value) if value == int(value) else value


class Timebase(BundleText):
    """`timebase.yaml`: of the simulation in this world."""

    physics_hz: Annotated[Hertz, AfterValidator(_whole)] = 100
    control_timeout_s: Annotated[Finite, Field(gt=0, le=3600)] = 1.0
    emergency_brake_m_per_s2: Annotated[Finite, Field(gt=0, le=100)] = 3.0
    use_sim_time: Literal[True] = Field(True, json_schema_extra=breaks("simulated-time", "write use_sim_time: true"))


class StartPose(BundleBlock):
    """Where the ego car begins, in the map frame; its height is the ground's."""

    angles: ClassVar[tuple[str, ...]] = ("yaw",)

    x: Metres
    y: Metres
    yaw: Yaw = 0.0


class Vehicle(BundleBlock):
    """What `world.yaml` says about the ego car; None: as the car model has it.

    base_link is the middle of the rear axle, on the ground.
    """

    angles: ClassVar[tuple[str, ...]] = ("max_steer", "max_steer_rate")

    wheelbase_m: _Size | None = None
    track_m: _Size | None = None
    wheel_radius_m: _Size | None = None
    length_m: _Size | None = None
    width_m: _Size | None = None
    height_m: _Size | None = None
    rear_overhang_m: _Overhang | None = None
    max_steer: Annotated[float, angle(0.01, 0.45 * PI)] | None = None
    max_steer_rate: Annotated[float, angle(0.001, 100.0)] | None = None
    max_speed_m_per_s: _Size | None = None
    max_reverse_m_per_s: _Overhang | None = None
    max_acceleration_m_per_s2: _Size | None = None
    max_brake_m_per_s2: _Size | None = None
    start: StartPose | None = None

    @model_validator(mode="after")
    def _axles_under_the_body(self) -> Self:
        from microsim.robots.car import Bicycle as Car

        names = ("length_m", "rear_overhang_m", "wheelbase_m")
        written = [getattr(self, name) for name in names]
        length, overhang, wheelbase = (
            Car.model_fields[name].default if value is None else value
            for name, value in zip(names, written, strict=True)
        )
        if length < overhang + wheelbase:
            expected = f"expected at least rear_overhang_m + wheelbase_m, which is {overhang + wheelbase:g}"
            fail([detail(f"{expected}, found {length:g}", "length_m")])
        return self


class GaussianFiles(BundleBlock):
    background: Any = None
    render_config: Any = None


class GeometryFiles(BundleBlock):
    heightmap: Any = None
    heightmap_config: Any = None
    drivable: Any = None
    static_mesh: Any = None
    lanes: Any = None
    objects: Any = None


class SensorFiles(BundleBlock):
    calibration: Any = None
    tf_static: Any = None


class SimFiles(BundleBlock):
    timebase: Any = None


class WorldFile(BundleText):
    """`world.yaml`; the loader checks the paths."""

    name: Annotated[str, Field(strict=True, min_length=1, max_length=100)] | None = None  # None: the folder's
    metadata: Any = None
    gaussians: GaussianFiles | None = None
    geometry: GeometryFiles | None = None
    sensors: SensorFiles | None = None
    sim: SimFiles | None = None
    vehicle: Vehicle | None = None


class NamedObject(BundleBlock):
    """A box with a name around something in the world, upright."""

    angles: ClassVar[tuple[str, ...]] = ("yaw",)

    name: ObjectName
    center: PointXYZ  # [m] map frame
    size: SizeXYZ  # [m] along its own x, its own y, and up
    yaw: Yaw = 0.0


class ObjectsFile(BundleText):
    """`objects.yaml`."""

    objects: Annotated[tuple[NamedObject, ...], Field(max_length=MAX_OBJECTS)]

    @model_validator(mode="after")
    def _own_names(self) -> Self:
        for index, each in enumerate(self.objects):
            before = next((number for number in range(index) if self.objects[number].name == each.name), None)
            if before is not None:
                message = f"objects {before} and {index} are both called {show(each.name)}"
                fail([detail(message, "objects", index, "name", rule="object-name", remedy="rename one of them")])
        return self


class HeightmapFile(BundleText):
    """`heightmap.yaml`."""

    width: Annotated[Count, Field(le=MAX_SIDE)]
    height: Annotated[Count, Field(le=MAX_SIDE)]
    resolution_m: Annotated[Finite, Field(ge=0.001, le=1000)]
    origin: PointXY = (0.0, 0.0)
    dtype: Literal["float32"] = Field(
        "float32", json_schema_extra=breaks("little-endian-float32", "write the heights as float32")
    )
    byte_order: Literal["little"] = Field(
        "little", json_schema_extra=breaks("little-endian-float32", "write the heights as little endian")
    )
    row_order: Literal["south_to_north"] = "south_to_north"


class RenderConfig(BundleText):
    """`render_config.json`: how the Gaussians are drawn."""

    sh_degree: Annotated[int, Field(strict=True, ge=0, le=3)] = Field(
        json_schema_extra=breaks("sh-degree", 'write "sh_degree": 0, 1, 2 or 3')
    )
    background_rgb: Rgb = (0.0, 0.0, 0.0)  # where no Gaussian is; with a sky, the colour of its horizon
    near_plane_m: Annotated[Finite, Field(ge=0.001, le=100)] = 0.2
    sky_rgb: Rgb | None = None  # the sky at its zenith; None: one colour everywhere
    ground_rgb: Rgb | None = None  # below the horizon; None: as at the horizon
    exposure_ev: Annotated[Finite, Field(ge=-10, le=10)] = 0.0  # every colour times 2 to this
    gain_sigma: Share = 0.0  # standard deviation of a frame's brightness, as a share of it
    noise_sigma: Annotated[Finite, Field(ge=0, le=255)] = 0.0  # of every colour of every pixel, in steps of 8 bits


# ---- the loaded bundle -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heightmap:
    """Ground heights at cell centres: cell (row j, column i) is at x = west + (i + 0.5)·resolution_m, likewise y."""

    values: Float32  # (ny, nx) [m], row 0 in the south, mapped read-only; NaN: no ground there
    resolution_m: float  # edge of a square cell
    west: float  # x of the western edge of column 0 [m]
    south: float  # y of the southern edge of row 0 [m]

    @property
    def size_m(self) -> tuple[float, float]:
        rows, columns = self.values.shape
        return columns * self.resolution_m, rows * self.resolution_m

    def heights(self, x: Float64, y: Float64) -> Float64:
        """Of many points, bilinear between cell centres and continued at the edges; NaN outside, and without ground."""
        rows, columns = self.values.shape
        u, v = (x - self.west) / self.resolution_m, (y - self.south) / self.resolution_m
        outside = ~((u >= 0.0) & (u <= columns) & (v >= 0.0) & (v <= rows))
        u, v = (
            np.clip(np.where(outside, 0.5, each) - 0.5, 0.0, last - 1.0) for each, last in ((u, columns), (v, rows))
        )
        i, j = u.astype(np.int64), v.astype(np.int64)
        s, t, i1, j1 = u - i, v - j, np.minimum(i + 1, columns - 1), np.minimum(j + 1, rows - 1)
        low = self.values[j, i] * (1.0 - s) + self.values[j, i1] * s
        high = self.values[j1, i] * (1.0 - s) + self.values[j1, i1] * s
        return np.where(outside, np.nan, low * (1.0 - t) + high * t)


@dataclass(frozen=True)
class StaticMesh:
    """Triangles that stand in the world and do not move."""

    vertices: Float64  # (n, 3) [m] map frame
    triangles: Int32  # (m, 3) rows of vertices


@dataclass(frozen=True)
class Gaussians:
    """Splats as they are in the file: log scale, logit opacity, rotation [x, y, z, w], SH coefficients."""

    values: Float32  # (n, 14 + rest) mapped read-only; columns as in `columns`; may be unaligned in foreign files
    columns: tuple[str, ...]  # x y z scale_0..2 rot_0..3 opacity f_dc_0..2 f_rest_0..
    render: RenderConfig

    @property
    def sh_degree(self) -> int:
        return self.render.sh_degree

    @property
    def count(self) -> int:
        return int(self.values.shape[0])

    def column(self, first: str, count: int = 1) -> Float32:
        """`count` columns beginning with the one of that name, shape (n, count), without copying."""
        start = self.columns.index(first)
        return self.values[:, start : start + count]

    def opacities(self) -> Float64:
        """From 0 to 1, shape (n,)."""
        logits: Float64 = self.column("opacity")[:, 0].astype(np.float64)
        return 1.0 / (1.0 + np.exp(-logits))

    def colours(self, rows: Any) -> Float64:
        """Red, green and blue of some of them, from 0 to 1, the same from every side."""
        harmonics: Float64 = np.asarray(self.column("f_dc_0", 3), np.float64)[rows]
        return np.clip(0.5 + FIRST_HARMONIC * harmonics, 0.0, 1.0)


@dataclass(frozen=True)
class Bundle:
    """A world, complete and checked."""

    name: str
    root: Path
    description: str
    origin_wgs84: Vector  # latitude [deg], longitude [deg], altitude [m] of the map frame's origin
    heightmap: Heightmap
    drivable: DrivableArea
    mesh: StaticMesh | None
    gaussians: Gaussians
    cameras: dict[str, CameraCalibration]  # by id, in the order of the file
    lidars: dict[str, LidarCalibration]  # by id, in the order of the file
    timebase: Timebase
    vehicle: Vehicle | None
    files: dict[str, Path] = field(default_factory=dict)  # every file that belongs to it, by its name in world.yaml
    warnings: tuple[Problem, ...] = ()
    origin_is_known: bool = True
    objects: tuple[NamedObject, ...] = ()

    @property
    def start(self) -> StartPose | None:
        """Where the ego car begins."""
        return None if self.vehicle is None else self.vehicle.start
