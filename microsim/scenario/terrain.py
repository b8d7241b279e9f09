"""Ground heights and surface classes of a scenario's map, as arrays.

Row j is y = (j + 0.5)·cell, column i is x = (i + 0.5)·cell; row 0 is the south edge. Generated heights come from
+ − × ÷ on single elements, so that they are the same bits on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from microsim.scenario.elevation_files import read_elevation
from microsim.scenario.files import located
from microsim.scenario.models import Scenario
from microsim.scenario.world import CirclePatch, ElevationFile, HillsElevation, Map, PolygonPatch, RectanglePatch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.float64]
    Grid: TypeAlias = npt.NDArray[np.uint8]
    Words: TypeAlias = npt.NDArray[np.uint64]

OCTAVES = 4  # each of half the wavelength and half the height of the one before
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

    nx, ny = grid.size_xy_cells
    x = (np.arange(nx, dtype=np.float64) + 0.5) * grid.cell_size_m
    y = (np.arange(ny, dtype=np.float64) + 0.5) * grid.cell_size_m
    heights = np.empty((ny, nx), np.float64)
    for start in range(0, ny, _ROWS_AT_ONCE):
        heights[start : start + _ROWS_AT_ONCE] = _octaves(x, y[start : start + _ROWS_AT_ONCE], seed, wavelength)
    low, high = heights.min(), heights.max()  # exact, whatever the order
    if low == high:
        return np.zeros((ny, nx), np.float64)
    heights -= low
    heights /= high - low
    heights *= 2.0 * amplitude
    heights -= amplitude
    return heights


def _octaves(x: Array, y: Array, seed: int, wavelength: float) -> Array:
    import numpy as np

    total = np.zeros((len(y), len(x)), np.float64)
    weight = 1.0
    for octave in range(OCTAVES):
        total += weight * _value_noise(x / wavelength, y / wavelength, seed, octave)
        weight *= 0.5
        wavelength *= 0.5
    return total


def _value_noise(u: Array, v: Array, seed: int, octave: int) -> Array:
    """Random values in [0, 1) at whole coordinates, joined smoothly (first and second derivative)."""
    import numpy as np

    i, j = np.floor(u), np.floor(v)
    s, t = _smooth(u - i)[None, :], _smooth(v - j)[:, None]
    columns, rows = i.astype(np.int64).astype(np.uint64)[None, :], j.astype(np.int64).astype(np.uint64)[:, None]
    one = np.uint64(1)
    stream = _mix(np.array((seed & (2**64 - 1)) ^ (octave * 0x9E3779B97F4A7C15 & (2**64 - 1)), np.uint64))
    south_west, south_east = _lattice(columns, rows, stream), _lattice(columns + one, rows, stream)
    north_west, north_east = _lattice(columns, rows + one, stream), _lattice(columns + one, rows + one, stream)
    south = south_west + (south_east - south_west) * s
    north = north_west + (north_east - north_west) * s
    return south + (north - south) * t


def _smooth(t: Array) -> Array:
    return t * t * t * (t * (t * 6.0 - 15.0) + 10.0)


def _lattice(columns: Words, rows: Words, stream: Words) -> Array:
    """The random value of each lattice point, in [0, 1)."""
    import numpy as np

    word: Words = _mix(_mix(stream ^ columns) ^ rows)
    values: Array = (word >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return values


def _mix(word: Any) -> Any:
    """SplitMix64 of every element."""
    import numpy as np

    with np.errstate(over="ignore"):
        word = word + np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


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
    from microsim.sim.exact import sincos  # the same bits everywhere

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
        inside ^= crosses & (x < x0 + (y - y0) * ((x1 - x0) / (y1 - y0)))
    return inside
