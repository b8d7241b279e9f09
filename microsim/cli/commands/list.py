"""`microsim list`."""

from __future__ import annotations

import sys
from typing import Any

from typing_extensions import TypedDict

from microsim.cli.command import Command, JsonOption
from microsim.cli.terminal import print_json


def list_(as_json: JsonOption = False) -> None:
    """List scenarios, missions, robots, sensors, metrics and more.

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


def _output() -> Any:
    """A field for each group."""
    from microsim.listings import LISTINGS

    make: Any = TypedDict
    made = make("ListOutput", dict.fromkeys(LISTINGS.built_in, Listed))
    made.__doc__ = "Names, each with a sentence about it."
    return made


COMMAND = Command(list_, panel="Scenarios and worlds", position=410, json=_output)


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


def _groups() -> dict[str, Listed]:
    from microsim.listings import LISTINGS

    return {each.name: dict(each.entries()) for each in LISTINGS.all()}
