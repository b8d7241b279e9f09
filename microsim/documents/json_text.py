"""JSON text to plain data; the line and column of a value are looked up on request.

Python's own decoder does the reading, so a large file costs little; only a problem pays for finding its place.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any

from microsim.documents.yaml_text import MAX_DEPTH, Document, Mark, Path
from microsim.errors import Problem, ScenarioError, show

_SPACE = re.compile(r"[ \t\n\r]*")


class JsonDocument(Document):
    """What a JSON text says; `place` finds where it says it."""

    def __init__(self, data: Any, text: str) -> None:
        super().__init__(data)
        self.text = text
        self._reached: dict[Path, tuple[int, int]] = {}  # of a list: an item that was looked up, and where it begins

    def place(self, path: Path, at_key: bool = False) -> Mark | None:
        key, value = self._find(path)
        return _mark(self.text, key if at_key and key is not None else value)

    def _find(self, path: Path) -> tuple[int | None, int]:
        """Where the key of `path` and its value begin; for what the text does not hold, where it would belong."""
        position, key = _skip(self.text, 0), None
        for depth, part in enumerate(path):
            found = self._step(path[:depth], position, part)
            if found is None:
                break
            key, position = found
        return key, position

    def _step(self, path: Path, position: int, part: str | int) -> tuple[int | None, int] | None:
        """The key and value one level down, in the object or list of that path, which begins at `position`."""
        opening = self.text[position : position + 1]
        if opening not in ("{", "["):
            return None
        text, decoder = self.text, json.JSONDecoder()
        index, position = 0, _skip(text, position + 1)
        before = self._reached.get(path)
        if opening == "[" and isinstance(part, int) and before is not None and before[0] <= part:
            index, position = before  # places of a long list are looked up in order
        while text[position : position + 1] not in ("}", "]", ""):
            key, name = None, None
            if opening == "{":
                key = position
                name, position = scanstring(text, position + 1, True)
                position = _skip(text, _skip(text, position) + 1)  # the colon
            if part == (name if opening == "{" else index):
                if opening == "[":
                    self._reached[path] = (index, position)
                return key, position
            position = _skip(text, decoder.raw_decode(text, position)[1])
            if text[position : position + 1] == ",":
                position = _skip(text, position + 1)
            index += 1
        return None


def read_json(text: str, file: str) -> JsonDocument:
    """Parses one JSON document; raises ScenarioError with what is wrong with its form."""
    doubled: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            doubled.extend(name for name, count in Counter(name for name, _ in items).items() if count > 1)
        return result

    try:
        data = json.loads(text, object_pairs_hook=pairs, parse_constant=_refuse_constant)
    except JSONDecodeError as error:
        message = f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}{_hint(text, error.pos)}"
        raise ScenarioError(Problem(message, file=file, line=error.lineno, column=error.colno)) from None
    except _ConstantError as error:
        raise ScenarioError(Problem(f"not valid JSON: {error} is not a number in JSON", file=file)) from None
    except RecursionError:
        raise ScenarioError(Problem(f"nested too deeply; expected at most {MAX_DEPTH} levels", file=file)) from None
    except ValueError as error:  # a whole number of thousands of digits
        raise ScenarioError(Problem(f"not valid JSON: {error}", file=file)) from None
    if doubled:
        names = ", ".join(show(name) for name in dict.fromkeys(doubled))
        raise ScenarioError(Problem(f"a key occurs twice in one object: {names}", file=file))
    if _depth(data) > MAX_DEPTH:
        raise ScenarioError(Problem(f"nested too deeply; expected at most {MAX_DEPTH} levels", file=file))
    return JsonDocument(data, text)


class _ConstantError(Exception):
    pass


def _refuse_constant(name: str) -> Any:
    raise _ConstantError(name)


def _hint(text: str, position: int) -> str:
    return "; JSON has no comments" if text[position : position + 1] in ("/", "#") else ""


def _depth(data: Any) -> int:
    deepest, level = 0, [data]
    while level:
        deepest += 1
        if deepest > MAX_DEPTH:
            break
        level = [
            item
            for node in level
            if isinstance(node, (dict, list))
            for item in (node.values() if isinstance(node, dict) else node)
            if isinstance(item, (dict, list))
        ]
    return deepest


def _skip(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return space.end() if space is not None else position


def _mark(text: str, position: int) -> Mark:
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
