"""`microsim service`: services of any ROS 2 network."""

from __future__ import annotations

from typing import Annotated

import typer

from microsim.cli.command import Command, JsonOption, argument, option
from microsim.cli.json_schemas import MessageOutput, NamesOutput
from microsim.cli.live import (
    PANEL,
    AllOption,
    AnswerOption,
    CountOption,
    ShowTypesOption,
    TypesOption,
    ValuesArgument,
    connected,
    explain_nothing,
    print_message,
    print_names,
    read_values,
)

service = typer.Typer(no_args_is_help=True, help="List and call services of any ROS 2 network.")
COMMAND = Command(service, panel=PANEL, position=352, json={"list": NamesOutput, "call": MessageOutput})


@service.command("list")
def list_services(
    show_types: ShowTypesOption = False,
    show_all: AllOption = False,
    count: CountOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the services.

    \b
    Examples:
      microsim service list
      microsim service list -t
    """
    with connected(None) as node:
        found = node.services()
        print_names(found, show_types, show_all, count, as_json)
        explain_nothing(node, not found)


@service.command()
def call(
    name: Annotated[str, argument("SERVICE", "Name of the service.")],
    values: ValuesArgument = "{}",
    field: Annotated[str, option("--field PATH", "Print only this field of the response.")] = "",
    type_name: Annotated[str, option("--type TYPE", "Type of the service, where it has several.")] = "",
    as_json: JsonOption = False,
    types: TypesOption = None,
    timeout: AnswerOption = 5.0,
) -> None:
    """Call a service and print its response. Exit code 1 when there is no answer.

    \b
    Examples:
      microsim service call /sim/pause "{data: true}"
      microsim service call /sim/reset
      microsim service call /add_two_ints "{a: 1, b: 2}" --field sum
    """
    request = read_values(values)
    with connected(types) as node:
        response = node.call(name, request, type=type_name, timeout=timeout)
        print_message(response, field, as_json, full=True)
