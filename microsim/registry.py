"""Parts by name: each is one constant in one file, whether it ships with MicroSim or not.

A part (a sensor, robot, generator, fault, metric, input, command, task or attachment) is found
- built in: in a module of its package, or, of attachments, in the module `attachment` of each folder of the package;
  small parts share one, and its constant is a tuple of them,
- by entry point, in the group of its kind, or
- in a `*.py` file of a folder that the user named under `plugins:` or on the command line, or in a file named there.
Nothing outside the package is imported unless a name is requested that is not built in.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from microsim.errors import PluginError
from microsim.paths import data_folder, located
from microsim.plugin_code import code_files

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Part = TypeVar("Part")
Folders = Iterable[str | Path]


@dataclass(frozen=True)
class Origin:
    """Where a plug-in is declared."""

    file: Path
    constant: str


_loaded: dict[str, tuple[ModuleType, dict[Path, tuple[int, int]]]] = {}  # by file; stamps of all of its code
_origins: dict[int, tuple[Any, Origin]] = {}  # by the identity of a part; the part is kept, so that it stays one
_trusted: list[set[Path] | None] = [None]  # of this process; None: every folder that is named


def is_subclass(part: Any, of: type) -> bool:
    """Python 3.10 says of `list[int]`, too, that it is an instance of `type`."""
    return issubclass(type(part), type) and issubclass(part, of)


@contextmanager
def code_only_from(folders: Folders | None) -> Iterator[None]:
    """Meanwhile no other folder's code runs in this process, whatever folders a file names. None: all that are named.

    So it is on the command line: a file may come from a stranger, and only the user says whose code may run. In a
    program that loads a scenario, without this, the scenario says it.
    """
    _trusted.append(None if folders is None else set())
    try:
        trust(folders or ())
        yield
    finally:
        _trusted.pop()


def trust(folders: Folders) -> None:
    """Code of these folders may run too."""
    if _trusted[-1] is not None:
        _trusted[-1].update(Path(folder).resolve() for folder in folders)


def is_trusted(folder: str | Path) -> bool:
    return _trusted[-1] is None or Path(folder).resolve() in _trusted[-1]


@dataclass
class Registry(Generic[Part]):
    """Parts of one kind."""

    constant: str  # name of the constant in a part's module
    package: str  # whose modules hold the built-in ones
    group: str  # of entry points
    expected: str  # what the constant must be, for messages
    is_part: Callable[[Any], bool]
    name_of: Callable[[Any], str] = lambda part: str(part.name)
    order: Callable[[Any], Any] = lambda part: 0  # of the built-in ones
    in_folders: str = ""  # name of the module in each folder of `package` that may hold some; empty: in its own modules
    _built_in: dict[str, Part] = field(default_factory=dict)

    @property
    def built_in(self) -> dict[str, Part]:
        """Those that ship with MicroSim."""
        if not self._built_in and self.package:
            from importlib import import_module

            modules = [import_module(name) for name in self._modules(import_module(self.package))]
            held = [getattr(module, self.constant) for module in modules if hasattr(module, self.constant)]
            parts = [part for each in held for part in (each if isinstance(each, tuple) else (each,))]
            self._built_in = {self.name_of(part): part for part in sorted(parts, key=self.order)}
        return self._built_in

    def _modules(self, home: ModuleType) -> list[str]:
        from pkgutil import iter_modules

        if self.in_folders:
            return [
                ".".join([self.package, *file.parent.relative_to(folder).parts, self.in_folders])
                for folder in home.__path__
                for place in ("*", "parts/*")
                for file in sorted(Path(folder).glob(f"{place}/{self.in_folders}.py"))
            ]
        found = [each.name for each in iter_modules(home.__path__) if not each.name.startswith("_")]
        return [f"{self.package}.{name}" for name in found]

    def find(self, name: str, folders: Folders = ()) -> Part | None:
        """The part of that name, or None when there is none."""
        if name in self.built_in:
            return self.built_in[name]
        found = [(part, file) for part, file in self._in_folders(folders) if self.name_of(part) == name]
        if len(found) > 1:
            places = " and ".join(str(file) for _, file in found)
            raise PluginError(f"two plug-ins are named {name!r}: {places}")
        if found:
            return found[0][0]
        for entry in self._entries():
            if entry.name == name:
                return self._loaded(entry)
        return None

    def from_file(self, file: Path) -> Part:
        """The part in a file that the user named."""
        if not file.is_file():
            raise PluginError(f"{file}: no such file; expected Python code with {self.constant} = {self.expected}")
        _check_trust(file.parent)
        return self._checked(_load_file(file.resolve()), str(file))

    def names(self, folders: Folders = ()) -> list[str]:
        """Of every part that can be found: the built-in ones first."""
        return [*self.built_in, *self.plugin_names(folders)]

    def all(self, folders: Folders = ()) -> list[Part]:
        """Every part that can be found: the built-in ones first."""
        return [part for name in self.names(folders) if (part := self.find(name, folders)) is not None]

    def plugin_names(self, folders: Folders = ()) -> list[str]:
        in_folders = {self.name_of(part) for part, _ in self._in_folders(folders)}
        return sorted((in_folders | {entry.name for entry in self._entries()}) - set(self.built_in))

    def plugins(self, folders: Folders = ()) -> Iterator[tuple[Part, str]]:
        """Those that are not built in, each with its place."""
        for part, file in self._in_folders(folders):
            yield part, str(file)
        for entry in self._entries():
            yield self._loaded(entry), f"entry point {self.group}: {entry.name}"

    def _loaded(self, entry: EntryPoint) -> Part:
        loaded, module = _load_entry(entry), sys.modules.get(entry.value.partition(":")[0].strip())
        return self._checked(loaded, f"entry point {self.group}: {entry.name}", module)

    def _entries(self) -> Iterable[EntryPoint]:
        return installed(self.group)

    def _in_folders(self, folders: Folders) -> Iterator[tuple[Part, Path]]:
        for file in plugin_files(folders):
            _check_trust(file.parent)
            module = _load_file(file)
            if hasattr(module, self.constant):  # a folder may also hold modules that plug-ins share
                yield self._checked(module, str(file)), file

    def _checked(self, loaded: Any, place: str, module: ModuleType | None = None) -> Part:
        part: Any = getattr(loaded, self.constant, None) if isinstance(loaded, ModuleType) else loaded
        if not self.is_part(part):
            raise PluginError(f"{place}: expected {self.constant} = {self.expected}, found {type(part).__name__}")
        file = _file_of(loaded if module is None else module)
        if file is not None:
            _origins[id(part)] = part, Origin(file, self.constant)
        checked: Part = part
        return checked


def origin_of(part: Any) -> Origin | None:
    """Where a part is declared that a registry has found; None: it is built in."""
    return _origins[id(part)][1] if id(part) in _origins else None


def loaded_folders() -> set[Path]:
    """Where code of plug-ins comes from that was loaded."""
    return {Path(file).parent for file in _loaded} | {origin.file.parent for _, origin in _origins.values()}


def note_origin(part: Any, module: str, constant: str) -> None:
    """Of a plug-in that another way than a registry has found."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is not None:
        _origins[id(part)] = part, Origin(Path(file), constant)


