"""Plug-ins: sensors, obstacle generators and robot models that others write.

A plug-in is a module with one constant: `SENSOR = Sensor(...)`, `GENERATOR = Generator(...)`, or `ROBOT`, a subclass of
`microsim.scenario.robots.Robot`. It is found
- by entry point, in the group `microsim.sensors`, `microsim.worlds` or `microsim.robots`, or
- as a `*.py` file in a folder that the scenario names under `plugins:`.
Nothing is imported unless a scenario names a sensor type, generator or robot model that is not built in.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from microsim.errors import PluginError
from microsim.paths import data_folder

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from pydantic import BaseModel
    from pydantic_core import InitErrorDetails


@dataclass(frozen=True)
class Sensor:
    """A sensor plug-in.

    `create(context)` is called once for each sensor of this type in a scenario. It returns an object with
    `update(dt)`, called on every tick with the seconds since the last, and `publish()`, called when a message is due,
    which returns the fields of the message as a dict; header and stamp are filled in by the engine.
    """

    name: str  # what a scenario writes as `type:`
    message_type: str  # such as "sensor_msgs/msg/Temperature"
    create: Callable[[Any], Any]
    options: type[BaseModel] | None = None  # the sensor's own keys in a scenario; None: it has none
    frame_suffix: str = "_link"  # its frame is <robot>/<sensor name><frame_suffix>


@dataclass(frozen=True)
class Generator:
    """An obstacle generator.

    `generate(options, map, random)` returns a list of obstacles and features, each a dict as in a scenario's YAML.
    `options` is an instance of the options model (or None), `map` the scenario's map, and `random` a
    `microsim.scenario.random_source.Dice`; what is drawn from it is the same on every machine.
    """

    name: str  # what a scenario writes as `plugin:`
    generate: Callable[[Any, Any, Any], Sequence[Any]]
    options: type[BaseModel] | None = None  # the generator's own keys in a scenario; None: it has none


Plugin = TypeVar("Plugin", Sensor, Generator)

_loaded: dict[tuple[str, int, int], ModuleType] = {}  # by file, time of change and size


def find_sensor(name: str, folders: Iterable[str | Path] = ()) -> Sensor | None:
    """The plug-in sensor of that name, or None when there is none."""
    return _find(name, "SENSOR", Sensor, "microsim.sensors", folders)


def sensor_names(folders: Iterable[str | Path] = ()) -> list[str]:
    """Names of every plug-in sensor that can be found."""
    return _names("SENSOR", Sensor, "microsim.sensors", folders)


def find_generator(name: str, folders: Iterable[str | Path] = ()) -> Generator | None:
    """The generator of that name, shipped or plug-in, or None when there is none."""
    return _shipped_generators().get(name) or _find(name, "GENERATOR", Generator, "microsim.worlds", folders)


def generator_names(folders: Iterable[str | Path] = ()) -> list[str]:
    """Names of every generator that can be found."""
    return sorted({*_shipped_generators(), *_names("GENERATOR", Generator, "microsim.worlds", folders)})


def check_options(
    plugin: Sensor | Generator, own: dict[str, Any], common: Iterable[str]
) -> tuple[Any, list[InitErrorDetails]]:
    """The plug-in's own keys, checked by its model. `common`: keys beside them, for messages."""
    from pydantic import ValidationError

    from microsim.documents.values import detail, under, unknown

    fields = plugin.options.model_fields if plugin.options is not None else {}
    known = [*fields, *(field.alias for field in fields.values() if field.alias)]
    shown = [*(field.alias or name for name, field in fields.items()), *common]
    strange = [detail(unknown("key", key, shown), key, at_key=True) for key in own if key not in known]
    if plugin.options is None:
        return {}, strange
    try:
        checked = plugin.options.model_validate({key: own[key] for key in own if key in known})
    except ValidationError as error:
        return {}, [*strange, *under(error)]
    return checked, strange


def _shipped_generators() -> dict[str, Generator]:
    from microsim.scenario import maze

    return {maze.GENERATOR.name: maze.GENERATOR}


