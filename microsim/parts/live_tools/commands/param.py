"""`microsim param`: parameters of any ROS 2 node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand
from typing_extensions import NotRequired, TypedDict

from microsim.cli.command import Command, JsonOption, with_options
from microsim.cli.terminal import note, print_json
from microsim.errors import UsageError, os_errors
from microsim.options import argument, flag, option
from microsim.parts.live_tools.live import PANEL, AnswerOption, Ros2Names, Ros2Options, connected, json_text, yaml_text

if TYPE_CHECKING:
    from microsim.parts.live_tools.client.remote_node import RemoteParameters

param = typer.Typer(no_args_is_help=True, help="List, get, set, describe, dump and load parameters.")


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
COMMAND = Command(param, panel=PANEL, position=640, json=OUTPUTS)

NodeArgument = Annotated[str, argument("NODE", "Name of the node.")]
NameArgument = Annotated[str, argument("PARAMETER", "Name of the parameter.")]


class ParamListOptions(NamedTuple):
    node_name: Annotated[str, argument("[NODE]", "Name of a node; without it, all nodes.")] = ""
    prefixes: Annotated[
        list[str] | None, option("--param-prefixes PREFIX...", "Only names that begin with one of these.")
    ] = None
    pattern: Annotated[str, option("--filter PATTERN", "Only names that a regular expression matches.")] = ""
    with_types: Annotated[bool, flag("--param-type", "Show the types too.")] = False
    json: JsonOption = False
    ros2: Ros2Options = Ros2Options()
    names: Ros2Names = Ros2Names()


class SeveralPrefixes(TyperCommand):
    """`--param-prefixes a b`, as in ros2: all words up to the next option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words, option = list[str](), "--param-prefixes"
        for each in args:
            is_next = not each.startswith("-") and len(words) > 1 and words[-2] == option
            words += [option, each] if is_next else [each]
        return super().parse_args(ctx, words)


@param.command("list", cls=SeveralPrefixes)
@with_options
def list_parameters(options: ParamListOptions) -> None:
    """List the names of parameters.

    \b
    Examples:
      microsim param list /microsim
      microsim param list /microsim --param-prefixes rover --param-type
      microsim param list --json
    """
    pattern = _pattern(options.pattern)
    with connected(None) as node:
        if options.node_name:
            names = _chosen(node.parameters(options.node_name).names(), pattern, options)
            types = _types(node.parameters(options.node_name), names) if options.with_types else {}
            print_json(names) if options.json else print("\n".join(f"{name}{types.get(name, '')}" for name in names))
            return
        services = node.services()
        owners = [each for each in node.nodes() if f"{each}/list_parameters" in services]
        found = {each: _chosen(node.parameters(each).names(), pattern, options) for each in owners}
        if options.json:
            print_json(found)
            return
        for owner, names in found.items():
            types = _types(node.parameters(owner), names) if options.with_types else {}
            print("\n  ".join([f"{owner}:", *(f"{name}{types.get(name, '')}" for name in names)]))


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"--filter: {text!r} is not a regular expression: {error}") from None


def _chosen(names: list[str], pattern: re.Pattern[str], options: ParamListOptions) -> list[str]:
    prefixes = tuple(options.prefixes or ("",))
    return [name for name in names if name.startswith(prefixes) and pattern.search(name)]


def _types(parameters: RemoteParameters, names: list[str]) -> dict[str, str]:
    return {name: f" (type: {each['type']})" for name, each in parameters.describe(*names).items()} if names else {}


class GetOptions(NamedTuple):
    node_name: NodeArgument
    name: NameArgument
    json: JsonOption = False
    hide_type: Annotated[bool, flag("--hide-type", "The value is printed alone in any case.", hidden=True)] = False
    timeout: AnswerOption = 5.0
    ros2: Ros2Options = Ros2Options()
    names: Ros2Names = Ros2Names()


@param.command()
@with_options
def get(options: GetOptions) -> None:
    """Print the value of a parameter.

    \b
    Examples:
      microsim param get /microsim seed
    """
    with connected(None) as node:
        value = node.parameters(options.node_name, options.timeout)[options.name]
        print(json_text(value) if options.json else yaml_text(value))


class SetOptions(NamedTuple):
    node_name: NodeArgument
    name: NameArgument
    value: Annotated[str, argument("VALUE", "The new value, as YAML.")]
    timeout: AnswerOption = 5.0
    ros2: Ros2Options = Ros2Options()
    names: Ros2Names = Ros2Names()


