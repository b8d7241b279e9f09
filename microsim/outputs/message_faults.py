"""Faults on messages in both directions: topics on which they are late, lost, come twice or change places.

What the simulation sends passes here before it is hashed and handed on, what it takes before it is put into force. So
the digest, recordings, nodes and Python all see the same. Draws are keyed by seed, fault and tick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from microsim.engine.noise import stream_key, uniforms
from microsim.engine.schedule import Command, Input, Schedule, Teleport, Transmission
from microsim.engine.timekeeper import Clock, exact_rate
from microsim.errors import UsageError, unknown
from microsim.faults import FAULTS, FaultKind, OnMessages, Passing
from microsim.messages.inputs import INPUTS, InputTarget
from microsim.messages.outbox import entries_in
from microsim.plugin_errors import plugin_errors
from microsim.scenario.models import Scenario

_MADE: dict[str, type[Any]] = {"command": Command, "pose": Teleport, "packet": Transmission}


@dataclass(frozen=True)
class _Fault:
    """A fault, in ticks."""

    kind: FaultKind
    effect: OnMessages
    first: int
    end: int
    delay: int
    probability: float
    key: int

    def concerns(self, tick: int, index: int) -> bool:
        is_on = self.first <= tick < self.end
        return is_on and (self.probability >= 1.0 or uniforms(self.key, tick, index)[0] < self.probability)

    def change(self, passing: Passing, index: int) -> None:
        passing.delay, passing.draw = self.delay, uniforms(self.key, passing.tick, index)[1]
        with plugin_errors(f"the fault {self.kind.name}", self.kind):
            self.effect.change(passing)


@dataclass
class _Lane:
    """The messages of one topic, which keep their order unless they are reordered."""

    faults: tuple[_Fault, ...]
    held: list[tuple[int, Any]] = field(default_factory=list)  # until which tick
    overtaken: list[Any] = field(default_factory=list)  # to follow the next message

    def take(self, tick: int, items: Iterable[Any]) -> int:
        """Gives how many were concerned."""
        concerned = 0
        for index, item in enumerate(items):
            faults, passing = [each for each in self.faults if each.concerns(tick, index)], Passing(tick, tick)
            for each in faults:
                each.change(passing, index)
            concerned += bool(faults)
            copies = [item] * passing.copies
            if passing.is_overtaken and copies and not self.overtaken:
                self.overtaken = copies
            elif copies:
                self._hold(passing.until, [*copies, *self.overtaken])
                self.overtaken = []
        if self.overtaken and not any(each.effect.may_reorder and tick < each.end for each in self.faults):
            self._hold(tick, self.overtaken)  # nothing came that could overtake it
            self.overtaken = []
        return concerned

    def _hold(self, until: int, items: Sequence[Any]) -> None:
        last = self.held[-1][0] if self.held else until
        self.held += [(max(until, last), item) for item in items]

    def release(self, tick: int) -> list[Any]:
        ready = [item for until, item in self.held if until <= tick]
        self.held = self.held[len(ready) :]
        return ready


class FaultySimulation(InputTarget, Protocol):
    @property
    def topics(self) -> Mapping[str, object]: ...


class MessageFaults:
    """Of one run. `affected` counts messages by topic, for /sim/status."""

    def __init__(self, scenario: Scenario, clock: Clock, seed: int) -> None:
        by_topic: dict[str, list[_Fault]] = {}
        self.affected: Counter[str] = Counter()
        for index, fault in enumerate(scenario.faults):
            kind = FAULTS.find(fault.kind, scenario.plugins)
            if kind is not None and isinstance(kind.effect, OnMessages):
                first, end, delay = (
                    clock.ticks_in(exact_rate(each)) for each in (fault.from_s, fault.to_s, fault.delay_s)
                )
                key = stream_key(seed, f"faults/{index}/{fault.target}/{fault.kind}")
                made = _Fault(kind, kind.effect, first, end, delay, fault.probability, key)
                by_topic.setdefault(fault.target, []).append(made)
        self._lanes = {topic: _Lane(tuple(faults)) for topic, faults in by_topic.items()}
        self._taken: dict[tuple[type[Any], str], str] = {}  # what is made of its messages, and robot -> topic

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def check(self, sim: InputTarget, sent: Mapping[str, object]) -> None:
        """Find out which topics are taken; refuse those that are neither sent nor taken."""
        kinds = INPUTS.all(sim.scenario.plugins)
        taken = {
            kind.of(robot): (_MADE[kind.makes], robot)
            for robot in sim.scenario.robots
            for kind in kinds
            if kind.is_meant_for(sim, robot)
        }
        for topic in self._lanes:
            if topic in taken:
                self._taken[taken[topic]] = topic
            elif topic not in sent:
                message = "faults: this run neither sends nor takes"
                raise UsageError(unknown(message, topic, topic, sorted({*sent, *taken})))

    def alterer(self, sim: FaultySimulation, schedule: Schedule) -> Callable[[Sequence[bytes]], list[bytes]] | None:
        """What the outbox calls; None: there is nothing to alter."""
        if not self:
            return None
        self.check(sim, sim.topics)
        return lambda ticks: self.altered(schedule.tick, ticks)

    def parts(self, schedule: Schedule, ticks: int) -> Iterator[int]:
        """Ticks up to each at which a late input counts."""
        end = schedule.tick + ticks
        while self and schedule.tick < end:
            schedule.pending += self.due(schedule.tick)
            yield self.next_tick(schedule.tick, end) - schedule.tick
        if schedule.tick < end or not ticks:
            yield end - schedule.tick

    # ---- what the simulation sends -----------------------------------------------------------------------------------

    def altered(self, last_tick: int, ticks: Sequence[bytes]) -> list[bytes]:
        """Of transcripts without digests, the last of them of this tick."""
        first = last_tick - len(ticks) + 1
        return [self._altered(first + index, tick) for index, tick in enumerate(ticks)]

    def _altered(self, tick: int, transcript: bytes) -> bytes:
        waiting = {topic: lane for topic, lane in self._lanes.items() if topic not in self._taken.values()}
        arrived: dict[str, list[bytes]] = {topic: [] for topic in waiting}
        kept: list[bytes] = []
        for topic, entry in entries_in(transcript):
            (arrived[topic] if topic in waiting else kept).append(entry)
        for topic, lane in waiting.items():
            self.affected[topic] += lane.take(tick, arrived[topic])
            kept += lane.release(tick)
        return b"".join(kept)

    # ---- what it takes -----------------------------------------------------------------------------------------------

    def arrived(self, tick: int, item: Input) -> list[Input]:
        """What counts at once."""
        robot = item.sender if isinstance(item, Transmission) else item.robot
        topic = self._taken.get((type(item), robot))
        if topic is None:
            return [item]
        lane = self._lanes[topic]
        self.affected[topic] += lane.take(tick, [item])
        return lane.release(tick)

    def due(self, tick: int) -> list[Input]:
        """Inputs that were late, and count now."""
        found: list[Input] = []
        for topic in self._taken.values():
            self._lanes[topic].take(tick, ())
            found += self._lanes[topic].release(tick)
        return found

    def next_tick(self, tick: int, end: int) -> int:
        """The first after this at which an input may be due, at most `end`."""
        lanes = [self._lanes[topic] for topic in self._taken.values()]
        ticks = [until for lane in lanes for until, _ in lane.held[:1]]
        ticks += [each.end for lane in lanes if lane.overtaken for each in lane.faults]
        return min((each for each in (*ticks, end) if each > tick), default=end)

    def save(self) -> Any:
        lanes = {topic: (list(lane.held), list(lane.overtaken)) for topic, lane in self._lanes.items()}
        return lanes, dict(self.affected)

    def load(self, saved: Any) -> None:
        lanes, affected = saved
        self.affected.clear()
        self.affected.update(affected)
        for topic, (held, overtaken) in lanes.items():
            if topic in self._lanes:
                self._lanes[topic].held = [(until, item) for until, item in held]
                self._lanes[topic].overtaken = list(overtaken)
