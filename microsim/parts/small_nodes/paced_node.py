"""A small paced node: what `sim_rover` and `robot_simulator` share, for one robot or hundreds in one process.

A `Core` holds the robots, in a `Simulation`, and is a pure function of ticks and inputs: it never looks at the wall
clock. `PacedNode` puts it on a transport, hands it what arrives and publishes what it sends; a `Runner` keeps the pace:

    settings = read_settings(transport, MySettings)          # defaults < --ros-args; fields are parameters
    node = PacedNode(transport, MyCore(settings), settings)
    node.subscribe("/cmd_vel", "geometry_msgs/msg/Twist", take)
    node.declare(settings, change)
    node.run()
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from pydantic import Field

from microsim.bare_simulation import BareSimulation, OffsetClock
from microsim.documents.values import Model, Positive, Switch
from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import UsageError
from microsim.messages.checked import WireError, decode_checked
from microsim.messages.outbox import Message
from microsim.messages.topics import DEFAULT_QOS, TOPICS, Qos
from microsim.parts.ros2.node_parameters import Settings, changed, declarations
from microsim.parts.ros2.transport import LogLevel, MissingTypeError, Transport, Value
from microsim.runner import Runner, WallClock, stalled

JUMP_S = 2.0  # a /clock that is farther ahead has jumped: the time between is skipped
LAG_S = 0.25  # a tick that is later than this is worth a warning
STEP_NS = 100_000_000  # stamps that are farther from the system's clock follow it: it was set


def fixed(default: Any, description: str) -> Any:
    """A setting that stays as it was when the node started."""
    return Field(default, description=description, json_schema_extra={"read_only": True})


def changeable(default: Any, description: str) -> Any:
    """A setting that may be changed at any time."""
    return Field(default, description=description)


class TimeSettings(Model):
    """What can be set about time in every small node; its own settings derive from it."""

    use_sim_time: Switch = fixed(False, "Follow the /clock of another node in place of the system's.")
    publish_clock: Switch = fixed(
        False, "Make simulated time: it starts at 0, is published on /clock, and same commands give same bytes."
    )
    speed_factor: Positive = fixed(1.0, "Simulated seconds per second, with publish_clock.")


def node_clock(settings: TimeSettings, rate_hz: float) -> OffsetClock:
    """The clock of a node that starts now."""
    clock = OffsetClock(rate_hz)
    if not settings.publish_clock and not settings.use_sim_time:
        clock.set(0, time.time_ns())
    return clock


class NodeTime:
    """Whose time the node lives in: its own, from 0, at `rtf`."""

    waits_for = ""  # what must arrive before time passes; "": nothing

    def __init__(self, ticks: OffsetClock, rtf: float) -> None:
        self.ticks, self.rtf = ticks, rtf

    def join(self, runner: Runner) -> None:
        """Before it runs."""

    def start(self, tick: int) -> None:
        """This tick is now."""

    def follow(self) -> None:
        """Called again and again, also while waiting."""

    def figures(self) -> dict[str, str]:
        """For /diagnostics: how well the pace is kept."""
        return {}


class SystemTime(NodeTime):
    """Stamps are the time of day at which ticks were due, so they match the motion."""

    def __init__(self, ticks: OffsetClock) -> None:
        super().__init__(ticks, 1.0)

    def join(self, runner: Runner) -> None:
        self._runner = runner
        self._now_ns: Callable[[], int] = getattr(runner.clock, "time_ns", time.time_ns)

    def start(self, tick: int) -> None:
        self.ticks.set(tick, self._now_ns())

    def follow(self) -> None:
        """After a stall, and where the system's clock was set, stamps continue from the time of day."""
        runner, tick = self._runner, self._runner.sim.tick + 1
        due_ns = self._now_ns() + int((runner.pacer.due(tick) - runner.clock.now()) * NS_PER_S)
        if abs(due_ns - self.ticks.time_ns(tick)) > STEP_NS:
            self.ticks.set(tick, due_ns)

    def figures(self) -> dict[str, str]:
        return {"tick_lag_ms": f"{1e3 * self._runner.lateness_s:.3f}", "stalls": str(self._runner.pacer.stalls)}


