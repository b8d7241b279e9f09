"""What pydantic found, said in the words of a scenario's author."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from microsim.documents.values import describe_error
from microsim.documents.yaml_text import Document, Path, dotted
from microsim.errors import Problem

_KEY = "[key]"  # pydantic's mark for an error about a key of a mapping


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
