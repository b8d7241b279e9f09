"""The memory of a simulation as bytes and back: a closed list of types, and nothing that could run code."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from microsim.engine.radio import Link, Packet
from microsim.engine.schedule import Command, Teleport, Transmission
from microsim.errors import MicroSimError
from microsim.messages.outbox import Message
from microsim.plugin_output import PluginMemory, SensorContext


class SnapshotError(MicroSimError):
    """A snapshot cannot be written to or read from a file."""


_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Command, Teleport, Transmission, Link, Packet, Message, PluginMemory)
}
_ARRAYS = frozenset("biufc?")  # kinds of NumPy types that are numbers
_DEEPEST = 50


def to_bytes(value: Any) -> bytes:
    out = bytearray()
    _write(out, value)
    return bytes(out)


def from_bytes(data: bytes) -> Any:
    """What `to_bytes` was given; SnapshotError on anything else."""
    reader = _Reader(data)
    try:
        value = reader.value()
    except (struct.error, IndexError, ValueError, TypeError, KeyError, UnicodeDecodeError, OverflowError) as error:
        raise SnapshotError(f"damaged: {type(error).__name__}: {error}") from None
    if reader.position != len(data):
        raise SnapshotError(f"damaged: {len(data) - reader.position} bytes are left over")
    return value


# ---- writing --------------------------------------------------------------------------------------------------------


def _write(out: bytearray, value: Any) -> None:
    kind = type(value)
    if value is None or kind is bool:
        out += b"N" if value is None else b"T" if value else b"F"
    elif kind in _SIMPLE:
        code, raw = _SIMPLE[kind](value)
        out += code + struct.pack("<I", len(raw)) + raw
    elif kind is tuple and value and isinstance(value[0], SensorContext):
        _write(out, _plugin_memory(*value))
    elif kind in (list, tuple):
        _write_all(out, b"l" if kind is list else b"t", value)
    elif kind is dict:
        _write_all(out, b"d", [part for pair in value.items() for part in pair])
    elif isinstance(value, (np.ndarray, np.generic)):
        _write_array(out, value)
    elif _KINDS.get(kind.__name__) is kind:
        _write_all(out, b"k", [kind.__name__, *_parts(value)])
    else:
        raise SnapshotError(f"a {kind.__module__}.{kind.__qualname__} cannot be written to a file")


_SIMPLE: dict[type, Callable[[Any], tuple[bytes, bytes]]] = {
    int: lambda value: (b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)),
    float: lambda value: (b"f", struct.pack("<d", value)),
    str: lambda value: (b"s", value.encode()),
    bytes: lambda value: (b"b", value),
}


def _write_all(out: bytearray, code: bytes, values: Any) -> None:
    out += code + struct.pack("<I", len(values))
    for value in values:
        _write(out, value)


def _write_array(out: bytearray, value: Any) -> None:
    if value.dtype.kind not in _ARRAYS:
        raise SnapshotError(f"an array of {value.dtype} cannot be written to a file")
    is_array = isinstance(value, np.ndarray)
    raw = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
    shape = value.shape if is_array else None
    _write_all(out, b"a", [value.dtype.newbyteorder("<").str, shape, raw])


def _parts(value: Any) -> list[Any]:
    if isinstance(value, tuple):  # named
        return list(value)
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    return [value.topic, value.type, value.stamp_ns, value.cdr]


def _plugin_memory(context: SensorContext, sensor: Any) -> PluginMemory:
    """What a third party's sensor says of itself."""
    who = f"the sensor {context.robot}/{context.sensor}"
    if not (callable(getattr(sensor, "memory", None)) and callable(getattr(sensor, "recall", None))):
        raise SnapshotError(
            f"{who} is a plug-in whose state nobody else knows: to be saved it needs `memory()`, which gives plain "
            "data, and `recall(data)`, which takes it back"
        )
    try:
        return PluginMemory(sensor.memory())
    except Exception as error:  # a third party's code: anything may come
        raise SnapshotError(f"{who}: memory() failed: {type(error).__name__}: {error}") from error


# ---- reading --------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self._depth = 0

    def value(self) -> Any:
        code = self._take(1)
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        (count,) = struct.unpack("<I", self._take(4))
        if code in _READ:
            return _READ[code](self._take(count))
        return self._container(code, count)

    def _container(self, code: bytes, count: int) -> Any:
        if count > len(self.data) - self.position or self._depth >= _DEEPEST:
            raise ValueError("a length that cannot be")
        self._depth += 1
        values = [self.value() for _ in range(count)]
        self._depth -= 1
        if code == b"l":
            return values
        if code == b"t":
            return tuple(values)
        if code == b"d":
            return dict(zip(values[::2], values[1::2], strict=True))
        if code == b"a":
            return _array(*values)
        if code == b"k":
            return _KINDS[values[0]](*values[1:])
        raise ValueError(f"unknown code {code!r}")

    def _take(self, size: int) -> bytes:
        part = self.data[self.position : self.position + size]
        if len(part) < size:
            raise ValueError("it ends too soon")
        self.position += size
        return part


_CONSTANTS = {b"N": None, b"T": True, b"F": False}
_READ: dict[bytes, Callable[[bytes], Any]] = {
    b"i": lambda raw: int.from_bytes(raw, "little", signed=True),
    b"f": lambda raw: struct.unpack("<d", raw)[0],
    b"s": lambda raw: raw.decode(),
    b"b": bytes,
}


def _array(kind: str, shape: tuple[int, ...] | None, raw: bytes) -> Any:
    dtype = np.dtype(kind)
    if dtype.kind not in _ARRAYS:
        raise ValueError(f"an array of {kind}")
    flat = np.frombuffer(raw, dtype)
    return flat[0] if shape is None else flat.reshape(shape).copy()
