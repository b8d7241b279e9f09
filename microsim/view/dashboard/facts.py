"""What the dashboard knows: copied from the run a few times a second by the thread that ticks, then left alone."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from microsim.messages.outbox import Message
from microsim.runner import Runner
from microsim.view.dashboard.world_map import Place

TRAIL_POINTS = 400
TRAIL_S = 0.25  # simulated time between points
_RECENT_S = 2.0  # over which the achieved real-time factor is taken


@dataclass(frozen=True)
class Robot:
    name: str
    model: str
    place: Place
    z: float
    speed: float  # [m/s]
    turn: float  # [rad/s]
    contacts: int | None  # how often it stood against something; None: it cannot


@dataclass(frozen=True)
class Radio:
    """One direction."""

    sender: str
    receiver: str
    sent: int
    delivered: int
    lost: int
    latency_ms: float  # mean
    queue: int
    history: tuple[float | None, ...]  # [ms] of each packet; None: lost


@dataclass(frozen=True)
class Facts:
    scenario: str
    seed: int
    tick: int
    ticks: int | None  # at the end; None: it runs until stopped
    sim_s: float
    time_ns: int
    wall_s: float
    asked_rtf: float
    rtf: float
    lateness_s: float
    worst_lateness_s: float
    digest: str
    robots: tuple[Robot, ...]
    trails: Mapping[str, Sequence[tuple[float, float]]]
    radios: tuple[Radio, ...]
    latest: Mapping[str, Message]  # by topic
    ignored: Mapping[str, int]


class Collector:
    """Follows a run from inside its thread; must be quick."""

    def __init__(self, runner: Runner, ticks: int | None) -> None:
        self.runner, self.ticks = runner, ticks
        self.latest: dict[str, Message] = {}
        self._trails: dict[str, deque[tuple[float, float]]] = {
            name: deque(maxlen=TRAIL_POINTS) for name in runner.sim.robots
        }
        self._trail_ticks = max(1, round(TRAIL_S / runner.sim.clock.dt))
        self._next_trail = 0
        self._histories: dict[tuple[str, str], deque[float | None]] = {}
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}
        self._past: deque[tuple[float, float]] = deque([(0.0, 0.0)])
        runner.listen(messages=self.follow)
        runner.longest_chunk = self._trail_ticks

    def follow(self, messages: Sequence[Message]) -> None:
        latest = self.latest
        for message in messages:
            latest[message.topic] = message
        sim = self.runner.sim
        if sim.tick >= self._next_trail:
            self._next_trail = sim.tick + self._trail_ticks
            for name, trail in self._trails.items():
                state = sim.state(name)
                trail.append((state.x, state.y))
            self._follow_radio()

    def _follow_radio(self) -> None:
        radio, tick_ms = self.runner.sim.radio, 1000.0 * self.runner.sim.clock.dt
        for link in radio.links if radio else ():
            key = (link.sender, link.receiver)
            history = self._histories.setdefault(key, deque(maxlen=200))
            delivered, lost = self._counts.get(key, (0, 0))
            history.extend([None] * min(link.dropped + link.overflowed - lost, 200))
            history.extend([link.last_latency * tick_ms] * min(link.delivered - delivered, 200))
            self._counts[key] = (link.delivered, link.dropped + link.overflowed)

    def facts(self) -> Facts:
        runner, sim = self.runner, self.runner.sim
        return Facts(
            scenario=sim.scenario.name,
            seed=sim.seed,
            tick=sim.tick,
            ticks=self.ticks,
            sim_s=runner.sim_s,
            time_ns=sim.time_ns,
            wall_s=runner.wall_s,
            asked_rtf=runner.rtf,
            rtf=self._recent_rtf(),
            lateness_s=runner.lateness_s,
            worst_lateness_s=runner.worst_lateness_s,
            digest=sim.digest(),
            robots=tuple(self._robot(name) for name in sim.robots),
            trails={name: tuple(trail) for name, trail in self._trails.items()},
            radios=self._radios(),
            latest=dict(self.latest),
            ignored=dict(sim.counters),
        )

    def _recent_rtf(self) -> float:
        wall, sim = self.runner.wall_s, self.runner.advanced_s
        self._past.append((wall, sim))
        while len(self._past) > 2 and wall - self._past[1][0] > _RECENT_S:
            self._past.popleft()
        before = self._past[0]
        return (sim - before[1]) / (wall - before[0]) if wall > before[0] else 0.0

    def _robot(self, name: str) -> Robot:
        state = self.runner.sim.state(name)
        speeds = [getattr(state, field, 0.0) for field in ("vx", "vy", "vz", "v")]
        contacts = getattr(state, "contacts", None)
        return Robot(
            name,
            self.runner.sim.scenario.robots[name].model,
            Place(state.x, state.y, state.yaw),
            state.z,
            math.hypot(*speeds),
            getattr(state, "yaw_rate", getattr(state, "omega", 0.0)),
            None if contacts is None else int(contacts),
        )

    def _radios(self) -> tuple[Radio, ...]:
        radio, tick_ms = self.runner.sim.radio, 1000.0 * self.runner.sim.clock.dt
        return tuple(self._radio(link, tick_ms) for link in radio.links) if radio else ()

    def _radio(self, link: Any, tick_ms: float) -> Radio:
        mean = link.latency_sum / link.delivered if link.delivered else 0.0
        history = tuple(self._histories.get((link.sender, link.receiver), ()))
        lost = link.dropped + link.overflowed
        return Radio(
            link.sender, link.receiver, link.sent, link.delivered, lost, mean * tick_ms, len(link.queue), history
        )
