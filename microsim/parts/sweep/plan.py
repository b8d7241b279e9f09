"""`Plan`: a sweep applied to its scenario and mission. Every run has a number; what cannot work is reported first."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from microsim.documents.values import Model, detail, fail, show
from microsim.documents.yaml_text import read_yaml
from microsim.errors import MicroSimError, MissionError, Problem, ScenarioError, SweepError, UsageError
from microsim.parts.missions import Mission, MissionPilot, load_mission
from microsim.parts.missions.mission_file import Name, Period
from microsim.parts.sweep.expressions import Condition, parse
from microsim.parts.sweep.metrics import METRICS, Folders, Metric, Value, WatchedRun, find_metric, has_meaning, watch
from microsim.parts.sweep.run_one import (
    SweepOrder,
    Token,
    TokenSource,
    content_of,
    controller_content,
    mission_content,
    mission_data,
    scenario_content,
)
from microsim.recording.inputs import as_text, packed
from microsim.scenario import Scenario, load_scenario
from microsim.scenario.fault_models import Chaos, refuse_faults
from microsim.scenario.files import SUFFIXES, Places, beside, has_key_of, in_order, model_of, read_file
from microsim.scenario.gates import refuse_gates
from microsim.scenario.loading import full_path, with_values
from microsim.simulation import Simulation
from microsim.version import __version__

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
    parts = value if isinstance(value, (list, tuple)) else [value]
    if not parts or isinstance(value, bool) or (parts is not value and not isinstance(value, (str, int))):
        raise ValueError(f"expected seeds such as 0..99 or [1, 2, 5], found {show(value)}")
    found = seeds(",".join(map(str, parts)))
    if len(set(found)) != len(found):
        twice = next(seed for place, seed in enumerate(found) if seed in found[:place])
        raise ValueError(f"the seed {twice} is listed twice")
    return found


Text = Annotated[str, Field(strict=True, min_length=1, max_length=1000)]


class Sweep(Model):
    """A sweep. Make one with `load_sweep`."""

    scenario: Name = Field("default", description="A shipped scenario, or a file.")
    mission: Name | None = Field(None, description="A shipped mission, or a file; null: the robots get no commands.")
    controllers: tuple[Text, ...] = Field(
        (), description="Files that command robots: `[rover=controller.py]`, beside those of the scenario."
    )
    seeds: Annotated[tuple[int, ...] | None, BeforeValidator(_seeds)] = Field(
        None, description="`0..99`, both ends included, or `[1, 2, 5]`; default: the mission's or the scenario's."
    )
    vary: dict[str, tuple[Any, ...]] = Field(
        {}, description="Key of the scenario -> values: {drone.max_vx: [1, 2]}. Every combination is run."
    )
    chaos: Chaos | None = Field(None, description="Faults that the seed of each run draws, in place of the scenario's.")
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
            fail([detail("without a mission, `duration` is required: --duration S, or the key `duration`")])
        return self

    @property
    def fixed(self) -> dict[str, Any]:
        """What every run has in place of the scenario's own."""
        return {} if self.chaos is None else {"chaos": self.chaos.model_dump(mode="json", exclude_unset=True)}

    @property
    def all_varied(self) -> dict[str, tuple[Any, ...]]:
        return {**{path: (value,) for path, value in self.fixed.items()}, **self.vary}

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

    def controller_beside(self, text: str) -> str:
        """`rover=controller.py` with the file's place."""
        robot, found, file = text.rpartition("=")
        return f"{robot}{found}{self.beside(file)}"


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
    """Whether a file, by its keys, is a sweep and not a scenario."""
    path = Path(file)
    return path.suffix in SUFFIXES and path.is_file() and has_key_of(path, _OWN_KEYS)


def load_sweep(source: str | Path | Mapping[str, Any] | Sweep, **changes: Any) -> Sweep:
    """The sweep in a file or a dict, with some keys replaced; SweepError lists everything that is wrong."""
    if isinstance(source, Sweep):
        return source
    if isinstance(source, Mapping):
        return _validated(dict(source), Places(), changes)
    return _validated(*read_file(Path(source), SweepError), changes)


