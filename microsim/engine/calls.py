"""Kernels called through a table, so that one compiled loop serves any set of robots and sensors, plug-ins included.

A call is a row of 64-bit integers: the address of a compiled function, then its arguments as addresses, sizes and
numbers. Nothing is compiled for a particular scenario, and every function is compiled once and kept on disk.
With `NUMBA_DISABLE_JIT=1` the same rows are read through ctypes, and the functions are the kernels' plain Python form.
"""

import ctypes
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from types import FunctionType, MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numba
import numba.core.config
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.caching import NullCache
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from microsim.engine.compiled import cached_cfunc, is_checked, kernel, plain
from microsim.engine.geometry import Array, Grid
from microsim.engine.records import (
    ADDRESS,
    SPAN,
    VEC3,
    address_of,
    floats_in,
    record,
    record_at,
)

Rows: TypeAlias = npt.NDArray[np.int64]
_Maker = TypeVar("_Maker", bound=Callable[..., int])

# A call of a sensor's kernel: what it is given, then where the engine finds what it fills into `motion`.
CALL = record(
    function=ADDRESS,  # compiled, and called with the address of this row
    is_broken=int,  # 1 after the kernel raised an exception; then it is not called again, and this row stays as it was
    settings=SPAN,
    motion=SPAN,
    memory=SPAN,
    scene=ADDRESS,
    world=int,
    table=SPAN,
    key=int,
    tick=int,
    reading=SPAN,
    seen=ADDRESS,  # the robot's motion, or its column of the state
    stride=int,  # [numbers] from one of that column to the next; 0: it is a motion
    mount=VEC3,  # [m]
    jumps=SPAN,  # windows of time, see `sensor_calls`
)

# A sensor in many worlds: `motion` is a block, its columns are worlds, its rows the numbers of a motion,
# then settings, memory and reading, as many as there are at most. `key` and `tick` are addresses of a block's own.
BLOCK = 64  # columns
BLOCK_ROWS = 16, 8, 8  # for settings, memory, reading
MANY_SETTINGS = 33  # after the rows of a motion
MANY_MEMORY = MANY_SETTINGS + BLOCK_ROWS[0]
MANY_READING = MANY_MEMORY + BLOCK_ROWS[1]
MANY_ROWS = MANY_READING + BLOCK_ROWS[2]

_IS_PLAIN = bool(numba.core.config.DISABLE_JIT)


class Scene(NamedTuple):
    """The world as kernels see it. Grids are indexed [row, column], row 0 in the south."""

    elevation: Array  # (ny, nx) [m] at cell centres, or (1, 1) where the ground is level
    surface: Grid  # (ny, nx) class of the ground
    clearance: Grid  # (ny, nx) [cells] to the nearest occupied cell or the edge
    footing: Grid  # the same, where cells without ground count as occupied
    cell: float  # [m]
    west: float  # [m] where the grid begins in the map frame
    south: float
    dt: float  # [s] of a tick
    plane: Array  # (12,) tangent plane of the map's origin, see `geodesy`
    table: Array  # constants of this sensor, the same in all worlds


# places of a scene's row; a grid has its address, rows, columns and the bytes from one world's to the next (0: shared)
_ELEVATION, _SURFACE, _CLEARANCE, _FOOTING = 0, 4, 8, 12
_CELL, _WEST, _SOUTH, _DT, _PLANE = range(16, 21)
SCENE_COLUMNS = 21
PLANE_SIZE = 12

call_at = record_at(CALL)


def _view(kind: Any, size: int) -> Callable[[int, int], npt.NDArray[Any]]:
    @lru_cache(100_000)
    def view(address: int, count: int) -> npt.NDArray[Any]:
        if count == 0:
            return np.empty(0, kind)
        memory: Any = (ctypes.c_char * (size * count)).from_address(int(address))
        return np.frombuffer(memory, kind)

    return view


_plain_floats_at, _plain_integers_at, _plain_bytes_at = _view(np.float64, 8), _view(np.int64, 8), _view(np.uint8, 1)


def _plain_float_grid_at(address: int, rows: int, columns: int) -> Array:
    return _plain_floats_at(address, rows * columns).reshape(rows, columns)


def _plain_byte_grid_at(address: int, rows: int, columns: int) -> Grid:
    return _plain_bytes_at(address, rows * columns).reshape(rows, columns)


