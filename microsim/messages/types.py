"""ROS 2 (Jazzy) message types: make, encode, decode."""

from functools import cache
from typing import Any

import numpy as np
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys import store as _rosbags_store
from rosbags.typesys.store import Typestore

from microsim.messages.definitions import definitions

ENCAPSULATION = b"\x00\x01\x00\x00"  # XCDR1, little endian

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


@cache
def store() -> Typestore:
    # rosidl counts `char` as uint8 in type hashes; rosbags 0.11 does not
    _rosbags_store.TIDMAP["char"] = _rosbags_store.TIDMAP["uint8"]
    return get_typestore(Stores.ROS2_JAZZY)


@cache
def _add_services() -> None:
    store().register(definitions())  # type: ignore[arg-type] # its type of a dictionary lists every literal


def store_with(type_name: str) -> Typestore:
    """The store, with services once somebody asks for one: they take a moment to make."""
    types = store()
    if type_name not in types.fielddefs:
        _add_services()
    return types


def is_known(type_name: str) -> bool:
    return type_name in store_with(type_name).fielddefs


def fields_of(type_name: str) -> list[tuple[str, Any]]:
    return list(store_with(type_name).fielddefs[type_name][1])


def constants_of(type_name: str) -> dict[str, Any]:
    return {name: value for name, _, value in store_with(type_name).fielddefs[type_name][0]}


def new(type_name: str, /, **values: Any) -> Any:
    """A message with every field at its zero, then `values`."""
    arguments = {name: values.pop(name) if name in values else _zero(kind) for name, kind in fields_of(type_name)}
    if values:
        raise TypeError(f"{type_name} has no field {', '.join(values)}; there are: {', '.join(arguments)}")
    return store().types[type_name](**arguments)


def _zero(kind: tuple[Nodetype, Any]) -> Any:
    node, detail = kind
    if node == Nodetype.BASE:
        base = detail[0]
        return "" if base == "string" else False if base == "bool" else 0.0 if base.startswith("float") else 0
    if node == Nodetype.NAME:
        return new(detail)
    element, length = detail
    if node == Nodetype.SEQUENCE:
        length = 0
    if element[0] == Nodetype.BASE and element[1][0] != "string":
        return np.zeros(length, NUMPY_TYPES[element[1][0]])
    return [_zero(element) for _ in range(length)]


def encode(type_name: str, message: Any) -> bytes:
    """Encapsulation header and little-endian CDR, padded to four bytes as rmw implementations do."""
    definition = store_with(type_name).get_msgdef(type_name)
    size = definition.getsize_cdr(0, message, store())
    blob = bytearray(4 + size + (-size % 4))
    blob[:4] = ENCAPSULATION
    definition.serialize_cdr_le(memoryview(blob)[4:], 0, message, store())
    return bytes(blob)


def decode(type_name: str, cdr: bytes) -> Any:
    return store_with(type_name).deserialize_cdr(cdr, type_name)


@cache
def type_hash(type_name: str) -> str:
    return str(store_with(type_name).hash_rihs01(type_name))
