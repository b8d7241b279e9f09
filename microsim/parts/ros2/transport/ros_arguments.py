"""The arguments after `--ros-args` on the command line, read as rcl does: names, remappings, parameters, log levels.

microsim run --ros-args -r __ns:=/a -r drone/cmd_vel:=/teleop -p seed:=7 --params-file f.yaml --log-level debug --
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microsim.errors import UsageError, did_you_mean
from microsim.parts.ros2.transport import LogLevel, Value

LEVELS: dict[str, int] = {"unset": 0, "debug": 10, "info": 20, "warn": 30, "error": 40, "fatal": 50}

_TOKEN = r"[A-Za-z_]\w*"
_NAME = re.compile(rf"(~|/?{_TOKEN})(/{_TOKEN})*", re.ASCII)
_NODE_NAME = re.compile(_TOKEN, re.ASCII)
_NAMESPACE = re.compile(rf"/|(/{_TOKEN})+", re.ASCII)
_REMAP_SIDE = re.compile(r"(?:rostopic://|rosservice://)")
_PARAMETER_NAME = re.compile(r"[\w~/][\w./~-]*", re.ASCII)

_TAKING_A_VALUE = {
    **dict.fromkeys(("-p", "--param"), "name:=value"),
    **dict.fromkeys(("-r", "--remap"), "old:=new"),
    **dict.fromkeys(("--params-file", "--log-config-file"), "a file"),
    **dict.fromkeys(("-e", "--enclave"), "an enclave"),
    "--log-level": "a level",
    "--log-file-name": "a name",
}
_SWITCHES = {f"--{able}-{what}-logs" for able in ("enable", "disable") for what in ("rosout", "stdout", "external-lib")}


@dataclass(frozen=True)
class Remap:
    old: str
    new: str
    node: str = ""  # only for the node of this name; "": for every node
    kind: str = ""  # topic or service; "": both


@dataclass(frozen=True)
class RosArguments:
    """One node's share of the arguments."""

    node: str  # base name
    namespace: str  # starts with a slash
    overrides: Mapping[str, Value] = field(default_factory=dict)
    remaps: tuple[Remap, ...] = ()  # of topics and services, meant for this node
    log_levels: Mapping[str, int] = field(default_factory=dict)  # logger name -> level; "": the default
    rosout: bool = True
    terminal: bool = True
    enclave: str = "/"
    other: tuple[str, ...] = ()  # arguments that are not for ROS

    @property
    def node_name(self) -> str:
        """Fully qualified."""
        return _join(self.namespace, self.node)

    @property
    def logger(self) -> str:
        return self.node_name[1:].replace("/", ".")

    def topic(self, name: str) -> str:
        """Where a topic of the table is found on the wire: relative to the namespace, then remapped."""
        return self._resolve(name, "topic")

    def service(self, name: str) -> str:
        return self._resolve(name, "service")

    def shows(self, level: LogLevel) -> bool:
        """Whether a line of this level is above the logger's level."""
        name = self.logger
        while name and name not in self.log_levels:
            name = name.rpartition(".")[0]
        return LEVELS[level] >= (self.log_levels.get(name) or self.log_levels.get("") or LEVELS["info"])

    def expand(self, name: str) -> str:
        """A name as a user writes it: `/absolute`, `relative`, `~/private`, with `{node}` and `{ns}`."""
        for key, value in (("node", self.node), ("ns", self.namespace), ("namespace", self.namespace)):
            name = name.replace(f"{{{key}}}", value)
        name = name.replace("//", "/")
        if name.startswith("~"):
            return _join(self.node_name, name[1:].lstrip("/"))
        return name if name.startswith("/") else _join(self.namespace, name)

    def _resolve(self, name: str, kind: str) -> str:
        # names of the table start with a slash but belong to the node's namespace; two slashes: to none
        full = name[1:] if name.startswith("//") else self.expand(name.lstrip("/"))
        for remap in self.remaps:
            if remap.kind in ("", kind) and self.expand(remap.old) == full:
                return self.expand(remap.new)
        return full


