"""Ground truth of a camera: the instances in its image, as masks and boxes, and the normals of what it sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from microsim.engine import exact
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array
from microsim.engine.world import FIRST_OBJECT, Shape
from microsim.messages.encoders import header
from microsim.messages.types import encode, new
from microsim.render.drawing import Image, Instances, coloured
from microsim.render.palette_camera import CameraModel, Renderer
from microsim.render.segmentation import (
    SEGMENT_COLOURS,
    VOLUME_NUMBERS,
    InstanceNumbers,
    Labels,
    Segmenter,
    SplatSegmenter,
)
from microsim.render.splat.activation import Floats
from microsim.render.splat.picture import Lens, Picture
from microsim.sensors.sensor import SensorContext

Pose: TypeAlias = tuple[Any, Any]  # place [m] and rows of the rotation, in the map frame

BOXES_TYPE = "vision_msgs/msg/Detection2DArray"
_OBJECT_SLACK_M = 0.01  # so much around a box still belongs to it


@dataclass(frozen=True)
class PaletteTruth:
    """Labels the pixels of a palette camera; its strips are those of a rolling shutter, or one."""

    strips: Sequence[Segmenter]
    numbers: InstanceNumbers

    def labels(self, poses: Sequence[Pose], parts: Array) -> Labels:
        """Of the whole image."""
        of_strips = zip(self.strips, poses, strict=True)
        return _stacked([strip.labels(*pose, parts, self.numbers) for strip, pose in of_strips])

    def show_obstacles(self, obstacles: Sequence[Shape]) -> None:
        for strip in self.strips:
            strip.show(obstacles)


@dataclass(frozen=True)
class SplatTruth:
    """Labels the pixels of a splat camera, strip by strip as they were drawn."""

    strips: Sequence[SplatSegmenter]
    numbers: InstanceNumbers

    def labels(self, poses: Sequence[Pose], parts: Array, pictures: Sequence[Picture]) -> Labels:
        """Of the whole image."""
        of_strips = zip(self.strips, poses, pictures, strict=True)
        return _stacked([strip.labels(*pose, parts, self.numbers, picture) for strip, pose, picture in of_strips])


def _stacked(found: Sequence[Labels]) -> Labels:
    return found[0] if len(found) == 1 else Labels(*map(np.vstack, zip(*found, strict=True)))


def palette_truth(context: SensorContext, models: Sequence[CameraModel]) -> PaletteTruth:
    has_roads = context.bundle is not None
    strips = [_kept(context, model, partial(Segmenter, context.world, model, has_roads)) for model in models]
    return PaletteTruth(strips, _numbers(context))


def splat_truth(context: SensorContext, parts: Sequence[tuple[CameraModel, Lens, Renderer]]) -> SplatTruth:
    """parts: the strips of the image, and what draws their things."""
    strips = [_kept(context, part[0], partial(SplatSegmenter, context.world, *part)) for part in parts]
    return SplatTruth(strips, _numbers(context))


def _kept(context: SensorContext, model: CameraModel, make: Callable[[], Any]) -> Any:
    """What is costly to make and independent of the seed is kept from reset to reset."""
    key = f"{context.robot}/{context.sensor}/truth", model
    if key not in context.shared:
        context.shared[key] = make()
    return context.shared[key]


def _numbers(context: SensorContext) -> InstanceNumbers:
    by_name = {name: number for number, (name, _) in context.instances().items() if number < FIRST_OBJECT}
    robots = np.array([by_name[name] for name, _ in context.others], np.uint16)
    actors = np.array([by_name[name] for name in context.splats_of_others], np.uint16)
    bundle = None if context.bundle is None else context.bundle()
    objects = [] if bundle is None else [_volume(each, FIRST_OBJECT + n) for n, each in enumerate(bundle.objects)]
    return InstanceNumbers(robots, actors, np.array(objects).reshape(-1, VOLUME_NUMBERS))


def _volume(box: Any, number: int) -> list[float]:
    cosine, sine = exact.cos(box.yaw), exact.sin(box.yaw)
    half = [0.5 * each + _OBJECT_SLACK_M for each in box.size]
    return [*box.center, cosine, -sine, 0.0, sine, cosine, 0.0, 0.0, 0.0, 1.0, *half, float(number)]


def side_by_side(kinds: Sequence[str], image: Image, depths: Floats, labels: Labels | None) -> Image:
    """All images of a tick, in each pixel: what is kept for a failure is one array."""
    images: list[Image] = [image]
    if "depth" in kinds:
        images.append(depths.view(np.uint8).reshape(*depths.shape, 4))
    if "segmentation" in kinds and labels is not None:
        images.append(coloured(labels.classes, SEGMENT_COLOURS))
    if "instances" in kinds and labels is not None:
        images.append(labels.instances.view(np.uint8).reshape(*labels.instances.shape, 2))
    return images[0] if len(images) == 1 else np.concatenate(images, axis=2)


def normals(depths: Image, rays: Array) -> Floats:
    """(h, w, 3) of what is seen, from the bytes of its depths (h, w, 4)."""
    found = np.empty((*depths.shape[:2], 3), np.float32)
    with np.errstate(all="ignore"):
        find_normals(rays, depths.view(np.float32)[..., 0], found)
    return found


@kernel
def find_normals(rays: Array, depths: Floats, found: Floats) -> None:
    """Across the ways to a neighbour in the row and one in the column, each the one that is nearer in depth."""
    for v in range(depths.shape[0]):
        for u in range(depths.shape[1]):
            ax, ay, az = _way(rays, depths, v, u, 0, 1)
            bx, by, bz = _way(rays, depths, v, u, 1, 0)
            x, y, z = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
            facing = x * rays[0, v, u] + y * rays[1, v, u] + z
            length = math.sqrt(x * x + y * y + z * z)
            for k in range(3):
                found[v, u, k] = math.nan
            if length > 0.0 and facing != 0.0:  # NaN is neither
                length = -length if facing > 0.0 else length
                found[v, u, 0], found[v, u, 1], found[v, u, 2] = x / length, y / length, z / length


@kernel
def _way(rays: Array, depths: Floats, v: int, u: int, dv: int, du: int) -> tuple[float, float, float]:
    """On the surface that a pixel shows, along the row or the column; 0 where it has no neighbour."""
    depth, best, way = np.float64(depths[v, u]), math.inf, (0.0, 0.0, 0.0)  # a `float` stays a float32 in numba
    for sign in (1, -1):
        j, i = v + sign * dv, u + sign * du
        if 0 <= j < depths.shape[0] and 0 <= i < depths.shape[1]:
            other = np.float64(depths[j, i])
            if abs(other - depth) < best:  # not where one of them is infinite
                best = abs(other - depth)
                x = other * rays[0, j, i] - depth * rays[0, v, u]
                y = other * rays[1, j, i] - depth * rays[1, v, u]
                way = (sign * x, sign * y, sign * (other - depth))
    return way


# ---- messages --------------------------------------------------------------------------------------------------------


@kernel
def outlines(instances: Instances, found: Any) -> None:
    """first and last column, first and last row of every instance in the image: found (65536, 4); -1: none."""
    for v in range(instances.shape[0]):
        for u in range(instances.shape[1]):
            row = found[instances[v, u]]
            if row[0] < 0:
                row[0], row[1], row[2] = u, u, v
            row[0], row[1], row[3] = min(row[0], u), max(row[1], u), v


def boxes_encoder(context: SensorContext, part: Callable[[Any], Any]) -> Callable[[int, Any], bytes]:
    """A detection for each instance in the image, by number; `id` is its name."""
    table = context.instances()

    def build(stamp_ns: int, reading: Any) -> bytes:
        stamped = header(context.frame)
        stamped.stamp.sec, stamped.stamp.nanosec = divmod(stamp_ns, 1_000_000_000)
        instances = part(reading).view(np.uint16)[..., 0]
        found = np.full((1 << 16, 4), -1, np.int64)
        outlines(instances, found)
        seen = [
            _detection(stamped, *table[number], found[number].tolist()) for number in table if found[number, 0] >= 0
        ]
        return encode(BOXES_TYPE, new(BOXES_TYPE, header=stamped, detections=seen))

    return build


def _detection(stamped: Any, name: str, kind: str, outline: list[int]) -> Any:
    left, right, top, bottom = outline
    box = new("vision_msgs/msg/BoundingBox2D", size_x=float(right - left + 1), size_y=float(bottom - top + 1))
    box.center.position.x, box.center.position.y = 0.5 * (left + right), 0.5 * (top + bottom)
    result = new("vision_msgs/msg/ObjectHypothesisWithPose")
    result.hypothesis.class_id, result.hypothesis.score = kind, 1.0
    return new("vision_msgs/msg/Detection2D", header=stamped, results=[result], bbox=box, id=name)
