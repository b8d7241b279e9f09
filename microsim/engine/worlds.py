"""Worlds: the robots in them, what these touch, and the arrays of both by name. A world is a batch of one.

Robots of one model are columns of a `Fleet`: in a single world all of them, in a batch one robot in every world. The
loops that move them are `tick.move` in a single world, and `batch.kernels.move` in many.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.bodies import Body
from microsim.engine.calls import PLANE_SIZE, BrokenKernelError, Rows, call_now, has_checked, raise_broken, scene_row
from microsim.engine.components import RobotModel, state_at, state_in
from microsim.engine.contact_tables import Contacts, Mover
from microsim.engine.delay_line import DelayLine
from microsim.engine.exact import wrap_angle
from microsim.engine.geometry import Array
from microsim.engine.motion import FIELDS, Motion
from microsim.engine.records import Records, address_of, grid_of, rows_of, span_of
from microsim.engine.robot_loops import FLEET, settle_address
from microsim.engine.tick import COPY, ROBOTS, look, move
from microsim.engine.world import World
from microsim.engine.world_arrays import HERE, Chosen, Memory, WorldArray, put, taken


@dataclass
class Fleet:
    """Robots of one model, a column each; there may be more columns than robots."""

    model: RobotModel
    names: tuple[str, ...]  # by column; of a batch the one that all columns are
    state: Array  # (rows, n)
    parameters: Array  # (p, n); with strides of 0 where all have the same
    keys: npt.NDArray[np.int64]  # (n,) noise
    scene: Any = None  # of the world, a row or its like in another memory
    memory: Memory = HERE
    command: Array = field(init=False)  # (inputs, n) in force until the next one
    row: Records = field(init=False)  # the `FLEET` that moves it

    def __post_init__(self) -> None:
        self.command = self.memory.xp.zeros((len(self.model.inputs), self.state.shape[1]))
        one, many = self.memory.advance_functions(self.model)
        count, width = self.parameters.shape
        self.row = rows_of(
            FLEET, function=one, many=many, state=grid_of(self.state), command=grid_of(self.command),
            parameters=(address_of(self.parameters), count, width if self.parameters.strides[1] else 1),
            keys=address_of(self.keys), end=self.state.shape[1],
        )  # fmt: skip
        self.has_checked = has_checked((one, many))
        self.stand_in(self.scene)

    def stand_in(self, scene: Any) -> None:
        """Move in that world; it is kept alive."""
        self.scene = scene
        self.row["scene"] = 0 if scene is None else address_of(scene)

    def take(self, columns: Any, values: Any) -> None:
        """Put commands into force: `values` for one column, or (inputs, k) for a slice or list of k columns."""
        self.command[:, columns] = values
        if self.model.age_row is not None:
            self.state[self.model.age_row, columns] = 0.0

    def rows(self, *names: str) -> Array:
        """Numbers of the state by name, of all its robots: a copy, (len(names), n)."""
        found: Array = self.state[[self.model.row(name) for name in names]]
        return found


# copies of arrays by name, what robots touched, what is under way in delay lines
SavedWorlds: TypeAlias = tuple[dict[str, Any], Any, dict[str, Any]]


class Worlds:
    """n worlds with the same robots, each with columns of its own. `home`: a robot's fleet, and its first column."""

    def __init__(
        self, fleets: Sequence[Fleet], home: Mapping[str, tuple[Fleet, int]], contacts: Contacts, n: int, memory: Memory
    ) -> None:
        self.fleets, self.home, self.contacts, self.n = tuple(fleets), home, contacts, n
        self.table = memory.table(np.concatenate([np.zeros(0, FLEET), *(fleet.row for fleet in fleets)]))
        self.table_at = address_of(self.table)
        self.has_checked = any(fleet.has_checked for fleet in fleets)
        self.arrays: dict[str, WorldArray] = {}  # all that worlds are; who adds to them declares its own here
        self.lines: dict[str, DelayLine] = {}  # of what leaves later
        for name, (fleet, first) in home.items():
            for what, array in (("state", fleet.state), ("command", fleet.command)):
                self.arrays[f"{name}:{what}"] = WorldArray(array[:, first : first + n], 1)

    def save(self, worlds: Chosen | None = None) -> SavedWorlds:
        """Copies of these worlds, or of all."""
        lines = {name: line.save(self._those(worlds, line.queues)) for name, line in self.lines.items()}
        touched = self.contacts.save(... if worlds is None else worlds(self.contacts.touched))
        return taken(self.arrays, worlds), touched, lines

    def load(self, saved: SavedWorlds, worlds: Chosen | None = None) -> None:
        """By name: robots and sensors that were not there then stay as they are."""
        arrays, touched, lines = saved
        put(self.arrays, arrays, worlds)
        self.contacts.load(touched, ... if worlds is None else worlds(self.contacts.touched))
        for name, line in self.lines.items():
            line.load(self._those(worlds, line.queues), lines[name])

    def _those(self, worlds: Chosen | None, array: Any) -> Any:
        return np.arange(self.n) if worlds is None else worlds(array)

    def distance(self, first: str, second: str, world: int = 0) -> float:
        """[m]"""
        (a, i), (b, j) = self.home[first], self.home[second]
        one, two = state_at(a.state, i + world), state_at(b.state, j + world)
        dx, dy, dz = float(one.x - two.x), float(one.y - two.y), float(one.z - two.z)
        return float(np.sqrt(dx * dx + dy * dy + dz * dz))

    def touching(self, robot: str, world: int = 0, obstacles: Sequence[str] | None = None) -> tuple[str, ...]:
        """What a robot touches now. `obstacles`: names of those of this world, where worlds have others each."""
        return self.contacts.touching(self.contacts.names.index(robot), world, obstacles)

    def last_contact(self, robot: str, world: int = 0, obstacles: Sequence[str] | None = None) -> str:
        """What it touched last since the reset; empty: nothing."""
        return self.contacts.last(self.contacts.names.index(robot), world, obstacles)


