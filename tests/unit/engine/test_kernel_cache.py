"""Compiled kernels are kept in files named by all that decides their bits: an outdated one is never loaded."""

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher

from microsim.engine import compiled, kernel_key
from microsim.render import splat

PACKAGE = Path(compiled.__file__).parents[1]


def modules_with_kernels() -> Iterator[ModuleType]:
    for folder in compiled.KERNEL_FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            if "kernel" in path.read_text(encoding="utf-8") and path.name != "ppo.py":  # which needs torch
                place = path.relative_to(PACKAGE.parent).with_suffix("")
                yield import_module(".".join(place.parts).removesuffix(".__init__"))


def kernels() -> dict[str, Any]:
    return {
        f"{module.__name__}.{name}": value
        for module in modules_with_kernels()
        for name, value in vars(module).items()
        if isinstance(value, Dispatcher)
    }


def key_now(function: Callable[..., Any]) -> str:
    """Not the one that was computed before."""
    return kernel_key._key.__wrapped__(getattr(function, "py_func", function))


def test_every_kernel_has_a_key_that_is_the_same_in_every_process() -> None:
    here = {name: kernel_key.key_of(each) for name, each in kernels().items()}
    assert len(here) > 400
    code = f"from {Path(__file__).stem} import *; [print(n, kernel_key.key_of(k)) for n, k in kernels().items()]"
    run = [sys.executable, "-c", code]
    printed = subprocess.run(run, cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout.split()
    assert dict(zip(printed[::2], printed[1::2], strict=True)) == here


def test_another_constant_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache was named by a hash of files that contain the word "kernel", and the old picture was drawn."""
    before = {name: key_now(each) for name, each in kernels().items()}
    for module in {splat, *modules_with_kernels()}:
        if "DILATION_PX2" in vars(module):
            monkeypatch.setattr(module, "DILATION_PX2", 0.9)
    changed = {name for name, each in kernels().items() if key_now(each) != before[name]}
    assert changed
    assert all(name.startswith("microsim.render.") for name in changed)


# Modules of a plug-in, each of which takes something from the one before it.
CHAIN = {
    "constants": "import numpy as np\nGAIN = 2.0\nUNUSED = 1\nTABLE = np.array([1.0, 2.0])\nSIZES = (3, (4, 5.0))\n",
    "inner": """
        from microsim.engine.compiled import kernel
        import constants
        from constants import TABLE
        @kernel
        def innermost(x):
            "Doubles."
            return x * constants.GAIN
        def folded():
            return [each * 2.0 for each in (1.0, 2.0)]
        OFFSET = sum(folded())
        @kernel
        def inner(x):
            return innermost(x) + TABLE[1] + OFFSET
        """,
    "outer": """
        from microsim.engine.compiled import kernel
        from constants import SIZES
        from inner import inner as other_name
        LIMIT = SIZES[1][1]
        def make(step):
            def made(x):
                return min(other_name(x) + step, LIMIT)
            return made
        sample = kernel(make(0.5))
        """,
}
EDITS_THAT_DECIDE = [
    ("constants", "GAIN = 2.0", "GAIN = 2.5"),
    ("constants", "GAIN = 2.0", "GAIN = 2"),  # another type compiles to other code
    ("constants", "[1.0, 2.0]", "[1.0, 2.5]"),
    ("constants", "5.0", "-5.0"),
    ("inner", "x * constants", "x + constants"),
    ("inner", "TABLE[1]", "TABLE[0]"),
    ("inner", "each * 2.0", "each * 3.0"),
    ("outer", "make(0.5)", "make(0.25)"),
    ("outer", "min(", "max("),
]
EDITS_THAT_DO_NOT = [
    ("constants", "UNUSED = 1", "UNUSED = 2"),
    ("constants", "GAIN", "# a comment\nGAIN"),
    ("inner", "Doubles.", "Multiplies by the gain."),
    ("inner", "def folded", "\n\n        def folded"),
]


def key_of_chain(chain: dict[str, str]) -> str:
    before = {name: sys.modules.pop(name, None) for name in chain}
    try:
        for name, text in chain.items():
            sys.modules[name] = module = ModuleType(name)
            exec(compile(textwrap.dedent(text), f"{name}.py", "exec"), vars(module))  # noqa: S102 - the text above
        return kernel_key.key_of(sys.modules["outer"].sample)
    finally:
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module


@given(edits=st.sets(st.sampled_from([*EDITS_THAT_DECIDE, *EDITS_THAT_DO_NOT]), min_size=1))
def test_exactly_edits_that_decide_bits_change_the_key(edits: set[tuple[str, str, str]]) -> None:
    edited = dict(CHAIN)
    decides = False
    for name, text, other in sorted(edits):
        if text in edited[name]:  # not edited by another one already
            edited[name] = edited[name].replace(text, other, 1)
            decides = decides or (name, text, other) in EDITS_THAT_DECIDE
    assert (key_of_chain(edited) != key_of_chain(CHAIN)) == decides


def test_a_kernel_that_refers_to_something_without_a_value_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "CACHE_FOLDER", tmp_path)
    state = type("State", (), {})()

    def refers(x):
        return x if x > 0 else state

    with pytest.raises(kernel_key.NotByValueError):
        kernel_key.key_of(refers)
    cache = compiled.KernelCache(refers, "")
    cache._cache_file.save("key", "code")
    assert cache._cache_file.load("key") is None
    assert list(tmp_path.iterdir()) == []


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
