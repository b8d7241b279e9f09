"""What must come of a mission: the entries of `expect:`. Attribute names are the YAML keys."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from microsim.documents.values import Finite, Model, describe, detail, exactly, fail, show
from microsim.missions.actions import Name, Seconds


def _number_or_place(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        if not 2 <= len(value) <= 3 or not all(map(_is_finite, value)):
            raise ValueError(f"expected a number, [x, y] or [x, y, z], found {show(value)}")
        return tuple(map(float, value))
    if value is not None and not _is_finite(value):
        raise ValueError(f"expected a number, [x, y] or [x, y, z], found {describe(value)}")
    return value


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


class Expectation(Model):
    """One entry of `expect:`: a value and its bounds."""

    equals: Annotated[float | tuple[float, ...] | None, BeforeValidator(_number_or_place)] = Field(
        None, description="The value; for a position [x, y] or [x, y, z]."
    )
    within: Annotated[Finite, Field(ge=0)] = Field(0.0, description="How far from `equals` it may be.")
    at_least: Finite | None = Field(None, description="Lower bound, itself allowed.")
    at_most: Finite | None = Field(None, description="Upper bound, itself allowed.")

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if self.equals is None and self.at_least is None and self.at_most is None:
            fail([detail("nothing is expected; write `equals` (and `within`), `at_least` or `at_most`")])
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
    since: Seconds | None = Field(None, alias="from", description="Beginning of the time that counts [s].")
    to: Seconds | None = Field(None, description="End of the time that counts [s]; default: the mission's end.")


class RobotExpectation(Windowed):
    """About a robot's true state: at the end, at a time, or at every tick from one time to another."""

    robot: Name = Field(description="Whose state.")
    value: Name = Field(
        description="A name in its state (drone: x y z yaw vx vy vz yaw_rate; rover: x y z yaw v omega contacts), or "
        "position, displacement (from where it was at the start), height (over the ground), speed, clearance_cells "
        "(to the nearest occupied cell or the edge of the map)."
    )
    at: Seconds | None = Field(None, description="At this time only [s]; default: the mission's end.")

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if self.at is not None and (self.since is not None or self.to is not None):
            fail([detail("either `at`, or `from` and `to`", "at", at_key=True)])
        if isinstance(self.equals, tuple) != (self.value == "position") and self.equals is not None:
            expected = "[x, y] or [x, y, z]" if self.value == "position" else "a number"
            fail([detail(f"expected {expected} for the value {self.value!r}, found {show(self.equals)}", "equals")])
        if self.value == "position" and (self.equals is None or not self.within):
            fail([detail("a position needs `equals: [x, y, z]` and `within`", "value")])
        return self


class TopicExpectation(Windowed):
    """About the messages sent on a topic from one time up to, not including, another."""

    topic: Name = Field(description="Name of the topic.")
    value: Name = Field(
        description="count, rate_hz, or a field such as `range` or `position_covariance[0]`: then in each message."
    )


class RadioExpectation(Expectation):
    """About one direction of the radio, counted from the start."""

    radio: Annotated[tuple[Name, Name], exactly(2, "[sender, receiver]")] = Field(description="[sender, receiver]")
    value: Literal["sent", "delivered", "dropped", "overflowed", "drop_rate", "latency_ms"] = Field(
        description="Counts, the share that was lost, or the mean latency [ms]."
    )
    at: Seconds | None = Field(None, description="At this time [s]; default: the mission's end.")


EXPECTATIONS: dict[str, type[Expectation]] = {
    "robot": RobotExpectation,
    "topic": TopicExpectation,
    "radio": RadioExpectation,
}

AnyExpectation: TypeAlias = RobotExpectation | TopicExpectation | RadioExpectation
