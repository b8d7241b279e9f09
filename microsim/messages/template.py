"""Pre-encoded messages: when strings and lengths never change, only numbers have to be written again.

Encoding eight transforms from objects takes tens of microseconds; writing their numbers into a blob takes one. The
layout is computed from the type's definition, not searched for, and a test compares it with real encoding.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rosbags.interfaces import Nodetype

from microsim.errors import unknown
from microsim.messages.types import ENCAPSULATION, TEXTS, encode, fields_of

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


_STAMP = re.compile(r"((\w+\[\d+\]\.)?header\.)?stamp\.sec|clock\.sec")
_WRITABLE = {"d": 8, "f": 4, "B": 1}  # what kernels write: code -> size [byte]


@dataclass(frozen=True)
class ByteSpan:
    """Where numbers are in an encoded message: offset [byte], struct code, how many side by side."""

    offset: int
    code: str
    count: int


def layout(type_name: str, message: Any) -> dict[str, ByteSpan]:
    """Path of each number or array of numbers -> its place, in the order of the bytes."""
    return dict(_Walk().message(type_name, message, ""))


class _Walk:
    def __init__(self) -> None:
        self.position = 0  # alignment counts from after the encapsulation header

    def message(self, type_name: str, message: Any, path: str) -> Iterator[tuple[str, ByteSpan]]:
        for name, kind in fields_of(type_name):
            yield from self._value(kind, getattr(message, name), f"{path}.{name}" if path else name)

    def _value(self, kind: tuple[Nodetype, Any], value: Any, path: str) -> Iterator[tuple[str, ByteSpan]]:
        node, detail = kind
        if node == Nodetype.NAME:
            yield from self.message(detail, value, path)
        elif node == Nodetype.BASE:
            yield from self._numbers(detail[0], value, 1, path)
        else:
            if node == Nodetype.SEQUENCE:
                self._skip(4, 4)
            yield from self._elements(detail[0], value, path)

    def _elements(self, kind: tuple[Nodetype, Any], values: Any, path: str) -> Iterator[tuple[str, ByteSpan]]:
        if kind[0] == Nodetype.BASE and kind[1][0] not in TEXTS:
            if len(values):
                yield from self._numbers(kind[1][0], values, len(values), path)
            return
        for index, value in enumerate(values):
            yield from self._value(kind, value, f"{path}[{index}]")

    def _numbers(self, base: str, value: Any, count: int, path: str) -> Iterator[tuple[str, ByteSpan]]:
        if base in TEXTS:
            wide = base == "wstring"
            self._skip(4, 4 + (4 * len(value.encode("utf-16-le")) // 2 if wide else len(value.encode()) + 1))
            return
        size = struct.calcsize(_FORMATS[base])
        start = self._skip(size, size * count)
        yield path, ByteSpan(len(ENCAPSULATION) + start, _FORMATS[base], count)

    def _skip(self, alignment: int, size: int) -> int:
        start = self.position + (-self.position % alignment)
        self.position = start + size
        return start


class Prepared:
    """A message encoded once into memory that kernels write into: its numbers are aligned as processors need it.

    The CDR begins four bytes after a multiple of eight, so that what follows its own header of four bytes is aligned.
    """

    def __init__(self, type_name: str, message: Any, stamps: list[int] | None = None) -> None:
        """message: an object, or bytes with the offsets of its stamps."""
        self._places = layout(type_name, message) if stamps is None else {}
        self.bytes = _aligned(encode(type_name, message) if stamps is None else message)
        self._stamps = stamps

    def place(self, path: str, count: int = 1) -> tuple[int, int]:
        """Offset [byte] and size [byte] of so many numbers side by side, from one on; `path[k]` is an array's k-th."""
        is_element = path not in self._places and path.endswith("]")
        array, _, index = path[:-1].rpartition("[") if is_element else (path, "", "0")
        found = self._places.get(array)
        if found is None or not index.isdecimal():
            raise ValueError(unknown("the message has no number", repr(path), path, self._places))
        if found.code not in _WRITABLE:
            raise ValueError(f"{path}: a reading can fill float64, float32 and uint8, nothing else")
        size = _WRITABLE[found.code]
        offset = found.offset + size * int(index)
        room = self._room(offset, found.code)
        if room < count:
            raise ValueError(f"{path}: the reading has {count} numbers, the message has room for {room} side by side")
        return offset, size

    def _room(self, offset: int, code: str) -> int:
        """How many numbers of a kind are side by side from there on."""
        size, end = struct.calcsize(code), offset
        for place in self._places.values():
            last = place.offset + size * place.count
            if place.code == code and place.offset <= end < last:
                end = last
        return (end - offset) // size

    def without_last_array(self) -> tuple[npt.NDArray[np.uint8], int]:
        """The bytes before and after its last numbers, side by side, and how many come after: CDR is padded."""
        last = list(self._places.values())[-1]
        end = last.offset + struct.calcsize(last.code) * last.count
        return _aligned(bytes(self.bytes[: last.offset]) + bytes(self.bytes[end:])), self.bytes.size - end

    def stamps(self) -> list[int]:
        """Offsets of its time stamp, or of those of its parts."""
        if self._stamps is not None:
            return self._stamps
        return [place.offset for path, place in self._places.items() if _STAMP.fullmatch(path)]


