"""What a finished sweep says: figures for each varied value, what failed, and whether assertions hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from microsim.sweep.expressions import Condition
from microsim.sweep.metric import Value
from microsim.sweep.metrics import metric
from microsim.sweep.plan import Plan

Row = Mapping[str, Value]


@dataclass(frozen=True)
class Figures:
    """Of one metric in a group of runs."""

    mean: float
    least: float
    most: float
    count: int  # runs that have a value


@dataclass(frozen=True)
class Group:
    """The runs with one value of one key; without a key, all."""

    key: str
    value: Value
    runs: int
    failed: int
    figures: Mapping[str, Figures | None]  # metric -> None: no run has a value

    @property
    def failure_share(self) -> float:
        return self.failed / self.runs if self.runs else 0.0


@dataclass(frozen=True)
class Broken:
    """An assertion that does not hold."""

    condition: Condition
    rows: Sequence[Row]  # the runs that break it; none: it is about all of them

    def __str__(self) -> str:
        if not self.rows:
            return f"does not hold: {self.condition.text}"
        first = self.rows[0]
        values = ", ".join(f"{name} = {_said(first[name])}" for name in self.condition.metrics)
        return (
            f"does not hold in {len(self.rows):,} runs: {self.condition.text}; the first has {values}: "
            f"microsim replay --token {first['token']}"
        )


def _said(value: Value) -> str:
    return "no value" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def broken(conditions: Sequence[Condition], rows: Sequence[Row]) -> list[Broken]:
    """What about one run must hold in every run that came to its end."""
    whole = [row for row in rows if row["error"] is None]
    found = []
    for condition in conditions:
        if condition.is_about_all_runs:
            metrics = dict.fromkeys(condition.metrics)
            if not condition.holds({**metrics}, whole):
                found.append(Broken(condition, ()))
        else:
            breaking = [row for row in whole if not condition.holds(row)]
            if breaking:
                found.append(Broken(condition, breaking))
    return found


def is_failed(row: Row, conditions: Sequence[Condition]) -> bool:
    """It did not come to its end, did not pass its mission as far as that was asked, or breaks an assertion."""
    if row["error"] is not None or row.get("passed") is False:
        return True
    return any(not condition.holds(row) for condition in conditions if not condition.is_about_all_runs)


def summarised(plan: Plan, rows: Sequence[Row]) -> list[Group]:
    """A group for each value of each key that varies; without any, one for all runs."""
    groups = []
    for key in plan.varied:
        for value in dict.fromkeys(row[key] for row in rows):
            groups.append(_group(plan, key, value, [row for row in rows if row[key] == value]))
    return groups or [_group(plan, "", None, rows)]


def _group(plan: Plan, key: str, value: Value, rows: Sequence[Row]) -> Group:
    failed = sum(is_failed(row, plan.conditions) for row in rows)
    names = [name for name in plan.metrics if metric(name).kind is not str]
    return Group(key, value, len(rows), failed, {name: _figures([row[name] for row in rows]) for name in names})


def _figures(values: Sequence[Value]) -> Figures | None:
    numbers = [float(value) for value in values if value is not None]
    if not numbers:
        return None
    least, most = min(numbers), max(numbers)
    mean = min(max(math.fsum(numbers) / len(numbers), least), most)  # rounding may put it outside
    return Figures(mean, least, most, len(numbers))
