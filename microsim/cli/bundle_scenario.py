"""A world bundle from a scenario: its relief as heights, its obstacles as a mesh and as Gaussians."""

from __future__ import annotations

import numpy as np

from microsim.bundle.bundle_writing import BundleContent
from microsim.bundle.generate.plain_world import around, plain_world
from microsim.bundle.generate.surfaces import Colour, MadeGround, Solids
from microsim.engine.exact import TWO_PI, sincos
from microsim.engine.world import PALETTE
from microsim.errors import UsageError
from microsim.scenario import Box, Cylinder, load_scenario
from microsim.scenario.terrain import elevation, surface

ROUND_SIDES = 16
UNDER_M = 1.0  # solids reach so far into the ground, which may slope


def from_scenario(name: str, source: str) -> BundleContent:
    """What can be seen and hit of it; its robots and sensors stay behind."""
    scenario = load_scenario(source)
    if getattr(scenario, "world", None) is not None:
        raise UsageError(f"{source} takes place in a world bundle already; copy that one")
    ground = MadeGround(elevation(scenario), scenario.map.cell_size_m, 0.0, 0.0)
    solids, footprints = Solids(), []
    for obstacle in scenario.obstacles:
        x, y, z = obstacle.center
        base = float(ground.height(np.array([x]), np.array([y]))[0]) + z
        corners = _corners(obstacle)
        footprints.append(corners)
        top = base + (obstacle.size[2] if isinstance(obstacle, Box) else obstacle.height)
        bottom = base - UNDER_M if z <= 0.0 else base
        _stand(solids, obstacle, corners, bottom, top)
    colours = PALETTE[surface(scenario)].astype(np.float64) / 255.0
    drivable = around(ground, footprints) if footprints else None
    about = f"Made from the scenario {scenario.name}."
    return plain_world(name, about, ground, solids, colours, drivable, scenario.map.origin_wgs84)


def _corners(obstacle: Box | Cylinder) -> list[tuple[float, float]]:
    x, y, _ = obstacle.center
    if isinstance(obstacle, Box):
        half_x, half_y = 0.5 * obstacle.size[0], 0.5 * obstacle.size[1]
        return [(x - half_x, y - half_y), (x + half_x, y - half_y), (x + half_x, y + half_y), (x - half_x, y + half_y)]
    turns = [sincos(TWO_PI * index / ROUND_SIDES) for index in range(ROUND_SIDES)]
    return [(x + obstacle.radius * cos, y + obstacle.radius * sin) for sin, cos in turns]


def _stand(
    solids: Solids, obstacle: Box | Cylinder, corners: list[tuple[float, float]], bottom: float, top: float
) -> None:
    red, green, blue = (PALETTE[obstacle.class_id].astype(np.float64) / 255.0).tolist()
    colour: Colour = (red, green, blue)
    if isinstance(obstacle, Box):
        solids.prism(corners, bottom, top, colour)
        return
    x, y, _ = obstacle.center
    radius, height = obstacle.radius, top - bottom
    solids.barrel((x, y, bottom), (radius, radius, 0.0), (0.0, height, height), (colour, colour), ROUND_SIDES)
