"""The process of the page: receives frames, draws them, passes on the requests of pages."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import secrets
import signal
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from microsim.errors import install_hint
from microsim.parts.view.run_state import RobotState
from microsim.parts.view.web.interface import (
    FRAME_HZ,
    PAGE_KINDS,
    BusyWith,
    Control,
    PageFrame,
    PageOptions,
    PageScene,
    PageTrouble,
)
from microsim.parts.view.web.page.access import AccessCheck, is_loopback, split
from microsim.parts.view.web.page.panel_data import Panels
from microsim.parts.view.web.page.stage import LAYERS, Place, Stage3D, sky

_AIM_S = 1.0  # between two updates of where a new page looks from
_NICENESS = 12  # a lower priority than the run's: on a busy machine the page gets slow, not the run
_SMOOTH_S, _CALM_S = 0.15, 0.7  # time constants of cameras: behind a robot, and with all of them in view
_STILL_M = 0.01  # smaller moves of a camera are not sent
_MOST = 1000  # pages that are remembered
_NOTHING = object()


def serve(pipe: Connection, options: PageOptions) -> None:
    """Until the run ends or goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then ends us
    warnings.filterwarnings("ignore", "Queued a .* on a closed connection")  # of viser: a page may close at any time
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # stdout is the run's
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    try:
        page = ViewerPage(pipe, options)
    except ModuleNotFoundError as error:
        pipe.send(("error", f"the page needs {error.name}: {install_hint('view')}"))
        return
    except Exception as error:  # whatever it is, the run reports it
        pipe.send(("error", f"the page cannot be served: {error}"))
        return
    pipe.send(("address", page.address))
    page.run()
    page.panels.end()
    os._exit(0)  # viser would take its time, and print about it


class ViewerPage:
    def __init__(self, pipe: Connection, options: PageOptions) -> None:
        self._pipe, self._options = pipe, options
        self._requests: deque[tuple[str, str, Any]] = deque(maxlen=256)
        self._stage: Stage3D | None = None
        self._frame: PageFrame | None = None
        self._aimed_s = 0.0
        self._is_over = False
        self.token = None if is_loopback(options.host) else secrets.token_urlsafe(18)
        self.panels = Panels(self._request)
        access = AccessCheck(_viewer_html(options.is_dark), self.token, self.panels.serve, options.is_framed)
        self.server = started(options, access)
        self._cameras = Cameras(self.server, self._home, self._frustums)
        self._hidden = {name for name, is_shown in LAYERS.items() if not is_shown}

    @property
    def address(self) -> str:
        host = "127.0.0.1" if self._options.host in ("0.0.0.0", "::") and self.token is None else self._options.host
        address = f"http://{f'[{host}]' if ':' in host else host}:{self.server.get_port()}/"
        return address if self.token is None else f"{address}?token={self.token}"

    def run(self) -> None:
        """Until the run ends or goes away. What cannot be drawn is reported there, and drawing continues."""
        while not self._is_over:
            try:
                self._take()
                self._obey()
            except Exception as error:  # whatever it is, the next frame may be fine
                self._report(error)

    def _report(self, error: Exception) -> None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        with suppress(OSError):  # the run has gone, which the next look at the pipe shows
            self._pipe.send(PageTrouble(text))

    def _obey(self) -> None:
        """The last request of each kind: repeated ones are carried out once."""
        last: dict[tuple[str, ...], tuple[str, str, Any]] = {}
        while self._requests:
            kind, page, value = self._requests.popleft()
            last[kind, "" if kind == "scale" else page, str(value)[:40] if kind == "layer" else ""] = kind, page, value
        for kind, page, value in last.values():
            with suppress(AttributeError, KeyError, IndexError, TypeError, ValueError):  # not what our page sends
                getattr(self, f"_on_{kind}")(page, value)

    def _take(self) -> None:
        """Show what has arrived since the last time, or the same again: pulses continue while the run is paused."""
        newest: PageFrame | None = None
        wait_s = 1.0 / FRAME_HZ
        while (item := self._received(wait_s)) is not _NOTHING:
            if item is None:
                self._is_over = True
                break
            if isinstance(item, BusyWith):
                self.panels.report(item.text)
            elif isinstance(item, PageScene):
                self._build(item)
                newest = None
            else:
                newest = item if newest is None else _merged(newest, item)
            wait_s = 0.0
        if newest is not None:
            self._show(newest)
        elif self._frame is not None and self._stage is not None and not self._is_over:
            self._stage.draw(replace(self._frame, news={}, log=(), way=()))
            self._aim(False)
            self._cameras.follow(self._frame)

    def _received(self, wait_s: float) -> Any:
        """The next item of the run; `_NOTHING` after that time; None: the run has ended or is gone."""
        try:
            return self._pipe.recv() if self._pipe.poll(wait_s) else _NOTHING
        except (EOFError, OSError):
            return None

    def _show(self, frame: PageFrame) -> None:
        if self._stage is None:
            return
        before, self._frame = self._frame, frame
        is_reset = before is not None and frame.epoch != before.epoch and not (frame.is_past or before.is_past)
        self._aim(before is None or is_reset)
        self._stage.draw(frame)
        self._cameras.follow(frame)
        self.panels.update(frame, self._stage)

    def _build(self, scene: PageScene, scale: float | None = None) -> None:
        self.server.scene.reset()
        self.server.scene.set_up_direction("+z")
        self._frame = None
        self._cameras.forget_hidden()
        self._stage = Stage3D(self.server, scene, scale)
        for name in LAYERS:
            self._stage.show(name, name not in self._hidden)
        self.panels.begin(scene, self._stage)

    def _home(self) -> tuple[Any, Any]:
        """Eye and centre from where all robots are seen now."""
        if self._stage is None:
            return (0.0, 0.0, 10.0), (0.0, 0.0, 0.0)
        robots = self._frame.robots.values() if self._frame is not None else ()
        return self._stage.home([each.position for each in robots])

    def _frustums(self, robot: str) -> list[str]:
        """Nodes of the cameras on a robot, in this build of the scene."""
        layers = self._stage.sensors.layers if self._stage is not None else ()
        return [layer.name for layer in layers if layer.look.robot == robot and layer.look.layer == "image"]

    def _aim(self, is_first: bool) -> None:
        """New pages, and those that were open at the start of this scene, see all robots."""
        now = time.monotonic()
        if not is_first and now < self._aimed_s + _AIM_S:
            return
        self._aimed_s = now
        eye, centre = self._home()
        camera = self.server.initial_camera
        camera.position, camera.look_at = eye, centre
        camera.fov, camera.near, camera.far = 0.8, 0.05, 5000.0
        for client in self.server.get_clients().values() if is_first else ():
            self._cameras.put(client, eye, centre)

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _request(self, page: str, kind: str, value: Any) -> None:
        """From a page: some things are done by the thread that draws, all others by the run."""
        if kind == "plot":
            self.panels.plot(str(value))
        if kind in PAGE_KINDS:
            self._requests.append((kind, page, value))
        else:
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
            is_captured = self._stage is not None and bool(self._stage.scene.bundle)  # by day
            client.scene.set_background_image(sky(is_dark and not is_captured))
            client.gui.configure_theme(dark_mode=is_dark, show_logo=False, show_share_button=False)

        self._cameras.when_there(page, paint)

    def _on_scale(self, page: str, value: Any) -> None:
        if self._stage is not None:
            frame, scene = self._frame, self._stage.scene
            self._build(scene, min(max(float(value), 1.0), 10.0))
            self._frame = frame


