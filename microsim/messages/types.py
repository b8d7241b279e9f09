"""ROS 2 (Jazzy) message types: define, make, encode, decode.

`rosbags` defines the common messages. The folder `definitions/` adds services, actions and a few more packages
(simulation_interfaces 2.1, ackermann_msgs 2.0) as ROS 2 writes them: .msg, .srv and .action files, read on first use.
A service `pkg/srv/Name` gives the types `pkg/srv/Name_Request` and `pkg/srv/Name_Response`.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from rosbags.interfaces import Msgdef, Nodetype
from rosbags.typesys import store as _rosbags_store
from rosbags.typesys.store import Typestore
from rosbags.typesys.stores import ros2_jazzy

from microsim.errors import did_you_mean

Kind: TypeAlias = tuple[Nodetype, Any]  # a field's type, as rosbags describes it
Definition: TypeAlias = tuple[list[tuple[str, str, Any]], list[tuple[str, Kind]]]  # constants, fields

ENCAPSULATION = b"\x00\x01\x00\x00"  # XCDR1, little endian
DEFINITIONS = Path(__file__).with_name("definitions")  # <package>/<msg, srv or action>/<Name>.<the same>

NUMPY_TYPES = {
    "bool": np.bool_,
    "byte": np.uint8,
    "char": np.uint8,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "float32": np.float32,
    "float64": np.float64,
}

BASE_TYPE_IDS = _rosbags_store.TIDMAP  # in descriptions of types, and so in their hashes
BASE_TYPE_IDS["char"] = BASE_TYPE_IDS["uint8"]  # as rosidl counts it; rosbags 0.11 does not
BASE_TYPE_IDS["wstring"] = 18  # of rosidl; rosbags does not support it

# What a wstring is on the wire of rmw implementations: the units of UTF-16, each in four bytes, and no zero at the end.
_WIDE = "microsim_interfaces/msg/WideText"
TEXTS = ("string", "wstring")
_GOAL_ID = "unique_identifier_msgs/UUID goal_id\n"
_EMPTY = "uint8 structure_needs_at_least_one_member"  # the member that IDL adds to an empty struct
_LINE = re.compile(r"(?P<type>[\w/]+)(?P<many>\[(?P<count>\d*)\])?\s+(?P<name>\w+)\s*(=\s*(?P<value>\S+))?")


class _Store(Typestore):
    def get_msgdef(self, typename: str) -> Msgdef[object]:
        """Encode and decode `byte` as an octet, 0 to 255, which rosbags 0.11 takes for a signed number, and `wstring`.

        The definition itself must keep them, because the type hash tells them apart.
        """
        if typename not in self.cache:
            constants, fields = kept = self.fielddefs[typename]
            self.fielddefs[typename] = constants, [(name, _on_wire(kind)) for name, kind in fields]
            try:
                super().get_msgdef(typename)
            finally:
                self.fielddefs[typename] = kept
        return self.cache[typename]


def _on_wire(kind: Any) -> Any:
    node, detail = kind
    if node == Nodetype.BASE:
        if detail[0] == "wstring":
            return Nodetype.NAME, _WIDE
        return (node, ("uint8", 0)) if detail[0] == "byte" else kind
    return kind if node == Nodetype.NAME else (node, (_on_wire(detail[0]), detail[1]))


@cache
def store() -> Typestore:
    made = _Store(ros2_jazzy)
    made.register({_WIDE: ([], [("units", (Nodetype.SEQUENCE, ((Nodetype.BASE, ("uint32", 0)), 0)))])})
    return made


def store_with(type_name: str) -> Typestore:
    """The store, with the types of `definitions/` once one of them is needed."""
    types = store()
    if type_name not in types.fielddefs:
        _add_definitions()
    return types


@cache
def _add_definitions() -> None:
    store().register(definitions())  # type: ignore[arg-type] # its type of a dictionary lists every literal


def is_known(type_name: str) -> bool:
    return type_name in store_with(type_name).fielddefs


class UnknownTypeError(KeyError):
    """There is no message type of that name."""

    def __str__(self) -> str:
        return str(self.args[0])


def fields_of(type_name: str) -> list[tuple[str, Any]]:
    if not is_known(type_name):
        near = did_you_mean(type_name, store_with(type_name).fielddefs)
        raise UnknownTypeError(f"there is no message type {type_name!r}{near}")
    return list(store().fielddefs[type_name][1])


def constants_of(type_name: str) -> dict[str, Any]:
    return {name: value for name, _, value in store_with(type_name).fielddefs[type_name][0]}


def new(type_name: str, /, **values: Any) -> Any:
    """A message with every field at its zero, then `values`."""
    arguments = {name: values.pop(name) if name in values else zero(kind) for name, kind in fields_of(type_name)}
    if values:
        raise TypeError(f"{type_name} has no field {', '.join(values)}; there are: {', '.join(arguments)}")
    return store().types[type_name](**arguments)


def zero(kind: Kind) -> Any:
    node, detail = kind
    if node == Nodetype.BASE:
        base = detail[0]
        return "" if base in TEXTS else False if base == "bool" else 0.0 if base.startswith("float") else 0
    if node == Nodetype.NAME:
        return new(detail)
    element, length = detail
    if node == Nodetype.SEQUENCE:
        length = 0
    if element[0] == Nodetype.BASE and element[1][0] not in TEXTS:
        return np.zeros(length, NUMPY_TYPES[element[1][0]])
    return [zero(element) for _ in range(length)]


def encode(type_name: str, message: Any) -> bytes:
    """Encapsulation header and little-endian CDR, padded to four bytes as rmw implementations do."""
    definition = store_with(type_name).get_msgdef(type_name)
    if _has_wide_text(type_name):
        message = _converted(type_name, message, _units)
    size = definition.getsize_cdr(0, message, store())
    blob = bytearray(4 + size + (-size % 4))
    blob[:4] = ENCAPSULATION
    definition.serialize_cdr_le(memoryview(blob)[4:], 0, message, store())
    return bytes(blob)


def decode(type_name: str, cdr: bytes) -> Any:
    message = store_with(type_name).deserialize_cdr(cdr, type_name)
    return _converted(type_name, message, _text) if _has_wide_text(type_name) else message


@cache
def _has_wide_text(type_name: str) -> bool:
    return any(_is_wide(kind) for _, kind in fields_of(type_name))


def _is_wide(kind: Kind) -> bool:
    node, detail = kind
    if node == Nodetype.NAME:
        return _has_wide_text(detail)
    return bool(detail[0] == "wstring") if node == Nodetype.BASE else _is_wide(detail[0])


def _converted(type_name: str, message: Any, convert: Callable[[Any], Any]) -> Any:
    """A copy, with every wstring converted."""
    fields = fields_of(type_name)
    values = {name: _value(kind, getattr(message, name), convert) for name, kind in fields}
    return store().types[type_name](**values)


def _value(kind: Kind, value: Any, convert: Callable[[Any], Any]) -> Any:
    node, detail = kind
    if not _is_wide(kind):
        return value
    if node == Nodetype.NAME:
        return _converted(detail, value, convert)
    return convert(value) if node == Nodetype.BASE else [_value(detail[0], each, convert) for each in value]


def _units(text: str) -> Any:
    return store().types[_WIDE](np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2").astype(np.uint32))


def _text(wide: Any) -> str:
    return bytes(wide.units.astype("<u2").tobytes()).decode("utf-16-le", "replace")


@cache
def type_hash(type_name: str) -> str:
    return str(store_with(type_name).hash_rihs01(type_name))


# ---- older versions --------------------------------------------------------------------------------------------------

_OLDER_PARTS = {  # type -> the part of it that had other fields: simulation_interfaces 1.x, as in ROS 2 Jazzy
    "simulation_interfaces/srv/GetSpawnables_Response": {
        "simulation_interfaces/msg/Spawnable": "string uri\nstring description\nBounds spawn_bounds\n"
    }
}


def has_older_version(type_name: str) -> bool:
    return type_name in _OLDER_PARTS


def for_reader(type_name: str, cdr: bytes, its_hash: str) -> bytes | None:
    """A message in the version whose type hash the reader announces; None: that version is not known.

    Readers up to ROS 2 Humble announce none, and have the older version.
    """
    if its_hash == type_hash(type_name):
        return cdr
    older = _older_store(type_name)
    if its_hash not in ("", older.hash_rihs01(type_name)):
        return None
    message = _older(older, type_name, decode(type_name, cdr))
    size = older.get_msgdef(type_name).getsize_cdr(0, message, older)
    blob = bytearray(ENCAPSULATION + bytes(size + (-size % 4)))
    older.get_msgdef(type_name).serialize_cdr_le(memoryview(blob)[4:], 0, message, older)
    return bytes(blob)


@cache
def _older_store(type_name: str) -> Typestore:
    made = _Store(ros2_jazzy)
    parts = {name: _definition(name, text) for name, text in _OLDER_PARTS[type_name].items()}
    everything: Any = {**definitions(), **parts}
    made.register(everything)
    return made


def _older(store: Typestore, type_name: str, message: Any) -> Any:
    """With the fields of the older version; those of a resource were the entity's own."""
    values = {}
    fields: list[tuple[str, Any]] = list(store.fielddefs[type_name][1])
    for name, (node, detail) in fields:
        value = getattr(message, name, None)
        if value is None:
            value = getattr(message.entity_resource, name)
        if node == Nodetype.NAME:
            value = _older(store, detail, value)
        elif node == Nodetype.SEQUENCE and detail[0][0] == Nodetype.NAME:
            value = [_older(store, detail[0][1], each) for each in value]
        values[name] = value
    return store.types[type_name](**values)


