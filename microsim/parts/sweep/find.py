"""Finds a run for which a condition holds, and the smallest mission for which it still does.

Parts of the mission are removed and its numbers simplified as long as the condition holds. Every step is verified by
running it. The same failing run always gives the same mission.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from microsim.documents.yaml_text import to_yaml
from microsim.errors import MicroSimError, UsageError
from microsim.parts.missions import fly_mission, load_mission
from microsim.parts.sweep.expressions import Condition
from microsim.parts.sweep.metrics import Collisions, Value
from microsim.parts.sweep.plan import Plan, RunOutcome, Sweep
from microsim.parts.sweep.run_one import mission_data, run_one
from microsim.scenario import Scenario
from microsim.scenario.files import SUFFIXES
from microsim.scenario.loading import with_values
from microsim.simulation import Simulation

Data: TypeAlias = dict[str, Any]  # of a mission, as in its file
KeyPath: TypeAlias = tuple[str | int, ...]

_OPTIONAL = ("timeout", "tolerance", "speed", "relative", "every", "times", "after", "at", "name", "yaw")
_STEP_S = 0.1  # durations are multiples of this
_SHORTEST_S = 0.02  # a fault and its delay are not halved below this


_ABOUT_CONTACTS = ("collisions", "contact_s", "first_contact", "first_contact_s")  # metrics


class FindError(MicroSimError):
    """A run that was found cannot be reproduced."""


def wanted(sweep: Sweep, text: str) -> Condition:
    """The condition of `--find`, which must be about one run."""
    found = sweep.condition(text)
    if found.is_about_all_runs:
        raise UsageError(f"{text!r} is about all runs together; expected a condition about one run")
    return found


def first_match(plan: Plan, condition: Condition, outcomes: Iterable[RunOutcome]) -> RunOutcome | None:
    """The first in the order of the plan, in whatever order they arrive: the same with any number of workers."""
    best: RunOutcome | None = None
    done: set[int] = set()
    for outcome in outcomes:
        done.add(outcome.run)
        if (
            (best is None or outcome.run < best.run)
            and not outcome.error
            and condition.holds(_row(plan, outcome.values))
        ):
            best = outcome
        if best is not None and done.issuperset(range(best.run)):
            return best
    return best


def _row(plan: Plan, values: Iterable[Value]) -> dict[str, Value]:
    return dict(zip(plan.metrics, values, strict=True))


@dataclass(frozen=True)
class FailingCase:
    """A run that fails: everything that determines it, except for the scenario's file."""

    mission: Data
    seed: int | None  # None: the scenario's own
    changes: dict[str, Any]  # key path in the scenario -> value
    faults: tuple[Data, ...] | None = None  # in place of the scenario's and those it draws; None: it has none

    @property
    def size(self) -> tuple[int, float, int]:
        """How many steps, waypoints counted one by one, how long [s], and how many faults."""
        steps = sum(len(entry.get("waypoints", [0])) for entry in self.mission.get("do", []))
        return steps, self.mission["duration"], len(self.faults or ())


@dataclass(frozen=True)
class Smallest:
    """The smallest mission found, verified to fail."""

    file: Path
    before: FailingCase
    case: FailingCase
    values: dict[str, Value]  # of the condition's metrics
    runs: int  # that it took


