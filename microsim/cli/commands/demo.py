"""`microsim demo`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from microsim.attachment import Attachment
from microsim.cli.command import Command, PluginsOption, ResultJsonOption, real_time_factor, seconds, seed_value
from microsim.cli.json_schemas import RunOutput
from microsim.cli.runs import carry_out, plan_of
from microsim.cli.terminal import ExitCode
from microsim.options import argument, option
from microsim.shipped import Chosen, demo_about, load_demo


class DemoOptions(NamedTuple):
    name: Annotated[
        str | None, argument("NAME", "A shipped demo, or a file of your own.", show_default="list them")
    ] = None
    seed: Annotated[int | None, option("--seed N", "Seed of all noise; default: the demo's.", parser=seed_value)] = None
    duration: Annotated[
        float | None, option("--duration S", "Simulated seconds; default: until Ctrl-C.", parser=seconds)
    ] = None
    rtf: Annotated[float | None, option("--rtf X", "Real-time factor.", parser=real_time_factor, show_default="1")] = (
        None
    )
    plugins: PluginsOption = None
    json: ResultJsonOption = False


def demo(options: DemoOptions, attachments: Sequence[Attachment] = ()) -> int:
    """Run a demo in the web viewer, or list the demos. Each is one Python file that you can copy.

    \b
    Examples:
      microsim demo                                        list the demos
      microsim demo oval --open                            in the browser
      microsim demo avoid --no-view --rtf 0 --duration 60
      microsim demo my_pilot.py --open
    """
    from microsim.scenario import load_scenario

    if options.name is None:
        return _list()
    chosen = load_demo(options.name)
    plan = plan_of(
        "demo", options, attachments, options.json, scenario=load_scenario(chosen.scenario), seed=options.seed,
        duration=options.duration, rtf=options.rtf, again=("demo", options.name),
    )  # fmt: skip
    return carry_out(plan, Chosen("demo", chosen.name, chosen.about, chosen.pilot))


COMMAND = Command(demo, panel="Run and watch", position=120, is_joined=True, json=RunOutput)


def _list() -> int:
    from microsim.cli.commands.list import print_group
    from microsim.paths import demo_file, demo_names

    print_group("demos", {name: demo_about(demo_file(name)) for name in demo_names()})
    print("\nRun one: microsim demo oval --open")
    print(f"Read one: {demo_file('team')}")
    return ExitCode.GOOD
