"""Where the shipped data is: scenarios, robot models, worlds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from microsim.errors import MicroSimError

FIRST_DEMO = "oval"


@cache
def data_folder() -> Path:
    """The folder that holds `scenarios/`, `urdf/` and the other data.

    That is the root of a checkout, `share/microsim` beside an installed package (pip, colcon), or the
    `share/microsim` of an ament prefix.
    """
    tried = list(dict.fromkeys(_candidates()))
    for folder in tried:
        if (folder / "scenarios").is_dir():
            return folder
    places = "\n".join(f"  {folder}" for folder in tried)
    raise MicroSimError(f"MicroSim's data files are not installed; looked for a folder 'scenarios' in:\n{places}")


_PACKAGE = "package://microsim/"  # as ROS 2 writes it
_NAMED = ("scenarios", "worlds")  # folders of shipped data whose files scenarios name


def portable(path: Path) -> str:
    """The name of a file or folder that means the same in every working directory.

    An absolute path; for shipped data `package://microsim/...`, which also means the same on every machine.
    """
    path, shipped = path.resolve(), data_folder().resolve()
    if any(path.is_relative_to(shipped / folder) for folder in _NAMED):
        return _PACKAGE + path.relative_to(shipped).as_posix()
    return str(path)


def located(name: str | Path, folder: Path | None = None) -> Path:
    """Where the file of a name is: of one that `portable` gave, or of a path relative to `folder`."""
    text = str(name)
    if not text.startswith(_PACKAGE):
        return Path(text) if folder is None else folder / text
    shipped = data_folder().resolve()
    path = (shipped / text.removeprefix(_PACKAGE)).resolve()
    return path if path.is_relative_to(shipped) else shipped / "missing"


def _candidates() -> Iterator[Path]:
    package = Path(__file__).resolve().parent
    yield package.parent
    for above in package.parents:
        yield above / "share" / "microsim"
    yield Path(sys.prefix) / "share" / "microsim"
    for prefix in filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)):
        yield Path(prefix) / "share" / "microsim"


def with_name_of_its_own(path: Path) -> Path:
    """The same path; `.` and `..`, beside which nothing can be named, as what they stand for."""
    return path if path.name not in ("", "..") else path.resolve()


def scenario_names() -> list[str]:
    """Names of the shipped scenarios, in alphabetical order."""
    return sorted(path.stem for path in (data_folder() / "scenarios").glob("*.yaml"))


def scenario_file(name: str) -> Path:
    """The file of a shipped scenario."""
    return data_folder() / "scenarios" / f"{name}.yaml"


def demo_names() -> list[str]:
    """Names of the shipped demos: the one to begin with, then the others in alphabetical order."""
    names = sorted(path.stem for path in (data_folder() / "examples" / "demos").glob("*.py"))
    return sorted(names, key=lambda name: name != FIRST_DEMO)


def demo_file(name: str) -> Path:
    """The file of a shipped demo."""
    return data_folder() / "examples" / "demos" / f"{name}.py"


def mission_names() -> list[str]:
    """Names of the shipped missions, in alphabetical order."""
    return sorted(path.stem for path in (data_folder() / "missions").glob("*.yaml"))


def mission_file(name: str) -> Path:
    """The file of a shipped mission."""
    return data_folder() / "missions" / f"{name}.yaml"


def world_names() -> list[str]:
    """Names of the shipped world bundles, in alphabetical order."""
    return sorted(path.parent.name for path in (data_folder() / "worlds").glob("*/world.yaml"))


def world_folder(name: str) -> Path:
    """The folder of a shipped world bundle."""
    return data_folder() / "worlds" / name
