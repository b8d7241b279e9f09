"""Single-beam range sensor (PRD 4.2.3): first occupied cell ahead; REP-117 for what is out of range."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field, model_validator
from typing_extensions import Self

from microsim.documents.values import Chance, Finite, Height, Hertz, Length, Noise, nearest_first
from microsim.engine import calls, exact, geometry, noise
from microsim.engine.calls import BLOCK, Scene
from microsim.engine.compiled import inlined, kernel
from microsim.engine.geometry import Array
from microsim.engine.motion import COS_YAW, PLACE_X, PLACE_Y, SENSOR_FIELDS, SIN_YAW, X, Y
from microsim.engine.noise import Integers
from microsim.messages.encoders import header
from microsim.messages.topics import Qos
from microsim.messages.types import new
from microsim.rays import cell_packets
from microsim.rays.cell_packets import LANES
from microsim.sensors.sensor import Display, KernelSensor, LinePart, MessageForm, Mount, MountedSensor, SensorContext

_distance_to_occupied = geometry.distance_to_occupied
_is_on_cells, _meet_cells = cell_packets.is_on_cells, cell_packets.meet_cells
_normals, _uniforms = noise.normals, noise.uniforms
_fill_uniforms, _fill_quantiles = noise.fill_uniforms, noise.fill_quantiles
_room, _integers_at, _table_address = calls.room, calls.integers_at, calls.table_address

_DRAWS = 2 * BLOCK
_ALMOST = 0.9999  # of a distance: what rounding cannot make up for
NOISE_REACH = 10.0  # sigmas beyond max_m within which a hit may still be measured inside
MIN, MAX, SIGMA, DROPOUT_PROBABILITY, _AHEAD, _ASIDE = range(6)  # of the settings; a scan's begin alike


class Range(MountedSensor):
    """`sensor_msgs/Range` on `range/front`: one ray along the x axis of its link."""

    hz: Hertz = Field(10, description="Rate; at most physics_hz [Hz].")
    min_m: Height = Field(0.2, description="Nearer than this reads -inf [m].")
    max_m: Length = Field(10.0, description="Farther than this reads +inf [m].")
    sigma_m: Noise = Field(0.05, description="White noise, 1 sigma [m].")
    dropout_probability: Chance = Field(0.0, description="Probability that a reading is NaN.")
    field_of_view_rad: Annotated[Finite, Field(ge=0, le=3.141592653589793)] = Field(
        0.05, description="Opening angle that the message reports [rad]; the reading is of one ray."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        nearest_first(self.min_m, self.max_m)
        return self


@inlined
def measured(distance: float, noise: float, min_m: float, max_m: float) -> float:
    """REP-117: -inf is too near to measure, +inf is nothing within reach."""
    value = distance + noise
    return -math.inf if value < min_m else math.inf if value > max_m else value


@kernel
def is_behind_wall(motion: Array, scene: Scene) -> bool:
    """True when something occupied lies between the robot's centre and its sensor.

    A robot stops when its centre reaches an occupied cell: the sensor ahead of it may be in the wall, or through it.
    """
    dx, dy = motion[PLACE_X] - motion[X], motion[PLACE_Y] - motion[Y]
    length = math.sqrt(dx * dx + dy * dy)
    if length == 0.0:
        return False
    start_x, start_y = motion[X] - scene.west, motion[Y] - scene.south
    free = _distance_to_occupied(scene.clearance, scene.cell, start_x, start_y, dx / length, dy / length, length, False)
    return free < math.inf


@inlined
def _ahead_of(settings: Array, motion: Array) -> tuple[float, float]:
    """Unit vector of the ray in the map frame."""
    sine, cosine, ahead, aside = motion[SIN_YAW], motion[COS_YAW], settings[_AHEAD], settings[_ASIDE]
    return cosine * ahead - sine * aside, sine * ahead + cosine * aside


@kernel
def _distance(settings: Array, motion: Array, scene: Scene) -> float:
    if is_behind_wall(motion, scene):
        return 0.0
    dx, dy = _ahead_of(settings, motion)
    reach = settings[MAX] + NOISE_REACH * settings[SIGMA]
    x, y = motion[PLACE_X] - scene.west, motion[PLACE_Y] - scene.south
    return _distance_to_occupied(scene.clearance, scene.cell, x, y, dx, dy, reach, False)


@kernel
def sample(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """Distance [m], +inf, -inf, or NaN for a dropout."""
    drop = settings[DROPOUT_PROBABILITY]
    if drop > 0.0 and _uniforms(key, tick, 1)[0] < drop:
        reading[0] = math.nan
        return
    noise = settings[SIGMA] * _normals(key, tick, 0)[0]
    reading[0] = measured(_distance(settings, motion, scene), noise, settings[MIN], settings[MAX])


@inlined
def _find_doubtful(motion: Array, scene: Scene, found: Integers) -> int:
    """Worlds in which something may lie between a robot's centre and its sensor: how many, and which."""
    doubtful, count, clearance, cell = _room(BLOCK), 0, scene.clearance, scene.cell
    for i in range(BLOCK):
        x, y = motion[X, i] - scene.west, motion[Y, i] - scene.south
        dx, dy = motion[PLACE_X, i] - motion[X, i], motion[PLACE_Y, i] - motion[Y, i]
        is_on = _is_on_cells(clearance, cell, x, y)
        free = float(clearance[int(y / cell if is_on else 0.0), int(x / cell if is_on else 0.0)])
        around = (free - 1.0) * cell * _ALMOST if is_on & (free > 1.0) else 0.0  # within it all cells are free
        doubtful[i] = 0.0 if dx * dx + dy * dy < around * around else 1.0
    for i in range(BLOCK):
        found[count] = i
        count += 1 if doubtful[i] > 0.0 else 0
    return count


