"""Driving: LiDAR rays per second on one core and on two, and how fast a car with LiDAR and cameras runs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.harness import Result, all_cores, cpu_seconds, has_two_cores, wall_seconds
from microsim.engine.geometry import matrix_from_rpy
from microsim.engine.motion import FIELDS, observe
from microsim.engine.world import Mesh, World
from microsim.rays.lidar_turn import LidarTurn, beam_table
from microsim.simulation import Simulation
from microsim.threads import Threads

SIDE, CELL = 1000, 0.5  # of the heightmap: cells, metres
POSTS, CORNERS = 1500, 25  # 75,000 triangles
RINGS, COLUMNS, REACH_M = 32, 1024, 100.0
SECONDS = 2
PLACE = (3.1, -4.2, 2.0)  # of the LiDAR [m], 1.9 m above the ground


def measure() -> list[Result]:
    return [*_rays(), *_cars()]


def _ground() -> Any:
    x, y = np.meshgrid(*[(np.arange(SIDE) + 0.5) * CELL - 250.0] * 2)
    return 1.5 * np.sin(x / 17.0) * np.cos(y / 13.0) + 0.3 * np.sin(x / 3.1 + y / 2.7)


def _posts() -> Mesh:
    """Round posts of many heights, all over the middle of the map."""
    random, vertices, triangles = np.random.default_rng(0), [], []
    angles = np.linspace(0.0, 2.0 * math.pi, CORNERS, endpoint=False)
    for _ in range(POSTS):
        place, radius, height = random.uniform(-100.0, 100.0, 2), random.uniform(0.2, 1.5), random.uniform(1.0, 6.0)
        first = len(vertices)
        for top in (0.0, height):
            vertices += [(place[0] + radius * math.cos(a), place[1] + radius * math.sin(a), top) for a in angles]
        for i in range(CORNERS):
            j = (i + 1) % CORNERS
            corners = first + i, first + j, first + CORNERS + j, first + CORNERS + i
            triangles += [(corners[0], corners[1], corners[2]), (corners[0], corners[2], corners[3])]
    return Mesh(np.array(vertices), np.array(triangles, np.int32))


def _motion(tilt: float) -> list[float]:
    """As high above the ground as on the roof of a car."""
    state, out = np.zeros((15, 1)), np.empty((1, FIELDS))
    state[:3, 0], state[11:13, 0] = PLACE, (tilt, -tilt)
    observe(state, out)
    seen: list[float] = out[0].tolist()
    return seen


def _lidar(world: World) -> LidarTurn:
    beams = beam_table([math.radians(-25.0 + 1.25 * ring) for ring in range(RINGS)], COLUMNS)
    return LidarTurn(world, (0.0, 0.0, 0.0), matrix_from_rpy(0.0, 0.0, 0.0), beams, 0.5, REACH_M, 0.0, 0.0)


def _rate(lidar: LidarTurn, tilt: float) -> float:
    """Millions of rays a second."""
    motion, nobody = _motion(tilt), np.zeros((0, 15))
    lidar.distances(motion, nobody)
    return RINGS * COLUMNS / cpu_seconds(lambda: lidar.distances(motion, nobody)) / 1e6


def _rays() -> list[Result]:
    surface, ground, mesh = np.zeros((SIDE, SIDE), np.uint8), _ground(), _posts()
    bare = _lidar(World(CELL, ground, surface, (), (), -250.0, -250.0))
    full = _lidar(World(CELL, ground, surface, (), (), -250.0, -250.0, mesh))
    name, unit = f"LiDAR {RINGS} × {COLUMNS}", "M rays/s"
    embree = _embree(mesh, full)
    return [
        Result(f"{name}, heightmap {SIDE} × {SIDE}, upright", _rate(bare, 0.0), unit, 15.0),
        Result(f"{name}, the same, tilted by 3°", _rate(bare, 0.05), unit),
        Result(f"{name}, heightmap and 75,000 triangles, upright", _rate(full, 0.0), unit, 15.0, 27.0, peer=embree),
        Result(f"{name}, the same, tilted by 3°", _rate(full, 0.05), unit, peer=embree),
        *_on_two_cores(full, name, unit),
    ]


def _on_two_cores(lidar: LidarTurn, name: str, unit: str) -> list[Result]:
    if not has_two_cores():
        return []
    shared, nobody = replace(lidar, workers=Threads(2)), np.zeros((0, 15))

    def rate(tilt: float) -> float:
        motion = _motion(tilt)
        return RINGS * COLUMNS / wall_seconds(lambda: shared.distances(motion, nobody), 200) / 1e6

    with all_cores():
        return [
            Result(f"{name} and 75,000 triangles, upright, two threads on two cores, wall time", rate(0.0), unit),
            Result(f"{name}, the same, tilted by 3°", rate(0.05), unit),
        ]


def _embree(mesh: Mesh, lidar: LidarTurn) -> str:
    """Embree on the triangles alone."""
    try:
        from embreex.mesh_construction import TriangleMesh
        from embreex.rtcore_scene import EmbreeScene
    except ImportError:
        return "embreex is not installed"
    scene = EmbreeScene()
    TriangleMesh(scene, mesh.vertices[mesh.triangles].astype(np.float32))
    rays = lidar.beams.directions.reshape(3, -1).T.astype(np.float32).copy()
    origins = np.tile(np.float32(PLACE), (len(rays), 1))
    seconds = cpu_seconds(lambda: scene.run(origins, rays, query="DISTANCE"))
    return f"embreex on the triangles alone: {len(rays) / seconds / 1e6:.1f} M rays/s"


def _cars() -> list[Result]:
    """A car at 5 m/s with a LiDAR at 20 Hz and three plain cameras of 128 × 128."""
    return [
        Result(
            "car in worlds/minimal_test: LiDAR 16 × 360 at 20 Hz, three plain cameras at 12 Hz",
            _real_time_factor("minimal_test", 12.0, 360),
            "× real time",
            5.0,
        ),
        Result(
            "car in worlds/oval: LiDAR 32 × 360 at 20 Hz, three plain cameras at 2 Hz",
            _real_time_factor("oval", 2.0, 360),
            "× real time",
        ),
        Result(
            "car in worlds/oval: LiDAR 32 × 1024 at 20 Hz, three plain cameras at 12 Hz",
            _real_time_factor("oval", 12.0, 1024),
            "× real time",
        ),
    ]


def _real_time_factor(world: str, camera_hz: float, columns: int) -> float:
    camera = {
        "type": "camera",
        "hz": camera_hz,
        "render": "plain",
        "resolution": {"width": 128, "height": 128},
        "intrinsics": {"fx": 100.0, "cx": 64.0, "cy": 64.0},
    }
    sensors: dict[str, Any] = {f"camera_{name}": camera for name in ("front", "front_left", "front_right")}
    sim = Simulation({"world": world, "robots": {"ego": {"sensors": {**sensors, "lidar_top": {"columns": columns}}}}})
    half_a_second = round(float(sim.scenario.physics_hz) / 2)

    def drive() -> None:
        sim.reset()
        for _ in range(2 * SECONDS):
            sim.command("ego", speed=5.0)
            sim.step(half_a_second)

    drive()
    return SECONDS / cpu_seconds(drive, rounds=3)
