"""All robots of a world: their state, the commands in force, and how they move."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.engine.bodies import Body
from microsim.engine.calls import (
    FLEET_COLUMNS,
    FUNCTION,
    BrokenKernelError,
    Rows,
    advance_address,
    has_checked,
    raise_broken,
    scene_row,
)
from microsim.engine.compiled import plain
from microsim.engine.components import CONTACTS, YAW, RobotModel, X, Y, Z
from microsim.engine.contact_tables import Contacts, Mover
from microsim.engine.exact import wrap_angle
from microsim.engine.fleet_loops import COPIED, COPY_COLUMNS, look, move, move_and_copy
from microsim.engine.geometry import Array
from microsim.engine.motion import FIELDS, Motion
from microsim.engine.records import address_of
from microsim.engine.world import World
from microsim.engine.world_arrays import WorldArray


@dataclass
class Fleet:
    """The robots of one model, one per column."""

    model: RobotModel
    names: tuple[str, ...]
    state: Array  # (rows, n)
    command: Array  # (inputs, n) in force until the next one
    parameters: Array  # (p, n)
    keys: npt.NDArray[np.int64]  # (n,) noise
    seen: Array  # (n, FIELDS) what `observe` last wrote

    def take(self, columns: Any, values: Any) -> None:
        """Put commands into force: `values` for one column, or (inputs, k) for a slice or list of k columns."""
        self.command[:, columns] = values
        if self.model.command_age is not None:
            self.state[self.model.command_age, columns] = 0.0


class Motions(Mapping[str, Motion]):
    """Every robot's motion as it was last looked at; read from the fleets when requested."""

    def __init__(self, home: Mapping[str, tuple[Fleet, int]]) -> None:
        self._home = home

    def __getitem__(self, robot: str) -> Motion:
        fleet, column = self._home[robot]
        motion: Motion = fleet.seen[column].tolist()
        return motion

    def __iter__(self) -> Iterator[str]:
        return iter(self._home)

    def __len__(self) -> int:
        return len(self._home)


