"""GPS (PRD 4.2.1): position of the antenna in WGS-84, with white noise and a slowly walking bias."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from microsim.documents.values import Hertz, Noise
from microsim.engine import calls, geodesy, noise
from microsim.engine.calls import BLOCK, Scene
from microsim.engine.compiled import inlined, kernel
from microsim.engine.geometry import Array
from microsim.engine.motion import PLACE_X, PLACE_Y, PLACE_Z
from microsim.engine.noise import Integers
from microsim.messages.encoders import header
from microsim.messages.topics import Qos
from microsim.messages.types import new
from microsim.sensors.sensor import DROPOUT, JUMP, Display, KernelSensor, MessageForm, MountedSensor, SensorContext

_six_normals, _fill_uniforms, _fill_quantiles = noise.six_normals, noise.fill_uniforms, noise.fill_quantiles
_room, _integers_at, _table_address = calls.room, calls.integers_at, calls.table_address
_wgs84_from_enu = geodesy.wgs84_from_enu
_EAST, _NORTH, _UP, _LAST_TICK = range(4)  # of the memory
_DRAWS, _PLACES = 6 * BLOCK, 7 * BLOCK  # of a block of worlds


class Gps(MountedSensor):
    """`sensor_msgs/NavSatFix` on `gps/fix`."""

    hz: Hertz = Field(5, description="Rate; at most physics_hz [Hz].")
    sigma_m: Noise = Field(2.0, description="White noise of each axis, 1 sigma [m].")
    bias_drift_m_per_s: Noise = Field(
        0.005,
        description="Slow random walk of the bias: 1 sigma after one second, growing with its square root [m/√s].",
    )


@inlined
def _measure(
    settings: Array, motion: Array, memory: Array, scene: Scene, tick: int, drawn: Any, reading: Array
) -> None:
    """A fix from six normal numbers."""
    sigma, drift, dt = settings[0], settings[1], scene.dt
    step = drift * math.sqrt((tick - memory[_LAST_TICK]) * dt)
    memory[_EAST] += step * drawn[3]
    memory[_NORTH] += step * drawn[4]
    memory[_UP] += step * drawn[5]
    memory[_LAST_TICK] = tick
    reading[0], reading[1], reading[2] = _wgs84_from_enu(
        scene.plane,
        motion[PLACE_X] + sigma * drawn[0] + memory[_EAST],
        motion[PLACE_Y] + sigma * drawn[1] + memory[_NORTH],
        motion[PLACE_Z] + sigma * drawn[2] + memory[_UP],
    )
    variance = sigma * sigma + drift * drift * tick * dt
    # Filters divide by it, and 0 would say "exact": a bias that has yet to walk counts as that of one tick.
    reading[3] = variance if variance > 0.0 else drift * drift * dt


@kernel
def sample(settings: Array, motion: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """Latitude and longitude [deg], altitude [m], variance of each axis [m^2]."""
    _measure(settings, motion, memory, scene, tick, _six_normals(key, tick), reading)


@inlined
def sample_many(
    settings: Array, motion: Array, memory: Array, scene: Scene, keys: Integers, ticks: Integers, reading: Array
) -> None:
    """The same in a block of worlds, in SIMD."""
    uniforms, drawn, places = _room(_DRAWS), _room(_DRAWS), _room(_PLACES)
    tails = _integers_at(_table_address(places), _PLACES)
    for index in range(3):
        _fill_uniforms(keys, ticks, index, uniforms[2 * index * BLOCK : 2 * (index + 1) * BLOCK])
    _fill_quantiles(uniforms, tails, drawn)
    normals = drawn.reshape(6, BLOCK)
    for i in range(BLOCK):
        _measure(settings[:, i], motion[:, i], memory[:, i], scene, ticks[i], normals[:, i], reading[:, i])


def _fix(context: SensorContext) -> Any:
    has_noise = context.settings.sigma_m > 0.0 or context.settings.bias_drift_m_per_s > 0.0
    kind = 2 if has_noise else 0  # diagonal known; unknown, as ROS 2 has it where there are only zeros
    message = new("sensor_msgs/msg/NavSatFix", header=header(context.frame), position_covariance_type=kind)
    message.status.service = 1  # GPS
    return message


SENSOR = KernelSensor(
    "gps",
    Gps,
    sample,
    title="GPS",
    about="WGS-84 with covariance",
    is_standard=True,
    needs_origin=True,
    sample_many=sample_many,
    reads="place",
    reading={"latitude": "deg", "longitude": "deg", "altitude": "m", "variance": "m²"},
    numbers=lambda context: (context.settings.sigma_m, context.settings.bias_drift_m_per_s),
    memory=("east", "north", "up", "last_tick"),
    messages=(
        MessageForm(
            "sensor_msgs/msg/NavSatFix",
            "/{robot}/{sensor}/fix",
            Qos(5),
            "WGS-84 with covariance",
            _fix,
            {
                "latitude": "latitude",
                "longitude": "longitude",
                "altitude": "altitude",
                "position_covariance[0]": "variance",
                "position_covariance[4]": "variance",
                "position_covariance[8]": "variance",
            },
        ),
    ),
    faults=(DROPOUT, JUMP),
    display=Display(
        ("{latitude:.6f}°  {longitude:.6f}°  {altitude:.1f} m", "{latitude:.5f} {longitude:.5f} {altitude:.0f} m"),
        layer="fix",
        order=20,
    ),
    common_parameters={
        "gps_hz": "hz",
        "sensors.gps_sigma_m": "sigma_m",
        "sensors.gps_bias_drift_m_per_s": "bias_drift_m_per_s",
    },
    position=30,
)
