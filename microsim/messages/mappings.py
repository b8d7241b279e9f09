"""Messages from plain mappings, as a user writes them: `{"linear": {"x": 1.0}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rosbags.interfaces import Nodetype

from microsim.errors import UsageError, did_you_mean
from microsim.messages.types import NUMPY_TYPES, fields_of, new


def from_mapping(type_name: str, values: Mapping[str, Any]) -> Any:
    """A message with the fields given and every other at its zero; a field may also be given as a message."""
    kinds = dict(fields_of(type_name))
    for name in values:
        if name not in kinds:
            raise UsageError(f"{type_name} has no field {name!r}{did_you_mean(name, kinds)}")
    return new(type_name, **{name: _made(kinds[name], value) for name, value in values.items()})


def _made(kind: tuple[Nodetype, Any], value: Any) -> Any:
    node, detail = kind
    if node == Nodetype.NAME:
        return from_mapping(detail, value) if isinstance(value, Mapping) else value
    if node == Nodetype.BASE:
        return value
    element, _ = detail
    if element[0] == Nodetype.BASE and element[1][0] != "string":
        return np.asarray(value, NUMPY_TYPES[element[1][0]])
    return [_made(element, part) for part in value]
