"""Columns with names: `robot.yaw`, not `state[3, i]`.

Where numbers of many robots are worked on side by side, an array has a row for each number and a column for each robot.
A view of a column has the names that its rows were declared with, read and written as attributes. It costs nothing:
compiled, a name is an address. The same source runs compiled, on a GPU, and as plain Python, where the functions that
make views can be called too.
"""

import ctypes
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, TypeAlias

import numba.core.config
import numpy as np
from numba import typeof
from numba.core import cgutils, extending, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    lower_setattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

Column: TypeAlias = Any  # one column: its rows are attributes
Names: TypeAlias = tuple[str, ...]


# ---- plain Python ----------------------------------------------------------------------------------------------------


class PlainColumn:
    """What plain Python sees of numbers, or of a column of an array of them. Compiled functions can be given it too."""

    __slots__ = ("_column", "_numbers")
    _names: Names = ()
    _numbers: Any
    _column: Any

    @property
    def _first_and_step(self) -> tuple[int, int]:
        """Address of the first number, and bytes to the next."""
        numbers, column = self._numbers, self._column
        first = int(numbers.__array_interface__["data"][0])
        return first + (0 if column is None else int(column) * numbers.strides[1]), numbers.strides[0]


@cache
def _plain_column(names: Names) -> type:

    def make(self: Any, numbers: Any, column: Any = None) -> None:
        self._numbers, self._column = numbers, column

    def place(self: Any, row: int) -> Any:
        return row if self._column is None else (row, self._column)

    def named(row: int) -> property:
        def read(self: Any) -> Any:
            return self._numbers[place(self, row)]

        def write(self: Any, value: Any) -> None:
            self._numbers[place(self, row)] = value

        return property(read, write)

    rest = {"__slots__": (), "__init__": make, "_place": place, "_names": names}
    return type("Column", (PlainColumn,), {**rest, **{name: named(row) for row, name in enumerate(names)}})


def _plain_column_from(names: Names) -> Callable[[int, int], Column]:
    made = _plain_column(names)

    @lru_cache(100_000)
    def view(address: int, step: int) -> Any:
        memory: Any = (ctypes.c_double * 1).from_address(address)
        return made(np.lib.stride_tricks.as_strided(np.frombuffer(memory), (len(names),), (step,)))

    return lambda address, step: view(int(address), int(step))


def _plain_number_of(column: Column, row: int) -> Any:
    return column._numbers[column._place(row)]


def _plain_clear(column: Column) -> None:
    for row in range(len(column._names)):
        column._numbers[column._place(row)] = 0.0


# ---- compiled --------------------------------------------------------------------------------------------------------


class _ColumnType(types.Type):
    def __init__(self, names: Names, number: Any = types.float64) -> None:
        self.names, self.number = names, number
        super().__init__(f"Column({', '.join(names)}) of {number}")


