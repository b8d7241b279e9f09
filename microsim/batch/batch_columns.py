"""Arrays with a column for each world, and what users hand in for them, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.errors import UsageError
from microsim.scenario import Scenario

if TYPE_CHECKING:
    from microsim.batch.cuda_loops import CudaLoops
    from microsim.batch.host_loops import HostLoops

Array: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Loops: TypeAlias = "HostLoops | CudaLoops"


def shared(xp: Any, column: Sequence[float], width: int) -> Array:
    """(k, width) in which every world has the same column, and which takes the memory of one; of the library `xp`."""
    one = xp.asarray(np.array(column, np.float64))
    found: Array = xp.lib.stride_tricks.as_strided(one, (one.size, width), (8, 0))
    return found


def is_on_gpu(values: Any) -> bool:
    return hasattr(values, "__cuda_array_interface__")


def whole_numbers(values: Any, what: str) -> Integers:
    """As an array, perhaps the same one; what is not a 64-bit integer is refused."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.dtype != np.uint64:
        return np.ascontiguousarray(values, np.int64).reshape(-1)
    refusal = UsageError(f"{what} must be 64-bit integers; found {values!r}")
    items = np.atleast_1d(np.asarray(values, dtype=object)).reshape(-1).tolist()
    if not all(isinstance(item, (int, np.integer)) and not isinstance(item, bool) for item in items):
        raise refusal
    try:
        return np.array([int(item) for item in items], np.int64)
    except OverflowError:
        raise refusal from None


def checked_seeds(scenario: Scenario, n: int | None, seeds: Sequence[int] | Integers | None) -> Integers:
    if seeds is None:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise UsageError(f"expected the number of worlds n, at least 1; found {n!r}")
        first = np.array([scenario.seed], np.int64)
        counted: Integers = np.arange(n, dtype=np.int64) + first  # wraps around at the end of int64
        return counted
    given = whole_numbers(seeds, "seeds")
    if (n is not None and n != given.size) or not given.size:
        raise UsageError(f"expected as many seeds as worlds; found {given.size} seeds for {n} worlds")
    return given.copy()  # a reset changes them


def checked_threads(threads: Any) -> int:
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise UsageError(f"the number of threads must be a whole number, 1 or more; found {threads!r}")
    return threads
