"""The data that robots and sensors share, with unit and frame beside each field."""

import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from microsim.engine.columns import column_at, column_from, column_in
from microsim.engine.geometry import Vector

# Every robot's state is a column of numbers that begins with these, so that sensors need not know its model. Position
# is that of base_link in the map frame; velocity and acceleration are what it really did in the last tick, wind and
# collisions included, in map axes.
COMMON = (
    *("x", "y", "z", "yaw"),  # [m] [m] [m] [rad]
    *("velocity_x", "velocity_y", "velocity_z", "yaw_rate"),  # [m/s] [m/s] [m/s] [rad/s]
    *("acceleration_x", "acceleration_y", "acceleration_z"),  # [m/s^2]
    *("roll", "pitch"),  # [rad] of Rz(yaw) Ry(pitch) Rx(roll); 0 for drones and rovers
    *("roll_rate", "pitch_rate"),  # [rad/s]
    "is_stopped",  # 1 where something stopped it in the last tick; a model that stops at occupied cells sets it
    "contacts",  # that have begun since the start, see `contacts`
    "touching",  # how many things it touches now
)

state_at, state_in, state_from = column_at(COMMON), column_in(COMMON), column_from(COMMON)

TRACE = "x", "y", "z", "farthest"  # where a robot was, and the square of how far from there it ever was since [m^2]
trace_at = column_at(TRACE)

# Rows of a state, for those who look at it as an array; kernels use names.
X, Y, Z, YAW, VELOCITY_X, VELOCITY_Y, VELOCITY_Z, YAW_RATE = range(8)
ACCELERATION_X, ACCELERATION_Y, ACCELERATION_Z, ROLL, PITCH, ROLL_RATE, PITCH_RATE = range(8, 15)
CONTACTS, TOUCHING = COMMON.index("contacts"), COMMON.index("touching")
COMMON_ROWS = len(COMMON)

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
class SideBySide:
    """How many robots of a model move at once, in SIMD: the ticks of `RobotModel.advance` in steps, with its bits.

    For models that never lean, change no command, and stop only where `advance` does. With it, a drone and a rover in
    1024 worlds take a twelfth of the time: 8.4 ns a tick for both, 6 ticks a call; 99 ns without.
    """

    go: Callable[..., None]  # (robot, command, parameters, dt): over the ground, where nothing is in the way
    stand: Callable[..., None]  # (robot, command, parameters, ground, dt): then in height; ground [m] under it
    is_clear: Callable[..., bool]  # (robot, command, parameters, scene, ticks): nothing is in the way for so long
    drift: Callable[..., None]  # (robot, parameters, key, tick): before all else, what noise does
    noise_rows: int = 0  # the last rows of its own, which only `drift` changes


