"""Finding and reading what a scenario consists of: the YAML itself, and the files and folders it names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from microsim.documents.yaml_text import MAX_BYTES
from microsim.errors import Problem, ScenarioError, did_you_mean, unknown
from microsim.paths import data_folder, mission_names, scenario_file, scenario_names

SUFFIXES = (".yaml", ".yml", ".json")


def find_scenario(source: str | Path) -> Path:
    """The file that a shipped scenario's name, or a path, stands for."""
    if isinstance(source, str) and source in scenario_names():
        return scenario_file(source)
    path = Path(source)
    if (source and _exists(path)) or (not isinstance(source, str)) or path.suffix in SUFFIXES or len(path.parts) > 1:
        return path
    raise ScenarioError(Problem(unknown("no scenario", repr(source), source, scenario_names())))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a null character
        return False


def read_text(file: Path) -> str:
    """The text of a scenario file."""
    try:
        if file.is_dir():
            raise _refuse(file, "expected a file, found a folder")
        if not file.exists():
            raise _refuse(file, f"no such file{_nearest_file(file)}")
        if not file.is_file():
            raise _refuse(file, "expected a regular file")
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _refuse(file, f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise _refuse(file, f"not a path: {error}") from None
    if len(raw) > MAX_BYTES:
        raise _refuse(file, f"expected at most {MAX_BYTES:,} bytes, found more")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ScenarioError(Problem("expected text in UTF-8", file=str(file), line=line)) from None


def _refuse(file: Path, message: str) -> ScenarioError:
    return ScenarioError(Problem(message, file=str(file)))


def _nearest_file(file: Path) -> str:
    beside = [path.name for path in file.parent.glob("*") if path.suffix in SUFFIXES] if file.parent.is_dir() else []
    shipped = file.stem in (*scenario_names(), *mission_names())
    return did_you_mean(file.name, beside) or (f"; the shipped one is called {file.stem!r}" if shipped else "")


def search_folders(file: Path | None) -> list[Path]:
    """Where the files that a scenario names are looked for: beside it, above it, here, in the shipped data."""
    beside = [file.resolve().parent, file.resolve().parent.parent] if file is not None else []
    return list(dict.fromkeys([*beside, Path.cwd(), data_folder()]))


def locate(name: str, folders: Iterable[Path]) -> Path | None:
    """The first place where there is such a file or folder."""
    for folder in folders:
        path = folder / name
        if _exists(path):
            return path.resolve()
    return None


def portable(path: Path) -> str:
    """An absolute path; for shipped data, one that means the same wherever MicroSim is installed."""
    shipped = data_folder().resolve()
    return path.relative_to(shipped).as_posix() if path.is_relative_to(shipped / "scenarios") else str(path)


def located(name: str) -> Path:
    """The path of what `portable` named."""
    return data_folder() / name
