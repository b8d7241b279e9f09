"""The round robot for navigation tests never enters a wall, whatever its curves and its rate."""

import math
import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import microsim
from microsim.engine.geometry import Array
from tests.support import bare, many, scenario


def pillars(seed: int, count: int = 40) -> list[dict[str, object]]:
    draw = random.Random(seed)
    found: list[dict[str, object]] = []
    for _ in range(count):
        x, y = draw.uniform(0.0, 10.0), draw.uniform(0.0, 10.0)
        if math.hypot(x - 5.0, y - 5.0) > 1.2:
            size = [draw.uniform(0.05, 0.8), draw.uniform(0.05, 0.8), 1.0]
            found.append({"type": "box", "center": [x, y, 0.0], "size": size})
    return found


def arena(seed: int, rate: float, cell: float, radius: float) -> microsim.Simulation:
    cells = round(10.0 / cell)
    robot = {"model": "navigation_robot", "radius_m": radius, "start": {"map_pose": {"x": 5.0, "y": 5.0}}}
    robot |= {"stop_distance_m": 0.0, "slow_distance_m": 0.05}  # it drives as near as it can
    grid = {"cell_size_m": cell, "size_xy_cells": [cells, cells]}
    return microsim.Simulation(
        scenario(robots={"disc": bare(**robot)}, map=grid, obstacles=pillars(seed), physics_hz=rate, seed=seed)
    )


def depth(sim: microsim.Simulation, cells: Array, cell: float, radius: float) -> float:
    """How far the disc reaches into the occupied cell that it overlaps most [m]; below 0: none."""
    state = sim.state("disc")
    gap = np.maximum(np.abs(cells - [state.x, state.y]) - 0.5 * cell, 0.0)
    return float((radius - np.hypot(gap[:, 0], gap[:, 1])).max())


@settings(max_examples=many(30, 6), deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([5.0, 6.5, 8.0, 10.0, 20.0, 60.0]),
    st.sampled_from([0.05, 0.1, 0.25]),
    st.sampled_from([0.05, 0.2, 0.25, 0.4]),
)
@example(1, 5.0, 0.05, 0.25)
@example(2, 10.0, 0.25, 0.4)
def test_a_disc_never_enters_a_wall_on_any_curve_at_any_rate(
    seed: int, rate: float, cell: float, radius: float
) -> None:
    sim, draw = arena(seed, rate, cell, radius), random.Random(seed)
    rows, columns = np.nonzero(sim.world.occupied)
    cells, way = (np.column_stack([columns, rows]) + 0.5) * cell, 0.0
    for _ in range(many(40, 10)):
        sim.command("disc", v=draw.uniform(-1.0, 2.0), omega=draw.choice([0.0, draw.uniform(-3.0, 3.0)]))
        for _ in range(math.ceil(rate / 2)):
            before = sim.state("disc")
            sim.advance()
            after = sim.state("disc")
            way += math.hypot(after.x - before.x, after.y - before.y)
            assert depth(sim, cells, cell, radius) <= 3e-9
    assert way > 0.0


@pytest.mark.parametrize("angle", [0.0, math.pi / 2])
def test_a_disc_that_touches_a_wall_drives_along_it(angle: float) -> None:
    """The wall begins at 6 m; the disc starts where it touches it, and may not be stopped by rounding."""
    along = math.cos(angle) != 1.0
    center, size = ([6.5, 5.0, 0.0], [1.0, 8.0, 1.0]) if along else ([5.0, 6.5, 0.0], [8.0, 1.0, 1.0])
    place = {"x": 5.75, "y": 3.0} if along else {"x": 3.0, "y": 5.75}
    robot = bare(model="navigation_robot", start={"map_pose": {**place, "yaw": angle}}, radius_m=0.25)
    walls = [{"type": "box", "center": center, "size": size}]
    grid = {"cell_size_m": 0.05, "size_xy_cells": [200, 200]}
    sim = microsim.Simulation(scenario(robots={"disc": robot}, map=grid, obstacles=walls, physics_hz=10))
    sim.command("disc", v=1.0)
    sim.advance(15)
    state = sim.state("disc")
    assert (state.y if along else state.x) == pytest.approx(4.5, abs=1e-9)
    assert state.contacts == 0


def test_a_disc_that_was_put_into_a_wall_drives_out() -> None:
    sim = microsim.Simulation(
        scenario(
            robots={"disc": bare(model="navigation_robot", start={"map_pose": {"x": 3.0, "y": 5.0}})},
            map={"cell_size_m": 0.1, "size_xy_cells": [100, 100]},
            obstacles=[{"type": "box", "center": [5.0, 5.0, 0.0], "size": [1.0, 1.0, 1.0]}],
        )
    )
    sim.set_pose("disc", x=4.4, y=5.0, yaw=math.pi)
    sim.step()
    sim.command("disc", v=1.0)
    sim.step(60)
    assert sim.state("disc").x < 3.7
