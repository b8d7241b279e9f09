"""Steps per second of CPU time of gym-pybullet-drones' HoverAviary: one drone, 240 Hz physics, 30 Hz control."""

import json
import time

import numpy as np
from gym_pybullet_drones.envs.HoverAviary import HoverAviary
from gym_pybullet_drones.utils.enums import ActionType, ObservationType

env = HoverAviary(obs=ObservationType("kin"), act=ActionType("vel"), gui=False)
env.reset(seed=0)
action = np.array([[0.1, 0.0, 0.1, 0.5]])
for _ in range(50):
    env.step(action)
best = float("inf")
for _ in range(3):
    start = time.process_time()
    for _ in range(300):
        if any(env.step(action)[2:4]):
            env.reset()
    best = min(best, time.process_time() - start)
about = "one environment, one drone, velocity commands; 8 physics steps each (0.033 s), PyBullet with contacts"
print(json.dumps({"name": "gym-pybullet-drones", "version": "2.1.0", "about": about, "hover": 300 / best}))
