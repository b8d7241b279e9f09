"""`microsim node`: nodes of any ROS 2 network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from typing_extensions import TypedDict

from microsim.cli.command import Command, JsonOption, with_options
from microsim.cli.terminal import print_json
from microsim.options import argument, flag
from microsim.parts.live_tools.live import (
    PANEL,
    AllOption,
    CountOption,
    NamesOutput,
    Ros2Names,
    Ros2Options,
    connected,
    explain_nothing,
)

if TYPE_CHECKING:
    from microsim.parts.ros2.transport.graph_view import GraphEndpoint

node = typer.Typer(no_args_is_help=True, help="List nodes, and show what they offer.")


class NodeOutput(TypedDict):
    node: str
    subscribers: NamesOutput
    publishers: NamesOutput
    service_servers: NamesOutput
    service_clients: NamesOutput
    action_servers: NamesOutput
    action_clients: NamesOutput


COMMAND = Command(node, panel=PANEL, position=650, json={"list": list[str], "info": NodeOutput})


class NodeListOptions(NamedTuple):
    show_all: AllOption = False
    only_count: CountOption = False
    json: JsonOption = False
    ros2: Ros2Options = Ros2Options()
    names: Ros2Names = Ros2Names()


@node.command("list")
@with_options
def list_nodes(options: NodeListOptions) -> None:
    """List the nodes.

    \b
    Examples:
      microsim node list
      microsim node list --json
    """
    from microsim.parts.ros2.transport.graph_view import is_hidden

    with connected(None) as client:
        names = [name for name in client.nodes() if options.show_all or options.names.everything or not is_hidden(name)]
        if options.json:
            print_json(names)
        elif options.only_count or options.names.number:
            print(len(names))
        elif names:
            print("\n".join(names))
        explain_nothing(client, not names)
    if len(names) != len(set(names)):
        from microsim.cli.terminal import warn

        warn("several nodes have the same name: remap one with --ros-args -r __node:=NAME")


class NodeInfoOptions(NamedTuple):
    name: Annotated[str, argument("NODE", "Name of the node.")]
    has_hidden: Annotated[bool, flag("--include-hidden", "Also show hidden names, such as the parts of actions.")] = (
        False
    )
    json: JsonOption = False
    ros2: Ros2Options = Ros2Options()


@node.command()
@with_options
def info(options: NodeInfoOptions) -> None:
    """Show what a node publishes, subscribes to, serves and calls.

    \b
    Examples:
      microsim node info /microsim
      microsim node info /microsim --json
    """
    with connected(None) as client:
        whole = client.node_name(options.name)
        client.settle()
        found = _sections([each for _, each in client.endpoints(lambda view: view.of_node(whole))], options.has_hidden)
    if options.json:
        print_json({"node": whole, **found})
        return
    print(whole)
    for title, entries in found.items():
        print(f"  {title.replace('_', ' ')}")
        for topic, types in entries.items():
            print(f"    {topic}: {', '.join(types)}")


def _sections(endpoints: list[GraphEndpoint], has_hidden: bool) -> dict[str, dict[str, list[str]]]:
    from microsim.parts.ros2.transport import graph_view as view

    topics = [each for each in endpoints if each.topic.startswith("rt/")]
    services, clients = (view.types_by_name(side(endpoints)) for side in (view.servers, view.clients))
    sections = {
        "subscribers": view.types_by_name(each for each in topics if not each.is_writer),
        "publishers": view.types_by_name(each for each in topics if each.is_writer),
        "service_servers": services,
        "service_clients": clients,
    }
    shown = {
        title: {name: types for name, types in entries.items() if has_hidden or not view.is_hidden(name)}
        for title, entries in sections.items()
    }
    return {**shown, "action_servers": view.actions_of(services), "action_clients": view.actions_of(clients)}
