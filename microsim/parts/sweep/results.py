"""What a sweep produces: rows in a file, a summary, assertions that fail, and a figure.

Rows are in the order of the plan, whichever worker ran them and when; there is no time, host name or folder in them.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from microsim.errors import MicroSimError, UsageError, install_hint, os_errors
from microsim.parts.sweep.expressions import Condition, Row
from microsim.parts.sweep.metrics import Value
from microsim.parts.sweep.plan import Plan, RunOutcome
from microsim.plotting import COLOURS, INK, PALE, STYLE, check_name, matplotlib, save

SUFFIXES = (".csv", ".parquet")
_ROWS_A_GROUP = 100_000


class ResultError(MicroSimError):
    """A result cannot be written."""


# ---- the summary -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finished:
    """A sweep that was run to its end."""

    plan: Plan
    rows: list[dict[str, Value]] = field(repr=False)

    @staticmethod
    def of(plan: Plan, outcomes: Iterable[RunOutcome]) -> Finished:
        return Finished(plan, [plan.row(each) for each in sorted(outcomes, key=lambda outcome: outcome.run)])

    @property
    def failed(self) -> list[dict[str, Value]]:
        """Rows of runs that did not reach their end."""
        return [row for row in self.rows if row["error"] is not None]

    @property
    def broken(self) -> list[BrokenAssertion]:
        return broken(self.plan.conditions, self.rows)

    @property
    def is_good(self) -> bool:
        return not self.failed and not self.broken


@dataclass(frozen=True)
class Figures:
    """Of one metric in a group of runs."""

    mean: float
    least: float
    most: float
    count: int  # runs that have a value


@dataclass(frozen=True)
class Group:
    """The runs with one value of one key; without a key, all runs."""

    key: str
    value: Value
    runs: int
    failed: int
    figures: Mapping[str, Figures | None]  # metric -> None: no run has a value

    @property
    def failure_share(self) -> float:
        return self.failed / self.runs if self.runs else 0.0


@dataclass(frozen=True)
class BrokenAssertion:
    condition: Condition
    rows: Sequence[Row]  # the runs that break it; none: it is about all of them

    def __str__(self) -> str:
        if not self.rows:
            return f"does not hold: {self.condition.text}"
        first = self.rows[0]
        values = ", ".join(f"{name} = {_shown(first[name])}" for name in self.condition.metrics)
        return (
            f"does not hold in {len(self.rows):,} runs: {self.condition.text}; the first has {values}: "
            f"microsim replay --token {first['token']}"
        )


def _shown(value: Value) -> str:
    return "no value" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def broken(conditions: Sequence[Condition], rows: Sequence[Row]) -> list[BrokenAssertion]:
    """A condition about one run must hold in every run that reached its end."""
    whole = [row for row in rows if row["error"] is None]
    found = []
    for condition in conditions:
        if condition.is_about_all_runs:
            if not condition.holds(dict.fromkeys(condition.metrics), whole):
                found.append(BrokenAssertion(condition, ()))
        elif breaking := [row for row in whole if not condition.holds(row)]:
            found.append(BrokenAssertion(condition, breaking))
    return found


def problem_of(row: Row, conditions: Sequence[Condition]) -> str:
    """Empty if it reached its end, its mission passed (if measured), and every assertion about a run holds."""
    if row["error"] is not None:
        return str(row["error"])
    if row.get("passed") is False:
        return "the mission's expectations were not met"
    broken = [each.text for each in conditions if not each.is_about_all_runs and not each.holds(row)]
    return f"does not hold: {', '.join(broken)}" if broken else ""


def summarised(plan: Plan, rows: Sequence[Row]) -> list[Group]:
    """A group for each value of each key that varies; if none varies, one for all runs."""
    groups = []
    for key in plan.varied:
        for value in dict.fromkeys(row[key] for row in rows):
            groups.append(_group(plan, key, value, [row for row in rows if row[key] == value]))
    return groups or [_group(plan, "", None, rows)]


def _group(plan: Plan, key: str, value: Value, rows: Sequence[Row]) -> Group:
    failed = sum(bool(problem_of(row, plan.conditions)) for row in rows)
    names = [name for name in plan.metrics if plan.metric(name).kind is not str]
    return Group(key, value, len(rows), failed, {name: _figures([row[name] for row in rows]) for name in names})


def _figures(values: Sequence[Value]) -> Figures | None:
    numbers = [float(value) for value in values if value is not None]
    if not numbers:
        return None
    least, most = min(numbers), max(numbers)
    mean = min(max(math.fsum(numbers) / len(numbers), least), most)  # rounding may put it outside
    return Figures(mean, least, most, len(numbers))


# ---- the file --------------------------------------------------------------------------------------------------------


def check_result_file(out: Path) -> None:
    """Refuses what could not be written in the end, before hours are spent."""
    if out.suffix not in SUFFIXES:
        raise UsageError(f"{out}: expected a name that ends with {' or '.join(SUFFIXES)}")
    _check_folder(out)
    if out.suffix == ".parquet":
        _pyarrow("pyarrow.parquet")


def _check_folder(file: Path) -> None:
    if not file.parent.is_dir():
        raise UsageError(f"{file}: there is no folder {file.parent}")


def write(out: Path, finished: Finished) -> None:
    """All at once: a reader sees the old file or the new one, never half of it."""
    content = _csv(finished) if out.suffix == ".csv" else _parquet(finished)
    temporary = out.with_name(f".{out.name}.part")
    with os_errors(f"{out} cannot be written", ResultError):
        temporary.write_bytes(content)
        temporary.replace(out)


def _csv(finished: Finished) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(finished.plan.columns)
    writer.writerows([_cell(value) for value in row.values()] for row in finished.rows)
    return text.getvalue().encode()


def _cell(value: Value) -> str:
    """Numbers in the shortest form that reads back to the same bits; empty: no value."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)


