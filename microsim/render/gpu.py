"""Pictures of a splat scene, computed on a GPU with CuPy: the bytes that the CPU gives, sooner.

The only module that imports cupy, and only when a GPU is requested. Kernels are compiled at run time by NVRTC, which
comes with CuPy; no compiler need be installed, and what was compiled is kept in CuPy's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from microsim.render import splat
from microsim.render.splat import CHUNK, TILE, activation, blending, picture, projection, sorting
from microsim.render.splat.activation import Floats, Splats
from microsim.render.splat.blending import Frame
from microsim.render.splat.picture import NOISE_UNIT, Lens, Picture, Shot
from microsim.render.splat.projection import FOOTPRINT

OPTIONS = ("--std=c++17", "--fmad=false")
_KERNELS = ("project", "scan", "emit", "sort_tiles", "sort_long_tiles", "blend", "develop")
_SHORT_LIST, _MEDIUM_LIST = 1024, 4096
_EMIT_BLOCKS = 2048
_MASK = 0xFFFFFFFF


def device_name() -> str | None:
    """The first GPU's name; None where there is no CuPy, no driver or no device."""
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount() == 0:
            return None
        return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
    except Exception:  # whatever is missing, there is no GPU to be used
        return None


def _float(value: float) -> str:
    return f"{float(np.float32(value)).hex()}f"


def _defines() -> str:
    floats = {
        "ALPHA_MAX": splat.ALPHA_MAX,
        "TRANSMITTANCE_MIN": splat.TRANSMITTANCE_MIN,
        "SEEN_ALPHA": picture.SEEN_ALPHA,
        **{f"E{k}": value for k, value in enumerate(blending.EXPONENTIAL)},
        **{f"H{k}": float(value) for k, value in enumerate(projection.HARMONICS)},
    }
    doubles = {
        "DILATION": splat.DILATION_PX2,
        "MARGIN_PX": projection.MARGIN_PX,
        "ON_AXIS": projection.ON_AXIS,
        "REACH_FACTOR": projection.REACH_FACTOR,
        "REACH_MARGIN_PX": projection.REACH_MARGIN_PX,
        "EXTENT_FACTOR": sorting.EXTENT_FACTOR,
        "EXTENT_MARGIN": sorting.EXTENT_MARGIN,
        "TILE_MARGIN_PX": sorting.MARGIN_PX,
    }
    assert (splat.TILE, splat.CHUNK, activation.GEOMETRY, projection.FOOTPRINT) == (16, 256, 12, 16)
    lines = [f"#define {name} ({_float(value)})" for name, value in floats.items()]
    lines += [f"#define {name} ({float(value).hex()})" for name, value in doubles.items()]
    return "\n".join(lines)


def source() -> str:
    """`splat.cu` with the constants of the CPU's code."""
    return f"{_defines()}\n{Path(__file__).with_name('splat.cu').read_text(encoding='utf-8')}"


