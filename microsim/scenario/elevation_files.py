"""Ground heights from `.npy` and `.csv`. Nothing in them is ever executed; sizes are bounded."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from microsim.documents.values import MAX_LENGTH_M, show
from microsim.errors import Problem, ScenarioError
from microsim.scenario.world import MAX_CELLS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_HEADER_BYTES = 10_000
MAX_CSV_BYTES = 30 * MAX_CELLS  # more than any number of 17 digits takes


def read_elevation(file: Path, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Heights (ny, nx) in metres; raises ScenarioError when the file does not hold exactly that.

    Level ground fits a map of any size: one height everywhere, however many cells the file has.
    """
    readers = {".npy": _read_npy, ".csv": _read_csv}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise ScenarioError(Problem(f"{file}: expected a file that ends in .npy or .csv, found {show(file.suffix)}"))
    try:
        if not file.is_file():
            raise _refuse(file, "expected a regular file")
        return reader(file, shape)
    except OSError as error:
        raise ScenarioError(Problem(f"{file}: cannot be read: {error.strerror or error}")) from None


def _refuse(file: Path, message: str) -> ScenarioError:
    return ScenarioError(Problem(f"{file}: {message}"))


def _read_npy(file: Path, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    import numpy as np

    with file.open("rb") as stream:
        try:
            found, fortran, kind = _npy_header(stream)
        except (ValueError, EOFError, SyntaxError, TypeError, RecursionError, MemoryError, OverflowError) as error:
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
    import numpy as np

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


def _check_values(file: Path, heights: npt.NDArray[np.float64]) -> None:
    import numpy as np

    bad = ~(np.abs(heights) <= MAX_LENGTH_M)
    if bad.any():
        row, column = (int(index[0]) for index in np.nonzero(bad))
        value = float(heights[row, column])
        raise _refuse(file, f"row {row}, column {column} (from 0): expected a height in metres, found {value}")


def _read_csv(file: Path, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    import numpy as np

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


def _csv_row(file: Path, line: int, text: str, width: int | None) -> npt.NDArray[np.float64]:
    import numpy as np

    cells = text.split(",")
    if width is not None and len(cells) != width:
        raise ScenarioError(
            Problem(f"expected {width} values as on the lines before, found {len(cells)}", file=str(file), line=line)
        )
    values = np.empty(len(cells), np.float64)
    for index, cell in enumerate(cells):
        try:
            values[index] = float(cell)
        except ValueError:
            values[index] = math.nan
        if not abs(values[index]) <= MAX_LENGTH_M:
            column = sum(len(before) + 1 for before in cells[:index]) + 1
            where = f"value {index + 1} of the line"
            message = f"{where}: expected a height in metres, found {show(cell.strip())}"
            raise ScenarioError(Problem(message, file=str(file), line=line, column=column))
    return values
