"""The live dashboard in the terminal.

The thread that ticks only copies facts, ten times a second; drawing and writing happen in a thread of their own. A slow
terminal shows fewer frames and delays nothing.
"""

from __future__ import annotations

import sys
import threading
import time

from rich.console import Console
from rich.live import Live

from microsim.runner import Runner, Watcher
from microsim.view.dashboard.panels import Screen
from microsim.view.dashboard.run_facts import FactsCollector, RunFacts
from microsim.view.dashboard.world_map import WorldMap
from microsim.view.run_state import robot_states

PERIOD_S = 0.1
_SHARE = 0.25  # of the time at most is spent drawing
_SWITCH_S = 0.001  # the thread that ticks gets the interpreter back within this time


class Dashboard:
    """Shows a run while inside a `with` block."""

    def __init__(self, runner: Runner, ticks: int | None, console: Console | None = None) -> None:
        self._console = console or Console()
        self._collector = FactsCollector(runner, ticks)
        self._screen = screen_of(runner)
        self._facts: RunFacts | None = None
        self._news = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._show, name="dashboard", daemon=True)
        self.error: Exception | None = None  # why it stopped drawing, if it did
        runner.watchers.append(Watcher(PERIOD_S, self._look))

    def __enter__(self) -> Dashboard:
        self._switch_before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._news.set()
        self._thread.join(timeout=2.0)
        sys.setswitchinterval(self._switch_before)

    def _look(self) -> None:
        self._facts = self._collector.facts()
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
        if self._facts is None:
            return
        before = time.thread_time()
        width, height = self._console.size
        live.update(self._screen.draw(self._facts, width, height), refresh=True)
        time.sleep((time.thread_time() - before) * (1.0 / _SHARE - 1.0))


def screen_of(runner: Runner) -> Screen:
    return Screen(WorldMap(runner.sim.world, [robot.position[:2] for robot in robot_states(runner.sim).values()]))
