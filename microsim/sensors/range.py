"""Single-beam range sensor (PRD 4.2.3): first occupied cell ahead; REP-117 for what is out of range."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field, model_validator
from typing_extensions import Self

from microsim.documents.values import Chance, Finite, Height, Hertz, Length, Noise, nearest_first
from microsim.engine import exact, geometry, noise
from microsim.engine.calls import Scene
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array
from microsim.engine.motion import COS_YAW, PLACE_X, PLACE_Y, SIN_YAW, X, Y
from microsim.messages.encoders import header
from microsim.messages.topics import Qos
from microsim.messages.types import new
from microsim.sensors.sensor import Display, LinePart, MessageForm, Mount, MountedSensor, Sensor, SensorContext

_distance_to_occupied = geometry.distance_to_occupied
_normals = noise.normals
_uniforms = noise.uniforms

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


@kernel
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


@kernel
def sample(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """Distance [m], +inf, -inf, or NaN for a dropout."""
    distance, sigma = 0.0, settings[SIGMA]
    if not is_behind_wall(motion, scene):
        sine, cosine, ahead, aside = motion[SIN_YAW], motion[COS_YAW], settings[_AHEAD], settings[_ASIDE]
        dx, dy = cosine * ahead - sine * aside, sine * ahead + cosine * aside
        reach = settings[MAX] + NOISE_REACH * sigma
        x, y = motion[PLACE_X] - scene.west, motion[PLACE_Y] - scene.south
        distance = _distance_to_occupied(scene.clearance, scene.cell, x, y, dx, dy, reach, False)
    drop = settings[DROPOUT_PROBABILITY]
    if drop > 0.0 and _uniforms(key, tick, 1)[0] < drop:
        reading[0] = math.nan
        return
    reading[0] = measured(distance, sigma * _normals(key, tick, 0)[0], settings[MIN], settings[MAX])


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


SENSOR = Sensor(
    "range",
    title="Range sensor",
    about="distance ahead",
    settings=Range,
    mount=Mount(xyz=(0.25, 0.0, 0.08)),
    sample=sample,
    reads_place_only=True,
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
