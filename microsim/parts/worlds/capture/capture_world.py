"""`bundle from-capture`: from the files of a capture to a world that a car can drive in, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_loading import load_bundle
from microsim.bundle.bundle_model import FIRST_HARMONIC
from microsim.bundle.bundle_writing import BundleContent, complete_or_absent, write_bundle
from microsim.bundle.similarity import Similarity, upright
from microsim.bundle.splat_import import drawable, write_splats
from microsim.bundle.splat_sources import SPLAT_SUFFIXES, SplatSource, open_splats
from microsim.errors import UsageError, os_errors
from microsim.parts.worlds.capture import levelling
from microsim.parts.worlds.capture.camera_poses import CameraPoses, photo_positions, read_cameras
from microsim.parts.worlds.capture.collision_surface import Mesh, collision_mesh, viewpoints_above
from microsim.parts.worlds.capture.drivable_estimate import (
    DrivableEstimate,
    DrivableLimits,
    estimate_drivable,
    start_pose,
)
from microsim.parts.worlds.capture.scene_layers import FLOATER, GROUND, Layers, SceneSplats, rotation_matrices, separate

Floats: TypeAlias = npt.NDArray[np.float64]
Vector: TypeAlias = tuple[float, float, float]
Progress: TypeAlias = Callable[[str, int, int], None]  # step, done, of

MESH_SUFFIXES = (".obj", ".glb", ".ply")
MAX_SPLATS = 50_000_000
_LEAST_OPAQUE = 100
_BYTES_EACH, _BYTES_ANYWAY = 260, 450_000_000  # measured with a million Gaussians: 0.5 GB at the most
_NAMES = ("splat.ply", "point_cloud.ply", "scene.ply")  # preferred where a folder has several


@dataclass(frozen=True)
class CaptureOptions:
    """What the user decided; None: found from the capture, or an error that asks."""

    level: str = "auto"  # auto, ground, cameras, none
    up: tuple[float, float, float] | None = None
    level_points: Floats | None = None  # (3, 3) on the ground
    rotation: Floats | None = None  # (3, 3), replaces levelling
    yaw: float = 0.0  # [rad] after levelling
    scale: float | None = None  # metres per unit of the capture
    camera_height_m: float | None = None
    known_length: tuple[Floats, Floats, float] | None = None  # two points of the capture, metres between them
    origin: tuple[float, float, float] | None = None  # WGS 84 of the map's origin
    ignore_cameras: bool = False
    ignore_gps: bool = False
    extent_m: float | None = None  # around the cameras
    resolution_m: float = 0.2
    voxel_m: float = 0.1
    sh_degree: int | None = None
    mesh: Path | None = None  # in the capture's frame, in place of one from the splats
    with_mesh: bool = True
    limits: DrivableLimits = field(default_factory=DrivableLimits)


@dataclass(frozen=True)
class CaptureNotes:
    """What to tell people, by step, and the options that give the same again."""

    words: dict[str, str] = field(default_factory=dict)
    reproduce: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CaptureSteps:
    """What was found at each step."""

    splat_file: Path
    cameras: CameraPoses | None
    frame: Similarity
    origin: Vector | None  # WGS 84 of the map's origin
    splats: SceneSplats  # in the map frame
    layers: Layers
    mesh: Mesh | None
    drivable: DrivableEstimate
    start: tuple[float, float, float] | None  # x, y, yaw
    notes: CaptureNotes

    @property
    def found(self) -> int:
        return len(self.splats.points)


def find_splats(source: Path, given: Path | None = None) -> Path:
    """The file of Gaussians: as given (from here, or in the folder), that of the folder, or the source itself."""
    if not source.exists():
        raise UsageError(f"no such file or folder: {source}")
    if given is not None:
        found_at = next((file for file in (given, source / given) if file.is_file()), None)
        if found_at is None:
            raise UsageError(f"--splats: no such file: {given}, neither here nor in {source}")
        return found_at
    if source.is_file():
        return source
    files = sorted(file for file in source.rglob("*") if file.suffix.lower() in SPLAT_SUFFIXES and file.is_file())
    found = [file for file in files if _may_be_splats(file)]
    if not found:
        expected = "expected a .ply of a 3DGS trainer (with scale_0, rot_0 …), a .splat, a .spz or a .sog"
        others = ", ".join(str(file.relative_to(source)) for file in files[:3])
        raise UsageError(
            f"{source}: no Gaussians here; {expected}" + (f"; without Gaussians: {others}" if files else "")
        )
    if len(found) > 1:
        preferred = [file for file in found if file.name in _NAMES]
        latest = _latest_iteration(preferred or found)
        if latest is None:
            names = ", ".join(str(file.relative_to(source)) for file in found[:5])
            raise UsageError(f"{source}: several files could be the Gaussians ({names}); name one with --splats FILE")
        found = [latest]
    return found[0]


def _may_be_splats(file: Path) -> bool:
    """A PLY with the properties of a splat: folders of captures also hold point clouds and meshes."""
    if file.suffix.lower() != ".ply":
        return True
    with os_errors(f"{file} cannot be read"), file.open("rb") as stream:
        head = stream.read(8192).split(b"end_header")[0]
    return b"scale_0" in head and b"rot_3" in head


def _latest_iteration(files: list[Path]) -> Path | None:
    """The last of iteration_N/point_cloud.ply (original trainer) or point_cloud_N.ply (gsplat); None: cannot say."""
    if len(files) == 1:
        return files[0]
    numbers = {file: _iteration(file) for file in files}
    if None not in numbers.values() and len({file.parent.parent for file in files}) == 1:
        return max(files, key=lambda file: numbers[file] or 0)
    return None


def _iteration(file: Path) -> int | None:
    for name, start in ((file.parent.name, "iteration_"), (file.stem, "point_cloud_")):
        number = name.removeprefix(start)
        if name.startswith(start) and number.isdecimal():
            return int(number)
    return None


def announced(source: Path, splats: Path | None = None) -> str:
    """How much there is to do, before it is done."""
    table = open_splats(find_splats(source, splats))
    memory = table.count * _BYTES_EACH + _BYTES_ANYWAY
    words = f"{table.count:,} Gaussians of degree {table.degree}: about {memory / 1e9:.1f} GB of memory"
    free = _free_memory()
    if free is None or free >= memory:
        return words
    return f"{words}, of which {free / 1e9:.1f} GB are free here: it may take long, or the system may end it"


def _free_memory() -> int | None:
    """Bytes that programs can have without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def build_capture(
    source: Path, options: CaptureOptions, progress: Progress, splats: Path | None = None
) -> CaptureSteps:
    """Everything but writing; raises UsageError where a decision is needed."""
    file = find_splats(source, splats)
    cameras = read_cameras(source) if source.is_dir() and not options.ignore_cameras else None
    table = open_splats(file)
    if not 0 < table.count <= MAX_SPLATS:
        raise UsageError(f"{file}: expected 1 to {MAX_SPLATS:,} Gaussians, found {table.count:,}")
    notes = CaptureNotes()
    if cameras is not None:
        notes.words["cameras"] = cameras.words
    scene = _read(table, progress)
    lost = int((scene.opacity == 0.0).sum())
    if lost:
        notes.words["left out"] = f"{lost:,} Gaussians that are not finite, too large, or without a rotation"
    opaque = int(scene.opaque.sum())
    if opaque < _LEAST_OPAQUE:
        unusable = f"; left out: {notes.words['left out']}" if lost else ""
        raise UsageError(f"{file}: expected at least {_LEAST_OPAQUE} opaque Gaussians, found {opaque:,}{unusable}")
    try:
        frame, origin = _frame(source, scene, cameras, options, notes)
    except levelling.UnclearCaptureError as error:
        error.scene, error.cameras = scene, cameras
        raise
    scene = _placed(scene, frame)
    places = None if cameras is None else frame.points(cameras.positions)
    progress("separating sky, ground and objects", 0, 1)
    layers = separate(scene, places, options.extent_m, options.resolution_m, options.limits.slope)
    notes.words["layers"] = ", ".join(f"{name} {count:,}" for name, count in layers.counts().items())
    mesh = _mesh(options, frame, scene, layers, places, notes, progress)
    progress("estimating the drivable area", 0, 1)
    first = None if places is None else (float(places[0, 0]), float(places[0, 1]))
    drivable = estimate_drivable(scene, layers, options.limits, first)
    start = start_pose(drivable, layers.ground, places)
    notes.words["drivable"] = f"{drivable.area_m2:,.0f} m² in {len(drivable.polygons)} part(s)"
    progress("estimating the drivable area", 1, 1)
    return CaptureSteps(file, cameras, frame, origin, scene, layers, mesh, drivable, start, notes)


