"""Print, as one line of JSON, this processor's name and the digests that must not depend on it."""

import hashlib
import json
import platform
import sys
import tempfile
from math import sqrt
from pathlib import Path

import numba
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))


@numba.njit(cache=True)
def recurrence(steps: int) -> np.ndarray:
    """A chaotic run of + - * / and sqrt, where one wrong bit, such as that of a fused multiply-add, grows large."""
    x, y, v = 0.1, 0.2, 0.3
    history = np.empty((steps, 3))
    for step in range(steps):
        v = v + (1.0 - v) * 0.016 - x * y / (1.0 + v * v)
        x = x + v * 0.016 * sqrt(1.0 + y * y)
        y = 3.9 * y * (1.0 - y) + x * 1e-9
        y = y - 1.0 if y >= 1.0 else y
        history[step, 0], history[step, 1], history[step, 2] = x, y, v
    return history


def arithmetic() -> str:
    """Differs only if the processor or the compiler does; told apart from the mission so that blame is clear."""
    return hashlib.sha256(recurrence(5000).tobytes()).hexdigest()


def recording() -> str:
    """Of the files that a recorded run leaves, but for the one with facts of the machine."""
    from microsim.recording.recorder import Recorder
    from microsim.simulation import Simulation

    sim, digest = Simulation("default"), hashlib.sha256()
    with tempfile.TemporaryDirectory() as name, Recorder(Path(name) / "bag", sim) as recorder:
        sim.command("rover", v=1.0, omega=0.3)
        sim.step(30)
        recorder.close()
        for file in sorted((Path(name) / "bag").iterdir()):
            if file.name != "recording.json":
                digest.update(file.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    from mission import all_digests

    digests = {"arithmetic": arithmetic(), **all_digests(), "recording": recording()}
    print(json.dumps({"machine": platform.machine(), "digests": digests}))