def find_robot(name: str, folders: Iterable[str | Path] = ()) -> Any:
    """The robot model of that name in a folder or registered by a package (a subclass of Robot), or None."""
    for model in _robots_in(folders):
        if _model_name(model) == name:
            return model
    for entry in _entries("microsim.robots"):
        if entry.name == name:
            loaded = _load_entry(entry)
            return getattr(loaded, "ROBOT", loaded) if isinstance(loaded, ModuleType) else loaded
    return None


def robot_names(folders: Iterable[str | Path] = ()) -> list[str]:
    """Names of every robot model that can be found beside the built-in ones."""
    in_folders = {_model_name(model) for model in _robots_in(folders)}
    return sorted(in_folders | {entry.name for entry in _entries("microsim.robots")})


def _robots_in(folders: Iterable[str | Path]) -> Iterator[type]:
    for file in _files(folders):
        model = getattr(_load_file(file), "ROBOT", None)
        if model is not None and not isinstance(model, type):
            raise PluginError(f"{file}: expected ROBOT = a subclass of Robot, found {type(model).__name__}")
        if model is not None:
            yield model


def _model_name(model: type) -> str:
    """What a scenario writes as `model:`."""
    fields: dict[str, Any] = getattr(model, "model_fields", {})
    return str(fields["model"].default) if "model" in fields else model.__name__.lower()


def _find(name: str, constant: str, kind: type[Plugin], group: str, folders: Iterable[str | Path]) -> Plugin | None:
    found = [(plugin, file) for plugin, file in _in_folders(constant, kind, folders) if plugin.name == name]
    if len(found) > 1:
        places = " and ".join(str(file) for _, file in found)
        raise PluginError(f"two plug-ins are named {name!r}: {places}")
    if found:
        return found[0][0]
    for entry in _entries(group):
        if entry.name == name:
            return _constant(_load_entry(entry), constant, kind, f"entry point {group}: {entry.name}")
    return None


def _names(constant: str, kind: type[Plugin], group: str, folders: Iterable[str | Path]) -> list[str]:
    in_folders = {plugin.name for plugin, _ in _in_folders(constant, kind, folders)}
    return sorted(in_folders | {entry.name for entry in _entries(group)})


def _entries(group: str) -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points

    return entry_points(group=group)


def _load_entry(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        place = f"plug-in {entry.name!r} (entry point {entry.group}, {entry.value})"
        raise PluginError(f"{place} could not be loaded: {_cause(error)}") from error


def _in_folders(constant: str, kind: type[Plugin], folders: Iterable[str | Path]) -> Iterator[tuple[Plugin, Path]]:
    for file in _files(folders):
        module = _load_file(file)
        if hasattr(module, constant):  # a folder may also hold modules that plug-ins share
            yield _constant(module, constant, kind, str(file)), file


def _files(folders: Iterable[str | Path]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((data_folder() / folder).glob("*.py"))  # an absolute folder stays what it is


def _constant(loaded: Any, constant: str, kind: type[Plugin], place: str) -> Plugin:
    plugin = getattr(loaded, constant, None) if isinstance(loaded, ModuleType) else loaded
    if not isinstance(plugin, kind):
        expected = f"expected {constant} = {kind.__name__}(...)"
        raise PluginError(f"{place}: {expected}, found {type(plugin).__name__}")
    return plugin


def _load_file(file: Path) -> ModuleType:
    import hashlib
    from importlib.util import module_from_spec, spec_from_file_location

    try:
        stat = file.stat()
        key = (str(file.resolve()), stat.st_mtime_ns, stat.st_size)
        if key in _loaded:
            return _loaded[key]
        unique = hashlib.sha256(key[0].encode()).hexdigest()[:12]
        spec = spec_from_file_location(f"microsim_plugin_{file.stem}_{unique}", file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses and pickle look their module up here
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise PluginError(f"{_place(file, error)}: plug-in could not be loaded: {_cause(error)}") from error
    _loaded[key] = module
    return module


def _place(file: Path, error: BaseException) -> str:
    """The file, with the line of it in which the error arose."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{error.filename or file}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)


def _cause(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
