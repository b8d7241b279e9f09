"""A message of any type with something different in every field."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
from rosbags.interfaces import Nodetype

from microsim import messages as wire

LENGTH = 3  # of every sequence


def sample(type_name: str, numbers: Any = None) -> Any:
    numbers = numbers or count(1)
    return wire.new(type_name, **{name: _value(kind, numbers) for name, kind in wire.fields_of(type_name)})


def sample_bytes(type_name: str) -> bytes:
    return wire.encode(type_name, sample(type_name))


def _value(kind: tuple[Nodetype, Any], numbers: Any) -> Any:
    node, detail = kind
    if node == Nodetype.NAME:
        return sample(detail, numbers)
    if node == Nodetype.BASE:
        return _scalar(detail[0], next(numbers))
    element, length = detail
    values = [_value(element, numbers) for _ in range(length or LENGTH)]
    if element[0] == Nodetype.BASE and element[1][0] != "string":
        return np.array(values, {"byte": "uint8", "char": "uint8"}.get(element[1][0], element[1][0]))
    return values


def _scalar(base: str, number: int) -> Any:
    if base == "string":
        return "µ" * (number % 5) + str(number)
    return bool(number % 2) if base == "bool" else number + 0.5 if base.startswith("float") else number % 100
