"""A splat camera at its rate for minutes: does memory grow? `python -m benchmarks.splat_soak [--minutes 10]`

Drives in worlds/oval, in real time or slower where the machine is, and looks at the process every 10 simulated
seconds. It fails when the second half of the run needs more than 8 MB above what the first half needed at most.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import microsim

ALLOWED_MB = 8.0


def resident_mb() -> float:
    """Memory that belongs to this process alone, mapped files left out."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return (int(fields[1]) - int(fields[2])) * 4096 / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.splat_soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="simulated minutes")
    minutes = parser.parse_args().minutes
    others = dict.fromkeys(("camera_front_left", "camera_front_right", "lidar_top"))
    sim = microsim.Simulation({"world": "oval", "robots": {"ego": {"sensors": others}}})
    start, frames, seen = time.monotonic(), 0, []
    for ten_seconds in range(int(6 * minutes)):
        for _ in range(10):
            sim.command("ego", speed=4.0, steering=0.06)  # in circles, so that no two frames are alike
            frames += sum(message.topic.endswith("image_raw") for message in sim.step(100))
        seen.append(resident_mb())
        spare = start + 10.0 * (ten_seconds + 1) - time.monotonic()
        if spare > 0.0:
            time.sleep(spare)
    half = len(seen) // 2
    growth = max(seen[half:]) - max(seen[:half])
    wall = time.monotonic() - start
    print(
        f"{minutes:g} simulated minutes in {wall / 60:.1f}, {frames} frames of 640×480: at most "
        f"{max(seen[:half]):.1f} MB in the first half, {max(seen[half:]):.1f} MB in the second ({growth:+.1f} MB)"
    )
    return 0 if growth <= ALLOWED_MB else 1


if __name__ == "__main__":
    sys.exit(main())
