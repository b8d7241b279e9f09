"""Worlds from maps: those of map_server (`scenario.map_images`), occupancy grids on a topic, and scenarios.

And moving obstacles: round, upright, scripted or on a random walk. From YAML:

obstacles:
  - {name: forklift, radius: 0.6, path: [[0, 0], [8, 0], [8, 4]], speed: 1.2, repeat: back_and_forth, start_s: 2.0}
  - {name: child, radius: 0.3, walk: {start: [3, 4], speed: 0.8, turn_every_s: 1.5, within: [[0, 0], [10, 8]]}}
  - {name: pillar, radius: 0.4, at: [5, 5]}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from microsim.documents.values import (
    MAX_LENGTH_M,
    Finite,
    Length,
    Model,
    PointXY,
    Positive,
    detail,
    exactly,
    fail,
)
from microsim.engine.geometry import Array, Grid, clearance_of, yaw_of_quaternion
from microsim.engine.noise import stream_key
from microsim.engine.world import OCCUPIED_FROM, World
from microsim.errors import MapError, UsageError
from microsim.parts.small_nodes import discs
from microsim.scenario import load_scenario
from microsim.scenario.files import SUFFIXES, Places, has_key_of, model_of, read_file
from microsim.scenario.map_images import OCCUPIED, Origin, read_map_file, upright
from microsim.scenario.scene import build_world

DEFAULT_THRESHOLD = OCCUPIED_FROM
MAX_PIXELS = 100_000_000


@dataclass(frozen=True)
class MapWorld(World):
    """Level ground under a grid of free and occupied cells; beyond the grid everything is free."""

    def with_cells(self, occupied: Grid) -> MapWorld:
        cells = np.ascontiguousarray(occupied, np.uint8)
        clearance = clearance_of(cells)
        for name, grid in (("occupied", cells), ("clearance", clearance), ("footing", clearance)):
            object.__setattr__(self, name, grid)
        return self

    def is_inside(self, x: float, y: float) -> bool:
        rows, columns = self.occupied.shape
        u, v = self.in_cells(x, y)
        return bool(0.0 <= u < columns and 0.0 <= v < rows)

    @property
    def size_m(self) -> tuple[float, float]:
        rows, columns = self.occupied.shape
        return columns * self.cell_m, rows * self.cell_m


def world_of_cells(occupied: Grid, cell_m: float, origin: Origin = (0.0, 0.0, 0.0)) -> MapWorld:
    """From cells (rows, columns), 0 free and 1 occupied. Row 0 lies along the origin's x axis, column 0 along its y.

    A turned map is made `upright`: its walls may become thicker by up to a cell, and none has a gap.
    """
    cells = upright(occupied.astype(np.int8) * np.int8(OCCUPIED), cell_m, origin, MAX_PIXELS)
    world = MapWorld(cell_m, np.zeros((1, 1)), np.zeros((1, 1), np.uint8), (), (), cells.west, cells.south)
    return world.with_cells(cells.values == OCCUPIED)


NOWHERE = world_of_cells(np.zeros((1, 1), np.uint8), 1.0)  # no map: one free cell


def world_of_message(message: Any, threshold: int = DEFAULT_THRESHOLD) -> MapWorld:
    """From a nav_msgs/OccupancyGrid; UsageError when it makes no sense."""
    info, place, turn = message.info, message.info.origin.position, message.info.origin.orientation
    rows, columns = int(info.height), int(info.width)
    cell_m = float(str(np.float32(info.resolution)))  # as a person wrote it: 0.05, not its neighbour 0.0500000007
    if not rows or not columns or rows * columns != len(message.data):
        raise UsageError(f"a map of {columns} by {rows} cells comes with {len(message.data)} values")
    if not (math.isfinite(cell_m) and 0.0 < cell_m <= MAX_LENGTH_M):
        raise UsageError(f"a map's cells cannot be {cell_m:g} m wide")
    pose = (float(place.x), float(place.y), heading(turn))
    if not all(math.isfinite(value) and abs(value) <= MAX_LENGTH_M for value in pose):
        raise UsageError(f"a map's origin cannot be at {pose}")
    values = np.asarray(message.data, np.int8).reshape(rows, columns)
    try:
        return world_of_cells((values >= threshold).astype(np.uint8), cell_m, pose)  # what is unknown is free
    except MapError as error:
        raise UsageError(str(error)) from None


def world_of_scenario(source: str) -> MapWorld:
    """The occupied cells of a scenario: a shipped one's name, or a file."""
    world = build_world(load_scenario(source))
    return world_of_cells(world.occupied, world.cell_m, (world.west, world.south, 0.0))


