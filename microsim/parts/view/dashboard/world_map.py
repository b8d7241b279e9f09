"""The map of the world in half-block characters: relief, water, hazards, targets, obstacles, robots and their trails.

Every character shows two square pixels, one above the other; camera images are drawn in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

from microsim.engine.geometry import Grid
from microsim.engine.world import GROUND, OBSTACLE, PALETTE, Shape, World
from microsim.parts.view.run_state import Picture, RobotState

Colour: TypeAlias = tuple[int, int, int]

ARROWS = "→↗↑↖←↙↓↘"
GROUND_COLOUR, GRID_COLOUR, OUTSIDE_COLOUR = (40, 46, 58), (46, 53, 66), (24, 27, 34)
ROBOT_COLOURS = ((240, 150, 50), (205, 120, 230), (215, 175, 45), (235, 110, 160), (130, 150, 250), (170, 190, 60))
Trail: TypeAlias = Sequence[tuple[float, float]]
Box: TypeAlias = tuple[float, float, float, float]  # west, south, east, north [m]

_SMALLEST_VIEW_M = 24.0
_GRIDS_M = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


# ---- pictures of characters ------------------------------------------------------------------------------------------


class Mark(NamedTuple):
    """A character drawn over a picture, on a tile of its own."""

    character: str
    colour: Colour  # of the tile

    @property
    def look(self) -> tuple[str, Style]:
        return self.character, Style(color=Color.from_rgb(0, 0, 0), bgcolor=Color.from_rgb(*self.colour), bold=True)


class Pixels:
    """An image of even height as a renderable; marks are keyed by (row of characters, column)."""

    def __init__(self, image: Picture, marks: Mapping[tuple[int, int], Mark] | None = None) -> None:
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
        if console.color_system != "256":
            yield from self.segments
            return
        for segment in self.segments:
            yield segment if segment.style is None else Segment(segment.text, _in_256(segment.style))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self.columns, self.columns)


# ---- 256 colours: rich picks the nearest by rounding, which turns the dark ground into navy blue ---------------------


@lru_cache(maxsize=8192)
def _in_256(style: Style) -> Style:
    front, back = (None if colour is None else nearest_256(colour) for colour in (style.color, style.bgcolor))
    return Style(color=front, bgcolor=back, bold=style.bold)


@lru_cache(maxsize=8192)
def nearest_256(colour: Color) -> Color:
    """The colour of the xterm palette that looks most alike."""
    found = np.array([colour.get_truecolor()], np.float64)
    numbers, palette = _xterm_palette()
    distances = ((_oklab(found) - palette) ** 2).sum(axis=1)
    return Color.from_ansi(int(numbers[int(distances.argmin())]))


@cache
def _xterm_palette() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Numbers of the 240 colours that are the same in every terminal, and the colours in OKLab."""
    steps = (0, 95, 135, 175, 215, 255)
    cube = [(red, green, blue) for red in steps for green in steps for blue in steps]
    greys = [(8 + 10 * index,) * 3 for index in range(24)]
    return np.arange(16, 256), _oklab(np.array([*cube, *greys], np.float64))


def _oklab(rgb: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """sRGB (n, 3) from 0 to 255 in OKLab, where equal distances look equally far apart (Ottosson 2020)."""
    part = rgb / 255.0
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    cones = np.cbrt(linear @ np.array(_TO_CONES).T)
    return np.asarray(cones @ np.array(_TO_LAB).T)


_TO_CONES = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_TO_LAB = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)


@lru_cache(maxsize=512)
def _plain_segments(upper: bytes, lower: bytes) -> list[Segment]:
    """Most rows of a map are as they were in the last frame."""
    return _segments(upper, lower, {})


def _segments(upper: bytes, lower: bytes, marks: Mapping[int, Mark]) -> list[Segment]:
    """One row of characters; neighbours of one look share a segment."""
    cells = zip(_colours(upper), _colours(lower), strict=True)
    looks = [marks[column].look if column in marks else _block(*cell) for column, cell in enumerate(cells)]
    return [Segment(character * len(list(run)), style) for (character, style), run in groupby(looks)]


