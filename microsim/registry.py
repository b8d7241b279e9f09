"""Declarations by name: each is one constant in one file, whether it ships with MicroSim or not.

A declaration (of a sensor, robot, generator, fault, metric, input, command, task, transport, attachment ...) is found
- built in: in a module of its package, or, where a kind has `in_folders`, in the module or folder of that name in each
  folder of the core and of `microsim/parts/`; small ones share a module, and its constant is a tuple of them,
- by entry point, in the group of its kind,
- in a part of an installed package, named by an entry point of the group `microsim.parts`: a package with the same
  modules as a folder of `microsim/parts/`, or one module with all constants, or
- in a `*.py` file of a folder that the user named under `plugins:` or on the command line, or in a file named there.
Nothing outside the package is imported unless a name is requested that is not built in.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from microsim.errors import PluginError
from microsim.paths import data_folder, located
from microsim.plugin_code import code_files

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Declared = TypeVar("Declared")
Folders = Iterable[str | Path]


@dataclass(frozen=True)
class Origin:
    """Where a plug-in is declared."""

    file: Path
    constant: str


_loaded: dict[str, tuple[ModuleType, dict[Path, tuple[int, int]]]] = {}  # by file; stamps of all of its code
_origins: dict[int, tuple[Any, Origin]] = {}  # by identity; the declaration is kept, so that it stays one
_trusted: list[set[Path] | None] = [None]  # of this process; None: every folder that is named


def is_subclass(declared: Any, of: type) -> bool:
    """Python 3.10 says of `list[int]`, too, that it is an instance of `type`."""
    return issubclass(type(declared), type) and issubclass(declared, of)


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
class Registry(Generic[Declared]):
    """Declarations of one kind."""

    constant: str  # its name in the module of a declaration
    package: str  # whose modules hold the built-in ones
    group: str  # of entry points
    expected: str  # what the constant must be, for messages
    is_one: Callable[[Any], bool]
    name_of: Callable[[Any], str] = lambda declared: str(declared.name)
    order: Callable[[Any], Any] = lambda declared: 0  # of the built-in ones
    in_folders: str = ""  # module or folder, of each folder of the core and of the parts, that may hold some
    is_named_by_file: bool = False  # and so found without importing others: `bag_info.py` is `bag-info`
    _built_in: dict[str, Declared] = field(default_factory=dict)

    @property
    def built_in(self) -> dict[str, Declared]:
        """Those that ship with MicroSim."""
        if not self._built_in and self.package:
            found = [pair for name, module in self.modules for pair in self._held(import_module(module), name)]
            self._built_in = dict(sorted(found, key=lambda pair: self.order(pair[1])))
        return self._built_in

    @cached_property
    def modules(self) -> list[tuple[str, str]]:
        """The modules that may hold the built-in ones, each after the name of its file."""
        home = import_module(self.package)
        if not self.in_folders:
            names = [each.name for each in iter_modules(home.__path__) if not each.name.startswith("_")]
            return [(name, f"{self.package}.{name}") for name in names]
        folders = [(Path(root), f"{self.package}.") for root in home.__path__]
        folders += [(root / "parts", f"{package}parts.") for root, package in folders]
        return [
            pair
            for root, package in folders
            for folder in (sorted(root.iterdir()) if root.is_dir() else ())
            for pair in _modules_in(folder, package + folder.name, self.in_folders)
        ]

    def _held(self, module: ModuleType, file: str) -> Iterator[tuple[str, Declared]]:
        """What a module declares, by name."""
        held = getattr(module, self.constant, None)
        for each in held if type(held) is tuple else () if held is None else (held,):
            self._check(each, module.__name__)
            yield (file.replace("_", "-") if self.is_named_by_file else self.name_of(each)), each

    def names(self, folders: Folders = ()) -> list[str]:
        """Of every declaration that can be found: the built-in ones first."""
        return [*self.built_in_names, *self.plugin_names(folders)]

    @property
    def built_in_names(self) -> list[str]:
        if self.is_named_by_file:
            return [name.replace("_", "-") for name, _ in self.modules]
        return [*self.built_in]

    def find(self, name: str, folders: Folders = ()) -> Declared | None:
        """The declaration of that name, or None when there is none."""
        if self.is_named_by_file:
            for file, module in self.modules:
                if file.replace("_", "-") == name:
                    return dict(self._held(import_module(module), file)).get(name)
        elif name in self.built_in:
            return self.built_in[name]
        found = [(declared, file) for declared, file in self._in_folders(folders) if self.name_of(declared) == name]
        if len(found) > 1:
            places = " and ".join(str(file) for _, file in found)
            raise PluginError(f"two plug-ins are named {name!r}: {places}")
        if found:
            return found[0][0]
        for entry in self._entries():
            if entry.name == name:
                return self._loaded(entry)[0][1]
        return next((each for other, each, _ in self._in_other_parts() if other == name), None)

    def from_file(self, file: Path) -> Declared:
        """The declaration in a file that the user named."""
        return self._checked(code_in(file, f"Python code with {self.constant} = {self.expected}"), str(file))

    def all(self, folders: Folders = ()) -> list[Declared]:
        """Every declaration that can be found: the built-in ones first."""
        return [each for name in self.names(folders) if (each := self.find(name, folders)) is not None]

    def loadable(self, report: Callable[[PluginError], None]) -> dict[str, Declared]:
        """Every one that ships or is installed; what cannot be loaded is reported, and harms no other."""
        found = {name: each for name in self.built_in_names if (each := self.find(name)) is not None}
        attempts = [partial(self._loaded, entry) for entry in self._entries()]
        attempts += [partial(self._of_other_part, entry) for entry in other_parts()]
        for attempt in attempts:
            try:
                found = {**{name: each for name, each, _ in attempt()}, **found}
            except PluginError as error:
                report(error)
        return {name: found[name] for name in sorted(found, key=lambda name: (self.order(found[name]), name))}

    def plugin_names(self, folders: Folders = ()) -> list[str]:
        in_folders = {self.name_of(declared) for declared, _ in self._in_folders(folders)}
        in_parts = {name for name, _, _ in self._in_other_parts()}
        entries = {entry.name for entry in self._entries()}
        return sorted((in_folders | entries | in_parts) - set(self.built_in_names))

    def plugins(self, folders: Folders = ()) -> Iterator[tuple[Declared, str]]:
        """Those that are not built in, each with its place."""
        for declared, file in self._in_folders(folders):
            yield declared, str(file)
        for entry in self._entries():
            for _, declared, place in self._loaded(entry):
                yield declared, place
        for _, declared, place in self._in_other_parts():
            yield declared, place

    def _entries(self) -> Iterable[EntryPoint]:
        return installed(self.group)

    def _loaded(self, entry: EntryPoint) -> list[tuple[str, Declared, str]]:
        place = f"entry point {self.group}: {entry.name}"
        return [(entry.name, self._checked(_load_entry(entry), place, sys.modules.get(entry.module)), place)]

    def _in_other_parts(self) -> Iterator[tuple[str, Declared, str]]:
        for entry in other_parts() if self.in_folders else ():
            yield from self._of_other_part(entry)

    def _of_other_part(self, entry: EntryPoint) -> list[tuple[str, Declared, str]]:
        """Name, declaration and place of what a part of an installed package declares."""
        found: list[tuple[str, Declared, str]] = []
        part = _load_entry(entry) if self.in_folders else None
        if part is None:
            return found
        place = f"entry point {PARTS}: {entry.name}"
        named = [(entry.name, part)]
        for folder in getattr(part, "__path__", ()):
            named += [
                (file, _imported(module, place))
                for file, module in _modules_in(Path(folder), part.__name__, self.in_folders)
            ]
        for file, module in named:
            for name, declared in self._held(module, file):
                _note_origin_of(declared, module, self.constant)
                found.append((name, declared, place))
        return found

    def _in_folders(self, folders: Folders) -> Iterator[tuple[Declared, Path]]:
        for file in plugin_files(folders):
            _check_trust(file.parent)
            module = _load_file(file)
            if hasattr(module, self.constant):  # a folder may also hold modules that plug-ins share
                yield self._checked(module, str(file)), file

    def _check(self, declared: Any, place: str) -> None:
        if not self.is_one(declared):
            raise PluginError(f"{place}: expected {self.constant} = {self.expected}, found {type(declared).__name__}")

    def _checked(self, loaded: Any, place: str, module: ModuleType | None = None) -> Declared:
        """A declaration, or that of a module; `module`: where it was looked up."""
        declared: Any = getattr(loaded, self.constant, None) if isinstance(loaded, ModuleType) else loaded
        self._check(declared, place)
        _note_origin_of(declared, loaded if isinstance(loaded, ModuleType) else module, self.constant)
        checked: Declared = declared
        return checked


def _modules_in(folder: Path, package: str, what: str) -> list[tuple[str, str]]:
    """`what.py` of a folder, or each module in its folder `what`: file names and modules."""
    if (folder / f"{what}.py").is_file():
        return [(what, f"{package}.{what}")]
    files = sorted(file.stem for file in (folder / what).glob("*.py"))
    return [(name, f"{package}.{what}.{name}") for name in files if not name.startswith("_")]


def _imported(module: str, place: str) -> ModuleType:
    try:
        return import_module(module)
    except (Exception, SystemExit) as error:  # an installed package can raise anything
        raise PluginError(f"{place}: {module} could not be loaded: {_cause(error)}") from error


def public_names() -> dict[str, str]:
    """Names that parts which ship with MicroSim add to `microsim`, each with its module.

    They are in the file `public.py` of a part, which is read without importing the part.
    """
    import runpy

    found: dict[str, str] = {}
    for file in sorted((Path(__file__).parent / "parts").glob("*/public.py")):
        part = f"{PARTS}.{file.parent.name}"
        for home, names in runpy.run_path(str(file))["PUBLIC"].items():
            found |= dict.fromkeys(names, f"{part}.{home}" if home else part)
    return found


PARTS = "microsim.parts"  # group of the entry points that name the parts of installed packages


def other_parts() -> Iterable[EntryPoint]:
    """The parts of installed packages; each entry point names a module or package."""
    return installed(PARTS)


def installed(group: str) -> tuple[EntryPoint, ...]:
    """Entry points of installed packages; nothing of it is loaded.

    Importing `importlib.metadata` takes a tenth of `microsim --help`, so it is imported only where some package has
    one of the group.
    """
    if "importlib.metadata" not in sys.modules and not _is_declared(group, tuple(sys.path)):
        return ()
    from importlib.metadata import entry_points

    return _entries_of(entry_points, group, tuple(sys.path))


@lru_cache(maxsize=64)
def _is_declared(group: str, path: tuple[str, ...]) -> bool:
    """Whether some package's metadata has the group."""
    marker = f"[{group}]".encode()
    for folder in dict.fromkeys(path):
        for file in Path(folder or ".").glob("*-info/entry_points.txt"):
            with suppress(OSError):
                if marker in file.read_bytes():
                    return True
    return False


