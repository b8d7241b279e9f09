"""The world: ground, occupied cells, surface classes, and the solids a camera sees. Immutable during a run.

What only LiDARs and meshes need is made elsewhere and kept by `World.derived`: most runs start without it.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Grid, clearance_of, ground_height

T = TypeVar("T")

STEP_M = 0.2  # what is lower is driven over
HEADROOM_M = 2.0  # what is higher is driven under
OCCUPIED_FROM = 65  # of a map's values, 0 to 100: what is at least that is a wall
TOUCHING = 1e-6  # [cells] by which an obstacle may reach into a cell that it only touches

GROUND, OBSTACLE, HAZARD, TARGET, WATER = range(5)
CLASS_NAMES = ("ground", "obstacle", "hazard", "target", "water")

# Of the instances in masks, each kind in the order of the scenario or the bundle; 0: none.
FIRST_ROBOT, FIRST_OBJECT, FIRST_OBSTACLE, END_OF_INSTANCES = 1, 10_001, 20_001, 65_536

# PRD 4.2.2.1; the sky and everything a ray never meets has the background colour, class 0.
PALETTE: Grid = np.array(
    [(0xC8, 0xC8, 0xC8), (0x3C, 0xB3, 0x71), (0xE7, 0x4C, 0x3C), (0x34, 0x98, 0xDB), (0x1A, 0xBC, 0x9C)], np.uint8
)


@dataclass(frozen=True)
class Shape:
    """A footprint in the ground plane, painted on the ground (height 0) or standing on it.

    An obstacle also occupies the cells under it; a feature is only seen.
    """

    kind: Literal["rectangle", "circle", "triangle", "billboard"]
    class_id: int
    center: tuple[float, float]  # [m] map frame; of a triangle: the centroid
    size: tuple[float, float] = (0.0, 0.0)  # [m] rectangle: along its x and y; billboard: width, height
    radius: float = 0.0  # [m] circle
    vertices: tuple[tuple[float, float], ...] = ()  # [m] triangle, counter-clockwise, map frame
    yaw: float | None = 0.0  # [rad] rectangle and billboard; None: the billboard turns to face the camera
    base_m: float = 0.0  # [m] height of the base above the ground under the centre
    height_m: float = 0.0  # [m] 0: painted on the ground


@dataclass(frozen=True)
class Mesh:
    """Triangles that stand in the world, of class obstacle."""

    vertices: Array  # (n, 3) [m] map frame
    triangles: npt.NDArray[np.int32]  # (m, 3) rows of vertices


@dataclass(frozen=True)
class World:
    cell_m: float
    elevation: Array  # (ny, nx) [m] ground at cell centres, row 0 in the south
    surface: Grid  # (ny, nx) class of the ground
    obstacles: tuple[Shape, ...]
    features: tuple[Shape, ...]
    west: float = 0.0  # [m] map frame: where the grid's first column begins
    south: float = 0.0  # [m] map frame: where the grid's first row begins
    mesh: Mesh | None = None
    map_values: npt.NDArray[np.int8] | None = None  # (ny, nx) of map_server: 0 to 100, -1 unknown; None: no such map
    occupied: Grid = field(init=False)  # (ny, nx) 0 free, 1 occupied
    mesh_cells: Grid | None = field(init=False, default=None)  # (ny, nx) those that the mesh occupies; None: no mesh
    clearance: Grid = field(init=False)  # (ny, nx) [cells] to the nearest occupied one or the edge: what rays walk on
    footing: Grid = field(init=False)  # as clearance, cells without ground being occupied: where robots can stand
    _derived: dict[Any, Any] = field(init=False, default_factory=dict, compare=False, repr=False)
    is_flat: bool = field(init=False)  # one height everywhere: the camera has a shorter way

    def __post_init__(self) -> None:
        occupied = np.zeros(self.elevation.shape, np.uint8)
        mark_occupied(occupied, self.cell_m, self.obstacles, self.west, self.south)
        mesh_cells = self._mesh_cells()
        if mesh_cells is not None:
            occupied |= mesh_cells
            object.__setattr__(self, "mesh_cells", mesh_cells)
        object.__setattr__(self, "occupied", occupied)
        object.__setattr__(self, "clearance", clearance_of(occupied))
        footing = self.clearance
        if np.isnan(self.elevation).any():
            footing = clearance_of(np.maximum(occupied, lacks_ground(self.elevation)))
        object.__setattr__(self, "footing", footing)
        occupied.flags.writeable = self.clearance.flags.writeable = footing.flags.writeable = False
        object.__setattr__(self, "is_flat", bool((self.elevation == self.elevation[0, 0]).all()))

    def _mesh_cells(self) -> Grid | None:
        """Those of a map are known: its mesh is their surface, which also touches the cells around them."""
        if self.map_values is not None:
            return (self.map_values >= OCCUPIED_FROM).astype(np.uint8)
        if self.mesh is None:
            return None
        cells = np.zeros(self.elevation.shape, np.uint8)
        grid = (self.elevation, self.cell_m, self.west, self.south)
        mark_mesh(cells, *grid, self.mesh.vertices, self.mesh.triangles)
        return cells

    def derived(self, make: Callable[["World"], T]) -> T:
        """What a function makes of this world; made once, since it is costly."""
        made = self._derived
        if make not in made:
            made[make] = make(self)
        found: T = made[make]
        return found

    @property
    def size_m(self) -> tuple[float, float]:
        rows, columns = self.elevation.shape
        return columns * self.cell_m, rows * self.cell_m

    def ground(self, x: float, y: float) -> float:
        return float(ground_height(self.elevation, self.cell_m, x - self.west, y - self.south))

    def is_inside(self, x: float, y: float) -> bool:
        rows, columns = self.elevation.shape  # by cells, as everyone who looks a cell up: columns * cell_m may round up
        u, v = self.in_cells(x, y)
        return u >= 0.0 and v >= 0.0 and u < columns and v < rows

    def is_occupied(self, x: float, y: float) -> bool:
        u, v = self.in_cells(x, y)
        return self.is_inside(x, y) and bool(self.occupied[math.floor(v), math.floor(u)])

    def has_footing(self, x: float, y: float) -> bool:
        """True when a robot can stand there: on the map, in a free cell, on ground."""
        u, v = self.in_cells(x, y)
        return self.is_inside(x, y) and bool(self.footing[math.floor(v), math.floor(u)])

    def in_cells(self, x: float, y: float) -> tuple[float, float]:
        """Column and row of a point of the map frame, with their fractions."""
        return (x - self.west) / self.cell_m, (y - self.south) / self.cell_m

    @property
    def extent_m(self) -> tuple[float, float, float, float]:
        """West, south, east and north end of the grid in the map frame."""
        width, height = self.size_m
        return self.west, self.south, self.west + width, self.south + height


@kernel
def standing(ground: float, lowest: float, base: float, height: float) -> tuple[float, float]:
    """Bottom and top of what is so high above the ground there [m]. What stands on it reaches under it.

    So nothing floats over a slope. `lowest`: of all ground, which counts where there is none.
    """
    start = (ground if ground == ground else lowest) + base
    return min(start, lowest) if base <= 0.0 else start, start + height


def lowest_and_highest(world: "World") -> tuple[float, float]:
    """Of the ground [m]; 0 where it is not known at all."""
    known = world.elevation[np.isfinite(world.elevation)]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)


def lacks_ground(elevation: Array) -> Grid:
    """1 for every cell in which some point has no height: its own or a neighbour's is unknown."""
    unknown = np.pad(np.isnan(elevation), 1, mode="edge")
    rows, columns = elevation.shape
    near = np.zeros((rows, columns), np.bool_)
    for j in range(3):
        for i in range(3):
            near |= unknown[j : j + rows, i : i + columns]
    return near.astype(np.uint8)


