"""The page's process, and the two ways to it. Neither can make the run wait.

Frames wait in a single place: as long as one is there, no other is made. Controls wait in a short queue; what is too
much is thrown away. Reading and writing happen in threads, which spend their time waiting for the other process.
"""

from __future__ import annotations

import multiprocessing
import socket
import threading
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

from microsim.view.web.extra import ViewerError, need_extra
from microsim.view.web.interface import Control, Frame, Scene

_MOST_CONTROLS = 256
_START_S = 120.0  # on a busy machine with cold files; a second otherwise


class Channel:
    """Starts the page's process and talks with it."""

    def __init__(self, options: Any) -> None:
        need_extra("the page")
        _check_host(options.host)
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        self._pipe: Connection = here
        self._process = context.Process(target=_serve, args=(there, options), name="microsim-view", daemon=True)
        self._controls: deque[Control] = deque(maxlen=_MOST_CONTROLS)
        self._waiting: Scene | Frame | None = None
        self._news = threading.Condition()
        self._closing = False
        self.is_broken = False
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

    def put(self, item: Scene | Frame) -> None:
        """Hand over; whatever waited in its place is replaced, a scene by a scene only."""
        with self._news:
            if not (isinstance(self._waiting, Scene) and isinstance(item, Frame)):
                self._waiting = item
            self._news.notify()

    def take(self) -> list[Control]:
        """Everything wished for since the last call."""
        found: list[Control] = []
        while self._controls:
            found.append(self._controls.popleft())
        return found

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
                    self._news.wait_for(lambda: self._waiting is not None or self._closing)
                    item, self._waiting = self._waiting, None
                    is_last = self._closing
                if item is not None:
                    self._pipe.send(item)
                if is_last:
                    self._pipe.send(None)
                    return
        except (OSError, ValueError):  # the other side has gone; the run goes on
            self.is_broken = True

    def _read(self) -> None:
        try:
            while True:
                self._controls.append(self._pipe.recv())
        except (EOFError, OSError):
            self.is_broken = True


def _check_host(host: str) -> None:
    """Whether anything can be served there; viser would try for ever."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.bind(address)
    except OSError as error:
        reason = f"{error.strerror or error}; this machine has no such address"
        raise ViewerError(f"the page cannot be served on {host}: {reason}") from None


def _serve(pipe: Connection, options: Any) -> None:
    from microsim.view.web.page.server import serve

    serve(pipe, options)
