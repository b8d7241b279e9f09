"""A world bundle in place of a map: what it says about the world, the car and its sensors, as parts of a scenario.

Keys of a scenario take precedence over the bundle. The finished scenario names the bundle by path
and by a hash of its content, so that a recording is never replayed in another world unnoticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from microsim.documents.values import Model, show
from microsim.errors import BundleError, Problem, ScenarioError, UsageError
from microsim.paths import data_folder, located, portable, scenario_names, world_folder, world_names
from microsim.robots.robot import COMMON_SENSORS, Robot, class_for_name, robot_class
from microsim.scenario.files import locate
from microsim.sensors.sensor import OwnSplats

if TYPE_CHECKING:
    from microsim.bundle import Bundle, CameraCalibration, LidarCalibration

_NO_NOISE = {"blur_sigma_px": 0.0, "color_jitter": 0.0}
_NO_LATENCY = {"mean": 0.0, "jitter": 0.0, "drop_probability": 0.0}
_CHUNK = 1 << 22

_CAR_KEYS = {  # a bundle's name for a key of the car, where they differ
    "max_steer": "max_steering",
    "max_steer_rate": "max_steering_rate",
    "max_speed_m_per_s": "max_speed",
    "max_reverse_m_per_s": "max_reverse_speed",
    "max_acceleration_m_per_s2": "max_acceleration",
    "max_brake_m_per_s2": "max_deceleration",
}


class WorldBundle(Model):
    """The world bundle a scenario takes place in; `world: PATH` is short for `world: {path: PATH}`."""

    path: str = Field(min_length=1, description="A shipped world's name, or the bundle's folder.")
    sha256: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="Hash of its content; where given, no other content is accepted."
    )


_loaded: dict[tuple[Any, ...], tuple[Bundle, str]] = {}  # the newest one: scenarios are checked over and over


def load_world(path: str, folders: Sequence[Path] = ()) -> tuple[Bundle, str, str]:
    """(the bundle, its hash, its path for others); BundleError lists what is wrong with it."""
    from microsim.bundle import find_bundle, load_bundle

    root = find_bundle(_place_of(path, folders)).resolve()
    key = (root, *_signature(root))
    if key not in _loaded:
        bundle = load_bundle(root)
        _loaded.clear()
        _loaded[key] = bundle, content_hash(bundle)
    return *_loaded[key], portable(root)


def _place_of(path: str, folders: Sequence[Path]) -> str | Path:
    """Where the bundle is. A folder with the name of a shipped world counts if it is a world."""
    places = [place for folder in folders if (place := locate(path, [folder])) is not None]
    if path in world_names():
        places = [*(place for place in places if (place / "world.yaml").is_file()), world_folder(path)]
    return places[0] if places else path


def is_world(source: str | Path) -> bool:
    """True for a folder with a world bundle in it, or the name of a shipped one that is not a scenario's."""
    try:
        return str(source) in set(world_names()) - set(scenario_names()) or (Path(source) / "world.yaml").is_file()
    except (OSError, ValueError):
        return False


def _signature(root: Path) -> tuple[tuple[str, int, int], ...]:
    """What changes when a file of the folder does."""
    found = [(path, path.stat()) for path in sorted(root.rglob("*")) if path.is_file()]
    return tuple((str(path), status.st_size, status.st_mtime_ns) for path, status in found)


def content_hash(bundle: Bundle) -> str:
    """SHA-256 over `world.yaml` and every file it names."""
    digest = hashlib.sha256()
    for name, path in sorted({**bundle.files, "world.yaml": bundle.root / "world.yaml"}.items()):
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def bundle_of(world: WorldBundle) -> Bundle:
    """The bundle of a finished scenario."""
    bundle, found, _ = load_world(world.path, [data_folder()])
    if world.sha256 is not None and found != world.sha256:
        raise ScenarioError(Problem(changed_message(world.path, found, world.sha256), "world"))
    return bundle


def changed_message(path: str, found: str, expected: str) -> str:
    return (
        f"the world bundle {show(path)} has changed: its content has the SHA-256 {found[:16]}…, expected "
        f"{expected[:16]}…; take the bundle as it was, or leave `sha256` out"
    )


def bundle_problems(error: BundleError) -> list[str]:
    return [str(problem) for problem in error.problems]


# ---- parts of a scenario ---------------------------------------------------------------------------------------------


def with_bundle(data: Mapping[str, Any], bundle: Bundle) -> dict[str, Any]:
    """A scenario's data, completed by what the bundle says; `map` is left to `map_update`."""
    robots = data.get("robots", {"ego": None})
    merged: dict[str, Any] = {"name": bundle.name, "physics_hz": bundle.timebase.physics_hz, **data}
    merged.pop("map", None)
    if isinstance(robots, Mapping):
        merged["robots"] = _robots(robots, bundle)
    return merged


