"""Actors: a person, a car, a drone or a plain shape that moves by itself and shares the world with the robots.

An actor follows a path of timed waypoints, or velocity commands where it has no path. Other robots see it as they see
robots, and can collide with it. What stops it stops its time on the path too: a person waits, and then walks on.
"""

import csv
import io
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from microsim.documents.values import Finite, Length, Metres, Switch, detail, fail, show
from microsim.engine import exact
from microsim.engine.calls import Scene
from microsim.engine.columns import Column, number_of
from microsim.engine.compiled import kernel
from microsim.engine.components import Airflow, RobotModel
from microsim.engine.exact import sincos, wrap_angle
from microsim.engine.geometry import ground_height
from microsim.engine.robot_loops import move_to
from microsim.robots.robot import COMMON_SENSORS, Look, Pose, Robot, SplatFile, Start

_number_of = number_of

_FIRST = 3  # row of the parameters: those of the path begin there
_T, _X, _Y, _Z, _YAW, _NUMBERS = range(6)  # of a waypoint; z is NaN on the ground

MOST_WAYPOINTS = 1_000
SHORTEST_S = 1e-3  # of a path that is repeated: how often it was must be a number of 64 bits
_FASTEST = 1_000.0  # [m/s], [rad/s] of commands: more than actors need, and motion stays finite
TURN_S = 0.5  # within which an actor faces the next waypoint, where the path does not say how it turns

Body = tuple[tuple[float, float, float], tuple[float, float, float]]
BODIES: dict[str, Body] = {
    "person": ((0.0, 0.0, 0.875), (0.5, 0.5, 1.75)),
    "car": ((1.35, 0.0, 0.75), (4.5, 1.8, 1.5)),
    "drone": ((0.0, 0.0, 0.0), (0.5, 0.5, 0.15)),
}


def parameters(settings: Any, wind: Airflow, dt: float) -> tuple[float, ...]:
    knots = turning(settings.path, settings.repeat)
    flat = (number for knot in knots for number in knot)
    return float(len(knots)), float(settings.repeat), float(settings.flies), *flat


def turning(path: Sequence[Any], repeat: bool = False) -> list[tuple[float, ...]]:
    """t, x, y, z, yaw of each waypoint. Where no yaw is written, the actor faces where it walks to."""
    yaw, knots = _heading(path[-2], path[-1], 0.0) if repeat and len(path) > 1 else 0.0, list[tuple[float, ...]]()
    for here, there in pairwise([*path, None] if path else []):
        t, x, y, z, written = (*here, None, None)[:5]
        place: tuple[float, ...] = (t, x, y, math.nan if z is None else z)
        before, yaw = yaw, written if written is not None else _heading(here, there, yaw)
        if written is None and (knots or repeat) and before != yaw and there is not None:
            knots.append((*place, before))
            share = min(TURN_S / (there[0] - t), 0.5)
            goal = (*there, None)[:4]
            place = tuple(math.nan if b is None else a + share * (b - a) for a, b in zip(place, goal, strict=True))
        knots.append((*place, yaw))
    return knots


def _heading(here: Sequence[Any], there: Sequence[Any] | None, before: float) -> float:
    if there is None or here[1:3] == there[1:3]:
        return before
    return float(exact.atan2(there[2] - here[2], there[1] - here[1]))