def _parquet(finished: Finished) -> bytes:
    """Not compressed: compressors of different versions give different bytes."""
    arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
    types = {float: arrow.float64(), int: arrow.int64(), bool: arrow.bool_(), str: arrow.string()}
    schema = arrow.schema([(name, types[kind]) for name, kind in finished.plan.columns.items()])
    columns = [arrow.array([row[column.name] for row in finished.rows], column.type) for column in schema]
    stream = io.BytesIO()
    table = arrow.Table.from_arrays(columns, schema=schema)
    parquet.write_table(table, stream, compression="none", use_dictionary=False, row_group_size=_ROWS_A_GROUP)
    return stream.getvalue()


def _pyarrow(name: str) -> Any:
    """Imported only here: it is an optional extra."""
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"parquet files need pyarrow: {install_hint('sweep')}, or write a .csv file") from None


# ---- the figure: a panel for each metric and each key that varies; without any, the distribution of values -----------

_FAILED_COLOUR = "#dc2626"
_MOST_POINTS = 4000  # in a panel
_MOST_METRICS, _MOST_KEYS = 6, 4
_SPREAD = 0.28  # width over which the runs of one value are spread


def check_figure(path: Path) -> None:
    """Refuses what could not be drawn in the end, before hours are spent."""
    check_name(path)
    matplotlib("matplotlib.figure")
    _check_folder(path)


@dataclass(frozen=True)
class _Sheet:
    finished: Finished
    rows: Sequence[Row]  # that reached their end
    failed: Sequence[bool]

    def title(self, name: str) -> str:
        unit = self.finished.plan.metric(name).unit
        return f"{name} [{unit}]" if unit else name