class ClockTime(NodeTime):
    """Paced and stamped by another node's /clock; where that jumps, this node continues from there.

    ROS 2 nodes listen to the global /clock, whatever their namespace. One in the node's own namespace takes precedence.
    """

    def __init__(self, ticks: OffsetClock, transport: Transport, warn: Callable[[str], None]) -> None:
        super().__init__(ticks, 0.0)
        self._warn = warn
        self._now_ns: int | None = None
        self._tick = 0  # that we are at, or that comes next
        self._has_own = False
        self.waits_for = "/clock (use_sim_time is true)"
        topic, qos = TOPICS["clock"], Qos(10, reliable=False)  # takes what any publisher offers
        transport.subscribe(topic.name, topic.type, qos, partial(self._hear, True))
        if transport.node_name.count("/") > 1:
            transport.subscribe(f"/{topic.name}", topic.type, qos, partial(self._hear, False))

    def _hear(self, is_own: bool, cdr: bytes) -> None:
        self._has_own = self._has_own or is_own
        if self._has_own and not is_own:
            return
        try:
            stamp = decode_checked(TOPICS["clock"].type, cdr).clock
        except WireError:
            return
        now_ns = stamp.sec * NS_PER_S + stamp.nanosec
        if self._now_ns is None:
            self.ticks.set(self._tick, now_ns)
        elif now_ns < self._now_ns:
            self._warn(f"/clock jumped back by {(self._now_ns - now_ns) / NS_PER_S:.3f} s; continued from there")
            self.ticks.set(self._tick, now_ns)
        self._now_ns = now_ns

    def join(self, runner: Runner) -> None:
        runner.gates.append(lambda: self._has_come(runner.sim.tick + 1))

    def start(self, tick: int) -> None:
        self._tick = tick

    def _has_come(self, tick: int) -> bool:
        if self._now_ns is None:
            return False
        behind_ns = self._now_ns - self.ticks.time_ns(tick)
        if behind_ns > JUMP_S * NS_PER_S:
            self._warn(f"/clock is {behind_ns / NS_PER_S:.3f} s ahead; continued from there without the time between")
            self.ticks.set(tick, self._now_ns)
        if behind_ns < 0:
            return False
        self._tick = tick
        return True

    def figures(self) -> dict[str, str]:
        if self._now_ns is None:
            return {"tick_lag_ms": ""}
        return {"tick_lag_ms": f"{max(self._now_ns - self.ticks.time_ns(self._tick), 0) / 1e6:.3f}"}


def node_time(
    transport: Transport, settings: TimeSettings, ticks: OffsetClock, warn: Callable[[str], None]
) -> NodeTime:
    if settings.publish_clock:
        return NodeTime(ticks, settings.speed_factor)
    if settings.speed_factor != 1.0:
        raise UsageError(
            "speed_factor needs publish_clock: true; the system's time and another node's /clock have their own pace"
        )
    return ClockTime(ticks, transport, warn) if settings.use_sim_time else SystemTime(ticks)


QUIET_S = 1.0  # at most one line of a kind in this time, unless said otherwise
REMEMBERED = 10_000  # messages of one's own, where a transport does not say who sent a message
QUIET_TIME_S = 10.0  # the same for warnings about time

Take: TypeAlias = Callable[[Any], None]  # gets a decoded message


class Core(Protocol):
    """The robots of a node."""

    pace: Callable[[], Mapping[str, str]]  # figures for /diagnostics that depend on the wall clock

    @property
    def sim(self) -> BareSimulation: ...


