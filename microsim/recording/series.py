"""Numbers out of a bag, as columns over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.errors import unknown
from microsim.messages import WireError, decode_checked
from microsim.messages.template import layout
from microsim.recording.bag import ForeignBag, OwnBag
from microsim.recording.entries import BagError

Column = npt.NDArray[np.float64]

ODOMETRY, RANGE, DIAGNOSTICS = "nav_msgs/msg/Odometry", "sensor_msgs/msg/Range", "diagnostic_msgs/msg/DiagnosticArray"
_FIELDS: Mapping[str, Mapping[str, str]] = {
    ODOMETRY: {
        "x": "pose.pose.position.x",
        "y": "pose.pose.position.y",
        "z": "pose.pose.position.z",
        "vx": "twist.twist.linear.x",
        "vy": "twist.twist.linear.y",
        "vz": "twist.twist.linear.z",
        "turn": "twist.twist.angular.z",
    },
    RANGE: {"range": "range", "min": "min_range", "max": "max_range"},
}

_FARTHEST_M, _LARGEST = 1e8, 1e15  # beyond that nothing can be drawn to scale


@dataclass
class Series:
    """Of each topic that can be drawn: its columns, `t` [s] among them."""

    odometry: dict[str, dict[str, Column]] = field(default_factory=dict)
    ranges: dict[str, dict[str, Column]] = field(default_factory=dict)
    readings: dict[tuple[str, str], dict[str, Column]] = field(default_factory=dict)  # by topic and field: `t`, `value`
    links: dict[str, dict[str, Column]] = field(default_factory=dict)  # radio, by direction
    frames: dict[str, str] = field(default_factory=dict)  # of the odometry, by topic
    start_s: float = math.inf
    end_s: float = 0.0


def read_series(bag: OwnBag | ForeignBag, fields: Mapping[str, Sequence[str]] | None = None) -> Series:
    """Odometry, ranges, the radio's statistics, and of other topics the numbers that `fields` names."""
    series, fields = Series(), fields or {}
    collected: dict[tuple[str, str], tuple[list[int], list[bytes]]] = {}
    channels: dict[int, tuple[str, str]] = {}
    for block in bag.blocks():
        channels.update((channel.number, (channel.topic, channel.type)) for channel in block.channels)
        kinds = (ODOMETRY, RANGE, DIAGNOSTICS)
        wanted = {number for number, (topic, kind) in channels.items() if kind in kinds or topic in fields}
        for number, time, data in zip(block.numbers, block.times, block.data, strict=True):
            if number in wanted:
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
            for path, values in _columns(kind, messages, {path: path for path in fields.get(topic, ())}).items():
                series.readings[topic, path] = {"t": seconds, "value": values}
        except WireError as error:
            raise BagError(f"{bag.path}: {topic}: {error}") from None
    return series


def _add(series: Series, topic: str, kind: str, times: Column, messages: list[bytes]) -> None:
    if kind == DIAGNOSTICS:
        if topic.endswith("/radio/metrics"):
            _add_links(series, times, messages)
        return
    if kind not in _FIELDS:
        return
    columns = {"t": times, **_columns(kind, messages, _FIELDS[kind])}
    if kind == ODOMETRY:
        columns = _drawable(columns)
        if not len(columns["t"]):
            return
    (series.odometry if kind == ODOMETRY else series.ranges)[topic] = columns


def _drawable(columns: dict[str, Column]) -> dict[str, Column]:
    """Without places that are on no map; other numbers that are none leave a gap."""
    kept = (np.abs(columns["x"]) < _FARTHEST_M) & (np.abs(columns["y"]) < _FARTHEST_M)  # false for NaN
    found = {name: column[kept] for name, column in columns.items()}
    return {name: np.where(np.abs(column) < _LARGEST, column, np.nan) for name, column in found.items()}


def _columns(kind: str, messages: list[bytes], names: Mapping[str, str]) -> dict[str, Column]:
    """Name -> path in the message. All at once where every message has the same layout, as ours have."""
    first = decode_checked(kind, messages[0])
    places = layout(kind, first)
    for path in names.values():
        if path not in places:
            raise WireError(unknown(f"{kind} has no number", repr(path), path, places))
    if len({len(message) for message in messages}) > 1:
        decoded = [decode_checked(kind, message) for message in messages]
        return {name: np.array([_value(message, path) for message in decoded]) for name, path in names.items()}
    table = np.frombuffer(b"".join(messages), np.uint8).reshape(len(messages), -1)
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
    try:
        return float(text)
    except ValueError:
        return float("nan")