def _read(table: SplatSource, progress: Progress) -> SceneSplats:
    """The columns that geometry needs; Gaussians that cannot be drawn get no opacity."""
    count = table.count
    out = SceneSplats(
        np.zeros((count, 3), np.float32), np.full((count, 3), 1e-6, np.float32), np.zeros(count, np.float32),
        np.tile(np.array([0, 0, 0, 1], np.float32), (count, 1)), np.zeros((count, 3), np.uint8),
    )  # fmt: skip
    for start, rows in table.pieces():
        part = slice(start, start + len(rows))
        with np.errstate(all="ignore"):
            good = (np.abs(rows[:, :14]) < 1e6).all(axis=1) & ((rows[:, 6:10] ** 2).sum(axis=1) > 1e-12)
            good &= (rows[:, 3:6] < 13.8).all(axis=1)
            sound = np.where(good[:, None], rows, 0.0)
            out.points[part] = sound[:, 0:3]
            out.sigmas[part] = np.exp(np.maximum(sound[:, 3:6], -20.0))
            out.opacity[part] = np.where(good, 1.0 / (1.0 + np.exp(-sound[:, 10])), 0.0)
            out.quaternions[part] = np.where(good[:, None], rows[:, 6:10], (0.0, 0.0, 0.0, 1.0))
            out.colours[part] = np.clip(255.0 * (0.5 + FIRST_HARMONIC * sound[:, 11:14]), 0.0, 255.0)
        progress("reading", start + len(rows), count)
    return out