def parse_ros_arguments(arguments: Sequence[str], node: str) -> RosArguments:
    """The arguments meant for `node`; raises UsageError that names the argument or file:line that is wrong."""
    found = _Found()
    _read(arguments, found)
    node = _special(found.remaps, "__node", node, node)
    namespace = _special(found.remaps, "__ns", node, "/")
    remaps = [r for r in found.remaps if not r.old.startswith("__") and r.node in ("", node)]
    name = _join(namespace, node)  # as in rcl, the last of the arguments is used
    overrides = {override.name: override.value for override in found.overrides if override.is_for(name)}
    switches = found.switches.get("rosout", True), found.switches.get("stdout", True)
    others = found.enclave, tuple(found.other)
    return RosArguments(node, namespace, overrides, tuple(remaps), found.log_levels, *switches, *others)


@dataclass
class _Found:
    remaps: list[Remap] = field(default_factory=list)
    overrides: list[Override] = field(default_factory=list)
    log_levels: dict[str, int] = field(default_factory=dict)
    switches: dict[str, bool] = field(default_factory=dict)
    enclave: str = "/"
    other: list[str] = field(default_factory=list)


def _read(arguments: Sequence[str], found: _Found) -> None:
    inside, rest = False, iter(arguments)
    for argument in rest:
        if argument == "--ros-args":
            inside = True
        elif not inside:
            found.other.append(argument)
        elif argument == "--":
            inside = False
        elif argument in _SWITCHES:
            able, what = argument[2:].split("-", 1)
            found.switches[what.removesuffix("-logs")] = able == "enable"
        elif argument in _TAKING_A_VALUE:
            value = next(rest, None)
            if value is None or value in ("--", "--ros-args"):
                raise UsageError(f"{argument} requires {_TAKING_A_VALUE[argument]}")
            _take(argument, value, found)
        else:
            known = [*_TAKING_A_VALUE, *_SWITCHES]
            raise UsageError(f"{argument!r} is not a ROS argument{did_you_mean(argument, known)}")


def _take(flag: str, text: str, found: _Found) -> None:
    where = f"{flag} {text}"
    if flag in ("-r", "--remap"):
        found.remaps.append(_remap(text, where))
    elif flag in ("-p", "--param"):
        found.overrides.append(_parameter(text, where))
    elif flag == "--params-file":
        found.overrides.extend(read_params_file(Path(text)))
    elif flag == "--log-level":
        name, _, level = text.rpartition(":=")
        if level.lower() not in LEVELS:
            raise UsageError(f"{where}: there is no level {level!r}; there are: {', '.join(LEVELS)}")
        found.log_levels[name] = LEVELS[level.lower()]
    elif flag in ("-e", "--enclave"):
        if not text.startswith("/"):
            raise UsageError(f"{where}: an enclave starts with a slash")
        found.enclave = text


def _remap(text: str, where: str) -> Remap:
    old, sign, new = text.partition(":=")
    if not sign or not old or not new:
        raise UsageError(f"{where}: a remapping is written old:=new")
    if "*" in text or "\\" in text:
        raise UsageError(f"{where}: remappings with wildcards are not supported")
    node, old = _node_prefix(old)
    kind = "topic" if old.startswith("rostopic://") else "service" if old.startswith("rosservice://") else ""
    old = "__node" if old == "__name" else _REMAP_SIDE.sub("", old)
    if old == "__node":
        if not _NODE_NAME.fullmatch(new):
            raise UsageError(f"{where}: {new!r} is not a node's name: letters, digits and _, no digit first")
    elif old == "__ns":
        if not _NAMESPACE.fullmatch(new):
            raise UsageError(f"{where}: {new!r} is not a namespace, such as /robots/a")
    else:
        for name in (old, new):
            plain = re.sub(r"\{(node|ns|namespace)\}/?", "x", name)
            if _NAME.fullmatch(plain) is None or "__" in plain:
                raise UsageError(f"{where}: {name!r} is not the name of a topic or service")
    return Remap(old, new, node, kind)


