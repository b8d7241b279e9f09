"""`load_mission`: from a name, a file or a dict to a Mission, or to every reason why not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from microsim.documents.values import show
from microsim.documents.yaml_text import read_yaml
from microsim.errors import MissionError, Problem, ScenarioError, unknown
from microsim.missions.models import Mission, first_keys
from microsim.paths import mission_file, mission_names
from microsim.scenario.files import SUFFIXES, read_text
from microsim.scenario.messages import Places, in_order


def load_mission(source: str | Path | Mapping[str, Any] | Mission) -> Mission:
    """The mission of that name, path or content; MissionError lists all that is wrong with it."""
    if isinstance(source, Mission):
        return source
    if isinstance(source, Mapping):
        return _validated(dict(source), Places())
    if not isinstance(source, (str, Path)):
        raise MissionError(Problem(f"expected a mission's name, file or content, found {show(source)}"))
    file = find_mission(source)
    try:
        document = read_yaml(read_text(file), str(file))
    except ScenarioError as error:
        raise MissionError(error.problems) from None
    return _validated(document.data, Places(str(file), document), file)


def find_mission(source: str | Path) -> Path:
    """The file that a shipped mission's name, or a path, stands for."""
    if isinstance(source, str) and source in mission_names():
        return mission_file(source)
    path = Path(source)
    if isinstance(source, Path) or path.suffix in SUFFIXES or len(path.parts) > 1 or (source and _exists(path)):
        return path
    raise MissionError(Problem(unknown("no mission", repr(source), source, mission_names())))


def is_mission(file: Path) -> bool:
    """Whether a file, by its keys, is a mission rather than a scenario. What cannot be read is not."""
    try:
        data = read_yaml(read_text(file), str(file)).data
    except ScenarioError:
        return False
    return isinstance(data, Mapping) and any(key in data for key in first_keys())


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a null character
        return False


def _validated(data: Any, places: Places, file: Path | None = None) -> Mission:
    if not isinstance(data, Mapping):
        keys = ", ".join(Mission.key_names())
        message = f"expected a mapping with any of the keys {keys}, found {show(data)}"
        raise MissionError(places.problem(message, ()))
    if file is not None and "name" not in data:
        data = {"name": file.stem, **data}
    try:
        mission = Mission.model_validate(data)
    except ValidationError as error:
        raise MissionError(in_order(places.problems(error, data, lambda path: path))) from None
    mission._places = places
    return _beside(mission, file)


def _beside(mission: Mission, file: Path | None) -> Mission:
    """A scenario named by a path is looked for beside the mission first."""
    if mission.scenario is None or file is None or Path(mission.scenario).suffix not in SUFFIXES:
        return mission
    beside = file.resolve().parent / mission.scenario
    if not _exists(beside):
        return mission
    found = mission.model_copy(update={"scenario": str(beside)})
    found._places = mission._places
    return found
