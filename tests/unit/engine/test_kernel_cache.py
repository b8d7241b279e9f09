"""Compiled kernels are kept in a folder named by all that decides their bits: an outdated one is never loaded."""

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
import pytest

from microsim.engine import compiled

PACKAGE = Path(compiled.__file__).parents[1]


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def kernels_in(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and "kernel" in {ast.unparse(each) for each in node.decorator_list}:
            yield node


def imported_by_kernels(tree: ast.Module) -> set[str]:
    """`microsim.x.name` for every function, constant or module of MicroSim that a kernel uses, also by another name."""
    came_from = {
        name.asname or name.name: f"{node.module}.{name.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("microsim")
        for name in node.names
    }
    used: set[str] = set().union(*map(names_in, kernels_in(tree)))
    for node in tree.body:
        if isinstance(node, ast.Assign) and used & set().union(*map(names_in, node.targets)):
            used |= names_in(node.value)
    return {came_from[name] for name in used if name in came_from}


def test_every_file_that_a_kernel_takes_a_constant_from_is_in_the_name() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    with_kernels = {path.relative_to(PACKAGE).parts[0] for path, tree in trees.items() if any(kernels_in(tree))}
    imported = set().union(*map(imported_by_kernels, trees.values()))
    assert len(imported) > 50
    assert {name for name in imported if name.split(".")[1] not in compiled.KERNEL_FOLDERS} == set()
    assert with_kernels <= set(compiled.KERNEL_FOLDERS)


def test_another_constant_is_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name was a hash of files that contain the word "kernel", and the old picture was drawn."""
    for folder in compiled.KERNEL_FOLDERS:
        shutil.copytree(PACKAGE / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "engine" / "compiled.py"))
    before = compiled._source_hash()
    assert before == compiled._source_hash()
    changed = tmp_path / "render" / "splat" / "__init__.py"
    assert "DILATION_PX2 = 0.3" in changed.read_text()
    changed.write_text(changed.read_text().replace("DILATION_PX2 = 0.3", "DILATION_PX2 = 0.9"))
    assert compiled._source_hash() != before


def files_for(folder: Path, stamp: str = "now") -> compiled.SignatureFiles:
    return compiled.SignatureFiles(str(folder), "move-12", stamp)


ONE, OTHER = (numba.int64,), (numba.types.Array(numba.float64, 1, "C", readonly=True),)


def test_signatures_that_two_processes_save_at_the_same_time_keep_their_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numba's own cache gives one of them the code of the other: its index is written before the code."""
    mine, theirs = files_for(tmp_path), files_for(tmp_path)
    save = mine._save_data
    monkeypatch.setattr(theirs, "_load_index", dict)  # it looked before we saved ours

    def save_after_the_other(name: str, data: object) -> None:
        theirs.save(OTHER, "code of the other")
        save(name, data)

    monkeypatch.setattr(mine, "_save_data", save_after_the_other)
    mine.save(ONE, "code")
    assert [files_for(tmp_path).load(each) for each in (ONE, OTHER)] == ["code", "code of the other"]


def test_a_file_that_is_damaged_stale_or_of_another_signature_is_not_loaded(tmp_path: Path) -> None:
    files = files_for(tmp_path)
    files.save(ONE, "code")
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    assert files_for(tmp_path, "later").load(ONE) is None
    assert files.load(OTHER) is None
    file.rename(tmp_path / files._name(OTHER))
    assert files.load(OTHER) is None
    file.write_bytes(whole[: len(whole) // 2])
    assert files.load(ONE) is None
    file.write_bytes(whole)
    assert files.load(ONE) == "code"


def test_a_kernel_is_kept_in_a_file_for_each_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "CACHE_FOLDER", tmp_path)

    def twice(x):
        return x + x

    first, again = compiled.kernel(twice), compiled.kernel(twice)
    assert [first(1), first(0.25)] == [2, 0.5]
    assert len(list(tmp_path.rglob("*.nbc"))) == 2
    assert not list(tmp_path.rglob("*.nbi"))
    compilations: list[None] = []
    with compiled.watched(lambda: compilations.append(None), lambda: None):
        assert [again(1), again(0.25)] == [2, 0.5]
        assert compilations == []
        assert again(np.ones(2)).tolist() == [2.0, 2.0]
    assert compilations