@param.command("set")
@with_options
def set_parameter(options: SetOptions) -> None:
    """Set a parameter. Exit code 2, and the node's reason, when it refuses.

    \b
    Examples:
      microsim param set /microsim seed 7
      microsim param set /microsim rover.max_v 1.5
      microsim param set /planner offset -0.2
      microsim param set /planner axes "[x, y, z]"
    """
    with connected(None) as node:
        parameters = node.parameters(options.node_name, options.timeout)
        parameters.set_text(options.name, options.value)
        print(yaml_text({options.name: parameters[options.name]}))


class DeleteOptions(NamedTuple):
    node_name: NodeArgument
    name: NameArgument
    timeout: AnswerOption = 5.0
    ros2: Ros2Options = Ros2Options()
    names: Ros2Names = Ros2Names()


@param.command()
@with_options
def delete(options: DeleteOptions) -> None:
    """Delete a parameter, where its node allows it. Exit code 2, and the node's reason, when it refuses.

    \b
    Examples:
      microsim param delete /planner offset
    """
    with connected(None) as node:
        node.parameters(options.node_name, options.timeout).delete(options.name)
        note(f"deleted {options.name}")


class LoadOptions(NamedTuple):
    node_name: NodeArgument
    file: Annotated[Path, argument("FILE", "A file as `dump` writes it.")]
    no_wildcard: Annotated[bool, flag("--no-use-wildcard", "Leave out what the file has for all nodes (/**).")] = False
    timeout: AnswerOption = 5.0
    ros2: Ros2Options = Ros2Options()
    names: Ros2Names = Ros2Names()


@param.command()
@with_options
def load(options: LoadOptions) -> None:
    """Set the parameters of a file. Exit code 2, and the node's reasons, when it refuses any.

    \b
    Examples:
      microsim param load /microsim microsim.yaml
    """
    from microsim.parts.ros2.transport.ros_arguments import read_params_file

    with connected(None) as node:
        parameters = node.parameters(options.node_name, options.timeout)
        entries = [each for each in read_params_file(options.file) if each.is_for(parameters.name)]
        chosen = [each for each in entries if not (options.no_wildcard and "*" in each.node)]
        if not chosen:
            raise UsageError(f"{options.file} has no parameters for the node {parameters.name}")
        values = {each.name: each.value for each in chosen}
        refused = parameters.set_each(values)
        for name in values:
            print(f"{name}: {refused.get(name, 'set')}")
        if refused:
            raise UsageError(f"node {parameters.name} refused {', '.join(refused)}")


class DescribeOptions(NamedTuple):
    node_name: NodeArgument
    names: Annotated[list[str], argument("PARAMETER", "Names of parameters.")]
    json: JsonOption = False
    timeout: AnswerOption = 5.0
    ros2: Ros2Options = Ros2Options()
    hidden: Ros2Names = Ros2Names()


@param.command()
@with_options
def describe(options: DescribeOptions) -> None:
    """Show the type, range and description of parameters; with --json a line for each.

    \b
    Examples:
      microsim param describe /microsim rover.max_v
    """
    with connected(None) as node:
        found = node.parameters(options.node_name, options.timeout).describe(*options.names)
        for name in options.names:
            answer = {"name": name, **found[name]}
            print(json_text(answer) if options.json else yaml_text(answer))


class DumpOptions(NamedTuple):
    node_name: NodeArgument
    folder: Annotated[Path | None, option("--output-dir DIR", "Write NODE.yaml there, and print nothing.")] = None
    shown: Annotated[bool, flag("--print", "Parameters are printed in any case.", hidden=True)] = False
    json: JsonOption = False
    timeout: AnswerOption = 5.0
    ros2: Ros2Options = Ros2Options()
    names: Ros2Names = Ros2Names()


@param.command()
@with_options
def dump(options: DumpOptions) -> None:
    """Print all parameters of a node, as a file for --params-file.

    \b
    Examples:
      microsim param dump /microsim > microsim.yaml
      microsim run --ros-args --params-file microsim.yaml
    """
    with connected(None) as node:
        parameters = node.parameters(options.node_name, options.timeout)
        values = parameters.get()
        text = yaml_text({parameters.name: {"ros__parameters": values}})
        if options.folder is not None:
            file = options.folder / f"{parameters.name.strip('/').replace('/', '__')}.yaml"
            with os_errors(f"{file} cannot be written", UsageError):
                file.write_text(f"{text}\n", encoding="utf-8")
            note(f"wrote {file}")
            return
        print(json_text(values) if options.json else text)
