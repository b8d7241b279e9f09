"""Worlds from captures and from road maps: `microsim bundle from-capture`, `from-roads`, `route`, `export-roads`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from microsim.cli.precompile import compiling
from microsim.cli.terminal import ShareProgress
from microsim.errors import MissingExtraError, UsageError, install_hint, show
from microsim.options import argument, flag, option

if TYPE_CHECKING:
    from microsim.bundle import Bundle
    from microsim.bundle.road_map import RoadMap
    from microsim.parts.worlds.capture.capture_world import CaptureOptions
    from microsim.parts.worlds.capture.levelling import UnclearCaptureError


BundleArgument = Annotated[str, argument("BUNDLE", "A folder, or the name of a shipped world.")]


class LevelChoice(str, Enum):
    auto = "auto"
    ground = "ground"
    cameras = "cameras"
    none = "none"


class FromCaptureOptions(NamedTuple):
    capture: Annotated[Path, argument("CAPTURE", "The folder of a capture, or its file of Gaussians.")]
    folder: Annotated[Path, argument("FOLDER", "The new bundle.")]
    splats: Annotated[Path | None, option("--splats FILE", "The file of Gaussians, if the folder has several.")] = None
    level: Annotated[
        LevelChoice, option("--level", "What determines which way is up; auto: the ground, checked by the cameras.")
    ] = LevelChoice.auto
    up: Annotated[str | None, option("--up X,Y,Z", "This direction of the capture is up.")] = None
    level_points: Annotated[
        str | None, option("--level-points X,Y,Z,X,Y,Z,X,Y,Z", "Three points of the capture on level ground.")
    ] = None
    rotate_deg: Annotated[
        str | None, option("--rotate-deg ROLL,PITCH,YAW", "Rotate the capture by these angles instead of levelling it.")
    ] = None
    matrix: Annotated[str | None, option("--matrix M", "The rotation as nine numbers, row by row.")] = None
    yaw_deg: Annotated[
        float, option("--yaw-deg DEG", "Then rotate it about the vertical axis.", min=-360.0, max=360.0)
    ] = 0.0
    scale: Annotated[
        float | None, option("--scale X", "Metres per unit of the capture.", min=1e-6, max=1e6, show_default=False)
    ] = None
    camera_height: Annotated[
        float | None,
        option("--camera-height M", "How high the camera was held.", min=0.01, max=1000.0, show_default=False),
    ] = None
    known_length: Annotated[
        str | None, option("--known-length X,Y,Z,X,Y,Z,M", "Two points of the capture and the metres between them.")
    ] = None
    origin: Annotated[
        str | None,
        option("--origin LAT,LON[,ALT]", "Where the map's origin is on Earth; default: from the photographs."),
    ] = None
    ignore_cameras: Annotated[bool, flag("--ignore-cameras", "Do not read camera poses.")] = False
    ignore_gps: Annotated[bool, flag("--ignore-gps", "Do not read positions of photographs.")] = False
    extent: Annotated[
        float | None,
        option("--extent M", "How far from the cameras the map reaches.", min=1.0, max=1000.0, show_default="25"),
    ] = None
    resolution: Annotated[float, option("--resolution M", "Cell size of the ground.", min=0.05, max=10.0)] = 0.2
    voxel: Annotated[float, option("--voxel M", "Cell size of the collision mesh.", min=0.02, max=2.0)] = 0.1
    mesh: Annotated[Path | None, option("--mesh FILE", "A PLY, OBJ or GLB in the capture's frame to use instead.")] = (
        None
    )
    no_mesh: Annotated[bool, flag("--no-mesh", "Make no collision mesh.")] = False
    max_slope: Annotated[
        float, option("--max-slope X", "The steepest ground, as rise per length.", min=0.01, max=2.0)
    ] = 0.25
    max_step: Annotated[float, option("--max-step M", "The highest step a car takes.", min=0.01, max=1.0)] = 0.08
    sh_degree: Annotated[int | None, option("--sh-degree D", "Drop colours finer than this degree.", min=0, max=3)] = (
        None
    )


def from_capture(options: FromCaptureOptions) -> None:
    """Make a drivable world from a captured scene: level, scale, ground, collision mesh and drivable area.

    Takes the Gaussians of any 3DGS trainer (PLY, .splat, .spz) and, if the folder
    has them, camera poses (COLMAP, nerfstudio) and photographs with GPS. A page
    with a picture of every step is written next to the bundle.

    \b
    Examples:
      microsim bundle from-capture my_capture my_street --camera-height 1.6
      microsim bundle from-capture scan.ply my_yard --scale 1 --up 0,-1,0
      microsim bundle from-capture scan.ply my_yard --known-length=0,0,1,2,0,1,3.5
    """
    folder = options.folder
    refuse_existing(folder)
    _require_capture_extra()
    from microsim.bundle.bundle_writing import complete_or_absent
    from microsim.parts.worlds.capture.capture_report import report_page
    from microsim.parts.worlds.capture.capture_world import announced, build_capture, write_capture
    from microsim.parts.worlds.capture.levelling import UnclearCaptureError

    choices = _capture_choices(options)
    with complete_or_absent(folder) as trial:  # that nothing can be written here is better known before the work
        trial.mkdir()
    folder.rmdir()
    print(announced(options.capture, options.splats))
    progress, page = _StepProgress(), folder.with_name(f"{folder.name}_report.html")
    try:
        with compiling():
            steps = build_capture(options.capture, choices, progress.tell, options.splats)
    except UnclearCaptureError as error:
        raise UsageError(f"{error}\n{_shown_why(page, folder.name, error)}") from None
    write_capture(folder, steps, choices, progress.tell)
    for step in ("cameras", "left out", "level", "scale", "layers", "mesh", "drivable"):
        if step in steps.notes.words:
            print(f"{step + ':':10}{steps.notes.words[step]}")
    place = "not known: GPS sensors are left out (--origin LAT,LON[,ALT])"
    if steps.origin is not None:
        place = "the map's origin is at {:.6f}, {:.6f}, {:.1f} m".format(*steps.origin)
    print(f"place:    {place}")
    page.write_text(report_page(folder.name, _same_again(options, steps.notes.reproduce), steps), encoding="utf-8")
    describe_bundle(folder)
    print(f"pictures of every step: {page}")
    print(f"drive in it: microsim run {shlex.quote(str(folder))} --view")


def _shown_why(page: Path, name: str, error: UnclearCaptureError) -> str:
    """Views of the capture with its coordinates: without them, nobody can say which way is up."""
    from microsim.parts.worlds.capture.capture_report import unclear_page

    if error.scene is None:
        return ""
    page.write_text(unclear_page(name, str(error), error.scene, error.cameras, error.ups), encoding="utf-8")
    return f"views of the capture with its coordinates: {page}"


class _StepProgress:
    """One line of progress for each step."""

    def __init__(self) -> None:
        self._step, self._shown = "", ShareProgress()

    def tell(self, step: str, done: int, total: int) -> None:
        if step != self._step:
            self._shown.end()
            self._step, self._shown = step, ShareProgress(step)
        self._shown.count(done, total)
        if done == total:
            self._shown.end()


def _require_capture_extra() -> None:
    from importlib.util import find_spec

    needed = {"scipy": "SciPy", "skimage": "scikit-image", "fast_simplification": "fast-simplification"}
    missing = [name for module, name in needed.items() if find_spec(module) is None]
    if missing:
        raise MissingExtraError(f"from-capture needs {', '.join(missing)}: {install_hint('capture')}")


def _capture_choices(options: FromCaptureOptions) -> CaptureOptions:
    import numpy as np

    from microsim.parts.worlds.capture.capture_world import CaptureOptions
    from microsim.parts.worlds.capture.drivable_estimate import DrivableLimits

    numbers = {
        name: None if text is None else np.array(numbers_of(text, counts, f"--{name.replace('_', '-')}"))
        for name, text, counts in (
            ("up", options.up, (3,)), ("level_points", options.level_points, (9,)), ("matrix", options.matrix, (9,)),
            ("rotate_deg", options.rotate_deg, (3,)), ("known_length", options.known_length, (7,)),
            ("origin", options.origin, (2, 3)),
        )
    }  # fmt: skip
    ways = [name for name in ("up", "level_points", "matrix", "rotate_deg") if numbers[name] is not None]
    if len(ways) > 1:
        raise UsageError(
            f"expected one of {', '.join(f'--{way.replace(chr(95), chr(45))}' for way in ways)}, found several"
        )
    scales = [options.scale, options.camera_height, options.known_length]
    if sum(each is not None for each in scales) > 1:
        raise UsageError("expected one of --scale, --camera-height and --known-length, found several")
    up, points, length, origin = (numbers[name] for name in ("up", "level_points", "known_length", "origin"))
    if up is not None and not np.linalg.norm(up) > 0.0:
        raise UsageError("--up: expected a direction, found 0,0,0")
    if length is not None and not 1e-3 <= length[6] <= 1e6:
        raise UsageError(f"--known-length: expected a length of 0.001 to 1,000,000 m at the end, found {length[6]:g}")
    return CaptureOptions(
        level=options.level.value, up=None if up is None else tuple(up.tolist()),
        level_points=None if points is None else points.reshape(3, 3),
        rotation=_capture_rotation(numbers["matrix"], numbers["rotate_deg"]),
        yaw=math.radians(options.yaw_deg), scale=options.scale, camera_height_m=options.camera_height,
        known_length=None if length is None else (length[0:3], length[3:6], float(length[6])),
        origin=None if origin is None else earth_place(origin.tolist()), ignore_cameras=options.ignore_cameras,
        ignore_gps=options.ignore_gps, extent_m=options.extent, resolution_m=options.resolution, voxel_m=options.voxel,
        sh_degree=options.sh_degree, mesh=options.mesh, with_mesh=not options.no_mesh,
        limits=DrivableLimits(slope=options.max_slope, step_m=options.max_step),
    )  # fmt: skip


def _capture_rotation(matrix: Any, rpy_deg: Any) -> Any:
    import numpy as np

    from microsim.bundle.similarity import matrix_of_rpy

    if rpy_deg is not None:
        return matrix_of_rpy(*np.radians(rpy_deg))
    if matrix is None:
        return None
    rotation = matrix.reshape(3, 3)
    if not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-4) or np.linalg.det(rotation) < 0.0:
        raise UsageError("--matrix: expected a rotation: rows of length 1, perpendicular, not mirrored")
    left, _, right = np.linalg.svd(rotation)
    return left @ right


def earth_place(numbers: list[float]) -> tuple[float, float, float]:
    latitude, longitude, altitude = (*numbers, 0.0)[:3]
    if not (abs(latitude) <= 90.0 and abs(longitude) <= 180.0):
        raise UsageError(f"--origin: expected latitude and longitude in degrees, found {latitude:g},{longitude:g}")
    return latitude, longitude, altitude


def _same_again(options: FromCaptureOptions, found: Mapping[str, str]) -> str:
    """The command with everything that was found written out."""
    kept: dict[str, object] = {"--extent": options.extent, "--resolution": options.resolution, "--voxel": options.voxel}
    kept |= {
        "--max-slope": options.max_slope,
        "--max-step": options.max_step,
        "--mesh": options.mesh,
        "--splats": options.splats,
        "--sh-degree": options.sh_degree,
    }
    words = [f"{name}={shlex.quote(str(value))}" for name, value in {**found, **kept}.items() if value is not None]
    words += [
        name for name, given in (("--no-mesh", options.no_mesh), ("--ignore-cameras", options.ignore_cameras)) if given
    ]
    paths = [shlex.quote(str(path)) for path in (options.capture, options.folder)]
    return " ".join(["microsim bundle from-capture", *paths, *words])


class FromRoadsOptions(NamedTuple):
    roads: Annotated[Path, argument("MAP", "OpenDRIVE (.xodr) or Lanelet2 (.osm).")]
    folder: Annotated[Path, argument("FOLDER", "The new bundle.")]
    like: Annotated[str | None, option("--like BUNDLE", "Take everything but roads from this bundle.")] = None
    origin: Annotated[
        str | None, option("--origin LAT,LON[,ALT]", "Where the origin of the map is; default: as in the file.")
    ] = None
    resolution: Annotated[float, option("--resolution M", "Cell size of the ground.", min=0.1, max=10.0)] = 0.5


def from_roads(options: FromRoadsOptions) -> None:
    """Make a world from a road map: its lanes as drivable area, on ground that follows them.

    Lanes keep their borders, speed limits and connections in
    geometry/lanes.geojson; `microsim bundle route` finds routes along them.

    \b
    Examples:
      microsim bundle from-roads town.xodr my_town
      microsim bundle from-roads map.osm my_town
      microsim bundle from-roads map.osm captured_with_roads --like my_street
    """
    refuse_existing(options.folder)
    from microsim.bundle import load_bundle
    from microsim.bundle.bundle_writing import complete_or_absent, write_bundle
    from microsim.bundle.road_map import lanes_text
    from microsim.parts.worlds.roads.road_world import read_roads, road_world

    numbers = None if options.origin is None else numbers_of(options.origin, (2, 3), "--origin")
    roads = read_roads(options.roads, None if numbers is None else earth_place(list(numbers)))
    if options.like is not None:
        _replace_roads(options.like, options.folder, roads)
    else:
        content = road_world(options.folder.name, roads, options.roads.name, options.resolution)
        content.lanes = lanes_text(roads)
        if numbers is not None:
            content.origin_wgs84 = earth_place(list(numbers))
        with complete_or_absent(options.folder) as part:
            write_bundle(part, content)
            load_bundle(part)
    describe_bundle(options.folder)
    joints = sum(len(lane.next) for lane in roads.lanes.values())
    length = sum(lane.length_m for lane in roads.lanes.values())
    print(f"lanes: {len(roads.lanes):,}, {length:,.0f} m in all, with {joints:,} ways from one to the next")


def _replace_roads(like: str, folder: Path, roads: RoadMap) -> None:
    """A copy of a bundle with other drivable areas and lanes."""
    from microsim.bundle import load_bundle
    from microsim.bundle.bundle_writing import changed_entry, complete_or_absent, copy_bundle, geojson_bytes
    from microsim.bundle.road_map import LANES_FILE, lanes_text

    with complete_or_absent(folder) as part:
        copy_bundle(load_bundle(like), part, folder.name)
        with changed_entry(part) as data:
            (part / data["geometry"]["drivable"]).write_bytes(geojson_bytes(roads.polygons()))
            (part / LANES_FILE).write_text(lanes_text(roads), encoding="utf-8")
            data["geometry"]["lanes"] = LANES_FILE
        load_bundle(part)


class RouteOptions(NamedTuple):
    source: BundleArgument
    start: Annotated[str, argument("FROM", "x,y in the map frame.")]
    goal: Annotated[str, argument("TO", "x,y in the map frame.")]
    output: Annotated[Path | None, option("--output -o FILE", "Write a mission that drives it there.")] = None
    speed: Annotated[float, option("--speed V", "Speed of the mission, in m/s.", min=0.1, max=100.0)] = 5.0


def route(options: RouteOptions) -> None:
    """Find the shortest route along the lanes of a world; with -o write a mission that drives it.

    \b
    Examples:
      microsim bundle route my_town 0,0 120,40
      microsim bundle route my_town -18,-8 120,40 -o there.yaml
    """
    import numpy as np

    from microsim.bundle import load_bundle

    start, goal = (numbers_of(text, (2,), name) for text, name in ((options.start, "FROM"), (options.goal, "TO")))
    bundle = load_bundle(options.source)
    lanes, points = lanes_of(bundle).route((start[0], start[1]), (goal[0], goal[1]))
    length = float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())
    print(f"{length:.0f} m along {len(lanes)} lanes: {', '.join(lanes[:12])}{' …' if len(lanes) > 12 else ''}")
    if options.output is None:
        return
    options.output.write_text(_mission(bundle, points, options.speed, length), encoding="utf-8")
    print(f"wrote {options.output}")


def _mission(bundle: Bundle, points: object, speed: float, length: float) -> str:
    import math

    import numpy as np

    from microsim.documents.yaml_text import to_yaml

    line = np.asarray(points)
    stops = line[np.unique(np.append(np.arange(4, len(line), 4), len(line) - 1))].round(2).tolist()
    ahead = line[min(1, len(line) - 1)] - line[0]
    pose = {"x": round(float(line[0, 0]), 2), "y": round(float(line[0, 1]), 2)}
    pose["yaw"] = round(math.atan2(float(ahead[1]), float(ahead[0])), 3)
    limit = round(3.0 * length / speed + 20.0)
    mission = {
        "scenario": str(bundle.root.resolve()),
        "duration": limit + 1,
        "do": [
            {"name": "begin", "robot": "ego", "teleport": pose},
            {"after": "begin", "robot": "ego", "waypoints": stops, "speed": speed, "tolerance": 1.5, "timeout": limit},
        ],
        "expect": [{"robot": "ego", "value": "contacts", "equals": 0}],
    }
    return to_yaml(mission, one_line=False)


def lanes_of(bundle: Bundle) -> RoadMap:
    from dataclasses import replace

    from microsim.bundle.road_map import LANES_FILE, read_lanes

    roads = read_lanes(bundle.files.get(LANES_FILE, bundle.root / LANES_FILE))
    return replace(roads, origin=bundle.origin_wgs84 if bundle.origin_is_known else None)


class ExportRoadsOptions(NamedTuple):
    source: BundleArgument
    file: Annotated[Path, argument("FILE", "OpenDRIVE (.xodr) or Lanelet2 (.osm).")]


def export_roads(options: ExportRoadsOptions) -> None:
    """Write the lanes of a world as a road map for other programs.

    \b
    Examples:
      microsim bundle export-roads my_town town.xodr
      microsim bundle export-roads my_town town.osm
    """
    from microsim.bundle import load_bundle
    from microsim.parts.worlds.roads.road_files import opendrive_text, write_lanelet2

    bundle, file = load_bundle(options.source), options.file
    roads = lanes_of(bundle)
    if file.suffix == ".osm":
        write_lanelet2(roads, file)
    elif file.suffix == ".xodr":
        file.write_text(opendrive_text(roads, bundle.name), encoding="utf-8")
    else:
        raise UsageError(f"{file}: expected a name that ends in .xodr or .osm")
    print(f"wrote {file}: {len(roads.lanes):,} lanes")


# ---- what the commands that make bundles share -----------------------------------------------------------------------


def describe_bundle(folder: Path) -> None:
    """Every bundle that is written is loaded once: what we make must be valid."""
    from microsim.bundle import load_bundle

    made = load_bundle(folder)
    for warning in made.warnings:
        typer.echo(f"warning: {warning}", err=True)
    width, height = made.heightmap.size_m
    counts = f"{made.gaussians.count:,} Gaussians, drivable polygons: {made.drivable.count}"
    print(f"made {folder}: {width:g} m x {height:g} m, {counts}")


def refuse_existing(folder: Path) -> None:
    if folder.exists():
        raise UsageError(f"{folder} already exists; choose another folder")
    if not folder.name:
        raise UsageError(f"expected the name of a new folder, found {str(folder)!r}")


def numbers_of(text: str, counts: tuple[int, ...], option: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in counts or not all(abs(number) <= 1e7 for number in numbers):
        expected = " or ".join(map(str, counts))
        raise UsageError(f"{option}: expected {expected} numbers with commas between, found {show(text)}")
    return numbers
