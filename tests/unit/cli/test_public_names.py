"""What users may import is listed once, explained, typed, and exactly what the documentation uses."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import microsim
from tests.cli_support import ROOT
from tests.pages import PAGES

PUBLIC = {name for name in dir(microsim) if name != "__version__"}
PYTHON = re.compile(r"^```(?:python|\{code-block\} python)\n(?P<body>.*?)^```\s*$", re.MULTILINE | re.DOTALL)


def programs() -> Iterator[tuple[str, str]]:
    """Every piece of Python in the documentation and the examples, with its place."""
    for page in [ROOT / "README.md", *PAGES]:
        for number, found in enumerate(PYTHON.finditer(page.read_text(encoding="utf-8"))):
            yield f"{page.name}, block {number}", re.sub(r"\A(:.*\n)+", "", found["body"])
    for book in sorted((ROOT / "docs" / "learn/notebooks").glob("*.ipynb")):
        for cell in json.loads(book.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and not source.startswith("%"):
                yield book.name, source
    for file in sorted((ROOT / "examples").rglob("*.py")):
        yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")


def used(program: str) -> Iterator[str]:
    """`Simulation` for `microsim.Simulation` and `from microsim import Simulation`, `sweep.Metric` for deeper ones."""
    tree = ast.parse(program)
    yield from _used_in(tree)
    for node in ast.walk(tree):  # files that a program writes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "from microsim" in node.value:
            yield from _used_in(ast.parse(node.value))


def _used_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "microsim":
            place = node.module.removeprefix("microsim").removeprefix(".")
            yield from (f"{place}.{each.name}".removeprefix(".") for each in node.names)
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names if each.name.startswith("microsim.")]
            yield from (name.removeprefix("microsim.") for name in names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "microsim":
            yield node.attr


def test_what_the_documentation_imports_is_exactly_the_public_names() -> None:
    found = {name: place for place, program in programs() for name in used(program)}
    assert {name: place for name, place in found.items() if name not in PUBLIC | {"__version__"}} == {}
    assert sorted(PUBLIC - set(found)) == [], "public names without an example"


def test_every_public_name_is_in_the_list_of_the_page_and_no_other() -> None:
    page = (ROOT / "docs" / "lookup/python_api.md").read_text(encoding="utf-8")
    lists = page.partition("## All public names")[2].partition("\n## ")[0]
    listed = [name for row in re.findall(r"^\| (`.+?) \|", lists, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(PUBLIC)


def test_type_checkers_see_the_names_that_a_program_gets() -> None:
    tree = ast.parse(Path(microsim.__file__).read_text(encoding="utf-8"))
    branch = next(each for each in tree.body if isinstance(each, ast.If))
    typed = {
        alias.asname: node.module for node in branch.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert typed == microsim._homes()


def test_each_is_there_and_a_wrong_one_is_an_attribute_error() -> None:
    program = (
        "import microsim; assert all(hasattr(microsim, name) for name in dir(microsim))\n"
        "from microsim import *; assert Simulation is microsim.Simulation; assert not hasattr(microsim, 'Simulatoin')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_the_list_of_names_costs_nothing_heavy() -> None:
    program = "import sys, microsim; dir(microsim); print({'numpy', 'numba', 'gymnasium', 'pydantic'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "set()\n"
