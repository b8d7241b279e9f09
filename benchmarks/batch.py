"""Many worlds at once, beside VMAS in the same run. An environment step is six ticks, a tenth of a second."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from benchmarks.harness import TORCH, Result, all_cores, cpu_seconds, has_two_cores, run_peer, wall_seconds
from microsim.batch import BatchSimulation

N = 16_384
TICKS = 6
OFF = dict.fromkeys(("odom", "gps", "imu", "camera", "range"))


def measure() -> list[Result]:
    peer = run_peer("vmas_envs.py", str(N), python=TORCH) or {}
    return [*_state_only(peer), *_sensors(peer), *_cameras(), *_cores(), *_memory(), *_sizes(), *_gymnasium()]


def _scenario(**robots: Any) -> dict[str, Any]:
    dice = np.random.default_rng(1)
    places = dice.uniform(3, 97, (60, 2)).tolist()
    drawn = {"x": [3, 97], "y": [3, 97], "yaw": [-3, 3]}
    return {
        "map": {"size_xy_cells": [100, 100]},
        "obstacles": [{"type": "cylinder", "center": [x, y, 0], "radius": 0.8, "height": 1} for x, y in places],
        "robots": robots,
        "radio": {"enabled": False},
        "randomize": {"starts": dict.fromkeys(robots, drawn)},
    }


def _robot(**more: Any) -> dict[str, Any]:
    return {**OFF, "start": {"map_pose": {"x": 50, "y": 50}}, **more}


def _moving(scenario: Any, n: int = N, **options: Any) -> BatchSimulation:
    batch = BatchSimulation(scenario, n, **options)
    dice = np.random.default_rng(2)
    for robot in batch.robots:
        batch.commands(robot)[:] = dice.uniform(-1, 1, batch.commands(robot).shape)
    batch.step(TICKS)
    return batch


def _rate(batch: BatchSimulation, rounds: int = 15) -> float:
    """Environment steps per second of CPU time."""
    return batch.n / cpu_seconds(lambda: batch.step(TICKS), rounds)


def _against(ours: float, peer: dict[str, Any], name: str, floor: float) -> list[Result]:
    if name not in peer:
        return []
    text = f"VMAS {peer['version']}, {name}: {peer[name]:,.0f} steps/s"
    return [Result(f"the same, against VMAS' {name}", ours / peer[name], "×", floor, peer=text)]


def _state_only(peer: dict[str, Any]) -> list[Result]:
    ours = _rate(_moving(_scenario(drone=_robot(), rover=_robot())))
    drone = _rate(_moving(_scenario(drone=_robot())))
    return [
        Result(f"drone and rover, state only, n = {N:,}", ours, "env-steps/s", 10e6, 13.5e6),
        Result(f"drone alone, state only, n = {N:,}", drone, "env-steps/s"),
        *_against(drone, peer, "drone", 6.0),
    ]


def _sensors(peer: dict[str, Any]) -> list[Result]:
    both = _moving(_scenario(drone=_robot(gps={"hz": 10}), rover=_robot(range={"hz": 10})))
    scan = _rate(_moving(_scenario(rover=_robot(scan={"hz": 10, "beams": 15, "max_m": 8}))))
    return [
        Result("drone with GPS, rover with a range ray", _rate(both), "env-steps/s", 2.5e6, 4e6),
        Result("rover with a 15-beam scan", scan, "env-steps/s"),
        *_against(scan, peer, "discovery", 10.0),
    ]


def _cameras(n: int = 64) -> list[Result]:
    camera = {"hz": 10, "latency_ms": {"mean": 0, "jitter": 0, "drop_probability": 0}}
    batch = _moving(_scenario(drone=_robot(camera=camera, start={"map_pose": {"x": 50, "y": 50, "z": 12}})), n)
    return [Result("cameras of 128×128, one in each world", _rate(batch, 5), "frames/s", 400)]


def _cores() -> list[Result]:
    if not has_two_cores():
        return []
    with all_cores():
        scenario = _scenario(drone=_robot(gps={"hz": 10}), rover=_robot(range={"hz": 10}))
        one, two = _moving(scenario, 4 * N), _moving(scenario, 4 * N, threads=2)
        ratio = wall_seconds(lambda: one.step(TICKS)) / wall_seconds(lambda: two.step(TICKS))
    return [Result("two threads on two cores, in wall time", ratio, "×", 1.7)]


def _memory() -> list[Result]:
    batch = BatchSimulation(_scenario(drone=_robot(), rover=_robot()), N)
    return [Result("memory of a world with drone and rover", batch.memory_bytes() / N, "bytes", 4096, at_most=True)]


def _sizes() -> list[Result]:
    results, costs = [], []
    for n in (1024, N, 1_048_576):
        batch = _moving(_scenario(drone=_robot(), rover=_robot()), n)
        repeats = max(1, N // n)
        seconds = cpu_seconds(lambda batch=batch, k=repeats: [batch.step(TICKS) for _ in range(k)], 7)  # type: ignore[misc]
        costs.append(1e9 * seconds / n / TICKS / repeats)
        results.append(Result(f"a tick of drone and rover, n = {n:,}", costs[-1], "ns"))
        del batch
        gc.collect()
    return [*results, Result("the dearest of these to the cheapest", max(costs) / min(costs), "×", 2.0, at_most=True)]


def _gymnasium() -> list[Result]:
    import gymnasium

    env: Any = gymnasium.make_vec("microsim.parts.learning:MicroSim/Hover-v0", num_envs=N, copy=False)
    env.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (N, 4)).astype(np.float32)
    for _ in range(5):
        env.step(actions)
    vector = N / cpu_seconds(lambda: env.step(actions), 15)
    bare = env.unwrapped.task.batch
    return [
        Result("Hover through Gymnasium's vector API", vector, "env-steps/s"),
        Result("of the same batch without it", 100 * vector / _rate(bare), "%", 60),
    ]
