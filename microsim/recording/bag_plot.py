"""`microsim plot`: a run on one page."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.messages import WireError, decode_checked
from microsim.messages.template import layout
from microsim.plotting import COLOURS, INK, PALE, STYLE, PlotError, check_name, matplotlib, save
from microsim.recording.bag_io import Bag
from microsim.recording.bag_model import BagError
from microsim.recording.inputs import unpacked
from microsim.scenario import Scenario
from microsim.scenario.scene import build_world

Column = npt.NDArray[np.float64]

ODOMETRY, RANGE, DIAGNOSTICS = "nav_msgs/msg/Odometry", "sensor_msgs/msg/Range", "diagnostic_msgs/msg/DiagnosticArray"
_FIELDS: Mapping[str, Mapping[str, str]] = {
    ODOMETRY: {
        **{axis: f"pose.pose.position.{axis}" for axis in "xyz"},
        **{f"v{axis}": f"twist.twist.linear.{axis}" for axis in "xyz"},
    },
    RANGE: {"range": "range", "max": "max_range"},
}

_FARTHEST_M, _LARGEST = 1e8, 1e15  # beyond that nothing can be drawn to scale


@dataclass
class Series:
    """Of each topic that can be drawn: its columns, `t` [s] among them."""

    odometry: dict[str, dict[str, Column]] = field(default_factory=dict)
    ranges: dict[str, dict[str, Column]] = field(default_factory=dict)
    links: dict[str, dict[str, Column]] = field(default_factory=dict)  # radio, by direction
    readings: dict[tuple[str, str], dict[str, Column]] = field(default_factory=dict)  # by topic and field: `t`, `value`
    start_s: float = math.inf
    end_s: float = 0.0


def read_series(bag: Bag) -> Series:
    """Odometry, ranges and the radio's metrics."""
    series, declared = Series(), declared_plots()
    collected: dict[tuple[str, str], tuple[list[int], list[bytes]]] = {}
    channels: dict[int, tuple[str, str]] = {}
    for block in bag.blocks():
        drawn = (each for each in block.channels if each.type in (ODOMETRY, RANGE, DIAGNOSTICS, *declared))
        channels.update((channel.number, (channel.topic, channel.type)) for channel in drawn)
        for number, time, data in zip(block.numbers, block.times, block.data, strict=True):
            if number in channels:
                times, messages = collected.setdefault(channels[number], ([], []))
                times.append(time)
                messages.append(data)
        if block.times:
            series.start_s = min(series.start_s, block.times[0] / 1e9)
            series.end_s = max(series.end_s, block.times[-1] / 1e9)
    for (topic, kind), (times, messages) in collected.items():
        try:
            seconds = np.array(times) / 1e9
            _add(series, topic, kind, seconds, messages)
            paths = {path: path for path in declared.get(kind, ())}
            for path, values in _columns(kind, messages, paths).items():
                series.readings[topic, path] = {"t": seconds, "value": values}
        except WireError as error:
            raise BagError(f"{bag.path}: {topic}: {error}") from None
    return series


def _add(series: Series, topic: str, kind: str, times: Column, messages: list[bytes]) -> None:
    if kind == DIAGNOSTICS and topic.endswith("/radio/metrics"):
        _add_links(series, times, messages)
    elif kind == RANGE:
        series.ranges[topic] = {"t": times, **_columns(kind, messages, _FIELDS[kind])}
    elif kind == ODOMETRY:
        columns = {"t": times, **_columns(kind, messages, _FIELDS[kind])}
        on_map = (np.abs(columns["x"]) < _FARTHEST_M) & (np.abs(columns["y"]) < _FARTHEST_M)  # false for NaN
        if on_map.any():
            found = {name: column[on_map] for name, column in columns.items()}  # other bad numbers leave a gap
            drawable = {name: np.where(np.abs(column) < _LARGEST, column, np.nan) for name, column in found.items()}
            series.odometry[topic] = drawable


