"""Where each page looks from: free, behind a robot, or from above."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from microsim.view.web.interface import Frame
from microsim.view.web.page.access import split

_SMOOTH = 0.18  # of the way in a frame
_MOST = 1000  # pages that are remembered


@dataclass
class Choice:
    mode: str = "free"  # free, chase, top
    robot: str = ""
    eye: tuple[float, float, float] | None = None
    yaw: float = 0.0


class Cameras:
    def __init__(self, server: Any, home: Callable[[], tuple[Any, Any]]) -> None:
        self._server = server
        self._choices: dict[str, Choice] = {}  # by page
        self._waiting: dict[str, Callable[[Any], None]] = {}  # page -> what to do when its viser client is there
        self.home = home
        server.on_client_connect(self._greet)
        server.on_client_disconnect(lambda client: self._clients.pop(client.client_id, None))
        self._clients: dict[int, str] = {}

    def _greet(self, client: Any) -> None:
        page = self._page_of(client)
        self._clients[client.client_id] = page
        todo = self._waiting.get(page)
        if todo is not None:
            todo(client)

    def _page_of(self, client: Any) -> str:
        connection = self._server._websock_server._live_connections.get(client.client_id)
        return split(connection.request.path)[0] if connection is not None and connection.request else ""

    def when_there(self, page: str, todo: Callable[[Any], None]) -> None:
        """Now, and whenever this page connects again."""
        self._waiting[page] = todo
        _bound(self._waiting)
        for client in self._of(page):
            todo(client)

    def _of(self, page: str) -> list[Any]:
        clients = self._server.get_clients()
        return [client for number, client in clients.items() if self._clients.get(number) == page]

    def choose(self, page: str, mode: str, robot: str) -> None:
        if mode == "home":
            self._choices.pop(page, None)
            eye, centre = self.home()
            for client in self._of(page):
                self.put(client, eye, centre)
        else:
            self._choices[page] = Choice(mode, robot)
            _bound(self._choices)

    def put(self, client: Any, eye: Any, centre: Any) -> None:
        with client.atomic():
            client.camera.position = eye
            client.camera.look_at = centre

    def follow(self, frame: Frame) -> None:
        for page, choice in list(self._choices.items()):
            robot = frame.robots.get(choice.robot)
            if choice.mode == "free" or robot is None:
                continue
            clients = self._of(page)
            if not clients:
                continue
            x, y, z = robot.position
            share = 1.0 if choice.eye is None else _SMOOTH
            if choice.mode == "chase":
                choice.yaw += (1.0 if choice.eye is None else 0.1) * math.remainder(robot.rpy[2] - choice.yaw, math.tau)
                back, up = self.distance, 0.45 * self.distance
                wish = (x - back * math.cos(choice.yaw), y - back * math.sin(choice.yaw), z + up)
            else:
                wish = (x, y - 0.01, z + 4.0 * self.distance)
            old = choice.eye or wish
            choice.eye = tuple(a + share * (b - a) for a, b in zip(old, wish, strict=True))  # type: ignore[assignment]
            for client in clients:
                self.put(client, choice.eye, (x, y, z + (0.3 if choice.mode == "chase" else 0.0)))

    distance = 9.0  # [m] behind the robot


def _bound(pages: dict[str, Any]) -> None:
    while len(pages) > _MOST:
        del pages[next(iter(pages))]