@dataclass(frozen=True, eq=False, kw_only=True)
class RobotModel:
    """How a kind of robot moves.

    `advance(robot, command, parameters, key, scene, tick)` moves one robot by one tick in place. Of `robot`, `command`
    and `parameters` the numbers are attributes, see `columns`: those of the state are `COMMON` and `own`. key: of its
    noise; scene: the world (`microsim.engine.calls.Scene`). It is compiled for CPUs and GPUs, and serves one world and
    a million alike: the loops over robots and ticks are in `robot_loops`.
    """

    name: str
    inputs: tuple[str, ...]  # numbers of a command
    twist_fields: tuple[str, ...]  # where each input stands in a geometry_msgs/Twist; () with `from_twist`
    advance: Callable[..., None]
    is_ground_bound: bool  # stands on the ground and may not be put into an occupied cell
    own: tuple[str, ...] = ()  # numbers of the state beside the common ones
    shown: tuple[str, ...] | Mapping[str, str] = ("x", "y", "z", "yaw")  # to users; name or alias -> name
    parameter_names: tuple[str, ...] = ()  # what `advance` needs to know of a robot; numbers without a name may follow
    parameters: Callable[[Any, Airflow, float], Sequence[float]] | None = None  # (settings, wind, dt); None: settings
    stops_at_cells: bool = False  # `advance` stops at occupied cells, and sets `is_stopped`; else its body counts
    zero_when_stopped: tuple[str, ...] = ()  # of `own`: 0 after something stopped it, such as its speed
    kept_when_stopped: tuple[str, ...] = ()  # of `own`: then stay as they were, such as angles of wheels; 4 at most
    needs_tick: Callable[[Mapping[str, Any]], bool] = lambda parameters: True  # False: the tick's number is nothing
    command_age: str = ""  # of `own`: counts ticks since the last command, see `command_timeout`
    from_twist: Callable[[Any, float, float], Mapping[str, float]] | None = None  # (settings, m/s, rad/s) -> inputs
    settle: Callable[..., None] | None = None  # (robot, parameters, scene): lean on the ground, where it was put
    side_by_side: SideBySide | None = None
    joints: tuple[str, ...] = ()  # names, for joint_states
    joint_kernel: Callable[..., None] | None = None  # a sensor's kernel on the state: all positions, then all speeds
    joint_numbers: Callable[[Any], Sequence[float]] = lambda settings: ()  # `settings` of that kernel

    def __post_init__(self) -> None:
        self._check()

    @cached_property
    def row_names(self) -> tuple[str, ...]:
        return (*COMMON, *self.own)

    @property
    def rows(self) -> int:
        """Of the state."""
        return len(self.row_names)

    def row(self, name: str) -> int:
        """Number of a row of the state."""
        return self.row_names.index(name)

    @cached_property
    def state(self) -> Mapping[str, int]:
        """What users see -> its row of the state. Every robot counts contacts."""
        shown = self.shown if isinstance(self.shown, Mapping) else {name: name for name in self.shown}
        return {name: self.row(row) for name, row in {**shown, "contacts": "contacts"}.items()}

    @property
    def age_row(self) -> int | None:
        return self.row(self.command_age) if self.command_age else None

    def numbers(self, settings: Any, wind: Airflow, dt: float) -> tuple[float, ...]:
        """The parameters of one robot."""
        if self.parameters is None:
            return tuple(float(getattr(settings, name)) for name in self.parameter_names)
        found = tuple(float(each) for each in self.parameters(settings, wind, dt))
        if len(found) < len(self.parameter_names):
            names = ", ".join(self.parameter_names)
            raise ValueError(f"{self.name}: parameters: expected a number for each of {names}; found {len(found)}")
        return found

    def needs_tick_with(self, parameters: Any) -> bool:
        """parameters (p, n): False where the number of the tick does not matter to any of these robots."""
        return bool(self.needs_tick(dict(zip(self.parameter_names, parameters, strict=False))))

    def _check(self) -> None:
        """Names that are not there would only be missed by compiled code."""
        for key in ("inputs", "own", "parameter_names"):
            names = getattr(self, key)
            for name in names:
                if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
                    raise ValueError(f"{self.name}: {key}: expected names, found {name!r}")
                if names.count(name) > 1 or (key == "own" and name in COMMON):
                    raise ValueError(f"{self.name}: {key}: {name!r} is there twice")
        shown = self.shown.values() if isinstance(self.shown, Mapping) else self.shown
        own = {"zero_when_stopped": self.zero_when_stopped, "kept_when_stopped": self.kept_when_stopped}
        age = (self.command_age,) if self.command_age else ()
        for key, names in {"shown": tuple(shown), **own, "command_age": age}.items():
            known = self.row_names if key == "shown" else self.own
            for name in names:
                if name not in known:
                    raise ValueError(
                        f"{self.name}: {key}: no number {name!r} in its state; there are: {', '.join(known) or 'none'}"
                    )
        if self.from_twist is None and len(self.twist_fields) != len(self.inputs):
            found = f"{len(self.inputs)} inputs and {len(self.twist_fields)} twist_fields"
            raise ValueError(f"{self.name}: twist_fields: expected one for each input, found {found}")
        for field in self.twist_fields:
            if field not in TWIST_FIELDS:
                raise ValueError(f"{self.name}: twist_fields: expected some of {TWIST_FIELDS}, found {field!r}")
        functions: dict[str, Any] = {"advance": self.advance}
        functions |= {} if self.parameters is None else {"parameters": self.parameters}
        for key, function in functions.items():
            if not callable(function):
                raise TypeError(f"{self.name}: {key}: expected a function, found {function!r}")
