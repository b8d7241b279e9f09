"""What decides the bits of a kernel: its code, and all that it refers to, by value.

numba notices a change in a kernel's own file, not in the constants and kernels that it takes from other files. Here a
kernel is described by its byte code and by what each of its names stands for: constants by their values, kernels and
functions by their own descriptions. Whatever is edited, in MicroSim or in a plug-in, exactly the kernels that it
reaches are compiled again, and it does not matter where the files are.
"""

import enum
import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from numba.core import types


class NotByValueError(TypeError):
    """A kernel refers to something that has no value: what is compiled from it cannot be recognised later."""


_BY_VALUE = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice)


def key_of(function: Callable[..., Any]) -> str:
    """A hash of all that a function refers to. Two functions with the same key compile to the same code."""
    return _key(getattr(function, "py_func", function))


@lru_cache(None)
def _key(function: FunctionType) -> str:
    digest = hashlib.sha256()
    for part in _described(function, {}):
        digest.update(part.encode() + b"\n")
    return digest.hexdigest()


def _described(value: Any, seen: dict[int, int]) -> Iterator[str]:
    """`seen`: functions by identity, in the order in which they were met; they may call each other in circles."""
    function = getattr(value, "py_func", None) or getattr(value, "__wrapped__", None) or value
    if isinstance(function, MethodType):
        function = function.__func__
    if isinstance(function, FunctionType):
        if id(function) in seen:
            yield f"function {seen[id(function)]}"
            return
        seen[id(function)] = len(seen)
        options = sorted(getattr(value, "targetoptions", {}).items())
        yield f"function {function.__module__}.{function.__qualname__} {options}"
        yield from _described((function.__defaults__, function.__kwdefaults__), seen)
        yield from _code(function, seen)
    elif isinstance(value, enum.Enum):
        yield f"{type(value).__qualname__}.{value.name}"
        yield from _described(value.value, seen)
    elif isinstance(value, _BY_VALUE):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, np.ndarray):
        yield f"array {value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    elif isinstance(value, (np.generic, np.dtype)):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, (tuple, list, frozenset, set, dict)):
        entries = list(value.items()) if isinstance(value, dict) else list(value)
        yield f"{type(value).__qualname__} {len(entries)}"
        for each in sorted(entries, key=repr) if isinstance(value, (frozenset, set)) else entries:
            yield from _described(each, seen)
    elif isinstance(value, ModuleType):
        yield f"module {value.__name__}"
    elif isinstance(value, types.Type):
        yield f"numba type {value}"
    elif hasattr(value, "_defn"):  # an intrinsic: the code it emits is that of a function
        yield from _described(value._defn, seen)
    elif isinstance(value, type):
        yield f"class {value.__qualname__} {getattr(value, '_fields', '')}"
    elif isinstance(value, (BuiltinFunctionType, np.ufunc)) or _is_foreign(value):
        yield f"{type(value).__name__} {getattr(value, '__module__', '')} {getattr(value, '__name__', value)}"
    else:
        raise NotByValueError(f"{type(value).__qualname__}")


def _code(function: FunctionType, seen: dict[int, int]) -> Iterator[str]:
    """The instructions, and what their names stand for."""
    yield from _instructions(function.__code__, 0 if function.__doc__ is None else 1)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f"free {name}"
        yield from _described(cell.cell_contents, seen)
    names = list(_names(function.__code__))
    for name in names:
        if name in function.__globals__:
            yield f"name {name}"
            value = function.__globals__[name]
            yield from _described(value, seen)
            yield from _attributes(value, names, seen, depth=3)


def _attributes(value: Any, names: list[str], seen: dict[int, int], depth: int) -> Iterator[str]:
    """Of modules and classes of our own kind that a function names: `exact.sin`, `Kind.WALL`."""
    if not isinstance(value, (ModuleType, type)) or depth == 0 or _is_foreign(value):
        return
    fields = getattr(value, "_fields", ())  # of a named tuple: described with it
    for name in names:
        found = vars(value).get(name) if name not in fields else None
        if found is not None:
            yield f"attribute {name}"
            yield from _described(found, seen)
            yield from _attributes(found, names, seen, depth - 1)


def _is_foreign(value: Any) -> bool:
    """Of a library whose version stands for what it computes."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return str(name).partition(".")[0] in (
        "numpy",
        "numba",
        "llvmlite",
        "math",
        "builtins",
        "cmath",
        "operator",
        "ctypes",
    )


def _instructions(code: CodeType, skipped: int = 0) -> Iterator[str]:
    """`skipped`: constants at the beginning that decide nothing, which is where a docstring is."""
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} {code.co_argcount}"
    for constant in code.co_consts[skipped:]:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)
        else:
            yield repr(constant)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
