"""`Sweep`: what to run, with which seeds and settings, and what to measure. Attribute names are the YAML keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from microsim.documents.values import Model, detail, fail, show
from microsim.documents.yaml_text import read_yaml
from microsim.errors import MicroSimError, ScenarioError, SweepError, UsageError
from microsim.missions.mission_file import Name, Period, beside
from microsim.scenario import load_scenario
from microsim.scenario.files import SUFFIXES, Places, in_order, read_text
from microsim.sweep.expressions import Condition, parse
from microsim.sweep.metrics import Folders, find_metric

MOST_RUNS = 10_000_000
INT64 = range(-(2**63), 2**63)

_PART = re.compile(r"\s*([+-]?\d{1,20})\s*(?:\.\.\s*([+-]?\d{1,20})\s*)?")
_PATH = re.compile(r"\w+(\.\w+)*")
_OWN_KEYS = ("seeds", "vary", "metrics", "assert", "out", "mission")  # neither a scenario nor a mission has them


def seeds(text: str) -> tuple[int, ...]:
    """`0..9999`, `7`, `1,2,5..8`; both ends are included. ValueError says what is wrong."""
    found: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"expected seeds such as 0..99 or 1,2,5..8, found {show(part.strip() or text)}")
        first, last = int(match[1]), int(match[2] or match[1])
        if first not in INT64 or last not in INT64:
            raise ValueError(f"expected 64-bit integers, found {show(part.strip())}")
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
        raise ValueError(f"the seed {twice} is listed twice")
    return found


Text = Annotated[str, Field(strict=True, min_length=1, max_length=1000)]


class Sweep(Model):
    """A sweep. Make one with `load_sweep`."""

    scenario: Name = Field("default", description="A shipped scenario, or a file.")
    mission: Name | None = Field(None, description="A shipped mission, or a file; null: the robots get no commands.")
    seeds: Annotated[tuple[int, ...] | None, BeforeValidator(_seeds)] = Field(
        None, description="`0..99`, both ends included, or `[1, 2, 5]`; default: the mission's or the scenario's."
    )
    vary: dict[str, tuple[Any, ...]] = Field(
        {}, description="Key of the scenario -> values: {drone.max_vx: [1, 2]}. Every combination is run."
    )
    duration: Period | None = Field(None, description="When each run ends [s]; default: the mission's end.")
    metrics: tuple[Text, ...] = Field((), description="What is measured in each run; default: what the world allows.")
    asserts: tuple[Text, ...] = Field((), alias="assert", description="What must hold; otherwise exit code 1.")
    out: Text | None = Field(None, description="File for the results: .csv or .parquet.")

    _places: Places = PrivateAttr(default_factory=Places)
    _folders: Folders | None = PrivateAttr(default=())  # of plug-ins; None: not known, the scenario cannot be loaded

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
    def _known(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        _check_each(names, info, find_metric)
        if len(set(names)) != len(names):
            raise ValueError("a metric is listed twice")
        return names

    @field_validator("asserts")
    @classmethod
    def _parsed(cls, texts: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        _check_each(texts, info, condition)
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
        return [self.condition(text) for text in self.asserts]

    def condition(self, text: str) -> Condition:
        """A condition on metrics that this sweep's scenario has; ExpressionError says what is wrong."""
        return condition(text, self._folders or ())

    @property
    def all_metrics(self) -> tuple[str, ...]:
        """Those listed, and those that assertions use."""
        used = (name for each in self.conditions for name in each.metrics)
        return tuple(dict.fromkeys((*self.metrics, *used)))

    def beside(self, name: str) -> str:
        """Where a scenario or mission that the sweep names is: beside the sweep's file first."""
        return beside(name, self._places.file)


def condition(text: str, folders: Folders = ()) -> Condition:
    return parse(text, lambda name: find_metric(name, folders).kind)


def _about_values(path: Any, values: Any) -> str:
    if not isinstance(path, str) or not _PATH.fullmatch(path) or path == "seed":
        hint = "; seeds have a key of their own" if path == "seed" else ""
        return f"expected a key of the scenario, such as wind.gust_sigma, found {show(path)}{hint}"
    if not isinstance(values, (list, tuple)) or not values:
        return f"expected a list of values, found {show(values)}"
    if any(value in values[:place] for place, value in enumerate(values)):
        return f"a value is listed twice in {show(values)}"
    return ""


def _check_each(texts: tuple[str, ...], info: ValidationInfo, check: Callable[[str, Folders], object]) -> None:
    folders = (info.context or {}).get("folders", ())
    if folders is None:  # which metrics there are depends on the scenario; its problems are reported first
        return
    problems = []
    for index, text in enumerate(texts):
        try:
            check(text, folders)
        except UsageError as error:
            problems.append(detail(str(error), index, found=text))
    if problems:
        fail(problems)


# ---- loading ---------------------------------------------------------------------------------------------------------


def is_sweep(file: str | Path) -> bool:
    """Whether a file, by its keys, is a sweep and not a scenario. A file that cannot be read is not."""
    path = Path(file)
    if path.suffix not in SUFFIXES or not path.is_file():
        return False
    try:
        data = read_yaml(read_text(path), str(path)).data
    except ScenarioError:
        return False
    return isinstance(data, Mapping) and any(key in data for key in _OWN_KEYS)


def load_sweep(source: str | Path | Mapping[str, Any] | Sweep, **changes: Any) -> Sweep:
    """The sweep in a file or a dict, with some keys replaced; SweepError lists everything that is wrong."""
    if isinstance(source, Sweep):
        return source
    if isinstance(source, Mapping):
        return _validated(dict(source), Places(), changes)
    file = Path(source)
    try:
        document = read_yaml(read_text(file), str(file))
    except ScenarioError as error:
        raise SweepError(error.problems) from None
    return _validated(document.data, Places(str(file), document), changes)


def _validated(data: Any, places: Places, changes: Mapping[str, Any]) -> Sweep:
    if not isinstance(data, Mapping):
        keys = ", ".join(Sweep.key_names())
        raise SweepError(places.problem(f"expected a mapping with any of the keys {keys}, found {show(data)}", ()))
    data = {**data, **changes}
    folders = _plugin_folders(data.get("scenario", "default"), places.file)
    try:
        sweep = Sweep.model_validate(data, context={"folders": folders})
    except ValidationError as error:
        raise SweepError(in_order(places.problems(error, data, lambda path: path))) from None
    sweep._places, sweep._folders = places, folders
    return sweep


def _plugin_folders(scenario: Any, file: str | None) -> Folders | None:
    try:
        return load_scenario(beside(scenario, file)).plugins if isinstance(scenario, str) else None
    except MicroSimError:
        return None


def values_of(text: str) -> list[Any]:
    """`0.1,0.15`, `[0, 0, 0],[1, 0, 0]`, `true,false`: the values of a `--vary`, written as in YAML."""
    try:
        found = read_yaml(f"[{text}]", "--vary").data
    except ScenarioError:
        raise UsageError(f"expected values separated by commas, found {show(text)}") from None
    return list(found)
