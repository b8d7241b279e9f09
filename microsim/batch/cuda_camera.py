"""What a thread of a GPU does for plain cameras: see `camera_kernels`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float64, int32, uint8

from microsim.batch import camera_kernels
from microsim.engine import calls

_integers_at = calls.integers_at
_expose, _release = camera_kernels.expose, camera_kernels.release


def expose_loop() -> Callable[..., None]:
    def loop(count: int, camera: int, worlds: int, tick: int) -> None:
        index = cuda.grid(1)
        if index < count:
            w = _integers_at(worlds, count)[index]
            _expose(camera, w, _integers_at(tick, w + 1)[w])

    return loop


def release_loop() -> Callable[..., None]:
    def loop(count: int, camera: int, worlds: int, tick: int) -> None:
        index = cuda.grid(1)
        if index < count:
            w = _integers_at(worlds, count)[index]
            _release(camera, w, _integers_at(tick, w + 1)[w])

    return loop


def frame_loop(step: Callable[..., Any]) -> Callable[..., None]:
    """A thread for each of the `each` shapes, patches or pixels of every frame that is drawn."""

    def loop(count: int, camera: int, worlds: int, each: int) -> None:
        index = cuda.grid(1)
        if index < count:
            room, words, byte = (
                cuda.local.array((3, 2, 2), float64),
                cuda.local.array(6, int32),
                cuda.local.array(1, uint8),
            )
            n = index // each
            step(camera, _integers_at(worlds, n + 1)[n], n, index % each, room, words, byte)

    return loop
