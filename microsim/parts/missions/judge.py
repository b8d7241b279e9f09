"""Judges what a mission expects, tick by tick; it only reads the simulation and its messages."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from microsim.engine.components import VELOCITY_X, VELOCITY_Y, VELOCITY_Z, X, Y, Z
from microsim.engine.radio import Link
from microsim.engine.world import World
from microsim.errors import unknown
from microsim.messages import fields_of, is_known, new
from microsim.messages.outbox import Message, on_topic
from microsim.parts.missions.mission_file import (
    AnyExpectation,
    Expectation,
    Mission,
    RadioExpectation,
    RobotExpectation,
    TopicExpectation,
)
from microsim.simulation import Simulation

ROUNDING = 1e-9  # so that 0.03 within 0.01 allows 0.04 despite binary fractions

# ---- values ----------------------------------------------------------------------------------------------------------

Rows = list[float]  # of a robot's state


def _length(*parts: float) -> float:
    return math.sqrt(sum(part * part for part in parts))


DERIVED: Mapping[str, Callable[[Simulation, Rows, Rows], float]] = {  # from a robot's rows, now and at the start
    "position": lambda sim, rows, start: math.nan,  # three numbers: compared separately
    "displacement": lambda sim, rows, start: _length(*(rows[i] - start[i] for i in (X, Y, Z))),
    "height": lambda sim, rows, start: rows[Z] - sim.world.ground(rows[X], rows[Y]),
    "speed": lambda sim, rows, start: _length(*(rows[i] for i in (VELOCITY_X, VELOCITY_Y, VELOCITY_Z))),
    "clearance_cells": lambda sim, rows, start: clearance_cells(sim.world, rows[X], rows[Y]),
}


def clearance_cells(world: World, x: float, y: float) -> float:
    """Distance to the nearest occupied cell or the edge of the map, in cells; 0 in an occupied cell or off the map."""
    if not world.is_inside(x, y):
        return 0.0
    column, row = world.in_cells(x, y)
    rows, columns = np.nonzero(world.occupied)
    beside = np.maximum(np.maximum(columns - column, column - columns - 1), 0.0)
    above = np.maximum(np.maximum(rows - row, row - rows - 1), 0.0)
    ny, nx = world.occupied.shape
    edge: float = min(column, row, nx - column, ny - row)
    return min(edge, math.sqrt(float(np.min(beside * beside + above * above)))) if len(rows) else edge


def radio_value(link: Link, value: str, tick_ms: float) -> float | None:
    """None: there is nothing to measure yet."""
    if value == "drop_rate":
        return link.dropped / link.sent if link.sent else None
    if value == "latency_ms":
        return tick_ms * link.latency_sum / link.delivered if link.delivered else None
    return float(getattr(link, value))


TOPIC_VALUES = ("count", "rate_hz")


class FieldPath:
    """`pose.pose.position.x`, `position_covariance[0]`: the path to a number in a message."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts: list[str | int] = []
        for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", text):
            self.parts.append(name or int(index))

    def problem(self, type_name: str) -> str:
        """What is wrong with it for messages of this type; empty: it is valid."""
        if not is_known(type_name):
            return ""
        if not re.fullmatch(r"\w+(\[\d+\])*(\.\w+(\[\d+\])*)*", self.text):
            return f"expected a field such as pose.pose.position.x or covariance[0], found {self.text!r}"
        message, kind = new(type_name), type_name
        for part in self.parts:
            if isinstance(part, int):
                if not hasattr(message, "__len__") or isinstance(message, str):
                    return f"{self.text!r}: what precedes [{part}] is not a list"
                if part >= len(message):  # a real message may be longer
                    return ""
                message = message[part]
                continue
            names = [name for name, _ in fields_of(kind)] if kind else []
            if part not in names:
                return unknown(f"{kind or 'a number'} has no field", repr(part), part, names)
            message = getattr(message, part)
            kind = getattr(message, "__msgtype__", "")
        return "" if _is_number(message) else f"{self.text!r} is not a number"

    def read(self, message: Any) -> float | None:
        """The number; None if this message has none."""
        for part in self.parts:
            try:
                message = message[part] if isinstance(part, int) else getattr(message, part)
            except (IndexError, TypeError, AttributeError):
                return None
        return float(message) if _is_number(message) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.number, np.bool_))


