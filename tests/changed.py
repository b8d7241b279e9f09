"""Which tests a change can break: `python -m tests.changed [SINCE]` prints their paths, `make test-changed` runs them.

A change of the core can break everything. A change of a part can break its own tests, those of the parts that build on
it, and those of the command line and the documentation, where all parts meet.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALL = ["tests"]
EVERYWHERE = ["tests/unit/cli", "tests/unit/engine/test_architecture.py", "tests/unit/engine/test_one_place.py"]
ABOUT_PAGES = ["tests/unit/cli/test_docs.py", "tests/unit/cli/test_public_names.py", "tests/unit/cli/test_wording.py"]
FURTHER = {  # beside tests/parts/NAME
    "live_tools": ["tests/integration"],
    "missions": ["tests/acceptance", "tests/unit/engine"],
    "ros2": ["tests/integration"],
    "small_nodes": ["tests/integration"],
    "view": ["tests/browser"],
    "worlds": ["tests/unit/bundle", "tests/browser"],
}


@cache
def imported(folder: Path) -> set[str]:
    """Parts that the files of a folder import."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in sorted(folder.rglob("*.py"))]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {module.split(".")[2] for module in modules if module.startswith("microsim.parts.")}


@cache
def parts() -> list[str]:
    return sorted(path.parent.name for path in (ROOT / "microsim" / "parts").glob("*/__init__.py"))


@cache
def uses() -> dict[str, set[str]]:
    """Which other parts each part imports."""
    return {part: imported(ROOT / "microsim" / "parts" / part) - {part} for part in parts()}


def affected(changed: Iterable[str]) -> set[str]:
    """These parts and all that build on them, directly or not."""
    found = set(changed)
    while more := {part for part, others in uses().items() if others & found} - found:
        found |= more
    return found


def suites(changed: Iterable[str]) -> list[str]:
    """Paths of tests, for the paths that changed."""
    code, tests, has_pages = set(), set(), False
    for path in changed:
        part = re.match(r"(microsim|tests)/parts/(\w+)/", path)
        if part:
            (code if part[1] == "microsim" else tests).add(part[2])
        elif path.endswith((".md", ".rst")) or path.startswith("docs/"):
            has_pages = True
        else:
            return ALL
    broken = affected(code)
    chosen = tests | {part for part in parts() if broken & (imported(ROOT / "tests" / "parts" / part) | {part})}
    found = [f"tests/parts/{part}" for part in sorted(chosen)]
    found += sorted({path for part in broken for path in FURTHER.get(part, ())})
    return [*found, *EVERYWHERE] if broken else [*found, *(ABOUT_PAGES if has_pages else ())]


def changed_since(reference: str) -> list[str]:
    """Committed or not, and new files."""
    listed = (["git", "diff", "--name-only", reference], ["git", "ls-files", "--others", "--exclude-standard"])
    return [
        path
        for command in listed
        for path in subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
        if path
    ]


if __name__ == "__main__":
    print(*suites(changed_since(sys.argv[1] if len(sys.argv) > 1 else "HEAD")))
