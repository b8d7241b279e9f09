"""What the small nodes make their simulation of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from microsim.engine.world import World
from microsim.scenario import Scenario, load_scenario

OK, WARN = 0, 1  # levels of diagnostic_msgs/DiagnosticStatus

# one free cell of level ground, so large that no robot reaches its edge
PLANE = World(1e15, np.zeros((1, 1)), np.zeros((1, 1), np.uint8), (), (), -5e14, -5e14)


def node_scenario(name: str, rate_hz: float, seed: int, robots: Mapping[str, Any]) -> Scenario:
    """A scenario with these robots, whose names need not be those of a scenario's file."""
    empty = load_scenario({"name": name, "seed": seed, "physics_hz": rate_hz, "robots": {}})
    return empty.model_copy(update={"robots": dict(robots)})
