"""`microsim plot`: a run on one page."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from microsim.recording.bag import ForeignBag, OwnBag
from microsim.recording.entries import BagError
from microsim.recording.pictures import COLOURS, INK, PALE, STYLE, PlotError, check_name, matplotlib, save
from microsim.recording.scenarios import unpacked
from microsim.recording.series import ODOMETRY, RANGE, Series, read_series
from microsim.scenario import Scenario
from microsim.scenario.scene import build_world
from microsim.sensors.declaration import default_form

_LINE = 60  # letters that fit beside a title
_FEW, _MOST_LINKS = 4, 12  # links that are drawn in full; that are drawn one by one

_FARTHEST_RANGE_M = 1e6


@dataclass(frozen=True)
class Page:
    """What the panels share."""

    series: Series
    scenario: Scenario | None

    def robot(self, topic: str) -> str:
        return topic.strip("/").split("/")[0]

    def colour(self, robot: str) -> str:
        names = list(self.scenario.robots) if self.scenario else sorted({self.robot(t) for t in self.series.odometry})
        return COLOURS[names.index(robot) % len(COLOURS)] if robot in names else PALE


def plot(bag: OwnBag | ForeignBag, path: Path) -> None:
    """Draw the run: path on the map, heights, speeds, ranges, radio."""
    check_name(path)
    mpl, figures = matplotlib("matplotlib"), matplotlib("matplotlib.figure")
    with mpl.rc_context(STYLE), tempfile.TemporaryDirectory() as folder:
        scenario = _scenario(bag, Path(folder))
        series = read_series(bag, _declared_plots(scenario))
        if not series.odometry:
            raise PlotError(f"{bag.path}: there is no odometry in it to draw")
        page = Page(series, scenario)
        figure = figures.Figure(figsize=(13.0, 8.2), dpi=150, facecolor="white")
        _draw(figure, page, bag)
        save(figure, path)


def _scenario(bag: OwnBag | ForeignBag, folder: Path) -> Scenario | None:
    """None where there is none, or where its world or plug-ins are not at hand: paths can be drawn without."""
    if not bag.is_ours:
        return None
    try:
        return unpacked(bag.facts.start["scenario"], folder, bag.facts.files)
    except BagError:
        return None


def _declared_plots(scenario: Scenario | None) -> dict[str, tuple[str, ...]]:
    """Topic -> fields that its sensor declares to be plotted."""
    found = {}
    for robot, name, _, kind in scenario.all_sensors if scenario is not None else ():
        form = kind.messages[0] if kind.messages else default_form(kind)
        if form.type not in (ODOMETRY, RANGE):  # these have panels of their own
            found[kind.topic(form, robot, name)] = kind.display.plot
    return found


def _draw(figure: Any, page: Page, bag: OwnBag | ForeignBag) -> None:
    panels: list[Callable[[Any, Page], None]] = [_heights, _speeds]
    panels += [_ranges] if page.series.ranges else []
    names = {(topic.split("/")[2], path) for topic, path in page.series.readings}
    panels += [partial(_readings, sensor=sensor, path=path) for sensor, path in sorted(names)]
    panels += [_latencies, _losses] if any(link["sent"].max() > 0 for link in page.series.links.values()) else []
    grid = figure.add_gridspec(
        len(panels), 2, width_ratios=(1.25, 1), left=0.05, right=0.975, top=0.875, bottom=0.07, wspace=0.14, hspace=0.42
    )
    _map(figure.add_subplot(grid[:, 0]), page)
    shared = None
    for row, draw in enumerate(panels):
        axes = figure.add_subplot(grid[row, 1], sharex=shared)
        shared = shared or axes
        draw(axes, page)
        axes.set_xlim(*_span(page.series))
        axes.tick_params(labelbottom=row == len(panels) - 1, length=0)
    axes.set_xlabel("simulated time [s]")
    _titles(figure, page, bag)


def _span(series: Series) -> tuple[float, float]:
    """From the start of the run [s], or of a recording that began long after it."""
    start = series.start_s if series.start_s > 0.5 * series.end_s else 0.0
    return start, max(series.end_s, start + 1e-3)


def _titles(figure: Any, page: Page, bag: OwnBag | ForeignBag) -> None:
    facts = {**bag.facts.start, **bag.facts.end}
    name = page.scenario.name if page.scenario else bag.path.name
    figure.text(0.05, 0.945, name, fontsize=17, fontweight="bold", color=INK)
    start, end = _span(page.series)
    parts = [f"{end - start:.6g} s"]
    parts += [f"seed {facts['seed']}"] if "seed" in facts else []
    parts += [f"microsim {facts['version']}"] if "version" in facts else []
    parts += [f"digest {facts['digest'][:16]}…"] if facts.get("digest") else []
    figure.text(0.05, 0.915, "   ·   ".join(parts), fontsize=9, color=PALE)


def _map(axes: Any, page: Page) -> None:
    axes.set_title("Trajectory on the map" if page.scenario else "Trajectory (the map is not at hand)", pad=8)
    if page.scenario is not None:
        _ground(axes, page.scenario)
    for topic, odometry in page.series.odometry.items():
        robot = page.robot(topic)
        colour, x, y = page.colour(robot), odometry["x"], odometry["y"]
        axes.plot(x, y, color="white", linewidth=4.0, alpha=0.9, zorder=4)
        axes.plot(x, y, color=colour, linewidth=2.0, zorder=5, label=robot)
        axes.plot(x[0], y[0], "o", color="white", markeredgecolor=colour, markeredgewidth=2, markersize=7, zorder=6)
        axes.plot(x[-1], y[-1], "o", color=colour, markeredgecolor="white", markeredgewidth=1.2, markersize=9, zorder=7)
    _frame_map(axes, page)
    axes.set_aspect("equal", adjustable="box")
    axes.set_xlabel("x, east [m]")
    axes.set_ylabel("y, north [m]")
    axes.tick_params(length=0)
    robots = [page.robot(topic) for topic in page.series.odometry]
    if len(robots) <= 4 and sum(map(len, robots)) <= _LINE:
        axes.legend(loc="upper left", ncols=4, facecolor="white", framealpha=0.85, frameon=True, edgecolor="none")
    else:
        _name_ends(axes, page)


def _name_ends(axes: Any, page: Page) -> None:
    """Many names, or long ones, stand where their robots are."""
    halo = matplotlib("matplotlib.patheffects").withStroke(linewidth=2.5, foreground="white")
    for topic, odometry in page.series.odometry.items():
        name, place = _shortened(page.robot(topic)), (odometry["x"][-1], odometry["y"][-1])
        on_right = place[0] > sum(axes.get_xlim()) / 2.0
        axes.annotate(
            name,
            place,
            xytext=(-7 if on_right else 7, 0),
            textcoords="offset points",
            fontsize=7.5,
            color=INK,
            ha="right" if on_right else "left",
            va="center",
            zorder=8,
            path_effects=[halo],
            clip_on=True,
        )


def _shortened(name: str, most: int = 18) -> str:
    """Beginning and end, which tell robots apart."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-(most - most // 2 - 1) :]}"


