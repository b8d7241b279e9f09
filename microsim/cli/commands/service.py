"""`microsim service`: services of any ROS 2 network."""

from __future__ import annotations

from typing import Annotated

import typer

from microsim.cli.command import Command, JsonOption, with_options
from microsim.cli.json_schemas import MessageOutput, NamesOutput
from microsim.cli.live import (
    PANEL,
    AnswerOption,
    ListOptions,
    TypesOption,
    ValuesArgument,
    connected,
    list_names,
    print_message,
    read_values,
)
from microsim.options import argument, option

service = typer.Typer(no_args_is_help=True, help="List and call services of any ROS 2 network.")
COMMAND = Command(service, panel=PANEL, position=352, json={"list": NamesOutput, "call": MessageOutput})


@service.command("list")
@with_options
def list_services(options: ListOptions) -> None:
    """List the services.

    \b
    Examples:
      microsim service list
      microsim service list -t
    """
    list_names(lambda node: node.services(), options)


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
