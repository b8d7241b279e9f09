"""Arrays with a column for each world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]


def width_for(n: int) -> int:
    """Columns to allocate: an odd number of cache lines, so that the rows of a column do not crowd one cache set."""
    return 8 * (-(-n // 8) | 1)


def columns(rows: int, n: int) -> Array:
    return np.zeros((rows, width_for(n)))


def shared(column: Sequence[float], n: int) -> Array:
    """(k, width) in which every world has the same column, and which takes the memory of one."""
    one = np.array(column, np.float64)
    return np.lib.stride_tricks.as_strided(one, (one.size, width_for(n)), (one.strides[0], 0))


def take(array: Any, worlds: Integers, axis: int) -> Any:
    return np.take(array, worlds, axis=axis)


def give(array: Any, worlds: Integers, axis: int, values: Any) -> None:
    array[(slice(None),) * axis + (worlds,)] = values
