"""Messages from plain data, as a user writes it: `{"linear": {"x": 1.0}}`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from rosbags.interfaces import Nodetype

from microsim.errors import UsageError, did_you_mean
from microsim.messages.types import NUMPY_TYPES, Kind, fields_of, new


def from_mapping(type_name: str, values: Mapping[str, Any]) -> Any:
    """A message with the fields given and every other at its zero; a field may also be given as a message."""
    return fill(new(type_name), values)


def fill(message: Any, values: Mapping[str, Any]) -> Any:
    """Set fields of a message of ours or of rclpy, nested ones from mappings; gives the message."""
    own_type = getattr(message, "__msgtype__", None)
    kinds: Mapping[str, Any] = dict(fields_of(own_type)) if own_type else message.get_fields_and_field_types()
    for name, value in values.items():
        if name not in kinds:
            raise UsageError(f"{own_type or type(message).__name__} has no field {name!r}{did_you_mean(name, kinds)}")
        setattr(message, name, (_made if own_type else _made_for_rclpy)(kinds[name], value))
    return message


def _made(kind: Kind, value: Any) -> Any:
    node, detail = kind
    if node == Nodetype.NAME:
        return from_mapping(detail, value) if isinstance(value, Mapping) else value
    if node == Nodetype.BASE:
        return value
    element, _ = detail
    if element[0] == Nodetype.BASE and element[1][0] != "string":
        return np.asarray(value, NUMPY_TYPES[element[1][0]])
    return [_made(element, part) for part in value]


def _made_for_rclpy(kind: str, value: Any) -> Any:
    """`kind` as rclpy writes it: double, geometry_msgs/Point, sequence<octet, 10>, double[36]."""
    element = kind.removeprefix("sequence<").removesuffix(">").split(",", maxsplit=1)[0].split("[", maxsplit=1)[0]
    if element != kind:
        return [_made_for_rclpy(element, part) for part in value]
    if isinstance(value, Mapping):
        package, name = kind.split("/")
        return fill(getattr(import_module(f"{package}.msg"), name)(), value)
    if kind == "octet":
        return bytes([value])
    return float(value) if kind in ("float", "double") else value
