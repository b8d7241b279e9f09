"""Messages from plain data, as a user writes it (`{"linear": {"x": 1.0}}`), and back."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from rosbags.interfaces import Nodetype

from microsim.errors import UsageError, did_you_mean, show, there_are
from microsim.messages.types import NUMPY_TYPES, TEXTS, Kind, fields_of, new, zero

TIME, HEADER = "builtin_interfaces/msg/Time", "std_msgs/msg/Header"
NOW, AUTO = "now", "auto"  # for a Time and for a Header: the present, as `ros2 topic pub` has it
_DEFAULTS = {"geometry_msgs/msg/Quaternion": {"w": 1.0}}  # of common_interfaces; rosbags leaves them out
_BYTES = ("uint8", "byte", "char")
_MOST_PROBLEMS = 20


def from_mapping(type_name: str, values: Mapping[str, Any], defaults: bool = False) -> Any:
    """A message with the fields given and every other at its zero; a field may also be given as a message.

    `defaults`: quaternions that are not given are 1, as in rclpy. Raises UsageError with the path of each wrong field.
    """
    reader = _Reader(defaults)
    message = reader.message(type_name, values, "")
    if reader.problems:
        raise UsageError(_explained(type_name, reader.problems))
    return message


def fill(message: Any, values: Mapping[str, Any]) -> Any:
    """Set fields of a message of ours or of rclpy, nested ones from mappings; gives the message."""
    own_type = getattr(message, "__msgtype__", None)
    if own_type is None:
        return _fill_for_rclpy(message, values)
    made = from_mapping(own_type, values)
    for name in values:
        setattr(message, name, getattr(made, name))
    return message


def _explained(type_name: str, problems: list[str]) -> str:
    if len(problems) == 1:
        return problems[0] if problems[0].startswith(type_name) else f"{type_name}: {problems[0]}"
    return "\n  ".join([f"{type_name}: {len(problems)} problems:", *problems[:_MOST_PROBLEMS]])


class _Reader:
    """Makes messages and collects what is wrong with the values."""

    def __init__(self, defaults: bool) -> None:
        self.problems: list[str] = []
        self._defaults = defaults

    def wrong(self, path: str, expected: str, found: Any) -> None:
        self.problems.append(f"{path}: expected {expected}, found {show(found)}")

    def message(self, type_name: str, values: Any, path: str) -> Any:
        if getattr(values, "__msgtype__", None) == type_name:
            return values
        if (type_name, values) in ((TIME, NOW), (HEADER, AUTO)):
            present = new(TIME, **dict(zip(("sec", "nanosec"), divmod(time.time_ns(), 10**9), strict=True)))
            return present if type_name == TIME else new(HEADER, stamp=present)
        fields = dict(fields_of(type_name))
        if not isinstance(values, Mapping):
            self.wrong(path or type_name, f"a mapping with {', '.join(fields)} ({type_name})", values)
            return None
        given = {**_DEFAULTS.get(type_name, {}), **values} if self._defaults else values
        for name in given:
            if name not in fields:
                guess = did_you_mean(name, fields) or ";"
                where = f"{path}: " if path else ""
                self.problems.append(f"{where}{type_name} has no field {name!r}{guess} {there_are(fields)}")
        made = {
            name: self.value(fields[name], value, _joined(path, name))
            for name, value in given.items()
            if name in fields
        }
        if self._defaults:
            made |= {name: self.default(kind) for name, kind in fields.items() if name not in made}
        return new(type_name, **made)

    def default(self, kind: Kind) -> Any:
        return self.message(kind[1], {}, "") if kind[0] == Nodetype.NAME else zero(kind)

    def value(self, kind: Kind, value: Any, path: str) -> Any:
        node, detail = kind
        if node == Nodetype.NAME:
            return self.message(detail, value, path)
        if node == Nodetype.BASE:
            return self.scalar(detail[0], detail[1], value, path)
        return self.elements(node, detail[0], detail[1], value, path)

    def elements(self, node: Nodetype, element: Kind, length: int, value: Any, path: str) -> Any:
        base = element[1][0] if element[0] == Nodetype.BASE else ""
        if base in _BYTES and isinstance(value, (str, bytes, bytearray)):
            value = self.octets(value, path)
        if not isinstance(value, (list, tuple, np.ndarray)):
            self.wrong(path, f"a list of {_shown(element)}", value)
            return []
        if (node == Nodetype.ARRAY and len(value) != length) or (length and len(value) > length):
            bound = "" if node == Nodetype.ARRAY else "at most "
            self.problems.append(f"{path}: expected {bound}{length} values of {_shown(element)}, found {len(value)}")
            return []
        if base in NUMPY_TYPES and isinstance(value, np.ndarray):
            return np.asarray(value, NUMPY_TYPES[base])
        before = len(self.problems)
        made = [self.value(element, part, f"{path}[{index}]") for index, part in enumerate(value)]
        if base not in NUMPY_TYPES:
            return made
        return np.array(made if len(self.problems) == before else [], NUMPY_TYPES[base])

    def octets(self, value: str | bytes | bytearray, path: str) -> Any:
        """Bytes, or text in Base64, as `--json` shows them."""
        try:
            return np.frombuffer(base64.b64decode(value, validate=True) if isinstance(value, str) else value, np.uint8)
        except (binascii.Error, ValueError):
            self.wrong(path, "a list of bytes, or Base64", value)
            return np.zeros(0, np.uint8)

    def scalar(self, base: str, limit: int, value: Any, path: str) -> Any:
        if base in TEXTS:
            return self.text(limit, value, path)
        if base == "bool":
            if isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1)):
                return bool(value)
        elif base.startswith("float"):
            if isinstance(value, str) and value.lower().lstrip("+-.") in ("inf", "nan"):
                return float(value.lower().replace(".", ""))
            if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
                return float(value)
        else:
            return self.whole(base, value, path)
        self.wrong(path, base, value)
        return 0

    def text(self, limit: int, value: Any, path: str) -> Any:
        if not isinstance(value, (str, int, float)):
            self.wrong(path, "string", value)
        elif limit and len(str(value)) > limit:
            self.problems.append(f"{path}: expected at most {limit} characters, found {len(str(value))}")
        elif "\0" in str(value):
            self.problems.append(f"{path}: a string cannot contain a zero byte")
        return str(value)

    def whole(self, base: str, value: Any, path: str) -> Any:
        limits = np.iinfo(NUMPY_TYPES[base])
        if isinstance(value, (float, np.floating)) and float(value).is_integer():
            value = int(value)
        if not isinstance(value, (int, np.integer)) or (isinstance(value, bool) and base != "byte"):
            self.wrong(path, base, value)
        elif not limits.min <= value <= limits.max:
            self.wrong(path, f"{base} ({limits.min} to {limits.max})", value)
        else:
            return int(value)
        return 0


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(kind: Kind) -> str:
    return str(kind[1] if kind[0] == Nodetype.NAME else kind[1][0])


# ---- messages of rclpy -----------------------------------------------------------------------------------------------


def _fill_for_rclpy(message: Any, values: Mapping[str, Any]) -> Any:
    kinds: Mapping[str, str] = message.get_fields_and_field_types()
    for name, value in values.items():
        if name not in kinds:
            raise UsageError(f"{type(message).__name__} has no field {name!r}{did_you_mean(name, kinds)}")
        setattr(message, name, _made_for_rclpy(kinds[name], value))
    return message


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


# ---- and back --------------------------------------------------------------------------------------------------------


def to_plain(value: Any, longest: int | None = None, in_base64: bool = False) -> Any:
    """A message, or what a field holds, as dictionaries, lists, numbers and text.

    `longest`: how many elements of a list are given; a text then says how many were left out. `in_base64`: lists of
    bytes become text, complete.
    """
    if isinstance(value, np.ndarray):
        if in_base64 and value.dtype == np.uint8:
            return base64.b64encode(value.tobytes()).decode()
        return _cut(value, longest, [*value[:longest].tolist()])
    if isinstance(value, list):
        return _cut(value, longest, [to_plain(each, longest, in_base64) for each in value[:longest]])
    if (name := getattr(value, "__msgtype__", None)) is not None:
        return {field: to_plain(getattr(value, field), longest, in_base64) for field, _ in _shown_fields(name)}
    return value


def _shown_fields(type_name: str) -> Iterator[tuple[str, Kind]]:
    return (field for field in fields_of(type_name) if field[0] != "structure_needs_at_least_one_member")


def _cut(value: Any, longest: int | None, shown: list[Any]) -> list[Any]:
    return [*shown, f"... {len(value) - longest:,} more"] if longest is not None and len(value) > longest else shown


def field_at(message: Any, path: str) -> Any:
    """What `pose.pose.position.x` or `transforms[0].header` names in a message."""
    value, so_far = message, ""
    for part in path.replace("[", ".[").split("."):
        if part.startswith("[") and part.endswith("]") and part[1:-1].lstrip("-").isdigit():
            value = _element(value, int(part[1:-1]), so_far, path)
        elif part:
            fields = [name for name, _ in _shown_fields(value.__msgtype__)] if hasattr(value, "__msgtype__") else []
            if part not in fields:
                owner = getattr(value, "__msgtype__", so_far or "the message")
                guess = did_you_mean(part, fields) or ";"
                raise UsageError(f"--field {path}: {owner} has no field {part!r}{guess} {there_are(fields)}")
            value = getattr(value, part)
        so_far += part if part.startswith("[") else f".{part}" if so_far else part
    return value


def _element(value: Any, index: int, so_far: str, path: str) -> Any:
    if not isinstance(value, (list, np.ndarray)):
        raise UsageError(f"--field {path}: {so_far} is not a list")
    if not -len(value) <= index < len(value):
        raise UsageError(f"--field {path}: {so_far} has {len(value)} elements, no [{index}]")
    return value[index].item() if isinstance(value, np.ndarray) else value[index]
