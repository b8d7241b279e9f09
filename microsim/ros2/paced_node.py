"""A small paced node: what `sim_rover` and `robot_simulator` share, for one robot or hundreds in one process.

A `Core` holds the robots, in a `Simulation`, and is a pure function of ticks and inputs: it never looks at the wall
clock. `SmallNode` puts it on a transport, hands it what arrives, keeps the pace and publishes what it sends:

    settings = read_settings(transport, MySettings)          # defaults < --ros-args; fields are parameters
    node = SmallNode(transport, MyCore(settings), settings)
    node.subscribe("/cmd_vel", "geometry_msgs/msg/Twist", take)
    node.declare(settings, change)
    node.run()
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from microsim.errors import UsageError
from microsim.messages.checked import WireError, decode_checked
from microsim.messages.outbox import Message, Outbox
from microsim.messages.topics import DEFAULT_QOS, Qos
from microsim.ros2.node_settings import Settings, changed, declarations
from microsim.ros2.node_time import NodeClock, TimeSettings, node_time
from microsim.ros2.transport import LogLevel, MissingTypeError, Transport, Value
from microsim.runner import NAP_S, SystemClock, WallClock

QUIET_S = 1.0  # at most one line of a kind in this time, unless said otherwise
REMEMBERED = 10_000  # messages of one's own, where a transport does not say who sent a message
QUIET_TIME_S = 10.0  # the same for warnings about time

Take: TypeAlias = Callable[[Any], None]  # gets a decoded message


class Core(Protocol):
    """The robots of a node. `step` depends on nothing but the inputs taken before."""

    clock: NodeClock
    pace: Callable[[], Mapping[str, str]]  # figures for /diagnostics that depend on the wall clock

    @property
    def outbox(self) -> Outbox: ...

    def step(self, ticks: int = 1) -> Sequence[Message]:
        """Advance; gives the messages of these ticks. The first call also gives tick 0's."""


class SmallNode:
    """Drives a core: inputs, then a tick, then messages, at the pace its settings ask for."""

    def __init__(
        self, transport: Transport, core: Core, settings: TimeSettings, clock: WallClock | None = None
    ) -> None:
        self.transport = transport
        self.core = core
        self.tick = 0
        self.is_stopping = False
        self.ignored: Counter[str] = Counter()  # inputs that were not taken, by reason
        self.ticks = core.clock
        self._time = node_time(transport, settings, self.ticks, clock or SystemClock(), self._warn_of_time)
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
        return self.tick * self.ticks.dt

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
            self.transport.log("warn", f"{topic} is not listened to: {error}")

    def ignore(self, reason: str, level: LogLevel, text: str) -> None:
        """Count an input that was not taken, and say so, but not too often."""
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
        for topic, (type_name, qos) in self.core.outbox.topics.items():
            try:
                self._publish[topic] = self.transport.publisher(topic, type_name, qos).publish
            except MissingTypeError as error:
                self.transport.log("warn", f"{topic} is not published: {error}")
        self.transport.poll()  # peers are told of all endpoints at once
        self._is_started = True
        self.say("info", f"started; waiting for {self._time.waits_for or self.waits_for()}")
        self._send(self.core.step(0))

    def waits_for(self) -> str:
        """What the node waits for when it starts."""
        return "commands"

    def step(self) -> None:
        """One tick, now."""
        self.tick += 1
        self._send(self.core.step())

    def run(self, ticks: int | None = None) -> None:
        """At the pace of the settings, that many ticks or until `stop`."""
        if not self._is_started:
            self.start()
        self._time.start(self.tick)
        end = math.inf if ticks is None else self.tick + ticks
        while not self.is_stopping and self.tick < end:
            wait_s = self._time.wait_s(self.tick + 1)
            self.transport.poll(min(wait_s, NAP_S))
            if wait_s <= 0.0:
                self.step()

    def stop(self) -> None:
        """End after the tick under way. May be called from a signal handler or another thread."""
        self.is_stopping = True

    def _warn_of_time(self, text: str) -> None:
        self.say("warn", text, text.partition(" ")[0], QUIET_TIME_S)

    def _send(self, messages: Sequence[Message]) -> None:
        publish = self._publish
        for message in messages:
            if message.topic in publish:
                publish[message.topic](message.cdr)
            if message.topic in self.own:
                self._remember(self.own[message.topic], message.cdr)

    @staticmethod
    def _remember(own: OrderedDict[bytes, None], cdr: bytes) -> None:
        own[cdr] = None
        if len(own) > REMEMBERED:
            own.popitem(last=False)
