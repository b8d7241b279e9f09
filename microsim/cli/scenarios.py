"""`microsim validate`, `microsim schema` and `microsim list`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from microsim import paths
from microsim.cli.rehearsal import compiling
from microsim.errors import MicroSimError, Problem, ScenarioError


def validate(sources: Sequence[str], as_json: bool) -> int:
    """0 when all are good, 2 otherwise."""
    with compiling():
        results = {source: _problems(source) for source in dict.fromkeys(sources)}
    if as_json:
        print(json.dumps([_report(source, problems) for source, problems in results.items()], ensure_ascii=False))
    else:
        for source, problems in results.items():
            _say(source, problems)
    return 2 if any(map(_is_bad, results.values())) else 0


def _is_bad(problems: Iterable[Problem]) -> bool:
    return any(not problem.is_warning for problem in problems)


def _problems(source: str) -> Sequence[Problem]:
    from microsim.scenario import load_scenario

    try:
        if _is_bundle(source):
            return _check_bundle(source)
        if _is_sweep(source):
            _check_sweep(source)
        elif _is_mission(source):
            _check_mission(source)
        else:
            load_scenario(source)
    except ScenarioError as error:
        return error.problems
    except MicroSimError as error:  # a plug-in that cannot be loaded
        return (Problem(str(error), file=source),)
    return ()


def _is_bundle(source: str) -> bool:
    from microsim.bundle import is_bundle

    return source not in paths.scenario_names() and source not in paths.mission_names() and is_bundle(source)


def _check_bundle(source: str) -> Sequence[Problem]:
    from microsim.bundle import check_bundle

    return check_bundle(source)


def _is_sweep(source: str) -> bool:
    from microsim.sweep.sweep_file import is_sweep

    return source not in paths.scenario_names() and source not in paths.mission_names() and is_sweep(source)


def _check_sweep(source: str) -> None:
    from microsim.sweep import load_sweep, make_plan

    make_plan(load_sweep(source))


def _is_mission(source: str) -> bool:
    from microsim.missions.mission_file import is_mission

    if source in paths.scenario_names():
        return False
    return source in paths.mission_names() or is_mission(Path(source))


def _check_mission(source: str) -> None:
    """Beside the scenario it is meant for, where it names one; it may be flown in others."""
    from microsim.missions.mission_check import check
    from microsim.missions.mission_file import load_mission
    from microsim.simulation import Simulation

    mission = load_mission(source)
    if mission.scenario is not None:
        check(mission, Simulation(mission.scenario, mission.seed))


def _report(source: str, problems: Iterable[Problem]) -> dict[str, Any]:
    found = list(problems)
    is_bundle = _is_bundle(source)
    details = [
        {"message": each.message, "path": each.path, "file": each.file, "line": each.line, "column": each.column}
        | ({"rule": each.rule, "remedy": each.remedy, "is_warning": each.is_warning} if is_bundle else {})
        for each in found
    ]
    kind = "bundle" if is_bundle else _kind(source)
    return {kind: source, "ok": not _is_bad(found), "problems": details}


def _kind(source: str) -> str:
    return "sweep" if _is_sweep(source) else "mission" if _is_mission(source) else "scenario"


def _say(source: str, problems: Sequence[Problem]) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if _is_bad(problems):
        warnings = sum(problem.is_warning for problem in problems)
        count = _counted(len(problems) - warnings, "problem") + (
            f", {_counted(warnings, 'warning')}" if warnings else ""
        )
        console.print(Text.assemble(("bad ", "bold red"), " ", source, (f"  {count}", "dim")))
    else:
        Console(highlight=False, soft_wrap=True).print(Text.assemble((" ok ", "bold green"), " ", source))
    for problem in problems:
        words = ": ".join(part for part in (problem.path, problem.explanation) if part)
        mark = ("warning: ", "yellow") if problem.is_warning else ""
        console.print(Text.assemble("     ", (problem.place, "cyan"), ": " if problem.place else "", mark, words))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def print_schema() -> None:
    from microsim.scenario import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def print_list(as_json: bool) -> None:
    groups = _groups()
    if as_json:
        print(json.dumps(groups, ensure_ascii=False))
        return
    for index, (title, entries) in enumerate(groups.items()):
        if index:
            print()
        _print_group(title, entries)


def _print_group(title: str, entries: dict[str, str]) -> None:
    if not sys.stdout.isatty():  # one entry a line, however long: this is for grep
        width = max(map(len, entries), default=0)
        print("\n".join([title, *(f"  {name:{width}}  {about}".rstrip() for name, about in entries.items())]))
        return
    table = Table.grid(padding=(0, 2))
    for name, about in entries.items():
        table.add_row(Text(f"  {name}", "bold cyan"), Text(about))
    console = Console(highlight=False)
    console.print(Text(title, "bold"))
    console.print(table)


def _groups() -> dict[str, dict[str, str]]:
    from microsim.scenario import ROBOTS, SENSORS, plugins
    from microsim.sweep.metrics import all_metrics

    built_in_robots = {name: _first_line(model) for name, model in ROBOTS.items()}
    sensors = {name: _first_line(model) for name, model in SENSORS.items()}
    return {
        "scenarios": {name: first_comment(paths.scenario_file(name)) for name in paths.scenario_names()},
        "missions": {name: first_comment(paths.mission_file(name)) for name in paths.mission_names()},
        "worlds": {name: _world_about(name) for name in paths.world_names()},
        "robots": {**built_in_robots, **dict.fromkeys(plugins.robot_names(), "plug-in")},
        "sensors": {**sensors, **dict.fromkeys(plugins.sensor_names(), "plug-in")},
        "generators": {name: _generator_about(name) for name in plugins.generator_names()},
        "metrics": {name: _first_line(metric) for name, metric in all_metrics().items()},
    }


def _world_about(name: str) -> str:
    try:
        metadata = json.loads((paths.world_folder(name) / "metadata.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(metadata.get("description", "")) if isinstance(metadata, dict) else ""


def _first_line(documented: Any) -> str:
    return (documented.__doc__ or "").strip().split("\n")[0]


def _generator_about(name: str) -> str:
    from microsim.scenario import plugins

    try:
        generator = plugins.find_generator(name)
    except MicroSimError as error:
        return f"cannot be loaded: {error}"
    return _first_line(generator.generate) if generator is not None else ""


def first_comment(file: Path) -> str:
    """The sentence with which the opening comment of a scenario or mission begins."""
    words = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        words.append(line.lstrip("# ").strip())
    text = " ".join(words)
    end = text.find(". ")
    return text if end < 0 else text[: end + 1]