if _IS_PLAIN:
    floats_at, integers_at, bytes_at = _plain_floats_at, _plain_integers_at, _plain_bytes_at
    float_grid_at, byte_grid_at = _plain_float_grid_at, _plain_byte_grid_at
    singles_at, words_at = _view(np.float32, 4), _view(np.int32, 4)

    def word_grid_at(address: int, rows: int, columns: int) -> npt.NDArray[np.int32]:
        return words_at(address, rows * columns).reshape(rows, columns)

    _functions: dict[int, Callable[[int], None]] = {}

    def call(function: int, row: int) -> None:
        _functions[int(function)](int(row))

    call_now = call

    def copy(target: int, source: int, size: int) -> None:
        ctypes.memmove(int(target), int(source), int(size))

    def table_address(rows: npt.NDArray[Any]) -> int:
        return address_of(rows)

    def room(count: int) -> Array:
        return np.empty(count)

    def is_on_gpu() -> bool:
        return False

else:

    def _viewer(kind: Any, dimensions: int) -> Any:
        """(address, *shape) -> the C-ordered array there, without a call: code for GPUs cannot return arrays."""

        def typed(address: Any, shape: Any) -> Any:
            array = types.Array(kind, dimensions, "C")

            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                made = context.make_array(array)(context, builder)
                size = context.get_constant(types.intp, kind.bitwidth // 8)
                strides = [size] if dimensions == 1 else [builder.mul(size, args[2]), size]
                data = builder.inttoptr(args[0], context.get_data_type(kind).as_pointer())
                populate_array(made, data=data, shape=args[1:], strides=strides, itemsize=size, meminfo=None)
                return made._getvalue()

            return array(types.int64, *[types.int64] * dimensions), code

        if dimensions == 1:
            return intrinsic(lambda typing, address, count: typed(address, (count,)))
        return intrinsic(lambda typing, address, rows, columns: typed(address, (rows, columns)))

    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, function: Any, row: Any) -> Any:
        """Call the function at an address with the address of a row."""

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
            builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), code

    def call_now(function: int, row: int) -> None:
        """The same from Python."""
        ctypes.CFUNCTYPE(None, ctypes.c_int64)(function)(row)

    @intrinsic  # type: ignore[untyped-decorator]
    def copy(typing: Any, target: Any, source: Any, size: Any) -> Any:
        """Copy bytes from address to address."""

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointers = [builder.inttoptr(args[k], cgutils.voidptr_t) for k in range(2)]
            cgutils.raw_memcpy(builder, *pointers, args[2], 1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), code

    floats_at, integers_at = _viewer(types.float64, 1), _viewer(types.int64, 1)
    singles_at, words_at, bytes_at = (_viewer(kind, 1) for kind in (types.float32, types.int32, types.uint8))
    float_grid_at, byte_grid_at = _viewer(types.float64, 2), _viewer(types.uint8, 2)
    word_grid_at = _viewer(types.int32, 2)

    @intrinsic  # type: ignore[untyped-decorator]
    def table_address(typing: Any, rows: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(rows)(context, builder, args[0]).data
            return builder.ptrtoint(data, ir.IntType(64))

        return types.int64(rows), code

    @intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
    def room(typing: Any, count: Any) -> Any:
        """Room for `count` numbers, a constant, until the function returns: quicker than an array, and GPUs have it."""
        array = types.Array(types.float64, 1, "C")

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made, size = context.make_array(array)(context, builder), context.get_constant(types.intp, 8)
            length = context.get_constant(types.intp, count.literal_value)
            data = cgutils.alloca_once(builder, ir.DoubleType(), length)
            populate_array(made, data=data, shape=[length], strides=[size], itemsize=size, meminfo=None)
            return made._getvalue()

        return array(count), code

    @intrinsic  # type: ignore[untyped-decorator]
    def is_on_gpu(typing: Any) -> Any:
        """Known when a kernel is compiled: of a choice, only one side remains."""

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return context.get_constant(types.boolean, "CUDA" in type(context).__name__)

        return types.boolean(), code


@kernel
def scene_at(address: int, world: int, table: Array) -> Scene:
    """The scene of a row that `scene_row` wrote."""
    row, numbers = integers_at(address, SCENE_COLUMNS), floats_at(address, SCENE_COLUMNS)
    return Scene(
        float_grid_at(row[_ELEVATION] + world * row[_ELEVATION + 3], row[_ELEVATION + 1], row[_ELEVATION + 2]),
        byte_grid_at(row[_SURFACE], row[_SURFACE + 1], row[_SURFACE + 2]),
        byte_grid_at(row[_CLEARANCE] + world * row[_CLEARANCE + 3], row[_CLEARANCE + 1], row[_CLEARANCE + 2]),
        byte_grid_at(row[_FOOTING] + world * row[_FOOTING + 3], row[_FOOTING + 1], row[_FOOTING + 2]),
        numbers[_CELL],
        numbers[_WEST],
        numbers[_SOUTH],
        numbers[_DT],
        floats_at(row[_PLANE], PLANE_SIZE),
        table,
    )


def scene_row(
    elevation: Array,
    surface: Grid,
    clearances: Grid,
    footings: Grid,
    origin: tuple[float, float, float],
    dt: float,
    plane: Array,
) -> Rows:
    """origin: cell size, west, south [m]. Keeps nothing alive.

    Grids are (n, ny, nx), or (1, ny, nx) where worlds share one; elevation and surface also (ny, nx).
    """
    row: Rows = np.zeros(SCENE_COLUMNS, np.int64)
    row[_ELEVATION : _ELEVATION + 3] = address_of(elevation), *elevation.shape[-2:]
    row[_ELEVATION + 3] = elevation.strides[0] if elevation.ndim == 3 and elevation.shape[0] > 1 else 0
    row[_SURFACE : _SURFACE + 4] = address_of(surface), *surface.shape, 0
    for place, grids in ((_CLEARANCE, clearances), (_FOOTING, footings)):
        step = 0 if grids.shape[0] == 1 else grids.strides[0]
        row[place : place + 4] = address_of(grids), *grids.shape[1:], step
    row[_PLANE] = address_of(plane)
    row.view(np.float64)[_CELL : _DT + 1] = *origin, dt
    return row


# ---- functions by address --------------------------------------------------------------------------------------------

kernel_called: Any = None  # stands for a kernel in the functions below

_makers: list[Any] = []


def kept_address(make: _Maker) -> _Maker:
    """Of each function it is made once."""
    made: Any = cache(make)
    _makers.append(made)
    return made


def _sample_entry(address: int) -> None:
    call = call_at(address)
    kernel_called(
        floats_in(call.settings),
        floats_in(call.motion),
        floats_in(call.memory),
        scene_at(call.scene, call.world, floats_in(call.table)),
        call.key,
        call.tick,
        floats_in(call.reading),
    )


def _sample_many_entry(address: int) -> None:
    call = call_at(address)
    block = float_grid_at(call.motion.address, MANY_ROWS, BLOCK)
    kernel_called(
        block[MANY_SETTINGS:MANY_MEMORY],
        block[:MANY_SETTINGS],
        block[MANY_MEMORY:MANY_READING],
        scene_at(call.scene, call.world, floats_in(call.table)),
        integers_at(call.key, BLOCK),
        integers_at(call.tick, BLOCK),
        block[MANY_READING:],
    )


@kept_address
def contact_address(function: Callable[[int], None]) -> int:
    """Address of a plain function that is given the address of a `contacts.CONTACTS` record."""
    return _registered(function)


@kept_address
def sample_address(function: Callable[..., None]) -> int:
    """Address of a sensor's kernel `(settings, motion, memory, scene, key, tick, reading)`, to be called with a row."""
    return entry_address(function, _sample_entry, _SAMPLED)


@kept_address
def sample_many_address(function: Callable[..., None]) -> int:
    """The same of its form for a block of worlds: every array has a column for each."""
    return entry_address(function, _sample_many_entry, "settings, motions, memories, scene, keys, ticks, readings")


@kept_address
def picture_address(function: Callable[..., None]) -> int:
    """Address of a plain function that is given the address of a call's row itself, and fills bytes.

    It is compiled as it is: around a kernel, all that it calls would be translated twice.
    """
    return _registered(function)


_kept: list[Any] = []  # compiled functions live as long as their addresses are in use
_is_skipping = False


@contextmanager
def skipped_calls() -> Iterator[None]:
    """Meanwhile new tables call a function that does nothing: another process compiles those that they should call."""
    _skip(not _IS_PLAIN)
    try:
        yield
    finally:
        _skip(False)


def _skip(on: bool) -> None:
    global _is_skipping  # noqa: PLW0603 - of this process, before its run begins
    _is_skipping = on
    for each in _makers:
        each.cache_clear()


def _skipped(address: int) -> None:
    """Leaves the reading as it is."""


_Views: TypeAlias = dict[str, Any]
_SAMPLED = "settings, motion, memory, scene, key, tick, reading"


def entry_address(
    function: Callable[..., Any],
    entry: Callable[[int], None],
    parameters: str,
    names: _Views = MappingProxyType({}),  # type: ignore[assignment]
    uncompiled: _Views = MappingProxyType({}),  # type: ignore[assignment]
) -> int:
    """A compiled function that calls this kernel. Its code is the entry's; only the kernel it names differs.

    It has a name of its own: functions of one name that were compiled in two processes could be taken for each other.
    A kernel of a plug-in is guarded: where it raises an exception, its row is marked. Without the decorator it runs
    uncompiled. `parameters`: of the kernel. `names`: what else differs; `uncompiled`: those that are others then.
    """
    form = getattr(function, "py_func", function)
    if not is_checked(form):
        return _registered(_made(entry, form, **names, kernel_called=function))
    _refuse_unfit(form, parameters)
    plain_names = {**names, **uncompiled}
    try:
        if _IS_PLAIN or form is function:
            address = _called_back(_Uncompiled(_made(entry, form, **_views(), **plain_names, kernel_called=function)))
        else:
            _demand_checks(function, set())
            inner = kernel(_made(entry, form, **names, kernel_called=function))
            address = _registered(_made(_guarded_entry, form, entry_called=inner))
    except Exception as error:  # numba raises many
        raise UnfitKernelError("cannot be compiled", form, is_complete=False) from error
    _checked[address] = function, entry, plain_names
    return address


def _made(entry: Callable[[int], None], form: Any, **names: Any) -> Callable[[int], None]:
    """A function with the code of an entry in which these names stand for something, named after a kernel."""
    made = FunctionType(entry.__code__, {**entry.__globals__, **names})
    made.__qualname__, made.__module__ = f"{form.__qualname__}{entry.__name__}", form.__module__
    return made


def _registered(function: Callable[[int], None]) -> int:
    """Address of a function of a row's address; it lives as long as this process."""
    if _IS_PLAIN:
        _functions[id(function)] = function
        _kept.append(function)
        return id(function)
    compiled = cached_cfunc(types.void(types.int64), _skipped if _is_skipping else function)
    _kept.append(compiled)
    return int(compiled.address)


# ---- kernels of plug-ins: an exception in one marks its row, and is explained afterwards -----------------------------


def _refuse_unfit(form: Any, parameters: str) -> None:
    """Of what would be compiled without a word, or with many."""
    if form.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise UnfitKernelError("would only be begun: a kernel has no yield and no await", form)
    names = parameters.split(", ")
    try:
        inspect.signature(form).bind(*names)
    except TypeError:
        takes = ", ".join(inspect.signature(form).parameters)
        raise UnfitKernelError(f"takes ({takes}); expected {len(names)} parameters: {parameters}", form) from None


def _demand_checks(function: Any, seen: set[int]) -> None:
    """What a plug-in compiles with numba's own decorators is compiled again, with indices checked as in `kernel`."""
    form = getattr(function, "py_func", None)
    if form is None or id(form) in seen or not is_checked(form):
        return
    seen.add(id(form))
    for name in form.__code__.co_names:
        _demand_checks(form.__globals__.get(name), seen)
    for cell in form.__closure__ or ():
        _demand_checks(cell.cell_contents, seen)
    options = getattr(function, "targetoptions", {"boundscheck": True})
    if not options.get("boundscheck"):
        options["boundscheck"] = True
        function._cache = NullCache()
        function.recompile()


entry_called: Any = None  # stands for a compiled entry in the function below

_checked: dict[int, tuple[Callable[..., Any], Any, _Views]] = {}  # by address: the kernel, its entry, and that's names


def _guarded_entry(address: int) -> None:
    try:
        entry_called(address)
    except Exception:  # of any kind: compiled code cannot look at it
        integers_at(address, 2)[1] = 1  # `is_broken`, in rows of both kinds


class _Uncompiled:
    """A kernel that runs as plain Python. What it raises is kept: nothing can be raised through compiled code."""

    def __init__(self, function: Callable[[int], None]) -> None:
        self._function = function
        self.error: BaseException | None = None

    def __call__(self, address: int) -> None:
        try:
            with np.errstate(divide="raise"):  # as in its compiled form
                self._function(address)
        except BaseException as error:  # Ctrl-C too
            self.error = error
            _plain_integers_at(address, 2)[1] = 1


def _called_back(function: _Uncompiled) -> int:
    if _IS_PLAIN:
        return _registered(function)
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int64)(function)
    address = int(ctypes.cast(callback, ctypes.c_void_p).value or 0)
    _kept.append(callback)
    _uncompiled[address] = function
    return address