class Physics:
    """`bodies`: of all robots, in the order in which they make way for each other; without them robots do not touch.

    `stops_all`: obstacles and other robots stop every robot, not only those on the ground.
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
        self.world = world
        self.fleets = tuple(fleets)
        self.home: Mapping[str, tuple[Fleet, int]] = {
            name: (fleet, column) for fleet in fleets for column, name in enumerate(fleet.names)
        }
        self.motions = Motions(self.home)
        self._plane = plane
        origin = world.cell_m, world.west, world.south
        grids = world.elevation, world.surface, world.clearance[None], world.footing[None]
        self.scene = scene_row(*grids, origin, dt, plane)
        movers = [self._mover(name) for name in bodies or self.home]
        self.contacts = Contacts(movers, bodies or {}, world, self.scene, stops_all, obstacles=obstacles)
        before, after = self.contacts.calls()
        rows = [before, *(self._row(fleet) for fleet in self.fleets), after]
        self.rows: Rows = np.array(rows, np.int64).reshape(-1, FLEET_COLUMNS)
        self.copies: Rows = np.zeros((0, COPY_COLUMNS), np.int64)
        self.has_checked = has_checked(self.rows[:, FUNCTION])
        self._traces: Sequence[Array] = ()  # where copies go
        self.look()

    def _mover(self, name: str) -> Mover:
        fleet, column = self.home[name]
        return Mover(name, fleet.model, fleet.state, column)

    def _row(self, fleet: Fleet) -> list[int]:
        """The call that moves a fleet."""
        count, scene = len(fleet.names), address_of(self.scene)
        places = [address_of(each) for each in (fleet.state, fleet.command, fleet.parameters, fleet.keys, fleet.seen)]
        state, command, parameters, keys, seen = places
        return [
            advance_address(fleet.model.advance), 0, state, fleet.state.shape[0], count, 0,
            count, command, fleet.command.shape[0], parameters, fleet.parameters.shape[0], 1, keys, scene,
            0, 0, 0, seen, 0, 0, 0,
        ]  # fmt: skip

    def move(self, tick: int, ticks: int = 1) -> None:
        """From tick to tick + ticks."""
        if self._traces:
            move_and_copy(self.rows, self.copies, tick, ticks)
        else:
            move(self.rows, tick, ticks)

    def raise_broken(self) -> None:
        """Raise an error if the kernel of a plug-in raised one."""
        if self.has_checked:  # else there is nothing to look for
            raise_broken(self.rows, lambda row: f"robot model {self.fleets[row - 1].model.name}")

    def trace(self, ticks: int) -> Mapping[str, Array]:
        """Robot -> (ticks, rows): its state after each of the next ticks, written there as they are run."""
        self._traces = [np.empty((ticks, *fleet.state.shape)) for fleet in self.fleets]
        pairs = list(zip(self.fleets, self._traces, strict=True))
        rows = [
            [address_of(fleet.state), fleet.state.nbytes, address_of(states), address_of(states) + states.nbytes]
            for fleet, states in pairs
        ]
        self.copies = np.array(rows, np.int64).reshape(-1, COPY_COLUMNS)
        return {name: states[:, :, column] for fleet, states in pairs for column, name in enumerate(fleet.names)}

    def continue_trace(self, before: "Physics") -> None:
        """Continue the trace of the physics that this one replaces, if there is one."""
        if before.copies.size and [each.names for each in self.fleets] != [each.names for each in before.fleets]:
            raise ValueError("the states of other robots do not fit into a trace")
        self._traces, self.copies = before._traces, before.copies
        for row, fleet in zip(self.copies, self.fleets, strict=False):  # without a trace there are no rows
            row[COPIED] = address_of(fleet.state)

    def look(self) -> None:
        """Bring `motions` up to date."""
        look(self.rows)

    def command(self, robot: str, values: Sequence[float]) -> None:
        fleet, column = self.home[robot]
        fleet.take(column, values)

    def place(self, robot: str, x: float, y: float, z: float, yaw: float) -> None:
        """Put a robot somewhere, at rest; a ground-bound one onto the ground."""
        fleet, column = self.home[robot]
        put(fleet.model, fleet.state[:, column], self.world, x, y, z, yaw)
        settle_on_ground(fleet, self.world)

    def distance(self, first: str, second: str) -> float:
        (a, i), (b, j) = self.home[first], self.home[second]
        dx, dy, dz = (float(a.state[row, i] - b.state[row, j]) for row in (X, Y, Z))
        return float(np.sqrt(dx * dx + dy * dy + dz * dz))

    def arrays(self) -> dict[str, WorldArray]:
        """Of every robot its state and its command."""
        found = {}
        for fleet in self.fleets:
            for column, name in enumerate(fleet.names):
                for what, array in (("state", fleet.state), ("command", fleet.command)):
                    found[f"{name} ({fleet.model.name}): {what}"] = WorldArray(array[:, column : column + 1], 1)
        return found

    def save_contacts(self) -> Any:
        return self.contacts.names, self.contacts.obstacles, self.contacts.touch.copy()

    def load_contacts(self, saved: Any) -> None:
        names, obstacles, touch = saved
        self.contacts.recall(tuple(names), tuple(obstacles), touch)


def put(model: RobotModel, column: Array, world: World, x: float, y: float, z: float, yaw: float) -> None:
    """A state at rest at the pose. Counters of the model (rows beyond pose and motion) start from 0 too.

    Not so the age of its command, since an old one would come to life again, and the number of its contacts.
    """
    kept = [CONTACTS] if model.command_age is None else [CONTACTS, model.command_age]
    values = column[kept]
    column[:] = 0.0
    column[kept] = values
    column[X], column[Y], column[YAW] = x, y, wrap_angle(yaw)
    column[Z] = world.ground(x, y) if model.is_ground_bound else z


def settle_on_ground(fleet: Fleet, world: World) -> None:
    """Lay robots onto the slope they were put on, if their model leans. Where one stands decides how it leans."""
    settle = fleet.model.settle
    if settle is None:
        return
    try:
        settle(fleet.state, fleet.parameters, world.elevation, world.cell_m, world.west, world.south)
    except Exception as error:  # a plug-in's code can raise anything
        raise BrokenKernelError(f"robot model {fleet.model.name} cannot be put on the ground", plain(settle)) from error


def make_fleet(model: RobotModel, names: Sequence[str], states: Array, parameters: Array, keys: Sequence[int]) -> Fleet:
    count = len(names)
    return Fleet(
        model=model,
        names=tuple(names),
        state=states,
        command=np.zeros((len(model.inputs), count)),
        parameters=parameters,
        keys=np.array(keys, np.int64),
        seen=np.empty((count, FIELDS)),
    )
