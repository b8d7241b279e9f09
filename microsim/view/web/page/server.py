"""The process of the page: takes frames, draws them, passes on what pages wish."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from microsim.errors import install_hint
from microsim.view.web.interface import FRAME_HZ, Control, Frame, PageOptions, Scene
from microsim.view.web.page.access import Gate, is_loopback
from microsim.view.web.page.html import page_html
from microsim.view.web.page.panel_data import Panels
from microsim.view.web.page.scene import LAYERS, Stage3D, sky
from microsim.view.web.page.view_points import Cameras

_AIM_S = 1.0  # so often it is told where a new page looks from
_PATIENCE = 12  # a lower priority than the run's: on a busy machine the page gets slow, and not the run


def serve(pipe: Connection, options: Any) -> None:
    """Until the run ends or goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then tells us
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # stdout is the run's
    with_priority = getattr(os, "nice", None)
    if with_priority is not None:
        with_priority(_PATIENCE)
    try:
        page = Page(pipe, options)
    except Exception as error:  # whatever it is, the run must hear of it
        pipe.send(("error", _explained(error)))
        return
    pipe.send(("address", page.address))
    with suppress(EOFError, OSError):  # the run has gone
        page.run()
    page.panels.end()
    os._exit(0)  # viser would take its time, and say so


