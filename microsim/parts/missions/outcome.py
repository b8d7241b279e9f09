"""`fly_mission`: a mission from its start to its end, as fast as possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microsim.messages.outbox import Message
from microsim.parts.missions.mission_file import Mission, load_mission
from microsim.parts.missions.pilot import MissionPilot
from microsim.scenario import Scenario
from microsim.simulation import Simulation

_MOST_TICKS = 256  # at a time: the messages of these are in memory at once


@dataclass(frozen=True)
class MissionOutcome:
    """The result of a mission."""

    sim: Simulation
    mission: Mission
    violations: tuple[str, ...]  # a sentence for everything that was not as expected


def fly_mission(
    mission: str | Path | Mapping[str, Any] | Mission,
    scenario: Scenario | str | Path | Mapping[str, Any] | None = None,
    seed: int | None = None,
    on_messages: Callable[[Sequence[Message]], None] | None = None,
) -> MissionOutcome:
    """Run a mission to its end, as fast as possible. `on_messages` receives the messages of each tick.

    Scenario and seed are those given, else those of the mission, else the default scenario and its seed.
    """
    plan = load_mission(mission)
    chosen = scenario if scenario is not None else plan.scenario or "default"
    sim = Simulation(chosen, plan.seed if seed is None else seed)
    pilot = MissionPilot(sim, plan)
    ticks = 0
    while True:
        messages = sim.step(ticks)
        pilot(messages)
        if on_messages is not None:
            on_messages(messages)
        if sim.tick >= pilot.end:
            break
        ticks = 1 if on_messages is not None else pilot.ticks_to_run(min(pilot.end - sim.tick, _MOST_TICKS))
    return MissionOutcome(sim, plan, tuple(pilot.violations()))
