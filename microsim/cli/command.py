"""What a command is, and how commands are found.

A command is one file in `microsim/cli/commands/` with its options, its help and its work, and one constant:

    COMMAND = Command(diff, panel="Recordings", position=220)

The file's name is the command's name: `sim_rover.py` is `microsim sim-rover`. Other packages add a command through
the entry point group `microsim.commands`: the entry point's name is the command's name, its object a `Command`.

`microsim --help` imports every command, so a command imports what is heavy inside its functions.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from typer.core import TyperGroup

from microsim.cli import commands
from microsim.cli.terminal import guarded_output
from microsim.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "microsim.commands"


class Command(NamedTuple):
    """`work` is a function, or a `typer.Typer` with several: `microsim bag info`, `microsim bag repair`.

    A function's parameters are the options, its docstring is the help, and it returns the exit code (None: 0).
    """

    work: Callable[..., int | None] | typer.Typer
    panel: str = "Other commands"  # heading in `microsim --help`
    position: int = 1000  # place among all commands; a panel stands where its first command does

    def add_to(self, app: typer.Typer, name: str) -> None:
        if isinstance(self.work, typer.Typer):
            app.add_typer(self.work, name=name, rich_help_panel=self.panel)
        else:
            app.command(name, rich_help_panel=self.panel)(self.work)


class Commands(TyperGroup):
    """Every command, in order. A command's file is imported when the command is used, all of them for `--help`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._is_complete = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and not self._is_complete:
            if cmd_name in _shipped_names():
                self.commands.update(_built({cmd_name: _shipped(cmd_name)}))
            else:
                self.list_commands(ctx)
        return self.commands.get(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        if not self._is_complete:
            found = {**dict(_from_packages()), **{name: _shipped(name) for name in _shipped_names()}}
            self.commands = _built(found)
            self._is_complete = True
        return list(self.commands)

    def invoke(self, ctx: Any) -> None:
        with guarded_output():
            code = super().invoke(ctx)
        raise typer.Exit(code or 0)


def _built(found: Mapping[str, Command]) -> dict[str, Any]:
    """As typer builds them, in order."""
    app = typer.Typer(add_completion=False)
    app.callback()(lambda: None)  # makes it a group, also of a single command
    for name, command in found.items():
        command.add_to(app, name)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return {name: group.commands[name] for name in sorted(found, key=lambda name: (found[name].position, name))}


def _shipped_names() -> list[str]:
    return [name.replace("_", "-") for _, name, _ in pkgutil.iter_modules(commands.__path__)]


def _shipped(name: str) -> Command:
    module = importlib.import_module(f"{commands.__name__}.{name.replace('-', '_')}")
    command = getattr(module, "COMMAND", None)
    if not isinstance(command, Command):
        raise PluginError(f"{module.__file__}: expected a constant COMMAND = Command(...)")
    return command


def _from_packages() -> Iterator[tuple[str, Command]]:
    for entry in _entry_points():
        try:
            command = entry.load()
            if not isinstance(command, Command):
                raise TypeError(f"expected a microsim.cli.command.Command, found {type(command).__name__}")
        except Exception as error:  # the package is the user's: anything may come, and must not stop other commands
            text = f"the command {entry.name!r} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}"
            typer.echo(f"microsim: {text}", err=True)
        else:
            yield entry.name, command


def _entry_points() -> Iterable[EntryPoint]:
    """Importing `importlib.metadata` takes a tenth of `microsim --help`, so only where some package has a command."""
    marker = f"[{ENTRY_POINTS}]".encode()
    for folder in dict.fromkeys(sys.path):
        for file in Path(folder or ".").glob("*-info/entry_points.txt"):
            with suppress(OSError):
                if marker in file.read_bytes():
                    from importlib.metadata import entry_points

                    return entry_points(group=ENTRY_POINTS)
    return ()
