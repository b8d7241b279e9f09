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

MAX_PROBLEMS = 200  # of one bundle; a file full of garbage has no more to say


@dataclass
class Report:
    """The problems found so far, in the order they were found."""

    problems: list[Problem] = field(default_factory=list)
    left_out: int = 0

    def add(self, problem: Problem) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.left_out += 1

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if not problem.is_warning]

    @property
    def warnings(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.is_warning]


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
