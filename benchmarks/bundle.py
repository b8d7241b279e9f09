"""World bundles: asking for the road, and loading a gigabyte."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness import Result, cpu_seconds
from microsim.bundle.bundle_writing import splat_header, write_bundle
from microsim.engine.compiled import kernel
from microsim.engine.drivable import drivable_area, polygon_at
from microsim.parts.worlds.generate import generate_world

POLYGONS = 1000
QUERIES = 100_000
GAUSSIANS = 3_700_000  # of sh_degree 3: 236 bytes each
SIDE = 4096
TRIANGLES = 4_000_000

_LOAD = """
import json, sys, time
import numpy, shapely, ruamel.yaml, microsim.engine.exact, microsim.bundle
def memory(name):  # of this process alone; what resource tells is inherited
    return next(1024 * int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
before = memory("VmRSS")
start = time.perf_counter()
bundle = microsim.bundle.load_bundle(sys.argv[1])
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "bytes": memory("VmHWM") - before, "gaussians": bundle.gaussians.count}))
"""


def measure() -> list[Result]:
    return [*_queries(), *_loading()]


@kernel
def _many(x, y, edges, origin, first, start, members, grid, side, buckets):  # type: ignore[no-untyped-def]
    total = 0
    for index in range(x.shape[0]):
        total += polygon_at(x[index], y[index], edges, origin, first, start, members, grid, side, buckets)
    return total


def _queries() -> list[Result]:
    """Points all over a town of a thousand overlapping polygons of 64 corners, a third of them with a hole."""
    random = np.random.default_rng(1)
    polygons, priorities = [], []
    for index in range(POLYGONS):
        x, y, radius = random.uniform(-500, 500), random.uniform(-500, 500), random.uniform(5, 40)
        hole = [_ring(x, y, 0.4 * radius, 32)[::-1]] if index % 3 == 0 else []
        polygons.append([_ring(x, y, radius, 64), *hole])
        priorities.append(float(index % 4))
    area = drivable_area(polygons, priorities)
    x, y = random.uniform(-520, 520, QUERIES), random.uniform(-520, 520, QUERIES)
    _many(x, y, *area.arrays)
    kernel_us = 1e6 * cpu_seconds(lambda: _many(x, y, *area.arrays)) / QUERIES
    points = list(zip(x[:2000].tolist(), y[:2000].tolist(), strict=True))
    python_us = 1e6 * cpu_seconds(lambda: [area.polygon_at(*point) for point in points]) / len(points)
    name = f"off-road query, {POLYGONS:,} polygons"
    return [
        Result(f"{name}, from a kernel", kernel_us, "µs", 2.0, at_most=True, peer=_shapely(polygons, points)),
        Result(f"{name}, from Python", python_us, "µs"),
    ]


def _ring(x: float, y: float, radius: float, corners: int) -> np.ndarray:
    angles = [math.tau * index / corners for index in range(corners)]
    points = [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles]
    return np.array([*points, points[0]])


def _shapely(polygons: list[list[np.ndarray]], points: list[tuple[float, float]]) -> str:
    import shapely

    tree = shapely.STRtree([shapely.Polygon(rings[0], rings[1:]) for rings in polygons])
    shapes = shapely.points(points)
    seconds = cpu_seconds(lambda: [tree.query(shape, "intersects") for shape in shapes])
    return f"shapely's STRtree from Python: {1e6 * seconds / len(points):.1f} µs"


def _loading() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="microsim_gigabyte_") as folder:
        bundle = Path(folder) / "gigabyte"
        size = _write_gigabyte(bundle)
        runs = [_load_once(bundle) for _ in range(3)]
    seconds = min(run["seconds"] for run in runs)
    memory = min(run["bytes"] for run in runs)
    name = f"a bundle of {size / 1e9:.2f} GB"
    return [
        Result(f"load and check {name}", seconds, "s", 3.0, at_most=True, peer="wall time, files in the page cache"),
        Result(f"memory of that, mapped pages counted, beside {name}", memory / size, "× its size", 1.5, at_most=True),
    ]


def _sheet(triangles: int) -> tuple[np.ndarray, np.ndarray]:
    """A square sheet of so many triangles, with half as many vertices."""
    side = math.isqrt(triangles // 2)
    x, y = np.meshgrid(np.arange(side + 1, dtype=np.float32), np.arange(side + 1, dtype=np.float32))
    vertices = np.stack([0.01 * x.ravel(), 0.01 * y.ravel(), np.zeros(x.size, np.float32)], axis=1)
    corner = (np.arange(side)[:, None] * (side + 1) + np.arange(side)[None, :]).ravel()
    lower = np.stack([corner, corner + 1, corner + side + 2], axis=1)
    upper = np.stack([corner, corner + side + 2, corner + side + 1], axis=1)
    return vertices, np.concatenate([lower, upper]).astype(np.int32)


def _load_once(bundle: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, str(bundle)], capture_output=True, text=True, check=True, env=environment
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _write_gigabyte(folder: Path) -> int:
    content = generate_world("minimal", "gigabyte")
    content.heights = np.zeros((SIDE, SIDE), np.float32)
    content.gaussians = np.zeros((0, 59), np.float32)
    content.sh_degree = 3
    content.mesh = _sheet(TRIANGLES)
    write_bundle(folder, content)
    rows = np.random.default_rng(2).normal(0.0, 1.0, (100_000, 59)).astype("<f4")
    rows[:, 6:10] = 0.5
    with (folder / "gaussians/background.splat.ply").open("wb") as stream:
        stream.write(splat_header(GAUSSIANS, 3))
        for _ in range(GAUSSIANS // len(rows)):
            stream.write(rows.tobytes())
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
