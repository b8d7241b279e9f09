"""`microsim action`: actions of any ROS 2 network."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import typer
from typing_extensions import TypedDict

from microsim.cli.command import Command, with_options
from microsim.cli.terminal import ExitCode
from microsim.options import argument, flag, option
from microsim.parts.live_tools.live import (
    PANEL,
    GivenArgument,
    MessageOutput,
    NamesOutput,
    Ros2Options,
    StdinOption,
    TypesOption,
    WithinOption,
    connected,
    json_text,
    read_values,
    type_and_values,
    yaml_text,
)
from microsim.parts.live_tools.named_verbs import Named, Sides

action = typer.Typer(no_args_is_help=True, help="List actions, and send goals.")


class GoalFeedback(TypedDict):
    """With --feedback: a line for each."""

    feedback: MessageOutput


class GoalOutput(TypedDict):
    """The last line."""

    status: Annotated[str, "succeeded, aborted, canceled or rejected."]
    result: Annotated[Any, "A message as an object of its fields; null: there is none."]


class ActionOutput(Sides):
    action: str


OUTPUTS = {
    "list": NamesOutput,
    "type": list[str],
    "find": list[str],
    "info": ActionOutput,
    "send-goal": GoalOutput | GoalFeedback,
}
COMMAND = Command(action, panel=PANEL, position=630, json=OUTPUTS)


_ACTION = Named(
    "action", "action", "/simulate_steps", "simulation_interfaces/action/SimulateSteps",
    request="{name}/_action/send_goal", has_hidden=True,
    names=lambda node: node.actions(), types_of=lambda node, name: node.types_of_action(name),
)  # fmt: skip
_ACTION.add_list(action)
_ACTION.add_type_and_find(action)
_ACTION.add_info(action, "Show which nodes serve an action, and which send goals to it.")


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

    def show(what: str, value: Any) -> None:
        print(json_text({what: value}) if options.json else yaml_text({what: value}), flush=True)

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
    return ExitCode.GOOD if outcome.status == "succeeded" else ExitCode.FAILED
