"""`drivable.geojson`: polygons of the map frame, with holes and priorities, that a car may drive on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field

from microsim.bundle.bundle_model import BundleBlock, breaks
from microsim.bundle.rules import BundleFile
from microsim.documents.values import MAX_LENGTH_M, Finite
from microsim.errors import show

if TYPE_CHECKING:
    from microsim.documents.yaml_text import Path
    from microsim.engine.drivable import DrivableArea

Ring = npt.NDArray[np.float64]  # (n, 2) [m], first and last point the same

MAX_POLYGONS = 100_000
MAX_POINTS = 2_000_000
MAX_PRIORITY = 2**53


class DrivableProperties(BundleBlock):
    """Of a feature; those of other programs are ignored."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["drivable"] = Field(json_schema_extra=breaks("drivable-type", 'write "type": "drivable"'))
    priority: Annotated[Finite, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = Field(
        0.0, json_schema_extra=breaks("drivable-priority")
    )


def read_drivable(source: BundleFile) -> DrivableArea | None:
    """The area, indexed for queries; None and problems if any polygon cannot be used."""
    from microsim.engine.drivable import drivable_area

    assert source.document is not None
    before = source.report.error_count
    polygons: list[list[Ring]] = []
    priorities: list[float] = []
    for index, feature in enumerate(_features(source, source.document.data)):
        path: Path = ("features", index)
        found = _polygons(source, path, feature)
        if isinstance(feature, dict):
            written = feature.get("properties")
            given = written if isinstance(written, dict) else {}
            properties = source.read_block(DrivableProperties, given, (*path, "properties"))
            priorities += [properties.priority if properties is not None else 0.0] * len(found)
        polygons += found
    if source.report.error_count > before:
        return None
    if not polygons:
        message = "there are no polygons: the whole world is off-road"
        source.problem("drivable-empty", message, ("features",), "draw the roads")
    return drivable_area(polygons, priorities)


def _features(source: BundleFile, data: Any) -> list[Any]:
    _check_frame(source, data.get("crs"))
    features = data.get("features")
    if data.get("type") != "FeatureCollection":
        message = f"expected the type FeatureCollection, found {show(data.get('type'))}"
        source.problem("drivable-structure", message, ("type",))
    elif not isinstance(features, list) or len(features) > MAX_POLYGONS:
        message = f"expected a list of at most {MAX_POLYGONS:,} features, found {show(features)}"
        source.problem("drivable-structure", message, ("features",))
    else:
        return features
    return []


def _check_frame(source: BundleFile, crs: Any) -> None:
    if crs is None:  # an old member of GeoJSON that many writers leave out
        return
    properties = crs.get("properties") if isinstance(crs, dict) else None
    name = properties.get("name") if isinstance(properties, dict) else None
    if name != "map_frame":
        message = f"expected coordinates of the frame 'map_frame', found {show(name if name is not None else crs)}"
        source.problem("drivable-frame", message, ("crs",), "write the points in metres in the map frame")


def _polygons(source: BundleFile, path: Path, feature: Any) -> list[list[Ring]]:
    if not isinstance(feature, dict) or feature.get("type") != "Feature":
        source.problem("drivable-structure", f"expected a Feature, found {show(feature)}", path)
        return []
    geometry = feature.get("geometry")
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    path = (*path, "geometry")
    if not isinstance(geometry, dict) or kind not in ("Polygon", "MultiPolygon"):
        found = show(kind if kind is not None else geometry)
        source.problem("drivable-structure", f"expected a Polygon or MultiPolygon, found {found}", path)
        return []
    coordinates = geometry.get("coordinates")
    path = (*path, "coordinates")
    if kind == "Polygon":
        return [rings] if (rings := _polygon(source, path, coordinates)) else []
    if not isinstance(coordinates, list) or not coordinates:
        source.problem("drivable-structure", f"expected a list of polygons, found {show(coordinates)}", path)
        return []
    each = [_polygon(source, (*path, index), item) for index, item in enumerate(coordinates)]
    return [rings for rings in each if rings]


def _polygon(source: BundleFile, path: Path, coordinates: Any) -> list[Ring]:
    """Its rings, the outer one first; empty when any of them breaks a rule."""
    if not isinstance(coordinates, list) or not coordinates:
        source.problem("drivable-structure", f"expected a list of rings, found {show(coordinates)}", path)
        return []
    rings = [_ring(source, (*path, index), item, index > 0) for index, item in enumerate(coordinates)]
    good = [ring for ring in rings if ring is not None]
    if len(good) < len(rings) or not _is_simple(source, path, good):
        return []
    return good


def _ring(source: BundleFile, path: Path, points: Any, is_hole: bool) -> Ring | None:
    if not isinstance(points, list) or not 4 <= len(points) <= MAX_POINTS:
        message = f"expected a ring of 4 to {MAX_POINTS:,} points, found {show(points)}"
        source.problem("drivable-structure", message, path)
        return None
    for index, point in enumerate(points):
        if not _is_point(point):
            message = f"expected a point [x, y] in metres, found {show(point)}"
            source.problem("drivable-structure", message, (*path, index))
            return None
    ring = np.array([(point[0], point[1]) for point in points], np.float64)
    if points[0][:2] != points[-1][:2]:
        message = f"the ring begins at {show(points[0])} and ends at {show(points[-1])}"
        source.problem("ring-closed", message, path, "repeat the first point at the end")
        return None
    clockwise = signed_area(ring) < 0.0
    if clockwise != is_hole:
        what, way = ("a hole", "clockwise") if is_hole else ("an outer ring", "counter-clockwise")
        source.problem("ring-orientation", f"expected {what} to run {way}", path, "reverse the order of its points")
        return None
    return ring


def _is_point(point: Any) -> bool:
    return (
        isinstance(point, list)
        and 2 <= len(point) <= 4
        and all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in point)
        and all(abs(each) <= MAX_LENGTH_M for each in point[:2])
    )


def signed_area(ring: Ring) -> float:
    """Positive when it runs counter-clockwise."""
    x, y = ring[:, 0] - ring[0, 0], ring[:, 1] - ring[0, 1]
    return 0.5 * math.fsum(x[:-1] * y[1:] - x[1:] * y[:-1])


def _is_simple(source: BundleFile, path: Path, rings: list[Ring]) -> bool:
    reason = crossing_of(rings)
    if reason:
        source.problem("ring-simple", f"not a simple polygon: {reason}", path, "draw it without crossings")
    return not reason


def crossing_of(rings: Sequence[Ring]) -> str:
    """Why these rings, the outer one first, are not a simple polygon; empty if they are one."""
    import shapely

    try:
        reason = str(shapely.is_valid_reason(shapely.Polygon(rings[0], rings[1:])))
    except (shapely.errors.ShapelyError, ValueError) as error:
        return str(error)
    return "" if reason == "Valid Geometry" else reason


def rings_of(area: DrivableArea) -> list[list[Ring]]:
    """Of each polygon, the outer one first: they follow each other in `edges`; outer ones turn left, holes right."""
    polygons: list[list[Ring]] = []
    corners: list[list[float]] = []
    for x0, y0, x1, y1 in area.edges.tolist():
        corners.append([x0, y0])
        if [x1, y1] == corners[0]:
            ring = np.array([*corners, corners[0]])
            if signed_area(ring) > 0.0:
                polygons.append([])
            polygons[-1].append(ring)
            corners = []
    return polygons


def covered_area_m2(area: DrivableArea) -> float:
    """Of the union of all polygons."""
    import shapely

    polygons = rings_of(area)
    return float(shapely.union_all([shapely.Polygon(rings[0], rings[1:]) for rings in polygons]).area)
