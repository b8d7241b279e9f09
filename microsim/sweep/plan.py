"""`Plan`: a sweep applied to its scenario and mission. Every run has a number; what cannot work is reported first."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from microsim.errors import MicroSimError, MissionError, Problem, ScenarioError, SweepError, UsageError
from microsim.missions import Mission, MissionPilot, load_mission
from microsim.recording.inputs import as_text, packed
from microsim.scenario import Scenario, load_scenario
from microsim.scenario.files import in_order
from microsim.scenario.overrides import full_path, with_values
from microsim.simulation import Simulation
from microsim.sweep.expressions import Condition
from microsim.sweep.metrics import METRICS, Metric, Value, WatchedRun, find_metric, has_meaning, watch
from microsim.sweep.run_one import SweepOrder
from microsim.sweep.sweep_file import MOST_RUNS, Sweep
from microsim.sweep.tokens import Token, TokenSource, content_of, mission_content, mission_data, scenario_content
from microsim.version import __version__

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
        return str(Token(self.scenario_source, self.mission_source, seed, self.duration, changes))

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
        facts = [self.scenario_source, self.mission_source, self.duration, list(self.seeds), self.metrics]
        own = [_code(self.metric(name)) for name in self.metrics if name.partition(".")[0] not in METRICS]
        return content_of([[str(fact) for fact in facts], json.dumps(self.varied), __version__, *own])


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


def make_plan(sweep: Sweep, more_metrics: Sequence[str] = ()) -> Plan:
    """Raises ScenarioError, MissionError or SweepError with every reason why it cannot be run."""
    scenario_place = sweep.beside(sweep.scenario)
    scenario = load_scenario(scenario_place)
    mission = None if sweep.mission is None else load_mission(sweep.beside(sweep.mission))
    _check_settings(sweep, scenario)
    metrics = _check_runs(sweep, scenario, mission, more_metrics)
    mission_seed = None if mission is None else mission.seed
    plan = Plan(
        scenario=scenario,
        scenario_place=scenario_place,
        scenario_source=TokenSource(sweep.scenario, scenario_content(scenario)),
        mission=mission,
        mission_source=None if mission is None else TokenSource(str(sweep.mission), mission_content(mission)),
        duration=sweep.duration,
        seeds=sweep.seeds or (scenario.seed if mission_seed is None else mission_seed,),
        varied=sweep.vary,
        metrics=metrics,
        conditions=tuple(sweep.conditions),
    )
    if len(plan) > MOST_RUNS:
        raise UsageError(f"expected at most {MOST_RUNS:,} runs, found {len(plan):,}")
    return plan


def _each_value(sweep: Sweep, scenario: Scenario) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """The scenario as it is, or with each value alone: there may be too many combinations to try."""
    if not sweep.vary:
        yield (), {}
    for path, values in sweep.vary.items():
        for index, value in enumerate(values):
            yield ("vary", path, index), {full_path(scenario, path): value}


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


def _check_runs(
    sweep: Sweep, scenario: Scenario, mission: Mission | None, more_metrics: Sequence[str]
) -> tuple[str, ...]:
    """The metrics that will be measured."""
    metrics = tuple(dict.fromkeys((*sweep.all_metrics, *more_metrics)))
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
