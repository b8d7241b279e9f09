"""`microsim bundle from-roads`, `route` and `export-roads`: road maps to worlds, ways through them, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from microsim.cli.capture_options import describe_bundle, earth_place, numbers_of, refuse_existing
from microsim.cli.command import argument, option
from microsim.errors import UsageError

if TYPE_CHECKING:
    from microsim.bundle import Bundle
    from microsim.bundle.roads.road_map import RoadMap

BundleArgument = Annotated[str, argument("BUNDLE", "A folder, or the name of a shipped world.")]


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
    from microsim.bundle.bundle_writing import write_bundle
    from microsim.bundle.roads.road_map import lanes_text
    from microsim.bundle.roads.road_world import read_roads, road_world

    numbers = None if options.origin is None else numbers_of(options.origin, (2, 3), "--origin")
    roads = read_roads(options.roads, None if numbers is None else earth_place(list(numbers)))
    if options.like is not None:
        _replace_roads(options.like, options.folder, roads)
    else:
        content = road_world(options.folder.name, roads, options.roads.name, options.resolution)
        content.lanes = lanes_text(roads)
        if numbers is not None:
            content.origin_wgs84 = earth_place(list(numbers))
        write_bundle(options.folder, content)
    describe_bundle(options.folder)
    joints = sum(len(lane.next) for lane in roads.lanes.values())
    length = sum(lane.length_m for lane in roads.lanes.values())
    print(f"lanes: {len(roads.lanes):,}, {length:,.0f} m in all, with {joints:,} ways from one to the next")


def _replace_roads(like: str, folder: Path, roads: RoadMap) -> None:
    """A copy of a bundle with other drivable areas and lanes."""
    from microsim.bundle import load_bundle
    from microsim.bundle.bundle_files import ENTRY
    from microsim.bundle.bundle_writing import complete_or_absent, copy_bundle, geojson_bytes
    from microsim.bundle.roads.road_map import LANES_FILE, lanes_text
    from microsim.documents.yaml_text import read_yaml, to_yaml

    with complete_or_absent(folder) as part:
        copy_bundle(load_bundle(like), part, folder.name)
        world = part / ENTRY
        data = read_yaml(world.read_text(encoding="utf-8"), str(world)).data
        (part / data["geometry"]["drivable"]).write_bytes(geojson_bytes(roads.polygons()))
        (part / LANES_FILE).write_text(lanes_text(roads), encoding="utf-8")
        data["geometry"]["lanes"] = LANES_FILE
        world.write_text(to_yaml(data, one_line=False), encoding="utf-8")
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
      microsim bundle route my_town 0,0 120,40 -o there.yaml
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

    from microsim.bundle.roads.road_map import LANES_FILE, read_lanes

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
    from microsim.bundle.roads.lanelet2_map import write_lanelet2
    from microsim.bundle.roads.opendrive import opendrive_text

    bundle, file = load_bundle(options.source), options.file
    roads = lanes_of(bundle)
    if file.suffix == ".osm":
        write_lanelet2(roads, file)
    elif file.suffix == ".xodr":
        file.write_text(opendrive_text(roads, bundle.name), encoding="utf-8")
    else:
        raise UsageError(f"{file}: expected a name that ends in .xodr or .osm")
    print(f"wrote {file}: {len(roads.lanes):,} lanes")
