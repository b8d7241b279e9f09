"""`microsim run`: a scenario, live in the terminal, on ROS 2, in the browser, or as a test."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from microsim.attachment import Attachment
from microsim.cli.command import (
    Command,
    PluginsOption,
    QuietOption,
    ResultJsonOption,
    real_time_factor,
    seconds,
    seed_value,
)
from microsim.cli.json_schemas import RunOutput
from microsim.cli.runs import carry_out, plan_of
from microsim.cli.terminal import warn
from microsim.errors import UsageError
from microsim.options import argument, flag, option
from microsim.shipped import named

if TYPE_CHECKING:
    from microsim.scenario import Scenario


class RenderChoice(str, Enum):
    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"


_DURATION = "Simulated time: 60, 2min, 500ms; default: until Ctrl-C. 0: publish the initial state and stop."
_RTF = "Real-time factor: 1 real time, 5 five times as fast, 0 as fast as possible."
_INJECT = (
    "A temporary fault: `camera_front:fail@3s-5s`, `rover/gps:dropout@1s-2s`, `gps:jump(10,0,0)@3s-9s`, "
    "`radio:blackout@3s-5s`, `/rover/cmd_vel:delay(0.2)@3s-5s`. May be repeated."
)


class RunOptions(NamedTuple):
    scenario: Annotated[
        str | None,
        argument(
            "SCENARIO",
            "A shipped scenario (see `microsim list`) or a file; without it, the scenario `default`.",
            show_default=False,
        ),
    ] = None
    seed: Annotated[
        int | None, option("--seed N", "Seed of all noise; default: the scenario's.", parser=seed_value)
    ] = None
    duration: Annotated[
        float | None,
        option("--duration TIME", _DURATION, parser=seconds),
    ] = None
    rtf: Annotated[float | None, option("--rtf X", _RTF, parser=real_time_factor, show_default="1")] = None
    digest: Annotated[bool, flag("--digest", "Print the SHA-256 over every message, alone on the last line.")] = False
    json: ResultJsonOption = False
    quiet: QuietOption = False
    world: Annotated[
        str | None, option("--world BUNDLE", "A world bundle instead of a scenario: a name or folder.")
    ] = None
    robots: Annotated[
        str | None, option("--robots NAMES", "Use these robots: `ego,drone`, or `scout=rover` to name the model.")
    ] = None
    inject: Annotated[list[str] | None, option("--inject FAULT", _INJECT)] = None
    render: Annotated[
        RenderChoice,
        option("--render", "Device that renders splats; auto: a GPU if there is one. The images are identical."),
    ] = RenderChoice.auto
    plugins: PluginsOption = None


def run(options: RunOptions, attachments: Sequence[Attachment] = ()) -> int:
    """Run a scenario, shown live in the terminal.

    Press ? for the keys that drive, pause and reset; Ctrl-C ends the run.
    Exit codes: 0 success, 1 the run failed or its mission's expectations were not
    met, 2 the input is wrong.

    \b
    Examples:
      microsim run --autopilot                   watch something happen
      microsim run --autopilot --open            watch and drive in the browser
      microsim run --autopilot --foxglove        watch and drive in Foxglove
      microsim run maze --seed 3 --rtf 5           five times as fast as real time
      microsim run my_world.yaml --duration 2min --rtf 0 --headless --digest
      microsim run --world oval --robots ego,drone    drive and fly in a bundle
      microsim run --world oval --inject camera_front:fail@3s-5s
      microsim run --duration 10 --rtf 0 --json    for scripts
      microsim run --autopilot --duration 60 --rtf 0 --record flight
      microsim run flat --mission patrol --rtf 0 --quiet    a test: its exit code
      microsim run flat --mission patrol --rtf 0 --junit patrol.xml    for CI
      microsim run --from-state five.state         resume from a saved state
      microsim run flat --lockstep 'after: /rover/odom, expect: /rover/cmd_vel'
      microsim run flat --ros-args -p rover.max_v:=1.0 -r __ns:=/left
    """
    _render_with(options.render)
    scenario = assembled(options.scenario, options.world, options.robots, options.inject or ())
    plan = plan_of(
        "run", options, attachments, options.json, scenario=scenario, seed=options.seed,
        duration=options.duration, rtf=options.rtf, again=("run", *_written(options)), plugins=options.plugins or (),
    )  # fmt: skip
    return carry_out(plan, named(options.scenario, options.world), options.digest)


COMMAND = Command(run, panel="Run and watch", position=110, is_joined=True, json=RunOutput)


def _written(options: RunOptions) -> list[str]:
    """The scenario or world as the user wrote it."""
    return [*([options.scenario] if options.scenario else []), *(["--world", options.world] if options.world else [])]


def _render_with(choice: RenderChoice) -> None:
    from microsim.render.renderer_choice import render_request

    render_request.choice = choice.value
    render_request.say = warn


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
