"""A mission: what is done, and what must come of it. Attribute names are the YAML keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails
from typing_extensions import Self

from microsim.documents.values import Model, Seed, detail, fail, show, under, unknown
from microsim.errors import there_are
from microsim.missions.actions import ACTIONS, AnyAction, Name, Period
from microsim.missions.expectations import EXPECTATIONS, AnyExpectation
from microsim.scenario.messages import Places


class Mission(Model):
    """A mission. Make one with `load_mission`."""

    name: Name = Field("mission", description="Its name.")
    scenario: Name | None = Field(None, description="Scenario it is meant for, when none is given: a name or a file.")
    seed: Seed | None = Field(None, description="Seed it is meant for, when none is given; default: the scenario's.")
    duration: Period = Field(description="When it ends, in simulated seconds [s].")
    do: tuple[AnyAction, ...] = Field((), description="What is done, in any order of time.")
    expect: tuple[AnyExpectation, ...] = Field((), description="What must hold; otherwise the run fails.")

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
                problems.append(detail(f"the name {entry.name!r} is taken by an earlier entry", "do", index, "name"))
            known += [] if entry.name is None else [entry.name]
        return problems

    def _times(self) -> list[InitErrorDetails]:
        written: list[tuple[tuple[str | int, ...], float]] = []
        for i, entry in enumerate(self.do):
            written.append((("do", i, "at"), entry.at))
            if entry.every is not None:
                written.append((("do", i, "times"), entry.at + entry.every * (entry.times - 1)))
        for i, expected in enumerate(self.expect):
            written += [(("expect", i, key), getattr(expected, key, None) or 0.0) for key in ("at", "to")]
            written.append((("expect", i, "from"), getattr(expected, "since", None) or 0.0))
        message = "{:g} s is after the mission's end, its duration is {:g} s"
        problems = [detail(message.format(time, self.duration), *loc) for loc, time in written if time > self.duration]
        for i, expected in enumerate(self.expect):
            since, to = getattr(expected, "since", None) or 0.0, getattr(expected, "to", None)
            if since >= (self.duration if to is None else to):
                problems.append(detail("`from` must be before `to` and the mission's end", "expect", i, "from"))
        return problems


def _each(value: Any, kinds: Mapping[str, type[Model]], what: str, entry: str) -> Any:
    """Every item of a list as the model that one of its keys calls for; all problems at once."""
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


def first_keys() -> Sequence[str]:
    """Keys by which a mission is told from a scenario."""
    return [key for key in Mission.key_names() if key not in ("name", "scenario", "seed")]
