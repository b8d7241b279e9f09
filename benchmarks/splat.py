"""Splat cameras: frames on one and two threads beside a plain numba loop and torch; loading; `--gpu`: on a GPU.

`python -m benchmarks.splat [--gpu]` runs it alone, without what `python -m benchmarks` needs.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

import microsim
from benchmarks.harness import TORCH, Result, cpu_seconds, run_peer
from microsim.bundle.bundle_writing import splat_header
from microsim.render.palette_camera import CameraModel
from microsim.render.render_options import render_request
from microsim.render.splat.activation import activate
from microsim.render.splat.picture import CpuRenderer, Shot, lens_of
from microsim.render.splat.projection import footprint_in
from microsim.render.splat.rasteriser import Rasteriser
from microsim.threads import Threads
from tests.unit.render import splat_scenes

SIZE = (640, 480)
GPU_SIZE = (1280, 720)
ACTOR_SPLATS = 10_000
CEILINGS_MS = {100_000: 35.0, 1_000_000: 115.0}
FIELD_OF_VIEW = math.radians(80)


def shot(rows: Any, size: tuple[int, int], yaw: float = 0.3) -> Shot:
    width, height = size
    focal = width / 2 / math.tan(FIELD_OF_VIEW / 2)
    camera = CameraModel(width, height, focal, focal, width / 2 - 0.5, height / 2 - 0.5)
    scene = splat_scenes.Shot(rows, yaw=yaw)
    return Shot(lens_of(camera), scene.position, scene.rotation)


def measure() -> list[Result]:
    results = []
    for count, ceiling in CEILINGS_MS.items():
        rows = splat_scenes.yard(count)
        results += _frames(count, rows, ceiling)
    return [*results, *_actors(), *_torch(), _loading(5_000_000, 5.0), _loading(10_000_000)]


def _frames(count: int, rows: Any, ceiling: float) -> list[Result]:
    splats, view = activate(rows), shot(rows, SIZE)
    one = CpuRenderer(splats)
    one.pictures([view])
    name = f"splats: {count:,} at {SIZE[0]}×{SIZE[1]}"
    frame = cpu_seconds(lambda: one.pictures([view]))
    results = [Result(f"{name}, one thread", 1e3 * frame, "ms", ceiling, at_most=True)]
    rasteriser = Rasteriser(splats)
    plain = _plain_loop(rasteriser, view)
    results.append(Result(f"{name}, against a loop over pixels", plain / frame, "×", 5.0, peer=f"{1e3 * plain:.0f} ms"))
    if len(os.sched_getaffinity(0)) > 1:
        two = CpuRenderer(splats, Threads(2))
        alone, both = (_wall_seconds(lambda r=renderer: r.pictures([view])) for renderer in (one, two))
        results.append(Result(f"{name}, two threads against one", alone / both, "×", 1.6))
    return results


def _actors() -> list[Result]:
    """The oval's front camera, before it ten cars that move: as models, and as splats of their own."""
    if len(os.sched_getaffinity(0)) < 2:
        return []
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, own in _kinds_of_actors(folder):
            sim = microsim.Simulation(ten_actors(**own))
            seconds = _wall_seconds(lambda sim=sim: sim.step(100))  # one second
            name = f"splats: the oval at {SIZE[0]}×{SIZE[1]}, 12 Hz, ten moving actors ({kind}), two threads"
            results.append(Result(name, 1.0 / seconds, "× real time", 1.0))
    return results


def _kinds_of_actors(folder: str) -> list[tuple[str, dict[str, Any]]]:
    rows = car_of_splats(ACTOR_SPLATS)
    (Path(folder) / "car.ply").write_bytes(splat_header(len(rows), 3, w_first=True) + rows.tobytes())
    return [("models", {}), (f"{ACTOR_SPLATS:,} splats each", {"splats": f"{folder}/car.ply"})]


