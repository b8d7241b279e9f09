"""The shipped generator `random_maze`: a perfect maze, in which exactly one way joins any two places.

obstacles:
  - plugin: random_maze
    region: [20, 20, 60, 50]
    corridor_m: 3
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator
from typing_extensions import Self

from microsim.documents.values import ClassId, Length, Metres, Model, Seed, exactly, show
from microsim.generators import Dice, Generator

MAX_CHAMBERS = 250_000

Chamber = tuple[int, int]  # column, row


class MazeOptions(Model):
    """A maze of square chambers and straight walls."""

    region: Annotated[tuple[Metres, Metres, Metres, Metres], exactly(4, "[x0, y0, x1, y1]")] = Field(
        description="Where the maze may be: south-west and north-east corner [x0, y0, x1, y1] [m]."
    )
    corridor_m: Annotated[Length, Field(ge=0.01)] = Field(3.0, description="Free width of the corridors [m].")
    wall_m: Annotated[Length, Field(ge=0.01)] = Field(1.0, description="Thickness of the walls [m].")
    wall_height_m: Length = Field(2.0, description="Height of the walls [m].")
    entrances: bool = Field(
        True, strict=True, description="Open the wall at the south-west and the north-east chamber."
    )
    class_id: ClassId = Field(1, alias="class", description="Class of the walls: 0..4 or its name.")
    seed: Seed | None = Field(None, description="Seed of the maze; null: that of the run.")

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        columns, rows = self.chambers
        if columns < 1 or rows < 1:
            least = self.corridor_m + 2 * self.wall_m
            raise ValueError(f"region {show(self.region)} has no room for a chamber, which needs {least:g} m each way")
        if columns * rows > MAX_CHAMBERS:
            raise ValueError(f"expected at most {MAX_CHAMBERS:,} chambers, found {columns}×{rows}; widen corridor_m")
        return self

    @property
    def pitch(self) -> float:
        """From one wall's middle to the next [m]."""
        return self.corridor_m + self.wall_m

    @property
    def chambers(self) -> tuple[int, int]:
        """Columns and rows that fit into the region."""
        x0, y0, x1, y1 = self.region
        return int((x1 - x0 - self.wall_m) / self.pitch + 1e-9), int((y1 - y0 - self.wall_m) / self.pitch + 1e-9)


def generate(options: MazeOptions, map: Any, random: Dice) -> list[dict[str, Any]]:
    """A random maze of boxes, in which one path connects any two places."""
    passages = carve(*options.chambers, random)
    return [_box(options, *run) for run in _walls(options, passages)]


def carve(columns: int, rows: int, random: Dice) -> set[tuple[Chamber, Chamber]]:
    """Passages (lower chamber first) of a perfect maze, by depth-first search with backtracking."""
    seen: set[Chamber] = {(0, 0)}
    trail: list[Chamber] = [(0, 0)]
    passages: set[tuple[Chamber, Chamber]] = set()
    while trail:
        column, row = here = trail[-1]
        around = ((column + 1, row), (column, row + 1), (column - 1, row), (column, row - 1))
        free = [(c, r) for c, r in around if 0 <= c < columns and 0 <= r < rows and (c, r) not in seen]
        if not free:
            trail.pop()
            continue
        there = free[random.below(len(free))]
        passages.add((min(here, there), max(here, there)))
        seen.add(there)
        trail.append(there)
    return passages


def _walls(options: MazeOptions, passages: set[tuple[Chamber, Chamber]]) -> list[tuple[int, int, int, int]]:
    """Straight runs of wall between the corners of chambers: column and row of either end, as long as they go."""
    columns, rows = options.chambers
    runs: list[tuple[int, int, int, int]] = []
    for row in range(rows + 1):
        closed = [not _open(options, (c, row - 1), (c, row), passages) for c in range(columns)]
        runs += [(start, row, end, row) for start, end in _stretches(closed)]
    for column in range(columns + 1):
        closed = [not _open(options, (column - 1, r), (column, r), passages) for r in range(rows)]
        runs += [(column, start, column, end) for start, end in _stretches(closed)]
    return runs


def _open(options: MazeOptions, a: Chamber, b: Chamber, passages: set[tuple[Chamber, Chamber]]) -> bool:
    columns, rows = options.chambers
    doors = {((0, -1), (0, 0)), ((columns - 1, rows - 1), (columns - 1, rows))} if options.entrances else set()
    return (a, b) in passages or (a, b) in doors


def _stretches(closed: list[bool]) -> list[tuple[int, int]]:
    """[start, end) of each run of true values."""
    found: list[tuple[int, int]] = []
    for index, value in enumerate(closed):
        if value and found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        elif value:
            found.append((index, index + 1))
    return found


def _box(options: MazeOptions, column0: int, row0: int, column1: int, row1: int) -> dict[str, Any]:
    x0 = options.region[0] + column0 * options.pitch
    y0 = options.region[1] + row0 * options.pitch
    x1 = options.region[0] + column1 * options.pitch + options.wall_m
    y1 = options.region[1] + row1 * options.pitch + options.wall_m
    return {
        "type": "box",
        "center": [(x0 + x1) / 2, (y0 + y1) / 2, 0.0],
        "size": [x1 - x0, y1 - y0, options.wall_height_m],
        "class": options.class_id,
    }


GENERATOR = Generator("random_maze", generate, MazeOptions)