def _explained(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"the page needs {error.name}: {install_hint('view')}"
    return f"the page cannot be served: {error}"


class Page:
    def __init__(self, pipe: Connection, options: Any) -> None:
        self._pipe, self._options = pipe, options
        self._wishes: deque[tuple[str, str, Any]] = deque(maxlen=256)
        self._stage: Stage3D | None = None
        self._frame: Frame | None = None
        self._aimed_s = 0.0
        self.token = None if is_loopback(options.host) else secrets.token_urlsafe(18)
        self.panels = Panels(self._wish)
        gate = Gate(page_html(options.is_dark), self.token, self.panels.serve)
        self.server = _started(options, gate)
        self._cameras = Cameras(self.server, self._home)
        self._own: dict[str, Callable[[str, Any], None]] = {
            "view": self._on_view,
            "layer": self._on_layer,
            "theme": self._on_theme,
            "scale": self._on_scale,
        }
        self._hidden = {name for name, (is_shown, _) in LAYERS.items() if not is_shown}

    @property
    def address(self) -> str:
        host = "127.0.0.1" if self._options.host in ("0.0.0.0", "::") and self.token is None else self._options.host
        address = f"http://{f'[{host}]' if ':' in host else host}:{self.server.get_port()}/"
        return address if self.token is None else f"{address}?token={self.token}"

    def run(self) -> None:
        while self._take():
            self._obey()

    def _obey(self) -> None:
        """The last of each wish: whoever repeats one gets it once."""
        last: dict[tuple[str, ...], tuple[str, str, Any]] = {}
        while self._wishes:
            kind, page, value = self._wishes.popleft()
            last[kind, "" if kind == "scale" else page, str(value)[:40] if kind == "layer" else ""] = kind, page, value
        for kind, page, value in last.values():
            with suppress(AttributeError, KeyError, IndexError, TypeError, ValueError):  # not what our page sends
                self._own[kind](page, value)

    def _take(self) -> bool:
        """Show what has come since the last time, or the same again: pulses go on while the run stands still."""
        newest: Frame | None = None
        wait_s = 1.0 / FRAME_HZ
        while self._pipe.poll(wait_s):
            item = self._pipe.recv()
            if item is None:
                if newest is not None:
                    self._show(newest)
                return False
            if isinstance(item, Scene):
                self._build(item)
                newest = None
            else:
                newest = item if newest is None else _merged(newest, item)
            wait_s = 0.0
        if newest is not None:
            self._show(newest)
        elif self._frame is not None and self._stage is not None:
            self._stage.draw(replace(self._frame, news={}, log=(), way=()))
            self._aim(False)
        return True

    def _show(self, frame: Frame) -> None:
        if self._stage is None:
            return
        is_first, self._frame = self._frame is None, frame
        self._aim(is_first)
        self._stage.draw(frame)
        self._cameras.follow(frame)
        self.panels.tell(frame, self._stage)

    def _build(self, scene: Scene, scale: float | None = None) -> None:
        self.server.scene.reset()
        self.server.scene.set_up_direction("+z")
        self._frame = None
        self._stage = Stage3D(self.server, scene, self._options.shadows, scale)
        for name in LAYERS:
            self._stage.show(name, name not in self._hidden)
        self.panels.begin(scene, self._stage)

    def _home(self) -> tuple[Any, Any]:
        """Eye and centre from where all robots are seen now."""
        if self._stage is None:
            return (0.0, 0.0, 10.0), (0.0, 0.0, 0.0)
        robots = self._frame.robots.values() if self._frame is not None else ()
        return self._stage.home([each.position for each in robots])

    def _aim(self, is_first: bool) -> None:
        """New pages, and those that were open at the start of this scene, see all robots."""
        now = time.monotonic()
        if not is_first and now < self._aimed_s + _AIM_S:
            return
        self._aimed_s = now
        eye, centre = self._home()
        self.server.initial_camera.position = eye
        self.server.initial_camera.look_at = centre
        self.server.initial_camera.fov = 0.8
        self.server.initial_camera.near = 0.05
        self.server.initial_camera.far = 5000.0
        for client in self.server.get_clients().values() if is_first else ():
            self._cameras.put(client, eye, centre)

    # ---- wishes ------------------------------------------------------------------------------------------------------

    def _wish(self, page: str, kind: str, value: Any) -> None:
        """From a page: some things are done by the thread that draws, all others by the run."""
        if kind in self._own:
            self._wishes.append((kind, page, value))
            return
        self._pipe.send(Control(kind, value))

    def _on_view(self, page: str, value: Any) -> None:
        self._cameras.choose(page, str(value.get("mode", "free")), str(value.get("robot", "")))

    def _on_layer(self, page: str, value: Any) -> None:
        name, is_shown = str(value[0]), bool(value[1])
        if name in LAYERS and self._stage is not None:
            (self._hidden.discard if is_shown else self._hidden.add)(name)
            self._stage.show(name, is_shown)
            self.panels.layers = {each: each not in self._hidden for each in LAYERS}

    def _on_theme(self, page: str, value: Any) -> None:
        """Sky and viser's own colours, for that page only."""
        is_dark = bool(value)

        def paint(client: Any) -> None:
            client.scene.set_background_image(sky(is_dark))
            client.gui.configure_theme(dark_mode=is_dark, show_logo=False, show_share_button=False)

        self._cameras.when_there(page, paint)

    def _on_scale(self, page: str, value: Any) -> None:
        if self._stage is not None:
            frame, scene = self._frame, self._stage.scene
            self._build(scene, min(max(float(value), 1.0), 10.0))
            self._frame = frame


def _merged(older: Frame, newer: Frame) -> Frame:
    """The newer of two, with what only the older has to tell."""
    return replace(newer, news={**older.news, **newer.news}, log=(*older.log, *newer.log), way=(*older.way, *newer.way))


def _started(options: Any, gate: Gate) -> Any:
    """viser behind the gate."""
    import viser

    with gate.in_front():
        server = viser.ViserServer(host=options.host, port=options.port, label="MicroSim", verbose=False)
    server.gui.configure_theme(show_logo=False, show_share_button=False)
    return server


def quiet_server() -> Any:
    """For drawing without pages: on this machine, at a port nobody is told, behind a token nobody is given."""
    import contextlib
    import io

    async def nobody(page: str, connection: Any) -> None:
        return

    gate = Gate(b"", secrets.token_urlsafe(18), nobody)
    with contextlib.redirect_stdout(io.StringIO()):
        return _started(PageOptions(port=0), gate)
