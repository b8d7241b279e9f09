"""`microsim action`: actions of any ROS 2 network."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import typer
from typing_extensions import TypedDict

from microsim.cli.command import Command, JsonOption, with_options
from microsim.cli.json_schemas import MessageOutput, NamesOutput
from microsim.cli.terminal import FAILED, GOOD, print_json
from microsim.options import argument, flag, option
from microsim.parts.live_tools.live import (
    PANEL,
    CountOption,
    FindOptions,
    GivenArgument,
    ListOptions,
    NameOptions,
    Ros2Options,
    ShowTypesOption,
    StdinOption,
    TypesOption,
    WithinOption,
    connected,
    json_text,
    list_names,
    print_names_with,
    print_type,
    read_values,
    type_and_values,
    yaml_text,
)

action = typer.Typer(no_args_is_help=True, help="List actions of any ROS 2 network, and send goals.")


class GoalFeedback(TypedDict):
    """With --feedback: a line for each."""

    feedback: MessageOutput


class GoalOutput(TypedDict):
    """The last line."""

    status: Annotated[str, "succeeded, aborted, canceled or rejected."]
    result: Annotated[Any, "A message as an object of its fields; null: there is none."]


class ActionOutput(TypedDict):
    action: str
    types: list[str]
    clients: Annotated[list[str], "Names of nodes."]
    servers: list[str]


OUTPUTS = {
    "list": NamesOutput,
    "type": list[str],
    "find": list[str],
    "info": ActionOutput,
    "send-goal": GoalOutput | GoalFeedback,
}
COMMAND = Command(action, panel=PANEL, position=354, json=OUTPUTS)


@action.command("list")
@with_options
def list_actions(options: ListOptions) -> None:
    """List the actions.

    \b
    Examples:
      microsim action list -t
    """
    list_names(lambda node: node.actions(), options._replace(show_all=True))


@action.command("type")
@with_options
def action_type(options: NameOptions) -> None:
    """Print the type of an action.

    \b
    Examples:
      microsim action type /simulate_steps
    """
    print_type(lambda node, name: node.types_of_action(name), options)


@action.command()
@with_options
def find(options: FindOptions) -> None:
    """List the actions of a type.

    \b
    Examples:
      microsim action find simulation_interfaces/action/SimulateSteps
    """
    print_names_with(lambda node: node.actions(), "action", options)


class InfoOptions(NamedTuple):
    name: Annotated[str, argument("ACTION", "Name of the action.")]
    show_types: ShowTypesOption = False
    only_count: CountOption = False
    json: JsonOption = False
    ros2: Ros2Options = Ros2Options()


@action.command()
@with_options
def info(options: InfoOptions) -> None:
    """Show which nodes serve an action, and which send goals to it.

    \b
    Examples:
      microsim action info /simulate_steps
    """
    from microsim.parts.ros2.transport.graph_view import ACTION

    with connected(None) as node:
        types = node.types_of_action(options.name)
        name = node.absolute(options.name, "action")
        node.settle()
        request = f"rq{name}{ACTION}send_goalRequest"
        sides = {side: node.owners(request, is_writer) for side, is_writer in (("clients", True), ("servers", False))}
    if options.json:
        print_json({"action": name, "types": types, **sides})
        return
    print(f"{name} [{', '.join(types)}]" if options.show_types else name)
    for side, owners in sides.items():
        shown = [] if options.only_count else [f"    {owner}" for owner in owners]
        print("\n".join([f"  {side}  {len(owners)}", *shown]))


class GoalOptions(NamedTuple):
    name: Annotated[str, argument("ACTION", "Name of the action.")]
    given: GivenArgument = None
    stdin: StdinOption = False
    feedback: Annotated[bool, flag("--feedback -f", "Print the feedback too.")] = False
    type_name: Annotated[str, option("--type TYPE", "Type of the action, where it has several.")] = ""
    json: Annotated[bool, flag("--json", "Print feedback and result as JSON, each on a line.")] = False
    types: TypesOption = None
    timeout: WithinOption = None
    ros2: Ros2Options = Ros2Options()


@action.command("send-goal")
@action.command("send_goal", hidden=True)
@with_options
def send_goal(options: GoalOptions) -> int:
    """Send a goal and wait for its result. Ctrl-C cancels the goal. Exit code 1 unless it succeeds.

    \b
    Examples:
      microsim action send-goal /simulate_steps "{steps: 60}" --feedback
      microsim action send_goal /dock dock_msgs/action/Dock "{station: 3}"
      microsim action send-goal /dock "{station: 3}" --types ~/ws/src/dock_msgs
    """
    from microsim.messages.mappings import to_plain

    type_name, values = type_and_values(options.given or [], "ACTION", options.stdin)
    goal, type_name = read_values(values or "{}"), options.type_name or type_name

    def show(what: str, facts: Any) -> None:
        print(json_text({what: facts}) if options.json else yaml_text({what: facts}), flush=True)

    def on_feedback(message: Any) -> None:
        show("feedback", to_plain(message, in_base64=options.json))

    hear = on_feedback if options.feedback else None
    with connected(options.types) as node:
        outcome = node.send_goal(options.name, goal, type=type_name, on_feedback=hear, timeout=options.timeout)
        result = to_plain(outcome.result, in_base64=options.json) if outcome.result is not None else None
        if options.json:
            print(json_text({"status": outcome.status, "result": result}))
        else:
            print(yaml_text({"status": outcome.status, **({"result": result} if result is not None else {})}))
    return GOOD if outcome.status == "succeeded" else FAILED
