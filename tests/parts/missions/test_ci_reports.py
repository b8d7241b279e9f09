"""JUnit XML and Markdown for CI systems."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from microsim.cli import app
from microsim.errors import UsageError
from microsim.parts.missions.ci_reports import CiCase, junit_xml, markdown

MISSION = """
duration: 4
do: [{robot: rover, waypoints: [[90, 90]], timeout: 2}]
expect:
  - {robot: rover, value: contacts, equals: 0}
  - {robot: rover, value: x, at_most: 1}
  - {radio: [drone, rover], value: sent, equals: 0, at: 3}
"""
CASES = [
    CiCase("flat", "a"),
    CiCase("flat", "b | c", "two\nlines <&> \x07 \ud800"),
    CiCase("flat", "d", skipped="the run ended too soon"),
]


def run(*arguments: object) -> int:
    return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False).exit_code


def outcomes(file: Path) -> dict[str, str]:
    suite = ET.parse(file).getroot()[0]
    found = {each.attrib["name"]: each[0].tag if len(each) else "passed" for each in suite}
    assert int(suite.attrib["tests"]) == len(found)
    assert int(suite.attrib["failures"]) == list(found.values()).count("failure")
    assert int(suite.attrib["skipped"]) == list(found.values()).count("skipped")
    return found


def test_any_text_fits_into_xml():
    suite = ET.fromstring(junit_xml("t", CASES, 1.5).encode())[0]
    assert suite.attrib == {"name": "t", "tests": "3", "failures": "1", "errors": "0", "skipped": "1", "time": "1.500"}
    assert suite[1][0].text == "two\nlines <&> � �"
    assert suite[1][0].attrib["message"] == "two"


def test_markdown_lists_what_is_not_good_and_keeps_its_table():
    lines = markdown("t", CASES, 1.5).splitlines()
    assert lines[:3] == ["## t", "", "1 passed, 1 failed, 1 skipped in 1.5 s"]
    assert lines[6].startswith("| failed | flat: b \\| c | two<br>lines &lt;&>")
    assert lines[7] == "| skipped | flat: d | the run ended too soon |"
    assert "and 20 more" in markdown("t", [CiCase("g", str(n), "bad") for n in range(120)])


def test_a_mission_is_a_test_for_each_thing_that_it_requires(tmp_path):
    (tmp_path / "m.yaml").write_text(MISSION)
    reports = ("--junit", tmp_path / "m.xml", "--markdown", tmp_path / "m.md")
    assert run("run", "flat", "--mission", tmp_path / "m.yaml", "--rtf", 0, "--quiet", *reports) == 1
    assert outcomes(tmp_path / "m.xml") == {
        "rover reaches 1 waypoint (do[0])": "failure",
        "rover contacts: expected 0": "passed",
        "rover x: expected at most 1": "failure",
        "drone → rover sent: expected 0": "passed",
    }
    assert f"{tmp_path / 'm.yaml'}:6:5: x of rover was" in (tmp_path / "m.md").read_text(encoding="utf-8")
    short = ("--duration", 1, "--junit", tmp_path / "m.xml")
    assert run("run", "flat", "--mission", tmp_path / "m.yaml", "--rtf", 0, "--quiet", *short) == 0
    assert set(outcomes(tmp_path / "m.xml").values()) == {"skipped"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "flat", "--junit", "x.xml"), "--junit reports on a mission: add --mission FILE"),
        (("run", "flat", "--mission", "hover", "--junit", "no/x.xml"), "there is no folder no"),
        (("determinism", "flat", "--markdown", "."), "is a folder"),
        (("sweep", "flat", "--mission", "hover", "--find", "collisions > 0", "--junit", "x.xml"), "leave out --junit"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words):
        run(*arguments)