def load_map(source: str, threshold: int = DEFAULT_THRESHOLD) -> MapWorld:
    """What the parameter `map` names; raises MapError or ScenarioError."""
    file = Path(source)
    return read_map(file, threshold) if file.suffix in SUFFIXES and is_map(file) else world_of_scenario(source)


def heading(quaternion: Any) -> float:
    """Yaw of an orientation; one that was not filled in (all zeros) looks along x. A NaN gives NaN."""
    x, y, z, w = (float(getattr(quaternion, name)) for name in "xyzw")
    length = x * x + y * y + z * z + w * w
    return yaw_of_quaternion(x, y, z, w) if length >= 1e-6 else 0.0 if length < 1e-6 else math.nan


def read_map(file: str | Path, threshold: int = DEFAULT_THRESHOLD) -> MapWorld:
    """A map of map_server; MapError says, with file and line, all that is wrong."""
    described, values = read_map_file(Path(file), MAX_PIXELS)
    return world_of_cells((values >= threshold).astype(np.uint8), described.resolution, described.origin)


def is_map(file: Path) -> bool:
    """Whether a YAML file is a map's, rather than a scenario's."""
    return has_key_of(file, ("image", "resolution"))


_REPEAT = {"once": discs.ONCE, "loop": discs.LOOP, "back_and_forth": discs.BACK_AND_FORTH}
_KINDS = ("path", "walk", "at")

Seconds = Annotated[Finite, Field(ge=0, le=1e9)]
SHORTEST_M = 1e-3  # of a path that is repeated: how often it was must be a number of 64 bits
Speed = Annotated[Finite, Field(ge=0, le=1e3)]


class ObstacleWalk(Model):
    start: PointXY = Field(description="Where it begins [m].")
    speed: Speed = Field(0.8, description="How fast it walks [m/s].")
    turn_every_s: Positive = Field(2.0, description="How long it keeps a heading [s].")
    within: Annotated[tuple[PointXY, PointXY], exactly(2, "[[west, south], [east, north]]")] | None = Field(
        None, description="Rectangle it stays in: two corners [m]. Default: 5 m around its start."
    )

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """West, south, east, north."""
        (x, y) = self.start
        (west, south), (east, north) = self.within or ((x - 5.0, y - 5.0), (x + 5.0, y + 5.0))
        return west, south, east, north

    @model_validator(mode="after")
    def _starts_inside(self) -> Self:
        west, south, east, north = self.bounds
        if not (west < east and south < north):
            fail([detail("expected the south-west corner, then the north-east one", "within", found=self.within)])
        x, y = self.start
        if not (west <= x <= east and south <= y <= north):
            fail([detail(f"expected a point inside `within`, found [{x:g}, {y:g}]", "start", found=self.start)])
        return self


class Obstacle(Model):
    """One moving obstacle; it has one of `path`, `walk` and `at`."""

    name: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        None, description="Names its noise; default: obstacle_ and its number."
    )
    radius: Length = Field(0.3, description="[m]")
    path: Annotated[tuple[PointXY, ...], Field(min_length=2, max_length=10_000)] | None = Field(
        None, description="Corners of the path it follows [m]."
    )
    speed: Speed = Field(1.0, description="Along its path [m/s].")
    repeat: Literal["once", "loop", "back_and_forth"] = Field(
        "loop", description="At the path's end: stop, continue to its first corner, or turn back."
    )
    start_s: Seconds = Field(0.0, description="When it leaves the path's first corner [s].")
    walk: ObstacleWalk | None = Field(None, description="A random walk.")
    at: PointXY | None = Field(None, description="It stands here [m].")

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        given = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            fail([detail(f"expected one of the keys {', '.join(_KINDS)}, found {found}", *given[1:2], at_key=True)])
        length_m = sum(math.dist(*pair) for pair in pairwise(self.path or ()))
        if self.repeat != "once" and 0.0 < length_m < SHORTEST_M:
            fail([detail(f"expected a path of at least {SHORTEST_M:g} m to repeat, found {length_m:g} m", "path")])
        if given != ["path"]:
            strange = [key for key in ("speed", "repeat", "start_s") if key in self.model_fields_set]
            if strange:
                where = "; a walk's speed is given under `walk:`" if strange[0] == "speed" and self.walk else ""
                fail([detail(f"{strange[0]} belongs to a path{where}", strange[0], at_key=True)])
        return self