def origin_of(declared: Any) -> Origin | None:
    """Where a declaration is that a registry has found; None: it is built in."""
    return _origins[id(declared)][1] if id(declared) in _origins else None


def loaded_folders() -> set[Path]:
    """Where code of plug-ins comes from that was loaded."""
    return {Path(file).parent for file in _loaded} | {origin.file.parent for _, origin in _origins.values()}


def _note_origin_of(declared: Any, module: ModuleType | None, constant: str) -> None:
    file = getattr(module, "__file__", None)
    if file is not None:
        _origins[id(declared)] = declared, Origin(Path(file), constant)


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


def code_in(file: Path, expected: str, what: str = "plug-in") -> ModuleType:
    """The module in a file that the user named. `what` it is, and what is `expected` there, for messages."""
    if not file.is_file():
        raise PluginError(f"{file}: no such file; expected {expected}")
    _check_trust(file.parent)
    return _load_file(file.resolve(), what)


def _load_entry(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        place = f"plug-in {entry.name!r} (entry point {entry.group}, {entry.value})"
        raise PluginError(f"{place} could not be loaded: {_cause(error)}") from error


def _load_file(file: Path, what: str = "plug-in") -> ModuleType:
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
        raise PluginError(f"{_place(file, error)}: {what} could not be loaded: {_cause(error)}") from error
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
