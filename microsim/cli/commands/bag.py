"""`microsim bag`: inspecting and repairing recordings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typing_extensions import NotRequired, TypedDict

from microsim.cli.command import BagArgument, Command, JsonOption, with_options
from microsim.cli.json_schemas import Digest, Ticks
from microsim.cli.terminal import ExitCode, print_json
from microsim.errors import UsageError
from microsim.options import argument, flag, option

if TYPE_CHECKING:
    from microsim.recording.maintenance import BagInfo

bag = typer.Typer(no_args_is_help=True, help="Inspect and repair recordings.")


class TrafficOutput(TypedDict):
    type: str
    messages: int
    rate_hz: Annotated[float | None, "null: fewer than two messages."]


class BagOutput(TypedDict):
    """What a recording contains. Recordings of other programs, and damaged ones, lack some fields."""

    path: str
    bytes: int
    duration_s: Annotated[float | None, "From the first to the last message; null: there is none."]
    messages: Annotated[int, "Of all topics, inputs too."]
    problem: Annotated[str, "What is wrong with it; empty: nothing."]
    topics: Annotated[dict[str, TrafficOutput], "By name."]
    format_version: NotRequired[int]
    version: NotRequired[Annotated[str, "Of MicroSim, which made it."]]
    scenario: NotRequired[Annotated[dict[str, Any], "The whole scenario."]]
    seed: NotRequired[int]
    options: NotRequired[Annotated[dict[str, Any], "How it was recorded."]]
    plugins: NotRequired[Annotated[dict[str, Any], "Hashes of the code of plug-ins."]]
    sent: NotRequired[Annotated[int, "Messages without inputs."]]
    inputs: NotRequired[int]
    complete: NotRequired[Annotated[bool, "Whether it was closed properly."]]
    ticks: NotRequired[Ticks]
    digest: NotRequired[Digest]


COMMAND = Command(bag, panel="Recordings", position=340, json={"info": BagOutput})


class InfoOptions(NamedTuple):
    path: BagArgument
    names_only: Annotated[bool, flag("--topic-name -t", "Print only the names of the topics.")] = False
    json: JsonOption = False
    storage: Annotated[str, option("--storage -s KIND", "The kind is found out.", hidden=True)] = ""
    verbose: Annotated[bool, flag("--verbose -v", "All is shown in any case.", hidden=True)] = False


@bag.command()
@with_options
def info(options: InfoOptions) -> int:
    """Show what a recording contains, and whether it is complete. Exit code 1 when it is damaged.

    \b
    Examples:
      microsim bag info flight
      microsim bag info flight --json
    """
    from microsim.recording.maintenance import look

    found = look(options.path)
    if options.json:
        print_json(found.to_dict())
    elif options.names_only:
        print("\n".join(found.topics))
    else:
        _print_info(found)
    return ExitCode.FAILED if found.problem else ExitCode.GOOD


def _print_info(found: BagInfo) -> None:
    run_info = found.run_info
    print(f"{found.path}  {found.bytes / 1e6:,.1f} MB, {found.duration_s:,.3f} s, {found.messages:,} messages")
    if "seed" in run_info:
        print(f"  made by     microsim {run_info.get('version')}, seed {run_info['seed']}")
        print(f"  ticks       {run_info.get('ticks', 'unknown')}")
        print(f"  digest      {run_info.get('digest') or 'unknown'}")
        if run_info.get("complete") != "true":
            print(f"  cut off     {run_info.get('reason', 'not finished')}")
    counts = [f"{traffic.messages:,}" for traffic in found.topics.values()]
    rates = [f"{traffic.rate_hz:.2f} Hz" if traffic.rate_hz else "" for traffic in found.topics.values()]
    widths = [max(map(len, cells), default=0) for cells in (found.topics, counts, rates)]
    for (topic, traffic), count, rate in zip(found.topics.items(), counts, rates, strict=True):
        kind = traffic.type.replace("/msg/", "/") if sys.stdout.isatty() else traffic.type  # fits 80 columns
        print(f"  {topic:{widths[0]}}  {count:>{widths[1]}}  {rate:>{widths[2]}}  {kind}")
    if found.problem:
        print(f"damaged: {found.problem}")


@bag.command()
def repair(path: Annotated[Path, argument("BAG", "The folder of a recording.")]) -> None:
    """Finish a recording that was cut off: everything readable is kept.

    The original of a repaired file is kept as `….damaged`.

    \b
    Examples:
      microsim bag repair flight
    """
    from microsim.recording.maintenance import repair as repair_bag

    done = repair_bag(path)
    for damage in done.damaged:
        print(f"rewritten: {damage}")
    state = "finished" if done.damaged else "was whole"
    print(f"{path} {state}: {done.messages:,} messages, up to {done.last_ns / 1e9:.3f} s")


_INSTEAD = {  # verbs of `ros2 bag`, and what does it here
    "play": "`microsim replay BAG --rtf 1 --transport auto` runs it again on ROS 2",
    "burst": "`microsim replay BAG --rtf 1 --transport auto` runs it again on ROS 2",
    "record": "`microsim run SCENARIO --record BAG` records what a simulation sends and takes",
    "reindex": "`microsim bag repair BAG` finishes a recording that was cut off",
    "convert": "`microsim replay BAG --record NEW` records a run again, with other options",
    "list": "recordings are MCAP or SQLite files, and there are no plug-ins for others",
}


def _refuse(verb: str) -> None:
    def refused(words: Annotated[list[str] | None, argument("...", "Anything.")] = None) -> None:
        raise UsageError(f"`bag {verb}` is not supported: {_INSTEAD[verb]}")

    settings = {"ignore_unknown_options": True}
    bag.command(verb, hidden=True, help=f"Not supported: {_INSTEAD[verb]}.", context_settings=settings)(refused)


for _verb in _INSTEAD:
    _refuse(_verb)
