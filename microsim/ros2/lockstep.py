"""Lockstep: simulated time stops at gates until nodes have replied, and the order of arrival decides nothing.

A tick sends its messages; those of gates go out last, so that a node has everything else when it is asked to reply.
A node that reads several topics must also have handled them. Executors of rclpy and rclcpp take one message of each
subscription, then one request of each service, and so on. So an answer of the node's parameter services, which every
node has, says that it has handled what was sent before the request.

The next tick begins when every gate that these messages closed has its replies. Inputs are then taken by topic and,
within a topic, in the order of sending.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from microsim.errors import MicroSimError, UsageError, unknown
from microsim.messages import fields_of
from microsim.messages.inputs import INPUTS
from microsim.messages.outbox import Message
from microsim.ros2.transport import Transport
from microsim.runner import Runner
from microsim.scenario.gates import PATIENCE_S, Gate
from microsim.simulation import Simulation

SERVICES_S = 2.0  # after which a node that has joined offers its services, or none
AGAIN_S = 1.0  # after which a request that was not answered is repeated
STALL_S = 1.0  # of wall time, after which a wait is reported, and
REPEAT_S = 10.0  # how often again
LOOK_S = 0.2  # between two looks at the graph while waiting
MOST_REPLIES = 10_000  # that may wait for their gates
TICKS_AHEAD = 3  # sent before subscribers must have received them: less than the ten messages that most keep
ACKNOWLEDGED_S = 0.1  # how long a tick waits for a slow subscriber
CLOCK = "/clock"
PROBE = "rcl_interfaces/srv/GetParameterTypes"

Deliver: TypeAlias = Callable[[], None]  # hands a message to the simulation
Answer: TypeAlias = Callable[[], object | None]  # None until it has arrived
Peers: TypeAlias = Mapping[Hashable, str]  # what tells endpoints apart -> the name of its node


class LockstepError(MicroSimError):
    """A gate stayed closed for longer than it may."""


def check_gates(sim: Simulation) -> None:
    """Refuse gates that could never open."""
    plugins = sim.scenario.plugins
    kinds = [kind for name in INPUTS.names(plugins) if (kind := INPUTS.find(name, plugins)) is not None]
    taken = {
        kind.of(robot): kind.type_for(sim) for robot in sim.robots for kind in kinds if kind.is_taken_by(sim, robot)
    }
    for index, gate in enumerate(sim.scenario.lockstep):
        where = f"lockstep[{index}]"
        if gate.after is not None and gate.after not in sim.topics:
            message = f"{where}.after: this run does not send"
            raise UsageError(unknown(message, gate.after, gate.after, sorted(sim.topics)))
        if gate.expect not in taken:
            message = f"{where}.expect: this run does not take"
            raise UsageError(unknown(message, gate.expect, gate.expect, sorted(taken)))
        if gate.match == "stamp" and "header" not in dict(fields_of(taken[gate.expect])):
            hint = "; set `stamped_cmd_vel: true`, or leave out `match`" if "cmd_vel" in gate.expect else ""
            raise UsageError(f"{where}.match: {gate.expect} is a {taken[gate.expect]}, which has no stamp{hint}")


@dataclass
class GateState:
    """What one gate waits for, and the replies that have arrived."""

    gate: Gate
    asked: list[int] = field(default_factory=list)  # stamps of the messages to be answered [ns]
    replies: deque[tuple[int | None, Deliver]] = field(default_factory=deque)  # stamp, and what takes it
    owed: int = 0  # replies to messages that no longer matter: they are left out when they arrive
    left_out: int = 0  # replies that did not count, and
    latest_stamp: int | None = None  # the stamp of the latest of them [ns]
    closed_at: float = 0.0  # wall time
    opened_at: float = 0.0
    reported_at: float = -math.inf
    looked_at: float = 0.0  # at the graph
    nodes: str = ""  # that reply
    publishers: frozenset[Hashable] = frozenset()

    @property
    def is_closed(self) -> bool:
        return len(self.replies) < self.gate.count * len(self.asked)

    def close(self, stamps: list[int], now: float) -> None:
        self.forget()
        self.asked, self.closed_at, self.opened_at, self.reported_at = stamps, now, now, -math.inf

    def forget(self) -> None:
        """Continue without the replies that are missing; they are left out if they arrive later."""
        if self.gate.match == "order":
            self.owed += max(self.gate.count * len(self.asked) - len(self.replies), 0)
        self.asked = []

    def put(self, stamp: int | None, deliver: Deliver, now: float) -> None:
        if self.owed or not self._counts(stamp) or len(self.replies) >= MOST_REPLIES:
            self.owed = max(self.owed - 1, 0)
            self.left_out += 1
            self.latest_stamp = stamp
            return
        was_closed = self.is_closed
        self.replies.append((stamp, deliver))
        if was_closed and not self.is_closed:
            self.opened_at = now

    def _counts(self, stamp: int | None) -> bool:
        if self.gate.match == "order":
            return True
        before = sum(each == stamp for each, _ in self.replies)
        return before < self.gate.count * self.asked.count(stamp if stamp is not None else -1)

    def take(self) -> list[Deliver]:
        found = [self.replies.popleft()[1] for _ in range(min(self.gate.count * len(self.asked), len(self.replies)))]
        self.asked = []
        return found


class Settling:
    """Finds out when nodes have handled what was sent to them, by a request to each."""

    def __init__(self, transport: Transport, now: Callable[[], float]) -> None:
        self._transport, self._now = transport, now
        self._nodes: list[str] = []
        self._rounds = 0  # requests still to be made
        self._answers: dict[str, list[Answer]] = {}  # by node: of this round; several where one was not answered
        self._asked_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def follow(self, nodes: Iterable[str]) -> list[str]:
        """Ask these nodes from now on; gives those that cannot be asked."""
        wanted = sorted(nodes)
        self._nodes = [node for node in wanted if self._ask(node) is not None]
        return [node for node in wanted if node not in self._nodes]

    def begin(self, rounds: int) -> None:
        """What was just sent has so many messages on a topic; a request after each is answered."""
        self._rounds, self._answers = rounds, {}

    def is_over(self) -> bool:
        self._answers = {
            node: answers for node, answers in self._answers.items() if all(answer() is None for answer in answers)
        }
        if self._answers and self._now() - self._asked_at >= AGAIN_S:  # lost, or sent to a node that has died
            self._request(list(self._answers))
        elif not self._answers and self._rounds:
            self._rounds -= 1
            self._request(self._nodes)
        return not self._answers and not self._rounds

    def _request(self, nodes: Iterable[str]) -> None:
        self._asked_at = self._now()
        for node in nodes:
            answer = self._ask(node)
            if answer is None:  # it has left
                self._answers.pop(node, None)
            else:
                self._answers.setdefault(node, []).append(answer)

    def _ask(self, node: str) -> Answer | None:
        return self._transport.ask(f"{node}/get_parameter_types", PROBE, {"names": []})


class Lockstep:
    """The gates of a running node. `may_step` is the runner's; the node calls `sent` and `arrived`."""

    def __init__(
        self,
        gates: Sequence[Gate],
        runner: Runner,
        transport: Transport,
        publish: Callable[[Iterable[Message]], None],
        warn: Callable[[str], None],
    ) -> None:
        self._runner, self._transport, self._publish, self._warn = runner, transport, publish, warn
        self._states = {gate.expect: GateState(gate) for gate in gates}
        self._last = {CLOCK, *(gate.after for gate in gates if gate.after is not None)}
        self._others: dict[str, list[Deliver]] = {}  # by topic: inputs that no gate waits for
        self._latest: list[Message] = []  # of the current tick
        self._unsent: list[Message] = []  # those that wait until the others have been handled
        self._settling = Settling(transport, runner.clock.now)
        self.has_begun = False
        self.missed = 0  # gates that were passed without their replies
        self._began_at = runner.clock.now()
        self._graph: tuple[object, float] = (None, self._began_at)  # the endpoints seen, and since when
        self._ahead = 0  # ticks since subscribers were last known to have received everything

    # ---- what the node reports -------------------------------------------------------------------------------------

    def sent(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Close the gates of these messages of one tick; gives them in the order in which they are to go out."""
        if not messages:
            return messages
        sim, now = self._runner.sim, self._runner.clock.now()
        self._latest = sorted(messages, key=lambda each: (each.topic in self._last, each.topic != CLOCK))
        stamps: dict[str, list[int]] = {}
        for message in self._latest:
            if message.topic in self._last:
                stamps.setdefault(message.topic, []).append(message.stamp_ns)
        for state in self._states.values():
            gate = state.gate
            if gate.after is not None:
                asked = stamps.get(gate.after, [])
            else:
                is_due = sim.tick > 0 and gate.is_due(sim.time_ns, sim.clock.time_ns(sim.tick - 1))
                asked = [sim.time_ns] if is_due else []
            if sim.tick == 0:
                state.forget()
                state.replies.clear()
            state.close(asked, now)
        return self._first_part() if self.has_begun else ()

    def _first_part(self) -> Sequence[Message]:
        """What may go out at once; the rest follows when nodes have handled it."""
        if not self._settling:
            return self._latest
        first = [message for message in self._latest if message.topic not in self._last]
        self._unsent = self._latest[len(first) :]
        self._settling.begin(max(Counter(message.topic for message in first).values(), default=0))
        return first

    def arrived(self, topic: str, stamp: int | None, deliver: Deliver) -> None:
        state = self._states.get(topic)
        if state is None:
            self._others.setdefault(topic, []).append(deliver)
            return
        left_out = state.left_out
        state.put(stamp, deliver, self._runner.clock.now())
        if state.left_out != left_out:
            self._runner.note("warn", f"lockstep: {topic}: left out a reply: {_why(state)}", f"left out {topic}")

    # ---- what the runner asks --------------------------------------------------------------------------------------

    def may_step(self) -> bool:
        """Whether all gates are open; then the inputs of the tick have been handed over."""
        if (not self.has_begun and not self._begin()) or not self._has_settled():
            return False
        closed = [state for state in self._states.values() if state.is_closed]
        for state in closed:
            self._wait_for(state)
        if any(state.is_closed for state in closed):
            return False
        self._hand_over()
        return True

    def _has_settled(self) -> bool:
        """Whether nodes have handled the first part of the tick; then the second goes out."""
        if self._unsent and not self._settling.is_over():
            for state in self._states.values():
                self._wait_for(state)
        if self._unsent and not self._settling.is_over():
            return False
        unsent, self._unsent, now = self._unsent, [], self._runner.clock.now()
        for state in self._states.values() if unsent else ():
            state.closed_at = state.opened_at = now
        self._publish(unsent)
        return True

    def _hand_over(self) -> None:
        tick, opened = self._runner.sim.tick, [state for state in self._states.values() if state.asked]
        for state in opened:
            waited = max(state.opened_at - state.closed_at, 0.0)
            self._runner.listeners.wait(tick, state.gate.expect, state.nodes, waited)
        inputs = {state.gate.expect: state.take() for state in opened}
        inputs |= self._others
        self._others = {}
        for topic in sorted(inputs):
            for deliver in inputs[topic]:
                deliver()
        self._ahead = 0 if opened or self._settling else self._ahead + 1
        if self._ahead >= TICKS_AHEAD:
            self._transport.wait_for_acks(ACKNOWLEDGED_S)
            self._ahead = 0

    # ---- the start -------------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Send tick 0 when the nodes of all gates are there, and nothing more has joined for a moment."""
        now = self._runner.clock.now()
        for state in self._states.values():
            self._look(state)
        here = [frozenset(self._endpoints(state)) for state in self._states.values()]
        absent = [state for state, ends in zip(self._states.values(), here, strict=True) if not all(self._sides(state))]
        if here != self._graph[0]:
            self._graph = here, now
        if absent and not self._gives_up(absent, now):
            for state in absent:
                self._report(state, now - self._began_at)
            return False
        if now - self._graph[1] < self._transport.discovery_s or not self._choose_settling(now):
            return False
        self.has_begun = True
        for state in self._states.values():
            state.replies.clear()  # nothing was asked yet
            state.closed_at = state.opened_at = now
        self._publish(self._first_part())
        return True

    def _choose_settling(self, now: float) -> bool:
        """Ask the nodes that read several topics; False: it is not known yet which of them can be asked."""
        topics = self._runner.sim.topics
        readers = Counter(
            node for topic in topics for node in set(self._transport.peers(topic, publishers=False).values())
        )
        replying = {node for state in self._states.values() for node in state.nodes.split()}
        mute = self._settling.follow(node for node in replying if readers[node] > 1)
        if mute and now - self._graph[1] < SERVICES_S:
            return False
        for node in mute:
            rule = "the order in which it handles messages that wait together is its own"
            self._runner.note("info", f"lockstep: {node} reads several topics and has no parameter services: {rule}")
        return True

    def _gives_up(self, absent: Sequence[GateState], now: float) -> bool:
        """Whether the run begins without these nodes."""
        late = [each for each in absent if now - self._began_at > max(each.gate.patience_s, PATIENCE_S)]
        for state in late:
            if state.gate.policy == "fail":
                raise LockstepError(self._text(state, now - self._began_at))
        return len(late) == len(absent) and all(state.gate.policy == "continue" for state in late)

    def _sides(self, state: GateState) -> tuple[Peers, ...]:
        """Who publishes the replies, and who subscribes to what is to be answered."""
        replies = self._transport.peers(state.gate.expect, publishers=True)
        return (replies, self._transport.peers(state.gate.after or CLOCK, publishers=False))

    def _endpoints(self, state: GateState) -> list[Hashable]:
        return [end for side in self._sides(state) for end in side]

    # ---- a wait ----------------------------------------------------------------------------------------------------

    def _wait_for(self, state: GateState) -> None:
        now = self._runner.clock.now()
        waited = now - state.closed_at
        if waited < LOOK_S:
            return
        if now - state.looked_at >= LOOK_S:
            state.looked_at = now
            self._look_for_newcomers(state)
        if state.gate.policy != "wait" and waited >= state.gate.patience_s:
            if state.gate.policy == "fail":
                raise LockstepError(self._text(state, waited))
            self.missed += 1
            self._warn(f"{self._text(state, waited)}: continued without it")
            state.forget()
            self._settling.begin(0)
            return
        self._report(state, waited)

    def _look(self, state: GateState) -> bool:
        """Learn who publishes the replies; gives whether there is somebody new."""
        publishers = self._transport.peers(state.gate.expect, publishers=True)
        before, state.publishers = state.publishers, frozenset(publishers)
        state.nodes = " ".join(sorted(set(publishers.values()) - {""}))
        if before - state.publishers:
            state.owed = 0  # who owes them has gone
        return bool(state.publishers - before)

    def _look_for_newcomers(self, state: GateState) -> None:
        """A node that has just started cannot have received what it is to answer: send it again."""
        if not self._look(state):
            return
        asking = {CLOCK, state.gate.after}
        self._runner.note("info", f"lockstep: {state.nodes or 'a node'} has joined: sent again for {state.gate}")
        state.owed = 0
        self._choose_settling(math.inf)
        self._settling.begin(0)
        if not self._unsent:
            self._publish([message for message in self._latest if message.topic in asking])

    # ---- reports ---------------------------------------------------------------------------------------------------

    def _report(self, state: GateState, waited: float) -> None:
        now = self._runner.clock.now()
        if waited >= STALL_S and now - state.reported_at >= REPEAT_S:
            state.reported_at = now
            self._warn(self._text(state, waited))

    def _text(self, state: GateState, waited: float) -> str:
        """Which gate, which node, what was sent to it when, and for how long the run has been waiting."""
        gate = state.gate
        publishers, subscribers = self._sides(state)
        reason = ""
        if not publishers:
            reason = f"no node publishes {gate.expect}"
        elif not subscribers:
            reason = f"{_names(publishers)} does not subscribe to {gate.after or CLOCK}"
        if not self.has_begun:
            return f"lockstep: the run has not begun, {waited:.1f} s: {reason or 'waiting for the others'}"
        if self._unsent:
            late = reason or f"{_names(publishers)} has not handled what was sent at {self._runner.sim_s:.3f} s"
            return f"lockstep: waiting before {gate} since {waited:.1f} s: {late}"
        sent = f"{gate.after} at" if gate.after else "the time"
        who = reason or f"no reply from {_names(publishers)}"
        text = f"lockstep: waiting for {gate} since {waited:.1f} s: {who}, which was sent {sent} {self._sim_s(state)} s"
        got = len(state.replies)
        text += f"; {got} of {gate.count * len(state.asked)} replies" if got else ""
        return text + (f"; {state.left_out} left out: {_why(state)}" if state.left_out else "")

    def _sim_s(self, state: GateState) -> str:
        return f"{(state.asked[0] if state.asked else self._runner.sim.time_ns) / 1e9:.3f}"

    def status(self) -> tuple[int, str, dict[str, str]]:
        """For /diagnostics: level, message, facts."""
        now = self._runner.clock.now()
        start = self._began_at if not self.has_begun else None
        waits = {
            state.gate.expect: now - (state.closed_at if start is None else start)
            for state in self._states.values()
            if state.is_closed or start is not None
        }
        stalled = [self._text(self._states[topic], waited) for topic, waited in waits.items() if waited >= STALL_S]
        facts = {f"waiting_s {topic}": f"{waited:.3f}" for topic, waited in waits.items()}
        return (1 if stalled else 0, "; ".join(stalled) or "ok", {**facts, "gates_missed": str(self.missed)})


def _names(peers: Peers) -> str:
    return " and ".join(sorted(set(peers.values()) - {""})) or "a node without a name"


def _why(state: GateState) -> str:
    if state.gate.match == "stamp" and state.latest_stamp is not None:
        asked = ", ".join(f"{stamp / 1e9:.3f}" for stamp in state.asked) or "none"
        return f"stamp {state.latest_stamp / 1e9:.3f} s, expected {asked}"
    return "it answers a message from before, or too many wait"
