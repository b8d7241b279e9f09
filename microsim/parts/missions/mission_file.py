"""`Mission`: what is done and what is expected, as in its YAML file. Attribute names are the YAML keys."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails
from typing_extensions import Self

from microsim.documents.values import (
    Angle,
    Count,
    Finite,
    Length,
    Metres,
    Model,
    Seed,
    Switch,
    describe,
    detail,
    exactly,
    fail,
    show,
    under,
    unknown,
)
from microsim.errors import MissionError, Problem, there_are
from microsim.errors import unknown as no_such
from microsim.paths import mission_file, mission_names
from microsim.scenario.files import SUFFIXES, Places, beside, has_key_of, is_file, model_of, read_file
from microsim.scenario.gates import Gate

LONGEST_S = 86_400.0 * 365.0

Seconds = Annotated[Finite, Field(ge=0, le=LONGEST_S)]
Period = Annotated[Finite, Field(gt=0, le=LONGEST_S)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=200)]


# ---- do --------------------------------------------------------------------------------------------------------------


class Action(Model):
    """One entry of `do:`: something that happens at a time, once or repeatedly."""

    name: Name | None = Field(None, description="A name for `after:` of a later entry.")
    at: Seconds = Field(0.0, description="When, in simulated seconds from the start, or from what `after:` names [s].")
    after: Name | None = Field(None, description="Wait until the entry with this name is done.")
    every: Period | None = Field(None, description="Repeat with this period [s]; needs `times`.")
    times: Annotated[Count, Field(le=1_000_000)] = Field(1, description="How many times, with `every`.")

    @model_validator(mode="after")
    def _repeats(self) -> Self:
        if self.every is None and self.times != 1:
            fail([detail("`times` needs `every: SECONDS`", "times", at_key=True)])
        if self.every is not None and "times" not in self.model_fields_set:
            fail([detail("`every` needs `times: COUNT`", "every", at_key=True)])
        return self


class RobotAction(Action):
    robot: Name = Field(description="The robot it is for.")


class CommandAction(RobotAction):
    """A velocity command, held until the next one."""

    command: dict[str, Finite] = Field(
        description="Drone: vx, vy, vz [m/s], yaw_rate [rad/s]; rover: v [m/s], omega [rad/s]; car: "
        "steering [rad], speed [m/s] or throttle, brake. Default of each: 0."
    )


class TeleportPlace(Model):
    x: Metres
    y: Metres
    z: Metres | None = Field(None, description="[m]; without it a drone keeps its height.")
    yaw: Angle = Field(0.0, description="[rad]")


class TeleportAction(RobotAction):
    """Put a robot somewhere, at rest."""

    teleport: TeleportPlace = Field(
        description="{x, y, z, yaw} in the map frame [m, rad]; a drone without z keeps its height."
    )


class RadioAction(RobotAction):
    """A packet from the robot's radio. Done when one of the packets has reached another robot."""

    radio: Annotated[str, Field(strict=True, max_length=65536)] = Field(
        description="The payload as text; {n} becomes 0, 1, 2 … if the entry is repeated."
    )


class SetAction(Action):
    """Changes values of the scenario from here on."""

    set: dict[str, Any] = Field(min_length=1, description="Key path in the scenario -> value: {wind.gust_sigma: 0.5}.")


class PauseAction(Action):
    """Simulated time stops for a while. No effect on the digest, and none if run as fast as possible."""

    pause: Annotated[Finite, Field(gt=0, le=3600)] = Field(description="For how long, in wall time [s].")


