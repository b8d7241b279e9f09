"""Plays the messages of a bag into nodes, in lockstep as a simulation: each message is a tick of its own.

`/clock` is in step; time stops at the gates until nodes have replied. What the nodes publish is taken in the order of
ticks, then topics, then sending, so that it depends on nothing but the bag and the nodes.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from typing_extensions import Self

from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import MicroSimError, UsageError, unknown
from microsim.listening import Listener, Listeners
from microsim.messages import encoders, fields_of
from microsim.messages.outbox import Message
from microsim.messages.topics import TOPICS, Qos
from microsim.parts.ros2.lockstep import Lockstep
from microsim.parts.ros2.node_process import NodeProcess
from microsim.parts.ros2.transport import MissingTypeError, Publisher, Transport
from microsim.parts.ros2.transports import AUTO, NONE, open_transport
from microsim.runner import NAP_S, Level, SystemClock
from microsim.scenario import load_scenario
from microsim.scenario.gates import Gate, gates_from_text

if TYPE_CHECKING:
    from microsim.attachment import Plan
    from microsim.cli.commands.replay import ReplayOptions
    from microsim.parts.ros2.attachment import BagPlayOptions

CLOCK = TOPICS["clock"].name
FINEST_HZ = 1000  # of periods of gates
CHECK_S = 1.0  # between two looks whether the nodes still run
DEPTH = 1000  # messages of a node that wait to be taken
_OF_EVERY_NODE = frozenset({"/rosout", "/parameter_events"})


class Source(Protocol):
    """The messages, and what takes those of the nodes."""

    topics: dict[str, tuple[str, Qos]]

    def messages(self) -> Iterator[tuple[int, Message | None]]:
        """Times [ns], and messages in their order; None: only time passes."""

    def take(self, time_ns: int, topic: str, type_name: str, cdr: bytes) -> None: ...

    def note_wait(self, time_ns: int, topic: str, nodes: str, waited_s: float, doubt: str) -> None: ...


class _Times:
    """Of this tick and the one before."""

    def __init__(self) -> None:
        self.before_ns = self.now_ns = 0
        self.tick = -1

    def time_ns(self, tick: int) -> int:
        return self.now_ns if tick == self.tick else self.before_ns


class BagTicks:
    """What stands in the place of the simulation."""

    def __init__(self, topics: Mapping[str, tuple[str, Qos]]) -> None:
        self.topics = topics
        self.clock = _Times()

    @property
    def tick(self) -> int:
        return self.clock.tick

    @property
    def time_ns(self) -> int:
        return self.clock.now_ns

    def advance(self, time_ns: int) -> None:
        self.clock.before_ns, self.clock.now_ns = self.clock.now_ns, time_ns
        self.clock.tick += 1


@dataclass(frozen=True)
class Playing:
    """What the user requested."""

    transport: Transport
    gates: Sequence[Gate]
    command: str | None = None  # that starts the nodes
    rtf: float = 0.0  # 0: as fast as they reply

    def __call__(self, source: Source) -> BagPlayer:
        return BagPlayer(self, source)


class BagPlayer:
    """A context, in which the nodes of `command` run."""

    def __init__(self, playing: Playing, source: Source) -> None:
        self._transport, self._source, self._rtf = playing.transport, source, playing.rtf
        self._command, self._gates = playing.command, playing.gates
        self._check(source)
        for gate in playing.gates:  # the nodes publish these
            for topic in (gate.expect, gate.settle.done if gate.settle is not None else None):
                source.topics.pop(topic or "", None)
        self.sim = BagTicks(source.topics)
        self.clock, self.listeners = SystemClock(), Listeners()
        self.listeners.add(Listener(waits=self._note_wait))
        self.is_stopping = False
        self._process: NodeProcess | None = None
        self._stack = ExitStack()
        self._publishers: dict[str, Publisher] = {}
        for topic, (type_name, qos) in source.topics.items():
            try:
                self._publishers[topic] = self._transport.publisher(topic, type_name, qos)
            except MissingTypeError as error:
                self._warn(f"{topic} is not played: {error}")
        self._heard: set[str] = set()  # names on the network
        self._unread: set[str] = set()  # topics of nodes that are not recorded
        self._clock_message = encoders.clock()
        self._lockstep = Lockstep(
            playing.gates, self, self._transport, self._publish, self._warn, self._subscribe_to_replies
        )
        self._checked_s = self._begun_s = 0.0
        self._transport.poll()

    def __enter__(self) -> Self:
        if self._command is not None:
            self._process = self._stack.enter_context(NodeProcess(self._command, partial(self.note, "info")))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    @property
    def sim_s(self) -> float:
        return self.sim.time_ns / 1e9

    @property
    def wall_s(self) -> float:
        """Since the nodes are there."""
        return self.clock.now() - self._begun_s if self._begun_s else 0.0

    def note(self, level: Level, text: str, kind: str = "", count: int = 1) -> None:
        self._transport.log("info" if level == "info" else "warn", text)

    def stop(self) -> None:
        self.is_stopping = True

    # ---- the play ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """To the end of the messages, or until `stop`."""
        begin_ns = None
        for time_ns, message in self._ticks():
            self._wait_for_gates()
            if begin_ns is None:
                begin_ns = time_ns
            elif self._rtf:
                self._wait_until(self._begun_s + (time_ns - begin_ns) / NS_PER_S / self._rtf)
            if self.is_stopping:
                return
            messages = [] if message is None else [message]
            if time_ns != self.sim.time_ns or self.sim.tick < 0:
                messages.append(Message(CLOCK, TOPICS["clock"].type, time_ns, self._clock_message(time_ns)))
            self.sim.advance(time_ns)
            self._lockstep.sent(messages)
            if not self.sim.tick:
                self._wait_for_gates()
                self._begun_s = self.clock.now()
        self._wait_for_gates()
        self._wait(self._lockstep.is_handled)

    def _ticks(self) -> Iterator[tuple[int, Message | None]]:
        """With ticks where a period of a gate ends, and one at the start, with nothing but /clock."""
        periods = [round(gate.every * NS_PER_S) for gate in self._gates if gate.every is not None]
        before_ns: int | None = None
        for time_ns, message in self._source.messages():
            if before_ns is None:
                yield time_ns, None
            else:
                ends = {at for period in periods for at in range(_after(before_ns, period), time_ns, period)}
                yield from ((at, None) for at in sorted(ends))
            before_ns = time_ns
            yield time_ns, message

    def _wait_for_gates(self) -> None:
        self._transport.poll()
        if self.sim.tick >= 0:
            self._wait(self._lockstep.may_step)
        self._look_after_nodes()

    def _wait(self, condition: Callable[[], bool]) -> None:
        while not self.is_stopping and not condition():
            self._look_after_nodes()
            self._transport.poll(NAP_S)

    def _wait_until(self, due_s: float) -> None:
        while not self.is_stopping and (left := due_s - self.clock.now()) > 0.0:
            self._look_after_nodes()
            self._transport.poll(min(left, NAP_S))

    def _look_after_nodes(self) -> None:
        now = time.monotonic()
        if self._process is not None and now - self._checked_s >= CHECK_S:
            self._checked_s = now
            self._process.check()

    def _publish(self, messages: Iterable[Message]) -> None:
        for message in messages:
            publisher = self._publishers.get(message.topic)
            if publisher is not None:
                publisher.publish(message.cdr)

    def _warn(self, text: str) -> None:
        self._transport.log("warn", text)

    # ---- what nodes publish ------------------------------------------------------------------------------------------

    def _check(self, source: Source) -> None:
        """Refuse gates that could never open."""
        for index, gate in enumerate(self._gates):
            if gate.after is not None and gate.after not in source.topics:
                message = f"lockstep[{index}].after: the bag has no"
                raise UsageError(unknown(message, gate.after, gate.after, sorted(source.topics)))

    def _subscribe_to_replies(self) -> str:
        """To the topics of gates, and to all that settling nodes publish. What is lacking; empty: nothing."""
        for gate in self._gates:
            if gate.expect is not None:
                if not self._subscribe_to(gate.expect, gate):
                    return f"the type of {gate.expect}"
            elif gate.settle is not None:
                about = self._transport.described(gate.settle.node)
                if about is None:
                    return f"all endpoints of {gate.settle.node}"
                for topic, (type_name, qos) in about.writes.items():
                    if topic not in _OF_EVERY_NODE and topic != self._transport.resolved(gate.settle.done or ""):
                        self._hear(f"/{topic}", topic, type_name, qos)
        self._tell_what_is_not_recorded()
        return ""

    def _subscribe_to(self, topic: str, gate: Gate) -> bool:
        name = self._transport.resolved(topic)
        if name in self._heard:
            return True
        for node in set(self._transport.peers(topic, publishers=True).values()) - {""}:
            about = self._transport.described(node)
            if about is not None and name in about.writes:
                type_name, qos = about.writes[name]
                if gate.match == "stamp" and not _has_header(type_name):
                    raise UsageError(f"lockstep: match: {topic} is a {type_name}, which has no stamp")
                self._hear(topic, topic, type_name, qos)
                return True
        return False

    def _hear(self, name: str, topic: str, type_name: str, offered: Qos) -> None:
        """`name`: as the transport takes it; two slashes: as on the network."""
        on_network = self._transport.resolved(name)
        if on_network in self._heard:
            return
        self._heard.add(on_network)
        has_header = False

        def on_message(cdr: bytes) -> None:
            if self._lockstep.has_begun or offered.latched:
                stamp = _stamp_ns(cdr) if has_header else None
                self._lockstep.arrived(topic, stamp, partial(self._take, topic, type_name, cdr))

        try:
            has_header = _has_header(type_name)
            self._transport.subscribe(name, type_name, Qos(DEPTH, offered.reliable, offered.latched), on_message)
        except (MissingTypeError, KeyError) as error:
            if any(gate.expect == topic for gate in self._gates):
                raise UsageError(f"{topic} cannot be recorded: {error}") from None
            self._warn(f"{topic} is not recorded: {error}")

    def _take(self, topic: str, type_name: str, cdr: bytes) -> None:
        self._source.take(self.sim.time_ns, topic, type_name, cdr)

    def _tell_what_is_not_recorded(self) -> None:
        """What nodes of gates publish beside the replies: no gate waits for it."""
        for gate in self._gates:
            if gate.expect is None:
                continue
            for node in sorted(set(self._transport.peers(gate.expect, publishers=True).values()) - {""}):
                about = self._transport.described(node)
                writes = set() if about is None else about.writes.keys() - _OF_EVERY_NODE
                left_out = sorted(writes - self._heard - self._unread)
                if left_out:
                    self._unread.update(left_out)
                    rule = f"no gate waits for it: `settle: {{node: {node}}}` waits for all that this node does"
                    self._warn(f"not recorded of {node}: {', '.join(left_out)}: {rule}")

    def _note_wait(self, tick: int, topic: str, nodes: str, waited_s: float, doubt: str) -> None:
        self._source.note_wait(self.sim.time_ns, topic, nodes, waited_s, doubt)


def play(path: Path, plan: Plan, given: BagPlayOptions, options: ReplayOptions) -> int:
    """The exit code."""
    from microsim.cli import terminal
    from microsim.parts.ros2.attachment import ReplayNetwork
    from microsim.recording.attachment import ReplayRecording
    from microsim.recording.bag_source import BagSource

    network, recording = plan.find(ReplayNetwork), plan.find(ReplayRecording)
    kind = AUTO if network is None or network.given.transport is None else network.given.transport
    if kind == NONE:
        raise UsageError("the messages go to ROS 2 nodes: leave out --transport none")
    gates = [gate for text in given.lockstep or () for gate in gates_from_text(text)]
    checked = load_scenario({"physics_hz": FINEST_HZ, "lockstep": gates}).lockstep
    record = None if recording is None else recording.given.record
    with ExitStack() as stack:
        interrupts = stack.enter_context(terminal.interrupts_end_the_run())
        span = (options.start, options.at)
        source = stack.enter_context(closing(BagSource(path, record, span, given.only or (), given.without or ())))
        for line in source.notes:
            terminal.note(line)
        transport = open_transport(kind, "microsim", plan.ros_args)
        stack.callback(transport.close)
        player = stack.enter_context(Playing(transport, checked, given.with_node, options.rtf)(source))
        interrupts.runner = player
        try:
            player.run()
        except MicroSimError as error:
            terminal.warn(f"the replay failed at {player.sim_s:.3f} s: {error}")
            return terminal.ExitCode.FAILED
        wall_s, is_whole = player.wall_s, not player.is_stopping
    for topic, count in source.damaged.items():
        terminal.warn(f"{topic}: left out {count:,} messages that are empty, or not encoded as ROS 2 does")
    seconds = source.span_ns / 1e9
    if options.json:
        counts = {"messages": source.count, "replies": source.replies}
        result = {"seconds": seconds, "wall_s": wall_s, "digest": source.digest, "complete": is_whole}
        terminal.print_json({**counts, **result})
        return terminal.ExitCode.GOOD
    stopped = "" if is_whole else "stopped before the end: "
    played = f"{stopped}played {source.count:,} messages of {seconds:.3f} s in {wall_s:.1f} s"
    terminal.tell(f"{played}, {source.replies:,} replies, digest {source.digest}")
    return terminal.ExitCode.GOOD


def _after(time_ns: int, period_ns: int) -> int:
    """The first multiple of the period that is later."""
    return (time_ns // period_ns + 1) * period_ns


def _has_header(type_name: str) -> bool:
    first = next(iter(fields_of(type_name)), None)
    return first is not None and first[1][1] == "std_msgs/msg/Header"


def _stamp_ns(cdr: bytes) -> int:
    seconds, nanoseconds = struct.unpack_from("<iI", cdr, 4) if len(cdr) >= 12 else (0, 0)
    return int(seconds) * NS_PER_S + int(nanoseconds)