def _validated(data: Any, places: Places, changes: Mapping[str, Any]) -> Sweep:
    data, folders = {**data, **changes} if isinstance(data, Mapping) else data, None
    if isinstance(data, Mapping):
        folders = _plugin_folders(data.get("scenario", "default"), places.file)
    sweep = model_of(Sweep, data, places, SweepError, folders=folders)
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


_USUAL = ("passed", "collisions", "path_length")  # metrics if none is listed, as far as they have a meaning


@dataclass(frozen=True)
class RunOutcome:
    run: int  # its number in the plan
    values: Sequence[Value]  # in the order of the metrics; none if it failed
    error: str = ""


@dataclass(frozen=True)
class Plan:
    """Runs are numbered: every seed of the first combination of values, every seed of the second …"""

    scenario: Scenario
    scenario_place: str  # its name or file, seen from the current folder
    scenario_source: TokenSource
    mission: Mission | None
    mission_source: TokenSource | None
    duration: float | None
    seeds: Sequence[int]
    varied: Mapping[str, Sequence[Any]]  # as written -> values
    metrics: tuple[str, ...]
    conditions: tuple[Condition, ...]
    controllers: tuple[TokenSource, ...] = ()

    def __len__(self) -> int:
        return len(self.seeds) * len(self.combinations)

    @cached_property
    def combinations(self) -> list[tuple[Any, ...]]:
        """Of values, in the order of `varied`; the last varies fastest."""
        return list(product(*self.varied.values()))

    @cached_property
    def paths(self) -> list[str]:
        """Complete key paths of what varies."""
        return [full_path(self.scenario, path) for path in self.varied]

    def place(self, run: int) -> tuple[int, int]:
        """(combination, seed) of a run."""
        combination, index = divmod(run, len(self.seeds))
        return combination, self.seeds[index]

    def changes(self, combination: int) -> dict[str, Any]:
        return dict(zip(self.paths, self.combinations[combination], strict=True))

    def token(self, run: int) -> str:
        combination, seed = self.place(run)
        changes = self.changes(combination)
        sources = self.scenario_source, self.mission_source
        return str(Token(*sources, seed, self.duration, changes, controllers=self.controllers))

    def order(self) -> SweepOrder:
        """What a worker needs to do any of the runs."""
        data, files = packed(self.scenario)
        mission = None if self.mission is None else mission_data(self.mission)
        changes = [self.changes(index) for index in range(len(self.combinations))]
        return SweepOrder(as_text(data), files, mission, self.duration, changes, self.metrics)

    def metric(self, name: str) -> type[Metric]:
        return find_metric(name, self.scenario.plugins)

    @cached_property
    def columns(self) -> dict[str, type]:
        """Of the result: what varies, the seed, the metrics, the error, the token."""
        varied = {path: _kind(values) for path, values in self.varied.items()}
        metrics = {name: self.metric(name).kind for name in self.metrics}
        return {**varied, "seed": int, **metrics, "error": str, "token": str}

    def row(self, outcome: RunOutcome) -> dict[str, Value]:
        """One row of the result; the values of a run that failed are None."""
        combination, seed = self.place(outcome.run)
        varied = {
            path: _shown(value, self.columns[path])
            for path, value in zip(self.varied, self.combinations[combination], strict=True)
        }
        values = [None] * len(self.metrics) if outcome.error else outcome.values
        metrics = dict(zip(self.metrics, values, strict=True))
        token = self.token(outcome.run)
        return {**varied, "seed": seed, **metrics, "error": outcome.error or None, "token": token}

    @cached_property
    def identity(self) -> str:
        """Equal for two plans whose results are the same file."""
        parts = [self.scenario_source, self.mission_source, self.duration, list(self.seeds), self.metrics]
        parts += [*self.controllers]
        own = [_code(self.metric(name)) for name in self.metrics if name.partition(".")[0] not in METRICS]
        return content_of([[str(part) for part in parts], json.dumps(self.varied), __version__, *own])


def _code(metric: type[Metric]) -> str:
    try:
        return inspect.getsource(metric)
    except OSError:
        return ""


