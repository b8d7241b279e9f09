"""RViz profiles whose grid and views fit a scenario: its map, and where its robots start."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from microsim.documents.yaml_text import read_yaml, to_yaml
from microsim.scenario import Scenario, load_scenario
from microsim.scenario.bundles import bundle_of

_CELLS_M = (0.5, 1, 2, 5, 10, 20, 50, 100)
_MOST_CELLS = 24
_SEEN = math.sin(math.radians(0.8 * 45.0 / 2.0))  # RViz sees 45° from bottom to top
_WINDOW_PX = 700


def fitted(profile: Path, scenario: str) -> str:
    """The text of a profile for a shipped scenario, a file or a world bundle."""
    data = read_yaml(profile.read_text(encoding="utf-8"), str(profile)).data
    loaded, manager = load_scenario(scenario), data["Visualization Manager"]
    extent = _extent(loaded)
    for display in manager["Displays"]:
        if display["Class"].endswith("/Grid"):
            _fit_grid(display, *extent)
    for view in (manager["Views"]["Current"], *manager["Views"]["Saved"]):
        if view["Target Frame"] == "<Fixed Frame>":
            _fit_view(view, loaded, *extent)
    return to_yaml(data, one_line=False)


def _extent(scenario: Scenario) -> tuple[float, float, float, float]:
    """West and south end of the map, and its width and height."""
    if scenario.world is None:
        return (*scenario.map.corner_xy_m, *scenario.map.size_xy_m)
    grid = bundle_of(scenario.world).heightmap
    rows, columns = grid.values.shape
    return grid.west, grid.south, columns * grid.resolution_m, rows * grid.resolution_m


def _fit_grid(grid: dict[str, Any], west: float, south: float, width: float, height: float) -> None:
    """It is a square: its south-west corner is that of the map."""
    longest = max(width, height)
    cell = next((cell for cell in _CELLS_M if longest <= _MOST_CELLS * cell), _CELLS_M[-1])
    count = math.ceil(longest / cell)
    grid["Cell Size"], grid["Plane Cell Count"] = cell, count
    grid["Offset"] = {"X": west + 0.5 * cell * count, "Y": south + 0.5 * cell * count, "Z": 0}


def _fit_view(view: dict[str, Any], scenario: Scenario, west: float, south: float, width: float, height: float) -> None:
    longest, center = max(width, height), (west + 0.5 * width, south + 0.5 * height, 0.0)
    if view["Class"].endswith("/TopDownOrtho"):
        view["X"], view["Y"], view["Scale"] = center[0], center[1], _WINDOW_PX / longest
        return
    radius = 0.5 * longest
    if view["Name"] != "The whole map" and scenario.robots:
        starts = [each.start.map_pose for each in scenario.robots.values()]
        places = [(pose.x, pose.y, pose.z or 0.0) for pose in starts]
        center = tuple(0.5 * (min(axis) + max(axis)) for axis in zip(*places, strict=True))
        radius = max(2.0, *(math.dist(center, place) for place in places))
    view["Focal Point"] = dict(zip("XYZ", center, strict=True))
    view["Distance"] = radius / _SEEN
