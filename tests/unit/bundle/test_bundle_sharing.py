"""Many processes read one bundle at once, without copies, and nothing is ever written into it."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from microsim.bundle import load_bundle
from microsim.bundle.bundle_writing import splat_ply
from tests.bundle_support import change, small_bundle

LOADER = """
import sys
import numpy as np
from microsim.bundle import load_bundle
bundle = load_bundle(sys.argv[1])
total = bundle.heightmap.values.sum(dtype=np.float64) + bundle.gaussians.values.sum(dtype=np.float64)
print("loaded", float(total), flush=True)
sys.stdin.readline()
"""

WATCHED = """
import os, sys
written = []
def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if path.startswith(sys.argv[1]) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            written.append(path)
    if event in ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.utime"):
        if os.path.realpath(os.fsdecode(arguments[0])).startswith(sys.argv[1]):
            written.append(f"{event} {arguments[0]}")
sys.addaudithook(watch)
from microsim.bundle import check_bundle, load_bundle
from microsim.cli import app
load_bundle(sys.argv[1])
check_bundle(sys.argv[1])
for words in ("bundle info", "validate", "bundle tf", "bundle pack"):
    arguments = [*words.split(), sys.argv[1], *([sys.argv[2]] if "pack" in words else [])]
    try:
        app(arguments)
    except SystemExit as end:
        assert not end.code, arguments
assert not written, written
"""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """16 MB of heights and 11 MB of Gaussians."""
    folder = small_bundle(tmp_path / "large")
    change(folder / "geometry/heightmap.yaml", lambda data: data.update(width=2048, height=2048))
    (folder / "geometry/heightmap.bin").write_bytes(np.ones((2048, 2048), "<f4").tobytes())
    values = np.zeros((200_000, 14), np.float32)
    values[:, 9] = 1.0
    (folder / "gaussians/background.splat.ply").write_bytes(splat_ply(values, 0))
    return folder


def mapped(pid: int, file: Path) -> dict[str, int]:
    """What the kernel says about a process's mapping of a file: sizes in bytes."""
    found: dict[str, int] = {}
    is_it = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and len(words) >= 5:
            is_it = words[-1] == str(file)
            if is_it:
                assert words[1].startswith("r--"), line  # not writable
        elif is_it and words[-1] == "kB":
            found[words[0].rstrip(":")] = found.get(words[0].rstrip(":"), 0) + 1024 * int(words[1])
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processes_share_the_pages_of_one_bundle(large):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", LOADER, large], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    try:
        answers = [process.stdout.readline() for process in processes if process.stdout is not None]
        assert len(set(answers)) == 1
        assert answers[0].startswith("loaded")
        for name in ("geometry/heightmap.bin", "gaussians/background.splat.ply"):
            file = large / name
            shares = [mapped(process.pid, file) for process in processes]
            size = file.stat().st_size
            for share in shares:
                assert share["Rss"] >= 0.99 * size
                assert share["Private_Dirty"] == share["Shared_Dirty"] == 0
            together = sum(share["Pss"] for share in shares)  # a page of three counts a third for each
            assert together <= 1.05 * size
    finally:
        for process in processes:
            process.communicate("\n", timeout=60)


def test_what_is_loaded_cannot_be_written_to(large):
    bundle = load_bundle(large)
    for array in (bundle.heightmap.values, bundle.gaussians.values, bundle.mesh.vertices, bundle.drivable.edges):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def snapshot(folder: Path) -> dict[str, tuple[int, ...]]:
    facts = {path: path.stat() for path in [folder, *folder.rglob("*")]}
    return {str(path): (fact.st_mode, fact.st_size, fact.st_mtime_ns, fact.st_ctime_ns) for path, fact in facts.items()}


def test_nothing_is_ever_written_into_a_bundle_in_a_read_only_folder(tmp_path):
    """Loading, checking, showing, packing; root may write anywhere, so what is opened is watched too."""
    folder = small_bundle(tmp_path / "small")
    for path in [*folder.rglob("*"), folder]:
        path.chmod(stat.S_IRUSR | (stat.S_IXUSR if path.is_dir() else 0))
    before = snapshot(folder)
    try:
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, os.path.realpath(folder), tmp_path / "packed.zip"],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert snapshot(folder) == before
        assert (tmp_path / "packed.zip").stat().st_size > 0
    finally:
        for path in [folder, *folder.rglob("*")]:
            path.chmod(stat.S_IRWXU)
