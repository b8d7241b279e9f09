"""A sweep on one page: a panel for each metric and each key that varies; without any, how values are spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microsim.errors import UsageError
from microsim.recording.bag_plot import COLOURS, INK, PALE, STYLE, check_name, matplotlib, save
from microsim.sweep.metric import Value
from microsim.sweep.metrics import metric
from microsim.sweep.summary import is_failed
from microsim.sweep.sweeping import Finished

_BAD = "#dc2626"
_MOST_POINTS = 4000  # a panel; more would be a blot
_MOST_METRICS, _MOST_KEYS = 6, 4
_SPREAD = 0.28  # width over which the runs of one value are strewn

Row = Mapping[str, Value]


def check_target(path: Path) -> None:
    """Refuses what could not be drawn in the end, before hours are spent."""
    check_name(path)
    matplotlib("matplotlib.figure")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")


@dataclass(frozen=True)
class _Sheet:
    finished: Finished
    rows: Sequence[Row]  # that came to their end
    failed: Sequence[bool]

    def title(self, name: str) -> str:
        unit = metric(name).unit
        return f"{name} [{unit}]" if unit else name


def draw(finished: Finished, path: Path) -> None:
    mpl, figures = matplotlib("matplotlib"), matplotlib("matplotlib.figure")
    rows = [row for row in finished.rows if row["error"] is None]
    sheet = _Sheet(finished, rows, [is_failed(row, finished.plan.conditions) for row in rows])
    names = [name for name in finished.plan.metrics if metric(name).kind is not str][:_MOST_METRICS]
    keys = list(finished.plan.varied)[:_MOST_KEYS]
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
                _spread(axes, sheet, name) if not key else _over(axes, sheet, name, key)
                if key and line == len(names) - 1:
                    axes.set_xlabel(key)
        save(figure, path)


def _titles(figure: Any, sheet: _Sheet, height: float) -> None:
    plan = sheet.finished.plan
    flown = plan.scenario.name + ("" if plan.mission is None else f" × {plan.mission.name}")
    figure.text(0.09, 1.0 - 0.38 / height, flown, fontsize=15, fontweight="bold", color=INK)
    parts = [f"{len(sheet.finished.rows):,} runs", f"{len(plan.seeds):,} seeds"]
    bad = sum(sheet.failed) + len(sheet.finished.failed)
    parts.append(f"{bad:,} failed" if bad else "none failed")
    words = "a point is a run, red ones failed; the line joins the means" if plan.varied else "dashed: the mean"
    figure.text(0.09, 1.0 - 0.62 / height, "   ·   ".join([*parts, words]), fontsize=8, color=PALE)


def _over(axes: Any, sheet: _Sheet, name: str, key: str) -> None:
    """Every run as a point, means as a line; failed runs in red."""
    values = list(dict.fromkeys(row[key] for row in sheet.finished.rows))
    is_flag = metric(name).kind is bool
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
    axes.set_xticks(range(len(values)), [_label(value) for value in values])
    axes.set_xlim(-0.6, len(values) - 0.4)


def _points(axes: Any, place: int, known: Sequence[tuple[float, bool]]) -> None:
    step = max(len(known) // _MOST_POINTS, 1)
    for is_bad, colour, order in ((False, PALE, 2), (True, _BAD, 3)):
        chosen = [(index, number) for index, (number, bad) in enumerate(known) if bad is is_bad]
        shown = chosen if is_bad else chosen[::step]
        # strewn by the golden ratio: even, and the same every time
        across = [place + _SPREAD * (2.0 * ((index * 0.6180339887) % 1.0) - 1.0) for index, _ in shown]
        heights = [number for _, number in shown]
        axes.plot(across, heights, ".", color=colour, markersize=4, alpha=0.45, markeredgewidth=0, zorder=order)


def _spread(axes: Any, sheet: _Sheet, name: str) -> None:
    numbers = [float(row[name]) for row in sheet.rows if isinstance(row[name], (int, float))]  # type: ignore[arg-type]
    if not numbers:
        axes.text(0.5, 0.5, "no value in any run", ha="center", color=PALE, transform=axes.transAxes)
        return
    bins = min(max(len(set(numbers)), 1), 40)
    axes.hist(numbers, bins=bins, color=COLOURS[0], alpha=0.75)
    axes.axvline(sum(numbers) / len(numbers), color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.set_ylabel("runs")


def _label(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
