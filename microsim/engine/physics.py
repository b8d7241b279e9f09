"""All robots of a world: their state, the commands in force, and how they move."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.engine.bodies import Body
from microsim.engine.calls import PLANE_SIZE, BrokenKernelError, Rows, call_now, has_checked, raise_broken, scene_row
from microsim.engine.components import RobotModel, state_at, state_in
from microsim.engine.contact_tables import Contacts, Mover
from microsim.engine.exact import wrap_angle
from microsim.engine.geometry import Array
from microsim.engine.motion import FIELDS, Motion
from microsim.engine.records import Record, Records, address_of, grid_of, rows_of, span_of
from microsim.engine.robot_loops import FLEET, advance_address, settle_address
from microsim.engine.tick import COPY, ROBOTS, look, move
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
        if self.model.age_row is not None:
            self.state[self.model.age_row, columns] = 0.0

    def rows(self, *names: str) -> Array:
        """Numbers of the state by name, of all its robots: a copy, (len(names), n)."""
        found: Array = self.state[[self.model.row(name) for name in names]]
        return found

    def write(self, row: Record, scene: Rows) -> None:
        """What a call of the model needs."""
        row.end = len(self.names)
        row.state, row.command, row.parameters = map(grid_of, (self.state, self.command, self.parameters))
        row.keys, row.scene, row.motions = map(address_of, (self.keys, scene, self.seen))


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
        self.scene = scene_of(world, dt, plane)
        movers = [self._mover(name) for name in bodies or self.home]
        self.contacts = Contacts(movers, bodies or {}, world, self.scene, stops_all, obstacles=obstacles)
        self.rows: Records = np.zeros(len(self.fleets), FLEET)
        for row, fleet in zip(self.rows, self.fleets, strict=True):
            fleet.write(row, self.scene)
            row.function = advance_address(fleet.model)
        self.has_checked = has_checked(self.rows["function"])
        self._robots = rows_of(ROBOTS, fleets=span_of(self.rows), contacts=self.contacts.address)
        self.address = address_of(self._robots)
        self._traces: Sequence[Array] = ()
        self._copy_to(np.zeros(0, COPY))
        self.look()

    def _mover(self, name: str) -> Mover:
        fleet, column = self.home[name]
        return Mover(name, fleet.model, fleet.state, column)

    def move(self, tick: int, ticks: int = 1) -> None:
        """From tick to tick + ticks."""
        move(self.address, tick, ticks)

    def raise_broken(self) -> None:
        """Raise an error if the kernel of a plug-in raised one."""
        if self.has_checked:  # else there is nothing to look for
            raise_broken(self.rows, lambda row: f"robot model {self.fleets[row].model.name}")

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

    def continue_trace(self, before: "Physics") -> None:
        """Continue the trace of the physics that this one replaces, if there is one."""
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
        put(fleet.model, fleet.state[:, column], self.world, x, y, z, yaw)
        settle_on_ground(fleet, self.world)

    def distance(self, first: str, second: str) -> float:
        (a, i), (b, j) = self.home[first], self.home[second]
        one, two = state_at(a.state, i), state_at(b.state, j)
        dx, dy, dz = one.x - two.x, one.y - two.y, one.z - two.z
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
        return self.contacts.names, self.contacts.obstacles, self.contacts.touched.copy()

    def load_contacts(self, saved: Any) -> None:
        names, obstacles, touched = saved
        self.contacts.recall(tuple(names), tuple(obstacles), touched)


def put(model: RobotModel, column: Array, world: World, x: float, y: float, z: float, yaw: float) -> None:
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
    scene, row = scene_of(world, 1.0, plane), np.zeros(1, FLEET)
    fleet.write(row[0], scene)
    row["function"] = settle_address(fleet.model)
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
