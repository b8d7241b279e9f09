"""The smallest mission that still fails: parts are taken away and numbers made simpler as long as it does.

Deterministic: the same failing run gives the same mission. Every step is proved by flying it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from microsim.errors import MicroSimError

Data: TypeAlias = dict[str, Any]  # of a mission, as in its file
Path: TypeAlias = tuple[str | int, ...]

_OPTIONAL = ("timeout", "tolerance", "speed", "relative", "every", "times", "after", "at", "name", "yaw")
_STEP_S = 0.1  # durations are looked for on this grid


@dataclass(frozen=True)
class Case:
    """A run that fails, all that decides it beside the scenario's file."""

    mission: Data
    seed: int | None  # None: the scenario's own
    changes: dict[str, Any]  # key path in the scenario -> value

    @property
    def size(self) -> tuple[int, float]:
        """What is done, counted with waypoints and repetitions; and for how long [s]."""
        entries = self.mission.get("do", [])
        return sum(len(entry.get("waypoints", [0])) for entry in entries), self.mission["duration"]


@dataclass
class Shrinker:
    """`fails` flies a case."""

    fails: Callable[[Case], bool]
    most_runs: int
    tell: Callable[[int, Case], None] = lambda runs, case: None  # after every run: how many, and the smallest so far
    runs: int = 0
    case: Case | None = None
    _known: dict[str, bool] = field(default_factory=dict)

    def shrink(self, case: Case) -> Case:
        """The smallest that was found; further passes go on until none finds anything simpler."""
        self.case = case
        passes = (_durations, _settings, _entries, _expectations, _waypoints, _repetitions, _options, _numbers)
        is_new = True
        while is_new and self.runs < self.most_runs:
            before = self.case
            for candidates in passes:
                self._pass(candidates)
            is_new = self.case != before
        return self.case

    def _pass(self, candidates: Callable[[Case], Iterator[Case]]) -> None:
        """Take the first candidate that fails, and begin again from it."""
        is_new = True
        while is_new and self.runs < self.most_runs:
            assert self.case is not None
            found = next((each for each in candidates(self.case) if self._still_fails(each)), None)
            is_new = found is not None
            self.case = found or self.case

    def _still_fails(self, case: Case) -> bool:
        key = json.dumps([case.mission, case.seed, case.changes], sort_keys=True)
        if key not in self._known:
            if self.runs >= self.most_runs:
                return False
            self.runs += 1
            try:
                self._known[key] = self.fails(case)
            except MicroSimError:  # what is left makes no sense
                self._known[key] = False
            assert self.case is not None
            self.tell(self.runs, self.case)
        return self._known[key]


# ---- candidates, the boldest first -----------------------------------------------------------------------------------


def _with(case: Case, **changes: Any) -> Case:
    return replace(case, mission={**case.mission, **changes})


def _settings(case: Case) -> Iterator[Case]:
    """Without what was varied, and without a seed of its own."""
    if case.changes:
        yield replace(case, changes={})
    for path in case.changes:
        yield replace(case, changes={key: value for key, value in case.changes.items() if key != path})
    if case.seed is not None:
        yield replace(case, seed=None)
    if case.seed not in (None, 0):
        yield replace(case, seed=0)


def _without_parts(parts: Sequence[Any]) -> Iterator[list[Any]]:
    """Everything, halves, quarters … single ones taken away (Zeller's ddmin)."""
    size = len(parts)
    while size:
        for start in range(0, len(parts), size):
            yield [*parts[:start], *parts[start + size :]]
        size = 0 if size == 1 else (size + 1) // 2


def _entries(case: Case) -> Iterator[Case]:
    for entries in _without_parts(case.mission.get("do", [])):
        yield _with(case, do=_waiting_for_nobody(entries))


def _waiting_for_nobody(entries: Sequence[Data]) -> list[Data]:
    """Who waited for an entry that is gone begins at its own time."""
    names = {entry.get("name") for entry in entries}
    return [{key: value for key, value in entry.items() if key != "after" or value in names} for entry in entries]


