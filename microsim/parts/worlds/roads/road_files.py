"""Files of road maps, read and written: OpenDRIVE (ASAM, 1.4 to 1.8), and Lanelet2 by its library (extra `[roads]`).

Of OpenDRIVE lines, arcs, spirals and (parametric) cubics, elevation, lane offsets and widths are read, sampled along
the reference lines. Not read: superelevation, signals, objects, and links (lanes follow each other where their ends
meet).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree.ElementTree import Element, ParseError, XMLParser, iterparse, parse

import numpy as np
import numpy.typing as npt

from microsim.bundle.road_map import RoadLane, RoadMap, joined
from microsim.engine.geodesy import tangent_plane, wgs84_from_enu
from microsim.errors import MissingExtraError, UsageError, install_hint, os_errors, show

Floats: TypeAlias = npt.NDArray[np.float64]

MAX_BYTES = 500_000_000
STEP_M = 1.0  # between samples, less in curves
_LARGEST_TURN = 0.05  # [rad] between samples
_GAUSS_AT, _GAUSS_WEIGHT = np.polynomial.legendre.leggauss(5)
_DRIVING = {"driving", "entry", "exit", "onRamp", "offRamp", "connectingRamp", "bidirectional"}
_UNITS = {"m/s": 1.0, "mph": 0.44704, "km/h": 1.0 / 3.6}


def _road_map(file: Path, lanes: list[RoadLane], origin: tuple[float, float, float] | None) -> RoadMap:
    try:
        return joined(lanes, origin)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None


@contextmanager
def _checked_xml(file: Path) -> Iterator[None]:
    """Meanwhile it is parsed: what is wrong with it is a UsageError."""
    with os_errors(f"{file} cannot be read"):
        if file.stat().st_size > MAX_BYTES:
            raise UsageError(f"{file}: expected at most {MAX_BYTES:,} bytes")
        if b"<!DOCTYPE" in file.read_bytes()[:4096]:  # entities could grow without bound
            raise UsageError(f"{file}: expected no document type declaration")
        try:
            yield
        except ParseError as error:
            raise UsageError(f"{file}:{error.position[0]}: not XML: {error.msg}") from None


# ---- OpenDRIVE -------------------------------------------------------------------------------------------------------


def read_opendrive(file: Path) -> RoadMap:
    root = _parsed(file)
    lanes = [lane for road in root.iter("road") for lane in _Road(file, road).lanes()]
    return _road_map(file, lanes, _origin(root))


def _parsed(file: Path) -> Element:
    with _checked_xml(file):
        root = parse(file, XMLParser()).getroot()
    if root.tag != "OpenDRIVE":
        raise UsageError(f"{file}: expected the element OpenDRIVE, found {show(root.tag)}")
    return root


def _origin(root: Element) -> tuple[float, float, float] | None:
    """Of a transverse Mercator projection about a place: that place is where the map's axes are."""
    text = root.findtext("header/geoReference") or ""
    found = {name: float(value) for name, value in re.findall(r"\+(\w+)=(-?[\d.]+(?:[eE][-+]?\d+)?)", text)}
    if "tmerc" not in text or "lat_0" not in found or "lon_0" not in found or found.get("x_0") or found.get("y_0"):
        return None
    inside = abs(found["lat_0"]) <= 90.0 and abs(found["lon_0"]) <= 180.0
    return (found["lat_0"], found["lon_0"], 0.0) if inside else None


