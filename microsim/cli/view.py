"""The page of a run: what `--view` and its options do."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from microsim.cli.values import flag
from microsim.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from microsim.ros2.microsim_node import MicroSimNode
    from microsim.runner import Pilot, Runner
    from microsim.simulation import Simulation
    from microsim.view.web import Stage, Timeline, Viewer

ViewOption = Annotated[bool, flag("--view", "Show the run on a web page, served on this machine only.")]
OpenOption = Annotated[bool, flag("--open", "Show it and open a browser on it.")]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--view-host",
        metavar="HOST",
        help="Serve the page on another address, for example 0.0.0.0; it then needs the token in the printed address.",
        show_default="127.0.0.1",
    ),
]
PortOption = Annotated[
    int | None,
    typer.Option(
        "--view-port",
        min=0,
        max=65535,
        metavar="N",
        help="First port to try; 0: any that is free.",
        show_default="8080",
    ),
]


@dataclass(frozen=True)
class ViewWishes:
    """`is_wanted` by any of the options."""

    view: bool = False
    opens: bool = False
    host: str | None = None
    port: int | None = None

    @property
    def is_wanted(self) -> bool:
        return self.view or self.opens or self.host is not None or self.port is not None

    def show(
        self, runner: Runner, stack: ExitStack, stage: Stage, timeline: Timeline | None = None, **scene: Any
    ) -> Viewer:
        """Serve the page until the stack unwinds, and say where."""
        from microsim.view.web import PageOptions, Viewer

        if self.host == "":
            raise UsageError("--view-host needs an address, for example 0.0.0.0")
        options = PageOptions(self.host or "127.0.0.1", 8080 if self.port is None else self.port)
        viewer = stack.enter_context(Viewer(runner, options, stage, timeline, **scene))
        print(f"the page is at {viewer.address}", file=sys.stderr, flush=True)
        if self.opens:
            import webbrowser

            webbrowser.open(viewer.address)
        return viewer


NO_VIEW = ViewWishes()


def stage_of(
    runner: Runner, node: MicroSimNode | None, pilot_for: Callable[[Simulation], Pilot | None]
) -> tuple[Stage, tuple[str, ...]]:
    """How this run is reset and given another scenario, and which there are."""
    from microsim.paths import scenario_names
    from microsim.scenario import load_scenario
    from microsim.simulation import Simulation
    from microsim.view.web import Stage

    def go_on(sim: Simulation) -> None:
        runner.restart(sim)
        runner.pilot = pilot_for(sim)
        runner.hand_out(sim.step(0))

    def reset(seed: int | None) -> None:
        if node is not None:
            if seed is not None:
                node.sim.set_seed(seed)
            node.reset()
            return
        runner.sim.reset(seed)
        go_on(runner.sim)

    def load(name: str) -> None:
        if name not in scenario_names():
            raise UsageError(f"the page can load shipped scenarios only, not {name!r}")
        scenario = load_scenario(name)
        if node is not None:
            node.load(scenario)
        else:
            go_on(Simulation(scenario))

    return Stage(reset, load), tuple(scenario_names())