def _colours(line: bytes) -> list[Colour]:
    return list(zip(line[0::3], line[1::3], line[2::3], strict=True))


@lru_cache(maxsize=8192)
def _block(upper: Colour, lower: Colour) -> tuple[str, Style]:
    if upper == lower:
        return " ", Style(bgcolor=Color.from_rgb(*upper))
    return "▀", Style(color=Color.from_rgb(*upper), bgcolor=Color.from_rgb(*lower))


def shrunk(image: Picture, width: int, height: int) -> Picture:
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


# ---- the map ---------------------------------------------------------------------------------------------------------


class MapView(NamedTuple):
    """A rectangle of the map frame, drawn with square pixels."""

    x: float  # of the western edge
    y: float  # of the northern edge
    pixel_m: float
    columns: int
    rows: int  # of pixels, two for each character

    def pixel(self, x: float, y: float) -> tuple[int, int]:
        return math.floor((self.y - y) / self.pixel_m), math.floor((x - self.x) / self.pixel_m)

    def centres(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """x of each column, y of each row."""
        columns, rows = np.arange(self.columns, dtype=np.float64), np.arange(self.rows, dtype=np.float64)
        return self.x + (columns + 0.5) * self.pixel_m, self.y - (rows + 0.5) * self.pixel_m

    @property
    def grid_m(self) -> float:
        """The distance between lines that leaves at least eight pixels between them."""
        return next((step for step in _GRIDS_M if step >= 8.0 * self.pixel_m), _GRIDS_M[-1])


def map_image(world: World, starts: Sequence[tuple[float, float]], columns: int, rows: int) -> tuple[Picture, MapView]:
    """The world from above, with all there is to see, and where it is."""
    view = _fitting(_padded(_interesting(world, starts), world.extent_m), world.extent_m, columns, rows)
    return _background(world, view), view


class WorldMap:
    """Draws a world at any size; the view grows when a robot leaves it and is otherwise still."""

    def __init__(self, world: World, starts: Sequence[tuple[float, float]]) -> None:
        self.world = world
        self._box = _padded(_interesting(world, starts), world.extent_m)
        self._view: MapView | None = None
        self._background: Picture | None = None

    def draw(self, columns: int, rows: int, robots: Mapping[str, RobotState], trails: Mapping[str, Trail]) -> Pixels:
        self._keep_in_view(robots)
        view = _fitting(self._box, self.world.extent_m, columns, 2 * rows)
        if view != self._view or self._background is None:
            self._view, self._background = view, _background(self.world, view)
        image = self._background.copy()
        marks = {}
        for index, (name, robot) in enumerate(robots.items()):
            (x, y, _), colour = robot.position, robot_colour(index)
            _draw_trail(image, view, [*trails.get(name, ()), (x, y)], colour)
            row, column = view.pixel(x, y)
            marks[row // 2, column] = Mark(arrow(robot.rpy[2]), colour)
        return Pixels(image, marks)

    @property
    def grid_m(self) -> float:
        return self._view.grid_m if self._view is not None else 0.0

    def _keep_in_view(self, robots: Mapping[str, RobotState]) -> None:
        west, south, east, north = self._box
        for x, y, _ in (robot.position for robot in robots.values()):
            if not (west <= x <= east and south <= y <= north) and math.isfinite(x + y):
                grown = (min(west, x), min(south, y), max(east, x), max(north, y))
                self._box = west, south, east, north = _padded(grown, self.world.extent_m)


def robot_colour(index: int) -> Colour:
    return ROBOT_COLOURS[index % len(ROBOT_COLOURS)]


def _interesting(world: World, starts: Sequence[tuple[float, float]]) -> Box:
    """West, south, east, north of all there is to see, within reason."""
    points = [*starts, *(corner for shape in (*world.obstacles, *world.features) for corner in _corners(shape))]
    rows, columns = np.nonzero(world.surface != GROUND)
    if len(rows):
        x, y, cell = world.west, world.south, world.cell_m
        points += [(x + columns.min() * cell, y + rows.min() * cell)]
        points += [(x + (columns.max() + 1) * cell, y + (rows.max() + 1) * cell)]
    if not points:
        return world.extent_m
    xs, ys = zip(*points, strict=True)
    return float(min(xs)), float(min(ys)), float(max(xs)), float(max(ys))


def _corners(shape: Shape) -> tuple[tuple[float, float], tuple[float, float]]:
    x, y = shape.center
    half_x, half_y = max(shape.radius, 0.5 * shape.size[0]), max(shape.radius, 0.5 * shape.size[1])
    return (x - half_x, y - half_y), (x + half_x, y + half_y)


def _padded(box: Box, extent: Box) -> Box:
    """With a margin, as far as the map reaches."""
    west, south, east, north = box
    margin = 0.08 * max(east - west, north - south, _SMALLEST_VIEW_M)
    low = max(west - margin, min(west, extent[0])), max(south - margin, min(south, extent[1]))
    return *low, min(east + margin, max(east, extent[2])), min(north + margin, max(north, extent[3]))


def _fitting(box: Box, extent: Box, columns: int, rows: int) -> MapView:
    """The box in the middle, moved where that shows more of the map and less of what is beyond."""
    west, south, east, north = box
    pixel = max((east - west) / columns, (north - south) / rows, _SMALLEST_VIEW_M / max(columns, rows))
    x = _moved(west, east, columns * pixel, extent[0], extent[2])
    y = _moved(south, north, rows * pixel, extent[1], extent[3])
    return MapView(x, y + rows * pixel, pixel, columns, rows)


def _moved(low: float, high: float, length: float, first: float, last: float) -> float:
    """Where a window of that length begins: low … high in its middle, but not beyond first … last without need."""
    start = 0.5 * (low + high - length)
    if length > last - first:
        return min(max(0.5 * (first + last - length), high - length), low)
    return min(max(start, min(first, low)), max(last, high) - length)


def _background(world: World, view: MapView) -> Picture:
    x, y = view.centres()
    column = np.floor((x - world.west) / world.cell_m).astype(np.intp)
    row = np.floor((y - world.south) / world.cell_m).astype(np.intp)
    rows, columns = world.surface.shape
    inside = ((row >= 0) & (row < rows))[:, None] & ((column >= 0) & (column < columns))
    cells = np.ix_(row.clip(0, rows - 1), column.clip(0, columns - 1))
    image = np.empty((view.rows, view.columns, 3), np.uint8)
    image[:] = GROUND_COLOUR
    _draw_grid(image, view)
    if view.pixel_m < world.cell_m:  # several pixels of a cell: slopes between them would be steps
        light = _light(world.elevation[::-1], world.cell_m)[::-1][cells]
    else:
        light = _light(world.elevation[cells], view.pixel_m)
    image[:] = np.clip(image + 14.0 * light[:, :, None], 0, 255).astype(np.uint8)
    painted = world.surface[cells] != GROUND
    image[painted] = PALETTE[world.surface[cells]][painted]
    if world.map_values is not None and world.mesh_cells is not None:
        image[(world.mesh_cells[cells] > 0) | _walls(world.mesh_cells, world, view)] = PALETTE[OBSTACLE]
    for shape in sorted((*world.features, *world.obstacles), key=lambda shape: shape.base_m + shape.height_m):
        colour = GROUND_COLOUR if shape.class_id == GROUND else PALETTE[shape.class_id]
        image[_covered(shape, x, y, view.pixel_m)] = colour
    image[~inside] = OUTSIDE_COLOUR
    return image


def _walls(walls: Grid, world: World, view: MapView) -> npt.NDArray[np.bool_]:
    """Pixels in which there is the middle of an occupied cell, so that thin walls are seen from afar."""
    row, column = np.nonzero(walls)
    i = np.floor((world.west + (column + 0.5) * world.cell_m - view.x) / view.pixel_m).astype(np.intp)
    j = np.floor((view.y - world.south - (row + 0.5) * world.cell_m) / view.pixel_m).astype(np.intp)
    shown = (i >= 0) & (j >= 0) & (i < view.columns) & (j < view.rows)
    found = np.zeros((view.rows, view.columns), np.bool_)
    found[j[shown], i[shown]] = True
    return found


def _draw_grid(image: Picture, view: MapView) -> None:
    x, y = view.centres()
    half = 0.5 * view.pixel_m
    image[:, np.floor((x - half) / view.grid_m) != np.floor((x + half) / view.grid_m)] = GRID_COLOUR
    image[np.floor((y - half) / view.grid_m) != np.floor((y + half) / view.grid_m), :] = GRID_COLOUR


def _light(height: npt.NDArray[np.float64], pixel_m: float) -> npt.NDArray[np.float64]:
    """-1 … 1, first row north: slopes that face north-west are lighter; few steps, so that neighbours look alike."""
    if min(height.shape) < 2:
        return np.zeros(height.shape)
    per_row, per_column = np.gradient(np.nan_to_num(height), pixel_m)
    return np.asarray(np.rint(np.clip(6.0 * (per_column + per_row), -1.0, 1.0) * 4.0) / 4.0)


def _covered(
    shape: Shape, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], pixel_m: float
) -> npt.NDArray[np.bool_]:
    """Pixels whose centre lies in the shape; at least the one at its own centre."""
    east, north = x[None, :] - shape.center[0], y[:, None] - shape.center[1]
    least = 0.51 * pixel_m
    if shape.kind == "circle":
        return np.asarray(east * east + north * north <= max(shape.radius, least) ** 2)
    if shape.kind == "triangle":
        return _in_triangle(shape, x, y) | (np.maximum(abs(east), abs(north)) < least)
    half = (0.5 * shape.size[0], 0.5 * shape.size[1])
    if shape.kind == "billboard":
        half = (0.0, 0.5 * shape.size[0])  # a plate seen from above
    cosine, sine = math.cos(shape.yaw or 0.0), math.sin(shape.yaw or 0.0)
    along, across = abs(cosine * east + sine * north), abs(cosine * north - sine * east)
    return np.asarray((along <= max(half[0], least)) & (across <= max(half[1], least)))


def _in_triangle(shape: Shape, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    inside = np.ones((len(y), len(x)), np.bool_)
    corners = shape.vertices
    for (ax, ay), (bx, by) in zip(corners, (*corners[1:], corners[0]), strict=True):
        inside &= (bx - ax) * (y[:, None] - ay) - (by - ay) * (x[None, :] - ax) >= 0.0
    return inside


def _draw_trail(image: Picture, view: MapView, points: Sequence[tuple[float, float]], colour: Colour) -> None:
    """Older parts fade into the ground."""
    if len(points) < 2:
        return
    track = np.array(points)
    steps = np.maximum(np.hypot(*np.diff(track, axis=0).T) / (0.7 * view.pixel_m), 1.0)
    at = np.concatenate([[0.0], np.cumsum(steps)])
    dense = np.arange(0.0, at[-1])
    column = np.floor((np.interp(dense, at, track[:, 0]) - view.x) / view.pixel_m).astype(np.intp)
    row = np.floor((view.y - np.interp(dense, at, track[:, 1])) / view.pixel_m).astype(np.intp)
    seen = (row >= 0) & (row < view.rows) & (column >= 0) & (column < view.columns)
    age = np.rint(5.0 * dense / max(at[-1], 1.0)) / 5.0  # in steps, for fewer looks
    part = (0.15 + 0.5 * age)[seen][:, None]
    ground = image[row[seen], column[seen]]
    image[row[seen], column[seen]] = np.rint(part * np.array(colour) + (1.0 - part) * ground).astype(np.uint8)
