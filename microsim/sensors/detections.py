"""Ground truth for perception: the boxes of the other robots and actors, as an ideal detector gives them.

What is within reach is reported whether or not something stands before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from microsim.documents.values import Hertz, Length
from microsim.engine.geometry import Array, Vector, matrix_from_rpy, quaternion_from_rpy, rpy_from_matrix
from microsim.engine.motion import Rotation, mounted_at, turned
from microsim.messages.encoders import header
from microsim.messages.topics import Qos
from microsim.messages.types import encode, new
from microsim.sensors.sensor import (
    DROPOUT,
    Display,
    Instrument,
    MessageForm,
    MountedSensor,
    Reader,
    SensorContext,
    View,
)

TYPE = "vision_msgs/msg/Detection3DArray"
_NUMBERS = 10  # of a detection: x, y, z of the box's middle [m], its quaternion, its size [m]


class Detections(MountedSensor):
    """`vision_msgs/Detection3DArray` on `detections`: the boxes of the other robots and actors, in its own frame."""

    hz: Hertz = Field(10, description="Rate; at most physics_hz [Hz].")
    max_m: Length = Field(100.0, description="Nothing farther is reported; to the middle of its box [m].")


@dataclass(frozen=True)
class BoxFinder:
    """Reads (n, 10), a row for each of the others; NaN where one is out of reach."""

    xyz: Vector
    rotation: Rotation
    max_m: float

    def read(self, view: View) -> npt.NDArray[Any]:
        place, axes = mounted_at(view.motion, self.xyz), turned(view.motion, self.rotation)
        return np.array([self._seen(body, place, axes) for body in view.bodies]).reshape(-1, _NUMBERS)

    def _seen(self, body: Array, place: Vector, axes: Rotation) -> tuple[float, ...]:
        away = [float(body[k]) - place[k] for k in range(3)]
        x, y, z = (sum(axes[k][column] * away[k] for k in range(3)) for column in range(3))
        if math.sqrt(x * x + y * y + z * z) > self.max_m:
            return (math.nan,) * _NUMBERS
        box = [[float(body[3 + 3 * row + column]) for column in range(3)] for row in range(3)]
        turn = [[sum(axes[k][row] * box[k][column] for k in range(3)) for column in range(3)] for row in range(3)]
        rows = tuple((row[0], row[1], row[2]) for row in turn)
        quaternion = quaternion_from_rpy(*rpy_from_matrix((rows[0], rows[1], rows[2])))
        return x, y, z, *quaternion, *(2.0 * float(half) for half in body[12:15])


def _instrument(context: SensorContext) -> Reader:
    mount = context.mount
    return BoxFinder(mount.xyz, matrix_from_rpy(*mount.rpy), context.settings.max_m)


def _encoder(context: SensorContext) -> Callable[[int, Any], bytes]:
    """One detection for each of the others that is within reach, in their order; `id` is the name."""

    def build(stamp_ns: int, reading: Array) -> bytes:
        stamped = header(context.frame)
        stamped.stamp.sec, stamped.stamp.nanosec = divmod(stamp_ns, 1_000_000_000)
        pairs = zip(context.others, reading.tolist(), strict=True)
        found = [_detection(stamped, name, kind, row) for (name, kind), row in pairs if row[0] == row[0]]
        return encode(TYPE, new(TYPE, header=stamped, detections=found))

    return build


def _detection(stamped: Any, name: str, kind: str, row: list[float]) -> Any:
    x, y, z, qx, qy, qz, qw, length, width, height = row
    point = new("geometry_msgs/msg/Point", x=x, y=y, z=z)
    pose = new("geometry_msgs/msg/Pose", position=point)
    pose.orientation = new("geometry_msgs/msg/Quaternion", x=qx, y=qy, z=qz, w=qw)
    result = new("vision_msgs/msg/ObjectHypothesisWithPose")
    result.hypothesis.class_id, result.hypothesis.score, result.pose.pose = kind, 1.0, pose
    box = new("vision_msgs/msg/BoundingBox3D", center=pose)
    box.size = new("geometry_msgs/msg/Vector3", x=length, y=width, z=height)
    return new("vision_msgs/msg/Detection3D", header=stamped, results=[result], bbox=box, id=name)


SENSOR = Instrument(
    "detections",
    Detections,
    _instrument,
    title="Ground truth of what is around: boxes of other robots and actors",
    about="boxes of the other robots and actors",
    shape=lambda context: (len(context.others), _NUMBERS),
    messages=(
        MessageForm(TYPE, "/{robot}/{sensor}", Qos(5), "box, name and kind of each within reach", encoder=_encoder),
    ),
    faults=(DROPOUT,),
    display=Display(lambda message: f"{len(message.detections)} within reach"),
    position=85,
    omit_if_null=True,
)
