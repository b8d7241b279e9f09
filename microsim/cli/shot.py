"""`microsim shot`: runs to a moment and has it drawn."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from microsim.errors import UsageError

if TYPE_CHECKING:
    from microsim.runner import Pilot
    from microsim.simulation import Simulation

KINDS = (".png", ".jpg", ".jpeg", ".webp")
_TRAIL_S = 0.2


def take(scenario: str, at_s: float, out: Path, seed: int | None, with_pilot: bool) -> None:
    if out.suffix.lower() not in KINDS:
        raise UsageError(f"{out}: expected a name that ends with {', '.join(KINDS)}")
    from microsim.runner import Runner
    from microsim.view.web.interface import need_extra

    need_extra("a picture")
    from microsim.view.web.export import save_still

    sim, pilot = _prepared(scenario, seed, with_pilot)
    ways: dict[str, list[tuple[float, float]]] = {robot: [] for robot in sim.robots}
    every = max(1, round(_TRAIL_S / sim.clock.dt))

    def follow(messages: object) -> None:
        if sim.tick % every == 0:
            for robot, way in ways.items():
                state = sim.state(robot)
                way.append((state.x, state.y))

    runner = Runner(sim, 0.0, pilot, [follow], longest_chunk=every)
    runner.run(sim.clock.ticks_in(Fraction(str(at_s))))
    save_still(out, sim, ways)


def _prepared(name: str, seed: int | None, with_pilot: bool) -> tuple[Simulation, Pilot | None]:
    from microsim.cli.demos import load_demo
    from microsim.missions.demo_pilot import DemoPilot
    from microsim.paths import demo_names
    from microsim.simulation import Simulation

    if name in demo_names():
        chosen = load_demo(name)
        sim = Simulation(chosen.scenario, seed)
        return sim, chosen.pilot_for(sim)
    sim = Simulation(name, seed)
    return sim, DemoPilot(sim) if with_pilot else None
