"""Definitions of types as ROS 2 writes them in .msg files, without comments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rosbags.interfaces import Nodetype

from microsim.messages.types import fields_of, store

_FILLER = "structure_needs_at_least_one_member"  # of a type without fields


def constant_lines(type_name: str) -> Iterator[str]:
    fields_of(type_name)  # its error, where there is no such type
    for name, kind, value in store().fielddefs[type_name][0]:
        yield f"{kind} {name}={repr(value) if isinstance(value, str) else value}"


def field_lines(type_name: str) -> Iterator[tuple[str, str]]:
    """Each field, and the type whose fields it has; empty: it has none."""
    package = type_name.partition("/")[0]
    for name, kind in fields_of(type_name):
        if name != _FILLER:
            text, within = _type_text(kind, package)
            yield f"{text} {name}", within


def _type_text(kind: Any, package: str) -> tuple[str, str]:
    node, detail = kind
    if node == Nodetype.BASE:
        name, longest = detail
        return f"{name}<={longest}" if longest else name, ""
    if node == Nodetype.NAME:
        parts = detail.split("/")
        return parts[-1] if parts[0] == package else f"{parts[0]}/{parts[-1]}", detail
    element, count = detail
    text, within = _type_text(element, package)
    limit = f"<={count}" if node == Nodetype.SEQUENCE and count else str(count or "")
    return f"{text}[{limit}]", within
