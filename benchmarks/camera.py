"""The camera on one core: frames per second over flat ground and over relief, among 50 solids; noise; compiling."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Result, cpu_seconds, run_peer
from microsim.engine.world import HAZARD, OBSTACLE, TARGET, Shape, World
from microsim.render.image_noise import ImageNoise
from microsim.render.palette_camera import CameraModel, Renderer, Rotation

MAP_M = 200
SOLIDS = 50
FIELD_OF_VIEW = math.radians(70)
SIZES = ((128, 128), (640, 480))
FLOORS = {(128, 128): (3000.0, 500.0), (640, 480): (250.0, 30.0)}  # over flat ground, over relief [frames/s]
COMPILE = """
import time
from benchmarks.camera import first_frame, flat_world, relief_world
worlds = flat_world(), relief_world()
start = time.process_time()
for world in worlds:
    first_frame(world)
print(time.process_time() - start)
"""


def measure() -> list[Result]:
    flat, relief = flat_world(), relief_world()
    results = []
    for size in SIZES:
        floors = FLOORS[size]
        name = f"camera {size[0]}×{size[1]}, {SOLIDS} solids, slowest of {len(VIEWS)} views"
        goal = 8000.0 if size == (128, 128) else None
        results.append(Result(f"{name}, flat ground", _slowest(flat, size), "frames/s", floors[0], goal))
        results.append(Result(f"{name}, relief", _slowest(relief, size), "frames/s", floors[1]))
    return [*results, *_mujoco(flat), *_noise(flat), _compile_time()]


def _looking(yaw: float, pitch: float) -> Rotation:
    """Rows of the matrix from the optical to the map frame, `pitch` below the horizon."""
    sy, cy, sp, cp = math.sin(yaw), math.cos(yaw), math.sin(pitch), math.cos(pitch)
    return (sy, -cy * sp, cy * cp), (-cy, -sy * sp, sy * cp), (0.0, -cp, -sp)


VIEWS = {  # x, y, height above ground, rotation
    "at eye height": (100.0, 100.0, 1.5, _looking(0.4, 0.0)),
    "from a flight": (60.0, 60.0, 25.0, _looking(0.7, 0.6)),
    "straight down": (100.0, 95.0, 10.0, _looking(0.0, 0.5 * math.pi)),
}


def solids() -> list[dict[str, Any]]:
    dice = random.Random(3)
    found = []
    for index in range(SOLIDS):
        x, y = dice.uniform(10, MAP_M - 10), dice.uniform(10, MAP_M - 10)
        if abs(x - 100) < 6 and abs(y - 100) < 6:
            x += 12.0
        size = dice.uniform(2, 10), dice.uniform(2, 10), dice.uniform(2, 12)
        kind = ("rectangle", "circle", "triangle")[index % 3]
        found.append({"kind": kind, "x": x, "y": y, "size": size, "yaw": dice.uniform(-math.pi, math.pi)})
    return found


def _shape(solid: dict[str, Any]) -> Shape:
    x, y, yaw = solid["x"], solid["y"], solid["yaw"]
    length, width, height = solid["size"]
    corners = tuple((x + 0.5 * length * math.cos(yaw + a), y + 0.5 * length * math.sin(yaw + a)) for a in (0, 2.1, 4.2))
    class_id = {"rectangle": OBSTACLE, "circle": HAZARD, "triangle": TARGET}[solid["kind"]]
    return Shape(solid["kind"], class_id, (x, y), (length, width), 0.5 * length, corners, yaw, height_m=height)


def flat_world() -> World:
    return _world(np.zeros((MAP_M, MAP_M)))


def relief_world() -> World:
    """Hills of some metres with rough ground upon them."""
    x, y = np.meshgrid(np.arange(MAP_M), np.arange(MAP_M))
    rough = np.random.default_rng(5).normal(size=(MAP_M, MAP_M))
    return _world(2.0 * np.sin(x / 9.0) * np.cos(y / 7.0) + np.sin((x + y) / 17.0) + 0.1 * rough)


def _world(elevation: Any) -> World:
    surface = np.zeros(elevation.shape, np.uint8)
    surface[80:90, 100:130] = 4
    return World(1.0, elevation, surface, (), tuple(_shape(solid) for solid in solids()))


def _model(width: int, height: int) -> CameraModel:
    focal = 0.5 * width / math.tan(0.5 * FIELD_OF_VIEW)
    return CameraModel(width, height, focal, focal, 0.5 * width, 0.5 * height)


def _frame(world: World, renderer: Renderer, view: str) -> Callable[[], Any]:
    x, y, above, rotation = VIEWS[view]
    position = (x, y, world.ground(x, y) + above)
    return lambda: renderer.render(position, rotation)


def first_frame(world: World) -> Any:
    image = _frame(world, Renderer(world, _model(128, 128)), "from a flight")()
    return ImageNoise(128, 128, 0.5, 0.0).apply(image, 1, 1)


def _seconds(work: Callable[[], Any], frames: int) -> float:
    """CPU time of one frame, of rounds of so many."""
    work()

    def round_of_frames() -> None:
        for _ in range(frames):
            work()

    return cpu_seconds(round_of_frames) / frames


def _slowest(world: World, size: tuple[int, int]) -> float:
    renderer = Renderer(world, _model(*size))
    frames = 100 if size == (128, 128) else 8
    return 1.0 / max(_seconds(_frame(world, renderer, view), frames) for view in VIEWS)


def _noise(world: World) -> list[Result]:
    """The default camera: 128×128, straight down, blur of half a pixel."""
    renderer, noise = Renderer(world, _model(128, 128)), ImageNoise(128, 128, 0.5, 0.0)
    frame = _frame(world, renderer, "straight down")
    image = frame()
    blur = _seconds(lambda: noise.apply(image, 1, 1), 200)
    whole = _seconds(lambda: noise.apply(frame(), 1, 1), 200)
    return [
        Result("blur of 0.5 px, 128×128", 1e3 * blur, "ms", goal=0.05, at_most=True),
        Result("default camera frame with its blur", 1e3 * whole, "ms", 0.2, at_most=True),
    ]


def _mujoco(world: World) -> list[Result]:
    """The same view of the same solids (a triangle is drawn as a box) by MuJoCo's software renderer, no shadows."""
    results = []
    scene = json.dumps({"solids": solids(), "map_m": MAP_M, "fovx": FIELD_OF_VIEW, "view": VIEWS["from a flight"]})
    for size, floor in zip(SIZES, (15.0, None), strict=True):
        ours = 1.0 / _seconds(_frame(world, Renderer(world, _model(*size)), "from a flight"), 30)
        name = f"camera {size[0]}×{size[1]}, flat ground, against MuJoCo"
        peer = None
        for backend in ("egl", "osmesa"):
            software = {"MUJOCO_GL": backend, "LIBGL_ALWAYS_SOFTWARE": "1", "LP_NUM_THREADS": "0"}
            peer = peer or run_peer("mujoco_render.py", str(size[0]), str(size[1]), scene, environment=software)
        if peer:
            text = f"MuJoCo {peer['version']} ({peer['renderer']}): {peer['frames_per_s']:,.0f} frames/s"
            results.append(Result(name, ours / peer["frames_per_s"], "×", floor, peer=text))
        else:
            results.append(Result(name, 0.0, "×", peer="NOT MEASURED: MuJoCo's renderer could not run here"))
    return results


def _compile_time() -> Result:
    """All kernels of the camera, with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        done = subprocess.run(
            [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=True
        )
    return Result("compiling the camera's kernels, once", float(done.stdout), "s", 12.0, 8.0, at_most=True)
