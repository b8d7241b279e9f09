"""What `microsim run` does with a mission, and the command `microsim check`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from microsim.cli.quiet import QuietOption
from microsim.cli.values import flag
from microsim.errors import MissionError, UsageError

if TYPE_CHECKING:
    from microsim.cli.run import Options
    from microsim.missions import Mission, MissionPilot
    from microsim.runner import Runner
    from microsim.simulation import Simulation

_PAUSE_POLL_S = 0.02

MissionOption = Annotated[
    str | None,
    typer.Option(
        "--mission",
        metavar="FILE",
        help="Fly a mission: a shipped one (see `microsim list`) or a file. It ends the run, and fails it when "
        "something is not as the mission expects.",
    ),
]


@dataclass
class Flight:
    """A mission on its way through `microsim run`."""

    mission: Mission
    runner: Runner | None = None
    _going_on_at: float | None = field(default=None, repr=False)  # wall time at which a pause ends

    def pilot(self, sim: Simulation) -> MissionPilot | None:
        """None where a later world, loaded while it runs, cannot fly it; at the start that is an error."""
        from microsim.missions import MissionPilot

        try:
            pilot = MissionPilot(sim, self.mission)
        except MissionError as error:
            if self.runner is None:
                raise
            print(f"microsim: the mission is not flown here: {error}", file=sys.stderr)
            return None
        pilot.on_pause = self._pause
        return pilot

    def attach(self, runner: Runner) -> None:
        from microsim.runner import Watcher

        self.runner = runner
        runner.watchers.append(Watcher(_PAUSE_POLL_S, self._look))

    def _pause(self, seconds: float) -> None:
        runner = self.runner
        # as fast as possible there is nobody to wait for; who has paused it already will go on by hand
        if runner is not None and runner.rtf and not runner.paused:
            self._going_on_at = runner.clock.now() + seconds
            runner.pause(True)

    def _look(self) -> None:
        runner = self.runner
        if runner is not None and self._going_on_at is not None and runner.clock.now() >= self._going_on_at:
            self._going_on_at = None
            runner.pause(False)

    def facts(self) -> dict[str, Any]:
        """For the result of the run."""
        pilot = self._latest_pilot()
        found = {"name": self.mission.name, "expectations": len(self.mission.expect)}
        if pilot is None:
            return {**found, "violations": [], "undecided": len(self.mission.expect)}
        return {**found, "violations": pilot.violations(), "undecided": pilot.undecided()}

    def _latest_pilot(self) -> MissionPilot | None:
        from microsim.missions import MissionPilot

        pilot = None if self.runner is None else self.runner.pilot
        return pilot if isinstance(pilot, MissionPilot) else None


def boarded(options: Options) -> Options:
    """With the mission loaded; scenario, seed and duration are the mission's unless they were given."""
    if options.mission is None:
        return options
    if options.demo:
        raise UsageError("--mission and --demo both want to steer; leave one of them out")
    from microsim.missions import load_mission

    mission = load_mission(options.mission)
    return replace(
        options,
        flight=Flight(mission),
        scenario=mission.scenario if options.scenario is None else options.scenario,
        seed=mission.seed if options.seed is None else options.seed,
        duration=mission.duration if options.duration is None else options.duration,
    )


def verdict_line(facts: dict[str, Any]) -> str:
    """For the summary."""
    met = facts["expectations"] - facts["undecided"]
    if facts["violations"]:
        return f"  mission     {facts['name']}: FAILED"
    undecided = f", {facts['undecided']} not judged: the run ended too soon" if facts["undecided"] else ""
    return f"  mission     {facts['name']}: {met} of {facts['expectations']} expectations met{undecided}"


def say_violations(facts: dict[str, Any]) -> int:
    """Each on its own line; the exit code."""
    for text in facts["violations"]:
        print(f"microsim: {text}", file=sys.stderr)
    return 1 if facts["violations"] else 0


# ---- microsim check --------------------------------------------------------------------------------------------------


def register(app: typer.Typer) -> None:
    app.command()(check)


def _words(values: list[str] | None) -> tuple[str, ...]:
    """`a,b` and `a` `b` alike; a file may have a comma in its name."""
    split = [[value] if Path(value).exists() else value.split(",") for value in values or ()]
    return tuple(word for words in split for word in words if word)


def check(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCENARIO",
            help="Scenarios, shipped or files.",
            show_default="default flat obstacles_arena",
        ),
    ] = None,
    missions: Annotated[
        list[str] | None,
        typer.Option("--missions", metavar="A,B", help="Missions, shipped or files.", show_default="all shipped ones"),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Fly each with so many seeds: its own, 1, 2 …")
    ] = 1,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, max=256, metavar="J", help="Processes at a time.", show_default="one a processor core"),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="Longest time for one run, on the wall clock.")
    ] = 600.0,
    slow: Annotated[
        bool, flag("--slow", "Also without the compiler: half a simulated second of each mission.")
    ] = False,
    as_json: Annotated[bool, flag("--json", "Print the result as one line of JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Prove that missions give the same messages whatever they run in.

    Each mission is flown in processes with another hash seed, one thread, another
    pace, kernels compiled for any processor, and NumPy without this processor's
    vector units. A difference is told with the environment, the first tick and
    topic, and the field. Expectations are not judged here, only sameness.

    Exit codes: 0 the same everywhere, 1 not, 2 the input is wrong. The first time
    kernels are compiled twice: a minute.

    \b
    Examples:
      microsim check                               three scenarios × five missions
      microsim check flat --missions hover,patrol
      microsim check my_world.yaml --missions my_mission.yaml --seeds 5 --jobs 4
      microsim check flat --missions radio_ping --slow --json
    """
    from microsim.cli import _output
    from microsim.cli import check as command

    names = (tuple(scenarios or ()), _words(missions))
    wishes = command.Options(*names, seeds, jobs or command.default_jobs(), timeout, slow, as_json)
    with _output():
        code = command.check(wishes)
    raise typer.Exit(code)
