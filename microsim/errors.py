"""Everything MicroSim raises on purpose.

MicroSimError
 ├ ScenarioError             the scenario a user wrote cannot be run; lists every problem found
 │  └ MissionError           the mission a user wrote cannot be flown; lists every problem found
 ├ UsageError (ValueError)   a call that makes no sense: unknown robot, negative steps, payload too large
 └ PluginError               a plug-in could not be loaded, or gave something unusable
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


class MicroSimError(Exception):
    """The root of the tree: `except MicroSimError` catches whatever is the user's to mend."""


class UsageError(MicroSimError, ValueError):
    """A call that makes no sense."""


class PluginError(MicroSimError):
    """A plug-in could not be loaded, or gave something unusable."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a scenario or a mission, and where."""

    message: str  # what was found, what is expected
    path: str = ""  # key path, such as robots.drone.camera.hz; empty: the whole scenario
    file: str | None = None  # as the user named it; None: the scenario did not come from a file
    line: int | None = None  # from 1
    column: int | None = None  # from 1

    @property
    def place(self) -> str:
        """`file:line:column`, as far as it is known."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.path, self.message) if part)


class ScenarioError(MicroSimError):
    """The scenario cannot be run. `problems` lists every reason; `str()` gives one line for each."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[ScenarioError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class MissionError(ScenarioError):
    """The mission cannot be flown. `problems` lists every reason."""


def did_you_mean(word: object, choices: Iterable[str]) -> str:
    """`"; did you mean 'default'?"` for the nearest choice, or `""` when none is near."""
    names = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(str(word)[:100].lower(), names, n=1)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


def unknown(what: str, shown: str, word: object, choices: Iterable[str]) -> str:
    """`no robot 'dorne'; did you mean 'drone'? there are: drone, rover`: what is wrong, and what there is."""
    names = list(choices)
    guess = did_you_mean(word, names)
    return f"{what} {shown}{guess}{' ' if guess else '; '}{there_are(names)}"


def there_are(choices: Iterable[str]) -> str:
    """`"there are: default, flat"`, to end a message with what could have been written."""
    return "there are: " + (", ".join(choices) or "none")
