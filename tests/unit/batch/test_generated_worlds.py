"""Worlds that generators make follow the seed of the run: in one simulation, and in each world of a batch."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim.batch import BatchSimulation
from microsim.errors import ScenarioError
from tests.support import bare, many
from tests.unit.batch.batch_reference import Singles, assert_equal

MAZE = {"plugin": "random_maze", "region": [4, 4, 18, 18], "corridor_m": 1.5, "wall_m": 0.5}
CAMERA = {"hz": 10, "resolution": {"width": 16, "height": 12}, "latency_ms": {"mean": 20.0, "jitter": 5.0}}
DRONE = bare(start={"map_pose": {"x": 10, "y": 10, "z": 2.5}}, imu={}, odom={}, camera=CAMERA)
ROVER = bare(start={"map_pose": {"x": 2, "y": 2, "yaw": 0.8}}, range={}, scan={"beams": 15}, odom={})
LIDAR = {"columns": 12, "elevations": [-0.1, 0.0], "hz": 10}
HILLS = {"generate": "hills", "amplitude_m": 0.8, "wavelength_m": 8}
RANDOMIZE = {
    "starts": {"rover": {"x": [1, 3], "y": [1, 3]}},
    "obstacles": {"shift_m": 0.3, "keep_probability": 0.8},
}


def generated(**changes: Any) -> dict[str, Any]:
    grid = {"size_xy_cells": [40, 40], "cell_size_m": 0.5}
    robots = {"drone": DRONE, "rover": {**ROVER, "lidar": LIDAR}}
    return {"map": grid, "obstacles": [MAZE], "robots": robots, "collisions": "stop", **changes}


def with_hills(**changes: Any) -> dict[str, Any]:
    data = generated(**changes)
    return {**data, "map": {**data["map"], "elevation": HILLS}}


SOURCES = {
    "maze": generated(),
    "hills": with_hills(obstacles=[{"type": "box", "center": [6, 6, 0], "size": [1, 1, 3]}]),
    "maze on hills": with_hills(),
    "maze, moved": with_hills(randomize=RANDOMIZE),
}


@pytest.mark.parametrize("name", SOURCES)
def test_each_world_of_a_batch_is_generated_from_its_seed(name: str) -> None:
    scenario = microsim.load_scenario(SOURCES[name])
    seeds = [5, 17, 12345, 99]
    batch, singles = BatchSimulation(scenario, seeds=seeds, threads=2), Singles(scenario, seeds)
    assert len({sim.world.clearance.tobytes() + sim.world.elevation.tobytes() for sim in singles.sims}) == 4
    assert_equal(batch, singles)
    dice = np.random.default_rng(1)

    def drive(ticks: int) -> None:
        for robot in batch.robots:
            commands = dice.uniform(-2.5, 2.5, batch.commands(robot).shape)
            batch.commands(robot)[...] = commands
            singles.command(robot, commands)
        batch.step(ticks)
        singles.step(ticks)
        assert_equal(batch, singles)

    assert batch.memory_bytes() > sum(
        sim.world.clearance.nbytes + 64 * len(sim.world.obstacles) for sim in singles.sims
    )
    drive(30)
    batch.reset([1, 3], seeds=[400, 401])
    singles.reset([1, 3], [400, 401])
    drive(many(60))
    snapshot, before = batch.snapshot(), [sim.snapshot() for sim in singles.sims]
    batch.reset(seeds=[1, 2, 3, 4])
    batch.restore(snapshot)
    assert_equal(batch, singles)
    twin = batch.fork([2, 0])
    batch.step(20)
    twin.step(20)
    np.testing.assert_array_equal(twin.rows("rover"), batch.rows("rover")[:, [2, 0]])
    for sim, then in zip(singles.sims, before, strict=True):
        sim.reset(7)
        sim.restore(then)  # into the world of another seed
        sim.step(20)
    for world, sim in enumerate(singles.sims):
        np.testing.assert_array_equal(batch.rows("rover")[:, world], sim.rows("rover"))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=4, unique=True))
@settings(max_examples=many(8, 2), deadline=None)
def test_a_world_is_a_function_of_the_seed_however_a_run_comes_to_it(seeds: list[int]) -> None:
    scenario = microsim.load_scenario(with_hills(robots={"drone": {**DRONE, "camera": None}}))

    def digest(sim: microsim.Simulation) -> tuple[str, bytes, bytes]:
        sim.step(3)
        return sim.digest(), sim.world.clearance.tobytes(), sim.world.elevation.tobytes()

    fresh = {seed: digest(microsim.Simulation(scenario, seed)) for seed in seeds}
    assert len(set(fresh.values())) == len(seeds)
    sim = microsim.Simulation(scenario)
    kept = {}
    for seed in seeds:
        sim.set_seed(seed)
        sim.reset()
        kept[seed] = sim.snapshot()
        assert digest(sim) == fresh[seed]
        assert digest(microsim.Simulation(sim.scenario, seed)) == fresh[seed]
    for seed in seeds:
        sim.restore(kept[seed])
        assert digest(sim.fork()) == digest(sim) == fresh[seed]
        assert digest(microsim.Simulation(microsim.load_scenario(sim.scenario.to_dict()), seed)) == fresh[seed]


def test_a_generator_with_a_seed_of_its_own_makes_the_same_world_for_every_run() -> None:
    scenario = microsim.load_scenario(generated(obstacles=[{**MAZE, "seed": 3}]))
    worlds = [microsim.Simulation(scenario, seed).scenario for seed in (1, 2)]
    assert worlds[0] == worlds[1] == scenario
    assert BatchSimulation(scenario, 3).ground.is_shared


def test_the_scenarios_own_seed_makes_the_world_that_loading_shows() -> None:
    scenario = microsim.load_scenario("maze")
    assert microsim.Simulation(scenario).scenario == scenario
    assert microsim.Simulation(scenario, 8).scenario.obstacles != scenario.obstacles


def test_spawned_walls_leave_and_generated_ones_return_at_a_reset_with_any_seed() -> None:
    sim = microsim.Simulation(generated(), 5)
    sim.spawn("wall", {"type": "box", "center": [1, 10, 0], "size": [0.4, 0.4, 1]})
    sim.delete("obstacle_3")
    sim.step(2)
    for seed in (5, 6):
        sim.reset(seed)
        fresh = microsim.Simulation(generated(), seed)
        assert sim.scenario == fresh.scenario
        assert list(sim.entities) == list(fresh.entities)


def test_a_seed_whose_world_has_a_robot_in_a_wall_is_refused_and_changes_nothing() -> None:
    data = generated(robots={"rover": bare(start={"map_pose": {"x": 8.25, "y": 9.25}})})
    results = {}
    for seed in range(12):
        try:
            results[seed] = microsim.Simulation({**data, "seed": seed}).digest()
        except ScenarioError:
            results[seed] = ""
    good = [seed for seed, digest in results.items() if digest]
    bad = [seed for seed, digest in results.items() if not digest]
    assert good
    assert bad
    sim = microsim.Simulation({**data, "seed": good[0]})
    for act in (sim.set_seed, sim.reset):
        with pytest.raises(
            ScenarioError, match=rf"robots.rover.start.map_pose: seed {bad[0]}: the start .* is in a cell"
        ):
            act(bad[0])
    sim.reset()
    assert (sim.seed, sim.digest()) == (good[0], results[good[0]])
    with pytest.raises(ScenarioError, match=f"seed {bad[0]}"):
        BatchSimulation({**data, "seed": good[0]}, seeds=[good[0], bad[0]])


def test_obstacles_that_chance_leaves_keep_their_names_in_generated_worlds() -> None:
    rows = [3.0, 6.0, 9.0, 12.0, 15.0]
    boxes = [{"type": "box", "center": [8, y, 0], "size": [1, 1, 2], "name": f"box{y:.0f}"} for y in rows]
    robots = {f"r{y:.0f}": bare(model="rover", start={"map_pose": {"x": 6, "y": y, "yaw": 0}}) for y in rows}
    randomize = {"obstacles": {"keep_probability": 0.5, "gap_m": 0.5}}
    source = with_hills(obstacles=boxes, robots=robots, randomize=randomize)
    batch = BatchSimulation(source, 6)
    singles = Singles(source, batch.seeds)
    for robot in robots:
        batch.commands(robot)[0] = 2.0
        singles.command(robot, batch.commands(robot))
    batch.step(90)
    singles.step(90)
    assert_equal(batch, singles)
    touched = {(robot, batch.last_contact(robot, world)) for robot in robots for world in range(6)}
    assert touched == {(robot, name) for robot in robots for name in ("", robot.replace("r", "box"))}
