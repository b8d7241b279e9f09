"""A scenario as the engine takes it: ground, surface, obstacles and features as a World, its radio and faults.

Row j of the ground is y = (j + 0.5)·cell, column i is x = (i + 0.5)·cell; row 0 is the south edge. Generated heights
come from + − × ÷ on single elements, so that they are the same bits on every machine.
"""

from __future__ import annotations

import math
import tokenize
import warnings
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from microsim.documents.values import MAX_LENGTH_M, show
from microsim.engine.exact import TWO_PI, cos, sin
from microsim.engine.faults import TimedFault
from microsim.engine.geometry import Array, Grid
from microsim.engine.radio import PathLoss, RadioSettings
from microsim.engine.timekeeper import Clock, exact_rate
from microsim.engine.world import GROUND, TARGET, Mesh, Shape, World
from microsim.errors import Problem, ScenarioError, UsageError, os_errors
from microsim.paths import located
from microsim.scenario.bundles import bundle_of
from microsim.scenario.map_images import MapCells, cells_of, walls_of
from microsim.scenario.models import Scenario
from microsim.scenario.world_models import (
    MAX_CELLS,
    Billboard,
    Box,
    Circle,
    CirclePatch,
    Cylinder,
    ElevationFile,
    Feature,
    HillsElevation,
    Map,
    PolygonPatch,
    Rectangle,
    RectanglePatch,
    Triangle,
)

if TYPE_CHECKING:
    from microsim.bundle import Bundle


MAX_HEADER_BYTES = 10_000
MAX_CSV_BYTES = 30 * MAX_CELLS  # more than any number of 17 digits takes
_ROWS_AT_ONCE = 256  # bounds the memory for large maps


def elevation(scenario: Scenario) -> Array:
    """Height of the ground [m] at the middle of every cell, shape (ny, nx)."""
    described = scenario.map.elevation
    nx, ny = scenario.map.size_xy_cells
    if isinstance(described, ElevationFile):
        return read_elevation(located(described.file), (ny, nx))
    if isinstance(described, HillsElevation):
        seed = described.seed if described.seed is not None else scenario.world_seed
        return _hills(scenario.map, seed, described.amplitude_m, described.wavelength_m)
    return np.full((ny, nx), described.height_m, np.float64)


def _hills(grid: Map, seed: int, amplitude: float, wavelength: float) -> Array:
    """Octaves of smooth value noise, stretched to span exactly -amplitude to +amplitude."""
    from microsim.engine.random_layout import octaves

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
    nx, ny = scenario.map.size_xy_cells
    cell = scenario.map.cell_size_m
    west, south = scenario.map.corner_xy_m
    x = (np.arange(nx, dtype=np.float64) + 0.5) * cell + west
    y = (np.arange(ny, dtype=np.float64) + 0.5) * cell + south
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
    inside = np.zeros((y.shape[0], x.shape[1]), np.bool_)
    for (x0, y0), (x1, y1) in zip(points, (*points[1:], points[0]), strict=True):
        if y0 == y1:
            continue
        crosses = (y0 > y) != (y1 > y)
        with np.errstate(over="ignore"):  # of an edge that is next to level: beyond all x, and no cell is at its y
            inside ^= crosses & (x < x0 + (y - y0) * ((x1 - x0) / (y1 - y0)))
    return inside


# ---- files: nothing in them is ever executed, sizes are bounded ------------------------------------------------------


def read_elevation(file: Path, shape: tuple[int, int]) -> Array:
    """Heights (ny, nx) in metres; raises ScenarioError when the file does not hold exactly that.

    Level ground fits a map of any size: one height everywhere, however many cells the file has.
    """
    readers = {".npy": _read_npy, ".csv": _read_csv}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise ScenarioError(Problem(f"{file}: expected a file that ends in .npy or .csv, found {show(file.suffix)}"))
    with os_errors(f"{file}: cannot be read", lambda text: ScenarioError(Problem(text))):
        if not file.is_file():
            raise _refuse(file, "expected a regular file")
        with np.errstate(all="ignore"), warnings.catch_warnings():  # what is broken is refused, not warned of
            warnings.simplefilter("ignore")
            return reader(file, shape)