class _Road:
    def __init__(self, file: Path, road: Element) -> None:
        self.file, self.road = file, road
        self.name = road.get("id", "?")
        self.length = self._number(road, "length")
        self.left_hand = road.get("rule") == "LHT"
        speed = road.find("type/speed")
        self.speed = None if speed is None else self._speed(speed)
        self.pieces = sorted(road.iterfind("planView/geometry"), key=lambda piece: self._number(piece, "s"))
        if not self.pieces:
            raise UsageError(f"{file}: road {show(self.name)} has no geometry")

    def lanes(self) -> Iterator[RoadLane]:
        sections = sorted(self.road.iterfind("lanes/laneSection"), key=lambda section: self._number(section, "s"))
        for index, section in enumerate(sections):
            first = self._number(section, "s")
            last = self._number(sections[index + 1], "s") if index + 1 < len(sections) else self.length
            if last - first > 0.01:
                yield from self._section(section, index, first, last)

    def _section(self, section: Element, index: int, first: float, last: float) -> Iterator[RoadLane]:
        along = self._samples(first, last)
        line, heading = self._reference(along)
        offset = self._cubic(self.road.findall("lanes/laneOffset"), along, "s")
        height = self._cubic(self.road.findall("elevationProfile/elevation"), along, "s")
        for side, sign in (("left", 1.0), ("right", -1.0)):
            inner = offset.copy()
            for lane in sorted(section.iterfind(f"{side}/lane"), key=lambda lane: abs(int(self._number(lane, "id")))):
                outer = self._outer(lane, along - first, inner, offset, sign)
                if lane.get("type") in _DRIVING and float(np.abs(outer - inner).max()) > 0.5:
                    yield self._lane(lane, index, line, heading, height, inner, outer, sign)
                inner = outer

    def _outer(self, lane: Element, along: Floats, inner: Floats, offset: Floats, sign: float) -> Floats:
        borders = lane.findall("border")
        if borders:
            return offset + sign * np.abs(self._cubic(borders, along, "sOffset"))
        return inner + sign * np.maximum(0.0, self._cubic(lane.findall("width"), along, "sOffset"))

    def _lane(
        self,
        lane: Element,
        index: int,
        line: Floats,
        heading: Floats,
        height: Floats,
        inner: Floats,
        outer: Floats,
        sign: float,
    ) -> RoadLane:
        sideways = np.stack([-np.sin(heading), np.cos(heading)], axis=1)
        edges = [np.column_stack([line + t[:, None] * sideways, height]) for t in (inner, outer)]
        along = (sign < 0.0) != self.left_hand  # right lanes run along the road where people drive on the right
        left, right = (edges[0], edges[1]) if sign < 0.0 else (edges[1], edges[0])
        if not along:
            left, right = right[::-1], left[::-1]
        speed = lane.find("speed")
        limit = self.speed if speed is None else self._speed(speed, "max")
        return RoadLane(f"{self.name}.{index}.{lane.get('id')}", left, right, (), limit)

    # ---- along the reference line ----------------------------------------------------------------------------

    def _samples(self, first: float, last: float) -> Floats:
        """Close enough that curves stay curves; every piece of the line begins at one."""
        parts = [np.array([first])]
        edges = [self._number(piece, "s") for piece in self.pieces]
        stops = sorted({first, last, *(edge for edge in edges if first < edge < last)})
        for low, high in pairwise(stops):
            piece = self.pieces[max(0, int(np.searchsorted(edges, low + 1e-6, "right")) - 1)]
            turn = self._curvature(piece) * (high - low)
            count = max(1, math.ceil((high - low) / STEP_M), math.ceil(turn / _LARGEST_TURN))
            if count > 100_000:
                raise UsageError(f"{self.file}: road {show(self.name)} is too long or too curved to be sampled")
            parts.append(np.linspace(low, high, count + 1)[1:])
        return np.concatenate(parts)

    def _curvature(self, piece: Element) -> float:
        """The largest, of arcs and spirals; cubics are sampled more densely throughout."""
        shape = piece[0] if len(piece) else piece
        names = {"arc": ("curvature",), "spiral": ("curvStart", "curvEnd")}.get(shape.tag, ())
        cubic = 0.2 if "oly3" in shape.tag else 0.0
        return max([cubic, *(abs(self._number(shape, name)) for name in names)])

    def _reference(self, along: Floats) -> tuple[Floats, Floats]:
        """Points (n, 2) and headings of the reference line."""
        begins = np.array([self._number(piece, "s") for piece in self.pieces])
        which = np.clip(np.searchsorted(begins, along + 1e-9, "right") - 1, 0, None)
        line, heading = np.empty((len(along), 2)), np.empty(len(along))
        for index in np.unique(which).tolist():
            chosen, piece = which == index, self.pieces[index]
            u, v, turn = self._shape(piece, along[chosen] - begins[index])
            x, y, angle = (self._number(piece, name) for name in ("x", "y", "hdg"))
            sin, cos = math.sin(angle), math.cos(angle)
            line[chosen] = np.stack([x + cos * u - sin * v, y + sin * u + cos * v], axis=1)
            heading[chosen] = angle + turn
        return line, heading

    def _shape(self, piece: Element, s: Floats) -> tuple[Floats, Floats, Floats]:
        """Forward, left and heading in the piece's own frame."""
        shape = piece[0] if len(piece) else piece
        if shape.tag == "line":
            return s, np.zeros_like(s), np.zeros_like(s)
        if shape.tag in ("arc", "spiral"):
            names = ("curvature", "curvature") if shape.tag == "arc" else ("curvStart", "curvEnd")
            start, end = (self._number(shape, name) for name in names)
            return _clothoid(start, (end - start) / max(self._number(piece, "length"), 1e-9), s)
        if shape.tag == "poly3":
            a, b, c, d = (self._number(shape, name) for name in "abcd")
            return s, a + s * (b + s * (c + s * d)), np.arctan(b + s * (2 * c + 3 * d * s))
        if shape.tag == "paramPoly3":
            scale = 1.0 if shape.get("pRange") == "arcLength" else 1.0 / max(self._number(piece, "length"), 1e-9)
            p = s * scale
            (u, du), (v, dv) = (self._parametric(shape, axis, p) for axis in "UV")
            return u, v, np.arctan2(dv, du)
        raise UsageError(
            f"{self.file}: road {show(self.name)}: expected a line, arc, spiral or cubic, found {show(shape.tag)}"
        )

    def _parametric(self, shape: Element, axis: str, p: Floats) -> tuple[Floats, Floats]:
        a, b, c, d = (self._number(shape, f"{name}{axis}") for name in "abcd")
        return a + p * (b + p * (c + p * d)), b + p * (2 * c + 3 * d * p)

    def _cubic(self, entries: list[Element], along: Floats, key: str) -> Floats:
        """Pieces of a + b·ds + c·ds² + d·ds³, each from its own place on; 0 before the first."""
        out = np.zeros(len(along))
        for entry in sorted(entries, key=lambda entry: self._number(entry, key)):
            begin = self._number(entry, key)
            a, b, c, d = (self._number(entry, name) for name in "abcd")
            ds = along - begin
            out = np.where(ds >= -1e-9, a + ds * (b + ds * (c + ds * d)), out)
        return out

    def _speed(self, speed: Element, name: str = "max") -> float | None:
        try:
            return float(speed.get(name, "")) * _UNITS.get(speed.get("unit", "m/s"), 1.0)
        except ValueError:  # "no limit", "undefined"
            return None

    def _number(self, element: Element, name: str) -> float:
        text = element.get(name)
        try:
            value = float(text or "")
        except ValueError:
            value = math.nan
        if not abs(value) <= 1e7:
            expected = f"expected a number as '{name}' of <{element.tag}>"
            raise UsageError(f"{self.file}: road {show(getattr(self, 'name', '?'))}: {expected}, found {show(text)}")
        return value


