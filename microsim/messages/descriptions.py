"""What a type is, as the service `get_type_description` of a ROS 2 node answers it: REP 2016."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rosbags.interfaces import Nodetype

from microsim.messages.definition_text import constant_lines, field_lines
from microsim.messages.types import BASE_TYPE_IDS, Kind, fields_of, is_known, new, type_hash

GET_TYPE_DESCRIPTION = "type_description_interfaces/srv/GetTypeDescription"
_NESTED, _BOUNDED_STRING = 1, 21  # ids of types of fields; further ones in BASE_TYPE_IDS
_ARRAY, _BOUNDED_SEQUENCE, _SEQUENCE = 48, 96, 144  # that are added to them
_PACKAGE = "type_description_interfaces/msg"


def answer_type_description(request: Any, response: Any) -> None:
    """Without default values of fields, which are not kept; sources are written from the types, without comments."""
    name = request.type_name
    if not is_known(name):
        response.failure_reason = f"{name!r} is not a type that this node knows"
        return
    if request.type_hash != type_hash(name):
        response.failure_reason = f"{name} has the type hash {type_hash(name)} here, not {request.type_hash!r}"
        return
    used = [name, *sorted(_nested(name) - {name})]
    described = [_described(each) for each in used]
    response.type_description = new(
        f"{_PACKAGE}/TypeDescription", type_description=described[0], referenced_type_descriptions=described[1:]
    )
    if request.include_type_sources:
        response.type_sources = [
            new(f"{_PACKAGE}/TypeSource", type_name=each, encoding="msg", raw_file_contents=_source(each))
            for each in used
        ]
    response.successful = True


def _described(name: str) -> Any:
    fields = [
        new(f"{_PACKAGE}/Field", name=field, type=new(f"{_PACKAGE}/FieldType", **_field_type(kind)))
        for field, kind in fields_of(name)
    ]
    return new(f"{_PACKAGE}/IndividualTypeDescription", type_name=name, fields=fields)


def _field_type(kind: Kind) -> dict[str, Any]:
    node, detail = kind
    if node in (Nodetype.ARRAY, Nodetype.SEQUENCE):
        element, capacity = detail
        many = _ARRAY if node == Nodetype.ARRAY else _BOUNDED_SEQUENCE if capacity else _SEQUENCE
        inner = _field_type(element)
        return {**inner, "type_id": inner["type_id"] + many, "capacity": capacity}
    if node == Nodetype.NAME:
        return {"type_id": _NESTED, "nested_type_name": detail}
    base, longest = detail
    if longest:
        return {"type_id": _BOUNDED_STRING, "string_capacity": longest}
    return {"type_id": BASE_TYPE_IDS[base]}


def _nested(name: str) -> set[str]:
    """Types within it, at any depth."""
    found: set[str] = set()
    for _, within in field_lines(name):
        if within and within not in found:
            found |= {within} | _nested(within)
    return found


def _source(name: str) -> str:
    return "".join(f"{line}\n" for line in _source_lines(name))


def _source_lines(name: str) -> Iterator[str]:
    yield from constant_lines(name)
    for line, _ in field_lines(name):
        yield line
