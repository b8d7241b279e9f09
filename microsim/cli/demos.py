"""`microsim demo` and `microsim shot`."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from microsim.cli import view
from microsim.cli.recording import RecordOption, Wishes
from microsim.cli.values import flag, real_time_factor, seconds, seed_value
from microsim.errors import PluginError, UsageError, unknown

if TYPE_CHECKING:
    from microsim.runner import Pilot
    from microsim.simulation import Simulation


@dataclass(frozen=True)
class Demo:
    """A file with `SCENARIO`, a name or a mapping, and `Pilot(sim)`, called with each tick's messages."""

    name: str
    path: Path
    scenario: Any
    pilot: Any

    def pilot_for(self, sim: Simulation) -> Pilot | None:
        """In its own scenario; in another, chosen on the page, the small pilot of `--demo`."""
        if sim.scenario.name == self._scenario_name():
            found: Pilot = self.pilot(sim)
            return found
        from microsim.missions.demo_pilot import DemoPilot as Wander

        return Wander(sim)

    def _scenario_name(self) -> str:
        from microsim.scenario import load_scenario

        return load_scenario(self.scenario).name


def load_demo(name: str) -> Demo:
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
    except Exception as error:  # the file is the user's: anything may come
        raise PluginError(f"{path}: cannot be loaded: {type(error).__name__}: {error}") from error
    missing = [word for word in ("SCENARIO", "Pilot") if not hasattr(module, word)]
    if missing:
        raise PluginError(f"{path}: a demo has SCENARIO and Pilot; there is no {missing[0]}")
    return Demo(path.stem, path, module.SCENARIO, module.Pilot)


def about(path: Path) -> str:
    """The first line of a demo's documentation, without running it."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def register(app: typer.Typer) -> None:
    app.command()(demo)
    app.command()(shot)


def demo(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One of them, or a file of your own.", show_default="list them")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(parser=seed_value, metavar="N", help="Seed of all noise; default: the demo's.")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(parser=seconds, metavar="S", help="Simulated seconds; default: until Ctrl-C.")
    ] = None,
    rtf: Annotated[
        float | None, typer.Option(parser=real_time_factor, metavar="X", help="Real-time factor.", show_default="1")
    ] = None,
    no_view: Annotated[bool, flag("--no-view", "Without the page.")] = False,
    open_: view.OpenOption = False,
    view_host: view.HostOption = None,
    view_port: view.PortOption = None,
    record: RecordOption = None,
    as_json: Annotated[
        bool, flag("--json", "Print the result as one line of JSON, and nothing else on stdout.")
    ] = False,
) -> None:
    """Run a demo with its page, or list them. Each is a file to read, and to start your own from.

    \b
    Examples:
      microsim demo                                        what there is
      microsim demo team --open                            in the browser
      microsim demo avoid --no-view --rtf 0 --duration 60
      microsim demo my_pilot.py --open
    """
    from microsim.cli import _output
    from microsim.cli.run import Options, run
    from microsim.scenario import load_scenario

    if name is None:
        _list()
        return
    chosen = load_demo(name)
    wishes = view.NO_VIEW if no_view else view.ViewWishes(True, open_, view_host, view_port)
    options = Options(
        load_scenario(chosen.scenario),
        seed,
        duration,
        rtf,
        headless=True,
        digest=False,
        telemetry=None,
        json=as_json,
        demo=False,
        transport="none",
        recording=Wishes(record),
        view=wishes,
        pilot=chosen.pilot_for,
    )
    with _output():
        code = run(options)
    raise typer.Exit(code)


def _list() -> None:
    from microsim.paths import demo_file, demo_names

    for name in demo_names():
        typer.echo(f"  {name:8} {about(demo_file(name))}")
    typer.echo("\nRun one: microsim demo team --open")
    typer.echo(f"Read one: {demo_file('team')}")


def shot(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A shipped scenario or demo, or a file.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="PNG, JPEG or WebP; default: SCENARIO.png.")
    ] = None,
    at: Annotated[float, typer.Option("--at", parser=seconds, metavar="TIME", help="Simulated time: 20, 2min.")] = 0.0,
    seed: Annotated[int | None, typer.Option(parser=seed_value, metavar="N", help="Seed of all noise.")] = None,
    pilot: Annotated[bool, flag("--demo", "Let a small pilot fly the drone and drive the rover.")] = False,
) -> None:
    """Draw one moment: the map from above with the ways robots took, and what their cameras see. Needs no browser.

    \b
    Examples:
      microsim shot showcase --demo --at 20                writes showcase.png
      microsim shot team --at 60 --out team.png        a demo, with its own pilot
    """
    from microsim.cli.shot import take

    target = out or Path(f"{Path(scenario).stem}.png")
    take(scenario, at, target, seed, pilot)
    typer.echo(str(target))
