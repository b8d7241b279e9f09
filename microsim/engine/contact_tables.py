"""What robots can touch, and what they touch: the records that `contacts` works on, and how they are read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from microsim.engine import contacts
from microsim.engine.bodies import Body
from microsim.engine.calls import contact_address
from microsim.engine.compiled import kernel
from microsim.engine.components import RobotModel
from microsim.engine.contacts import Integers
from microsim.engine.geometry import Array, Grid
from microsim.engine.records import address_of, grid_of, rows_of, span_of
from microsim.engine.world import World, footprint, lacks_ground, lowest_and_highest
from microsim.engine.world_arrays import HERE, Memory


@dataclass(frozen=True)
class Mover:
    """A robot as contacts see it."""

    name: str
    model: RobotModel
    state: Array  # (rows, width) of which it has a column
    column: int = 0


class Contact(NamedTuple):
    """A robot began to touch something."""

    tick: int
    robot: str
    thing: str  # name of a robot or an obstacle, `mesh`, `map edge`, `missing ground`
    x: float  # where the robot was [m]
    y: float
    z: float
    speed: float  # of the robot just before [m/s]


class Contacts:
    """What the robots of one world, or of each world of a batch, touch. Keeps everything that its record points to.

    `bodies`: those of all robots, or none: then only what stops robots by itself counts.
    """

    def __init__(
        self,
        movers: Sequence[Mover],
        bodies: Mapping[str, Body],
        world: World,
        scene: Any,
        stops_all: bool,
        worlds: int | None = None,
        places: Array | None = None,
        memory: Memory = HERE,
        has_own_obstacles: bool = False,
        obstacles: Sequence[str] = (),
    ) -> None:
        """`worlds`: how many a batch has. places (worlds, obstacles, 3): rows of `PLACE`.

        `has_own_obstacles`: worlds have others each; `show` brings them, and the ground they stand on.

        `obstacles`: names of the world's, in their order.
        """
        self.names, self.obstacles = tuple(mover.name for mover in movers), tuple(obstacles)
        self._memory, count = memory, len(movers)
        array = self._memory.array
        self.words = -(-(contacts.FIRST_ROBOT + count) // 63)
        self.marks_size = int(contacts.marks_for(count, self.words))
        touched: Integers = np.zeros((count, self.words + 2, worlds or 1), np.int64)
        self.touched: Integers = array(touched)  # see `contacts._touched_at`
        rows = np.zeros(max(count, 1), contacts.MOVER)  # a GPU has no empty arrays
        for row, mover in zip(rows, movers, strict=False):
            _write_mover(row, mover, bodies.get(mover.name))
        self._movers = self._memory.table(rows)
        self._paths, self._events = np.zeros(count, contacts.PATH), np.zeros(contacts.EVENTS, contacts.EVENT)
        self._marks: Integers = np.zeros(self.marks_size, np.int64)
        is_looking = bool(bodies) and any(not mover.model.stops_at_cells for mover in movers)
        has_mesh = world.mesh is not None and len(world.mesh.triangles) > 0
        self._mesh = None
        if is_looking and has_mesh:
            mesh: MeshBuckets = world.derived(mesh_buckets)
            self._mesh = MeshBuckets(array(mesh.triangles), array(mesh.starts), array(mesh.items), mesh.squares)
        self._has_own, self._kinds = has_own_obstacles, array(world.derived(_kinds_of))
        self._outlines, self._places = map(array, obstacles_of(world))
        self._heights = array(heights_of(world))
        if places is not None and len(self._outlines):
            self._places = places
        self._row = rows_of(
            contacts.CONTACTS, movers=(address_of(self._movers), count), has_bodies=bool(bodies), stops_all=stops_all,
            touched=address_of(self.touched), words=self.words, worlds=worlds or 1, scene=address_of(scene),
            kinds=grid_of(self._kinds), mesh=self._mesh.row() if self._mesh else np.zeros(1, contacts.BUCKETS)[0],
        )  # fmt: skip
        if worlds is None:
            self._row["remember"] = contact_address(contacts.remember_now)
            self._row["settle"] = contact_address(contacts.settle_now)
            self._row["paths"], self._row["marks"] = address_of(self._paths), span_of(self._marks)
            self._row["events"] = span_of(self._events)
        self._point_to_obstacles()
        self._table = self._memory.table(self._row)
        self._begun: Integers = self._row["begun"]
        self.address = address_of(self._table)

    def show(self, outlines: Array, places: Array, heights: Array) -> None:
        """Of each world: (worlds, obstacles, 5) as `obstacles_of` gives them, (worlds, obstacles, 3), (worlds, 2)."""
        if self._has_own:
            self._outlines, self._places, self._heights = outlines, places, heights
            self._point_to_obstacles()
            self._table[...] = self._memory.table(self._row)

    def _point_to_obstacles(self) -> None:
        outlines, places, heights = self._outlines, self._places, self._heights
        self._row["outlines"] = address_of(outlines), outlines.shape[-2]
        self._row["outlines_step"] = outlines.strides[0] if outlines.ndim == 3 else 0
        self._row["places"], self._row["places_step"] = address_of(places), places.strides[0] if places.ndim == 3 else 0
        self._row["heights"], self._row["heights_step"] = (
            address_of(heights), heights.strides[0] if heights.ndim == 2 else 0,
        )  # fmt: skip

    def touching(self, robot: int, world: int = 0, obstacles: Sequence[str] | None = None) -> tuple[str, ...]:
        """What a robot touches now. `obstacles`: names of those of this world, where worlds have others each."""
        *words, which = self.touched[robot, 1:, world].tolist()
        return tuple(self.name(bit, which, obstacles) for bit in _bits(words))

    def last(self, robot: int, world: int = 0, obstacles: Sequence[str] | None = None) -> str:
        """What it touched last; empty: nothing yet. `obstacles`: as of `touching`."""
        code = int(self.touched[robot, 0, world])
        return self.name(*contacts.decoded(code), obstacles) if code else ""

    def save(self, worlds: Any = ...) -> Any:
        """Of these worlds; by default of all."""
        return self.names, self.obstacles, self.touched.copy() if worlds is ... else self.touched[:, :, worlds]

    def load(self, saved: Any, worlds: Any = ...) -> None:
        """What `save` gave; of a single world also where other robots or obstacles were there."""
        names, obstacles, touched = saved
        self._begun[0] = 0
        if (tuple(names), tuple(obstacles)) == (self.names, self.obstacles):
            self.touched[... if worlds is ... else (slice(None), slice(None), worlds)] = touched
            return
        places = {contacts.FIRST_ROBOT + i: self._place(name) for i, name in enumerate(names)}
        numbers = [self.obstacles.index(name) + 1 if name in self.obstacles else 0 for name in ("", *obstacles)]
        for i, name in enumerate(names):
            row = self._place(name) - contacts.FIRST_ROBOT
            if row < 0:
                continue
            code, *words, which = touched[i, :, 0].tolist()
            last, last_which = contacts.decoded(code)
            self.touched[row, :, 0] = 0
            if code and places.get(last, last) >= 0:
                self.touched[row, 0, 0] = contacts.code_of(places.get(last, last), numbers[last_which])
            self.touched[row, -1, 0] = numbers[which]
            for old in _bits(words):
                new = places.get(old, old)
                if new >= 0:
                    self.touched[row, 1 + new // 63, 0] |= 1 << new % 63

    def _place(self, name: str) -> int:
        """Number of a robot among what can be touched; -1: it is not there."""
        return contacts.FIRST_ROBOT + self.names.index(name) if name in self.names else -1

    def name(self, what: int, which: int = 0, obstacles: Sequence[str] | None = None) -> str:
        """`which` obstacle, counted from 1; `obstacle`: one that is not there any more."""
        named = self.obstacles if obstacles is None else obstacles
        if what == contacts.OBSTACLE and 0 < which <= len(named):
            return named[which - 1]
        return contacts.SCENERY[what] if what < contacts.FIRST_ROBOT else self.names[what - contacts.FIRST_ROBOT]

    @property
    def has_news(self) -> bool:
        return bool(self._begun[0])

    def take_news(self) -> list[Contact]:
        """Each contact since the last call; two robots' contact once."""
        count = min(int(self._begun[0]), contacts.EVENTS)
        self._begun[0] = 0
        news = []
        for tick, r, code, *place in self._events[:count].tolist():
            what, which = contacts.decoded(code)
            if not 0 <= what - contacts.FIRST_ROBOT < r:
                news.append(Contact(tick, self.names[r], self.name(what, which), *place))
        return news


