"""The arrays that make up worlds, by name. A snapshot is a copy of them; a restore and a fork put it back."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class WorldArray(NamedTuple):
    array: Any
    axis: int = 0  # of the worlds


WorldArrays = Mapping[str, WorldArray]
Worlds = npt.NDArray[np.int64]  # numbers of worlds

ONLY: Worlds = np.zeros(1, np.int64)  # the world of a single simulation


def taken(arrays: WorldArrays, worlds: Callable[[Any], Worlds]) -> dict[str, Any]:
    """A copy of what they have of some worlds. `worlds` gives their numbers in the memory in which an array is."""
    return {name: each.array.take(worlds(each.array), each.axis) for name, each in arrays.items()}


def put(arrays: WorldArrays, saved: Mapping[str, Any], worlds: Callable[[Any], Worlds]) -> None:
    """Put `taken` values into some worlds. What was not there then, or had another form, stays as it is."""
    for name, (array, axis) in arrays.items():
        values, place = saved.get(name), (slice(None),) * axis + (worlds(array),)
        if values is not None and values.ndim == array.ndim and _rest(values, axis) == _rest(array, axis):
            array[place] = values


def _rest(array: Any, axis: int) -> tuple[int, ...]:
    return (*array.shape[:axis], *array.shape[axis + 1 :])