# ---- the frame -------------------------------------------------------------------------------------------------------


def _frame(
    source: Path, scene: SceneSplats, cameras: CameraPoses | None, options: CaptureOptions, notes: CaptureNotes
) -> tuple[Similarity, Vector | None]:
    sample = _sample(scene, cameras)
    if cameras is not None:
        levelling.check_view(sample, cameras)
    level = _level(sample, cameras, options, notes)
    gps = None if cameras is None or options.ignore_gps else _gps(source, cameras)
    rotation = options.rotation if options.rotation is not None else upright(level.up)
    scale, from_gps = _scale(sample, level, cameras, options, notes, gps)
    if from_gps is not None and options.rotation is None:
        rotation = levelling.yaw_only(from_gps.rotation, level.up)
    rotation = _turn_z(options.yaw) @ rotation
    anchor = cameras.positions[0] if cameras is not None else np.median(sample.points, axis=0)
    foot = anchor - level.up * float(level.plane.heights(anchor[None])[0])
    x, y, z = (-scale * rotation @ foot).tolist()
    notes.words["place"] = (
        "the map's origin is on the ground under the first camera" if cameras else "the map's origin is in the middle"
    )
    origin = options.origin
    if options.origin is None and gps is not None and from_gps is not None and cameras is not None:
        origin = _origin(gps, from_gps, foot)
    notes.reproduce["--matrix"] = ",".join(f"{value:.9g}" for value in rotation.reshape(-1))
    notes.reproduce["--scale"] = f"{scale:.9g}"
    if origin is not None:
        notes.reproduce["--origin"] = ",".join(f"{value:.9g}" for value in origin)
    return Similarity(rotation, scale, (x, y, z)), origin


def _turn_z(angle: float) -> Floats:
    sin, cos = math.sin(angle), math.cos(angle)
    return np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])


def _sample(scene: SceneSplats, cameras: CameraPoses | None) -> levelling.Splats:
    """Opaque splats near the cameras (the sky has no say), evenly chosen."""
    opaque = np.flatnonzero(scene.opaque)
    if cameras is not None:
        middle = np.median(cameras.positions, axis=0)
        distance = np.linalg.norm(scene.points[opaque] - middle, axis=1)
        path = float(np.linalg.norm(cameras.positions - middle, axis=1).max())
        opaque = opaque[distance <= max(2.0 * path, float(np.quantile(distance, 0.5)))]
    chosen = opaque[levelling.spread(len(opaque), levelling.SAMPLE)]
    sigmas = scene.sigmas[chosen].astype(np.float64)
    axes = rotation_matrices(scene.quaternions[chosen].astype(np.float64))
    shortest = np.argmin(sigmas, axis=1)
    normals = np.take_along_axis(axes, shortest[:, None, None], axis=2)[:, :, 0]
    middle_sigma = np.sort(sigmas, axis=1)[:, 1]
    flat = 1.0 - sigmas[np.arange(len(chosen)), shortest] / np.maximum(middle_sigma, 1e-12)
    return levelling.Splats(scene.points[chosen].astype(np.float64), normals, flat)


