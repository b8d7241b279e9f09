"""What people are shown of a run: robots, radio links, pace and sensors. Reading it changes nothing.

The dashboard and the web viewer are built on this. Neither names a kind of sensor or robot: what a sensor looks like is
in its `Display`, what a robot looks like in its `look`, `body` and `urdf`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.components import (
    CONTACTS,
    PITCH,
    ROLL,
    TOUCHING,
    VELOCITY_X,
    VELOCITY_Y,
    VELOCITY_Z,
    YAW,
    YAW_RATE,
    X,
    Y,
    Z,
)
from microsim.messages.outbox import Message
from microsim.runner import Runner
from microsim.scenario import Scenario
from microsim.sensors.sensor import MessageForm, Sensor, SensorBlock
from microsim.simulation import Simulation

Picture: TypeAlias = npt.NDArray[np.uint8]  # (height, width, 3)

_RECENT_S = 2.0  # over which the achieved real-time factor is taken
_LONGEST_ARRAY = 12  # whose elements count as numbers of a message
_COLOUR_ORDER = {"rgb8": (0, 1, 2), "rgba8": (0, 1, 2), "bgr8": (2, 1, 0), "bgra8": (2, 1, 0), "mono8": (0, 0, 0)}
_GREY_TYPES = {"mono16": "u2", "16UC1": "u2", "32FC1": "f4"}


# ---- robots and radio ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RobotState:
    position: tuple[float, float, float]  # [m] map frame
    rpy: tuple[float, float, float]  # [rad]
    speed: float  # [m/s] over ground, upwards included
    velocity: tuple[float, float, float]  # [m/s] map axes
    turn: float  # [rad/s]
    height: float  # [m] above the ground
    contacts: int = 0  # that have begun since the start
    touching: tuple[str, ...] = ()  # what it touches now


@dataclass(frozen=True)
class LinkState:
    """One direction of the radio since the last reset."""

    sender: str
    receiver: str
    sent: int
    delivered: int
    lost: int
    latency_ms: float  # mean
    last_latency_ms: float
    queued: int
    rssi_dbm: float | None = None


def robot_states(sim: Simulation) -> dict[str, RobotState]:
    return {name: robot_state(sim, name) for name in sim.robots}


def robot_state(sim: Simulation, name: str) -> RobotState:
    rows = sim.rows(name)
    velocity = (rows[VELOCITY_X], rows[VELOCITY_Y], rows[VELOCITY_Z])
    return RobotState(
        position=(rows[X], rows[Y], rows[Z]),
        rpy=(rows[ROLL], rows[PITCH], rows[YAW]),
        speed=math.hypot(*velocity),
        velocity=velocity,
        turn=rows[YAW_RATE],
        height=rows[Z] - sim.world.ground(rows[X], rows[Y]),
        contacts=int(rows[CONTACTS]),
        touching=sim.touching(name) if rows[TOUCHING] else (),
    )


def link_states(sim: Simulation) -> tuple[LinkState, ...]:
    if sim.radio is None:
        return ()
    tick_ms = 1000.0 * sim.clock.dt
    return tuple(
        LinkState(
            sender=link.sender,
            receiver=link.receiver,
            sent=link.sent,
            delivered=link.delivered,
            lost=link.dropped + link.overflowed,
            latency_ms=tick_ms * link.latency_sum / link.delivered if link.delivered else 0.0,
            last_latency_ms=tick_ms * link.last_latency,
            queued=len(link.queue),
            rssi_dbm=link.rssi_dbm,
        )
        for link in sim.radio.used_links()
    )


@dataclass(frozen=True)
class RunState:
    """A run at a moment."""

    tick: int
    time_ns: int
    seed: int
    asked_rtf: float
    rtf: float  # over the last seconds
    lateness_ms: float
    worst_lateness_ms: float
    digest: str
    robots: Mapping[str, RobotState]
    links: tuple[LinkState, ...]

    def age(self, message: Message) -> float:
        """[s] of simulated time since what it describes."""
        return max(self.time_ns - message.stamp_ns, 0) / 1e9


def run_state(runner: Runner, rtf: float = 0.0) -> dict[str, Any]:
    """The fields of `RunState` now."""
    sim = runner.sim
    return {
        "tick": sim.tick, "time_ns": sim.time_ns, "seed": sim.seed, "asked_rtf": runner.rtf, "rtf": rtf,
        "lateness_ms": 1000.0 * runner.lateness_s, "worst_lateness_ms": 1000.0 * runner.worst_lateness_s,
        "digest": sim.digest(), "robots": robot_states(sim), "links": link_states(sim),
    }  # fmt: skip


class RecentPace:
    """The achieved real-time factor over the last seconds."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, float]] = deque()

    def update(self, wall_s: float, sim_s: float) -> float:
        self._past.append((wall_s, sim_s))
        while len(self._past) > 2 and wall_s - self._past[1][0] > _RECENT_S:
            self._past.popleft()
        first_wall_s, first_sim_s = self._past[0]
        return (sim_s - first_sim_s) / (wall_s - first_wall_s) if wall_s > first_wall_s else 0.0

    @property
    def is_settled(self) -> bool:
        """Whether it covers nearly the whole time."""
        return self._past[-1][0] - self._past[0][0] >= 0.9 * _RECENT_S

    def clear(self) -> None:
        self._past.clear()


