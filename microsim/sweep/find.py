"""Finds a run for which a condition holds, and the smallest mission for which it still does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microsim.documents.yaml_text import to_yaml
from microsim.errors import MicroSimError, UsageError
from microsim.missions import fly_mission, load_mission
from microsim.scenario.files import SUFFIXES, find_scenario
from microsim.scenario.overrides import with_values
from microsim.simulation import Simulation
from microsim.sweep.expressions import Condition
from microsim.sweep.flying import fly
from microsim.sweep.journal import Outcome
from microsim.sweep.metric import Value
from microsim.sweep.models import condition
from microsim.sweep.plan import Plan
from microsim.sweep.robot_metrics import Collisions
from microsim.sweep.shrink import Case, Shrinker
from microsim.sweep.tokens import mission_data


class FindError(MicroSimError):
    """What was found cannot be shown again."""


def wanted(text: str) -> Condition:
    """What `--find` asks for: about one run."""
    found = condition(text)
    if found.is_about_all_runs:
        raise UsageError(f"{text!r} is about all runs together; what is searched for must be about one run")
    return found


def first_match(plan: Plan, wish: Condition, outcomes: Iterable[Outcome]) -> Outcome | None:
    """The first in the order of the plan, in whatever order they come: so the same with any number of workers."""
    best: Outcome | None = None
    done: set[int] = set()
    for outcome in outcomes:
        done.add(outcome.run)
        if (best is None or outcome.run < best.run) and not outcome.error and wish.holds(_row(plan, outcome.values)):
            best = outcome
        if best is not None and done.issuperset(range(best.run)):
            return best
    return best


def _row(plan: Plan, values: Iterable[Value]) -> dict[str, Value]:
    return dict(zip(plan.metrics, values, strict=True))


@dataclass(frozen=True)
class Smallest:
    """What is left, proved to fail."""

    file: Path
    before: Case
    case: Case
    values: dict[str, Value]  # of the condition's metrics
    runs: int  # flown on the way


class Shrinking:
    """From a run that was found to a file."""

    def __init__(self, plan: Plan, wish: Condition, run: int) -> None:
        self.plan, self.wish, self.run = plan, wish, run
        combination, seed = plan.place(run)
        self.before = Case(_as_mission(plan), seed, plan.changes(combination))

    def smallest(self, file: Path, most_runs: int, tell: Callable[[int, Case], None]) -> Smallest:
        if not self._fails(self.before):
            raise FindError("the run fails only when its mission is cut short by --duration: leave that out")
        shrinker = Shrinker(self._fails, most_runs, tell)
        case = shrinker.shrink(self.before)
        self._write(file, case)
        values = self._proved(file, case)
        return Smallest(file, self.before, case, values, shrinker.runs)

    def _fails(self, case: Case) -> bool:
        return self.wish.holds(self._values(case))

    def _values(self, case: Case, *more: str) -> dict[str, Value]:
        return fly(self._simulation(case), load_mission(case.mission), None, [*self.wish.metrics, *more])

    def _simulation(self, case: Case) -> Simulation:
        return Simulation(with_values(self.plan.scenario, case.changes), case.seed)

    # ---- the file ----------------------------------------------------------------------------------------------------

    def _write(self, file: Path, case: Case) -> None:
        values = self._values(case)
        shown = ", ".join(f"{name} = {value}" for name, value in values.items())
        seed = {} if case.seed is None else {"seed": case.seed}
        mission = {**case.mission, "expect": [*case.mission.get("expect", []), *self._expected(case)]}
        data = {
            "scenario": self._scenario(file, case),
            **seed,
            **{key: value for key, value in mission.items() if value},
        }
        comment = (
            f"# The smallest mission found for which this holds: {self.wish.text}\n# It has {shown}. "
            f"First seen in: {self.plan.token(self.run)}\n"
        )
        file.write_text(comment + to_yaml(_plain(data)), encoding="utf-8")

    def _expected(self, case: Case) -> list[dict[str, Any]]:
        """What a mission can expect of itself, so that `microsim run` fails too."""
        if not any(name.split(".")[0] in ("collisions", "contact_s") for name in self.wish.metrics):
            return []
        sim = self._simulation(case)
        fly(sim, load_mission(case.mission), None, [])
        hit = [robot for robot in Collisions.able(sim) if sim.state(robot).contacts]
        return [{"robot": robot, "value": "contacts", "equals": 0} for robot in hit]

    def _scenario(self, file: Path, case: Case) -> str:
        """As the mission names it; with other values it becomes a file of its own."""
        if case.changes:
            own = file.with_name(f"{file.stem}.scenario.yaml")
            own.write_text(with_values(self.plan.scenario, case.changes).to_yaml(), encoding="utf-8")
            return own.name
        name = self.plan.scenario_source.name
        if Path(name).suffix not in SUFFIXES:
            return name
        place = find_scenario(name).resolve()
        return Path(os.path.relpath(place, file.resolve().parent)).as_posix()

    def _proved(self, file: Path, case: Case) -> dict[str, Value]:
        """The file, read and flown as anybody would, gives the very same messages."""
        values = self._values(case, "digest")
        if fly_mission(file).sim.digest() != values.pop("digest") or not self.wish.holds(values):
            raise FindError(f"{file} does not fail as it did in the search; please report this")
        return values


def _as_mission(plan: Plan) -> dict[str, Any]:
    data = {"do": [], "expect": []} if plan.mission is None else mission_data(plan.mission)
    kept = {key: value for key, value in data.items() if key not in ("name", "scenario", "seed")}
    return kept if plan.duration is None else {**kept, "duration": plan.duration}


def _plain(data: Any) -> Any:
    """Whole numbers without a point."""
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_plain(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() and abs(data) < 1e15 else data
