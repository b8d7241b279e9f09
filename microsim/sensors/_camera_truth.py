"""Ground truth of a camera: depth, classes, normals, and the instances in its image, as masks and boxes."""

from __future__ import annotations

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
from microsim.sensors._camera_messages import channels
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
    strips = [
        _kept(context, model, partial(Segmenter, context.world, model, has_roads, has_normals(context)))
        for model in models
    ]
    return PaletteTruth(strips, _numbers(context))


def splat_truth(context: SensorContext, parts: Sequence[tuple[CameraModel, Lens, Renderer]]) -> SplatTruth:
    """parts: the strips of the image, and what draws their things."""
    strips = [
        _kept(context, part[0], partial(SplatSegmenter, context.world, *part, has_normals(context))) for part in parts
    ]
    return SplatTruth(strips, _numbers(context))


def has_normals(context: SensorContext) -> bool:
    return "normals" in channels(context.settings)


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
    if "normals" in kinds and labels is not None:
        images.append(labels.normals.view(np.uint8).reshape(*labels.instances.shape, 12))
    return images[0] if len(images) == 1 else np.concatenate(images, axis=2)


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
