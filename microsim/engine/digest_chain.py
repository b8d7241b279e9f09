"""Digests of many ticks in one compiled call: by address, SHA-256 of OpenSSL, which hashlib uses too."""

import ctypes
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic

from microsim.engine import calls as _calls
from microsim.engine.calls import Rows
from microsim.engine.compiled import kernel
from microsim.engine.compiled_tick import DIGEST_BYTES

_CONTEXT_NUMBERS = 16  # room for a SHA256_CTX, which has 112 bytes

_room, _table_address = _calls.room, _calls.table_address


@cache
def digest_chain() -> Callable[[int, Rows], None] | None:
    """`_chain` as a function of address and ends; None where OpenSSL's functions are not found, or nothing is compiled.

    They are looked for in what Python's own module links to, so that no other library is loaded.
    """
    if config.DISABLE_JIT:
        return None
    try:
        import _hashlib

        library = ctypes.CDLL(_hashlib.__file__)
        functions = [getattr(library, f"SHA256_{name}") for name in ("Init", "Update", "Final")]
    except (ImportError, OSError, AttributeError):
        return None
    init, update, final = (int(ctypes.cast(each, ctypes.c_void_p).value or 0) for each in functions)

    def chain(buffer: int, ends: Rows) -> None:
        _chain((init, update, final), buffer, ends)

    return chain if _is_right(chain) else None


def _is_right(chain: Callable[[int, Rows], None]) -> bool:
    """Whether it gives hashlib's digests: another library could have functions of these names."""
    ticks = np.arange(200 + DIGEST_BYTES, dtype=np.uint8)
    chain(ticks.ctypes.data, np.array([70, 200]))
    first, second = sha256(ticks.data[:70]).digest(), sha256(ticks.data[70:200]).digest()
    return ticks[70 : 70 + DIGEST_BYTES].tobytes() == first and ticks[200:].tobytes() == second


@intrinsic  # type: ignore[untyped-decorator]
def _call_c(typing: Any, function: Any, arguments: Any) -> Any:
    """Call a function of C with a tuple of 64-bit numbers; its result is ignored."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = cgutils.unpack_tuple(builder, args[1])
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(values))
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)
        return context.get_dummy_value()

    return types.void(types.int64, arguments), code


@kernel
def _chain(functions: tuple[int, int, int], buffer: int, ends: Rows) -> None:
    """Ticks lie one behind the other at `buffer`, each with the digest of the tick before it at its beginning.

    The first one has it already; it is written for the others, and behind the last. `functions`: init, update, final.
    """
    room, begin = _room(_CONTEXT_NUMBERS), 0
    context = _table_address(room)
    for k in range(ends.shape[0]):
        _call_c(functions[0], (context,))
        _call_c(functions[1], (context, buffer + begin, ends[k] - begin))
        _call_c(functions[2], (buffer + ends[k], context))
        begin = ends[k]