def name_left_out(robots: Mapping[str, Any], bundle: Bundle) -> None:
    """In finished robots: null for each of the bundle's sensors that a car lacks, which `with_bundle` would add."""
    names = dict.fromkeys(sensors_of(bundle))
    for name, block in robots.items():
        kind = _kind(name, block)
        if kind is not None and kind.is_vehicle:
            block["sensors"] = {**block["sensors"], **{key: None for key in names if key not in block["sensors"]}}


def map_update(bundle: Bundle) -> dict[str, Any]:
    """What is known of the map, however large it is."""
    rows, columns = bundle.heightmap.values.shape
    return {
        "cell_size_m": bundle.heightmap.resolution_m,
        "size_xy_cells": (int(columns), int(rows)),
        "origin_wgs84": bundle.origin_wgs84,
    }


def _robots(robots: Mapping[str, Any], bundle: Bundle) -> dict[str, Any]:
    kinds = {name: _kind(name, block) for name, block in robots.items()}
    cars = [name for name, kind in kinds.items() if kind is not None and kind.is_vehicle]
    finished = {}
    for place, (name, block) in enumerate(robots.items()):
        given, kind = {} if block is None else block, kinds[name]
        if not isinstance(given, Mapping):
            finished[name] = block
            continue
        is_placed = kind is not None and given.get(kind.start_key)
        defaults: dict[str, Any] = {} if is_placed else {"start": {"map_pose": _start(kind, bundle, place)}}
        if kind is not None and kind.is_vehicle:
            defaults |= _vehicle(bundle)
        if name in cars[:1]:
            defaults["sensors"] = sensors_of(bundle)
        elif name in cars and isinstance(further := given.get("sensors"), Mapping):
            left_out = {key for key in sensors_of(bundle) if further.get(key, True) is None}
            given = {**given, "sensors": {key: each for key, each in further.items() if key not in left_out}}
        if not bundle.origin_is_known:
            defaults |= _without_origin(name, given, bundle)
        finished[name] = _over(defaults, given)
    return finished


def _without_origin(robot: str, given: Mapping[str, Any], bundle: Bundle) -> dict[str, Any]:
    """In a world without a place on Earth, sensors that need one are left out; requested ones are an error."""
    needing = [name for name, sensor in COMMON_SENSORS.items() if sensor.needs_origin]
    further = given.get("sensors")
    blocks = further if isinstance(further, Mapping) else {}
    asked: list[tuple[str, ...]] = [(robot, name) for name in needing if _is_requested(given.get(name))]
    asked += [
        (robot, "sensors", name)
        for name, block in blocks.items()
        if isinstance(block, Mapping) and block.get("type") in needing and _is_requested(block)
    ]
    if asked:
        unknown = f"the world {bundle.name} does not say where on Earth it is"
        file = bundle.root / "metadata.json"
        remedy = f"write its `origin` into {file} and remove `origin_is_known` there, or leave this sensor out"
        raise ScenarioError(Problem(f"{unknown}; {remedy}", ".".join(("robots", *asked[0]))))
    return dict.fromkeys(needing)


def _is_requested(block: Any) -> bool:
    """Whether a sensor's block adds it: `gps: {}` does; null, false and `enabled: false` leave it out."""
    if isinstance(block, Mapping):
        return block.get("enabled", True) is not False
    return block is not None and block is not False


def _kind(name: str, block: Any) -> type[Robot] | None:
    written = block.get("model") if isinstance(block, Mapping) else None
    return robot_class(written or class_for_name(name))


def _start(kind: type[Robot] | None, bundle: Bundle, place: int) -> dict[str, float]:
    """The car where the bundle says, what flies above it, others behind one another."""
    from microsim.engine.exact import cos, sin
    from microsim.engine.geometry import ground_height

    start = bundle.start
    x, y, yaw = (0.0, 0.0, 0.0) if start is None else (start.x, start.y, start.yaw)
    if kind is not None and kind.engine is not None and not kind.engine.is_ground_bound:
        grid = bundle.heightmap
        plain: Any = getattr(ground_height, "py_func", ground_height)
        ground = float(plain(grid.values, grid.resolution_m, x - grid.west, y - grid.south))
        return {"x": x, "y": y, "z": (ground if ground == ground else 0.0) + 10.0, "yaw": yaw}
    back = 7.0 * place
    return {"x": x - cos(yaw) * back, "y": y - sin(yaw) * back, "yaw": yaw}


