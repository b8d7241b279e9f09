"""A sweep: what is flown, with which seeds and settings, and what is taken of it. Attribute names are the YAML keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PrivateAttr, field_validator, model_validator
from typing_extensions import Self

from microsim.documents.values import Model, detail, fail, show
from microsim.errors import UsageError
from microsim.missions.actions import Name, Period
from microsim.scenario.messages import Places
from microsim.sweep.expressions import Condition, parse
from microsim.sweep.metrics import kinds, metric

MOST_RUNS = 10_000_000
INT64 = range(-(2**63), 2**63)

_PART = re.compile(r"\s*([+-]?\d{1,20})\s*(?:\.\.\s*([+-]?\d{1,20})\s*)?")
_PATH = re.compile(r"\w+(\.\w+)*")


def seeds(text: str) -> tuple[int, ...]:
    """`0..9999`, `7`, `1,2,5..8`: both ends count. ValueError says what is wrong."""
    found: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"expected seeds such as 0..99 or 1,2,5..8, found {show(part.strip() or text)}")
        first, last = int(match[1]), int(match[2] or match[1])
        if first not in INT64 or last not in INT64:
            raise ValueError(f"expected whole numbers of 64 bits, found {show(part.strip())}")
        if last < first:
            raise ValueError(f"expected the smaller seed first, found {show(part.strip())}")
        if len(found) + last - first >= MOST_RUNS:
            raise ValueError(f"expected at most {MOST_RUNS:,} seeds, found more in {show(text)}")
        found += range(first, last + 1)
    return tuple(found)


def _seeds(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        found = seeds(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        found = seeds(str(value))
    elif isinstance(value, (list, tuple)) and value:
        found = seeds(",".join(str(part) for part in value))
    else:
        raise ValueError(f"expected seeds such as 0..99 or [1, 2, 5], found {show(value)}")
    if len(set(found)) != len(found):
        twice = next(seed for place, seed in enumerate(found) if seed in found[:place])
        raise ValueError(f"the seed {twice} is there twice")
    return found


Text = Annotated[str, Field(strict=True, min_length=1, max_length=1000)]


class Sweep(Model):
    """A sweep. Make one with `load_sweep`."""

    scenario: Name = Field("default", description="What is flown in: a shipped scenario, or a file.")
    mission: Name | None = Field(None, description="What is flown: a shipped mission, or a file; null: robots stand.")
    seeds: Annotated[tuple[int, ...] | None, BeforeValidator(_seeds)] = Field(
        None, description="`0..99`, both ends counting, or `[1, 2, 5]`; default: the mission's or the scenario's."
    )
    vary: dict[str, tuple[Any, ...]] = Field(
        {}, description="Key of the scenario -> values: {drone.max_vx: [1, 2]}. Every combination is flown."
    )
    duration: Period | None = Field(None, description="When each run ends [s]; default: the mission's end.")
    metrics: tuple[Text, ...] = Field((), description="What is taken of each run; default: what fits.")
    asserts: tuple[Text, ...] = Field((), alias="assert", description="What must hold; otherwise exit code 1.")
    out: Text | None = Field(None, description="File for the results: .csv or .parquet.")

    _places: Places = PrivateAttr(default_factory=Places)

    @field_validator("vary", mode="before")
    @classmethod
    def _lists(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"expected a mapping from keys of the scenario to lists of values, found {show(value)}")
        problems = []
        for path, values in value.items():
            message = _about_values(path, values)
            problems += [detail(message, path)] if message else []
        if problems:
            fail(problems)
        return {path: tuple(values) for path, values in value.items()}

    @field_validator("metrics")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        _check_each(names, metric)
        if len(set(names)) != len(names):
            raise ValueError("a metric is there twice")
        return names

    @field_validator("asserts")
    @classmethod
    def _parsed(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        _check_each(texts, condition)
        return texts

    @field_validator("out")
    @classmethod
    def _kind(cls, out: str | None) -> str | None:
        if out is not None and not out.endswith((".csv", ".parquet")):
            raise ValueError(f"expected a name that ends with .csv or .parquet, found {show(out)}")
        return out

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.mission is None and self.duration is None:
            fail([detail("without a mission, `duration` must say when a run ends")])
        return self

    @property
    def conditions(self) -> list[Condition]:
        return [condition(text) for text in self.asserts]

    @property
    def all_metrics(self) -> tuple[str, ...]:
        """Those named, and those that assertions look at."""
        looked_at = (name for each in self.conditions for name in each.metrics)
        return tuple(dict.fromkeys((*self.metrics, *looked_at)))


def condition(text: str) -> Condition:
    """A condition about metrics, checked."""
    found = parse(text, metric)
    return found.checked(kinds(found.metrics))


def _about_values(path: Any, values: Any) -> str:
    if not isinstance(path, str) or not _PATH.fullmatch(path) or path == "seed":
        hint = "; seeds have a key of their own" if path == "seed" else ""
        return f"expected a key of the scenario, such as wind.gust_sigma, found {show(path)}{hint}"
    if not isinstance(values, (list, tuple)) or not values:
        return f"expected a list of values, found {show(values)}"
    if any(value in values[:place] for place, value in enumerate(values)):
        return f"a value is there twice in {show(values)}"
    return ""


def _check_each(texts: tuple[str, ...], check: Callable[[str], object]) -> None:
    problems = []
    for index, text in enumerate(texts):
        try:
            check(text)
        except UsageError as error:
            problems.append(detail(str(error), index, found=text))
    if problems:
        fail(problems)
