"""What the dashboard knows: copied from the run a few times a second by the thread that ticks, then left alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from microsim.engine.components import X, Y
from microsim.messages.outbox import Message
from microsim.runner import Runner
from microsim.view.run_state import LinkState, RecentPace, RunState, ShownSensor, link_states, run_state, shown_sensors

TRAIL_POINTS = 400
TRAIL_S = 0.25  # simulated time between points
_HISTORY = 200  # packets of a link


@dataclass(frozen=True)
class RunFacts(RunState):
    scenario: str
    ticks: int | None  # at the end; None: it runs until stopped
    wall_s: float
    models: Mapping[str, str]  # of the robots
    sensors: tuple[ShownSensor, ...]
    trails: Mapping[str, Sequence[tuple[float, float]]]
    latencies: Mapping[tuple[str, str], Sequence[float | None]]  # [ms] of the last packets of a link; None: lost
    latest: Mapping[str, Message]  # by topic
    ignored: Mapping[str, int]


class FactsCollector:
    """Follows a run from inside its thread; must be quick."""

    def __init__(self, runner: Runner, ticks: int | None) -> None:
        self.runner, self.ticks = runner, ticks
        self.latest: dict[str, Message] = {}
        self._sensors = tuple(shown_sensors(runner.sim.scenario))
        self._trails: dict[str, deque[tuple[float, float]]] = {
            name: deque(maxlen=TRAIL_POINTS) for name in runner.sim.robots
        }
        self._trail_ticks = max(1, round(TRAIL_S / runner.sim.clock.dt))
        self._next_trail = 0
        self._latencies: dict[tuple[str, str], deque[float | None]] = {}
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}
        self._pace = RecentPace()
        self._pace.update(0.0, 0.0)
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
                rows = sim.rows(name)
                trail.append((rows[X], rows[Y]))
            self._follow_radio(link_states(sim))

    def _follow_radio(self, links: Sequence[LinkState]) -> None:
        for link in links:
            key = (link.sender, link.receiver)
            history = self._latencies.setdefault(key, deque(maxlen=_HISTORY))
            delivered, lost = self._counts.get(key, (0, 0))
            history.extend([None] * min(link.lost - lost, _HISTORY))
            history.extend([link.last_latency_ms] * min(link.delivered - delivered, _HISTORY))
            self._counts[key] = (link.delivered, link.lost)

    def facts(self) -> RunFacts:
        runner, sim = self.runner, self.runner.sim
        return RunFacts(
            **run_state(runner, self._pace.update(runner.wall_s, runner.advanced_s)),
            scenario=sim.scenario.name,
            ticks=self.ticks,
            wall_s=runner.wall_s,
            models={name: robot.model for name, robot in sim.scenario.robots.items()},
            sensors=self._sensors,
            trails={name: tuple(trail) for name, trail in self._trails.items()},
            latencies={key: tuple(history) for key, history in self._latencies.items()},
            latest=dict(self.latest),
            ignored=dict(sim.counters),
        )
