"""Ground heights and surface classes of a scenario's map, as arrays.

Row j is y = (j + 0.5)·cell, column i is x = (i + 0.5)·cell; row 0 is the south edge. Generated heights come from
+ − × ÷ on single elements, so that they are the same bits on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from microsim.scenario.elevation_files import read_elevation
from microsim.scenario.files import located
from microsim.scenario.models import Scenario
from microsim.scenario.world import CirclePatch, ElevationFile, HillsElevation, Map, PolygonPatch, RectanglePatch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.float64]
    Grid: TypeAlias = npt.NDArray[np.uint8]

_ROWS_AT_ONCE = 256  # bounds the memory for large maps


def elevation(scenario: Scenario) -> Array:
    """Height of the ground [m] at the middle of every cell, shape (ny, nx)."""
    import numpy as np

    described = scenario.map.elevation
    nx, ny = scenario.map.size_xy_cells
    if isinstance(described, ElevationFile):
        return read_elevation(located(described.file), (ny, nx))
    if isinstance(described, HillsElevation):
        seed = described.seed if described.seed is not None else scenario.seed
        return _hills(scenario.map, seed, described.amplitude_m, described.wavelength_m)
    return np.full((ny, nx), described.height_m, np.float64)


def _hills(grid: Map, seed: int, amplitude: float, wavelength: float) -> Array:
    """Octaves of smooth value noise, stretched to span exactly -amplitude to +amplitude."""
    import numpy as np

    from microsim.engine.value_noise import octaves

    nx, ny = grid.size_xy_cells
    x = (np.arange(nx, dtype=np.float64) + 0.5) * grid.cell_size_m
    y = (np.arange(ny, dtype=np.float64) + 0.5) * grid.cell_size_m
    heights = np.empty((ny, nx), np.float64)
    for start in range(0, ny, _ROWS_AT_ONCE):
        heights[start : start + _ROWS_AT_ONCE] = octaves(x, y[start : start + _ROWS_AT_ONCE], seed, wavelength)
    low, high = heights.min(), heights.max()  # exact, whatever the order
    if low == high:
        return np.zeros((ny, nx), np.float64)
    heights -= low
    heights /= high - low
    heights *= 2.0 * amplitude
    heights -= amplitude
    return heights


def surface(scenario: Scenario) -> Grid:
    """Class of every cell, shape (ny, nx): that of the last patch which contains the middle of the cell."""
    import numpy as np

    nx, ny = scenario.map.size_xy_cells
    cell = scenario.map.cell_size_m
    x = (np.arange(nx, dtype=np.float64) + 0.5) * cell
    y = (np.arange(ny, dtype=np.float64) + 0.5) * cell
    classes = np.full((ny, nx), scenario.map.surface_types.default, np.uint8)
    for patch in scenario.map.surface_types.patches:
        for start in range(0, ny, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            classes[rows][_inside(patch, x[None, :], y[rows, None])] = patch.class_id
    return classes


def _inside(patch: RectanglePatch | CirclePatch | PolygonPatch, x: Array, y: Array) -> npt.NDArray[np.bool_]:
    if isinstance(patch, CirclePatch):
        dx, dy = x - patch.center[0], y - patch.center[1]
        return dx * dx + dy * dy <= patch.radius * patch.radius
    if isinstance(patch, RectanglePatch):
        return _inside_rectangle(patch, x - patch.center[0], y - patch.center[1])
    return _inside_polygon(patch.points, x, y)


def _inside_rectangle(patch: RectanglePatch, dx: Array, dy: Array) -> npt.NDArray[np.bool_]:
    from microsim.engine.exact import sincos  # the same bits everywhere

    sin, cos = sincos(patch.yaw)
    along, across = dx * cos + dy * sin, dy * cos - dx * sin
    return (abs(along) <= 0.5 * patch.size[0]) & (abs(across) <= 0.5 * patch.size[1])


def _inside_polygon(points: tuple[tuple[float, float], ...], x: Array, y: Array) -> npt.NDArray[np.bool_]:
    """Even-odd rule: a ray to the east crosses the outline an odd number of times."""
    import numpy as np

    inside = np.zeros((y.shape[0], x.shape[1]), np.bool_)
    for (x0, y0), (x1, y1) in zip(points, (*points[1:], points[0]), strict=True):
        if y0 == y1:
            continue
        crosses = (y0 > y) != (y1 > y)
        with np.errstate(over="ignore"):  # of an edge that is next to level: beyond all x, and no cell is at its y
            inside ^= crosses & (x < x0 + (y - y0) * ((x1 - x0) / (y1 - y0)))
    return inside
