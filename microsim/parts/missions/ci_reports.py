"""Results for CI systems: JUnit XML, and a summary in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from microsim.options import check_can_write, option

_PANEL = "Reports for CI systems"
_MOST_ROWS = 100  # of problems, in Markdown: a page is for people
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class CiCase(NamedTuple):
    """One thing that was tested."""

    group: str
    name: str
    problem: str = ""  # empty: it is good
    skipped: str = ""  # why there is no result

    @property
    def outcome(self) -> str:
        return "failed" if self.problem else "skipped" if self.skipped else "passed"


class ReportOptions(NamedTuple):
    junit: Annotated[Path | None, option("--junit FILE", "Write the result as JUnit XML.", _PANEL)] = None
    markdown: Annotated[Path | None, option("--markdown FILE", "Write a summary in Markdown.", _PANEL)] = None

    def check(self) -> None:
        """Refuse what could not be written in the end."""
        check_can_write("--junit", self.junit)
        check_can_write("--markdown", self.markdown)

    def write(self, title: str, cases: Sequence[CiCase], seconds: float = 0.0) -> None:
        for file, text_of in ((self.junit, junit_xml), (self.markdown, markdown)):
            if file is not None:
                file.write_text(text_of(title, cases, seconds), encoding="utf-8")


def _count(cases: Sequence[CiCase], outcome: str) -> int:
    return sum(case.outcome == outcome for case in cases)


def junit_xml(title: str, cases: Sequence[CiCase], seconds: float = 0.0) -> str:
    from xml.etree import ElementTree as ET

    counts = {"tests": str(len(cases)), "failures": str(_count(cases, "failed")), "errors": "0"}
    counts |= {"skipped": str(_count(cases, "skipped")), "time": f"{seconds:.3f}"}
    root = ET.Element("testsuites", {"name": "microsim", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": _xml(title), **counts})
    for case in cases:
        one = ET.SubElement(suite, "testcase", {"classname": _xml(case.group), "name": _xml(case.name)})
        if case.problem:
            failure = ET.SubElement(one, "failure", {"message": _xml(case.problem.splitlines()[0])})
            failure.text = _xml(case.problem)
        elif case.skipped:
            ET.SubElement(one, "skipped", {"message": _xml(case.skipped)})
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return _NOT_XML.sub("�", text)


def markdown(title: str, cases: Sequence[CiCase], seconds: float = 0.0) -> str:
    counts = [(outcome, _count(cases, outcome)) for outcome in ("passed", "failed", "skipped")]
    counted = ", ".join(f"{count:,} {outcome}" for outcome, count in counts if count or outcome == "passed")
    lines = [f"## {_cell(title)}", "", counted + (f" in {seconds:.1f} s" if seconds else ""), ""]
    shown = [case for case in cases if case.outcome != "passed"]
    if shown:
        lines += ["| | test | |", "| --- | --- | --- |"]
        lines += [
            f"| {case.outcome} | {_cell(f'{case.group}: {case.name}')} | {_cell(case.problem or case.skipped)} |"
            for case in shown[:_MOST_ROWS]
        ]
    if len(shown) > _MOST_ROWS:
        lines += ["", f"… and {len(shown) - _MOST_ROWS:,} more"]
    return "\n".join(lines).rstrip() + "\n"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")