class Shrinking:
    """From a run that was found to the file of its smallest mission."""

    def __init__(self, plan: Plan, condition: Condition, run: int) -> None:
        self.plan, self.condition, self.run = plan, condition, run
        combination, seed = plan.place(run)
        before = FailingCase(_as_mission(plan), seed, plan.changes(combination))
        drawn = tuple(fault.model_dump(mode="json") for fault in self._simulation(before).resolved.faults)
        self.before = replace(before, faults=drawn or None)
        self._contact: tuple[str, str] | None = None  # robot and thing: what kind of failure it is
        if self._is_about_contacts:
            sim = self._simulation(self.before)
            self._measured(sim, self.before)
            self._contact = _first_contact(sim)
        # faults that break it: the smallest mission must be one that succeeds without them
        self._is_by_faults = bool(drawn) and not self._holds(replace(self.before, faults=()))

    def smallest(self, file: Path, most_runs: int, report: Callable[[int, FailingCase], None]) -> Smallest:
        if not self._fails(self.before):
            raise FindError("the run fails only if --duration ends its mission early; leave that out")
        shrinker = Shrinker(self._fails, most_runs, report)
        case = shrinker.shrink(self.before)
        measured = self._values(case, "digest")
        values = {name: measured[name] for name in self.condition.metrics}
        self._write(file, case, values)
        digest = fly_mission(file).sim.digest()  # read and run as a user would
        if digest != measured["digest"] or not self.condition.holds(values):
            raise FindError(f"{file} does not fail as it did in the search; please report this as a bug")
        return Smallest(file, self.before, case, values, shrinker.runs)

    def _fails(self, case: FailingCase) -> bool:
        return self._holds(case) and not (self._is_by_faults and self._holds(replace(case, faults=())))

    def _holds(self, case: FailingCase) -> bool:
        """With the same contact first, if it is about contacts: another one would be another failure."""
        sim = self._simulation(case)
        values = self._measured(sim, case)
        return self.condition.holds(values) and self._contact in (None, _first_contact(sim))

    @property
    def _is_about_contacts(self) -> bool:
        return any(name.split(".")[0] in _ABOUT_CONTACTS for name in self.condition.metrics)

    def _values(self, case: FailingCase, *more: str) -> dict[str, Value]:
        return self._measured(self._simulation(case), case, *more)

    def _measured(self, sim: Simulation, case: FailingCase, *more: str) -> dict[str, Value]:
        return run_one(sim, load_mission(case.mission), None, [*self.condition.metrics, *more])

    def _simulation(self, case: FailingCase) -> Simulation:
        return Simulation(self._world(case), case.seed)

    def _world(self, case: FailingCase) -> Scenario:
        written = {} if case.faults is None else {"chaos": None, "faults": list(case.faults)}
        return with_values(self.plan.scenario, {**case.changes, **written})

    # ---- the file ----------------------------------------------------------------------------------------------------

    def _write(self, file: Path, case: FailingCase, values: dict[str, Value]) -> None:
        shown = ", ".join(f"{name} = {value}" for name, value in values.items())
        head = {"scenario": self._scenario(file, case)} | ({} if case.seed is None else {"seed": case.seed})
        mission = {**case.mission, "expect": [*case.mission.get("expect", []), *self._expected(case)]}
        data = {**head, **{key: value for key, value in mission.items() if value}}
        comment = (
            f"# The smallest mission found for which this holds: {self.condition.text}\n# It has {shown}. "
            f"First seen in: {self.plan.token(self.run)}\n"
        )
        file.write_text(comment + to_yaml(_plain(data)), encoding="utf-8")

    def _expected(self, case: FailingCase) -> list[dict[str, Any]]:
        """Expectations that are violated, so that `microsim run` fails too."""
        if not self._is_about_contacts:
            return []
        sim = self._simulation(case)
        run_one(sim, load_mission(case.mission), None, [])
        hit = [robot for robot in Collisions.able(sim) if sim.state(robot).contacts]
        return [{"robot": robot, "value": "contacts", "equals": 0} for robot in hit]

    def _scenario(self, file: Path, case: FailingCase) -> str:
        """As the mission names it; with changed values it becomes a new file."""
        if case.changes or case.faults is not None or self.plan.controllers:
            own = file.with_name(f"{file.stem}.scenario.yaml")
            own.write_text(self._world(case).to_yaml(), encoding="utf-8")
            return own.name
        name = self.plan.scenario_place
        if Path(name).suffix not in SUFFIXES:
            return name
        return Path(os.path.relpath(Path(name).resolve(), file.resolve().parent)).as_posix()


def _first_contact(sim: Simulation) -> tuple[str, str] | None:
    return (sim.contacts[0].robot, sim.contacts[0].thing) if sim.contacts else None


def _as_mission(plan: Plan) -> dict[str, Any]:
    data = {"do": [], "expect": []} if plan.mission is None else mission_data(plan.mission)
    kept = {key: value for key, value in data.items() if key not in ("name", "scenario", "seed")}
    return kept if plan.duration is None else {**kept, "duration": plan.duration}


