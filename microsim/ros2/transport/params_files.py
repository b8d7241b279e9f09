"""Values of parameters as YAML, typed as rcl types them, and the files of `--params-file`.

rcl's rules differ from YAML's: `yes` and `on` are booleans, `0x10` and `010` are integers as C reads them, `null` is a
string, and all elements of a list have one type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microsim.errors import UsageError
from microsim.ros2.transport import Value

PARAMETERS_KEY = "ros__parameters"

_TRUE = {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}
_FALSE = {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}
_INTEGER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?\.?(inf|Inf|INF|nan|NaN|NAN)")
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Override:
    """A parameter's value and for whom it is meant."""

    node: str  # fully qualified, or with wildcards: * is one part of a name, ** any number of them
    name: str
    value: Value
    where: str  # argument or file:line

    def is_for(self, node_name: str) -> bool:
        pattern = re.escape("/" + self.node.lstrip("/")).replace(r"/\*\*", r"(/\w+)*").replace(r"\*", r"\w+")
        return re.fullmatch(pattern, node_name) is not None


def read_value(text: str, where: str) -> Value:
    """The value of `-p name:=text`."""
    node = _compose(text, where)
    if node is None:
        raise UsageError(f"{where}: a value is missing")
    return _value(node, where)


def read_params_file(path: Path) -> list[Override]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--params-file {path}: {getattr(error, 'strerror', None) or 'not a text file'}") from error
    root = _compose(text, str(path), in_file=True)
    try:
        return [] if root is None else list(_nodes(root, "", str(path)))
    except RecursionError:
        raise UsageError(f"--params-file {path}: nested too deeply") from None


def _compose(text: str, where: str, in_file: bool = False) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}" if mark is not None and in_file else where
        raise UsageError(f"{place}: not YAML: {error.problem or error.context}") from error
    except (YAMLError, ValueError, RecursionError, AttributeError, TypeError, LookupError, AssertionError) as error:
        # ruamel.yaml raises some of these for text that is not YAML
        raise UsageError(f"{where}: not YAML: {error}") from error


def _nodes(mapping: Any, node_name: str, file: str) -> Iterator[Override]:
    """Walk namespaces and node names down to `ros__parameters`."""
    for key, value in _entries(mapping, file, "a node's name or ros__parameters"):
        if key.value != PARAMETERS_KEY:
            yield from _nodes(value, f"{node_name}/{key.value}".replace("//", "/"), file)
        elif not node_name:
            raise UsageError(f"{_place(file, key)}: {PARAMETERS_KEY} must be under a node's name, such as /**")
        elif not _is_nothing(value):
            yield from _parameters(value, node_name, "", file)


def _parameters(mapping: Any, node_name: str, prefix: str, file: str) -> Iterator[Override]:
    for key, value in _entries(mapping, file, "parameters"):
        name = f"{prefix}.{key.value}" if prefix else str(key.value)
        if value.id == "mapping":
            yield from _parameters(value, node_name, name, file)
        else:
            place = _place(file, key)
            yield Override(node_name, name, _value(value, f"{place}: {name}"), place)


def _entries(mapping: Any, file: str, expected: str) -> Iterator[tuple[Any, Any]]:
    if mapping.id != "mapping":
        raise UsageError(f"{_place(file, mapping)}: expected {expected}, found {_kind(mapping)}")
    for key, value in mapping.value:
        if key.id != "scalar" or not key.value:
            raise UsageError(f"{_place(file, key)}: expected a name, found {_kind(key)}")
        yield key, value


def _value(node: Any, where: str) -> Value:
    if node.id == "scalar":
        return _scalar(node, where)
    if node.id != "sequence":
        raise UsageError(f"{where}: expected a value or a list, found {_kind(node)}")
    elements: list[Any] = []
    for element in node.value:
        if element.id != "scalar":
            raise UsageError(f"{where}: a list holds booleans, numbers or strings, not {_kind(element)}")
        elements.append(_scalar(element, where))
    if len({type(element) for element in elements}) > 1:
        raise UsageError(f"{where}: all elements of a list have one type; write 1.0 for 1 among fractions")
    return elements


def _scalar(node: Any, where: str) -> bool | int | float | str:
    text, tag = str(node.value), _written_tag(node)
    if node.style or tag == "str":  # quoted, or a block of text
        return text
    if not text:
        raise UsageError(f"{where}: a value is missing")
    value = _plain(text)
    if tag == "float" and type(value) is int:
        return float(value)
    if tag in ("bool", "int", "float") and type(value).__name__ != tag:
        raise UsageError(f"{where}: {text!r} is not of the type {tag}")
    return value


def _written_tag(node: Any) -> str:
    """`str` for `!!str 1`, and so on; nothing when the tag only follows from the text."""
    return str(node.tag).rpartition(":")[2] if getattr(node.ctag, "handle", None) == "!!" else ""


def _plain(text: str) -> bool | int | float | str:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text):
        digits = text.lstrip("+-")
        number = int(digits, 16 if digits[:2] in ("0x", "0X") else 8 if digits.startswith("0") else 10)
        number = -number if text.startswith("-") else number
        return number if number in _INT64 else float(number)
    if _FLOAT.fullmatch(text):
        return float(re.sub(r"\.(?=[inIN])", "", text))
    return text


def _is_nothing(node: Any) -> bool:
    return node.id == "scalar" and not node.value and not node.style


def _kind(node: Any) -> str:
    if node.id == "mapping":
        return "a mapping"
    return "a list" if node.id == "sequence" else repr(node.value) if node.value else "nothing"


def _place(file: str, node: Any) -> str:
    return f"{file}:{node.start_mark.line + 1}"