_uncompiled: dict[int, _Uncompiled] = {}  # by address


def plain_record_at(dtype: np.dtype[Any]) -> Callable[[int], Any]:
    """`record_at` of code that is not compiled."""
    return lambda address: _plain_integers_at(address, dtype.itemsize // 8).view(dtype)[0]


def _views(of: Callable[[Any], Any] = lambda array: array) -> dict[str, Any]:
    """What stands for these names where an entry runs uncompiled. `of`: what it is given of each array."""
    names: dict[str, Any] = {
        "call_at": plain_record_at(CALL),
        "floats_in": lambda span: of(_plain_floats_at(int(span.address), int(span.count))),
        "floats_at": lambda address, count: of(_plain_floats_at(address, count)),
        "integers_at": lambda address, count: of(_plain_integers_at(address, count)),
        "float_grid_at": lambda *place: of(_plain_float_grid_at(*place)),
        "float_grid_in": lambda grid: of(_plain_float_grid_at(*map(int, grid))),
        "byte_grid_at": lambda *place: of(_plain_byte_grid_at(*place)),
    }
    form: Any = plain(scene_at)
    names["scene_at"] = FunctionType(form.__code__, {**globals(), **names}, "scene_at")
    return names


class UnfitKernelError(Exception):
    """A plug-in's kernel cannot be compiled, for what is the cause, or does not take what it is given; and its form."""

    def __init__(self, text: str, form: Any, is_complete: bool = True) -> None:
        super().__init__(f"kernel {form.__name__} {text}")
        self.is_complete = is_complete
        self.form = form


class BrokenKernelError(Exception):
    """A plug-in's kernel raised an exception, which is the cause; and its form."""

    is_complete = False  # the cause says more

    def __init__(self, text: str, form: Any, tick: int | None = None) -> None:
        super().__init__(text)
        self.form, self.tick = form, tick


def has_checked(functions: Iterable[int]) -> bool:
    """Whether any of these addresses is of a plug-in's kernel."""
    return any(int(address) in _checked for address in functions)


def raise_broken(rows: Any, owner: Callable[[int], str]) -> None:
    """Raise an error for the first of these calls, of either kind, whose kernel raised an exception."""
    for index in np.flatnonzero(rows["is_broken"]):
        address, tick = int(rows["function"][index]), int(rows["tick"][index])
        function, entry, _ = _checked.get(address, (_skipped, None, {}))
        error = None if entry is None else _error_of(address, address_of(rows[index : index + 1]))
        raise BrokenKernelError(f"{owner(int(index))} failed at tick {tick}", plain(function), tick) from error


def _error_of(address: int, row: int) -> BaseException | None:
    """What a kernel raised. Compiled code does not say; its plain form, run again on copies, does."""
    function, entry, views = _checked[address]
    kept = (_functions if _IS_PLAIN else _uncompiled).get(address)
    if isinstance(kept, _Uncompiled):
        error, kept.error = kept.error, None
        if error is not None and not isinstance(error, Exception):
            raise error
        return error
    again = _made(entry, plain(function), **_views(np.copy), **views, kernel_called=_wholly_plain(function, {}))
    try:
        with np.errstate(divide="raise", invalid="raise"):  # NumPy's numbers only warn: 0.0 / 0.0 is invalid
            again(row)
    except Exception as error:  # whatever it raised
        return error
    return None


def _wholly_plain(function: Any, known: dict[int, Any]) -> Any:
    """A plug-in's kernel uncompiled, with those kernels of plug-ins that it calls."""
    form = getattr(function, "py_func", None)
    if form is None or not is_checked(form):
        return function
    if id(form) not in known:
        names = dict(form.__globals__)
        known[id(form)] = FunctionType(form.__code__, names, form.__name__, form.__defaults__, form.__closure__)
        names |= {name: _wholly_plain(names[name], known) for name in form.__code__.co_names if name in names}
    return known[id(form)]
