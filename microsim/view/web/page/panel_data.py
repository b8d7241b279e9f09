"""What the panels around the scene are told: a small JSON message for each frame, over a websocket of our own."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from microsim.run_log import Note
from microsim.view.web.interface import KINDS, Frame, Scene, Step
from microsim.view.web.page.curves import STEP_S, finite, point
from microsim.view.web.page.scene import LAYERS, Stage3D
from microsim.view.web.page.sensor_layers import CameraView, Fixes, RangeBeam

_PERIOD_S = 1.0 / 15.0  # of what panels are told
_PLOT_S = {"live": 130.0, "replay": 600.0}  # simulated time that the plots know of
_LOG_LINES = 200
_MOST_WISHES, _FLOOD = 120, 1000  # of a page in a second: beyond the first not heard, beyond the second cut off


class Line(NamedTuple):
    """Of the log."""

    version: int
    number: int  # stays its own
    seconds: float
    level: str
    text: str
    times: int


class Panels:
    """`wish(page, kind, value)` is called with what pages want, from the thread of the server."""

    def __init__(self, wish: Callable[[str, str, Any], None]) -> None:
        self._wish = wish
        self._pages: dict[ServerConnection, asyncio.Event] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._scene: dict[str, Any] = {}
        self._shown: Scene | None = None
        self._state: dict[str, Any] = {}
        self._images: dict[str, tuple[int, str]] = {}
        self._plot: deque[tuple[int, float, dict[str, Any]]] = deque()  # number, time, point; as they came
        self._slots: set[int] = set()  # of time, for which there is a point
        self._points = 0
        self._plot_epoch = 0  # another number: some were taken back
        self._log: dict[str, Line] = {}  # by kind, the latest last
        self._lines = 0
        self._epoch = -1
        self._has_ended = False
        self._told: set[ServerConnection] = set()  # of the end
        self.layers = {name: is_shown for name, (is_shown, _) in LAYERS.items()}

    # ---- from the run, in the thread that draws ----------------------------------------------------------------------

    def begin(self, scene: Scene, stage: Stage3D) -> None:
        with self._lock:
            self._scene = {
                "type": "scene",
                "scenario": scene.scenario,
                "title": scene.title,
                "mode": scene.mode,
                "hz": scene.physics_hz,
                "scenarios": list(scene.scenarios),
                "scale": stage.scale,
                "layers": {name: self.layers[name] for name in stage.layers},
                "robots": [
                    {"name": each.name, "model": each.model, "colour": stage.colours[each.name], "limits": each.limits}
                    for each in scene.robots
                ],
                "cameras": [look.topic for look in scene.sensors if look.kind == "camera"],
            }
            if scene is not self._shown:  # else only robots are drawn larger
                self._shown = scene
                self._images.clear()
                self._plot.clear()
                self._slots.clear()
                self._state = {}
        self._wake()

    def tell(self, frame: Frame, stage: Stage3D) -> None:
        with self._lock:
            if frame.epoch != self._epoch:
                self._epoch = frame.epoch
                self._take_back(frame.time_ns / 1e9)
            for note in frame.log:
                self._take_note(note)
            self._take_images(stage)
            self._state = _state(frame, stage)
            for step in frame.way:
                self._plot_step(step)
        self._wake()

    def _take_back(self, seconds: float) -> None:
        """Later points have not happened; those of a recording will again."""
        if self._scene.get("mode") == "replay":
            return
        kept = [each for each in self._plot if each[1] <= seconds]
        if len(kept) < len(self._plot):
            self._plot, self._plot_epoch = deque(kept), self._plot_epoch + 1

    def _plot_step(self, step: Step) -> None:
        seconds, mode = step.time_ns / 1e9, self._scene.get("mode", "live")
        slot = round(seconds / STEP_S)
        if slot in self._slots if mode == "replay" else self._plot and seconds - self._plot[-1][1] < STEP_S - 1e-3:
            return
        self._points += 1
        self._slots.add(slot)
        self._plot.append((self._points, seconds, point(step)))
        if len(self._plot) > _PLOT_S[mode] / STEP_S:
            self._slots.discard(round(self._plot.popleft()[1] / STEP_S))

    def _take_note(self, note: Note) -> None:
        """One line for all of a kind: the newest text, how often, at the end."""
        before = self._log.pop(note.kind, None)
        self._lines += 1
        number, count = (self._lines, 0) if before is None else (before.number, before.times)
        self._log[note.kind] = Line(self._lines, number, note.seconds, note.level, note.text, count + note.count)
        if len(self._log) > _LOG_LINES:
            del self._log[next(iter(self._log))]

    def _take_images(self, stage: Stage3D) -> None:
        for topic, sensor in stage.sensors.items():
            known = self._images.get(topic, (-1, ""))[0]
            if isinstance(sensor, CameraView) and sensor.image is not None and known != sensor.stamp_ns:
                self._images[topic] = sensor.stamp_ns, _png(sensor.image)

    def end(self, patience_s: float = 1.5) -> None:
        """Tell all pages that the run is over; wait a little until they have been told."""
        self._has_ended = True
        self._wake()
        until = time.monotonic() + patience_s
        while self._untold() and time.monotonic() < until:
            time.sleep(0.01)  # pages are told on another thread's loop, which is about to end

    def _untold(self) -> bool:
        return any(page not in self._told for page in list(self._pages))

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for news in self._pages.values():
            news.set()

    # ---- a page, in the thread of the server -------------------------------------------------------------------------

    async def serve(self, page: str, connection: ServerConnection) -> None:
        self._loop = asyncio.get_running_loop()
        news = self._pages[connection] = asyncio.Event()
        news.set()
        sender = asyncio.create_task(self._send(connection, news))
        try:
            heard, since = 0, time.monotonic()
            async for text in connection:
                heard += 1
                if heard <= _MOST_WISHES:
                    self._hear(page, text)
                elif heard > _FLOOD:
                    await connection.close(1008, "too many messages")
                    return
                if time.monotonic() > since + 1.0:
                    heard, since = 0, time.monotonic()
        except ConnectionClosed:
            pass
        finally:
            sender.cancel()
            del self._pages[connection]

    async def _send(self, connection: ServerConnection, news: asyncio.Event) -> None:
        """The newest, as fast as this page takes it."""
        known: dict[str, Any] = {"scene": None, "line": 0, "images": {}, "plot": 0}
        try:
            while True:
                await news.wait()
                news.clear()
                for text in self._unknown_to(known):
                    await connection.send(text)
                if self._has_ended:
                    await connection.send('{"type": "end"}')
                    self._told.add(connection)
                    await connection.close(1001, "the run has ended")
                    return
                await asyncio.sleep(_PERIOD_S)
        except ConnectionClosed:
            return

    def _unknown_to(self, known: dict[str, Any]) -> list[str]:
        with self._lock:
            found: list[dict[str, Any]] = []
            if self._scene and known["scene"] is not self._scene:
                known.update(scene=self._scene, images={}, epoch=None)
                found.append(self._scene)
            if not self._state:
                return [json.dumps(each) for each in found]
            lines = [line[1:] for line in self._log.values() if line.version > known["line"]]
            known["line"] = self._lines
            for topic, (stamp, data) in self._images.items():
                if known["images"].get(topic) != stamp:
                    known["images"][topic] = stamp
                    found.append({"type": "image", "topic": topic, "stamp": stamp / 1e9, "png": data})
            found.append({**self._state, "log": lines, "layers": self.layers, "plot": self._new_points(known)})
            return [json.dumps(each) for each in found]

    def _new_points(self, known: dict[str, Any]) -> dict[str, Any]:
        """Points since the last time; after some were taken back, all of them."""
        is_whole = known.get("epoch") != self._plot_epoch
        points = [each for number, _, each in self._plot if is_whole or number > known["plot"]]
        known["plot"], known["epoch"] = self._points, self._plot_epoch
        return {"whole": is_whole, "points": points}

    def _hear(self, page: str, text: str | bytes) -> None:
        try:
            message = json.loads(text)
            kind, value = message["kind"], message.get("value")
            if kind in KINDS:
                self._wish(page, kind, value)
        except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
            return  # nothing a page sends may harm


def _png(image: Any) -> str:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def _state(frame: Frame, stage: Stage3D) -> dict[str, Any]:
    robots: dict[str, Any] = {}
    for name, robot in frame.robots.items():
        robots[name] = {
            "position": [round(each, 3) for each in robot.position],
            "yaw": round(math.degrees(robot.rpy[2]), 1),
            "speed": finite(robot.speed),
            "turn": finite(robot.turn),
            "height": finite(robot.height),
            "contacts": robot.contacts,
        }
    for sensor in stage.sensors.values():
        if isinstance(sensor, (RangeBeam, Fixes)):
            robots[sensor.look.robot].update(sensor.facts)
    return {
        "type": "state",
        "tick": frame.tick,
        "time": frame.time_ns / 1e9,
        "epoch": frame.epoch,
        "seed": str(frame.seed),
        "next_seed": str(frame.next_seed),
        "paused": frame.is_paused,
        "speed": frame.asked_rtf,
        "rtf": round(frame.rtf, 3),
        "late_ms": round(frame.lateness_ms, 2),
        "worst_ms": round(frame.worst_lateness_ms, 2),
        "digest": frame.digest,
        "driven": frame.driven,
        "pilot": frame.has_pilot,
        "past": list(frame.past),
        "is_past": frame.is_past,
        "robots": robots,
        "links": [
            {
                "from": link.sender,
                "to": link.receiver,
                "sent": link.sent,
                "delivered": link.delivered,
                "lost": link.lost,
                "latency": round(link.latency_ms, 1),
                "last": round(link.last_latency_ms, 1),
                "queued": link.queued,
                "rssi": finite(link.rssi_dbm),
            }
            for link in frame.links
        ],
    }
