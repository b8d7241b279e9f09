"""Many worlds on a GPU, where there is one. A world-tick is a tick of one world, with all its robots."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from benchmarks.batch import TICKS, _robot, _scenario
from benchmarks.harness import Result
from microsim.batch import BatchSimulation
from microsim.render.gpu import device_name

N = 1 << 20


def measure() -> list[Result]:
    name = device_name()
    if name is None:
        print("no GPU can be used here", file=sys.stderr)
        return []
    print(f"on an {name}", file=sys.stderr)
    return [*_state_only(), *_sensors(), *_cameras(), *_gymnasium()]


def _seconds(work: Any, rounds: int = 10) -> float:
    import cupy

    best = float("inf")
    for _ in range(rounds):
        cupy.cuda.runtime.deviceSynchronize()
        start = time.perf_counter()
        work()
        cupy.cuda.runtime.deviceSynchronize()
        best = min(best, time.perf_counter() - start)
    return best


def _moving(scenario: Any, n: int = N) -> BatchSimulation:
    batch = BatchSimulation(scenario, n, device="cuda")
    assert batch.device == "cuda"
    dice = np.random.default_rng(2)
    for robot in batch.robots:
        batch.commands(robot)[...] = batch.loops.array(dice.uniform(-1, 1, batch.commands(robot).shape))
    batch.step(TICKS)
    return batch


def _state_only() -> list[Result]:
    batch = _moving(_scenario(drone=_robot(), rover=_robot()))
    results = []
    for ticks, floor in ((60, 8e9), (TICKS, None), (1, None)):
        rate = N * ticks / _seconds(lambda ticks=ticks: batch.step(ticks))  # type: ignore[misc]
        name = f"GPU: drone and rover, n = {N:,}, {ticks} tick{'s' * (ticks > 1)} a step"
        results.append(Result(name, rate, "world-ticks/s", floor, 15e9 if floor else None))
    bytes_each = batch.memory_bytes() / N
    return [*results, Result("GPU: memory of a world with drone and rover", bytes_each, "bytes", 1024, at_most=True)]


def _sensors() -> list[Result]:
    scan = {"hz": 10, "beams": 15, "max_m": 8}
    batch = _moving(_scenario(drone=_robot(gps={"hz": 10}), rover=_robot(range={"hz": 10}, scan=scan)))
    rate = N * TICKS / _seconds(lambda: batch.step(TICKS))
    batch.reset(np.arange(N) % 3 == 0)
    batch.step(2)
    batch.reset(np.arange(N) % 5 == 0)
    apart = N * TICKS / _seconds(lambda: batch.step(TICKS))
    return [
        Result("GPU: the same with GPS, range and a 15-beam scan at 10 Hz", rate, "world-ticks/s", 2e9, 5e9),
        Result("GPU: the same, worlds at three different ticks", apart, "world-ticks/s"),
    ]


def _cameras() -> list[Result]:
    """A frame in every world and step, with blur; its worlds have 60 cylinders, on level ground or on hills."""
    size = {"width": 64, "height": 64}
    camera = {"hz": 10, "resolution": size, "latency_ms": {"mean": 0, "jitter": 0, "drop_probability": 0}}
    scenario = _scenario(drone=_robot(camera=camera, start={"map_pose": {"x": 50, "y": 50, "z": 12}}))
    hills = {
        "size_xy_cells": [100, 100],
        "elevation": {"generate": "hills", "seed": 1, "amplitude_m": 2, "wavelength_m": 20},
    }
    results = []
    for n, ground in ((4096, "level ground"), (65_536, "level ground"), (4096, "hills")):
        batch = _moving({**scenario, "map": hills} if ground == "hills" else scenario, n)
        rate = n / _seconds(lambda batch=batch: batch.step(TICKS))  # type: ignore[misc]
        results.append(Result(f"GPU: plain cameras of 64×64 over {ground}, n = {n:,}", rate, "frames/s"))
    return results


def _gymnasium() -> list[Result]:
    import gymnasium
    import torch

    env: Any = gymnasium.make_vec("microsim.parts.learning:MicroSim/Hover-v0", num_envs=N, copy=False, device="cuda")
    env.reset(seed=0)
    actions = torch.rand((N, 4), device="cuda") * 2 - 1
    for _ in range(5):
        env.step(actions)
    best = N / _seconds(lambda: env.step(actions))
    steps = 2 * env.unwrapped.horizon  # with every reset
    mean = N * steps / _seconds(lambda: [env.step(actions) for _ in range(steps)], 1)
    return [
        Result("GPU: Hover through Gymnasium, policy excluded", mean, "env-steps/s", 1e8, 5e8),
        Result("GPU: its best step, in which no episode begins", best, "env-steps/s"),
    ]
