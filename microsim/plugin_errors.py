"""What is wrong with a plug-in's code, in one sentence with file and line: all that it raises is a `PluginError`."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from microsim.errors import PluginError
from microsim.registry import Origin, loaded_folders, origin_of

Work = TypeVar("Work", bound=Callable[..., Any])

_NUMBA_PLACE = re.compile(r"(?:\bat|\bfrom) (\S+\.py) \((\d+)\)")
_NUMBA_CALL = re.compile(r"^ *>>> (.+)$", re.MULTILINE)
_QUOTED = re.compile(r"'(\w+)'")
_WORD = re.compile(r"[\w/{}]+")


@contextmanager
def plugin_errors(who: str = "", part: Any = None) -> Iterator[None]:
    """Whatever is raised meanwhile is the fault of `part`, if that is a plug-in, or of the kernel that raised it.

    `who`: what fails, such as a sensor; a kernel that runs says so itself.
    """
    try:
        yield
    except PluginError:
        raise
    except Exception as error:  # a plug-in's code can raise anything
        from microsim.engine.calls import BrokenKernelError, UnfitKernelError

        if isinstance(error, (BrokenKernelError, UnfitKernelError)):
            owner = who if isinstance(error, UnfitKernelError) else ""
            raise _of_kernel(error, owner) from _shown(error.__cause__)
        found = plugin_error(error, who, part) if origin_of(part) is not None else error_in_plugin(error)
        if found is None:
            raise
        raise found from _shown(error)


def reporting(function: Work, who: str, part: Any) -> Work:
    """The function; of a plug-in, one whose errors are reported."""
    return plugin_errors(who, part)(function) if origin_of(part) is not None else function


def plugin_error(error: BaseException | str, who: str, part: Any) -> PluginError:
    """`error`: what the plug-in's code raised, or what is wrong with what it declares."""
    origin, reason = origin_of(part), error if isinstance(error, str) else cause(error)
    place = "" if origin is None else _place(error, origin)
    return PluginError(": ".join(text for text in (place, who, reason) if text))


def error_in_plugin(error: BaseException) -> PluginError | None:
    """Of an error that nothing else expected: None where no plug-in's code raised it."""
    for folder in loaded_folders():
        place = _place_in(error, folder)
        if place is not None:
            return PluginError(f"{place}: the plug-in failed: {cause(error)}")
    return None


def _of_kernel(error: Any, who: str) -> PluginError:
    found, code = error.__cause__, error.form.__code__
    folder = Path(code.co_filename).parent
    place = found and (_place_of_compiling(found, folder) or _place_in(found, folder))
    place = place or f"{code.co_filename}:{_line_of_names(error.form, '' if found is None else str(found))}"
    reason = "its kernel raised an exception that plain Python does not raise" if found is None else cause(found)
    parts = [place, who, str(error), "" if error.is_complete else reason]
    return PluginError(": ".join(part for part in parts if part))


def cause(error: BaseException) -> str:
    """The kind of an error and what it says, in one line."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    if type(error).__module__.startswith("numba."):
        return _sentence_of_numba(text)
    line = " ".join(text.split())
    if type(error).__module__.startswith("microsim."):
        return line
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _sentence_of_numba(text: str) -> str:
    """The first line that says what is wrong, of the many that numba writes."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = [line.strip() for line in plain.splitlines() if line.strip() and "Failed in nopython" not in line]
    first = lines[0] if lines else "it cannot be compiled"
    call = _NUMBA_CALL.search(plain)
    if first.startswith("No implementation of function") and call is not None:
        first = f"cannot compile {call[1]}"
    return re.sub(r"Literal\[\w+\]\(([^()]*)\)", r"\1", first)


def _place_of_compiling(error: BaseException, folder: Path) -> str | None:
    """Where the code is that cannot be compiled: what numba names first is innermost."""
    found = [(name, int(line)) for name, line in _NUMBA_PLACE.findall(str(error))]
    location = getattr(error, "loc", None)
    if location is not None:
        found.append((location.filename, location.line))
    inside = [f"{name}:{line}" for name, line in found if folder in Path(name).resolve().parents]
    return inside[0] if inside else None


def _line_of_names(form: Any, message: str) -> int:
    """The first line of a function that has a name which the message quotes, else where it begins."""
    names = _QUOTED.findall(message)
    with suppress(OSError, SyntaxError):
        lines, first = inspect.getsourcelines(form)
        for number, line in enumerate(lines, first):
            if any(re.search(rf"\b{name}\b", line) for name in names):
                return number
    return int(form.__code__.co_firstlineno)


def _place(error: BaseException | str, origin: Origin) -> str:
    """The innermost line of the plug-in's folder in which the error arose, else where its declaration is."""
    found = None if isinstance(error, str) else _place_in(error, origin.file.parent)
    return found or f"{origin.file}:{_line_of_declaration(str(error), origin)}"


def _place_in(error: BaseException, folder: Path) -> str | None:
    if isinstance(error, SyntaxError) and error.lineno is not None and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f"{each.filename}:{each.lineno}" for each in frames if folder in Path(each.filename).resolve().parents]
    return inside[-1] if inside else None


def _line_of_declaration(message: str, origin: Origin) -> int:
    """Of the first word of the message that the file has as text, else of the constant."""
    try:
        lines = origin.file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return 1
    for word in sorted(_WORD.findall(message), key=lambda word: "/" in word):  # names of types are often right
        for number, line in enumerate(lines, 1):
            if f"'{word}'" in line or f'"{word}"' in line:
                return number
    starts = [number for number, line in enumerate(lines, 1) if re.match(rf"{origin.constant}\b", line)]
    return starts[-1] if starts else 1


def _shown(error: BaseException | None) -> BaseException | None:
    """What a traceback shows before the sentence; what numba writes fills a page and says no more."""
    return None if error is None or type(error).__module__.startswith("numba.") else error
