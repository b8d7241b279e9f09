"""Arrays with a column for each world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

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
