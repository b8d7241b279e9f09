"""Everything MicroSim raises on purpose.

MicroSimError
 ├ ScenarioError             the scenario a user wrote cannot be run; lists every problem found
 │  ├ MissionError           the mission a user wrote cannot be run; lists every problem found
 │  ├ UntrustedError         the scenario names folders of plug-ins that the user has not named
 │  ├ BundleError            the world bundle cannot be loaded; lists every problem found
 │  ├ MapError               a map, or a file of moving obstacles, cannot be used; lists every problem found
 │  └ SweepError             the sweep a user wrote cannot be run; lists every problem found
 ├ UsageError (ValueError)   a call that makes no sense: unknown robot, negative steps, payload too large
 │  └ MissingExtraError      … without an optional package that it needs; an ImportError too
 └ PluginError               a plug-in could not be loaded, or gave something unusable

ScenarioWarning (UserWarning)   what was written can be run, but is probably a mistake
"""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DISTRIBUTION = "microsim-ros2"  # for pip; "microsim" on PyPI is an unrelated project


class MicroSimError(Exception):
    """The root of the tree: `except MicroSimError` catches everything that the user can correct."""


class UsageError(MicroSimError, ValueError):
    """A call that makes no sense."""


class MissingExtraError(UsageError, ImportError):
    """Something that needs an optional package which is not installed: `except ImportError` meets it too."""


class PluginError(MicroSimError):
    """A plug-in could not be loaded, or gave something unusable."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a scenario, a mission or a world bundle, and where."""

    message: str  # what was found, what is expected
    path: str = ""  # key path, such as robots.drone.camera.hz; empty: the whole scenario
    file: str | None = None  # as the user named it; None: the scenario did not come from a file
    line: int | None = None  # from 1
    column: int | None = None  # from 1
    rule: str = ""  # which rule of world bundles it breaks, such as unit-quaternion
    remedy: str = ""  # what to do about it
    is_warning: bool = False  # said, but nothing stops

    @property
    def place(self) -> str:
        """`file:line:column`, as far as it is known."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.place, self.path) if part)
        return f"{where}: {self.explanation}" if where else self.explanation

    @property
    def explanation(self) -> str:
        """What is wrong, by which rule, and what to do."""
        rule = f" [{self.rule}]" if self.rule else ""
        return f"{self.message}{rule}{'; ' if self.remedy else ''}{self.remedy}"


class ScenarioError(MicroSimError):
    """The scenario cannot be run. `problems` lists every reason; `str()` gives one line for each."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[ScenarioError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class UntrustedError(ScenarioError):
    """The scenario names folders of plug-ins, which are code, that the user has not named."""

    folders: tuple[str, ...] = ()


class MissionError(ScenarioError):
    """The mission cannot be run. `problems` lists every reason."""


class MapError(ScenarioError):
    """The map, or the file of moving obstacles, cannot be used. `problems` lists every reason."""


class BundleError(ScenarioError):
    """The world bundle cannot be loaded. `problems` lists every reason."""


class SweepError(ScenarioError):
    """The sweep cannot be run. `problems` lists every reason."""


class ScenarioWarning(UserWarning):
    """What was written can be run, but is probably a mistake: an angle in degrees. `problem` says where."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(": ".join(part for part in (problem.path, problem.explanation) if part))


_SHOWN: dict[Any, Any] = {}  # Python shows each warning once


def warn_of(problem: Problem) -> None:
    """A `ScenarioWarning` at the line of the file that causes it."""
    warnings.warn_explicit(
        ScenarioWarning(problem), None, problem.file or "<scenario>", problem.line or 1, registry=_SHOWN
    )


@contextmanager
def os_errors(what: str, refusal: Callable[[str], MicroSimError] = UsageError) -> Iterator[None]:
    """What the system refuses meanwhile is an error for the user: `what`, such as `x.csv cannot be read`, and why."""
    try:
        yield
    except OSError as error:
        raise refusal(f"{what}: {error.strerror or error}") from None


def show(value: object, depth: int = 2) -> str:
    """A value as its author wrote it, shortened to fit on a line."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        keys = [str(key)[:30] for key in value]
        return "a mapping with the keys " + ", ".join(keys[:6]) + ("…" if len(keys) > 6 else "") if keys else "{}"
    if isinstance(value, (list, tuple)) and (len(value) > 6 or depth == 0):
        return f"a list of {len(value)} values"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(show(item, depth - 1) for item in value)[:60] + "]"
    if isinstance(value, int) and value.bit_length() > 256:
        return "a number of many digits"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…'"


_FILE_SUFFIXES = (".yaml", ".yml", ".json", ".geojson", ".png", ".pgm", ".ply", ".obj", ".glb", ".bin")


def did_you_mean(word: object, choices: Iterable[str]) -> str:
    """`"; did you mean 'default'?"` for the nearest choice, or `""` when none is near.

    Files must be nearer than words from a list: `left.yaml` beside `leaf.yaml` is probably another file, not a typo.
    """
    text = str(word)[:100].lower()
    suffix = next((each for each in _FILE_SUFFIXES if text.endswith(each)), "")  # of two files, it makes no likeness
    names = {choice.lower().removesuffix(suffix): choice for choice in choices}
    stem = text.removesuffix(suffix)
    near = difflib.get_close_matches(stem, names, n=1, cutoff=0.8 if suffix else 0.6)
    near = near or [name for name in names if _has_one_other_letter(stem, name)]
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def _has_one_other_letter(one: str, other: str) -> bool:
    return len(one) == len(other) > 2 and sum(a != b for a, b in zip(one, other, strict=True)) == 1


def unknown(what: str, shown: str, word: object, choices: Iterable[str]) -> str:
    """`no robot 'dorne'; did you mean 'drone'? there are: drone, rover`: what is wrong, and what there is."""
    names = list(choices)
    guess = did_you_mean(word, names)
    return f"{what} {shown}{guess}{' ' if guess else '; '}{there_are(names)}"


def there_are(choices: Iterable[str]) -> str:
    """`"there are: default, flat"`, to end a message with what could have been written."""
    return "there are: " + (", ".join(choices) or "none")


def install_hint(extra: str) -> str:
    """The command that installs an optional extra here: `pip install 'microsim-ros2[plot]'`."""
    marker = Path("share", "ament_index", "resource_index", "packages", "microsim")
    prefixes = filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep))
    if any((Path(prefix) / marker).is_file() for prefix in prefixes):  # a ROS 2 workspace, which pip must not change
        return f"pip install {' '.join(_libraries(extra)) or f'the packages of the extra {extra!r} in setup.py'}"
    root = Path(__file__).resolve().parents[1]
    if (root / "setup.py").is_file():  # a checkout
        return f"pip install -e '{'.' if root == Path.cwd() else root}[{extra}]'"
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def _libraries(extra: str) -> list[str]:
    """What an extra consists of, quoted for a shell where that is needed."""
    import shlex
    from importlib.metadata import PackageNotFoundError, requires

    try:
        found = [line.partition(";") for line in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:
        return []
    wanted = (f'extra == "{extra}"', f"extra == '{extra}'")
    return [shlex.quote(name.strip()) for name, _, condition in found if any(each in condition for each in wanted)]
