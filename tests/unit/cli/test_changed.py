"""The tests that `make test-changed` chooses are those that a change can break."""

import re

from tests.changed import ABOUT_PAGES, ALL, EVERYWHERE, FURTHER, parts, suites, uses
from tests.cli_support import ROOT


def test_what_a_part_builds_on_is_declared_for_the_linter_and_nothing_else_is() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    pairs = re.findall(r'"microsim\.parts\.(\w+)(?:\.\*\*)? -> microsim\.parts\.(\w+)', text)
    assert {*pairs} == {(part, other) for part, others in uses().items() for other in others}


def test_a_change_of_the_core_or_of_common_tests_can_break_everything() -> None:
    for path in (
        "microsim/engine/noise.py",
        "microsim/runner.py",
        "tests/support.py",
        "scenarios/flat.yaml",
        "setup.py",
    ):
        assert suites([path, "docs/do/viewer.md"]) == ALL


def test_a_change_of_a_part_can_break_those_that_build_on_it() -> None:
    found = suites(["microsim/parts/missions/pilot.py"])
    assert {f"tests/parts/{part}" for part in ("missions", "sweep", "agents", "learning", "view")} <= {*found}
    assert not {"tests/parts/foxglove", "tests/integration"} & {*found}
    assert {*EVERYWHERE} <= {*found}
    assert suites(["microsim/parts/agents/agent_tools.py"]) == ["tests/parts/agents", *EVERYWHERE]


def test_a_change_of_tests_breaks_these_tests_and_pages_are_checked_alone() -> None:
    assert suites(["tests/parts/view/test_keyboard.py"]) == ["tests/parts/view"]
    assert suites(["docs/do/viewer.md", "README.md"]) == ABOUT_PAGES
    assert suites([]) == []


def test_every_path_that_can_be_chosen_is_there() -> None:
    chosen = {path for part in parts() for path in suites([f"microsim/parts/{part}/x.py"])}
    assert not [path for path in [*chosen, *ABOUT_PAGES] if not (ROOT / path).exists()]
    assert {*FURTHER} <= {*parts()}