def _file_of(loaded: Any) -> Path | None:
    """Of a module, or of the module that a part of an entry point says it is from."""
    module = loaded if isinstance(loaded, ModuleType) else sys.modules.get(getattr(loaded, "__module__", ""))
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file)


def installed(group: str) -> tuple[EntryPoint, ...]:
    """What installed packages declare under the name of a registry; nothing of it is loaded."""
    from importlib.metadata import entry_points

    return _entries_of(entry_points, group, tuple(sys.path))


@lru_cache(maxsize=64)
def _entries_of(look: Callable[..., Iterable[EntryPoint]], group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Kept: it reads a file of every installed package, and a scenario of 2,000 robots asks as often."""
    return tuple(look(group=group))


def _check_trust(folder: Path) -> None:
    if not is_trusted(folder):
        raise PluginError(f"plug-ins in {folder} are code, and run only if you say so: add --plugins {folder}")


def plugin_files(folders: Folders) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(located(folder, data_folder()).glob("*.py"))


def _load_entry(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        place = f"plug-in {entry.name!r} (entry point {entry.group}, {entry.value})"
        raise PluginError(f"{place} could not be loaded: {_cause(error)}") from error


def _load_file(file: Path) -> ModuleType:
    import hashlib
    from importlib.util import module_from_spec, spec_from_file_location

    key = str(file.resolve())
    module, stamps = _loaded.get(key, (None, {}))
    try:
        changed = {each for each, stamp in stamps.items() if _stamp(each) != stamp}
        if module is not None and not changed:
            return module
        if changed - {file}:
            _forget_modules({*stamps} - {file})
        stamps = {each: _stamp(each) for each in code_files(file)}
        unique = hashlib.sha256(key.encode()).hexdigest()[:12]
        spec = spec_from_file_location(f"microsim_plugin_{file.stem}_{unique}", file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up here
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise PluginError(f"{_place(file, error)}: plug-in could not be loaded: {_cause(error)}") from error
    _loaded[key] = module, stamps
    return module


def _stamp(file: Path) -> tuple[int, int]:
    """By which a change is noticed; of a file that has gone, too."""
    try:
        stat = file.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


def _forget_modules(files: set[Path]) -> None:
    """Where what a plug-in imports has changed, all that it imports is read again."""
    for name, module in list(sys.modules.items()):
        found = getattr(module, "__file__", None)
        if found is not None and Path(found) in files:
            del sys.modules[name]


def declared_in(folders: Folders, constants: Iterable[str]) -> Iterator[tuple[str, Any, Path]]:
    """What the plug-ins of folders declare under these constants, with their files."""
    names = tuple(constants)
    for file in plugin_files(folders):
        _check_trust(file.parent)
        module = _load_file(file)
        for constant in names:
            if hasattr(module, constant):
                yield constant, getattr(module, constant), file


def _place(file: Path, error: BaseException) -> str:
    """The file, with the line of it in which the error arose."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{error.filename or file}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)


def _cause(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
