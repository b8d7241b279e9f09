"""Collects everything that is wrong with a bundle, each with its file, place, rule and remedy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from microsim.bundle.rules import RULES, WARNINGS
from microsim.errors import Problem

if TYPE_CHECKING:
    from microsim.documents.yaml_text import Document
    from microsim.documents.yaml_text import Path as KeyPath

MAX_PROBLEMS = 200  # errors, and as many warnings, of one bundle; a file full of garbage has no more to say


@dataclass
class Report:
    """The problems found so far, in the order they were found; errors and warnings are counted apart."""

    listed: list[Problem] = field(default_factory=list)
    error_count: int = 0
    warning_count: int = 0

    def add(self, problem: Problem) -> None:
        if problem.is_warning:
            self.warning_count += 1
        else:
            self.error_count += 1
        if (self.warning_count if problem.is_warning else self.error_count) <= MAX_PROBLEMS:
            self.listed.append(problem)

    @property
    def problems(self) -> list[Problem]:
        """What was found; of very many, the first, and how many more there are."""
        more = self.error_count + self.warning_count - len(self.listed)
        note = Problem(f"{more:,} more problems are not listed", is_warning=not self.error_count)
        return [*self.listed, note] if more else list(self.listed)


@dataclass
class Source:
    """One file of the bundle, as problems name it."""

    report: Report
    name: str  # as it is written in world.yaml, behind the bundle's own path
    file: Path
    document: Document | None = None
    newer_minor: bool = False  # written for a later version, whose fields we need not know

    def problem(
        self,
        rule: str,
        message: str,
        path: KeyPath = (),
        remedy: str = "",
        *,
        at_key: bool = False,
        line: int | None = None,
        warning: bool = False,
    ) -> None:
        from microsim.documents.yaml_text import dotted

        assert rule in RULES, rule
        mark = self.document.place(path, at_key) if self.document is not None else None
        row, column = mark if mark is not None else (line, None)
        is_warning = warning or rule in WARNINGS
        advice = remedy or RULES[rule]
        self.report.add(Problem(message, dotted(path), str(self.file), row, column, rule, advice, is_warning))
