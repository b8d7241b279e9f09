"""LiDAR: a turn of beams as a point cloud. The beams themselves are cast by `microsim.rays.lidar_turn`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic_core import InitErrorDetails
from typing_extensions import Self

from microsim.documents.values import (
    MAX_BEAMS,
    MAX_COLUMNS,
    MAX_ELEVATION,
    MAX_RINGS,
    Chance,
    Count,
    Finite,
    Height,
    Hertz,
    Length,
    Noise,
    Switch,
    detail,
    nearest_first,
    show,
)
from microsim.engine.geometry import matrix_from_rpy
from microsim.engine.workers import OneWorker, Workers
from microsim.engine.world import World
from microsim.messages.encoders import header
from microsim.messages.template import layout
from microsim.messages.topics import Qos
from microsim.messages.types import encode, new
from microsim.rays import POINT
from microsim.render.renderer_choice import render_request
from microsim.sensors.sensor import (
    DROPOUT,
    FAIL,
    Display,
    Instrument,
    MessageForm,
    Mount,
    MountedSensor,
    Reader,
    SensorContext,
    View,
)

if TYPE_CHECKING:
    from microsim.rays.lidar_turn import LidarTurn

Elevation = Annotated[Finite, Field(ge=-MAX_ELEVATION, le=MAX_ELEVATION)]


class Lidar(MountedSensor):
    """`sensor_msgs/PointCloud2` on `lidar/points`: x, y, z, intensity, ring, time of every beam that comes back."""

    hz: Hertz = Field(10, description="Turns per second; at most physics_hz [Hz].")
    rings: Annotated[Count, Field(le=MAX_RINGS)] = Field(16, description="Beams above each other.")
    lowest: Elevation = Field(-0.2617993877991494, description="Elevation of the first ring [rad].")
    highest: Elevation = Field(0.2617993877991494, description="Elevation of the last ring [rad].")
    elevations: tuple[Elevation, ...] | None = Field(
        None,
        min_length=1,
        max_length=MAX_RINGS,
        description="Elevation of each ring [rad], in place of rings, lowest and highest.",
    )
    columns: Annotated[Count, Field(le=MAX_COLUMNS)] = Field(
        360, description="Azimuths of a turn, evenly spaced, the first one forward, counter-clockwise."
    )
    min_m: Height = Field(0.5, description="Nothing nearer comes back [m].")
    max_m: Length = Field(100.0, description="Nothing farther comes back [m].")
    sigma_m: Noise = Field(0.02, description="White noise of the distance, 1 sigma [m].")
    dropout_probability: Chance = Field(0.0, description="Probability that a beam does not come back.")
    splats: Switch | None = Field(
        None, description="Whether beams end at the Gaussians of the world bundle, not at its ground and mesh."
    )

    @model_serializer(mode="wrap")
    def _without_younger(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """/sim/info of runs without it is older than this key."""
        return {key: value for key, value in handler(self).items() if key != "splats" or value}

    def unfit(self, name: str, others: Mapping[str, Any]) -> list[InitErrorDetails]:
        if not self.splats or "world" not in others or others["world"] is not None:
            return []
        return [detail("splats belong to a world bundle: name one with `world:`, or leave this key out", "splats")]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        nearest_first(self.min_m, self.max_m)
        if self.elevations is None and self.rings > 1 and self.lowest >= self.highest:
            raise ValueError(f"expected lowest below highest, found {show(self.lowest)} and {show(self.highest)}")
        if len(self.ring_elevations()) * self.columns > MAX_BEAMS:
            raise ValueError(f"expected at most {MAX_BEAMS:,} beams a turn, found {self.columns * self.rings:,}")
        return self

    def ring_elevations(self) -> tuple[float, ...]:
        """[rad] of each ring."""
        if self.elevations is not None:
            return self.elevations
        step = (self.highest - self.lowest) / max(self.rings - 1, 1)
        return tuple(self.lowest + step * ring for ring in range(self.rings))


@dataclass(frozen=True)
class LidarInstrument:
    turn: LidarTurn
    may_break: bool = True  # a beam must not end the run

    def read(self, view: View) -> npt.NDArray[np.void]:
        """The points that come back, as an array of POINT."""
        return self.turn.sample(view.motion, view.bodies, view.key, view.tick)


def _instrument(context: SensorContext) -> Reader:
    from microsim.rays.lidar_turn import LidarTurn, beam_table  # with all its kernels: most runs start without it

    block, mount = context.settings, context.mount
    key = ("beams", block.ring_elevations(), block.columns)
    if key not in context.shared:
        context.shared[key] = beam_table(*key[1:])
    beams = context.shared[key]
    noise, world, scenery = (block.sigma_m, block.dropout_probability), context.world, None
    if block.splats:
        from microsim.sensors._splat_camera import splats_of
        from microsim.sensors._splat_lidar import SplatScenery

        assert context.bundle is not None, "refused with the scenario"
        splats = splats_of(context.bundle_key, context.bundle().gaussians)
        scenery, world = SplatScenery(splats, beams), world.derived(_without_mesh)
    axes, reach = matrix_from_rpy(*mount.rpy), (block.min_m, block.max_m)
    return LidarInstrument(LidarTurn(world, mount.xyz, axes, beams, *reach, *noise, scenery, _workers(context)))


def _workers(context: SensorContext) -> Workers:
    """The LiDARs of a simulation share their threads. In a batch, threads share the worlds."""
    is_batched = context.worlds is None
    if "threads" not in context.shared:
        from microsim.threads import Threads  # with what starts them: most runs start without it

        context.shared["threads"] = OneWorker() if is_batched else Threads(render_request.threads)
    workers: Workers = context.shared["threads"]
    return workers


def _without_mesh(world: World) -> World:
    return replace(world, mesh=None)


def _encoder(context: SensorContext) -> Callable[[int, Any], bytes]:
    """A cloud of one row, only of beams that came back."""
    type_name, numbers = "sensor_msgs/msg/PointCloud2", {"<f4": 7, "<u2": 4}  # PointField.FLOAT32, UINT16
    assert POINT.fields is not None
    fields = [
        new("sensor_msgs/msg/PointField", name=name, offset=offset, datatype=numbers[kind.str], count=1)
        for name, (kind, offset, *_) in POINT.fields.items()
    ]
    message = new(
        type_name, header=header(context.frame), height=1, fields=fields, point_step=POINT.itemsize, is_dense=True
    )
    blob, places = bytearray(encode(type_name, message)), layout(type_name, message)
    stamp_at, width_at, step_at = (places[name].offset for name in ("header.stamp.sec", "width", "row_step"))
    length_at = step_at + 4  # the data's length follows
    del blob[length_at + 4 :]

    def build(stamp_ns: int, points: npt.NDArray[Any]) -> bytes:
        data = points.tobytes()
        struct.pack_into("<iI", blob, stamp_at, *divmod(stamp_ns, 1_000_000_000))
        struct.pack_into("<I", blob, width_at, len(points))
        struct.pack_into("<II", blob, step_at, len(data), len(data))
        return b"".join((blob, data, b"\1", bytes(-(len(data) + 1) % 4)))

    return build


SENSOR = Instrument(
    "lidar",
    Lidar,
    _instrument,
    title="LiDAR",
    about="point cloud of a turn",
    shape=lambda context: (len(context.settings.ring_elevations()) * context.settings.columns,),
    dtype=POINT,
    on_failure="empty",
    mount=Mount(xyz=(0.0, 0.0, 0.3)),
    messages=(
        MessageForm(
            "sensor_msgs/msg/PointCloud2",
            "/{robot}/{sensor}/points",
            Qos(5),
            "x, y, z, intensity, ring, time of each beam that came back",
            encoder=_encoder,
            kind="points",
        ),
    ),
    faults=(DROPOUT, FAIL),
    display=Display("{width:,} points, {age:.2f} s ago", layer="points"),
    position=80,
)
