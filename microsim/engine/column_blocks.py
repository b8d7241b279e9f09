"""Many robots a call: columns are taken into a block of fixed size, moved there tick by tick, and put back.

The block stays in the processor's first cache. Its size is known when a kernel is compiled, so the compiler sees that
its rows do not overlap and turns loops over its columns into SIMD, whatever happens in their body.
"""

from microsim.engine.compiled import inlined
from microsim.engine.geometry import Array

BLOCK = 64  # columns


@inlined
def take(block: Array, columns: Array, begin: int, count: int, first: int, end: int) -> None:
    """Rows first … end - 1: block[:, :count] = columns[:, begin : begin + count]"""
    for row in range(first, end):
        for i in range(count):
            block[row, i] = columns[row, begin + i]


@inlined
def put_back(block: Array, columns: Array, begin: int, count: int, first: int, end: int) -> None:
    for row in range(first, end):
        for i in range(count):
            columns[row, begin + i] = block[row, i]