class PacedNode:
    """Has a `Runner` drive a core at the pace its settings ask for: inputs, then a tick, then messages."""

    def __init__(
        self, transport: Transport, core: Core, settings: TimeSettings, clock: WallClock | None = None
    ) -> None:
        self.transport, self.core, self.sim = transport, core, core.sim
        self.ignored: Counter[str] = Counter()  # inputs that were not taken, by reason
        self.ticks = self.sim.clock
        self._time = node_time(transport, settings, self.ticks, self._warn_of_time)
        self.runner = Runner(self.sim, self._time.rtf, clock=clock)
        self._time.join(self.runner)
        self.runner.sources.append(self._take_inputs)
        self.runner.listen(messages=self._send, timing=self._check_pace)
        self._lost_s = 0.0  # of which we have warned
        self.is_deterministic = settings.publish_clock  # stamps too are a function of ticks
        if not self.is_deterministic:
            core.pace = self._time.figures
        self.own: dict[str, OrderedDict[bytes, None]] = {}  # by topic: what was sent lately, where it comes back
        self._said_at: dict[str, float] = {}
        self._publish: dict[str, Callable[[bytes], None]] = {}
        self._is_started = False

    @property
    def time_s(self) -> float:
        """Since the start, in the node's own time: ticks, not the wall clock."""
        return self.sim.tick * self.ticks.dt

    # ---- what arrives -----------------------------------------------------------------------------------------------

    def subscribe(
        self, topic: str, type_name: str, take: Take, qos: Qos = DEFAULT_QOS, from_others: bool = False
    ) -> None:
        """Messages reach `take` between two ticks. One that cannot be read is ignored, counted and warned about.

        `from_others`: those that this node sends itself are left out. Where the transport does not say who sent a
        message, they are known by their bytes.
        """
        own: OrderedDict[bytes, None] | None = None
        if from_others and not self.transport.tells_senders:
            own = self.own.setdefault(topic, OrderedDict())

        def on_message(cdr: bytes) -> None:
            if own is not None and cdr in own:
                return
            try:
                message = decode_checked(type_name, cdr)
            except WireError as error:
                self.ignore(f"malformed messages on {topic}", "warn", f"{topic}: no {type_name}, ignored: {error}")
            else:
                take(message)

        try:
            self.transport.subscribe(topic, type_name, qos, on_message, from_others)
        except MissingTypeError as error:
            self.transport.log("warn", f"{topic} is not subscribed to: {error}")

    def ignore(self, reason: str, level: LogLevel, text: str) -> None:
        """Count an ignored input and log it, but not too often."""
        self.ignored[reason] += 1
        self.say(level, f"{text} ({self.ignored[reason]} so far)", kind=reason)

    def say(self, level: LogLevel, text: str, kind: str = "", quiet_s: float = QUIET_S) -> None:
        """Log; lines of one kind come at most once in `quiet_s` of the node's time. Without a kind: always."""
        if kind and self.time_s - self._said_at.get(kind, -math.inf) < quiet_s:
            return
        self._said_at[kind] = self.time_s
        self.transport.log(level, text)

    # ---- parameters -------------------------------------------------------------------------------------------------

    def declare(self, settings: Settings, change: Callable[[Settings], None]) -> None:
        """Show the settings as parameters. `change` gets the complete new settings; it may refuse with UsageError."""
        present = settings

        def on_set(changes: Mapping[str, Value]) -> str:
            nonlocal present
            try:
                wanted = changed(present, changes)
                change(wanted)
            except UsageError as error:
                return str(error)
            present = wanted
            return ""

        self.transport.declare(declarations(settings), on_set)

    # ---- time -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Advertise and send tick 0."""
        for topic, (type_name, qos) in self.sim.topics.items():
            try:
                self._publish[topic] = self.transport.publisher(topic, type_name, qos).publish
            except MissingTypeError as error:
                self.transport.log("warn", f"{topic} is not published: {error}")
        self.transport.poll()  # peers receive all endpoints at once
        self._is_started = True
        self.say("info", f"started; waiting for {self._time.waits_for or self.waits_for()}")
        self.runner.publish(self.sim.step(0))

    def waits_for(self) -> str:
        """What the node waits for when it starts."""
        return "commands"

    def _take_inputs(self, timeout_s: float) -> None:
        self._time.follow()
        self.transport.poll(timeout_s)

    def step(self) -> None:
        """A tick at once, with the inputs that have been taken."""
        self.runner.step(1)

    def run(self, ticks: int | None = None) -> None:
        """At the pace of the settings, that many ticks or until its runner is stopped."""
        if not self._is_started:
            self.start()
        self._time.start(self.sim.tick)
        self.runner.run(ticks)

    def _check_pace(self, took_s: float, late_s: float) -> None:
        lost_s = self.runner.pacer.lost_s
        if lost_s != self._lost_s:
            self._warn_of_time(stalled(lost_s - self._lost_s))
            self._lost_s = lost_s
        if late_s > LAG_S:
            rate = f"{float(self.ticks.rate) * self.runner.rtf:g}"
            lag = f"tick lag {late_s * 1e3:.0f} ms"
            self._warn_of_time(f"{lag}: this machine does not keep up with {rate} updates a second")

    def _warn_of_time(self, text: str) -> None:
        self.say("warn", text, text.partition(" ")[0], QUIET_TIME_S)

    def _send(self, messages: Sequence[Message]) -> None:
        publish = self._publish
        for message in messages:
            if message.topic in publish:
                publish[message.topic](message.cdr)
            if (own := self.own.get(message.topic)) is not None:
                own[message.cdr] = None
                if len(own) > REMEMBERED:
                    own.popitem(last=False)
