"""Learning: vectors of environments against the batch below them, and other simulators in the same run.

It needs torch and the peers, in an environment of their own: `benchmarks/peers/torch_setup.sh`.
"""

from __future__ import annotations

from benchmarks.harness import TORCH, Result, run_peer

N = 1024
FORMS = {"batch": "the batch alone", "vector": "as a Gymnasium vector", "sb3": "as Stable-Baselines3's VecEnv"}
FLOORS = {"RoverAvoid": 0.6}  # VecEnv, as a share of the batch; of a drone's, whose step is short, there is none


def measure() -> list[Result]:
    found = []
    for task, rates in (run_peer("sb3_steps.py", str(N), python=TORCH) or {}).items():
        found += [Result(f"{task}, n = {N:,}: {text}", rates[form], "env-steps/s") for form, text in FORMS.items()]
        share = rates["sb3"] / rates["batch"]
        found.append(Result(f"{task}: VecEnv, as a share of the batch", share, "×", FLOORS.get(task)))
    for file in ("vmas_envs.py", "pybullet_drones.py"):
        peer = run_peer(file, str(N), python=TORCH) or {}
        name, about = f"{peer.get('name')} {peer.get('version')}", str(peer.get("about", ""))
        rates = {key: value for key, value in peer.items() if isinstance(value, float)}
        found += [Result(f"{name}: {key}", value, "env-steps/s", peer=about) for key, value in rates.items()]
    return found
