"""A run that an agent drives: its inputs are kept, so that it can be forked, taken back, and rebuilt as a recording."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microsim.errors import UsageError
from microsim.messages.outbox import Message
from microsim.recording.bag_io import RecordOptions
from microsim.recording.recorder import Recorder
from microsim.runner import Pilot
from microsim.scenario import Scenario
from microsim.simulation import Simulation, Snapshot
from microsim.timeline import Timeline, repeat, repeated

WORK_S = 20.0  # of wall time that one call may spend on ticks
_MOST_EVENTS = 50
_MOST_INPUTS = 200_000
_TRAIL_S, _MOST_PLACES = 0.2, 4000
_LARGE = ("sensor_msgs/msg/Image", "sensor_msgs/msg/PointCloud2")  # left out of recordings: a replay makes them again


@dataclass
class AgentRun:
    sim: Simulation
    start: Scenario  # at tick 0
    pilot: Pilot | None = None
    past: Timeline[None] = field(default_factory=Timeline)  # every input
    latest: dict[str, Message] = field(default_factory=dict)  # of each topic
    trails: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    events: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_EVENTS))
    snapshots: dict[str, tuple[Snapshot, Timeline[None]]] = field(default_factory=dict)

    @staticmethod
    def begin(
        scenario: Scenario, seed: int | None, pilot_for: Callable[[Simulation], Pilot | None] = lambda sim: None
    ) -> AgentRun:
        sim = Simulation(scenario, seed)
        run = AgentRun(sim, scenario, pilot_for(sim))
        run._attach()
        run._take(sim.step(0))
        return run

    def _attach(self) -> None:
        self.sim.listen(inputs=self._keep, warnings=lambda text: self.events.append(f"{self.time_s:.3f} s: {text}"))

    def _keep(self, tick: int, item: Any) -> None:
        if len(self.past.inputs) >= _MOST_INPUTS:
            raise UsageError(f"a run takes {_MOST_INPUTS:,} inputs at most; start another")
        self.past.take(tick, item)

    @property
    def time_s(self) -> float:
        return self.sim.time_ns / 1e9

    # ---- time --------------------------------------------------------------------------------------------------------

    def advance(self, ticks: int) -> int:
        """Tick by tick; stops early when the wall time of a call is spent. Returns how many are left."""
        give_up_s = time.monotonic() + WORK_S
        for done in range(ticks):
            self._take(self.sim.step())
            if time.monotonic() > give_up_s:
                return ticks - done - 1
        return 0

    def _take(self, messages: Sequence[Message]) -> None:
        self.latest.update((message.topic, message) for message in messages)
        if self.sim.tick % max(1, round(_TRAIL_S / self.sim.clock.dt)) == 0:
            for robot in self.sim.robots:
                trail, state = self.trails.setdefault(robot, []), self.sim.state(robot)
                trail.append((state.x, state.y))
                if len(trail) > _MOST_PLACES:
                    del trail[::2]
        if self.pilot is not None:
            self.pilot(messages)

    # ---- time travel -------------------------------------------------------------------------------------------------

    def save(self, name: str) -> None:
        self.snapshots[name] = (self.sim.snapshot(), self.past.copy())

    def go_back(self, name: str) -> None:
        snapshot, past = self.snapshots[name]
        self.past = past.copy()
        self._use(snapshot)

    def forked(self) -> AgentRun:
        twin = AgentRun(self.sim, self.start, None, self.past.copy())
        twin.trails = {robot: list(trail) for robot, trail in self.trails.items()}
        twin._use(self.sim.snapshot())
        return twin

    def _use(self, snapshot: Snapshot) -> None:
        self.sim = Simulation(snapshot.initial_scenario, snapshot.seed)
        self.sim.restore(snapshot)
        self.pilot = None  # a mission's plans are not part of a snapshot
        self._attach()

    # ---- as a recording ----------------------------------------------------------------------------------------------

    def record(self, folder: Path) -> Path:
        """Run it again from its inputs, recorded without images and point clouds: a replay makes them again."""
        sim = Simulation(self.start, self.sim.seed)
        large = tuple(topic for topic, (kind, _) in sim.topics.items() if kind in _LARGE)
        give_up_s = time.monotonic() + WORK_S
        with Recorder(folder, sim, RecordOptions(exclude=large)):
            for _ in repeated(sim, self.past.inputs, self.sim.tick, at_once=60):
                if time.monotonic() > give_up_s:
                    raise UsageError(f"the run is too long to be repeated within {WORK_S:g} s")
            for tick, taken in self.past.inputs:
                if tick >= sim.tick:  # not acted on yet
                    repeat(sim, taken)
        if sim.digest() != self.sim.digest():
            raise UsageError("the run could not be repeated exactly, so it is not exported")
        return folder