class Motions(Mapping[str, Motion]):
    """Every robot's motion as it was last looked at; read from `seen` when requested."""

    def __init__(self, seen: Mapping[str, Array]) -> None:
        self.seen = seen  # (FIELDS,) each

    def __getitem__(self, robot: str) -> Motion:
        motion: Motion = self.seen[robot].tolist()
        return motion

    def __iter__(self) -> Iterator[str]:
        return iter(self.seen)

    def __len__(self) -> int:
        return len(self.seen)


class OneWorld(Worlds):
    """A single world, which is moved tick by tick. `bodies`: of all robots, in the order in which they make way.

    Without bodies robots do not touch. `stops_all`: obstacles and other robots stop every robot, not only those on the
    ground.
    """

    def __init__(
        self,
        world: World,
        dt: float,
        fleets: Sequence[Fleet],
        plane: Array,
        bodies: Mapping[str, Body] | None = None,
        stops_all: bool = False,
        obstacles: Sequence[str] = (),
    ) -> None:
        self.world, self._plane, self.scene = world, plane, scene_of(world, dt, plane)
        home = {name: (fleet, column) for fleet in fleets for column, name in enumerate(fleet.names)}
        movers = [Mover(name, home[name][0].model, home[name][0].state, home[name][1]) for name in bodies or home]
        contacts = Contacts(movers, bodies or {}, world, self.scene, stops_all, obstacles=obstacles)
        seen: dict[str, Array] = {}  # what `look` last wrote
        for fleet in fleets:
            motions = np.empty((len(fleet.names), FIELDS))
            seen |= zip(fleet.names, motions, strict=True)
            fleet.stand_in(self.scene)
            fleet.row["motions"] = address_of(motions)
        super().__init__(fleets, home, contacts, 1, HERE)
        self.motions = Motions(seen)
        self._robots = rows_of(ROBOTS, fleets=span_of(self.table), contacts=contacts.address)
        self.address = address_of(self._robots)
        self._traces: Sequence[Array] = ()
        self._copy_to(np.zeros(0, COPY))
        self.look()

    def move(self, tick: int, ticks: int = 1) -> None:
        """From tick to tick + ticks."""
        move(self.address, tick, ticks)

    def raise_broken(self) -> None:
        """Raise an error if the kernel of a plug-in raised one."""
        if self.has_checked:  # else there is nothing to look for
            raise_broken(self.table, lambda row: f"robot model {self.fleets[row].model.name}")

    def trace(self, ticks: int) -> Mapping[str, Array]:
        """Robot -> (ticks, rows): its state after each of the next ticks, written there as they are run."""
        self._traces = [np.empty((ticks, *fleet.state.shape)) for fleet in self.fleets]
        pairs = list(zip(self.fleets, self._traces, strict=True))
        rows = [
            (address_of(fleet.state), fleet.state.nbytes, address_of(states), address_of(states) + states.nbytes)
            for fleet, states in pairs
        ]
        self._copy_to(np.array(rows, COPY))
        return {name: states[:, :, column] for fleet, states in pairs for column, name in enumerate(fleet.names)}

    def continue_trace(self, before: "OneWorld") -> None:
        """Continue the trace of the world that this one replaces, if there is one."""
        if before._copies.size and [each.names for each in self.fleets] != [each.names for each in before.fleets]:
            raise ValueError("the states of other robots do not fit into a trace")
        self._traces = before._traces
        self._copy_to(before._copies)
        for row, fleet in zip(self._copies, self.fleets, strict=False):  # without a trace there are no rows
            row.source = address_of(fleet.state)

    def _copy_to(self, copies: Records) -> None:
        """After each tick."""
        self._copies = copies
        self._robots["copies"] = span_of(copies)

    def look(self) -> None:
        """Bring `motions` up to date."""
        look(self.address)

    def command(self, robot: str, values: Sequence[float]) -> None:
        fleet, column = self.home[robot]
        fleet.take(column, values)

    def place(self, robot: str, x: float, y: float, z: float, yaw: float) -> None:
        """Put a robot somewhere, at rest; a ground-bound one onto the ground."""
        fleet, column = self.home[robot]
        put_at(fleet.model, fleet.state[:, column], self.world, x, y, z, yaw)
        settle_on_ground(fleet, self.world)


