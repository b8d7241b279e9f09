"""The file of a controller: a function `control(seen)`, or a class `Controller` with the method `control(self, seen)`.

Keyword parameters of the function, or of the class's `__init__`, are its settings, which scenarios and sweeps may
change. The file may also say how often it is called (`hz = 20`), and that it takes arrays (`batch = True`).
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microsim.errors import PluginError, show, unknown
from microsim.registry import code_in

HZ = 20.0  # how often a controller is called unless its file or the scenario says otherwise
FUNCTION, CLASS = "control", "Controller"
_EXPECTED = f"expected a function `{FUNCTION}(seen)`, or a class `{CLASS}` with the method `control(self, seen)`"

Control = Callable[[Any], Any]  # what is seen -> commands


@dataclass(frozen=True, eq=False)
class ControllerCode:
    """What the file declares, checked."""

    file: Path
    declared: Callable[..., Any]  # the class, or the function
    hz: float
    is_batch: bool  # its numbers are arrays, with one for each world
    settings: Mapping[str, Any]  # defaults by name

    @property
    def has_state(self) -> bool:
        return inspect.isclass(self.declared)

    @property
    def control(self) -> Any:
        """The function that is called."""
        return getattr(self.declared, FUNCTION) if self.has_state else self.declared

    @property
    def place(self) -> str:
        """Where that function begins."""
        return f"{self.file}:{_line_of(self.control)}"

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All settings, with those given in place of defaults; ValueError says what is wrong with one."""
        for name, value in given.items():
            if name not in self.settings:
                raise ValueError(unknown("the controller has no setting", repr(name), name, self.settings))
            if not _is_alike(value, self.settings[name]):
                expected = f"expected a value like its default {show(self.settings[name])}"
                raise ValueError(f"{name}: {expected}, found {show(value)}")
        return {name: _own(given.get(name, default), default) for name, default in self.settings.items()}


def controller_in(file: str | Path) -> ControllerCode:
    """The controller of a file; PluginError says what is wrong with it."""
    path = Path(file)
    module = code_in(path, f"a controller: {_EXPECTED}", "controller")
    found = [name for name in (FUNCTION, CLASS) if callable(getattr(module, name, None))]
    if len(found) != 1:
        raise PluginError(f"{path}: {_EXPECTED}, found {'both' if found else 'neither'}")
    declared = getattr(module, found[0])
    if found == [CLASS] and not callable(getattr(declared, FUNCTION, None)):
        raise PluginError(f"{path}:{_line_of(declared)}: the class {CLASS} has no method `control(self, seen)`")
    hz, is_batch = (getattr(declared, name, getattr(module, name, by)) for name, by in (("hz", HZ), ("batch", False)))
    if isinstance(hz, bool) or not isinstance(hz, (int, float)) or not (0.0 < hz < math.inf):
        raise PluginError(f"{path}: expected a rate such as `hz = 20`, found {show(hz)}")
    return ControllerCode(path, declared, float(hz), bool(is_batch), dict(_settings(path, declared)))


def _settings(path: Path, declared: Any) -> Iterator[tuple[str, Any]]:
    """Keyword parameters with their defaults."""
    if inspect.isclass(declared):
        _check_takes_one(path, getattr(declared, FUNCTION), ("self", "seen"))
        if declared.__init__ is object.__init__:
            return
        parameters = [*inspect.signature(declared.__init__).parameters.values()][1:]
        function = declared.__init__
    else:
        parameters = _check_takes_one(path, declared, ("seen",))
        function = declared
    for each in parameters:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) or each.default is each.empty:
            need = "needs a default, such as `near_m=2.0`: it is a setting of the controller"
            raise PluginError(f"{path}:{_line_of(function)}: the parameter {each.name!r} {need}")
        yield each.name, each.default


def _check_takes_one(path: Path, function: Any, expected: tuple[str, ...]) -> list[inspect.Parameter]:
    """Gives the parameters that follow."""
    parameters = [*inspect.signature(function).parameters.values()]
    own, rest = parameters[: len(expected)], parameters[len(expected) :]
    is_method = len(expected) > 1
    if len(own) < len(expected) or any(each.kind is each.KEYWORD_ONLY for each in own) or (is_method and rest):
        takes = ", ".join(each.name for each in parameters)
        raise PluginError(
            f"{path}:{_line_of(function)}: expected `control({', '.join(expected)})`, found `control({takes})`"
        )
    return rest


def _line_of(function: Any) -> int:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        return int(code.co_firstlineno)
    try:
        return inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return 1


def _is_alike(value: Any, default: Any) -> bool:
    if default is None:
        return True
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, float):
        return isinstance(value, (int, float)) and math.isfinite(value)
    if isinstance(default, (list, tuple)):
        return isinstance(value, (list, tuple))
    return isinstance(value, type(default))


def _own(value: Any, default: Any) -> Any:
    """A copy, of the kind of the default: a list that a controller changes stays its own."""
    if isinstance(default, (float, tuple)) and not isinstance(value, type(default)):
        return type(default)(value)
    return copy.deepcopy(value)
