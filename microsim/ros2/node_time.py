"""Whose time a small node lives in: the system's, its own, or that of another's /clock."""

from __future__ import annotations

import time
from typing import Any, Protocol

from pydantic import Field

from microsim.documents.values import Model, Positive, Switch
from microsim.engine.timekeeper import Clock
from microsim.errors import UsageError
from microsim.messages.checked import WireError, decode_checked
from microsim.messages.topics import TOPICS, Qos
from microsim.ros2.transport import Transport
from microsim.runner import NAP_S, Pacer, WallClock

READ_ONLY: dict[str, Any] = {
    "read_only": True
}  # `json_schema_extra` of a setting that is fixed once the node has started


class TimeSettings(Model):
    """What every small node can be told about time; its own settings derive from it."""

    use_sim_time: Switch = Field(
        False, description="Follow the /clock of another node in place of the system's.", json_schema_extra=READ_ONLY
    )
    publish_clock: Switch = Field(
        False,
        description="Make simulated time: it starts at 0, is published on /clock, and same commands give same bytes.",
        json_schema_extra=READ_ONLY,
    )
    speed_factor: Positive = Field(
        1.0, description="Simulated seconds per second, with publish_clock.", json_schema_extra=READ_ONLY
    )


class NodeTime(Protocol):
    def start(self, tick: int) -> None:
        """This tick is now."""

    def wait_s(self, tick: int) -> float:
        """How long until the tick is due; 0: it is."""

    def stamp_ns(self, tick: int) -> int:
        """What messages of the tick that has just come are stamped with."""


def node_time(transport: Transport, settings: TimeSettings, ticks: Clock, clock: WallClock) -> NodeTime:
    if settings.publish_clock:
        return OwnTime(ticks, clock, settings.speed_factor)
    if settings.speed_factor != 1.0:
        raise UsageError("speed_factor needs publish_clock: true; system time and another's /clock have their own pace")
    return ClockTime(transport, ticks) if settings.use_sim_time else SystemTime(ticks.dt, clock)


class SystemTime:
    """Paced by the wall clock; stamps are the time of day, as those of any ROS 2 node."""

    def __init__(self, dt: float, clock: WallClock, rtf: float = 1.0) -> None:
        self._pacer, self._clock = Pacer(dt, rtf), clock

    def start(self, tick: int) -> None:
        self._pacer.anchor(tick, self._clock.now())

    def wait_s(self, tick: int) -> float:
        return max(-self._pacer.lateness(tick, self._clock.now()), 0.0)

    def stamp_ns(self, tick: int) -> int:
        return time.time_ns()


class OwnTime(SystemTime):
    """Paced by the wall clock; stamps are simulated time."""

    def __init__(self, ticks: Clock, clock: WallClock, rtf: float) -> None:
        super().__init__(ticks.dt, clock, rtf)
        self._ticks = ticks

    def stamp_ns(self, tick: int) -> int:
        return self._ticks.time_ns(tick)


class ClockTime:
    """Paced and stamped by somebody else's /clock; when that jumps back, this node goes on from there."""

    def __init__(self, transport: Transport, ticks: Clock) -> None:
        self._ticks = ticks
        self._now_ns: int | None = None
        self._anchor_tick, self._anchor_ns = 0, 0
        self._tick = 0  # that we are at
        topic = TOPICS["clock"]
        transport.subscribe(topic.name, topic.type, Qos(10, reliable=False), self._hear)  # takes every publisher's

    def _hear(self, cdr: bytes) -> None:
        try:
            stamp = decode_checked(TOPICS["clock"].type, cdr).clock
        except WireError:
            return
        now_ns = stamp.sec * 10**9 + stamp.nanosec
        if self._now_ns is None or now_ns < self._now_ns:
            self._anchor_tick, self._anchor_ns = self._tick, now_ns
        self._now_ns = now_ns

    def start(self, tick: int) -> None:
        self._tick = tick

    def wait_s(self, tick: int) -> float:
        return 0.0 if self._now_ns is not None and self._time_ns(tick) <= self._now_ns else NAP_S

    def stamp_ns(self, tick: int) -> int:
        self._tick = tick
        return self._time_ns(tick)

    def _time_ns(self, tick: int) -> int:
        return self._anchor_ns + self._ticks.time_ns(tick) - self._ticks.time_ns(self._anchor_tick)