def _parameter(text: str, where: str) -> Override:
    name, sign, value = text.partition(":=")
    node, name = _node_prefix(name)
    if not sign or not _PARAMETER_NAME.fullmatch(name):
        raise UsageError(f"{where}: a parameter is written name:=value")
    return Override(node or "/**", name, read_value(value, where), where)


def _node_prefix(text: str) -> tuple[str, str]:
    """`node:name` -> node, name."""
    match = re.fullmatch(rf"({_TOKEN}):(?!//)(.*)", text, re.ASCII)
    return (match[1], match[2]) if match else ("", text)


def _special(remaps: Sequence[Remap], old: str, node: str, otherwise: str) -> str:
    return next((r.new for r in remaps if r.old == old and r.node in ("", node)), otherwise)


def _join(namespace: str, name: str) -> str:
    return f"{namespace.rstrip('/')}/{name}".rstrip("/")


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


def read_value_as(text: str, where: str, kind: str) -> Value:
    """The value of `param set` for a parameter of that type; an empty or unknown type is guessed from the text.

    Text stays as it is written. Where the type must be guessed, `y` and `n` are letters, as with `ros2 param set`.
    """
    node = _compose(text, where)
    if node is None:
        raise UsageError(f"{where}: a value is missing")
    if kind == "string":
        return str(node.value) if node.id == "scalar" and node.style else text.strip()
    if kind == "string array" and node.id == "sequence" and all(each.id == "scalar" for each in node.value):
        return [str(each.value) for each in node.value]
    return _value(node, where, letters=kind not in ("bool", "bool array"))


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
        elif value.id != "scalar" or value.value or value.style:  # not empty
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


def _value(node: Any, where: str, letters: bool = False) -> Value:
    """`letters`: y and n are text. Beside text in a list, all words are text: `[x, y, on]`."""
    if node.id == "scalar":
        return _scalar(node, where, letters)
    if node.id != "sequence":
        raise UsageError(f"{where}: expected a value or a list, found {_kind(node)}")
    elements: list[Any] = []
    for element in node.value:
        if element.id != "scalar":
            raise UsageError(f"{where}: a list holds booleans, numbers or strings, not {_kind(element)}")
        elements.append(_scalar(element, where, letters))
    if any(isinstance(each, str) for each in elements):
        elements = [str(n.value) if type(e) is bool else e for n, e in zip(node.value, elements, strict=True)]
    if len({type(element) for element in elements}) > 1:
        raise UsageError(f"{where}: all elements of a list have one type; write 1.0 for 1 among fractions")
    return elements


def _scalar(node: Any, where: str, letters: bool = False) -> bool | int | float | str:
    text, is_tagged = str(node.value), getattr(node.ctag, "handle", None) == "!!"
    tag = str(node.tag).rpartition(":")[2] if is_tagged else ""  # `str` for `!!str 1`, and so on
    if node.style or tag == "str":  # quoted, or a block of text
        return text
    if not text:
        raise UsageError(f"{where}: a value is missing")
    value = text if letters and not tag and text in ("y", "Y", "n", "N") else _plain(text)
    if tag == "float" and type(value) is int:
        return float(value)
    if tag in ("bool", "int", "float") and type(value).__name__ != tag:
        raise UsageError(f"{where}: {text!r} is not of the type {tag}")
    return value


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


def _kind(node: Any) -> str:
    kinds = {"mapping": "a mapping", "sequence": "a list"}
    return kinds.get(node.id) or (repr(node.value) if node.value else "nothing")


def _place(file: str, node: Any) -> str:
    return f"{file}:{node.start_mark.line + 1}"
