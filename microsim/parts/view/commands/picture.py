"""`microsim picture`: a picture of one moment."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from microsim.cli.command import Command, PluginsOption, seconds, seed_value
from microsim.errors import UsageError, unknown
from microsim.options import argument, option
from microsim.parts.missions.attachment import PilotOption

if TYPE_CHECKING:
    from microsim.runner import Pilot
    from microsim.simulation import Simulation

_KINDS = (".png", ".jpg", ".jpeg", ".webp")
_TRAIL_S = 0.2


def picture(
    scenario: Annotated[str, argument("SCENARIO", "A shipped scenario or demo, or a file.")],
    out: Annotated[Path | None, option("--out -o FILE", "PNG, JPEG or WebP; default: SCENARIO.png.")] = None,
    at: Annotated[float, option("--at TIME", "Simulated time: 20, 2min.", parser=seconds)] = 0.0,
    seed: Annotated[int | None, option("--seed N", "Seed of all noise.", parser=seed_value)] = None,
    pilot: PilotOption = False,
    plugins: PluginsOption = None,
) -> None:
    """Draw one moment of a scenario, seen from above.

    With the robots' paths and what their cameras see. Needs no browser.

    \b
    Examples:
      microsim picture showcase --autopilot --at 20        writes showcase.png
      microsim picture team --at 60 --out team.png     a demo, with its own pilot
    """
    target = out or Path(f"{Path(scenario).stem}.png")
    _draw(scenario, at, target, seed, pilot)
    print(target)


COMMAND = Command(picture, panel="Run and watch", position=130)


def _draw(scenario: str, at_s: float, out: Path, seed: int | None, with_pilot: bool) -> None:
    if out.suffix.lower() not in _KINDS:
        raise UsageError(f"{out}: expected a name that ends with {', '.join(_KINDS)}")
    from microsim.parts.view.web.interface import need_extra
    from microsim.runner import Runner

    need_extra("a picture")
    from microsim.parts.view.web.export import save_still

    sim, pilot = _prepared(scenario, seed, with_pilot)
    paths: dict[str, list[tuple[float, float]]] = {robot: [] for robot in sim.robots}
    every = max(1, round(_TRAIL_S / sim.clock.dt))

    def follow(messages: object) -> None:
        if sim.tick % every == 0:
            for robot, path in paths.items():
                state = sim.state(robot)
                path.append((state.x, state.y))

    runner = Runner(sim, 0.0, pilot)
    runner.listen(messages=follow, every_s=_TRAIL_S)
    runner.run(sim.clock.ticks_in(Fraction(str(at_s))))
    save_still(out, sim, paths)


def _prepared(name: str, seed: int | None, with_pilot: bool) -> tuple[Simulation, Pilot | None]:
    from microsim.parts.missions.demo_pilot import DemoPilot
    from microsim.paths import demo_names, scenario_names
    from microsim.shipped import load_demo
    from microsim.simulation import Simulation

    if name in demo_names():
        chosen = load_demo(name)
        sim = Simulation(chosen.scenario, seed)
        return sim, chosen.pilot(sim)
    if not (name in scenario_names() or Path(name).suffix or Path(name).exists()):
        raise UsageError(unknown("no scenario or demo", repr(name), name, [*scenario_names(), *demo_names()]))
    sim = Simulation(name, seed)
    return sim, DemoPilot(sim) if with_pilot else None