@register_model(_ColumnType)
class _ColumnModel(models.StructModel):  # type: ignore[misc]
    """Where its first row is, and how many bytes it is from one row to the next."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("first", types.voidptr), ("step", types.intp)])


@typeof_impl.register(PlainColumn)  # type: ignore[untyped-decorator]
def _type_of(column: Any, context: Any) -> Any:
    return _ColumnType(column._names, typeof(column._numbers).dtype)


@unbox(_ColumnType)  # type: ignore[untyped-decorator]
def _unbox(kind: Any, column: Any, c: Any) -> Any:
    pair = c.pyapi.object_getattr_string(column, "_first_and_step")
    first, step = (c.pyapi.long_as_longlong(c.pyapi.tuple_getitem(pair, k)) for k in range(2))
    c.pyapi.decref(pair)
    first = c.builder.inttoptr(first, c.context.get_value_type(types.voidptr))
    return NativeValue(_made(c.context, c.builder, kind, first, step))


@infer_getattr
class _ColumnRows(AttributeTemplate):  # type: ignore[misc]
    key = _ColumnType

    def generic_resolve(self, kind: Any, name: str) -> Any:
        return kind.number if name in kind.names else None


def _row(context: Any, builder: Any, kind: Any, column: Any, number: Any) -> Any:
    parts = cgutils.create_struct_proxy(kind)(context, builder, value=column)
    place = builder.gep(parts.first, [builder.mul(parts.step, number)])
    return builder.bitcast(place, context.get_value_type(kind.number).as_pointer())


def _named(context: Any, builder: Any, kind: Any, column: Any, name: str) -> Any:
    return _row(context, builder, kind, column, context.get_constant(types.intp, kind.names.index(name)))


@lower_getattr_generic(_ColumnType)  # type: ignore[untyped-decorator]
def _read(context: Any, builder: Any, kind: Any, column: Any, name: str) -> Any:
    return builder.load(_named(context, builder, kind, column, name))


@lower_setattr_generic(_ColumnType)  # type: ignore[untyped-decorator]
def _write(context: Any, builder: Any, signature: Any, args: Any, name: str) -> None:
    column, value = args
    kind = signature.args[0]
    number = context.cast(builder, value, signature.args[1], kind.number)
    builder.store(number, _named(context, builder, kind, column, name))


def _made(context: Any, builder: Any, kind: Any, first: Any, step: Any) -> Any:
    made = cgutils.create_struct_proxy(kind)(context, builder)
    made.first, made.step = builder.bitcast(first, made.first.type), step
    return made._getvalue()


class _View(extending._Intrinsic):  # type: ignore[misc]
    """An intrinsic that plain Python can call too."""

    plain: Any = None

    def __call__(self, *args: Any) -> Any:
        return self.plain(*args)


def _both(typed: Any, plain: Any) -> Any:
    if numba.core.config.DISABLE_JIT:
        return plain
    view = _View(typed.__name__, typed)
    view._register()
    view.plain = plain
    return view


@cache
def column_at(names: Names) -> Any:
    """(array, i) -> column i of an array of numbers with a row for each of these names."""

    def typed(typing: Any, array: Any, number: Any) -> Any:
        kind = _ColumnType(names, array.dtype)

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given = context.make_array(signature.args[0])(context, builder, args[0])
            rows, columns = cgutils.unpack_tuple(builder, given.strides)
            if array.layout == "C":  # columns are side by side: with that, loops over them turn into SIMD
                columns = context.get_constant(types.intp, array.dtype.bitwidth // 8)
            data = builder.bitcast(given.data, context.get_value_type(types.voidptr))
            return _made(context, builder, kind, builder.gep(data, [builder.mul(columns, args[1])]), rows)

        return kind(array, types.int64), code

    return _both(typed, _plain_column(names))


@cache
def column_in(names: Names) -> Any:
    """(numbers) -> the column that they are."""

    def typed(typing: Any, numbers: Any) -> Any:
        kind, size = _ColumnType(names, numbers.dtype), numbers.dtype.bitwidth // 8

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given = context.make_array(signature.args[0])(context, builder, args[0])
            (step,) = cgutils.unpack_tuple(builder, given.strides)
            step = context.get_constant(types.intp, size) if numbers.layout == "C" else step
            return _made(context, builder, kind, given.data, step)

        return kind(numbers), code

    return _both(typed, _plain_column(names))


@cache
def column_from(names: Names) -> Any:
    """(address, step) -> the column whose first row is there, and whose next rows are so many bytes further on."""
    kind = _ColumnType(names)

    def typed(typing: Any, address: Any, step: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            first = builder.inttoptr(args[0], context.get_value_type(types.voidptr))
            return _made(context, builder, kind, first, args[1])

        return kind(types.int64, types.int64), code

    return _both(typed, _plain_column_from(names))


def _number_of(typing: Any, column: Any, row: Any) -> Any:
    """(column, row) -> the number of a row, also of one after those with names."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_row(context, builder, signature.args[0], args[0], args[1]))

    return column.number(column, types.intp), code


def _clear(typing: Any, column: Any) -> Any:
    """(column): make all its numbers 0."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for name in column.names:
            builder.store(context.get_constant(column.number, 0), _named(context, builder, column, args[0], name))
        return context.get_dummy_value()

    return types.void(column), code


number_of, clear = _both(_number_of, _plain_number_of), _both(_clear, _plain_clear)