class ObstacleFile(Model):
    obstacles: Annotated[tuple[Obstacle, ...], Field(max_length=10_000)] = Field(description="Every obstacle.")

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        seen: dict[str, int] = {}
        for index, name in enumerate(names(self.obstacles)):
            if name in seen:
                fail([detail(f"the name {name!r} is that of obstacles[{seen[name]}] too", "obstacles", index, "name")])
            seen[name] = index
        return self


def names(obstacles: Sequence[Obstacle]) -> list[str]:
    return [each.name or f"obstacle_{index}" for index, each in enumerate(obstacles)]


def read_obstacles(source: str | Path | Mapping[str, Any]) -> tuple[Obstacle, ...]:
    """From a file or its content; MapError says, with file and line, all that is wrong."""
    data, places = (source, Places()) if isinstance(source, Mapping) else read_file(Path(source), MapError)
    return model_of(ObstacleFile, data, places, MapError).obstacles


class MovingObstacles:
    """Where they are. `discs` (3, n) holds those that follow paths first, then the walkers."""

    def __init__(self, obstacles: Sequence[Obstacle], seed: int, dt: float) -> None:
        scripted = [each for each in obstacles if each.walk is None]
        walkers = [
            (name, each) for name, each in zip(names(obstacles), obstacles, strict=True) if each.walk is not None
        ]
        self.discs: Array = np.zeros((3, len(obstacles)))
        self.discs[discs.RADIUS] = [each.radius for each in (*scripted, *(each for _, each in walkers))]
        self._dt = dt
        self._paths = _paths(scripted)
        self._scripted, self._walkers = self.discs[:, : len(scripted)], self.discs[:2, len(scripted) :]
        walks = [each.walk for _, each in walkers if each.walk is not None]
        self._walk = np.array([(*walk.start, math.inf) for walk in walks]).reshape(-1, 3).T.copy()
        plans = [(walk.speed, float(max(round(walk.turn_every_s / dt), 1)), *walk.bounds) for walk in walks]
        self._bounds = np.array(plans).reshape(-1, 6).T.copy()
        self._keys = np.array([stream_key(seed, f"obstacle/{name}") for name, _ in walkers], np.int64)
        self._place(0)

    def __len__(self) -> int:
        return int(self.discs.shape[1])

    def advance(self, tick: int, world: World) -> None:
        """From tick to tick + 1."""
        if len(self._keys):
            grid = world.clearance, world.cell_m, world.west, world.south
            discs.walk(self._walk, self._bounds, self._keys, tick, self._dt, *grid)
        self._place(tick + 1)

    def _place(self, tick: int) -> None:
        points, lengths, first, plans = self._paths
        discs.along_paths(points, lengths, first, plans, tick * self._dt, self._scripted)
        self._walkers[:] = self._walk[:2]


def _paths(scripted: Sequence[Obstacle]) -> tuple[Array, Array, Any, Array]:
    points: list[tuple[float, float]] = []
    lengths: list[float] = []
    first = [0]
    for each in scripted:
        corners = list(each.path or ()) + ([each.at] if each.at is not None else [])
        if each.path and each.repeat == "loop" and corners[0] != corners[-1]:
            corners.append(corners[0])
        way = 0.0
        for before, corner in zip([corners[0], *corners], corners, strict=False):
            dx, dy = corner[0] - before[0], corner[1] - before[1]
            way += math.sqrt(dx * dx + dy * dy)
            points.append(corner)
            lengths.append(way)
        first.append(len(points))
    plans = [(each.speed, each.start_s, float(_REPEAT[each.repeat])) for each in scripted]
    places, schedule = np.array(points).reshape(-1, 2).T.copy(), np.array(plans).reshape(-1, 3).T.copy()
    return places, np.array(lengths), np.array(first, np.int64), schedule
