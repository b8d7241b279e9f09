"""The ground of all worlds: one map that they share, and what of it the seed decides in each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microsim.batch.batch_columns import Array, Integers, Loops
from microsim.engine.calls import scene_row
from microsim.engine.contact_tables import heights_of, obstacles_of
from microsim.engine.contacts import OUTLINE_SIZE
from microsim.engine.geodesy import tangent_plane
from microsim.engine.geometry import Grid
from microsim.engine.world import Shape, World, lacks_ground
from microsim.engine.world_arrays import WorldArray
from microsim.scenario.live_changes import obstacle_names
from microsim.scenario.loading import at_seed, follows_seed, has_wild_hills
from microsim.scenario.models import Scenario
from microsim.scenario.randomised import OBSTACLES, draw, obstacle_table, start_table
from microsim.scenario.scene import build_world


class Ground:
    """`clearances` is (1, ny, nx) where worlds share one grid, else (n, ny, nx): one byte per cell and world.

    So are `footings`, where robots can stand: the same array, unless some cells have no ground.

    Where obstacles only move (`randomize`), a kernel lays them out. What generators make is made on the CPU, world by
    world, as in a single simulation: obstacles, and hills, in `elevation` (n, ny, nx).
    """

    def __init__(self, scenario: Scenario, world: World, dt: float, n: int, loops: Loops) -> None:
        self.world, self.loops, self._scenario = world, loops, scenario
        self.cell, self.west, self.south = world.cell_m, world.west, world.south
        self.is_generated, self._has_hills = follows_seed(scenario), has_wild_hills(scenario)
        # of level ground one number is enough, and quicker
        flat = world.is_flat and not self._has_hills
        heights = world.elevation[:1, :1].copy() if flat else world.elevation.copy()
        self.elevation: Array = loops.array(np.tile(heights, (n, 1, 1)) if self._has_hills else heights)
        self._surface = loops.array(world.surface)
        self.chance = scenario.randomize.obstacles if scenario.randomize else None
        self.has_holes = bool(np.isnan(world.elevation).any())
        self.clearances: Grid = loops.array(world.clearance[None].copy())
        self.footings: Grid = loops.array(world.footing[None].copy()) if self.has_holes else self.clearances
        self.moved: Array = np.empty((0, 0, 3))
        if not self.is_shared:
            self.clearances = loops.xp.zeros((n, *world.clearance.shape), np.uint8)
            self.footings = loops.xp.zeros_like(self.clearances) if self.has_holes else self.clearances
        if self.is_generated:
            self._seeds = np.zeros(n, np.int64)
            self.outlines: Array = loops.xp.zeros((n, 0, OUTLINE_SIZE))
            self.moved = loops.xp.zeros((n, 0, 3))  # x, y, whether it is there
            self.heights: Array = loops.xp.zeros((n, 2))
        elif self.chance is not None:
            self.table, self.starts = loops.array(obstacle_table(scenario)), loops.array(start_table(scenario))
            odds = self.chance.shift_m, self.chance.keep_probability, self.chance.gap_m
            self.chances: Array = loops.array(np.array(odds, np.float64))
            self.lacking: Grid = loops.array(lacks_ground(world.elevation))
            self.moved = loops.xp.zeros((n, self.table.shape[0], 3))

        self._plane = loops.array(tangent_plane(*scenario.map.origin_wgs84))
        origin = self.cell, self.west, self.south
        grids = self.elevation, self._surface, self.clearances, self.footings
        self.scene = loops.array(scene_row(*grids, origin, dt, self._plane))

    @property
    def is_shared(self) -> bool:
        return self.chance is None and not self.is_generated

    def draw(self, worlds: Integers, seeds: Integers) -> None:
        """Lay the obstacles of these worlds out."""
        if self.is_generated:
            self._generate(worlds, seeds)
        elif self.chance is not None:
            self.loops.lay_out(self, worlds, self.loops.stream_keys(seeds, OBSTACLES))

    def _generate(self, worlds: Integers, seeds: Integers) -> None:
        array, numbers = self.loops.array, self.loops.host(worlds)
        self._seeds[numbers] = self.loops.host(seeds)
        made = [self.world_of(int(number)) for number in numbers]
        self._make_room(max((len(world.obstacles) for world in made), default=0))
        outlines, places = (
            np.zeros((len(made), self.outlines.shape[1], OUTLINE_SIZE)),
            np.zeros((len(made), self.moved.shape[1], 3)),
        )
        for i, world in enumerate(made):
            count = len(world.obstacles)
            outlines[i, :count], places[i, :count] = obstacles_of(world)
        self.outlines[worlds], self.moved[worlds] = array(outlines), array(places)
        self.heights[worlds] = array(np.array([heights_of(world) for world in made]))
        self.heights[:, 0] = self.heights[:, 0].max()  # one ceiling for all: it only says where nothing can be
        self.clearances[worlds] = array(np.array([world.clearance for world in made]))
        if self.has_holes:
            self.footings[worlds] = array(np.array([world.footing for world in made]))
        if self._has_hills:
            self.elevation[worlds] = array(np.array([world.elevation for world in made]))

    def _make_room(self, count: int) -> None:
        """For that many obstacles in each world."""
        before = self.moved.shape[1]
        if count > before:
            n, wider = len(self.moved), self.loops.xp.zeros
            outlines, moved = wider((n, count, OUTLINE_SIZE)), wider((n, count, 3))
            outlines[:, :before], moved[:, :before] = self.outlines, self.moved
            self.outlines, self.moved = outlines, moved

    def obstacles(self, world: int) -> tuple[Shape, ...]:
        """Those of one world."""
        if self.is_generated:
            return self.world_of(world).obstacles
        if self.is_shared:
            return self.world.obstacles
        return tuple(
            replace(shape, center=(x, y))
            for shape, (x, y, is_there) in zip(self.world.obstacles, self.moved[world].tolist(), strict=True)
            if is_there
        )

    def names_of(self, world: int) -> tuple[str, ...] | None:
        """What contacts with the obstacles of one world are called; None: as in every other."""
        return obstacle_names(self._drawn(world)[0]) if self.is_generated else None

    def _drawn(self, world: int) -> tuple[Scenario, World]:
        """What generators make of the seed of one world, and what chance leaves of it."""
        seed = int(self._seeds[world])
        scenario = at_seed(self._scenario, seed)
        return draw(scenario, build_world(scenario), seed)

    def world_of(self, world: int) -> World:
        """One world, with its obstacles."""
        if self.is_generated:
            return self._drawn(world)[1]
        return self.world if self.is_shared else replace(self.world, obstacles=self.obstacles(world))

    @property
    def generated(self) -> list[Array | Grid]:
        """What generators made in all worlds."""
        if not self.is_generated:
            return []
        grids: list[Array | Grid] = [self.clearances, self.outlines, self.moved, self.heights]
        grids += [self.footings] if self.has_holes else []
        grids += [self.elevation] if self._has_hills else []
        return grids

    def arrays(self) -> dict[str, WorldArray]:
        """What differs from world to world and does not follow from its seed alone."""
        if self.is_shared or self.is_generated:
            return {}
        found = {"moved": WorldArray(self.moved), "clearances": WorldArray(self.clearances)}
        return found if self.footings is self.clearances else {**found, "footings": WorldArray(self.footings)}