def _bits(words: Sequence[int]) -> list[int]:
    return [63 * k + bit for k, word in enumerate(words) for bit in range(63) if word >> bit & 1]


def _write_mover(row: Any, mover: Mover, body: Body | None) -> None:
    model, state = mover.model, mover.state
    row.state, row.step = address_of(state) + 8 * mover.column, state.shape[1]
    row.is_ground_bound, row.stops_at_cells = model.is_ground_bound, model.stops_at_cells
    row.zeroed, row.kept = (
        sum(1 << model.row(name) for name in names)
        for names in (model.zero_when_stopped, model.kept_when_stopped[: contacts.MOST_KEPT])
    )
    if body is not None:
        row.body = body.row()


def obstacles_of(world: World) -> tuple[Array, Array]:
    """Rows of `OUTLINE` and of `PLACE`, as numbers."""
    outlines, places = [], []
    for shape in world.obstacles:
        is_round, half_x, half_y = footprint(shape)
        outlines.append((half_x, half_y, float(is_round), shape.base_m, shape.height_m))
        places.append((*shape.center, 1.0))
    shapes: Array = np.array(outlines, np.float64).reshape(-1, contacts.OUTLINE_SIZE)
    return shapes, np.array(places, np.float64).reshape(-1, 3)


def _kinds_of(world: World) -> Grid:
    """(ny, nx) what occupies a cell, where it is not an obstacle; (1, 1) where it always is."""
    if world.mesh_cells is None and world.footing is world.clearance:
        return np.zeros((1, 1), np.uint8)
    kinds = np.zeros(world.elevation.shape, np.uint8)
    if world.footing is not world.clearance:
        kinds[lacks_ground(world.elevation) > 0] = contacts.MISSING_GROUND
    if world.mesh_cells is not None:
        kinds[world.mesh_cells > 0] = contacts.MESH
    return kinds


