"""Scenarios that between them hold every robot model and every sensor with a kernel, faults and chance included."""

from typing import Any

import numpy as np

from microsim.batch import BatchSimulation
from microsim.batch.device_choice import difference
from microsim.robots.robot import ROBOTS
from microsim.scenario import load_scenario
from microsim.sensors import SENSORS
from microsim.sensors.sensor import KernelSensor
from tests.support import bare
from tests.unit.batch.camera_scenarios import SOURCES as CAMERAS
from tests.unit.batch.test_batch import HILLS, RANDOMIZE, scenario
from tests.unit.batch.test_batch import ROBOTS as MANY
from tests.unit.batch.test_generated_worlds import SOURCES as GENERATED

ROUND = bare(
    model="navigation_robot",
    start={"map_pose": {"x": 16, "y": 16}},
    max_linear_accel=1.5,
    pose2D={"hz": 20, "position_sigma_m": 0.1},
    localisation={"hz": 15, "yaw_sigma_rad": 0.1},
)
WHEELS = {**MANY["heavy"], "joint_states": {"hz": 20}}
CAR = {**MANY["car"], "joint_states": {"hz": 30}, "ahrs": {"hz": 20}, "autoware": {"hz": 25}}
WALKER = {"model": "actor", "path": [[0, 3, 14], [0.4, 4, 14.5], [1.1, 3, 14]], "repeat": True, "odom": {"hz": 10}}
KITE = {"model": "actor", "shape": "drone", "start": {"map_pose": {"x": 14, "y": 3, "z": 6}}}
EVERYONE = {**MANY, "heavy": WHEELS, "car": CAR, "round": ROUND, "walker": WALKER, "kite": KITE}
FAULTS = [
    {"target": "drone/gps", "kind": "jump", "from_s": 0.1, "to_s": 0.4, "offset_m": [3, 1, 0]},
    {"target": "rover/scan", "kind": "dropout", "from_s": 0.2, "to_s": 0.5},
]
SOURCES: dict[str, dict[str, Any]] = {
    "flat": scenario(robots=EVERYONE),
    "hills": scenario(robots=EVERYONE, map=HILLS, physics_hz=50),
    "random": scenario(robots=EVERYONE, map=HILLS, randomize=RANDOMIZE),
    "faults": scenario(robots=EVERYONE, faults=FAULTS),
    **CAMERAS,
    "generated": GENERATED["maze on hills"],
    "far apart": scenario(robots={name: MANY[name] for name in ("drone", "rover")}, obstacles=[]),  # nothing touches
}


def sensors_on_gpu(source: Any) -> list[str]:
    """Those with a kernel, and plain cameras."""
    there = load_scenario(source).all_sensors
    found = [each for each in there if isinstance(each[3], KernelSensor) or each[3].name == "camera"]
    return [f"{robot}/{name}" for robot, name, _, _ in found]


def assert_complete() -> None:
    """Whoever adds a robot or a sensor adds it here too."""
    parsed = load_scenario(SOURCES["flat"])
    kinds = {kind.name for _, _, _, kind in parsed.all_sensors}
    assert kinds >= {name for name, sensor in SENSORS.built_in.items() if isinstance(sensor, KernelSensor)}
    assert {robot.model for robot in parsed.robots.values()} == set(ROBOTS.built_in)


def drive(batches: list[BatchSimulation], dice: np.random.Generator, ticks: int, limit: float = 3.0) -> None:
    """The same random commands to all, some of them NaN, then the same number of ticks."""
    for robot in batches[0].robots:
        commands = dice.uniform(-limit, limit, batches[0].commands(robot).shape)
        commands[dice.random(commands.shape) < 0.02] = np.nan
        for batch in batches:
            batch.commands(robot)[...] = batch.loops.array(commands)
    for batch in batches:
        batch.step(ticks)


def assert_same(batches: list[BatchSimulation]) -> None:
    for other in batches[1:]:
        assert difference(other, batches[0]) == ""
