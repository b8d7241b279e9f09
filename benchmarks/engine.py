"""The engine on one core: all topics, state only, many drones, a scan each step."""

from __future__ import annotations

import random
from typing import Any

import microsim
from benchmarks.harness import Result, cpu_seconds, run_peer
from microsim.scenario import load_scenario
from microsim.scenario.loading import with_values

SIMULATED_S = 10


def measure() -> list[Result]:
    return [*_all_topics(), *_state_only(), *_sixteen_drones(), *_scan()]


def _moving(scenario: Any, seed: int = 7) -> microsim.Simulation:
    sim = microsim.Simulation(scenario, seed=seed)
    for robot, settings in sim.scenario.robots.items():
        if settings.model == "drone":
            sim.command(robot, vx=0.5, vy=0.1, yaw_rate=0.3)
        else:
            sim.command(robot, v=0.5, omega=0.3)
    sim.step(60)
    return sim


def _all_topics() -> list[Result]:
    blind = with_values(load_scenario("default"), {"robots.drone.camera": None})
    sims = [_moving(scenario) for scenario in ("default", blind)]
    every, others = (SIMULATED_S / cpu_seconds(lambda sim=sim: sim.step(SIMULATED_S * 60)) for sim in sims)  # type: ignore[misc]
    return [
        Result("all default topics built, encoded, digested", every, "× real time", 1200, 2500),
        Result("the same without the camera", others, "× real time", 4000, 10_000),
    ]


def _state_only() -> list[Result]:
    sim = _moving("default")

    def one_by_one() -> None:
        for _ in range(6000):
            sim.advance()

    single = 100 / cpu_seconds(one_by_one)
    many = 1000 / cpu_seconds(lambda: sim.advance(60_000))
    return [
        Result("state only, one tick a call from Python", single, "× real time", 8000, 12_000),
        Result("state only, many ticks a call", many, "× real time"),
    ]


def _sixteen_drones() -> list[Result]:
    robots = {
        f"drone_{i}": {"model": "drone", "start": {"map_pose": {"x": 10 + 10 * i, "y": 20, "z": 10}}} for i in range(16)
    }
    sim = _moving({"robots": robots})
    seconds = cpu_seconds(lambda: sim.step(120), 5)
    return [
        Result(
            "16 drones, default sensors",
            2 / seconds,
            "× real time",
            400,
            1000,
            peer="crazyswarm2's Python simulator reports 0.05 ×",
        )
    ]


def _scan(beams: int = 360, obstacles: int = 20) -> list[Result]:
    dice = random.Random(1)
    things: list[dict[str, Any]] = []
    for index in range(obstacles):
        x, y, _ = dice.uniform(2, 48), dice.uniform(2, 48), dice.uniform(0, 3)
        if index % 2:
            things.append({"type": "cylinder", "center": [x, y, 0], "radius": 0.6, "height": 1.0})
        else:
            things.append({"type": "box", "center": [x, y, 0], "size": [1.5, 1.0, 1.0]})
    off = dict.fromkeys(("odom", "gps", "imu", "range"))
    scan = {"hz": 10, "beams": beams, "max_m": 20.0, "sigma_m": 0.0}
    sim = _moving(
        {
            "physics_hz": 10,
            "world_topics": {"occupancy_hz": 0, "markers_hz": 0},
            "map": {"cell_size_m": 0.1, "size_xy_cells": [500, 500]},
            "obstacles": things,
            "robots": {"rover": {"start": {"map_pose": {"x": 25, "y": 25, "yaw": 0}}, "scan": scan, **off}},
        }
    )

    def steps() -> None:
        for _ in range(500):
            sim.step()

    ours = 500 / cpu_seconds(steps, 5)
    results = [Result(f"steps with a {beams}-beam scan, {obstacles} obstacles", ours, "steps/s")]
    peer = run_peer("irsim_scan.py", str(beams), str(obstacles))
    if peer:
        name = f"ir-sim {peer['version']}: {peer['steps_per_s']:,.0f} steps/s"
        results.append(Result("the same, against ir-sim", ours / peer["steps_per_s"], "×", 150, 300, peer=name))
    return results
