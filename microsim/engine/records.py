"""Rows with names: kernels write `call.key`, not `row[11]`.

A record is one dtype. Tables of them are NumPy arrays, and what compiled code is given is an address: `records_at` and
`record_at` read it there, `records_in` a `SPAN` of them. The same source runs compiled, on a GPU, and as plain Python,
and a row has the same bytes in all three.
"""

import ctypes
import hashlib
from functools import lru_cache
from typing import Any, TypeAlias

import numba
import numba.core.config
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np import numpy_support
from numba.np.arrayobj import populate_array

Record: TypeAlias = Any  # one row: its fields are attributes
Records: TypeAlias = npt.NDArray[Any]  # rows

IS_PLAIN = bool(numba.core.config.DISABLE_JIT)

INT = ADDRESS = np.int64
FLOAT = np.float64
VEC3 = (np.float64, (3,))


def _name_of_form(self: Any) -> tuple[str, tuple[str]]:
    return "Record", (hashlib.sha256(str(self).encode()).hexdigest()[:16],)


# numba names a compiled function by the types that it takes, and a record's type by a number that is counted up in each
# process (`types.Record.mangling_args`, as of numba 0.68). Forms of one kernel for two kinds of rows, compiled in two
# processes and kept on disk, could so have each other's names, and one would be called in place of the other.
types.Record.mangling_args = property(_name_of_form)  # type: ignore[method-assign, assignment]


def record(**fields: Any) -> np.dtype[Any]:
    """The dtype of a row of numbers, arrays of numbers and other records; all of them have 8 bytes, or parts that do.

    >>> CALL = record(key=int, mount=VEC3)
    >>> calls = np.zeros(3, CALL)
    >>> calls[1].mount[2] = 0.5
    """
    taken = [name for name in fields if hasattr(np.record, name)]
    assert not taken, f"NumPy's rows have {taken} themselves: uncompiled code would read those, not the fields"
    sizes = {int: np.int64, float: np.float64}
    columns = [
        (name, *(kind if isinstance(kind, tuple) else (sizes.get(kind, kind),))) for name, kind in fields.items()
    ]
    found = np.dtype((np.record, np.dtype(columns, align=True)))
    assert found.itemsize % 8 == 0, found
    return found


SPAN = record(address=ADDRESS, count=INT)  # rows or numbers one after the other
GRID = record(address=ADDRESS, rows=INT, columns=INT)  # numbers in C order
RANGE = record(first=INT, end=INT)  # rows of a table
RATIO = record(whole=INT, rest=INT, parts=INT)  # whole + rest / parts, see `multiples`


def address_of(array: Any) -> int:
    """Of a NumPy array or a row of one, or of an array in a GPU's memory.

    A caller that puts an address into a row keeps the array alive.
    """
    there: Any = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    return int(there["data"][0])


def span_of(array: Any) -> tuple[int, int]:
    """A `SPAN` of all that an array holds."""
    return address_of(array), array.size


def rows_of(dtype: np.dtype[Any], **fields: Any) -> Records:
    """One row."""
    rows = np.zeros(1, dtype)
    for name, value in fields.items():
        rows[name] = value
    return rows


def grid_of(array: Any) -> tuple[int, int, int]:
    """A `GRID`."""
    return address_of(array), *array.shape


if IS_PLAIN:

    def array_at(kind: Any, dimensions: int = 1) -> Any:
        """(address, *shape) -> the C-ordered array there."""
        dtype = np.dtype(kind)

        @lru_cache(100_000)
        def view(address: int, *shape: int) -> npt.NDArray[Any]:
            count = int(np.prod(shape))
            if count == 0:
                return np.empty(shape, dtype)
            memory: Any = (ctypes.c_char * (dtype.itemsize * count)).from_address(int(address))
            return np.frombuffer(memory, dtype).reshape(shape)

        return view

    def array_in(kind: Any) -> Any:
        """(SPAN) -> the records or numbers there."""
        at = array_at(kind)
        return lambda span: at(int(span.address), int(span.count))

    def record_at(dtype: np.dtype[Any]) -> Any:
        """(address) -> the record there."""
        at = array_at(dtype)
        return lambda address: at(int(address), 1)[0]

    def grid_in(kind: Any) -> Any:
        """(GRID) -> the numbers there."""
        at = array_at(kind, 2)
        return lambda grid: at(int(grid.address), int(grid.rows), int(grid.columns))

    def records_room(dtype: np.dtype[Any]) -> Any:
        """(count, a constant) -> room for so many records until the function returns."""
        return lambda count: np.zeros(count, dtype)

    def record_room(dtype: np.dtype[Any]) -> Any:
        """() -> room for a record until the function returns."""
        return lambda: np.zeros(1, dtype)[0]

    def address_of_record(row: Any) -> Any:
        """Where a record is."""
        return int(row.__array_interface__["data"][0])

