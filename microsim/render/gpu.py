"""Pictures of a splat scene, computed on a GPU with CuPy: the bytes that the CPU gives, sooner.

The only module that imports cupy, and only when a GPU is requested. Kernels are compiled at run time by NVRTC, which
comes with CuPy; no compiler need be installed, and what was compiled is kept in CuPy's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from microsim.render import robot_models, screen, splat
from microsim.render.splat import CHUNK, TILE, activation, blending, projection, sorting
from microsim.render.splat.activation import Floats, Splats
from microsim.render.splat.blending import Frame
from microsim.render.splat.picture import NO_DEPTHS, NO_OWNERS, NOISE_UNIT, Picture, Shot
from microsim.render.splat.projection import FOOTPRINT

OPTIONS = ("--std=c++17", "--fmad=false")
_KERNELS = ("project", "scan", "emit", "sort_tiles", "sort_long_tiles", "blend", "develop", "shade")
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
        "SURFACE_TRANSMITTANCE": splat.SURFACE_TRANSMITTANCE,
        "SURFACE_SPREAD": splat.SURFACE_SPREAD,
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
        **dict(zip(("SUN_X", "SUN_Y", "SUN_Z"), robot_models.SUN, strict=True)),
        **{
            name: getattr(robot_models, name)
            for name in ("SHADE", "SOFT_M", "SOFT_LENGTH_M", "OWN_M", "LOW_M", "ON_GROUND_M", "FALLING")
        },
        "TINY": screen.TINY,
    }
    assert (splat.TILE, splat.CHUNK, activation.GEOMETRY, projection.FOOTPRINT) == (16, 256, 12, 20)
    lines = [f"#define {name} ({_float(value)})" for name, value in floats.items()]
    lines += [f"#define {name} ({float(value).hex()})" for name, value in doubles.items()]
    lines += [f"#define {name} {getattr(blending, name)}" for name in ("NOTHING", "THING", "SPLATS")]
    lines.append(f"#define GROUND_STEPS {robot_models.GROUND_STEPS}")
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


class _Scene(NamedTuple):
    """Splats in the GPU's memory."""

    spheres: Any
    geometry: Any
    harmonics: Any
    degree: int
    size: int  # how many

    @property
    def chunks(self) -> int:
        return int(self.spheres.shape[0])

    def row(self, before: int, chunks_before: int) -> tuple[int, ...]:
        """`Scene` of splat.cu."""
        places = (int(array.data.ptr) for array in (self.spheres, self.geometry, self.harmonics))
        return (*places, self.degree, self.size, before, chunks_before)


def _uploaded(cupy: Any, splats: Splats) -> _Scene:
    count, degree = len(splats), splats.degree
    harmonics = _in_quads(cupy, splats.harmonics.reshape(count, 3 * (degree + 1) ** 2))
    return _Scene(cupy.asarray(splats.spheres), _in_quads(cupy, splats.geometry), harmonics, degree, count)


def _fetched(array: Any) -> Any:
    """In the host's memory, into pages that stay in place: twice as quick."""
    import cupyx

    return array.get(out=cupyx.empty_pinned(array.shape, array.dtype))


