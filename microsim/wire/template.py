"""Pre-encoded messages: when strings and lengths never change, only numbers have to be written anew.

Encoding an Odometry with eight transforms from objects takes tens of microseconds; writing its numbers into a blob takes
one. The layout is computed from the type's definition, not searched for, and a test compares it with real encoding.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from rosbags.interfaces import Nodetype

from microsim.wire.types import ENCAPSULATION, encode, fields_of

_FORMATS = {
    "bool": "?",
    "byte": "B",
    "char": "B",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}


def layout(type_name: str, message: Any) -> dict[str, tuple[int, str]]:
    """Path of each number -> (offset from the start of the encoded message, struct format)."""
    return {path: (offset + len(ENCAPSULATION), code) for path, offset, code in _Walk().message(type_name, message, "")}


class _Walk:
    def __init__(self) -> None:
        self.position = 0

    def message(self, type_name: str, message: Any, path: str) -> Iterator[tuple[str, int, str]]:
        for name, kind in fields_of(type_name):
            yield from self._value(kind, getattr(message, name), f"{path}.{name}" if path else name)

    def _value(self, kind: tuple[Nodetype, Any], value: Any, path: str) -> Iterator[tuple[str, int, str]]:
        node, detail = kind
        if node == Nodetype.BASE:
            yield from self._number_or_string(detail[0], value, path)
        elif node == Nodetype.NAME:
            yield from self.message(detail, value, path)
        else:
            if node == Nodetype.SEQUENCE:
                self._align(4)
                self.position += 4
            for index, element in enumerate(value):
                yield from self._value(detail[0], element, f"{path}[{index}]")

    def _number_or_string(self, base: str, value: Any, path: str) -> Iterator[tuple[str, int, str]]:
        if base == "string":
            self._align(4)
            self.position += 4 + len(value.encode()) + 1
            return
        size = struct.calcsize(_FORMATS[base])
        self._align(size)
        yield path, self.position, _FORMATS[base]
        self.position += size

    def _align(self, size: int) -> None:
        self.position += -self.position % size


class Template:
    """A message encoded once; `write(group, …)` puts numbers into it, `bytes(template.blob)` is the message.

    A group is a run of numbers that lie side by side, named by its first and its count: `("pose.pose.position.x", 7)`.
    """

    def __init__(self, type_name: str, message: Any, groups: Sequence[tuple[str, int]]) -> None:
        self.blob = bytearray(encode(type_name, message))
        places = layout(type_name, message)
        order = list(places)
        self.writers = [self._writer(places, order, first, count) for first, count in groups]

    def _writer(
        self, places: dict[str, tuple[int, str]], order: list[str], first: str, count: int
    ) -> tuple[struct.Struct, int]:
        begin = order.index(first)
        members = [places[path] for path in order[begin : begin + count]]
        packer = struct.Struct("<" + "".join(code for _, code in members))
        if len(members) != count or members[-1][0] + struct.calcsize(members[-1][1]) - members[0][0] != packer.size:
            raise ValueError(f"{count} numbers from {first} do not lie side by side")
        return packer, members[0][0]
