"""`microsim conformance`: checks a simulator on the network against `simulation_interfaces`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typing_extensions import TypedDict

from microsim.cli.command import Command, ResultJsonOption
from microsim.cli.terminal import ExitCode, ShareProgress
from microsim.options import argument, check_can_write, flag, option
from microsim.parts.live_tools.live import connected

if TYPE_CHECKING:
    from microsim.parts.live_tools.conformance import ConformanceReport


class OutcomeOutput(TypedDict):
    group: Annotated[str, "What it is about: feature, simulation, entity, spawn, world."]
    name: Annotated[str, "Its name, for CHECK."]
    title: Annotated[str, "What the simulator must do."]
    cites: Annotated[str, "The definition it checks: file, then field, constant or comment."]
    status: Annotated[str, "passed, failed or not tested."]
    detail: Annotated[str, "Why it failed or was not tested."]
    seconds: Annotated[float, "Wall time it took [s]."]


class ConformanceOutput(TypedDict):
    version: Annotated[str, "Of MicroSim."]
    is_conformant: Annotated[bool, "Whether at least one check passed and none failed."]
    passed: int
    failed: int
    not_tested: int
    node: Annotated[str, "The simulator."]
    dialect: Annotated[str, "1.x or 2.x."]
    features: Annotated[list[str], "Announced features."]
    outcomes: Annotated[list[OutcomeOutput], "One for each check."]


def conformance(
    checks: Annotated[list[str] | None, argument("CHECK", "Checks or groups of them.", show_default="all")] = None,
    node: Annotated[str, option("--node NAME", "The simulator's node, where there are several.")] = "",
    dialect: Annotated[
        str, option("--dialect 1.x|2.x", "Version of simulation_interfaces; auto: that of the server.")
    ] = "auto",
    spawn: Annotated[str, option("--spawn URI", "What to spawn; default: the last that GetSpawnables lists.")] = "",
    html: Annotated[Path | None, option("--html FILE", "Also write the report as an HTML page.")] = None,
    timeout: Annotated[float, option("--timeout S", "Longest wait for an answer, in seconds.", min=0.1)] = 10.0,
    list_only: Annotated[bool, flag("--list", "List the checks and the definitions they cite.")] = False,
    as_json: ResultJsonOption = False,
) -> int:
    """Check a simulator against simulation_interfaces.

    Works with any simulator on the ROS 2 network, without an installed ROS 2.
    It pauses, steps, resets and loads worlds: use one that is not in use
    otherwise. Exit code 1 when a check fails.

    \b
    Examples:
      microsim conformance
      microsim conformance --node /gazebo --html report.html
      microsim conformance entity spawn --dialect 1.x
    """
    from microsim.parts.live_tools.conformance import chosen_checks, run_checks
    from microsim.parts.live_tools.conformance.simulator import find_simulator

    if dialect not in ("auto", "1.x", "2.x"):
        raise typer.BadParameter(f"expected auto, 1.x or 2.x, found {dialect!r}.")
    chosen = chosen_checks(checks or ())
    if list_only:
        for each in chosen:
            print(f"{each.group:12} {each.name}: {each.title}  [{each.cites}]")
        return ExitCode.GOOD
    check_can_write("--html", html)
    with connected(None) as network:
        progress = ShareProgress("checking")
        report = run_checks(find_simulator(network, node, dialect, timeout, spawn), chosen, progress.count)
        progress.end()
    _write(report, html, as_json)
    return ExitCode.GOOD if report.is_conformant else ExitCode.FAILED


def _write(report: ConformanceReport, html: Path | None, as_json: bool) -> None:
    if html is not None:
        html.write_text(report.to_html(), encoding="utf-8")
    if as_json:
        print(report.to_json())
    else:
        for line in report.lines():
            print(line)


COMMAND = Command(conformance, panel="Test", position=240, json=ConformanceOutput)
