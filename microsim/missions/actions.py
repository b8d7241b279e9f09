"""What is done in a mission: the entries of `do:`. Attribute names are the YAML keys."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from microsim.documents.values import Angle, Count, Finite, Length, Metres, Model, Switch, detail, fail, show

LONGEST_S = 86_400.0 * 365.0

Seconds = Annotated[Finite, Field(ge=0, le=LONGEST_S)]
Period = Annotated[Finite, Field(gt=0, le=LONGEST_S)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=200)]


class Action(Model):
    """One entry of `do:`: something that happens at a time, once or again and again."""

    name: Name | None = Field(None, description="What `after:` of a later entry calls this one.")
    at: Seconds = Field(0.0, description="When, in simulated seconds from the start, or from what `after:` names [s].")
    after: Name | None = Field(None, description="Wait until the entry of this name is done.")
    every: Period | None = Field(None, description="Again, each time after so long [s]; needs `times`.")
    times: Annotated[Count, Field(le=1_000_000)] = Field(1, description="How often, with `every`.")

    @model_validator(mode="after")
    def _repeats(self) -> Self:
        if self.every is None and self.times != 1:
            fail([detail("`times` needs `every: SECONDS`", "times", at_key=True)])
        if self.every is not None and "times" not in self.model_fields_set:
            fail([detail("`every` needs `times: COUNT`", "every", at_key=True)])
        return self


class RobotAction(Action):
    robot: Name = Field(description="Whom it concerns.")


class CommandAction(RobotAction):
    """A velocity command, held until the next."""

    command: dict[str, Finite] = Field(
        description="Drone: vx, vy, vz [m/s], yaw_rate [rad/s]; rover: v [m/s], omega [rad/s]; car: "
        "steering [rad], speed [m/s] or throttle, brake. Left out: 0."
    )


class Place(Model):
    x: Metres
    y: Metres
    z: Metres | None = Field(None, description="[m]; without it a drone keeps its height.")
    yaw: Angle = Field(0.0, description="[rad]")


class TeleportAction(RobotAction):
    """Put a robot somewhere, at rest."""

    teleport: Place = Field(description="{x, y, z, yaw} in the map frame [m, rad]; a drone without z keeps its height.")


class RadioAction(RobotAction):
    """A packet from the robot's radio. Done when one of them has arrived at another robot."""

    radio: Annotated[str, Field(strict=True, max_length=65536)] = Field(
        description="The payload as text; {n} becomes 0, 1, 2 … where the entry is repeated."
    )


class SetAction(Action):
    """Another value for something in the scenario, from here on."""

    set: dict[str, Any] = Field(min_length=1, description="Key path in the scenario -> value: {wind.gust_sigma: 0.5}.")


class PauseAction(Action):
    """Time stands still for a while of wall time. Means nothing to the digest, and nothing as fast as possible."""

    pause: Annotated[Finite, Field(gt=0, le=3600)] = Field(description="For so long, in seconds on the wall clock [s].")


def _waypoint(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or not 2 <= len(value) <= 4:
        raise ValueError(f"expected [x, y], [x, y, z] or [x, y, z, yaw], found {show(value)}")
    return value


Waypoint = Annotated[tuple[Metres, ...], BeforeValidator(_waypoint)]


class WaypointsAction(RobotAction):
    """From place to place by the built-in follower. Done at the last; there a drone holds its place, a rover stands."""

    waypoints: tuple[Waypoint, ...] = Field(
        max_length=10_000, description="[x, y], [x, y, z] or [x, y, z, yaw] each, in the map frame."
    )
    relative: Switch = Field(False, description="true: waypoints are offsets from where the robot is when it sets off.")
    speed: Annotated[Length, Field(le=1e3)] = Field(1.0, description="Speed on the way [m/s].")
    tolerance: Length = Field(0.5, description="A waypoint counts as reached within this distance [m].")
    timeout: Period | None = Field(
        None, description="The last must be reached in this time [s]; default: before the end of the mission."
    )

    @model_validator(mode="after")
    def _once(self) -> Self:
        if not self.waypoints:
            fail([detail("expected one waypoint or more, found none", "waypoints")])
        if self.every is not None:
            fail([detail("waypoints cannot be repeated; write the places again", "every", at_key=True)])
        return self


ACTIONS: dict[str, type[Action]] = {
    "command": CommandAction,
    "teleport": TeleportAction,
    "radio": RadioAction,
    "set": SetAction,
    "pause": PauseAction,
    "waypoints": WaypointsAction,
}

AnyAction: TypeAlias = CommandAction | TeleportAction | RadioAction | SetAction | PauseAction | WaypointsAction
