"""The README: one screen, doors that open, and a way to the right page in two clicks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_support import ROOT
from tests.pages import DOCS

README = ROOT / "README.md"
DOORS = ("Test my robot software", "Train a policy", "Drive in a captured place")


def section(title: str) -> str:
    return README.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def links(page: Path) -> set[Path]:
    """Pages that one click leads to."""
    found = re.findall(r"\]\(([^)#\s]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target in found if target.endswith(".md") and ":" not in target}


def test_it_fits_on_a_screen() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count("\n") <= 75
    assert len(text.split()) <= 550


@pytest.mark.parametrize("door", DOORS)
def test_a_door_opens_with_five_lines(door: str, tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", section(door), re.MULTILINE | re.DOTALL)
    lines = [line for line in code.splitlines() if line and not line.startswith("import ")]
    assert len(lines) <= 5
    name = "test_rover.py" if code.startswith("def test_") else "door.py"
    (tmp_path / name).write_text(code, encoding="utf-8")
    runner = ["-m", "pytest", "-q", "-p", "no:cacheprovider", name] if name.startswith("test_") else [name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *runner], check=False, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if name.startswith("test_"):
        assert "1 passed" in done.stdout


TASKS = {  # what a newcomer wants: the page that answers it
    "install it without make, or in CI": "learn/install.md",
    "take the first steps": "learn/tutorial.md",
    "write a world of my own": "learn/tutorial_world.md",
    "drive a robot with my ROS 2 node": "do/ros2.md",
    "fail a pytest when the robot comes too close": "do/testing.md",
    "train a policy, and run it as a node": "do/training.md",
    "turn a video of a street into a world": "do/capture.md",
    "add a sensor of my own": "do/plugins.md",
    "look up a key of a scenario": "lookup/scenario.md",
    "find out why two runs differ": "understand/determinism.md",
}


@pytest.mark.parametrize(("task", "page"), TASKS.items(), ids=TASKS)
def test_a_newcomer_finds_the_page_within_two_clicks(task: str, page: str) -> None:
    first = links(README)
    second = {target for each in first if each.suffix == ".md" and each.is_file() for target in links(each)}
    assert (DOCS / page).is_file()
    assert DOCS / page in first | second


def test_every_other_page_for_users_is_two_clicks_away_too() -> None:
    index = links(DOCS / "index.md")
    assert DOCS / "index.md" in links(README)
    pages = {page for room in ("learn", "do", "lookup", "understand") for page in (DOCS / room).glob("*.md")}
    assert sorted(pages - index) == []
