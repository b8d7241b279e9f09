"""Steps per second of ir-sim with one 360-beam lidar and 20 obstacles, headless."""

import json
import random
import sys
import tempfile
from pathlib import Path

import irsim
import numpy as np

from benchmarks.harness import cpu_seconds

BEAMS, OBSTACLES = int(sys.argv[1]), int(sys.argv[2])


def world() -> str:
    dice = random.Random(1)
    lines = [
        "world: {height: 50, width: 50, step_time: 0.1, sample_time: 0.1, collision_mode: unobstructed}",
        "robot:",
        "  - kinematics: {name: diff}",
        "    shape: {name: circle, radius: 0.2}",
        "    state: [25, 25, 0]",
        "    sensors:",
        f"      - {{type: lidar2d, range_min: 0, range_max: 20, angle_range: 6.283, number: {BEAMS}, noise: False}}",
        "obstacle:",
    ]
    for index in range(OBSTACLES):
        x, y, turn = dice.uniform(2, 48), dice.uniform(2, 48), dice.uniform(0, 3)
        shape = "{name: circle, radius: 0.6}" if index % 2 else "{name: rectangle, length: 1.5, width: 1.0}"
        lines.append(f"  - {{shape: {shape}, state: [{x:.3f}, {y:.3f}, {turn:.3f}]}}")
    return "\n".join(lines) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "world.yaml"
        file.write_text(world())
        env = irsim.make(str(file), headless=True, log_level="ERROR")
        action = np.array([[0.3], [0.1]])

        def steps() -> None:
            for _ in range(50):
                env.step(action)

        print(json.dumps({"version": irsim.__version__, "steps_per_s": 50 / cpu_seconds(steps, 6)}))


main()
