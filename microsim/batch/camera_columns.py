"""One camera of the scenario in every world.

A frame is drawn when it leaves, from the pose at which it was taken; one that is followed by another in the same call
is not drawn at all.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from microsim.batch.columns import Integers
from microsim.batch.sensor_columns import SensorColumns
from microsim.engine.motion import FIELDS, Motion, observe
from microsim.engine.pipeline import Delayed, latency
from microsim.errors import UsageError
from microsim.outputs import MountedCamera, camera_model, mounted_camera
from microsim.render.image_noise import ImageNoise


class CameraColumns(SensorColumns):
    """Colours (n, height, width, 3) uint8; black until the first frame has left."""

    dtype = np.uint8
    has_history = True

    def prepare(self) -> None:
        if self.block.is_splat:
            where = f"robots.{self.robot.name}: the camera {self.name}"
            raise UsageError(f"{where} draws splats, which a batch cannot: write `render: plain` or take it away")
        self.model = camera_model(self.block)
        self.shape = (self.model.height, self.model.width, 3)
        self._pipelines: dict[int, Delayed] = {}
        self._left: dict[int, tuple[int, Motion]] = {}  # frames that have left and are not drawn yet
        self._tables: dict[int, Any] = {}  # shapes of worlds with obstacles of their own
        self._own = threading.local()  # what draws holds buffers: one for each thread

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        super().reset(worlds, seeds)
        self.readings[worlds] = 0
        for world, seed in zip(worlds.tolist(), seeds.tolist(), strict=True):
            self._left.pop(world, None)
            self._tables.pop(world, None)
            self._pipelines[world] = self._pipeline(world, seed)

    def _pipeline(self, world: int, seed: int) -> Delayed:
        delay, name = self.block.latency_ms, f"{self.robot.name}/{self.name}/latency"
        hz = self.robot.scenario.physics_hz
        pipeline = latency(delay.mean, delay.jitter, delay.drop_probability, hz, seed, name)

        def send(sampled_at: int, motion: Motion) -> None:
            self._left[world] = (sampled_at, motion)

        return Delayed(self.trigger, pipeline, lambda tick: self._motion(world), send)

    def _motion(self, world: int) -> Motion:
        seen = np.empty((1, FIELDS))
        observe(np.ascontiguousarray(self.robot.state[:, world : world + 1]), seen)
        motion: Motion = seen[0].tolist()
        return motion

    def sample(self, worlds: Integers, tick: Integers) -> None:
        for world in worlds.tolist():
            self._pipelines[world].fire(int(tick[world]), 0)

    def finish(self, worlds: Integers, tick: Integers) -> None:
        for world in worlds.tolist():
            pipeline = self._pipelines[world]
            if pipeline.due <= tick[world]:
                pipeline.fire(int(tick[world]), 0)
            if world in self._left:
                self._draw(world, *self._left.pop(world))

    def _draw(self, world: int, sampled_at: int, motion: Motion) -> None:
        camera, noise = self._tools()
        if not self.robot.ground.is_shared:
            if world not in self._tables:
                self._tables[world] = camera.renderer.table_of(self.robot.ground.obstacles(world))
            camera.renderer.show(*self._tables[world])
        self.readings[world] = noise.apply(camera.image(motion), int(self.keys[world]), sampled_at)
        self.sampled_at[world] = sampled_at

    def _tools(self) -> tuple[MountedCamera, ImageNoise]:
        tools = getattr(self._own, "tools", None)
        if tools is None:
            camera = mounted_camera(self.robot.ground.world, {}, self.robot.name, self.name, self.block)
            width, height = self.model.width, self.model.height
            noise = ImageNoise(width, height, self.block.noise.blur_sigma_px, self.block.noise.color_jitter)
            tools = self._own.tools = camera, noise
        found: tuple[MountedCamera, ImageNoise] = tools
        return found

    def memory(self, worlds: Integers, seeds: Integers, tick: Integers) -> Any:
        chosen = zip(worlds.tolist(), seeds[worlds].tolist(), tick[worlds].tolist(), strict=True)
        return [(seed, now, self._pipelines[world].memory()) for world, seed, now in chosen]

    def recall(self, worlds: Integers, memory: Any) -> None:
        for world, (seed, tick, waiting) in zip(worlds.tolist(), memory, strict=True):
            self._tables.pop(world, None)
            self._pipelines[world] = self._pipeline(world, seed)
            self._pipelines[world].recall(waiting, tick)
