"""Fill messages of any transport: those of `rosbags` and those of rclpy have the same fields, but other classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from microsim.messages import fields_of, new


def fill(message: Any, values: Mapping[str, Any]) -> Any:
    """Set fields from plain data; a mapping fills a message, a list of mappings a list of messages."""
    for name, value in values.items():
        present = getattr(message, name)
        if isinstance(value, Mapping):
            fill(present, value)
        elif _is_messages(value):
            setattr(message, name, [fill(_element(message, name), item) for item in value])
        elif isinstance(present, np.ndarray):
            setattr(message, name, np.array(value, present.dtype))
        else:
            setattr(message, name, value)
    return message


def _is_messages(value: Any) -> bool:
    return isinstance(value, Sequence) and bool(value) and isinstance(value[0], Mapping)


def _element(message: Any, field: str) -> Any:
    """A new message of the kind that a sequence field holds."""
    own_type = getattr(message, "__msgtype__", None)
    if own_type is not None:  # rosbags
        kind = dict(fields_of(own_type))[field]
        return new(kind[1][0][1])
    text: str = message.get_fields_and_field_types()[field]  # rclpy: sequence<package/Name>
    package, name = text[text.index("<") + 1 : text.index(">")].split(",", maxsplit=1)[0].split("/")
    return getattr(import_module(f"{package}.msg"), name)()
