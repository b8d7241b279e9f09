"""The data that robots and sensors share, with unit and frame beside each field."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from microsim.engine.geometry import Vector

# Every robot's state is a column of numbers that begins with these rows, so that sensors need not know its model.
# Position is that of base_link in the map frame; velocity and acceleration are what it really did in the last tick,
# wind and collisions included, in map axes.
X, Y, Z, YAW = 0, 1, 2, 3  # [m] [m] [m] [rad]
VELOCITY_X, VELOCITY_Y, VELOCITY_Z, YAW_RATE = 4, 5, 6, 7  # [m/s] [m/s] [m/s] [rad/s]
ACCELERATION_X, ACCELERATION_Y, ACCELERATION_Z = 8, 9, 10  # [m/s^2]
ROLL, PITCH = 11, 12  # [rad] of Rz(yaw) Ry(pitch) Rx(roll); 0 for drones and rovers
ROLL_RATE, PITCH_RATE = 13, 14  # [rad/s]
HELD = 15  # 1 where something stopped the robot in the last tick; a kernel that stops at occupied cells sets it
CONTACTS = 16  # contacts that have begun since the start, see `contacts`
TOUCHING = 17  # things that the robot touches now
COMMON_ROWS = 18

TWIST_FIELDS = ("linear.x", "linear.y", "linear.z", "angular.z")  # of a Twist: what can be an input
GRAVITY = 9.80665  # [m/s^2]


@dataclass(frozen=True)
class Airflow:
    world_xyz: Vector = (0.0, 0.0, 0.0)  # [m/s] map frame
    gust_sigma: float = 0.0  # [m/s] standard deviation of each axis
    gust_tau_s: float = 2.0  # [s] correlation time


@dataclass(frozen=True)
class FixedMount:
    """Where a sensor sits: base_link to the sensor's own frame."""

    xyz: Vector = (0.0, 0.0, 0.0)  # [m]
    rpy: Vector = (0.0, 0.0, 0.0)  # [rad] fixed axes, URDF's order


@dataclass(frozen=True)
class RobotModel:
    """How a kind of robot moves.

    `advance(state, command, settings, keys, scene, tick, ticks)` moves all robots of the model, one per column, by
    `ticks` ticks in place: state (rows, n), command (inputs, n), settings (p, n), keys (n,) noise keys, scene the world
    (`microsim.engine.calls.Scene`). It is compiled for CPUs and GPUs, and serves one world and a million alike.
    `advance_many(…, ticks, trace)` is for CPUs: it does the same for many columns side by side, in SIMD, and notes in
    `trace` (`microsim.engine.calls.TRACE_ROWS`, n) how far each robot ever was from where it began. A model that has it
    changes neither commands nor the common rows from ROLL on, except HELD.
    """

    name: str
    inputs: tuple[str, ...]  # names of the command's numbers, in the order of the command array
    twist_fields: tuple[str, ...]  # where each input stands in a geometry_msgs/Twist; () with `from_twist`
    rows: int  # of the state
    state: Mapping[str, int]  # name a user sees -> row
    parameters: Callable[[Any, Airflow, float], tuple[float, ...]]  # (the robot's settings, wind, dt) -> column
    advance: Callable[..., None]
    is_ground_bound: bool  # stands on the ground and may not be put into an occupied cell
    minds_cells: bool = False  # `advance` itself stops at occupied cells, and sets HELD; else its body is looked at
    zero_when_held: tuple[int, ...] = ()  # rows of its own that are 0 after something stopped it, such as its speed
    kept_when_held: tuple[int, ...] = ()  # rows of its own that stay as they were, such as angles of wheels; 4 at most
    needs_tick: Callable[[Any], bool] = lambda parameters: True  # (p, n) -> False where the tick number does not matter
    command_age: int | None = None  # row that counts ticks since the last command, see `command_timeout`; None: no row
    from_twist: Callable[[Any, float, float], Mapping[str, float]] | None = None  # (settings, m/s, rad/s) -> inputs
    settle: Callable[..., None] | None = None  # (state, parameters, elevation, cell, west, south): lean on the ground
    advance_many: Callable[..., None] | None = None
    joints: tuple[str, ...] = ()  # names, for joint_states
    joint_kernel: Callable[..., None] | None = None  # a sensor's kernel on the state: all positions, then all speeds
    joint_numbers: Callable[[Any], Sequence[float]] = lambda settings: ()  # `settings` of that kernel

    def __post_init__(self) -> None:
        self._check()
        if "contacts" not in self.state:  # every robot counts them
            object.__setattr__(self, "state", {**self.state, "contacts": CONTACTS})

    def _check(self) -> None:
        """Rows that are not there would be read and written outside the state."""
        rows = {"rows": self.rows - 1, **{f"state[{name!r}]": row for name, row in self.state.items()}}
        if self.rows < COMMON_ROWS:
            raise ValueError(f"{self.name}: rows: expected COMMON_ROWS ({COMMON_ROWS}) or more, found {self.rows!r}")
        own = {"zero_when_held": self.zero_when_held, "kept_when_held": self.kept_when_held}
        rows |= {f"{key}[{k}]": row for key, values in own.items() for k, row in enumerate(values)}
        rows |= {} if self.command_age is None else {"command_age": self.command_age}
        for key, row in rows.items():
            if not 0 <= row < self.rows:
                raise ValueError(f"{self.name}: {key}: expected a row from 0 to {self.rows - 1}, found {row!r}")
        if self.from_twist is None and len(self.twist_fields) != len(self.inputs):
            found = f"{len(self.inputs)} inputs and {len(self.twist_fields)} twist_fields"
            raise ValueError(f"{self.name}: twist_fields: expected one for each input, found {found}")
        for field in self.twist_fields:
            if field not in TWIST_FIELDS:
                raise ValueError(f"{self.name}: twist_fields: expected some of {TWIST_FIELDS}, found {field!r}")
        functions: dict[str, Any] = {"advance": self.advance, "parameters": self.parameters}
        for key, function in functions.items():
            if not callable(function):
                raise TypeError(f"{self.name}: {key}: expected a function, found {function!r}")