def _level(
    sample: levelling.Splats, cameras: CameraPoses | None, options: CaptureOptions, notes: CaptureNotes
) -> levelling.Level:
    if options.rotation is not None:
        found = levelling.level_along(sample, options.rotation[2], "rotation as given")
    elif options.level_points is not None:
        a, b, c = options.level_points
        normal = np.cross(b - a, c - a)
        if float(np.linalg.norm(normal)) < 1e-12:
            raise UsageError("--level-points: the three points are on one line")
        normal = normal / np.linalg.norm(normal)
        above = float(((sample.points - a) @ normal > 0.0).mean())
        normal = normal if above >= 0.5 else -normal
        found = levelling.Level(normal, levelling.Plane(normal, float(a @ normal), 0.0), "three points on the ground")
    elif options.up is not None:
        up = np.array(options.up) / np.linalg.norm(options.up)
        found = levelling.level_along(sample, up, "up as given")
    elif options.level == "none":
        found = levelling.level_along(sample, np.array([0.0, 0.0, 1.0]), "not levelled, as asked")
    elif options.level == "cameras":
        found = levelling.level_by_cameras(sample, cameras)
    elif options.level == "ground":
        found = levelling.level_by_ground(sample, cameras)
    else:
        found = levelling.find_level(sample, cameras)
    notes.words["level"] = found.words
    return found


def _gps(source: Path, cameras: CameraPoses) -> tuple[list[int], Floats, tuple[float, float, float]] | None:
    """Cameras whose photographs have a position, those as east, north, up of the first one, and that one on Earth."""
    from microsim.engine.geodesy import enu_from_wgs84, tangent_plane

    found = photo_positions(source, cameras) if source.is_dir() else {}
    if len(found) < 4:
        return None
    numbers = sorted(found)
    origin = found[numbers[0]]
    plane = tangent_plane(*origin)
    local = np.array([enu_from_wgs84(plane, *found[number]) for number in numbers])
    return numbers, local, origin


def _scale(
    sample: levelling.Splats,
    level: levelling.Level,
    cameras: CameraPoses | None,
    options: CaptureOptions,
    notes: CaptureNotes,
    gps: tuple[list[int], Floats, tuple[float, float, float]] | None,
) -> tuple[float, Similarity | None]:
    """Metres per unit, and the frame that GPS gives if it gave the scale."""
    scale, words, fit = options.scale, "as given", None
    if scale is None and options.known_length is not None:
        a, b, metres = options.known_length
        between = float(np.linalg.norm(b - a))
        if between < 1e-9:
            raise UsageError("--known-length: the two points are the same")
        scale, words = metres / between, f"{metres:g} m between two points"
    if scale is None and options.camera_height_m is not None:
        scale, words = levelling.scale_of_camera_height(sample, level, cameras, options.camera_height_m)
    if gps is not None and cameras is not None:
        try:
            fit, from_gps = levelling.frame_of_gps(cameras, gps[1], gps[0])
            if scale is None:
                scale, words = fit.scale, from_gps
        except levelling.UnclearCaptureError:
            if scale is None:
                raise
    if scale is None:
        choices = (
            "--camera-height M, --known-length, --scale X" if cameras is not None else "--known-length or --scale X"
        )
        raise levelling.UnclearCaptureError(
            f"the capture has no scale: its units are arbitrary; give {choices} (1 if it is in metres)"
        )
    notes.words["scale"] = f"{scale:.6g} m per unit: {words}"
    return scale, fit


def _origin(
    gps: tuple[list[int], Floats, tuple[float, float, float]], fit: Similarity, foot: Floats
) -> tuple[float, float, float]:
    """WGS 84 of the map's origin."""
    from microsim.engine.geodesy import tangent_plane, wgs84_from_enu

    east, north, up = fit.points(foot[None])[0].tolist()
    latitude, longitude, altitude = wgs84_from_enu(tangent_plane(*gps[2]), east, north, up)
    return latitude, longitude, altitude


