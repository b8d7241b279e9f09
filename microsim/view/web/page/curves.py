"""What the plots show, of the page and of the file: one point for each step of the way."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from microsim.messages import decode
from microsim.view.web.interface import LinkFrame, Step

STEP_S = 0.1  # simulated, between two points
KINDS = ("height", "speed", "range", "latency", "lost", "rssi")
_MOST_LINKS = 12  # with more of them there is one line for each sender
_MOST_NUMBERS = 120_000  # in a file: half a megabyte


def finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 3)


def point(step: Step) -> dict[str, Any]:
    """One moment: kind -> name of the line -> value; None where there is nothing to draw."""
    return {
        "t": round(step.time_ns / 1e9, 3),
        "height": {name: finite(each.height) for name, each in step.robots.items()},
        "speed": {name: finite(each.speed) for name, each in step.robots.items()},
        "range": {name: finite(float(decode(each.type, each.cdr).range)) for name, each in step.ranges.items()},
        **_radio(step.links),
    }


def _radio(links: Sequence[LinkFrame]) -> dict[str, Any]:
    groups: dict[str, list[LinkFrame]] = {}
    for link in links:
        if link.sent:
            to = link.receiver if len(links) <= _MOST_LINKS else "all"
            groups.setdefault(f"{link.sender} → {to}", []).append(link)
    heard = {name: [each for each in group if each.delivered] for name, group in groups.items()}
    strengths = {name: [each.rssi_dbm for each in group if each.rssi_dbm is not None] for name, group in groups.items()}
    return {
        "latency": {name: _mean([each.last_latency_ms for each in group]) for name, group in heard.items() if group},
        "lost": {name: sum(each.lost for each in group) for name, group in groups.items()},
        "rssi": {name: _mean(each) for name, each in strengths.items() if each},
    }


def _mean(values: Sequence[float]) -> float:
    return round(math.fsum(values) / len(values), 1)


def columns(points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The same by columns, which is smaller: kind -> name -> values. Long runs have fewer points."""
    names = {kind: sorted({name for each in points for name in each[kind]}) for kind in KINDS}
    lines = 1 + sum(map(len, names.values()))
    every = max(1, math.ceil(len(points) * lines / _MOST_NUMBERS))
    kept = points[::every]
    return {
        "t": [each["t"] for each in kept],
        **{
            kind: {name: [_short(each[kind].get(name)) for each in kept] for name in names[kind]}
            for kind in KINDS
            if names[kind]
        },
    }


def _short(value: float | None) -> float | None:
    """Three digits are more than a plot can show."""
    if value is None:
        return None
    rounded = round(value, 2)
    return int(rounded) if rounded == int(rounded) else rounded


def as_script(value: Any) -> str:
    """JSON that may stand inside a script of a page."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
