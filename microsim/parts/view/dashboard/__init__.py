"""The live dashboard in the terminal.

The thread that ticks only copies what is shown, ten times a second; drawing and writing happen in a thread of their
own. A slow terminal shows fewer frames and delays nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live

from microsim.engine.components import X, Y
from microsim.messages.outbox import Message
from microsim.parts.view import run_state
from microsim.parts.view.dashboard import keyboard
from microsim.parts.view.dashboard.keyboard import NO_KEYS, Keyboard, KeyControls, KeyState
from microsim.parts.view.dashboard.panels import Screen
from microsim.parts.view.dashboard.world_map import WorldMap
from microsim.parts.view.run_state import RunState, ShownSensor
from microsim.runner import Runner, Watcher

PERIOD_S, KEYS_S = 0.1, 0.03
_SHARE = 0.25  # of the time at most is spent drawing
_SWITCH_S = 0.001  # the thread that ticks gets the interpreter back within this time
TRAIL_POINTS = 400
TRAIL_S = 0.25  # simulated time between points
_HISTORY = 200  # packets of a link


@dataclass(frozen=True)
class DashboardState(RunState):
    scenario: str
    ticks: int | None  # at the end; None: it runs until stopped
    wall_s: float
    models: Mapping[str, str]  # of the robots
    sensors: tuple[ShownSensor, ...]
    trails: Mapping[str, Sequence[tuple[float, float]]]
    latencies: Mapping[tuple[str, str], Sequence[float | None]]  # [ms] of the last packets of a link; None: lost
    latest: Mapping[str, Message]  # by topic
    ignored: Mapping[str, int]
    keys: KeyState = NO_KEYS
    graphs: Mapping[str, Sequence[float]] = field(default_factory=dict)  # recent values, by title


class StateCollector:
    """Follows a run from inside its thread; must be quick."""

    def __init__(self, runner: Runner, ticks: int | None) -> None:
        self.runner, self.ticks = runner, ticks
        self.keys: KeyControls | None = None
        self._begin()
        self._pace = run_state.RecentPace()
        self._pace.update(0.0, 0.0)
        runner.listen(messages=self.follow, restarts=lambda sim: self._begin(), jumps=self._begin, every_s=TRAIL_S)

    def _begin(self) -> None:
        """At the start of a run, and after a reset, another scenario or a jump in time."""
        sim = self.runner.sim
        self.scenario = sim.scenario
        self.latest: dict[str, Message] = {}
        self._sensors = tuple(run_state.shown_sensors(sim.scenario))
        self._trails: dict[str, deque[tuple[float, float]]] = {name: deque(maxlen=TRAIL_POINTS) for name in sim.robots}
        self._graphs: dict[str, deque[float]] = {}
        self._trail_ticks = max(1, round(TRAIL_S / sim.clock.dt))
        self._next_trail = 0
        self._latencies: dict[tuple[str, str], deque[float | None]] = {}
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}

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
                self._plot(name)
            self._follow_radio(run_state.link_states(sim))

    def _plot(self, name: str) -> None:
        state = run_state.robot_state(self.runner.sim, name)
        self._graphs.setdefault(f"{name} speed [m/s]", deque(maxlen=_HISTORY)).append(state.speed)
        if state.height > 0.5 or f"{name} height [m]" in self._graphs:
            self._graphs.setdefault(f"{name} height [m]", deque(maxlen=_HISTORY)).append(state.height)

    def _follow_radio(self, links: Sequence[run_state.LinkState]) -> None:
        for link in links:
            key = (link.sender, link.receiver)
            history = self._latencies.setdefault(key, deque(maxlen=_HISTORY))
            delivered, lost = self._counts.get(key, (0, 0))
            history.extend([None] * min(link.lost - lost, _HISTORY))
            history.extend([link.last_latency_ms] * min(link.delivered - delivered, _HISTORY))
            self._counts[key] = (link.delivered, link.lost)

    def state(self) -> DashboardState:
        runner, sim = self.runner, self.runner.sim
        rtf = self._pace.update(runner.wall_s, runner.advanced_s)
        return DashboardState(
            **run_state.run_state(runner, rtf), scenario=sim.scenario.name, ticks=self.ticks, wall_s=runner.wall_s,
            models={name: robot.model for name, robot in sim.scenario.robots.items()}, sensors=self._sensors,
            trails={name: tuple(trail) for name, trail in self._trails.items()},
            latencies={key: tuple(history) for key, history in self._latencies.items()}, latest=dict(self.latest),
            ignored=dict(sim.counters), keys=self.keys.state if self.keys is not None else NO_KEYS,
            graphs={title: tuple(values) for title, values in self._graphs.items()},
        )  # fmt: skip


class Dashboard:
    """Shows a run while inside a `with` block."""

    def __init__(
        self,
        runner: Runner,
        ticks: int | None,
        console: Console | None = None,
        reset: Callable[[int | None], None] | None = None,
    ) -> None:
        self._console = console or Console()
        self._collector = StateCollector(runner, ticks)
        self._screen, self._scenario = screen_of(runner), runner.sim.scenario
        self._keyboard = Keyboard() if keyboard.is_available() else None
        self._stack = ExitStack()
        self._state: DashboardState | None = None
        self._news = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._show, name="dashboard", daemon=True)
        self.error: Exception | None = None  # why it stopped drawing, if it did
        runner.watchers.append(Watcher(PERIOD_S, self._look))
        if self._keyboard is not None:
            self._collector.keys = KeyControls(runner, reset)
            runner.watchers.append(Watcher(KEYS_S, self._press))

    def __enter__(self) -> Dashboard:
        if self._keyboard is not None:
            self._stack.enter_context(self._keyboard.reading())
        self._switch_before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._news.set()
        self._thread.join(timeout=2.0)
        sys.setswitchinterval(self._switch_before)
        self._stack.close()

    def _press(self) -> None:
        if self._keyboard is not None and self._collector.keys is not None:
            pressed = self._keyboard.take()
            self._collector.keys.take(pressed)
            if pressed:
                self._look()

    def _look(self) -> None:
        if self._collector.scenario is not self._scenario:
            self._screen, self._scenario = screen_of(self._collector.runner), self._collector.scenario
        self._state = self._collector.state()
        self._news.set()

    def _show(self) -> None:
        try:
            with Live(console=self._console, screen=True, auto_refresh=False, transient=True) as live:
                while not self._closing:
                    self._news.wait()
                    self._news.clear()
                    self._draw(live)
        except Exception as error:  # whatever a terminal does must not end a run
            self.error = error

    def _draw(self, live: Live) -> None:
        if self._state is None:
            return
        before = time.thread_time()
        width, height = self._console.size
        live.update(self._screen.draw(self._state, width, height), refresh=True)
        time.sleep((time.thread_time() - before) * (1.0 / _SHARE - 1.0))


def screen_of(runner: Runner) -> Screen:
    robots = run_state.robot_states(runner.sim).values()
    return Screen(WorldMap(runner.sim.world, [robot.position[:2] for robot in robots]))
