"""What the code of a plug-in is: its file, and every module of the user's that it imports. Nothing of it is run."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

NO_CODE = hashlib.sha256(b"").hexdigest()  # of what was not written in a file
_LIBRARIES = ("site-packages", "dist-packages")  # a part of the path of what is installed: its version stands for it


def code_hash(file: Path | None) -> str:
    """Of all files, and of where they are beside each other; not of the folder that they are in."""
    if file is None:
        return NO_CODE
    files = [file, *sorted(code_files(file) - {file})]
    contents = [each.read_bytes() for each in files]
    if len(files) == 1:
        return hashlib.sha256(contents[0]).hexdigest()
    digest = hashlib.sha256()
    for each, content in zip(files, contents, strict=True):
        digest.update(f"{each.name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def code_files(file: Path) -> set[Path]:
    """The file and what it imports, directly or not: modules beside it, in its package, and elsewhere on Python's path.

    Neither Python's own modules nor those of installed packages, except the plug-in's own package.
    """
    found, left = set[Path](), [file.resolve()]
    while left:
        each = left.pop()
        if each not in found:
            found.add(each)
            left += _imported(each)
    return {file if each == file.resolve() else each for each in found}


def entry_file(entry: EntryPoint) -> Path | None:
    """Where the module of an entry point is; None: it is not found, or not written in Python."""
    return next(iter(_found(entry.value.partition(":")[0].strip(), list(sys.path))), None)


def _imported(file: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return  # it cannot be imported either
    folder, top = file.parent, _top(file)
    path = [str(folder), str(top), *sys.path]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = ".".join((*file.parent.relative_to(top).parts[: 1 - node.level or None], "")) if node.level else ""
            module = (start + (node.module or "")).rstrip(".")
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            for each in _found(name, path):
                if _is_own(each, top):
                    yield each.resolve()


def _top(file: Path) -> Path:
    """The folder from which the file's package is imported."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _is_own(file: Path, top: Path) -> bool:
    package = Path(__file__).parent
    if package in file.parents:
        return False
    return not any(part in _LIBRARIES for part in file.parts) or top in file.parents


def _found(name: str, path: list[str]) -> Iterator[Path]:
    """The file of a module, after those of the packages that it is in."""
    first, *rest = name.split(".")
    if not first or first in sys.stdlib_module_names or first == __package__:
        return
    spec = PathFinder.find_spec(first, path)
    whole = first
    while spec is not None:
        if spec.origin is not None and spec.origin.endswith(".py"):
            yield Path(spec.origin)
        if not rest or spec.submodule_search_locations is None:
            return
        whole = f"{whole}.{rest.pop(0)}"
        spec = PathFinder.find_spec(whole, list(spec.submodule_search_locations))
