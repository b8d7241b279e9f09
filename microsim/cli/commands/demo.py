"""`microsim demo`."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from microsim.cli.command import (
    Command,
    PluginsOption,
    ResultJsonOption,
    argument,
    flag,
    option,
    real_time_factor,
    seconds,
    seed_value,
)
from microsim.cli.json_schemas import RunOutput
from microsim.cli.run_parts import (
    HostOption,
    OpenOption,
    PortOption,
    Programme,
    RecordingOptions,
    RecordOption,
    ViewerOptions,
)
from microsim.cli.terminal import GOOD
from microsim.errors import PluginError, UsageError, unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from microsim.runner import Pilot
    from microsim.simulation import Simulation


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
    no_view: Annotated[bool, flag("--no-view", "Without the web viewer.")] = False
    open: OpenOption = False
    view_host: HostOption = None
    view_port: PortOption = None
    record: RecordOption = None
    plugins: PluginsOption = None
    json: ResultJsonOption = False


def demo(options: DemoOptions) -> int:
    """Run a demo in the web viewer, or list the demos. Each is one Python file that you can copy.

    \b
    Examples:
      microsim demo                                        list the demos
      microsim demo oval --open                            in the browser
      microsim demo avoid --no-view --rtf 0 --duration 60
      microsim demo my_pilot.py --open
    """
    from microsim.cli.commands.run import RunOptions, RunRequest, TransportChoice, run_scenario
    from microsim.scenario import load_scenario

    if options.name is None:
        return _list()
    chosen = load_demo(options.name)
    shown = ViewerOptions(True, options.open, options.view_host, options.view_port)
    run = RunOptions(
        rtf=options.rtf, headless=True, json=options.json, transport=TransportChoice.none,
        viewer=ViewerOptions() if options.no_view else shown, recording=RecordingOptions(options.record),
    )  # fmt: skip
    scenario = load_scenario(chosen.scenario)
    programme = Programme(f"demo:{chosen.name}", chosen.name, chosen.about, chosen.pilot, has_default_pilot=True)
    return run_scenario(RunRequest(run, scenario, options.seed, options.duration, programme))


COMMAND = Command(demo, panel="Run", position=120, json=RunOutput)


def _list() -> int:
    from microsim.cli.commands.list import print_group
    from microsim.paths import demo_file, demo_names

    print_group("demos", {name: about(demo_file(name)) for name in demo_names()})
    print("\nRun one: microsim demo oval --open")
    print(f"Read one: {demo_file('team')}")
    return GOOD


class ShippedDemo(NamedTuple):
    """A file with `SCENARIO`, a name or a mapping, and `Pilot(sim)`, called with each tick's messages."""

    name: str
    path: Path
    scenario: Any
    pilot: Callable[[Simulation], Pilot]

    @property
    def about(self) -> str:
        return about(self.path)


def load_demo(name: str) -> ShippedDemo:
    """A shipped one by its name, or a file."""
    from microsim.paths import demo_file, demo_names

    path = demo_file(name) if name in demo_names() else Path(name)
    if not path.is_file():
        raise UsageError(unknown("no demo", repr(name), name, demo_names()))
    spec = importlib.util.spec_from_file_location(f"microsim_demo_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: expected a Python file, whose name ends with .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's file can raise anything
        raise PluginError(f"{path}: cannot be loaded: {type(error).__name__}: {error}") from error
    missing = [word for word in ("SCENARIO", "Pilot") if not hasattr(module, word)]
    if missing:
        raise PluginError(f"{path}: a demo has SCENARIO and Pilot; there is no {missing[0]}")
    return ShippedDemo(path.stem, path, module.SCENARIO, module.Pilot)


def about(path: Path) -> str:
    """The first line of a demo's documentation, without running it."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
