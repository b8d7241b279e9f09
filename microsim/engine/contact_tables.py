"""The robots of a world, or of each world of a batch, and what they touch: the tables that `contacts` works on."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from microsim.engine.bodies import Body
from microsim.engine.calls import FLEET_COLUMNS, STATE, Rows, contact_address
from microsim.engine.components import RobotModel
from microsim.engine.contact_rows import (
    A_MESH,
    AN_OBSTACLE,
    AROUND_WORDS,
    EVENTS,
    FIRST_ROBOT,
    HAS_BODIES,
    IS_GROUND_BOUND,
    MINDS_CELLS,
    MISSING_GROUND,
    MOST_KEPT,
    ROBOT_COLUMNS,
    SCENERY,
    SCRATCH_COLUMNS,
    SOLID_COLUMNS,
    STOPS_ALL,
    Integers,
    code_of,
    decoded,
)
from microsim.engine.contacts import buckets_for, remember_now, settle_now
from microsim.engine.geometry import Array, Grid
from microsim.engine.mesh_buckets import MeshBuckets, mesh_buckets
from microsim.engine.records import address_of
from microsim.engine.world import World, footprint, lacks_ground


@dataclass(frozen=True)
class Mover:
    """A robot as contacts see it."""

    name: str
    model: RobotModel
    state: Array  # (rows, width) of which it has a column
    column: int = 0


class Contacts:
    """What the robots of one world, or of each world of a batch, touch. Keeps everything that the table points to.

    `bodies`: those of all robots, or none: then only what stops robots by itself counts.
    """

    def __init__(
        self,
        movers: Sequence[Mover],
        bodies: Mapping[str, Body],
        world: World,
        scene: Rows,
        stops_all: bool,
        worlds: int | None = None,
        places: Array | None = None,
        device: Callable[[Any], Any] = lambda array: array,
        has_own_solids: bool = False,
        obstacles: Sequence[str] = (),
    ) -> None:
        """`worlds`: how many a batch has. places (worlds, solids, 3): x, y of obstacles and whether they are there.

        `has_own_solids`: worlds have other obstacles each; `show` brings them, and the ground they stand on.

        `obstacles`: names of the world's, in their order.

        `device` brings an array to where the robots' states are.
        """
        self.names, self.obstacles = tuple(mover.name for mover in movers), tuple(obstacles)
        count = len(movers)
        self.words = -(-(FIRST_ROBOT + count) // 63)
        touch: Integers = np.zeros((count, self.words + AROUND_WORDS, worlds or 1), np.int64)
        self.touch: Integers = device(touch)  # see `contact_rows.touch_address`
        rows = np.array([_robot_row(mover) for mover in movers], np.int64).reshape(-1, ROBOT_COLUMNS)
        self._robots: Rows = device(rows)
        boxes = np.array([bodies[name].row() for name in self.names if bodies], np.float64).reshape(-1, 7)
        self._bodies: Array = device(boxes)
        self._scratch: Array = np.zeros((max(count, 1), SCRATCH_COLUMNS))
        self._marks = marks_for(count, self.words)
        self._events: Integers = np.zeros(1 + 3 * EVENTS, np.int64)
        has_mesh = world.mesh is not None and len(world.mesh.triangles) > 0
        is_looking = bool(bodies) and any(not mover.model.minds_cells for mover in movers)
        self._shows_own = has_own_solids
        self._solids, self._places = map(device, solids_of(world))
        if places is not None and len(self._solids):
            self._places = places
        mesh: MeshBuckets | None = world.derived(mesh_buckets) if is_looking and has_mesh else None
        self._mesh = (
            [] if mesh is None else [device(each) for each in (mesh.triangles, mesh.starts, mesh.items, mesh.facts)]
        )
        self._kinds, self._heights = device(world.derived(_kinds_of)), device(heights_of(world))
        self._scene, self._is_single, self._device = scene, worlds is None, device
        self._rules = STOPS_ALL * stops_all + HAS_BODIES * bool(bodies)
        self.table: Rows = device(self._table())

    def show(self, solids: Array, places: Array, heights: Array) -> None:
        """Of each world: (worlds, solids, 5) as `solids_of` gives them, (worlds, solids, 3), (worlds, 2)."""
        if self._shows_own:
            self._solids, self._places, self._heights = solids, places, heights
            self.table[...] = self._device(self._table())

    def _table(self) -> Rows:
        at, triangles = address_of, [address_of(each) for each in self._mesh] or [0, 0, 0, 0]
        step = self._places.strides[0] if self._places.ndim == 3 else 0
        solids_step = self._solids.strides[0] if self._solids.ndim == 3 else 0
        heights_step = self._heights.strides[0] if self._heights.ndim == 2 else 0
        return np.array(
            [
                at(self._robots), len(self.names), at(self._bodies), at(self._scratch), at(self._marks), at(self.touch),
                self.words, self.touch.shape[2], at(self._scene), at(self._solids), self._solids.shape[-2],
                at(self._places), step, at(self._kinds), *self._kinds.shape, *triangles,
                self._rules, at(self._events) if self._is_single else 0, at(self._heights), solids_step, heights_step,
            ],
            np.int64,
        )  # fmt: skip

    def calls(self) -> tuple[list[int], list[int]]:
        """Rows that stand before and after those of fleets."""
        rows = []
        for function in (remember_now, settle_now):
            row = [0] * FLEET_COLUMNS
            row[0], row[STATE] = contact_address(function), address_of(self.table)
            rows.append(row)
        return rows[0], rows[1]

    def touched(self, robot: int, world: int = 0, obstacles: Sequence[str] | None = None) -> tuple[str, ...]:
        """What a robot touches now. `obstacles`: names of those of this world, where worlds have others each."""
        *words, which = self.touch[robot, 1:, world].tolist()
        return tuple(self.name(bit, which, obstacles) for bit in _bits(words))

    def last(self, robot: int, world: int = 0, obstacles: Sequence[str] | None = None) -> str:
        """What it touched last; empty: nothing yet. `obstacles`: as of `touched`."""
        code = int(self.touch[robot, 0, world])
        return self.name(*decoded(code), obstacles) if code else ""

    def recall(self, names: tuple[str, ...], obstacles: tuple[str, ...], touch: Integers) -> None:
        """`names`: of the robots then, in the order of `touch`; `obstacles`: those then."""
        self._events[0] = 0
        if (names, obstacles) == (self.names, self.obstacles):
            self.touch[...] = touch
            return
        places = {FIRST_ROBOT + i: self._place(name) for i, name in enumerate(names)}
        numbers = [self.obstacles.index(name) + 1 if name in self.obstacles else 0 for name in ("", *obstacles)]
        for i, name in enumerate(names):
            row = self._place(name) - FIRST_ROBOT
            if row < 0:
                continue
            code, *words, which = touch[i, :, 0].tolist()
            last, last_which = decoded(code)
            self.touch[row, :, 0] = 0
            if code and places.get(last, last) >= 0:
                self.touch[row, 0, 0] = code_of(places.get(last, last), numbers[last_which])
            self.touch[row, -1, 0] = numbers[which]
            for old in _bits(words):
                new = places.get(old, old)
                if new >= 0:
                    self.touch[row, 1 + new // 63, 0] |= 1 << new % 63

    def _place(self, name: str) -> int:
        """Number of a robot among what can be touched; -1: it is not there."""
        return FIRST_ROBOT + self.names.index(name) if name in self.names else -1

    def name(self, what: int, which: int = 0, obstacles: Sequence[str] | None = None) -> str:
        """`which` obstacle, counted from 1; `obstacle`: one that is not there any more."""
        named = self.obstacles if obstacles is None else obstacles
        if what == AN_OBSTACLE and 0 < which <= len(named):
            return named[which - 1]
        return SCENERY[what] if what < FIRST_ROBOT else self.names[what - FIRST_ROBOT]

    @property
    def has_news(self) -> bool:
        return bool(self._events[0])

    def take_news(self) -> list[tuple[int, str, str]]:
        """Tick, robot and what it began to touch, of each contact since the last call; two robots' contact once."""
        count = min(int(self._events[0]), EVENTS)
        self._events[0] = 0
        rows = self._events[1 : 1 + 3 * count].reshape(-1, 3).tolist()
        found = [(tick, r, *decoded(code)) for tick, r, code in rows]
        news = [each for each in found if not 0 <= each[2] - FIRST_ROBOT < each[1]]
        return [(tick, self.names[r], self.name(what, which)) for tick, r, what, which in news]