def _kind(values: Sequence[Any]) -> type:
    """The narrowest type of a column that holds all of them; lists and mixtures become text."""
    if all(isinstance(value, bool) for value in values):
        return bool
    if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in values):
        return str
    return int if all(isinstance(value, int) and abs(value) < 2**63 for value in values) else float


def _shown(value: Any, kind: type) -> Value:
    if kind is str:
        return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return kind(value)  # type: ignore[no-any-return]


# ---- making one ------------------------------------------------------------------------------------------------------


def make_plan(sweep: Sweep) -> Plan:
    """Raises ScenarioError, MissionError or SweepError with every reason why it cannot be run."""
    scenario_place = sweep.beside(sweep.scenario)
    written = load_scenario(scenario_place)
    controllers = [sweep.controller_beside(each) for each in sweep.controllers]
    scenario = load_scenario(written, controllers=controllers)
    mission = None if sweep.mission is None else load_mission(sweep.beside(sweep.mission))
    refuse_gates("a sweep", scenario, mission)
    _check_settings(sweep, scenario)
    refuse_faults("a sweep (which runs without ROS 2 nodes)", with_values(scenario, sweep.fixed), "node")
    metrics = _check_runs(sweep, scenario, mission)
    mission_seed = None if mission is None else mission.seed
    seeds = sweep.seeds or (scenario.seed if mission_seed is None else mission_seed,)
    source = TokenSource(sweep.scenario, scenario_content(written))
    codes = tuple(TokenSource(each, controller_content(each)) for each in controllers)
    mission_source = None if mission is None else TokenSource(str(sweep.mission), mission_content(mission))
    sources = (scenario, scenario_place, source, mission, mission_source)
    plan = Plan(*sources, sweep.duration, seeds, sweep.all_varied, metrics, tuple(sweep.conditions), codes)
    if len(plan) > MOST_RUNS:
        raise UsageError(f"expected at most {MOST_RUNS:,} runs, found {len(plan):,}")
    return plan


def _each_value(sweep: Sweep, scenario: Scenario) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """The scenario as it is, or with each value alone: there may be too many combinations to try."""
    if not sweep.vary:
        yield ("chaos",) if sweep.fixed else (), sweep.fixed
    for path, values in sweep.vary.items():
        for index, value in enumerate(values):
            yield ("vary", path, index), {**sweep.fixed, full_path(scenario, path): value}


def _check_settings(sweep: Sweep, scenario: Scenario) -> None:
    problems = []
    for loc, changes in _each_value(sweep, scenario):
        try:
            with_values(scenario, changes)
        except ScenarioError as error:
            problems += [sweep._places.problem(_about(problem, changes), loc) for problem in error.problems]
        except UsageError as error:
            problems.append(sweep._places.problem(str(error), loc[:2], at_key=True))
    if problems:
        raise SweepError(in_order(dict.fromkeys(problems)))


def _about(problem: Problem, changes: Mapping[str, Any]) -> str:
    """With its key, unless that is the one that varies."""
    is_plain = problem.path in changes or not problem.path
    return problem.message if is_plain else f"{problem.path}: {problem.message}"


def _check_runs(sweep: Sweep, scenario: Scenario, mission: Mission | None) -> tuple[str, ...]:
    """The metrics that will be measured."""
    metrics = sweep.all_metrics
    for loc, changes in _each_value(sweep, scenario):
        sim = Simulation(with_values(scenario, changes))
        try:
            run = WatchedRun(sim, None if mission is None else MissionPilot(sim, mission))
        except MissionError as error:
            if not changes or not loc:
                raise
            raise SweepError(sweep._places.problem(f"the mission cannot be run: {error}", loc)) from None
        metrics = metrics or tuple(name for name in _USUAL if has_meaning(name, run)) or ("duration_s",)
        problems = [problem for name in metrics if (problem := _metric_problem(sweep, name, run)) is not None]
        if problems:
            raise SweepError(in_order(problems))
    return metrics


def _metric_problem(sweep: Sweep, name: str, run: WatchedRun) -> Any:
    try:
        watch(name, run)
    except MicroSimError as error:
        key = ("metrics", sweep.metrics.index(name)) if name in sweep.metrics else ("assert",)
        return sweep._places.problem(str(error), key)
    return None