def _expectations(case: Case) -> Iterator[Case]:
    for expectations in _without_parts(case.mission.get("expect", [])):
        yield _with(case, expect=expectations)


def _durations(case: Case) -> Iterator[Case]:
    """Half, three quarters, seven eighths …: the shortest that fails is found as by bisection."""
    steps = round(case.mission["duration"] / _STEP_S)
    cut = (steps + 1) // 2
    tried = set()
    while cut:
        left = steps - cut
        if left > 0 and left not in tried:
            tried.add(left)
            yield _lasting(case, round(left * _STEP_S, 1))
        cut //= 2


def _lasting(case: Case, seconds: float) -> Case:
    """What would be later is left out."""
    mission = {**case.mission, "duration": seconds}
    mission["do"] = _waiting_for_nobody([entry for entry in mission.get("do", []) if _last(entry) <= seconds])
    mission["expect"] = [entry for entry in mission.get("expect", []) if _latest(entry) < seconds]
    return replace(case, mission=mission)


def _last(entry: Data) -> float:
    """When it is done for the last time."""
    return float(entry.get("at", 0.0) + entry.get("every", 0.0) * (entry.get("times", 1) - 1))


def _latest(expectation: Data) -> float:
    return max(float(expectation.get(key) or 0.0) for key in ("at", "from", "to"))


def _each_entry(case: Case) -> Iterator[tuple[int, Data]]:
    yield from enumerate(case.mission.get("do", []))


def _replaced(case: Case, index: int, entry: Data) -> Case:
    entries = list(case.mission["do"])
    entries[index] = entry
    return _with(case, do=entries)


def _waypoints(case: Case) -> Iterator[Case]:
    for index, entry in _each_entry(case):
        for waypoints in _without_parts(entry.get("waypoints", [])):
            if waypoints:
                yield _replaced(case, index, {**entry, "waypoints": waypoints})


def _repetitions(case: Case) -> Iterator[Case]:
    for index, entry in _each_entry(case):
        times = entry.get("times", 1)
        if times > 1:
            yield _replaced(case, index, {key: value for key, value in entry.items() if key not in ("every", "times")})
            yield _replaced(case, index, {**entry, "times": times // 2})
            yield _replaced(case, index, {**entry, "times": times - 1})


def _options(case: Case) -> Iterator[Case]:
    for index, entry in _each_entry(case):
        for key in _OPTIONAL:
            if key in entry:
                yield _replaced(case, index, {name: value for name, value in entry.items() if name != key})
        for key in entry.get("command", {}):
            command = {name: value for name, value in entry["command"].items() if name != key}
            yield _replaced(case, index, {**entry, "command": command})


def _numbers(case: Case) -> Iterator[Case]:
    for path, number in _numbers_in(case.mission.get("do", []), ()):
        for simpler in simpler_numbers(number):
            yield _with(case, do=_put(case.mission["do"], path, simpler))


def _numbers_in(data: Any, path: Path) -> Iterator[tuple[Path, float]]:
    if isinstance(data, dict):
        for key, value in data.items():
            if key not in ("every", "times"):
                yield from _numbers_in(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _numbers_in(value, (*path, index))
    elif isinstance(data, float) or (isinstance(data, int) and not isinstance(data, bool)):
        yield path, data


def _put(data: Any, path: Path, value: float) -> Any:
    data = copy.deepcopy(data)
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


def simpler_numbers(number: float) -> Iterator[float]:
    """0, then fewer and fewer digits left away: each is shorter to write than the number, or as short and smaller."""
    candidates = [0.0, *(float(f"{number:.{digits}g}") for digits in (1, 2, 3)), float(round(number)), round(number, 1)]
    for each in dict.fromkeys(candidates):
        if _effort(each) < _effort(number):
            yield each


def _effort(number: float) -> tuple[int, float]:
    return (len(f"{number:.15g}".lstrip("-0")), abs(number))