def _placed(scene: SceneSplats, frame: Similarity) -> SceneSplats:
    """In the map frame."""
    from microsim.bundle.splat_import import _products

    points = np.empty_like(scene.points)
    turned = np.empty_like(scene.quaternions)
    for start in range(0, len(points), 1 << 18):
        part = slice(start, start + (1 << 18))
        points[part] = frame.points(scene.points[part])
        turned[part] = _products(frame.quaternion, scene.quaternions[part].astype(np.float64))
    return SceneSplats(points, scene.sigmas * np.float32(frame.scale), scene.opacity, turned, scene.colours)


# ---- geometry and the bundle -----------------------------------------------------------------------------------------


def _mesh(
    options: CaptureOptions,
    frame: Similarity,
    scene: SceneSplats,
    layers: Layers,
    cameras: Floats | None,
    notes: CaptureNotes,
    progress: Progress,
) -> Mesh | None:
    if options.mesh is not None:
        vertices, triangles = _given_mesh(options.mesh)
        notes.words["mesh"] = f"{len(triangles):,} triangles of {options.mesh.name}"
        return frame.points(vertices).astype(np.float32), triangles
    if not options.with_mesh:
        return None
    views = cameras if cameras is not None else viewpoints_above(layers)
    made = collision_mesh(
        scene, layers, views, options.voxel_m, lambda done, of: progress("building the mesh", done, of), cameras
    )
    notes.words["mesh"] = f"{len(made[1]):,} triangles, voxels of {options.voxel_m:g} m"
    return made if len(made[1]) else None


def _given_mesh(file: Path) -> tuple[Floats, npt.NDArray[np.int32]]:
    from microsim.bundle.mesh_files import read_mesh
    from microsim.bundle.rules import BundleFile, BundleReport

    if not file.is_file():
        raise UsageError(f"--mesh: no such file: {file}")
    if file.suffix not in MESH_SUFFIXES:
        raise UsageError(f"--mesh: expected a name that ends in {', '.join(MESH_SUFFIXES)}, found {file}")
    report = BundleReport()
    mesh = read_mesh(BundleFile(report, file.name, file))
    if mesh is None:
        raise UsageError(str(report.problems[0]))
    return mesh.vertices, mesh.triangles


def write_capture(folder: Path, steps: CaptureSteps, options: CaptureOptions, progress: Progress) -> None:
    """A bundle of what was found."""
    table = open_splats(steps.splat_file)
    degree = min(table.degree, 3 if options.sh_degree is None else options.sh_degree)
    chosen = drawable(table, steps.frame) & (steps.layers.label != FLOATER)
    content = _content(folder.name, steps, degree)
    with complete_or_absent(folder) as part:
        write_bundle(part, content)
        target = part / "gaussians/background.splat.ply"
        write_splats(table, target, steps.frame, chosen, degree, lambda done, of: progress("writing", done, of))
        load_bundle(part)


def ground_colour(splats: SceneSplats, layers: Layers) -> list[float]:
    """What shows through holes in the ground: the median colour of what is around them."""
    seen = splats.colours[(layers.label == GROUND) & splats.opaque]
    return (np.median(seen, axis=0) / 255.0).round(2).tolist() if len(seen) else [0.5, 0.5, 0.5]


def _content(name: str, steps: CaptureSteps, degree: int) -> BundleContent:
    from microsim.bundle.mapped_arrays import columns_of
    from microsim.parts.worlds.generate import generate_world
    from microsim.parts.worlds.generate.surfaces import car_sensors

    content = generate_world("minimal", name)
    ground = steps.layers.ground
    content.heights, content.resolution_m = ground.values, ground.resolution_m
    content.west, content.south = ground.west, ground.south
    content.description = f"From the capture {steps.splat_file.name}."
    content.polygons = [(rings, 0) for rings in steps.drivable.polygons]
    content.gaussians, content.sh_degree = np.zeros((0, len(columns_of(degree))), np.float32), degree
    content.mesh = steps.mesh
    content.vehicle = None
    if steps.start is not None:
        x, y, yaw = steps.start
        content.vehicle = {"start": {"x": round(x, 3), "y": round(y, 3), "yaw": round(yaw, 4)}}
    content.origin_wgs84 = steps.origin
    content.calibration = car_sensors()
    content.render = {**content.render, "ground_rgb": ground_colour(steps.splats, steps.layers)}
    return content
