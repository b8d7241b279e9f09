"""YAML text to plain data, remembering the line and column of every key and value; and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from microsim.errors import Problem, ScenarioError, show

if TYPE_CHECKING:
    from ruamel.yaml.nodes import Node

MAX_BYTES = 4_000_000
MAX_VALUES = 500_000  # after aliases are expanded
MAX_DEPTH = 50

Path = tuple[str | int, ...]
Mark = tuple[int, int]  # line, column, from 1


@dataclass
class Document:
    """What a YAML text says, and where it says it."""

    data: Any
    keys: dict[Path, Mark] = field(default_factory=dict)
    values: dict[Path, Mark] = field(default_factory=dict)

    def place(self, path: Path, at_key: bool = False) -> Mark | None:
        """Where the value (or its key) is; for what the text does not hold, where it would belong."""
        if at_key and path in self.keys:
            return self.keys[path]
        while path and path not in self.values:
            path = path[:-1]
            at_key = True
        return (self.keys if at_key and path in self.keys else self.values).get(path)


def read_yaml(text: str, file: str) -> Document:
    """Parses one YAML document of plain data; raises ScenarioError with every problem of its form."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    parser: Any = YAML(typ="safe", pure=True)
    parser.composer.warn_double_anchors = False  # YAML allows them
    try:
        root = parser.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise ScenarioError(Problem(_syntax(error), file=file, line=line, column=column)) from None
    except RecursionError:
        raise ScenarioError(Problem(f"nested too deeply; expected at most {MAX_DEPTH} levels", file=file)) from None
    except (YAMLError, ValueError, AttributeError, TypeError, IndexError, KeyError, AssertionError) as error:
        # ruamel.yaml lets some of these escape on text that no YAML parser accepts
        reason = " ".join(str(error).split())
        raise ScenarioError(Problem(f"not valid YAML: {reason or type(error).__name__}", file=file)) from None
    document = Document(None) if root is None else _Builder(file).build(root)
    if document.data is None:
        return Document({}, values={(): (1, 1)})
    return document


def _syntax(error: Any) -> str:
    problem = " ".join(str(error.problem or error).split())
    context = f" ({error.context})" if error.context else ""
    if "'\\t'" in problem:
        return "not valid YAML: found a tab; indent with spaces"
    if str(error.context).startswith("expected"):
        return f"not valid YAML: {error.context}, {problem}"
    return f"not valid YAML: {problem}{context}"


class _Builder:
    """Plain data from a tree of nodes; collects problems on the way."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.count = 0
        self.document = Document(None)

    def build(self, root: Node) -> Document:
        try:
            self.document.data = self.value(root, ())
        except _TooMuchError as error:
            self.problem(str(error), root, ())
        if self.problems:
            raise ScenarioError(self.problems)
        return self.document

    def problem(self, message: str, node: Node, path: Path) -> None:
        line, column = _mark(node)
        self.problems.append(Problem(message, dotted(path), self.file, line, column))

    def value(self, node: Node, path: Path) -> Any:
        self.count += 1
        if self.count > MAX_VALUES:
            raise _TooMuchError(f"expected at most {MAX_VALUES:,} values with aliases expanded, found more")
        if len(path) > MAX_DEPTH:
            raise _TooMuchError(f"nested too deeply; expected at most {MAX_DEPTH} levels")
        empty = node.value == "" and path in self.document.keys  # ruamel places it at whatever comes next
        self.document.values.setdefault(path, self.document.keys[path] if empty else _mark(node))
        kind = type(node).__name__
        if kind == "MappingNode":
            return self.mapping(node, path)
        if kind == "SequenceNode":
            self.plain_tag(node, path, "seq")
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self.scalar(node, path)

    def plain_tag(self, node: Node, path: Path, *expected: str) -> str:
        tag = str(node.tag)
        short = tag.removeprefix("tag:yaml.org,2002:")
        if short not in expected or short == tag:
            self.problem(f"expected plain data, found the tag {show(tag)}", node, path)
        return short

    def mapping(self, node: Node, path: Path) -> dict[str, Any]:
        self.plain_tag(node, path, "map")
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if str(key_node.tag) == "tag:yaml.org,2002:merge":
                merged = {**self.merge(value_node, path), **merged}
                continue
            key = self.key(key_node, path)
            if key is None:
                continue
            place = (*path, key)
            if key in result:
                self.problem(f"the key is already on line {self.document.keys[place][0]}", key_node, place)
                continue
            self.document.keys[place] = _mark(key_node)
            self.document.values.pop(place, None)  # a merge may have been here
            result[key] = self.value(value_node, place)
        return {**merged, **result}

    def merge(self, node: Node, path: Path) -> dict[str, Any]:
        """`<<: *anchor`, or a list of such."""
        parts = node.value if type(node).__name__ == "SequenceNode" else [node]
        result: dict[str, Any] = {}
        for part in parts:
            if type(part).__name__ != "MappingNode":
                self.problem("expected a mapping to merge with <<", part, path)
            else:
                result = {**self.value(part, path), **result}
        return result

    def key(self, node: Node, path: Path) -> str | None:
        if type(node).__name__ == "ScalarNode":
            found = self.scalar(node, path)
            if isinstance(found, str):
                return found
            self.problem(f"expected text as a key, found {show(found)}; put it in quotes", node, path)
        else:
            self.problem("expected text as a key, found a list or mapping", node, path)
        return None

    def scalar(self, node: Node, path: Path) -> Any:
        text = node.value
        kind = self.plain_tag(node, path, "str", "int", "float", "bool", "null", "timestamp", "merge", "value")
        try:
            if kind == "int":
                return _integer(text)
            if kind == "float":
                return _float(text)
            if kind == "bool":
                return _boolean(text)
        except (ValueError, OverflowError):
            self.problem(f"expected a {'truth value' if kind == 'bool' else 'number'}, found {show(text)}", node, path)
            return None
        return None if kind == "null" else text


class _TooMuchError(Exception):
    pass


def _mark(node: Node) -> Mark:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _boolean(text: str) -> bool:
    word = text.lower()
    if word in ("true", "yes", "on", "y"):  # YAML 1.1 knows more than true and false
        return True
    if word in ("false", "no", "off", "n"):
        return False
    raise ValueError(text)


def _integer(text: str) -> int:
    plain = text.replace("_", "").lower()
    sign = -1 if plain.startswith("-") else 1
    digits = plain.lstrip("+-")
    for prefix, radix in (("0x", 16), ("0o", 8), ("0b", 2)):
        if digits.startswith(prefix):
            return sign * int(digits[2:], radix)
    return sign * int(digits)


def _float(text: str) -> float:
    plain = text.replace("_", "").lower()
    if plain.lstrip("+-") in (".inf", ".nan"):
        return float(plain.replace(".", ""))
    return float(plain)


def dotted(path: Path) -> str:
    """`obstacles[0].size[2]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def to_yaml(data: Any, one_line: bool = True) -> str:
    """Plain data as YAML, in order; lists and mappings without others in them on one line, by default."""
    from io import StringIO

    from ruamel.yaml import YAML

    writer: Any = YAML(typ="safe", pure=True)
    writer.default_flow_style = None if one_line else False
    writer.sort_base_mapping_type_on_output = False
    writer.width = 120
    stream = StringIO()
    writer.dump(data, stream)
    return stream.getvalue()