def draw(finished: Finished, path: Path) -> None:
    mpl, figures = matplotlib("matplotlib"), matplotlib("matplotlib.figure")
    plan = finished.plan
    rows = [row for row in finished.rows if row["error"] is None]
    sheet = _Sheet(finished, rows, [bool(problem_of(row, plan.conditions)) for row in rows])
    names = [name for name in plan.metrics if plan.metric(name).kind is not str][:_MOST_METRICS]
    keys = list(plan.varied)[:_MOST_KEYS]
    with mpl.rc_context(STYLE):
        height = 1.5 + 2.3 * max(len(names), 1)
        figure = figures.Figure(figsize=(max(4.6 * len(keys), 7.0), height), dpi=150, facecolor="white")
        _titles(figure, sheet, height)
        margins = {"left": 0.09, "right": 0.97, "top": 1.0 - 1.0 / height, "bottom": 0.55 / height}
        grid = figure.add_gridspec(max(len(names), 1), max(len(keys), 1), wspace=0.22, hspace=0.45, **margins)
        for line, name in enumerate(names):
            for place, key in enumerate(keys or [""]):
                axes = figure.add_subplot(grid[line, place])
                axes.set_title(sheet.title(name))
                axes.tick_params(length=0)
                _over(axes, sheet, name, key) if key else _distribution(axes, sheet, name)
                if key and line == len(names) - 1:
                    axes.set_xlabel(key)
        save(figure, path)


def _titles(figure: Any, sheet: _Sheet, height: float) -> None:
    plan = sheet.finished.plan
    title = plan.scenario.name + ("" if plan.mission is None else f" × {plan.mission.name}")
    figure.text(0.09, 1.0 - 0.38 / height, title, fontsize=15, fontweight="bold", color=INK)
    parts = [f"{len(sheet.finished.rows):,} runs", f"{len(plan.seeds):,} seeds"]
    bad = sum(sheet.failed) + len(sheet.finished.failed)
    parts.append(f"{bad:,} failed" if bad else "none failed")
    words = "each point is a run, red: failed; the line joins the means" if plan.varied else "dashed: the mean"
    figure.text(0.09, 1.0 - 0.62 / height, "   ·   ".join([*parts, words]), fontsize=8, color=PALE)


def _over(axes: Any, sheet: _Sheet, name: str, key: str) -> None:
    """Every run as a point, means as a line; failed runs in red."""
    values = list(dict.fromkeys(row[key] for row in sheet.finished.rows))
    is_flag = sheet.finished.plan.metric(name).kind is bool
    means = []
    for place, value in enumerate(values):
        here = [(row[name], bad) for row, bad in zip(sheet.rows, sheet.failed, strict=True) if row[key] == value]
        known = [(float(number), bad) for number, bad in here if number is not None and not isinstance(number, str)]
        means.append(sum(number for number, _ in known) / len(known) if known else float("nan"))
        if not is_flag:
            _points(axes, place, known)
    if is_flag:
        axes.bar(range(len(values)), means, width=0.5, color=COLOURS[0], alpha=0.75)
        axes.set_ylim(0.0, 1.05)
        axes.set_title(f"share of runs {name}")
    else:
        axes.plot(range(len(values)), means, "o-", color=COLOURS[0], markeredgecolor="white", zorder=4, label="mean")
        axes.margins(y=0.15)
    labels = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    axes.set_xticks(range(len(values)), labels)
    axes.set_xlim(-0.6, len(values) - 0.4)


def _points(axes: Any, place: int, known: Sequence[tuple[float, bool]]) -> None:
    step = max(len(known) // _MOST_POINTS, 1)
    for is_bad, colour, order in ((False, PALE, 2), (True, _FAILED_COLOUR, 3)):
        chosen = [(index, number) for index, (number, bad) in enumerate(known) if bad is is_bad]
        shown = chosen if is_bad else chosen[::step]
        # spread by the golden ratio: even, and the same every time
        across = [place + _SPREAD * (2.0 * ((index * 0.6180339887) % 1.0) - 1.0) for index, _ in shown]
        heights = [number for _, number in shown]
        axes.plot(across, heights, ".", color=colour, markersize=4, alpha=0.45, markeredgewidth=0, zorder=order)


def _distribution(axes: Any, sheet: _Sheet, name: str) -> None:
    numbers = [float(row[name]) for row in sheet.rows if isinstance(row[name], (int, float))]  # type: ignore[arg-type]
    if not numbers:
        axes.text(0.5, 0.5, "no value in any run", ha="center", color=PALE, transform=axes.transAxes)
        return
    bins = min(max(len(set(numbers)), 1), 40)
    axes.hist(numbers, bins=bins, color=COLOURS[0], alpha=0.75)
    axes.axvline(sum(numbers) / len(numbers), color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.set_ylabel("runs")
