"""What the code of a plug-in is: its file, and what that imports. Nothing of it is run.

Modules of the user and of the package that installs the plug-in count by their content, other libraries by name and
version. Libraries that MicroSim needs itself do not count: what it computes must not depend on their version.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

NO_CODE = hashlib.sha256(b"").hexdigest()  # of what was not written in a file
_INSTALLED = ("site-packages", "dist-packages")  # folders of installed packages
# by MicroSim; fixed, since a token must mean the same code however MicroSim was installed
_NEEDED = frozenset({
    "numpy", "numba", "rosbags", "backports.zstd", "cyclonedds", "pydantic", "ruamel.yaml", "shapely", "pillow",
    "typing_extensions", "typer", "rich",
})  # fmt: skip
_ADDING = ("sys.path.insert", "sys.path.append", "sys.path.extend", "site.addsitedir")
_LEVELS = 3  # of folders around a file in which those that it adds are looked for
_MODULES = (".py", *EXTENSION_SUFFIXES)


def code_hash(file: Path | None) -> str:
    """Of all files and libraries, and of where files are beside each other; not of the folder that they are in."""
    if file is None:
        return NO_CODE
    found, libraries = _code(file)
    files = [file, *sorted(found - {file})]
    contents = [each.read_bytes() for each in files]
    if len(files) == 1 and not libraries:
        return hashlib.sha256(contents[0]).hexdigest()
    digest = hashlib.sha256()
    for each, content in zip(files, contents, strict=True):
        digest.update(f"{each.name} {hashlib.sha256(content).hexdigest()}\n".encode())
    digest.update("".join(f"{each}\n" for each in sorted(libraries)).encode())
    return digest.hexdigest()


def code_files(file: Path) -> set[Path]:
    """The file and what it imports, directly or not: modules beside it, in its package, and elsewhere on Python's path.

    Neither Python's own modules nor those of other installed packages.
    """
    return _code(file)[0]


def _code(file: Path) -> tuple[set[Path], set[str]]:
    """Files, and libraries with their versions."""
    found, libraries, own = set[Path](), set[str](), _distributions_of(file)
    added: list[str] = []
    left = [file.resolve(), *_packages_of(file.resolve())]
    while left:
        each = left.pop()
        if each not in found:
            found.add(each)
            for module in _imported(each, added):
                others = _distributions_of(module)
                if not others or set(others) & set(own):
                    left.append(module)
                else:
                    libraries |= {_with_version(name) for name in others if name.lower() not in _NEEDED}
    return {file if each == file.resolve() else each for each in found}, libraries


def entry_file(entry: EntryPoint) -> Path | None:
    """Where the module of an entry point is; None: it is not found, or not written in Python."""
    name = entry.value.partition(":")[0].strip()
    found = list(_found(name, list(sys.path)))  # those of its packages come first
    if not found:
        return None
    last = found[-1].parent if found[-1].stem == "__init__" else found[-1]
    return found[-1] if last.name.partition(".")[0] == name.rpartition(".")[2] else None


def _imported(file: Path, added: list[str]) -> Iterator[Path]:
    """`added`: folders that the files so far add to Python's path; those of this file come on top."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return  # it cannot be imported either
    added += [str(each) for each in _added_folders(tree, file)]
    folder, top = file.parent, _top(file)
    path, package = [str(folder), str(top), *added, *sys.path], Path(__file__).parent
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
                if package not in each.parents:
                    yield each.resolve()


def _added_folders(tree: ast.AST, file: Path) -> Iterator[Path]:
    """Folders that a file would add to `sys.path` if it ran: the code of a plug-in is the same before and after.

    What is written there is not evaluated: `Path(__file__).parents[1] / "lib"` is a folder "lib" of one of the folders
    that the file is in.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _ADDING:
            texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            parts = [text for text in texts if isinstance(text, str) and text not in ("..", ".")]
            for place in [file.parent, *file.parents[1:_LEVELS]]:
                found = place.joinpath(*parts)
                if found.is_dir():
                    yield found


def _packages_of(file: Path) -> Iterator[Path]:
    """What runs before a module: the packages that it is in."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        yield folder / "__init__.py"
        folder = folder.parent


def _top(file: Path) -> Path:
    """The folder from which the file's package is imported."""
    return next((package.parents[1] for package in reversed([*_packages_of(file)])), file.parent)


def _distributions_of(file: Path) -> tuple[str, ...]:
    """Names of the installed packages that a module belongs to; none: it is the user's own."""
    places = [index for index, part in enumerate(file.parts[:-1]) if part in _INSTALLED]
    if not places:
        return ()
    name = file.parts[places[-1] + 1].partition(".")[0]
    return _distributions(tuple(sys.path)).get(name, ())


@lru_cache(maxsize=4)
def _distributions(path: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """By the name that is imported. It reads a file of every installed package."""
    from importlib.metadata import packages_distributions

    return {name: tuple(found) for name, found in packages_distributions().items()}


def _with_version(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{distribution}=={version(distribution)}"
    except PackageNotFoundError:  # a folder of another name than the package that it describes
        return distribution


def _found(name: str, path: list[str]) -> Iterator[Path]:
    """The file of a module, after those of the packages that it is in."""
    first, *rest = name.split(".")
    if not first or first in sys.stdlib_module_names or first == __package__:
        return
    spec = PathFinder.find_spec(first, path) or _editable(first)
    whole = first
    while spec is not None:
        if spec.origin is not None and spec.origin.endswith(_MODULES):
            yield Path(spec.origin)
        if not rest or spec.submodule_search_locations is None:
            return
        whole = f"{whole}.{rest.pop(0)}"
        spec = PathFinder.find_spec(whole, list(spec.submodule_search_locations))


def _editable(name: str) -> ModuleSpec | None:
    """A module of a package that is installed where its source is: such have a finder of their own."""
    for finder in sys.meta_path:
        if finder is not PathFinder and (look := getattr(finder, "find_spec", None)) is not None:
            spec: ModuleSpec | None = look(name, None)
            if spec is not None and spec.origin is not None:
                return spec
    return None