def mark_occupied(
    occupied: Grid, cell: float, obstacles: Iterable[Shape], west: float = 0.0, south: float = 0.0
) -> None:
    """Set every cell that an upright box or cylinder overlaps (touching is not overlapping, see TOUCHING)."""
    for shape in obstacles:
        is_disc, half_x, half_y = footprint(shape)
        mark_footprint(occupied, cell, shape.center[0] - west, shape.center[1] - south, half_x, half_y, is_disc)


def footprint(shape: Shape) -> tuple[bool, float, float]:
    """Whether an obstacle is round, and half its extent along x and y."""
    if shape.kind == "circle":
        return True, shape.radius, shape.radius
    return False, 0.5 * shape.size[0], 0.5 * shape.size[1]


@kernel
def inner_half(half: float, cell: float) -> float:
    """Half an extent without the millionth of a cell that counts as touching.

    Without it rounding would decide: 20.5 + 0.3 is more than 208 cells of 0.1, and 20.5 - 0.3 less than 202.
    """
    return max(half - TOUCHING * cell, 0.5 * half)


@kernel
def mark_footprint(
    occupied: Grid, cell: float, x: float, y: float, half_x: float, half_y: float, is_disc: bool
) -> None:
    """Set the cells that a box or a disc about (x, y) from the grid's corner overlaps by more than TOUCHING."""
    rows, columns = occupied.shape
    reach_x, reach_y = inner_half(half_x, cell), inner_half(half_y, cell)
    for j in range(max(math.floor((y - reach_y) / cell), 0), min(math.ceil((y + reach_y) / cell), rows)):
        for i in range(max(math.floor((x - reach_x) / cell), 0), min(math.ceil((x + reach_x) / cell), columns)):
            if overlaps_cell(i, j, cell, x, y, half_x, half_y, is_disc):
                occupied[j, i] = 1


