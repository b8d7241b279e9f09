"""`calibration.yaml`: the sensors of the car and where they are mounted; `tf_static.json`, which is derived from it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self

from microsim.bundle.bundle_model import BundleBlock, BundleText, Quaternion, Share, Vector, angle, angle_list, breaks
from microsim.bundle.rules import BundleFile
from microsim.documents.values import (
    MAX_BEAMS,
    MAX_COLUMNS,
    MAX_ELEVATION,
    MAX_HZ,
    MAX_IMAGE_PIXELS,
    MAX_IMAGE_SIDE_PX,
    MAX_RINGS,
    Count,
    Finite,
    detail,
    exactly,
    fail,
    refusal,
)
from microsim.engine.exact import PI, atan2
from microsim.errors import show

QUATERNION_TOLERANCE = 1e-4  # rotations are written with at least four digits
POSITION_TOLERANCE_M = 1e-4  # between the calibration and tf_static.json
ANGLE_TOLERANCE = 1e-4  # [rad] likewise
MAX_SENSORS = 100
MAX_TRANSFORMS = 1000
REWRITE_TF = "`microsim bundle tf BUNDLE` rewrites tf_static.json from the calibration"

_ID = re.compile(r"[a-z0-9_]{1,57}")  # with `camera_` before it, a ROS name of at most 64 characters
_MEANINGLESS = re.compile(r"(cam|camera|lidar|sensor|id)?_?[0-9]+", re.IGNORECASE)
_DERIVED: Any = None  # where a field is not written, a validator computes it from another one


def _normalised(quat: Quaternion) -> Quaternion:
    """Of length 1, as nearly as it can be written; normalised exactly."""
    x, y, z, w = quat
    length = math.sqrt(x * x + y * y + z * z + w * w)
    if abs(length - 1.0) > QUATERNION_TOLERANCE:
        remedy = "write a unit quaternion [x, y, z, w]"
        if length > 1e-6:
            remedy = f"write [{x / length:.9g}, {y / length:.9g}, {z / length:.9g}, {w / length:.9g}]"
        raise refusal(f"the quaternion has length {length:.6g}, expected 1", rule="unit-quaternion", remedy=remedy)
    return quat if length == 1.0 else (x / length, y / length, z / length, w / length)


_Offset = Annotated[Finite, Field(ge=-1e3, le=1e3)]
_Part = Annotated[Finite, Field(ge=-10, le=10)]
_Pixels = Annotated[Count, Field(le=MAX_IMAGE_SIDE_PX)]
_Focal = Annotated[Finite, Field(gt=0, le=1e6)]
_Centre = Annotated[Finite, Field(ge=-1e5, le=1e5)]
_Rate = Annotated[Finite, Field(gt=0, le=MAX_HZ)]
_Turn = Annotated[float, angle(-2.0 * PI, 2.0 * PI)]
_Elevation = Annotated[float, angle(-MAX_ELEVATION, MAX_ELEVATION)]
_Step = Annotated[float, angle(2.0 * PI / MAX_COLUMNS, 2.0 * PI)]
UnitQuaternion = Annotated[tuple[_Part, _Part, _Part, _Part], exactly(4, "[x, y, z, w]"), AfterValidator(_normalised)]


class Placement(BundleBlock):
    """Where a frame is in base_link."""

    parent: Literal["base_link"] = "base_link"
    xyz: Annotated[tuple[_Offset, _Offset, _Offset], exactly(3, "[x, y, z]")] = Field(alias="translation")
    quat: UnitQuaternion = Field(alias="rotation_quat")  # from the sensor's axes to those of base_link


class Extrinsics(Placement):
    """Where a sensor is mounted on the car; its rotation as a quaternion, or as intrinsic Z-Y-X angles."""

    angles: ClassVar[tuple[str, ...]] = ("rotation_rpy",)

    quat: UnitQuaternion = Field(_DERIVED, alias="rotation_quat", validate_default=False)
    rotation_rpy: Annotated[tuple[_Turn, _Turn, _Turn], angle_list(3, 3)] | None = None

    @model_validator(mode="after")
    def _one_rotation(self) -> Self:
        written: Any = self.quat
        if self.rotation_rpy is None and written is None:
            fail([detail("missing field 'rotation_quat'", "rotation_quat", remedy="add 'rotation_quat:'")])
        if self.rotation_rpy is not None:
            if written is not None:
                fail([detail("expected either 'rotation_quat' or 'rotation_rpy', found both", "rotation_quat")])
            from microsim.engine.geometry import quaternion_from_rpy

            self.__dict__["quat"] = quaternion_from_rpy(*self.rotation_rpy)  # the model is frozen for everyone else
        return self


class MountedCalibration(BundleBlock):
    """What cameras and LiDARs share."""

    rate_hz: _Rate
    extrinsics: Extrinsics

    @property
    def xyz(self) -> Vector:
        return self.extrinsics.xyz

    @property
    def quat(self) -> Quaternion:
        """From the axes of the sensor's frame to base_link: what TF says about the frame."""
        return self.extrinsics.quat


