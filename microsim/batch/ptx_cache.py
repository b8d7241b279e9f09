"""PTX on disk, an entry in one file: no process sees half of one, or the name of one kernel with the code of another.

The compiler names a kernel differently from process to process. So the kernel is renamed after its entry before it is
kept: the files that processes write at the same time are interchangeable. What is loaded is the name in the file.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp, mkstemp

_MARK = b"// microsim "  # begins the first line, a comment of PTX; the SHA-256 of all that follows comes after it
_ENTRY = re.compile(rb"^\s*(?:\.visible\s+)?\.entry\s+([A-Za-z_$%][\w$]*)", re.MULTILINE)


def kept_ptx(folder: Path | None, key: str, make: Callable[[], bytes]) -> tuple[Path, str]:
    """The file with the PTX of that key, and the name of its kernel. `make` compiles what is missing or damaged.

    Processes that miss an entry together each compile it, and the last one replaces the file of the others. Without a
    folder that can be written to, the file is in one of its own.
    """
    if folder is not None:
        file = folder / f"{key}.ptx"
        name = f"kernel_{key}"
        if _entry_of_file(file) == name:  # or another's code was copied there
            return file, name
    code, name = _renamed(make(), f"kernel_{key}")
    content = _MARK + hashlib.sha256(code).hexdigest().encode() + b"\n" + code
    if folder is not None:
        with suppress(OSError):  # no room, or no permission: below
            _write_whole(file, content)
            return file, name
    alone = Path(mkdtemp(prefix="microsim-")) / f"{key}.ptx"
    _write_whole(alone, content)
    return alone, name


def _renamed(code: bytes, name: str) -> tuple[bytes, str]:
    """The code with another name of its kernel, with which the names of its parameters begin."""
    found = entry_name(code)
    if found is None:
        raise ValueError("expected code with one kernel")
    return code.replace(found.encode(), name.encode()), name


def entry_name(code: bytes) -> str | None:
    """The name of the one kernel in some PTX."""
    names = _ENTRY.findall(code)
    return names[0].decode() if len(names) == 1 else None


def _entry_of_file(file: Path) -> str | None:
    """The name of its kernel; None where the file is missing, or is not what was written."""
    try:
        head, _, code = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    return entry_name(code) if head == _MARK + hashlib.sha256(code).hexdigest().encode() else None


def _write_whole(file: Path, content: bytes) -> None:
    """Other processes see all of it or nothing."""
    handle, part = mkstemp(prefix=f"{file.stem}-", suffix=".part", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        Path(part).replace(file)
    except BaseException:  # Ctrl-C too
        with suppress(OSError):
            Path(part).unlink()
        raise