def _waypoint(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or not 2 <= len(value) <= 4:
        raise ValueError(f"expected [x, y], [x, y, z] or [x, y, z, yaw], found {show(value)}")
    return value


Waypoint = Annotated[tuple[Metres, ...], BeforeValidator(_waypoint)]


class WaypointsAction(RobotAction):
    """Go from place to place with the built-in follower. Done at the last, where a drone hovers and a rover stops."""

    waypoints: tuple[Waypoint, ...] = Field(
        max_length=10_000, description="[x, y], [x, y, z] or [x, y, z, yaw] each, in the map frame."
    )
    relative: Switch = Field(
        False, description="true: waypoints are offsets from where the robot is at the start of this entry."
    )
    speed: Annotated[Length, Field(le=1e3)] = Field(1.0, description="Speed between waypoints [m/s].")
    tolerance: Length = Field(0.5, description="A waypoint counts as reached within this distance [m].")
    timeout: Period | None = Field(
        None, description="The last must be reached within this time [s]; default: before the end of the mission."
    )

    @model_validator(mode="after")
    def _once(self) -> Self:
        if not self.waypoints:
            fail([detail("expected at least one waypoint, found none", "waypoints")])
        if self.every is not None:
            fail([detail("waypoints cannot be repeated; list the places several times", "every", at_key=True)])
        return self


ACTIONS: dict[str, type[Action]] = {
    "command": CommandAction, "teleport": TeleportAction, "radio": RadioAction, "set": SetAction, "pause": PauseAction,
    "waypoints": WaypointsAction,
}  # fmt: skip

AnyAction: TypeAlias = CommandAction | TeleportAction | RadioAction | SetAction | PauseAction | WaypointsAction


# ---- expect ----------------------------------------------------------------------------------------------------------


def _number_or_place(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        if not 2 <= len(value) <= 3 or not all(map(_is_finite, value)):
            raise ValueError(f"expected a number, [x, y] or [x, y, z], found {show(value)}")
        return tuple(map(float, value))
    if value is not None and not _is_finite(value):
        raise ValueError(f"expected a number, [x, y] or [x, y, z], found {describe(value)}")
    return value


def _is_finite(value: Any) -> bool:
    """As a float: an integer can be too large for one, which `math.isfinite` would raise an error for."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


class Expectation(Model):
    """One entry of `expect:`: a value and its bounds."""

    equals: Annotated[float | tuple[float, ...] | None, BeforeValidator(_number_or_place)] = Field(
        None, description="The value; for a position [x, y] or [x, y, z]."
    )
    within: Annotated[Finite, Field(ge=0)] = Field(0.0, description="How far from `equals` it may be.")
    at_least: Finite | None = Field(None, description="Lower bound, inclusive.")
    at_most: Finite | None = Field(None, description="Upper bound, inclusive.")

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if self.equals is None and self.at_least is None and self.at_most is None:
            fail([detail("nothing is expected; add `equals` (and `within`), `at_least` or `at_most`")])
        if self.equals is None and "within" in self.model_fields_set:
            fail([detail("`within` needs `equals`", "within", at_key=True)])
        return self

    def bounds(self) -> str:
        """`expected 0.03 within 0.01`."""
        parts = [] if self.at_least is None else [f"at least {self.at_least:g}"]
        parts += [] if self.at_most is None else [f"at most {self.at_most:g}"]
        if self.equals is not None:
            shown = f"{self.equals:g}" if isinstance(self.equals, float) else show(self.equals)
            parts.insert(0, shown + (f" within {self.within:g}" if self.within else ""))
        return "expected " + " and ".join(parts)


class Windowed(Expectation):
    since: Seconds | None = Field(None, alias="from", description="Start of the time window [s].")
    to: Seconds | None = Field(None, description="End of the time window [s]; default: the mission's end.")


class RobotExpectation(Windowed):
    """About a robot's true state: at the end, at a time, by a time, or at every tick from one time to another."""

    robot: Name = Field(description="The robot whose state is meant.")
    value: Name = Field(
        description="A name in its state (drone: x y z yaw vx vy vz yaw_rate; rover: x y z yaw v omega; all: "
        "contacts, which began with obstacles, the edge of the map or other robots), or "
        "position, displacement (from its start), height (above ground), speed, clearance_cells "
        "(to the nearest occupied cell or the edge of the map)."
    )
    at: Seconds | None = Field(None, description="At this time only [s]; default: the mission's end.")
    by: Seconds | None = Field(None, description="At any tick up to this time [s]: for a place to arrive at.")

    @property
    def subject(self) -> str:
        return self.robot

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        written = [key for key in ("at", "by") if getattr(self, key) is not None]
        if len(written) + (self.since is not None or self.to is not None) > 1:
            fail([detail("either `at`, or `by`, or `from` and `to`", written[0], at_key=True)])
        if isinstance(self.equals, tuple) != (self.value == "position") and self.equals is not None:
            expected = "[x, y] or [x, y, z]" if self.value == "position" else "a number"
            fail([detail(f"expected {expected} for the value {self.value!r}, found {show(self.equals)}", "equals")])
        if self.value == "position" and (self.equals is None or not self.within):
            fail([detail("a position needs `equals: [x, y, z]` and `within`", "value")])
        return self


class TopicExpectation(Windowed):
    """About the messages sent on a topic from one time up to another, which is excluded."""

    topic: Name = Field(description="Name of the topic.")
    value: Name = Field(
        description="count, rate_hz, or a field such as `range` or `position_covariance[0]`, checked in each message."
    )

    @property
    def subject(self) -> str:
        return self.topic


class RadioExpectation(Expectation):
    """About one direction of the radio, counted from the start."""

    radio: Annotated[tuple[Name, Name], exactly(2, "[sender, receiver]")] = Field(description="[sender, receiver]")
    value: Literal["sent", "delivered", "dropped", "overflowed", "drop_rate", "latency_ms"] = Field(
        description="Counts, the share of packets lost, or the mean latency [ms]."
    )
    at: Seconds | None = Field(None, description="At this time [s]; default: the mission's end.")

    @property
    def subject(self) -> str:
        return " → ".join(self.radio)


EXPECTATIONS: dict[str, type[Expectation]] = {
    "robot": RobotExpectation,
    "topic": TopicExpectation,
    "radio": RadioExpectation,
}

AnyExpectation: TypeAlias = RobotExpectation | TopicExpectation | RadioExpectation


# ---- the mission -----------------------------------------------------------------------------------------------------


class Mission(Model):
    """A mission. Make one with `load_mission`."""

    name: Name = Field("mission", description="Its name.")
    scenario: Name | None = Field(None, description="Scenario to use if none is given: a name or a file.")
    seed: Seed | None = Field(None, description="Seed to use if none is given; default: the scenario's.")
    duration: Period = Field(description="When it ends, in simulated seconds [s].")
    do: tuple[AnyAction, ...] = Field((), description="What is done; entries may be in any order.")
    expect: tuple[AnyExpectation, ...] = Field((), description="What must hold; otherwise the run fails.")
    lockstep: tuple[Gate, ...] = Field((), description="What the run waits for, in place of the scenario's `lockstep`.")

    _places: Places = PrivateAttr(default_factory=Places)

    @field_validator("do", mode="before")
    @classmethod
    def _actions(cls, value: Any) -> Any:
        return _each(value, ACTIONS, "what to do", "an entry of `do`")

    @field_validator("expect", mode="before")
    @classmethod
    def _expectations(cls, value: Any) -> Any:
        return _each(value, EXPECTATIONS, "what it is about", "an entry of `expect`")

    @model_validator(mode="after")
    def _times_and_names_fit(self) -> Self:
        problems = [*self._names(), *self._times()]
        if problems:
            fail(problems)
        return self

    def _names(self) -> list[InitErrorDetails]:
        known: list[str] = []
        problems = []
        for index, entry in enumerate(self.do):
            if entry.after is not None and entry.after not in known:
                message = unknown("entry", entry.after, known) + " before this one"
                problems.append(detail(message, "do", index, "after"))
            if entry.name is not None and entry.name in known:
                problems.append(detail(f"an earlier entry already has the name {entry.name!r}", "do", index, "name"))
            known += [] if entry.name is None else [entry.name]
        return problems

    def _times(self) -> list[InitErrorDetails]:
        written: list[tuple[tuple[str | int, ...], float]] = []
        for i, entry in enumerate(self.do):
            written.append((("do", i, "at"), entry.at))
            if entry.every is not None:
                written.append((("do", i, "times"), entry.at + entry.every * (entry.times - 1)))
        for i, expected in enumerate(self.expect):
            written += [(("expect", i, key), getattr(expected, key, None) or 0.0) for key in ("at", "by", "to")]
            written.append((("expect", i, "from"), getattr(expected, "since", None) or 0.0))
        message = "{:g} s is after the end of the mission, whose duration is {:g} s"
        problems = [detail(message.format(time, self.duration), *loc) for loc, time in written if time > self.duration]
        for i, expected in enumerate(self.expect):
            since, to = getattr(expected, "since", None) or 0.0, getattr(expected, "to", None)
            if since >= (self.duration if to is None else to):
                problems.append(detail("`from` must be before `to` and the end of the mission", "expect", i, "from"))
        return problems


def _each(value: Any, kinds: Mapping[str, type[Model]], what: str, entry: str) -> Any:
    """Every item of a list as the model that one of its keys names; all problems at once."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"expected a list of mappings, found {show(value)}")
    found, problems = [], []
    for index, item in enumerate(value):
        try:
            found.append(item if isinstance(item, Model) else _one(item, kinds, what, entry))
        except ValidationError as error:
            problems += under(error, index)
    if problems:
        fail(problems)
    return found


def _one(item: Any, kinds: Mapping[str, type[Model]], what: str, entry: str) -> Model:
    if not isinstance(item, Mapping):
        fail([detail(f"expected a mapping with one of the keys {', '.join(kinds)}, found {show(item)}", found=item)])
    keys = [key for key in kinds if key in item]
    if len(keys) == 1:
        return kinds[keys[0]].model_validate(item)
    if keys:
        fail([detail(f"{entry} has one of {', '.join(kinds)}; found {' and '.join(keys)}", keys[1], at_key=True)])
    raise fail([_missing(item, kinds, what)])


def _missing(item: Mapping[str, Any], kinds: Mapping[str, type[Model]], what: str) -> InitErrorDetails:
    known = {key for kind in kinds.values() for key in kind.key_names()}
    strange = [key for key in item if key not in known]
    if strange:
        return detail(unknown("key", strange[0], kinds), strange[0], at_key=True)
    return detail(f"missing {what}; {there_are(kinds)}", found=item)


# ---- loading ---------------------------------------------------------------------------------------------------------


def load_mission(source: str | Path | Mapping[str, Any] | Mission) -> Mission:
    """The mission with that name, path or content; MissionError lists everything that is wrong with it."""
    if isinstance(source, Mission):
        return source
    if isinstance(source, Mapping):
        return _validated(dict(source), Places())
    if not isinstance(source, (str, Path)):
        raise MissionError(Problem(f"expected a mission's name, file or content, found {show(source)}"))
    file = find_mission(source)
    return _validated(*read_file(file, MissionError), file)


def find_mission(source: str | Path) -> Path:
    """The file of a shipped mission, or the path itself."""
    if isinstance(source, str) and source in mission_names():
        return mission_file(source)
    path = Path(source)
    if isinstance(source, Path) or path.suffix in SUFFIXES or len(path.parts) > 1 or (source and is_file(path)):
        return path
    raise MissionError(Problem(no_such("no mission", repr(source), source, mission_names())))


def is_mission(file: Path) -> bool:
    """Whether a file, by its keys, is a mission and not a scenario."""
    return has_key_of(
        file, set(Mission.key_names()) - {"name", "scenario", "seed", "lockstep"}
    )  # a scenario has only these


def _validated(data: Any, places: Places, file: Path | None = None) -> Mission:
    if file is not None and isinstance(data, Mapping) and "name" not in data:
        data = {"name": file.stem, **data}
    mission = model_of(Mission, data, places, MissionError)
    if mission.scenario is not None and file is not None:
        mission = mission.model_copy(update={"scenario": beside(mission.scenario, file)})
    mission._places = places
    return mission
