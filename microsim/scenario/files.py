"""Files that people write, scenarios and others: YAML as models, the files it names, where each problem is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from microsim.documents.values import Model, describe_error, in_degrees, show
from microsim.documents.yaml_text import MAX_BYTES, Document, dotted, read_yaml
from microsim.documents.yaml_text import Path as KeyPath
from microsim.errors import Problem, ScenarioError, did_you_mean, unknown, warn_of
from microsim.paths import data_folder, located, mission_names, scenario_file, scenario_names

SUFFIXES = (".yaml", ".yml", ".json")
Found = TypeVar("Found", bound=Model)


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


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a null character
        return False


def beside(name: str, file: str | Path | None) -> str:
    """Where a scenario or mission named in a file is: in the folder of that file first, if it is a path."""
    if file is None or Path(name).suffix not in SUFFIXES:
        return name
    place = Path(file).resolve().parent / name
    return str(place) if is_file(place) else name


def _refuse(file: Path, message: str) -> ScenarioError:
    return ScenarioError(Problem(message, file=str(file)))


def _nearest_file(file: Path) -> str:
    beside = [path.name for path in file.parent.glob("*") if path.suffix in SUFFIXES] if file.parent.is_dir() else []
    kinds = (("scenario", scenario_names()), ("mission", mission_names()))
    shipped = [f"; there is a shipped {kind} {file.stem!r}" for kind, names in kinds if file.stem in names]
    return did_you_mean(file.name, beside) or "".join(shipped)


def search_folders(file: Path | None) -> list[Path]:
    """Where the files that a scenario names are looked for: beside it, above it, here, in the shipped data."""
    beside = [file.resolve().parent, file.resolve().parent.parent] if file is not None else []
    return list(dict.fromkeys([*beside, Path.cwd(), data_folder()]))


def locate(name: str, folders: Iterable[Path]) -> Path | None:
    """The first place where there is such a file or folder."""
    for folder in folders:
        path = located(name, folder)
        if _exists(path):
            return path.resolve()
    return None


_KEY = "[key]"  # pydantic's mark for an error about a key of a mapping


class Places:
    """Turns locations into problems with file, line and column; without a document, into key paths only."""

    def __init__(self, file: str | None = None, document: Document | None = None) -> None:
        self.file = file
        self.document = document

    def problem(self, message: str, path: KeyPath, at_key: bool = False) -> Problem:
        mark = self.document.place(path, at_key) if self.document is not None else None
        line, column = mark if mark is not None else (None, None)
        return Problem(message, dotted(path), self.file, line, column)

    def problems(self, error: ValidationError, data: Any, original: Callable[[KeyPath], KeyPath]) -> list[Problem]:
        """Every error as a problem; `original` gives the place in the text of a location in the data."""
        found = [self._translated(each, data, original) for each in error.errors(include_url=False)]
        return list(dict.fromkeys(found))

    def _translated(self, error: ErrorDetails, data: Any, original: Callable[[KeyPath], KeyPath]) -> Problem:
        path = original(tuple(part for part in error["loc"] if part != _KEY))
        message = describe_error(error)
        at_key = _KEY in error["loc"] or bool(error.get("ctx", {}).get("at_key"))
        return self.problem(message, _as_written(path, data), at_key)


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))


def _as_written(path: KeyPath, data: Any) -> KeyPath:
    """`class` where the author wrote `class_id`."""
    if path and path[-1] == "class":
        for part in path[:-1]:
            try:
                data = data[part]
            except (KeyError, IndexError, TypeError):
                return path
        if isinstance(data, Mapping) and "class" not in data and "class_id" in data:
            return (*path[:-1], "class_id")
    return path


def read_file(file: Path, refusal: type[ScenarioError] = ScenarioError) -> tuple[Any, Places]:
    """The content of a YAML file, and where each of its parts is."""
    try:
        document = read_yaml(read_text(file), str(file))
    except ScenarioError as error:
        raise refusal(error.problems) from None
    return document.data, Places(str(file), document)


def model_of(kind: type[Found], data: Any, places: Places, refusal: type[ScenarioError], **context: Any) -> Found:
    """Content of a file as its model; `refusal` lists everything that is wrong."""
    if not isinstance(data, Mapping):
        keys = ", ".join(kind.key_names())
        raise refusal(places.problem(f"expected a mapping with any of the keys {keys}, found {show(data)}", ()))
    try:
        model = kind.model_validate(data, context=context)
    except ValidationError as error:
        raise refusal(in_order(places.problems(error, data, lambda path: path))) from None
    warn_of_angles(model, places)
    return model


def warn_of_angles(model: Model, places: Places, original: Callable[[KeyPath], KeyPath] = lambda path: path) -> None:
    """Of those that are probably in degrees; `original` gives the place in the text of a location in the data."""
    for message, path in in_degrees(model):
        warn_of(replace(places.problem(message, original(path)), is_warning=True))


def has_key_of(file: Path, keys: Iterable[str]) -> bool:
    """Whether a file is a mapping with any of these keys. A file that cannot be read is not."""
    try:
        data, _ = read_file(file)
    except ScenarioError:
        return False
    return isinstance(data, Mapping) and any(key in data for key in keys)