def _refuse(file: Path, message: str) -> ScenarioError:
    return ScenarioError(Problem(f"{file}: {message}"))


_BROKEN_HEADER = (
    *(ValueError, EOFError, SyntaxError, TypeError, RecursionError, MemoryError, OverflowError),
    tokenize.TokenError,
)


def _read_npy(file: Path, shape: tuple[int, int]) -> Array:

    with file.open("rb") as stream:
        try:
            found, fortran, kind = _npy_header(stream)
        except _BROKEN_HEADER as error:
            raise _refuse(file, f"not a .npy file of numbers: {' '.join(str(error).split())[:200]}") from None
        if kind.kind not in "fiu":
            raise _refuse(file, f"expected numbers, found values of type {kind}")
        if len(found) != 2 or not 0 < found[0] * found[1] <= MAX_CELLS:
            raise _other_shape(file, found, shape)
        count = found[0] * found[1]
        raw = stream.read(count * kind.itemsize + 1)
    if len(raw) != count * kind.itemsize:
        more = "more" if len(raw) > count * kind.itemsize else "fewer"
        raise _refuse(file, f"expected {count * kind.itemsize} bytes of heights, as its header says, found {more}")
    order: Any = "F" if fortran else "C"
    heights = np.frombuffer(raw, kind).reshape(found, order=order)
    if found != shape:
        heights = _level(file, heights, shape)
    made = heights.astype(np.float64, order="C")
    _check_values(file, made)
    return made


def _npy_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    from numpy.lib import format as npy

    version = npy.read_magic(stream)
    if version == (1, 0):
        return npy.read_array_header_1_0(stream, max_header_size=MAX_HEADER_BYTES)
    if version == (2, 0):
        return npy.read_array_header_2_0(stream, max_header_size=MAX_HEADER_BYTES)
    raise ValueError(f"version {version} is not supported")


def _level(file: Path, heights: npt.NDArray[Any], shape: tuple[int, int]) -> npt.NDArray[Any]:
    """The one height of the file at every cell of the map."""
    if (heights != heights[0, 0]).any():
        raise _other_shape(file, heights.shape, shape)
    return np.full(shape, heights[0, 0])


def _other_shape(file: Path, found: tuple[int, ...], shape: tuple[int, int]) -> ScenarioError:
    ny, nx = shape
    hint = "; it is transposed: rows are y, columns are x" if found == (nx, ny) else ""
    expected = f"expected {ny} rows (y) of {nx} columns (x), as size_xy_cells [{nx}, {ny}] says"
    size = " by ".join(str(length) for length in found) or "a single number"
    level = "" if hint else "; level ground of any size is `elevation: {generate: flat}`"
    return _refuse(file, f"{expected}, found {size}{hint}{level}")


def _check_values(file: Path, heights: Array) -> None:

    bad = ~(np.abs(heights) <= MAX_LENGTH_M)
    if bad.any():
        row, column = (int(index[0]) for index in np.nonzero(bad))
        value = float(heights[row, column])
        raise _refuse(file, f"row {row}, column {column} (from 0): expected a height in metres, found {value}")


def _read_csv(file: Path, shape: tuple[int, int]) -> Array:

    if file.stat().st_size > MAX_CSV_BYTES:
        raise _refuse(file, f"expected at most {MAX_CSV_BYTES:,} bytes, found {file.stat().st_size:,}")
    rows: list[Any] = []
    with file.open(encoding="utf-8-sig") as stream:
        try:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    rows.append(_csv_row(file, number, line, len(rows[0]) if rows else None))
        except UnicodeDecodeError:
            raise _refuse(file, "expected text in UTF-8") from None
    if not rows:
        raise _other_shape(file, (0, 0), shape)
    heights = np.array(rows, np.float64)
    return heights if heights.shape == shape else _level(file, heights, shape)


