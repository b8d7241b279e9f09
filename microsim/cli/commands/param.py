"""`microsim param`: parameters of any ROS 2 node."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typing_extensions import NotRequired, TypedDict

from microsim.cli.command import Command, JsonOption
from microsim.cli.live import PANEL, connected, json_text, yaml_text
from microsim.cli.terminal import print_json
from microsim.options import argument

param = typer.Typer(no_args_is_help=True, help="List, get, set, describe and dump parameters of any ROS 2 node.")


class ParameterOutput(TypedDict):
    name: str
    type: str
    description: str
    read_only: bool
    minimum: NotRequired[Annotated[float | str, "Where it is limited; text: an infinity."]]
    maximum: NotRequired[float | str]
    step: NotRequired[float]
    constraints: NotRequired[Annotated[str, "Further ones, in words."]]


OUTPUTS = {
    "list": list[str] | dict[str, list[str]],  # of one node, or of each
    "get": Annotated[Any, "The value."],
    "describe": ParameterOutput,
    "dump": Annotated[dict[str, Any], "Values by name."],
}
COMMAND = Command(param, panel=PANEL, position=356, json=OUTPUTS)

NodeArgument = Annotated[str, argument("NODE", "Name of the node.")]
NameArgument = Annotated[str, argument("PARAMETER", "Name of the parameter.")]


@param.command("list")
def list_parameters(
    node_name: Annotated[str, argument("[NODE]", "Name of a node; without it, all nodes.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the names of parameters.

    \b
    Examples:
      microsim param list /microsim
      microsim param list --json
    """
    with connected(None) as node:
        if node_name:
            names = node.parameters(node_name).names()
            print_json(names) if as_json else print("\n".join(names))
            return
        services = node.services()
        owners = [each for each in node.nodes() if f"{each}/list_parameters" in services]
        found = {each: node.parameters(each).names() for each in owners}
        if as_json:
            print_json(found)
        else:
            print("\n".join("\n  ".join([f"{owner}:", *names]) for owner, names in found.items()))


@param.command()
def get(node_name: NodeArgument, name: NameArgument, as_json: JsonOption = False) -> None:
    """Print the value of a parameter.

    \b
    Examples:
      microsim param get /microsim seed
    """
    with connected(None) as node:
        value = node.parameters(node_name)[name]
        print(json_text(value) if as_json else yaml_text(value))


@param.command("set", context_settings={"ignore_unknown_options": True})  # -1 is a value
def set_parameter(
    node_name: NodeArgument, name: NameArgument, value: Annotated[str, argument("VALUE", "The new value, as YAML.")]
) -> None:
    """Set a parameter. Exit code 2, and the node's reason, when it refuses.

    \b
    Examples:
      microsim param set /microsim seed 7
      microsim param set /microsim rover.max_v 1.5
      microsim param set /planner offset -0.2
    """
    from microsim.ros2.transport.ros_arguments import read_value

    with connected(None) as node:
        parameters = node.parameters(node_name)
        parameters.set(name, read_value(value, "VALUE"))
        print(yaml_text({name: parameters[name]}))


@param.command()
def describe(node_name: NodeArgument, name: NameArgument, as_json: JsonOption = False) -> None:
    """Show the type, range and description of a parameter.

    \b
    Examples:
      microsim param describe /microsim rover.max_v
    """
    with connected(None) as node:
        found = {"name": name, **node.parameters(node_name).describe(name)[name]}
        print(json_text(found) if as_json else yaml_text(found))


@param.command()
def dump(node_name: NodeArgument, as_json: JsonOption = False) -> None:
    """Print all parameters of a node, as a file for --params-file.

    \b
    Examples:
      microsim param dump /microsim > microsim.yaml
      microsim run --ros-args --params-file microsim.yaml
    """
    with connected(None) as node:
        parameters = node.parameters(node_name)
        values = parameters.get()
        print(json_text(values) if as_json else yaml_text({parameters.name: {"ros__parameters": values}}))