# ---- expectations ----------------------------------------------------------------------------------------------------


def is_met(expectation: Expectation, value: float) -> bool:
    """A NaN meets no expectation."""
    slack = ROUNDING * max(1.0, abs(value)) if math.isfinite(value) else 0.0
    if isinstance(expectation.equals, float) and not (
        value == expectation.equals or abs(value - expectation.equals) <= expectation.within + slack
    ):
        return False
    if expectation.at_least is not None and not value >= expectation.at_least - slack:
        return False
    return not (expectation.at_most is not None and not value <= expectation.at_most + slack) and not math.isnan(value)


class ExpectationWatch(ABC):
    """One expectation that is being judged, from tick `first` until tick `until`, at which it is decided."""

    complaint = ""  # how it is violated; empty: not so far

    def __init__(self, sim: Simulation, first: int, until: int) -> None:
        self.sim, self.first, self.until = sim, first, until

    @abstractmethod
    def look(self, tick: int, messages: Sequence[Message]) -> None:
        """At each of these ticks."""

    def next_tick(self, tick: int) -> float:
        """When to look after this tick, with all messages since; inf: never."""
        if tick + 1 < self.first:
            return self.first - 1  # without the messages before it
        return tick + 1 if tick < self.until else math.inf

    @property
    def now(self) -> str:
        return f"at {self.sim.time_ns / 1e9:.3f} s"


class RobotWatch(ExpectationWatch):
    def __init__(self, sim: Simulation, entry: RobotExpectation, first: int, until: int) -> None:
        super().__init__(sim, first, until)
        self.entry, self.start = entry, sim.rows(entry.robot)

    def look(self, tick: int, messages: Sequence[Message]) -> None:
        if self.complaint:
            return
        complaint = self._judge(self.sim.rows(self.entry.robot))
        if self.entry.by is None or tick == self.until:
            self.complaint = complaint
        elif not complaint:
            self.until = tick  # decided: nobody looks again

    def _judge(self, rows: Rows) -> str:
        if self.entry.value == "position":
            return self._judge_position(rows)
        if is_met(self.entry, value := self._value(rows)):
            return ""
        last = self.sim.last_contact(self.entry.robot) if self.entry.value == "contacts" else ""
        named = f", the last with {last}" if last else ""
        return f"{self.entry.value} of {self.entry.robot} was {value:.6g} {self.now}{named}"

    def _value(self, rows: Rows) -> float:
        if self.entry.value in DERIVED:
            return DERIVED[self.entry.value](self.sim, rows, self.start)
        return float(getattr(self.sim.state(self.entry.robot), self.entry.value))

    def _judge_position(self, rows: Rows) -> str:
        wanted = self.entry.equals
        assert isinstance(wanted, tuple)
        here = [rows[i] for i in (X, Y, Z)[: len(wanted)]]
        away = math.sqrt(sum((one - other) * (one - other) for one, other in zip(here, wanted, strict=True)))
        if away <= self.entry.within + ROUNDING:
            return ""
        place = ", ".join(f"{part:.3f}" for part in here)
        return f"{self.entry.robot} was at ({place}) {self.now}, {away:.3f} m away"


class TopicWatch(ExpectationWatch):
    count = 0

    def __init__(self, sim: Simulation, entry: TopicExpectation, first: int, until: int) -> None:
        super().__init__(sim, first, until)
        self.entry, self.path = entry, None if entry.value in TOPIC_VALUES else FieldPath(entry.value)

    def look(self, tick: int, messages: Sequence[Message]) -> None:
        if tick < self.until:
            for message in on_topic(messages, self.entry.topic):
                self.count += 1
                self._read(message)
        else:
            self._conclude()

    def next_tick(self, tick: int) -> float:
        if self.path is None and self.first <= tick + 1 < self.until:
            return self.until - 1  # messages are counted, whenever they were sent
        return super().next_tick(tick)

    def _read(self, message: Message) -> None:
        if self.path is None or self.complaint:
            return
        value = self.path.read(message.message)
        if value is None:
            self.complaint = f"{self.entry.topic} had no {self.entry.value} {self.now}"
        elif not is_met(self.entry, value):
            self.complaint = f"{self.entry.value} of {self.entry.topic} was {value:.6g} {self.now}"

    def _conclude(self) -> None:
        if self.path is not None:
            if not self.count:
                self.complaint = f"there was no message on {self.entry.topic}"
            return
        value = float(self.count)
        if self.entry.value == "rate_hz":
            value /= max(self.until - self.first, 1) * self.sim.clock.dt
        if not is_met(self.entry, value):
            self.complaint = f"{self.entry.value} of {self.entry.topic} was {value:.6g}"


