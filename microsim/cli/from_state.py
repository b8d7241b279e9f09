"""`microsim run --from-state FILE`: a run that goes on where another was left."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from microsim.errors import UsageError

if TYPE_CHECKING:
    from microsim.cli.run import Options
    from microsim.runner import Runner

FromStateOption = Annotated[
    Path | None,
    typer.Option(
        "--from-state",
        metavar="FILE",
        help="Go on from a saved state, with its scenario and seed, as if the run had never stopped.",
    ),
]

PluginsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugins", metavar="FOLDER", help="With --from-state: a folder of plug-ins whose code may run; repeatable."
    ),
]


def check_alone(options: Options, is_world_given: bool) -> None:
    """Nothing may be asked for that the file decides, or that begins at the start of a run."""
    decided = {"--world, --robots, --inject": is_world_given, "SCENARIO": options.scenario, "--seed": options.seed}
    for name, value in decided.items():
        if value is not None and value is not False:
            raise UsageError(f"--from-state goes on with the scenario and seed of the file: leave out {name}")
    if options.mission is not None:
        raise UsageError(
            "a mission begins at time 0, and its pilot's plans are not part of a state: leave out --mission, or fly it "
            "from the start"
        )
    if options.recording.folder is not None:
        raise UsageError(
            "a recording begins at time 0, so that it alone suffices to run again: leave out --record, or record from "
            "the start; `microsim replay BAG --at TIME --save-state FILE` then gives any moment of it"
        )


def with_scenario(options: Options, stack: ExitStack) -> Options:
    """With what the file says ran; files that the scenario needs live as long as `stack`."""
    if options.from_state is None:
        if options.plugin_folders:
            raise UsageError("--plugins is for --from-state; a scenario names its folders under `plugins:`")
        return options
    from microsim.recording.state_file import scenario_of

    if options.from_state.is_dir():
        hint = f"microsim replay {options.from_state} --at TIME --save-state FILE"
        raise UsageError(f"{options.from_state} is a folder; a state of a recording is made by `{hint}`")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="microsim-")))
    scenario, seed = scenario_of(options.from_state, folder, options.plugin_folders)
    return replace(options, scenario=scenario, seed=seed)


def go_on(path: Path, runner: Runner) -> None:
    """Put the run where the file says. Who listens hears once what was latched since the start."""
    from microsim.recording.state_file import load_state

    sim = runner.sim
    latched = [message for message in sim.step(0) if sim.topics[message.topic][1].latched]
    load_state(path, sim)
    for tap in runner.taps:
        tap(latched)
