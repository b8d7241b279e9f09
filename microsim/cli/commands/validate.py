"""`microsim validate`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from typing_extensions import NotRequired, TypedDict

from microsim.cli.command import Command, JsonOption, PluginsOption
from microsim.cli.json_schemas import with_fields
from microsim.cli.precompile import compiling
from microsim.cli.terminal import ExitCode, print_json
from microsim.errors import MicroSimError, Problem, ScenarioError, ScenarioWarning
from microsim.file_kinds import FILE_KINDS, FileKind, kind_of
from microsim.options import argument


def validate(
    files: Annotated[list[str], argument("FILE", "Scenarios, missions, sweeps, world bundles.")],
    plugins: PluginsOption = None,
    as_json: JsonOption = False,
) -> int:
    """Find mistakes in scenarios, missions, sweeps and bundles.

    Nothing is run. All mistakes are listed, with file, line and column, each
    result as soon as it is known. The exit code is 2 if any file is bad; warnings
    do not change it. The code of plug-ins does not run, except from folders named
    with --plugins.

    \b
    Examples:
      microsim validate my_world.yaml
      microsim validate scenarios/*.yaml missions/*.yaml --json
      microsim validate worlds/oval my_bundle/
      microsim validate with_plug_ins.yaml --plugins plugins
    """
    reports = []
    is_bad = False
    for source in dict.fromkeys(files):
        with compiling():
            kind = kind_of(source)
            problems = _problems(source, kind)
        is_bad = is_bad or _is_bad(problems)
        if as_json:
            reports.append(_report(source, kind.name, problems))
        else:
            _say(source, problems)
            sys.stdout.flush()
    if as_json:
        print_json(reports)
    return ExitCode.WRONG_INPUT if is_bad else ExitCode.GOOD


class ProblemOutput(TypedDict):
    message: Annotated[str, "What was found, and what is expected."]
    path: Annotated[str, "Key path; empty: the whole file."]
    file: str | None
    line: Annotated[int | None, "From 1."]
    column: Annotated[int | None, "From 1."]
    rule: NotRequired[Annotated[str, "Of a bundle: the rule that is broken."]]
    remedy: NotRequired[Annotated[str, "Of a bundle: what to do."]]
    is_warning: Annotated[bool, "It does not make the file bad."]


class ValidatedFile(TypedDict):
    ok: bool
    problems: list[ProblemOutput]


def _output() -> Any:
    """The file is under the name of its kind."""
    names = {
        each.name: NotRequired[Annotated[str, f"The file or folder, if it is a {each.name}."]]
        for each in FILE_KINDS.built_in.values()
    }
    make: Any = TypedDict
    return list[with_fields(make("ValidatedFile", names), ValidatedFile)]  # type: ignore[misc]


COMMAND = Command(validate, panel="Test", position=210, json=_output)


def _is_bad(problems: Iterable[Problem]) -> bool:
    return any(not problem.is_warning for problem in problems)


def _problems(source: str, kind: FileKind) -> Sequence[Problem]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ScenarioWarning)
        try:
            found = kind.check(source)
        except ScenarioError as error:
            found = error.problems
        except MicroSimError as error:  # a plug-in that cannot be loaded
            found = (Problem(str(error), file=source),)
    doubts = [each.message.problem for each in caught if isinstance(each.message, ScenarioWarning)]
    return tuple(dict.fromkeys([*found, *doubts]))


def _report(source: str, kind: str, problems: Iterable[Problem]) -> dict[str, Any]:
    found = list(problems)
    details = [
        {"message": each.message, "path": each.path, "file": each.file, "line": each.line, "column": each.column}
        | ({"rule": each.rule, "remedy": each.remedy} if kind == "bundle" else {})
        | {"is_warning": each.is_warning}
        for each in found
    ]
    return {kind: source, "ok": not _is_bad(found), "problems": details}


def _say(source: str, problems: Sequence[Problem]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if _is_bad(problems):
        warnings = sum(problem.is_warning for problem in problems)
        count = _counted(len(problems) - warnings, "problem")
        count += f", {_counted(warnings, 'warning')}" if warnings else ""
        console.print(Text.assemble(("bad ", "bold red"), " ", source, (f"  {count}", "dim")))
    else:
        Console(highlight=False, soft_wrap=True).print(Text.assemble((" ok ", "bold green"), " ", source))
    for problem in problems:
        words = ": ".join(part for part in (problem.path, problem.explanation) if part)
        mark = ("warning: ", "yellow") if problem.is_warning else ""
        console.print(Text.assemble("     ", (problem.place, "cyan"), ": " if problem.place else "", mark, words))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