def declared_plots() -> dict[str, tuple[str, ...]]:
    """Message type -> fields that sensors declare for plots; odometry and range have panels of their own."""
    from microsim.sensors import SENSORS

    forms = [(sensor.messages[0].type, sensor.display.plot) for sensor in SENSORS.built_in.values()]
    return {kind: plot for kind, plot in forms if plot and kind not in (ODOMETRY, RANGE)}


def _columns(kind: str, messages: list[bytes], names: Mapping[str, str]) -> dict[str, Column]:
    """Name -> path in the message. All at once where every message has the same layout, as ours have."""
    first = decode_checked(kind, messages[0])
    if len({len(message) for message in messages}) > 1:
        decoded = [decode_checked(kind, message) for message in messages]
        return {name: np.array([_value(message, path) for message in decoded]) for name, path in names.items()}
    table = np.frombuffer(b"".join(messages), np.uint8).reshape(len(messages), -1)
    places = layout(kind, first)
    found = {}
    for name, path in names.items():
        number = np.dtype(f"<{places[path].code}")
        raw = np.ascontiguousarray(table[:, places[path].offset : places[path].offset + number.itemsize])
        found[name] = raw.view(number)[:, 0].astype(np.float64)
    return found


def _value(message: Any, path: str) -> float:
    for part in path.split("."):
        message = getattr(message, part)
    return float(message)


def _add_links(series: Series, times: Column, messages: Sequence[bytes]) -> None:
    rows: dict[str, list[tuple[float, ...]]] = {}
    for time, message in zip(times.tolist(), messages, strict=True):
        for status in decode_checked(DIAGNOSTICS, message).status:
            values = {pair.key: pair.value for pair in status.values}
            if "latency_ms_mean" in values:
                numbers = (values.get(key, "nan") for key in ("latency_ms_last", "latency_ms_mean", "sent", "dropped"))
                name = status.name.removeprefix("radio: ").replace(" to ", " → ")
                rows.setdefault(name, []).append((time, *map(_number, numbers)))
    for name, found in rows.items():
        columns = np.array(found).T
        series.links[name] = dict(zip(("t", "last", "mean", "sent", "dropped"), columns, strict=True))


def _number(text: str) -> float:
    with suppress(ValueError):
        return float(text)
    return math.nan


_LINE = 60  # letters that fit beside a title
_FEW, _MOST_LINKS = 4, 12  # links that are drawn in full; that are drawn one by one
_FARTHEST_RANGE_M = 1e6
_VELOCITY = ("vx", "vy", "vz")


@dataclass(frozen=True)
class PlotPage:
    """What the panels share."""

    series: Series
    scenario: Scenario | None

    def robot(self, topic: str) -> str:
        return topic.strip("/").split("/")[0]

    def colour(self, robot: str) -> str:
        names = list(self.scenario.robots) if self.scenario else sorted({self.robot(t) for t in self.series.odometry})
        return COLOURS[names.index(robot) % len(COLOURS)] if robot in names else PALE


def plot(bag: Bag, path: Path) -> None:
    """Draw the run: path on the map, heights, speeds, ranges, radio."""
    check_name(path)
    mpl, figures = matplotlib("matplotlib"), matplotlib("matplotlib.figure")
    series = read_series(bag)
    if not series.odometry:
        raise PlotError(f"{bag.path}: there is no odometry in it to draw")
    with mpl.rc_context(STYLE), tempfile.TemporaryDirectory() as folder:
        page = PlotPage(series, _scenario(bag, Path(folder)))
        figure = figures.Figure(figsize=(13.0, 8.2), dpi=150, facecolor="white")
        _draw(figure, page, bag)
        save(figure, path)


def _scenario(bag: Bag, folder: Path) -> Scenario | None:
    """None where there is none, or where its world or plug-in robots are not available: paths can be drawn without.

    Sensors, which may be plug-ins, are left out: a picture needs none, and runs no code.
    """
    if not bag.is_ours:
        return None
    with suppress(BagError, ValueError, AttributeError, KeyError):
        data = json.loads(bag.run_info.start["scenario"])
        for robot in data["robots"].values():
            robot.pop("sensors", None)
        kept = {key: value for key, value in data.items() if key not in ("faults", "randomize")}
        return unpacked(json.dumps(kept), folder, bag.run_info.files, (), starts=())
    return None


