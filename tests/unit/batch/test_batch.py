"""A batch of worlds: each is the `Simulation` with its seed, bit for bit, whatever the others do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import microsim
from microsim.batch import BatchSimulation
from microsim.errors import ScenarioError, UsageError
from tests.support import bare, many
from tests.unit.batch.batch_reference import Singles, assert_equal

SEEDS = st.integers(-(2**63), 2**63 - 1)

OBSTACLES = [
    {"type": "box", "center": [14, 12, 0], "size": [2.5, 3, 2]},
    {"type": "cylinder", "center": [8, 15, 0], "radius": 1.7, "height": 2},
    {"type": "box", "center": [16, 4, 0], "size": [1, 1, 1]},
]
ROBOTS: dict[str, dict[str, Any]] = {
    "drone": bare(
        start={"map_pose": {"x": 5, "y": 6, "z": 3}}, gps={"hz": 7}, imu={"hz": 20, "mount": {"rpy": [0.1, 0.2, 0.3]}}
    ),
    "rover": bare(
        start={"map_pose": {"x": 6, "y": 6}},
        odom={"hz": 30, "drift": {}},
        range={"hz": 10, "dropout_probability": 0.2},
        scan={"hz": 12.5, "beams": 9, "dropout_probability": 0.1},
        gps={"hz": 5},
        sensors={"second": {"type": "odom", "hz": 4}},
    ),
    "heavy": bare(
        model="rover", start={"map_pose": {"x": 12, "y": 16}}, dynamics={"command_timeout": 0.2}, imu={"hz": 25}
    ),
    "car": bare(
        model="bicycle", start={"map_pose": {"x": 9, "y": 4}}, imu={"hz": 50}, range={"hz": 10}, odom={"hz": 10}
    ),
}
RANDOMIZE = {
    "values": {
        "robots.rover.max_v": [1, 3],
        "robots.rover.range.sigma_m": [0, 0.3],
        "robots.rover.odom.drift.yaw_per_rad": [0, 0.2],
        "robots.drone.gps.sigma_m": [1, 4],
        "robots.drone.cmd_time_constant": [0, 0.3],
        "robots.heavy.dynamics.mass": [1, 9],
        "wind.gust_sigma": [0, 1],
        "wind.world_xyz.1": [-1, 1],
    },
    "starts": {
        "rover": {"x": [1, 19], "y": [1, 19], "yaw": [-3.1, 3.1], "gap_m": 0.5},
        "drone": {"x": [1, 19], "z": [1, 8]},
    },
    "obstacles": {"shift_m": 5, "keep_probability": 0.8},
}


def scenario(**changes: Any) -> dict[str, Any]:
    return {
        "name": "batch",
        "map": {"size_xy_cells": [20, 20]},
        "obstacles": OBSTACLES,
        "robots": ROBOTS,
        "frames": {"per_robot_odom": True},
        "wind": {"gust_sigma": 0.4},
        "world_topics": {"occupancy_hz": 0, "markers_hz": 0},
        "radio": {"enabled": False},
        **changes,
    }


HILLS = {
    "size_xy_cells": [20, 20],
    "elevation": {"generate": "hills", "seed": 12345, "amplitude_m": 1.0, "wavelength_m": 8.0},
}
SCENARIOS = {
    "flat": microsim.load_scenario(scenario()),
    "hills": microsim.load_scenario(scenario(map=HILLS, physics_hz=50)),
    "random": microsim.load_scenario(scenario(randomize=RANDOMIZE)),
    "random hills": microsim.load_scenario(scenario(map=HILLS, randomize=RANDOMIZE)),
    "stop": microsim.load_scenario(scenario(map=HILLS, randomize=RANDOMIZE, collisions="stop")),
}


def drive(batch: BatchSimulation, singles: Singles, dice: np.random.Generator, ticks: int) -> None:
    """The same random commands to both, some of them NaN, then the same number of ticks."""
    for robot in batch.robots:
        commands = dice.uniform(-3, 3, (len(batch.inputs(robot)), batch.n))
        commands[dice.random(commands.shape) < 0.02] = np.nan
        batch.commands(robot)[:] = commands
        if ticks:  # a step of none hands nothing in
            singles.command(robot, commands)
    batch.step(ticks)
    singles.step(ticks)


@pytest.mark.parametrize("name", SCENARIOS)
@settings(max_examples=many(4, 1), suppress_health_check=list(HealthCheck))
@given(seeds=st.lists(SEEDS, min_size=1, max_size=10), threads=st.integers(1, 3), dice=st.integers(0, 2**32))
def test_each_world_equals_the_simulation_with_its_seed(name: str, seeds: list[int], threads: int, dice: int) -> None:
    random = np.random.default_rng(dice)
    batch, singles = BatchSimulation(SCENARIOS[name], seeds=seeds, threads=threads), Singles(SCENARIOS[name], seeds)
    assert_equal(batch, singles)
    for _ in range(6):
        if random.random() < 0.4:
            mask = random.random(batch.n) < 0.5
            batch.reset(mask)
            singles.reset(np.flatnonzero(mask))
        drive(batch, singles, random, int(random.integers(0, 20)))
        assert_equal(batch, singles)


def test_worlds_without_robots_run() -> None:
    batch = BatchSimulation(scenario(robots={}), 3)
    batch.step(4)
    assert batch.tick.tolist() == [4, 4, 4]
    assert batch.fork([1]).tick.tolist() == [4]


@pytest.mark.parametrize("n", [9, 65])
def test_blocks_of_worlds_equal_single_ones(n: int) -> None:
    if n > many(65):
        pytest.skip("too many worlds for kernels as plain Python")
    seeds = list(range(n))
    random = np.random.default_rng(n)
    batch, singles = BatchSimulation(SCENARIOS["flat"], seeds=seeds, threads=2), Singles(SCENARIOS["flat"], seeds)
    for ticks in (7, 12):
        drive(batch, singles, random, ticks)
    assert_equal(batch, singles)


STARTS = {"x": [0.5, 19.5], "y": [0.5, 19.5], "yaw": [-3, 3], "gap_m": 0.2}


@pytest.mark.parametrize("obstacles", [{}, {"obstacles": {"shift_m": 5}}])
def test_worlds_read_side_by_side_read_what_they_read_alone(obstacles: dict[str, Any]) -> None:
    """On and off the map, before walls and above them, at different ticks: blocks of worlds against single ones."""
    beam = {"hz": 10, "max_m": 4, "dropout_probability": 0.1, "mount": {"xyz": [1.5, 0.4, 0]}}
    near = {**beam, "type": "range", "mount": {"xyz": [0.4, 0, 0]}}
    posts = [
        {"type": "cylinder", "center": [x, y, 0], "radius": 0.3, "height": 1} for x in (3, 8, 13) for y in (3, 9, 14)
    ]
    robots = {
        "drone": bare(start={"map_pose": {"x": 5, "y": 6, "z": 3}}, gps={"hz": 10}, range=beam, sensors={"near": near}),
        "rover": bare(start={"map_pose": {"x": 6, "y": 6}}, gps={"hz": 5}, range={**beam, "mount": {"xyz": [0, 0, 0]}}),
    }
    values = {"robots.rover.range.sigma_m": [0, 0.3], "robots.drone.gps.sigma_m": [1, 4]} if obstacles else {}
    drawn = {"values": values, "starts": dict.fromkeys(robots, STARTS), **obstacles}
    source = microsim.load_scenario(scenario(robots=robots, randomize=drawn, obstacles=posts))
    n, part, dice, seen = 70, 35, np.random.default_rng(5), []
    seeds = np.arange(n) - 3
    together, halves = (
        BatchSimulation(source, seeds=seeds),
        [BatchSimulation(source, seeds=s) for s in np.split(seeds, 2)],
    )
    for ticks in (12, 7, 30, 6):
        for robot in together.robots:
            commands = dice.uniform(-4, 4, together.commands(robot).shape)
            together.commands(robot)[:] = commands
            for half, some in zip(halves, np.split(commands, 2, axis=1), strict=True):
                half.commands(robot)[:] = some
        for batch in (together, *halves):
            batch.step(ticks)
            seen.append(batch.readings["drone/range"].copy())
            batch.reset(np.arange(batch.n) % part < ticks)
    snapshots = [half.snapshot().arrays for half in halves]
    for name, array in together.snapshot().arrays.items():
        axis = 2 if name == "touched" else together.worlds.arrays[name].axis
        np.testing.assert_array_equal(array, np.concatenate([each[name] for each in snapshots], axis), name)
    beams = np.concatenate(seen)
    kinds = np.isnan(beams), np.isinf(beams) & (beams > 0), np.isinf(beams) & (beams < 0), np.isfinite(beams)
    assert all(each.any() for each in kinds)


@pytest.mark.parametrize("collisions", ["document", "stop"])
def test_a_crowd_touches_in_a_batch_what_it_touches_alone(collisions: str) -> None:
    """Robots so close that they keep touching, each world otherwise, through a fork and a reset of some."""
    places = {f"r{k}": {"x": 8.0 + 0.7 * (k % 3), "y": 8.0 + 0.7 * (k // 3)} for k in range(6)}
    robots = {name: bare(model="rover", start={"map_pose": pose}) for name, pose in places.items()}
    drones = {f"d{k}": bare(model="drone", start={"map_pose": {"x": 8, "y": 8, "z": 0.2 + 0.1 * k}}) for k in range(3)}
    source = microsim.load_scenario(
        scenario(robots={**robots, **drones}, randomize={"obstacles": {"shift_m": 4.0}}, collisions=collisions)
    )
    n = many(12)
    random, batch, singles = np.random.default_rng(3), BatchSimulation(source, n), Singles(source, np.arange(n) + 12345)
    for ticks in (5, 30, 1, 60):
        drive(batch, singles, random, ticks)
        assert_equal(batch, singles)
    assert sum(int(batch.state(robot)["contacts"].sum()) for robot in batch.robots) > 3 * n
    twin = batch.fork()
    batch.reset([0, 2])
    singles.reset([0, 2])
    drive(batch, singles, random, 20)
    assert_equal(batch, singles)
    twin.step(1)
    assert twin.touching("r0", 1) == twin.fork().touching("r0", 1)


def test_a_camera_sees_in_a_batch_what_it_sees_alone() -> None:
    robots = {
        "drone": bare(
            start={"map_pose": {"x": 9, "y": 9, "z": 9}},
            camera={"hz": 9, "noise": {"color_jitter": 0.2}, "resolution": {"width": 32, "height": 24}},
        )
    }
    for randomize in (None, {"obstacles": {"shift_m": 5}}):
        source = scenario(robots=robots, randomize=randomize)
        batch, singles = BatchSimulation(source, seeds=[3, 4, 5], threads=2), Singles(source, [3, 4, 5])
        random = np.random.default_rng(1)
        for ticks in (0, 1, 5, 14, 30):
            drive(batch, singles, random, ticks)
            assert_equal(batch, singles)
        assert (batch.sampled_at["drone/camera"] > 0).all()
        batch.reset([1])
        singles.reset([1])
        later = batch.snapshot()
        drive(batch, singles, random, 25)
        assert_equal(batch, singles)
        images = batch.readings["drone/camera"].copy()
        batch.restore(later)
        batch.step(0)
        assert not np.array_equal(images, batch.readings["drone/camera"])


def test_permuting_worlds_permutes_results() -> None:
    seeds, order = np.arange(10) * 7, np.random.default_rng(5).permutation(10)
    commands = np.random.default_rng(6).uniform(-2, 2, (2, 10))
    forward = BatchSimulation(SCENARIOS["random"], seeds=seeds)
    shuffled = BatchSimulation(SCENARIOS["random"], seeds=seeds[order], threads=2)
    forward.commands("rover")[:] = commands
    shuffled.commands("rover")[:] = commands[:, order]
    forward.step(31)
    shuffled.step(31)
    np.testing.assert_array_equal(forward.rows("rover")[:, order], shuffled.rows("rover"))
    for name in forward.sensors:
        np.testing.assert_array_equal(forward.readings[name][order], shuffled.readings[name])


def test_a_reset_by_mask_leaves_the_others_as_they_were() -> None:
    batch = BatchSimulation(SCENARIOS["random"], 8)
    batch.commands("rover")[:] = 1.0
    batch.step(40)
    before = {name: value.copy() for name, value in batch.readings.items()}
    rows, mask = batch.rows("rover").copy(), np.arange(8) % 3 == 0
    batch.reset(mask, seeds=np.arange(3) + 1000)
    np.testing.assert_array_equal(batch.rows("rover")[:, ~mask], rows[:, ~mask])
    for name, value in before.items():
        np.testing.assert_array_equal(batch.readings[name][~mask], value[~mask])
    assert batch.tick.tolist() == [0, 40, 40, 0, 40, 40, 0, 40]
    assert batch.seeds[mask].tolist() == [1000, 1001, 1002]


@given(dice=st.integers(0, 2**32))
@settings(max_examples=many(3, 1))
def test_a_snapshot_of_some_worlds_goes_on_like_them(dice: int) -> None:
    random = np.random.default_rng(dice)
    batch = BatchSimulation(SCENARIOS["random"], 9)
    batch.commands("rover")[:] = random.uniform(-1, 1, (2, 9))
    batch.step(int(random.integers(1, 30)))
    batch.reset([2, 5])
    batch.step(int(random.integers(1, 30)))
    chosen = random.permutation(9)[: int(random.integers(1, 9))]
    snapshot, twin = batch.snapshot(chosen), batch.fork(chosen)
    batch.step(17)
    twin.step(17)
    for robot in batch.robots:
        np.testing.assert_array_equal(batch.rows(robot)[:, chosen], twin.rows(robot))
    after = {name: value[chosen].copy() for name, value in batch.readings.items()}
    batch.step(3)
    batch.restore(snapshot, chosen)
    batch.step(17)
    for name, value in after.items():
        np.testing.assert_array_equal(batch.readings[name][chosen], value)


def test_arrays_are_views() -> None:
    batch = BatchSimulation(SCENARIOS["flat"], 5)
    x, readings = batch.state("rover")["x"], batch.readings["rover/range"]
    before, first = x.copy(), readings.copy()
    batch.commands("rover")[0] = 1.5
    batch.step(30)
    assert (x != before).all()
    assert not np.array_equal(readings, first)


def test_advance_moves_as_simulation_advance_does() -> None:
    batch = BatchSimulation(SCENARIOS["hills"], 3, sensors=())
    singles = [microsim.Simulation(SCENARIOS["hills"], int(seed)) for seed in batch.seeds]
    batch.advance(45)
    for world, sim in enumerate(singles):
        sim.advance(45)
        assert batch.rows("drone")[:, world].tolist() == sim.rows("drone")


def test_after_advance_sensors_sample_at_their_own_ticks_as_alone() -> None:
    """A camera whose frame was due while time only advanced was off its schedule ever after."""
    camera = {"hz": 9, "resolution": {"width": 8, "height": 6}}
    source = scenario(robots={**ROBOTS, "drone": {**ROBOTS["drone"], "camera": camera}})
    random, batch, singles = np.random.default_rng(2), BatchSimulation(source, seeds=[3, 4]), Singles(source, [3, 4])
    for ahead, ticks in ((45, 7), (1, 1), (3, 11), (20, 20)):
        batch.advance(ahead)
        for robot in batch.robots:
            singles.command(robot, batch.commands(robot))
        for sim in singles.sims:
            sim.advance(ahead)
        for count in (0, ticks):  # of none, what was due while time advanced stays where it is
            drive(batch, singles, random, count)
            assert_equal(batch, singles)
    assert (batch.sampled_at["drone/camera"] > 80).all()


def test_memory_per_world_is_small() -> None:
    source = scenario(robots={name: bare(start={"map_pose": {"x": 5, "y": 5}}) for name in ("drone", "rover")})
    batch = BatchSimulation(source, 4096)
    assert batch.memory_bytes() / batch.n <= 1024


def test_mistakes_are_told() -> None:
    batch = BatchSimulation(SCENARIOS["flat"], 2)
    with pytest.raises(UsageError, match="no robot 'dron'; did you mean 'drone'"):
        batch.commands("dron")
    with pytest.raises(UsageError, match="no sensor 'rover/rang'; did you mean 'rover/range'"):
        BatchSimulation(SCENARIOS["flat"], 2, sensors=["rover/rang"])
    with pytest.raises(UsageError, match="at least 1; found 0"):
        BatchSimulation(SCENARIOS["flat"], 0)
    with pytest.raises(UsageError, match="3 seeds for 2 worlds"):
        BatchSimulation(SCENARIOS["flat"], 2, seeds=[1, 2, 3])
    with pytest.raises(UsageError, match="each once"):
        batch.reset([0, 0])
    with pytest.raises(UsageError, match="mask has one value for each of the 2 worlds"):
        batch.reset(np.ones(3, bool))
    with pytest.raises(UsageError, match="0 or more; found -1"):
        batch.step(-1)


@pytest.mark.parametrize("seed", [1.9, True, None, "7", 2**63, -(2**63) - 1, float("nan")])
def test_what_is_no_seed_is_refused_and_never_truncated(seed: Any) -> None:
    batch = BatchSimulation(SCENARIOS["flat"], 2, sensors=())
    for attempt in (lambda: BatchSimulation(SCENARIOS["flat"], seeds=[seed]), lambda: batch.reset([1], [seed])):
        with pytest.raises(UsageError, match="seeds must be 64-bit integers; found"):
            attempt()


@pytest.mark.parametrize("world", [0.5, 2, -1, None, "0", 2**63])
def test_what_is_no_world_is_refused(world: Any) -> None:
    batch = BatchSimulation(SCENARIOS["flat"], 2, sensors=())
    for attempt in (batch.reset, batch.snapshot, batch.fork):
        with pytest.raises(UsageError, match=r"worlds (are|must be)"):
            attempt([world])


@pytest.mark.parametrize("ticks", [1.5, "3", True, float("nan"), 2**63, 10**30, 60 * 2**31])
def test_ticks_that_a_simulation_refuses_are_refused_in_its_words(ticks: Any) -> None:
    """Beyond 2**31 s too, where the stamps of ROS 2 end."""
    batch, single = BatchSimulation(SCENARIOS["flat"], 2, sensors=()), microsim.Simulation(SCENARIOS["flat"])
    for attempt in (batch.step, batch.advance):
        with pytest.raises(UsageError) as refused:
            attempt(ticks)
        with pytest.raises(UsageError) as alone:
            single.step(ticks)
        assert str(refused.value) == str(alone.value)
    assert batch.tick.tolist() == [0, 0]


# ---- what the seed decides -------------------------------------------------------------------------------------------


def test_a_drawn_scenario_is_a_function_of_the_seed_and_lies_within_its_spans() -> None:
    first, again, other = (microsim.Simulation(SCENARIOS["random"], seed) for seed in (5, 5, 6))
    assert first.resolved == again.resolved != other.resolved
    assert first.resolved.randomize is None
    for seed in range(many(40)):
        sim = microsim.Simulation(SCENARIOS["random"], seed)
        pose = sim.resolved.robots["rover"].start.map_pose
        assert 1 <= sim.resolved.robots["rover"].max_v <= 3  # type: ignore[attr-defined]
        assert 1 <= pose.x <= 19
        assert not sim.world.is_occupied(pose.x, pose.y)
        assert sim.resolved.robots["drone"].start.map_pose.y == 6


def test_adding_a_draw_changes_no_other() -> None:
    fewer = scenario(randomize={"values": {"robots.rover.max_v": [1, 3]}})
    more = scenario(randomize=RANDOMIZE)
    speeds = [microsim.Simulation(source, 9).resolved.robots["rover"].max_v for source in (fewer, more)]  # type: ignore[attr-defined]
    assert speeds[0] == speeds[1]


def test_obstacles_keep_away_from_starts() -> None:
    source = scenario(randomize={"obstacles": {"shift_m": 15, "gap_m": 2.0}})
    for seed in range(many(30)):
        sim = microsim.Simulation(source, seed)
        for robot in sim.robots:
            x, y = sim.rows(robot)[:2]
            assert not sim.world.is_occupied(x, y)


def test_without_the_block_nothing_is_drawn() -> None:
    sim = microsim.Simulation(SCENARIOS["flat"], 3)
    assert sim.resolved is sim.scenario
    assert "randomize" not in sim.scenario.to_dict()


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"values": {"robots.rover.max_w": [1, 2]}}, "robots.rover has no 'max_w'; did you mean 'max_v'"),
        ({"values": {"robots.rover.max_v": [-5, 2]}}, "-5.0 would be refused"),
        ({"values": {"robots.rover.max_v": [3, 2]}}, r"expected \[low, high\]"),
        ({"values": {"physics_hz": [1, 2]}}, "begins with robots or wind"),
        ({"values": {"robots.rover.range.hz": [1, 2]}}, "cannot be drawn"),
        ({"values": {"robots.rover.model": [1, 2]}}, "only a number can be drawn"),
        ({"starts": {"rovr": {}}}, "no robot 'rovr'; did you mean 'rover'"),
        ({"obstacles": {"shift": 3}}, "did you mean 'shift_m'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        microsim.load_scenario(scenario(randomize=block))


# ---- faults that keep something --------------------------------------------------------------------------------------

FREEZING = """
from microsim.engine.compiled import kernel
from microsim.faults import FaultKind, OnSensor

