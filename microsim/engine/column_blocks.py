"""Many robots a call: columns are taken into a block of fixed size, moved there tick by tick, and put back.

The block stays in the processor's first cache. Its size is known when a kernel is compiled, so the compiler sees that
its rows do not overlap and turns loops over its columns into SIMD, whatever happens in their body.
"""

import math

from microsim.engine import calls
from microsim.engine.calls import FARTHEST, TRACE_X, TRACE_Y, TRACE_Z
from microsim.engine.compiled import inlined
from microsim.engine.components import X, Y, Z
from microsim.engine.geometry import Array

_copy, _address = calls.copy, calls.table_address


@inlined
def take(block: Array, columns: Array, begin: int, count: int, first: int, end: int) -> None:
    """Rows first … end - 1: block[:, :count] = columns[:, begin : begin + count], where a row is contiguous."""
    for row in range(first, end):
        _copy(_address(block[row]), _address(columns[row, begin:]), 8 * count)


@inlined
def put_back(block: Array, columns: Array, begin: int, count: int, first: int, end: int) -> None:
    for row in range(first, end):
        _copy(_address(columns[row, begin:]), _address(block[row]), 8 * count)


@inlined
def take_parameters(block: Array, parameters: Array, begin: int, count: int) -> None:
    """The same of parameters, of which all columns may be one."""
    for row in range(block.shape[0]):
        for i in range(count):
            block[row, i] = parameters[row, begin + i]


@inlined
def note_distance(state: Array, i: int, trace: Array, k: int) -> None:
    """The greatest square of a robot's distance from where it began; NaN counts as infinite."""
    x, y, z = state[X, i] - trace[TRACE_X, k], state[Y, i] - trace[TRACE_Y, k], state[Z, i] - trace[TRACE_Z, k]
    square = x * x + y * y + z * z
    farthest = trace[FARTHEST, k]
    trace[FARTHEST, k] = farthest if square <= farthest else square if square == square else math.inf