def ten_actors(**own: Any) -> dict[str, Any]:
    camera = {"camera_front_left": None, "camera_front_right": None, "lidar_top": None}
    robots: dict[str, Any] = {"ego": {"sensors": camera}}
    for k in range(10):
        x, y = -11.0 + 5.0 * (k // 2), -32.0 + 4.0 * (k % 2)
        path = [[0, x, y], [60, x + 30.0, y]]
        robots[f"other_{k}"] = {"model": "actor", "shape": "car", "path": path, **own}
    return {"world": "oval", "robots": robots}


def car_of_splats(count: int) -> Any:
    """The surfaces of two boxes, covered with small splats of degree 3."""
    rng = np.random.default_rng(0)
    is_cabin = rng.random(count) < 0.3
    size = np.where(is_cabin[:, None], (2.2, 1.6, 0.55), (4.4, 1.8, 0.7))
    places, face = rng.uniform(-0.5, 0.5, (count, 3)), rng.choice(3, count, p=(0.15, 0.35, 0.5))
    places[np.arange(count), face] = np.where(rng.random(count) < 0.5, -0.5, 0.5)
    means = places * size + np.where(is_cabin[:, None], (-0.2, 0.0, 1.25), (0.0, 0.0, 0.65))
    scales = np.full((count, 3), 0.7 * math.sqrt(30.0 / count))
    scales[np.arange(count), face] *= 0.2
    harmonics = rng.normal(0.0, 0.03, (count, 16, 3))
    is_glass = is_cabin & (face < 2)
    harmonics[:, 0] += np.where(is_glass[:, None], (-1.4, -1.35, -1.25), (0.9, -0.7, -0.9))
    turns = np.broadcast_to((0.0, 0.0, 0.0, 1.0), (count, 4))
    return splat_scenes.file_rows(means, scales, turns, np.full(count, 0.9), harmonics)


def _wall_seconds(work: Callable[[], Any], rounds: int = 9) -> float:
    work()
    best = math.inf
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def _plain_loop(rasteriser: Rasteriser, view: Shot) -> float:
    """What it costs to blend pixel by pixel, given the same sorted lists of every tile."""
    limits = np.full((SIZE[1], SIZE[0]), np.inf, np.float32)
    behind = np.zeros((SIZE[1], SIZE[0], 3), np.float32)
    chunks = rasteriser._project(view.view)
    columns, rows = SIZE[0] // 16, SIZE[1] // 16
    lists, offsets = rasteriser._by_tile(rasteriser._in_order(chunks), columns, rows)
    before = cpu_seconds(
        lambda: rasteriser._by_tile(rasteriser._in_order(rasteriser._project(view.view)), columns, rows)
    )
    out = np.empty_like(behind)
    work = lambda: pixel_by_pixel(rasteriser._sorted_footprints, lists, offsets, columns, out)  # noqa: E731
    work()
    expected = rasteriser.render(view.view, behind, limits).colours
    assert np.abs(out - expected).max() < 5e-3, "the loop draws something else"
    return before + cpu_seconds(work, 3)


@numba.njit(cache=True)
def pixel_by_pixel(footprints: Any, lists: Any, offsets: Any, columns: int, out: Any) -> None:
    """As one would write it first: for every pixel, its tile's splats until it is full."""
    for v in range(out.shape[0]):
        for u in range(out.shape[1]):
            tile = (v // 16) * columns + u // 16
            rest, red, green, blue = 1.0, 0.0, 0.0, 0.0
            for k in range(offsets[tile], offsets[tile + 1]):
                f = footprint_in(footprints[lists[k]])
                dx, dy = f.centre_x + f.rest_x - u, f.centre_y + f.rest_y - v
                p, q = f.root_xx * dx + f.root_xy * dy, f.root_yy * dy
                alpha = min(0.99, f.opacity * math.exp(-(p * p + q * q)))
                if alpha < 1.0 / 255.0:
                    continue
                if rest * (1.0 - alpha) <= 1e-4:
                    break
                weight = rest * alpha
                red, green, blue = red + weight * f.red, green + weight * f.green, blue + weight * f.blue
                rest *= 1.0 - alpha
            out[v, u, 0], out[v, u, 1], out[v, u, 2] = red, green, blue


def _torch() -> list[Result]:
    """The same picture in torch operations on one thread: with gsplat's own code, and with ours, which is quicker."""
    rows = splat_scenes.yard(100_000)
    splats, view = activate(rows), shot(rows, SIZE)
    with tempfile.TemporaryDirectory() as folder:
        scene = Path(folder) / "scene.npz"
        np.savez(scene, geometry=splats.geometry, harmonics=splats.harmonics, view=view.view)
        peers = {name: run_peer(f"splat_{name}.py", str(scene), python=TORCH) for name in ("gsplat", "torch")}
    renderer = CpuRenderer(splats)
    ours = cpu_seconds(lambda: renderer.pictures([view]))
    mean = float(renderer.pictures([view])[0].colours.mean())
    results = []
    for name, found in peers.items():
        if found is not None:
            assert abs(mean - found["mean"]) < 1.0, f"{name} draws something else: mean {found['mean']}, ours {mean}"
            peer = f"{name} {found['version']}: {found['seconds']:.2f} s"
            floor = 50.0 if name == "gsplat" else None
            title = f"splats: 100,000 at 640×480, one thread, against {name} on the CPU"
            results.append(Result(title, found["seconds"] / ours, "×", floor, peer=peer))
    return results


def _loading(count: int, ceiling: float | None = None) -> Result:
    """Splats of degree 3 from a mapped file to a scene that can be drawn."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows"
        part = splat_scenes.yard(count // 20)
        with file.open("wb") as out:
            for k in range(20):
                part[:, 0] += np.float32(1e-3 * k)
                out.write(part.tobytes())
        rows = np.memmap(file, np.float32, "r", shape=(count, part.shape[1]))
        seconds = cpu_seconds(lambda: activate(rows), 2)
    return Result(f"loading {count:,} splats", seconds, "s", ceiling, at_most=True)


def measure_gpu(counts: tuple[int, ...] = (100_000, 1_000_000, 5_000_000)) -> list[Result]:
    import cupy

    from microsim.render import gpu

    start = time.perf_counter()
    gpu.GpuRenderer(activate(splat_scenes.yard(10)))
    cold = time.perf_counter() - start
    print(f"{gpu.device_name()}, CuPy {cupy.__version__}; compiled and ready in {cold:.1f} s", flush=True)
    results = [Result("GPU: compiling, once", cold, "s", 30.0, at_most=True), *_gpu_actors()]
    pool = cupy.get_default_memory_pool()
    for count in counts:
        rows = splat_scenes.yard(count)
        start = time.perf_counter()
        splats = activate(rows)
        print(f"{count:,}: activated in {time.perf_counter() - start:.1f} s", flush=True)
        pool.free_all_blocks()
        renderer = gpu.GpuRenderer(splats)
        results += _gpu_frames(count, rows, renderer, pool)
        if count <= 1_000_000:
            view = shot(rows, GPU_SIZE)
            same = (
                renderer.pictures([view])[0].colours.tobytes()
                == CpuRenderer(splats).pictures([view])[0].colours.tobytes()
            )
            print(f"{count:,}: the bytes of the CPU: {same}", flush=True)
            assert same
        del renderer
    return results


def _gpu_actors() -> list[Result]:
    """The oval's front camera at every tick, before it ten cars that move; encoded and digested as in any run."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, own in _kinds_of_actors(folder):
            scenario = ten_actors(**own)
            scenario["robots"]["ego"]["sensors"]["camera_front"] = {"hz": 100}
            digests, frames_hz = [], 0.0
            for choice in ("cpu", "gpu"):
                render_request.choice = choice
                sim = microsim.Simulation(scenario)
                sim.step(10)
                digests.append(sim.digest())
                if choice == "gpu":
                    frames_hz = 100.0 / _wall_seconds(lambda sim=sim: sim.step(100), 5)
            render_request.choice = "auto"
            assert digests[0] == digests[1], f"the GPU draws something else: {digests}"
            name = f"GPU: the oval at {SIZE[0]}×{SIZE[1]}, ten moving actors ({kind})"
            results.append(Result(name, frames_hz, "frames/s", 300.0))
    return results


def _gpu_frames(count: int, rows: Any, renderer: Any, pool: Any) -> list[Result]:
    import cupy

    view = shot(rows, GPU_SIZE)
    around = [shot(rows, GPU_SIZE, yaw) for yaw in (0.3, 1.9, 3.4, 5.0)]
    for _ in range(5):
        renderer.pictures(around)
    stages = _stages(renderer, lambda: renderer._enqueue(view))
    times = []
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    for _ in range(50):
        begin.record()
        renderer._enqueue(view)
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end))
    frame = sorted(times)[len(times) // 2]
    wall, batch = (
        _wall_seconds(lambda: renderer.pictures([view]), 30),
        _wall_seconds(lambda: renderer.pictures(around), 15),
    )
    digests = {hashlib.sha256(renderer.pictures([view])[0].colours.tobytes()).hexdigest() for _ in range(20)}
    boxes, pairs = (int(n) for n in renderer._counters)
    split = ", ".join(f"{name} {value:.3f}" for name, value in stages.items())
    print(
        f"{count:,} at {GPU_SIZE[0]}×{GPU_SIZE[1]}: {pairs:,} pairs (boxes {boxes:,}), {frame:.3f} ms on the GPU; "
        f"kernel by kernel {split}; "
        f"picture in host memory {1e3 * wall:.2f} ms, 4 cameras {1e3 * batch:.2f} ms; "
        f"{pool.total_bytes() / 2**30:.2f} GiB; distinct pictures in 20 runs: {len(digests)}",
        flush=True,
    )
    name = f"GPU: {count:,} at {GPU_SIZE[0]}×{GPU_SIZE[1]}"
    is_large = count == 5_000_000
    return [
        Result(name, frame, "ms", 2.2 if is_large else None, 1.2 if is_large else None, at_most=True),
        Result(f"{name}, in host memory", 1e3 * wall, "ms"),
        Result(f"{name}, memory", pool.total_bytes() / 2**30, "GiB", 8.0 if is_large else None, at_most=True),
    ]


def _stages(renderer: Any, work: Callable[[], Any], rounds: int = 15) -> dict[str, float]:
    """Milliseconds of every kernel: the least of several rounds, each kernel waited for."""
    import cupy

    kernels, best = dict(renderer._kernels), {}

    def timed(name: str, kernel: Any) -> Callable[..., None]:
        def call(*arguments: Any, **more: Any) -> None:
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            kernel(*arguments, **more)
            end.record()
            end.synchronize()
            spent[name] = spent.get(name, 0.0) + cupy.cuda.get_elapsed_time(begin, end)

        return call

    for _ in range(rounds):
        spent: dict[str, float] = {}
        renderer._kernels.update({name: timed(name, kernel) for name, kernel in kernels.items()})
        work()
        best = {name: min(value, best.get(name, math.inf)) for name, value in spent.items()}
    renderer._kernels.update(kernels)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.splat", description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="measure the GPU back end instead of the CPU's")
    parser.add_argument("--counts", default="100000,1000000,5000000", help="splats of the GPU's scenes")
    chosen = parser.parse_args()
    counts = tuple(int(number) for number in chosen.counts.split(","))
    results = measure_gpu(counts) if chosen.gpu else measure()
    for result in results:
        sign = "≤" if result.at_most else "≥"
        demand = f"  (must be {sign} {result.floor:g})" if result.floor is not None else ""
        print(
            f"{'' if result.good else 'MISSED  '}{result.name}: {result.value:.3g} {result.unit}{demand}  {result.peer}"
        )
    return 0 if all(result.good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
