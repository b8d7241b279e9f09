"""Where two messages, or two streams of them, differ first; told so that a person sees it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from microsim.messages import WireError, decode_checked, fields_of, is_known


@dataclass(frozen=True)
class Entry:
    """One message of a stream."""

    topic: str
    type: str
    time_ns: int
    cdr: bytes

    def __str__(self) -> str:
        return f"{self.topic} at {self.time_ns / 1e9:.9f} s"


@dataclass(frozen=True)
class Place:
    """A message with the one before and the one after it; None: there is none."""

    before: Entry | None
    here: Entry | None
    after: Entry | None

    def __str__(self) -> str:
        if self.here is None:
            return f"nothing more, after {self.before or 'nothing'}"
        return f"{self.here}, between {self.before or 'the start'} and {self.after or 'the end'}"


@dataclass(frozen=True)
class Difference:
    """The first difference between two streams, and what to call them."""

    number: int  # messages that are the same before it
    first: Place
    second: Place
    names: tuple[str, str] = ("recorded", "replayed")

    def field(self) -> tuple[str, Any, Any] | None:
        """Path and both values, when the same message is in both with another content."""
        one, other = self.first.here, self.second.here
        if one is None or other is None or (one.topic, one.type) != (other.topic, other.type):
            return None
        return first_field(one.type, one.cdr, other.cdr)

    def __str__(self) -> str:
        width = max(map(len, self.names))
        lines = [self._headline()]
        found = self.field()
        if found is not None:
            where, *values = _shown_apart(*found)
            lines.append(f"  field {where}")
            for name, value in zip(self.names, values, strict=True):
                lines.append(f"    {name:{width}}  {value}")
        for name, place in zip(self.names, (self.first, self.second), strict=True):
            lines.append(f"  {name:{width}}  {place}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For machines; `about` is what a person is told."""
        entry = self.first.here or self.second.here
        facts: dict[str, Any] = {"after_messages": self.number, "topic": None, "time_ns": None, "field": None}
        if entry is not None:
            facts |= {"topic": entry.topic, "time_ns": entry.time_ns}
        found = self.field()
        if found is not None:
            where, *values = _shown_apart(*found)
            facts |= {"field": where, "values": dict(zip(self.names, values, strict=True))}
        return {**facts, "about": str(self)}

    def _headline(self) -> str:
        entry = self.first.here or self.second.here
        stamp = stamp_of(entry) if entry is not None else None
        stamped = f", stamp {stamp / 1e9:.9f} s" if stamp is not None else ""
        return f"different after {self.number:,} messages: {entry or 'the end'}{stamped}"


def stamp_of(entry: Entry) -> int | None:
    """[ns] of the message's header or clock, where it has one."""
    try:
        message = decode_checked(entry.type, entry.cdr)
    except (WireError, KeyError):
        return None
    stamp = getattr(getattr(message, "header", None), "stamp", getattr(message, "clock", None))
    return None if stamp is None else int(stamp.sec) * 10**9 + int(stamp.nanosec)


def first_field(type_name: str, one: bytes, other: bytes) -> tuple[str, Any, Any] | None:
    """Path of the first field that differs, and its two values."""
    if one == other:
        return None
    try:
        if not is_known(type_name):
            raise WireError("a type of its own")
        first, second = decode_checked(type_name, one), decode_checked(type_name, other)
    except WireError:
        return _first_byte(one, other)
    return next(_differences(type_name, first, second, ""), None) or _first_byte(one, other)


def _first_byte(one: bytes, other: bytes) -> tuple[str, Any, Any]:
    at = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        return "(length in bytes)", len(one), len(other)
    return f"(byte {at})", one[at], other[at]


def _differences(type_name: str, one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    for name, (_, detail) in fields_of(type_name):
        inner = f"{path}.{name}" if path else name
        yield from _values(detail, getattr(one, name), getattr(other, name), inner)


def _values(detail: Any, one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(detail, str):
        yield from _differences(detail, one, other, path)
    elif isinstance(one, (list, np.ndarray)):
        yield from _elements(detail, one, other, path)
    elif not _same(one, other):
        yield path, one, other


def _elements(detail: Any, one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if len(one) != len(other):
        yield f"{path} (length)", len(one), len(other)
    if isinstance(one, np.ndarray):
        shared = min(len(one), len(other))
        wide = f"V{one.dtype.itemsize}"
        for index in np.flatnonzero(one[:shared].view(wide) != other[:shared].view(wide))[:1].tolist():
            yield f"{path}[{index}]", one[index].item(), other[index].item()
        return
    kind = detail[0][1] if isinstance(detail, Sequence) and isinstance(detail[0], Sequence) else detail
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        yield from _values(kind, left, right, f"{path}[{index}]")


def _same(one: Any, other: Any) -> bool:
    """Bit for bit: 0.0 and -0.0 differ, a NaN equals itself."""
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)
    return bool(one == other)


_WIDTH = 200  # of a value, in characters
_BEFORE = 60  # characters of a long text that are shown before the first difference


def _shown_apart(path: str, one: Any, other: Any) -> tuple[str, str, str]:
    """Of long texts, the part in which they differ."""
    if isinstance(one, str) and isinstance(other, str) and max(len(one), len(other)) > _WIDTH:
        at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        start = max(at - _BEFORE, 0)
        dots = "…" if start else ""
        shown = [f"{dots}{_shown(text[start : start + _WIDTH - _BEFORE])}" for text in (one, other)]
        return f"{path}, from character {at:,} on", shown[0], shown[1]
    return path, _shown(one), _shown(other)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}…"