def _ground(axes: Any, scenario: Scenario) -> None:
    """Relief as shading, occupied cells dark."""
    world, colors = build_world(scenario), matplotlib("matplotlib.colors")
    heights, cell = world.elevation, world.cell_m
    west, south, east, north = world.extent_m
    extent = (west, east, south, north)
    spread = float(np.ptp(heights))
    if spread > 1e-9:
        soil = colors.LinearSegmentedColormap.from_list("soil", ["#dbe7d3", "#eef0dc", "#efe3c8", "#e3cfae"])
        light = colors.LightSource(315, 45)
        shaded = light.shade(heights, soil, blend_mode="soft", vert_exag=2.0, dx=cell, dy=cell)
        axes.imshow(shaded, origin="lower", extent=extent, interpolation="bilinear", zorder=0)
    else:
        axes.add_patch(
            matplotlib("matplotlib.patches").Rectangle(
                (west, south), east - west, north - south, facecolor="#f4f6ee", edgecolor="none", zorder=0
            )
        )
    axes.set_facecolor("#e5e7eb")  # beyond the map
    occupied = np.ma.masked_equal(np.asarray(world.occupied, bool).astype(np.uint8), 0)
    dark = colors.ListedColormap(["#475569"])
    axes.imshow(occupied, origin="lower", extent=extent, cmap=dark, interpolation="nearest", zorder=2)


def _frame_map(axes: Any, page: Page) -> None:
    """What was visited, with room around it, and never beyond reason."""
    paths = page.series.odometry.values()
    low = np.array([min(float(each[axis].min()) for each in paths) for axis in "xy"])
    high = np.array([max(float(each[axis].max()) for each in paths) for axis in "xy"])
    half = 0.5 * max(float((high - low).max()) * 1.2, 24.0)
    middle = 0.5 * (low + high)
    axes.set_xlim(middle[0] - half, middle[0] + half)
    axes.set_ylim(middle[1] - half, middle[1] + half)


def _heights(axes: Any, page: Page) -> None:
    axes.set_title("Altitude [m]")
    for topic, odometry in page.series.odometry.items():
        robot = page.robot(topic)
        axes.plot(odometry["t"], odometry["z"], color=page.colour(robot), label=robot)
    axes.margins(y=0.15)