class Pinhole(BundleBlock):
    """Focal lengths and optical axis [px]; pixel centres are at whole numbers."""

    fx: _Focal
    fy: _Focal
    cx: _Centre
    cy: _Centre


class PlumbBob(BundleBlock):
    """Lens distortion."""

    model: Literal["none", "plumb_bob"] = "plumb_bob"
    coefficients: Annotated[tuple[_Offset, ...], exactly(5, "[k1, k2, p1, p2, k3]")] | None = None


def _coefficients(value: Any) -> Any:
    if value is None or isinstance(value, tuple):
        return value or ()
    lens = PlumbBob.model_validate(value)
    if lens.model == "plumb_bob" and lens.coefficients is None:
        fail([detail("missing field 'coefficients'", "coefficients", remedy="add 'coefficients:', or model: none")])
    return () if lens.model == "none" else lens.coefficients


class CameraCalibration(MountedCalibration):
    """One camera: frame `camera_<id>`, topics `/ego/camera_<id>/…`."""

    convention: Literal["opencv", "ros"] = Field(
        alias="camera_convention",
        json_schema_extra=breaks(
            "camera-convention", "write opencv (x right, y down, z forward) or ros (x right, y up, z backward)"
        ),
    )
    width: _Pixels
    height: _Pixels
    intrinsics: Pinhole
    distortion: Annotated[tuple[float, ...], BeforeValidator(_coefficients)] = ()  # k1 k2 p1 p2 k3; empty: none

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.width * self.height > MAX_IMAGE_PIXELS:
            found = f"found {self.width} x {self.height}"
            fail([detail(f"expected at most {MAX_IMAGE_PIXELS:,} pixels, {found}", "width")])
        return self

    @property
    def optical_quat(self) -> Quaternion:
        """From x right, y down, z forward to base_link, whatever the convention: what a renderer needs."""
        x, y, z, w = self.quat
        return self.quat if self.convention == "opencv" else (w, z, -y, -x)  # q · (half a turn about x)


class LidarCalibration(MountedCalibration):
    """One LiDAR: frame `lidar_<id>` (x forward, y left, z up), topic `/ego/lidar_<id>/points`."""

    angles: ClassVar[tuple[str, ...]] = ("elevations", "azimuth_resolution")

    # [rad] above the sensor's horizon, ring 0 first
    elevations: Annotated[tuple[_Elevation, ...], angle_list(1, MAX_RINGS)]
    # azimuths of one turn, evenly spaced, the first one straight ahead, counter-clockwise
    columns: Annotated[Count, Field(le=MAX_COLUMNS)] = Field(_DERIVED, validate_default=False)
    azimuth_resolution: _Step | None = None  # in place of columns
    range_min_m: Annotated[Finite, Field(ge=0, le=1e5)] = 0.5
    range_max_m: Annotated[Finite, Field(gt=0, le=1e5)] = 100.0
    range_sigma_m: Annotated[Finite, Field(ge=0, le=1e3)] = 0.02
    dropout_probability: Share = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.range_max_m <= self.range_min_m:
            message = f"expected more than range_min_m, which is {self.range_min_m:g}, found {self.range_max_m:g}"
            fail([detail(message, "range_max_m")])
        self.__dict__["columns"] = self._columns()  # the model is frozen for everyone else
        beams = self.columns * len(self.elevations)
        if beams > MAX_BEAMS:
            expected = f"expected at most {MAX_BEAMS:,} beams a turn (elevations x columns)"
            fail([detail(f"{expected}, found {beams:,}", "columns")])
        return self

    def _columns(self) -> int:
        step, written = self.azimuth_resolution, self.__dict__["columns"]
        if step is None and written is None:
            fail([detail("missing field 'columns'", "columns", remedy="add 'columns:'")])
        if step is None:
            return int(written)
        if written is not None:
            fail([detail("expected either 'columns' or 'azimuth_resolution', found both", "columns")])
        columns = round(2.0 * PI / step)
        if abs(columns * step - 2.0 * PI) > 1e-3 * step:
            message = f"a turn is {2.0 * PI / step:.4f} times the azimuth resolution, expected a whole number"
            fail([detail(message, "azimuth_resolution", remedy=f"write columns: {columns}")])
        return columns


def _sensor_id(name: str) -> str:
    if not _ID.fullmatch(name):
        better = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")[:57] or "front"
        message = f"expected at most 57 lower-case letters, digits and underscores, found {show(name)}"
        raise refusal(message, at_key=True, rule="sensor-id", remedy=f"call it {better!r}")
    return name