# ---- the folder `definitions/` ---------------------------------------------------------------------------------------


def definitions() -> dict[str, Definition]:
    """Every type of the folder, in the form that rosbags registers."""
    texts: dict[str, str] = {}
    for path in sorted(DEFINITIONS.glob("*/*/*.*")):
        name, text = "/".join(path.relative_to(DEFINITIONS).with_suffix("").parts), path.read_text(encoding="utf-8")
        if path.suffix == ".srv":
            texts |= service_of(name, *text.split("---\n"))
        elif path.suffix == ".action":
            texts |= action_of(name, *text.split("---\n"))
        else:
            texts[name] = text
    return {name: _definition(name, text) for name, text in texts.items()}


def service_of(name: str, request: str, response: str) -> dict[str, str]:
    return {f"{name}_Request": request, f"{name}_Response": response}


def action_of(name: str, goal: str, result: str, feedback: str) -> dict[str, str]:
    """What rosidl makes of an action: three messages, two services and the message of the feedback topic."""
    return {
        f"{name}_Goal": goal,
        f"{name}_Result": result,
        f"{name}_Feedback": feedback,
        f"{name}_FeedbackMessage": f"{_GOAL_ID}{name}_Feedback feedback",
        **service_of(f"{name}_SendGoal", f"{_GOAL_ID}{name}_Goal goal", "bool accepted\nbuiltin_interfaces/Time stamp"),
        **service_of(f"{name}_GetResult", _GOAL_ID, f"int8 status\n{name}_Result result"),
    }


