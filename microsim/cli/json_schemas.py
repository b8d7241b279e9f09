"""JSON schemas of what commands print with `--json`.

A command declares its output once, as a `TypedDict` whose fields have descriptions (`Annotated[int, "…"]`), and names
it in its `Command(json=…)`. Everything else is derived: `microsim schema run`, the documentation, and the test that
validates real outputs. Fields may be added; none is removed or changes its type.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from typing_extensions import NotRequired, TypedDict, get_type_hints, is_typeddict

_SIMPLE = {int: "integer", float: "number", str: "string", bool: "boolean", NoneType: "null"}


def schema_of(declared: Any, title: str) -> dict[str, Any]:
    """A JSON schema (draft 2020-12) of a declaration. Fields that are not listed are allowed: they may be added."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return {**head, **_schema(declared)}


def with_fields(declared: Any, *added: Any) -> Any:
    """A declaration with the fields of others."""
    if not added:
        return declared
    hints: dict[str, Any] = {}
    for each in (declared, *added):
        hints |= get_type_hints(each, include_extras=True)
    make: Any = TypedDict
    made = make(declared.__name__, hints)
    made.__doc__ = declared.__doc__
    return made


def _schema(kind: Any) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {"description": arguments[1], **_schema(arguments[0])}
    if origin is NotRequired:
        return _schema(arguments[0])
    if origin in (Union, UnionType):
        return {"anyOf": [_schema(each) for each in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    if is_typeddict(kind):
        return _object(kind)
    return {} if kind is Any else {"type": _SIMPLE[kind]}


def _object(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    about = (kind.__doc__ or "").strip()
    fields = {name: _schema(hint) for name, hint in hints.items()}
    required = [name for name, hint in hints.items() if get_origin(_bare(hint)) is not NotRequired]
    return {
        "type": "object",
        **({"description": about} if about else {}),
        "properties": fields,
        "required": required,
    }


def _bare(hint: Any) -> Any:
    """`NotRequired[Annotated[…]]` and `Annotated[NotRequired[…], …]` are both written."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


# ---- outputs, and parts of them, that several commands have ----------------------------------------------------------

Digest = Annotated[str, "SHA-256 over every message, in hexadecimal digits."]
SimulatedTime = Annotated[float, "Simulated time at the end [s]."]
Ticks = Annotated[int, "Ticks that were run."]


class DifferenceOutput(TypedDict):
    """The first message that differs."""

    after_messages: Annotated[int, "Messages before it, which are the same."]
    topic: Annotated[str | None, "Its topic; null: one of the recordings has ended."]
    time_ns: Annotated[int | None, "Its time [ns]."]
    field: Annotated[str | None, "Path of the first field that differs; null: it is not the same message."]
    values: NotRequired[Annotated[dict[str, Any], "The field's values, by recording."]]
    about: Annotated[str, "The same as text."]


class ComparisonOutput(TypedDict):
    identical: Annotated[bool, "Whether nothing differs."]
    messages: Annotated[int, "Messages that were compared and are the same."]
    problem: Annotated[str, "What differs apart from messages; empty: nothing."]
    is_partial: Annotated[bool, "Whether only some topics were recorded, and these were compared."]
    difference: Annotated[DifferenceOutput | None, "The first difference; null: there is none in the messages."]


LinkNames = TypedDict("LinkNames", {"from": str, "to": str})


class LinkOutput(LinkNames):
    """One direction of the radio."""

    sent: int
    delivered: int
    dropped: int
    overflowed: Annotated[int, "Packets that found the queue full."]
    queued: Annotated[int, "Packets still under way."]
    latency_ms_mean: float


class RunOutput(TypedDict):
    scenario: Annotated[str, "Name of the scenario."]
    seed: int
    version: Annotated[str, "Of MicroSim."]
    ticks: Ticks
    sim_s: SimulatedTime
    wall_s: Annotated[float, "Wall time, without pauses [s]."]
    rtf: Annotated[float, "Simulated seconds per second."]
    messages: Annotated[int, "Messages that were sent."]
    digest: Digest
    ignored: Annotated[dict[str, int], "Inputs that were ignored: why, and how many."]
    radio: Annotated[list[LinkOutput], "Counts of each direction."]
