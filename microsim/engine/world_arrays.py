"""The arrays that make up worlds, by name, and the memory where they are.

A snapshot is a copy of them; a restore and a fork put it back.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from microsim.engine.calls import sample_address
from microsim.engine.components import RobotModel
from microsim.engine.robot_loops import advance_address


class Memory(Protocol):
    """Where worlds are; `batch.host_loops` and `batch.cuda_loops` are others than `HERE`."""

    xp: Any  # the library of its arrays

    def array(self, values: npt.NDArray[Any]) -> Any:
        """The array there."""

    def table(self, records: npt.NDArray[Any]) -> Any:
        """The rows there, from where kernels read them by address."""

    def sample_function(self, kernel: Callable[..., None]) -> int:
        """Address of a sensor's kernel, see `calls.sample_address`; 0 where functions are not called by address."""

    def advance_functions(self, model: RobotModel) -> tuple[int, int]:
        """Of the functions that move robots of a model: a few columns, and many. 0: there is none."""


class Here:
    """The memory of this process."""

    xp: Any = np

    def array(self, values: npt.NDArray[Any]) -> Any:
        return values

    def table(self, records: npt.NDArray[Any]) -> Any:
        return records

    def sample_function(self, kernel: Callable[..., None]) -> int:
        return sample_address(kernel)

    def advance_functions(self, model: RobotModel) -> tuple[int, int]:
        return advance_address(model), 0


HERE = Here()


class WorldArray(NamedTuple):
    array: Any
    axis: int = 0  # of the worlds


WorldArrays = Mapping[str, WorldArray]
Chosen = Callable[[Any], npt.NDArray[np.int64]]  # the numbers of worlds in the memory in which an array is


def taken(arrays: WorldArrays, worlds: Chosen | None = None) -> dict[str, Any]:
    """A copy of what they have of some worlds, or of all."""
    if worlds is None:
        return {name: each.array.copy() for name, each in arrays.items()}
    return {name: each.array.take(worlds(each.array), each.axis) for name, each in arrays.items()}


def put(arrays: WorldArrays, saved: Mapping[str, Any], worlds: Chosen | None = None) -> None:
    """Put `taken` values into some worlds, or all. What was not there then, or had another form, stays as it is."""
    for name, (array, axis) in arrays.items():
        values = saved.get(name)
        if values is None:
            continue
        if worlds is None:
            if values.shape == array.shape:
                array[...] = values
        elif values.ndim == array.ndim and _rest(values, axis) == _rest(array, axis):
            array[(slice(None),) * axis + (worlds(array),)] = values


def _rest(array: Any, axis: int) -> tuple[int, ...]:
    return (*array.shape[:axis], *array.shape[axis + 1 :])