@kernel
def alter(settings, motion, memory, scene, key, tick, reading):
    if settings[0] <= tick < settings[1]:  # the first reading of the fault is repeated
        for k in range(reading.shape[0]):
            if memory[k] == 0.0:
                memory[k] = reading[k]
            reading[k] = memory[k]

FAULT = FaultKind("freeze", "the first reading is repeated", OnSensor(alter=alter))
"""


def freezing(folder: Path) -> dict[str, Any]:
    (folder / "freeze.py").write_text(FREEZING)
    robots = {"rover": bare(gps={"hz": 10}, imu={"hz": 10}, start={"map_pose": {"x": 4.0, "y": 5.0, "yaw": 0.5}})}
    faults = [f"rover/{name}:freeze@0.15s-2s" for name in ("gps", "imu")]
    return scenario(plugins=[str(folder)], robots=robots, faults=faults)


@pytest.mark.parametrize("ticks", [1, 7, 40])
def test_a_fault_keeps_in_a_batch_what_it_keeps_alone(tmp_path: Path, ticks: int) -> None:
    """In long steps nobody sees the reading that it repeats."""
    data = freezing(tmp_path)
    batch = BatchSimulation(data, 2, sensors=["rover/gps", "rover/imu"])
    singles = Singles(data, batch.seeds)
    for _ in range(2):
        batch.commands("rover")[0] = 1.0
        singles.command("rover", batch.commands("rover"))
        batch.step(ticks)
        singles.step(ticks)
        assert_equal(batch, singles)


def test_what_a_fault_keeps_is_reset_and_restored_with_its_world(tmp_path: Path) -> None:
    batch = BatchSimulation(freezing(tmp_path), 2, sensors=["rover/gps"])
    batch.commands("rover")[0] = 1.0
    start = batch.snapshot()
    batch.step(30)
    frozen = batch.readings["rover/gps"].copy()
    batch.restore(start)
    batch.commands("rover")[0] = -1.0
    batch.step(30)
    assert (batch.readings["rover/gps"] != frozen).any(axis=1).all()
    batch.reset()
    batch.commands("rover")[0] = 1.0
    batch.step(30)
    np.testing.assert_array_equal(batch.readings["rover/gps"], frozen)
