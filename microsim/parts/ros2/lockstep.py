"""Lockstep: simulated time stops at gates until nodes have replied, and the order of arrival decides nothing.

A tick sends its messages; those of gates go out last, so that a node has everything else when it is asked to reply.
A node that reads several topics must also have handled them. Executors of rclpy and rclcpp take one message of each
subscription, then one request of each service, and so on. So an answer of the node's parameter services, which every
node has, says that it has handled what was sent before the request.

The next tick begins when every gate that these messages closed has its replies. Inputs are then taken by topic and,
within a topic, in the order of sending.

A node that replies only sometimes has to settle: it gets its topics one after another, each when it has handled the
one before, and answers a request, or reports itself, when it has handled the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import MicroSimError
from microsim.listening import Listeners
from microsim.messages.checked import WireError, decode_checked
from microsim.messages.outbox import Message
from microsim.messages.topics import Qos
from microsim.parts.ros2.gate_state import (
    CLOCK,
    MOST_REPLIES,
    Deliver,
    GateState,
    Peers,
    SettleState,
    Settling,
    rounds_after,
)
from microsim.parts.ros2.node_meeting import NodeMeeting
from microsim.parts.ros2.node_process import Presence
from microsim.parts.ros2.transport import Transport
from microsim.runner import Level, WallClock
from microsim.scenario.gates import PATIENCE_S, Gate

START_S = 3.0  # of wall time, after which it is reported for whom the start waits, and
STALL_S = 1.0  # of wall time, after which a wait is reported, and
REPEAT_S = 10.0  # how often again
LOOK_S = 0.2  # between two looks at the graph while waiting
TICKS_AHEAD = 3  # sent before subscribers must have received them: less than the ten messages that most keep
ACKNOWLEDGED_S = 0.1  # how long a tick waits for a slow subscriber
TOO_MANY = 10  # replies that wait for later gates: they are reported
LARGE = 30_000  # [byte] a socket holds few messages of this size: one may be lost on the way, and is sent again
ARRIVED_S = 1.0  # longest wait for what a node sent before it settled
DONE = "std_msgs/msg/Header"


class LockstepError(MicroSimError):
    """A gate stayed closed for longer than it may."""


class TickTimes(Protocol):
    def time_ns(self, tick: int) -> int: ...


class Ticking(Protocol):
    """What advances tick by tick: a simulation, or the messages of a bag."""

    @property
    def tick(self) -> int: ...

    @property
    def time_ns(self) -> int: ...

    @property
    def clock(self) -> TickTimes: ...

    @property
    def topics(self) -> Mapping[str, tuple[str, Qos]]: ...


class Driver(Protocol):
    """What asks whether the next tick may begin: a `Runner`, or the player of a bag."""

    @property
    def sim(self) -> Ticking: ...

    @property
    def sim_s(self) -> float: ...

    @property
    def clock(self) -> WallClock: ...

    @property
    def listeners(self) -> Listeners: ...

    def note(self, level: Level, text: str, kind: str = "", count: int = 1) -> None: ...


class Lockstep:
    """The gates of a running node. `may_step` is the runner's; the node calls `sent` and `arrived`."""

    def __init__(
        self,
        gates: Sequence[Gate],
        runner: Driver,
        transport: Transport,
        publish: Callable[[Iterable[Message]], None],
        warn: Callable[[str], None],
        lacks: Callable[[], str] = lambda: "",
    ) -> None:
        """`lacks`: what else must be there before the first tick, once the nodes are; empty: all is."""
        self._runner, self._transport, self._publish, self._warn = runner, transport, publish, warn
        self._must_have = lacks
        now = runner.clock.now
        self._states = {gate.awaited: _state(gate, transport, now) for gate in gates}
        self._settles = [state for state in self._states.values() if isinstance(state, SettleState)]
        for state in self._settles:
            if state.gate.settle is not None and state.gate.settle.done is not None:
                transport.subscribe(state.gate.settle.done, DONE, Qos(10), partial(_take_done, state))
        self._last = {CLOCK, *(gate.after for gate in gates if gate.after is not None)}
        self._others: dict[str, deque[Deliver]] = {}  # by topic: inputs that no gate waits for
        self._latest: list[Message] = []  # of the current tick
        self._unsent: deque[Message] = deque()  # of it, that wait until nodes have handled the others
        self._readers: dict[
            str, tuple[str, ...]
        ] = {}  # by topic: nodes that get a message when they have handled others
        self._busy: dict[str, str] = {}  # nodes not known to have handled what they were sent -> the topic of that
        self._has_large = False  # something large was sent since it was last known what has arrived
        self._handling = Settling(transport, now)
        self._asking: list[str] = []  # nodes that it asks
        self._ending: Settling | None = None  # asks the same when the run is over, and
        self._ended_at = 0.0  # since when
        self._recovering: dict[str, Settling] = {}  # by what a gate awaits: whether its node has handled everything
        self._meeting = self._new_meeting()
        self._lacks = ""  # what is not known yet of the nodes
        self._looked_at = now()  # for further subscriptions of theirs
        self.has_begun = False
        self.missed = 0  # gates that were passed without their replies
        self._began_at = runner.clock.now()
        self._presence: Presence = "there"  # of the nodes that the run started
        self._held: dict[str, deque[Message]] = {}  # by topic: what they get when they continue
        self._gone: frozenset[Hashable] = frozenset()  # endpoints of nodes that were killed: the graph keeps them
        self._ahead = 0  # ticks since subscribers were last known to have received everything
        self._doubts: dict[str, str] = {}  # node -> why it is not known what it had handled when it replied

    # ---- what the node reports -------------------------------------------------------------------------------------

    def sent(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Close the gates of these messages of one tick; gives them in the order in which they are to go out."""
        if not messages or self._presence == "dead":
            return messages
        if self._presence == "paused":
            for message in messages:
                depth = self._runner.sim.topics[message.topic][1].depth
                self._held.setdefault(message.topic, deque(maxlen=depth)).append(message)
            return ()
        messages = [*(each for topic in self._held for each in self._held[topic]), *messages]
        self._held.clear()
        self._latest = sorted(messages, key=lambda each: (each.topic in self._last, each.topic != CLOCK))
        self._close_gates()
        if self.has_begun:
            self._unsent.extend(self._latest)
            self._send()
        return ()

    def _close_gates(self) -> None:
        sim, now, sent = self._runner.sim, self._runner.clock.now(), {each.topic for each in self._latest}
        stamps: dict[str, list[int]] = {}
        for message in self._latest:
            if message.topic in self._last:
                stamps.setdefault(message.topic, []).append(message.stamp_ns)
        for state in self._states.values():
            gate = state.gate
            if gate.after is not None:
                asked = stamps.get(gate.after, [])
            elif gate.every is not None:
                is_due = sim.tick > 0 and gate.is_due(sim.time_ns, sim.clock.time_ns(sim.tick - 1))
                asked = [sim.time_ns] if is_due else []
            else:
                asked = [sim.time_ns] if isinstance(state, SettleState) and not state.reads.isdisjoint(sent) else []
            if sim.tick == 0:
                state.forget()
                state.replies.clear()
            state.close(asked, now)
        if sim.tick == 0:
            self._unsent.clear()

    def _send(self) -> None:
        """A node gets a message when it has handled the one before, so that none can overtake another."""
        ready: list[Message] = []
        while self._unsent and not any(node in self._busy for node in self._readers.get(self._unsent[0].topic, ())):
            message = self._unsent.popleft()
            ready.append(message)
            for node in self._readers.get(message.topic, ()):
                self._busy[node] = message.topic
                self._has_large = self._has_large or len(message.cdr) > LARGE
        if ready:
            self._publish(ready)
            now = self._runner.clock.now()
            for state in self._states.values():
                state.closed_at = state.opened_at = now
        if not self._unsent:
            self._ask_those_who_owe()
            return
        if self._has_large:
            self._transport.wait_for_acks(ACKNOWLEDGED_S)
            self._has_large = False
        waiting = {node for message in self._unsent for node in self._readers.get(message.topic, ())}
        self._asking = [node for node in self._busy if node in waiting]
        self._handling.begin({node: rounds_after(self._busy[node]) for node in self._asking})

    def _has_sent_all(self) -> bool:
        """Whether the whole tick has been sent; a part follows when nodes have handled the one before."""
        while self._unsent:
            if not self._handling.is_over() or self._is_another(self._states.values()):
                for state in self._states.values():
                    self._wait_for(state)
                if self._handling.silent or self._is_another(self._states.values()):
                    return False
            for node in self._asking:
                self._busy.pop(node, None)
            self._send()
        return True

    def is_handled(self) -> bool:
        """Whether the nodes that can be asked have handled all that they were sent; for the end of a run."""
        now = self._runner.clock.now()
        if self._ending is None:
            self._ending, self._ended_at = Settling(self._transport, self._runner.clock.now), now
            self._ending.begin({node: rounds_after(topic) for node, topic in self._busy.items()})
        if self._ending.is_over():
            return True
        silent, waited = self._ending.silent, now - self._ended_at
        for state in self._states.values():
            if set(silent).isdisjoint(state.nodes.split()):
                continue
            is_late = waited >= state.gate.patience_s
            text = f"{' and '.join(silent)} has not handled the last messages, sent at {self._runner.sim_s:.3f} s"
            text = f"lockstep: waiting at the end since {waited:.1f} s: {text}"
            if is_late and state.gate.policy == "fail":
                raise LockstepError(text)
            if is_late and state.gate.policy == "continue":
                self._warn(f"{text}: ended without it")
                return True
            self._report(state, waited, text)
        return False

    def _ask_those_who_owe(self) -> None:
        """A node that has handled all it was sent owes nothing, however many replies are missing."""
        for state in self._states.values():
            if state.owed and state.is_closed and state.nodes in self._meeting.asked:
                self._recovering[state.gate.awaited] = asking = Settling(self._transport, self._runner.clock.now)
                asking.begin({state.nodes: rounds_after(state.gate.after or CLOCK)})

    def _recover(self) -> None:
        for topic in [topic for topic, asking in self._recovering.items() if asking.is_over()]:
            del self._recovering[topic]
            self._transport.has_received_all(ARRIVED_S)
            self._states[topic].recover(self._runner.clock.now())

    def follow(self, presence: Presence) -> None:
        """While nodes are stopped or dead no gate waits. Messages wait for those that continue, in lockstep at least.

        One that was started again is waited for as at the start.
        """
        before, self._presence = self._presence, presence
        if presence == "dead" and before != "dead":
            self._gone |= {end for state in self._states.values() for end in self._ends((state,))}
            self._held.clear()
            self._unsent.clear()
            self._busy.clear()
        elif before == "dead" and presence == "there":
            self.has_begun, self._began_at = False, self._runner.clock.now()
            self._meeting = self._new_meeting()

    def arrived(self, topic: str, stamp: int | None, deliver: Deliver) -> None:
        state = self._states.get(topic)
        if state is None:
            waiting = self._others.setdefault(topic, deque(maxlen=MOST_REPLIES))
            if len(waiting) == MOST_REPLIES:
                text = f"lockstep: {topic}: dropped a message: more than {MOST_REPLIES:,} wait at a gate"
                self._runner.note("warn", text, f"dropped {topic}")
            waiting.append(deliver)
            return
        left_out = state.left_out
        state.put(stamp, deliver, self._runner.clock.now())
        if state.left_out != left_out:
            self._runner.note("warn", f"lockstep: {topic}: left out a reply: {_why(state)}", f"left out {topic}")
        elif self.has_begun and state.surplus == TOO_MANY and not state.has_surplus:
            state.has_surplus = True
            rule = "replies come more often than the gate takes them, and count later and later: set `count` or `every`"
            self._warn(f"lockstep: {topic}: {TOO_MANY} replies wait for later gates: {rule}")

    # ---- what the runner asks --------------------------------------------------------------------------------------

    def may_step(self) -> bool:
        """Whether all gates are open; then the inputs of the tick have been handed over."""
        if self._presence != "there":
            self._hand_over()
            return True
        if (not self.has_begun and not self._begin()) or not self._has_sent_all():
            return False
        self._settle()
        self._recover()
        closed = [state for state in self._states.values() if state.is_closed]
        for state in closed:
            self._wait_for(state)
        if any(state.is_closed for state in closed):
            return False
        if any(state.asked for state in self._settles) and not self._transport.has_received_all(ARRIVED_S):
            self._runner.note("warn", "lockstep: messages keep arriving: the tick that takes one depends on timing")
        self._hand_over()
        return True

    def _settle(self) -> None:
        """One node after another, as they are listed: the first may send to the second."""
        for state in self._settles:
            is_waiting = state.is_closed and not state.has_newcomers
            if is_waiting and state.advance(self._runner.clock.now()) and self._is_another((state,)):
                state.close(state.asked, state.closed_at)
            if state.is_closed:
                return

    def _is_another(self, states: Iterable[GateState]) -> bool:
        """Whether an answer may be that of a node which took the place of the one that was asked.

        That takes time: after a short wait it is the same.
        """
        now = self._runner.clock.now()
        for state in states:
            if now - state.closed_at >= LOOK_S:
                self._look(state)
        return any(state.has_newcomers for state in states)

    def _hand_over(self) -> None:
        tick, opened = self._runner.sim.tick, [state for state in self._states.values() if state.asked]
        for state in opened:
            waited = max(state.opened_at - state.closed_at, 0.0)
            self._runner.listeners.wait(tick, state.gate.awaited, state.nodes, waited, self._doubt(state.nodes))
            if self._has_handled(state):
                self._busy.pop(state.nodes, None)
        for topic in sorted(self._others):  # for `microsim diff`: who sent them
            nodes = _joined(self._transport.peers(topic, publishers=True))
            settled = {state.nodes for state in self._settles}
            doubt = self._doubt(nodes) if nodes in settled else "no gate waits for it"
            self._runner.listeners.wait(tick, topic, nodes, 0.0, doubt)
        inputs = {**{state.gate.awaited: state.take() for state in opened}, **self._others}
        self._others = {}
        for topic in sorted(inputs):
            for deliver in inputs[topic]:
                deliver()
        now = self._runner.clock.now()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._look_for_subscriptions()
        self._ahead = 0 if opened or self._readers else self._ahead + 1
        if self._ahead >= TICKS_AHEAD:
            self._transport.wait_for_acks(ACKNOWLEDGED_S)
            self._ahead = 0

    def _look_for_subscriptions(self) -> None:
        """A node may subscribe during the run: from then on it is asked about that topic, too.

        Others may join that publish replies, and be taken for it.
        """
        for state in self._states.values():
            if state.gate.expect is not None:
                publishers = self._peers(state.gate.expect, publishers=True)
                joined = {end: node for end, node in publishers.items() if end not in state.publishers}
                self._distrust(_joined(joined), "it joined during the run, which was noticed")
        for node, topics in self._meeting.newly_read().items():
            text = f"{node} has subscribed to {' and '.join(sorted(topics))} during the run"
            self._runner.note("warn", f"lockstep: {text}: what it received before depends on timing")
            self._distrust(node, text)
            self._meeting.reads[node] |= topics
            if node in self._meeting.asked:
                for topic in self._meeting.reads[node]:
                    self._readers[topic] = tuple(sorted({*self._readers.get(topic, ()), node}))

    def _has_handled(self, state: GateState) -> bool:
        """Whether its replies show that its node has handled what it was sent last."""
        if isinstance(state, SettleState):
            return state.settling is not None
        is_last = self._busy.get(state.nodes) == state.gate.after
        return is_last and not state.had_surplus and not state.has_missed

    def _doubt(self, nodes: str) -> str:
        """Why it is not known that replies of these nodes follow from the inputs that were recorded; empty: it is."""
        if not nodes:
            return "the node that replied has no name"
        if " " in nodes:
            return f"several nodes reply: {nodes}"
        return self._doubts.get(nodes, "")

    # ---- the start -------------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Send tick 0 when the nodes of all gates are there, and can be kept to them."""
        now, states = self._runner.clock.now(), self._states.values()
        for state in states:
            self._look(state)
        lacking = [state for state in states if not all(self._sides(state))]
        self._lacks = ""
        if not lacking and (missing := self._must_have() or self._meeting.waits_for(self._ends(states))):
            self._lacks = missing
            lacking = list(states)
        if lacking and not self._gives_up(lacking, now):
            for state in lacking:
                self._report(state, now - self._began_at)
            return False
        self._lacks = ""
        self._take_what_is_known()
        self.has_begun = True
        self._busy.clear()
        if self._latest:  # or the run is under way, and the gates are new
            self._close_gates()
        for state in states:
            state.replies.clear()  # nothing was asked yet, and
            state.owed = 0
            state.had_surplus = state.has_newcomers = False
            state.closed_at = state.opened_at = now
        self._unsent = deque(self._latest)
        self._send()
        return True

    def _new_meeting(self) -> NodeMeeting:
        return NodeMeeting(self._transport, self._runner.clock.now, self._runner.sim.topics)

    def _ends(self, states: Iterable[GateState]) -> Peers:
        """The endpoints of the nodes of these gates."""
        found: dict[Hashable, str] = {}
        for state in states:
            publishers, subscribers = self._sides(state)
            own = {end: node for end, node in subscribers.items() if node in publishers.values()}
            found |= {**publishers, **(own or subscribers)}  # others: the first nodes of a chain
        return found

    def _take_what_is_known(self) -> None:
        """Which nodes are asked, and in how far what they do is known."""
        meeting = self._meeting
        replying = {node for state in self._states.values() for node in state.nodes.split()}
        settling = {state.nodes for state in self._settles if state.settling is not None}
        for state in self._settles:
            state.reads = meeting.reads.get(state.nodes, frozenset())
            if state.nodes in settling and state.nodes not in meeting.asked:
                rule = "it cannot be asked; let it report on a topic: `settle: {node: …, done: TOPIC}`"
                raise LockstepError(f"lockstep: {state.nodes} has no parameter services: {rule}")
        asked = {node for node in (replying & meeting.asked) if len(meeting.reads[node]) > 1 or node in settling}
        self._readers = {
            topic: tuple(node for node in sorted(asked) if topic in meeting.reads[node])
            for topic in self._runner.sim.topics
        }
        for node, doubt in meeting.doubts.items():
            if node in replying and self._doubts.get(node) != doubt:
                way_out = "; a gate `settle: {node: …, done: TOPIC}` waits for what it reports" * (
                    "no parameter" in doubt
                )
                self._warn(f"lockstep: the order in which {node} handles its inputs is not known: {doubt}{way_out}")
            self._doubts.setdefault(node, doubt)

    def _gives_up(self, absent: Sequence[GateState], now: float) -> bool:
        """Whether the run begins without these nodes."""
        late = [each for each in absent if now - self._began_at > max(each.gate.patience_s, PATIENCE_S)]
        for state in late:
            if state.gate.policy == "fail":
                raise LockstepError(self._text(state, now - self._began_at))
        return len(late) == len(absent) and all(state.gate.policy == "continue" for state in late)

    def _sides(self, state: GateState) -> tuple[Peers, ...]:
        """Who publishes the replies, and who subscribes to what is to be answered."""
        gate, peers = state.gate, self._peers
        if gate.settle is None or gate.expect is not None:
            return peers(gate.expect or "", publishers=True), peers(gate.after or CLOCK, publishers=False)
        node, done = gate.settle.node, gate.settle.done
        ends = {end: name for topic in self._runner.sim.topics for end, name in peers(topic, publishers=False).items()}
        reading = {end: name for end, name in ends.items() if name == node}
        return (reading, reading) if done is None else (reading, peers(done, publishers=True))

    def _peers(self, topic: str, publishers: bool) -> Peers:
        found = self._transport.peers(topic, publishers)
        return {end: name for end, name in found.items() if end not in self._gone} if self._gone else found

    # ---- a wait ----------------------------------------------------------------------------------------------------

    def _wait_for(self, state: GateState) -> None:
        now = self._runner.clock.now()
        waited = now - state.closed_at
        if waited < LOOK_S:
            return
        if now - state.looked_at >= LOOK_S:
            state.looked_at = now
            self._look_for_newcomers(state)
        patient_since = max(state.closed_at, state.doubted_at)
        if state.doubtful and now - patient_since >= state.gate.patience_s:
            self._stop_doubting(state)
        if state.gate.policy != "wait" and now - patient_since >= state.gate.patience_s:
            if state.gate.policy == "fail":
                raise LockstepError(self._text(state, waited))
            self._pass(state, waited)
            return
        self._report(state, waited)

    def _stop_doubting(self, state: GateState) -> None:
        """A reply that was taken for an older one counts after all, as none followed.

        But a node that can be asked has not handled the message yet: what it sent answers an older one.
        """
        if state.gate.awaited not in self._recovering:
            state.recover(self._runner.clock.now())

    def _pass(self, state: GateState, waited: float) -> None:
        """Continue without what is missing."""
        if state.is_closed or self._unsent:
            self.missed += 1
            self._warn(f"{self._text(state, waited)}: continued without it")
            state.has_missed, state.has_newcomers = True, False
            state.forget()
            self._handling.begin({})
            self._busy.clear()
            self._distrust(state.nodes, "the run continued without a reply")

    def _distrust(self, nodes: str, doubt: str) -> None:
        for node in nodes.split():
            self._doubts.setdefault(node, f"{doubt} at {self._runner.sim_s:.3f} s")

    def _look(self, state: GateState) -> None:
        """Find the nodes of a gate. Those that have new endpoints are newcomers."""
        publishers, subscribers = self._sides(state)
        if state.publishers - publishers.keys():
            state.owed = 0  # who owes them has gone
        listening = {subscribers[end] for end in subscribers.keys() - state.subscribers}
        if publishers.keys() - state.publishers or not listening.isdisjoint(publishers.values()):
            state.has_newcomers = True
        state.publishers, state.subscribers = frozenset(publishers), frozenset(subscribers)
        state.nodes = state.gate.settle.node if state.gate.settle is not None else _joined(publishers)

    def _look_for_newcomers(self, state: GateState) -> None:
        """A node that has just started cannot have received what it is to answer: send it again.

        As at the start, not before it is known what the node reads, and that both sides have discovered each other.
        """
        self._look(state)
        if not (state.has_newcomers and state.publishers and state.subscribers):
            return
        if self._meeting.waits_for(self._ends(self._states.values())):
            return
        state.has_newcomers = False
        state.owed = 0
        self._take_what_is_known()
        self._distrust(state.nodes, "messages were sent to it again")
        self._runner.note("info", f"lockstep: {state.nodes or 'a node'} has joined: sent again for {state.gate}")
        asking = {CLOCK, state.gate.after}
        if isinstance(state, SettleState):
            asking |= state.reads
            state.close(state.asked, state.closed_at)
        waiting = {id(message) for message in self._unsent}
        again = [each for each in self._latest if each.topic in asking and id(each) not in waiting]
        self._handling.begin({})
        self._busy.clear()
        self._unsent.extendleft(reversed(again))
        self._send()

    # ---- reports ---------------------------------------------------------------------------------------------------

    def _report(self, state: GateState, waited: float, text: str = "") -> None:
        now = self._runner.clock.now()
        if waited >= (STALL_S if self.has_begun else START_S) and now - state.reported_at >= REPEAT_S:
            state.reported_at = now
            self._warn(text or self._text(state, waited))

    def _text(self, state: GateState, waited: float) -> str:
        """Which gate, which node, what was sent to it when, and for how long the run has been waiting."""
        gate, (publishers, subscribers), named = state.gate, self._sides(state), self._transport.resolved
        reason = ""
        if not publishers:
            expected = f"no node publishes {named(gate.expect)}" if gate.expect else ""
            reason = expected or f"no {state.nodes} reads a topic of this run"
        elif not subscribers:
            done = gate.settle.done if gate.settle is not None else None
            which = f"publish {named(done)}" if done is not None else f"subscribe to {named(gate.after or CLOCK)}"
            reason = f"{_names(publishers)} does not {which}"
        if not self.has_begun:
            lacks = f"waiting for {self._lacks}" if self._lacks else "waiting for the others"
            return f"lockstep: the run has not begun, {waited:.1f} s: {reason or lacks}"
        if self._unsent:
            silent = " and ".join(self._handling.silent) or _names(publishers)
            late = reason or f"{silent} has not handled what was sent at {self._runner.sim_s:.3f} s"
            return f"lockstep: waiting before {gate} since {waited:.1f} s: {late}"
        if isinstance(state, SettleState):
            silent = "it has not answered" if state.settling else f"it has not reported {self._sim_s(state)} s"
            late = f"{reason or silent}; messages were sent at {self._runner.sim_s:.3f} s"
            return f"lockstep: waiting for {gate} since {waited:.1f} s: {late}"
        sent = f"{gate.after} at" if gate.after else "the time"
        who = reason or f"no reply from {_names(publishers)}"
        text = f"lockstep: waiting for {gate} since {waited:.1f} s: {who}, which was sent {sent} {self._sim_s(state)} s"
        text += self._delivery(state)
        got = len(state.replies)
        text += f"; {got} of {gate.count * len(state.asked)} replies" if got else ""
        return text + (f"; {state.left_out} left out: {_why(state)}" if state.left_out else "")

    def _delivery(self, state: GateState) -> str:
        """To which endpoints it was sent, and whether they have acknowledged it, where the transport reports that."""
        topic = state.gate.after or CLOCK
        is_acknowledged = self._transport.is_acknowledged(topic)
        if is_acknowledged is None:
            return ""
        own = [
            end.hex()
            for end, node in self._peers(topic, publishers=False).items()
            if isinstance(end, bytes) and node in state.nodes.split()
        ]
        readers = f"reader {' and '.join(own)}: " if own else ""
        return f" ({readers}{'acknowledged' if is_acknowledged else 'not acknowledged'})"

    def _sim_s(self, state: GateState) -> str:
        return f"{(state.asked[0] if state.asked else self._runner.sim.time_ns) / 1e9:.3f}"

    def has_surplus(self, gate: Gate) -> bool:
        """Whether more replies came than it takes."""
        return self._states[gate.awaited].had_surplus

    def status(self) -> tuple[int, str, dict[str, str]]:
        """For /diagnostics: level, message, values."""
        now = self._runner.clock.now()
        start = self._began_at if not self.has_begun else None
        waits = {
            state.gate.awaited: now - (state.closed_at if start is None else start)
            for state in self._states.values()
            if state.is_closed or start is not None
        }
        stalled = [self._text(self._states[topic], waited) for topic, waited in waits.items() if waited >= STALL_S]
        values = {f"waiting_s {topic}": f"{waited:.3f}" for topic, waited in waits.items()}
        return (1 if stalled else 0, "; ".join(stalled) or "ok", {**values, "gates_missed": str(self.missed)})


def _state(gate: Gate, transport: Transport, now: Callable[[], float]) -> GateState:
    if gate.settle is None:
        return GateState(gate)
    asks = gate.settle.done is None
    return SettleState(gate, settling=Settling(transport, now, insists=True) if asks else None)


def _take_done(state: SettleState, cdr: bytes) -> None:
    with suppress(WireError):  # it stays closed, and is named
        stamp = decode_checked(DONE, cdr).stamp
        state.done_ns = max(state.done_ns, int(stamp.sec) * NS_PER_S + int(stamp.nanosec))


def _joined(peers: Peers) -> str:
    return " ".join(sorted(set(peers.values()) - {""}))


def _names(peers: Peers) -> str:
    return " and ".join(sorted(set(peers.values()) - {""})) or "a node without a name"


def _why(state: GateState) -> str:
    if state.gate.match == "stamp" and state.latest_stamp is not None:
        asked = ", ".join(f"{stamp / 1e9:.3f}" for stamp in state.asked) or "none"
        return f"stamp {state.latest_stamp / 1e9:.3f} s, expected {asked}"
    return "it answers a message from before, or too many wait"