def _aligned(blob: bytes) -> npt.NDArray[np.uint8]:
    cells = np.zeros((len(blob) + 4 + 7) // 8)
    found: npt.NDArray[np.uint8] = cells.view(np.uint8)[4 : 4 + len(blob)]
    found[:] = np.frombuffer(blob, np.uint8)
    return found


class Template:
    """A message encoded once; `encode` writes its changing numbers and gives the bytes.

    Each slot is a run of numbers that lie side by side: (path of the first, how many). Slots are named in their order.
    """

    def __init__(self, type_name: str, message: Any, *slots: tuple[str, int]) -> None:
        blob, places = encode(type_name, message), layout(type_name, message)
        codes, done = "<", 0
        self._arguments: list[Any] = []  # for struct: the bytes that stay the same, and in between the numbers
        self._spans: list[slice] = []
        for path, count in slots:
            start, run = _run(places, path, count)
            self._arguments.append(blob[done:start])
            self._spans.append(slice(len(self._arguments), len(self._arguments) + count))
            self._arguments += struct.unpack_from("<" + run, blob, start)
            codes += f"{start - done}s{run}"
            done = start + struct.calcsize("<" + run)
        self._arguments.append(blob[done:])
        self._pack = struct.Struct(f"{codes}{len(blob) - done}s").pack

    def encode(self, *values: Sequence[float]) -> bytes:
        """One sequence of numbers for each slot."""
        arguments = self._arguments
        for span, numbers in zip(self._spans, values, strict=True):
            arguments[span] = numbers
        return self._pack(*arguments)


class RawTemplate:
    """A message with a header whose one large array comes as bytes: an image, a scan."""

    def __init__(self, type_name: str, message: Any, array: str) -> None:
        blob, places = encode(type_name, message), layout(type_name, message)
        place = places[array]
        self._head = bytearray(blob[: place.offset])
        self._tail = blob[place.offset + struct.calcsize(place.code) * place.count :]
        self._stamp_at = places["header.stamp.sec"].offset

    def encode(self, stamp: tuple[int, int], data: bytes | memoryview) -> bytes:
        struct.pack_into("<iI", self._head, self._stamp_at, *stamp)
        return b"".join((self._head, data, self._tail))


def _run(places: dict[str, ByteSpan], path: str, count: int) -> tuple[int, str]:
    """Offset and struct codes of `count` numbers side by side from `path` on."""
    start = end = places[path].offset
    codes = ""
    for place in places.values():
        if place.offset == end and len(codes) < count:
            codes += place.code * place.count
            end += struct.calcsize(place.code) * place.count
    if len(codes) != count:
        raise ValueError(f"{count} numbers from {path} do not lie side by side")
    return start, codes