def _draw(figure: Any, page: PlotPage, bag: Bag) -> None:
    panels: list[Callable[[Any, PlotPage], None]] = [_heights, _speeds]
    names = {(topic.split("/")[2], path) for topic, path in page.series.readings if topic.count("/") > 1}
    panels += [partial(_readings, sensor=sensor, path=path) for sensor, path in sorted(names)]
    panels += [_ranges] if page.series.ranges else []
    panels += [_latencies, _losses] if any(link["sent"].max() > 0 for link in page.series.links.values()) else []
    borders = {"left": 0.05, "right": 0.975, "top": 0.875, "bottom": 0.07, "wspace": 0.14, "hspace": 0.42}
    grid = figure.add_gridspec(len(panels), 2, width_ratios=(1.25, 1), **borders)
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


def _titles(figure: Any, page: PlotPage, bag: Bag) -> None:
    run_info = {**bag.run_info.start, **bag.run_info.end}
    name = page.scenario.name if page.scenario else bag.path.name
    figure.text(0.05, 0.945, name, fontsize=17, fontweight="bold", color=INK)
    start, end = _span(page.series)
    digest = f"{run_info['digest'][:16]}…" if run_info.get("digest") else None
    named = {"seed": run_info.get("seed"), "microsim": run_info.get("version"), "digest": digest}
    parts = [f"{end - start:.6g} s", *(f"{what} {value}" for what, value in named.items() if value is not None)]
    figure.text(0.05, 0.915, "   ·   ".join(parts), fontsize=9, color=PALE)


def _map(axes: Any, page: PlotPage) -> None:
    axes.set_title("Trajectory on the map" if page.scenario else "Trajectory (map not available)", pad=8)
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


def _name_ends(axes: Any, page: PlotPage) -> None:
    """Many names, or long ones, go beside their robots."""
    halo = matplotlib("matplotlib.patheffects").withStroke(linewidth=2.5, foreground="white")
    for topic, odometry in page.series.odometry.items():
        name, place = _shortened(page.robot(topic)), (odometry["x"][-1], odometry["y"][-1])
        on_right = place[0] > sum(axes.get_xlim()) / 2.0
        where = {"xytext": (-7 if on_right else 7, 0), "ha": "right" if on_right else "left", "va": "center"}
        looks = {"fontsize": 7.5, "color": INK, "zorder": 8, "path_effects": [halo], "clip_on": True}
        axes.annotate(name, place, textcoords="offset points", **where, **looks)


def _shortened(name: str) -> str:
    """Beginning and end, which tell robots apart."""
    return name if len(name) <= 18 else f"{name[:9]}…{name[-8:]}"


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
        plain, size = {"facecolor": "#f4f6ee", "edgecolor": "none", "zorder": 0}, (east - west, north - south)
        axes.add_patch(matplotlib("matplotlib.patches").Rectangle((west, south), *size, **plain))
    axes.set_facecolor("#e5e7eb")  # beyond the map
    occupied = np.ma.masked_equal(np.asarray(world.occupied, bool).astype(np.uint8), 0)
    dark = colors.ListedColormap(["#475569"])
    axes.imshow(occupied, origin="lower", extent=extent, cmap=dark, interpolation="nearest", zorder=2)


def _frame_map(axes: Any, page: PlotPage) -> None:
    """What was visited, with room around it, and never beyond reason."""
    paths = page.series.odometry.values()
    low = np.array([min(float(each[axis].min()) for each in paths) for axis in "xy"])
    high = np.array([max(float(each[axis].max()) for each in paths) for axis in "xy"])
    half, middle = 0.5 * max(float((high - low).max()) * 1.2, 24.0), 0.5 * (low + high)
    axes.set_xlim(middle[0] - half, middle[0] + half)
    axes.set_ylim(middle[1] - half, middle[1] + half)


