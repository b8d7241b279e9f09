"""Planar laser scan: one beam per angle against the occupied cells."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from microsim.documents.values import Angle, Chance, Count, Height, Hertz, Length, Noise, nearest_first, show
from microsim.engine import calls, exact, geometry, noise
from microsim.engine.calls import Scene
from microsim.engine.compiled import inlined, kernel
from microsim.engine.geometry import Array, Grid
from microsim.engine.motion import COS_YAW, PLACE_X, PLACE_Y, SIN_YAW
from microsim.messages.encoders import header
from microsim.messages.topics import Qos
from microsim.messages.types import new
from microsim.rays import cell_packets
from microsim.rays.cell_packets import LANES
from microsim.sensors.range import DROPOUT_PROBABILITY, MAX, MIN, NOISE_REACH, SIGMA, is_behind_wall
from microsim.sensors.sensor import Display, KernelSensor, MessageForm, Mount, MountedSensor, SensorContext

_distance_to_occupied = geometry.distance_to_occupied
_is_on_gpu, _room = calls.is_on_gpu, calls.room
_meet_cells = cell_packets.meet_cells
_normals = noise.normals
_uniforms = noise.uniforms
_is_behind_wall = is_behind_wall

_TURN = 2 * 3.141592653589793
BearingAngle = Annotated[Angle, Field(ge=-_TURN, le=_TURN)]


class Scan(MountedSensor):
    """`sensor_msgs/LaserScan` on `scan`: a fan of rays in the plane of its link."""

    hz: Hertz = Field(10, description="Rate; at most physics_hz [Hz].")
    beams: Annotated[Count, Field(le=100_000)] = Field(360, description="Number of rays.")
    angle_min: BearingAngle = Field(-_TURN / 2, description="Direction of the first [rad].")
    angle_max: BearingAngle = Field(_TURN / 2, description="Direction of the last [rad].")
    min_m: Height = Field(0.1, description="Nearer than this reads -inf [m].")
    max_m: Length = Field(20.0, description="Farther than this reads +inf [m].")
    sigma_m: Noise = Field(0.01, description="White noise, 1 sigma [m].")
    dropout_probability: Chance = Field(0.0, description="Probability that a reading is NaN.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        nearest_first(self.min_m, self.max_m)
        if self.angle_min >= self.angle_max:
            raise ValueError(
                f"expected angle_min below angle_max, found {show(self.angle_min)} and {show(self.angle_max)}"
            )
        return self

    @property
    def step(self) -> float:
        """Angle between two beams [rad]. A full turn does not repeat its first beam."""
        span = self.angle_max - self.angle_min
        is_full_turn = abs(span - exact.TWO_PI) < 1e-9
        return span / (self.beams if is_full_turn else max(self.beams - 1, 1))


@kernel
def cast(motion: Array, scene: Scene, reach: float, distances: Array) -> None:
    """Distances along every beam, inf beyond reach; the table holds cos, then sin of each beam in base_link."""
    count, sine, cosine = distances.shape[0], motion[SIN_YAW], motion[COS_YAW]
    x, y = motion[PLACE_X] - scene.west, motion[PLACE_Y] - scene.south
    rows, columns = scene.clearance.shape
    is_on_map = 0.0 <= x / scene.cell < columns and 0.0 <= y / scene.cell < rows
    if is_on_map and not _is_on_gpu():
        for first in range(0, count, LANES):
            _cast_packet(scene.clearance, scene.cell, (x, y), scene.table, (sine, cosine), first, reach, distances)
        return
    for i in range(count):
        dx, dy = _direction(scene.table, i, count, sine, cosine)
        distances[i] = _distance_to_occupied(scene.clearance, scene.cell, x, y, dx, dy, reach, False)


@inlined
def _direction(table: Array, beam: int, count: int, sine: float, cosine: float) -> tuple[float, float]:
    ahead, aside = table[beam], table[count + beam]
    return cosine * ahead - sine * aside, sine * ahead + cosine * aside


@kernel
def _cast_packet(
    clearance: Grid, cell: float, place: tuple[float, float], table: Array, heading: tuple[float, float], first: int,
    reach: float, distances: Array,
) -> None:  # fmt: skip
    """Distances of LANES beams from a place on the map, in SIMD."""
    xs, ys, dxs, dys = _room(LANES), _room(LANES), _room(LANES), _room(LANES)
    reaches, out, count = _room(LANES), _room(LANES), distances.shape[0]
    for r in range(LANES):
        xs[r], ys[r], reaches[r] = place[0], place[1], reach
        dxs[r], dys[r] = _direction(table, min(first + r, count - 1), count, heading[0], heading[1])
    _meet_cells(clearance, cell, xs, ys, dxs, dys, reaches, out)
    for r in range(min(LANES, count - first)):
        distances[first + r] = out[r]


@kernel
def blur(settings: Array, key: int, tick: int, ranges: Array) -> None:
    """Noise, dropouts and REP-117; beam i draws number i of the stream, whatever the other beams saw."""
    low, high, sigma, drop = settings[MIN], settings[MAX], settings[SIGMA], settings[DROPOUT_PROBABILITY]
    first, second, drawn = 0.0, 0.0, -1
    for i in range(ranges.shape[0]):
        value = ranges[i]
        if sigma > 0.0 and value < math.inf:  # what is out of reach stays so
            if drawn != i // 2:
                drawn = i // 2
                first, second = _normals(key, tick, drawn)
            value += sigma * (first if i % 2 == 0 else second)
        value = -math.inf if value < low else math.inf if value > high else value
        if drop > 0.0 and _uniforms(key, tick, (1 << 20) + i)[0] < drop:
            value = math.nan
        ranges[i] = value


@kernel
def sample(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """Distances [m], +inf, -inf, or NaN for a dropout."""
    if _is_behind_wall(motion, scene):
        reading[:] = 0.0
    else:
        cast(motion, scene, settings[MAX] + NOISE_REACH * settings[SIGMA], reading)
    blur(settings, key, tick, reading)


def beam_table(context: SensorContext) -> Array:
    block, yaw = context.settings, context.mount.rpy[2]
    angles = [exact.wrap_angle(block.angle_min + i * block.step + yaw) for i in range(block.beams)]
    return np.array([exact.cos(angle) for angle in angles] + [exact.sin(angle) for angle in angles])


def _numbers(context: SensorContext) -> tuple[float, ...]:
    block = context.settings
    return block.min_m, block.max_m, block.sigma_m, block.dropout_probability


def _scan(context: SensorContext) -> Any:
    block = context.settings
    return new(
        "sensor_msgs/msg/LaserScan",
        header=header(context.frame),
        angle_min=block.angle_min,
        angle_max=block.angle_min + block.step * (block.beams - 1),
        angle_increment=block.step,
        scan_time=1.0 / block.hz,
        range_min=block.min_m,
        range_max=block.max_m,
        ranges=np.zeros(block.beams, np.float32),
    )


def _line(message: Any) -> str:
    hits = message.ranges[np.isfinite(message.ranges)]
    return f"{len(message.ranges)} beams, {f'nearest {hits.min():.2f} m' if len(hits) else 'clear'}"


SENSOR = KernelSensor(
    "scan",
    Scan,
    sample,
    title="Laser scanner",
    about="planar scan",
    mount=Mount(xyz=(0.25, 0.0, 0.08)),
    reads="place",
    reading={"ranges": "m"},
    size=lambda context: int(context.settings.beams),
    dtype=np.float32,
    numbers=_numbers,
    table=beam_table,
    messages=(
        MessageForm(
            "sensor_msgs/msg/LaserScan", "/{robot}/{sensor}", Qos(5), "planar scan", _scan, {"ranges": "ranges"}
        ),
    ),
    display=Display(_line, layer="fan"),
    position=70,
)