def _vehicle(bundle: Bundle) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "cmd_timeout_s": bundle.timebase.control_timeout_s,
        "emergency_deceleration": bundle.timebase.emergency_brake_m_per_s2,
    }
    if bundle.vehicle is not None:
        written = bundle.vehicle.model_dump(exclude={"start"}, exclude_none=True)
        keys |= {_CAR_KEYS.get(name, name): value for name, value in written.items()}
    return keys


def sensors_of(bundle: Bundle) -> dict[str, Any]:
    """The cameras and LiDARs of the calibration, named as their frames."""
    cameras = {f"camera_{name}": _camera(each) for name, each in bundle.cameras.items()}
    lidars = {f"lidar_{name}": _lidar(each) for name, each in bundle.lidars.items()}
    return {**cameras, **lidars}


def _camera(camera: CameraCalibration) -> dict[str, Any]:
    from microsim.engine.geometry import rpy_from_quaternion

    k = (*camera.distortion, 0.0, 0.0, 0.0, 0.0, 0.0)[:5]
    return {
        "type": "camera",
        "hz": camera.rate_hz,
        "resolution": {"width": camera.width, "height": camera.height},
        "intrinsics": camera.intrinsics.model_dump(),
        "distortion": {"model": "plumb_bob", "D": list(k)},
        "noise": dict(_NO_NOISE),
        "latency_ms": dict(_NO_LATENCY),
        "mount": {"xyz": list(camera.xyz), "rpy": list(rpy_from_quaternion(*camera.optical_quat))},
        "render": {"type": "splat"},
        **({"convention": "ros"} if camera.convention == "ros" else {}),
    }


def _lidar(lidar: LidarCalibration) -> dict[str, Any]:
    from microsim.engine.geometry import rpy_from_quaternion

    return {
        "type": "lidar",
        "hz": lidar.rate_hz,
        "elevations": list(lidar.elevations),
        "columns": lidar.columns,
        "min_m": lidar.range_min_m,
        "max_m": lidar.range_max_m,
        "sigma_m": lidar.range_sigma_m,
        "dropout_probability": lidar.dropout_probability,
        "mount": {"xyz": list(lidar.xyz), "rpy": list(rpy_from_quaternion(*lidar.quat))},
    }


def _over(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` over `defaults`, key by key; null or false takes a sensor away."""
    merged = dict(defaults)
    for key, value in given.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = _over(below, value)
        elif isinstance(below, Mapping) and "type" in below and (value is None or value is False):
            del merged[key]
        else:
            merged[key] = value
    return merged


# ---- Gaussians that are a robot's own: files that a scenario names, checked with it, and read when they are drawn

MOST_GAUSSIANS = 1_000_000


def hash_of_splats(path: Path) -> str:
    """SHA-256 of a file of Gaussians; ValueError says what is wrong with it."""
    try:
        status = path.stat()
        return _checked(path, status.st_size, status.st_mtime_ns)
    except UsageError as error:
        raise ValueError(str(error)) from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None


@lru_cache(64)  # scenarios are checked over and over
def _checked(path: Path, size: int, changed_ns: int) -> str:
    from microsim.bundle.similarity import UNCHANGED
    from microsim.bundle.splat_import import drawable
    from microsim.bundle.splat_sources import SPLAT_SUFFIXES, open_splats

    if path.suffix not in SPLAT_SUFFIXES:
        raise UsageError(f"{path}: expected a file {', '.join(SPLAT_SUFFIXES[:-1])} or {SPLAT_SUFFIXES[-1]}")
    splats = open_splats(path)
    if splats.count > MOST_GAUSSIANS:
        raise UsageError(f"{path}: expected at most {MOST_GAUSSIANS:,} Gaussians, found {splats.count:,}")
    if not drawable(splats, UNCHANGED).any():
        raise UsageError(f"{path}: none of its {splats.count:,} Gaussians can be drawn")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def own_splats(robot: Robot) -> OwnSplats | None:
    """Of a robot of a finished scenario."""
    named = robot.own_splats
    if named is None:
        return None
    (x, y, _), _ = robot.body()
    return OwnSplats(named.sha256, lambda: _rows(located(named.file), named.sha256), (x, y, 0.0), named.shadow)


def _rows(path: Path, expected: str | None) -> tuple[npt.NDArray[np.float32], int]:
    """As `render.splat.activation` takes them, with the degree of their harmonics."""
    from microsim.bundle.splat_sources import open_splats

    try:
        found = hash_of_splats(path)
    except ValueError as error:
        raise ScenarioError(Problem(str(error))) from None
    if found != expected:
        raise ScenarioError(Problem(f"{path} has changed since the scenario was read"))
    splats = open_splats(path)
    with np.errstate(over="ignore", invalid="ignore"):  # what cannot be drawn is left out when it is activated
        return np.concatenate([rows.astype(np.float32) for _, rows in splats.pieces()]), splats.degree
