"""`microsim explain`: what a key, topic, fault, metric or command is."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from typing_extensions import TypedDict

from microsim.cli.command import Command
from microsim.cli.terminal import ExitCode, print_json, tell
from microsim.errors import UsageError, did_you_mean
from microsim.options import argument, flag

_MOST_SHOWN, _MOST_WHOLE = 40, 3


class ExplainOptions(NamedTuple):
    what: Annotated[str, argument("WHAT", "A name, the end of one, or words to search for.")]
    json: Annotated[bool, flag("--json", "Print everything found as one line of JSON.")] = False


def explain(options: ExplainOptions) -> int:
    """Explain a key, topic, fault, metric, sensor or command.

    With default, range, unit and an example, as far as it has them. Without an
    exact name it searches: first the ends of names, then names, then
    what is written about them. The texts are those of the reference.

    \b
    Examples:
      microsim explain wind.gust_sigma
      microsim explain max_vx                      of every robot
      microsim explain collisions
      microsim explain 'lost packets'              everything about it
    """
    from microsim.cli.explanations import all_explanations, found_for

    entries = all_explanations()
    found = found_for(options.what, entries)
    if not found:
        near = did_you_mean(options.what, [each.name for each in entries])
        raise UsageError(f"nothing is called {options.what!r} or written about it{near}")
    if options.json:
        print_json({"found": [each.plain() for each in found]})
    elif len(found) <= _MOST_WHOLE:
        tell("\n\n".join("\n".join(each.lines()) for each in found))
    else:
        width = max(len(each.name) for each in found[:_MOST_SHOWN])
        lines = [f"{each.name:{width}}  {each.about}" for each in found[:_MOST_SHOWN]]
        hidden = len(found) - len(lines)
        tell("\n".join([*lines, *([f"… and {hidden} more: use more words, or --json"] if hidden else [])]))
    return ExitCode.GOOD


class ExplanationOutput(TypedDict):
    name: str
    kind: Annotated[str, "`key of scenarios`, `topic`, `fault`, `command`, or a group of `microsim list`."]
    about: str
    default: str
    limits: str
    unit: str
    example: str


class ExplainOutput(TypedDict):
    found: list[ExplanationOutput]


COMMAND = Command(explain, panel="Scenarios and worlds", position=420, json=ExplainOutput)
