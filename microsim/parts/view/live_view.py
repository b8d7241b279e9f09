"""`sim.show()`: the web viewer of a simulation that a script, a Python shell or a notebook advances."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import Any

from microsim.errors import UsageError
from microsim.listening import Listener
from microsim.messages.outbox import Message, Messages
from microsim.parts.view.web import PageOptions, RunControls, Viewer
from microsim.runner import Runner
from microsim.simulation import Simulation

_CATCH_UP_S = 0.1  # after the last step, the page shows what it was too busy for
_HEIGHT_PX = 600  # of the viewer in a notebook


def show(sim: Simulation, block: bool | None = None, open_browser: bool | None = None, port: int = 8080) -> LiveView:
    """See `Simulation.show`."""
    in_notebook = _is_notebook()
    view = LiveView(sim, port, in_notebook)
    if not in_notebook if open_browser is None else open_browser:
        import webbrowser

        webbrowser.open(view.address)
    is_script = not (in_notebook or hasattr(sys, "ps1") or sys.flags.interactive)
    if is_script if block is None else block:
        print(f"the viewer is at {view.address}; Ctrl-C ends it", file=sys.stderr, flush=True)
        with view:
            view.run()
    return view


class LiveView:
    """The viewer of a simulation: it follows `sim.step()`, and `run()` runs in real time with the page's controls."""

    def __init__(self, sim: Simulation, port: int = 8080, is_framed: bool = False) -> None:
        self.sim, self.runner = sim, Runner(sim, 1.0)
        options = PageOptions(port=port, is_framed=is_framed)
        self._viewer = Viewer(self.runner, options, RunControls(self._reset))
        self.address = self._viewer.address
        self._lock = threading.Lock()  # a step and the timer that follows it
        self._timer: threading.Timer | None = None
        self._is_running = self._is_closed = False
        self._listener = sim.listeners.add(Listener(steps=self._on_step))
        self._tick = sim.tick
        self.runner.pause(True)
        self._refresh()

    def run(self, seconds: float | None = None, rtf: float = 1.0) -> None:
        """Run in real time, or at another factor, for so many simulated seconds or until Ctrl-C; the page can drive."""
        if self._is_closed:
            raise UsageError("this view is closed: call sim.show() again")
        self.runner.is_stopping = False
        self.runner.set_rtf(rtf)
        self.runner.pause(False)
        self._is_running = True
        try:
            with suppress(KeyboardInterrupt):
                self.runner.run(None if seconds is None else round(seconds / self.sim.clock.dt))
        finally:
            self._is_running = False
            self.runner.pause(True)
            self._refresh()

    def close(self) -> None:
        """Close the page; the simulation stays as it is."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        self.sim.listeners.remove(self._listener)
        for listener in self.runner.listeners:
            self.sim.listeners.remove(listener)
        self._viewer.__exit__()

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LiveView of {self.sim.scenario.name!r} at {self.address}{', closed' if self._is_closed else ''}>"

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{_HEIGHT_PX}px;border:0;border-radius:8px"
        return f'<iframe src="{self.address}" style="{style}"></iframe>'

    def _on_step(self, messages: Messages) -> None:
        if self._is_running:
            return  # the runner itself hands its messages out
        with self._lock:
            if self.sim.tick < self._tick:
                self.runner.restart(self.sim)  # it was reset, or went back in time
            self._tick = self.sim.tick
            self.runner.publish(messages)
        self._refresh()
        if self._timer is None or not self._timer.is_alive():
            self._timer = threading.Timer(_CATCH_UP_S, self._refresh)
            self._timer.daemon = True
            self._timer.start()

    def _refresh(self) -> None:
        with self._lock:
            for watcher in self.runner.watchers:
                watcher.look()

    def _reset(self, seed: int | None) -> None:
        self.sim.reset(seed)
        self._tick = 0
        self.runner.restart(self.sim)
        self.runner.publish(self.sim.step(0) if self._is_running else _taken(self.sim))


def _taken(sim: Simulation) -> list[Message]:
    """The messages of tick 0, without a call of our own listener, which would wait for itself."""
    with sim.listeners.silenced():
        return list(sim.step(0))


def _is_notebook() -> bool:
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