def _plain(data: Any) -> Any:
    """Whole numbers without a decimal point."""
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_plain(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() and abs(data) < 1e15 else data


# ---- making it smaller -----------------------------------------------------------------------------------------------


@dataclass
class Shrinker:
    """`fails` runs a case."""

    fails: Callable[[FailingCase], bool]
    most_runs: int
    report: Callable[[int, FailingCase], None] = lambda runs, case: None  # after each: how many, the smallest so far
    runs: int = 0
    case: FailingCase | None = None
    _known: dict[str, bool] = field(default_factory=dict)

    def shrink(self, case: FailingCase) -> FailingCase:
        """The smallest that was found; passes are repeated until none finds anything simpler."""
        self.case = case
        first = (_durations, _faults, _settings, _entries, _expectations)
        passes = (*first, _waypoints, _repetitions, _options, _fault_sizes, _numbers)
        is_new = True
        while is_new and self.runs < self.most_runs:
            before = self.case
            for candidates in passes:
                self._pass(candidates)
            is_new = self.case != before
        return self.case

    def _pass(self, candidates: Callable[[FailingCase], Iterator[FailingCase]]) -> None:
        """Take the first candidate that fails, and start again from it."""
        is_new = True
        while is_new and self.runs < self.most_runs:
            assert self.case is not None
            found = next((each for each in candidates(self.case) if self._still_fails(each)), None)
            is_new = found is not None
            self.case = found or self.case

    def _still_fails(self, case: FailingCase) -> bool:
        key = json.dumps([case.mission, case.seed, case.changes, case.faults], sort_keys=True)
        if key not in self._known:
            if self.runs >= self.most_runs:
                return False
            self.runs += 1
            try:
                self._known[key] = self.fails(case)
            except MicroSimError:  # not a valid mission any more
                self._known[key] = False
            assert self.case is not None
            self.report(self.runs, self.case)
        return self._known[key]


# candidates for a smaller case, the smallest first


def _with(case: FailingCase, **changes: Any) -> FailingCase:
    return replace(case, mission={**case.mission, **changes})


def _settings(case: FailingCase) -> Iterator[FailingCase]:
    """Without varied values, and with the default seed."""
    if case.changes:
        yield replace(case, changes={})
    for path in case.changes:
        yield replace(case, changes={key: value for key, value in case.changes.items() if key != path})
    if case.seed is not None:
        yield replace(case, seed=None)
    if case.seed not in (None, 0):
        yield replace(case, seed=0)


def _without_parts(parts: Sequence[Any]) -> Iterator[list[Any]]:
    """Without everything, halves, quarters … single parts (Zeller's ddmin)."""
    size = len(parts)
    while size:
        for start in range(0, len(parts), size):
            yield [*parts[:start], *parts[start + size :]]
        size = 0 if size == 1 else (size + 1) // 2


def _entries(case: FailingCase) -> Iterator[FailingCase]:
    for entries in _without_parts(case.mission.get("do", [])):
        yield _with(case, do=_without_dangling_waits(entries))


def _without_dangling_waits(entries: Sequence[Data]) -> list[Data]:
    """An entry that waited for one that was removed starts at its own time."""
    names = {entry.get("name") for entry in entries}
    return [{key: value for key, value in entry.items() if key != "after" or value in names} for entry in entries]


def _faults(case: FailingCase) -> Iterator[FailingCase]:
    for faults in _without_parts(case.faults or ()):
        yield replace(case, faults=tuple(faults))


def _fault_sizes(case: FailingCase) -> Iterator[FailingCase]:
    """Each shorter, from either end, with a smaller delay, and with shorter numbers."""
    for index, fault in enumerate(case.faults or ()):
        begin, end, delay = fault["from_s"], fault["to_s"], fault.get("delay_s", 0.0)
        half = (end - begin) / 2
        smaller: list[Data] = [{"to_s": round(begin + half, 3)}, {"from_s": round(end - half, 3)}]
        smaller = smaller if half >= _SHORTEST_S else []
        smaller += [{"delay_s": round(delay / 2, 3)}] if delay >= 2 * _SHORTEST_S else []
        smaller += [{key: each} for key in ("from_s", "to_s", "delay_s") for each in _rounded(fault.get(key, 0.0))]
        for changes in smaller:
            assert case.faults is not None
            yield replace(case, faults=(*case.faults[:index], {**fault, **changes}, *case.faults[index + 1 :]))


def _rounded(number: float) -> Iterator[float]:
    for digits in (0, 1, 2):
        if 0.0 < round(number, digits) != number:
            yield round(number, digits)


def _expectations(case: FailingCase) -> Iterator[FailingCase]:
    for expectations in _without_parts(case.mission.get("expect", [])):
        yield _with(case, expect=expectations)


def _durations(case: FailingCase) -> Iterator[FailingCase]:
    """Half, three quarters, seven eighths …: finds the shortest that fails, like a bisection."""
    steps = round(case.mission["duration"] / _STEP_S)
    cut = (steps + 1) // 2
    tried = set()
    while cut:
        left = steps - cut
        if left > 0 and left not in tried:
            tried.add(left)
            yield _lasting(case, round(left * _STEP_S, 1))
        cut //= 2


def _lasting(case: FailingCase, seconds: float) -> FailingCase:
    """Without what would happen later."""
    mission = {**case.mission, "duration": seconds}
    mission["do"] = _without_dangling_waits([entry for entry in mission.get("do", []) if _last(entry) <= seconds])
    mission["expect"] = [entry for entry in mission.get("expect", []) if _latest(entry) < seconds]
    return replace(case, mission=mission)


def _last(entry: Data) -> float:
    """When it happens for the last time."""
    return float(entry.get("at", 0.0) + entry.get("every", 0.0) * (entry.get("times", 1) - 1))


def _latest(expectation: Data) -> float:
    return max(float(expectation.get(key) or 0.0) for key in ("at", "by", "from", "to"))


def _each_entry(case: FailingCase) -> Iterator[tuple[int, Data]]:
    yield from enumerate(case.mission.get("do", []))


def _replaced(case: FailingCase, index: int, entry: Data) -> FailingCase:
    entries = list(case.mission["do"])
    entries[index] = entry
    return _with(case, do=entries)


def _waypoints(case: FailingCase) -> Iterator[FailingCase]:
    for index, entry in _each_entry(case):
        for waypoints in _without_parts(entry.get("waypoints", [])):
            if waypoints:
                yield _replaced(case, index, {**entry, "waypoints": waypoints})


def _repetitions(case: FailingCase) -> Iterator[FailingCase]:
    for index, entry in _each_entry(case):
        times = entry.get("times", 1)
        if times > 1:
            yield _replaced(case, index, {key: value for key, value in entry.items() if key not in ("every", "times")})
            yield _replaced(case, index, {**entry, "times": times // 2})
            yield _replaced(case, index, {**entry, "times": times - 1})


def _options(case: FailingCase) -> Iterator[FailingCase]:
    for index, entry in _each_entry(case):
        for key in _OPTIONAL:
            if key in entry:
                yield _replaced(case, index, {name: value for name, value in entry.items() if name != key})
        for key in entry.get("command", {}):
            command = {name: value for name, value in entry["command"].items() if name != key}
            yield _replaced(case, index, {**entry, "command": command})


def _numbers(case: FailingCase) -> Iterator[FailingCase]:
    for path, number in _numbers_in(case.mission.get("do", []), ()):
        for simpler in simpler_numbers(number):
            yield _with(case, do=_put(case.mission["do"], path, simpler))


def _numbers_in(data: Any, path: KeyPath) -> Iterator[tuple[KeyPath, float]]:
    if isinstance(data, dict):
        for key, value in data.items():
            if key not in ("every", "times"):
                yield from _numbers_in(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _numbers_in(value, (*path, index))
    elif isinstance(data, float) or (isinstance(data, int) and not isinstance(data, bool)):
        yield path, data


def _put(data: Any, path: KeyPath, value: float) -> Any:
    data = copy.deepcopy(data)
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


def simpler_numbers(number: float) -> Iterator[float]:
    """0, then rounded to more and more digits: each is shorter to write than the number, or as short and smaller."""
    candidates = [0.0, *(float(f"{number:.{digits}g}") for digits in (1, 2, 3)), float(round(number)), round(number, 1)]
    for each in dict.fromkeys(candidates):
        if _effort(each) < _effort(number):
            yield each


def _effort(number: float) -> tuple[int, float]:
    return (len(f"{number:.15g}".lstrip("-0")), abs(number))