def _csv_row(file: Path, line: int, text: str, width: int | None) -> Array:

    cells = text.split(",")
    if width is not None and len(cells) != width:
        message = f"expected {width} values as on the lines before, found {len(cells)}"
        raise ScenarioError(Problem(message, file=str(file), line=line))
    values = np.empty(len(cells), np.float64)
    for index, cell in enumerate(cells):
        try:
            values[index] = float(cell)
        except ValueError:
            values[index] = math.nan
        if not abs(values[index]) <= MAX_LENGTH_M:
            column = sum(len(before) + 1 for before in cells[:index]) + 1
            message = f"value {index + 1} of the line: expected a height in metres, found {show(cell.strip())}"
            raise ScenarioError(Problem(message, file=str(file), line=line, column=column))
    return values


INT64 = range(-(2**63), 2**63)
_SQRT_3 = 1.7320508075688772


_newest: list[Any] = []  # the last world: what it was made of, and it


def build_world(scenario: Scenario) -> World:
    """Worlds do not change: the last one, with all that was derived from it, serves scenarios with the same map."""
    heights, cells, key = None, None, (scenario.world, scenario.map, scenario.obstacles, scenario.features)
    if scenario.world is None:
        heights = elevation(scenario)  # of a file or a seed, so that they may differ from those of the same map
        heights.flags.writeable = False
        cells = None if scenario.map.image is None else cells_of(scenario.map.image, MAX_CELLS)
    kept, found = (*_newest, None, None)[:2]  # another thread may replace it
    values = None if cells is None else cells.values
    if kept != key or not (_are_same(heights, found.elevation) and _are_same(values, found.map_values)):
        found = _world_of(scenario, heights, cells)
        _newest[:] = [key, found]
    world: World = found
    return world


def _are_same(values: npt.NDArray[Any] | None, others: npt.NDArray[Any]) -> bool:
    return values is None or np.array_equal(values, others, equal_nan=values.dtype.kind == "f")


def _world_of(scenario: Scenario, heights: Array | None, cells: MapCells | None) -> World:
    if heights is None:
        assert scenario.world is not None
        return bundle_world(bundle_of(scenario.world), *_shapes(scenario))
    classes, shapes = surface(scenario), _shapes(scenario)
    classes.flags.writeable = False
    return World(
        cell_m=float(scenario.map.cell_size_m),
        elevation=heights,
        surface=classes,
        obstacles=shapes[0],
        features=shapes[1],
        west=scenario.map.corner_xy_m[0],
        south=scenario.map.corner_xy_m[1],
        mesh=None if cells is None else walls_of(cells, float(heights[0, 0]), scenario.map.wall_height_m),
        map_values=None if cells is None else cells.values,
    )


def _shapes(scenario: Scenario) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
    obstacles = tuple(obstacle_shape(obstacle) for obstacle in scenario.obstacles)
    return obstacles, tuple(feature_shape(feature) for feature in scenario.features)


def bundle_world(bundle: Bundle, obstacles: tuple[Shape, ...] = (), features: tuple[Shape, ...] = ()) -> World:
    """Ground inside the drivable area is of class target, elsewhere plain: cameras and LiDARs can tell them apart."""
    grid = bundle.heightmap
    heights = grid.values.astype(np.float64)
    rows, columns = heights.shape
    inside = bundle.drivable.cells((rows, columns), grid.resolution_m, grid.west, grid.south)
    classes = np.where(inside, np.uint8(TARGET), np.uint8(GROUND))
    heights.flags.writeable = classes.flags.writeable = False  # as those of other maps: kernels are compiled once
    return World(
        cell_m=float(grid.resolution_m),
        elevation=heights,
        surface=classes,
        obstacles=obstacles,
        features=features,
        west=grid.west,
        south=grid.south,
        mesh=None if bundle.mesh is None else Mesh(bundle.mesh.vertices, bundle.mesh.triangles),
    )