class RadioWatch(ExpectationWatch):
    def __init__(self, sim: Simulation, entry: RadioExpectation, until: int) -> None:
        super().__init__(sim, until, until)
        self.entry = entry

    def look(self, tick: int, messages: Sequence[Message]) -> None:
        sender, receiver = self.entry.radio
        link_name = f"from {sender} to {receiver}"
        links = self.sim.radio.links if self.sim.radio else []
        link = next((each for each in links if (each.sender, each.receiver) == self.entry.radio), None)
        value = None if link is None else radio_value(link, self.entry.value, 1000.0 * self.sim.clock.dt)
        if value is None:
            self.complaint = f"there is no {self.entry.value} {link_name}: no packet was {self._lacking(link is None)}"
        elif not is_met(self.entry, value):
            self.complaint = f"{self.entry.value} {link_name} was {value:.6g}"

    def _lacking(self, is_silent: bool) -> str:
        return "delivered" if self.entry.value == "latency_ms" and not is_silent else "sent"


class MissionVerdict(NamedTuple):
    """On one thing that a mission requires."""

    name: str
    problem: str  # empty: it is met, so far
    is_open: bool  # the run ended before it could be judged


class Judge:
    """All expectations of a mission."""

    def __init__(self, sim: Simulation, mission: Mission) -> None:
        self.mission = mission
        self._sim = sim
        self.end = self._tick(mission.duration)
        self.watches: list[ExpectationWatch] = [self._watch(entry) for entry in mission.expect]
        self.tick = -1

    def look(self, messages: Sequence[Message]) -> None:
        self.tick = tick = self._sim.tick
        if tick <= self.end:
            for watch in self.watches:
                if watch.first <= tick <= watch.until:
                    watch.look(tick, messages)

    def next_tick(self, tick: int) -> float:
        """When to look after this tick, with all messages since."""
        return min([watch.next_tick(tick) for watch in self.watches], default=math.inf)

    def undecided(self) -> int:
        """How many could not be judged because the run ended early."""
        return sum(map(self._is_open, self.watches))

    def _is_open(self, watch: ExpectationWatch) -> bool:
        return not watch.complaint and watch.until > self.tick

    def complaints(self) -> list[str]:
        """A sentence for each violated expectation, in their order."""
        return [verdict.problem for verdict in self.verdicts() if verdict.problem]

    def verdicts(self) -> list[MissionVerdict]:
        """On each expectation."""
        found = []
        for index, (entry, watch) in enumerate(zip(self.mission.expect, self.watches, strict=True)):
            place = self.mission._places.problem("", ("expect", index)).place or f"expect[{index}]"
            problem = f"{place}: {watch.complaint}; {entry.bounds()}" if watch.complaint else ""
            found.append(
                MissionVerdict(f"{entry.subject} {entry.value}: {entry.bounds()}", problem, self._is_open(watch))
            )
        return found

    def _tick(self, seconds: float) -> int:
        return self._sim.clock.ticks_in(Fraction(str(seconds)))

    def _watch(self, entry: AnyExpectation) -> ExpectationWatch:
        if isinstance(entry, RadioExpectation):
            return RadioWatch(self._sim, entry, self.end if entry.at is None else self._tick(entry.at))
        until = self.end if entry.to is None else self._tick(entry.to)
        first = 0 if entry.since is None else self._tick(entry.since)
        if isinstance(entry, TopicExpectation):
            return TopicWatch(self._sim, entry, first, until)
        if entry.at is not None:
            first = until = self._tick(entry.at)
        elif entry.by is not None:
            until = self._tick(entry.by)
        elif entry.since is None and entry.to is None:
            first = until
        return RobotWatch(self._sim, entry, first, until)
