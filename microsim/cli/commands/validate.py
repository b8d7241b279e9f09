"""`microsim validate`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typing_extensions import NotRequired, TypedDict

from microsim.cli.command import Command, JsonOption, PluginsOption
from microsim.cli.precompile import compiling
from microsim.cli.terminal import GOOD, WRONG_INPUT, print_json
from microsim.errors import MicroSimError, Problem, ScenarioError, ScenarioWarning
from microsim.options import argument


def validate(
    files: Annotated[list[str], argument("FILE", "Scenarios, missions, sweeps, world bundles.")],
    plugins: PluginsOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check scenarios, missions, sweeps and world bundles, and list everything that is wrong with them.

    Each result is printed as soon as it is known. The exit code is 2 if any file
    is bad; warnings do not change it. The code of plug-ins does not run, except
    from folders named with --plugins.

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
            kind = _kind(source)
            problems = _problems(source, kind)
        is_bad = is_bad or _is_bad(problems)
        if as_json:
            reports.append(_report(source, kind, problems))
        else:
            _say(source, problems)
            sys.stdout.flush()
    if as_json:
        print_json(reports)
    return WRONG_INPUT if is_bad else GOOD


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
    scenario: NotRequired[Annotated[str, "The file, if it is a scenario."]]
    mission: NotRequired[Annotated[str, "The file, if it is a mission."]]
    sweep: NotRequired[Annotated[str, "The file, if it is a sweep."]]
    bundle: NotRequired[Annotated[str, "The folder, if it is a world bundle."]]
    ok: bool
    problems: list[ProblemOutput]


COMMAND = Command(validate, panel="Scenarios and worlds", position=320, json=list[ValidatedFile])


def _is_bad(problems: Iterable[Problem]) -> bool:
    return any(not problem.is_warning for problem in problems)


def _problems(source: str, kind: str) -> Sequence[Problem]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ScenarioWarning)
        try:
            found = _check(source, kind)
        except ScenarioError as error:
            found = error.problems
        except MicroSimError as error:  # a plug-in that cannot be loaded
            found = (Problem(str(error), file=source),)
    doubts = [each.message.problem for each in caught if isinstance(each.message, ScenarioWarning)]
    return tuple(dict.fromkeys([*found, *doubts]))


def _kind(source: str) -> str:
    """What a name or file is: shipped names come first, then what the file itself says."""
    from microsim import paths
    from microsim.bundle import is_bundle
    from microsim.parts.missions.mission_file import is_mission
    from microsim.parts.sweep.plan import is_sweep

    if source in paths.scenario_names():
        return "scenario"
    if source in paths.mission_names():
        return "mission"
    if is_bundle(source):
        return "bundle"
    if is_sweep(source):
        return "sweep"
    return "mission" if is_mission(Path(source)) else "scenario"


def _check(source: str, kind: str) -> Sequence[Problem]:
    if kind == "bundle":
        from microsim.bundle import check_bundle

        found = check_bundle(source)
        return found if _is_bad(found) else [*found, *_refusals({"world": source}, source)]
    if kind == "sweep":
        from microsim.parts.sweep import load_sweep, make_plan

        make_plan(load_sweep(source))
    elif kind == "mission":
        from microsim.parts.missions.mission_file import load_mission
        from microsim.parts.missions.pilot import check
        from microsim.simulation import Simulation

        mission = load_mission(source)
        if mission.scenario is not None:  # it may run in others
            check(mission, Simulation(mission.scenario, mission.seed))
    else:
        _check_run(source)
    return ()


def _check_run(source: str | dict[str, Any]) -> None:
    """What a run checks before its first tick. What names topics is checked against those that there are."""
    from microsim.scenario import load_scenario

    scenario = load_scenario(source)
    if not (scenario.lockstep or scenario.faults):
        return
    from microsim.parts.ros2.lockstep import check_gates
    from microsim.simulation import Simulation

    check_gates(Simulation(scenario))


def _refusals(scenario: dict[str, Any], file: str) -> Iterator[Problem]:
    """Why a world that is right cannot be run on its own: its car has no ground where it starts by default."""
    try:
        _check_run(scenario)
    except ScenarioError as error:
        for problem in error.problems:
            yield replace(problem, file=problem.file or file, remedy=problem.remedy or "so it cannot be run on its own")


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
