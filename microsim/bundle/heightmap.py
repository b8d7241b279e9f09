"""`heightmap.bin` with its `heightmap.yaml`: rows of float32 from south to north."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from microsim.bundle.fields import Fields
from microsim.bundle.models import Heightmap
from microsim.bundle.report import Source

MAX_SIDE = 1_000_000

RECOMMENDED_CELLS = 4096 * 4096
_ROWS_AT_ONCE = 1 << 22  # heights looked at in one go


def read_heightmap(config: Source, binary: Source) -> Heightmap | None:
    """The heights, mapped and looked at; None when they cannot be used."""
    assert config.document is not None
    fields = Fields(config, config.document.data)
    fields.known.append("version")
    width = fields.integer("width", least=1, most=MAX_SIDE)
    height = fields.integer("height", least=1, most=MAX_SIDE)
    resolution = fields.number("resolution_m", least=0.001, most=1000.0)
    west, south = fields.numbers("origin", 2, (0.0, 0.0))
    binary_rule = "little-endian-float32"
    fields.choice("dtype", ["float32"], "float32", binary_rule, "write the heights as float32")
    fields.choice("byte_order", ["little"], "little", binary_rule, "write the heights as little endian")
    fields.choice("row_order", ["south_to_north"], "south_to_north")
    fields.done()
    if not width or not height:
        return None
    values = _mapped(config, binary, (height, width))
    return None if values is None else Heightmap(values, resolution, west, south)


def _mapped(config: Source, binary: Source, shape: tuple[int, int]) -> npt.NDArray[np.float32] | None:
    rows, columns = shape
    expected, found = rows * columns * 4, binary.file.stat().st_size
    if found != expected:
        message = f"{columns} x {rows} heights of 4 bytes are {expected:,} bytes, found {found:,}"
        binary.problem("heightmap-size", message, (), f"correct width and height in {config.name}, or the file")
        return None
    if rows * columns > RECOMMENDED_CELLS:
        message = f"{columns} x {rows} heights are more than the recommended 4096 x 4096"
        config.problem("limit-heightmap", message, ("width",), "take a coarser resolution")
    try:
        values = np.memmap(binary.file, "<f4", "r", shape=shape)
    except (OSError, ValueError) as error:
        binary.problem("regular-file", f"cannot be mapped: {error}")
        return None
    _check_values(binary, values)
    return values


def _check_values(binary: Source, values: npt.NDArray[np.float32]) -> None:
    flat = values.reshape(-1)
    for start in range(0, flat.size, _ROWS_AT_ONCE):
        part = flat[start : start + _ROWS_AT_ONCE]
        with np.errstate(invalid="ignore"):
            strange = np.abs(part) > 1e6  # infinity too; NaN is not
        if strange.any():
            index = start + int(np.flatnonzero(strange)[0])
            row, column = divmod(index, values.shape[1])
            message = f"height {float(flat[index])} m in row {row}, column {column}"
            binary.problem("heightmap-value", message, (), "write NaN where there is no ground")
            return
