"""The web page of a run: `with Viewer(runner) as viewer: print(viewer.address); runner.run()`.

The page has a process of its own (the package `page` here). This side copies what is shown thirty times a second, when
the other is ready for it, and carries out the requests of pages between two ticks. Nothing here waits, and nothing here
changes a run that nobody drives.
"""

from __future__ import annotations

import multiprocessing
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

from microsim.messages.outbox import Message
from microsim.parts.view.web.controls import Controls, ReplayTimeline, RewindBuffer, RunControls, SliderTimeline
from microsim.parts.view.web.interface import (
    FRAME_HZ,
    BusyWith,
    Control,
    FrameCollector,
    PageFrame,
    PageOptions,
    PageScene,
    PageTrouble,
    ViewerError,
    need_extra,
)
from microsim.processes import exit_reason
from microsim.runner import Runner, Watcher

__all__ = ["PageOptions", "ReplayTimeline", "RunControls", "SliderTimeline", "Viewer", "ViewerError"]

_MOST_CONTROLS = 256
_MOST_TROUBLES = 32  # different ones that are reported
_START_S = 120.0  # on a busy machine with cold files; a second otherwise


class Viewer:
    """Shows a run on a page while inside a `with` block."""

    def __init__(
        self,
        runner: Runner,
        options: PageOptions | None = None,
        run_controls: RunControls | None = None,
        timeline: SliderTimeline | None = None,
        **scene: Any,
    ) -> None:
        self.runner = runner
        self._run_controls, self._scene_rest = run_controls or RunControls(), scene
        self._collector = FrameCollector(runner)
        past = timeline or RewindBuffer(runner, self._collector)
        self._rewind = past if isinstance(past, RewindBuffer) else None
        self._controls = Controls(runner, self._collector, self._run_controls, past)
        self._collector.past = lambda: past.span
        self._page = PageProcess(options or PageOptions())
        self._controls.report = lambda text: self._page.report(BusyWith(text))
        self.address = self._page.address
        self._last: tuple[Any, ...] = ()
        runner.listen(messages=self._on_messages)
        runner.watchers.append(Watcher(1.0 / FRAME_HZ, self._look))
        self._page.put(self._scene())

    def _scene(self) -> PageScene:
        return self._collector.scene(**{**self._scene_rest, **self._run_controls.about_run()})

    def forbid_branches(self) -> None:
        """For runs that are recorded: a recording has one past only, and ends."""
        self._run_controls.loops = False
        if self._rewind is not None:
            self._rewind.can_branch = False

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self._page.put(self._collector.frame())  # the last moment, whenever the one before was shown
        self._page.close()

    def _on_messages(self, messages: Sequence[Message]) -> None:
        if self._collector.has_changed_scene():
            self._page.put(self._scene())
        self._collector.on_messages(messages)
        if self._rewind is not None:
            self._rewind.on_messages(messages)

    def _look(self) -> None:
        self._controls.take(self._page.take())
        for text in self._page.take_troubles():
            self.runner.sim.listeners.warning(text)
        if not self._page.is_free:
            return
        frame = self._controls.shown or self._collector.frame()
        now = frame.epoch, frame.tick, frame.is_past, frame.is_paused, frame.asked_rtf, frame.next_seed, frame.driven
        if (now, frame.idle, frame.log) != self._last:
            self._page.put(frame)
            self._last = now, frame.idle, frame.log


class PageProcess:
    """Starts the page's process and exchanges frames and controls with it. Neither can make the run wait.

    One frame waits at a time; while it does, no other is made. Controls wait in a short queue, and what exceeds it is
    dropped. Reading and writing happen in threads, which spend their time waiting for the other process.
    """

    def __init__(self, options: PageOptions) -> None:
        need_extra("the page")
        _check_host(options.host)
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        self._pipe: Connection = here
        self._process = context.Process(target=_serve, args=(there, options), name="microsim-view", daemon=True)
        self._controls: deque[Control] = deque(maxlen=_MOST_CONTROLS)
        self._troubles: deque[str] = deque(maxlen=_MOST_TROUBLES)
        self._waiting: PageScene | PageFrame | None = None
        self._progress: BusyWith | None = None
        self._news = threading.Condition()
        self._closing = False
        self.is_broken = False
        with _without_main_module():
            self._process.start()
        there.close()
        self.address = self._greeting()
        for work in (self._write, self._read):
            threading.Thread(target=work, name="microsim-view", daemon=True).start()

    def _greeting(self) -> str:
        """The page's address, once it can be opened."""
        try:
            if not self._pipe.poll(_START_S):
                raise ViewerError(f"the page did not start within {_START_S:.0f} s")
            kind, text = self._pipe.recv()
        except EOFError:
            raise ViewerError("the process of the page ended before it could be opened") from None
        if kind != "address":
            raise ViewerError(str(text))
        return str(text)

    @property
    def is_free(self) -> bool:
        """Whether a frame would be taken now."""
        return self._waiting is None and not self.is_broken

    def put(self, item: PageScene | PageFrame) -> None:
        """Hand over; it replaces whatever waits, except that a frame never replaces a scene."""
        with self._news:
            if not (isinstance(self._waiting, PageScene) and isinstance(item, PageFrame)):
                self._waiting = item
            self._news.notify()

    def report(self, progress: BusyWith) -> None:
        """Hand over at once what the run is busy with; the newest counts."""
        with self._news:
            self._progress = progress
            self._news.notify()

    def take(self) -> list[Control]:
        """Every request since the last call."""
        return [self._controls.popleft() for _ in range(len(self._controls))]

    def take_troubles(self) -> list[str]:
        """What the page could not do since the last call."""
        return [self._troubles.popleft() for _ in range(len(self._troubles))]

    def close(self) -> None:
        with self._news:
            self._closing = True
            self._news.notify()
        self._process.join(timeout=3.0)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(timeout=2.0)

    def _write(self) -> None:
        try:
            while True:
                with self._news:
                    self._news.wait_for(lambda: self._waiting or self._progress or self._closing)
                    items, is_last = (self._progress, self._waiting), self._closing
                    self._progress = self._waiting = None
                for item in items:
                    if item is not None:
                        self._pipe.send(item)
                if is_last:
                    self._pipe.send(None)
                    return
        except (OSError, ValueError):  # the other side has gone; the run continues
            self.is_broken = True

    def _read(self) -> None:
        reported: set[str] = set()
        try:
            while True:
                item = self._pipe.recv()
                if not isinstance(item, PageTrouble):
                    self._controls.append(item)
                elif item.text not in reported and len(reported) < _MOST_TROUBLES:  # each once: frames repeat them
                    reported.add(item.text)
                    self._troubles.append(f"the page could not draw everything: {item.text}")
        except (EOFError, OSError):
            self.is_broken = True
            if not self._closing:
                self._process.join(timeout=3.0)
                how = exit_reason(self._process.exitcode or 0, "")
                self._troubles.append(f"the page is gone, the run continues: {how}")


@contextmanager
def _without_main_module() -> Iterator[None]:
    """`spawn` runs the user's script again in the new process, for which the page has no use.

    Scripts would need `if __name__ == "__main__":` around all they do.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _check_host(host: str) -> None:
    """Refuses an address that nothing can be served on; viser would try without end."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.bind(address)
    except OSError as error:
        reason = f"{error.strerror or error}; this machine has no such address"
        raise ViewerError(f"the page cannot be served on {host}: {reason}") from None


def _serve(pipe: Connection, options: PageOptions) -> None:
    from microsim.parts.view.web.page import serve

    serve(pipe, options)
