"""Random worlds with plain cameras in them, and the threads of a GPU that draws, as loops on the CPU."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from microsim.batch import camera_columns, camera_kernels
from microsim.batch.host_loops import HostLoops
from microsim.engine import calls
from microsim.engine.compiled import kernel, threaded_kernel_of_kernel
from tests.support import bare
from tests.unit.batch.test_batch import HILLS, scenario

FEATURES = [
    {"type": "triangle", "class": "hazard", "vertices": [[12, 9], [15, 9], [13.5, 11.5]]},
    {"type": "triangle", "class": "hazard", "center": [5, 12], "side": 3, "yaw": 0.5, "height": 1.2},
    {"type": "rectangle", "class": "target", "center": [12, 14], "size": [4, 4], "yaw": 0.7854},
    {"type": "circle", "class": "water", "center": [11, 5], "radius": 1.2},
    {"type": "circle", "class": "obstacle", "center": [8, 8], "radius": 0.8, "height": 0.6},
    {"type": "billboard", "class": "target", "center": [16, 12], "size": [2, 1.5], "yaw": 3.9, "base_z": 1},
    {"type": "billboard", "class": "hazard", "center": [4, 11], "size": [1, 2]},
]
SMALL = {"width": 8, "height": 6}
LATENCY = {"mean": 40, "jitter": 30, "drop_probability": 0.1}


def _camera(**more: Any) -> dict[str, Any]:
    return {"hz": 20, "resolution": SMALL, "latency_ms": LATENCY, "mount": {"rpy": [-1.9, 0.2, -1.4]}, **more}


_SECOND = {"type": "camera", **_camera(hz=30, projection="fisheye", noise={"blur_sigma_px": 0})}
_DRONE = bare(start={"map_pose": {"x": 4, "y": 4, "z": 4}}, camera=_camera(noise={"color_jitter": 0.2}))
_ROVER = bare(start={"map_pose": {"x": 6, "y": 6}}, sensors={"second": _SECOND})
_FAULTS = [
    {"target": "drone/camera", "kind": "fail", "from_s": 0.0, "to_s": 0.1},
    {"target": "drone/camera", "kind": "fail", "from_s": 0.15, "to_s": 0.25},
    {"target": "rover/second", "kind": "dropout", "from_s": 0.05, "to_s": 0.15},
]
SOURCES: dict[str, dict[str, Any]] = {
    "cameras": scenario(robots={"drone": _DRONE, "rover": _ROVER}, features=FEATURES, faults=_FAULTS),
    "cameras on hills": scenario(
        robots={"drone": _DRONE},
        features=FEATURES[4:],
        map={**HILLS, "size_xy_cells": [8, 6]},
        randomize={
            "obstacles": {"shift_m": 5, "keep_probability": 0.7},
            "starts": {"drone": {"x": [1, 7], "z": [0, 4]}},
        },
    ),
}


def random_source(dice: np.random.Generator, largest: int) -> dict[str, Any]:
    """A drone and a rover with a camera each, anywhere, looking anywhere; images of up to `largest` pixels a side."""

    def camera() -> dict[str, Any]:
        width, height = (int(each) for each in dice.integers(1, largest + 1, 2))
        bend = {"distortion": {"model": "plumb_bob", "D": [-0.2, 0.05, 0.01, 0, 0]}} if dice.random() < 0.3 else {}
        return {
            "hz": float(dice.choice([3.0, 10.0, 17.0, 60.0])),
            "resolution": {"width": width, "height": height},
            "projection": "fisheye" if not bend and dice.random() < 0.3 else "pinhole",
            "noise": {"blur_sigma_px": float(dice.choice([0, 0.5, 2.0])), "color_jitter": float(dice.choice([0, 0.3]))},
            "latency_ms": {"mean": float(dice.choice([0, 80])), "jitter": float(dice.choice([0, 60]))},
            "mount": {"xyz": dice.uniform(-0.3, 0.3, 3).tolist(), "rpy": dice.uniform(-3.1, 3.1, 3).tolist()},
            **bend,
        }

    def robot(**height: float) -> dict[str, Any]:
        x, y, yaw = dice.uniform((0.5, 0.5, -3), (4.5, 6.5, 3)).tolist()
        return bare(start={"map_pose": {"x": x, "y": y, "yaw": yaw, **height}}, camera=camera())

    ground = dice.choice(["flat", "hills", "small"])
    size = [20, 20] if ground != "small" else [5, 7]
    chosen = [each for each in FEATURES if dice.random() < 0.6]
    return scenario(
        robots={"drone": robot(z=float(dice.uniform(2.5, 9))), "rover": robot()},
        features=chosen,
        map={"size_xy_cells": size} if ground == "flat" else {**HILLS, "size_xy_cells": size},
        randomize={"obstacles": {"shift_m": 6, "keep_probability": 0.7}} if dice.random() < 0.5 else None,
    )


class ThreadsOnCpu(HostLoops):
    """Runs what threads of a GPU would, one after the other; robots move as on the CPU."""

    name = "cuda"

    def array(self, values: Any) -> Any:
        return values.copy()

    def launch(self, count: int, make: Callable[..., Any], constants: tuple[Any, ...], *arguments: int) -> None:
        if make is camera_columns.frame_loop:
            _frame_loop(constants[0])(count, *arguments)
        else:
            (_expose if make is camera_columns.expose_loop else _release)(count, *arguments)


_integers_at = calls.integers_at
_expose_one, _release_one = camera_kernels.expose, camera_kernels.release


@kernel
def _expose(count: int, camera: int, worlds: int, tick: int) -> None:
    for index in range(count):
        w = _integers_at(worlds, count)[index]
        _expose_one(camera, w, _integers_at(tick, w + 1)[w])


@kernel
def _release(count: int, camera: int, worlds: int, tick: int) -> None:
    for index in range(count):
        w = _integers_at(worlds, count)[index]
        _release_one(camera, w, _integers_at(tick, w + 1)[w])


@cache
def _frame_loop(step: Any) -> Any:
    def loop(count: int, camera: int, worlds: int, each: int) -> None:
        room, words, byte = np.empty((3, 2, 2)), np.empty(6, np.int32), np.empty(1, np.uint8)
        for index in range(count):
            n = index // each
            step(camera, _integers_at(worlds, n + 1)[n], n, index % each, room, words, byte)

    return threaded_kernel_of_kernel(loop)