def heights_of(world: World) -> Array:
    """A row of `HEIGHTS`."""
    lowest, highest = world.derived(lowest_and_highest) if world.obstacles else (0.0, 0.0)
    tallest = max((shape.base_m + shape.height_m for shape in world.obstacles), default=-math.inf)
    return np.array([highest + tallest, lowest])


# ---- a mesh as buckets of triangles by squares of the ground ---------------------------------------------------------


@dataclass(frozen=True)
class MeshBuckets:
    """Triangles by squares of the ground that their bounds cover, for bodies that may touch them."""

    triangles: Array  # (m, 9) three points each [m], map frame
    starts: npt.NDArray[np.int64]  # (squares + 1,) where those of a square begin in `items`, rows from the south
    items: npt.NDArray[np.int64]
    squares: Array  # west, south, width of a square [m], columns, rows, lowest and highest point [m]

    def row(self) -> tuple[Any, ...]:
        """A `BUCKETS`."""
        places = address_of(self.triangles), span_of(self.starts), span_of(self.items)
        return *places, *self.squares[:3], int(self.squares[3]), int(self.squares[4]), *self.squares[5:]


_MOST_SQUARES = 256  # along a side


@kernel
def _into_buckets(triangles: Array, squares: Array, starts: npt.NDArray[np.int64], items: npt.NDArray[np.int64]) -> int:
    """Count triangles into starts[square + 1], or with room in `items` put them there; gives how many there are."""
    columns, rows = int(squares[3]), int(squares[4])
    total = 0
    for n in range(triangles.shape[0]):
        p = triangles[n]
        i0 = int((min(p[0], p[3], p[6]) - squares[0]) / squares[2])
        i1 = min(int((max(p[0], p[3], p[6]) - squares[0]) / squares[2]), columns - 1)
        j0 = int((min(p[1], p[4], p[7]) - squares[1]) / squares[2])
        j1 = min(int((max(p[1], p[4], p[7]) - squares[1]) / squares[2]), rows - 1)
        for j in range(min(j0, rows - 1), j1 + 1):
            for i in range(min(i0, columns - 1), i1 + 1):
                total += 1
                if items.size:
                    items[starts[j * columns + i]] = n
                    starts[j * columns + i] += 1
                else:
                    starts[j * columns + i + 1] += 1
    return total


def mesh_buckets(world: World) -> MeshBuckets:
    """Squares so wide that a triangle is in few of them."""
    assert world.mesh is not None
    points = np.ascontiguousarray(world.mesh.vertices, np.float64)[world.mesh.triangles]
    triangles = np.ascontiguousarray(points.reshape(-1, 9))
    low, high = points.reshape(-1, 3).min(axis=0), points.reshape(-1, 3).max(axis=0)
    side = int(min(max(math.sqrt(len(triangles)), 1.0), _MOST_SQUARES))
    none = np.zeros(0, np.int64)
    while True:
        width = max(float(max(high[0] - low[0], high[1] - low[1])) / side, 1e-3)
        columns, rows = (int((high[k] - low[k]) / width) + 1 for k in range(2))
        squares = np.array([low[0], low[1], width, columns, rows, low[2], high[2]], np.float64)
        starts = np.zeros(rows * columns + 1, np.int64)
        total = _into_buckets(triangles, squares, starts, none)
        if side == 1 or total <= 16 * len(triangles) + 65536:
            break
        side //= 2
    starts = np.cumsum(starts)
    items = np.zeros(max(total, 1), np.int64)
    _into_buckets(triangles, squares, starts[:-1].copy(), items)
    return MeshBuckets(triangles, starts, items, squares)