@kernel
def overlaps_cell(i: int, j: int, cell: float, x: float, y: float, half_x: float, half_y: float, is_disc: bool) -> bool:
    """Whether `mark_footprint` sets cell (i, j)."""
    reach_x, reach_y = inner_half(half_x, cell), inner_half(half_y, cell)
    near_x, near_y = abs(min(max(x, i * cell), i * cell + cell) - x), abs(min(max(y, j * cell), j * cell + cell) - y)
    if is_disc:
        return near_x * near_x + near_y * near_y < reach_x * reach_x
    return near_x < reach_x and near_y < reach_y


@kernel
def mark_mesh(
    occupied: Grid,
    elevation: Array,
    cell: float,
    west: float,
    south: float,
    vertices: Array,
    triangles: npt.NDArray[np.int32],
) -> None:
    """Set the cells in which the mesh is between STEP_M and HEADROOM_M above the ground.

    Each triangle is looked at in points at most half a cell apart.
    """
    rows, columns = occupied.shape
    for n in range(triangles.shape[0]):
        a, b, c = vertices[triangles[n, 0]], vertices[triangles[n, 1]], vertices[triangles[n, 2]]
        longest = 0.0
        for k in range(3):
            longest = max(longest, abs(b[k] - a[k]), abs(c[k] - a[k]), abs(c[k] - b[k]))
        steps = int(min(2.0 * longest / cell, 1e5)) + 1
        for i in range(steps + 1):
            for j in range(steps + 1 - i):
                p, q = i / steps, j / steps
                x = a[0] + (b[0] - a[0]) * p + (c[0] - a[0]) * q - west
                y = a[1] + (b[1] - a[1]) * p + (c[1] - a[1]) * q - south
                u, v = x / cell, y / cell
                if not (0.0 <= u < columns and 0.0 <= v < rows) or occupied[int(v), int(u)]:
                    continue
                height = a[2] + (b[2] - a[2]) * p + (c[2] - a[2]) * q - ground_height(elevation, cell, x, y)
                if math.isnan(height) or STEP_M < height < HEADROOM_M:
                    occupied[int(v), int(u)] = 1


def is_in_mesh(
    column: int,
    row: int,
    elevation: npt.NDArray[np.floating[Any]],
    cell: float,
    west: float,
    south: float,
    vertices: Array,
    triangles: npt.NDArray[np.int32],
) -> bool:
    """Whether `mark_mesh` sets this cell: only triangles over it are looked at, only heights around it are read."""
    corners = vertices[:, :2][triangles]
    low = np.array([west + (column - 1) * cell, south + (row - 1) * cell])
    near = ((corners.max(axis=1) >= low) & (corners.min(axis=1) <= low + 3.0 * cell)).all(axis=1)
    occupied = np.zeros(elevation.shape, np.uint8)
    heights = np.zeros(elevation.shape)  # pages that are not written to take no memory
    rows = slice(max(row - 2, 0), row + 3)
    heights[rows] = elevation[rows]
    mark_mesh(occupied, heights, cell, west, south, vertices, triangles[near])
    return bool(occupied[row, column])
