"""Kernels that come with the package give the bits of those compiled here, and are used only where they fit."""

import itertools
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from microsim.engine import prebuilt
from microsim.engine.compiled import VERSIONS
from microsim.engine.prebuilt import LEVELS, Prebuilt, archive_name, environment_of, levels_here, write_archive

pytestmark = pytest.mark.skipif(not levels_here(), reason="no level of this machine's kind is known")

CODE = """
import json, sys
from pathlib import Path
from microsim.engine import prebuilt
prebuilt.FOLDER = Path(sys.argv[1])
from microsim.engine import exact
from microsim.engine.compiled import watched
compiled = []
with watched(lambda: compiled.append(1), lambda: None):
    values = [exact.sin(0.37 * k - 9.0).hex() for k in range(64)]
print(json.dumps([len(compiled), values]))
"""


def sines(folder: Path, cache: Path, **environment: str) -> tuple[int, list[str]]:
    """How many kernels a new process compiled for them, and their bits."""
    run = [sys.executable, "-c", CODE, str(folder)]
    given = {**os.environ, "NUMBA_CACHE_DIR": str(cache), **environment}
    compiled, values = json.loads(subprocess.run(run, env=given, capture_output=True, text=True, check=True).stdout)
    return compiled, values


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archives of the kernels of a sine, for each level."""
    made = tmp_path_factory.mktemp("kernels")
    for level in levels_here():
        cache = tmp_path_factory.mktemp(level.name)
        assert sines(made, cache, **environment_of(level))[0] > 0
        write_archive(made / archive_name(VERSIONS, level), cache / "microsim" / "kernels" / VERSIONS)
    return made


@pytest.fixture(scope="module")
def compiled_here(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    count, values = sines(tmp_path_factory.mktemp("none"), tmp_path_factory.mktemp("cache"))
    assert count > 0
    return values


def only(level: prebuilt.Level, folder: Path, into: Path) -> Path:
    name = archive_name(VERSIONS, level)
    into.mkdir()
    (into / name).write_bytes((folder / name).read_bytes())
    return into


@pytest.mark.parametrize("level", levels_here(), ids=lambda level: level.name)
def test_no_kernel_is_compiled_and_every_level_has_the_same_bits(
    level: prebuilt.Level, folder: Path, compiled_here: list[str], tmp_path: Path
) -> None:
    assert sines(only(level, folder, tmp_path / "kernels"), tmp_path / "cache") == (0, compiled_here)


def test_they_are_used_where_nothing_can_be_kept(folder: Path, compiled_here: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert sines(folder, tmp_path / "file") == (0, compiled_here)


def test_whoever_names_a_processor_gets_code_for_it(folder: Path, compiled_here: list[str], tmp_path: Path) -> None:
    count, values = sines(folder, tmp_path / "cache", NUMBA_CPU_NAME="generic")
    assert count > 0
    assert values == compiled_here


def test_damaged_archives_are_as_good_as_none(folder: Path, compiled_here: list[str], tmp_path: Path) -> None:
    (path,) = only(levels_here()[0], folder, tmp_path / "kernels").iterdir()
    whole = path.read_bytes()
    middle = len(whole) // 2
    for damaged in (
        b"",
        whole[:middle],  # without its index
        bytes(byte ^ 0x55 for byte in whole[:middle]) + whole[middle:],
        whole[:middle].replace(b"\x00", b"\x01") + whole[middle:],
    ):
        path.write_bytes(damaged)
        count, values = sines(path.parent, tmp_path / "cache")
        assert values == compiled_here
    assert count == 0  # what the first of them compiled was kept


def test_every_byte_is_checked_before_use(folder: Path, tmp_path: Path) -> None:
    (path,) = only(levels_here()[0], folder, tmp_path / "kernels").iterdir()
    whole = path.read_bytes()
    archive, files = Prebuilt(path.parent, VERSIONS), zipfile.ZipFile(path).infolist()
    contents = {each.filename: archive.read(each.filename) for each in files}
    assert None not in contents.values()
    for each in files:
        for share in (0.1, 0.5, 0.9):
            place = each.header_offset + 30 + len(each.filename) + int(share * each.file_size)
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            found = Prebuilt(path.parent, VERSIONS).read(each.filename)
            assert found is None, each.filename


def test_a_processor_gets_the_best_level_that_it_has(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for level in levels_here():
        monkeypatch.setattr(llvm, "get_host_cpu_features", lambda level=level: dict.fromkeys(level.features, True))
        target = Prebuilt(folder, VERSIONS).target
        assert target is not None
        assert target[1] == level.name
    needed = levels_here()[-1].features
    if needed:
        monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: dict.fromkeys(needed, False))
        assert Prebuilt(folder, VERSIONS).target is None
    assert Prebuilt(folder, "another version").target is None
    assert Prebuilt(tmp_path / "missing", VERSIONS).target is None


def test_a_better_level_has_all_features_of_those_below() -> None:
    for levels in LEVELS.values():
        for better, worse in itertools.pairwise(levels):
            assert better.features > worse.features


def test_the_same_kernels_make_the_same_archive(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    for name in ("b.nbc", "a.nbc", "precompiled-1", "unrelated.txt"):
        (kernels / name).write_bytes(name.encode())
    assert write_archive(tmp_path / "one" / "k.zip", kernels) == 3
    for each in kernels.iterdir():
        os.utime(each, (1, 1))
    write_archive(tmp_path / "two" / "k.zip", kernels)
    assert (tmp_path / "one" / "k.zip").read_bytes() == (tmp_path / "two" / "k.zip").read_bytes()