def _clothoid(curvature: float, rate: float, s: Floats) -> tuple[Floats, Floats, Floats]:
    """A line whose curvature grows steadily (an arc, if the rate is 0), integrated between samples by Gauss's rule."""
    ends = np.concatenate([[0.0], s])
    half, middle = 0.5 * np.diff(ends), 0.5 * (ends[1:] + ends[:-1])
    at = middle[:, None] + half[:, None] * _GAUSS_AT
    turn = at * (curvature + 0.5 * rate * at)
    x = np.cumsum((half[:, None] * np.cos(turn) * _GAUSS_WEIGHT).sum(axis=1))
    y = np.cumsum((half[:, None] * np.sin(turn) * _GAUSS_WEIGHT).sum(axis=1))
    return x, y, s * (curvature + 0.5 * rate * s)


# ---- writing ---------------------------------------------------------------------------------------------------------


def opendrive_text(roads: RoadMap, name: str) -> str:
    """Every lane as a road of its own with one lane: the same area, lanes and directions, of straight pieces."""
    numbers = {lane: index + 1 for index, lane in enumerate(roads.lanes)}
    body = [_road_text(lane, numbers[lane.id]) for lane in roads.lanes.values()]
    place = ""
    if roads.origin is not None:
        latitude, longitude, _ = roads.origin
        about = f"+proj=tmerc +lat_0={latitude!r} +lon_0={longitude!r} +k=1 +x_0=0 +y_0=0 +datum=WGS84"
        place = f"<geoReference><![CDATA[{about}]]></geoReference>"
    safe = re.sub(r"[^\w .-]", "_", name)
    head = f'<header revMajor="1" revMinor="6" name="{safe}" version="1.00">{place}</header>'
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', "<OpenDRIVE>", head, *body, "</OpenDRIVE>", ""])