def _in_quads(cupy: Any, rows: Floats) -> Any:
    """(n, k) as (quads, n, 4): what a thread needs next, its neighbours read beside it."""
    count, columns = rows.shape
    quads = -(-columns // 4)
    padded = cupy.zeros((count, 4 * quads), np.float32)
    padded[:, :columns] = cupy.asarray(rows)
    return cupy.ascontiguousarray(padded.reshape(count, quads, 4).transpose(1, 0, 2))


class GpuRenderer:
    """Holds a scene and room for a frame in the GPU's memory; one caller at a time."""

    def __init__(self, splats: Splats) -> None:
        import cupy

        self._cupy = cupy
        module = cupy.RawModule(code=source(), options=OPTIONS)
        self._kernels = {name: module.get_function(name) for name in _KERNELS}
        self._count, self._degree = len(splats), splats.degree
        self._geometry = _in_quads(cupy, splats.geometry)
        self._harmonics = _in_quads(cupy, splats.harmonics.reshape(self._count, 3 * (self._degree + 1) ** 2))
        self._spheres = cupy.asarray(splats.spheres)
        self._footprints = cupy.empty((max(self._count, 1), FOOTPRINT), np.float32)
        self._reserve(1 << 20)
        self._lookups: dict[int, tuple[Lens, Any]] = {}
        self._long_list = self._longest_shared_list()

    def _reserve(self, pairs: int) -> None:
        """Room for so many pairs of a tile and a splat."""
        self._capacity = pairs
        self._pairs = self._cupy.empty((pairs, 2), np.uint64)
        self._keys, self._ids = self._cupy.empty(pairs, np.uint64), self._cupy.empty(pairs, np.uint32)

    def _longest_shared_list(self) -> int:
        attribute = self._cupy.cuda.runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin
        room = int(self._cupy.cuda.runtime.deviceGetAttribute(attribute, self._cupy.cuda.Device().id))
        longest = max(_MEDIUM_LIST, 1 << ((room // 8).bit_length() - 1))
        if longest > _MEDIUM_LIST:
            self._kernels["sort_tiles"].max_dynamic_shared_size_bytes = 8 * longest
        return longest

    def pictures(self, shots: Sequence[Shot]) -> list[Picture]:
        cupy, lenses = self._cupy, [shot.lens for shot in shots]
        return [
            Picture(cupy.asnumpy(image), lens.along_axis(cupy.asnumpy(depths)))
            for lens, (image, depths, *_) in zip(lenses, self._drawn(shots), strict=True)
        ]

    def images(self, shots: Sequence[Shot]) -> list[Any]:
        """Their colours alone, which stay in the GPU's memory."""
        return [image for image, *_ in self._drawn(shots)]

    def _drawn(self, shots: Sequence[Shot]) -> list[tuple[Any, Any, tuple[Any, Any, Any], Any]]:
        """All cameras are enqueued before the first is waited for."""
        while True:
            views = self._cupy.asarray(np.array([shot.view for shot in shots]))
            pending = [self._enqueue(views[k], shot) for k, shot in enumerate(shots)]
            needed = max((int(counters[0]) for *_, counters in pending), default=0)  # waits for the GPU
            if needed <= self._capacity:
                return pending
            self._reserve(needed + needed // 4)

    def frame(self, shot: Shot) -> Frame:
        """A shot before lens and exposure: what the rasteriser of the CPU gives."""
        while True:
            blended = self._enqueue(self._cupy.asarray(shot.view), shot)[2]
            needed = int(self._counters[0])
            if needed <= self._capacity:
                return Frame(*(self._cupy.asnumpy(part) for part in blended))
            self._reserve(needed + needed // 4)

    def _enqueue(self, view: Any, shot: Shot) -> tuple[Any, Any, tuple[Any, Any, Any], Any]:
        """Image and depths of a shot, its frame, and counters that say how many pairs there were."""
        canvas = shot.lens.canvas
        columns, rows = -(-canvas.width // TILE), -(-canvas.height // TILE)
        counters, offsets = self._lists(view, columns, columns * rows)
        self._counters = counters
        frame, seen_depths = self._blend(view, shot, offsets, columns, rows)
        image, depths = self._develop(shot, frame[0], seen_depths)
        return image, depths, frame, counters

    def _lists(self, view: Any, columns: int, tiles: int) -> tuple[Any, Any]:
        """Splats of every tile, nearest first, in `self._ids`; where each tile's begin."""
        cupy, kernels, capacity = self._cupy, self._kernels, np.uint32(self._capacity)
        counters, counts = cupy.zeros(2, np.uint32), cupy.zeros(tiles, np.uint32)
        offsets = cupy.empty(tiles + 1, np.uint32)
        chunks = self._spheres.shape[0]
        scene = self._spheres, self._geometry, self._harmonics, np.int32(self._degree), np.int32(self._count)
        if chunks:
            room = capacity, self._footprints, self._pairs
            kernels["project"]((chunks,), (CHUNK,), (view, *scene, np.int32(columns), *room, counters, counts))
        kernels["scan"]((1,), (1024,), (np.int32(tiles), capacity, counts, offsets, counters))
        kernels["emit"]((_EMIT_BLOCKS,), (256,), (counters, self._pairs, offsets, capacity, self._keys))
        least = 0
        for most, threads in ((_SHORT_LIST, 256), (_MEDIUM_LIST, 512), (self._long_list, 1024)):
            if most > least:
                bounds = np.int32(least), np.int32(most)
                arguments = offsets, *bounds, self._keys, self._ids
                kernels["sort_tiles"]((tiles,), (threads,), arguments, shared_mem=8 * most)
            least = most
        long_lists = offsets, np.int32(least), self._keys, self._ids
        kernels["sort_long_tiles"]((tiles,), (1024,), long_lists)
        return counters, offsets

    def _blend(self, view: Any, shot: Shot, offsets: Any, columns: int, rows: int) -> tuple[tuple[Any, Any, Any], Any]:
        cupy, canvas = self._cupy, shot.lens.canvas
        size = canvas.height, canvas.width
        colours, alphas = cupy.empty((*size, 3), np.float32), cupy.empty(size, np.float32)
        depths, seen_depths = cupy.empty(size, np.float32), cupy.empty(size, np.float32)
        things: tuple[Any, Any] = (np.uintp(0), np.uintp(0))
        if shot.things is not None:
            things = cupy.asarray(shot.things.depths), cupy.asarray(shot.things.colours)
        lists = self._footprints, self._ids, offsets, np.int32(columns)
        image = np.int32(canvas.width), np.int32(canvas.height), *shot.sky.colours, *things
        rays = self._lookup(shot.lens, shot.lens.rays)
        out = colours, alphas, depths, seen_depths
        self._kernels["blend"]((columns * rows,), (TILE * TILE,), (view, *lists, *image, rays, *out))
        return (colours, alphas, depths), seen_depths

    def _develop(self, shot: Shot, colours: Any, seen_depths: Any) -> tuple[Any, Any]:
        cupy, exposure, canvas = self._cupy, shot.exposure, shot.lens.canvas
        height, width = shot.lens.size
        image, depths = cupy.empty((height, width, 3), np.uint8), cupy.empty((height, width), np.float32)
        size = np.int32(canvas.width), np.int32(canvas.height)
        light = np.float32(255.0 * exposure.gain), np.float32(exposure.noise_sigma / NOISE_UNIT)
        key = np.uint32(exposure.key & _MASK), np.uint32((exposure.key >> 32) & _MASK)
        tick = np.uint32(exposure.tick & _MASK), np.uint32((exposure.tick >> 32) & _MASK)
        noise = *light, *key, *tick, np.uint32(shot.lens.top * width)
        camera = self._lookup(shot.lens, shot.lens.lookup), np.int32(width), np.int32(height), *noise
        blocks = -(-height * width // 256)
        self._kernels["develop"]((blocks,), (256,), (colours, seen_depths, *size, *camera, image, depths))
        return image, depths

    def _lookup(self, lens: Lens, table: Any) -> Any:
        """A lens's table in the GPU's memory, where it stays: no lens has two."""
        if table is None:
            return np.uintp(0)
        kept = self._lookups.get(id(lens))
        if kept is None or kept[0] is not lens:
            kept = self._lookups[id(lens)] = lens, self._cupy.asarray(table)
        return kept[1]
