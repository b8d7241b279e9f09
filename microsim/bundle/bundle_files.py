"""The files of a bundle: allowed names, none outside the folder, texts of bounded size."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from microsim.bundle.rules import BundleFile, BundleReport
from microsim.documents.json_text import read_json
from microsim.documents.yaml_text import read_yaml
from microsim.errors import ScenarioError, did_you_mean, show

if TYPE_CHECKING:
    from microsim.documents.yaml_text import Path as KeyPath

ENTRY = "world.yaml"
MAX_TEXT_BYTES = {".yaml": 500_000, ".json": 16_000_000, ".geojson": 64_000_000}
MAX_FILE_BYTES = 64 * 1024**3  # of any file: a sparse file can appear to have any size
SUPPORTED_MAJOR, NEWEST_MINOR = 1, 0

_PART = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")


class Folder:
    """The folder of a bundle; opens what `world.yaml` names, and nothing else."""

    def __init__(self, root: Path, report: BundleReport) -> None:
        self.root = root
        self.real_root = Path(os.path.realpath(root))
        self.report = report

    def find(self, world: BundleFile, key: KeyPath, name: Any, extensions: tuple[str, ...]) -> BundleFile | None:
        """The file that `world.yaml` names under `key`, if the name follows the rules and the file exists."""
        if not isinstance(name, str) or not name or len(name) > 1000 or "\0" in name:
            world.problem("field-value", f"expected the path of a file, found {show(name)}", key)
            return None
        problem = name_problem(name)
        if problem is not None:
            world.problem(problem[0], problem[1], key, problem[2])
            return None
        if not name.endswith(extensions):
            message = f"expected a file {' or '.join(extensions)}, found {show(name)}"
            rule = "splat-format" if name.endswith((".npz", ".npy")) and ".splat.ply" in extensions else None
            remedy = "convert it to PLY; `microsim bundle import-splat` reads the usual ones" if rule else ""
            world.problem(rule or "file-extension", message, key, remedy)
            return None
        return self._existing(world, key, name)

    def _existing(self, world: BundleFile, key: KeyPath, name: str) -> BundleFile | None:
        file = self.root / name
        try:
            real = Path(os.path.realpath(file))
            if not real.is_relative_to(self.real_root):
                message = f"{show(name)} is a link to a place outside the bundle"
                world.problem("link-inside", message, key, "copy the file into the bundle")
                return None
            status = file.stat()
        except FileNotFoundError:
            self._missing(world, key, file)
            return None
        except (OSError, ValueError) as error:
            world.problem("regular-file", f"{show(name)} cannot be read: {_reason(error)}", key)
            return None
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "something that is not a regular file"
            world.problem("regular-file", f"expected a file, {show(name)} is {what}", key)
            return None
        if status.st_size > MAX_FILE_BYTES:
            world.problem("regular-file", f"{show(name)} has more than {MAX_FILE_BYTES:,} bytes", key)
            return None
        if not os.access(file, os.R_OK):
            world.problem("regular-file", f"no permission to read {show(name)}", key, "change its permissions")
            return None
        return BundleFile(self.report, name, file)

    def _missing(self, world: BundleFile, key: KeyPath, file: Path) -> None:
        beside = sorted(path.name for path in file.parent.iterdir())[:1000] if file.parent.is_dir() else []
        guess = did_you_mean(file.name, beside)
        remedy = "" if guess else "add the file, or name another one"
        world.problem("required-file", f"no such file: {file}{guess}", key, remedy)


def name_problem(name: str) -> tuple[str, str, str] | None:
    """The first rule that a path breaks, with message and remedy."""
    if re.match(r"[A-Za-z]:", name) or name.startswith(("/", "~")) or "://" in name:
        return "relative-path", f"expected a path relative to {ENTRY}, found {show(name)}", "make the path relative"
    if "\\" in name:
        return "forward-slash", f"found a backslash in {show(name)}", f"write {name.replace(chr(92), '/')!r}"
    parts = name.split("/")
    if ".." in parts:
        return "inside-bundle", f"{show(name)} leaves the bundle through '..'", "put the file into the bundle"
    for part in parts:
        if not _PART.fullmatch(part):
            better = re.sub(r"[^a-z0-9_.]+", "_", part.lower()).strip(".") or "name"
            message = f"expected lower-case letters, digits and underscores, found {show(part)}"
            return "file-name", message, f"rename it, for example to {better!r}"
    if "." not in parts[-1]:
        return "file-extension", f"{show(name)} has no extension", "rename it with one"
    return None


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def read_bytes(source: BundleFile, most: int) -> bytes | None:
    """The whole file, if it has at most `most` bytes."""
    try:
        with source.file.open("rb") as stream:
            raw = stream.read(most + 1)
    except OSError as error:
        source.problem("regular-file", f"cannot be read: {_reason(error)}")
        return None
    if len(raw) > most:
        source.problem("regular-file", f"expected at most {most:,} bytes, found more")
        return None
    return raw


def read_document(source: BundleFile, needs_version: bool = True) -> bool:
    """Parses the text into `source.document` and checks its version; False if it cannot be used."""
    suffix = source.file.suffix
    raw = read_bytes(source, MAX_TEXT_BYTES[suffix])
    if raw is None:
        return False
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        source.problem("parse", "expected text in UTF-8", line=raw.count(b"\n", 0, error.start) + 1)
        return False
    try:
        reader = read_yaml if suffix == ".yaml" else read_json
        source.document = reader(text, str(source.file))
    except ScenarioError as error:
        for each in error.problems:
            source.problem("parse", each.message, line=each.line)
        return False
    return _check_version(source, needs_version)


def _check_version(source: BundleFile, needed: bool) -> bool:
    """False if the file has another major version: its fields may have another meaning."""
    assert source.document is not None
    data = source.document.data
    if not isinstance(data, dict):
        source.problem("field-value", f"expected a mapping, found {show(data)}")
        return False
    version = data.get("version")
    remedy = f'write version: "{SUPPORTED_MAJOR}.{NEWEST_MINOR}.0"'
    if version is None:
        if needed:
            source.problem("version", "missing field 'version'", (), remedy)
        return True
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if found is None:
        source.problem("version", f"expected MAJOR.MINOR.PATCH in quotes, found {show(version)}", ("version",), remedy)
        return True
    if int(found[1]) != SUPPORTED_MAJOR:
        message = f"version {version} is not supported, only {SUPPORTED_MAJOR}.x"
        source.problem("version", message, ("version",), f"convert the bundle to version {SUPPORTED_MAJOR}")
        return False
    source.newer_minor = int(found[2]) > NEWEST_MINOR
    return True