def _merged(older: PageFrame, newer: PageFrame) -> PageFrame:
    """The newer of two, with what only the older contains."""
    return replace(newer, news={**older.news, **newer.news}, log=(*older.log, *newer.log), way=(*older.way, *newer.way))


def started(options: PageOptions, access: AccessCheck) -> Any:
    """viser behind our access checks."""
    import viser

    with access.in_front():
        server = viser.ViserServer(host=options.host, port=options.port, label="MicroSim", verbose=False)
    server.gui.configure_theme(show_logo=False, show_share_button=False)
    return server


def quiet_server() -> Any:
    """For drawing without pages: on this machine, at a random port and behind a secret token."""

    async def nobody(page: str, connection: Any) -> None:
        return

    access = AccessCheck(b"", secrets.token_urlsafe(18), nobody)
    with contextlib.redirect_stdout(io.StringIO()):
        return started(PageOptions(port=0), access)


# ---- cameras of pages ------------------------------------------------------------------------------------------------


@dataclass
class ViewChoice:
    mode: str = "free"  # free, chase, top, all
    robot: str = ""
    eye: Place | None = None
    centre: Place | None = None
    yaw: float = 0.0
    hidden: tuple[Any, ...] = ()  # clients, and nodes that they do not show


class Cameras:
    """Where each page looks from: free, behind a robot, from above, or with all robots in view."""

    def __init__(self, server: Any, home: Callable[[], tuple[Any, Any]], frustums: Callable[[str], list[str]]) -> None:
        self._server, self._frustums = server, frustums
        self._choices: dict[str, ViewChoice] = {}  # by page
        self._waiting: dict[str, Callable[[Any], None]] = {}  # page -> what to do when its viser client is there
        self.home = home
        self._moved_s = 0.0
        server.on_client_connect(self._greet)
        server.on_client_disconnect(lambda client: self._clients.pop(client.client_id, None))
        self._clients: dict[int, str] = {}

    def _greet(self, client: Any) -> None:
        # viser 1.1 does not say which address a client requested; `test_foreign_internals` notices when it does
        connection = self._server._websock_server._live_connections.get(client.client_id)
        page = split(connection.request.path)[0] if connection is not None and connection.request else ""
        self._clients[client.client_id] = page
        if page in self._waiting:
            self._waiting[page](client)

    def when_there(self, page: str, todo: Callable[[Any], None]) -> None:
        """Now, and whenever this page reconnects."""
        self._waiting[page] = todo
        _bound(self._waiting)
        for client in self.of(page):
            todo(client)

    def of(self, page: str) -> list[Any]:
        clients = self._server.get_clients()
        return [client for number, client in clients.items() if self._clients.get(number) == page]

    def choose(self, page: str, mode: str, robot: str) -> None:
        before = self._choices.get(page, ViewChoice())
        self._choices[page] = ViewChoice(mode, robot, hidden=before.hidden)
        _bound(self._choices)

    def forget_hidden(self) -> None:
        """The scene is built again, with everything visible."""
        for choice in self._choices.values():
            choice.hidden = ()
            choice.eye = choice.centre = None

    def put(self, client: Any, eye: Any, centre: Any) -> None:
        with client.atomic():
            client.camera.position, client.camera.look_at = eye, centre

    def follow(self, frame: PageFrame) -> None:
        now = time.monotonic()
        seconds, self._moved_s = now - self._moved_s, now
        for page, choice in list(self._choices.items()):
            robot, clients = frame.robots.get(choice.robot), self.of(page)
            self._hide_frustums(choice, clients)
            if choice.mode == "free" or not clients or (robot is None and choice.mode != "all"):
                continue
            goal, centre = (
                self.home() if robot is None or choice.mode == "all" else self._behind(choice, robot, seconds)
            )
            is_first, before = choice.eye is None, (choice.eye or goal, choice.centre or centre)
            share = 1.0 - math.exp(-seconds / (_CALM_S if choice.mode == "all" else _SMOOTH_S))
            choice.eye = _between(before[0], goal, share)
            choice.centre = _between(before[1], centre, share if choice.mode == "all" else 1.0)
            moved = max(math.dist(choice.eye, before[0]), math.dist(choice.centre, before[1]))
            for client in clients if is_first or moved > _STILL_M else ():
                self.put(client, choice.eye, choice.centre)

    def _behind(self, choice: ViewChoice, robot: RobotState, seconds: float) -> tuple[Place, Place]:
        """Behind a robot, or above it."""
        x, y, z = robot.position
        if choice.mode == "top":
            return (x, y - 0.01, z + 4.0 * self.distance), (x, y, z)
        share = 1.0 if choice.eye is None else 1.0 - math.exp(-3.0 * seconds)
        choice.yaw += share * math.remainder(robot.rpy[2] - choice.yaw, math.tau)
        back, up = self.distance, 0.45 * self.distance
        return (x - back * math.cos(choice.yaw), y - back * math.sin(choice.yaw), z + up), (x, y, z + 0.3)

    def _hide_frustums(self, choice: ViewChoice, clients: Sequence[Any]) -> None:
        """A robot's own cameras would stand in the way of a view from behind it; other pages still show them.

        viser 1.1 hides a node from all clients or none; `test_foreign_internals` notices when it can from one.
        """
        from viser._messages import SetSceneNodeVisibilityMessage

        names = tuple(self._frustums(choice.robot)) if choice.mode == "chase" else ()
        wanted = (tuple(client.client_id for client in clients), names)
        if not clients or wanted == (choice.hidden or (wanted[0], ())):
            return
        shown = set(choice.hidden[1] if choice.hidden else ()) - set(names)
        for client in clients:
            for name in (*shown, *names):
                message = SetSceneNodeVisibilityMessage(name, name not in names)
                client.scene._websock_interface.queue_message(message)
        choice.hidden = wanted

    distance = 9.0  # [m] behind the robot


