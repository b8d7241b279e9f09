"""Decoding bytes from outside: a message or WireError, never another exception and never garbage.

The bytes are checked against the type's definition before anything is allocated, so that a wrong length costs nothing.
A run of numbers whose layout is fixed is one comparison.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

from rosbags.interfaces import Nodetype

from microsim.errors import MicroSimError
from microsim.messages.types import ENCAPSULATION, decode, fields_of

LARGEST = 64 * 2**20  # [byte]
_TWIST_AND_ACCELERATION = struct.Struct("<12d")  # how a simulation_interfaces/msg/EntityState ends

_SIZES = {"bool": 1, "byte": 1, "char": 1, "float32": 4, "float64": 8} | {
    f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_Kind: TypeAlias = tuple[Nodetype, Any]
_Check: TypeAlias = Callable[[bytes, int], int]  # body, position -> position after what was checked


class WireError(MicroSimError, ValueError):
    """Bytes that are not an encoded message of the type they should have."""


def decode_checked(type_name: str, cdr: bytes) -> Any:
    """The message; raises WireError when `cdr` is anything but one message of this type in little-endian CDR."""
    check(type_name, cdr)
    return decode(type_name, cdr)


def decode_request(type_name: str, cdr: bytes) -> Any:
    """`decode_checked`, also for a client that has an older version of the type."""
    try:
        return decode_checked(type_name, cdr)
    except WireError:
        newer = modernised(type_name, cdr)
        if newer is None:
            raise
        return decode_checked(type_name, newer)


def modernised(type_name: str, cdr: bytes) -> bytes | None:
    """A request in the layout of an older version of its type, in the layout of ours; None: there is no older one.

    simulation_interfaces 1.x, as in ROS 2 Jazzy, sets the whole state of an entity; 2.x says which parts. LoadWorld,
    the other request that changed, has kept its bytes.
    """
    if type_name != "simulation_interfaces/srv/SetEntityState_Request" or len(cdr) < _TWIST_AND_ACCELERATION.size:
        return None
    numbers = _TWIST_AND_ACCELERATION.unpack_from(cdr, len(cdr) - _TWIST_AND_ACCELERATION.size)
    return cdr + bytes((True, any(numbers[:6]), any(numbers[6:]), 0))  # set_pose, set_twist, set_acceleration, padding


def check(type_name: str, cdr: bytes) -> None:
    """Raise WireError unless `cdr` is one encoded message of this type."""
    if bytes(cdr[:2]) != ENCAPSULATION[:2] or len(cdr) < len(ENCAPSULATION):
        raise WireError(f"{type_name}: {_encapsulation_problem(bytes(cdr[:4]))}")
    if len(cdr) > LARGEST:
        raise WireError(f"{type_name}: {len(cdr)} bytes are more than {LARGEST}")
    body, position = bytes(cdr[4:]), 0
    try:
        for step in _program(type_name):
            position = step(body, position)
    except _BytesError as problem:
        raise WireError(f"{type_name}: {problem}") from None
    if len(body) - position > 3:  # up to three bytes of padding
        raise WireError(f"{type_name}: {len(body) - position} bytes are left over")


class _BytesError(Exception):
    pass


def _encapsulation_problem(head: bytes) -> str:
    if len(head) < 4:
        return f"{len(head)} bytes are not a message"
    return "big-endian" if head[:2] == b"\x00\x00" else f"unknown encapsulation {head[:2].hex(' ')}"


@cache
def _program(type_name: str) -> tuple[_Check, ...]:
    return _steps((Nodetype.NAME, type_name))


def forget() -> None:
    """When definitions have changed."""
    _program.cache_clear()


def _steps(kind: _Kind) -> tuple[_Check, ...]:
    """Checks for one value of this kind; numbers side by side become one check."""
    steps: list[_Check] = []
    numbers: list[str] = []
    for part in _flat(kind):
        if isinstance(part, str):
            numbers.append(part)
            continue
        if numbers:
            steps.append(_numbers(tuple(numbers)))
            numbers = []
        steps.append(part)
    if numbers:
        steps.append(_numbers(tuple(numbers)))
    return tuple(steps)


def _flat(kind: _Kind) -> Iterator[str | _Check]:
    """Nested messages and arrays of fixed length unrolled: names of number types, and checks of what can vary."""
    node, detail = kind
    if node == Nodetype.NAME:
        for _, field in fields_of(detail):
            yield from _flat(field)
    elif node == Nodetype.BASE:
        texts = {"string": _string, "wstring": _wide_string}
        yield texts[detail[0]](detail[1]) if detail[0] in texts else detail[0]
    elif node == Nodetype.ARRAY:
        for _ in range(detail[1]):
            yield from _flat(detail[0])
    else:
        yield _sequence(detail[0], detail[1])


def _numbers(names: Sequence[str]) -> _Check:
    layouts = [_layout(names, start) for start in range(8)]  # alignment depends on where the run starts

    def check_numbers(body: bytes, position: int) -> int:
        size, bools = layouts[position & 7]
        if position + size > len(body):
            raise _BytesError(f"{len(body)} bytes are too few")
        for offset in bools:
            if body[position + offset] > 1:
                raise _BytesError(f"{body[position + offset]} is neither true nor false")
        return position + size

    return check_numbers


def _layout(names: Sequence[str], start: int) -> tuple[int, tuple[int, ...]]:
    """Size from `start` on, with the padding before and between, and where bools stand."""
    position, bools = start, []
    for name in names:
        position += -position % _SIZES[name]
        if name == "bool":
            bools.append(position - start)
        position += _SIZES[name]
    return position - start, tuple(bools)


def _length(body: bytes, position: int) -> tuple[int, int]:
    position += -position % 4
    if position + 4 > len(body):
        raise _BytesError(f"{len(body)} bytes are too few")
    return int.from_bytes(body[position : position + 4], "little"), position + 4


def _string(limit: int) -> _Check:
    def check_string(body: bytes, position: int) -> int:
        length, position = _length(body, position)
        if length == 0 or length > len(body) - position:
            raise _BytesError(f"a string of {length} bytes in a message of {len(body)}")
        text = body[position : position + length]
        if text.find(0) != length - 1:
            raise _BytesError("a string that does not end with its only zero byte")
        try:
            count = len(text[:-1].decode())
        except UnicodeDecodeError:
            raise _BytesError("a string that is not UTF-8") from None
        if limit and count > limit:
            raise _BytesError(f"a string of {count} characters where {limit} are allowed")
        return position + length

    return check_string


def _wide_string(limit: int) -> _Check:
    def check_wide_string(body: bytes, position: int) -> int:
        count, position = _length(body, position)
        if 4 * count > len(body) - position:
            raise _BytesError(f"a wstring of {count} units in a message of {len(body)} bytes")
        units = struct.unpack_from(f"<{count}I", body, position)
        if any(unit > 0xFFFF for unit in units):
            raise _BytesError(f"a wstring with {max(units)} in place of a unit of UTF-16")
        try:
            struct.pack(f"<{count}H", *units).decode("utf-16-le")
        except UnicodeDecodeError:
            raise _BytesError("a wstring that is not UTF-16") from None
        if limit and count > limit:
            raise _BytesError(f"a wstring of {count} units where {limit} are allowed")
        return position + 4 * count

    return check_wide_string


def _sequence(element: _Kind, limit: int) -> _Check:
    steps = _steps(element)
    smallest = _smallest(element)
    size = _SIZES.get(element[1][0]) if element[0] == Nodetype.BASE and element[1][0] != "bool" else None

    def check_sequence(body: bytes, position: int) -> int:
        count, position = _length(body, position)
        if count * smallest > len(body) - position:
            raise _BytesError(f"a sequence of {count} elements in a message of {len(body)} bytes")
        if limit and count > limit:
            raise _BytesError(f"a sequence of {count} elements where {limit} are allowed")
        if size is not None and count:
            position += -position % size + size * count
            if position > len(body):
                raise _BytesError(f"{len(body)} bytes are too few")
            return position
        for _ in range(count):
            for step in steps:
                position = step(body, position)
        return position

    return check_sequence


def _smallest(kind: _Kind) -> int:
    """No value of this kind takes fewer bytes."""
    node, detail = kind
    if node == Nodetype.NAME:
        return sum(_smallest(field) for _, field in fields_of(detail))
    if node == Nodetype.BASE:
        return {"string": 5, "wstring": 4}.get(detail[0]) or _SIZES[detail[0]]
    return int(_smallest(detail[0]) * detail[1]) if node == Nodetype.ARRAY else 4
