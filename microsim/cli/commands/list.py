"""`microsim list`."""

from __future__ import annotations

import sys
from typing import Any

from typing_extensions import TypedDict

from microsim.cli.command import Command, JsonOption
from microsim.cli.terminal import print_json
from microsim.errors import MicroSimError
from microsim.shipped import first_comment, world_about


def list_(as_json: JsonOption = False) -> None:
    """List scenarios, missions, robot models, sensors, generators and metrics.

    \b
    Examples:
      microsim list
      microsim list --json
    """
    groups = _groups()
    if as_json:
        print_json(groups)
        return
    for index, (title, entries) in enumerate(groups.items()):
        if index:
            print()
        print_group(title, entries)


Listed = dict[str, str]


class ListOutput(TypedDict):
    """Names, each with a sentence about it."""

    scenarios: Listed
    missions: Listed
    worlds: Listed
    robots: Listed
    sensors: Listed
    generators: Listed
    faults: Listed
    metrics: Listed


COMMAND = Command(list_, panel="Scenarios and worlds", position=310, json=ListOutput)


def print_group(title: str, entries: dict[str, str]) -> None:
    if not sys.stdout.isatty():  # one entry a line, however long: this is for grep
        width = max(map(len, entries), default=0)
        print("\n".join([title, *(f"  {name:{width}}  {about}".rstrip() for name, about in entries.items())]))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, about in entries.items():
        table.add_row(Text(f"  {name}", "bold cyan"), Text(about))
    console = Console(highlight=False)
    console.print(Text(title, "bold"))
    console.print(table)


def _groups() -> dict[str, dict[str, str]]:
    from microsim import paths
    from microsim.faults import FAULTS
    from microsim.generators import GENERATORS
    from microsim.parts.sweep.metrics import all_metrics
    from microsim.robots.robot import COMMON_SENSORS, ROBOTS
    from microsim.sensors import SENSORS

    robots = {name: _first_line(model) for name, model in ROBOTS.built_in.items()}
    sensors = {name: _first_line(sensor.settings) for name, sensor in COMMON_SENSORS.items()}
    return {
        "scenarios": {name: first_comment(paths.scenario_file(name)) for name in paths.scenario_names()},
        "missions": {name: first_comment(paths.mission_file(name)) for name in paths.mission_names()},
        "worlds": {name: world_about(name) for name in paths.world_names()},
        "robots": {**robots, **dict.fromkeys(ROBOTS.plugin_names(), "plug-in")},
        "sensors": {**sensors, **dict.fromkeys(SENSORS.plugin_names(), "plug-in")},
        "generators": {name: _generator_about(name) for name in GENERATORS.names()},
        "faults": {name: kind.about for name, kind in FAULTS.built_in.items()},
        "metrics": {name: _first_line(metric) for name, metric in all_metrics().items()},
    }


def _first_line(documented: Any) -> str:
    return (documented.__doc__ or "").strip().split("\n")[0]


def _generator_about(name: str) -> str:
    from microsim.generators import GENERATORS

    try:
        generator = GENERATORS.find(name)
    except MicroSimError as error:
        return f"cannot be loaded: {error}"
    return _first_line(generator.generate) if generator is not None else ""
