"""A plain camera of all worlds on a GPU: frames wait there, are drawn there, and stay there as readings."""

from __future__ import annotations

from typing import Any

import numpy as np

from microsim.batch import camera_kernels as row
from microsim.batch.batch_columns import Integers
from microsim.batch.cuda_camera import expose_loop, frame_loop, release_loop
from microsim.batch.sensor_columns import SensorColumns
from microsim.engine.compiled_tick import windows_table
from microsim.engine.geometry import matrix_from_rpy
from microsim.engine.pipeline import AT, NOTHING_BEFORE
from microsim.engine.records import address_of
from microsim.engine.world import PALETTE
from microsim.outputs.sensor_outputs import latency_of
from microsim.render.image_noise import blur_weights
from microsim.render.relief import world_terrain
from microsim.render.screen import screen_index
from microsim.render.shapes import COEFFICIENTS, SHAPE_COLUMNS, tabulate

ROOM_BYTES = 1 << 28  # for frames that are being drawn: so many at once as fit


class CameraColumns(SensorColumns):
    """Its arrays are named in a row, see `camera_kernels`."""

    has_history = True

    def prepare(self) -> None:
        self.readings = self.loops.xp.zeros((self.n, *self.sensor.reading_shape(self.context)), np.uint8)
        self._pixels = self.readings.shape[1] * self.readings.shape[2]
        self._arrays: list[Any] = []  # a row has addresses, which keep nothing alive
        self._row = np.zeros(row.CAMERA_COLUMNS, np.int64)
        self._describe_pipeline()
        self._describe_camera()
        self._describe_world()
        self._make_room()
        self._camera = address_of(self._keep(self._row))

    def _keep(self, values: Any) -> Any:
        self._arrays.append(self.loops.table(values) if values.dtype.names else self.loops.array(values))
        return self._arrays[-1]

    def _fill(self, **columns: Any) -> None:
        """By the names of `camera_kernels`: numbers, and arrays, whose addresses are filled in."""
        for name, value in columns.items():
            is_array = hasattr(value, "dtype") and value.ndim > 0
            self._row[getattr(row, name)] = address_of(value) if is_array else value

    def _describe_pipeline(self) -> None:
        xp, ground = self.loops.xp, self.robot.ground
        latency = latency_of(self.context, self.fixture.scenario.physics_hz, 0)
        least_period = max(self.trigger.period[0] // self.trigger.period[1], 1)
        self._slots = latency.longest // least_period + 4  # frames that can be on their way, with some to spare
        self._frames: Integers = xp.zeros((self.n, self._slots + row.KEPT_FRAMES, row.FRAME_COLUMNS), np.int64)
        self._queue: Integers = xp.zeros((self.n, 2), np.int64)  # the first frame that is on its way, and how many are
        self._latency_keys: Integers = xp.zeros(self.n, np.int64)
        silent, fails = self.windows("silence"), self.windows("fail")
        windows = self._keep(windows_table([*silent, *fails]))
        self._latency, self._before = latency.numbers, xp.zeros((self.n, 2))  # of each world, as `delay_of` keeps it
        self._fill(ROBOT=self.robot.fleet_at, SCENE=ground.scene, KEYS=self.keys)
        self._fill(LATENCY_KEYS=self._latency_keys, BEFORE=self._before)
        self._fill(SAMPLED_AT=self.sampled_at, DROPPED=self.dropped, READINGS=self.readings)
        self._fill(WINDOWS=windows, SILENT=len(silent), FAILS=len(silent) + len(fails))
        self._fill(QUEUE=self._queue, FRAMES=self._frames, SLOTS=self._slots)

    def _describe_camera(self) -> None:
        block, model = self.block, self.block.model
        rays = model.rays()
        screen, weights = screen_index(rays), blur_weights(block.noise.blur_sigma_px)
        mount = [*block.mount.xyz, *np.array(matrix_from_rpy(*block.mount.rpy)).reshape(-1)]
        terrain = self.robot.ground.world.derived(world_terrain)
        numbers = [*self._latency, block.noise.color_jitter, *screen.scale, terrain.lowest, *mount]
        assert len(numbers) == row.NUMBER_COUNT
        palette = self._keep(PALETTE.astype(np.int32))
        columns, rows = self._keep(screen.columns), self._keep(screen.rows)
        self._fill(IMAGE_HEIGHT=model.height, IMAGE_WIDTH=model.width, RAYS=self._keep(rays))
        self._fill(COLUMN_SPANS=columns, COLUMN_BINS=columns.shape[1], ROW_SPANS=rows, ROW_BINS=rows.shape[1])
        self._fill(NUMBERS=self._keep(np.array(numbers, np.float64)), PALETTE=palette, CLASSES=len(palette))
        self._fill(WEIGHTS=self._keep(weights), REACH=weights.size - 1)

    def _describe_world(self) -> None:
        ground, world = self.robot.ground, self.robot.ground.world
        patches, blocks, _, lowest = world.derived(world_terrain)
        shapes = tabulate(world, patches, lowest, world.obstacles)
        self._count, self._obstacles = shapes.table.shape[0], 0 if ground.is_shared else len(world.obstacles)
        table = shapes.table[None] if ground.is_shared else np.tile(shapes.table, (self.n, 1, 1))
        self._fill(SHAPES=self._keep(table), SHAPE_COUNT=self._count, PAINTED=shapes.painted)
        self._fill(SHAPES_STEP=0 if ground.is_shared else 8 * SHAPE_COLUMNS * self._count)
        extents = np.array([(shape.base_m, shape.height_m) for shape in world.obstacles], np.float64)
        self._fill(MOVED=ground.moved, MOVED_COUNT=self._obstacles, EXTENTS=self._keep(extents))
        self._spans = 0 if world.is_flat else patches.holes.size + blocks.shape[0] * blocks.shape[1]
        self._fill(IS_FLAT=int(world.is_flat), SPAN_COUNT=self._spans, BLOCKS=self._keep(blocks))
        nodes, x, y, holes = map(self._keep, patches)
        self._fill(NODES=nodes, EDGES_X=x, EDGES_Y=y, HOLES=holes)
        self._fill(PATCH_ROWS=patches.holes.shape[0], PATCH_COLUMNS=patches.holes.shape[1])

    def _make_room(self) -> None:
        empty = self.loops.xp.empty
        bytes_each = 13 * self._pixels + self._count * (8 * COEFFICIENTS + 16) + 16 * self._spans
        self._at_once = most = min(max(ROOM_BYTES // bytes_each, 1), self.n)
        rooms = {
            "AIMED": empty((most, self._count, COEFFICIENTS)),
            "SHAPE_SPANS": empty((most, self._count, 4), np.int32),
            "GROUND_SPANS": empty((most, self._spans, 4), np.int32),
            "SEEN": empty((most, self._pixels), np.uint8),
            "SUMS": empty((most, self._pixels, 3), np.int32),
        }
        self._arrays += rooms.values()
        self._fill(**rooms)

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        super().reset(worlds, seeds)
        self._latency_keys[worlds] = self.loops.stream_keys(seeds, f"{self.target}/latency")
        self.readings[worlds] = 0
        self._queue[worlds] = 0
        self._before[worlds, AT] = NOTHING_BEFORE[AT]
        self._frames[worlds, :, row.LEAVES] = 0
        self._frames[worlds, :, row.SHOWS] = row.BLANK
        self._place_obstacles(worlds)

    def _place_obstacles(self, worlds: Integers) -> None:
        self._each(row.place_shape, worlds, self._obstacles)

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
        drawn = self._frames[:, self._slots + 1]
        due = worlds[drawn[worlds, row.LEAVES] != 0]
        if not due.size:
            return
        if bool((drawn[due, row.SHOWS] == row.BROKEN).any()):
            raise ValueError(f"{self.target}: the camera's pose is not finite")
        drawn[due, row.LEAVES] = 0
        for begin in range(0, due.size, self._at_once):
            some = due[begin : begin + self._at_once]
            self._each(row.aim_shape, some, self._count)
            self._each(row.aim_ground, some, self._spans)
            for step in (row.see_pixel, row.sum_in_row, row.finish_pixel):
                self._each(step, some, self._pixels)

    def _history(self) -> tuple[Any, ...]:
        return self._frames, self._queue, self._latency_keys, self._before

    def memory(self, worlds: Integers, seeds: Integers, tick: Integers) -> Any:
        return [array[worlds] for array in self._history()]

    def recall(self, worlds: Integers, memory: Any) -> None:
        for array, kept in zip(self._history(), memory, strict=True):
            array[worlds] = kept
        self._place_obstacles(worlds)