def _heights(axes: Any, page: PlotPage) -> None:
    axes.set_title("Altitude [m]")
    for topic, odometry in page.series.odometry.items():
        axes.plot(odometry["t"], odometry["z"], color=page.colour(page.robot(topic)))
    axes.margins(y=0.15)


def _speeds(axes: Any, page: PlotPage) -> None:
    axes.set_title("Speed [m/s]")
    for topic, odometry in page.series.odometry.items():
        speed = np.sqrt(sum(odometry[axis] ** 2 for axis in _VELOCITY))
        axes.plot(odometry["t"], speed, color=page.colour(page.robot(topic)))
    axes.margins(y=0.15)
    axes.set_ylim(bottom=0.0)


def _readings(axes: Any, page: PlotPage, sensor: str, path: str) -> None:
    axes.set_title(f"{sensor} {path}")
    for (topic, field_path), reading in page.series.readings.items():
        if (topic.split("/")[2], field_path) == (sensor, path):
            axes.plot(reading["t"], reading["value"], color=page.colour(page.robot(topic)))
    axes.margins(y=0.15)


def _ranges(axes: Any, page: PlotPage) -> None:
    axes.set_title("Range [m]")
    limits: set[float] = set()
    for topic, measured in page.series.ranges.items():
        colour, values, limit = page.colour(page.robot(topic)), measured["range"], float(measured["max"][0])
        axes.plot(measured["t"], np.where(np.isfinite(values), values, np.nan), color=colour, linewidth=1.2)
        if 0.0 < limit < _FARTHEST_RANGE_M:
            axes.axhline(limit, color=colour, linewidth=0.8, linestyle=(0, (4, 4)), alpha=0.6)
            clear = np.where(np.isposinf(values), limit, np.nan)
            axes.plot(measured["t"], clear, color=colour, linewidth=3.0, alpha=0.25)
            limits.add(limit)
    for limit in sorted(limits):
        where = {"xycoords": ("axes fraction", "data"), "xytext": (0, 3), "textcoords": "offset points"}
        axes.annotate("nothing in reach", (1.0, limit), **where, fontsize=7, color=PALE, ha="right")
    axes.set_ylim(bottom=0.0, top=max(limits) * 1.22 if limits else None)


def _latencies(axes: Any, page: PlotPage) -> None:
    axes.set_title("Radio latency [ms]")
    links = _used(page)
    for name, link in links.items():
        colour = page.colour(name.split(" → ")[0])
        known = link["mean"] > 0
        if len(links) <= _FEW:
            axes.plot(link["t"][known], link["last"][known], ".", color=colour, markersize=4, alpha=0.55)
        axes.plot(link["t"][known], link["mean"][known], color=colour, label=f"{name}, mean")
    axes.set_ylim(bottom=0.0)
    axes.margins(y=0.15)
    _legend_above(axes)


def _losses(axes: Any, page: PlotPage) -> None:
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


def _used(page: PlotPage) -> dict[str, Any]:
    """Links that were used; of many, all of a sender together."""
    used = {name: link for name, link in page.series.links.items() if link["sent"].max() > 0}
    if len(used) <= _MOST_LINKS:
        return used
    senders: dict[str, list[Any]] = {}
    for name, link in used.items():
        senders.setdefault(name.split(" → ")[0], []).append(link)
    return {f"{sender} → all": _together(links) for sender, links in senders.items()}


def _together(links: list[Any]) -> dict[str, Any]:
    """As one; their metrics are of the same times."""
    counts = {what: sum(link[what] for link in links) for what in ("sent", "dropped")}
    means = np.array([np.where(link["mean"] > 0, link["mean"], np.nan) for link in links])
    known = np.isfinite(means).any(axis=0)
    mean = np.zeros(means.shape[1])
    mean[known] = np.nanmean(means[:, known], axis=0)
    return {"t": links[0]["t"], "mean": mean, "last": mean, **counts}
