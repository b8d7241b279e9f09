"""`microsim action`: actions of any ROS 2 network."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typing_extensions import TypedDict

from microsim.cli.command import Command, JsonOption
from microsim.cli.json_schemas import MessageOutput, NamesOutput
from microsim.cli.live import (
    PANEL,
    CountOption,
    ListOptions,
    ShowTypesOption,
    TypesOption,
    ValuesArgument,
    WithinOption,
    connected,
    json_text,
    list_names,
    read_values,
    yaml_text,
)
from microsim.cli.terminal import FAILED, GOOD
from microsim.options import argument, flag, option

action = typer.Typer(no_args_is_help=True, help="List actions of any ROS 2 network, and send goals.")


class GoalFeedback(TypedDict):
    """With --feedback: a line for each."""

    feedback: MessageOutput


class GoalOutput(TypedDict):
    """The last line."""

    status: Annotated[str, "succeeded, aborted, canceled or rejected."]
    result: Annotated[Any, "A message as an object of its fields; null: there is none."]


COMMAND = Command(action, panel=PANEL, position=354, json={"list": NamesOutput, "send-goal": GoalOutput | GoalFeedback})


@action.command("list")
def list_actions(show_types: ShowTypesOption = False, count: CountOption = False, as_json: JsonOption = False) -> None:
    """List the actions.

    \b
    Examples:
      microsim action list -t
    """
    list_names(lambda node: node.actions(), ListOptions(show_types, True, count, as_json))


@action.command("send-goal")
def send_goal(
    name: Annotated[str, argument("ACTION", "Name of the action.")],
    values: ValuesArgument = "{}",
    feedback: Annotated[bool, flag("--feedback -f", "Print the feedback too.")] = False,
    type_name: Annotated[str, option("--type TYPE", "Type of the action, where it has several.")] = "",
    as_json: Annotated[bool, flag("--json", "Print feedback and result as JSON, each on a line.")] = False,
    types: TypesOption = None,
    timeout: WithinOption = None,
) -> int:
    """Send a goal and wait for its result. Ctrl-C cancels the goal. Exit code 1 unless it succeeds.

    \b
    Examples:
      microsim action send-goal /simulate_steps "{steps: 60}" --feedback
      microsim action send-goal /dock "{station: 3}" --types ~/ws/src/dock_msgs
    """
    from microsim.messages.mappings import to_plain

    goal = read_values(values)

    def show(what: str, facts: Any) -> None:
        print(json_text({what: facts}) if as_json else yaml_text({what: facts}), flush=True)

    def on_feedback(message: Any) -> None:
        show("feedback", to_plain(message, in_base64=as_json))

    with connected(types) as node:
        outcome = node.send_goal(
            name, goal, type=type_name, on_feedback=on_feedback if feedback else None, timeout=timeout
        )
        result = to_plain(outcome.result, in_base64=as_json) if outcome.result is not None else None
        if as_json:
            print(json_text({"status": outcome.status, "result": result}))
        else:
            print(yaml_text({"status": outcome.status, **({"result": result} if result is not None else {})}))
    return GOOD if outcome.status == "succeeded" else FAILED
