"""Occupancy grids with an origin anywhere in the map frame, turned as one likes: what rays walk on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.documents.values import MAX_LENGTH_M
from microsim.engine import exact
from microsim.engine.geometry import Array, Grid, clearance_of, yaw_of_quaternion
from microsim.errors import UsageError
from microsim.scenario import load_scenario
from microsim.scenario.scene import build_world

OCCUPIED = 100  # of nav_msgs/OccupancyGrid
UNKNOWN = -1
DEFAULT_THRESHOLD = 65


@dataclass(frozen=True)
class GridMap:
    """Immutable. Row 0 lies along the origin's x axis, column 0 along its y axis."""

    cell_m: float
    origin: tuple[float, float, float]  # [m] [m] [rad] map frame: pose of the corner of cell (0, 0)
    occupied: Grid  # (rows, columns) 0 free, 1 occupied
    clearance: Grid = field(init=False)
    frame: Array = field(init=False)  # x, y, sin, cos of the origin, as kernels take it

    def __post_init__(self) -> None:
        x, y, yaw = self.origin
        occupied = np.ascontiguousarray(self.occupied, np.uint8)
        object.__setattr__(self, "occupied", occupied)
        object.__setattr__(self, "clearance", clearance_of(occupied))
        object.__setattr__(self, "frame", np.array((x, y, exact.sin(yaw), exact.cos(yaw))))

    def is_occupied(self, x: float, y: float) -> bool:
        """At a point of the map frame; beyond the grid nothing is."""
        east, north = x - self.frame[0], y - self.frame[1]
        sine, cosine = self.frame[2], self.frame[3]
        u, v = (cosine * east + sine * north) / self.cell_m, (cosine * north - sine * east) / self.cell_m
        rows, columns = self.occupied.shape
        return 0.0 <= u < columns and 0.0 <= v < rows and bool(self.occupied[int(v), int(u)])


def grid_of_values(
    values: npt.NDArray[np.int8], cell_m: float, origin: tuple[float, float, float], threshold: int
) -> GridMap:
    """From occupancies (rows, columns) of 0 to 100 and -1. What is unknown is no obstacle."""
    return GridMap(cell_m, origin, (values >= threshold).astype(np.uint8))


def grid_of_message(message: Any, threshold: int = DEFAULT_THRESHOLD) -> GridMap:
    """From a nav_msgs/OccupancyGrid; UsageError when it makes no sense."""
    info, place, turn = message.info, message.info.origin.position, message.info.origin.orientation
    rows, columns, cell_m = int(info.height), int(info.width), _metres(info.resolution)
    if not rows or not columns or rows * columns != len(message.data):
        raise UsageError(f"a map of {columns} by {rows} cells comes with {len(message.data)} values")
    if not (math.isfinite(cell_m) and 0.0 < cell_m <= MAX_LENGTH_M):
        raise UsageError(f"a map's cells cannot be {cell_m:g} m wide")
    pose = (float(place.x), float(place.y), heading(turn))
    if not all(math.isfinite(value) and abs(value) <= MAX_LENGTH_M for value in pose):
        raise UsageError(f"a map's origin cannot be at {pose}")
    return grid_of_values(np.asarray(message.data, np.int8).reshape(rows, columns), cell_m, pose, threshold)


def grid_of_scenario(source: str) -> GridMap:
    """The occupied cells of a scenario: a shipped one's name, or a file."""
    world = build_world(load_scenario(source))
    return GridMap(world.cell_m, (world.west, world.south, 0.0), world.occupied)


def heading(quaternion: Any) -> float:
    """Yaw of an orientation; one that was not filled in (all zeros) looks along x. A NaN gives NaN."""
    x, y, z, w = (float(getattr(quaternion, name)) for name in "xyzw")
    length = x * x + y * y + z * z + w * w
    return yaw_of_quaternion(x, y, z, w) if length >= 1e-6 else 0.0 if length < 1e-6 else math.nan


def _metres(single: Any) -> float:
    """float32 as a person wrote it: 0.05, not its neighbour 0.0500000007."""
    return float(str(np.float32(single)))