def _speeds(axes: Any, page: Page) -> None:
    axes.set_title("Speed [m/s]")
    for topic, odometry in page.series.odometry.items():
        robot = page.robot(topic)
        speed = np.sqrt(odometry["vx"] ** 2 + odometry["vy"] ** 2 + odometry["vz"] ** 2)
        axes.plot(odometry["t"], speed, color=page.colour(robot), label=robot)
    axes.set_ylim(bottom=0.0)
    axes.margins(y=0.15)


def _ranges(axes: Any, page: Page) -> None:
    axes.set_title("Range [m]")
    limits: set[float] = set()
    for topic, measured in page.series.ranges.items():
        colour = page.colour(page.robot(topic))
        values = measured["range"]
        seen = np.where(np.isfinite(values), values, np.nan)
        axes.plot(measured["t"], seen, color=colour, linewidth=1.2)
        nothing = np.isposinf(values)
        limit = float(measured["max"][0])
        if not 0.0 < limit < _FARTHEST_RANGE_M:
            continue
        axes.axhline(limit, color=colour, linewidth=0.8, linestyle=(0, (4, 4)), alpha=0.6)
        clear = np.where(nothing, limit, np.nan)
        axes.plot(measured["t"], clear, color=colour, linewidth=3.0, alpha=0.25)
        limits.add(limit)
    for limit in sorted(limits):
        axes.annotate(
            "nothing in reach",
            (1.0, limit),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=7,
            color=PALE,
            ha="right",
        )
    axes.set_ylim(bottom=0.0, top=max(limits) * 1.22 if limits else None)


def _readings(axes: Any, page: Page, sensor: str, path: str) -> None:
    axes.set_title(f"{sensor} {path}")
    for (topic, field), reading in page.series.readings.items():
        if (topic.split("/")[2], field) == (sensor, path):
            axes.plot(reading["t"], reading["value"], color=page.colour(page.robot(topic)))
    axes.margins(y=0.15)


def _latencies(axes: Any, page: Page) -> None:
    axes.set_title("Radio latency [ms]")
    links = _used(page)
    for name, link in links.items():
        colour = page.colour(name.split(" → ")[0])
        told = link["mean"] > 0
        if len(links) <= _FEW:
            axes.plot(link["t"][told], link["last"][told], ".", color=colour, markersize=4, alpha=0.55)
        axes.plot(link["t"][told], link["mean"][told], color=colour, label=f"{name}, mean")
    axes.set_ylim(bottom=0.0)
    axes.margins(y=0.15)
    _legend_above(axes)


def _losses(axes: Any, page: Page) -> None:
    axes.set_title("Radio packets lost")
    links = _used(page)
    for name, link in links.items():
        colour = page.colour(name.split(" → ")[0])
        label = f"{name}: {link['dropped'][-1]:.0f} of {link['sent'][-1]:.0f}"
        if len(links) <= _FEW:
            axes.fill_between(link["t"], link["dropped"], step="post", color=colour, alpha=0.12, linewidth=0)
        axes.step(link["t"], link["dropped"], where="post", color=colour, label=label)
    axes.set_ylim(0.0, 1.25 * max(1.0, *(float(link["dropped"].max()) for link in links.values())))
    lost, sent = (sum(float(link[what][-1]) for link in links.values()) for what in ("dropped", "sent"))
    _legend_above(axes, f"{lost:,.0f} of {sent:,.0f} in all")


def _legend_above(axes: Any, instead: str = "each sender in its colour") -> None:
    """On the line of the title, where nothing is drawn; words in its place where it has no room."""
    labels = axes.get_legend_handles_labels()[1]
    if len(labels) <= 2 and sum(map(len, labels)) <= _LINE:
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.97), ncols=2, borderaxespad=0.0, handlelength=1.4)
    else:
        axes.set_title(instead, loc="right", fontsize=8, fontweight="normal", color=PALE)


def _used(page: Page) -> dict[str, Any]:
    """Links that were used; of many, all of a sender together."""
    used = {name: link for name, link in page.series.links.items() if link["sent"].max() > 0}
    if len(used) <= _MOST_LINKS:
        return used
    senders: dict[str, list[Any]] = {}
    for name, link in used.items():
        senders.setdefault(name.split(" → ")[0], []).append(link)
    return {f"{sender} → all": _together(links) for sender, links in senders.items()}


def _together(links: list[Any]) -> dict[str, Any]:
    """They are told of at the same times."""
    counts = {what: sum(link[what] for link in links) for what in ("sent", "dropped")}
    means = np.array([np.where(link["mean"] > 0, link["mean"], np.nan) for link in links])
    heard = np.isfinite(means).any(axis=0)
    mean = np.zeros(means.shape[1])
    mean[heard] = np.nanmean(means[:, heard], axis=0)
    return {"t": links[0]["t"], "mean": mean, "last": mean, **counts}
