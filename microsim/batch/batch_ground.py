"""The ground of all worlds: one map that they share, and the obstacles of each where the seed decides them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microsim.batch.batch_columns import Array, Integers, Loops
from microsim.engine.calls import scene_row
from microsim.engine.geodesy import tangent_plane
from microsim.engine.geometry import Grid
from microsim.engine.world import Shape, World, lacks_ground
from microsim.scenario.models import Scenario
from microsim.scenario.randomised import OBSTACLES, obstacle_table, start_table


class Ground:
    """`clearances` is (1, ny, nx) where worlds share one grid, else (n, ny, nx): one byte per cell and world.

    So are `footings`, where robots can stand: the same array, unless some cells have no ground.
    """

    def __init__(self, scenario: Scenario, world: World, dt: float, n: int, loops: Loops) -> None:
        self.world, self.loops = world, loops
        self.cell, self.west, self.south = world.cell_m, world.west, world.south
        # of level ground one number is enough, and quicker
        self.elevation: Array = loops.array(world.elevation[:1, :1].copy() if world.is_flat else world.elevation.copy())
        self._surface = loops.array(world.surface)
        self.chance = scenario.randomize.obstacles if scenario.randomize else None
        self.has_holes = bool(np.isnan(world.elevation).any())
        self.clearances: Grid = loops.array(world.clearance[None].copy())
        self.footings: Grid = loops.array(world.footing[None].copy()) if self.has_holes else self.clearances
        self.moved: Array = np.empty((0, 0, 3))
        if self.chance is not None:
            self.table, self.starts = loops.array(obstacle_table(scenario)), loops.array(start_table(scenario))
            odds = self.chance.shift_m, self.chance.keep_probability, self.chance.gap_m
            self.chances: Array = loops.array(np.array(odds, np.float64))
            self.lacking: Grid = loops.array(lacks_ground(world.elevation))
            self.clearances = loops.xp.zeros((n, *world.clearance.shape), np.uint8)
            self.footings = loops.xp.zeros_like(self.clearances) if self.has_holes else self.clearances
            self.moved = loops.xp.zeros((n, self.table.shape[0], 3))  # x, y, whether it is there

        self._plane = loops.array(tangent_plane(*scenario.map.origin_wgs84))
        origin = self.cell, self.west, self.south
        grids = self.elevation, self._surface, self.clearances, self.footings
        self.scene = loops.array(scene_row(*grids, origin, dt, self._plane))

    @property
    def is_shared(self) -> bool:
        return self.chance is None

    def draw(self, worlds: Integers, seeds: Integers) -> None:
        """Lay the obstacles of these worlds out."""
        if self.chance is not None:
            self.loops.lay_out(self, worlds, self.loops.stream_keys(seeds, OBSTACLES))

    def obstacles(self, world: int) -> tuple[Shape, ...]:
        """Those of one world."""
        if self.is_shared:
            return self.world.obstacles
        return tuple(
            replace(shape, center=(x, y))
            for shape, (x, y, is_there) in zip(self.world.obstacles, self.moved[world].tolist(), strict=True)
            if is_there
        )

    def world_of(self, world: int) -> World:
        """One world, with its obstacles."""
        return self.world if self.is_shared else replace(self.world, obstacles=self.obstacles(world))

    def arrays(self) -> dict[str, tuple[Array | Grid, int]]:
        if self.is_shared:
            return {}
        found: dict[str, tuple[Array | Grid, int]] = {"moved": (self.moved, 0), "clearances": (self.clearances, 0)}
        return found if self.footings is self.clearances else {**found, "footings": (self.footings, 0)}