else:

    def _array(context: Any, builder: Any, array: Any, address: Any, shape: Any) -> Any:
        """The C-ordered array at an address."""
        kind = array.dtype
        bytes_each = kind.size if isinstance(kind, types.Record) else kind.bitwidth // 8
        made, size = context.make_array(array)(context, builder), context.get_constant(types.intp, bytes_each)
        strides = [size] if array.ndim == 1 else [builder.mul(size, shape[1]), size]
        data = builder.inttoptr(address, context.get_data_type(kind).as_pointer())
        populate_array(made, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
        return made._getvalue()

    def _fields(context: Any, builder: Any, row: Any, count: int) -> list[Any]:
        """The first integers of a record."""
        kind = context.get_value_type(types.int64)
        return [builder.load(cgutils.get_record_member(builder, row, 8 * k, kind)) for k in range(count)]

    def _array_type(kind: Any, dimensions: int) -> Any:
        return types.Array(numpy_support.from_dtype(np.dtype(kind)), dimensions, "C")

    # All of these are intrinsics, whose code becomes part of their caller's: code for GPUs cannot return arrays.

    def array_at(kind: Any, dimensions: int = 1) -> Any:
        """(address, *shape) -> the C-ordered array there."""

        def typed(shape: int) -> Any:
            array = _array_type(kind, dimensions)

            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return _array(context, builder, array, args[0], list(args[1:]))

            return array(types.int64, *[types.int64] * shape), code

        if dimensions == 1:
            return intrinsic(lambda typing, address, count: typed(1))
        return intrinsic(lambda typing, address, rows, columns: typed(2))

    def _array_in(kind: Any, dimensions: int) -> Any:
        def typed(typing: Any, span: Any) -> Any:
            array = _array_type(kind, dimensions)

            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                address, *shape = _fields(context, builder, args[0], 1 + dimensions)
                return _array(context, builder, array, address, shape)

            return array(span), code

        return intrinsic(typed)

    def array_in(kind: Any) -> Any:
        """(SPAN) -> the records or numbers there."""
        return _array_in(kind, 1)

    def grid_in(kind: Any) -> Any:
        """(GRID) -> the numbers there."""
        return _array_in(kind, 2)

    def record_at(dtype: np.dtype[Any]) -> Any:
        """(address) -> the record there."""

        def typed(typing: Any, address: Any) -> Any:
            kind = numpy_support.from_dtype(dtype)

            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return builder.inttoptr(args[0], context.get_value_type(kind))

            return kind(types.int64), code

        return intrinsic(typed)

    def _room(context: Any, builder: Any, kind: Any, count: int) -> Any:
        """As `calls.room`: until the function returns."""
        size = context.get_constant(types.intp, count * kind.size // 8)
        numbers = cgutils.alloca_once(builder, ir.DoubleType(), size)
        return builder.bitcast(numbers, context.get_value_type(kind))

    def record_room(dtype: np.dtype[Any]) -> Any:
        """() -> room for a record until the function returns."""
        kind = numpy_support.from_dtype(dtype)

        def typed(typing: Any) -> Any:
            return kind(), lambda context, builder, signature, args: _room(context, builder, kind, 1)

        return intrinsic(typed)

    def records_room(dtype: np.dtype[Any]) -> Any:
        """(count, a constant) -> room for so many records until the function returns."""
        array = _array_type(dtype, 1)

        def typed(typing: Any, count: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                length, size = count.literal_value, array.dtype.size
                made = context.make_array(array)(context, builder)
                data = builder.bitcast(_room(context, builder, array.dtype, length), made.data.type)
                shape, strides = ([context.get_constant(types.intp, each)] for each in (length, size))
                populate_array(made, data=data, shape=shape, strides=strides, itemsize=strides[0], meminfo=None)
                return made._getvalue()

            return array(count), code

        return intrinsic(prefer_literal=True)(typed)

    @intrinsic  # type: ignore[untyped-decorator]
    def address_of_record(typing: Any, row: Any) -> Any:
        """Where a record is."""

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.ptrtoint(args[0], context.get_value_type(types.int64))

        return types.int64(row), code


records_at, records_in = array_at, array_in
floats_in, integers_in, bytes_in = array_in(np.float64), array_in(np.int64), array_in(np.uint8)
float_grid_in = grid_in(np.float64)
