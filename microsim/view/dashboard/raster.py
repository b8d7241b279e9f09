"""Pictures made of characters: half blocks (two square pixels a character), bars, sparklines, arrows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

Image: TypeAlias = npt.NDArray[np.uint8]  # (height, width, 3)
Colour: TypeAlias = tuple[int, int, int]

ARROWS = "→↗↑↖←↙↓↘"
SPARKS = "▁▂▃▄▅▆▇█"


class Mark(NamedTuple):
    """A character drawn over a picture, on a tile of its own."""

    character: str
    colour: Colour  # of the tile


class Pixels:
    """An image of even height as a renderable; marks are keyed by (row of characters, column)."""

    def __init__(self, image: Image, marks: Mapping[tuple[int, int], Mark] | None = None) -> None:
        self.rows, self.columns = image.shape[0] // 2, image.shape[1]
        marked = {row for row, _ in marks or ()}
        self.segments: list[Segment] = []
        for row in range(self.rows):
            upper, lower = image[2 * row].tobytes(), image[2 * row + 1].tobytes()
            if marks and row in marked:
                own = {column: mark for (at, column), mark in marks.items() if at == row}
                self.segments += _segments(upper, lower, own)
            else:
                self.segments += _plain_segments(upper, lower)
            self.segments.append(Segment.line())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.segments

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self.columns, self.columns)


@lru_cache(maxsize=512)
def _plain_segments(upper: bytes, lower: bytes) -> list[Segment]:
    """Most rows of a map are as they were in the last frame."""
    return _segments(upper, lower, {})


def _segments(upper: bytes, lower: bytes, marks: Mapping[int, Mark]) -> list[Segment]:
    """One row of characters; neighbours of one look share a segment."""
    cells = zip(_colours(upper), _colours(lower), strict=True)
    looks = [_marked(marks[column]) if column in marks else _block(*cell) for column, cell in enumerate(cells)]
    return [Segment(character * len(list(run)), style) for (character, style), run in groupby(looks)]


def _colours(line: bytes) -> list[Colour]:
    return list(zip(line[0::3], line[1::3], line[2::3], strict=True))


@lru_cache(maxsize=8192)
def _block(upper: Colour, lower: Colour) -> tuple[str, Style]:
    if upper == lower:
        return " ", Style(bgcolor=Color.from_rgb(*upper))
    return "▀", Style(color=Color.from_rgb(*upper), bgcolor=Color.from_rgb(*lower))


def _marked(mark: Mark) -> tuple[str, Style]:
    return mark.character, Style(color=Color.from_rgb(0, 0, 0), bgcolor=Color.from_rgb(*mark.colour), bold=True)


def shrunk(image: Image, width: int, height: int) -> Image:
    """The image at another size, each pixel the mean of what it covers."""
    rows, columns = np.linspace(0, image.shape[0], height + 1), np.linspace(0, image.shape[1], width + 1)
    narrow = _means(image.astype(np.float64).swapaxes(0, 1), columns).swapaxes(0, 1)
    return np.asarray(np.rint(_means(narrow, rows)), np.uint8)


def _means(values: npt.NDArray[np.float64], edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Means over the first axis between edges, from its running sum."""
    total = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])
    whole = np.minimum(edges.astype(np.intp), values.shape[0] - 1)
    part = (edges - whole)[(...,) + (None,) * (values.ndim - 1)]
    at_edges = total[whole] + part * values[whole]
    widths = np.diff(edges)[(...,) + (None,) * (values.ndim - 1)]
    return np.asarray(np.diff(at_edges, axis=0) / widths)


def arrow(yaw: float) -> str:
    """Points where a robot of that heading faces, on a map with north up."""
    return ARROWS[round(yaw / (math.pi / 4.0)) % 8] if math.isfinite(yaw) else "•"


def bar(part: float, width: int) -> tuple[str, str]:
    """Its filled and its empty length."""
    filled = round(min(max(part, 0.0), 1.0) * width)
    return "━" * filled, "─" * (width - filled)


def spark(values: Sequence[float | None], width: int, top: float) -> str:
    """The last values as a sparkline from 0 to `top`; None, a loss, as a cross."""
    shown = values[-width:] if width > 0 else ()
    return "".join("×" if value is None else SPARKS[min(int(8.0 * value / top), 7)] for value in shown)
