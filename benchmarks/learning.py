"""Learning: the adapter of Stable-Baselines3 against the batch below it, and other simulators in the same run.

It needs torch and the peers, in an environment of their own: `benchmarks/peers/learning_setup.sh`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.harness import ROOT, Result

PYTHON = ROOT / ".cache" / "learning-bench-venv" / "bin" / "python"
N = 1024


def measure() -> list[Result]:
    if not PYTHON.exists():
        print("no environment for the peers of learning: benchmarks/peers/learning_setup.sh makes it", file=sys.stderr)
        return []
    ours = _run("sb3_steps.py", str(N))
    batch, vector, sb3 = ours["batch"], ours["vector"], ours["sb3"]
    found = [
        Result(f"RoverAvoid, the batch alone (motion and scan), n = {N:,}", batch, "env-steps/s"),
        Result("the same as a Gymnasium vector", vector, "env-steps/s"),
        Result("the same as Stable-Baselines3's VecEnv", sb3, "env-steps/s"),
        Result("VecEnv, as a share of the batch alone", sb3 / batch, "×", 0.6),
        Result("Hover as Stable-Baselines3's VecEnv", ours["hover_sb3"], "env-steps/s"),
    ]
    for file in ("vmas_envs.py", "pybullet_drones.py"):
        peer = _run(file, "1024")
        name = f"{peer.get('name', 'VMAS')} {peer.get('version', '')}".strip()
        found += [
            Result(f"{name}: {key}", value, "env-steps/s", peer=peer.get("about", ""))
            for key, value in peer.items()
            if isinstance(value, float)
        ]
    return found


def _run(file: str, *arguments: str) -> dict[str, Any]:
    command = [str(PYTHON), str(ROOT / "benchmarks" / "peers" / file), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=False)
    if done.returncode:
        print(f"{file}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
