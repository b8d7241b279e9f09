"""Moving obstacles: round, upright, scripted or on a random walk. From YAML:

obstacles:
  - {name: forklift, radius: 0.6, path: [[0, 0], [8, 0], [8, 4]], speed: 1.2, repeat: back_and_forth, start_s: 2.0}
  - {name: child, radius: 0.3, walk: {start: [3, 4], speed: 0.8, turn_every_s: 1.5, within: [[0, 0], [10, 8]]}}
  - {name: pillar, radius: 0.4, at: [5, 5]}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator
from typing_extensions import Self

from microsim.documents.values import Finite, Length, Model, PointXY, Positive, detail, exactly, fail
from microsim.documents.yaml_text import read_yaml
from microsim.engine.geometry import Array
from microsim.engine.noise import stream_key
from microsim.engine.world import World
from microsim.errors import MapError, ScenarioError
from microsim.rays import discs
from microsim.scenario.files import Places, in_order, read_text

_REPEAT = {"once": discs.ONCE, "loop": discs.LOOP, "back_and_forth": discs.BACK_AND_FORTH}
_KINDS = ("path", "walk", "at")

Seconds = Annotated[Finite, Field(ge=0, le=1e9)]
Speed = Annotated[Finite, Field(ge=0, le=1e3)]


class Walk(Model):
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
        "loop", description="At the path's end: stop, go on to its first corner, or turn back."
    )
    start_s: Seconds = Field(0.0, description="When it leaves the path's first corner [s].")
    walk: Walk | None = Field(None, description="A random walk.")
    at: PointXY | None = Field(None, description="It stands here [m].")

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        given = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            fail([detail(f"expected one of the keys {', '.join(_KINDS)}, found {found}", *given[1:2], at_key=True)])
        if given != ["path"]:
            strange = [key for key in ("speed", "repeat", "start_s") if key in self.model_fields_set]
            if strange:
                where = "; a walk's speed stands under `walk:`" if strange[0] == "speed" and self.walk else ""
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
    places, data = Places(), source
    if not isinstance(source, Mapping):
        try:
            document = read_yaml(read_text(Path(source)), str(source))
        except ScenarioError as error:
            raise MapError(error.problems) from None
        places, data = Places(str(source), document), document.data
    try:
        return ObstacleFile.model_validate(data).obstacles
    except ValidationError as error:
        raise MapError(in_order(places.problems(error, data, lambda path: path))) from None


class MovingObstacles:
    """Where they are. `discs` (3, n) holds those that follow paths first, then the walkers."""

    def __init__(self, obstacles: Sequence[Obstacle], seed: int, dt: float) -> None:
        named = list(zip(names(obstacles), obstacles, strict=True))
        scripted = [each for _, each in named if each.walk is None]
        walkers = [(name, each) for name, each in named if each.walk is not None]
        self.discs: Array = np.zeros((3, len(named)))
        self.discs[discs.RADIUS] = [each.radius for each in (*scripted, *(each for _, each in walkers))]
        self._dt = dt
        self._paths = _paths(scripted)
        self._scripted, self._walkers = self.discs[:, : len(scripted)], self.discs[:2, len(scripted) :]
        walks = [each.walk for _, each in walkers if each.walk is not None]
        self._walk = np.array([(*walk.start, math.inf) for walk in walks]).reshape(-1, 3).T.copy()
        self._bounds = np.array([_plan(walk, dt) for walk in walks]).reshape(-1, 6).T.copy()
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


def _plan(walk: Walk, dt: float) -> tuple[float, ...]:
    return walk.speed, float(max(round(walk.turn_every_s / dt), 1)), *walk.bounds


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
    return (
        np.array(points).reshape(-1, 2).T.copy(),
        np.array(lengths),
        np.array(first, np.int64),
        np.array(plans).reshape(-1, 3).T.copy(),
    )