class GpuRenderer:
    """Holds a scene, its actors and room for a frame in the GPU's memory; one caller at a time."""

    def __init__(self, splats: Splats) -> None:
        import cupy

        self._cupy = cupy
        module = cupy.RawModule(code=source(), options=OPTIONS)
        self._kernels = {name: module.get_function(name) for name in _KERNELS}
        self._scene = _uploaded(cupy, splats)
        self._actors: dict[int, tuple[Splats, _Scene]] = {}
        self._last_table: tuple[tuple[int, ...], tuple[Any, int, int]] = ((), (None, 0, 0))
        self._footprints = cupy.empty((max(len(splats), 1), FOOTPRINT), np.float32)
        self._reserve(1 << 20)
        self._tables: dict[int, tuple[Any, Any]] = {}
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
        return [
            Picture(_fetched(image), *(map(_fetched, surfaces) if shot.has_depths else (NO_DEPTHS, NO_OWNERS)))
            for shot, (image, surfaces, *_) in zip(shots, self._drawn(shots), strict=True)
        ]

    def images(self, shots: Sequence[Shot]) -> list[Any]:
        """Their colours alone, which stay in the GPU's memory."""
        return [image for image, *_ in self._drawn(shots)]

    def _drawn(self, shots: Sequence[Shot]) -> list[tuple[Any, tuple[Any, Any], tuple[Any, ...], Any]]:
        """All cameras are enqueued before the first is waited for."""
        while True:
            pending = [self._enqueue(shot) for shot in shots]
            needed = max((int(counters[0]) for *_, counters in pending), default=0)  # waits for the GPU
            if needed <= self._capacity:
                return pending
            self._reserve(needed + needed // 4)

    def frame(self, shot: Shot) -> Frame:
        """A shot before lens and exposure: what the rasteriser of the CPU gives."""
        while True:
            blended = self._enqueue(shot)[2]
            needed = int(self._counters[0])
            if needed <= self._capacity:
                return Frame(*(self._cupy.asnumpy(part) for part in blended))
            self._reserve(needed + needed // 4)

    def _enqueue(self, shot: Shot) -> tuple[Any, tuple[Any, Any], tuple[Any, ...], Any]:
        """Image, depths and owners of a shot, its frame, and counters that say how many pairs there were."""
        canvas = shot.lens.canvas
        columns, rows = -(-canvas.width // TILE), -(-canvas.height // TILE)
        own = shot.view
        views = self._cupy.asarray(np.array([own, *(actor.view(own) for actor in shot.actors)]))
        scenes = [self._scene, *(self._actor(actor.splats) for actor in shot.actors)]
        counters, offsets = self._lists(views, scenes, columns, columns * rows)
        self._counters = counters
        frame = self._blend(views[0], shot, offsets, columns, rows)
        image, *surfaces = self._develop(shot, frame)
        return image, tuple(surfaces), frame, counters

    def _actor(self, splats: Splats) -> _Scene:
        """In the GPU's memory, where it stays: actors look the same in every frame."""
        kept = self._actors.get(id(splats))
        if kept is None or kept[0] is not splats:
            kept = self._actors[id(splats)] = splats, _uploaded(self._cupy, splats)
        return kept[1]

    def _lists(self, views: Any, scenes: Sequence[_Scene], columns: int, tiles: int) -> tuple[Any, Any]:
        """Splats of every tile, nearest first, in `self._ids`; where each tile's begin. Each scene has its own view."""
        cupy, kernels, capacity = self._cupy, self._kernels, np.uint32(self._capacity)
        counters, counts = cupy.zeros(2, np.uint32), cupy.zeros(tiles, np.uint32)
        offsets = cupy.empty(tiles + 1, np.uint32)
        table, splats, chunks = self._table(scenes)
        if self._footprints.shape[0] < splats:
            self._footprints = cupy.empty((splats, FOOTPRINT), np.float32)
        if chunks:
            room = np.int32(columns), capacity, self._footprints, self._pairs
            found = views, table, np.int32(len(scenes)), *room, counters, counts
            kernels["project"]((chunks,), (CHUNK,), found)
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

    def _table(self, scenes: Sequence[_Scene]) -> tuple[Any, int, int]:
        """Of `Scene`s in the GPU's memory, and how many splats and chunks they have. The last one is kept."""
        key = tuple(map(id, scenes))
        if self._last_table[0] != key:
            rows, splats, chunks = [], 0, 0
            for scene in scenes:
                rows.append(scene.row(splats, chunks))
                splats, chunks = splats + scene.size, chunks + scene.chunks
            self._last_table = key, (self._cupy.asarray(np.array(rows, np.int64)), splats, chunks)
        return self._last_table[1]

    def _blend(self, view: Any, shot: Shot, offsets: Any, columns: int, rows: int) -> tuple[Any, ...]:
        cupy, canvas = self._cupy, shot.lens.canvas
        size = canvas.height, canvas.width
        colours, alphas = cupy.empty((*size, 3), np.float32), cupy.empty(size, np.float32)
        depths, owners = cupy.empty(size, np.float32), cupy.empty(size, np.uint16)
        things: tuple[Any, Any] = (np.uintp(0), np.uintp(0))
        if shot.things is not None:
            things = cupy.asarray(shot.things.depths), cupy.asarray(shot.things.colours)
        lists = self._footprints, self._ids, offsets, np.int32(columns)
        image = np.int32(canvas.width), np.int32(canvas.height), *shot.sky.colours, *things
        rays = self._kept(shot.lens.rays)
        out = colours, alphas, depths, owners
        self._kernels["blend"]((columns * rows,), (TILE * TILE,), (view, *lists, *image, rays, *out))
        return out

    def _develop(self, shot: Shot, frame: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        cupy, exposure, canvas = self._cupy, shot.exposure, shot.lens.canvas
        colours, _, *seen = frame
        height, width = shot.lens.size
        image, depths = cupy.empty((height, width, 3), np.uint8), cupy.empty((height, width), np.float32)
        owners = cupy.empty((height, width), np.uint16)
        size = np.int32(canvas.width), np.int32(canvas.height)
        light = np.float32(255.0 * exposure.gain), np.float32(exposure.noise_sigma / NOISE_UNIT)
        key = np.uint32(exposure.key & _MASK), np.uint32((exposure.key >> 32) & _MASK)
        tick = np.uint32(exposure.tick & _MASK), np.uint32((exposure.tick >> 32) & _MASK)
        noise = *light, *key, *tick, np.uint32(shot.lens.top * width)
        camera = self._kept(shot.lens.lookup), np.int32(width), np.int32(height), *noise
        blocks = -(-height * width // 256)
        stretch = self._kept(shot.lens.stretch)
        found = image, depths, owners
        self._kernels["develop"]((blocks,), (256,), (colours, *seen, *size, *camera, stretch, *found))
        shadows = shot.shadows
        if shadows is not None:
            bodies = cupy.asarray(shadows.bodies), np.int32(shadows.bodies.shape[0])
            view = cupy.asarray(shot.pose), self._kept(shadows.rays), *bodies
            heights, *place = shadows.ground
            ground = self._kept(heights), *map(np.int32, heights.shape[::-1]), *map(np.float64, place)
            self._kernels["shade"]((blocks,), (256,), (*view, np.int32(height * width), depths, owners, *ground, image))
        return found

    def _kept(self, table: Any) -> Any:
        """A table of a lens in the GPU's memory, where it stays: cameras keep their lenses."""
        if table is None:
            return np.uintp(0)
        kept = self._tables.get(id(table))
        if kept is None or kept[0] is not table:
            kept = self._tables[id(table)] = table, self._cupy.asarray(table)
        return kept[1]
