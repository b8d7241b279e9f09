"""Lanes of a road map: where they are, which one follows which, and the shortest way along them."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.errors import UsageError, show

Floats: TypeAlias = npt.NDArray[np.float64]

LANES_FILE = "geometry/lanes.geojson"
MAX_LANES = 200_000
MAX_POINTS = 5_000_000
_JOINT_M = 0.4  # one lane ends where the next begins
_JOINT_TURN = math.cos(math.radians(30.0))
_NEAR_M = 10.0  # places farther from every lane are not on the map


@dataclass(frozen=True)
class RoadLane:
    """A lane in its direction of travel; borders have as many points as each other, [m] in the map frame."""

    id: str
    left: Floats  # (n, 3)
    right: Floats  # (n, 3)
    next: tuple[str, ...] = ()
    speed_m_per_s: float | None = None

    @property
    def centre(self) -> Floats:
        return 0.5 * (self.left + self.right)

    @property
    def length_m(self) -> float:
        return float(np.linalg.norm(np.diff(self.centre, axis=0), axis=1).sum())

    @property
    def outline(self) -> Floats:
        """Its edge as a closed ring (n, 2)."""
        ring = np.concatenate([self.right, self.left[::-1], self.right[:1]])
        return ring[:, :2]


@dataclass(frozen=True)
class RoadMap:
    """Lanes by id; `origin`: WGS 84 of the map frame, if the file says."""

    lanes: Mapping[str, RoadLane]
    origin: tuple[float, float, float] | None = None

    def polygons(self) -> list[tuple[list[Floats], int]]:
        """What can be driven on: all lanes together, with holes where there are none."""
        import shapely
        from shapely.geometry.polygon import orient

        outlines = [shapely.make_valid(shapely.Polygon(lane.outline)) for lane in self.lanes.values()]
        area = shapely.union_all(outlines, grid_size=0.001).buffer(0.02, join_style="mitre").buffer(-0.02)
        area = shapely.set_precision(area, 0.001)  # rounding corners by themselves can make edges cross
        parts = [part for part in shapely.get_parts(area) if part.geom_type == "Polygon" and part.area > 0.5]
        found = []
        for part in map(orient, parts):
            holes = [ring for ring in part.interiors if shapely.Polygon(ring).area > 0.05]
            found.append(([np.round(np.array(ring.coords)[:, :2], 3) for ring in (part.exterior, *holes)], 0))
        return found

    def route(self, start: tuple[float, float], goal: tuple[float, float]) -> tuple[list[str], Floats]:
        """The shortest way along lanes: their ids, and points (n, 2) from the one place to the other."""
        (first, at), (last, to) = self._nearest(start), self._nearest(goal)
        if first == last and at <= to:
            return [first], self.lanes[first].centre[at : to + 1, :2]
        lanes = self._shortest(first, last)
        if lanes is None:
            raise UsageError(f"no route along the lanes leads from {_words(start)} to {_words(goal)}")
        parts = [self.lanes[first].centre[at:], *(self.lanes[lane].centre for lane in lanes[1:-1])]
        parts.append(self.lanes[last].centre[: to + 1])
        return lanes, _without_repeats(np.concatenate(parts)[:, :2])

    def _nearest(self, place: tuple[float, float]) -> tuple[str, int]:
        """The lane and the number of its point nearest to a place."""
        best, found = math.inf, ("", 0)
        for lane in self.lanes.values():
            distances = np.hypot(lane.centre[:, 0] - place[0], lane.centre[:, 1] - place[1])
            index = int(np.argmin(distances))
            if distances[index] < best:
                best, found = float(distances[index]), (lane.id, index)
        if best > _NEAR_M:
            raise UsageError(f"{_words(place)} is {best:.0f} m from the nearest lane")
        return found

    def _shortest(self, first: str, last: str) -> list[str] | None:
        """From the end of one lane to another, which may be the same lane once around."""
        waiting: list[tuple[float, int, tuple[str, ...]]] = [
            (0.0, index, (first, each)) for index, each in enumerate(self.lanes[first].next)
        ]
        heapq.heapify(waiting)
        done, count = set(), len(waiting)
        while waiting:
            cost, _, way = heapq.heappop(waiting)
            lane = way[-1]
            if lane == last:
                return list(way)
            if lane in done:
                continue
            done.add(lane)
            for each in self.lanes[lane].next:
                count += 1
                heapq.heappush(waiting, (cost + self.lanes[lane].length_m, count, (*way, each)))
        return None


def joined(lanes: Iterable[RoadLane], origin: tuple[float, float, float] | None) -> RoadMap:
    """A map whose lanes follow each other where one ends as another begins: same place, same direction."""
    by_id = {lane.id: lane for lane in lanes}
    if not by_id:
        raise UsageError("it has no lanes for cars")
    if len(by_id) > MAX_LANES or sum(len(lane.left) for lane in by_id.values()) > MAX_POINTS:
        raise UsageError(f"expected at most {MAX_LANES:,} lanes with {MAX_POINTS:,} points in all")
    begins: dict[tuple[int, int], list[str]] = {}
    for lane in by_id.values():
        begins.setdefault(_cell(lane.centre[0]), []).append(lane.id)
    followed = {lane.id: replace(lane, next=tuple(_followers(lane, by_id, begins))) for lane in by_id.values()}
    return RoadMap(followed, origin)


def _followers(lane: RoadLane, lanes: Mapping[str, RoadLane], begins: Mapping[tuple[int, int], list[str]]) -> list[str]:
    end, direction = lane.centre[-1], _direction(lane.centre[-2:])
    i, j = _cell(end)
    near = [name for x in (i - 1, i, i + 1) for y in (j - 1, j, j + 1) for name in begins.get((x, y), ())]
    return sorted(
        name
        for name in near
        if name != lane.id
        and float(np.linalg.norm(lanes[name].centre[0] - end)) < _JOINT_M
        and float(_direction(lanes[name].centre[:2]) @ direction) > _JOINT_TURN
    )


def _cell(point: Floats) -> tuple[int, int]:
    return math.floor(float(point[0])), math.floor(float(point[1]))


def _direction(points: Floats) -> Floats:
    step: Floats = points[1] - points[0]
    return step / max(float(np.linalg.norm(step)), 1e-9)


def _without_repeats(points: Floats) -> Floats:
    keep = np.concatenate([[True], np.linalg.norm(np.diff(points, axis=0), axis=1) > 0.05])
    return points[keep]


def _words(place: Sequence[float]) -> str:
    return f"x {place[0]:g}, y {place[1]:g}"


# ---- lanes.geojson ---------------------------------------------------------------------------------------------------


def moved_lanes(roads: RoadMap, move: Callable[[Floats], Floats]) -> RoadMap:
    """The same lanes with their points (n, 3) elsewhere."""
    moved = {name: replace(lane, left=move(lane.left), right=move(lane.right)) for name, lane in roads.lanes.items()}
    return replace(roads, lanes=moved)


def lanes_text(roads: RoadMap) -> str:
    """The file of a bundle that keeps lanes: centre lines, with their borders and followers."""
    features = []
    for lane in roads.lanes.values():
        about: dict[str, Any] = {"type": "lane", "id": lane.id, "next": list(lane.next)}
        about |= {"left": lane.left.round(3).tolist(), "right": lane.right.round(3).tolist()}
        if lane.speed_m_per_s is not None:
            about["speed_limit_m_per_s"] = round(lane.speed_m_per_s, 4)
        line = {"type": "LineString", "coordinates": lane.centre.round(3).tolist()}
        features.append(json.dumps({"type": "Feature", "properties": about, "geometry": line}))
    return '{"type": "FeatureCollection", "features": [\n' + ",\n".join(features) + "\n]}\n"


def read_lanes(file: Path) -> RoadMap:
    """Raises UsageError when the file is not one of `lanes_text`."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        lanes = [_lane(feature["properties"]) for feature in data["features"]]
    except FileNotFoundError:
        raise UsageError(f"{file}: this bundle has no lanes; `microsim bundle from-roads` makes them") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{file}: expected lanes as `microsim bundle from-roads` writes them: {show(str(error))}"
        ) from None
    by_id = {lane.id: lane for lane in lanes}
    missing = next((name for lane in lanes for name in lane.next if name not in by_id), None)
    if missing is not None or not lanes:
        raise UsageError(f"{file}: a lane has {show(missing)} as `next`, which does not exist")
    return RoadMap(by_id)


def _lane(about: Mapping[str, Any]) -> RoadLane:
    left, right = (np.array(about[side], np.float64) for side in ("left", "right"))
    if (
        left.ndim != 2
        or left.shape[1] != 3
        or left.shape != right.shape
        or len(left) < 2
        or not np.isfinite(left).all()
    ):
        raise ValueError("expected borders of as many points as each other")
    speed = about.get("speed_limit_m_per_s")
    return RoadLane(
        str(about["id"]), left, right, tuple(map(str, about["next"])), None if speed is None else float(speed)
    )