def _definition(name: str, text: str) -> Definition:
    constants, fields = [], []
    for line in _lines(name, text):
        if line["value"] is not None:
            constants.append((line["name"], line["type"], int(line["value"])))
        else:
            fields.append((line["name"], _kind(name.partition("/")[0], line)))
    return (constants, fields) if fields else _definition(name, f"{text}\n{_EMPTY}")


def _lines(name: str, text: str) -> Iterator[re.Match[str]]:
    for line in text.splitlines():
        content = line.partition("#")[0].strip()
        match = _LINE.fullmatch(content)
        if match is not None:
            yield match
        elif content:
            raise ValueError(f"{name}: expected a field or a constant, found {line!r}")


def _kind(package: str, line: re.Match[str]) -> Kind:
    element: Kind
    if line["type"] in NUMPY_TYPES or line["type"] == "string":
        element = (Nodetype.BASE, (line["type"], 0))
    else:
        element = (Nodetype.NAME, _full_name(package, line["type"]))
    if line["many"] is None:
        return element
    return (Nodetype.ARRAY if line["count"] else Nodetype.SEQUENCE), (element, int(line["count"] or 0))


def _full_name(package: str, name: str) -> str:
    parts = name.split("/")
    return name if len(parts) == 3 else f"{parts[0] if len(parts) == 2 else package}/msg/{parts[-1]}"
