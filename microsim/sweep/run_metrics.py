"""Metrics of the radio, of sensors, of the mission and of the run as a whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from microsim.engine.radio import Link
from microsim.messages.outbox import Message
from microsim.simulation import Simulation
from microsim.sweep.metric import Metric, Value
from microsim.sweep.trace import Run

# ---- radio and sensors -----------------------------------------------------------------------------------------------


class _Radio(Metric):
    @classmethod
    def problem(cls, sim: Simulation, has_mission: bool) -> str:
        return "" if sim.radio is not None else "there is no radio between robots in this scenario"

    @property
    def links(self) -> Sequence[Link]:
        return [] if self.run.sim.radio is None else self.run.sim.radio.links


class RadioDrop(_Radio):
    """Share of radio packets that were lost, from 0 to 1; no value when none was sent."""

    def value(self) -> Value:
        sent = sum(link.sent for link in self.links)
        return sum(link.dropped + link.overflowed for link in self.links) / sent if sent else None


class RadioSent(_Radio):
    """Radio packets that were sent, counted once for each receiver."""

    kind = int

    def value(self) -> Value:
        return sum(link.sent for link in self.links)


class RadioLatency(_Radio):
    """Mean latency of the radio packets that arrived; no value when none did."""

    unit, needs_messages = "ms", True  # packets arrive only where messages are made

    def value(self) -> Value:
        delivered = sum(link.delivered for link in self.links)
        ticks = sum(link.latency_sum for link in self.links)
        return 1000.0 * self.run.dt * ticks / delivered if delivered else None


_RANGING = {"sensor_msgs/msg/Range": "range", "sensor_msgs/msg/LaserScan": "ranges"}


class MinRange(Metric):
    """Smallest distance that a range sensor or laser scan reported, noise included; no value when none saw anything."""

    unit, of_robots, needs_messages = "m", True, True

    def __init__(self, run: Run, robots: Sequence[str]) -> None:
        super().__init__(run, robots)
        self.least = math.inf
        self.prefixes = tuple(f"/{robot}/" for robot in robots)

    @classmethod
    def able(cls, sim: Simulation) -> Sequence[str]:
        topics = [topic for topic, (kind, _) in sim.topics.items() if kind in _RANGING]
        return [robot for robot in sim.robots if any(topic.startswith(f"/{robot}/") for topic in topics)]

    def hear(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.type in _RANGING and message.topic.startswith(self.prefixes):
                found = getattr(message.message, _RANGING[message.type])
                for distance in [found] if isinstance(found, float) else found.tolist():
                    if math.isfinite(distance) and distance < self.least:
                        self.least = distance

    def value(self) -> Value:
        return self.least if math.isfinite(self.least) else None


# ---- the run ---------------------------------------------------------------------------------------------------------


class Digest(Metric):
    """SHA-256 over every message of the run."""

    kind, needs_messages = str, True

    def value(self) -> Value:
        return self.run.sim.digest()


class Duration(Metric):
    """Simulated time at the end."""

    unit = "s"

    def value(self) -> Value:
        return self.run.sim.time_ns / 1e9


class Ignored(Metric):
    """Inputs that the simulation did not take: NaN in a command, a place inside an obstacle."""

    kind = int

    def value(self) -> Value:
        return sum(self.run.sim.counters.values())


class Violations(Metric):
    """How many things were not as the mission expects."""

    kind: ClassVar[type] = int
    judges = True

    @classmethod
    def problem(cls, sim: Simulation, has_mission: bool) -> str:
        return "" if has_mission else "there is no mission to judge"

    def value(self) -> Value:
        assert self.run.pilot is not None
        return len(self.run.pilot.violations())


class Passed(Violations):
    """Whether all was as the mission expects."""

    kind = bool

    def value(self) -> Value:
        return super().value() == 0
