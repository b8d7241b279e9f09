"""Lanelet2 maps (`.osm`), read and written by the lanelet2 library; extra `[roads]`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.etree.ElementTree import ParseError, iterparse

import numpy as np
import numpy.typing as npt

from microsim.bundle.roads.road_map import RoadLane, RoadMap, joined
from microsim.errors import MissingExtraError, UsageError, install_hint

if TYPE_CHECKING:
    from collections.abc import Iterable

Floats: TypeAlias = npt.NDArray[np.float64]

MAX_BYTES = 500_000_000
SPACING_M = 1.0
_FOR_CARS = {"road", "highway", "play_street", "emergency_lane", "bus_lane", "exit", ""}


def _library() -> Any:
    try:
        import lanelet2.core
        import lanelet2.io
        import lanelet2.projection
    except ImportError:
        raise MissingExtraError(f"Lanelet2 maps need a library: {install_hint('roads')}") from None
    return lanelet2


def read_lanelet2(file: Path, origin: tuple[float, float, float] | None = None) -> RoadMap:
    """The map frame is east, north and up of `origin`, by default the middle of the map's nodes."""
    library = _library()
    place = origin or _middle(file)
    projector = library.projection.LocalCartesianProjector(library.io.Origin(*place))
    try:
        loaded, problems = library.io.loadRobust(str(file), projector)
    except RuntimeError as error:
        raise UsageError(f"{file}: not a Lanelet2 map: {error}") from None
    if problems and not len(loaded.laneletLayer):
        raise UsageError(f"{file}: {problems[0]}")
    lanes = [lane for each in loaded.laneletLayer for lane in _lanes(each)]
    try:
        return joined(lanes, place)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None


def _middle(file: Path) -> tuple[float, float, float]:
    """Of all nodes: latitude, longitude, and the lowest height as altitude 0."""
    places = []
    try:
        if file.stat().st_size > MAX_BYTES:
            raise UsageError(f"{file}: expected at most {MAX_BYTES:,} bytes")
        if b"<!DOCTYPE" in file.read_bytes()[:4096]:
            raise UsageError(f"{file}: expected no document type declaration")
        for _, element in iterparse(file):
            if element.tag == "node":
                places.append((float(element.get("lat", "nan")), float(element.get("lon", "nan"))))
                element.clear()
    except ParseError as error:
        raise UsageError(f"{file}:{error.position[0]}: not XML: {error.msg}") from None
    except ValueError:
        raise UsageError(f"{file}: expected numbers as 'lat' and 'lon' of every node") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from None
    good = np.array([each for each in places if abs(each[0]) <= 90.0 and abs(each[1]) <= 180.0])
    if not len(good):
        raise UsageError(f"{file}: it has no nodes with latitude and longitude")
    latitude, longitude = (0.5 * (good.min(axis=0) + good.max(axis=0))).round(7).tolist()
    return latitude, longitude, 0.0


def _lanes(lanelet: Any) -> Iterable[RoadLane]:
    """One lane, or one for each direction of a lanelet that allows both."""
    tags = lanelet.attributes
    kind = tags["subtype"] if "subtype" in tags else ""  # noqa: SIM401 - the library's mapping has no get
    if kind not in _FOR_CARS or len(lanelet.leftBound) < 2 or len(lanelet.rightBound) < 2:
        return
    left, right = (np.array([(p.x, p.y, p.z) for p in line]) for line in (lanelet.leftBound, lanelet.rightBound))
    count = max(2, int(max(_length(left), _length(right)) / SPACING_M) + 2)
    left, right = _resampled(left, count), _resampled(right, count)
    speed = _speed(tags["speed_limit"]) if "speed_limit" in tags else None
    yield RoadLane(str(lanelet.id), left, right, (), speed)
    if "one_way" in tags and tags["one_way"] == "no":
        yield RoadLane(f"{lanelet.id}.back", right[::-1], left[::-1], (), speed)


def _length(points: Floats) -> float:
    return float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())


def _resampled(points: Floats, count: int) -> Floats:
    """Evenly spaced along the line; borders of a lanelet have different numbers of points."""
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    at = np.concatenate([[0.0], np.cumsum(steps)])
    wanted = np.linspace(0.0, at[-1], count)
    return np.stack([np.interp(wanted, at, points[:, axis]) for axis in range(3)], axis=1)


def _speed(text: str) -> float | None:
    """Lanelet2 writes km/h unless there is a unit."""
    words = text.replace("km/h", " km/h").replace("mph", " mph").split()
    try:
        value = float(words[0])
    except (IndexError, ValueError):
        return None
    return value * (0.44704 if "mph" in words else 1.0 if "m/s" in words else 1.0 / 3.6)


def write_lanelet2(roads: RoadMap, file: Path) -> None:
    """Lanes that follow each other share the points where they meet, which is how Lanelet2 says so."""
    library = _library()
    if roads.origin is None:
        raise UsageError("a Lanelet2 map needs latitude and longitude, and the place of this world on Earth is unknown")
    core, corners = library.core, {}

    def point(place: Floats) -> Any:
        key = tuple(place.round(2).tolist())
        if key not in corners:
            corners[key] = core.Point3d(core.getId(), *place.tolist())
        return corners[key]

    lanelets = []
    for lane in roads.lanes.values():
        borders = []
        for line in (lane.left, lane.right):
            inner = [core.Point3d(core.getId(), *place.tolist()) for place in line[1:-1]]
            borders.append(core.LineString3d(core.getId(), [point(line[0]), *inner, point(line[-1])]))
        lanelet = core.Lanelet(core.getId(), *borders)
        tags = {"subtype": "road", "location": "urban", "one_way": "yes", "participant:vehicle": "yes"}
        if lane.speed_m_per_s is not None:
            tags["speed_limit"] = f"{lane.speed_m_per_s * 3.6:g} km/h"
        for name, value in tags.items():
            lanelet.attributes[name] = value
        lanelets.append(lanelet)
    made = core.createMapFromLanelets(lanelets)
    projector = library.projection.LocalCartesianProjector(library.io.Origin(*roads.origin))
    problems = library.io.writeRobust(str(file), made, projector)
    if problems:
        raise UsageError(f"{file}: {problems[0]}")