def _between(a: Place, b: Place, share: float) -> Place:
    return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]), a[2] + share * (b[2] - a[2])


def _bound(pages: dict[str, Any]) -> None:
    while len(pages) > _MOST:
        del pages[next(iter(pages))]


# ---- the file a browser gets -----------------------------------------------------------------------------------------


def own(name: str) -> str:
    """A script or style of ours."""
    return (files(__name__) / name).read_text(encoding="utf-8")


def _viewer_html(is_dark: bool | None) -> bytes:
    return page_html("MicroSim", is_dark, ("page.css",), ("plots.js", "page.js"))


def page_html(title: str, is_dark: bool | None, styles: Sequence[str], scripts: Sequence[str]) -> bytes:
    """viser's page with our own panels in it: one file, nothing to fetch."""
    import viser

    page = Path(viser.__file__).parent / "client" / "build" / "index.html"
    head = "".join(f"<style>{own(name)}</style>" for name in styles)
    head += f"<script>window.MICROSIM={json.dumps({'dark': is_dark})};</script>"
    head += "".join(f"<script>{own(name)}</script>" for name in scripts)
    return with_head(page.read_text(encoding="utf-8"), title, head).encode()


def with_head(html: str, title: str, head: str) -> str:
    """With our title and scripts, before viser's own."""
    html = html.replace("<title>Viser</title>", f"<title>{title}</title>", 1)
    head = f"<script>{own('splat_bounds.js')}</script>{head}"
    at = html.index('<meta charset="utf-8" />') + len('<meta charset="utf-8" />')
    return html[:at] + head + html[at:]
