"""What gates wait for: replies of a node, or that it has handled what was sent to it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from microsim.parts.ros2.transport import Transport
from microsim.scenario.gates import Gate

CLOCK = "/clock"
AGAIN_S = 1.0  # after which a request that was not answered is repeated
MOST_REPLIES = 10_000  # that may wait for their gates
PROBE = "rcl_interfaces/srv/GetParameterTypes"

Deliver: TypeAlias = Callable[[], None]  # hands a message to the simulation
Answer: TypeAlias = Callable[[], object | None]  # None until it has arrived
Peers: TypeAlias = Mapping[Hashable, str]  # what tells endpoints apart -> the name of its node


@dataclass
class GateState:
    """What one gate waits for, and the replies that have arrived."""

    gate: Gate
    asked: list[int] = field(default_factory=list)  # stamps of the messages to be answered [ns]
    replies: deque[tuple[int | None, Deliver]] = field(default_factory=deque)  # stamp, and what takes it
    owed: int = 0  # replies to messages that no longer matter: they are left out when they arrive
    doubtful: deque[tuple[int | None, Deliver]] = field(default_factory=deque)  # taken for such, since the gate closed
    doubted_at: float = 0.0  # when the latest of these came: if it was late, the next comes soon
    left_out: int = 0  # replies that did not count, and
    latest_stamp: int | None = None  # the stamp of the latest of them [ns]
    had_surplus: bool = False  # once, more replies had arrived than the gate expected
    has_missed: bool = False  # it was passed once without its replies
    has_surplus: bool = False  # that too many replies came was reported
    closed_at: float = 0.0  # wall time
    opened_at: float = 0.0
    reported_at: float = -math.inf
    looked_at: float = 0.0  # at the graph
    nodes: str = ""  # that reply
    publishers: frozenset[Hashable] = frozenset()  # of replies
    subscribers: frozenset[Hashable] = frozenset()  # to what they answer
    has_newcomers: bool = False  # endpoints of its nodes have appeared: they were not sent what they are to answer

    @property
    def is_closed(self) -> bool:
        return len(self.replies) < self.gate.count * len(self.asked)

    @property
    def surplus(self) -> int:
        """Replies that have arrived, but are for later gates."""
        return len(self.replies) - self.gate.count * len(self.asked)

    def close(self, stamps: list[int], now: float) -> None:
        self.forget()
        if self.has_missed:
            self.left_out += len(self.replies)  # they came before what they would answer
            self.replies.clear()
        self.doubtful.clear()
        self.asked, self.closed_at, self.opened_at, self.reported_at = stamps, now, now, -math.inf

    def forget(self) -> None:
        """Continue without the replies that are missing; they are left out if they arrive later."""
        if self.gate.match == "order":
            self.owed += max(self.gate.count * len(self.asked) - len(self.replies), 0)
        self.asked = []

    def put(self, stamp: int | None, deliver: Deliver, now: float) -> None:
        if self.owed or not self._counts(stamp) or len(self.replies) >= MOST_REPLIES:
            if self.owed and self.asked:
                self.doubtful.append((stamp, deliver))
                self.doubted_at = now
            self.owed = max(self.owed - 1, 0)
            self.left_out += 1
            self.latest_stamp = stamp
            return
        was_closed = self.is_closed
        self.replies.append((stamp, deliver))
        self.had_surplus = self.had_surplus or self.surplus > 0
        if was_closed and not self.is_closed:
            self.opened_at = now

    def recover(self, now: float) -> None:
        """Nothing is owed any more. Of the replies that were left out since the gate closed, the last ones count."""
        missing = self.gate.count * len(self.asked) - len(self.replies)
        while self.doubtful and missing > 0:
            self.replies.appendleft(self.doubtful.pop())
            self.left_out -= 1
            missing -= 1
            self.opened_at = now
        self.owed = 0
        self.doubtful.clear()

    def _counts(self, stamp: int | None) -> bool:
        if self.gate.match == "order":
            return True
        before = sum(each == stamp for each, _ in self.replies)
        return before < self.gate.count * self.asked.count(stamp if stamp is not None else -1)

    def take(self) -> list[Deliver]:
        found = [self.replies.popleft()[1] for _ in range(min(self.gate.count * len(self.asked), len(self.replies)))]
        self.asked = []
        return found


@dataclass
class _Question:
    rounds: int  # requests that are still to be answered
    answers: list[Answer] = field(default_factory=list)  # to the present one; several where it was repeated
    asked_at: float = 0.0


class Settling:
    """Finds out when nodes have handled what was sent to them, by requests to each, one after another."""

    def __init__(self, transport: Transport, now: Callable[[], float], insists: bool = False) -> None:
        """`insists`: wait for a node that has left, too."""
        self._transport, self._now, self._insists = transport, now, insists
        self._questions: dict[str, _Question] = {}  # by node

    def begin(self, rounds: Mapping[str, int]) -> None:
        """How many requests each node is to answer."""
        self._questions = {node: _Question(count) for node, count in rounds.items()}

    def is_over(self) -> bool:
        for node in list(self._questions):
            self._advance(node, self._questions[node])
        return not self._questions

    @property
    def silent(self) -> list[str]:
        """Nodes that have not answered yet."""
        return list(self._questions)

    def _advance(self, node: str, question: _Question) -> None:
        if any(answer() is not None for answer in question.answers):
            question.rounds -= 1
            question.answers.clear()
        if not question.rounds:
            del self._questions[node]
        elif not question.answers or self._now() - question.asked_at >= AGAIN_S:  # lost, or sent to one that has died
            question.asked_at = self._now()
            answer = ask(self._transport, node)
            if answer is not None:
                question.answers.append(answer)
            elif not self._insists:  # it has left
                del self._questions[node]


def ask(transport: Transport, node: str) -> Answer | None:
    """A request that a node answers when it has time for it; None: its parameter services cannot be reached."""
    return transport.ask(probe_of(node), PROBE, {"names": []})


def probe_of(node: str) -> str:
    # two slashes: the whole name of a node, whatever the namespace of the simulator
    return f"/{node}/get_parameter_types"


def rounds_after(topic: str) -> int:
    """How many requests a node must answer, one after another, until it has certainly handled a message.

    An executor looks for work at one entity after another, subscriptions first. A message may arrive behind this look,
    and the request before it: so the first answer shows only that another look follows. That look finds the message,
    and subscriptions are served before services. A timer in simulated time fires in the turn after /clock was taken.
    """
    return 3 if topic == CLOCK else 2


@dataclass
class SettleState(GateState):
    """A node that replies only sometimes, or not at all."""

    settling: Settling | None = None  # asks it; None: it reports itself when it is done
    reads: frozenset[str] = frozenset()  # topics
    done_ns: int = -1  # the latest stamp that it reported
    _has_asked: bool = False
    _is_over: bool = False

    @property
    def is_closed(self) -> bool:
        return bool(self.asked) and not self._is_over

    def close(self, stamps: list[int], now: float) -> None:
        super().close(stamps, now)
        self._has_asked = self._is_over = False

    def advance(self, now: float) -> bool:
        """Whether it has settled."""
        if self.settling is None:
            self._is_over = self.done_ns >= max(self.asked)
        else:
            if not self._has_asked:
                self._has_asked = True
                assert self.gate.settle is not None  # or it would be another kind of gate
                self.settling.begin({self.gate.settle.node: max(map(rounds_after, self.reads), default=2)})
            self._is_over = self.settling.is_over()
        self.opened_at = now
        return self._is_over

    def forget(self) -> None:
        self.asked = []

    def take(self) -> list[Deliver]:
        self.asked = []
        return []
