"""A frame of a splat scene, stage by stage: cull, project, sort, bin, blend. Holds the buffers of one caller.

Several threads can share the work: the kernels release the GIL, and write to places of their own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.engine.workers import OneWorker, Workers, parts_of
from microsim.render.splat import CHUNK, TILE
from microsim.render.splat.activation import Floats, Integers, Splats
from microsim.render.splat.blending import ROOM, Frame, blend
from microsim.render.splat.projection import FOOTPRINT, HEIGHT, WIDTH, View, project, visible_chunks
from microsim.render.splat.sorting import (
    DIGIT_BITS,
    DIGITS,
    PASSES,
    Keys,
    Slots,
    count_digits,
    find_tiles,
    gather,
    gather_keys,
    move_by_digit,
    move_to_tiles,
    starts_of,
)

_PART = 32768  # footprints: fewer are not worth another thread


def _room(array: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """The same array, or a larger one of as many columns: contents are lost."""
    if array.shape[0] >= rows:
        return array
    return np.empty((rows + rows // 4, *array.shape[1:]), array.dtype)


class Rasteriser:
    def __init__(self, splats: Splats, workers: Workers | None = None) -> None:
        self.splats = splats
        self.workers = workers or OneWorker()
        self._chunks = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._footprints = np.empty((0, FOOTPRINT), np.float32)
        self._tiles = np.empty((0, 4), np.int16)
        self._sorted_footprints = np.empty((0, FOOTPRINT), np.float32)
        self._sorted_tiles = np.empty((0, 4), np.int16)
        self._keys = np.empty((0,), np.uint32), np.empty((0,), np.uint32)
        self._slots = np.empty((0,), np.int32), np.empty((0,), np.int32)
        self._pairs = np.empty((0, 2), np.int32)
        self._tiled = np.empty((0,), np.int32)
        self._basis = np.empty((self.workers.count, 16), np.float32)
        self._rooms = np.empty((self.workers.count, ROOM), np.float32)
        self._surfaces = np.empty((self.workers.count, TILE * TILE), np.int32)

    def render(self, view: View, behind: Floats, limits: Floats, actors: Sequence[tuple[View, Splats]] = ()) -> Frame:
        """Splats before what is `behind` (h, w, 3), whose depth [m] is `limits` (h, w): infinite for the sky.

        `actors`: further splats, each with the camera as seen from their own frame.
        """
        height, width = limits.shape
        if (height, width) != (int(view[HEIGHT]), int(view[WIDTH])) or behind.shape != (height, width, 3):
            raise ValueError(f"the background's size {behind.shape} or its depth's {limits.shape} is not the view's")
        frame = Frame(
            np.empty((height, width, 3), np.float32),
            np.empty((height, width), np.float32),
            np.empty((height, width), np.float32),
            np.empty((height, width), np.uint16),
        )
        slots = self._in_order(self._project(view, actors))
        columns, rows = -(-width // TILE), -(-height // TILE)
        tiled, offsets = self._by_tile(slots, columns, rows)

        def blend_row(row: int, worker: int) -> None:
            tiles = row * columns, (row + 1) * columns
            room = self._rooms[worker], self._surfaces[worker]
            blend(self._sorted_footprints, tiled, offsets, columns, *tiles, behind, limits, *room, frame)

        self.workers.run(blend_row, rows)
        return frame

    def _project(self, view: View, actors: Sequence[tuple[View, Splats]] = ()) -> int:
        """Fill footprints; gives the number of chunks that may hold some."""
        scenes = [(view, self.splats), *actors]
        room = sum(splats.spheres.shape[0] for _, splats in scenes)
        self._chunks, self._counts = _room(self._chunks, room), _room(self._counts, room)
        parts, chunks = [], 0
        for owner, scene in enumerate(scenes):
            seen = int(visible_chunks(scene[0], scene[1].spheres, self._chunks[chunks:]))
            parts += [(owner, chunks + begin, chunks + end) for begin, end in parts_of(seen, -(-seen // 64))]
            chunks += seen
        self._footprints = _room(self._footprints, chunks * CHUNK)
        self._tiles = _room(self._tiles, chunks * CHUNK)

        def project_part(part: int, worker: int) -> None:
            owner, begin, end = parts[part]
            own_view, splats = scenes[owner]
            chunks, out = (self._chunks, begin, end), (self._footprints, self._tiles, self._counts)
            project(own_view, splats.geometry, splats.harmonics, *chunks, owner, self._basis[worker], *out)

        self.workers.run(project_part, len(parts))
        return chunks

    def _in_order(self, chunks: int) -> Slots:
        """The footprints' slots by depth, nearest first."""
        counts = self._counts[:chunks]
        count = int(counts.sum())
        self._keys = _room(self._keys[0], count), _room(self._keys[1], count)
        self._slots = _room(self._slots[0], count), _room(self._slots[1], count)
        bits = self._footprints.view(np.uint32)
        chunk_parts = parts_of(chunks, self._split(count))
        starts = [0, *np.cumsum(counts).tolist()]
        self.workers.run(
            lambda part, _: gather_keys(
                bits, counts, *chunk_parts[part], starts[chunk_parts[part][0]], self._keys[0], self._slots[0]
            ),
            len(chunk_parts),
        )
        return self._sorted(count)

    def _sorted(self, count: int) -> Slots:
        parts = parts_of(count, self._split(count))
        counters = np.empty((len(parts), DIGITS), np.int64)
        totals = np.empty(DIGITS + 1, np.int64)
        for turn in range(PASSES):
            source = self._keys[turn % 2], self._slots[turn % 2]
            target = self._keys[1 - turn % 2], self._slots[1 - turn % 2]
            self._sort_by_digit(parts, turn * DIGIT_BITS, counters, totals, source, target)
        return self._slots[PASSES % 2][:count]

    def _sort_by_digit(
        self,
        parts: list[tuple[int, int]],
        shift: int,
        counters: Integers,
        totals: Integers,
        source: tuple[Keys, Slots],
        target: tuple[Keys, Slots],
    ) -> None:
        self.workers.run(lambda part, _: count_digits(source[0], *parts[part], shift, counters[part]), len(parts))
        starts_of(counters, totals)
        self.workers.run(
            lambda part, _: move_by_digit(*source, *parts[part], shift, counters[part], *target), len(parts)
        )

    def _by_tile(self, slots: Slots, columns: int, rows: int) -> tuple[Slots, Integers]:
        """Sorted footprints of tile after tile, each in the order of `slots`, and where each tile's begin."""
        parts = parts_of(slots.size, self._split(slots.size))
        counters = np.empty((len(parts), columns * rows), np.int64)
        offsets = np.empty(columns * rows + 1, np.int64)
        starts, ends = [0] * (len(parts) + 1), [0] * len(parts)
        self._sorted_footprints = _room(self._sorted_footprints, slots.size)
        self._sorted_tiles = _room(self._sorted_tiles, slots.size)
        ordered = self._sorted_footprints, self._sorted_tiles

        def gather_part(part: int, worker: int) -> None:
            starts[part + 1] = gather(self._footprints, self._tiles, slots, *parts[part], *ordered)

        self.workers.run(gather_part, len(parts))
        starts = np.cumsum(starts).tolist()
        self._pairs = _room(self._pairs, starts[-1])

        def find_part(part: int, worker: int) -> None:
            ends[part] = find_tiles(*ordered, *parts[part], columns, starts[part], self._pairs, counters[part])

        self.workers.run(find_part, len(parts))
        self._tiled = _room(self._tiled, starts_of(counters, offsets))
        self.workers.run(
            lambda part, _: move_to_tiles(self._pairs, starts[part], ends[part], counters[part], self._tiled),
            len(parts),
        )
        return self._tiled, offsets

    def _split(self, count: int) -> int:
        """Into how many parts to sort so many footprints."""
        return max(1, min(self.workers.count, count // _PART))
