"""The progress of a training as a file: JSON, a page without outside parts, or a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from microsim.plotting import COLOURS, INK, PALE, STYLE, matplotlib, save

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH, _HEIGHT, _EDGE = 640, 240, 44  # of the chart on the page [px]


@dataclass(frozen=True)
class Progress:
    """Of a training, after one update."""

    update: int
    steps: int  # of all worlds so far
    seconds: float  # since the first step
    reward: float  # mean of the episodes that ended in this rollout; NaN: none did
    success: float  # share of them
    collision: float
    difficulty: float
    checked: float | None = None  # share of unseen worlds in which the policy without exploration succeeds


def sparkline(curve: Sequence[Progress]) -> str:
    """Share of successes over time in one line of text."""
    width = 40
    picked = [curve[index * len(curve) // width] for index in range(width)] if len(curve) > width else list(curve)
    return "".join(_BARS[min(int(each.success * len(_BARS)), len(_BARS) - 1)] for each in picked)


def write_json(curve: Sequence[Progress], about: Mapping[str, Any], file: Path) -> None:
    rows = [{key: None if value != value else value for key, value in asdict(each).items()} for each in curve]
    file.write_text(json.dumps({**about, "curve": rows}, indent=1) + "\n", encoding="utf-8")


def write_page(curve: Sequence[Progress], title: str, text: str, file: Path) -> None:
    """HTML with the chart as SVG inside."""
    last_s = max(curve[-1].seconds, 1e-9)
    rewards = [each.reward for each in curve if not math.isnan(each.reward)] or [0.0]
    low, high = min(rewards), max(*rewards, min(rewards) + 1e-9)

    def line(points: Sequence[tuple[float, float]], colour: str) -> str:
        places = " ".join(
            f"{_EDGE + x * (_WIDTH - 2 * _EDGE):.1f},{_HEIGHT - _EDGE - y * (_HEIGHT - 2 * _EDGE):.1f}"
            for x, y in points
        )
        return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>'

    successes = line([(each.seconds / last_s, each.success) for each in curve], COLOURS[0])
    rewarded = [
        (each.seconds / last_s, (each.reward - low) / (high - low)) for each in curve if not math.isnan(each.reward)
    ]
    axis = line([(0, 1), (0, 0), (1, 0)], INK)
    labels = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'
        for x, y, anchor, words in (
            (_EDGE - 6, _HEIGHT - _EDGE + 4, "end", "0 %"),
            (_EDGE - 6, _EDGE + 4, "end", "100 %"),
            (_WIDTH - _EDGE, _HEIGHT - _EDGE + 18, "end", f"{last_s:.0f} s"),
            (_EDGE, _EDGE - 14, "start", f"episodes that succeed (dark), mean reward {low:.3g} to {high:.3g} (pale)"),
        )
    )
    chart = (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="12">{axis}{line(rewarded, PALE)}{successes}{labels}</svg>'
    )
    style = "body{font:15px sans-serif;max-width:720px;margin:2em auto}"
    head = f'<!doctype html><meta charset="utf-8"><title>{escape(title)}</title><style>{style}</style>'
    file.write_text(f"{head}<h1>{escape(title)}</h1><p>{escape(text)}</p>{chart}\n", encoding="utf-8")


def draw(curves: Mapping[str, Sequence[Progress]], title: str, file: Path) -> None:
    """A picture of one training or of several, each with its name: the share of successes over time."""
    mpl, figures = matplotlib("matplotlib"), matplotlib("matplotlib.figure")
    with mpl.rc_context(STYLE):
        figure = figures.Figure(figsize=(7, 3.2), layout="constrained")
        axes = figure.add_subplot()
        for number, (name, curve) in enumerate(curves.items()):
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(
                [each.seconds for each in curve], [100 * each.success for each in curve], color=colour, label=name
            )
            checks = [(each.seconds, 100 * each.checked) for each in curve if each.checked is not None]
            if checks:
                axes.plot(*zip(*checks, strict=True), "o", color=colour, markeredgecolor="white")
        axes.set(xlabel="seconds of training", ylabel="episodes that succeed [%]", ylim=(-2, 102), title=title)
        axes.legend(loc="lower right")
        save(figure, file)
