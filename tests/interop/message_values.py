"""Messages of rclpy from and to dictionaries, lists and numbers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any


def type_of(name: str) -> Any:
    package, kind, short = name.split("/")
    return getattr(importlib.import_module(f"{package}.{kind}"), short)


def plain(value: Any) -> Any:
    """A message as dictionaries, lists and numbers."""
    if hasattr(value, "get_fields_and_field_types"):
        return {name: plain(getattr(value, name)) for name in value.get_fields_and_field_types()}
    if isinstance(value, bytes | bytearray):
        return value[0] if len(value) == 1 else list(value)
    if isinstance(value, str | bool | int | float):
        return value
    return [plain(element) for element in (value.tolist() if hasattr(value, "tolist") else value)]


def fill(message: Any, values: Mapping[str, Any]) -> Any:
    kinds = message.get_fields_and_field_types()
    for name, value in values.items():
        if name not in kinds:
            raise ValueError(f"{type(message).__name__} has no field {name}; there are: {', '.join(kinds)}")
        setattr(message, name, field(kinds[name], value))
    return message


def field(kind: str, value: Any) -> Any:
    element = kind.removeprefix("sequence<").removesuffix(">").split(",")[0].split("[")[0]
    if isinstance(value, list):
        return [field(element, each) for each in value]
    if "/" in element:
        package, short = element.split("/")
        return fill(type_of(f"{package}/msg/{short}")(), value)
    return bytes([value]) if element == "octet" else float(value) if element in ("float", "double") else value