def obstacle_shape(obstacle: Box | Cylinder) -> Shape:
    x, y, base = obstacle.center
    if isinstance(obstacle, Box):
        width, depth, height = obstacle.size
        return Shape("rectangle", obstacle.class_id, (x, y), size=(width, depth), base_m=base, height_m=height)
    return Shape("circle", obstacle.class_id, (x, y), radius=obstacle.radius, base_m=base, height_m=obstacle.height)


def feature_shape(feature: Feature) -> Shape:
    if isinstance(feature, Circle):
        return Shape("circle", feature.class_id, feature.center, radius=feature.radius, height_m=feature.height)
    if isinstance(feature, Rectangle):
        return Shape(
            "rectangle", feature.class_id, feature.center, size=feature.size, yaw=feature.yaw, height_m=feature.height
        )
    if isinstance(feature, Billboard):
        return Shape(
            "billboard",
            feature.class_id,
            feature.center,
            size=feature.size,
            yaw=feature.yaw,
            base_m=feature.base_z,
            height_m=feature.size[1],
        )
    corners = _corners(feature)
    center = (
        (corners[0][0] + corners[1][0] + corners[2][0]) / 3.0,
        (corners[0][1] + corners[1][1] + corners[2][1]) / 3.0,
    )
    return Shape("triangle", feature.class_id, center, vertices=corners, height_m=feature.height)


def _corners(triangle: Triangle) -> tuple[tuple[float, float], ...]:
    """Counter-clockwise."""
    if triangle.vertices is not None:
        a, b, c = triangle.vertices
        turns_left = (b[0] - a[0]) * (c[1] - a[1]) > (c[0] - a[0]) * (b[1] - a[1])
        return (a, b, c) if turns_left else (a, c, b)
    assert triangle.center is not None  # the model refuses anything else
    assert triangle.side is not None
    (x, y), radius = triangle.center, triangle.side / _SQRT_3
    angles = [triangle.yaw + corner * (TWO_PI / 3.0) for corner in range(3)]
    return tuple((x + radius * cos(angle), y + radius * sin(angle)) for angle in angles)


def radio_settings(scenario: Scenario) -> RadioSettings:
    written = scenario.radio
    values = {field.name: getattr(written, field.name) for field in fields(RadioSettings) if field.name != "rssi"}
    rssi = None if written.rssi is None else PathLoss(**written.rssi.model_dump())
    return RadioSettings(**values, rssi=rssi)


def checked_packet(scenario: Scenario, sender: str, payload: Any) -> bytes:
    limit = scenario.radio.max_payload_bytes
    if not scenario.radio.enabled:
        raise UsageError("this scenario has no radio: set radio.enabled to true")
    if len(scenario.robots) < 2:
        raise UsageError(f"{sender} is the only robot: there is no receiver")
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise UsageError(f"a radio payload must be bytes; found {type(payload).__name__}")
    packet = bytes(payload)
    if len(packet) > limit:
        raise UsageError(f"a radio payload may have {limit} bytes at most, this one has {len(packet)}")
    return packet


def faults_in_ticks(scenario: Scenario, clock: Clock) -> tuple[TimedFault, ...]:
    ticks = clock.ticks_in
    return tuple(
        TimedFault(each.target, each.kind, ticks(exact_rate(each.from_s)), ticks(exact_rate(each.to_s)), each.offset_m)
        for each in scenario.faults
    )


def checked_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or int(seed) not in INT64:
        raise UsageError(f"a seed must be a 64-bit integer; found {seed!r}")
    return int(seed)


def checked_number(name: str, value: Any) -> float:
    """As a float; what is too large for one is infinite, which is then ignored and counted."""
    if type(value) is float:  # first, since pilots command at every tick
        return value
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        raise UsageError(f"{name} must be a number; found {value!r}")
    try:
        return float(value)
    except OverflowError:
        return math.inf
