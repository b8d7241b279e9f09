"""What a run starts from: a scenario, as it is or with another world, robots and faults; or a saved state."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from microsim.errors import UsageError

if TYPE_CHECKING:
    from microsim.runner import Runner
    from microsim.scenario import Scenario

WorldOption = Annotated[
    str | None,
    typer.Option("--world", metavar="BUNDLE", help="A world bundle instead of a scenario: a name or folder."),
]
RobotsOption = Annotated[
    str | None,
    typer.Option(
        "--robots", metavar="NAMES", help="Use these robots: `ego,drone`, or `scout=rover` to name the model."
    ),
]
InjectOption = Annotated[
    list[str] | None,
    typer.Option(
        "--inject",
        metavar="FAULT",
        help="A temporary fault: `camera_front:fail@3s-5s`, `rover/gps:dropout@1s-2s`, `gps:jump(10,0,0)@3s-9s`, "
        "`radio:blackout@3s-5s`. May be repeated.",
    ),
]
FromStateOption = Annotated[
    Path | None,
    typer.Option(
        "--from-state",
        metavar="FILE",
        help="Resume from a saved state, with its scenario and seed, as if the run had never stopped.",
    ),
]

# ---- a scenario ------------------------------------------------------------------------------------------------------


def assembled(
    scenario: str | None, world: str | None, robots: str | None, faults: Sequence[str]
) -> Scenario | str | None:
    """The scenario as it is, or with another world, robots and faults."""
    if world is None and robots is None and not faults:
        return scenario
    from microsim.scenario import load_scenario

    if world is not None and scenario is not None:
        raise UsageError("give a scenario or --world, not both; a scenario can name its world: `world: PATH`")
    data: dict[str, Any] = {"world": world} if world is not None else load_scenario(scenario or "default").to_dict()
    if robots is not None:
        data["robots"] = _robots(robots, data.get("robots", {}))
    if faults:
        data["faults"] = [*data.get("faults", ()), *faults]
    return load_scenario(data)


def _robots(text: str, known: dict[str, Any]) -> dict[str, Any]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError("expected names of robots after --robots, such as ego,drone")
    found: dict[str, Any] = {}
    for part in names:
        name, _, model = part.partition("=")
        if name in found:
            raise UsageError(f"--robots names {name!r} twice")
        found[name] = {"model": model} if model else known.get(name, {})
    return found


# ---- a saved state ---------------------------------------------------------------------------------------------------


def check_state_options(given: dict[str, bool]) -> None:
    """Refuse options that the state decides, or that need the start of a run. `given`: option → is it given."""
    for option, is_given in given.items():
        if is_given and option not in ("--mission", "--record"):
            raise UsageError(f"--from-state uses the scenario and seed of the file: leave out {option}")
    if given["--mission"]:
        raise UsageError(
            "a mission begins at time 0, and its pilot's plans are not part of a state: leave out --mission, or fly it "
            "from the start"
        )
    if given["--record"]:
        raise UsageError(
            "a recording begins at time 0, so that it can be replayed on its own: leave out --record, or record from "
            "the start; `microsim replay BAG --at TIME --save-state FILE` then gives any moment of it"
        )


def scenario_of_state(file: Path, stack: ExitStack) -> tuple[Scenario, int]:
    """The scenario and seed of a saved state; files that the scenario needs exist until `stack` is closed."""
    import tempfile

    from microsim.recording.state_file import scenario_of

    if file.is_dir():
        hint = f"microsim replay {file} --at TIME --save-state FILE"
        raise UsageError(f"{file} is a folder; a state of a recording is made by `{hint}`")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="microsim-")))
    return scenario_of(file, folder)


def resume(file: Path, runner: Runner) -> None:
    """Put the run into a saved state. Listeners receive once what was latched since the start."""
    from microsim.recording.state_file import load_state

    sim = runner.sim
    latched = [message for message in sim.step(0) if sim.topics[message.topic][1].latched]
    load_state(file, sim)
    for tap in runner.taps:
        tap(latched)
