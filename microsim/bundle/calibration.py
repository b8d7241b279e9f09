"""`calibration.yaml`: the sensors of the car, and where they sit. `tf_static.json` is derived from it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from microsim.bundle.fields import Fields
from microsim.bundle.models import CameraCalibration, Extrinsics, LidarCalibration
from microsim.bundle.report import Source
from microsim.engine.exact import PI, sincos
from microsim.errors import show

CONVENTIONS = ("opencv", "ros")
QUATERNION_TOLERANCE = 1e-4  # rotations are written with at least four digits
MAX_SENSORS = 100
MAX_BEAMS = 1024
MAX_COLUMNS = 100_000
MAX_SIDE_PX = 16_384

_ID = re.compile(r"[A-Za-z0-9_]{1,64}")
_MEANINGLESS = re.compile(r"(cam|camera|lidar|sensor|id)?_?[0-9]+", re.IGNORECASE)

_Sensor = TypeVar("_Sensor", CameraCalibration, LidarCalibration)
Sensors = tuple[dict[str, CameraCalibration], dict[str, LidarCalibration]]


def read_calibration(source: Source) -> Sensors:
    assert source.document is not None
    fields = Fields(source, source.document.data)
    fields.known.append("version")
    cameras = _sensors(fields, "cameras", _camera)
    lidars = _sensors(fields, "lidars", _lidar)
    fields.done()
    return cameras, lidars


def _sensors(fields: Fields, key: str, read: Callable[[str, Fields], _Sensor]) -> dict[str, _Sensor]:
    blocks = fields.take(key, {})
    if not isinstance(blocks, dict) or len(blocks) > MAX_SENSORS:
        fields.wrong((key,), f"expected a mapping from id to sensor, at most {MAX_SENSORS}, found {show(blocks)}")
        return {}
    sensors: dict[str, _Sensor] = {}
    for name, block in blocks.items():
        _check_id(fields, key, name)
        inner = Fields(fields.source, block, (*fields.path, key, name))
        sensors[name] = read(name, inner)
        inner.done()
    return sensors


def _check_id(fields: Fields, key: str, name: str) -> None:
    if not _ID.fullmatch(name):
        better = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:64] or "front"
        message = f"expected letters, digits and underscores, found {show(name)}"
        fields.wrong((key, name), message, "sensor-id", f"call it {better!r}", at_key=True)
    elif _MEANINGLESS.fullmatch(name):
        message = f"{show(name)} does not say where the sensor is"
        fields.wrong(
            (key, name), message, "sensor-id-meaning", "call it by its place: front, rear_left, top", at_key=True
        )


def _camera(name: str, fields: Fields) -> CameraCalibration:
    remedy = "write opencv (x right, y down, z forward) or ros (x right, y up, z backward)"
    convention = fields.choice("camera_convention", CONVENTIONS, rule="camera-convention", remedy=remedy)
    width = fields.integer("width", least=1, most=MAX_SIDE_PX)
    height = fields.integer("height", least=1, most=MAX_SIDE_PX)
    fx = fy = cx = cy = math.nan
    intrinsics = fields.block("intrinsics")
    if intrinsics is not None:
        fx, fy = (intrinsics.number(key, above=0.0, most=1e6) for key in ("fx", "fy"))
        cx, cy = (intrinsics.number(key, least=-1e5, most=1e5) for key in ("cx", "cy"))
        intrinsics.done()
    return CameraCalibration(
        name, width, height, fx, fy, cx, cy, _distortion(fields), convention, _rate(fields), _extrinsics(fields)
    )


def _distortion(fields: Fields) -> tuple[float, ...]:
    block = fields.block("distortion", required=False)
    if block is None:
        return ()
    model = block.choice("model", ["none", "plumb_bob"], "plumb_bob")
    coefficients = () if model == "none" else block.numbers("coefficients", 5, least=-1e3, most=1e3)
    block.done()
    return coefficients


def _lidar(name: str, fields: Fields) -> LidarCalibration:
    half = 0.5 * PI
    elevations = fields.angles("elevations", MAX_BEAMS, least=-half, most=half)
    columns = _columns(fields)
    low = fields.number("range_min_m", 0.5, least=0.0, most=1e5)
    high = fields.number("range_max_m", 100.0, above=0.0, most=1e5)
    if high <= low:
        fields.wrong(("range_max_m",), f"expected more than range_min_m, which is {low:g}, found {high:g}")
    sigma = fields.number("range_sigma_m", 0.02, least=0.0, most=1e3)
    dropout = fields.number("dropout_probability", 0.0, least=0.0, most=1.0)
    return LidarCalibration(name, elevations, columns, _rate(fields), low, high, sigma, dropout, _extrinsics(fields))


def _columns(fields: Fields) -> int:
    """Azimuths of a turn, written as a number or as the angle between two."""
    by_angle = fields.has("azimuth_resolution") or fields.has("azimuth_resolution_deg")
    if by_angle and fields.has("columns"):
        fields.wrong(("columns",), "expected either 'columns' or 'azimuth_resolution', found both")
    if not by_angle:
        fields.known += ["azimuth_resolution", "azimuth_resolution_deg"]
        return fields.integer("columns", least=1, most=MAX_COLUMNS)
    fields.known.append("columns")
    step = fields.angle("azimuth_resolution", least=2.0 * PI / MAX_COLUMNS, most=2.0 * PI)
    if not step > 0.0:
        return 0
    columns = round(2.0 * PI / step)
    if abs(columns * step - 2.0 * PI) > 1e-3 * step:
        message = f"a turn is {2.0 * PI / step:.4f} times the azimuth resolution, expected a whole number"
        remedy = f"write columns: {columns}"
        name = "azimuth_resolution" if fields.has("azimuth_resolution") else "azimuth_resolution_deg"
        fields.wrong((name,), message, remedy=remedy)
    return columns


def _rate(fields: Fields) -> float:
    return fields.number("rate_hz", above=0.0, most=10_000.0)


def _extrinsics(fields: Fields) -> Extrinsics:
    block = fields.block("extrinsics")
    if block is None:
        return Extrinsics()
    block.choice("parent", ["base_link"], "base_link")
    x, y, z = block.numbers("translation", 3, least=-1e3, most=1e3)
    if block.has("rotation_rpy") or block.has("rotation_rpy_deg"):
        quat = _from_euler(block)
    else:
        block.known += ["rotation_rpy", "rotation_rpy_deg"]
        quat = quaternion(block, "rotation_quat")
    block.done()
    return Extrinsics((x, y, z), quat)


def quaternion(fields: Fields, name: str) -> tuple[float, float, float, float]:
    """[x, y, z, w] of length 1, as nearly as it can be written; what is handed out is normalised."""
    x, y, z, w = fields.numbers(name, 4, least=-10.0, most=10.0)
    length = math.sqrt(x * x + y * y + z * z + w * w)
    if abs(length - 1.0) > QUATERNION_TOLERANCE:
        remedy = "write a unit quaternion [x, y, z, w]"
        if length > 1e-6:
            remedy = f"write [{x / length:.9g}, {y / length:.9g}, {z / length:.9g}, {w / length:.9g}]"
        fields.wrong((name,), f"the quaternion has length {length:.6g}, expected 1", "unit-quaternion", remedy)
        return (0.0, 0.0, 0.0, 1.0)
    return (x, y, z, w) if length == 1.0 or length != length else (x / length, y / length, z / length, w / length)


def _from_euler(fields: Fields) -> tuple[float, float, float, float]:
    """Roll, pitch, yaw about x, y, z: intrinsic Z-Y-X."""
    fields.known.append("rotation_quat")
    if fields.has("rotation_quat"):
        fields.wrong(("rotation_quat",), "expected either 'rotation_quat' or 'rotation_rpy', found both")
    angles = fields.angles("rotation_rpy", 3, least=-2.0 * PI, most=2.0 * PI)
    if len(angles) != 3 or not all(math.isfinite(angle) for angle in angles):
        if 0 < len(angles) < 3:
            fields.wrong(("rotation_rpy",), f"expected [roll, pitch, yaw], found {len(angles)} values")
        return (0.0, 0.0, 0.0, 1.0)
    (sr, cr), (sp, cp), (sy, cy) = (sincos(0.5 * angle) for angle in angles)
    return (
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
        cr * cp * cy + sr * sp * sy,
    )


def frames(sensors: Sensors) -> dict[str, Extrinsics]:
    """Frame name to place on the car, in the order of the file: what `tf_static.json` holds."""
    cameras, lidars = sensors
    found = {f"camera_{name}": camera.extrinsics for name, camera in cameras.items()}
    return {**found, **{f"lidar_{name}": lidar.extrinsics for name, lidar in lidars.items()}}


def check_rates(source: Source, sensors: Sensors, physics_hz: float) -> None:
    cameras, lidars = sensors
    groups: dict[str, Mapping[str, CameraCalibration | LidarCalibration]] = {"cameras": cameras, "lidars": lidars}
    for key, group in groups.items():
        for name, sensor in group.items():
            if sensor.rate_hz > physics_hz:
                message = f"expected at most physics_hz, which is {physics_hz:g}, found {sensor.rate_hz:g}"
                remedy = "lower the rate, or raise physics_hz in the timebase"
                source.problem("sensor-rate", message, (key, name, "rate_hz"), remedy)


def tf_static(sensors: Sensors) -> dict[str, Any]:
    """The content of `tf_static.json` that belongs to these sensors."""
    transforms = [
        {"parent": "base_link", "child": frame, "translation": list(place.xyz), "rotation_quat": list(place.quat)}
        for frame, place in frames(sensors).items()
    ]
    return {"version": "1.0.0", "transforms": transforms}
