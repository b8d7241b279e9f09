"""A plain camera of all worlds on a GPU: frames wait there, are drawn there, and stay there as readings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, float64, int32, uint8

from microsim.batch import camera_kernels
from microsim.batch.batch_columns import Integers
from microsim.batch.camera_kernels import BLANK, BROKEN, CAMERA, FRAME_SIZE
from microsim.batch.sensor_columns import SensorColumns
from microsim.engine.calls import integers_at
from microsim.engine.delay_line import DelayLine, most_under_way
from microsim.engine.geometry import matrix_from_rpy
from microsim.engine.records import address_of, grid_of, rows_of, span_of
from microsim.engine.sensor_calls import windows_of
from microsim.engine.world import PALETTE
from microsim.engine.world_arrays import WorldArray
from microsim.outputs.sensor_outputs import latency_of, latency_stream
from microsim.render.image_noise import blur_weights
from microsim.render.relief import world_terrain
from microsim.render.screen import screen_index
from microsim.render.shapes import COEFFICIENTS, SHAPE_COLUMNS, tabulate
from microsim.sensors.sensor import Instrument

ROOM_BYTES = 1 << 28  # for frames that are being drawn: so many at once as fit
_SHOWS = 0  # column of frames as integers


class CameraColumns(SensorColumns):
    """Its arrays are named in a record, see `camera_kernels`."""

    has_history = True
    line: DelayLine
    sensor: Instrument

    def prepare(self) -> None:
        self.readings = self.loops.xp.zeros((self.n, *self.sensor.shape(self.context)), np.uint8)
        self._pixels = self.readings.shape[1] * self.readings.shape[2]
        self._arrays: list[Any] = []  # a record has addresses, which keep nothing alive
        parts = self._describe_pipeline(), self._describe_camera(), self._describe_world(), self._make_room()
        self._row = self._keep(rows_of(CAMERA, **{name: value for part in parts for name, value in part.items()}))
        self._camera = address_of(self._row)

    def _keep(self, values: Any) -> Any:
        self._arrays.append(self.loops.table(values) if values.dtype.names else self.loops.array(values))
        return self._arrays[-1]

    def _kept(self, values: Any) -> int:
        return address_of(self._keep(values))

    def _describe_pipeline(self) -> dict[str, Any]:
        xp, n = self.loops.xp, self.n
        latency = latency_of(self.context, self.batch.scenario.physics_hz)
        self._latency_keys: Integers = xp.zeros(n, np.int64)
        capacity, frame = most_under_way(latency, self.trigger), ((FRAME_SIZE,), np.int64)
        self.line = DelayLine(latency, self._latency_keys, capacity, xp, self.loops.table, frame=frame)
        self._good: Integers = xp.zeros((n, FRAME_SIZE), np.int64)
        self._drawn, self._has_left = xp.zeros_like(self._good), xp.zeros(n, np.int64)
        silent, fails = (windows_of(each, self.loops.table) for each in (self.faults.silent, self.faults.fails))
        self._arrays += [silent, fails]
        return {
            "fleet": self.robot.fleet_at,
            "scene": address_of(self.robot.ground.scene),
            "line": self.line.address,
            "capacity": capacity,
            "frames": address_of(self.line.kept["frame"]),
            "good": address_of(self._good),
            "drawn": address_of(self._drawn),
            "has_left": address_of(self._has_left),
            "keys": address_of(self.keys),
            "sampled_at": address_of(self.sampled_at),
            "dropped": address_of(self.dropped),
            "readings": address_of(self.readings),
            "silent": silent.span,
            "fails": fails.span,
        }

    def _describe_camera(self) -> dict[str, Any]:
        block, model = self.block, self.block.model
        rays = model.rays()
        screen, weights = screen_index(rays), blur_weights(block.noise.blur_sigma_px)
        return {
            "height": model.height,
            "width": model.width,
            "rays": self._kept(rays),
            "columns": grid_of(self._keep(screen.columns)),
            "rows": grid_of(self._keep(screen.rows)),
            "scale": screen.scale,
            "lowest": self.robot.ground.world.derived(world_terrain).lowest,
            "place": block.mount.xyz,
            "turned": np.array(matrix_from_rpy(*block.mount.rpy)).reshape(-1),
            "jitter": block.noise.color_jitter,
            "palette": grid_of(self._keep(PALETTE.astype(np.int32))),
            "weights": span_of(self._keep(weights)),
        }

    def _describe_world(self) -> dict[str, Any]:
        ground, world = self.robot.ground, self.robot.ground.world
        patches, blocks, _, lowest = world.derived(world_terrain)
        shapes = tabulate(world, patches, lowest, world.obstacles)
        self._count, self._obstacles = shapes.table.shape[0], 0 if ground.is_shared else len(world.obstacles)
        table = shapes.table[None] if ground.is_shared else np.tile(shapes.table, (self.n, 1, 1))
        extents = np.array([(shape.base_m, shape.height_m) for shape in world.obstacles], np.float64)
        self._spans = 0 if world.is_flat else patches.holes.size + blocks.shape[0] * blocks.shape[1]
        nodes, x, y, holes = map(self._keep, patches)
        return {
            "shapes": self._kept(table),
            "shapes_step": 0 if ground.is_shared else 8 * SHAPE_COLUMNS * self._count,
            "shape_count": self._count,
            "painted": shapes.painted,
            "moved": address_of(ground.moved),
            "moved_count": self._obstacles,
            "extents": self._kept(extents),
            "is_flat": int(world.is_flat),
            "nodes": address_of(nodes),
            "edges_x": address_of(x),
            "edges_y": address_of(y),
            "holes": grid_of(holes),
            "blocks": self._kept(blocks),
        }

    def _make_room(self) -> dict[str, Any]:
        empty = self.loops.xp.empty
        bytes_each = 13 * self._pixels + self._count * (8 * COEFFICIENTS + 16) + 16 * self._spans
        self._at_once = most = min(max(ROOM_BYTES // bytes_each, 1), self.n)
        rooms = {
            "aimed": empty((most, self._count, COEFFICIENTS)),
            "shape_spans": empty((most, self._count, 4), np.int32),
            "ground_spans": empty((most, self._spans, 4), np.int32),
            "seen": empty((most, self._pixels), np.uint8),
            "sums": empty((most, self._pixels, 3), np.int32),
        }
        self._arrays += rooms.values()
        return {**{name: address_of(room) for name, room in rooms.items()}, "span_count": self._spans}

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        super().reset(worlds, seeds)
        self._latency_keys[worlds] = self.loops.stream_keys(seeds, latency_stream(self.context))
        self.readings[worlds] = 0
        self.line.clear(worlds)
        self._has_left[worlds] = 0
        self._good[worlds, _SHOWS] = BLANK
        self._place_obstacles(worlds)

    def _place_obstacles(self, worlds: Integers) -> None:
        self._each(camera_kernels.place_shape, worlds, self._obstacles)

    def _each(self, step: Any, worlds: Integers, count: int) -> None:
        """A thread for each of `count` things in each of these worlds."""
        if count:
            worlds = self.loops.xp.ascontiguousarray(worlds)
            self._launch(worlds.size * count, frame_loop, (step,), self._camera, address_of(worlds), count)

    def _launch(self, count: int, make: Any, constants: tuple[Any, ...], *arguments: int) -> None:
        loops: Any = self.loops  # a GPU's
        loops.launch(count, make, constants, *arguments)

    def sample(self, worlds: Integers, tick: Integers) -> None:
        self._launch(worlds.size, expose_loop, (), self._camera, address_of(worlds), address_of(tick))

    def finish(self, worlds: Integers, tick: Integers) -> None:
        self._launch(worlds.size, release_loop, (), self._camera, address_of(worlds), address_of(tick))
        due = worlds[self._has_left[worlds] != 0]
        if not due.size:
            return
        if bool((self._drawn[due, _SHOWS] == BROKEN).any()):
            raise ValueError(f"{self.target}: the camera's pose is not finite")
        self._has_left[due] = 0
        for begin in range(0, due.size, self._at_once):
            some = due[begin : begin + self._at_once]
            self._each(camera_kernels.aim_shape, some, self._count)
            self._each(camera_kernels.aim_ground, some, self._spans)
            for step in (camera_kernels.see_pixel, camera_kernels.sum_in_row, camera_kernels.finish_pixel):
                self._each(step, some, self._pixels)

    def arrays(self) -> dict[str, WorldArray]:
        own = {"latency_keys": WorldArray(self._latency_keys), "good": WorldArray(self._good)}
        return {**super().arrays(), **own}

    def loaded(self, worlds: Integers, seeds: Integers) -> None:
        self._has_left[worlds] = 0
        self._place_obstacles(worlds)


# ---- what a thread of a GPU does -------------------------------------------------------------------------------------

_integers_at = integers_at
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
