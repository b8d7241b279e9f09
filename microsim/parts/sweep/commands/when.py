"""`microsim when`: the moment at which a run that fails was lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from typing_extensions import TypedDict

from microsim.attachment import shell_command
from microsim.cli.command import Command, ControllerOption, PluginsOption, QuietOption
from microsim.cli.terminal import Bar, ExitCode, interruptible, note, print_json, tell
from microsim.errors import UsageError
from microsim.options import argument, check_can_write, flag, option

if TYPE_CHECKING:
    from microsim.parts.sweep.when import Turning, WhenLost


class WhenOptions(NamedTuple):
    token: Annotated[str, argument("TOKEN", "The token of a run that fails, from the result of a sweep.")]
    condition: Annotated[
        str | None,
        option("--if EXPR", "What its failure is.", show_default="collisions > 0; with a mission, passed == false"),
    ] = None
    scenario: Annotated[str | None, option("--scenario S", "Where its scenario is now.")] = None
    mission: Annotated[str | None, option("--mission M", "Where its mission is now.")] = None
    controller: ControllerOption = None
    runs: Annotated[int, option("--runs N", "Forks of each moment.", min=4, max=10_000)] = 24
    resolution: Annotated[float, option("--resolution S", "How exactly to find a moment, in seconds.", min=0.001)] = 0.2
    plot: Annotated[Path | None, option("--plot FILE", "Plot it: .png, .svg or .pdf (needs the extra `plot`).")] = None
    states: Annotated[
        Path | None, option("--states FOLDER", "Save forks as states: one that fails, and the last that survives.")
    ] = None
    plugins: PluginsOption = None
    json: Annotated[bool, flag("--json", "Print the result as one line of JSON.")] = False
    quiet: QuietOption = False


def when(options: WhenOptions) -> int:
    """Find out when a run that fails was lost.

    The run is repeated up to earlier and later moments, and from there on with
    other random numbers: noise, gusts, radio, draws of controllers. The share
    of these forks that fail is the probability of failure at that moment. The
    failure became likely when more than half of what was open at the start was
    decided, and inevitable when no fork survives any more.

    \b
    Examples:
      microsim when TOKEN                          from a row of a sweep's result
      microsim when TOKEN --plot when.png --runs 50
      microsim when TOKEN --controller rover=controller.py --if 'collisions > 0'
      microsim when TOKEN --states forks           microsim run --from-state …
    """
    from microsim.parts.sweep.when import draw_when
    from microsim.parts.sweep.when import when as find_when

    check_can_write("--plot", options.plot)
    if options.plot is not None:
        from microsim.plotting import check_name

        check_name(options.plot)
    places = {"scenario": options.scenario, "mission": options.mission}
    with interruptible(), Bar("forking", None, "runs") as bar:
        found = find_when(
            options.token, options.condition, **places, controllers=options.controller or (), forks=options.runs,
            resolution_s=options.resolution, report=lambda count: bar.count(),
        )  # fmt: skip
    states = _saved(found, options.states)
    if options.plot is not None:
        draw_when(found, options.plot)
        note(f"plot written to {options.plot}")
    if options.json:
        print_json(_result(found, states))
        return ExitCode.GOOD
    tell(f"{found.condition}: {found.forks:,} forks of a run of {found.end_s:g} s")
    tell(f"  likely      {found.likely}")
    tell(f"  inevitable  {found.inevitable}")
    folders = dict.fromkeys(str(Path(each.file).parent) for each in found.forker.sim.scenario.controllers.values())
    for state in states:
        tell(f"  {shell_command('run', '--from-state', state, *(w for each in folders for w in ('--plugins', each)))}")
    return ExitCode.GOOD


def _saved(found: WhenLost, folder: Path | None) -> list[str]:
    """The last fork that survives, and one of the same moment that fails."""
    if folder is None:
        return []
    from microsim.recording.state_file import save_state

    if found.forker.again.mission is not None:
        raise UsageError("--states: the plans of a mission are not part of a state; leave it out")
    survivor = found.survivor()
    moment = found.moments[0] if survivor is None else survivor[0]
    failing = next((number for number, fork in enumerate(moment.forks) if fork.failed), None)
    numbers = [("survives", None if survivor is None else survivor[1]), ("fails", failing)]
    written = []
    for name, number in numbers:
        if number is not None:
            file = folder / f"{name}_{moment.time_s:.2f}s.state"
            save_state(file, found.fork(moment, number))
            written.append(str(file))
    return written


class TurningOutput(TypedDict):
    time_s: float
    from_s: Annotated[float, "The last moment before it that was looked at."]
    to_s: Annotated[float, "The first moment after it that was looked at."]


class MomentOutput(TypedDict):
    time_s: float
    runs: int
    failures: int
    low: Annotated[float, "The probability of failure is above this, with 95 % confidence of the interval."]
    high: float


class WhenOutput(TypedDict):
    condition: str
    forks: int
    likely: TurningOutput
    inevitable: TurningOutput
    moments: list[MomentOutput]
    states: list[str]


COMMAND = Command(when, panel="Test", position=225, json=WhenOutput)


def _result(found: WhenLost, states: list[str]) -> WhenOutput:
    moments: list[MomentOutput] = [
        {
            "time_s": each.time_s, "runs": len(each.forks), "failures": each.failures,
            "low": each.confidence[0], "high": each.confidence[1],
        }
        for each in found.moments
    ]  # fmt: skip
    return {
        "condition": found.condition, "forks": found.forks, "likely": _turning(found.likely),
        "inevitable": _turning(found.inevitable), "moments": moments, "states": states,
    }  # fmt: skip


def _turning(found: Turning) -> TurningOutput:
    from_s = 0.0 if found.before is None else found.before.time_s
    to_s = 0.0 if found.before is None else found.after.time_s
    return {"time_s": found.time_s, "from_s": from_s, "to_s": to_s}