def _road_text(lane: RoadLane, number: int) -> str:
    """The left border is the reference line, so that the lane is the one to its right."""
    steps = np.diff(lane.left[:, :2], axis=0)
    lengths = np.linalg.norm(steps, axis=1)
    keep = lengths > 1e-6
    points, steps, lengths = lane.left[:-1][keep], steps[keep], lengths[keep]
    s = np.concatenate([[0.0], np.cumsum(lengths)[:-1]])
    widths = np.linalg.norm(lane.left - lane.right, axis=1)
    heads = np.arctan2(steps[:, 1], steps[:, 0])
    total = float(lengths.sum())
    geometry, heights, wide = [], [], []
    rows = zip(
        points, lengths, s, heads, np.diff(lane.left[:, 2])[keep], np.diff(widths)[keep], widths[:-1][keep], strict=True
    )
    for (x, y, z), length, at, heading, rise, widening, width in rows:
        begin = f'x="{x:.6f}" y="{y:.6f}" hdg="{heading:.9f}"'
        geometry.append(f'<geometry s="{at:.6f}" {begin} length="{length:.6f}"><line/></geometry>')
        heights.append(f'<elevation s="{at:.6f}" a="{z:.6f}" b="{rise / length:.9f}" c="0" d="0"/>')
        wide.append(f'<width sOffset="{at:.6f}" a="{width:.6f}" b="{widening / length:.9f}" c="0" d="0"/>')
    speed = "" if lane.speed_m_per_s is None else f'<speed max="{lane.speed_m_per_s:.4f}" unit="m/s"/>'
    return "\n".join(
        [
            f'<road id="{number}" length="{total:.6f}" junction="-1"><planView>', *geometry, "</planView>",
            "<elevationProfile>", *heights, "</elevationProfile>",
            '<lanes><laneSection s="0"><center><lane id="0" type="none"/></center><right><lane id="-1" type="driving">',
            *wide, f"{speed}</lane></right></laneSection></lanes></road>",
        ]
    )  # fmt: skip


# ---- Lanelet2 --------------------------------------------------------------------------------------------------------