@inlined
def _cast_packet(settings: Array, motion: Array, scene: Scene, distances: Array) -> None:
    """Distances of LANES worlds, NaN where a ray does not start on the map."""
    xs, ys, dxs, dys = _room(LANES), _room(LANES), _room(LANES), _room(LANES)
    reaches, out = _room(LANES), _room(LANES)
    for r in range(LANES):
        x, y = motion[PLACE_X, r] - scene.west, motion[PLACE_Y, r] - scene.south
        is_on = _is_on_cells(scene.clearance, scene.cell, x, y)
        xs[r], ys[r] = x if is_on else 0.0, y if is_on else 0.0
        dxs[r], dys[r] = _ahead_of(settings[:, r], motion[:, r])
        reach = settings[MAX, r] + NOISE_REACH * settings[SIGMA, r]
        reaches[r] = reach if is_on else math.nan
    _meet_cells(scene.clearance, scene.cell, xs, ys, dxs, dys, reaches, out)
    for r in range(LANES):
        distances[r] = out[r] if reaches[r] == reaches[r] else math.nan


@inlined
def sample_many(
    settings: Array, motion: Array, memory: Array, scene: Scene, keys: Integers, ticks: Integers, reading: Array
) -> None:
    """The same in a block of worlds with one map, in SIMD; what is special about one of them is done by itself."""
    uniforms, drawn, places = _room(_DRAWS), _room(BLOCK), _room(_DRAWS)
    own_settings, own_motion = _room(6), _room(SENSOR_FIELDS)
    found = _integers_at(_table_address(places), _DRAWS)
    _fill_uniforms(keys, ticks, 0, uniforms)
    _fill_quantiles(uniforms[:BLOCK], found, drawn)
    for first in range(0, BLOCK, LANES):
        _cast_packet(settings[:, first:], motion[:, first:], scene, reading[0, first:])
    for i in range(BLOCK):
        if reading[0, i] != reading[0, i]:
            _take_column(settings, i, own_settings)
            _take_column(motion, i, own_motion)
            reading[0, i] = _distance(own_settings, own_motion, scene)
    for k in range(_find_doubtful(motion, scene, found)):
        _take_column(motion, found[k], own_motion)
        if is_behind_wall(own_motion, scene):
            reading[0, found[k]] = 0.0
    for i in range(BLOCK):
        reading[0, i] = measured(reading[0, i], settings[SIGMA, i] * drawn[i], settings[MIN, i], settings[MAX, i])
    for i in range(BLOCK):
        drop = settings[DROPOUT_PROBABILITY, i]
        if drop > 0.0 and _uniforms(keys[i], ticks[i], 1)[0] < drop:
            reading[0, i] = math.nan


@inlined
def _take_column(block: Array, i: int, out: Array) -> None:
    for k in range(out.shape[0]):
        out[k] = block[k, i]


def _numbers(context: SensorContext) -> tuple[float, ...]:
    block, yaw = context.settings, context.mount.rpy[2]
    return (
        block.min_m, block.max_m, block.sigma_m, block.dropout_probability,
        exact.cos(yaw), exact.sin(yaw),
    )  # fmt: skip


def _range(context: SensorContext) -> Any:
    block = context.settings
    return new(
        "sensor_msgs/msg/Range",
        header=header(context.frame),
        radiation_type=1,  # infrared: one beam
        field_of_view=block.field_of_view_rad,
        min_range=block.min_m,
        max_range=block.max_m,
        variance=block.sigma_m * block.sigma_m,
    )


def _line(message: Any) -> list[LinePart]:
    distance, least, most = float(message.range), float(message.min_range), float(message.max_range)
    if math.isnan(distance):
        return [("no echo", "dim")]
    share = (distance - least) / (most - least)
    words = f" {distance:5.2f} m" if math.isfinite(distance) else "   clear" if distance > 0.0 else "    near"
    return [(share, "red" if share < 0.15 else "yellow" if share < 0.4 else "green"), words]


SENSOR = KernelSensor(
    "range",
    Range,
    sample,
    title="Range sensor",
    about="distance ahead",
    mount=Mount(xyz=(0.25, 0.0, 0.08)),
    sample_many=sample_many,
    many_share_map=True,
    reads="place",
    reading={"range": "m"},
    numbers=_numbers,
    messages=(
        MessageForm(
            "sensor_msgs/msg/Range",
            "/{robot}/{sensor}",
            Qos(5),
            "distance ahead; ±inf out of range (REP-117), NaN for a dropout",
            _range,
            {"range": "range"},
        ),
    ),
    path="range/front",
    display=Display(_line, ("range",), "beam", order=10),
    common_parameters={
        "range_hz": "hz",
        "sensors.range_sigma_m": "sigma_m",
        "sensors.range_min_m": "min_m",
        "sensors.range_max_m": "max_m",
        "sensors.range_dropout_probability": "dropout_probability",
    },
    position=60,
)
