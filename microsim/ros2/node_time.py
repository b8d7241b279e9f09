"""Whose time a small node lives in: the system's, its own, or that of another node's /clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from pydantic import Field

from microsim.documents.values import Model, Positive, Switch
from microsim.engine.timekeeper import NS_PER_S, Clock
from microsim.errors import UsageError
from microsim.messages.checked import WireError, decode_checked
from microsim.messages.topics import TOPICS, Qos
from microsim.ros2.transport import Transport
from microsim.runner import NAP_S, Pacer, WallClock

READ_ONLY: dict[str, Any] = {"read_only": True}  # `json_schema_extra` of a setting that is fixed once the node started

JUMP_S = 2.0  # a /clock that is farther ahead has jumped: the time between is skipped
LAG_S = 0.25  # a tick that is later than this is worth a warning
STEP_NS = 100_000_000  # stamps that are farther from the system's clock follow it: somebody set it


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


class NodeClock(Clock):
    """Ticks to stamps: a node's ticks are evenly spaced in whatever time it lives in."""

    offset_ns = 0  # stamp of tick 0

    @property
    def is_simple(self) -> bool:
        return self.offset_ns == 0 and super().is_simple

    def time_ns(self, tick: int) -> int:
        return super().time_ns(tick) + self.offset_ns

    def set(self, tick: int, stamp_ns: int) -> None:
        """This tick has that stamp, and later ones count from there."""
        self.offset_ns = stamp_ns - super().time_ns(tick)


def node_clock(settings: TimeSettings, rate_hz: float) -> NodeClock:
    """The clock of a node that starts now."""
    clock = NodeClock(rate_hz)
    if not settings.publish_clock and not settings.use_sim_time:
        clock.set(0, time.time_ns())
    return clock


Warn = Callable[[str], None]


class NodeTime(Protocol):
    waits_for: str  # what must arrive before time passes; "": nothing

    def start(self, tick: int) -> None:
        """This tick is now."""

    def wait_s(self, tick: int) -> float:
        """How long until the tick is due; 0: it is."""

    def figures(self) -> dict[str, str]:
        """For /diagnostics: how well the pace is kept."""


def node_time(transport: Transport, settings: TimeSettings, ticks: NodeClock, clock: WallClock, warn: Warn) -> NodeTime:
    if settings.publish_clock:
        return OwnTime(ticks, clock, warn, settings.speed_factor)
    if settings.speed_factor != 1.0:
        raise UsageError(
            "speed_factor needs publish_clock: true; the system's time and another node's /clock have their own pace"
        )
    return ClockTime(transport, ticks, warn) if settings.use_sim_time else SystemTime(ticks, clock, warn)


class OwnTime:
    """Paced by the wall clock; stamps are simulated time, from 0."""

    waits_for = ""

    def __init__(self, ticks: NodeClock, clock: WallClock, warn: Warn, rtf: float = 1.0) -> None:
        self.ticks, self._clock, self._warn = ticks, clock, warn
        self._pacer = Pacer(ticks.dt, rtf)
        self._lag_s = 0.0  # of the latest tick

    def start(self, tick: int) -> None:
        self._pacer.anchor(tick, self._clock.now())

    def wait_s(self, tick: int) -> float:
        lost = self._pacer.lost_s
        late = self._pacer.lateness(tick, self._clock.now())
        if self._pacer.lost_s != lost:
            self._warn(f"stalled for {self._pacer.lost_s - lost:.1f} s (machine busy or asleep); no tick was skipped")
            self.stalled(tick)
        self._lag_s = max(late, 0.0)
        if late > LAG_S:
            rate = f"{float(self.ticks.rate) * self._pacer.rtf:g}"
            self._warn(f"tick lag {late * 1e3:.0f} ms: this machine does not keep up with {rate} updates a second")
        return max(-late, 0.0)

    def stalled(self, tick: int) -> None:
        """Time was lost before this tick."""

    def figures(self) -> dict[str, str]:
        return {"tick_lag_ms": f"{1e3 * self._lag_s:.3f}", "stalls": str(self._pacer.stalls)}


class SystemTime(OwnTime):
    """Paced by the wall clock; stamps are the time of day at which ticks were due, so they match the motion."""

    def __init__(self, ticks: NodeClock, clock: WallClock, warn: Warn) -> None:
        super().__init__(ticks, clock, warn)
        self._now_ns: Callable[[], int] = getattr(clock, "time_ns", time.time_ns)

    def start(self, tick: int) -> None:
        super().start(tick)
        self.ticks.set(tick, self._now_ns())

    def stalled(self, tick: int) -> None:
        self.ticks.set(tick, self._now_ns())

    def wait_s(self, tick: int) -> float:
        wait = super().wait_s(tick)
        due_ns = self._now_ns() + int((wait - self._lag_s) * NS_PER_S)
        if abs(due_ns - self.ticks.time_ns(tick)) > STEP_NS:
            self.ticks.set(tick, due_ns)
        return wait


class ClockTime:
    """Paced and stamped by another node's /clock; where that jumps, this node goes on from there.

    ROS 2 nodes listen to the global /clock, whatever their namespace. One in the node's own namespace wins over it.
    """

    def __init__(self, transport: Transport, ticks: NodeClock, warn: Warn) -> None:
        self._ticks, self._warn = ticks, warn
        self._now_ns: int | None = None
        self._tick = 0  # that we are at, or that comes next
        self._has_own = False
        self.waits_for = "/clock (use_sim_time is true)"
        topic, qos = TOPICS["clock"], Qos(10, reliable=False)  # takes what any publisher offers
        transport.subscribe(topic.name, topic.type, qos, self._on_own)
        if transport.node_name.count("/") > 1:
            transport.subscribe(f"/{topic.name}", topic.type, qos, self._on_global)

    def _on_own(self, cdr: bytes) -> None:
        self._has_own = True
        self._hear(cdr)

    def _on_global(self, cdr: bytes) -> None:
        if not self._has_own:
            self._hear(cdr)

    def _hear(self, cdr: bytes) -> None:
        try:
            stamp = decode_checked(TOPICS["clock"].type, cdr).clock
        except WireError:
            return
        now_ns = stamp.sec * NS_PER_S + stamp.nanosec
        if self._now_ns is None:
            self._ticks.set(self._tick, now_ns)
        elif now_ns < self._now_ns:
            self._warn(f"/clock jumped back by {(self._now_ns - now_ns) / NS_PER_S:.3f} s; continued from there")
            self._ticks.set(self._tick, now_ns)
        self._now_ns = now_ns

    def start(self, tick: int) -> None:
        self._tick = tick

    def wait_s(self, tick: int) -> float:
        if self._now_ns is None:
            return NAP_S
        behind_ns = self._now_ns - self._ticks.time_ns(tick)
        if behind_ns > JUMP_S * NS_PER_S:
            self._warn(f"/clock is {behind_ns / NS_PER_S:.3f} s ahead; continued from there without the time between")
            self._ticks.set(tick, self._now_ns)
        if behind_ns < 0:
            return NAP_S
        self._tick = tick
        return 0.0

    def figures(self) -> dict[str, str]:
        if self._now_ns is None:
            return {"tick_lag_ms": ""}
        return {"tick_lag_ms": f"{max(self._now_ns - self._ticks.time_ns(self._tick), 0) / 1e6:.3f}"}