def _bits(words: Sequence[int]) -> list[int]:
    return [63 * k + bit for k, word in enumerate(words) for bit in range(63) if word >> bit & 1]


def marks_for(count: int, words: int) -> Integers:
    """Room for `settle`: bits of what each robot touches, robots that are near, chains of cells and their heads."""
    return np.zeros(count * (words + 2) + buckets_for(count), np.int64)


def _robot_row(mover: Mover) -> list[int]:
    model, state = mover.model, mover.state
    flags = IS_GROUND_BOUND * model.is_ground_bound + MINDS_CELLS * model.minds_cells
    masks = [sum(1 << row for row in rows) for rows in (model.zero_when_held, model.kept_when_held[:MOST_KEPT])]
    return [address_of(state) + 8 * mover.column, state.shape[1], flags, *masks]


def solids_of(world: World) -> tuple[Array, Array]:
    """(solids, 5) and (solids, 3) of its obstacles: what they are, and where they are."""
    rows, places = [], []
    for shape in world.obstacles:
        is_round, half_x, half_y = footprint(shape)
        rows.append((half_x, half_y, float(is_round), shape.base_m, shape.height_m))
        places.append((*shape.center, 1.0))
    return np.array(rows, np.float64).reshape(-1, SOLID_COLUMNS), np.array(places, np.float64).reshape(-1, 3)


def _kinds_of(world: World) -> Grid:
    """(ny, nx) what occupies a cell, where it is not an obstacle; (1, 1) where it always is."""
    if world.mesh_cells is None and world.footing is world.clearance:
        return np.zeros((1, 1), np.uint8)
    kinds = np.zeros(world.elevation.shape, np.uint8)
    if world.footing is not world.clearance:
        kinds[lacks_ground(world.elevation) > 0] = MISSING_GROUND
    if world.mesh_cells is not None:
        kinds[world.mesh_cells > 0] = A_MESH
    return kinds


def heights_of(world: World) -> Array:
    """(2,): above the first [m] there is no obstacle, below the second no ground."""
    known = world.elevation[np.isfinite(world.elevation)] if world.obstacles else np.zeros(0)
    lowest, highest = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    tallest = max((shape.base_m + shape.height_m for shape in world.obstacles), default=-math.inf)
    return np.array([highest + tallest, lowest])
