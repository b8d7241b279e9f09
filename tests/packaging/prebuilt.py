"""Compile what runs of shipped scenarios, worlds and demos need, for each level of this machine's processors.

    python tests/packaging/prebuilt.py FOLDER          # writes an archive for each level into it

A wheel with these archives in `microsim/kernels` compiles nothing in a first run. Nothing is run on the level itself:
a processor that has more gives the same bytes.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from microsim.engine.compiled import VERSIONS
from microsim.engine.prebuilt import Level, archive_name, environment_of, levels_here, write_archive
from microsim.shipped import choices

QUICKLY = ("--rtf", "0", "--duration", "2", "--quiet")


def runs(scratch: Path) -> Iterator[tuple[str, ...]]:
    """Words of the command line: what most first runs are."""
    shipped = choices()
    for name in shipped["scenario"]:
        yield "run", name, "--headless", *QUICKLY
    for name in shipped["world"]:
        yield "run", "--world", name, "--headless", *QUICKLY
    for name in shipped["demo"]:
        yield "demo", name, "--no-view", "--rtf", "0", "--duration", "2"
    yield "demo", "oval", "--view-port", "0", "--rtf", "1", "--duration", "2"  # pages draw, too
    yield "run", "default", "--demo", "--headless", *QUICKLY
    yield "run", "default", "--headless", "--record", str(scratch / "recording"), *QUICKLY


def build(level: Level, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        environment = {**os.environ, **environment_of(level), "NUMBA_CACHE_DIR": str(scratch / "cache")}
        for words in runs(scratch):
            command = [sys.executable, "-m", "microsim", *words]
            subprocess.run(command, cwd=scratch, env=environment, check=True, stdout=subprocess.DEVNULL)
        path = folder / archive_name(VERSIONS, level)
        count = write_archive(path, scratch / "cache" / "microsim" / "kernels" / VERSIONS)
    print(f"{path.name}: {count} files, {path.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    for each in levels_here():
        build(each, Path(sys.argv[1]))
