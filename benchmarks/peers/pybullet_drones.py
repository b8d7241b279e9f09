"""Steps per second of CPU time of gym-pybullet-drones' HoverAviary: one drone, 240 Hz physics, 30 Hz control."""

import json
from importlib.metadata import version

import numpy as np
from gym_pybullet_drones.envs.HoverAviary import HoverAviary
from gym_pybullet_drones.utils.enums import ActionType, ObservationType

from benchmarks.harness import cpu_seconds

env = HoverAviary(obs=ObservationType("kin"), act=ActionType("vel"), gui=False)
env.reset(seed=0)
action = np.array([[0.1, 0.0, 0.1, 0.5]])


def steps() -> None:
    for _ in range(300):
        if any(env.step(action)[2:4]):
            env.reset()


about = "one environment, one drone, velocity commands; 8 physics steps each (0.033 s), PyBullet with contacts"
facts = {"name": "gym-pybullet-drones", "version": version("gym-pybullet-drones"), "about": about}
print(json.dumps({**facts, "hover": 300 / cpu_seconds(steps, 4)}))
