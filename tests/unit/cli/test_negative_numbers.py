"""A negative number or coordinate is an argument, in every command; what begins with a letter is an option."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from microsim.cli import app
from microsim.errors import UsageError

NEGATIVE = ("-18,-8", "-1", "-.5", "-0", "-1e3", "-.inf", "-inf")


def commands(command: Any, name: str = "microsim") -> Iterator[tuple[str, Any]]:
    if hasattr(command, "list_commands"):
        command.list_commands(None)
    below = getattr(command, "commands", {})
    for key, each in below.items():
        yield from commands(each, f"{name} {key}")
    if not below:
        yield name, command


COMMANDS = dict(commands(get_command(app)))
WITH_ARGUMENTS = {
    name: command
    for name, command in COMMANDS.items()
    if any(each.param_type_name == "argument" for each in command.params)
}


def test_every_command_is_met() -> None:
    assert {"microsim bundle route", "microsim param set", "microsim run", "microsim topic pub"} <= {*WITH_ARGUMENTS}
    assert len(WITH_ARGUMENTS) > 40


@pytest.mark.parametrize("name", WITH_ARGUMENTS)
def test_negative_numbers_are_arguments(name: str) -> None:
    command = WITH_ARGUMENTS[name]
    ctx = command.context_class(command, info_name=name)
    for number in NEGATIVE:
        for given in ([number], ["word", number], [number, number], ["--", number]):
            parser = command.make_parser(ctx)
            parser._args = []  # whatever the command takes: so that all arguments are left over
            _, rest, _ = parser.parse_args([*given])
            assert rest == [each for each in given if each != "--"]


@pytest.mark.parametrize("option", ["-x", "--speeed", "--1"])
def test_options_are_still_options(option: str) -> None:
    done = CliRunner().invoke(app, ["bundle", "route", "oval", "-18,-8", "1,1", option])
    assert done.exit_code == 2
    assert "no such option" in done.stderr.lower()


def test_a_route_begins_at_negative_coordinates() -> None:
    done = CliRunner().invoke(app, ["bundle", "route", "oval", "-18,-8", "-1,2", "--speed", "3"])
    assert isinstance(done.exception, UsageError)  # it has no lanes
    assert "lanes" in str(done.exception)
    with pytest.raises(UsageError, match="FROM: expected 2 numbers with commas between, found '-18'"):
        CliRunner().invoke(app, ["bundle", "route", "oval", "-18", "-1,2"], catch_exceptions=False)
