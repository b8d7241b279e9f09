"""Compiled kernels that come with the package: with them a first run compiles nothing.

A wheel for a kind of machine has one archive for each level of its processors, with the files that `compiled` would
keep on disk there (`tests/packaging/prebuilt.py` writes it). A file is named by all that decides a kernel's bits, and
contains the same again: where the source, numba, Python or the processor is another, it is not found, and the kernel is
compiled. Levels give the same bits, since no kernel is compiled with fused multiply-add or with less exact arithmetic.
"""

import zipfile
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba.core.config

FOLDER = Path(__file__).parents[1] / "kernels"
OF_MARKS = "precompiled-"  # names of empty files: what is complete


class Level(NamedTuple):
    """A kind of processor, by LLVM's name."""

    name: str
    features: frozenset[str]  # that it must have

    @property
    def target(self) -> tuple[str, str, str]:
        """As numba names what it compiles for: triple, processor, further features."""
        return llvm.get_process_triple(), self.name, ""


_V2 = frozenset({"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"})
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
LEVELS = {  # by machine; the best first
    "x86_64": (Level("x86-64-v3", _V3), Level("x86-64-v2", _V2)),
    "aarch64": (Level("generic", frozenset()),),
    "arm64": (Level("generic", frozenset()),),  # the same to Apple
}


def levels_here() -> tuple[Level, ...]:
    """Those of this machine's kind."""
    return LEVELS.get(llvm.get_process_triple().partition("-")[0], ())


class Prebuilt:
    """The kernels of the best level that this processor has. Nothing is opened before the first is looked for."""

    def __init__(self, folder: Path, versions: str) -> None:
        self._folder, self._versions = folder, versions

    @cached_property
    def _opened(self) -> tuple[Level, zipfile.ZipFile] | None:
        if numba.core.config.CPU_NAME is not None or numba.core.config.CPU_FEATURES is not None:
            return None  # the user requested code for a particular processor
        if not self._folder.is_dir():
            return None
        has = {name for name, is_there in llvm.get_host_cpu_features().items() if is_there}
        for level in levels_here():
            path = self._folder / archive_name(self._versions, level)
            if level.features <= has and path.is_file():
                try:
                    return level, zipfile.ZipFile(path)
                except (OSError, zipfile.BadZipFile):  # cut off, for example: kernels are compiled
                    return None
        return None

    @property
    def target(self) -> tuple[str, str, str] | None:
        """What its kernels are compiled for; None: there are none for this machine."""
        return None if self._opened is None else self._opened[0].target

    def read(self, name: str) -> bytes | None:
        """A file of it; None: there is no such file, or its bytes are not those that were written."""
        if self._opened is None:
            return None
        try:
            return self._opened[1].read(name)
        except (KeyError, OSError, zipfile.BadZipFile):
            return None

    def has(self, name: str) -> bool:
        return self._opened is not None and name in self._opened[1].NameToInfo


def archive_name(versions: str, level: Level) -> str:
    return f"{versions}-{level.name}.zip"


def write_archive(path: Path, kernels: Path) -> int:
    """Of a folder of compiled kernels: how many files they are. The same files give the same bytes."""
    names = sorted(each.name for each in kernels.iterdir() if each.suffix == ".nbc" or each.name.startswith(OF_MARKS))
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:  # not compressed: it is read at every start, and a wheel is compressed
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), (kernels / name).read_bytes())
    return len(names)


def environment_of(level: Level) -> dict[str, str]:
    """With which numba compiles for that level."""
    return {"NUMBA_CPU_NAME": level.name, "NUMBA_CPU_FEATURES": ""}


def key_for(key: Any, target: tuple[str, str, str]) -> Any:
    """The key of the same signature, compiled for another processor."""
    signature, _ = key
    return signature, target
