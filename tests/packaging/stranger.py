"""Writes a package of a stranger: what the documentation shows, a file each, and the entry points that find them.

python stranger.py DOCS FOLDER    # then: pip install FOLDER
"""

import re
import sys
from pathlib import Path

GREET = '''"""microsim greet"""

from microsim import Command


def greet() -> int:
    """Greet the robots."""
    print("hello, robots")
    return 0


COMMAND = Command(greet)
'''

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "stranger"
version = "1.0"

[tool.setuptools]
packages = ["stranger", "stranger.commands"]

[project.entry-points."microsim.attachments"]
trace = "stranger.trace"

[project.entry-points."microsim.transports"]
tape = "stranger.tape"

[project.entry-points."microsim.sensors"]
trip_meter = "stranger.trip_meter"

[project.entry-points."microsim.parts"]
stranger = "stranger"
"""


def shown(page: Path, name: str) -> str:
    """The file of that name on a page."""
    found = re.search(rf"^:caption: (?:\S+/)?{name}\n\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None, f"{page} shows no {name}"
    return found[1]


def main(docs: Path, folder: Path) -> None:
    package = folder / "stranger"
    (package / "commands").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    for name in ("__init__.py", "commands/__init__.py"):
        (package / name).write_text("", encoding="utf-8")
    for name in ("trace.py", "tape.py", "trip_meter.py"):
        (package / name).write_text(shown(docs / "do" / "plugins.md", name), encoding="utf-8")
    (package / "commands" / "greet.py").write_text(GREET, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