SensorId = Annotated[str, AfterValidator(_sensor_id)]


class CalibrationFile(BundleText):
    """`calibration.yaml`: sensors by id, in the order of the file."""

    cameras: Annotated[dict[SensorId, CameraCalibration], Field(max_length=MAX_SENSORS)] = Field({})
    lidars: Annotated[dict[SensorId, LidarCalibration], Field(max_length=MAX_SENSORS)] = Field({})

    def frames(self) -> dict[str, Placement]:
        """Frame name to place on the car, in the order of the file: what `tf_static.json` holds."""
        cameras: dict[str, Placement] = {f"camera_{name}": each.extrinsics for name, each in self.cameras.items()}
        return {**cameras, **{f"lidar_{name}": each.extrinsics for name, each in self.lidars.items()}}

    def tf_static(self) -> dict[str, Any]:
        """The content of the `tf_static.json` that belongs to these sensors."""
        transforms = [
            {"parent": "base_link", "child": frame, "translation": list(place.xyz), "rotation_quat": list(place.quat)}
            for frame, place in self.frames().items()
        ]
        return {"version": "1.0.0", "transforms": transforms}


def read_calibration(source: BundleFile) -> CalibrationFile | None:
    """The sensors; None and problems when any of them cannot be used."""
    assert source.document is not None
    for key in ("cameras", "lidars"):
        block = source.document.data.get(key)
        for name in block if isinstance(block, Mapping) else ():
            if _MEANINGLESS.fullmatch(name):
                message = f"{show(name)} does not say where the sensor is"
                remedy = "name its place: front, rear_left, top"
                source.problem("sensor-id-meaning", message, (key, name), remedy, at_key=True)
    return source.read(CalibrationFile)


def check_rates(source: BundleFile, sensors: CalibrationFile, physics_hz: float) -> None:
    for key in ("cameras", "lidars"):
        for name, sensor in getattr(sensors, key).items():
            if sensor.rate_hz > physics_hz:
                message = f"expected at most physics_hz, which is {physics_hz:g}, found {sensor.rate_hz:g}"
                remedy = "lower the rate, or raise physics_hz in the timebase"
                source.problem("sensor-rate", message, (key, name, "rate_hz"), remedy)


# ---- tf_static.json --------------------------------------------------------------------------------------------------


class StaticTransform(Placement):
    """One entry of `tf_static.json`."""

    parent: Literal["base_link"]
    child: Annotated[str, Field(strict=True, min_length=1, max_length=100)]


class StaticTransformFile(BundleText):
    """`tf_static.json`."""

    transforms: Annotated[list[StaticTransform], Field(max_length=MAX_TRANSFORMS)]


def check_tf_static(source: BundleFile, expected: Mapping[str, Placement]) -> None:
    """A problem for every transform that is missing, unknown, duplicate or different from the calibration."""
    file = source.read(StaticTransformFile)
    if file is None:
        return
    found: dict[str, tuple[int, Placement]] = {}
    for index, each in enumerate(file.transforms):
        if each.child in found:
            message = f"{show(each.child)} occurs twice"
            source.problem("calibration-wins", message, ("transforms", index, "child"), REWRITE_TF)
        else:
            found[each.child] = (index, each)
    for frame, place in expected.items():
        if frame in found:
            _compare(source, *found[frame], frame, place)
        else:
            source.problem("calibration-wins", f"no transform to {frame}", ("transforms",), REWRITE_TF)
    for frame, (index, _) in found.items():
        if frame not in expected:
            message = f"the calibration has no {show(frame)}"
            source.problem("calibration-wins", message, ("transforms", index, "child"), REWRITE_TF)


def _compare(source: BundleFile, index: int, written: Placement, frame: str, right: Placement) -> None:
    apart = math.sqrt(sum((a - b) * (a - b) for a, b in zip(right.xyz, written.xyz, strict=True)))
    turned = angle_between(right.quat, written.quat)
    if apart > POSITION_TOLERANCE_M or turned > ANGLE_TOLERANCE:
        degrees = turned * 180.0 / PI
        message = f"{frame} is {apart:.6g} m and {turned:.6g} rad ({degrees:.4g} deg) from where the calibration has it"
        source.problem("calibration-wins", message, ("transforms", index), REWRITE_TF)


def angle_between(a: Quaternion, b: Quaternion) -> float:
    """The turn from one unit quaternion to the other [rad], in 0..pi."""
    dot = sum(p * q for p, q in zip(a, b, strict=True))
    sign = -1.0 if dot < 0.0 else 1.0
    chord = math.sqrt(sum((p - sign * q) * (p - sign * q) for p, q in zip(a, b, strict=True)))
    return 2.0 * atan2(chord, math.sqrt(max(0.0, 4.0 - chord * chord))) * 2.0
