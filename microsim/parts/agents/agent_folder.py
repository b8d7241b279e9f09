"""The folder that an agent works in: every path it names stays inside, and files name nothing outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from microsim.errors import MissionError, ScenarioError, UsageError, unknown
from microsim.parts.missions.mission_file import is_mission
from microsim.paths import data_folder, mission_file, mission_names, scenario_file, scenario_names
from microsim.scenario.files import SUFFIXES, read_file

MOST_BYTES = 64 * 1024  # of a file that is written or read
_MOST_FILES = 100  # in a list


class AgentFolder:
    def __init__(self, root: Path, allow_plugins: bool = False) -> None:
        if not root.is_dir():
            raise UsageError(f"{root}: expected a folder for the agent's files")
        self.root, self.allow_plugins = root.resolve(), allow_plugins

    def path(self, name: str) -> Path:
        """A path inside the folder; links that lead out of it are refused too."""
        try:
            path = (self.root / name).resolve()
        except (OSError, ValueError) as error:
            raise UsageError(f"{name[:100]!r} is not a path: {error}") from None
        if path != self.root and self.root not in path.parents:
            raise UsageError(f"{name!r} is outside the folder of this server; use a relative path without ..")
        return path

    def files(self) -> list[str]:
        """YAML and JSON files."""
        found = (path for path in sorted(self.root.rglob("*")) if path.suffix in SUFFIXES and path.is_file())
        return [path.relative_to(self.root).as_posix() for _, path in zip(range(_MOST_FILES), found, strict=False)]

    def read(self, name: str) -> str:
        path = self.path(name)
        if not path.is_file():
            raise UsageError(unknown("no file", repr(name), name, self.files()))
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{name} has more than {MOST_BYTES:,} bytes")
        return path.read_text(encoding="utf-8", errors="replace")

    def write(self, name: str, text: str) -> Path:
        path = self.path(name)
        if path.suffix not in SUFFIXES:
            raise UsageError(f"{name!r}: expected a name that ends with {', '.join(SUFFIXES)}")
        if len(text.encode()) > MOST_BYTES:
            raise UsageError(f"a file may have {MOST_BYTES:,} bytes at most, this one has {len(text.encode()):,}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def new(self, name: str, suffix: str) -> Path:
        """Where a result goes; an existing one is not replaced."""
        path = self.path(name)
        if path.suffix != suffix:
            raise UsageError(f"{name!r}: expected a name that ends with {suffix or 'no suffix: it is a folder'}")
        if path.exists():
            raise UsageError(f"{name} already exists; choose another name")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    # ---- scenarios and missions --------------------------------------------------------------------------------------

    def scenario(self, name: str) -> str:
        """A shipped scenario's name, or the path of a file that may be loaded."""
        return self._source(name, scenario_names(), "no scenario", ScenarioError)

    def mission(self, name: str) -> str:
        return self._source(name, mission_names(), "no mission", MissionError)

    def kind(self, name: str) -> str:
        """Whether a name or file is a mission or a scenario."""
        if name in mission_names():
            return "mission"
        return "mission" if name not in scenario_names() and is_mission(self.path(name)) else "scenario"

    def _source(self, name: str, shipped: list[str], what: str, refusal: type[ScenarioError]) -> str:
        if name in shipped:
            return name
        path = self.path(name)
        if not path.is_file():
            raise UsageError(unknown(what, repr(name), name, [*shipped, *self.files()]))
        self._check_references(path, refusal)
        return str(path)

    def _check_references(self, file: Path, refusal: type[ScenarioError]) -> None:
        """Files that a scenario or mission names are inside the folder or shipped; plug-ins are code."""
        data, places = read_file(file, refusal)
        if isinstance(data, Mapping) and data.get("plugins") and not self.allow_plugins:
            raise refusal(places.problem("plug-ins are code; start the server with --allow-plugins", ("plugins",)))
        allowed = (self.root, data_folder().resolve())
        for loc, text in _texts(data, ()):
            path = _path(file.parent, text)
            is_outside = path is not None and not any(each == path or each in path.parents for each in allowed)
            if path is not None and is_outside and path.exists():
                raise refusal(places.problem(f"{text!r} is outside the folder of this server", loc))


def shipped_file(name: str) -> Path:
    return mission_file(name) if name in mission_names() else scenario_file(name)


def _texts(value: Any, loc: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield loc, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, (*loc, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*loc, index))


def _path(folder: Path, text: str) -> Path | None:
    """What a text would be as a path; None: it is not one."""
    try:
        return (folder / text).resolve() if text and len(text) < 1000 else None
    except (OSError, ValueError, RuntimeError):
        return None