def put_at(model: RobotModel, column: Array, world: World, x: float, y: float, z: float, yaw: float) -> None:
    """A state at rest at the pose. Counters of the model (rows beyond pose and motion) start from 0 too.

    Not so the age of its command, since an old one would come to life again, and the number of its contacts.
    """
    robot, age = state_in(column), model.age_row
    contacts, ticks = robot.contacts, None if age is None else column[age]
    column[:] = 0.0
    robot.contacts = contacts
    if age is not None:
        column[age] = ticks
    robot.x, robot.y, robot.yaw = x, y, wrap_angle(yaw)
    robot.z = world.ground(x, y) if model.is_ground_bound else z


def settle_on_ground(fleet: Fleet, world: World) -> None:
    """Lay robots onto the slope they were put on, if their model leans. Where one stands decides how it leans."""
    if fleet.model.settle is None:
        return
    plane: Array = np.zeros(PLANE_SIZE)
    scene, row = scene_of(world, 1.0, plane), fleet.row.copy()
    row["scene"], row["function"] = address_of(scene), settle_address(fleet.model)
    call_now(int(row["function"][0]), address_of(row))
    try:
        raise_broken(row, lambda _: fleet.model.name)
    except BrokenKernelError as error:
        text = f"robot model {fleet.model.name} cannot be put on the ground"
        raise BrokenKernelError(text, error.form) from error.__cause__


def scene_of(world: World, dt: float, plane: Array) -> Rows:
    """See `scene_row`."""
    grids = world.elevation, world.surface, world.clearance[None], world.footing[None]
    return scene_row(*grids, (world.cell_m, world.west, world.south), dt, plane)