SPACING_M = 1.0
_LOCAL_ERROR_M, _LOCAL_FAR_M = 1.0, 10_000.0  # a GPS in such a world would err by more
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
    """The map frame is east, north and up of `origin`.

    By default it is that of `local_x` and `local_y`, which Autoware drives by, if every node of a lane has them, and
    otherwise east, north and up of the middle of the map's nodes.
    """
    library = _library()
    place: tuple[float, float, float] | None = origin or _middle(file)
    assert place is not None
    projector = library.projection.LocalCartesianProjector(library.io.Origin(*place))
    try:
        loaded, problems = library.io.loadRobust(str(file), projector)
    except RuntimeError as error:
        raise UsageError(f"{file}: not a Lanelet2 map: {error}") from None
    lanelets = list(loaded.laneletLayer)
    if not lanelets and _has_highways(file):
        plain = "a plain map of OpenStreetMap, whose highways have no borders of lanes"
        raise UsageError(f"{file}: expected a Lanelet2 map, found {plain}")
    if not lanelets:
        raise UsageError(f"{file}: {problems[0] if problems else 'expected a Lanelet2 map: it has no lanelets'}")
    nodes = [node for each in lanelets for line in (each.leftBound, each.rightBound) for node in line]
    is_local = origin is None and all("local_x" in node.attributes and "local_y" in node.attributes for node in nodes)
    if is_local:
        place = _origin_of_local(file, np.array([[*_local(node), node.x, node.y] for node in nodes]), place)
    lanes = [lane for each in lanelets for lane in _lanes(each, _local if is_local else _projected)]
    return _road_map(file, lanes, place)


def _has_highways(file: Path) -> bool:
    with _checked_xml(file):
        return any(element.tag == "tag" and element.get("k") == "highway" for _, element in iterparse(file))


def _projected(node: Any) -> tuple[float, float, float]:
    return node.x, node.y, node.z


def _local(node: Any) -> tuple[float, float, float]:
    """In the frame of the map's own tags; `ele` is its height."""
    tags = node.attributes
    return float(tags["local_x"]), float(tags["local_y"]), float(tags["ele"]) if "ele" in tags else node.z


def _origin_of_local(file: Path, both: Floats, place: tuple[float, float, float]) -> tuple[float, float, float] | None:
    """The place on Earth at x 0, y 0, if x is east and y is north of it; `both`: local x, y, height, then east, north.

    Maps in a grid such as MGRS are turned from north, and may lie far from the grid's corner: None.
    """
    if not (np.abs(both[:, :3]) < 1e6).all():
        raise UsageError(f"{file}: expected 'local_x', 'local_y' and 'ele' between -1,000,000 and 1,000,000")
    off = both[:, :2] - both[:, 3:5]
    east, north = (-off.mean(axis=0)).tolist()
    if float(np.abs(off - off.mean(axis=0)).max()) > _LOCAL_ERROR_M or math.hypot(east, north) > _LOCAL_FAR_M:
        return None
    latitude, longitude, _ = wgs84_from_enu(tangent_plane(*place), east, north, 0.0)
    return latitude, longitude, 0.0


def _middle(file: Path) -> tuple[float, float, float]:
    """Of all nodes: latitude, longitude, and the lowest height as altitude 0."""
    texts = []
    with _checked_xml(file):
        for _, element in iterparse(file):
            if element.tag == "node":
                texts.append((element.get("lat", "nan"), element.get("lon", "nan")))
                element.clear()
    try:
        places = [(float(latitude), float(longitude)) for latitude, longitude in texts]
    except ValueError:
        raise UsageError(f"{file}: expected numbers as 'lat' and 'lon' of every node") from None
    good = np.array([each for each in places if abs(each[0]) <= 90.0 and abs(each[1]) <= 180.0])
    if not len(good):
        raise UsageError(f"{file}: it has no nodes with latitude and longitude")
    latitude, longitude = (0.5 * (good.min(axis=0) + good.max(axis=0))).round(7).tolist()
    return latitude, longitude, 0.0


def _lanes(lanelet: Any, where: Callable[[Any], tuple[float, float, float]]) -> Iterable[RoadLane]:
    """One lane, or one for each direction of a lanelet that allows both."""
    tags = lanelet.attributes
    kind = tags["subtype"] if "subtype" in tags else ""  # noqa: SIM401 - the library's mapping has no get
    if kind not in _FOR_CARS or len(lanelet.leftBound) < 2 or len(lanelet.rightBound) < 2:
        return
    left, right = (np.array([where(node) for node in line]) for line in (lanelet.leftBound, lanelet.rightBound))
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