@kernel
def _last_before(parameters: Column, count: int, t: float) -> int:
    """The number of the last waypoint whose time has come; the first where none has."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if _number_of(parameters, _FIRST + _NUMBERS * middle + _T) <= t:
            low = middle
        else:
            high = middle
    return low


@kernel
def _follow(robot: Column, parameters: Column, scene: Scene) -> None:
    count = int(parameters.count)
    end = _number_of(parameters, _FIRST + _NUMBERS * (count - 1) + _T)
    robot.way += 1.0
    t = robot.way * scene.dt
    if parameters.is_repeated == 1.0 and end > 0.0:
        t -= math.floor(t / end) * end
    at = _last_before(parameters, count, t)
    a = _FIRST + _NUMBERS * at
    b = _FIRST + _NUMBERS * min(at + 1, count - 1)
    share, length = 0.0, _number_of(parameters, b + _T) - _number_of(parameters, a + _T)
    if length > 0.0:
        share = min(max((t - _number_of(parameters, a + _T)) / length, 0.0), 1.0)
    x = _number_of(parameters, a + _X) + share * (_number_of(parameters, b + _X) - _number_of(parameters, a + _X))
    y = _number_of(parameters, a + _Y) + share * (_number_of(parameters, b + _Y) - _number_of(parameters, a + _Y))
    z = _number_of(parameters, a + _Z) + share * (_number_of(parameters, b + _Z) - _number_of(parameters, a + _Z))
    turn = wrap_angle(_number_of(parameters, b + _YAW) - _number_of(parameters, a + _YAW))
    _stand(robot, parameters, scene, x, y, z, _number_of(parameters, a + _YAW) + share * turn)


@kernel
def _obey(robot: Column, command: Column, parameters: Column, scene: Scene) -> None:
    sine, cosine = sincos(robot.yaw)
    ahead, aside = _clamped(command.vx), _clamped(command.vy)
    up, turn = _clamped(command.vz), _clamped(command.yaw_rate)
    x = robot.x + (cosine * ahead - sine * aside) * scene.dt
    y = robot.y + (sine * ahead + cosine * aside) * scene.dt
    z = robot.z + up * scene.dt
    _stand(robot, parameters, scene, x, y, z, robot.yaw + turn * scene.dt)


@kernel
def _clamped(speed: float) -> float:
    return min(max(speed, -_FASTEST), _FASTEST)


@kernel
def _stand(robot: Column, parameters: Column, scene: Scene, x: float, y: float, z: float, yaw: float) -> None:
    if parameters.flies == 0.0 or z != z:
        z = ground_height(scene.elevation, scene.cell, x - scene.west, y - scene.south)
    move_to(robot, x, y, z if z == z else robot.z, scene.dt)
    robot.yaw_rate = wrap_angle(yaw - robot.yaw) / scene.dt
    robot.yaw = wrap_angle(yaw)


@kernel
def _advance_on_path(robot: Column, command: Column, parameters: Column, key: int, scene: Scene, tick: int) -> None:
    _follow(robot, parameters, scene)


@kernel
def _advance_by_commands(robot: Column, command: Column, parameters: Column, key: int, scene: Scene, tick: int) -> None:
    _obey(robot, command, parameters, scene)


def _model(name: str, is_ground_bound: bool, is_commanded: bool) -> RobotModel:
    inputs = {"vx": "linear.x", "vy": "linear.y", "vz": "linear.z", "yaw_rate": "angular.z"} if is_commanded else {}
    return RobotModel(
        name=name,
        inputs=tuple(inputs),
        twist_fields=tuple(inputs.values()),
        own=("way",),  # [ticks] of the path that are behind it
        shown=("x", "y", "z", "yaw", "yaw_rate", "way"),
        parameter_names=("count", "is_repeated", "flies"),
        parameters=parameters,
        advance=_advance_by_commands if is_commanded else _advance_on_path,
        is_ground_bound=is_ground_bound,
        kept_when_stopped=("way",),
        needs_tick=lambda parameters: False,
    )


WALKING, FLYING = _model("actor", True, True), _model("flying_actor", False, True)
ON_A_PATH, ON_A_FLIGHT = _model("actor_on_a_path", True, False), _model("flying_actor_on_a_path", False, False)

Share = Annotated[Finite, Field(ge=0, le=1)]


def _waypoint(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and not 3 <= len(value) <= 5:
        raise ValueError(f"expected [t, x, y], [t, x, y, z] or [t, x, y, z, yaw], found {show(value)}")
    if isinstance(value, (list, tuple)) and None in value[:3]:
        raise ValueError(f"expected numbers for t, x and y, found {show(value)}")
    return value


Waypoint = Annotated[tuple[Metres | None, ...], BeforeValidator(_waypoint)]


class Actor(Robot):
    """A person, a car, a drone or a plain shape that moves by itself; without sensors unless you add some."""

    position: ClassVar[int] = 5
    follower: ClassVar[str] = "fly"
    start_key: ClassVar[str] = "path"
    absent_when_null: ClassVar[tuple[str, ...]] = ("size", "splats")

    model: Literal["actor"] = Field("actor", description="A person, vehicle or shape that moves by itself.")
    shape: Literal["person", "car", "drone", "box", "cylinder"] = Field("person", description="What it looks like.")
    size: tuple[Length, Length, Length] | None = Field(
        None, description="Length, width and height of a box or a cylinder [m]."
    )
    colour: tuple[Share, Share, Share] = Field((0.9, 0.6, 0.2), description="Of a box or a cylinder: red, green, blue.")
    splats: SplatFile | None = Field(None, description="Gaussians that splat cameras draw in place of its model.")
    path: Annotated[tuple[Waypoint, ...], Field(max_length=MOST_WAYPOINTS)] = Field(
        (),
        description="[t, x, y], [t, x, y, z] or [t, x, y, z, yaw] each, times rising; z null: on the ground, yaw null: "
        "where it goes. A name: that of a .csv file with these columns. Empty: it follows cmd_vel.",
    )
    repeat: Switch = Field(False, description="Whether it begins again at the end of the path, where it started.")
    for _name, _sensor in COMMON_SENSORS.items():  # none unless the scenario says so
        __annotations__[_name] = _sensor.settings | None  # type: ignore[operator]
        locals()[_name] = Field(None, description=f"{_sensor.title}; null: none.")
    del _name, _sensor

    @property
    def flies(self) -> bool:
        return self.shape == "drone" or any(len(each) > 3 and each[3] is not None for each in self.path)

    @property
    def kind(self) -> str:
        return self.shape

    @property
    def engine_model(self) -> RobotModel:
        return (ON_A_FLIGHT if self.flies else ON_A_PATH) if self.path else FLYING if self.flies else WALKING

    @property
    def own_splats(self) -> SplatFile | None:
        return self.splats

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return () if self.path else ("cmd_vel", "set_pose")

    @property
    def urdf(self) -> str:  # type: ignore[override]
        return {"car": "ego"}.get(self.shape, self.shape)

    @field_validator("path", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, str):
            return value
        read = (info.context or {}).get("read")
        if read is None or not value.endswith(".csv"):
            raise ValueError(f"expected waypoints or the name of a .csv file, found {show(value)}")
        return _from_csv(read(value), value)

    @field_validator("splats", mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"file": value} if isinstance(value, str) else value

    @field_validator("splats", mode="after")
    @classmethod
    def _found(cls, value: SplatFile | None, info: ValidationInfo) -> SplatFile | None:
        find = (info.context or {}).get("splats")
        if value is None or find is None:
            return value
        place, found = find(value.file)
        if value.sha256 not in (None, found):
            fail([detail(f"{value.file} has changed: its SHA-256 is {found[:16]}…, expected {value.sha256[:16]}…")])
        return value.model_copy(update={"file": place, "sha256": found})

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.shape in BODIES) is not (self.size is None):
            rule = "is only for a box or a cylinder" if self.shape in BODIES else f"is missing for a {self.shape}"
            fail([detail(f"size {rule}", "size", found=self.size)])
        for index, (a, b) in enumerate(pairwise(self.path)):
            if not a[0] < b[0]:  # type: ignore[operator]
                fail([detail(f"expected a later time than {a[0]:g}, found {b[0]:g}", "path", index + 1)])
        if self.path and (self.path[0][0] or 0.0) < 0.0:
            fail([detail(f"expected a time from 0 on, found {show(self.path[0][0])}", "path", 0)])
        first, last = ([*self.path[end], None][1:4] for end in (0, -1)) if self.path else ((), ())
        if self.repeat and first != last:
            begin, end = (", ".join(f"{number:g}" for number in place if number is not None) for place in (first, last))
            rule = f"a path that is repeated ends where it begins, at [{begin}]"
            fail([detail(f"{rule}; found [{end}]", "path", len(self.path) - 1)])
        if self.repeat and self.path and 0.0 < (last_s := self.path[-1][0] or 0.0) < SHORTEST_S:
            rule = f"a path that is repeated takes at least {SHORTEST_S:g} s"
            fail([detail(f"{rule}; found {show(last_s)}", "path", len(self.path) - 1)])
        return self._at_its_start()

    def _at_its_start(self) -> Self:
        if self.path:
            _, x, y, z, yaw = turning(self.path, self.repeat)[0]
            place = Pose(x=x, y=y, z=None if math.isnan(z) else z, yaw=yaw)
            if "start" in self.model_fields_set and self.start.map_pose != place:
                fail([detail("an actor with a path starts at its first waypoint: leave `start` out", "start")])
            self.__dict__["start"] = Start(map_pose=place)
        return self

    def body(self) -> Body:
        return BODIES[self.shape] if self.size is None else ((0.0, 0.0, 0.5 * self.size[2]), self.size)

    def look(self) -> Look:
        center, size = self.body()
        return Look("box" if self.shape in ("box", "car") else "cylinder", size, self.colour, center)

    engine: ClassVar[RobotModel] = WALKING


def _from_csv(text: str, name: str) -> list[list[float | None]]:
    """Waypoints from columns t, x, y and perhaps z, yaw, in any order."""
    reader = csv.reader(io.StringIO(text, newline=None))  # any line ends
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except csv.Error as error:
        raise ValueError(f"{name}, line {reader.line_num}: expected CSV: {error}") from None
    names = rows[0][1] if rows else []
    if missing := [each for each in ("t", "x", "y") if each not in names]:
        raise ValueError(f"{name}: expected a first line with t,x,y and perhaps z,yaw; it has no {', '.join(missing)}")
    found = list[list[float | None]]()
    for line, cells in rows[1:]:
        try:
            given = dict(zip(names, cells, strict=False))
            wanted = [given.get(each, "") for each in ("t", "x", "y", "z", "yaw")]
            found.append([float(cell) if cell or k < 3 else None for k, cell in enumerate(wanted)])
        except ValueError:
            raise ValueError(f"{name}, line {line}: expected numbers, found {show(','.join(cells))}") from None
        if len(cells) > len(names):
            raise ValueError(f"{name}, line {line}: expected {len(names)} values, found {len(cells)}")
    if not found:
        raise ValueError(f"{name}: expected a waypoint per line after the first line, found none")
    return found


ROBOT = Actor