# ---- sensors ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShownSensor:
    """A sensor of a robot and what it sends."""

    robot: str
    name: str
    kind: Sensor
    block: SensorBlock
    forms: Mapping[str, MessageForm]  # by topic, the sensor's main message first

    @property
    def topic(self) -> str:
        """Of its main message, which `Display` is about."""
        return next(iter(self.forms))

    @property
    def main_form(self) -> MessageForm:
        return self.forms[self.topic]

    def topics_of_type(self, type_name: str) -> list[str]:
        return [topic for topic, form in self.forms.items() if form.type == type_name]


def shown_sensors(scenario: Scenario) -> Iterator[ShownSensor]:
    """Every sensor of every robot, built in or not."""
    for robot, name, block, kind in scenario.all_sensors:
        forms = [form for form in kind.messages if form.applies(block)]
        yield ShownSensor(robot, name, kind, block, {kind.topic(form, robot, name): form for form in forms})


# ---- messages --------------------------------------------------------------------------------------------------------


def numbers(message: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Path and value of every number in a decoded message, without its header and without long arrays."""
    for field in fields(message):
        if field.name not in ("header", "__msgtype__") and not field.name.isupper():  # constants of the type
            yield from _numbers_in(getattr(message, field.name), f"{path}.{field.name}" if path else field.name)


def _numbers_in(value: Any, path: str) -> Iterator[tuple[str, float]]:
    if is_dataclass(value):
        yield from numbers(value, path)
    elif isinstance(value, (bool, int, float, np.number)):
        yield path, float(value)
    elif isinstance(value, (list, np.ndarray)) and len(value) <= _LONGEST_ARRAY:
        for index, element in enumerate(value):
            yield from _numbers_in(element, f"{path}[{index}]")


def picture(image: Any) -> Picture:
    """The pixels of a `sensor_msgs/Image` of any usual encoding; single numbers become shades of grey."""
    rows = np.asarray(image.data, np.uint8).reshape(image.height, image.step)
    if image.encoding in _COLOUR_ORDER:
        channels = {"mono8": 1, "rgb8": 3, "bgr8": 3}.get(image.encoding, 4)
        pixels = rows[:, : channels * image.width].reshape(image.height, image.width, channels)
        return np.ascontiguousarray(pixels[:, :, list(_COLOUR_ORDER[image.encoding])])
    if image.encoding not in _GREY_TYPES:
        known = ", ".join((*_COLOUR_ORDER, *_GREY_TYPES))
        raise ValueError(f"images of the encoding {image.encoding!r} cannot be shown; supported are {known}")
    code = np.dtype((">" if image.is_bigendian else "<") + _GREY_TYPES[image.encoding])
    values = np.ascontiguousarray(rows[:, : code.itemsize * image.width]).view(code).astype(np.float64)
    values[~np.isfinite(values)] = np.nan
    low, high = (np.nanmin(values), np.nanmax(values)) if np.isfinite(values).any() else (0.0, 1.0)
    grey = np.nan_to_num((values - low) / max(high - low, 1e-9) * 255.0, nan=255.0).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)
