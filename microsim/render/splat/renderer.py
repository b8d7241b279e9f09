"""Pictures of a splat scene, computed on the CPU."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from microsim.render.splat.activation import Floats, Splats
from microsim.render.splat.picture import (
    NO_LOOKUP,
    NOISE_UNIT,
    Picture,
    Shot,
    develop,
    fill_sky,
    look_up_depths,
    put_things,
    sensor_depths,
)
from microsim.render.splat.rasteriser import Frame, Rasteriser, Workers, parts_of


class Renderer(Protocol):
    """A back end: the CPU's, or one that gives the same pictures sooner."""

    def pictures(self, shots: Sequence[Shot]) -> list[Picture]:
        """Of several cameras at once."""


class CpuRenderer:
    def __init__(self, splats: Splats, workers: Workers | None = None) -> None:
        self._rasteriser = Rasteriser(splats, workers)
        self._workers = self._rasteriser.workers

    def pictures(self, shots: Sequence[Shot]) -> list[Picture]:
        return [self._picture(shot) for shot in shots]

    def _picture(self, shot: Shot) -> Picture:
        behind, limits = self._background(shot)
        frame = self._rasteriser.render(shot.view, behind, limits)
        height, width = shot.lens.size
        image = np.empty((height, width, 3), np.uint8)
        lookup = NO_LOOKUP if shot.lens.lookup is None else shot.lens.lookup
        exposure = shot.exposure
        gain, level = np.float32(255.0 * exposure.gain), np.float32(exposure.noise_sigma / NOISE_UNIT)
        self._by_rows(
            height,
            lambda begin, end: develop(
                frame.colours, lookup, gain, level, exposure.key, exposure.tick, begin, end, image
            ),
        )
        return Picture(image, self._depths(frame, limits, shot))

    def _background(self, shot: Shot) -> tuple[Floats, Floats]:
        height, width, things = shot.lens.canvas.height, shot.lens.canvas.width, shot.things
        behind = np.empty((height, width, 3), np.float32)
        view, sky = shot.view, shot.sky.colours

        def fill(begin: int, end: int) -> None:
            fill_sky(view, sky, begin, end, behind)
            if things is not None:
                put_things(things.depths, things.colours, begin, end, behind)

        self._by_rows(height, fill)
        return behind, np.full((height, width), np.inf, np.float32) if things is None else things.depths

    def _depths(self, frame: Frame, limits: Floats, shot: Shot) -> Floats:
        self._by_rows(limits.shape[0], lambda begin, end: sensor_depths(frame.alphas, limits, begin, end, frame.depths))
        lookup = shot.lens.lookup
        if lookup is None:
            return frame.depths
        depths = np.empty(shot.lens.size, np.float32)
        self._by_rows(depths.shape[0], lambda begin, end: look_up_depths(frame.depths, lookup, begin, end, depths))
        return depths

    def _by_rows(self, rows: int, task: Callable[[int, int], None]) -> None:
        parts = parts_of(rows, self._workers.count)
        self._workers.run(lambda part, _: task(*parts[part]), len(parts))
