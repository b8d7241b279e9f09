"""What pydantic found, said in the words of a scenario's author."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from microsim.documents.values import describe, show
from microsim.documents.yaml_text import Document, Path, dotted
from microsim.errors import Problem, did_you_mean

_KEY = "[key]"  # pydantic's mark for an error about a key of a mapping

_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("of at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("of at most", "le"),
}

_KINDS = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "finite_number": "a finite number",
}


class Places:
    """Turns locations into problems with file, line and column; without a document, into key paths only."""

    def __init__(self, file: str | None = None, document: Document | None = None) -> None:
        self.file = file
        self.document = document

    def problem(self, message: str, path: Path, at_key: bool = False) -> Problem:
        mark = self.document.place(path, at_key) if self.document is not None else None
        line, column = mark if mark is not None else (None, None)
        return Problem(message, dotted(path), self.file, line, column)

    def problems(self, error: ValidationError, data: Any, original: Callable[[Path], Path]) -> list[Problem]:
        """Every error as a problem; `original` gives the place in the text of a location in the data."""
        found = [self._translated(each, data, original) for each in error.errors(include_url=False)]
        return list(dict.fromkeys(found))

    def _translated(self, error: ErrorDetails, data: Any, original: Callable[[Path], Path]) -> Problem:
        path = original(tuple(part for part in error["loc"] if part != _KEY))
        message = describe_error(error)
        at_key = _KEY in error["loc"] or bool(error.get("ctx", {}).get("at_key"))
        return self.problem(message, _as_written(path, data), at_key)


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))


def _as_written(path: Path, data: Any) -> Path:
    """`class` where the author wrote `class_id`."""
    if path and path[-1] == "class":
        for part in path[:-1]:
            try:
                data = data[part]
            except (KeyError, IndexError, TypeError):
                return path
        if isinstance(data, Mapping) and "class" not in data and "class_id" in data:
            return (*path[:-1], "class_id")
    return path


def describe_error(error: ErrorDetails) -> str:
    """One line: what is expected, what was found."""
    kind, found, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "scenario":
        return str(context["message"])
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", error["msg"]))
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"expected a value {words} {_plain(context[key])}, found {show(found)}"
    if kind in _KINDS:
        return f"expected {_KINDS[kind]}, found {describe(found)}"
    if kind == "literal_error":
        return _not_among(str(context["expected"]), found)
    if kind in ("too_short", "too_long"):
        least, most = context.get("min_length"), context.get("max_length")
        bound = f"at least {least}" if kind == "too_short" else f"at most {most}"
        return f"expected {bound} values, found {context['actual_length']}"
    if kind in ("string_too_short", "string_too_long"):
        bound = (
            f"at least {context['min_length']}" if kind == "string_too_short" else f"at most {context['max_length']}"
        )
        return f"expected text of {bound} characters, found {show(found)}"
    return f"{error['msg'][:1].lower()}{error['msg'][1:]}, found {show(found)}"


def _plain(number: Any) -> str:
    return f"{number:g}" if isinstance(number, float) else str(number)


def _not_among(expected: str, found: object) -> str:
    choices = [choice.strip("'") for choice in expected.replace(" or ", ", ").split(", ")]
    guess = did_you_mean(found, choices) if isinstance(found, str) else ""
    return f"expected {expected}, found {show(found)}{guess}"
