"""A bundle as one file: a ZIP without compression, the same bytes for the same content; and safely back."""

from __future__ import annotations

import stat
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from microsim.bundle.files import ENTRY, name_problem
from microsim.bundle.loading import load_bundle
from microsim.errors import MicroSimError, UsageError

MAX_FILES = 1000
MAX_BYTES = 64 * 1024**3
_PIECE = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first day that a ZIP can write


def pack(source: str | Path, file: Path, progress: Callable[[int, int], None] | None = None) -> int:
    """Writes every file that belongs to a valid bundle, and no other, into an archive; returns its size."""
    bundle = load_bundle(source)
    if file.exists():
        raise UsageError(f"{file} is there already; name a new file")
    total = sum(path.stat().st_size for path in bundle.files.values())
    done = 0
    unfinished = file.with_name(file.name + ".part")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name in sorted(bundle.files):
                info = zipfile.ZipInfo(name, _EPOCH)
                info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
                info.file_size = bundle.files[name].stat().st_size
                with bundle.files[name].open("rb") as reading, archive.open(info, "w") as writing:
                    while piece := reading.read(_PIECE):
                        writing.write(piece)
                        done += len(piece)
                        if progress is not None:
                            progress(done, total)
        unfinished.rename(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return file.stat().st_size


def unpack(
    file: Path, folder: Path, max_bytes: int = MAX_BYTES, progress: Callable[[int, int], None] | None = None
) -> None:
    """Into a new folder, which appears only when everything in it is there and valid."""
    if folder.exists():
        raise UsageError(f"{folder} is there already; name a new folder")
    try:
        with zipfile.ZipFile(file) as archive:
            entries = _checked(file, archive, max_bytes)
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".unpacking_", dir=folder.parent) as beside:
                part = Path(beside) / "bundle"
                _extract(archive, entries, part, progress)
                load_bundle(part)
                part.rename(folder)
    except MicroSimError:
        raise
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise UsageError(f"{file}: not an archive that can be read: {error}") from None
    except OSError as error:
        raise UsageError(f"{error.filename or file}: {error.strerror or error}") from None


def _checked(file: Path, archive: zipfile.ZipFile, max_bytes: int) -> list[zipfile.ZipInfo]:
    """The files of the archive, when every name keeps the rules of bundles and their sizes are within bounds."""
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if len(entries) > MAX_FILES:
        raise UsageError(f"{file}: expected at most {MAX_FILES} files, found {len(entries)}")
    if sum(entry.file_size for entry in entries) > max_bytes:
        raise UsageError(f"{file}: unpacked it is larger than {max_bytes:,} bytes; --max-size allows more")
    for entry in entries:
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise UsageError(f"{file}: {entry.filename!r} is no regular file")
        problem = name_problem(entry.filename)
        if problem is not None:
            raise UsageError(f"{file}: {problem[1]} [{problem[0]}]")
    names = [entry.filename for entry in entries]
    if len(set(names)) != len(names):
        raise UsageError(f"{file}: a name stands in it twice")
    if ENTRY not in names:
        raise UsageError(f"{file}: there is no {ENTRY} in it")
    return entries


def _extract(
    archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo], folder: Path, progress: Callable[[int, int], None] | None
) -> None:
    """Never more bytes than an entry declares, whatever its data unpacks to."""
    total, done = sum(entry.file_size for entry in entries), 0
    for entry in entries:
        target = folder / entry.filename
        target.parent.mkdir(parents=True, exist_ok=True)
        left = entry.file_size
        with archive.open(entry) as reading, target.open("xb") as writing:
            while piece := reading.read(_PIECE):
                left -= len(piece)
                if left < 0:
                    raise UsageError(f"{entry.filename!r} is larger than the archive says")
                writing.write(piece)
                done += len(piece)
                if progress is not None:
                    progress(done, total)
